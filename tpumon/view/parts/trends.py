"""The last figures of workers, as rings of floats: NaN stands for a query without the figure, so that a gap is one."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from copy import deepcopy

from tpumon.figures import COMPARED
from tpumon.model import Sample, Workers

POINTS = 600
"""Queries that are remembered of each worker."""


class Trend:
    """The figures of `tpumon.figures.COMPARED` over the last queries.

    Attributes:
        count: queries noted, those forgotten since included.
    """

    __slots__ = ("_rings", "_times", "count")

    def __init__(self) -> None:
        self._times = array("d")
        self._rings = {name: array("f") for name in COMPARED}
        self.count = 0

    def add(self, time_unix_s: float, figures: Iterable[float | None]) -> None:
        """Notes one query; its figures in the order of COMPARED."""
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
        """The last values of a figure, at most so many, oldest first."""
        return _last(self._rings[name], self.count, most)

    @property
    def end_unix_s(self) -> float | None:
        """Time of the last query; None before there was one."""
        return self._times[(self.count - 1) % POINTS] if self.count else None

    def span_s(self, most: int = POINTS) -> float:
        """From the first of the last queries, at most so many, to the last."""
        times = _last(self._times, self.count, most)
        return times[-1] - times[0] if times else 0.0


class Trends:
    """A trend for each worker, and one of the averages of all."""

    def __init__(self) -> None:
        self._workers: dict[str, Trend] = {}
        self.fleet = Trend()
        self._fleet_time_unix_s = 0.0
        self._fleet_known = False

    def follow(self, found: Workers) -> None:
        """From now on these are the workers; those that stay keep their trends."""
        self._workers = {target.worker: self._workers.get(target.worker) or Trend() for target in found.targets}

    def add(self, sample: Sample) -> None:
        """Notes a sample; one of a worker that is not followed is dropped."""
        trend = self._workers.get(sample.worker)
        if trend is not None:
            trend.add(sample.time_unix_s, [figure.value(sample.figures) for figure in COMPARED.values()])

    def add_fleet(self, now_unix_s: float, averages: Mapping[str, float], interval_s: float) -> None:
        """Notes averages over the workers, once an interval; while nobody has figures, one gap in all."""
        if now_unix_s - self._fleet_time_unix_s >= 0.9 * interval_s and (averages or self._fleet_known):
            self._fleet_time_unix_s, self._fleet_known = now_unix_s, bool(averages)
            self.fleet.add(now_unix_s, map(averages.get, COMPARED))

    def of(self, worker: str) -> Trend:
        """The worker's; an empty one where it has none."""
        return self._workers.get(worker) or Trend()

    def snapshot(self) -> Trends:
        """A copy that stays as it is."""
        return deepcopy(self)


def _last(ring: array[float], count: int, most: int) -> list[float]:
    most = min(most, len(ring))
    if most <= 0:
        return []
    if count <= POINTS:
        return ring[-most:].tolist()
    begin = (count - most) % POINTS
    end = begin + most
    return (ring[begin:end] if end <= POINTS else ring[begin:] + ring[: end - POINTS]).tolist()
