"""Figures over any span of time, in as many columns as there is room for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from tpumon.analysis.history import Point, RollupSeries, State
from tpumon.outputs.live.drawing.graphs import Band

SPANS_S = tuple(60.0 * minutes for minutes in (1, 2, 5, 15, 30, 60, 120, 360, 720, 1440, 2880, 10080))
"""The spans that graphs can show: a minute to a week."""

_LONGEST_AT_FIRST_S = 3600.0
_ROWS_A_COLUMN = 3  # of history: with fewer, its rows and the columns do not begin together
_STATE_LASTS_S = 60.0  # without a query; then nobody watched
_WHY_ABSENT: tuple[State, ...] = ("down", "no-activity", "busy", "continuous", "paused", "stale", "waiting")


class Span(NamedTuple):
    """A span of time that graphs show, by the wall clock."""

    begin_unix_s: float
    end_unix_s: float


def span_of(series: RollupSeries, chosen_s: float | None, end_unix_s: float | None, now_unix_s: float) -> Span | None:
    """The span to show of a worker; None: nothing is known of it.

    Args:
        series: what is known.
        chosen_s: how long; None: as long as is known, up to an hour.
        end_unix_s: until when; None: until the last query.
        now_unix_s: the time that is shown: what came later is not.
    """
    oldest_unix_s, newest_unix_s = series.oldest_unix_s, series.newest_unix_s
    if oldest_unix_s is None or newest_unix_s is None:
        return None
    end = min(newest_unix_s, now_unix_s) if end_unix_s is None else end_unix_s
    usual = (each for each in SPANS_S if each >= min(newest_unix_s - oldest_unix_s, _LONGEST_AT_FIRST_S))
    return Span(end - (next(usual) if chosen_s is None else chosen_s), end)


class _Column(NamedTuple):
    """The least, the median and the greatest value of a column, nan where it has none; and when its last row began.

    `state` is that of the worker where the column has no value because of it.
    """

    low: float
    mid: float
    high: float
    until_unix_s: float
    state: State | None = None


@dataclass(slots=True)
class Drawn:
    """What is drawn of one figure.

    Attributes:
        bands: a column each, oldest first; nan where the figure is absent.
        states: of each column the state in which the worker had no figures; None where it had some, or nobody watched.
        ends: its least and greatest value in the span; None: it has none.
    """

    bands: list[Band] = field(default_factory=list)
    states: list[State | None] = field(default_factory=list)
    ends: tuple[float, float] | None = None


def drawn(series: RollupSeries, key: str, span: Span, width: int, fresh_for_s: float) -> Drawn:
    """A figure in `width` columns: the whole span, and up to a column before it.

    Columns begin at whole multiples of their length, so that they do not change as they move.

    Args:
        series: what is known of the worker.
        key: key of the figure.
        span: the time to draw.
        width: number of columns.
        fresh_for_s: for how long a sample's figure counts: so far it fills columns without a query.
    """
    if width < 2:
        return Drawn()
    length_s = (span.end_unix_s - span.begin_unix_s) / (width - 1)
    last = math.floor(span.end_unix_s / length_s)
    first = last - width + 1
    points = series.points(key, first * length_s, span.end_unix_s, length_s / _ROWS_A_COLUMN)
    known = _columns(points, length_s, first, last)
    shown = [known.get(place, _NOTHING) for place in range(first, last + 1)]
    return Drawn(*_filled(shown, first, length_s, fresh_for_s), _ends(shown))


_NOTHING = _Column(math.nan, math.nan, math.nan, -math.inf)


def _columns(points: Iterable[Point], length_s: float, first: int, last: int) -> dict[int, _Column]:
    """The columns that these points fall into: a point that is longer than a column, into several."""
    groups: dict[int, list[Point]] = {}
    for point in points:
        begin = math.floor(point.start_unix_s / length_s)
        end = max(math.ceil(point.end_unix_s / length_s) - 1, begin)
        for place in range(max(begin, first), min(end, last) + 1):
            groups.setdefault(place, []).append(point)
    return {place: _column(group) for place, group in groups.items()}


def _column(points: Sequence[Point]) -> _Column:
    until_unix_s = points[-1].start_unix_s
    lows = [point.min for point in points if point.min is not None]
    mids = [point.median for point in points if point.median is not None]
    highs = [point.max for point in points if point.max is not None]
    if not (lows and mids and highs):
        states = frozenset[State]().union(*(point.states for point in points))
        state = next((state for state in _WHY_ABSENT if state in states), None)
        return _Column(math.nan, math.nan, math.nan, until_unix_s, state)
    return _Column(min(lows), median(mids), max(highs), until_unix_s)


def _filled(
    columns: Sequence[_Column], first: int, length_s: float, fresh_for_s: float
) -> tuple[list[Band], list[State | None]]:
    """Columns without a query show the last figure, or the last state, for as long as it counts."""
    bands: list[Band] = []
    states: list[State | None] = []
    before = _NOTHING
    for place, column in enumerate(columns, start=first):
        if column.until_unix_s > -math.inf:
            before = column
            bands.append((column.low, column.mid, column.high))
            states.append(column.state)
        elif place * length_s <= before.until_unix_s + (fresh_for_s if before.state is None else _STATE_LASTS_S):
            bands.append((before.mid, before.mid, before.mid))
            states.append(before.state)
        else:
            bands.append((math.nan, math.nan, math.nan))
            states.append(None)
    return bands, states


def _ends(columns: Sequence[_Column]) -> tuple[float, float] | None:
    known = [column for column in columns if column.mid == column.mid]
    return (min(column.low for column in known), max(column.high for column in known)) if known else None
