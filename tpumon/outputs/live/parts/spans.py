"""Figures over any span of time, in as many columns as there is room for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from tpumon.analysis.history import Point, RollupSeries, State
from tpumon.outputs.drawing.graphs import Band

SPANS_S = tuple(60.0 * minutes for minutes in (1, 2, 5, 15, 30, 60, 120, 360, 720, 1440, 2880, 10080))
"""The spans that graphs can show: a minute to a week."""

_LONGEST_AT_FIRST_S = 3600.0
_ROWS_A_COLUMN = 3  # of history: with fewer, its rows and the columns do not begin together
_STATE_LASTS_S = 60.0  # without a query; after that, no tpumon watched
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


def known_of(series: RollupSeries, now_unix_s: float) -> Span | None:
    """Span of the remembered figures of a worker, until the time that is shown; None: there are none."""
    oldest_unix_s, newest_unix_s = series.oldest_unix_s, series.newest_unix_s
    if oldest_unix_s is None or newest_unix_s is None:
        return None
    return Span(oldest_unix_s, max(oldest_unix_s, min(newest_unix_s, now_unix_s)))


@dataclass(slots=True)
class SpanColumns:
    """The columns of one figure's chart, oldest first.

    Attributes:
        bands: the least, the median and the greatest value of each; nan where the figure is absent.
        states: state of the worker in columns without figures; None: there are figures, or no tpumon watched.
        ends: least and greatest value in the span; None: there is none.
    """

    bands: list[Band] = field(default_factory=list)
    states: list[State | None] = field(default_factory=list)
    ends: tuple[float, float] | None = None


def columns_of(series: RollupSeries, key: str, span: Span, width: int, fresh_for_s: float) -> SpanColumns:
    """A figure in `width` columns: the whole span, and up to a column before it.

    Columns begin at whole multiples of their length, so that they do not change as they move. Those without a query
    show the last median, or the last state, for as long as it counts. Between a query that found the worker down and
    one that it answered, they are empty: when it came back is not known.

    Args:
        series: what is known of the worker.
        key: key of the figure.
        span: the time to draw.
        width: number of columns.
        fresh_for_s: for how long a sample's figure counts.
    """
    columns = SpanColumns()
    if width < 2:
        return columns
    length_s = (span.end_unix_s - span.begin_unix_s) / (width - 1)
    last = math.floor(span.end_unix_s / length_s)
    first = last - width + 1
    points = series.points(key, first * length_s, span.end_unix_s, length_s / _ROWS_A_COLUMN)
    groups = _by_column(points, length_s, first, last)
    following = dict(pairwise(sorted(groups)))
    band, state, counts_until_unix_s = _NO_BAND, None, -math.inf
    for place in range(first, last + 1):
        if place in groups:
            shown = _column(groups[place])
            band, state = _lasting(shown, groups[place][-1], groups.get(following.get(place, last + 1)))
            counts_until_unix_s = groups[place][-1].start_unix_s + (fresh_for_s if state is None else _STATE_LASTS_S)
        elif place * length_s <= counts_until_unix_s:
            shown = band, state
        else:
            shown = _NO_BAND, None
        columns.bands.append(shown[0])
        columns.states.append(shown[1])
    known = [band for band in columns.bands if not math.isnan(band[1])]
    columns.ends = (min(band[0] for band in known), max(band[2] for band in known)) if known else None
    return columns


_NO_BAND: Band = (math.nan, math.nan, math.nan)


def _by_column(points: Iterable[Point], length_s: float, first: int, last: int) -> dict[int, list[Point]]:
    """Points by the columns that they fall into: a point that is longer than a column, into several."""
    groups: dict[int, list[Point]] = {}
    for point in points:
        begin = math.floor(point.start_unix_s / length_s)
        end = max(math.ceil(point.end_unix_s / length_s) - 1, begin)
        for place in range(max(begin, first), min(end, last) + 1):
            groups.setdefault(place, []).append(point)
    return groups


def _lasting(shown: tuple[Band, State | None], last: Point, after: Sequence[Point] | None) -> tuple[Band, State | None]:
    """The median or the state that counts after a column, by its last point; neither, where a worker came back.

    Args:
        shown: what the column shows.
        last: its last point.
        after: points of the next column that has any; None: there is none.
    """
    state = None if last.median is not None else _column([last])[1]
    if state == "down" and after is not None and "down" not in after[0].states:
        state = None
    return _NO_BAND if last.median is None else (shown[0][1],) * 3, state


def _column(points: Sequence[Point]) -> tuple[Band, State | None]:
    """Least, median and greatest value of some points; without a value, the state that explains it."""
    lows = [point.min for point in points if point.min is not None]
    mids = [point.median for point in points if point.median is not None]
    highs = [point.max for point in points if point.max is not None]
    if lows and mids and highs:
        return (min(lows), median(mids), max(highs)), None
    states = frozenset[State]().union(*(point.states for point in points))
    return _NO_BAND, next((state for state in _WHY_ABSENT if state in states), None)
