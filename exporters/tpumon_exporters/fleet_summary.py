"""JSON lines about a whole fleet, one per interval: its figures, and the workers that are not ok."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from msgspec import Struct

from tpumon.analysis import FleetStatus, Update, WorkerStatus
from tpumon.analysis.history import WELL
from tpumon.analysis.sufficiency import unjudged, unsure_of
from tpumon.model import SCHEMA_VERSION
from tpumon.model.documents import encoded
from tpumon.outputs import Context, Output, takes
from tpumon_exporters.appending import Appended

_SHORTEST_INTERVAL_S = 1.0
_WAIT_FOR_ALL_S = 2.0


class FleetSummaryOptions(Struct, frozen=True, kw_only=True):
    """Options of this exporter.

    Attributes:
        interval_s: seconds between lines; None: the median of the workers' intervals, at least 1 s.
    """

    interval_s: float | None = None

    def __post_init__(self) -> None:
        if self.interval_s is not None and self.interval_s < _SHORTEST_INTERVAL_S:
            raise ValueError(f"interval_s must be at least {_SHORTEST_INTERVAL_S:g}")


class FleetSummary(Output):
    """Writes one line per interval.

    The first line waits until every worker has a sample, for at most 2 s. Lines continue when no sample arrives, if
    something ticks: workers that fell silent are then reported as stale.

    Args:
        lines: where the lines go.
        context: the run.
        options: the exporter's own options.
        pace: returns seconds of a monotonic clock.

    Attributes:
        tick_s: seconds between ticks.
    """

    tick_s = 0.5

    def __init__(
        self,
        lines: Appended,
        context: Context,
        options: FleetSummaryOptions | None = None,
        pace: Callable[[], float] = time.monotonic,
    ) -> None:
        self._written_to = lines
        self._options = options or FleetSummaryOptions()
        self._context = context
        self._pace = pace
        self._workers: set[str] = set()
        self._sampled: set[str] = set()
        self._next_s: float | None = None
        self._lines = 0
        self._unwritten = False

    def on_update(self, update: Update) -> None:
        """Notes a sample; writes a line if one is due."""
        if update.workers is not None:
            self._workers = {target.worker for target in update.workers.targets}
        if update.sample is None:
            return
        self._sampled.add(update.sample.worker)
        self._unwritten = True
        if self._next_s is None:
            self._next_s = self._pace() + _WAIT_FOR_ALL_S
        if self._pace() >= self._next_s or (not self._lines and self._workers <= self._sampled):
            self._summarise(self._context.clock())

    def tick(self, now_unix_s: float) -> None:
        """Writes a line if one is due."""
        if self._next_s is not None and self._pace() >= self._next_s:
            self._summarise(now_unix_s)

    def close(self) -> None:
        """Writes what is not written yet."""
        try:
            if self._unwritten:
                self._summarise(self._context.clock())
        finally:
            self._written_to.close()

    def _summarise(self, now_unix_s: float) -> None:
        status = self._context.analysis.status(now_unix_s)
        sustained = self._context.settings.thresholds.sustained
        line = {
            "schema": SCHEMA_VERSION,
            "time_unix_s": now_unix_s,
            "too_few_samples": bool(unjudged(status, sustained)),
            "fleet": {
                "workers": len(status.workers),
                "counts": _counts(status, unsure_of(status, sustained)),
                "figures": status.figures(),
            },
            "workers": [
                _row(worker, self._context.settings.ops) for worker in status.worst_first() if _is_not_ok(worker)
            ],
        }
        self._written_to.write(encoded(line))
        self._unwritten = False
        self._lines += 1
        self._next_s = self._pace() + self._interval_s(status)

    def _interval_s(self, status: FleetStatus) -> float:
        if self._options.interval_s is not None:
            return self._options.interval_s
        lasts = (worker.history.last for worker in status.all())
        intervals = [last.interval_s or 0.0 for last in lasts if last is not None]
        return max(_SHORTEST_INTERVAL_S, median(intervals) if intervals else 0.0)


def _is_not_ok(worker: WorkerStatus) -> bool:
    return worker.verdict.state != "live" or worker.verdict.severity not in WELL


def _row(worker: WorkerStatus, most_ops: int) -> Mapping[str, Any]:
    """A worker that stands out, with its sample if that is current."""
    verdict = worker.verdict
    return {
        "worker": worker.name,
        "state": verdict.state,
        "severity": verdict.severity,
        "causes": [cause.words for cause in verdict.causes],
        "since_unix_s": verdict.since_unix_s,
        "since_or_earlier": verdict.since_or_earlier,
        "sample": None if worker.sample is None else worker.sample.with_ops(most_ops).document(),
    }


def _counts(status: FleetStatus, unsure: frozenset[str]) -> Mapping[str, int]:
    """Number of workers by severity or state; those with too few samples are unknown, not ok."""
    return Counter("unknown" if worker.name in unsure else worker.verdict.status for worker in status.all())


@takes(FleetSummaryOptions)
def open_fleet_summary(where: str, context: Context, options: FleetSummaryOptions) -> FleetSummary:
    """Opens the output; `where`: a file to append to, or `-` for stdout."""
    return FleetSummary(Appended(where), context, options)
