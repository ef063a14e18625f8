"""Answers why a job is slow: one verdict, findings, and what could not be judged; in JSON within 2 KB."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from tpumon.enough import compared
from tpumon.findings import RULES
from tpumon.fleet import Fleet
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
        "job": finding.job,
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


def answer_of(fleet: Fleet, now_unix_s: float) -> Answer:
    """Judges a fleet.

    Args:
        fleet: with the samples that judgement needs.
        now_unix_s: the time.
    """
    assessment = fleet.assess(now_unix_s)
    states = {worker: verdict.state for worker, verdict in assessment.verdicts.items()}
    is_told = fleet.is_told
    foreign = list(_foreign(fleet))
    findings = [_cleaned(one, foreign, is_told=is_told) for one in fleet.findings(now_unix_s)]
    not_judged = list(_with_the_rest(fleet, fleet.not_judged(now_unix_s), is_told=is_told))
    hangs = any(one.finding == "hang" for one in findings)  # which says already that nothing runs
    gaps = list(
        _gaps(fleet, {worker: state for worker, state in states.items() if state != "no-activity" or not hangs})
    )
    if findings:
        verdict: FindingId | Literal["ok", "unknown"] = findings[0].finding
        also = dict.fromkeys(one.finding for one in findings if one.finding != verdict)
        sentence = " ".join([findings[0].sentence, *([f"Also found: {', '.join(also)}."] if also else []), *gaps])
    else:
        unsure = gaps or _unsure(fleet, states, not_judged)
        verdict = "unknown" if unsure else "ok"
        sentence = (
            " ".join(["Nothing was found, but too little can be judged.", *unsure])
            if unsure
            else "Nothing is wrong, as far as it can be judged."
        )
    return Answer(
        time_unix_s=now_unix_s,
        workers=len(states),
        answered=any(history.samples or history.state(now_unix_s) in _ANSWERING for history in fleet.histories.all()),
        verdict=verdict,
        sentence=sentence,
        findings=findings,
        not_judged=not_judged,
    )


_ANSWERING = frozenset({"live", "no-activity", "busy", "continuous", "paused"})


def _foreign(fleet: Fleet) -> Iterator[str]:
    """Names that servers chose and that sentences may have: of workers, programs and functions."""
    for history in fleet.histories.all():
        yield history.target.worker
        if history.last is not None:
            yield from _names(history.last)


def _names(sample: Sample) -> Iterator[str]:
    figures = sample.figures
    yield figures.step_name or ""
    yield from figures.programs[:_MOST_NAMES]
    yield from (function.name for function in figures.functions[:_MOST_NAMES])


def _cleaned(finding: Finding, foreign: Iterable[str], *, is_told: bool) -> Finding:
    """A finding whose names are plain words. What an exporter wrote itself is quoted, and our own remedy stands."""
    own = finding.naming(MOST_WORKERS)
    # Not as the other names, anywhere: a slice is often called 0.
    own = replace(own, sentence=own.sentence.replace(f"slice {own.slice} ", f'slice "{plain(own.slice or "")}" '))
    evidence: list[tuple[str, Evidence]] = list(own.evidence.items())[:_MOST_EVIDENCE]
    return replace(
        own,
        workers=tuple(map(plain, own.workers)),
        job=None if own.job is None else plain(own.job),
        slice=None if own.slice is None else plain(own.slice),
        evidence={plain(name): one for name, one in evidence},
        sentence=f"The exporter says: {told(own.sentence)}" if is_told else quoted(own.sentence, foreign),
        remedy=REMEDIES.get(own.finding, "") if is_told else cut(own.remedy),
        url=f"docs/findings.md#{own.finding}",
    )


def _with_the_rest(fleet: Fleet, known: Sequence[NotJudged], *, is_told: bool) -> Iterator[NotJudged]:
    """What cannot be judged, also because no worker has figures."""
    for one in known:
        yield replace(one, reason=told(one.reason)) if is_told else one
    judged = {one.finding for one in known}
    histories = fleet.histories.all()
    for history in histories:
        judged.update(fleet.judged(history.target.worker))
    for finding in REMEDIES:
        if finding not in judged:
            yield NotJudged(finding=finding, reason="no worker has the figures for it", workers=len(histories))


def _gaps(fleet: Fleet, states: Mapping[str, State]) -> Iterator[str]:
    """A sentence for each reason for which workers have no figures."""
    workers: dict[str, list[str]] = {}
    for worker, state in states.items():
        if state in _GAPS:
            history = fleet.histories.get(worker)
            failure = None if history is None or history.last is None else history.last.failure
            reason = f" ({failure.reason})" if state == "down" and failure is not None else ""
            workers.setdefault(f"{_GAPS[state]}{reason}", []).append(worker)
    for words, names in workers.items():
        more = f" and {len(names) - MOST_WORKERS} more" if len(names) > MOST_WORKERS else ""
        named = ", ".join(f'"{plain(name)}"' for name in names[:MOST_WORKERS])
        yield f"{len(names)} of {len(fleet.histories.all())} workers {words}: {named}{more}."


def _unsure(fleet: Fleet, states: Mapping[str, State], not_judged: Sequence[NotJudged]) -> list[str]:
    """Why no finding is no all-clear: whether the devices wait, and for whom, must be known of all that run."""
    if not states:
        return ["No worker is followed."]
    together = compared(fleet)
    missing: list[FindingId] = []
    for worker in states:
        needed: tuple[FindingId, ...] = ("idle", "straggler") if worker in together else ("idle",)
        missing += [finding for finding in needed if finding not in fleet.judged(worker)]
    reasons = {one.finding: one.reason for one in not_judged}
    return [f"{finding}: {reasons.get(finding, 'not known of all workers')}." for finding in dict.fromkeys(missing)]
