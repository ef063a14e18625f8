"""What workers whose traces take long to read, or cannot be read, cost the others: one interval at most.

In virtual time.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from itertools import pairwise

import pytest

from support import virtual_time
from support.odd_reading import VirtualReaderPool
from support.traces import CONV, Traced, run_step
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sources import SourceOptions
from tpumon.collection.sources.traces import readers
from tpumon.collection.sources.traces.source import TraceSource, _TakenTrace
from tpumon.discovery.finder import Fixed
from tpumon.model import Query, Target
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts

INTERVAL_S, WINDOW_S, READ_S, ROUNDS = 1.0, 0.1, 0.025, 12
UNREADABLE, SLOW = b"unreadable", b"slow"


class NoClient:
    """A channel that nobody calls."""

    connection, connected = 1, True

    def __init__(self, address):
        self.address = address

    async def wait_for_turn(self):
        pass

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        pass


class Source(TraceSource):
    """Its traces come after the window; those of bad workers cannot be read, or take long. All else is as it is."""

    async def _take(self, window_s, **_how):
        await asyncio.sleep(window_s)
        self._in_time_on = 1
        xspace = {"unreadable": UNREADABLE, "slow": SLOW}.get(self._target.worker.split("-")[0], GOOD)
        return _TakenTrace(xspace, 0.0, window_s, is_lighter=False)

    async def _returns_traces(self):
        return True


def good_trace():
    traced = Traced()
    run_step(traced.core(0), 0, [(CONV, 50)] * 3)
    return traced.bytes()


GOOD = good_trace()


@pytest.fixture
def odd_readers(monkeypatch):
    """Bad traces take more time than usual ones may, or than any may; time is virtual."""
    result = figures_of_hosts([read_host_totals(GOOD)])
    takes_s = {UNREADABLE: math.inf, SLOW: 1.1 * readers.QUICK.cpu_s}
    for name, count in (("QUICK", 2), ("SLOW", 1)):
        cpu_s = getattr(readers, name).cpu_s
        virtual = VirtualReaderPool(count, lambda xspace: takes_s.get(xspace, READ_S), result, cpu_s=cpu_s)
        monkeypatch.setattr(readers, name, virtual)


async def no_pause():
    return None


@pytest.mark.parametrize("fault", ["unreadable", "slow"])
@pytest.mark.parametrize("bad", [1, 4])
def test_a_worker_that_cannot_be_read_costs_the_others_one_interval_at_most(fault, bad, odd_readers):
    """And that once: from then on it waits for others like it, and every healthy worker is asked at every interval."""
    names = [f"w{i}" for i in range(16)]
    arrived_s = defaultdict(list)

    async def main():
        done = asyncio.Event()

        def take(sample):
            if sample.has_figures:
                arrived_s[sample.worker].append(asyncio.get_running_loop().time())
            if all(len(arrived_s[name]) >= ROUNDS for name in names):
                done.set()

        sampler = Sampler(
            Fixed([Target(worker=name, address=name) for name in (*(f"{fault}-{i}" for i in range(bad)), *names)]),
            Query(level=2, window_s=WINDOW_S),
            Pace(interval_s=INTERVAL_S, max_duty_ratio=1.0),
            on_sample=take,
            options=SourceOptions(),
            open_client=NoClient,
            profilers=[Source],
            extra_sources=(),
            pause=no_pause,
        )
        running = asyncio.create_task(sampler.run())
        async with asyncio.timeout(100 * INTERVAL_S):
            await done.wait()
        running.cancel()
        await asyncio.wait([running])
        return [later - earlier for name in names for earlier, later in pairwise(arrived_s[name])]

    gaps_s = virtual_time.run(main())
    assert readers.QUICK.given_up == bad
    assert readers.SLOW.given_up >= bad if fault == "unreadable" else not readers.SLOW.given_up
    assert max(gaps_s) < 2 * INTERVAL_S * 1.1  # one more than usual, and its jitter
    assert sum(gap_s > 1.3 * INTERVAL_S for gap_s in gaps_s) <= len(names)
