"""The average of each figure over all workers, over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from tpumon.analysis.history.series import RollupSeries
from tpumon.analysis.history.worker_history import WorkerHistory
from tpumon.model.figure_table import COMPARED


class FleetAverage:
    """Averages over all workers, one row an interval.

    Args:
        monotonic_s: reads the monotonic clock of `Sample.taken_monotonic_s`.

    Attributes:
        series: the averages; None until `remember` is called.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self.series: RollupSeries | None = None
        self._monotonic_s = monotonic_s
        self._added_unix_s = -inf
        self._was_known = False

    def remember(self) -> None:
        """Begins the series."""
        self.series = RollupSeries(tuple(COMPARED))

    def add(self, histories: Sequence[WorkerHistory], now_unix_s: float) -> None:
        """Adds the averages, once per interval; a time without any figures is a single gap."""
        if self.series is None:
            return
        lasts = [history.last for history in histories if history.last is not None]
        intervals_s = [last.interval_s for last in lasts if last.interval_s is not None]
        if 0 <= now_unix_s - self._added_unix_s < 0.9 * min(intervals_s, default=1.0):
            return
        figures = [history.figures for history in histories if history.current(now_unix_s) is not None]
        averages = [_average([value for each in figures if (value := each[key]) is not None]) for key in COMPARED]
        is_known = any(average is not None for average in averages)
        if not (is_known or self._was_known):
            return
        self._added_unix_s, self._was_known = now_unix_s, is_known
        is_dated = any(last.taken_monotonic_s is not None for last in lasts)
        taken_monotonic_s = self._monotonic_s() if is_dated else None
        self.series.add(now_unix_s, "live" if is_known else "waiting", averages, taken_monotonic_s=taken_monotonic_s)


def _average(values: Sequence[float]) -> float | None:
    count = len(values)
    return sum(value / count for value in values) if count else None  # of the sum, the largest floats would overflow
