"""Bars, sparklines, charts, their axes, and the rings they are drawn from."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.shown import NOW, answered, failed
from tpumon.figures import COMPARED
from tpumon.model import Target, Workers
from tpumon.view.drawing.graphs import RATIO, bar, chart, pooled, soft_axis, soft_ratio_axis, spark
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


def test_a_chart_fills_columns_from_below():
    """A zero shows on the bottom line, a missing value nowhere, a full one to the top."""
    assert chart([0.0, NAN, 0.5, 1.0], RATIO, 2, UNICODE) == ["   █", "▁ ██"]


def test_compressing_keeps_the_worst():
    """One spike among many values is still there."""
    values = [0.1] * 599 + [0.9]
    values[100] = 0.8
    columns, size = pooled(values, 600, 60, max)

    assert size == 10
    assert sorted(columns)[-2:] == [0.8, 0.9]
    assert len(columns) == 60


@given(st.integers(1, 2 * POINTS), st.integers(1, 120))
def test_columns_do_not_change_while_they_move(count, width):
    """With one value more, whole columns are the same ones, moved."""
    values = [math.sin(i * i) for i in range(count + 1)]
    before, size = pooled(values[:count][-POINTS:], count, width, max)
    after, size_after = pooled(values[-POINTS:], count + 1, width, max)
    if size == size_after and len(before) > 3:
        inner = before[1:-1]
        assert any(after[i : i + len(inner)] == inner for i in range(len(after)))


def test_a_gap_stays_a_gap_when_compressed():
    """A column without any value is empty; a partly empty one shows what there was."""
    columns, _ = pooled([NAN] * 10 + [0.5, NAN] * 5, 20, 2, max)
    assert math.isnan(columns[0])
    assert columns[1] == 0.5


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


def test_a_failed_query_is_noted_as_a_gap():
    """NaN in every figure, so that time goes on."""
    trends = Trends()
    trends.follow(Workers(targets=(Target(worker="w", address="w:1"),)))
    trends.add(answered("w", NOW))
    trends.add(failed("w", time_unix_s=NOW + 10))
    trends.add(answered("unknown", NOW))

    values = trends.of("w").last("mxu")
    assert len(values) == 2
    assert math.isnan(values[1])
    assert trends.of("w").span_s() == 10
    assert trends.of("unknown").count == 0


def test_a_snapshot_does_not_move():
    """What is added later is not in it."""
    trends = Trends()
    trends.follow(Workers(targets=(Target(worker="w", address="w:1"),)))
    copy = trends.snapshot()
    trends.add(answered("w"))

    assert (copy.of("w").count, trends.of("w").count) == (0, 1)
