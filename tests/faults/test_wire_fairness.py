"""Workers that hang, or whose traces cannot be read, take nothing from the others."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections import defaultdict
from concurrent import futures
from functools import cache
from itertools import pairwise
from pathlib import Path

import grpc
import pytest

from fakes.protobuf import field
from fakes.tpu_node import TpuNode
from support.traces import Traced
from tpumon.model import Query, Target
from tpumon.sampler import Pace, Sampler
from tpumon.sources import SourceOptions, readers, trace
from tpumon.targets.base import Fixed

INTERVAL_S = 0.5
QUERY = Query(level=2, window_s=0.05)
PROBE_MS = 1


@cache
def expensive():
    """A trace of half a megabyte that takes half a second to read."""
    traced = Traced()
    host = traced.host()
    for number in range(12_000):
        host.event("python", f"PjitFunction(f{number})", 3 * number, 2)
    return traced.bytes()


@contextlib.contextmanager
def bad_servers(count, profile):
    """As many addresses of a profiler server without Monitor that does this with every Profile."""

    def monitor(_request, context):
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "unimplemented.")

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            method = monitor if details.method.endswith("Monitor") else profile
            return grpc.unary_unary_rpc_method_handler(method)

    server = grpc.server(futures.ThreadPoolExecutor(4 * count + 4), handlers=[Handler()])
    port = server.add_insecure_port("0.0.0.0:0")
    server.start()
    yield [f"127.0.{1 + i // 200}.{1 + i % 200}:{port}" for i in range(count)]
    server.stop(None).wait()


def hang(_request, context):
    while context.is_active():
        time.sleep(0.05)
    return b""


def hang_after_the_probe(request, context):
    return field(8, field(1, field(2, "/device:TPU:0"))) if _is_probe(request) else hang(request, context)


def stuck(request, _context):
    return field(8, field(1, field(2, "/device:TPU:0")) if _is_probe(request) else expensive())


def _is_probe(request):
    return request.startswith(bytes([8, PROBE_MS]))


def open_descriptors():
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def follow(addresses, seconds, options=None):
    """The samples of each address that a sampler took in that time: (when, sample)."""
    seen = defaultdict(list)

    async def main():
        sampler = Sampler(
            Fixed([Target(worker=address, address=address) for address in addresses]),
            QUERY,
            Pace(interval_s=INTERVAL_S, max_duty_ratio=1.0),
            on_sample=lambda sample: seen[sample.address].append((time.monotonic(), sample)),
            options=options,
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await sampler.run()

    asyncio.run(main())
    return seen


@pytest.fixture(autouse=True)
def _sooner(monkeypatch):
    """What takes ten seconds takes less, so that the tests do."""
    monkeypatch.setattr(trace, "_QUICK_PROBE_S", 0.3)
    monkeypatch.setattr(trace, "_QUICK_TRACE_S", 0.3)
    monkeypatch.setattr(trace, "_QUICK_READING_S", 0.1)
    monkeypatch.setattr(readers, "_CPU_S", 0.3)
    monkeypatch.setattr(readers, "_CPU_S_PER_MB", 0.0)


@pytest.mark.parametrize(
    ("count", "profile", "most_gaps"),
    [(2, hang, 4), (100, hang, 4), (100, hang_after_the_probe, 4), (8, stuck, 8)],  # reading takes all cores there are
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_healthy_workers_keep_their_interval(count, profile, most_gaps):
    """However many others hang or cannot be read, four healthy ones are sampled as if they were alone."""
    with contextlib.ExitStack() as stack:
        healthy = [stack.enter_context(TpuNode(device=True)).address for _ in range(4)]
        bad = stack.enter_context(bad_servers(count, profile))
        start_s = time.monotonic()
        seen = follow([*bad, *healthy], 9)
    settled_s = start_s + 4
    for address in healthy:
        answers = [at for at, sample in seen[address] if sample.source == "trace"]
        assert answers, "no sample at all"
        late = [at for at in [settled_s, *answers, start_s + 9] if at >= settled_s]
        gaps = [b - a for a, b in pairwise(late)]
        assert max(gaps) < most_gaps * INTERVAL_S  # of a loaded machine; without turns of their own: for good
        assert len(late) > 24 / most_gaps
    named = {sample.failure.reason for address in bad for _, sample in seen[address] if sample.failure}
    assert named <= {"deadline", "too-large"}
    assert len({address for address in bad if seen[address]}) >= min(count, 24)


def test_the_wait_for_a_turn_is_part_of_the_interval():
    """A worker that waits because its turn does not come says what its interval really is."""
    options = SourceOptions()
    options.sharing.quick.turns = asyncio.Semaphore(1)
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(TpuNode(device=True)).address for _ in range(12)]
        seen = follow(nodes, 5, options)
    samples = [sample for address in nodes for _, sample in seen[address] if sample.answered]
    assert any(sample.took_s > 1.2 * INTERVAL_S for sample in samples)
    assert all(sample.interval_s >= sample.took_s for sample in samples if sample.took_s > 1.2 * INTERVAL_S)


def test_descriptors_are_kept_back():
    """Workers that hang do not use up the descriptors that scrapes, files and processes need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = open_descriptors()
    with bad_servers(60, hang) as bad:
        resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 120, hard))
        try:
            free = []
            watched = asyncio.run(_with(bad, free))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert min(free) > 20
    assert any("file descriptors" in sample.failure.message for sample in watched if sample.failure)


async def _with(addresses, free):
    """Samples workers for three seconds and notes how many descriptors are free."""
    samples = []
    sampler = Sampler(
        Fixed([Target(worker=address, address=address) for address in addresses]),
        QUERY,
        Pace(interval_s=INTERVAL_S, max_duty_ratio=1.0),
        on_sample=samples.append,
    )

    async def watch():
        while True:
            free.append(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - open_descriptors())
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(3):
            await sampler.run()
    watching.cancel()
    return samples
