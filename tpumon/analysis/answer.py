"""Answers why a job is slow: one verdict, findings, and what could not be judged; in JSON within 2 KB."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from tpumon.analysis.status import FleetStatus
from tpumon.analysis.sufficiency import compared
from tpumon.findings import RULES
from tpumon.model import SCHEMA_VERSION, Evidence, Finding, FindingId, NotJudged, Sample, State
from tpumon.model.frozen import frozen
from tpumon.quoting import cut, plain, quoted, told

MOST_BYTES = 2048
MOST_WORKERS = 5

_MOST_EVIDENCE = 4
_MOST_NAMES = 200  # of one sample

REMEDIES: Mapping[FindingId, str] = {rule.finding: rule.remedy for rule in RULES}
"""What to do about each finding that is looked for."""

_GAPS: Mapping[State, str] = {
    "down": "do not answer",
    "stale": "have no current figures",
    "waiting": "have not answered yet",
    "busy": "are being profiled by somebody else",
    "continuous": "are being profiled by somebody else",
    "paused": "are not sampled, since tpumon is paused",
    "no-activity": "run nothing",
}


@frozen
class Answer:
    """What is wrong with a fleet. What servers said in it is quoted, and cleaned.

    Attributes:
        time_unix_s: when it held.
        workers: how many workers are followed.
        answered: whether any of them ever answered.
        verdict: the worst finding; "ok"; or "unknown" where too little can be judged.
        sentence: the verdict in words.
        findings: the worst first; the worst five workers of each are named.
        not_judged: what cannot be judged, so that its absence is no all-clear.
    """

    time_unix_s: float
    workers: int
    answered: bool
    verdict: FindingId | Literal["ok", "unknown"]
    sentence: str
    findings: Sequence[Finding]
    not_judged: Sequence[NotJudged]

    def to_json(self) -> str:
        """One object of at most 2 KB. What does not fit is counted: `more_findings`, `more_not_judged`."""
        for size in _SIZES:
            text = json.dumps(self._object(size), separators=(",", ":"), allow_nan=False)
            if len(text) < MOST_BYTES:
                break
        return text

    def _object(self, size: _Size) -> dict[str, Any]:
        found, unknown = self.findings[: size.findings], self.not_judged[: size.not_judged]
        more = {
            "more_findings": len(self.findings) - len(found),
            "more_not_judged": len(self.not_judged) - len(unknown),
        }
        return {
            "schema": SCHEMA_VERSION,
            "time_unix_s": round(self.time_unix_s, 1),
            "workers": self.workers,
            "verdict": self.verdict,
            "sentence": cut(self.sentence, size.sentence),
            "findings": [_finding(one, size) for one in found],
            "not_judged": [_not_judged(one, size, self.workers) for one in unknown],
            **{name: count for name, count in more.items() if count},
        }


class _Size(NamedTuple):
    """How much of an answer is shown: numbers of findings, and characters of each text."""

    findings: int
    not_judged: int
    sentence: int
    remedy: int
    reason: int


_SIZES = (
    _Size(5, 30, 400, 400, 80),
    _Size(5, 30, 300, 160, 80),
    _Size(3, 30, 300, 120, 60),
    _Size(3, 10, 300, 120, 60),
    _Size(3, 3, 200, 100, 40),
    _Size(2, 10, 300, 120, 60),
    _Size(2, 4, 240, 100, 40),
    _Size(1, 30, 300, 160, 30),
    _Size(1, 10, 240, 100, 30),
    _Size(1, 4, 160, 60, 24),
)


def _finding(finding: Finding, size: _Size) -> dict[str, Any]:
    since = finding.since_unix_s
    return {
        "finding": finding.finding,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "workers": list(finding.workers),
        **({"more_workers": finding.more_workers} if finding.more_workers else {}),
        "slice": finding.slice,
        "since_unix_s": None if since is None else round(since, 1),
        **({"since_or_earlier": True} if finding.since_or_earlier else {}),
        "evidence": {
            name: {"value": _short(one.value), "threshold": _short(one.threshold), "reference": _short(one.reference)}
            for name, one in finding.evidence.items()
        },
        "sentence": cut(finding.sentence, size.sentence),
        "remedy": cut(finding.remedy, size.remedy),
        "url": finding.url,
    }


def _not_judged(one: NotJudged, size: _Size, workers: int) -> dict[str, Any]:
    some = {} if one.workers >= workers else {"workers": one.workers}
    return {"finding": one.finding, "reason": cut(one.reason, size.reason), **some}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def answer_of(status: FleetStatus) -> Answer:
    """What is wrong, from the status of a fleet."""
    states = {worker.name: worker.verdict.state for worker in status.all()}
    foreign = list(_foreign(status))
    upstream = {worker.name for worker in status.all() if worker.judged_upstream}
    findings = [_cleaned(one, foreign, is_quoted=not upstream.isdisjoint(one.workers)) for one in status.findings]
    not_judged = list(_with_the_rest(status, is_quoted=bool(upstream)))
    hangs = any(one.finding == "hang" for one in findings)  # which says already that nothing runs
    gaps = list(_gaps(status, hangs=hangs))
    if findings:
        verdict: FindingId | Literal["ok", "unknown"] = findings[0].finding
        also = dict.fromkeys(one.finding for one in findings if one.finding != verdict)
        sentence = " ".join([findings[0].sentence, *([f"Also found: {', '.join(also)}."] if also else []), *gaps])
    else:
        unsure = gaps or _unsure(status, not_judged)
        verdict = "unknown" if unsure else "ok"
        sentence = (
            " ".join(["Nothing was found, but too little can be judged.", *unsure])
            if unsure
            else "Nothing is wrong, as far as it can be judged."
        )
    return Answer(
        time_unix_s=status.time_unix_s,
        workers=len(states),
        answered=any(worker.history.samples or worker.verdict.state in _ANSWERING for worker in status.all()),
        verdict=verdict,
        sentence=sentence,
        findings=findings,
        not_judged=not_judged,
    )


_ANSWERING = frozenset({"live", "no-activity", "busy", "continuous", "paused"})


def _foreign(status: FleetStatus) -> Iterator[str]:
    """Names that servers chose and that sentences may have: of workers, programs and functions."""
    for worker in status.all():
        yield worker.name
        if worker.history.last is not None:
            yield from _names(worker.history.last)


def _names(sample: Sample) -> Iterator[str]:
    figures = sample.figures
    yield figures.step_name or ""
    yield from figures.programs[:_MOST_NAMES]
    yield from (function.name for function in figures.functions[:_MOST_NAMES])


def _cleaned(finding: Finding, foreign: Iterable[str], *, is_quoted: bool) -> Finding:
    """A finding whose names are plain words. What an exporter wrote itself is quoted, and our own remedy stands."""
    own = finding.naming(MOST_WORKERS)
    evidence: list[tuple[str, Evidence]] = list(own.evidence.items())[:_MOST_EVIDENCE]
    return replace(
        own,
        workers=tuple(map(plain, own.workers)),
        slice=None if own.slice is None else plain(own.slice),
        evidence={plain(name): one for name, one in evidence},
        sentence=f"The exporter says: {told(own.sentence)}" if is_quoted else quoted(own.sentence, foreign),
        remedy=REMEDIES.get(own.finding, "") if is_quoted else cut(own.remedy),
        url=f"docs/findings.md#{own.finding}",
    )


def _with_the_rest(status: FleetStatus, *, is_quoted: bool) -> Iterator[NotJudged]:
    """Findings that cannot be judged, also because no worker has figures."""
    known = status.not_judged()
    for one in known:
        yield replace(one, reason=told(one.reason)) if is_quoted else one
    judged = {one.finding for one in known}
    for worker in status.all():
        judged.update(worker.judged)
    for finding in REMEDIES:
        if finding not in judged:
            yield NotJudged(finding=finding, reason="no worker has the figures for it", workers=len(status.workers))


def _gaps(status: FleetStatus, *, hangs: bool) -> Iterator[str]:
    """A sentence for each reason for which workers have no figures."""
    names_of: dict[str, list[str]] = {}
    for worker in status.all():
        state, last = worker.verdict.state, worker.history.last
        if state in _GAPS and not (hangs and state == "no-activity"):
            failure = None if last is None else last.failure
            reason = f" ({failure.reason})" if state == "down" and failure is not None else ""
            names_of.setdefault(f"{_GAPS[state]}{reason}", []).append(worker.name)
    for words, names in names_of.items():
        more = f" and {len(names) - MOST_WORKERS} more" if len(names) > MOST_WORKERS else ""
        named = ", ".join(f'"{plain(name)}"' for name in names[:MOST_WORKERS])
        yield f"{len(names)} of {len(status.workers)} workers {words}: {named}{more}."


def _unsure(status: FleetStatus, not_judged: Sequence[NotJudged]) -> list[str]:
    """Why no finding is no all-clear: whether the devices wait, and for whom, must be known of all that run."""
    if not status.workers:
        return ["No worker is followed."]
    together = compared(status)
    missing: list[FindingId] = []
    for worker in status.all():
        needed: tuple[FindingId, ...] = ("idle", "straggler") if worker.name in together else ("idle",)
        missing += [finding for finding in needed if finding not in worker.judged]
    reasons = {one.finding: one.reason for one in not_judged}
    return [f"{finding}: {reasons.get(finding, 'not known of all workers')}." for finding in dict.fromkeys(missing)]
