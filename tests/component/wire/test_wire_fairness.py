"""Workers that hang, or whose traces cannot be read, take nothing from the others."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from urllib.request import urlopen

import pytest

from fakes.answering import Answering
from fakes.protobuf import field
from fakes.run import Tpumon
from fakes.tpu_node import TpuNode
from support import odd_reading
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sources import SourceOptions, rpc
from tpumon.collection.sources.traces import profile_rpc
from tpumon.collection.sources.traces import source as trace
from tpumon.discovery.finder import Fixed
from tpumon.model import Query, Target

INTERVAL_S = 0.5
QUERY = Query(level=2, window_s=0.05)
PROBE_MS = 1
PATIENCE_S = 100.0
UNREADABLE = field(8, field(1, field(2, "/device:TPU:0")) + field(1, field(2, odd_reading.ENDLESS)))


@contextlib.contextmanager
def bad_servers(count, profile):
    """As many addresses of a profiler server without Monitor that does this with every Profile."""

    with Answering(profile, threads=4 * count + 4, host="0.0.0.0") as server:
        yield [f"127.0.{1 + i // 200}.{1 + i % 200}:{server.port}" for i in range(count)]


def hang(_request, context):
    while context.is_active():
        time.sleep(0.05)
    return b""


def hang_after_the_probe(request, context):
    return field(8, field(1, field(2, "/device:TPU:0"))) if _is_probe(request) else hang(request, context)


def stuck(request, _context):
    return field(8, field(1, field(2, "/device:TPU:0"))) if _is_probe(request) else UNREADABLE


def _is_probe(request):
    return request.startswith(bytes([8, PROBE_MS]))


def open_descriptors():
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def follow(addresses, enough, options=None):
    """The samples of each address that a sampler takes until there are enough; fails the test if it takes too long."""
    seen = defaultdict(list)

    async def main():
        done = asyncio.Event()

        def take(sample):
            seen[sample.address].append(sample)
            if enough(seen):
                done.set()

        sampler = Sampler(
            Fixed([Target(worker=address, address=address) for address in addresses]),
            QUERY,
            Pace(interval_s=INTERVAL_S, max_duty_ratio=1.0),
            on_sample=take,
            options=options,
            profilers=[trace.TraceSource],
            extra_sources=(),
        )
        running = asyncio.create_task(sampler.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await done.wait()
        finally:
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(main())
    return seen


@pytest.fixture(autouse=True)
def _sooner(monkeypatch):
    """What takes ten seconds takes less, so that the tests do."""
    for place, name in (
        (rpc, "ANSWER_GRACE_S"), (profile_rpc, "ANSWER_GRACE_S"), (rpc, "FIRST_ANSWER_S"), (trace, "_PATIENCE_S")
    ):  # fmt: skip
        monkeypatch.setattr(place, name, 2.5)


def answered(seen, address):
    return sum(sample.source == "trace" for sample in seen[address])


@pytest.mark.parametrize(
    ("count", "profile"),
    [(5, hang), (5, hang_after_the_probe), (2, stuck)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_healthy_workers_keep_their_turns(count, profile):
    """More others hang than may be asked at once, and hold up none of four; test_wire_new_workers.py has hundreds."""
    options = SourceOptions()
    options.slots.known = asyncio.Semaphore(4)
    options.slots.others = asyncio.Semaphore(4)
    with contextlib.ExitStack() as stack:
        stack.enter_context(odd_reading.odd_readers())
        healthy = [stack.enter_context(TpuNode(device=True)).address for _ in range(4)]
        bad = stack.enter_context(bad_servers(count, profile))

        def enough(seen):
            return all(answered(seen, each) >= 6 for each in healthy) and all(seen[each] for each in bad)

        seen = follow([*bad, *healthy], enough, options)
    named = {sample.failure.reason for address in bad for sample in seen[address]}
    assert named == {"too-large" if profile is stuck else "deadline"}
    took_s = [sample.took_s for each in healthy for sample in seen[each][2:]]
    assert median(took_s) < 1.0
    assert not any(sample.failure for each in healthy for sample in seen[each])


def test_the_wait_for_a_turn_is_part_of_the_interval():
    """A worker that waits because its turn does not come says what its interval really is."""
    options = SourceOptions()
    options.slots.known = options.slots.others = asyncio.Semaphore(1)

    def waited(seen):
        return [
            sample
            for each in seen.values()
            for sample in each
            if sample.has_figures and sample.took_s > 1.2 * INTERVAL_S
        ]

    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(TpuNode(device=True)).address for _ in range(12)]
        seen = follow(nodes, waited, options)
    assert all(sample.interval_s >= sample.took_s for sample in waited(seen))


def test_descriptors_are_kept_back():
    """Workers that hang do not use up the descriptors that scrapes, files and processes need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = open_descriptors() + 120
    free = []

    def refused(seen):
        free.append(limit - open_descriptors())
        return any("file descriptors" in sample.failure.message for each in seen.values() for sample in each)

    with bad_servers(60, hang) as bad:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            follow(bad, refused)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert min(free) > 20


def test_scrapes_are_answered_although_hung_workers_take_all_descriptors():
    """198 of them, and 64 descriptors for the whole process."""
    with bad_servers(198, hang) as bad, Tpumon(
        "serve", "--listen", "127.0.0.1:0", "--service-addr", ",".join(bad)
    ) as serve:  # fmt: skip
        resource.prlimit(serve._process.pid, resource.RLIMIT_NOFILE, (64, 64))
        serve.wait_for(lambda: "listening on" in serve.err and "file descriptors" in serve.err)
        page = re.search(r"http://\S+/metrics", serve.err)[0]
        for url in (page, page.replace("/metrics", "/-/healthy")) * 5:
            with urlopen(url, timeout=60) as answer:
                assert answer.status == 200
