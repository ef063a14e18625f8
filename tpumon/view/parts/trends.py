"""Recent figures of workers for sparklines, as rings of floats. NaN is a query without the figure: a gap."""

from __future__ import annotations

import math
from array import array
from collections.abc import Container, Iterable
from itertools import pairwise

from tpumon.figures import COMPARED
from tpumon.history import Tiers, WorkerHistory

POINTS = 200
"""How many queries are remembered per worker: as many as fit into a sparkline."""


_AT_FIRST = 64  # queries that a trend begins with: as many as a row shows
_USUAL_INTERVAL_S = 10.0
_ALL = 1 << 30
_WEEK_S = 7 * 86_400.0


class Trend:
    """The figures of `tpumon.figures.COMPARED` over the last queries.

    Attributes:
        count: queries added, including those that are forgotten.
    """

    __slots__ = ("_rings", "_times", "count")

    def __init__(self) -> None:
        self._times = array("d")
        self._rings = {name: array("f") for name in COMPARED}
        self.count = 0

    def add(self, time_unix_s: float, figures: Iterable[float | None]) -> None:
        """Adds one query; figures come in the order of COMPARED."""
        pairs = zip(self._rings.values(), figures, strict=True)
        if self.count < POINTS:
            for ring, value in pairs:
                ring.append(math.nan if value is None else value)
            self._times.append(time_unix_s)
        else:
            place = self.count % POINTS
            for ring, value in pairs:
                ring[place] = math.nan if value is None else value
            self._times[place] = time_unix_s
        self.count += 1

    def last(self, name: str, most: int = POINTS) -> list[float]:
        """The last values of a figure, at most `most`, oldest first."""
        return _last(self._rings[name], self.count, most)

    @property
    def end_unix_s(self) -> float | None:
        """Time of the last query; None: there was none."""
        return self._times[(self.count - 1) % POINTS] if self.count else None

    def span_s(self, most: int = POINTS) -> float:
        """Seconds between the first and the last of the last `most` queries; a clock set back counts as no time."""
        times = _last(self._times, self.count, most)
        return sum(max(later - earlier, 0.0) for earlier, later in pairwise(times))


class Trends:
    """A trend per worker whose sparkline was drawn, and one of the averages over all workers: made from their history
    when they are asked for, and continued while they are drawn.
    """

    def __init__(self) -> None:
        self._workers: dict[str, tuple[WorkerHistory, Trend]] = {}
        self._fleet: tuple[Tiers, float | None, Trend] | None = None

    def of(self, history: WorkerHistory, end_unix_s: float) -> Trend:
        """The trend of a worker; an empty one if nothing is known of it.

        Args:
            history: of the worker.
            end_unix_s: the time that is shown: what came later is not.
        """
        worker = history.target.worker
        known, trend = self._workers.get(worker, (None, None))
        if known is not None and trend is not None and known.tiers is history.tiers and history.last is not None:
            new = history.queries - known.queries
            if new == 1:
                trend.add(history.last.time_unix_s, history.figures.values())
            if new in {0, 1}:
                self._workers[worker] = history, trend
                return trend
        if history.tiers is None or history.last is None:
            return Trend()
        interval_s = _USUAL_INTERVAL_S if history.last.interval_s is None else history.last.interval_s
        trend = _restored(history.tiers, _AT_FIRST * interval_s, end_unix_s)
        self._workers[worker] = history, trend
        return trend

    def keep(self, workers: Container[str]) -> None:
        """Forgets all workers but these."""
        self._workers = {worker: each for worker, each in self._workers.items() if worker in workers}

    def of_fleet(self, average: Tiers | None, interval_s: float | None, end_unix_s: float) -> Trend:
        """The trend of the averages over all workers.

        Args:
            average: their history; None: it is not remembered.
            interval_s: the shortest interval of a worker; None: not known yet.
            end_unix_s: the time that is shown: what came later is not.
        """
        if average is None:
            return Trend()
        newest_unix_s = average.newest_unix_s
        if newest_unix_s is not None:
            newest_unix_s = min(newest_unix_s, end_unix_s)
        if self._fleet is None or self._fleet[:2] != (average, newest_unix_s):
            trend = _restored(average, POINTS * (interval_s or _USUAL_INTERVAL_S), end_unix_s)
            self._fleet = average, newest_unix_s, trend
        return self._fleet[2]


def _restored(tiers: Tiers, span_s: float, end_unix_s: float) -> Trend:
    """A trend of the last queries that are remembered, until a time."""
    trend, newest_unix_s = Trend(), tiers.newest_unix_s
    if newest_unix_s is None:
        return trend
    end_unix_s, span_s = min(newest_unix_s, end_unix_s), min(span_s, _WEEK_S)
    series = [tiers.series(key, end_unix_s - span_s, end_unix_s, most_points=_ALL) for key in COMPARED]
    for points in zip(*series, strict=True):
        trend.add(points[0].start_unix_s, [point.median for point in points])
    return trend


def _last(ring: array[float], count: int, most: int) -> list[float]:
    most = min(most, len(ring))
    if most <= 0:
        return []
    if count <= POINTS:
        return ring[-most:].tolist()
    begin = (count - most) % POINTS
    end = begin + most
    return (ring[begin:end] if end <= POINTS else ring[begin:] + ring[: end - POINTS]).tolist()
