"""When workers are asked: retries, pauses, recovery, each on its own clock. In virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import re
from collections import defaultdict

import pytest
from msgspec.structs import replace

from support import virtual_time
from support.samples import sample as taken
from tpumon.analysis import Analysis
from tpumon.collection.sampler import Pace, Sampler, host_traces
from tpumon.collection.sampler.pace import KeepingUp
from tpumon.collection.sources import Reading, SourceOptions
from tpumon.discovery.finder import Fixed
from tpumon.discovery.host.jobs import HostJob
from tpumon.errors import NoTargetError, SourceError
from tpumon.model import DeviceFigures, Figures, FigureWarning, Process, Query, RuntimeFigures, Sample, Target, Workers
from tpumon.model.progress import Progress
from tpumon.system.pausing import Pause

GOOD = "good"


class FakeClient:
    """A channel that notes whether it was closed."""

    open_count = close_count = 0

    def __init__(self, address):
        self.address = address
        FakeClient.open_count += 1

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        FakeClient.open_count -= 1

    async def close(self):
        """Forgets the process that listened there."""
        FakeClient.close_count += 1


class Fake:
    """A kind of source that follows a script per address: GOOD, a reason to fail with, or an exception.

    The last entry of a script goes on for ever. `calls` has the time of each call by address.
    """

    def __init__(self, name="fake", *, took_s=0.0, traced_s=0.0, interval_s=0.0, **scripts):
        self.name = name
        self.took_s = took_s
        self.traced_s = traced_s
        self.usual_interval_s = interval_s
        self.scripts = scripts
        self.spent_s = 0.0  # how long jobs were traced, by queries that were cut off, too
        self.calls = defaultdict(list)
        self.probes = defaultdict(list)
        self.probe_s = 0.0  # for which one traces the job
        self.silent_s = None  # for which a trace does so while nothing runs; None: as ever
        self.check_s = 0.0  # for which an activity check does so
        self.looks = []  # when they were made
        self.runs = lambda _at_s: True  # what they show

    def __call__(self, client, target, options):
        kind = self

        class OfOneWorker:
            name = kind.name
            usual_interval_s = kind.usual_interval_s
            costs_job = kind.traced_s > 0
            is_silent, unanswered_s = False, 0.0
            began_s = None

            async def probe(self):
                self.began_s = asyncio.get_running_loop().time()
                kind.probes[target.address].append(self.began_s)
                await asyncio.sleep(kind.probe_s)

            def likely_s(self, query):
                return kind.silent_s if self.is_silent else kind.traced_s

            async def fetch(self, query):
                self.began_s = asyncio.get_running_loop().time()
                cost_s = self.likely_s(query)
                try:
                    sample = await kind.fetch(target, query, cost_s)
                except SourceError as error:
                    self.is_silent = kind.silent_s is not None and error.reason == "empty-trace"
                    raise
                self.is_silent = False
                return sample

            def activity_check_s(self, query):
                return 0.0 if self.is_silent else kind.check_s

            async def anything_runs(self):
                kind.looks.append(asyncio.get_running_loop().time())
                kind.spent_s += kind.check_s
                await asyncio.sleep(kind.check_s)
                return kind.runs(kind.looks[-1])

            def note_silence(self, query):
                self.is_silent = kind.silent_s is not None
                return self.is_silent

            @property
            def current_traced_s(self):
                if kind.looks and kind.looks[-1] > self.began_s:
                    return kind.check_s
                return min(self.likely_s(None), asyncio.get_running_loop().time() - self.began_s)

        return OfOneWorker()

    async def fetch(self, target, query, traced_s):
        calls, script = self.calls[target.address], self.scripts[target.address]
        began_s = asyncio.get_running_loop().time()
        calls.append(began_s)
        try:
            await asyncio.sleep(min(self.took_s, traced_s) if self.traced_s else self.took_s)
        finally:
            self.spent_s += min(traced_s, asyncio.get_running_loop().time() - began_s)
        step = script[min(len(calls), len(script)) - 1]
        if isinstance(step, Exception):
            raise step
        if step != GOOD:
            raise SourceError(step, step, address=target.address, traced_s=traced_s)
        return taken(
            target.worker, address=target.address, window_s=query.window_s, interval_s=query.interval_s,
            traced_s=traced_s, source="monitor", simulated=True,
        )  # fmt: skip


async def no_pause():
    """This host is not paused."""


def sample(*sources, window_s=1.0, pause=no_pause, elsewhere=None, **pace):
    """Follows every address of the sources' scripts; returns the samples by worker."""
    samples = defaultdict(list)
    targets = [Target(worker=address, address=address) for address in sources[0].scripts]
    sampler = Sampler(
        Fixed(targets),
        Query(level=2, window_s=window_s),
        Pace(**pace),
        on_sample=lambda sample: samples[sample.worker].append(sample),
        open_client=FakeClient,
        profilers=sources,
        pause=pause,
        elsewhere=elsewhere,
    )
    virtual_time.run(sampler.run())
    return samples


def gaps(times):
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_every_worker_is_asked_num_queries_times():
    """A run of three queries makes three samples of each worker, and closes every channel."""
    samples = sample(Fake(a=[GOOD], b=["unavailable"]), num_queries=3)
    assert {worker: len(got) for worker, got in samples.items()} == {"a": 3, "b": 3}
    assert all(s.has_figures for s in samples["a"])
    assert FakeClient.open_count == 0


def test_who_waits_is_told_when_a_worker_is_asked_next():
    """While it is asked, that; then how many seconds are left, as is true; nothing of one that is gone."""
    source, said = Fake(a=[GOOD], took_s=2.0, interval_s=10.0), []
    progress = Progress(lambda: asyncio.get_running_loop().time())
    finder = Moving((0, ["a"]), (35, []))
    sampler = Sampler(
        finder, Query(level=2, window_s=1.0), Pace(), on_sample=lambda _: None, open_client=FakeClient,
        profilers=[source], pause=no_pause, options=SourceOptions(progress=progress),
    )  # fmt: skip

    async def run():
        following = asyncio.create_task(sampler.run())
        for _ in range(40):
            await asyncio.sleep(1.0)
            doing = progress.of("a")
            said.append(None if doing is None else (doing.brief, doing.until_unix_s))
        following.cancel()

    virtual_time.run(run())
    assert said[0] == ("asking", None)
    expected = {until for words, until in filter(None, said) if words == "waiting"}
    asked = source.calls["a"][1:]
    assert len(asked) > 1
    assert all(min(abs(until - at) for until in expected) < 0.01 for at in asked)
    assert said[-1] is None


def test_a_failed_query_is_a_sample_without_figures():
    """A query that failed on every try counts, with its reason and nothing that looks like a figure."""
    (failed,) = sample(Fake(a=["deadline"]), num_queries=1)["a"]
    assert not failed.has_figures
    assert failed.figures.mxu_utilization_ratio is None
    assert [(error.source, error.reason) for error in failed.errors] == [("fake", "deadline")]


def test_a_worker_that_is_not_reached_says_where_profilers_are_instead():
    """Not one that answers without figures, nor one that answered before: what else is there is another job."""

    class Elsewhere:
        async def words(self, address, asked):
            return f"; not {address} of {sorted(asked)}"

    source = Fake(a=["unavailable"], b=["empty-trace"], c=["not-a-profiler"], d=[GOOD, "unavailable"])
    samples = sample(source, elsewhere=Elsewhere(), num_queries=2, attempts=1)
    said = {worker: of_it[-1].failure.message for worker, of_it in samples.items()}
    of = " of ['a', 'b', 'c', 'd']"
    assert said == {
        "a": f"unavailable; not a{of}", "b": "empty-trace", "c": f"not-a-profiler; not c{of}", "d": "unavailable",
    }  # fmt: skip


@pytest.mark.parametrize(("reason", "why"), [("empty-trace", "nothing ran"), ("deadline", None)])
def test_why_a_worker_on_which_nothing_runs_has_no_figures(reason, why):
    """It answered, so that is known."""
    (failed,) = sample(Fake(a=[reason]), num_queries=1, attempts=1)["a"]
    assert failed.figures.absent.get("idle_ratio") == why


def test_an_answer_that_nothing_ran_is_current_until_the_next_one():
    """After several of them the next query comes later than the interval: what is known does not become stale."""
    source = Fake(a=["empty-trace"])
    samples = sample(source, num_queries=8, interval_s=1.0)["a"]
    assert max(gaps(source.calls["a"])) > 5
    for asked, gap in zip(samples, gaps(source.calls["a"]), strict=False):
        assert gap < asked.fresh_for_s


def test_a_profiler_that_can_show_nothing_is_not_traced_again_for_that():
    source = Fake(a=[SourceError("empty-trace", "no TPU in its traces", address="a", detail="not-seen")])
    sample(source, num_queries=1, attempts=3)
    assert len(source.calls["a"]) == 1


@pytest.mark.parametrize("attempts", [1, 3, 5])
def test_a_query_is_tried_attempts_times_with_growing_pauses(attempts):
    """Tries of one query are as many as asked for, and each pause is longer than the one before."""
    source = Fake(a=["unavailable"])
    sample(source, num_queries=1, attempts=attempts)
    assert len(source.calls["a"]) == attempts
    pauses = gaps(source.calls["a"])
    assert all(0.4 <= pause <= 12 for pause in pauses)
    assert pauses == sorted(pauses)


def test_a_try_that_succeeds_ends_the_query():
    """One failure and one answer make one answered query."""
    samples = sample(Fake(a=["unavailable", GOOD]), num_queries=1, attempts=3)
    assert [s.has_figures for s in samples["a"]] == [True]


def test_a_dead_worker_is_left_alone_for_longer_and_longer_but_never_forgotten():
    """Pauses grow to about 10 s and no further, so that a worker that comes back is seen soon."""
    source = Fake(a=["unavailable"])
    sample(source, num_queries=12, attempts=1)
    assert max(gaps(source.calls["a"])) <= 11
    assert gaps(source.calls["a"])[-1] >= 9


def test_an_answer_ends_the_back_off():
    """After a recovery the pace is the ordinary one again."""
    source = Fake(a=["unavailable"] * 6 + [GOOD])
    sample(source, num_queries=10, attempts=1)
    assert gaps(source.calls["a"])[-1] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("reason", ["unimplemented", "not-a-profiler", "refused", "too-large"])
def test_what_asking_again_cannot_change_is_not_asked_again(reason):
    """A limited run ends at once for a worker that has nothing to offer."""
    source = Fake(a=[reason])
    samples = sample(source, num_queries=100, attempts=3)
    assert len(source.calls["a"]) == 1
    assert len(samples["a"]) == 1


def test_a_slow_worker_delays_no_other():
    """Each worker has its own clock."""

    class SlowB(Fake):
        async def fetch(self, target, *query):
            if target.address == "b":
                await asyncio.sleep(30)
            return await super().fetch(target, *query)

    source = SlowB(a=[GOOD], b=[GOOD])
    samples = sample(source, num_queries=5)
    assert len(samples["a"]) == len(samples["b"]) == 5
    assert max(gaps(source.calls["a"])) == pytest.approx(1.0, abs=0.01)


def test_back_to_back_means_one_window_after_the_other():
    """With no interval the next query starts when the window is over, even if the server answered sooner."""
    source = Fake(a=[GOOD])
    sample(source, num_queries=4, window_s=0.2)
    assert gaps(source.calls["a"]) == pytest.approx([0.2] * 3, abs=0.01)


def test_an_interval_is_kept_on_average_and_jittered():
    """Pauses between windows vary by 10 %, and do not drift with the time that a query takes."""
    source = Fake(a=[GOOD], took_s=1.5)
    sample(source, num_queries=200, interval_s=10)
    periods = gaps(source.calls["a"])
    assert min(periods) > 8.999  # a sum of ticks
    assert max(periods) <= 11.1
    assert max(periods) - min(periods) > 1
    assert sum(periods) / len(periods) == pytest.approx(10, rel=0.03)


def test_what_is_late_because_of_this_machine_is_said_once_and_is_no_fault_of_the_workers(said):
    """Twelve workers that are all asked late: their interval is the one that results, so none looks stale."""
    samples = sample(
        Fake(took_s=6.0, **{f"w{i}": [GOOD] for i in range(12)}),
        num_queries=4, interval_s=1.0, max_duty_ratio=1.0,
    )  # fmt: skip
    (line,) = said
    assert re.match(r"most workers are queried every \d s only: .*raise it to [78] s\)", line)
    last = [got[-1].interval_s for got in samples.values()]
    assert min(last) >= 6.0


def test_the_first_interval_is_not_that_of_others_which_came_long_ago():
    """Names come and go, and some never answer: what is expected of a new worker depends on its own query."""
    keeping_up = KeepingUp()
    for place in range(10_000):  # ten a second, each answered after a second or never
        keeping_up.first_asked(f"w{place}", place / 10)
        keeping_up.forget({f"w{recent}" for recent in range(place - 20, place + 1)})
        expected_s = keeping_up.first_answered(f"w{place - 10}", place / 10) if place % 2 else None
        assert expected_s is None or expected_s < 25
    assert expected_s == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("workers", [40, 200])
@pytest.mark.virtual_time
async def test_no_worker_is_stale_because_it_was_not_asked_yet(workers):
    """However long the first round takes: what was answered is current until the next answer, also after a failure."""

    class Overloaded(Fake):
        """Answers four workers at a time."""

        async def fetch(self, target, query):
            start_s = asyncio.get_running_loop().time()
            async with turns:
                sample = await super().fetch(target, query)
            return replace(sample, took_s=asyncio.get_running_loop().time() - start_s)

    turns, arrived_s = asyncio.Semaphore(4), defaultdict(list)
    targets = [Target(worker=f"w{i}", address=f"w{i}") for i in range(workers)]
    scripts = {target.address: ["deadline", GOOD] if place % 7 == 3 else [GOOD] for place, target in enumerate(targets)}
    source = Overloaded(took_s=1.0, **scripts)

    def take(sample):
        now_s = asyncio.get_running_loop().time()
        began_s, fresh_for_s = arrived_s[sample.worker][-1] if arrived_s[sample.worker] else (now_s, 0.0)
        assert now_s <= began_s + fresh_for_s, f"{sample.worker} was stale"
        fresh_for_s = sample.fresh_for_s if sample.is_conclusive else math.inf
        arrived_s[sample.worker].append((now_s - sample.took_s, fresh_for_s))

    sampler = Sampler(
        Fixed(targets), Query(level=2, window_s=0.1), Pace(interval_s=1.0, max_duty_ratio=1.0, num_queries=3),
        on_sample=take, open_client=FakeClient, profilers=[source], pause=no_pause,
    )  # fmt: skip
    await sampler.run()
    assert [len(each) for each in arrived_s.values()] == [3] * workers


def test_the_next_source_is_tried_where_one_is_not_offered():
    """UNIMPLEMENTED by one source hands over to the next; any other failure does not."""
    first, second = (
        Fake("first", a=["unimplemented"], b=["unavailable"]),
        Fake("second", a=[GOOD], b=[GOOD]),
    )
    samples = sample(first, second, num_queries=1)
    assert samples["a"][0].has_figures
    assert not samples["b"][0].has_figures
    assert second.calls["b"] == []


def test_a_bug_in_a_source_is_a_failed_query_and_no_more():
    """An unexpected exception becomes reason `internal`, in one line; the others are followed on."""
    samples = sample(Fake(a=[ValueError("odd\nthing")], b=[GOOD]), num_queries=2)
    (error,) = samples["a"][0].errors
    assert error.reason == "internal"
    assert "ValueError: odd thing" in error.message
    assert all(s.has_figures for s in samples["b"])


def test_a_simulated_worker_that_fails_is_still_simulated():
    """What once said that it is simulated is marked so while it does not answer, too."""
    samples = sample(Fake(a=[GOOD, "unavailable"]), num_queries=2, attempts=1)
    assert [s.simulated for s in samples["a"]] == [True, True]


def test_a_source_has_its_own_usual_interval():
    """Where the user says nothing, what costs the job is asked less often; what the user says holds for all."""
    first, second = Fake("first", a=["unimplemented"]), Fake("second", interval_s=10, a=[GOOD])
    samples = sample(first, second, num_queries=50)
    assert sum(gaps(second.calls["a"])) / 49 == pytest.approx(10, rel=0.05)
    assert samples["a"][-1].interval_s == 10
    sample(first, again := Fake("second", interval_s=10, a=[GOOD]), num_queries=50, interval_s=3.0)
    assert sum(gaps(again.calls["a"])) / 49 == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize("script", [[GOOD], ["empty-trace"], [GOOD, "deadline"]])
def test_a_job_is_traced_for_no_more_than_its_share_of_time(script):
    """Whatever is asked for and however it ends, tracing stays within the duty and its 2 s in advance."""
    source = Fake(took_s=1.2, traced_s=1.2, a=script)
    samples = sample(source, num_queries=100, interval_s=0.0, max_duty_ratio=0.02)
    calls = source.calls["a"]
    for number, called_s in enumerate(calls):
        assert number * 1.2 <= 0.02 * (called_s - calls[0]) + 2.0 + 1e-6
    assert samples["a"][-1].interval_s == pytest.approx(60) or script != [GOOD]


@pytest.mark.parametrize("traced_s", [0.6, 1.2, 2.4])
def test_a_job_that_fell_silent_is_asked_often_enough_for_a_hang(traced_s):
    """5 and 10 minutes after it ran last it was asked within 45 s, at the usual share of time and within that."""
    source = Fake(took_s=traced_s, traced_s=traced_s, interval_s=10, a=[GOOD] * 12 + ["empty-trace"] * 40 + [GOOD])
    source.silent_s = 0.2
    samples = sample(source, num_queries=60, window_s=None)["a"]
    calls = source.calls["a"]
    analysis, critical_s = Analysis(), []
    analysis.add(Workers(targets=(Target(worker="a", address="a", job_kind="training"),)))
    for one, at in zip(samples[:52], calls, strict=False):
        analysis.add(replace(one, time_unix_s=at, taken_monotonic_s=None))
        hang = [one for one in analysis.status(at).findings if (one.finding, one.severity) == ("hang", "critical")]
        critical_s += [at - calls[11] for _ in hang]
    assert 600 <= critical_s[0] <= 645
    assert min(at for at in calls if at - calls[11] >= 300) - calls[11] <= 345
    spent_s = itertools.accumulate((sample.traced_s for sample in samples), initial=0.0)
    for at_s, traced_before_s in zip(calls, spent_s, strict=False):
        assert traced_before_s <= 0.01 * (at_s - calls[0]) + 1.0 + traced_s
    assert all(gap_s <= 1.1 * one.interval_s for one, gap_s in zip(samples[14:50], gaps(calls)[14:50], strict=True))
    assert sum(gaps(calls)[-4:]) / 4 == pytest.approx(100 * traced_s, rel=0.1)


def test_the_first_figures_come_at_once():
    """The advance pays for the first traces; then the pace is what the duty allows, and says so."""
    source = Fake(took_s=0.3, traced_s=0.3, a=[GOOD])
    samples = sample(source, num_queries=24, interval_s=2.0, max_duty_ratio=0.01)
    periods = gaps(source.calls["a"])
    assert max(periods[:2]) < 3
    assert sum(periods[-16:]) / 16 == pytest.approx(30, rel=0.07)
    assert samples["a"][0].interval_s == pytest.approx(30)


@pytest.mark.parametrize("traced_s", [0.3, 0.6])
def test_a_worker_whose_job_stalled_for_a_moment_is_asked_again_within_a_minute(traced_s):
    """One call had no answer: it is charged as what it is likely to have cost, once."""
    source = Fake(took_s=traced_s, traced_s=traced_s, interval_s=10, a=[GOOD] * 10 + ["deadline", GOOD])
    samples = sample(source, num_queries=13, window_s=None)
    assert [s.has_figures for s in samples["a"]] == [True] * 10 + [False, True, True]
    assert min(source.calls["a"][11], *source.probes["a"] or [math.inf]) - source.calls["a"][10] <= 40
    assert gaps(source.calls["a"])[10] <= 66


def test_a_worker_of_long_traces_that_stalled_for_a_moment_is_not_down_until_the_next_trace():
    """A probe tells that it answers; the sample without figures says when they come, and is current until then."""
    source = Fake(took_s=10.2, traced_s=10.2, interval_s=10, a=[GOOD, GOOD, "deadline", GOOD])
    asked, stalled, probed, after = sample(source, num_queries=5, window_s=10.0)["a"][1:5]
    assert (asked.has_figures, stalled.has_figures, probed.has_figures, after.has_figures) == (True, False, True, True)
    (probed_s,) = source.probes["a"]
    assert probed_s - source.calls["a"][2] <= 60
    assert probed.figures.mxu_utilization_ratio is None
    assert "it is traced again when its share of time allows" in probed.figures.absent["mxu_utilization_ratio"]
    gap_s = source.calls["a"][3] - probed_s
    assert gap_s > 900
    assert gap_s < probed.fresh_for_s
    assert stalled.interval_s == pytest.approx(1020)


def test_a_probe_that_is_answered_is_charged_like_any_trace():
    """The next trace waits for its share, too."""
    source = Fake(took_s=10.2, traced_s=10.2, interval_s=10, a=[GOOD, GOOD, "deadline", GOOD])
    source.probe_s = 3.0
    sample(source, num_queries=5, window_s=10.0)
    assert sum(gaps(source.calls["a"])[-2:]) > 100 * (2 * 10.2 + 3.0)


def test_whoever_profiles_is_not_pressed():
    """Busy is not tried again within a query, and the pauses after it grow."""
    source = Fake(a=["busy"])
    samples = sample(source, num_queries=6, attempts=3)
    assert len(source.calls["a"]) == 6
    assert [s.errors[0].reason for s in samples["a"]] == ["busy"] * 6
    assert gaps(source.calls["a"])[-1] > 6


def test_a_worker_that_went_away_is_asked_for_the_first_source_again():
    """What comes back may be another server."""
    first, second = Fake("first", a=["unimplemented", GOOD]), Fake("second", a=[GOOD, "unavailable"])
    samples = sample(first, second, num_queries=3, attempts=1)
    assert [s.has_figures for s in samples["a"]] == [True, False, True]
    assert len(first.calls["a"]) == 2


@pytest.mark.parametrize(("address", "is_told"), [("localhost:9999", True), ("elsewhere:9999", False)])
def test_a_stopped_job_of_another_user_is_told_as_why_there_is_no_answer(monkeypatch, address, is_told):
    """Of this host alone, where its process is not known."""
    job = HostJob(pid=42, name="train.py", framework=None, stopped=True, user="ada")
    monkeypatch.setattr(host_traces, "stopped_at", lambda _address: job)
    samples = sample(Fake(**{address: ["deadline"]}), num_queries=1)
    assert ("pid 42 `train.py` of ada is stopped" in samples[address][0].failure.message) == is_told


def test_nothing_is_asked_while_this_host_is_paused():
    """Queries of a paused time are samples that say so, no faster than one a second; then it goes on."""

    async def pause():
        is_over = asyncio.get_running_loop().time() >= 1004.9
        return None if is_over else Pause(until_unix_s=0, who="owner")

    source = Fake(a=[GOOD])
    samples = sample(source, num_queries=7, window_s=0.1, pause=pause)
    assert [s.has_figures for s in samples["a"]] == [False] * 5 + [True] * 2
    assert samples["a"][0].errors[0].reason == "paused"
    assert "owner" in samples["a"][0].errors[0].message
    assert source.calls["a"][0] >= 1005


def test_the_end_of_a_pause_is_seen_at_once_however_long_the_interval():
    """Nobody waits a minute for the picture to go on."""
    paused = [True]

    async def pause():
        if asyncio.get_running_loop().time() > 1100:
            paused.clear()
        return Pause(until_unix_s=0, who="owner") if paused else None

    source = Fake(a=[GOOD])
    samples = sample(source, num_queries=3, interval_s=60.0, pause=pause)
    assert [s.has_figures for s in samples["a"]] == [False, False, True]
    assert 1100 < source.calls["a"][0] < 1103


@pytest.mark.parametrize("traced_s", [0.6, 2.5, 10.5])
def test_the_interval_shown_is_the_interval_kept(traced_s):
    """However long the traces, the pace in the long run is the one that every sample tells."""
    source = Fake(took_s=traced_s, traced_s=traced_s, a=[GOOD])
    samples = sample(source, num_queries=60, window_s=None, max_duty_ratio=0.02)
    told_s = samples["a"][-1].interval_s
    assert told_s == pytest.approx(traced_s / 0.02)
    assert sum(gaps(source.calls["a"])[10:]) / 49 == pytest.approx(told_s, rel=0.07)


def test_one_odd_answer_does_not_end_a_run():
    """A worker that has answered before is not given up for a refusal."""
    samples = sample(Fake(a=[GOOD, "refused", GOOD]), num_queries=5, attempts=1)
    assert [s.has_figures for s in samples["a"]] == [True, False, True, True, True]


def test_what_is_not_known_yet_is_null():
    """A worker that never answered has neither a window nor an interval, unless the user gave them."""
    (unknown,) = sample(Fake(a=["unavailable"]), num_queries=1, window_s=None)["a"]
    assert (unknown.window_s, unknown.interval_s) == (None, None)
    (given,) = sample(Fake(a=["unavailable"]), num_queries=1, window_s=0.5, interval_s=4.0)["a"]
    assert (given.window_s, given.interval_s) == (0.5, 4.0)


def test_a_profiler_that_fails_from_the_start_tells_when_it_is_asked_again():
    """Its runtime may answer meanwhile: the worker is current, and up, until then."""
    source = Fake(took_s=1.2, traced_s=1.2, interval_s=10, a=["internal"])
    samples = sample(source, num_queries=8, attempts=1)["a"]
    waits = gaps(source.calls["a"])
    assert max(waits) > 100
    for failed, wait_s in zip(samples[1:], waits[1:], strict=False):
        assert failed.interval_s == pytest.approx(wait_s, rel=0.12)


class Moving:
    """A finder whose workers change: (seconds after the start, addresses) in order."""

    def __init__(self, *moments, slice_name=None, runtime=()):
        self.moments = moments
        self.slice_name = slice_name
        self.runtime = runtime
        self.all_gone = []

    async def watch(self, all_gone):
        start_s = asyncio.get_running_loop().time()
        for at_s, addresses in self.moments:
            await asyncio.sleep(start_s + at_s - asyncio.get_running_loop().time())
            self.all_gone.append(all_gone())
            yield Workers(
                targets=tuple(
                    Target(worker=a, address=a, slice=self.slice_name, runtime_addresses=self.runtime)
                    for a in addresses
                ),
                waiting=None if addresses else "nobody here",
            )


class Changing:
    """A finder of one worker whose target becomes another one every so often: `change(number)` gives it."""

    def __init__(self, every_s, change):
        self.every_s = every_s
        self.change = change

    async def watch(self, all_gone):
        for number in range(10_000):
            yield Workers(targets=self.change(number))
            await asyncio.sleep(self.every_s)


def follow(finder, *sources, for_s, runtime=None, window_s=1.0, pause=no_pause, **pace):
    """Follows whoever the finder says for so long; events in order: Workers, or Sample."""
    events = []
    extra_sources = () if runtime is None else (runtime,)
    sampler = Sampler(
        finder,
        Query(level=2, window_s=window_s),
        Pace(**pace),
        on_sample=events.append,
        on_workers=events.append,
        open_client=FakeClient,
        profilers=sources,
        pause=pause,
        extra_sources=extra_sources,
    )

    async def run():
        async with asyncio.timeout(for_s):
            await sampler.run()

    with contextlib.suppress(TimeoutError):
        virtual_time.run(run())
    return events


def test_that_nothing_runs_now_is_told_at_once():
    """A job that compiles between steps is seen to pause; without an answer for seconds it would be stale."""
    events = follow(Moving((0, ["a"])), Fake(a=[GOOD, "empty-trace", GOOD]), for_s=3, interval_s=1.0)
    samples = [event for event in events if isinstance(event, Sample)]
    assert [one.has_figures for one in samples] == [True, False, True]


def test_workers_come_and_go():
    """A new worker is asked at once, one that is gone no more; the channel of each is closed."""
    source = Fake(a=[GOOD], b=[GOOD])
    finder = Moving((0, ["a"]), (100, ["a", "b"]), (200, ["b"]))
    follow(finder, source, for_s=300, interval_s=10.0)
    assert 1000 <= source.calls["a"][0] < 1001
    assert 1188 <= source.calls["a"][-1] <= 1200
    assert 1100 <= source.calls["b"][0] < 1101
    assert source.calls["b"][-1] > 1285
    assert max(gaps(source.calls["a"])) < 12, "what stays is not begun anew"
    assert FakeClient.open_count == 0


def test_who_is_followed_is_told_before_the_first_sample():
    """Whoever shows samples knows the workers first, also when there are none yet."""
    events = follow(Moving((0, []), (30, ["a"])), Fake(a=[GOOD]), for_s=31)
    assert [type(event).__name__ for event in events[:3]] == ["Workers", "Workers", "Sample"]
    assert events[0].waiting == "nobody here"


def test_a_finder_is_told_when_nobody_can_be_reached():
    """All gone means each was tried and none reached; one that is busy is there."""
    finder = Moving((0, ["a", "b"]), (50, ["a", "b"]), (100, ["a", "c"]), (150, []))
    source = Fake(a=["unavailable"], b=["busy"], c=["deadline"])
    follow(finder, source, for_s=160)
    assert finder.all_gone == [False, False, False, True]


def test_a_limited_run_with_nobody_to_follow_ends():
    """`--num-queries` does not wait for a job."""
    with pytest.raises(NoTargetError, match="nobody here"):
        follow(Moving((0, [])), Fake(a=[GOOD]), for_s=10, num_queries=1)


def test_the_first_queries_of_many_workers_are_staggered_and_stay_apart():
    """A fleet is neither asked at once nor, interval after interval, in bursts; every worker is heard soon."""
    names = [f"w{i}" for i in range(400)]
    source = Fake(**{name: [GOOD] for name in names})
    follow(Moving((0, names)), source, for_s=120, interval_s=30.0)
    firsts = sorted(calls[0] - 1000 for calls in source.calls.values())
    assert firsts[15] == 0
    assert 3 < firsts[-1] < 5
    later = [call for calls in source.calls.values() for call in calls if call > 1060]
    in_a_second = [sum(1 for call in later if start <= call < start + 1) for start in range(1062, 1118)]
    assert max(in_a_second) < 4 * 400 / 30


READING = Reading(
    figures=Figures(
        devices=(DeviceFigures(device="0", hbm_used_bytes=5),),
        runtime=RuntimeFigures(uptime_s=7.0),
        hbm_used_bytes=5,
        hbm_total_bytes=9,
    ),
    warnings=(FigureWarning("runtime-error", "hangs"),),
)


class Runtime:
    """An extra source that follows a script; the last entry goes on for ever."""

    name = "runtime-metrics"
    alone = "runtime"
    shows_life = True
    usual_interval_s = 5.0

    def __init__(self, *script):
        self.script = script
        self.reads = []
        self.closed = 0

    def open(self, _target, _open_client, _options):
        return self

    async def read(self):
        self.reads.append(asyncio.get_running_loop().time())
        step = self.script[min(len(self.reads), len(self.script)) - 1]
        if isinstance(step, Exception):
            raise step
        return step

    async def close(self):
        self.closed += 1


def merged(profiler, *runtime, **pace):
    """The samples of one worker that has both, and the runtime service."""
    service = Runtime(*runtime)
    finder = Moving((0, ["a"]), runtime=("localhost:8431",))
    pace = {"num_queries": 1, "attempts": 1} | pace
    events = follow(finder, Fake(a=profiler), for_s=1000, runtime=service, **pace)
    return [event for event in events if isinstance(event, Sample)], service


def test_runtime_metrics_join_the_profilers_sample():
    """One sample holds both, with what the runtime warns of."""
    (sample,), service = merged([GOOD], READING)
    figures, expected = sample.figures, READING.figures
    assert (sample.source, figures.hbm_used_bytes, figures.devices) == ("monitor", 5, expected.devices)
    assert (figures.runtime, sample.warnings, sample.failure) == (expected.runtime, READING.warnings, None)
    assert service.closed == 1


class Hung(Runtime):
    """A runtime that says that nothing has run since a time."""

    def __init__(self, since_s):
        super().__init__()
        self.since_s = since_s

    async def read(self):
        idle_s = max(0.0, asyncio.get_running_loop().time() - self.since_s)
        return Reading(figures=Figures(devices=(DeviceFigures(device="0", runtime_tensorcore_idle_s=idle_s),)))


@pytest.mark.parametrize(("silent_s", "latest_s"), [(0.2, 120), (None, 1020)])
def test_a_job_of_long_traces_is_asked_soon_once_the_runtime_says_that_nothing_runs(silent_s, latest_s):
    """Its next trace would come in 17 minutes; a source without short traces waits for that."""
    source = Fake(took_s=10.2, traced_s=10.2, interval_s=10, a=[GOOD, GOOD, "empty-trace"])
    source.silent_s = silent_s
    follow(Moving((0, ["a"]), runtime=("localhost:8431",)), source, for_s=2400, runtime=Hung(2300.0), window_s=None)
    calls = source.calls["a"]
    assert calls[1] < 2200 < calls[2]
    assert calls[2] - 2300 <= latest_s
    assert silent_s is None or max(gaps(calls)[2:]) <= 45


def silent_from(since_s):
    return lambda at_s: at_s < since_s


def unreachable_from(since_s):
    def runs(at_s):
        if at_s >= since_s:
            raise SourceError("unavailable", "connection refused", address="a")
        return True

    return runs


def with_a_bug(_since_s):
    def runs(_at_s):
        raise ValueError

    return runs


def no_looks(_since_s):
    return None


@pytest.mark.parametrize(
    ("runs", "runtime", "latest_s"),
    [
        (silent_from, None, 120),
        (unreachable_from, None, 95),
        (with_a_bug, None, 1600),
        (no_looks, None, 1600),
        (silent_from, Hung(5000.0), 1600),
    ],
)
def test_a_job_of_long_traces_is_looked_at_between_them_where_no_runtime_tells_that_it_runs(runs, runtime, latest_s):
    """In a short look a busy device shows an op. All is within the job's share of time, and its samples say when."""
    source = Fake(took_s=10.2, traced_s=10.2, interval_s=10, a=[GOOD])
    source.silent_s, source.check_s, source.runs = 0.2, 0.2 if runs(0.0) else 0.0, runs(4000.0)
    finder = Moving((0, ["a"]), runtime=("localhost:8431",) if runtime else ())
    events = follow(finder, source, for_s=5800, runtime=runtime or Runtime(None), window_s=None)
    calls = [at for at in (*source.calls["a"], *source.probes["a"]) if at > 4000]
    assert min(calls) - 4000 <= latest_s
    assert bool(source.looks) == (runs is not no_looks and runtime is None)
    assert all(gap >= 60 for gap in gaps([at for at in source.looks if at < 4000]))
    before = [at for at in source.calls["a"] if at < 4000]
    spent = sorted([(at, 10.2) for at in before] + [(at, 0.2) for at in source.looks if at < 4000])
    traced_s = list(itertools.accumulate((cost_s for _, cost_s in spent), initial=0.0))
    assert all(sum_s <= 0.01 * (at - spent[0][0]) + 1.0 + 10.2 for (at, _), sum_s in zip(spent, traced_s, strict=False))
    told = [event.interval_s for event in events if isinstance(event, Sample)][1 : len(before) - 1]
    assert all(0.8 <= gap_s / told_s <= 1.1 for gap_s, told_s in zip(gaps(before)[1:], told, strict=True))


def test_a_pause_ends_looks_that_are_under_way():
    """The owner's own trace may begin then."""
    source, paused = Fake(took_s=10.2, traced_s=10.2, interval_s=10, a=[GOOD]), []
    source.silent_s, source.check_s = 0.2, 0.2

    def runs(at_s):
        if at_s >= 4000:
            paused.append(at_s)
        return at_s < 4000

    async def pause():
        return Pause(until_unix_s=1e12, who="owner") if paused else None

    source.runs = runs
    follow(Moving((0, ["a"])), source, for_s=5000, runtime=Runtime(None), window_s=None, pause=pause)
    assert len(paused) == 1


def test_a_moment_in_which_nothing_runs_is_no_silence():
    """Its next trace comes as planned."""
    source = Fake(took_s=10.2, traced_s=10.2, interval_s=10, a=[GOOD])
    source.silent_s, source.check_s = 0.2, 0.2
    source.runs = lambda at_s: len([each for each in source.looks if each >= 4000]) not in {1, 2, 3}
    follow(Moving((0, ["a"])), source, for_s=5000, runtime=Runtime(None), window_s=None)
    first_s = next(at for at in source.looks if at >= 4000)
    assert len([at for at in source.looks if first_s <= at < first_s + 40]) == 4
    assert min(gaps(source.calls["a"])[1:]) > 1000


def test_runtime_metrics_alone_are_a_sample_of_their_own():
    """A job without a profiler server is up, and it is said why there are no other figures."""
    (sample,), _ = merged(["unavailable"], READING, window_s=None)
    assert (sample.source, sample.figures.hbm_used_bytes, sample.figures.mxu_utilization_ratio) == ("runtime", 5, None)
    assert sample.failure.reason == "unavailable"
    assert not sample.is_stale(sample.time_unix_s + 20), "until it is looked at again"
    assert sample.is_stale(sample.time_unix_s + 30)


def test_figures_of_a_job_that_ended_are_not_shown_as_what_its_runtime_says_now():
    """A look may be some seconds old; when the profiler is gone another one decides."""
    samples, _ = merged([GOOD, "unavailable"], READING, None, num_queries=2, interval_s=1.0)
    assert [(sample.source, sample.figures.hbm_used_bytes) for sample in samples] == [("monitor", 5), (None, None)]


def test_a_worker_whose_runtime_answers_is_not_gone():
    """Its finder has no reason to look for another."""
    finder = Moving((0, ["a"]), (50, ["a"]), runtime=("localhost:8431",))
    follow(finder, Fake(a=["unavailable"]), for_s=60, runtime=Runtime(READING))
    assert finder.all_gone == [False, False]


def test_no_runtime_is_no_error():
    """While no job runs nobody listens there; the profiler's sample is as ever."""
    (sample,), _ = merged([GOOD], None)
    assert (sample.errors, sample.figures.hbm_used_bytes, sample.figures.devices) == ((), None, ())


def test_a_runtime_that_fails_costs_no_other_figure():
    """Its failure is told beside the profiler's figures, and is not taken for the profiler's."""
    pace = {"num_queries": 2, "interval_s": 10.0}
    (_, sample), _ = merged([GOOD], READING, SourceError("deadline", "localhost:8431: no answer"), **pace)
    assert [(error.source, error.reason) for error in sample.errors] == [("runtime-metrics", "deadline")]
    assert (sample.source, sample.failure, sample.figures.hbm_used_bytes) == ("monitor", None, None)
    (sample,), _ = merged(["busy"], ValueError("odd"))
    assert [error.reason for error in sample.errors] == ["internal", "busy"]
    assert sample.failure.reason == "busy"


def test_a_runtime_that_was_only_looked_for_is_no_error_and_seldom_asked():
    """A firewall may swallow every call to its port; that is nothing to tell with each sample."""
    samples, service = merged([GOOD], SourceError("deadline", "far:8431: no answer"), num_queries=60, interval_s=1.0)
    assert all(sample.errors == () for sample in samples)
    assert min(gaps(service.reads)) >= 20


def test_the_runtime_is_not_asked_more_often_than_every_5_s():
    """Queries that follow each other closely share a look; a look that failed leaves nothing behind."""
    samples, service = merged([GOOD], READING, None, num_queries=10, interval_s=1.0)
    assert min(gaps(service.reads)) >= 5
    used = [sample.figures.hbm_used_bytes for sample in samples]
    assert used == sorted(used, key=lambda value: value is None), "figures, then none"
    assert (used[0], used[-1]) == (5, None)


def test_a_sample_names_its_slice():
    """Where the finder knows it."""
    events = follow(Moving((0, ["a"]), slice_name="pod-1"), Fake(a=[GOOD]), for_s=1)
    assert events[1].slice == "pod-1"


ODD = {
    "slice": lambda n: (Target(worker="a", address="a", slice=f"s{n % 2}"),),
    "runtime": lambda n: (Target(worker="a", address="a", runtime_addresses=(f"r:{n % 2}",)),),
    "name": lambda n: (Target(worker=f"a{n % 2}", address="a"),),
    "process": lambda n: (Target(worker="a", address="a", process=Process(pid=n)),),
    "coming and going": lambda n: (Target(worker="a", address="a"),) * (n % 2),
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
@pytest.mark.parametrize("every_s", [4, 17, 60])
def test_a_job_is_traced_no_more_whatever_its_finder_does(every_s, change):
    """Names, slices and runtimes may change around a job, and it may be lost and found: it is still the same job."""
    source = Fake(took_s=0.6, traced_s=0.6, a=[GOOD])
    events = follow(Changing(every_s, change), source, for_s=3600, max_duty_ratio=0.02, window_s=0.6)
    assert source.spent_s <= 1.0 + 0.02 * 3600 + 0.6
    assert len([event for event in events if isinstance(event, Sample)]) > 30


@pytest.mark.parametrize("traced_s", [0.0, 1.5])
def test_a_process_that_ended_or_is_another_one_is_looked_at_at_once(traced_s):
    """Whatever the interval; by a probe where the job may not be traced yet."""
    pids = [1, 1, 1, None, 2]
    source = Fake(traced_s=traced_s, took_s=traced_s, a=[GOOD])
    targets = [(Target(worker="a", address="a", process=pid and Process(pid=pid)),) for pid in pids]
    closed = FakeClient.close_count
    follow(Changing(10, targets.__getitem__), source, for_s=49, interval_s=600.0, max_duty_ratio=0.01)
    assert FakeClient.close_count - closed == 2, "or gRPC would wait before it looks for the next process"
    looks = sorted([*source.calls["a"], *source.probes["a"]])
    assert looks == pytest.approx([1000, 1030, 1040], abs=1)
    assert bool(source.probes["a"]) == (traced_s > 0)


def test_a_sample_has_the_process_that_is_there_when_it_comes():
    """It may have waited for its turn, and the one before may be gone."""
    source = Fake(took_s=15.0, a=[GOOD])
    targets = [(Target(worker="a", address="a", process=Process(pid=pid)),) for pid in (1, 2, 2, 2, 2)]
    events = follow(Changing(10, targets.__getitem__), source, for_s=49, interval_s=600.0)
    assert [event.process.pid for event in events if isinstance(event, Sample)][:1] == [2]


def test_a_slice_that_changes_its_name_is_told_with_the_next_sample():
    """Without the worker being begun anew."""
    source = Fake(a=[GOOD])
    events = follow(Changing(100, ODD["slice"]), source, for_s=190, interval_s=10.0)
    told = [event.slice for event in events if isinstance(event, Sample)]
    assert told == sorted(told)
    assert set(told) == {"s0", "s1"}
    assert min(gaps(source.calls["a"])) > 8


def test_a_finder_that_fails_later_costs_nobody(said):
    """What was found stays, a line says why, and it is asked anew."""

    class Failing:
        calls = 0

        async def watch(self, all_gone):
            self.calls += 1
            yield Workers(targets=(Target(worker="a", address="a"),))
            await asyncio.sleep(5)
            raise RuntimeError("can't start new thread")

    finder, source = Failing(), Fake(a=[GOOD])
    follow(finder, source, for_s=100, interval_s=1.0)
    assert source.calls["a"][-1] > 1098
    assert max(gaps(source.calls["a"])) < 1.3
    assert finder.calls > 5
    assert said[0] == "discovery failed; the known workers stay: RuntimeError: can't start new thread"


def test_a_finder_that_fails_at_once_ends_the_run():
    """Then there is nobody to follow, and its own words say why."""

    class Failing:
        async def watch(self, all_gone):
            raise NoTargetError("no such TPU")
            yield

    with pytest.raises(NoTargetError, match="no such TPU"):
        follow(Failing(), Fake(a=[GOOD]), for_s=10)
