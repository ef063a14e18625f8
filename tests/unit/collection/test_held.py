"""What is seen without a query is told at once, however long the interval: a pause, a job that was stopped or ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time

import pytest

from support import virtual_time
from support.no_client import NoClient
from support.samples import sample as taken
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sources import ProfilerSource, SourceOptions
from tpumon.discovery.finder import Fixed
from tpumon.errors import SourceError
from tpumon.model import Process, Query, Target
from tpumon.system.pausing import Pause

PROCESS = Process(pid=7)


class Channel(NoClient):
    """One that notes whether it was closed, as its process is another one."""

    closed = False

    async def close(self):
        Channel.closed = True


class Fake(ProfilerSource):
    """A source that answers, or fails from the second query on.

    Args:
        traced_s: for which a query traces the job.
        reason: of its failures.
    """

    name, rpc, usual_interval_s = "fake", "Fake", 0.0

    def __init__(self, traced_s=0.0, reason=None):
        self.traced_s = traced_s
        self.reason = reason
        self.costs_job = traced_s > 0
        self.calls, self.probes = [], []

    def __call__(self, client, target, options):
        Channel.closed = False
        return self

    async def fetch(self, query):
        self.calls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.traced_s)
        if self.reason is not None and len(self.calls) > 1:
            raise SourceError(self.reason, self.reason)
        return taken("a", address="a", window_s=query.window_s, interval_s=query.interval_s, traced_s=self.traced_s)

    def likely_s(self, query):
        return self.traced_s

    async def probe(self):
        self.probes.append(asyncio.get_running_loop().time())


def told(source, *, paused=(), states=(), switches_of=lambda _pid: None, for_s=200, until=lambda _s: 0.0, doing=None):
    """What is told of a job with an interval of a minute, as (time, reason); an answer has none.

    Args:
        source: of its figures.
        paused: spans of time in which this host is.
        states: of its process, as (state, from, until); `a bug`: it cannot be seen.
        switches_of: says how often that has left a processor.
        for_s: how long it is followed; from time 1000 on.
        until: the end of the pause, as it is known at a time.
        doing: gets the sampler's present action, each second.
    """
    samples = []

    def clock_s():
        return asyncio.get_running_loop().time()

    async def pause():
        is_paused = any(begin <= clock_s() < end for begin, end in paused)
        return Pause(until_unix_s=until(clock_s()), who="owner") if is_paused else None

    def state_of(pid):
        assert pid == PROCESS.pid
        state = next((state for state, begin, end in states if begin <= clock_s() < end), "runs")
        if state == "a bug":
            raise ValueError(state)
        return state

    async def run():
        sampler = Sampler(
            Fixed([Target(worker="a", address="a", process=PROCESS)]),
            Query(level=2, window_s=1.0),
            Pace(interval_s=60.0),
            on_sample=lambda one: samples.append((clock_s(), one)),
            open_client=Channel,
            profilers=[source],
            extra_sources=[],
            pause=pause,
            options=SourceOptions(state_of=state_of, context_switches_of=switches_of),
        )

        async def look():
            while True:
                await asyncio.sleep(1)
                doing[clock_s()] = sampler._options.progress.of("a")

        async with asyncio.timeout(for_s):
            await asyncio.gather(sampler.run(), *([] if doing is None else [look()]))

    with contextlib.suppress(TimeoutError):
        virtual_time.run(run())
    return samples


def reasons(samples, begin_s, end_s):
    """Those that were told in this span of time."""
    return ["" if one.failure is None else one.failure.reason for at_s, one in samples if begin_s <= at_s < end_s]


@pytest.mark.parametrize("traced_s", [0.0, 1.5])
def test_a_pause_is_told_at_once_and_so_is_its_end(traced_s):
    """By a probe, where the job may not be traced yet; over the connection that it had."""
    source = Fake(traced_s)
    samples = told(source, paused=[(1010.5, 1020.5)])
    assert reasons(samples, 1005, 1015) == reasons(samples, 1010.5, 1012) == ["paused"]
    assert reasons(samples, 1015, 1030) == reasons(samples, 1020.5, 1022) == [""]
    assert bool(source.probes) == (traced_s > 0)
    assert not Channel.closed


def test_a_pause_that_ends_later_than_it_was_to_is_told_with_its_end():
    """Or a view would name one that has passed. Reading it again moves it by no second."""
    samples = told(Fake(), paused=[(1010.5, 1050)], until=lambda at_s: 1030 + at_s % 0.3 + 20 * (at_s > 1020))
    told_s = [at_s for at_s, one in samples if one.failure is not None]
    assert len(told_s) == 2
    assert (told_s[0], told_s[1]) == pytest.approx((1011, 1021), abs=1.1)


def test_what_comes_after_a_pause_is_known_at_once_also_where_the_job_may_not_be_traced_yet():
    """As long as it is paused, that it is; then, for how long it waits."""
    doing = {}
    told(Fake(1.5), paused=[(1005.5, 1007), (1010.5, 1012)], doing=doing)
    held = {at_s: one.is_held for at_s, one in doing.items()}
    assert held[1012.0] is True
    assert not any(is_held for at_s, is_held in held.items() if at_s >= 1013.1)
    assert doing[1014.0].words == "traced"
    assert doing[1014.0].left_s(0) is not None


def test_when_a_pause_ends_the_worker_is_asked_and_that_is_what_is_counted_down():
    """Not until the next look while it lasts."""
    doing, ends_s = {}, 1030.5
    told(Fake(), paused=[(1010.5, ends_s)], until=lambda now_s: time.time() + ends_s - now_s, doing=doing)
    left_s = doing[1013.0].until_unix_s - doing[1013.0].begun_unix_s
    assert ends_s - 1013 <= left_s <= ends_s - 1010


def test_however_often_a_pause_ends_the_job_is_probed_now_and_then_only():
    """Its end is told by a sample when the job may be traced."""
    source = Fake(1.5)
    samples = told(source, paused=[(1005.5 + 3 * i, 1007 + 3 * i) for i in range(60)], for_s=400)
    assert 2 <= len(source.probes) <= 1 + 200 / 30
    assert min(later - before for before, later in itertools.pairwise(source.probes)) >= 30
    assert "" in reasons(samples, 1200, 1400)


def test_a_pause_that_begins_while_it_waits_to_be_traced_is_told_at_once():
    """A query that is due waits, as it costs more than was thought."""
    source = Fake(0.9)
    source.likely_s = lambda _query: 0.1 if asyncio.get_running_loop().time() < 1050 else 2.0
    samples = told(source, paused=[(1075.5, 1080)])
    assert reasons(samples, 1060, 1080) == reasons(samples, 1075.5, 1077) == ["paused"]


def test_a_job_that_a_signal_has_stopped_is_told_and_not_asked():
    """From the second look on; and that it goes on."""
    source = Fake()
    samples = told(source, states=[("stopped", 1010.5, 1100.5)])
    assert reasons(samples, 1010.5, 1013) == ["deadline"]
    stopped = next(one for at_s, one in samples if at_s > 1010)
    assert stopped.failure.message == "its process is stopped by a signal (SIGSTOP): `kill -CONT 7` lets it go on"
    assert (stopped.failure.detail, stopped.process) == ("stopped", PROCESS)
    assert set(reasons(samples, 1100.5, 1102)) == {""}
    assert not [at_s for at_s in source.calls if 1010.5 < at_s < 1100.5]


@pytest.mark.parametrize(
    ("state", "until_s", "is_told"), [("stopped", 1011.5, False), ("debugged", 1050, False), ("stopped", 1050, True)]
)
def test_a_moment_or_a_debugger_is_no_stop(state, until_s, is_told):
    samples = told(Fake(), states=[(state, 1010.5, until_s)])
    assert set(reasons(samples, 1001, 1050)) == ({"deadline"} if is_told else set())


def test_a_job_whose_state_is_not_seen_any_more_is_asked_again(said):
    """It is not stopped for ever then, nor is it when its state is seen again; that is told once."""
    samples = told(Fake(), states=[("stopped", 1010.5, 1030), ("a bug", 1030, 1100), ("stopped", 1130.5, 2000)])
    assert reasons(samples, 1010.5, 1013) == ["deadline"]
    assert set(reasons(samples, 1030, 1130)) == {""}
    assert reasons(samples, 1130.5, 1133) == ["deadline"]
    (line,) = said
    assert line == "a pause, and jobs that stop or end, may be seen late: ValueError: a bug"


def test_a_job_that_runs_between_the_looks_is_not_stopped():
    """Though it is at each of them, as where its time on the processor is limited by stopping it again and again."""
    samples = told(
        Fake(),
        states=[("stopped", 1010.5, 1050)],
        switches_of=lambda _pid: int(asyncio.get_running_loop().time()),
    )
    assert reasons(samples, 1001, 1050) == []


def test_a_pause_of_a_stopped_job_is_told_first():
    samples = told(Fake(), states=[("stopped", 1010.5, 2000)], paused=[(1010.5, 1020.5)])
    assert reasons(samples, 1010, 1015) == ["paused"]
    assert reasons(samples, 1015, 1025) == ["deadline"]


def test_the_end_of_a_process_is_seen_before_discovery_sees_it():
    """The next sample is without it."""
    samples = told(Fake(reason="unavailable"), states=[("ended", 1010.5, 2000)])
    assert reasons(samples, 1010.5, 1012) == ["unavailable"]
    assert next(one for at_s, one in samples if at_s > 1010).process is None


def test_a_server_that_answers_after_its_process_has_ended_is_traced_on():
    """Another process has its port, which discovery may not see."""
    source = Fake(0.6)
    told(source, states=[("ended", 1010.5, 2000)], for_s=400)
    assert source.probes
    assert source.calls[-1] > 1100
