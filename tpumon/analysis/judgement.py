"""Knowledge of a worker beside its history: its findings, since when, and the verdict that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from msgspec.structs import replace

from tpumon.analysis.history import (
    GAPS,
    SEVERITIES,
    WELL,
    Moment,
    ReportedStatus,
    StatusTimeline,
    WorkerHistory,
    change_between,
)
from tpumon.analysis.job_kind import KindOfWorker
from tpumon.analysis.recorded_clock import OVERLAP_S
from tpumon.analysis.status import Verdict, reasons_of
from tpumon.analysis.upstream import earliest, merged_causes, no_later
from tpumon.model import (
    SEVERITY_LEVELS,
    Cause,
    Change,
    ChangeKind,
    FindingId,
    JobKindName,
    NotJudged,
    Sample,
    Severity,
    State,
    Status,
    StatusSnapshot,
    mark_of,
)
from tpumon.untrusted_text import one_line

_GAP_S = 10.0


@dataclass(slots=True)
class Judgement:
    """Knowledge of a worker beside its history.

    Attributes:
        judged_upstream: True if its samples come judged, by the exporter that they come from.
        causes: its findings, as judged here or upstream, and why its last query failed.
        from_upstream: the findings that came from upstream last; None: none came yet. Of several samples that come
            together only the last has them.
        added_here: of a worker that is judged upstream: findings from comparing it with workers of other exporters.
        raised_here_to: the severity that these have raised it to, as noted last; None: to none.
        judged, not_judged, needs_more: as in `WorkerStatus`.
        compared, not_compared: of a worker that is judged upstream: findings that need the whole job; those
            that are judged here, and the others with the reason.
        severity_by_figures: its severity when it was last judged by its figures.
        samples_unjudged: number of samples in a row that came from upstream without findings.
        kind: the kind of its job.
        is_faulty: True if a bug in a rule kept its last sample from being judged.
        timeline: what it counted as, and since when.
        reported: the status that its changes have reported.
        first_unix_s: since when it was as it was when it was first looked at, here or upstream; None: it is known when
            that began, or it is over.
        may_be_down_earlier: whether a worker that is down was not heard for a while before it was found so.
        changed_unix_s, number: time and number of the last change of its timeline.
        late: the change to stale while that is too short to be one; None: it is not stale, or that is remembered.
    """

    judged_upstream: bool = False
    causes: tuple[Cause, ...] = ()
    from_upstream: tuple[Cause, ...] | None = None
    added_here: tuple[Cause, ...] = ()
    raised_here_to: Severity | None = None
    compared: tuple[FindingId, ...] = ()
    not_compared: tuple[NotJudged, ...] = ()
    judged: tuple[FindingId, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()
    needs_more: bool = False
    is_faulty: bool = False
    samples_unjudged: int = 0
    severity_by_figures: Severity = "unknown"
    kind: KindOfWorker = field(default_factory=KindOfWorker)
    timeline: StatusTimeline = field(default_factory=StatusTimeline)
    reported: ReportedStatus = field(default_factory=ReportedStatus)
    first_unix_s: float | None = None
    may_be_down_earlier: bool = False
    changed_unix_s: float = -inf
    number: int = 0
    late: Change | None = None

    def resume(self, snapshot: StatusSnapshot) -> None:
        """Goes on from what was known of the worker before."""
        self.timeline = _resumed(snapshot)
        self.reported = ReportedStatus(
            None if snapshot.state == "waiting" else mark_of(snapshot.state, snapshot.severity)
        )
        since = self.timeline.since
        self.first_unix_s = since.time_unix_s if snapshot.since_or_earlier and since is not None else None
        self.may_be_down_earlier = snapshot.since_or_earlier

    def is_or_earlier(self, since_unix_s: float | None) -> bool:
        """True if what the worker has since then may have begun before: it was first looked at, or not for a while."""
        if self.timeline.state == "down":
            return self.may_be_down_earlier
        first_unix_s = self.first_unix_s
        return since_unix_s is not None and first_unix_s is not None and abs(since_unix_s - first_unix_s) < 1

    def lasting_gap(self, history: WorkerHistory, now_unix_s: float) -> Change | None:
        """The change to stale, once, when that has lasted for an interval, and for 10 s; before, it is none."""
        stale_s = -history.fresh_for_s(now_unix_s)
        if self.late is None or self.judged_upstream or stale_s < max(history.interval_s, _GAP_S):
            return None
        late, self.late = self.late, None
        self.reported.status = self.reported.now = "stale"
        return late

    @property
    def all_judged(self) -> tuple[FindingId, ...]:
        """The findings that can be judged, upstream or here."""
        return tuple(dict.fromkeys((*self.judged, *self.compared))) if self.compared else self.judged

    @property
    def all_not_judged(self) -> tuple[NotJudged, ...]:
        """The findings that are judged nowhere; of those judged nowhere the reason here counts: it has a wider view."""
        if not self.compared and not self.not_compared:
            return self.not_judged
        here = [one for one in self.not_compared if one.finding not in self.judged]
        known = {one.finding: one for one in (*self.not_judged, *here)}
        return tuple(one for one in known.values() if one.finding not in self.compared)

    @property
    def all_causes(self) -> tuple[Cause, ...]:
        """Causes, with those added here."""
        return merged_causes(self.causes, self.added_here) if self.added_here else self.causes

    def kind_of(self, sample: Sample, history: WorkerHistory) -> JobKindName | None:
        """The kind of the worker's job as of a sample: as its exporter says; otherwise as is seen here."""
        if self.judged_upstream or sample.job_kind is not None:
            return sample.kind
        return self.kind.note(sample, history.target, restarted=history.restarted is sample).kind

    def with_findings(self, sample: Sample) -> Sample:
        """A sample of the worker with all that is found and can be judged, as it is handed on."""
        causes, judged = tuple(cause for cause in self.all_causes if cause.finding is not None), self.all_judged
        known = sample.findings, sample.judged
        return sample if known == (causes, judged) else replace(sample, findings=causes, judged=judged)


def add_failure(judgement: Judgement, sample: Sample) -> None:
    """Adds to a worker's causes why its query failed, if it did; that nothing ran is said by a hang."""
    if sample.failure is not None and all(cause.finding != "hang" for cause in judgement.causes):
        judgement.causes = (*judgement.causes, Cause(words=sample.failure.message))


def conclude(judgement: Judgement, sample: Sample, state: State) -> Severity:
    """Adds to a worker's causes why its query failed, if it did; returns the severity, which that does not change."""
    severity = _severity_of(judgement, sample, state)
    add_failure(judgement, sample)
    return severity


def _severity_of(judgement: Judgement, sample: Sample, state: State) -> Severity:
    if state == "down":
        return "critical"
    if not sample.is_conclusive or state in {"busy", "continuous", "paused"}:
        return "unknown" if sample.of_exporter else judgement.severity_by_figures
    if judgement.is_faulty and not judgement.judged_upstream:
        return "unknown"
    if judgement.judged_upstream and judgement.from_upstream is None:
        return judgement.timeline.severity
    if judgement.causes:
        return judgement.causes[0].severity
    if sample.why_not_seen is not None:
        return "unknown"
    hang_cannot_be_judged = any(one.finding == "hang" for one in judgement.not_judged)
    if state == "no-activity":
        return "ok" if hang_cannot_be_judged or "hang" in judgement.judged else "unknown"
    return "ok" if sample.failure is None else "unknown"


def began_of(causes: Sequence[Cause], at: Moment) -> Moment:
    """Begin of the first of a worker's warnings, if that was before the sample that completes it."""
    since = earliest(one.since_unix_s for one in causes if one.finding is not None and one.severity != "info")
    if since is None or since >= at.time_unix_s:
        return at
    return at.earlier(at.time_unix_s - since)


def note_status(
    judgement: Judgement,
    history: WorkerHistory,
    at: Moment,
    time_unix_s: float,
    state: State,
    severity: Severity,
    began: Moment,
    *,
    restarted: bool,
) -> Sequence[Change] | None:
    """Notes what a worker counts as at a moment.

    Args:
        judgement: of the worker.
        history: of the worker; its last sample is the one that shows it.
        at: since when it is as that sample shows.
        time_unix_s: the time by the wall clock.
        state: of the worker then.
        severity: of the worker then.
        began: when its trouble began, or since when nothing runs; else `at`.
        restarted: whether its job was restarted before it.

    Returns:
        The changes to remember, without numbers; None: nothing has changed. Of a worker that is judged upstream only a
        restart, which its exporter may not have seen. `lasting_gap` gives one to stale, later.
    """
    timeline, before = judgement.timeline, judgement.reported.status
    was, since = timeline.status, timeline.status_since
    timeline.note(at, state, severity, began=began, restarted=restarted)
    is_first = _note_earlier(judgement, history, at, was, state)
    if judgement.judged_upstream:
        judgement.reported.status = mark_of(state, severity)
        if not restarted:
            return None
        change, time_unix_s = _change_of(history, state, severity, before), history.restart_unix_s or at.time_unix_s
        return [_restart(change, time_unix_s, history)]
    what = _due_change(judgement, history, at, restarted=restarted)
    if what is None and not restarted and timeline.status == was:
        return None
    if what is not None and state != "stale" and judgement.reported.since != at:
        time_unix_s = judgement.reported.since.as_of(at).time_unix_s
    # A query that began before the last change may end after it.
    earliest_unix_s = min(judgement.changed_unix_s, time_unix_s + OVERLAP_S)
    changes = []
    change = _change_of(history, state, severity, before)
    if restarted and history.restart_unix_s is not None:
        earliest_unix_s = max(history.restart_unix_s, earliest_unix_s)
        changes.append(_restart(change, earliest_unix_s, history))
    if before is None or before in WELL or (before in SEVERITIES and state == "no-activity" and what == "state"):
        time_unix_s = min(time_unix_s, began.time_unix_s)  # in trouble from now on; getting worse happens now
    time_unix_s = max(time_unix_s, earliest_unix_s)
    judgement.changed_unix_s = time_unix_s if changes or what is not None else judgement.changed_unix_s
    if what is not None:
        words, detail = _words_of(judgement, what, at, since), None if state == "stale" else history.failure_detail
        change = replace(change, what=what, time_unix_s=time_unix_s, words=words, detail=detail)
        changes.append(_dated(judgement, change, began, is_first=is_first))
    if state == "stale":
        judgement.late, changes = changes[-1] if what is not None else None, []
    return changes


def _note_earlier(judgement: Judgement, history: WorkerHistory, at: Moment, was: Status | None, state: State) -> bool:
    """Notes whether the state may have begun before it was seen; returns whether this is the first look."""
    is_new = judgement.timeline.since == at
    was_there = history.last is not None and at.time_unix_s > history.last.time_unix_s
    is_first = is_new and history.queries == 1 and not was_there
    if is_first or (state == "no-activity" and was in WELL):  # it was seen to run
        judgement.first_unix_s = at.time_unix_s if is_first else None
    if state == "down" and is_new:
        judgement.may_be_down_earlier = history.is_unheard and not was_there
    return is_first


def _change_of(history: WorkerHistory, state: State, severity: Severity, before: Status | None) -> Change:
    """A change of the worker of which kind and time are still to be set."""
    return Change(
        number=0,
        time_unix_s=0.0,
        worker=history.target.worker,
        what="state",
        state=state,
        severity=severity,
        before=before,
        words="",
    )


def _restart(change: Change, time_unix_s: float, history: WorkerHistory) -> Change:
    """The change as a restart of the worker's job."""
    return replace(
        change,
        what="restart",
        time_unix_s=time_unix_s,
        words="its job was restarted",
        since_or_earlier=history.restart_or_earlier,
    )


def _dated(judgement: Judgement, change: Change, began: Moment, *, is_first: bool) -> Change:
    """Change, marked as possibly earlier if the first samples showed it already; notes when it was first seen."""
    if change.state == "down" and not is_first:
        return replace(change, since_or_earlier=judgement.may_be_down_earlier)
    if change.state in GAPS or not (is_first or _was_there(judgement, change)):
        return change
    judgement.first_unix_s = began.time_unix_s
    return replace(change, before=None, since_or_earlier=True)


def _due_change(judgement: Judgement, history: WorkerHistory, at: Moment, *, restarted: bool) -> ChangeKind | None:
    """The kind of the change that is due now; None: there is none."""
    timeline, reported = judgement.timeline, judgement.reported
    before = reported.status
    assert timeline.state is not None
    if restarted:
        judgement.reported = reported = ReportedStatus(before)
    if timeline.state == "stale":
        return change_between(before, "stale")
    judgement.late = None  # it was stale for so short a time that it was no change
    status = mark_of(timeline.state, timeline.severity)
    if reported.note(at, status, history.interval_s) is None:
        return None
    is_hang = timeline.state == "no-activity" and status in SEVERITIES and before not in GAPS
    return "severity" if is_hang else change_between(before, timeline.status)


def _was_there(judgement: Judgement, change: Change) -> bool:
    """True if the first samples showed already what the worker, which seemed well till then, is marked for."""
    marking = (one for one in judgement.causes if one.severity != "info")
    return change.state == "live" and change.before in WELL and any(one.since_or_earlier for one in marking)


def _words_of(judgement: Judgement, what: ChangeKind, at: Moment, since: Moment | None) -> str:
    if what == "capture-ended" and since is not None:
        return f"after about {max(at.time_unix_s - since.time_unix_s, 0.0):.0f} s"
    state = judgement.timeline.state or "waiting"
    return one_line("; ".join(cause.words for cause in reasons_of(state, judgement.causes)))


def verdict_of(history: WorkerHistory, judgement: Judgement, now_unix_s: float) -> Verdict:
    timeline, now_s, state = judgement.timeline, history.monotonic_s(), history.state(now_unix_s)
    severity: Severity = "unknown" if state in {"stale", "waiting"} else timeline.severity
    failure = None if history.last is None else history.last.failure
    causes = no_later(judgement.all_causes, now_unix_s) if state != "stale" or failure is not None else ()
    since = None if timeline.since is None else timeline.since.unix_s(now_unix_s, now_s)
    critical = None
    if state == "live" and severity == "critical" and timeline.critical_since is not None:
        critical = timeline.critical_since.unix_s(now_unix_s, now_s)
    severity, raised_since, critical = _raised(judgement, severity, since, critical)
    since, critical = (raised_since, critical) if state == "live" else (since, None)
    return Verdict(
        state=state,
        severity=severity,
        causes=causes,
        since_unix_s=None if since is None else min(since, now_unix_s),
        since_or_earlier=judgement.is_or_earlier(since),
        critical_since_unix_s=None if critical is None else min(critical, now_unix_s),
        excess=causes[0].excess if causes and causes[0].severity != "info" else 0.0,
    )


def note_added_here(judgement: Judgement) -> tuple[Severity, Status] | None:
    """Notes whether findings that comparing a worker here adds raise its severity.

    Returns:
        Severity and former status of the worker, if comparing here changed its severity.
    """
    own, state, before = judgement.timeline.severity, judgement.timeline.state, judgement.raised_here_to
    now = _raised(judgement, own, None, None)[0]
    judgement.raised_here_to = now if state == "live" and now != own and now not in WELL else None
    if judgement.raised_here_to == before or state != "live" or now == before:
        return None
    return now, before or own


def snapshot_of(history: WorkerHistory, judgement: Judgement, now_unix_s: float) -> StatusSnapshot:
    """Snapshot of a worker for readers, with the findings that comparing it here adds."""
    timeline, now_s = judgement.timeline, history.monotonic_s()

    def time_of(moment: Moment | None) -> float | None:
        return None if moment is None else moment.unix_s(now_unix_s, now_s)

    severity, status_since, ok, ok_since = (
        timeline.severity,
        time_of(timeline.status_since),
        timeline.ok,
        time_of(timeline.ok_since),
    )
    critical = time_of(timeline.critical_since)
    if judgement.added_here:
        severity, since, critical = _raised(judgement, severity, ok_since, critical)
        if timeline.state == "live" and severity not in WELL:
            status_since, ok, ok_since = (status_since if severity == timeline.severity else since), False, since
    return StatusSnapshot(
        worker=history.target.worker,
        state=timeline.state or "waiting",
        severity=severity,
        status_since_unix_s=status_since,
        ok=ok,
        ok_since_unix_s=ok_since,
        critical_since_unix_s=critical,
        since_or_earlier=judgement.is_or_earlier(time_of(timeline.since)),
        findings=None if history.last is None else history.last.findings,
    )


def _raised(
    judgement: Judgement, severity: Severity, since: float | None, critical: float | None
) -> tuple[Severity, float | None, float | None]:
    """Severity, since when, and since when it is critical, with the findings that comparing a worker here adds."""
    if not judgement.added_here or severity not in SEVERITY_LEVELS:
        return severity, since, critical
    raised = judgement.added_here[0].severity
    began = earliest(one.since_unix_s for one in judgement.added_here)
    if raised in WELL or SEVERITY_LEVELS[raised] < SEVERITY_LEVELS[severity]:
        return max(severity, raised, key=lambda one: SEVERITY_LEVELS[one]), since, critical
    since = began if severity in WELL or since is None else min(since, began or since)
    if raised == "critical":
        critical = began if critical is None or began is None else min(critical, began)
    return raised, since, critical


def _resumed(snapshot: StatusSnapshot) -> StatusTimeline:
    """The timeline of a worker as an exporter knows it."""

    def moment(time_unix_s: float | None) -> Moment | None:
        return None if time_unix_s is None else Moment(time_unix_s)

    return StatusTimeline(
        state=None if snapshot.state == "waiting" else snapshot.state,
        severity=snapshot.severity,
        status_since=moment(snapshot.status_since_unix_s),
        ok=snapshot.ok,
        ok_since=moment(snapshot.ok_since_unix_s),
        critical_since=moment(snapshot.critical_since_unix_s),
    )
