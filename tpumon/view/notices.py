"""Notices: lines about how workers are sampled, and about those that do not answer.

A problem makes one line when it begins, one when its reason changes, and one when it ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpumon.model import Failure, Sample, Workers

_NUMBER = re.compile(r"\d+")
_MOST_NAMES = 5

EXPORTER = "exporter"
"""The source of failures of the exporter behind --from, which concern all workers."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A line for the user, to go beside the samples.

    Attributes:
        text: one line, without a prefix.
    """

    text: str


@dataclass(slots=True)
class _Trouble:
    """Why a worker does not answer, and for how many queries so far."""

    reason: str
    queries: int


class Notices:
    """Turns the samples of a run into lines for stderr, few enough to be read."""

    def __init__(self) -> None:
        self._troubles: dict[str, _Trouble] = {}
        self._exporter_trouble: str | None = None
        self._traced = False
        self._reported_warnings: set[tuple[str, str]] = set()
        self._workers: Workers | None = None
        self.answered: set[str] = set()
        """The workers that answered at least once."""

    @property
    def none_answered(self) -> str:
        """The message for a run that ends without any answer."""
        targets = () if self._workers is None else self._workers.targets
        if len(targets) == 1:
            return f"{targets[0].address} never answered"
        return f"none of {len(targets)} workers ever answered"

    def update(self, event: Workers | Sample) -> list[str]:
        """Returns the lines to print about an event; usually none."""
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

    def _about_workers(self, workers: Workers) -> list[str]:
        """Why there are no workers, or which come and go."""
        before, self._workers = self._workers, workers
        if not workers.targets:
            unchanged = before is not None and before.waiting == workers.waiting
            return [] if unchanged or workers.waiting is None else [f"WAITING: {workers.waiting}"]
        if before is None:
            return []
        names = {target.worker for target in workers.targets}
        gone = [target.worker for target in before.targets if target.worker not in names]
        known = {target.worker for target in before.targets}
        new = [f"{target.worker} at {target.address}" for target in workers.targets if target.worker not in known]
        for worker in gone:
            self._troubles.pop(worker, None)
        lines = [f"now following {_few(new)}"] if new else []
        return lines + ([f"no longer following {_few(gone)}"] if gone else [])

    def _about_source(self, sample: Sample) -> list[str]:
        """Tracing is the one thing that costs the job something; said once a run."""
        if sample.source != "trace" or self._traced:
            return []
        self._traced = True
        interval = f", no more often than every {sample.interval_s:.0f} s at this length" if sample.interval_s else ""
        line = (
            f"{sample.address}: no Monitor RPC (UNIMPLEMENTED), as on every TPU VM; using short traces instead: "
            f"{sample.traced_s:.1f} s this time{interval}"
        )
        return [line]

    def _about_figures(self, sample: Sample) -> list[str]:
        """The warnings of a trace, each once per worker: the next sample usually repeats it."""
        lines = []
        for warning in sample.warnings:
            kind = (sample.worker, _NUMBER.sub("", warning.message))
            if kind not in self._reported_warnings:
                self._reported_warnings.add(kind)
                lines.append(f"{sample.worker}: {warning.message}")
        return lines

    def _about_exporter(self, failure: Failure) -> list[str]:
        """One line for all workers: every sample has the same failure."""
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
        only = "; showing runtime metrics only" if sample.answered else ""
        return [f"{_place(sample.worker, failure)}{failure.message} [{failure.reason}]{only}"]


def _place(worker: str, failure: Failure) -> str:
    """Who failed, and at which address, as the start of a line; one of them if it says both."""
    address = failure.address
    if address is None:
        return f"{worker}: "
    return f"{address}: " if worker in {address, address.rpartition(":")[0]} else f"{worker}: {address}: "


def _few(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (
        f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    )


def _queries(count: int) -> str:
    return "1 query" if count == 1 else f"{count} queries"
