"""What workers whose traces take long to read, or cannot be read, cost the others: one interval at most.

In virtual time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import pairwise

import pytest

from support import virtual_time
from support.traces import CONV, Traced, run_step
from tpumon.errors import SourceError
from tpumon.model import Query, Target
from tpumon.sampler import Pace, Sampler
from tpumon.sources import SourceOptions, readers
from tpumon.sources.trace import TraceSource, _Taken
from tpumon.targets.base import Fixed
from tpumon.xspace import figures, read_trace

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

    async def _take(self, query, turn):
        await turn.hold(1000)
        await asyncio.sleep(WINDOW_S)
        xspace = {"unreadable": UNREADABLE, "slow": SLOW}.get(self._target.worker.split("-")[0], GOOD)
        return _Taken(xspace, 0.0, advanced=False)


def good_trace():
    traced = Traced()
    run_step(traced.core(0), 0, [(CONV, 50)] * 3)
    return traced.bytes()


GOOD = good_trace()


@pytest.fixture
def time_given(monkeypatch):
    """By lane, how often a reader spent more time than usual ones may on a bad trace; time is virtual."""
    given, result = defaultdict(int), figures([read_trace(GOOD)])

    async def read(xspace, lane, _ops):
        async with lane.reader():
            take_s = {UNREADABLE: lane.cpu_s, SLOW: 1.1 * SourceOptions().sharing.quick.cpu_s}.get(xspace, READ_S)
            given[lane.nice] += xspace != GOOD
            await asyncio.sleep(take_s)
            if xspace == UNREADABLE:
                raise SourceError("too-large", "given up")
            return result, take_s

    monkeypatch.setattr(readers, "read", read)
    return given


async def no_pause():
    return None


@pytest.fixture(params=[1, 2])
def processors(monkeypatch, request):
    """How many processors tpumon may use."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(request.param)))
    return request.param


def read_at_once(lane, takes_s):
    """When reading traces in a lane that come at once ends, and how many are read at a time, at most."""
    ended_s, busy = [], []

    async def one(take_s):
        async with lane.reader():
            busy.append(busy[-1] + 1 if busy else 1)
            await asyncio.sleep(take_s)
            busy.append(busy[-1] - 1)
            ended_s.append(asyncio.get_running_loop().time())

    async def main():
        start_s = asyncio.get_running_loop().time()
        await asyncio.gather(*map(one, takes_s))
        return [end_s - start_s for end_s in ended_s]

    return virtual_time.run(main()), max(busy)


def test_no_more_usual_traces_are_read_at_a_time_than_there_are_processors(processors):
    """Two that read on one processor at once take more of its time for the same traces."""
    ended_s, most = read_at_once(SourceOptions().sharing.quick, [READ_S] * 8)
    assert most == processors
    assert max(ended_s) == pytest.approx(8 * READ_S / processors)


def test_a_process_that_hangs_holds_nobody_up_for_long(processors):
    """Also on one processor: others are read meanwhile, one after the other."""
    ended_s, most = read_at_once(SourceOptions().sharing.quick, [60.0, *[READ_S] * 8])
    assert most == 2
    assert ended_s[-2] < 8 * READ_S + 0.3


@pytest.mark.parametrize("fault", ["unreadable", "slow"])
@pytest.mark.parametrize("bad", [1, 4])
def test_a_worker_that_cannot_be_read_costs_the_others_one_interval_at_most(fault, bad, processors, time_given):
    """And that once: from then on it waits for others like it, and every healthy worker is asked at every interval."""
    names = [f"w{i}" for i in range(16)]
    arrived_s = defaultdict(list)

    async def main():
        done = asyncio.Event()

        def take(sample):
            if sample.answered:
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
            companions=(),
            pause=no_pause,
        )
        running = asyncio.create_task(sampler.run())
        async with asyncio.timeout(100 * INTERVAL_S):
            await done.wait()
        running.cancel()
        await asyncio.wait([running])
        return [later - earlier for name in names for earlier, later in pairwise(arrived_s[name])]

    gaps_s = virtual_time.run(main())
    quick, heavy = SourceOptions().sharing.quick.nice, SourceOptions().sharing.heavy.nice
    assert time_given[quick] == bad
    assert time_given[heavy] >= bad
    assert max(gaps_s) < 2 * INTERVAL_S * 1.1  # one more than usual, and its jitter
    assert sum(gap_s > 1.3 * INTERVAL_S for gap_s in gaps_s) <= len(names)
