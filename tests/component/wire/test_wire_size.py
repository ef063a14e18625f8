"""Traces that are too large, and the memory that tpumon takes for those that are not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.protobuf import field
from fakes.run import Tpumon
from fakes.tpu_node import Raw, TpuNode, Trace
from support import wait_until
from support.processes import children, status
from support.traces import CONV, Traced, run_step
from tpumon.collection.sources import Client, SourceOptions
from tpumon.collection.sources.traces.source import TraceSource
from tpumon.errors import SourceError
from tpumon.model import Query, Target
from tpumon.system.limits import _limits
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts


def large(megabytes):
    """A device's trace of that size: an ordinary one, and a plane that nobody needs."""
    traced = Traced()
    core = traced.core(0)
    for step in range(20):
        run_step(core, 100 * step, [(CONV, 50)])
    return traced.bytes() + field(1, field(2, "/host:metadata") + field(4, bytes(megabytes * 1_000_000)))


def test_a_larger_trace_is_refused_and_the_next_window_is_shorter():
    """`too-large`, the job's time is counted, and the window halves until the trace fits; then it stays so."""

    async def main():
        options = SourceOptions(max_trace_mb=1)
        async with Client(node.address, max_bytes=1_000_000) as client:
            source = TraceSource(client, Target(worker="w", address=node.address), options)
            for _ in range(3):
                with pytest.raises(SourceError) as refused:
                    await source.fetch(Query(level=2))
                assert refused.value.reason == "too-large"
                assert "0.954 MiB" in refused.value.message
                assert refused.value.traced_s > 0
            return source._window

    with TpuNode(device=True, captures=Raw(reply=field(8, bytes(2_000_000)))) as node:
        window = asyncio.run(main())
        asked = [call.fields["opts"]["duration_ms"] for call in node.captures]
    assert asked == [500, 250, 125]
    window.learn(1.0)
    assert window.length_s == pytest.approx(0.1)


def peak_mb(pid):
    """The most memory that a process and its children had, in MB."""
    return sum(status(process, "VmHWM") for process in (pid, *children(pid))) // 1000


def test_an_ordinary_large_trace_fits_the_limits_of_deploy():
    """A trace of 60 MB takes less than 0.7 GB, all processes together; manifests and unit allow 1."""
    with (
        TpuNode(device=True, captures=Trace(xspace=large(60))) as node,
        Tpumon("--service-addr", node.address, "--output", "jsonl", "--interval", "1") as tpumon,
    ):
        tpumon.wait_for(lambda: '"source":"trace"' in tpumon.out.replace(" ", ""))
        assert peak_mb(tpumon._process.pid) + 60 < 700  # it is also in a file in memory, which belongs to no process


def test_readers_end_with_tpumon():
    """Even if tpumon is killed, no process that reads traces is left."""
    with (
        TpuNode(device=True) as node,
        Tpumon("--service-addr", node.address, "--output", "jsonl", "--interval", "1") as tpumon,
    ):
        tpumon.wait_for(lambda: '"source":"trace"' in tpumon.out.replace(" ", ""))
        readers = children(tpumon._process.pid)
        assert readers
        tpumon._process.kill()
        wait_until(lambda: not any(Path(f"/proc/{reader}/cmdline").exists() for reader in readers), 60, "they end")


@pytest.mark.parametrize(
    ("membership", "files", "limits"),
    [
        ("0::/\n", {"memory.max": "1073741824\n"}, [1 << 30]),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "1000\n", "memory.max": "max\n"}, [1000]),
        ("4:memory:/x\n1:cpu:/x\n", {"memory/x/memory.limit_in_bytes": "2000\n"}, [2000]),
        ("0::/gone\n", {}, []),
    ],
)
def test_the_limit_of_a_container_is_known(tmp_path, membership, files, limits):
    """That of a control group of either version, and of those above it."""
    (tmp_path / "cgroup").write_text(membership)
    for name, text in files.items():
        file = tmp_path / "fs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert _limits(tmp_path / "cgroup", tmp_path / "fs") == limits


@pytest.mark.parametrize("flops", [1 << 63, (1 << 64) - 1, 1 << 62, 1 << 60])
def test_absurd_flops_make_no_figure(flops):
    """A number that no chip can do counts as unknown; it neither ends the analysis nor makes a figure."""
    traced = Traced()
    core = traced.core(0)
    run_step(core, 0, [(type(CONV)("fusion.9", "convolution fusion", flops=flops), 50)])
    run_step(core, 100, [(CONV, 50)])
    absurd = figures_of_hosts([read_host_totals(traced.bytes())]).figures
    assert absurd.mxu_utilization_ratio is None or 0 <= absurd.mxu_utilization_ratio <= 1
    assert 0 <= absurd.flops_utilization_ratio < 1


CLIENTS = """
import asyncio, sys
from tpumon import proto as wire
from tpumon.collection.sources import Client
from tpumon.proto.profiler_pb2 import ProfileOptions, ProfileRequest, ProfileResponse

def size_mb():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1000

async def main():
    clients = [Client(sys.argv[1]) for _ in range(40)]
    async def call(client):
        request = ProfileRequest(opts=ProfileOptions(duration_ms=2))
        reply = await client.call(wire.PROFILE, request, ProfileResponse, timeout_s=60)
        assert len(reply.xspace) > 1_000_000
    await call(clients[0])
    before_mb = size_mb()
    for first in [*range(0, 40, 4)] * 4:
        await asyncio.gather(*map(call, clients[first : first + 4]))
    print(size_mb() - before_mb)
    for client in clients:
        await client.close()

asyncio.run(main())
"""


def test_a_connection_keeps_little_of_the_last_trace():
    """After answers of 2 MB each, 40 connections hold less than 60 MB; gRPC's own choice holds 100."""
    with TpuNode(device=True, captures=Raw(reply=field(8, bytes(2_000_000)))) as node:
        ran = subprocess.run([sys.executable, "-c", CLIENTS, node.address], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) < 60
