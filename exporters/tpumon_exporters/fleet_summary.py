"""JSON lines about a whole fleet, one per interval: its figures, and the workers that are not ok."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from statistics import median
from typing import Any

from tpumon.assessment import Assessment
from tpumon.enough import unjudged
from tpumon.fleet import Fleet, Thresholds
from tpumon.model import SCHEMA_VERSION, Sample, Workers
from tpumon.model.frozen import frozen
from tpumon.outputs import OutputOptions, takes
from tpumon_exporters.appending import Appended

_ENCODER = json.JSONEncoder(allow_nan=False)
_SHORTEST_INTERVAL_S = 1.0
_WAIT_FOR_ALL_S = 2.0
_TICK_S = 0.5


@frozen
class FleetSummaryOptions:
    """Options of this exporter.

    Attributes:
        interval_s: seconds between lines; None: the median of the workers' intervals, at least 1 s.
    """

    interval_s: float | None = None

    def __post_init__(self) -> None:
        if self.interval_s is not None and self.interval_s < _SHORTEST_INTERVAL_S:
            raise ValueError(f"interval_s must be at least {_SHORTEST_INTERVAL_S:g}")


class FleetSummary:
    """Writes one line per interval.

    The first line waits until every worker has a sample, for at most 2 s. Lines continue when no sample arrives, if
    something ticks: workers that fell silent are then reported as stale.

    Args:
        lines: where the lines go.
        thresholds: limits beyond which a worker is not ok.
        options: the exporter's own options.
        clock: returns seconds since the epoch.
        pace: returns seconds of a monotonic clock.

    Attributes:
        tick_s: seconds between ticks.
    """

    def __init__(
        self,
        lines: Appended,
        thresholds: Thresholds,
        options: FleetSummaryOptions | None = None,
        clock: Callable[[], float] = time.time,
        pace: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tick_s = _TICK_S
        self._written_to = lines
        self._options = options or FleetSummaryOptions()
        self._clock = clock
        self._pace = pace
        self._fleet = Fleet(thresholds)
        self._next_s: float | None = None
        self._lines = 0
        self._unwritten = False

    def follow(self, workers: Workers) -> None:
        """Takes the workers to follow."""
        self._fleet.follow(workers)

    def write(self, sample: Sample) -> None:
        """Adds a sample; writes a line if one is due.

        Raises:
            OSError: the line cannot be written now.
        """
        self._fleet.add(sample)
        self._unwritten = True
        if self._next_s is None:
            self._next_s = self._pace() + _WAIT_FOR_ALL_S
        all_answered = all(history.last is not None for history in self._fleet.histories.all())
        if self._pace() >= self._next_s or (not self._lines and all_answered):
            self._summarise(self._clock())

    def tick(self, now_unix_s: float) -> None:
        """Writes a line if one is due.

        Raises:
            OSError: the line cannot be written now.
        """
        if self._next_s is not None and self._pace() >= self._next_s:
            self._summarise(now_unix_s)

    def close(self) -> None:
        """Writes what is not written yet."""
        try:
            if self._unwritten:
                self._summarise(self._clock())
        finally:
            self._written_to.close()

    def _summarise(self, now_unix_s: float) -> None:
        assessment = self._fleet.assess(now_unix_s)
        unsure = unjudged(self._fleet, assessment)
        line = {
            "schema": SCHEMA_VERSION,
            "time_unix_s": now_unix_s,
            "too_few_samples": bool(unsure),
            "fleet": {
                "workers": len(assessment.verdicts),
                "counts": _counts(assessment, unsure),
                "figures": {name: asdict(across) for name, across in assessment.figures.items()},
            },
            "workers": self._not_ok(assessment, now_unix_s),
        }
        self._written_to.write(_ENCODER.encode(line))
        self._unwritten = False
        self._lines += 1
        self._next_s = self._pace() + self._interval_s()

    def _interval_s(self) -> float:
        if self._options.interval_s is not None:
            return self._options.interval_s
        intervals = [h.last.interval_s or 0.0 for h in self._fleet.histories.all() if h.last is not None]
        return max(_SHORTEST_INTERVAL_S, median(intervals) if intervals else 0.0)

    def _not_ok(self, assessment: Assessment, now_unix_s: float) -> list[dict[str, Any]]:
        """Each worker that stands out, worst first, with its sample if that is current."""
        rows = []
        for worker, verdict in sorted(assessment.verdicts.items(), key=lambda item: item[1].rank):
            if verdict.state == "live" and verdict.severity == "ok":
                continue
            history = self._fleet.histories.get(worker)
            sample = None if history is None else history.current(now_unix_s)
            rows.append(
                {
                    "worker": worker,
                    "state": verdict.state,
                    "severity": verdict.severity,
                    "causes": [cause.words for cause in verdict.causes],
                    "since_unix_s": verdict.since_unix_s,
                    "sample": None if sample is None else sample.to_json(),
                }
            )
        return rows


def _counts(assessment: Assessment, unsure: frozenset[str]) -> dict[str, int]:
    """Number of workers by severity or state; those with too few samples are unknown, not ok."""
    counts: dict[str, int] = dict(assessment.counts.items())
    if unsure:
        counts["ok"] -= len(unsure)
        counts["unknown"] = counts.get("unknown", 0) + len(unsure)
    return {kind: count for kind, count in counts.items() if count}


@takes(FleetSummaryOptions)
def open_fleet_summary(where: str, run: OutputOptions, options: FleetSummaryOptions) -> FleetSummary:
    """Opens the output.

    Args:
        where: a file to append to, or `-` for stdout.
        run: the thresholds.
        options: its own options.

    Raises:
        UsageError: the file cannot be written.
    """
    return FleetSummary(Appended(where), run.thresholds, options)
