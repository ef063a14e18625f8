"""When workers are asked: retries, pauses, recovery, each on its own clock. In virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict

import pytest

from support import virtual_time
from tpumon.errors import SourceError
from tpumon.model import Query, Sample, Target
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


class FakeSource:
    """Follows a script per address: GOOD, a reason to fail with, or an exception; the last entry goes on for ever."""

    def __init__(self, name="fake", took_s=0.0, **scripts):
        self.name = name
        self.took_s = took_s
        self.scripts = scripts
        self.calls = defaultdict(list)

    async def fetch(self, client, target, query):
        calls, script = self.calls[client.address], self.scripts[client.address]
        calls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.took_s)
        step = script[min(len(calls), len(script)) - 1]
        if isinstance(step, Exception):
            raise step
        if step != GOOD:
            raise SourceError(step, f"{client.address}: {step}")
        return Sample(
            worker=target.worker, address=target.address, time_unix_s=0, window_s=query.window_s, took_s=0,
            interval_s=query.interval_s, source="monitor", simulated=True,
        )  # fmt: skip


def sample(*sources, window_s=1.0, interval_s=1.0, **pace):
    """Follows every address of the sources' scripts; returns the samples by worker."""
    samples = defaultdict(list)
    targets = [Target(worker=address, address=address) for address in sources[0].scripts]
    sampler = Sampler(
        targets,
        Query(level=2, window_s=window_s, interval_s=interval_s),
        Pace(**pace),
        on_sample=lambda sample: samples[sample.worker].append(sample),
        open_client=FakeClient,
        sources=sources,
    )
    virtual_time.run(sampler.run())
    return samples


def gaps(times):
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_every_worker_is_asked_num_queries_times():
    """A run of three queries makes three samples of each worker, and closes every channel."""
    samples = sample(FakeSource(a=[GOOD], b=["unavailable"]), num_queries=3)
    assert {worker: len(got) for worker, got in samples.items()} == {"a": 3, "b": 3}
    assert all(s.answered for s in samples["a"])
    assert FakeClient.open_count == 0


def test_a_failed_query_is_a_sample_without_figures():
    """A query that failed on every try counts, with its reason and nothing that looks like a figure."""
    (failed,) = sample(FakeSource(a=["deadline"]), num_queries=1)["a"]
    assert not failed.answered
    assert failed.mxu_utilization_ratio is None
    assert [(error.source, error.reason) for error in failed.errors] == [("fake", "deadline")]


@pytest.mark.parametrize("attempts", [1, 3, 5])
def test_a_query_is_tried_attempts_times_with_growing_pauses(attempts):
    """Tries of one query are as many as asked for, and each pause is longer than the one before."""
    source = FakeSource(a=["unavailable"])
    sample(source, num_queries=1, attempts=attempts)
    assert len(source.calls["a"]) == attempts
    pauses = gaps(source.calls["a"])
    assert all(0.4 <= pause <= 12 for pause in pauses)
    assert pauses == sorted(pauses)


def test_a_try_that_succeeds_ends_the_query():
    """One failure and one answer make one answered query."""
    samples = sample(FakeSource(a=["unavailable", GOOD]), num_queries=1, attempts=3)
    assert [s.answered for s in samples["a"]] == [True]


def test_a_dead_worker_is_left_alone_for_longer_and_longer_but_never_forgotten():
    """Pauses grow to about 10 s and no further, so that a worker that comes back is seen soon."""
    source = FakeSource(a=["unavailable"])
    sample(source, num_queries=12, attempts=1)
    assert max(gaps(source.calls["a"])) <= 11
    assert gaps(source.calls["a"])[-1] >= 9


def test_an_answer_ends_the_back_off():
    """After a recovery the pace is the ordinary one again."""
    source = FakeSource(a=["unavailable"] * 6 + [GOOD])
    sample(source, num_queries=10, attempts=1)
    assert gaps(source.calls["a"])[-1] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("reason", ["unimplemented", "not-a-profiler", "refused", "too-large"])
def test_what_asking_again_cannot_change_is_not_asked_again(reason):
    """A limited run ends at once for a worker that has nothing to offer."""
    source = FakeSource(a=[reason])
    samples = sample(source, num_queries=100, attempts=3)
    assert len(source.calls["a"]) == 1
    assert len(samples["a"]) == 1


def test_a_slow_worker_delays_no_other():
    """Each worker has its own clock."""
    quick, slow = FakeSource(a=[GOOD]), FakeSource(a=[GOOD], took_s=30)
    alone = sample(quick, num_queries=5)
    assert len(alone["a"]) == 5

    class Both:
        name = "both"
        scripts = {"a": None, "b": None}  # noqa: RUF012

        async def fetch(self, client, target, query):
            return await (slow if client.address == "b" else quick).fetch(FakeClient("a"), target, query)

    quick.calls.clear()
    samples = sample(Both(), num_queries=5)
    assert len(samples["a"]) == len(samples["b"]) == 5
    assert max(gaps(quick.calls["a"])) == pytest.approx(1.0, abs=0.01)


def test_back_to_back_means_one_window_after_the_other():
    """With no interval the next query starts when the window is over, even if the server answered sooner."""
    source = FakeSource(a=[GOOD])
    sample(source, num_queries=4, window_s=0.2, interval_s=0.2)
    assert gaps(source.calls["a"]) == pytest.approx([0.2] * 3, abs=0.01)


def test_an_interval_is_kept_on_average_and_jittered():
    """Pauses between windows vary by 10 %, and do not drift with the time that a query takes."""
    source = FakeSource(a=[GOOD], took_s=1.5)
    sample(source, num_queries=200, interval_s=10)
    periods = gaps(source.calls["a"])
    assert min(periods) >= 9
    assert max(periods) <= 11.1
    assert max(periods) - min(periods) > 1
    assert sum(periods) / len(periods) == pytest.approx(10, rel=0.03)


def test_the_next_source_is_tried_where_one_is_not_offered():
    """UNIMPLEMENTED by one source hands over to the next; any other failure does not."""
    first, second = (
        FakeSource("first", a=["unimplemented"], b=["unavailable"]),
        FakeSource("second", a=[GOOD], b=[GOOD]),
    )
    samples = sample(first, second, num_queries=1)
    assert samples["a"][0].answered
    assert not samples["b"][0].answered
    assert second.calls["b"] == []


def test_a_bug_in_a_source_is_a_failed_query_and_no_more():
    """An unexpected exception becomes reason `internal`, in one line; the others are followed on."""
    samples = sample(FakeSource(a=[ValueError("odd\nthing")], b=[GOOD]), num_queries=2)
    (error,) = samples["a"][0].errors
    assert error.reason == "internal"
    assert "ValueError: odd thing" in error.message
    assert all(s.answered for s in samples["b"])


def test_a_simulated_worker_that_fails_is_still_simulated():
    """What once said that it is simulated is marked so while it does not answer, too."""
    samples = sample(FakeSource(a=[GOOD, "unavailable"]), num_queries=2, attempts=1)
    assert [s.simulated for s in samples["a"]] == [True, True]
