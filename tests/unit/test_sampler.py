"""When workers are asked: retries, pauses, recovery, each on its own clock. In virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict

import pytest

from support import virtual_time
from tpumon.errors import SourceError
from tpumon.model import Query, Sample, Target
from tpumon.pausing import Pause
from tpumon.sampler import Pace, Sampler

GOOD = "good"


class FakeClient:
    """A channel that notes whether it was closed."""

    open_count = 0

    def __init__(self, address):
        self.address = address
        FakeClient.open_count += 1

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        FakeClient.open_count -= 1


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
        self.calls = defaultdict(list)

    def __call__(self, client, target, options):
        kind = self

        class OfOneWorker:
            name = kind.name
            usual_interval_s = kind.usual_interval_s

            async def fetch(self, query):
                return await kind.fetch(target, query)

        return OfOneWorker()

    async def fetch(self, target, query):
        calls, script = self.calls[target.address], self.scripts[target.address]
        calls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.took_s)
        step = script[min(len(calls), len(script)) - 1]
        if isinstance(step, Exception):
            raise step
        if step != GOOD:
            raise SourceError(step, f"{target.address}: {step}", traced_s=self.traced_s)
        return Sample(
            worker=target.worker, address=target.address, time_unix_s=0, window_s=query.window_s, took_s=0,
            interval_s=query.interval_s, traced_s=self.traced_s, source="monitor", simulated=True,
        )  # fmt: skip


def sample(*sources, window_s=1.0, pause=lambda: None, **pace):
    """Follows every address of the sources' scripts; returns the samples by worker."""
    samples = defaultdict(list)
    targets = [Target(worker=address, address=address) for address in sources[0].scripts]
    sampler = Sampler(
        targets,
        Query(level=2, window_s=window_s),
        Pace(**pace),
        on_sample=lambda sample: samples[sample.worker].append(sample),
        open_client=FakeClient,
        sources=sources,
        pause=pause,
    )
    virtual_time.run(sampler.run())
    return samples


def gaps(times):
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_every_worker_is_asked_num_queries_times():
    """A run of three queries makes three samples of each worker, and closes every channel."""
    samples = sample(Fake(a=[GOOD], b=["unavailable"]), num_queries=3)
    assert {worker: len(got) for worker, got in samples.items()} == {"a": 3, "b": 3}
    assert all(s.answered for s in samples["a"])
    assert FakeClient.open_count == 0


def test_a_failed_query_is_a_sample_without_figures():
    """A query that failed on every try counts, with its reason and nothing that looks like a figure."""
    (failed,) = sample(Fake(a=["deadline"]), num_queries=1)["a"]
    assert not failed.answered
    assert failed.mxu_utilization_ratio is None
    assert [(error.source, error.reason) for error in failed.errors] == [("fake", "deadline")]


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
    assert [s.answered for s in samples["a"]] == [True]


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
        async def fetch(self, target, query):
            if target.address == "b":
                await asyncio.sleep(30)
            return await super().fetch(target, query)

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
    assert min(periods) >= 9
    assert max(periods) <= 11.1
    assert max(periods) - min(periods) > 1
    assert sum(periods) / len(periods) == pytest.approx(10, rel=0.03)


def test_the_next_source_is_tried_where_one_is_not_offered():
    """UNIMPLEMENTED by one source hands over to the next; any other failure does not."""
    first, second = (
        Fake("first", a=["unimplemented"], b=["unavailable"]),
        Fake("second", a=[GOOD], b=[GOOD]),
    )
    samples = sample(first, second, num_queries=1)
    assert samples["a"][0].answered
    assert not samples["b"][0].answered
    assert second.calls["b"] == []


def test_a_bug_in_a_source_is_a_failed_query_and_no_more():
    """An unexpected exception becomes reason `internal`, in one line; the others are followed on."""
    samples = sample(Fake(a=[ValueError("odd\nthing")], b=[GOOD]), num_queries=2)
    (error,) = samples["a"][0].errors
    assert error.reason == "internal"
    assert "ValueError: odd thing" in error.message
    assert all(s.answered for s in samples["b"])


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


def test_the_first_figures_come_at_once():
    """The advance pays for the first traces; then the pace is what the duty allows, and says so."""
    source = Fake(took_s=0.6, traced_s=0.6, a=[GOOD])
    samples = sample(source, num_queries=24, interval_s=2.0, max_duty_ratio=0.02)
    periods = gaps(source.calls["a"])
    assert max(periods[:2]) < 3
    assert sum(periods[-16:]) / 16 == pytest.approx(30, rel=0.07)
    assert samples["a"][0].interval_s == pytest.approx(30)


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
    assert [s.answered for s in samples["a"]] == [True, False, True]
    assert len(first.calls["a"]) == 2


def test_nothing_is_asked_while_this_host_is_paused():
    """Queries of a paused time are samples that say so, no faster than one a second; then it goes on."""
    pauses = [Pause(until_unix_s=0, who="owner")] * 5
    source = Fake(a=[GOOD])
    samples = sample(source, num_queries=7, window_s=0.1, pause=lambda: pauses.pop() if pauses else None)
    assert [s.answered for s in samples["a"]] == [False] * 5 + [True] * 2
    assert samples["a"][0].errors[0].reason == "paused"
    assert "owner" in samples["a"][0].errors[0].message
    assert source.calls["a"][0] >= 1005


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
    assert [s.answered for s in samples["a"]] == [True, False, True, True, True]


def test_what_is_not_known_yet_is_null():
    """A worker that never answered has neither a window nor an interval, unless the user gave them."""
    (unknown,) = sample(Fake(a=["unavailable"]), num_queries=1, window_s=None)["a"]
    assert (unknown.window_s, unknown.interval_s) == (None, None)
    (given,) = sample(Fake(a=["unavailable"]), num_queries=1, window_s=0.5, interval_s=4.0)["a"]
    assert (given.window_s, given.interval_s) == (0.5, 4.0)
