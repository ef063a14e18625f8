"""Bars, sparklines, charts, their axes, and the rings they are drawn from."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.shown import NOW, answered, failed
from tpumon.analysis import Analysis
from tpumon.model import Target, Workers
from tpumon.outputs.drawing.graphs import RATIO, bar, chart, soft_axis, soft_ratio_axis, spark
from tpumon.outputs.drawing.style import ASCII, UNICODE
from tpumon.outputs.live.parts.scene import Trend

NAN = math.nan


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.0, "──────────"), (0.5, "━━━━━─────"), (0.05, "╸─────────"), (1.0, "━━━━━━━━━━"), (7.0, "━━━━━━━━━━")],
)
def test_a_bar_is_as_long_as_its_ratio(ratio, text):
    """Filled and rest together are always as wide as asked for."""
    assert "".join(bar(ratio, 10, UNICODE)) == text


def test_what_is_absent_has_no_bar():
    """An empty bar is a measured zero."""
    assert bar(None, 10, UNICODE) == ("", "")
    assert "".join(bar(0.0, 10, ASCII)) == ".........."


def test_a_sparkline_tells_a_gap_from_a_zero():
    """The newest value is at the right; what never was is empty."""
    assert spark([0.0, NAN, 0.5, 1.0], RATIO, 6, UNICODE) == "  ▁ ▅█"
    assert spark([0.0, NAN, 0.5, 1.0], RATIO, 6, ASCII) == "  . =#"


def bands(*values):
    """Columns of one value each."""
    return [(value, value, value) for value in values]


def test_a_chart_fills_columns_from_below():
    """A zero shows on the bottom line, a missing value nowhere, a full one to the top."""
    assert chart(bands(0.0, NAN, 0.5, 1.0), RATIO, 2, UNICODE) == ["   █", "▁ ██"]


def test_a_chart_shows_the_least_the_median_and_the_greatest_value():
    """Each in cells of its own kind, with colours or without."""
    assert chart([(0.25, 0.5, 1.0)], RATIO, 4, UNICODE) == ["░", "░", "▓", "█"]
    assert chart([(0.25, 0.5, 1.0)], RATIO, 4, ASCII) == ["'", "'", "%", "#"]
    assert chart([(0.25, 0.5, 0.6)], RATIO, 4, UNICODE) == [" ", " ", "▓", "█"]


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50))
def test_a_soft_axis_holds_all_values_and_is_not_too_narrow(values):
    """Jitter of a percent looks like jitter of a percent."""
    low, high = soft_axis(values)
    assert 0 <= low <= min(values) * (1 + 1e-9)
    assert high >= max(values) * (1 - 1e-9)
    assert high - low >= 0.24 * (min(values) + max(values)) / 2 or low == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_a_soft_axis_of_ratios_stays_within_them(values):
    """At least twenty points wide, never beyond 0 and 1."""
    low, high = soft_ratio_axis(values)
    assert 0 <= low <= min(values) + 1e-9
    assert max(values) - 1e-9 <= high <= 1
    assert high - low >= 0.2 - 1e-9


def trend_of(*samples, end_unix_s=NOW + 1000):
    fleet = Analysis()
    fleet.remember()
    fleet.add(Workers(targets=(Target(worker="w", address="w:1"),)))
    for sample in samples:
        history = fleet.add(sample).status.history
    return Trend(history.series, history.last.interval_s, end_unix_s)


def test_a_trend_gives_its_last_values_in_their_order():
    """At most as many as are wanted."""
    samples = (answered("w", NOW + 10 * i, mxu_utilization_ratio=i / 500) for i in range(300))
    trend = trend_of(*samples, end_unix_s=NOW + 3000)
    for most in (0, 1, 64, 200):
        assert trend.last("mxu", most) == pytest.approx([i / 500 for i in range(300 - most, 300)])
        assert trend.span_s(most) == pytest.approx(max(10 * (most - 1), 0))


def test_a_failed_query_is_noted_as_a_gap():
    """NaN in every figure, so that time goes on."""
    trend = trend_of(answered("w", NOW), failed("w", time_unix_s=NOW + 10), failed("w", time_unix_s=NOW + 20))
    first, *values = trend.last("mxu", 10)
    assert first == pytest.approx(0.453)
    assert len(values) == 2
    assert all(map(math.isnan, values))
    assert trend.span_s(10) == pytest.approx(20)


def test_without_a_sample_there_is_no_trend():
    """It is empty."""
    assert (Trend(None, None, NOW).last("mxu", 10), Trend(None, None, NOW).end_unix_s) == ([], None)


def test_what_came_later_is_not_in_the_trend_of_a_frozen_picture():
    """Until the time that is shown."""
    samples = [answered("w", NOW + 10 * i) for i in range(3)]
    assert [len(trend_of(*samples, end_unix_s=NOW + end).last("mxu", 10)) for end in (0, 10, 20, 500)] == [1, 2, 3, 3]
