"""The verdict on a fleet: the worst of states and findings, what could not be judged, and the exit status."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from tpumon.analysis.findings import RULES, slice_key_of
from tpumon.analysis.findings.rule import PAUSING
from tpumon.analysis.state_findings import (
    MOST_NAMED,
    STATES,
    all_findings,
    first_of_last,
    quoted,
    restarts_of,
)
from tpumon.analysis.status import FleetStatus, WorkerStatus
from tpumon.analysis.sufficiency import compared, decisive, missed_steps, why_no_step
from tpumon.analysis.upstream import earliest
from tpumon.errors import NOT_SEEN, NoTargetError
from tpumon.model import (
    SEVERITY_LEVELS,
    Confidence,
    Evidence,
    Figures,
    Finding,
    FindingId,
    FindingSeverity,
    NotJudged,
    Sample,
    Severity,
    State,
    StateId,
)
from tpumon.model.documents import UnixTime, encoded
from tpumon.model.figure_spec import is_on_cpu
from tpumon.model.figure_table import WITHOUT_TPU
from tpumon.model.figures import NO_STEP
from tpumon.model.finding import StatedId
from tpumon.moments import date_and_time
from tpumon.untrusted_text import ascii_line, plain_word, quote, quote_names

NOTHING_WRONG = "Nothing is wrong, as far as it can be judged."
_MOST_FINDINGS_SHOWN = 10

_MOST_EVIDENCE = 4
_MOST_NAMES = 200  # of one sample

REMEDIES: Mapping[FindingId | StateId, str] = {rule.finding: rule.remedy for rule in RULES}
"""The remedy of each finding that is looked for."""

_GAPS: Mapping[State, str] = {
    "stale": "have no current figures",
    "waiting": "have given no sample yet",
    "busy": "have another profiling session, of somebody else or one that did not end",
    "continuous": "have a continuous profiling session of their owner",
    "paused": "are not sampled, since tpumon is paused",
    "no-activity": "run nothing",
}

_OF_STATES: frozenset[str] = frozenset(get_args(StateId))
_LONG_S = 60.0  # so long takes what is said to take that
_OLD_S = 30.0  # others may run again by now
_NOT_SEEN = "answer, but do not show whether anything runs"

VerdictId = FindingId | StateId | Literal["ok", "unknown"]


class LastRestart(NamedTuple):
    """The last restart of a job: its time, its workers in words, and if they run now."""

    time_unix_s: float
    workers: str
    runs: bool


class FleetVerdict(Struct, frozen=True, kw_only=True):
    """The verdict on a fleet. Names that servers chose are quoted, and cleaned.

    Attributes:
        time_unix_s: the time at which it holds.
        workers: number of workers that are followed.
        answered: True if any of them ever answered, here or the exporter that it comes from.
        severity: of the worst finding or state.
        verdict: the worst finding or state; "ok"; or "unknown" where too little can be judged.
        sentence: the verdict in words.
        findings: the worst first; the worst five workers of each are named.
        last_since_unix_s: of each finding, since when the last of its workers has it; None: that is not known.
        not_judged: findings that cannot be judged, so that their absence is no all-clear.
        last_restart: the last that is known; None: there was none, or a finding says it.
    """

    time_unix_s: float
    workers: int
    answered: bool
    severity: Severity
    verdict: VerdictId
    sentence: str
    findings: Sequence[Finding]
    last_since_unix_s: Sequence[float | None]
    not_judged: Sequence[NotJudged]
    last_restart: LastRestart | None = None

    @property
    def title(self) -> str:
        """The verdict as the first word of a line: states in capitals; what may still be a pause only may hang."""
        called = _called(self.verdict, self.severity)
        return called.upper() if called in STATES else called

    def exit_status(self, fail_on: FailOn) -> int:
        """The exit status of a command that ends with this answer.

        Args:
            fail_on: the severity from which on it is 1.
        """
        if not self.answered:
            return NoTargetError.exit_status
        return int(fail_on != "never" and SEVERITY_LEVELS.get(self.severity, 0) >= SEVERITY_LEVELS[fail_on])

    def document(self, *, brief: bool = False) -> WhyDocument:
        """One object; `more_findings` counts those beyond ten.

        Args:
            brief: leave out what is not judged.
        """
        shown, grouped = self.findings[:_MOST_FINDINGS_SHOWN], by_reason(self.not_judged)
        return WhyDocument(
            time_unix_s=round(self.time_unix_s, 1),
            workers=self.workers,
            verdict=self.verdict,
            sentence=self.sentence,
            findings=tuple(map(_shortened, shown)),
            more_findings=(len(self.findings) - len(shown)) or UNSET,
            not_judged=UNSET if brief else tuple(replace(each, reason=ascii_line(each.reason)) for each in grouped),
        )

    def to_json(self, *, brief: bool = False) -> str:
        """The same as text."""
        return encoded(self.document(brief=brief))


class WhyFinding(Struct, frozen=True, kw_only=True):
    """A finding with the fields of `tpumon.model.Finding`, without empty ones."""

    finding: StatedId
    severity: FindingSeverity
    confidence: Confidence
    workers: tuple[str, ...]
    more_workers: int | UnsetType = UNSET
    job: str | None
    slice: str | None
    since_unix_s: UnixTime | None
    since_or_earlier: bool | UnsetType = UNSET
    evidence: Mapping[str, Evidence]
    sentence: str
    remedy: str
    url: str


class NotJudgedGroup(Struct, frozen=True, kw_only=True):
    """Findings that cannot be judged for one reason; `workers`: of how many."""

    reason: str
    findings: tuple[FindingId, ...]
    workers: int


class WhyDocument(Struct, frozen=True, kw_only=True):
    """The document that `tpumon why --output json` prints."""

    schema: Literal[1] = 1
    time_unix_s: UnixTime
    workers: int
    verdict: VerdictId
    sentence: str
    findings: tuple[WhyFinding, ...]
    more_findings: int | UnsetType = UNSET
    not_judged: tuple[NotJudgedGroup, ...] | UnsetType = UNSET


FailOn = Literal["info", "warning", "critical", "never"]


def by_reason(not_judged: Iterable[NotJudged]) -> Iterator[NotJudgedGroup]:
    """Findings that cannot be judged, by the reason that they have in common."""
    reasons: dict[str, list[NotJudged]] = {}
    for one in not_judged:
        reasons.setdefault(one.reason, []).append(one)
    for reason, group in reasons.items():
        findings = tuple(one.finding for one in group)
        yield NotJudgedGroup(reason=reason, findings=findings, workers=max(one.workers for one in group))


def _shortened(finding: Finding) -> WhyFinding:
    since = finding.since_unix_s
    given = asdict(finding) | {
        "more_workers": finding.more_workers or UNSET,
        "since_or_earlier": finding.since_or_earlier or UNSET,
        "since_unix_s": None if since is None else round(since, 1),
        "evidence": {name: one.rounded() for name, one in finding.evidence.items()},
    }
    return WhyFinding(**given)


def _called(verdict: VerdictId, severity: Severity) -> str:
    """The name of a verdict in a sentence."""
    return "may hang" if (verdict, severity) == ("hang", "info") else verdict


def verdict_on(
    status: FleetStatus, too_few: frozenset[str] = frozenset(), *, keeps: bool = False, recorded: bool = False
) -> FleetVerdict:
    """The verdict, from the status of a fleet: the worst of states and findings.

    Args:
        status: of all workers.
        too_few: those that seem ok, but have too few samples to be judged.
        keeps: whether the next run goes on from this one.
        recorded: whether what happened is over, so that nothing can be awaited.
    """
    foreign = list(_foreign(status))
    upstream = {worker.name for worker in status.all() if worker.judged_upstream}
    listed = all_findings(status)
    findings = [
        _cleaned(one, foreign, is_quoted=one.finding not in _OF_STATES and not upstream.isdisjoint(one.workers))
        for one in listed
    ]
    not_judged = list(_with_the_rest(status, is_quoted=bool(upstream)))
    gaps = list(_gaps(status, said={one.finding for one in findings}, keeps=keeps, recorded=recorded))
    if too_few:
        few = f"{len(too_few)} of {len(status.workers)} workers have too few samples: {quoted(sorted(too_few))}."
        gaps += [few, *_stepless(status)]
    suspected: list[str] = []
    if all(one.finding == "restarted" for one in findings):
        suspected = list(_suspected(status, is_quoted=bool(upstream)))
    if findings:
        verdict: VerdictId = findings[0].finding
        same = dict.fromkeys(name for one in listed[1:] if one.finding == verdict for name in one.workers)
        others = dict.fromkeys(_called(one.finding, one.severity) for one in findings if one.finding != verdict)
        also = [f"Also {verdict}: {quoted(same)}."] * bool(same) + [f"Also found: {', '.join(others)}."] * bool(others)
        sentence = " ".join([findings[0].sentence, *also, *suspected, *gaps])
    else:
        unsure = gaps or _unsure(status, not_judged)
        verdict = "unknown" if unsure or suspected else "ok"
        unsure = unsure or (list(_stepless(status)) if suspected else [])
        sentence = (
            " ".join([*suspected, "Nothing was found, but too little can be judged.", *unsure])
            if unsure or suspected
            else " ".join([*_stepless(status), NOTHING_WRONG, *_without_tpu(status)])
        )
    severities = [one.severity for one in findings if one.finding != "restarted"]
    otherwise: Severity = "unknown" if verdict == "unknown" or suspected else "ok"
    return FleetVerdict(
        time_unix_s=status.time_unix_s,
        workers=len(status.workers),
        answered=any(worker.verdict.state in _ANSWERING or worker.history.had_figures() for worker in status.all()),
        severity=severities[0] if severities else otherwise,
        verdict=verdict,
        sentence=sentence,
        findings=findings,
        last_since_unix_s=tuple(map(status.last_since_unix_s, listed)),
        not_judged=not_judged,
        last_restart=None if any(one.finding == "restarted" for one in listed) else _last_restart(status),
    )


def _last_restart(status: FleetStatus) -> LastRestart | None:
    """The last restart, of all workers that had it together."""
    restarts_unix_s = restarts_of(status)
    if not restarts_unix_s:
        return None
    first_unix_s = first_of_last(restarts_unix_s.values())
    names = [name for name, time_unix_s in restarts_unix_s.items() if time_unix_s >= first_unix_s]
    runs = all(status.workers[name].verdict.state == "live" for name in names)
    return LastRestart(first_unix_s, quoted(names), runs)


_ANSWERING = frozenset({"live", "no-activity", "busy", "continuous", "paused"})


def _foreign(status: FleetStatus) -> Iterator[str]:
    """Names that servers chose and that sentences may have: of workers, programs and functions."""
    for worker in status.all():
        yield worker.name
        if worker.history.last is not None:
            yield from _programs(worker.history.last)


def _programs(sample: Sample) -> Iterator[str]:
    figures = sample.figures
    yield figures.step_name or ""
    yield from figures.programs[:_MOST_NAMES]
    yield from (function.name for function in figures.functions[:_MOST_NAMES])


def _cleaned(finding: Finding, foreign: Iterable[str], *, is_quoted: bool) -> Finding:
    """Copy of a finding with names made plain words; an exporter's own text is quoted, the remedy is this tpumon's."""
    own = finding.naming(MOST_NAMED)
    # Not as the other names, anywhere: a slice is often called 0.
    own = replace(own, sentence=own.sentence.replace(f"slice {own.slice} ", f'slice "{plain_word(own.slice or "")}" '))
    evidence: list[tuple[str, Evidence]] = list(own.evidence.items())[:_MOST_EVIDENCE]
    return replace(
        own,
        workers=tuple(map(plain_word, own.workers)),
        job=None if own.job is None else plain_word(own.job),
        slice=None if own.slice is None else plain_word(own.slice),
        evidence={plain_word(name): one for name, one in evidence},
        sentence=f"The exporter says: {quote(own.sentence)}" if is_quoted else quote_names(own.sentence, foreign),
        remedy=REMEDIES.get(own.finding, "") if is_quoted else ascii_line(own.remedy),
        url=own.url if own.finding in _OF_STATES else f"docs/findings.md#{own.finding}",
    )


def _with_the_rest(status: FleetStatus, *, is_quoted: bool) -> Iterator[NotJudged]:
    """Findings that cannot be judged, also because no worker has figures."""
    known = status.not_judged()
    interval_s = status.longest_interval_s
    for one in known:
        reason = quote(one.reason) if is_quoted else one.reason
        if (takes_s := (one.takes or 0) * interval_s) >= _LONG_S:
            reason += f" (about {math.ceil(takes_s / 60)} min)"
        yield replace(one, reason=reason)
    judged = {one.finding for one in known}
    for worker in status.all():
        judged.update(worker.judged)
    for rule in RULES:
        if rule.finding not in judged:
            yield NotJudged(
                finding=rule.finding, reason="no worker has the figures for it", workers=len(status.workers)
            )


def _gaps(status: FleetStatus, *, said: Container[VerdictId], keeps: bool, recorded: bool) -> Iterator[str]:
    """A sentence for each reason for which workers have no figures."""
    like: dict[str, list[WorkerStatus]] = {}
    if unheard := status.exporters_unheard:
        yield f"The workers of exporters that do not answer are not known: {quoted(unheard)}."
    for worker in status.all():
        state = worker.verdict.state
        explained = state == "no-activity" and ("hang" in said or "stuck" in said or "stuck" in worker.judged)
        if state in _GAPS and not explained:
            words = _GAPS[state] if worker.is_seen else _NOT_SEEN
            like.setdefault(words, []).append(worker)
    for words, workers in like.items():
        unseen = ascii_line(workers[0].history.failure_words.removeprefix(f"{NOT_SEEN}: "))
        why = f" ({unseen})" if words == _NOT_SEEN else ""
        why = _silent(workers, status.time_unix_s) if words == _GAPS["no-activity"] else why
        names = quoted(worker.name for worker in workers)
        yield f"{len(workers)} of {len(status.workers)} workers {words}: {names}{why}."
    watched = "down" in said or any(worker.judged_upstream for worker in status.all())
    if _GAPS["no-activity"] in like and not watched and not recorded:
        began_before = any(worker.verdict.since_or_earlier for worker in like[_GAPS["no-activity"]])
        look = "One look cannot tell a hang from a pause" if began_before else "It may be a pause"
        how = f"{look}; tpumon once --state DIR, begun while it runs, goes on from its last run"
        if keeps and any("hang" in worker.judged for worker in like[_GAPS["no-activity"]]):
            how = f"{look}; the next run with this --state goes on from here"
        elif keeps:
            how = "A hang is told of what was seen running, which no run with this --state has seen"
        yield f"{how}; tpumon serve watches all the time."


def _silent(workers: Sequence[WorkerStatus], now_unix_s: float) -> str:
    """Words for silence: when it ran last, by how old a sample; of a notebook also that its user may be idle."""
    since_unix_s = earliest(worker.verdict.since_unix_s for worker in workers)
    if since_unix_s is None:
        since = ""
    elif any(worker.verdict.since_or_earlier for worker in workers):
        since = f", since {date_and_time(since_unix_s)} or earlier"
    else:
        since = f", last seen running at {date_and_time(since_unix_s)}"
    age_s = max((now_unix_s - last.time_unix_s for worker in workers if (last := worker.history.last)), default=0.0)
    since += f", as seen {age_s:.0f} s ago" * (age_s > _OLD_S)
    pauses = any(worker.history.kind in {None, *PAUSING} for worker in workers)
    return since + "; a notebook or an interactive session looks so while its user does nothing" * pauses


def _suspected(status: FleetStatus, *, is_quoted: bool) -> Iterator[str]:
    """A sentence for each finding that samples speak for, but too few."""
    for one in status.not_judged():
        if one.is_suspected:
            yield f"May be {one.finding}: {quote(one.reason) if is_quoted else one.reason}."


def _unsure(status: FleetStatus, not_judged: Sequence[NotJudged]) -> list[str]:
    """Reasons why the absence of findings is no all-clear.

    It is one only if all workers could be judged for waiting and for its cause; servers, for answering requests.
    """
    if not status.workers:
        return ["No worker is followed."]
    together = compared(status)
    missing: list[FindingId] = []
    for worker in status.all():
        needed = decisive(worker, is_compared=worker.name in together)
        missing += [finding for finding in needed if finding not in worker.judged]
        last = worker.sample
        if (
            "idle" in needed
            and last is not None
            and last.figures.idle_ratio is None
            and last.figures.step_time_s is None
        ):
            missing.append("idle")  # as it was before; now nothing shows that anything runs
    reasons = {one.finding: one.reason for one in not_judged}
    why = next((text for one in _live(status) if (text := one.absent.get("idle_ratio"))), None)
    if "idle" in reasons and why is not None:
        reasons["idle"] = f"{reasons['idle']} ({ascii_line(why)})"
    unsure = [f"{finding}: {reasons.get(finding, 'not known of all workers')}." for finding in dict.fromkeys(missing)]
    if any(map(missed_steps, status.all())):
        unsure += _stepless(status)
    return [*_steps_run(status), *unsure] if unsure else []


def _stepless(status: FleetStatus) -> list[str]:
    """Sentence on why a job that should have steps shows none; of which workers, if others have steps."""
    reasons = {worker.name: why_no_step(worker.sample) for worker in status.all() if worker.sample is not None}
    why = next(filter(None, reasons.values()), None)
    if why is None:
        return []
    names = [name for name, reason in reasons.items() if reason == why]
    whose = "" if all(reasons.values()) else f" of {quoted(names)}"
    return [f"No step{whose} is seen: {ascii_line(why.removeprefix(NO_STEP))}."]


def _without_tpu(status: FleetStatus) -> Iterator[str]:
    """Of workers on a CPU, sentences that their steps run, and what cannot be known of them."""
    on_cpu = [sample for worker in status.all() if (sample := worker.sample) is not None and is_on_cpu(sample)]
    if not on_cpu:
        return
    yield from _steps_run(status)
    names = "" if len(on_cpu) == len(status.workers) else f": {quoted(sample.worker for sample in on_cpu)}"
    yield f"{WITHOUT_TPU}{names}."


def _live(status: FleetStatus) -> list[Figures]:
    return [last.figures for worker in status.all() if worker.verdict.state == "live" and (last := worker.history.last)]


def _steps_run(status: FleetStatus) -> Iterator[str]:
    """A sentence that the job goes on, if all workers have steps."""
    steps = [figures.step_time_s.avg for figures in _live(status) if figures.step_time_s is not None]
    if steps and len(steps) == len(status.workers):
        low, high = (f"{1000 * end(steps):.3g}" for end in (min, max))
        keys = [slice_key_of(worker.target) for worker in status.all()]
        jobs = len({(job, alone) for job, _, alone in keys})
        whose = "Steps run" if jobs == 1 else f"Steps of {jobs} jobs run"
        yield f"{whose}, {low if low == high else f'{low} to {high}'} ms each."
