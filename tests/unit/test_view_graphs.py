"""Bars, sparklines, charts, their axes, and the rings they are drawn from."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.shown import NOW, answered, failed
from tpumon.analysis import Analysis
from tpumon.figures import COMPARED
from tpumon.history import WorkerHistory
from tpumon.model import Target, Workers
from tpumon.view.drawing.graphs import RATIO, bar, chart, soft_axis, soft_ratio_axis, spark
from tpumon.view.drawing.style import ASCII, UNICODE
from tpumon.view.parts.trends import POINTS, Trend, Trends

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


@given(st.integers(0, 3 * POINTS), st.integers(0, POINTS + 5))
def test_a_ring_gives_its_last_values_in_their_order(count, most):
    """However often it went round."""
    trend = Trend()
    for i in range(count):
        trend.add(float(i), [float(i)] * len(COMPARED))
    wanted = [float(i) for i in range(count)][-POINTS:]
    assert trend.last("mxu", most) == (wanted[-most:] if most else [])
    assert trend.span_s() == max(len(wanted) - 1, 0)


@pytest.fixture
def trends():
    """The trends of a fleet of one worker, and what gives it a sample and returns its history."""
    fleet = Analysis()
    fleet.remember()
    fleet.take(Workers(targets=(Target(worker="w", address="w:1"),)))

    def take(sample):
        return fleet.take(sample).status.history

    return Trends(), take


def test_a_failed_query_is_noted_as_a_gap(trends):
    """NaN in every figure, so that time goes on; before it was drawn, or after."""
    trends, take = trends
    take(answered("w", NOW))
    assert trends.of(take(failed("w", time_unix_s=NOW + 10)), NOW + 10).count == 2

    trend = trends.of(take(failed("w", time_unix_s=NOW + 20)), NOW + 20)
    first, *values = trend.last("mxu")
    assert first == pytest.approx(0.453, rel=1e-3)
    assert len(values) == 2
    assert all(map(math.isnan, values))
    assert trend.span_s() == pytest.approx(20, abs=0.02)


def test_without_a_sample_there_is_no_trend(trends):
    """It is empty."""
    trends, _ = trends
    assert trends.of(WorkerHistory(Target(worker="unknown", address="u:1")), NOW).count == 0


def test_what_came_later_is_not_in_the_trend_of_a_frozen_picture(trends):
    """Whether it was drawn before or not; the newest is drawn again afterwards."""
    trends, take = trends
    first, second = take(answered("w", NOW)), take(answered("w", NOW + 10))
    assert trends.of(first, NOW).count == 1
    assert trends.of(second, NOW + 10).count == 2
    third = take(answered("w", NOW + 20))
    assert [trends.of(each, at).count for each, at in ((third, NOW + 20), (second, NOW + 10), (third, NOW + 20))] == [
        3,
        2,
        3,
    ]
