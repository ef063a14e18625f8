"""The wall clock is set, by an hour, either way: nothing stands still for that long, and nothing old counts as live."""

from __future__ import annotations

import asyncio
import time

import pytest
from msgspec.structs import replace

from support.samples import sample
from support.shown import lines
from support.wired import Wired
from tpumon.analysis import Analysis
from tpumon.analysis.history import Histories
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sources import ProfilerSource
from tpumon.model import Cause, ExporterSnapshot, Finding, Query, Spread, StatusSnapshot, Target, Workers
from tpumon.outputs.live.display import Display
from tpumon.outputs.live.loop import live
from tpumon.outputs.live.screens.screen import Reply
from tpumon.outputs.live.view_settings import DisplaySettings

HOUR_S = 3600.0
WALL_S, BOOT_S = 1_700_000_000.0, 500.0
INTERVAL_S = 10.0
TARGET = Target(worker="w0", address="w0:1")
WORKERS = Workers(targets=(TARGET,))


class Clocks:
    """Both clocks of a machine."""

    def __init__(self):
        self.passed_s = self.set_by_s = 0.0

    def time(self):
        return WALL_S + self.passed_s + self.set_by_s

    def monotonic(self):
        return BOOT_S + self.passed_s

    def sample(self, **given):
        return sample(
            time_unix_s=self.time(), taken_monotonic_s=self.monotonic(), interval_s=INTERVAL_S,
            mxu_utilization_ratio=0.4, **given,
        )  # fmt: skip


@pytest.fixture
def clocks(monkeypatch):
    made = Clocks()
    monkeypatch.setattr(time, "time", made.time)
    monkeypatch.setattr(time, "monotonic", made.monotonic)
    return made


def history_of(clocks, *samples):
    histories = Histories(monotonic_s=clocks.monotonic)
    histories.follow(WORKERS)
    for one in samples:
        history = histories.add(one)
    return history


@pytest.mark.parametrize("set_by_s", [-HOUR_S, HOUR_S])
def test_a_sample_is_live_for_two_and_a_half_intervals_whatever_the_wall_clock_says(set_by_s):
    """Not for an hour more, and not for an hour less."""
    clocks = Clocks()
    history = history_of(clocks, clocks.sample())
    clocks.set_by_s = set_by_s
    clocks.passed_s = 2.5 * INTERVAL_S
    assert history.state(clocks.time()) == "live"
    assert history.current(clocks.time()) is not None
    clocks.passed_s += 2  # and a window
    assert history.state(clocks.time()) == "stale"
    assert history.current(clocks.time()) is None
    assert history.is_up(clocks.time()) is False


@pytest.mark.parametrize("set_by_s", [-HOUR_S, HOUR_S])
def test_the_traced_share_of_time_is_of_time_that_passed(set_by_s):
    """A clock that was set back makes it neither unknown nor above 1."""
    clocks = Clocks()
    history = history_of(clocks, clocks.sample(traced_s=1.0))
    clocks.set_by_s = set_by_s
    clocks.passed_s = 100.0
    assert history.traced_ratio(clocks.time()) == pytest.approx(1 / 600)


@pytest.mark.parametrize("set_by_s", [-HOUR_S, 0.0, HOUR_S])
def test_the_sampler_notes_when_a_sample_was_taken_although_the_clock_is_set_meanwhile(set_by_s, monkeypatch):
    """By the monotonic clock, no earlier than it was asked for and no later than it came."""
    set_by = [0.0]
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + set_by[0])

    class Source(ProfilerSource):
        usual_interval_s = 0.0
        name = "trace"

        async def fetch(self, query):
            begun = sample(time_unix_s=time.time(), window_s=0.01)
            await asyncio.sleep(0.05)
            set_by[0] = set_by_s
            return begun

    class NoClient:
        async def __aenter__(self):
            return self

        async def __aexit__(self, *_error):
            pass

    class Fixed:
        async def watch(self, _all_gone):
            yield WORKERS

    async def no_pause():
        pass

    taken = []
    sampler = Sampler(
        Fixed(), Query(level=2), Pace(num_queries=1), on_sample=taken.append, open_client=lambda _address: NoClient(),
        profilers=[lambda *_given: Source()], extra_sources=(), pause=no_pause,
    )  # fmt: skip
    begun_s = time.monotonic()
    asyncio.run(sampler.run())
    (one,) = taken
    assert begun_s <= one.taken_monotonic_s <= time.monotonic()
    if not set_by_s:
        assert one.taken_monotonic_s <= time.monotonic() - 0.05


def test_the_view_goes_stale_and_comes_back_on_a_clock_set_back(clocks, record_testsuite_property):
    """Its own deadline holds, figures go, and a new sample is live at once."""
    fleet = Analysis(monotonic_s=clocks.monotonic)
    display = Wired(lambda context: Display(DisplaySettings(), context.analysis), fleet)
    display.add(WORKERS)
    display.add(clocks.sample())
    display.refresh(clocks.time())
    assert "40.0%" in " ".join(lines(display, now=clocks.time()))
    clocks.set_by_s = -HOUR_S
    clocks.passed_s = 30.0
    display.refresh(clocks.time())
    assert "STALE 30s" in lines(display, now=clocks.time())[0]
    display.add(clocks.sample())
    display.refresh(clocks.time())
    assert "LIVE" in lines(display, now=clocks.time())[0]
    row = "test_inside_clock.py::test_the_view_goes_stale_and_comes_back_on_a_clock_set_back"
    record_testsuite_property(row, "the next sample")


@pytest.mark.parametrize("set_by_s", [-HOUR_S, HOUR_S])
def test_the_fleets_graph_goes_on_after_the_clock_was_set(set_by_s):
    """A point per interval as before, and its span is time that passed."""
    clocks = Clocks()
    fleet = Analysis(monotonic_s=clocks.monotonic)
    fleet.remember()
    fleet.add(WORKERS)
    for query in range(80):
        clocks.passed_s = query * INTERVAL_S
        clocks.set_by_s = set_by_s if query >= 40 else 0.0
        fleet.add(clocks.sample())
        fleet.tick(clocks.time())
    points = fleet.status(clocks.time()).average.points("mxu", clocks.time() - 2 * HOUR_S, clocks.time() + 1)
    assert sum(point.queries for point in points) == 80
    assert points[-1].start_unix_s - points[0].start_unix_s == pytest.approx(79 * INTERVAL_S, abs=1)


class _Screen:
    up, pending = True, b""

    def __init__(self):
        self.shown = 0

    def size(self):
        return 80, 24

    def show(self, *_picture):
        self.shown += 1

    def use_mouse(self, *_wanted):
        """It has none."""


class _Display:
    """Changes by itself after ten seconds."""

    wants_mouse = False

    def __init__(self):
        self.refreshed = []

    def pause_s(self, _busy_s):
        return 0.25

    def refresh(self, now_unix_s):
        self.refreshed.append(now_unix_s)

    def render(self, *_size):
        return []

    def press(self, _key):
        return Reply.NOTHING

    def pop_alarm(self):
        return False

    def changes_at(self, now_unix_s):
        return now_unix_s + 10.0


@pytest.mark.parametrize("set_by_s", [-HOUR_S, 0.0, HOUR_S])
def test_the_picture_changes_when_it_is_due(clocks, set_by_s):
    """The loop sleeps no longer than the picture holds, and draws then, wherever the wall clock went."""
    display, screen = _Display(), _Screen()
    loop = live._Loop(display, lambda: ((), False), -1, print, -1, screen, None, None)
    try:
        loop._draw(clocks.monotonic())
        clocks.set_by_s = set_by_s
        clocks.passed_s = 5.0
        loop._do_what_is_due()
        assert loop._wait_s() == pytest.approx(5.0)
        assert screen.shown == 1
        clocks.passed_s = 10.1
        loop._do_what_is_due()
        assert screen.shown == 2
        assert len(display.refreshed) == 2
    finally:
        loop.close()


def waiting_for_input(clocks):
    return clocks.sample(infeed_ratio=Spread(avg=0.3, min=0.3, max=0.3))


def since_of(fleet, clocks):
    """Since when, by the verdict of the worker, its cause, and the finding: seconds ago."""
    status = fleet.status(clocks.time())
    (finding,), verdict = status.findings, status.workers["w0"].verdict
    (cause,) = verdict.causes
    assert (finding.finding, cause.finding, verdict.status) == ("input-bound", "input-bound", "critical")
    return [clocks.time() - one.since_unix_s for one in (verdict, cause, finding)]


@pytest.mark.parametrize("set_by_s", [-HOUR_S, HOUR_S])
@pytest.mark.parametrize("rounds", [2, 4], ids=["before it is found", "while it is present"])
def test_a_finding_lasts_as_long_as_it_does_although_the_clock_is_set(clocks, rounds, set_by_s):
    """By all outputs alike, from the next sample on; until then, and of what others say, nothing is in the future."""
    fleet = Analysis(monotonic_s=clocks.monotonic)
    fleet.add(WORKERS)
    for _ in range(rounds):
        fleet.add(waiting_for_input(clocks))
        clocks.passed_s += INTERVAL_S
    clocks.set_by_s = set_by_s
    if rounds > 3:
        assert min(since_of(fleet, clocks)) >= 0
    for number in range(rounds, 6):
        fleet.add(waiting_for_input(clocks))
        if number > 2:
            assert since_of(fleet, clocks) == pytest.approx([number * INTERVAL_S] * 3)
        clocks.passed_s += INTERVAL_S


def test_what_an_exporter_said_before_the_clock_was_set_back_is_not_in_the_future(clocks):
    fleet = Analysis(monotonic_s=clocks.monotonic)
    fleet.add(WORKERS)
    cause = Cause(words="input", finding="input-bound", severity="critical", since_unix_s=clocks.time())
    finding = Finding(finding="input-bound", severity="critical", workers=("w0",), since_unix_s=clocks.time())
    standing = StatusSnapshot(worker="w0", state="live", severity="critical", ok=False, ok_since_unix_s=clocks.time())
    fleet.add(ExporterSnapshot(complete=True, statuses=(standing,), findings=(finding,)))
    fleet.add(replace(clocks.sample(), findings=(cause,), judged=("input-bound",)))
    clocks.set_by_s = -HOUR_S
    assert since_of(fleet, clocks) == [0.0] * 3
