"""Lines about how workers are watched, and about those that do not answer.

Of trouble there is one line when it begins, one when its kind changes, one when it ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpumon.model import Failure, Sample, Workers

_NUMBER = re.compile(r"\d+")
_MOST_NAMES = 5

EXPORTER = "exporter"
"""The source of failures of the exporter behind --from: one for all workers."""


@dataclass(slots=True)
class _Trouble:
    reason: str
    queries: int


class Notices:
    """Turns the samples of a run into lines for stderr, few enough to be read."""

    def __init__(self) -> None:
        self._troubles: dict[str, _Trouble] = {}
        self._exporter_trouble: str | None = None
        self._traces_told = False
        self._warnings_told: set[tuple[str, str]] = set()
        self._found: Workers | None = None
        self.answered: set[str] = set()
        """Workers that answered at least once."""

    @property
    def nobody_answered(self) -> str:
        """What to say at the end of a run in which nobody did."""
        targets = () if self._found is None else self._found.targets
        return (
            f"{targets[0].address} never answered"
            if len(targets) == 1
            else f"none of {len(targets)} targets ever answered"
        )

    def update(self, event: Workers | Sample) -> list[str]:
        """The lines to print about this, mostly none."""
        if isinstance(event, Workers):
            return self._about_workers(event)
        if event.answered:
            self.answered.add(event.worker)
        failure = event.failure
        if failure is not None and failure.source == EXPORTER:
            return self._about_exporter(failure)
        about_exporter = [] if self._exporter_trouble is None else ["the exporter answers again"]
        self._exporter_trouble = None
        about_answer = self._about_end(event) if failure is None else self._about_trouble(event, failure)
        return about_exporter + self._about_source(event) + about_answer + self._about_figures(event)

    def _about_workers(self, found: Workers) -> list[str]:
        """Why there are none, and how they change."""
        before, self._found = self._found, found
        if not found.targets:
            told = before is not None and before.waiting == found.waiting
            return [] if told or found.waiting is None else [f"WAITING: {found.waiting}"]
        if before is None:
            return []
        names = {target.worker for target in found.targets}
        gone = [target.worker for target in before.targets if target.worker not in names]
        known = {target.worker for target in before.targets}
        new = [f"{target.worker} at {target.address}" for target in found.targets if target.worker not in known]
        for worker in gone:
            self._troubles.pop(worker, None)
        lines = [f"now following {_few(new)}"] if new else []
        return lines + ([f"no longer following {_few(gone)}"] if gone else [])

    def _about_source(self, sample: Sample) -> list[str]:
        """That a job is traced is said, once a run: it is the one thing that costs it."""
        if sample.source != "trace" or self._traces_told:
            return []
        self._traces_told = True
        interval = f", at that length no more often than every {sample.interval_s:.0f} s" if sample.interval_s else ""
        line = (
            f"{sample.address}: no Monitor RPC there (UNIMPLEMENTED), as on every TPU VM; figures come from short "
            f"traces: {sample.traced_s:.1f} s this time{interval}"
        )
        return [line]

    def _about_figures(self, sample: Sample) -> list[str]:
        """What a trace warns of, each warning once a worker: its next sample will most likely say the same."""
        lines = []
        for warning in sample.warnings:
            kind = (sample.worker, _NUMBER.sub("", warning.message))
            if kind not in self._warnings_told:
                self._warnings_told.add(kind)
                lines.append(f"{sample.worker}: {warning.message}")
        return lines

    def _about_exporter(self, failure: Failure) -> list[str]:
        """Every worker's sample says the same then; a line is about all of them."""
        before, self._exporter_trouble = self._exporter_trouble, failure.reason
        return [] if before == failure.reason else [f"{failure.message} [{failure.reason}]"]

    def _about_end(self, sample: Sample) -> list[str]:
        trouble = self._troubles.pop(sample.worker, None)
        if trouble is None:
            return []
        return [f"{sample.worker}: answers again after {_queries(trouble.queries)} without an answer"]

    def _about_trouble(self, sample: Sample, failure: Failure) -> list[str]:
        trouble = self._troubles.get(sample.worker)
        if trouble is not None and trouble.reason == failure.reason:
            trouble.queries += 1
            return []
        self._troubles[sample.worker] = _Trouble(failure.reason, 1 if trouble is None else trouble.queries + 1)
        name = "" if failure.line.startswith(sample.worker) else f"{sample.worker}: "
        only = "; runtime metrics alone are shown" if sample.answered else ""
        return [f"{name}{failure.line} [{failure.reason}]{only}"]


def _few(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (
        f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    )


def _queries(count: int) -> str:
    return "1 query" if count == 1 else f"{count} queries"
