"""Recent figures of workers for sparklines, as rings of floats. NaN is a query without the figure: a gap."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from copy import deepcopy
from itertools import pairwise

from tpumon.figures import COMPARED
from tpumon.fleet import Fleet
from tpumon.history import Tiers
from tpumon.model import Sample, Workers

POINTS = 200
"""How many queries are remembered per worker: as many as fit into a sparkline."""


_USUAL_INTERVAL_S = 10.0


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
    """A trend per worker, and one of the averages over all workers."""

    def __init__(self) -> None:
        self._workers: dict[str, Trend] = {}
        self._restorable: dict[str, tuple[Tiers, float]] = {}
        self.fleet = Trend()
        self._fleet_time_unix_s = 0.0
        self._fleet_known = False

    def follow(self, workers: Workers) -> None:
        """These are the workers now; those that stay keep their trends."""
        self._workers = {target.worker: self._workers.get(target.worker) or Trend() for target in workers.targets}

    def add(self, sample: Sample) -> None:
        """Adds a sample; drops it if its worker is not followed."""
        trend = self._workers.get(sample.worker)
        if trend is not None and sample.worker not in self._restorable:
            trend.add(sample.time_unix_s, [figure.value(sample.figures) for figure in COMPARED.values()])

    def add_fleet(self, now_unix_s: float, averages: Mapping[str, float], interval_s: float) -> None:
        """Adds the averages over all workers, once per interval; a time without any figures is a single gap."""
        soon = 0 <= now_unix_s - self._fleet_time_unix_s < 0.9 * interval_s  # not so if the clock was set back
        if not soon and (averages or self._fleet_known):
            self._fleet_time_unix_s, self._fleet_known = now_unix_s, bool(averages)
            self.fleet.add(now_unix_s, map(averages.get, COMPARED))

    def restore(self, fleet: Fleet) -> None:
        """Begins again with what the fleet remembers; of a worker, once it is drawn: its samples go there, too."""
        self._restorable = {
            history.target.worker: (history.tiers, _interval_s(history.last))
            for history in fleet.histories.all()
            if history.tiers is not None
        }
        if fleet.average is not None:
            self.fleet = _restored(fleet.average, min((each for _, each in self._restorable.values()), default=1.0))

    def of(self, worker: str) -> Trend:
        """The worker's trend; an empty one if it has none."""
        restorable = self._restorable.pop(worker, None)
        if restorable is not None and worker in self._workers:
            self._workers[worker] = _restored(*restorable)
        return self._workers.get(worker) or Trend()

    def snapshot(self) -> Trends:
        """A copy that later samples do not change."""
        copy = Trends()
        copy._workers, copy.fleet = deepcopy(self._workers), deepcopy(self.fleet)
        copy._restorable = dict(self._restorable)
        return copy


def _interval_s(sample: Sample | None) -> float:
    return _USUAL_INTERVAL_S if sample is None or sample.interval_s is None else sample.interval_s


def _restored(tiers: Tiers, interval_s: float) -> Trend:
    """A trend of the last queries that are remembered."""
    trend, end_unix_s = Trend(), tiers.newest_unix_s
    if end_unix_s is None:
        return trend
    begin_unix_s = end_unix_s - POINTS * interval_s
    series = [tiers.series(key, begin_unix_s, end_unix_s, most_points=2 * POINTS) for key in COMPARED]
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
