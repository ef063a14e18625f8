"""Graphs of any span, the list of changes, what is usual in a slice: what was so before the view looked."""

from __future__ import annotations

import math
import re
from itertools import groupby

import pytest

from support.shown import NOW, answered, display_of, empty_display, failed, fleet, infeed, lines, name_of, press, screen
from tpumon.analysis import Analysis
from tpumon.analysis.findings import Thresholds
from tpumon.analysis.history import RollupSeries
from tpumon.model import Cause, Change, ExporterSnapshot, Finding, Target, Workers
from tpumon.model.figure_table import COMPARED
from tpumon.outputs.drawing.cells import clock
from tpumon.outputs.live.parts import spans
from tpumon.outputs.live.parts.spans import Span, span_of

AT_ONCE = Thresholds(sustained=1)


def series_of(*values, interval_s=10.0, end_unix_s=NOW):
    """The history of a worker with these MXU utilizations; None: the query was not answered."""
    series = RollupSeries(tuple(COMPARED))
    for place, value in enumerate(values):
        figures = [value if key == "mxu" else None for key in COMPARED]
        at = end_unix_s - interval_s * (len(values) - 1 - place)
        series.add(at, "down" if value is None else "live", figures)
    return series


def drawn(series, span_s, width, *, end_unix_s=NOW, fresh_for_s=25.0):
    return spans.columns_of(series, "mxu", Span(end_unix_s - span_s, end_unix_s), width, fresh_for_s)


def test_the_range_of_a_graph_is_that_of_the_figure():
    """Not that of the columns' worst values: what is shown as present is in it."""
    values = [0.3 + 0.05 * math.sin(i) for i in range(360)] + [0.42]
    shown = drawn(series_of(*values), 3600, 30)
    assert shown.ends == (pytest.approx(min(values), rel=1e-3), pytest.approx(0.42, rel=1e-3))

    display = display_of(
        *(answered("w", NOW - 10 * i, mxu_utilization_ratio=0.2 + i / 1000) for i in range(200, -1, -1))
    )
    assert "MXU  20.0% – 40.0%, last 1h" in screen(display)
    assert "MXU           20.0%" in screen(display)


def test_a_column_has_the_least_the_median_and_the_greatest_value():
    """Of all samples that fall into it."""
    known = [
        band for band in drawn(series_of(*[0.1, 0.2, 0.9] * 20, interval_s=1.0), 600, 11).bands if band[0] == band[0]
    ]
    assert known[0] == pytest.approx((0.1, 0.2, 0.9), rel=1e-3)


@pytest.mark.parametrize("state", ["down", "no-activity", "busy", "continuous", "paused"])
def test_a_gap_says_in_which_state_the_worker_was(state):
    """Until it has figures again. A time in which nobody watched has no mark, nor has a figure that is absent."""
    series = RollupSeries(tuple(COMPARED))
    course = [(0, "live", 0.5), (100, state, None), (200, "live", 0.5), (300, "live", None)]
    ends = (100, 200, 300, 400)
    for (begin, now, value), end in [
        *zip(course, ends, strict=True),
        ((400, state, None), 410),
        ((600, "live", 1), 700),
    ]:
        for at in range(begin, end, 10):
            series.add(NOW + at, now, [value] * len(COMPARED))
    states = drawn(series, 690, 139, end_unix_s=NOW + 690).states
    groups = [(each, len(list(group))) for each, group in groupby(states)]
    assert [each for each, _ in groups] == [None, state, None, state, None]
    assert groups[1][1] == pytest.approx(20, abs=1)  # 5 s a column
    # A minute, no longer; of one that answered next, only its query.
    assert groups[3][1] == pytest.approx(1 if state == "down" else 12, abs=2)


@pytest.mark.parametrize("width", [61, 121, 241])  # 10, 5 and 2.5 s a column
def test_down_is_drawn_for_the_time_of_its_queries_and_not_until_the_next_answer(width):
    """On every zoom: after the last query without an answer nobody knows when the worker was there again."""
    series = RollupSeries(tuple(COMPARED))
    course = [*((at, "live", 0.5) for at in range(0, 300, 2)), (300, "down", None), (304, "down", None)]
    for at, state, value in [*course, *((at, "live", 0.5) for at in range(330, 600, 2))]:
        series.add(NOW + at, state, [value] * len(COMPARED))
    columns = drawn(series, 598, width, end_unix_s=NOW + 598)
    length_s = 598 / (width - 1)
    groups = [(each, len(list(group))) for each, group in groupby(columns.states)]
    assert [each for each, _ in groups] == [None, "down", None]
    assert groups[1][1] * length_s <= 4 + 2 * length_s
    empty_s = sum(math.isnan(band[1]) for band in columns.bands) * length_s
    assert empty_s == pytest.approx(30, abs=2 * length_s)


def test_what_lasts_after_a_column_is_its_last_answer():
    """Not what was before it in the same column."""
    series = RollupSeries(tuple(COMPARED))
    for at, state, value in [(0, "live", 0.5), (104, "live", 0.5), (106, "down", None), (146, "down", None)]:
        series.add(NOW + at, state, [value] * len(COMPARED))
    states = drawn(series, 150, 16, end_unix_s=NOW + 150).states
    assert [each for each, _ in groupby(states[-5:])] == ["down"]
    series.add(NOW + 148, "no-activity", [None] * len(COMPARED))
    series.add(NOW + 190, "no-activity", [None] * len(COMPARED))
    states = drawn(series, 190, 20, end_unix_s=NOW + 190).states
    assert states[-4:] == ["no-activity"] * 4


def test_the_marks_of_gaps_are_in_the_lowest_line_and_in_the_title():
    """The figures before and after are drawn as usual."""
    samples = [answered("w", NOW - 600 + 10 * i) if i < 30 or i > 40 else failed("w", time_unix_s=NOW - 600 + 10 * i)
               for i in range(61)]  # fmt: skip
    text = screen(display_of(*samples), width=120)
    assert ", D down" in text
    lowest = next(line for line in text.splitlines() if line.lstrip().startswith("0%"))
    assert re.search(r"█D+█", lowest)
    assert not any("DD" in line for line in text.splitlines() if "%" in line and not line.lstrip().startswith("0%"))


def test_a_gap_is_a_gap_and_a_pause_between_two_samples_is_not():
    """Columns between two queries show the figure that counts then; after a failed query there is none."""
    values = [0.5] * 30 + [None] * 10 + [0.5] * 20
    bands = drawn(series_of(*values), 590, 119).bands
    empty = [math.isnan(band[0]) for band in bands]
    first, last = empty.index(True), len(empty) - empty[::-1].index(True)
    assert 17 <= last - first <= 21  # ten queries, two columns each
    assert all(empty[first:last])
    assert not any(empty[last:])


def test_columns_do_not_change_while_they_move():
    """With later samples, the columns that were complete are the same ones."""
    values = [0.5 + 0.4 * math.sin(i * i) for i in range(900)]
    series = series_of(*values[:700], end_unix_s=NOW - 2000)
    before = spans.columns_of(series, "mxu", Span(NOW - 3800, NOW - 2000), 31, 25.0)
    for place in range(700, 900):
        at = NOW - 10 * (899 - place)
        series.add(at, "live", [values[place] if key == "mxu" else None for key in COMPARED])
        after = spans.columns_of(series, "mxu", Span(at - 1800, at), 31, 25.0)
        if place == 730:
            inner = before.bands[8:-1]
            assert any(after.bands[at : at + len(inner)] == inner for at in range(len(after.bands)))


def test_the_span_at_first_is_what_is_known():
    """As a round length, an hour at most; nothing is shown that came later than the time that is shown."""
    series = series_of(*[0.5] * 10)
    assert span_of(series, None, None, NOW) == pytest.approx((NOW - 120, NOW), abs=0.1)
    assert span_of(series, None, None, NOW - 50).end_unix_s == NOW - 50
    assert span_of(series_of(*[0.5] * 1000), None, None, NOW) == pytest.approx((NOW - 3600, NOW), abs=0.1)
    assert span_of(series, 86400.0, NOW - 60, NOW) == (NOW - 60 - 86400, NOW - 60)
    assert span_of(RollupSeries(("mxu",)), None, None, NOW) is None


@pytest.mark.parametrize("width", [40, 76, 80, 120])
def test_every_graph_that_does_not_end_now_says_its_time(width):
    """Else it looks like one of now. Where both do not fit, the least and the greatest value are left out."""
    answers = [answered("w", NOW - 10 * i) for i in range(200, -1, -1)]
    display = display_of(*answers)
    press(display, "-", "-", "left")
    moved = screen(display, width, 60)
    graphs = moved.count("┤") // 2
    assert graphs > 1
    assert moved.count(f"{clock(NOW - 1350, NOW)} to {clock(NOW - 450, NOW)}") == graphs

    display = display_of(*answers, answered("fresh", NOW + 7200), now=NOW + 7200)
    press(display, "enter")
    stale = screen(display, width, 60, NOW + 7200)
    assert stale.count(f"1h until {clock(NOW, NOW)}") == stale.count("┤") // 2 > 1


def test_a_label_of_a_graph_gives_way_to_its_time():
    """Times on two days are long."""
    display = display_of(*(answered("w", NOW - 86400 * i) for i in (4, 3, 2, 1, 0)))
    press(display, *["+"] * 5, "left")
    shown = screen(display, 76, 60)
    (title,) = (line for line in shown.splitlines() if "Step" in line and " to " in line)
    assert len(re.findall(r"\d\d-\d\d \d\d:\d\d to \d\d-\d\d \d\d:\d\d", title)) == 2
    assert "Step t…" in title


def test_keys_change_the_span_and_its_end():
    """Plus and minus its length, arrows its end, 0 back to now; the title says what is shown."""
    display = display_of(*(answered("w", NOW - 10 * i) for i in range(200, -1, -1)))
    assert "last 1h" in screen(display)
    press(display, "+")
    assert "last 2h" in screen(display)
    press(display, "-", "-", "-")
    assert "last 15m" in screen(display)
    press(display, "left")
    assert f"{clock(NOW - 1350, NOW)} to {clock(NOW - 450, NOW)}" in screen(display)
    assert "0 now" in lines(display)[-1]
    press(display, "0")
    assert "last 15m" in screen(display)
    press(display, "left", "right")
    assert "last 15m" in screen(display)
    press(display, "left")
    display.add(answered("w", NOW + 60))
    display.refresh(NOW + 60)
    press(display, "right")
    assert "last 15m" in screen(display, now=NOW + 60), "looking back takes time"
    for _ in range(20):
        press(display, "+")
    assert "last 7d" in screen(display)
    for _ in range(20):
        press(display, "-")
    assert "last 1m" in screen(display)


def test_a_graph_that_is_coarse_because_of_many_workers_says_so():
    """A day and a week are; an hour is not."""
    display = display_of(*fleet(600))
    press(display, "enter", *["+"] * 20)
    display.add(*fleet(600, time_unix_s=NOW + 10))
    assert "last 7d in steps of 30m" in screen(display, 120, 60)
    press(display, "-", "-")
    assert "last 1d in steps of 3m" in screen(display, 120, 60)
    press(display, *["-"] * 5)
    assert "in steps" not in screen(display, 120, 60)


# ---- changes


def trouble():
    """A display of a fleet in which a worker became critical, went down, and came back with a restarted job."""
    usual = {"interval_s": 100.0}
    display = display_of(
        *fleet(6, time_unix_s=NOW - 600, runtime={"uptime_s": 3600.0}, **usual), thresholds=AT_ONCE, now=NOW - 600
    )
    bad = name_of(2)
    for at, sample in (
        (NOW - 500, answered(bad, NOW - 500, **infeed(0.1), runtime={"uptime_s": 3700.0}, **usual)),
        (NOW - 400, answered(bad, NOW - 400, **infeed(0.3), runtime={"uptime_s": 3800.0}, **usual)),
        (NOW - 300, failed(bad, time_unix_s=NOW - 300, **usual)),
        (NOW - 200, answered(bad, NOW - 200, **infeed(0.3), runtime={"uptime_s": 10.0}, **usual)),
    ):
        for other in fleet(6, time_unix_s=at, runtime={"uptime_s": 3600.0}, **usual):
            if other.worker != bad:
                display.add(other)
        display.add(sample)
        display.refresh(at)
    return display


def test_changes_are_listed_the_newest_first():
    """When, who, what it is since then and was before, and why; a click opens the worker."""
    display = trouble()
    press(display, "e")
    shown = lines(display, now=NOW - 200)
    text = "\n".join(shown)
    assert "newest first" in shown[1]
    for words in (
        f"{clock(NOW - 500, NOW)}  ! {name_of(2)}  warning, was ok: infeed 10%",
        f"{clock(NOW - 400, NOW)}  X {name_of(2)}  critical, was warning: infeed 30%",
        f"{clock(NOW - 300, NOW)}  D {name_of(2)}  down, was critical: connection refused",
        f"{name_of(2)}  job restarted",
    ):
        assert words in text, words
    assert text.index("job restarted") < text.index("connection refused") < text.index("infeed 10%")
    line = next(place for place, line in enumerate(shown) if "connection refused" in line)
    press(display, f"clicked:20:{line}")
    assert lines(display, now=NOW - 200)[1].split()[0] == name_of(2)


def test_what_happened_to_a_slice_is_one_line_of_the_changes():
    """On the page of a worker it is the worker's."""
    display = display_of(*fleet(3))
    for number in range(3):
        display.add(failed(name_of(number), time_unix_s=NOW + 1 + number))
    display.refresh(NOW + 4)
    press(display, "e")
    shown = screen(display, now=NOW + 4)
    assert "1 change, newest first" in shown
    assert "D all 3 workers" in shown
    press(display, "esc", "enter", "e")
    assert "all 3 workers" not in screen(display, now=NOW + 4)


def test_an_exporter_that_was_away_is_one_line_of_the_changes():
    """With its whole name, which widens no column; there is no worker to open."""
    display = display_of(*fleet(3))
    display.add(failed(name_of(0), time_unix_s=NOW + 1))
    what = Change(
        number=0, time_unix_s=NOW + 2, worker="exporter 10.10.10.10:10466", what="exporter", state="stale",
        severity="unknown", words="its 3 workers are not seen",
    )  # fmt: skip
    display.add(what)
    display.refresh(NOW + 4)
    press(display, "e")
    shown = lines(display, now=NOW + 4)
    assert shown[2].endswith(" S exporter 10.10.10.10:10466 does not answer: its 3 workers are not seen")
    assert f"D {name_of(0)}  down, was ok: " in shown[3]
    press(display, "clicked:20:2")
    assert lines(display, now=NOW + 4) == shown


def test_on_a_workers_page_its_own_changes_are_listed():
    """The last ones on the page itself, all of them by e; of one without any, a line says so."""
    display = trouble()
    press(display, "enter")
    assert lines(display, now=NOW - 200)[1].split()[0] == name_of(2)
    page = screen(display, 120, 100, now=NOW - 200)
    assert "Changes, newest first (e: all)" in page
    assert "critical, was warning" in page
    press(display, "n", "e")
    assert f"no change of {name_of(0)} since it is followed" in screen(display, now=NOW - 200)
    press(display, "esc", "esc", "e")
    assert "job restarted" in screen(display, now=NOW - 200), "back on the list, e lists the changes of all"


def test_keys_go_to_the_previous_and_the_next_change():
    """Graphs end there, and the last line says what changed; on a worker's page, its changes."""
    display = trouble()
    press(display, "enter")

    def said():
        return lines(display, 120, now=NOW - 200)[-2].strip()

    for key, at, words in (
        ("[", 210, "job restarted"), ("[", 300, "down: connection refused"), ("[", 400, "critical: infeed 30%"),
        ("]", 300, "down: connection refused"), ("[", 400, "critical"), ("[", 500, "warning: infeed 10%"),
    ):  # fmt: skip
        press(display, key)
        assert said().startswith(f"{clock(NOW - at, NOW)} {name_of(2)}: {words}"), key
        assert f"to {clock(NOW - at, NOW)}" in screen(display, 120, 60, now=NOW - 200)
    press(display, "[")
    assert said() == "no earlier change"
    press(display, "0", "]")
    assert said() == "no later change"


def test_a_time_is_typed_and_graphs_end_there():
    """Esc leaves it; what is no time, or not known, is said and moves nothing."""
    display = display_of(*(answered("w", NOW - 10 * i) for i in range(200, -1, -1)))
    press(display, "-", "-", "t", *"-20")
    assert "go to: -20_" in lines(display)[-1]
    press(display, "backspace", "0", "m", "enter")
    shown = f"{clock(NOW - 2100, NOW)} to {clock(NOW - 1200, NOW)}"
    assert shown in screen(display)
    for typed, said in (("-2d", "samples are from"), ("noon", "give a time such as 03:12")):
        press(display, "t", *typed, "enter")
        assert said in screen(display)
        assert shown in screen(display)
    press(display, "t", "1", "esc")
    assert "go to" not in screen(display)
    assert shown in screen(display)


def test_graphs_stop_at_their_ends_and_say_so():
    """In one word, once; there is nothing to see before the first sample."""
    display = display_of(*(answered("w", NOW - 10 * i) for i in range(200, -1, -1)))
    press(display, "-", "-", "right")
    assert lines(display)[-2].strip() == "end"
    press(display, *["left"] * 9)
    assert f"{clock(NOW - 2000, NOW)} to {clock(NOW - 1100, NOW)}" in screen(display)
    assert lines(display)[-2].strip() == "beginning"
    press(display, "right")
    assert f"{clock(NOW - 1550, NOW)} to {clock(NOW - 650, NOW)}" in screen(display)


def test_since_when_is_the_same_everywhere():
    """In the list of findings, on the worker's page, and among the changes."""
    display = trouble()
    press(display, "w")
    assert f"since {clock(NOW - 200, NOW)}" in screen(display, 120, 40, now=NOW - 200)
    press(display, "w", "enter")
    page = screen(display, 120, 100, now=NOW - 200)
    assert f"critical since {clock(NOW - 200, NOW)}" in page
    press(display, "e")
    assert f"{clock(NOW - 200, NOW)}  X {name_of(2)}  critical" in screen(display, 120, 40, now=NOW - 200)


def test_a_frozen_picture_has_no_later_changes():
    """They come with the others when it goes on."""
    display = display_of(*fleet(3))
    press(display, "e", "p")
    display.add(failed(name_of(1), time_unix_s=NOW + 1))
    display.refresh(NOW + 1)
    assert "no change of any worker" in screen(display, now=NOW + 1)
    press(display, "p")
    assert "connection refused" in screen(display, now=NOW + 1)


def test_since_when_it_is_critical_and_since_when_in_trouble():
    """Both, where they differ."""
    display = display_of(answered("w", NOW - 100, **infeed(0.1)), thresholds=AT_ONCE, now=NOW - 100)
    display.add(answered("w", NOW - 50, **infeed(0.5)))
    display.refresh(NOW - 50)
    wanted = f"critical since {clock(NOW - 50, NOW)}, in trouble since {clock(NOW - 100, NOW)} or earlier"
    assert f"{wanted}: infeed 50%" in screen(display, 120, now=NOW - 50)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_what_was_so_at_the_first_look_may_have_begun_before(size):
    """In its row at least so long, on its page `or earlier`; what began while it was watched has a time."""
    display = display_of(failed("w", time_unix_s=NOW - 20), answered("v", NOW - 15), now=NOW - 15)
    display.add(failed("v", time_unix_s=NOW - 10))
    display.refresh(NOW)
    shown = screen(display, *size)
    assert ("DOWN >20s: " in shown, "DOWN 10s: " in shown) == (True, True)
    press(display, "enter")
    assert f"D DOWN 10s since {clock(NOW - 10, NOW)}, no figures now" in screen(display, *size)
    press(display, "n")
    assert f"D DOWN >20s since {clock(NOW - 20, NOW)} or earlier, no figures yet" in screen(display, *size)
    assert "  DOWN >20s  " in lines(display, *size)[0]
    reader = empty_display()
    reader.add(Workers(targets=(Target(worker="w", address="w:1"),)))
    cause = Cause(words="infeed 9%", finding="input-bound", since_unix_s=NOW - 500, since_or_earlier=True)
    found = Finding(
        finding="input-bound", severity="warning", workers=("w",), since_unix_s=NOW - 500, since_or_earlier=True
    )
    reader.add(ExporterSnapshot(complete=True, number=1, findings=(found,)), answered("w", findings=(cause,)))
    reader.refresh(NOW)
    press(reader, "enter")
    assert f"! input-bound since {clock(NOW - 500, NOW)} or earlier: infeed 9%" in screen(reader, *size), (
        "of an exporter"
    )


def test_what_began_before_the_first_look_was_nothing_before_it():
    """A finding takes several samples; no earlier one showed that the worker was ok."""
    waits = [answered("w", NOW - 20 + 10 * i, **infeed(0.5)) for i in range(3)]
    display = display_of(*waits, now=NOW, workers=["w", "v"])
    display.add(answered("v", NOW + 5), failed("v", time_unix_s=NOW + 10))
    display.refresh(NOW + 10)
    press(display, "e")
    shown = screen(display, 120, 24, now=NOW + 10)
    assert f"{clock(NOW - 20, NOW)}  X w  critical since then or earlier: infeed 50%" in shown
    assert f"{clock(NOW + 10, NOW)}  D v  down, was ok: connection refused" in shown
    event = next(one for one in display.fleet.status(NOW).changes if one.worker == "w")
    assert (event.before, event.since_or_earlier, event.sentence) == (
        None, True, "critical since then or earlier: infeed 50%",
    )  # fmt: skip


# ---- the slice


def test_beside_figures_and_parts_of_a_step_the_slices_median_stands():
    """Of the worker's own slice; the part that differs most comes first."""
    display = empty_display()
    display.add(Workers(targets=tuple(Target(worker=f"w{i}", address=f"w{i}:1", slice="ab"[i % 2]) for i in range(10))))
    for i in range(10):
        parts = {"high_flops_compute": 0.0537 if i == 4 else 0.037 + 0.1 * (i % 2), "idle": 0.01}
        display.add(answered(f"w{i}", step_parts_s=parts, mxu_utilization_ratio=0.4 + 0.1 * (i % 2)))
    display.refresh(NOW)
    press(display, "down", "down", "down", "down", "down", "enter")
    shown = screen(display, 120, 30)
    assert "w4" in lines(display, 120, 30)[1]
    assert "compute, high FLOPS 53.7ms, slice 37.0" in shown
    assert "slice 40.0%" in shown
    row = next(line for line in lines(display, 120, 80) if "Compute, high FLOPS" in line)
    assert row.split()[3:6] == ["53.7ms", "85.6%", "37.0ms"]


def test_one_that_is_alone_is_compared_with_nobody():
    """A median of itself says nothing."""
    assert "slice" not in screen(display_of(answered("w")), 120, 60)
    assert "fleet" not in screen(display_of(answered("w")), 120, 60)


def test_one_that_is_compared_with_none_has_no_slices_figure_beside_its_own():
    """Two exporters have a worker of this name; the others are compared, without it."""
    display = empty_display()
    display.add(
        Workers(
            targets=tuple(
                Target(worker=w, address=f"{w}:1", slice="s", ambiguous=w == "w0") for w in ("w0", "w1", "w2")
            )
        )
    )
    for number in range(3):
        display.add(answered(f"w{number}", mxu_utilization_ratio=0.1 + 0.3 * (number > 0)))
    display.refresh(NOW)
    shown = {}
    for name in ("w0", "w1"):
        press(display, "/", *name, "enter", "enter")
        shown[name] = screen(display, 120, 30)
        press(display, "esc", "esc")
    assert "slice 10" not in shown["w0"]
    assert "slice 40" not in shown["w0"]
    assert "slice 40.0%" in shown["w1"], shown["w1"]


def test_n_goes_to_the_next_worker_in_the_lists_order():
    """And N back; the footer says which one it is."""
    display = display_of(*fleet(5), failed(name_of(3)))
    press(display, "enter")
    seen = [lines(display)[1].split()[0]]
    for key in "nnn":
        press(display, key)
        seen.append(lines(display)[1].split()[0])
    assert seen == [name_of(i) for i in (3, 0, 1, 2)]
    assert "worker 4/5" in lines(display)[-1]
    press(display, "N", "N")
    assert lines(display)[1].split()[0] == name_of(0)
    press(display, "esc")
    assert next(line for line in lines(display) if "▸" in line).split()[1] == name_of(0)


def test_f_goes_through_the_kinds_of_trouble():
    """Not ok, then each kind that there is, then all; the footer says which, and what comes next."""
    display = display_of(*fleet(20), failed(name_of(7)), failed(name_of(9), "busy", "in use"), thresholds=AT_ONCE)
    found = []
    for _ in range(4):
        press(display, "f")
        rows = display._controls.rows
        found.append((display._controls.kind, len(rows)))
    assert found == [("not ok", 2), ("down", 1), ("busy", 1), ("", 20)]
    press(display, "f", "f")
    assert " down  " in lines(display)[-1]
    assert "f busy" in lines(display, 160)[-1]
    press(display, "esc")
    assert len(display._controls.rows) == 20


def test_the_summary_says_who_has_the_least_and_the_greatest_figure():
    """Where they differ."""
    workers = [answered(name_of(i), mxu_utilization_ratio=0.3 + i / 100) for i in range(20)]
    mxu = next(line for line in lines(display_of(*workers), 100, 40) if line.startswith(" MXU"))
    assert mxu.split()[2:6] == ["30.0%", "…0", "49.0%", "…19"]
    idle = next(line for line in lines(display_of(*workers), 100, 40) if line.startswith(" IDLE"))
    assert idle.split()[2:5] == ["12.5%", "12.5%", "20/20"]


# ---- what the one who samples knows


def test_a_view_that_attaches_shows_what_one_that_ran_all_the_time_shows():
    """Marks, since when, graphs and changes are those of the exporter, in the first picture, and again after a gap."""
    fleet_ = Analysis(AT_ONCE)
    fleet_.remember()
    always, attached = (empty_display(thresholds=AT_ONCE) for _ in range(2))
    targets = Workers(targets=tuple(Target(worker=name_of(i), address=f"{name_of(i)}:8466") for i in range(8)))
    for each in (fleet_, always, attached):
        each.add(targets)
    for at in range(200, -1, -1):
        now = NOW - 10.0 * at
        samples = [answered(name_of(i), now, mxu_utilization_ratio=0.4 + (at * (i + 3)) % 17 / 100) for i in range(8)]
        samples[3] = answered(name_of(3), now, **infeed(0.3 if at < 100 else 0.01))
        if 150 < at < 160:
            samples[5] = failed(name_of(5), time_unix_s=now)
        judged = [fleet_.add(sample).sample for sample in samples]
        always.add(*samples)
        fleet_.tick(now)
        always.refresh(now)
        if at in {50, 0}:  # attaches, and attaches again after a gap
            attached.add(fleet_.snapshot(now), *judged)
            attached.refresh(now)
            for keys in ((), ("enter",), ("enter", "+"), ("e",)):
                for display in (always, attached):
                    for key in keys:
                        display.press(key)
                assert lines(attached, 100, 40, now)[1:-2] == lines(always, 100, 40, now)[1:-2]
                for display in (always, attached):
                    press(display, "esc")


def test_a_worker_where_nothing_runs_looks_like_it():
    """It is neither down nor live: a mark, a word and a time of its own."""
    display = display_of(*fleet(5), failed(name_of(3), "empty-trace", "nothing ran", time_unix_s=NOW - 5), now=NOW)
    row = next(line for line in lines(display) if f" {name_of(3)} " in line)
    assert row.startswith(" N ")
    assert "NO ACTIVITY" in row
    assert "N 1 no activity" in lines(display, 120)[0]
    hang = Cause(words="no activity seen for 610 s", finding="hang", severity="critical", since_unix_s=NOW - 610)
    display.add(failed(name_of(3), "empty-trace", "nothing ran", findings=(hang,)))
    display.refresh(NOW)
    assert "X 1 critical" in lines(display, 120)[0]
    row = next(line for line in lines(display) if f" {name_of(3)} " in line)
    assert (row[:3], "NO ACTIVITY" in row) == (" X ", True)
    press(display, "enter")
    assert "NO ACTIVITY" in screen(display)
