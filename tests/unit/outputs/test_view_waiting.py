"""What a view says while one waits: what is done, when the next sample comes, and what to do without a job."""

from __future__ import annotations

import re

import pytest

from support.shown import NOW, answered, display_of, empty_display, failed, lines, name_of, press, screen
from tpumon.collection.remote.exporter import lost
from tpumon.model import Target, Workers
from tpumon.model.progress import Progress, Traced

ADDRESS = "w:8466"


class Clock:
    """Seconds since the epoch, as a test sets them."""

    def __init__(self):
        self.unix_s = NOW

    def __call__(self):
        return self.unix_s


@pytest.fixture
def clock():
    return Clock()


def following(clock, *samples, workers=("w",)):
    """A display of workers that this process samples."""
    display = display_of(*samples, workers=workers)
    display.output.progress = Progress(clock)
    return display


def test_before_the_first_figure_the_screen_says_what_is_done(clock):
    """Whom it asks, what it takes, what it waits for; in a list on the worker's row."""
    display, said = following(clock), []
    progress = display.output.progress
    for note in (
        lambda: progress.does(ADDRESS, "asking for Monitor", "asking"),
        lambda: progress.does(ADDRESS, "a trace of 500 ms is taken", "tracing", takes_s=0.6),
        lambda: progress.does(ADDRESS, "its trace is analysed", "reading"),
        lambda: progress.waits(ADDRESS, "traced", 12.0, "its share is used"),
    ):
        note()
        said.append(lines(display, 80, 24)[2].strip())
        assert "every n/a" in lines(display, 80, 24)[0]
    assert said == [
        "W WAITING, no figures yet; asking for Monitor",
        "W WAITING, no figures yet; a trace of 500 ms is taken",
        "W WAITING, no figures yet; its trace is analysed",
        "W WAITING, no figures yet; traced in 12 s: its share is used",
    ]
    two = following(clock, workers=("v", "w"))
    two.output.progress.does(ADDRESS, "asking for Monitor", "asking")
    assert re.search(r"W w .*WAITING: asking for Monitor", screen(two, 80, 24))


def test_the_countdown_counts_whole_seconds_and_nothing_beside_it_moves(clock):
    """Down to now, then what is done; the picture changes once a second, and in the header alone."""
    display = following(clock, answered("w", NOW - 10), answered("w"))
    display.output.progress.waits(ADDRESS, "asked again", 11.5)
    seen, pictures = [], []
    while clock.unix_s < NOW + 12:
        pictures.append(lines(display, 100, 24, clock.unix_s))
        seen.append(re.search(r"every 10s  (.{8})  trace", pictures[-1][0])[1])
        before, clock.unix_s = clock.unix_s, display.changes_at(clock.unix_s)
        assert 0 < clock.unix_s - before <= 1.03
    assert seen == ["next 12s", *(f"next {left:>2}s" for left in range(11, 0, -1)), "next now"]
    assert len({tuple(picture[1:]) for picture in pictures}) == 1
    display.output.progress.does(ADDRESS, "a trace of 500 ms is taken", "tracing", takes_s=0.5)
    assert "every 10s  tracing   trace" in lines(display, 100, 24, clock.unix_s)[0]


@pytest.mark.parametrize("workers", [("w",), ("v", "w")])
def test_once_a_pause_is_over_what_is_waited_for_is_shown_before_the_next_sample(clock, workers):
    """Not a pause whose end has passed; as long as it lasts, that, whatever is asked next."""
    paused = failed("w", "paused", "paused by ada until 10:00:00", NOW)
    display = following(clock, answered("w", NOW - 10), paused, workers=workers)
    progress = display.output.progress
    progress.waits(ADDRESS, "asked again", 9.0, is_held=True)
    assert "SAMPLING PAUSED" in screen(display, 160, 24, NOW)
    why = "it was traced for its share of time (--max-duty)"
    progress.waits(ADDRESS, "traced", 14.0, why)
    assert display.changes_at(clock.unix_s) < clock.unix_s + 1.1
    for wait_s in (0, 5):
        clock.unix_s = NOW + wait_s
        shown = screen(display, 160, 24, clock.unix_s)
        assert "PAUSED" not in shown
        assert "paused by" not in shown
        assert f"traced in {14 - wait_s} s: {why}" in shown
    progress.waits(ADDRESS, "asked again", 9.0, is_held=True)
    display.add(failed("w", "paused", "paused by eve", clock.unix_s))
    display.refresh(clock.unix_s)
    assert "SAMPLING PAUSED" in screen(display, 160, 24, clock.unix_s)


def test_a_clock_that_is_set_makes_no_countdown_longer_than_the_wait(clock):
    """Nor one below zero."""
    display = following(clock, answered("w"))
    display.output.progress.waits(ADDRESS, "asked again", 9.0)
    doing = display.output.progress.of(ADDRESS)
    assert [doing.left_s(NOW + by) for by in (-1e6, 0.0, 8.5, 9.0, 1e6)] == [9, 9, 1, 0, 0]


@pytest.mark.parametrize(("wait_s", "every"), [(12.0, "every 10s  next 12s"), (20.0, "every 20s  next 20s")])
def test_the_interval_beside_a_countdown_agrees_with_it(clock, wait_s, every):
    """Though the last two samples were 2 s apart, and also once the wait is over and the trace is taken."""
    display = following(clock, answered("w", NOW - 1.6), answered("w"))
    display.output.progress.waits(ADDRESS, "asked again", wait_s)
    assert every in lines(display, 100, 24)[0]
    clock.unix_s = NOW + wait_s
    display.output.progress.does(ADDRESS, "a trace of 500 ms is taken", "tracing")
    assert every.split("  ")[0] + "  tracing" in lines(display, 100, 24, clock.unix_s)[0]


@pytest.mark.parametrize("interval_s", [0.5, 1.0])
def test_without_a_wait_worth_counting_there_is_no_countdown(clock, interval_s):
    """Samples that come all the time, of one worker or of many, and a frozen picture."""
    display = following(clock, answered("w", interval_s=interval_s))
    display.output.progress.waits(ADDRESS, "asked again", interval_s)
    assert "next" not in lines(display, 100, 24)[0]
    names = tuple(map(name_of, range(10)))
    many = following(clock, *map(answered, names), workers=names)
    for name in names:
        many.output.progress.waits(f"{name}:8466", "asked again", 7.0)
    assert "next" not in lines(many, 100, 24)[0]
    frozen = following(clock, answered("w"))
    frozen.output.progress.waits(ADDRESS, "asked again", 7.0)
    assert "next" in lines(frozen, 100, 24)[0]
    press(frozen, "p")
    assert "next" not in lines(frozen, 100, 24)[0]


def test_of_several_workers_the_next_one_counts(clock):
    """On a worker's page, its own."""
    display = following(clock, answered("v"), answered("w"), workers=("v", "w"))
    display.output.progress.waits("v:8466", "asked again", 3.0)
    display.output.progress.waits(ADDRESS, "asked again", 8.0)
    assert "next  3s" in lines(display, 100, 24)[0]
    press(display, "down", "down", "enter")
    assert "next  8s" in lines(display, 100, 24)[0]


def test_of_an_exporter_the_next_sample_is_expected_after_its_interval():
    """It does not say when it asks; nothing is said of its first sample."""
    display = display_of(answered("w", NOW - 3.0))
    assert "next" not in lines(display, 100, 24)[0]
    display.output.from_url = "http://h:10466"
    assert "next  7s" in lines(display, 100, 24)[0]
    assert "next now" in lines(display, 100, 24, NOW + 8)[0]
    for interval_s in (5e-324, 1e-9, 1.7e308):
        odd = display_of(answered("w", NOW - 3.0, interval_s=interval_s), from_url="http://h:10466")
        assert "LIVE" in lines(odd, 100, 24)[0] or "STALE" in lines(odd, 100, 24)[0]
        odd.changes_at(NOW)
    away = lost(Target(worker="w", address=ADDRESS), "unavailable", "it is gone", NOW - 1, NOW)
    down = screen(display_of(answered("w", NOW - 3.0), away, from_url="http://h:10466"), 100, 24)
    assert "EXPORTER DOWN" in down
    assert "next" not in down
    display.output.recorded = "RECORDED stopped"
    assert "next" not in lines(display, 100, 24)[0]


def test_a_worker_that_is_down_says_when_it_is_asked_again(clock):
    """Beside why it is."""
    display = following(clock, failed("w"))
    display.output.progress.waits(ADDRESS, "asked again", 4.0)
    assert "connection refused; asked again in 4 s" in screen(display, 100, 24)


def test_a_sample_that_waits_for_another_tpumon_says_so_before_and_after_the_last_is_stale(clock):
    """Not while it comes in time, and in a list where the last is stale."""
    why = "tpumon 12 of ann goes first, as it has no figures yet (--max-duty)"
    display = following(clock, answered("w"))
    display.output.progress.waits(ADDRESS, "traced", 30.0, why)
    assert why not in screen(display, 120, 24, NOW + 12)
    assert f"; traced in 14 s: {why}" in screen(display, 120, 24, NOW + 16)
    assert f"no figures now; traced in 0 s: {why}" in screen(display, 140, 24, NOW + 30)
    two = following(clock, answered("v"), answered("w"), workers=("v", "w"))
    two.output.progress.waits(ADDRESS, "traced", 30.0, why)
    assert re.search(r"S w .*STALE >28s: traced in 2 s: tpumon 12 of ann goes first", screen(two, 140, 24, NOW + 28))


@pytest.mark.parametrize(
    ("age_s", "spans", "header", "page"),
    [
        (100, [(-50, -50, 0.5), (-20, -20, 0.5)], "1.0%", "1.0% of the last 1.7m by all"),
        (3600, [(-900, -900, 9.0), (-50, -50, 3.0)], "0.5%", "0.5% of the last 10 min by all"),
        (
            3600,
            [(-1200, 0, 24.0)],
            "2.0%",
            "2.0% of the last 10 min by all",
        ),  # another one's, of which no more is known
    ],
)
def test_the_header_says_for_how_long_all_tpumons_have_traced_the_job(clock, age_s, spans, header, page):
    """Of the job's life where that is shorter than 10 minutes; of a frozen view only its own."""
    display = following(clock, answered("w"))
    spans = tuple((NOW + begin_s, NOW + end_s, traced_s) for begin_s, end_s, traced_s in spans)
    display.output.progress.note_traced(ADDRESS, Traced(NOW - age_s, spans))
    assert f"traced {header}" in lines(display, 120, 24)[0]
    press(display, "enter")
    assert f"{page} tpumons of this host" in screen(display, 120, 80)
    press(display, "p")
    assert "traced 0.0%" in lines(display, 120, 80)[0]


def test_a_trace_that_has_not_ended_counts_in_the_header_as_it_runs(clock):
    """Also the first one, whose job it may have hung."""
    display = following(clock, answered("w"))
    display.output.progress.note_traced(ADDRESS, Traced(NOW - 100, (), NOW - 20))
    assert "traced 20.0%" in lines(display, 120, 24)[0]
    assert "traced 60.0%" in lines(display, 120, 24, NOW + 100)[0]


def without_a_job(waiting, **settings):
    display = empty_display(**settings)
    display.add(Workers(waiting=waiting))
    display.refresh(NOW)
    return display


def test_without_a_job_it_says_what_to_run():
    """Commands that work; not where an exporter says why, nor twice."""
    text = screen(without_a_job("no profiler server on this host"), 80, 24)
    assert "tpumon run -- python train.py" in text
    assert "tpumon doctor" in text
    assert "all the time" in text
    assert "tpumon" not in screen(without_a_job("it follows none", from_url="http://h:1"), 80, 24).split("none")[1]
    assert screen(without_a_job("none; start one by: tpumon doctor"), 80, 24).count("tpumon doctor") == 1
    assert "looking for jobs" in screen(empty_display(), 80, 24)


def test_a_worker_that_is_no_longer_followed_is_forgotten(clock):
    """What was said of it is not said of another one there."""
    progress = Progress(clock)
    progress.does(ADDRESS, "asking", "asking")
    progress.forget(ADDRESS)
    progress.forget(ADDRESS)
    assert progress.of(ADDRESS) is None
