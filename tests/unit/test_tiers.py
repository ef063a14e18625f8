"""Figures over time: what is kept, how exactly, for how long, and in how much memory."""

from __future__ import annotations

import math
import random
import struct
import sys
import zlib
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpumon.history import Tiers
from tpumon.history import tiers as tiers_module
from tpumon.history.tiers import STATES

KEYS = ("mxu", "step")
NOW = 1_800_000_000.0
HOUR_S, DAY_S = 3600.0, 86400.0
EXACT = 5e-4  # of one query; of several, three times as much


def close(value, rel=EXACT):
    return None if value is None else pytest.approx(value, rel=rel, abs=1e-12)


def filled(count, interval_s, value=lambda i: 1.0, state=lambda _i: "live", end_unix_s=NOW):
    """So many queries up to now; the second figure is absent."""
    tiers = Tiers(KEYS)
    for i in range(count):
        tiers.add(end_unix_s - (count - 1 - i) * interval_s, state(i), (value(i), None))
    return tiers


def kept(*values):
    """The values as history keeps them, each of one query."""
    tiers = Tiers([str(number) for number in range(len(values))])
    tiers.add(NOW, "live", values)
    return [tiers.series(str(number), NOW, NOW)[0].median for number in range(len(values))]


@given(st.lists(st.floats(1e-4, 6e4), min_size=1, max_size=20))
def test_values_are_kept_to_a_twentieth_of_a_percent_and_in_order(values):
    assert kept(*values) == pytest.approx(values, rel=EXACT)
    assert kept(*sorted(values)) == sorted(kept(*values))


@given(st.floats(0, 1e-4))
def test_very_small_values_are_kept_to_30_nanoseconds(value):
    assert kept(value) == [pytest.approx(value, abs=3e-8)]


@pytest.mark.parametrize("value", [1.0, 0.5, 0.25, 0.75, 0.875, 2.0, 10.0, 1000.0])
def test_round_values_are_kept_exactly(value):
    """A device that is always busy was busy for 100 %, not for 99.98 %; after a while, too."""
    assert kept(value) == [value]
    assert {
        (point.min, point.median, point.max) for point in filled(500, 10.0, lambda _: value).series("mxu", 0, NOW)
    } == {(value, value, value)}


@pytest.mark.parametrize(
    ("value", "then"),
    [
        (None, None), (math.nan, None), (-math.nan, None), (-1.0, None), (math.inf, None), (-math.inf, None),
        (-1e300, None), (-0.0, 0.0), (0.0, 0.0), (1e-300, 0.0), (1e-30, 0.0), (65504.0, 65504.0), (1e6, 65504.0),
        (1e300, 65504.0),
    ],
)  # fmt: skip
def test_what_is_absent_zero_or_out_of_bounds(value, then):
    """Absent is absent, zero is zero, and what no TPU has is the limit. Its neighbours stay as they are."""
    assert kept(0.5, value, 0.5) == [0.5, then, 0.5]


def test_the_largest_figure_does_not_become_absent_with_time():
    for point in filled(500, 10.0, lambda _: 1e6).series("mxu", 0, NOW):
        assert point.min == point.median == point.max == close(65504.0, 3 * EXACT)


def test_samples_that_share_a_hundredth_of_a_second_are_handed_on():
    """Wherever one block of rows ends and the next one begins."""
    tiers = filled(600, 0.006)
    back = Tiers.unpacked(tiers.packed(), KEYS, KEYS)
    assert back.series("mxu", 0, NOW) == tiers.series("mxu", 0, NOW)


def test_the_last_quarter_of_an_hour_is_kept_sample_by_sample():
    """Each with its time, value and state; an absent figure has points without values."""
    tiers = filled(80, 10.0, lambda i: 0.3 + i / 1000, lambda i: "busy" if i == 40 else "live")
    points = tiers.series("mxu", NOW - 900, NOW)
    assert [point.start_unix_s for point in points] == pytest.approx(
        [NOW - 10 * i for i in reversed(range(80))], abs=0.01
    )
    assert [point.median for point in points] == [close(0.3 + i / 1000) for i in range(80)]
    assert all(point.min == point.median == point.max and not point.of_medians for point in points)
    assert [i for i, point in enumerate(points) if point.states == {"busy"}] == [40]
    assert {point.median for point in tiers.series("step", NOW - 900, NOW)} == {None}
    assert tiers.series("no such figure", NOW - 900, NOW) == []


def test_a_week_is_kept_ever_more_coarsely_without_gap_or_overlap():
    """Every query is in exactly one point; the older, the longer the points; what is older than a week is gone."""
    tiers = filled(int(8 * DAY_S / 60), 60.0)
    points = tiers.series("mxu", NOW - 9 * DAY_S, NOW, 10_000)
    assert sum(point.count for point in points) == pytest.approx(7 * DAY_S / 60, rel=0.06)
    for earlier, later in pairwise(points):
        assert earlier.end_unix_s <= later.start_unix_s + 0.02
        assert later.start_unix_s - earlier.start_unix_s <= 600 + 1e-6
    lengths = [point.end_unix_s - point.start_unix_s for point in points]
    assert lengths == pytest.approx(sorted(lengths, reverse=True), abs=0.01)
    assert NOW - 7.5 * DAY_S < tiers.oldest_unix_s < NOW - 6.9 * DAY_S
    assert [length for length in (0.0, 10.0, 60.0, 600.0) if any(abs(one - length) < 0.01 for one in lengths)] == [
        0.0, 10.0, 60.0, 600.0,
    ]  # fmt: skip


def test_a_spike_of_one_sample_is_seen_for_a_week():
    """Min and max are of samples in every tier; the median is that of medians, and says so."""
    spike = int(2 * DAY_S / 10)
    tiers = filled(int(2.5 * DAY_S / 10), 10.0, lambda i: 9.0 if i == spike else 1.0)
    points = tiers.series("mxu", NOW - 3 * DAY_S, NOW, 100)
    assert max(point.max for point in points) == close(9.0)
    (peak,) = (point for point in points if point.max > 5)
    assert (peak.min, peak.median, peak.of_medians) == (close(1.0), close(1.0), True)
    assert peak.start_unix_s <= NOW - (int(2.5 * DAY_S / 10) - 1 - spike) * 10 <= peak.end_unix_s


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.001, 1000.0) | st.none(), min_size=1, max_size=10))
def test_ten_seconds_have_min_median_and_max_of_their_samples(values):
    """Of those that have the figure."""
    tiers = Tiers(("mxu",))
    begin = NOW - 3600
    for i, value in enumerate(values):
        tiers.add(begin + i, "live", (value,))
    for i in range(1000):  # pushes them out of the first tier
        tiers.add(begin + 10 + i, "live", (None,))
    first = tiers.series("mxu", begin, begin + 9.9)[0]
    known = [value for value in values if value is not None]
    assert first.count == len(values)
    assert (first.min, first.max) == (
        (close(min(known), 3 * EXACT), close(max(known), 3 * EXACT)) if known else (None, None)
    )
    assert first.median == (pytest.approx(median(known), rel=3 * EXACT) if known else None)


def test_points_are_merged_to_as_many_as_are_wanted():
    """Over round numbers of seconds, so that a graph does not flicker as time goes on."""
    tiers = filled(80, 10.0, lambda i: float(1 + i % 3))
    points = tiers.series("mxu", NOW - 800, NOW, 20)
    assert len(points) <= 20
    assert all(point.start_unix_s % 60 == 0 and point.end_unix_s - point.start_unix_s == 60 for point in points)
    assert (points[5].min, points[5].median, points[5].max, points[5].count) == (close(1.0), close(2.0), close(3.0), 6)
    assert not points[5].of_medians, "of six samples"


def test_a_thousand_workers_fit_into_62_mib():
    """A week of five figures that vary at random, every second at last: each worker takes 65 kB at most."""
    dice = random.Random(1)
    tiers = Tiers(tuple("abcde"))
    at_s = NOW - 7 * DAY_S
    for until_s, every_s in ((NOW - DAY_S, 60.0), (NOW - 3 * HOUR_S, 10.0), (NOW, 1.0)):
        while at_s < until_s:
            at_s += every_s
            tiers.add(at_s, "live", [dice.gauss(0.4, 0.02) for _ in range(5)])
    rows = [tier._rows for tier in tiers._tiers]
    held = [*(block for each in rows for block in each._blocks), *(each._numbers for each in rows)]
    held += [*(each._places for each in rows), *(tier._waiting for tier in tiers._tiers), tiers._new]
    assert [each._count >= 900 for each in rows] == [True, False, True, True]
    assert sum(map(sys.getsizeof, held)) < 62 * 1024 * 1024 / 1000 - 1500  # the objects around them take the rest
    assert len(tiers.series("a", NOW - 900, NOW, 1000)) == 901


def test_a_query_that_is_known_is_not_added_again():
    """An exporter sends each worker's last sample beside its history."""
    tiers = filled(3, 10.0)
    tiers.add(NOW, "live", (1.0, None))
    tiers.add(NOW - 5, "live", (1.0, None))
    assert len(tiers.series("mxu", NOW - 100, NOW)) == 3


def test_setting_the_wall_clock_moves_all_of_history():
    """If the monotonic clock is known: what was two minutes ago stays two minutes ago."""
    tiers = Tiers(KEYS)
    for i in range(12):
        tiers.add(NOW + 10 * i, "live", (1.0, None), taken_monotonic_s=100.0 + 10 * i)
    tiers.add(NOW - HOUR_S, "live", (1.0, None), taken_monotonic_s=220.0)
    points = tiers.series("mxu", NOW - 2 * HOUR_S, NOW - HOUR_S)
    assert points[0].start_unix_s == pytest.approx(NOW - HOUR_S - 120, abs=0.02)
    assert len(points) == 13


@pytest.mark.parametrize("count", [0, 1, 63, 64, 2000])
def test_history_survives_being_packed(count):
    """And goes on where it was, as if nothing had happened."""
    tiers = filled(count, 7.0, lambda i: 0.1 + i % 17, lambda i: STATES[i % len(STATES)])
    back = Tiers.unpacked(tiers.packed(), KEYS, KEYS)
    for each in (tiers, back):
        for i in range(200):
            each.add(NOW + 7 * i, "live", (2.0, 3.0))
    for key in KEYS:
        assert back.series(key, 0, 2 * NOW, 10_000) == tiers.series(key, 0, 2 * NOW, 10_000)


def test_history_of_a_version_with_other_figures_keeps_those_that_both_have():
    tiers = filled(500, 10.0, lambda i: 1.0 + i)
    back = Tiers.unpacked(tiers.packed(), KEYS, ("new", "mxu"))
    assert back.series("mxu", 0, NOW) == tiers.series("mxu", 0, NOW)
    assert {point.median for point in back.series("new", 0, NOW)} == {None}


def test_less_room_leaves_out_what_is_oldest():
    """The newest rows of each tier stay, and nothing pretends to be finer than it is."""
    tiers = filled(int(DAY_S / 10), 10.0, lambda i: 1.0 + i % 100)
    packed = tiers.packed(6000)
    assert len(packed) <= 7000
    back = Tiers.unpacked(packed, KEYS, KEYS)
    assert back.series("mxu", NOW - 300, NOW) == tiers.series("mxu", NOW - 300, NOW)
    old = back.series("mxu", NOW - DAY_S / 2, NOW - DAY_S / 4, 10_000)
    assert old
    assert max(point.max for point in old) == close(100.0)


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda data: b"TPH3" + data))
def test_bytes_that_are_no_history_are_refused(data):
    with pytest.raises(ValueError, match="history"):
        Tiers.unpacked(data, KEYS, KEYS)


def goes_on(packed, theirs=KEYS):
    """Reads a history that came from elsewhere, and adds to it for some hours; what is refused is left out."""
    try:
        tiers = Tiers.unpacked(bytes(packed), theirs, KEYS)
    except ValueError:
        return None
    for i in range(500):
        assert len(tiers.series("mxu", 0, 2 * NOW, 10_000)) <= 4 * 1600 if i % 100 == 0 else True
        tiers.add(NOW + 30.0 * (i + 1), "live", (0.5, 1.0))
    for key in KEYS:
        for point in tiers.series(key, 0, 2 * NOW, 10_000):
            assert point.min is point.max is None if point.median is None else point.min <= point.median <= point.max
    assert Tiers.unpacked(tiers.packed(), KEYS, KEYS).newest_unix_s == pytest.approx(NOW + 15_000)
    return tiers


def parts_of(packed):
    """Where each tier begins, and what it says of itself."""
    at, found = tiers_module._HEAD.size, []
    for _ in tiers_module._TIERS:
        head = tiers_module._TIER.unpack_from(packed, at)
        found.append((at, head))
        at += tiers_module._TIER.size + 2 * head[2] + head[3]
    return found


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_history_raises_nothing_else_and_stays_bounded(data):
    """Whatever a server sends: refused, or read as what is left of it. Later samples can be added to that."""
    packed = bytearray(filled(300, 10.0).packed())
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    goes_on(packed, data.draw(st.sampled_from([KEYS, ("step", "mxu"), ("mxu", "other")])))


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("place", [1 << 62, -(1 << 62), 0, 1 << 40])
def test_rows_that_wait_at_a_place_of_no_time_are_refused(number, place):
    packed = bytearray(filled(2000, 10.0).packed())
    at, (trimmed, _, waiting, size) = parts_of(packed)[number]
    tiers_module._TIER.pack_into(packed, at, trimmed, place, waiting, size)
    assert (goes_on(packed) is None) is (number > 0)


@pytest.mark.parametrize("numbers", [(0xFFFF,), (15_000, 0xFFFF, 0xFFFF), (16_128, 0xFFFF, 0), (0, 1, 0), (0xFFFF, 0)])
def test_numbers_of_no_figure_are_absent_or_its_limits(numbers):
    packed = bytearray(filled(2000, 10.0).packed())
    for at, (_, _, waiting, _) in parts_of(packed):
        begin = at + tiers_module._TIER.size
        for number in range(waiting):
            packed[begin + 2 * number : begin + 2 * number + 2] = numbers[number % len(numbers)].to_bytes(2, "little")
    assert goes_on(packed) is not None


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize(("gap", "fill"), [(0xFFFFFFFF, 1), (1, 255), (1, 0), (1, 58)])
@pytest.mark.parametrize("theirs", [KEYS, ("step", "mxu")])
def test_forged_blocks_of_rows_have_no_rows_or_bounded_ones(number, gap, fill, theirs):
    packed = filled(2000, 10.0).packed()
    at, (trimmed, waits_at, waiting, size) = parts_of(packed)[number]
    width, last = tiers_module._TIERS[number].layout.width(2), int((NOW - 1000) / tiers_module._TIERS[number].unit_s)
    plain = struct.pack("<39I", *[gap] * 39) + bytes(2 * width) + bytes([fill, 255, 0, 7] * 20 * width)
    data = zlib.compress(plain)
    block = struct.pack("<qqHI", last - 50, last, 40, len(data)) + data
    begin = at + tiers_module._TIER.size
    rows = begin + 2 * waiting
    head = tiers_module._TIER.pack(trimmed, waits_at, waiting, len(block))
    assert goes_on(packed[:at] + head + packed[begin:rows] + block + packed[rows + size :], theirs) is not None


@pytest.mark.parametrize("shift_s", [1e18, -1e18, math.inf, math.nan])
def test_history_is_not_moved_to_no_time_at_all(shift_s):
    with pytest.raises(ValueError, match="history"):
        Tiers.unpacked(filled(10, 10.0).packed(), KEYS, KEYS, shift_s=shift_s)
