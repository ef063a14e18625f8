"""Recent figures for sparklines: the last queries of a worker, or the last averages over all workers."""

from __future__ import annotations

from math import nan

from tpumon.analysis.history import Point, RollupSeries
from tpumon.model.figure_table import STEP

_USUAL_INTERVAL_S = 10.0
_LATE = 1.2  # queries come at most so many times later than they are due
_WEEK_S = 7 * 86_400.0


class Trend:
    """The last queries until a time.

    Args:
        series: what is remembered; None: nothing is.
        interval_s: from query to query; None: not known yet.
        end_unix_s: the time that is shown: what came later is not.
    """

    def __init__(self, series: RollupSeries | None, interval_s: float | None, end_unix_s: float) -> None:
        self._series = series
        self._interval_s = _LATE * (interval_s or _USUAL_INTERVAL_S)
        newest_unix_s = None if series is None else series.newest_unix_s
        self.end_unix_s = None if newest_unix_s is None else min(newest_unix_s, end_unix_s)
        """Time of the last query, or the time that is shown; None: there was no query."""

    def last(self, key: str, most: int) -> list[float]:
        """The last values of a figure, at most `most`, oldest first; NaN: a query without it."""
        return [nan if point.median is None else point.median for point in self._points(key, most)]

    def span_s(self, most: int) -> float:
        """Seconds between the first and the last of the last `most` queries."""
        points = self._points(STEP.key, most)
        return points[-1].start_unix_s - points[0].start_unix_s if points else 0.0

    def _points(self, key: str, most: int) -> list[Point]:
        if self._series is None or self.end_unix_s is None or most <= 0:
            return []
        begin_unix_s = self.end_unix_s - min(most * self._interval_s, _WEEK_S)
        return self._series.points(key, begin_unix_s, self.end_unix_s)[-most:]
