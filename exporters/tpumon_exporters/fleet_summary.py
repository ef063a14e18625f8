"""JSON lines about a whole fleet, one per interval: its figures, and the workers that are not ok."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from tpumon.fleet import Assessment, Fleet, Thresholds
from tpumon.model import SCHEMA_VERSION, Sample, Workers
from tpumon_exporters.appending import Appended

if TYPE_CHECKING:
    from tpumon.outputs import OutputOptions

_ENCODER = json.JSONEncoder(allow_nan=False)
_SHORTEST_INTERVAL_S = 1.0
_WAIT_FOR_ALL_S = 2.0


class FleetSummary:
    """Writes a line when a sample comes in after the last line's interval: the median of the workers', 1 s at least.

    The first line waits until everyone was heard, for 2 s at most.

    Args:
        lines: where to.
        thresholds: from when on a worker is not ok.
        clock: seconds since the epoch.
        pace: seconds on a clock that is never put back.
    """

    def __init__(
        self,
        lines: Appended,
        thresholds: Thresholds,
        clock: Callable[[], float] = time.time,
        pace: Callable[[], float] = time.monotonic,
    ) -> None:
        self._written_to = lines
        self._clock = clock
        self._pace = pace
        self._fleet = Fleet(thresholds)
        self._next_s: float | None = None
        self._lines = 0
        self._unwritten = False

    def follow(self, found: Workers) -> None:
        """These are the workers from now on."""
        self._fleet.follow(found)

    def write(self, sample: Sample) -> None:
        """Takes a sample; a line when it is time for one."""
        self._fleet.add(sample)
        self._unwritten = True
        now_s = self._pace()
        if self._next_s is None:
            self._next_s = now_s + _WAIT_FOR_ALL_S
        all_heard = all(history.last is not None for history in self._fleet.histories.all())
        if now_s >= self._next_s or (not self._lines and all_heard):
            self._summarise(self._clock())

    def close(self) -> None:
        """Writes what is not written yet."""
        try:
            if self._unwritten:
                self._summarise(self._clock())
        finally:
            self._written_to.close()

    def _summarise(self, now_unix_s: float) -> None:
        assessment = self._fleet.assess(now_unix_s)
        line = {
            "schema": SCHEMA_VERSION,
            "time_unix_s": now_unix_s,
            "fleet": {
                "workers": len(assessment.verdicts),
                "counts": dict(assessment.counts),
                "figures": {name: asdict(across) for name, across in assessment.figures.items()},
            },
            "workers": self._not_ok(assessment, now_unix_s),
        }
        self._written_to.write(_ENCODER.encode(line))
        self._unwritten = False
        self._lines += 1
        intervals = [h.last.interval_s or 0.0 for h in self._fleet.histories.all() if h.last is not None]
        self._next_s = self._pace() + max(_SHORTEST_INTERVAL_S, median(intervals) if intervals else 0.0)

    def _not_ok(self, assessment: Assessment, now_unix_s: float) -> list[dict[str, Any]]:
        """What is to be said of each worker that stands out, the worst first; its sample only while it is present."""
        told = []
        for worker, verdict in sorted(assessment.verdicts.items(), key=lambda item: item[1].rank):
            if verdict.state == "live" and verdict.severity == "ok":
                continue
            history = self._fleet.histories.get(worker)
            sample = None if history is None else history.current(now_unix_s)
            told.append(
                {
                    "worker": worker,
                    "state": verdict.state,
                    "severity": verdict.severity,
                    "causes": [cause.words for cause in verdict.causes],
                    "since_unix_s": verdict.since_unix_s,
                    "sample": None if sample is None else sample.to_json(),
                }
            )
        return told


def open_fleet_summary(where: str, options: OutputOptions) -> FleetSummary:
    """Args:
    where: a file to append to, or `-` for stdout.
    options: the thresholds.
    """
    return FleetSummary(Appended(where), options.thresholds)
