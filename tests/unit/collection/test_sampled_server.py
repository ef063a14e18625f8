"""A server's programs and its own metrics in one sample, as the sampler takes it. In virtual time."""

from __future__ import annotations

import asyncio

import pytest

from support import virtual_time
from support.samples import sample as taken
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sources import Reading
from tpumon.discovery.finder import Fixed
from tpumon.errors import SourceError
from tpumon.model import FamilyRuns, Figures, Query, ServerFigures, Target, TracedPrograms


class Channel:
    def __init__(self, address):
        self.address = address

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        pass


class Traces:
    """Traces of 2 s: one with a decode of 0.5 s, then an empty one, then none as nobody listens any more."""

    name = "trace"
    usual_interval_s = 10.0
    costs_job = False
    unanswered_s = 0.0
    current_traced_s = 0.0

    def __init__(self):
        self.asked = []

    def likely_s(self, _query):
        return 0.0

    async def fetch(self, query):
        self.asked.append(query)
        await asyncio.sleep(0.1)
        match len(self.asked):
            case 1:
                decode = FamilyRuns(family="decode", durations_s=(0.5,))
                figures = Figures(traced_programs=TracedPrograms(families=(decode,), busy_s=0.5, window_s=2.0))
                return taken("w", address="a:1", source="trace", cores=4, figures=figures)
            case 2:
                raise SourceError("empty-trace", "nothing ran", window_s=2.0)
        raise SourceError("unavailable", "nobody")


class Page:
    """Says that ten tokens are made a second, and then no more."""

    name = alone = "server-metrics"
    title = ""
    usual_interval_s = 5.0
    shows_life = False

    def open(self, _target, _open_client, _options):
        return self

    async def read(self):
        return Reading(figures=Figures(server=ServerFigures(requests_running=8.0, tokens_per_s=10.0)))

    async def close(self):
        pass


class Rates(Page):
    """Counts 100 tokens a second for 5 s, and then none."""

    def __init__(self):
        self.rates = iter((None, 100.0))

    async def read(self):
        return Reading(figures=Figures(server=ServerFigures(requests_running=8.0, tokens_per_s=next(self.rates, 0.0))))


class Other(Page):
    """A source of something else, which is read with each sample."""

    name = alone = "runtime-metrics"
    usual_interval_s = 0.1

    async def read(self):
        return Reading(figures=Figures())


class Bursts(Traces):
    """Traces of 0.1 s of a server that is busy for 12 s of every 20 s."""

    usual_interval_s = 1.0

    async def fetch(self, query):
        self.asked.append(query)
        is_busy = asyncio.get_running_loop().time() % 20 < 12
        await asyncio.sleep(0.1)
        if not is_busy:
            raise SourceError("empty-trace", "nothing ran", window_s=0.1)
        step = FamilyRuns(family="step", durations_s=(0.1,))
        figures = Figures(traced_programs=TracedPrograms(families=(step,), busy_s=0.1, window_s=0.1))
        return taken("w", address="a:1", source="trace", cores=4, figures=figures)


def follow(traces, *extra_sources, target=None, **pace):
    samples = []

    async def no_pause():
        """This host is not paused."""

    sampler = Sampler(
        Fixed([target or Target(worker="w", address="a:1")]),
        Query(level=2),
        Pace(max_duty_ratio=0.05, **pace),
        on_sample=samples.append,
        open_client=Channel,
        profilers=[lambda *_: traces],
        extra_sources=extra_sources or [Page()],
        pause=no_pause,
    )
    virtual_time.run(sampler.run())
    return samples, traces


@pytest.fixture
def followed():
    return follow(Traces(), num_queries=3, attempts=1)


def test_quiet_times_are_looked_at_as_often_as_busy_ones():
    """Or a server would seem busier than it is."""
    samples, _ = follow(Bursts(), num_queries=140)
    assert samples[-1].figures.server.busy_ratio == pytest.approx(0.6, abs=0.05)


def test_a_reading_of_its_page_counts_once_though_others_are_read_more_often():
    """Of 10 s, in which it is busy all the time, on 4 cores."""
    samples, _ = follow(Bursts(), Rates(), Other(), num_queries=12)
    servers = (sample.figures.server for sample in samples)
    assert next(one for one in servers if one.tokens_per_s == 0).device_s_per_token == pytest.approx(4 / 50, rel=0.1)


def test_both_in_one_sample(followed):
    first, empty, gone = (sample.figures.server for sample in followed[0])
    assert (first.requests_running, first.busy_ratio, first.families[0].family) == (8.0, 0.25, "decode")
    assert (empty.requests_running, empty.busy_ratio, empty.host_gap_ratio) == (8.0, 0.125, 0.875)
    assert empty.device_s_per_token == pytest.approx(0.25 * 4 / 10)  # of the first window: its tokens are told
    assert gone is None or gone.busy_ratio is None


def test_the_source_hears_how_long_a_window_may_be(followed):
    assert followed[1].asked[0].allowed_s == pytest.approx(10.0 * 0.05)


def test_a_page_of_a_server_on_several_hosts_tells_nothing_of_one_of_them():
    of_four = Target(worker="w", address="a:1", server_metrics="http://a/metrics", slice_workers=4)
    samples, _ = follow(Bursts(), num_queries=12, target=of_four)
    assert samples[-1].figures.absent["device_s_per_token"] == "its page counts the tokens of 4 workers together"
