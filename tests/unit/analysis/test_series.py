"""Figures over time: what is kept, how exactly, for how long, and in how much memory."""

from __future__ import annotations

import json
import math
import random
import sys
from functools import cache
from itertools import pairwise
from statistics import median
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpumon.analysis.history import Histories, RollupSeries
from tpumon.model import Sample, State, Target, Workers
from tpumon.model.figure_table import COMPARED

STATES = get_args(State)
KEYS = ("mxu", "step")
NOW = 1_800_000_000.0
HOUR_S, DAY_S = 3600.0, 86400.0
EXACT, HANDED_ON = 1e-7, 5e-4


def close(value, rel=EXACT):
    return None if value is None else pytest.approx(value, rel=rel, abs=1e-30)


def filled(count, interval_s, value=lambda i: 1.0, state=lambda _i: "live", end_unix_s=NOW):
    """So many queries up to now; the second figure is absent."""
    series = RollupSeries(KEYS)
    for i in range(count):
        series.add(end_unix_s - (count - 1 - i) * interval_s, state(i), (value(i), None))
    return series


def kept(*values):
    """The values as history keeps them, each of one query."""
    series = RollupSeries([str(number) for number in range(len(values))])
    series.add(NOW, "live", values)
    return [series.points(str(number), NOW, NOW)[0].median for number in range(len(values))]


def handed_on(series, most_bytes=1 << 30, keys=KEYS, shift_s=0.0):
    """What another process makes of it."""
    return RollupSeries.from_plain(json.loads(json.dumps(series.to_plain(most_bytes))), keys, shift_s=shift_s)


def everything(series, key="mxu"):
    return series.points(key, 0, 2 * NOW)


@cache
def a_week(workers=1, every_s=1.0, keys="abcde"):
    """Figures that vary at random, in the last hours at this interval, of one of so many workers."""
    dice = random.Random(1)
    series = RollupSeries(tuple(keys))
    series.coarsen(-(-workers // 256))
    at_s = NOW - 7 * DAY_S
    for until_s, gap_s in ((NOW - DAY_S, 60.0), (NOW - 3 * HOUR_S, 10.0), (NOW, 0.0)):
        while at_s < until_s:
            at_s += max(gap_s, every_s)
            series.add(at_s, "live", [dice.gauss(0.4, 0.02) for _ in keys])
    return series


def size(series):
    return sum(sys.getsizeof(numbers) for ring in series._rings for numbers in (ring.starts, ring.cells))


@given(st.lists(st.floats(0, 1e20), min_size=1, max_size=20))
def test_values_are_kept_to_seven_digits_and_in_order(values):
    assert kept(*values) == pytest.approx(values, rel=EXACT)
    assert kept(*sorted(values)) == sorted(kept(*values))


@pytest.mark.parametrize(
    ("value", "then"),
    [
        (None, None), (math.nan, None), (-math.nan, None), (-1.0, None), (math.inf, None), (-math.inf, None),
        (-1e300, None), (1e300, None), (-0.0, 0.0), (0.0, 0.0), (1e-300, 0.0), (1e6, 1e6), (1.0, 1.0), (0.75, 0.75),
    ],
)  # fmt: skip
def test_what_is_absent_zero_or_out_of_bounds(value, then):
    """Absent is absent, zero is zero, and what no TPU has is absent. Its neighbours stay as they are."""
    assert kept(0.5, value, 0.5) == [0.5, then, 0.5]
    assert str(kept(value)[0]) == str(then)


def test_the_last_hour_is_kept_sample_by_sample():
    """Each with its time, value and state; an absent figure has points without values."""
    series = filled(3600, 1.0, lambda i: 0.3 + i / 10_000, lambda i: "busy" if i == 40 else "live")
    points = series.points("mxu", NOW - HOUR_S, NOW)
    assert [point.start_unix_s for point in points] == [NOW - i for i in reversed(range(3600))]
    assert [point.median for point in points] == [close(0.3 + i / 10_000) for i in range(3600)]
    assert all(point.min == point.median == point.max for point in points)
    assert all(point.start_unix_s == point.end_unix_s and point.queries == 1 for point in points)
    assert [i for i, point in enumerate(points) if point.states == {"busy"}] == [40]
    assert {point.median for point in series.points("step", NOW - HOUR_S, NOW)} == {None}
    assert series.points("no such figure", NOW - HOUR_S, NOW) == []
    assert series.points("mxu", NOW, NOW - HOUR_S) == []


@pytest.mark.parametrize("factor", [1, 3])
def test_a_week_is_kept_ever_more_coarsely_without_gap_or_overlap(factor):
    """Every query is in exactly one point; the older, the longer the points; what is older than a week is gone."""
    series = filled(int(8 * DAY_S / 60), 60.0)
    for _ in range(2):
        points = series.points("mxu", NOW - 9 * DAY_S, NOW)
        assert sum(point.queries for point in points) == pytest.approx(7 * DAY_S / 60, rel=0.06)
        assert all(earlier.end_unix_s <= later.start_unix_s for earlier, later in pairwise(points))
        assert max(later.start_unix_s - earlier.start_unix_s for earlier, later in pairwise(points)) <= 600 * factor
        lengths = [point.end_unix_s - point.start_unix_s for point in points]
        assert NOW - 7.5 * DAY_S < series.oldest_unix_s < NOW - 6.9 * DAY_S
        assert {0.0, 60.0 * series.factor, 600.0 * series.factor} <= set(lengths)
        series.coarsen(factor)
    assert [series.row_s(span_s) for span_s in (HOUR_S, DAY_S, 2 * DAY_S, 7 * DAY_S)] == [
        0.0, 60.0 * factor, 600.0 * factor, 600.0 * factor,
    ]  # fmt: skip


def test_rows_that_are_fine_enough_are_read_instead_of_finer_ones():
    """Only what they do not hold yet is read from those; each query is in one point."""
    series = filled(int(DAY_S / 10), 10.0)
    for span_s, every_s, most in ((HOUR_S, 60.0, 67), (6 * HOUR_S, 600.0, 60), (6 * HOUR_S, 60.0, 367)):
        points = series.points("mxu", NOW - span_s, NOW, every_s)
        assert len(points) < most
        assert sum(point.queries for point in points) == pytest.approx(span_s / 10, abs=every_s / 10)


def test_a_spike_of_one_sample_is_seen_for_a_week():
    """Min and max are of samples in every ring; the median is that of medians."""
    spike = int(2 * DAY_S / 10)
    series = filled(int(2.5 * DAY_S / 10), 10.0, lambda i: 9.0 if i == spike else 1.0)
    (peak,) = (point for point in series.points("mxu", NOW - 3 * DAY_S, NOW) if point.max > 5)
    assert (peak.min, peak.median, peak.max) == (1.0, 1.0, 9.0)
    assert peak.start_unix_s <= NOW - (int(2.5 * DAY_S / 10) - 1 - spike) * 10 <= peak.end_unix_s


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.001, 1000.0) | st.none(), min_size=1, max_size=60), st.integers(1, 5))
def test_a_minute_has_min_median_and_max_of_its_samples(values, factor):
    """Of those that have the figure; however long rows are."""
    series = RollupSeries(("mxu",))
    series.coarsen(factor)
    begin = 1_800_000_000.0
    assert begin % 300 == begin % 240 == begin % 180 == 0
    for i, value in enumerate(values):
        series.add(begin + factor * i, "live", (value,))
    for i in range(120):  # pushes them out of the first ring
        series.add(begin + 60 * factor + 60 * i, "live", (None,))
    first = everything(series)[0]
    known = [value for value in values if value is not None]
    assert (first.start_unix_s, first.end_unix_s, first.queries) == (begin, begin + 60 * factor, len(values))
    assert (first.min, first.max) == ((close(min(known)), close(max(known))) if known else (None, None))
    if known:  # the mean of two numbers of 32 bits
        assert first.median == pytest.approx(median(known), rel=EXACT, abs=EXACT * max(known))
    else:
        assert first.median is None


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from([0.5, 7.0, 33.0, 70.0, 2000.0, 50_000.0]), min_size=50, max_size=300),
    st.sampled_from([1 << 30, 100_000, 20_000, 3000]),
    st.integers(1, 7),
)
def test_no_spike_and_no_query_is_lost_or_counted_twice(gaps_s, most_bytes, factor):
    """Through gaps of any length, handing on, and coarser rows."""
    series, at_s, times = RollupSeries(KEYS), NOW, []
    for number, gap_s in enumerate(gaps_s):
        if number == 20:
            series = handed_on(series, most_bytes)
        if number == 30:
            series.coarsen(factor)
        at_s += gap_s
        times.append(at_s)
        series.add(at_s, STATES[number % len(STATES)], (float(number + 1), None))
    for every_s in (0.0, 60.0, 600.0):
        points = series.points("mxu", 0, 2 * NOW, every_s)
        since = next(i for i, time in enumerate(times) if time >= points[0].start_unix_s)
        assert sum(point.queries for point in points) == len(times) - since
        assert all(earlier.start_unix_s < later.start_unix_s for earlier, later in pairwise(points))
        for point in points:
            inside = [
                i for i, time in enumerate(times)
                if point.start_unix_s - 1e-3 <= time < max(point.end_unix_s, point.start_unix_s + 2e-3) - 1e-3
            ]  # fmt: skip
            assert (point.min, point.max) == (inside[0] + 1, inside[-1] + 1)
            assert point.queries == len(inside)
            assert point.states == {STATES[i % len(STATES)] for i in inside}


@pytest.mark.parametrize("keys", ["abcde", "abcdefg"])
def test_256_workers_take_120_mb_at_most(keys):
    """A week of the figures of training, or of a server, every second at last; the objects around them take little."""
    series = a_week(keys=keys)
    assert size(series) + 4000 < 120e6 / 256
    assert [len(ring.starts) >= rows for ring, rows in zip(series._rings, (3600, 1440, 1000), strict=True)] == [
        True
    ] * 3


@pytest.mark.parametrize("workers", [257, 2304])
def test_with_more_workers_a_week_is_coarser(workers):
    """At 10 s each they take 120 MB at most, too."""
    series = a_week(workers, 10.0)
    assert (size(series) + 2000) * workers < 120e6
    assert series.oldest_unix_s < NOW - 6.9 * DAY_S


def test_a_figure_takes_room_only_once_there_was_one():
    """Before, it is absent, in every ring."""
    series = filled(3000, 10.0)
    without = size(series)
    assert size(filled(3000, 10.0, lambda _: None)) < 0.8 * without
    series.add(NOW + 10, "live", (None, 5.0))
    assert [point.median for point in series.points("step", NOW - 20, NOW + 20)] == [None, None, None, 5.0]
    assert {point.median for point in everything(series, "mxu")} == {1.0, None}
    series.add(NOW + 7 * HOUR_S, "live", (1.0, 6.0))
    assert {point.median for point in everything(series, "step")} == {None, 5.0, 6.0}
    assert sum(point.queries for point in everything(series, "step")) == 3002


def test_history_is_handed_on_with_the_figures_that_there_were():
    """To a reader that knows more, in whatever order; one that knows fewer cannot read it."""
    series = filled(100, 10.0)
    assert series.to_plain()["figures"] == ["mxu"]
    assert everything(handed_on(series, keys=("new", *reversed(KEYS)))) == everything(handed_on(series))
    with pytest.raises(ValueError, match="other figures"):
        handed_on(series, keys=("step",))


def test_a_worker_that_is_new_takes_little():
    assert size(filled(6, 10.0)) < 2000


def test_history_becomes_coarser_when_workers_come():
    """With its next sample; it stays so when they go."""
    histories = Histories()
    histories.remember()

    def sampled(workers, number):
        histories.follow(Workers(targets=tuple(Target(worker=f"w{i}", address=f"w{i}:1") for i in range(workers))))
        at = {"time_unix_s": NOW + 10 * number, "window_s": 1.0, "took_s": 1.0}
        history = histories.add(Sample(worker="w0", address="w0:1", **at))
        return history.series

    assert [sampled(count, number).factor for number, count in enumerate((256, 257, 1024, 3))] == [1, 2, 4, 4]
    series = sampled(3, 5)
    assert sum(point.queries for point in everything(series, next(iter(COMPARED)))) == 5


def test_a_query_that_is_known_is_not_added_again():
    """An exporter sends each worker's last sample beside its history."""
    series = filled(3, 10.0)
    series.add(NOW, "live", (1.0, None))
    series.add(NOW - 5, "live", (1.0, None))
    assert len(series.points("mxu", NOW - 100, NOW)) == 3


def test_after_the_clock_was_set_back_history_starts_again():
    series = filled(3, 10.0)
    series.add(NOW - HOUR_S, "live", (1.0, None))
    assert [point.start_unix_s for point in everything(series)] == [NOW - HOUR_S]


def test_setting_the_wall_clock_moves_all_of_history():
    """If the monotonic clock is known: what was two minutes ago stays two minutes ago."""
    series = RollupSeries(KEYS)
    for i in range(12):
        series.add(NOW + 10 * i, "live", (1.0, None), taken_monotonic_s=100.0 + 10 * i)
    series.add(NOW - HOUR_S, "live", (1.0, None), taken_monotonic_s=220.0)
    points = series.points("mxu", NOW - 2 * HOUR_S, NOW - HOUR_S)
    assert points[0].start_unix_s == pytest.approx(NOW - HOUR_S - 120, abs=1e-3)
    assert len(points) == 13


@pytest.mark.parametrize("count", [1, 63, 2000, 20_000])
def test_history_that_is_handed_on_goes_on_where_it_was(count):
    """To four digits."""
    series = filled(count, 7.0, lambda i: 0.1 + i % 17, lambda i: STATES[i % len(STATES)])
    back = handed_on(series)
    for each in (series, back):
        for i in range(1, 300):
            each.add(NOW + 60 * i, "live", (2.0, 3.0))
    for key in KEYS:
        theirs = everything(back, key)
        assert [point[:2] + point[5:] for point in theirs] == [
            point[:2] + point[5:] for point in everything(series, key)
        ]
        assert [point[2:5] for point in theirs] == [
            tuple(close(value, HANDED_ON) for value in point[2:5]) for point in everything(series, key)
        ]


def test_less_room_makes_what_is_handed_on_coarser():
    """It goes back as far, and has the newest samples."""
    series = a_week(every_s=10.0)
    whole = series.to_plain()
    less = series.to_plain(20_000)
    assert len(json.dumps(whole)) > 200_000
    assert len(json.dumps(less)) < 40_000
    back = RollupSeries.from_plain(less, tuple("abcde"))
    assert back.oldest_unix_s == pytest.approx(series.oldest_unix_s, abs=HOUR_S * 4)
    (theirs, ours) = (each.points("c", NOW - 600, NOW) for each in (back, series))
    assert [point.median for point in theirs] == [close(point.median, HANDED_ON) for point in ours]
    assert series.to_plain() == whole


def test_history_is_handed_on_again_and_again():
    """From exporter to exporter, each with a clock of its own; rows then end anywhere."""
    series, oldest = a_week(every_s=10.0), NOW - 7 * DAY_S
    for number, shift_s in enumerate((0.377, -7200.123, 12.919, 70.71)):
        series = RollupSeries.from_plain(series.to_plain(60_000 - 12_000 * number), tuple("abcde"), shift_s=shift_s)
        oldest += shift_s
        for _ in range(500):
            series.add(series.newest_unix_s + 9.87, "live", [0.4] * 5)
        points = everything(series, "a")
        assert sum(point.queries for point in points) > 6 * DAY_S / 60
        assert all(earlier.end_unix_s <= later.start_unix_s + 0.1 for earlier, later in pairwise(points))
    assert series.oldest_unix_s == pytest.approx(oldest, abs=DAY_S)


def test_times_of_another_clock_are_moved():
    back = handed_on(filled(100, 10.0), shift_s=-7200.0)
    assert (back.oldest_unix_s, back.newest_unix_s) == (NOW - 7200 - 990, NOW - 7200)


@pytest.mark.parametrize(
    "plain",
    [
        None, {}, [], "rings", {"figures": list(KEYS)}, {"figures": list(KEYS), "rings": []}, {"figures": ["mxu"]},
        handed := RollupSeries(KEYS).to_plain(),
    ],
)  # fmt: skip
def test_what_is_no_history_is_refused(plain):
    with pytest.raises(ValueError):
        RollupSeries.from_plain(plain, KEYS)


def damage(part, **fields):
    def change(rings):
        rings[part] |= fields

    return change


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize(
    "fields",
    [
        {"since_unix_s": math.nan}, {"since_unix_s": 1e300}, {"until_unix_s": math.inf}, {"until_unix_s": 1e12},
        {"starts_unix_s": [NOW, NOW - 100], "rows": [0.0] * 30}, {"starts_unix_s": [1e12], "rows": [0.0] * 9},
        {"starts_unix_s": [math.nan], "rows": [0.0] * 9}, {"starts_unix_s": [NOW], "rows": [0.0] * 8},
        {"starts_unix_s": [NOW], "rows": [None] * 9}, {"starts_unix_s": [NOW], "rows": ["0"] * 9},
        {"starts_unix_s": [float(i) for i in range(6000)], "rows": [0.0] * 54_000}, {"starts_unix_s": None},
        {"starts_unix_s": [10**400], "rows": [0.0] * 9},
    ],
    ids=" ".join,
)  # fmt: skip
def test_damaged_history_is_refused(part, fields):
    plain = filled(2000, 10.0).to_plain()
    plain["rings"][part] |= fields
    with pytest.raises(ValueError):
        RollupSeries.from_plain(plain, KEYS)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_is_handed_on_history_goes_on(data):
    """It is refused, or read; then later samples can be added to it, it stays bounded, and can be handed on."""
    plain = filled(300, 10.0).to_plain()
    for _ in range(data.draw(st.integers(1, 4))):
        numbers = data.draw(st.sampled_from(plain["rings"]))[data.draw(st.sampled_from(["starts_unix_s", "rows"]))]
        if numbers:
            numbers[data.draw(st.integers(0, len(numbers) - 1))] = data.draw(st.floats() | st.none() | st.integers())
    try:
        series = RollupSeries.from_plain(plain, KEYS)
    except ValueError:
        return
    for i in range(500):
        series.add(NOW + 30.0 * (i + 1), "live", (0.5, 1.0))
    for key in KEYS:
        assert len(everything(series, key)) < 1000
    assert handed_on(series).newest_unix_s == NOW + 15_000
