"""`tpumon simulate` as a process: what it says, that it serves, how it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import grpc
import pytest

from tpumon import proto as wire
from tpumon.model import SIMULATED_MARK
from tpumon.proto import profiler_pb2

CODE = (
    "import sys\n"
    "from tpumon.cli.commands.simulate import run\n"
    "from tpumon.simulator.simulator_settings import SimulatorSettings\n"
    "sys.exit(run(SimulatorSettings(topology=sys.argv[1], runtime_metrics=sys.argv[2] == 'yes')))\n"
)


def simulate(*arguments):
    return subprocess.Popen([sys.executable, "-c", CODE, *arguments], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_says_where_its_workers_are_serves_and_ends_with_0_when_stopped(number):
    with simulate("v3-32", "yes") as process:
        try:
            lines = [process.stdout.readline().rstrip("\n") for _ in range(5)]
            assert all(line.startswith(SIMULATED_MARK) for line in lines)
            addresses, runtime = [], []
            for i, line in enumerate(lines[:4]):
                found = re.fullmatch(
                    rf"{SIMULATED_MARK}: sim-v3-32-w{i} profiler (127\.0\.0\.1:\d+) runtime metrics (127\.0\.0\.1:\d+)",
                    line,
                )
                assert found, line
                addresses.append(found[1])
                runtime.append(found[2])
            watch = f"tpumon --level 2 --service-addr {','.join(addresses)} --runtime-addr {','.join(runtime)}"
            assert lines[4].endswith(watch)
            with grpc.insecure_channel(addresses[3]) as channel:
                request = profiler_pb2.MonitorRequest(duration_ms=100, monitoring_level=2).SerializeToString()
                answer = channel.unary_unary(wire.MONITOR)(request, timeout=20)
            assert f"{SIMULATED_MARK}: scenario steady" in profiler_pb2.MonitorResponse.FromString(answer).data
            process.send_signal(number)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_without_runtime_metrics_only_the_profilers_are_named():
    with simulate("v5e-8", "no") as process:
        try:
            assert "runtime" not in process.stdout.readline()
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
