"""Recent figures of workers for sparklines, as rings of floats. NaN is a query without the figure: a gap."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from copy import deepcopy
from itertools import pairwise

from tpumon.figures import COMPARED, values
from tpumon.fleet import Fleet
from tpumon.history import Tiers
from tpumon.model import Sample, Workers

POINTS = 200
"""How many queries are remembered per worker: as many as fit into a sparkline."""


_AT_FIRST = 64  # queries that a trend begins with: as many as a row shows
_USUAL_INTERVAL_S = 10.0
_ALL = 1 << 30


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
    """A trend per worker whose sparkline was drawn, and one of the averages over all workers.

    Args:
        fleet: remembers all figures; trends begin with them.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._workers: dict[str, Trend] = {}
        self._end_unix_s: float | None = None
        self.fleet = Trend()
        self._fleet_time_unix_s = 0.0
        self._fleet_known = False

    def follow(self, workers: Workers) -> None:
        """These are the workers now; those that stay keep their trends."""
        kept = ((target.worker, self._workers.get(target.worker)) for target in workers.targets)
        self._workers = {worker: trend for worker, trend in kept if trend is not None}

    def add(self, sample: Sample) -> None:
        """Adds a sample of a worker, if it was drawn before; others are remembered by the fleet alone."""
        trend = self._workers.get(sample.worker)
        if trend is not None:
            trend.add(sample.time_unix_s, values(sample.figures).values())

    def add_fleet(self, now_unix_s: float, averages: Mapping[str, float], interval_s: float) -> None:
        """Adds the averages over all workers, once per interval; a time without any figures is a single gap."""
        soon = 0 <= now_unix_s - self._fleet_time_unix_s < 0.9 * interval_s  # not so if the clock was set back
        if not soon and (averages or self._fleet_known):
            self._fleet_time_unix_s, self._fleet_known = now_unix_s, bool(averages)
            self.fleet.add(now_unix_s, map(averages.get, COMPARED))

    def restore(self) -> None:
        """Begins again with what the fleet remembers."""
        self._workers = {}
        if self._fleet.average is not None:
            lasts = (history.last for history in self._fleet.histories.all())
            intervals_s = (last.interval_s for last in lasts if last is not None and last.interval_s is not None)
            self.fleet = _restored(self._fleet.average, POINTS * min(intervals_s, default=_USUAL_INTERVAL_S), None)

    def of(self, worker: str) -> Trend:
        """The worker's trend; an empty one if nothing is known of it."""
        trend = self._workers.get(worker)
        if trend is None:
            history = self._fleet.histories.get(worker)
            if history is None or history.tiers is None or history.last is None:
                return Trend()
            interval_s = _USUAL_INTERVAL_S if history.last.interval_s is None else history.last.interval_s
            trend = self._workers[worker] = _restored(history.tiers, _AT_FIRST * interval_s, self._end_unix_s)
        return trend

    def snapshot(self, now_unix_s: float) -> Trends:
        """A copy that later samples do not change."""
        copy = Trends(self._fleet)
        copy._workers, copy.fleet, copy._end_unix_s = deepcopy(self._workers), deepcopy(self.fleet), now_unix_s
        return copy


def _restored(tiers: Tiers, span_s: float, end_unix_s: float | None) -> Trend:
    """A trend of the last queries that are remembered, until a time."""
    trend, newest_unix_s = Trend(), tiers.newest_unix_s
    if newest_unix_s is None:
        return trend
    end_unix_s = newest_unix_s if end_unix_s is None else min(newest_unix_s, end_unix_s)
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
