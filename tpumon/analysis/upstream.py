"""Verdicts of other exporters, and how they are merged with those of this process.

An exporter judges its own workers. Only workers of one job that come from several exporters are compared here; that
adds findings or raises their severity, and never lowers or hides one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from tpumon.analysis.findings import RULES
from tpumon.analysis.findings.rule_table import NEED_WHOLE_JOB, RULE_INDEXES
from tpumon.model import (
    SEVERITY_LEVELS,
    Cause,
    Change,
    ChangeKind,
    ExporterSnapshot,
    Finding,
    FindingId,
    NotJudged,
    StateId,
    Status,
    Target,
)

_COMPARING: frozenset[FindingId] = frozenset(
    rule.finding for rule in RULES if rule.compares or not rule.hidden_by.isdisjoint(NEED_WHOLE_JOB)
)
"""Findings that take more workers than one to be seen, or to be told from waiting for another one."""

_FindingT = TypeVar("_FindingT", Cause, Finding)

_NO_FIGURES = "the exporter does not say why"


class Upstream:
    """Snapshots of exporters, and which workers come from which."""

    def __init__(self) -> None:
        self._exporter_of: dict[str, str] = {}
        self._exporters_of: dict[str, set[str]] = {}
        self._snapshots: dict[str, ExporterSnapshot] = {}
        self.moved: list[str] = []
        """Names of the workers that the last call of `follow` gave to another exporter."""

    def follow(self, targets: Iterable[Target]) -> None:
        """Replaces the workers."""
        before, self._exporter_of, self._exporters_of = self._exporter_of, {}, {}
        for target in targets:
            exporter = target.exporter or ""
            self._exporter_of[target.worker] = exporter
            if target.job is not None and not target.independent:
                self._exporters_of.setdefault(target.job, set()).add(exporter)
        self.moved = [name for name, its in self._exporter_of.items() if before.get(name, its) != its]
        there = set(self._exporter_of.values())
        self._snapshots = {name: each for name, each in self._snapshots.items() if name in there}

    def take_over(self, snapshot: ExporterSnapshot) -> bool:
        """Keeps the findings of an exporter; returns True if it has handed on nothing before."""
        is_first = snapshot.exporter not in self._snapshots
        self._snapshots[snapshot.exporter] = snapshot
        return is_first

    def missing(self) -> frozenset[str]:
        """Names of exporters that have handed on nothing yet."""
        return frozenset(self._exporter_of.values()) - self._snapshots.keys()

    def workers_of(self, exporter: str) -> list[str]:
        """Names of the workers that come from an exporter."""
        return [worker for worker, its in self._exporter_of.items() if its == exporter]

    def compares(self, target: Target) -> bool:
        """True if workers of the target's job come from several exporters; False for an unknown job."""
        if target.ambiguous:
            return False
        return target.job is not None and len(self._exporters_of.get(target.job, ())) > 1

    def added(self, causes: Sequence[Cause]) -> tuple[Cause, ...]:
        """The findings of a worker that need other workers to be seen."""
        return tuple(cause for cause in causes if cause.finding in _COMPARING)

    def findings(self, workers: Sequence[str]) -> list[Finding]:
        """Findings that exporters handed on, of some of the workers."""
        handed_on = [finding for each in self._snapshots.values() for finding in each.findings or ()]
        wanted = set(workers) if handed_on else set()
        return [finding for finding in handed_on if not wanted.isdisjoint(finding.workers)]

    def not_judged(self, target: Target, judged: Iterable[FindingId]) -> tuple[NotJudged, ...]:
        """Findings that the exporter cannot judge of a worker, with its reason."""
        snapshot = self._snapshots.get(target.exporter or "")
        if snapshot is None:
            return ()
        known = set(judged)
        return tuple(
            replace(one, reason=one.reason or _NO_FIGURES, workers=1)
            for one in snapshot.not_judged
            if one.finding not in known
        )


def merged_causes(causes: Sequence[Cause], added: Sequence[Cause]) -> tuple[Cause, ...]:
    """Findings of one worker from two judges: of each the higher severity and the earlier since, the worst first."""
    known = {cause.finding: cause for cause in causes if cause.finding is not None}
    for cause in added:
        if cause.finding is not None:
            before = known.get(cause.finding)
            known[cause.finding] = cause if before is None else _worse(before, cause)
    others = [cause for cause in causes if cause.finding is None]
    return (
        *sorted(known.values(), key=lambda cause: (-SEVERITY_LEVELS[cause.severity], _place(cause.finding))),
        *others,
    )


def merged_findings(own: Sequence[Finding], others: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings from several judges: one for each ID and slice of a known job, the worst first."""
    if not others:
        return tuple(own)
    merged: dict[object, Finding] = {}
    for number, finding in enumerate((*own, *others)):
        # Of an unknown job nobody knows what belongs together.
        key = (finding.finding, finding.job, finding.slice) if finding.job is not None else number
        before = merged.get(key)
        merged[key] = finding if before is None else _joined(before, finding)
    return tuple(
        sorted(
            merged.values(), key=lambda one: (-SEVERITY_LEVELS[one.severity], _place(one.finding), -len(one.workers))
        )
    )


def _worse(one: Cause, other: Cause) -> Cause:
    worse = max(one, other, key=lambda cause: SEVERITY_LEVELS[cause.severity])
    return replace(
        worse,
        since_unix_s=earliest((one.since_unix_s, other.since_unix_s)),
        since_or_earlier=one.since_or_earlier or other.since_or_earlier,
    )


def _joined(one: Finding, other: Finding) -> Finding:
    worse, better = (one, other) if SEVERITY_LEVELS[one.severity] >= SEVERITY_LEVELS[other.severity] else (other, one)
    return replace(
        worse,
        workers=tuple(dict.fromkeys((*worse.workers, *better.workers))),
        more_workers=max(one.more_workers, other.more_workers),
        since_unix_s=earliest((one.since_unix_s, other.since_unix_s)),
        since_or_earlier=one.since_or_earlier or other.since_or_earlier,
    )


def earliest(times_unix_s: Iterable[float | None]) -> float | None:
    """The first of some times; None: none is known."""
    return min((time_unix_s for time_unix_s in times_unix_s if time_unix_s is not None), default=None)


def _place(finding: FindingId | StateId | None) -> int:
    return len(RULE_INDEXES) if finding is None else RULE_INDEXES[finding]


def no_later(findings: Iterable[_FindingT], now_unix_s: float) -> tuple[_FindingT, ...]:
    """Findings that began by now at the latest: a wall clock may have been set back since."""
    return tuple(
        one if one.since_unix_s is None or one.since_unix_s <= now_unix_s else replace(one, since_unix_s=now_unix_s)
        for one in findings
    )


def sign_of(change: Change, later_s: int = 0) -> tuple[str, ChangeKind, Status, int]:
    """Key of a change: an exporter hands it on again after an outage, at a time that may differ by a second."""
    return change.worker, change.what, change.status, round(change.time_unix_s) + later_s
