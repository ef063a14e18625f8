"""Knowledge of a worker beside its history: its findings, since when, and the verdict that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from tpumon.analysis.status import Verdict
from tpumon.analysis.upstream import merged_causes
from tpumon.history import WELL, Course, Moment, WorkerHistory
from tpumon.model import Cause, FindingId, Sample, Severity, Standing, State


@dataclass(slots=True)
class Judgement:
    """Knowledge of a worker beside its history.

    Attributes:
        upstream: True if its samples come judged, by the exporter that they come from.
        causes: its findings, as judged here or upstream, and why its last query failed.
        handed_on: the findings that came from upstream last; None: none came yet. Of several samples that come together
            only the last has them.
        raised: of a worker that is judged upstream: findings that comparing it with workers of other exporters adds.
        judged, not_judged, needs_more: as in `WorkerStatus`.
        is_faulty: True if a bug in a rule kept its last sample from being judged.
        changed_unix_s, number: time and number of the last change of its course.
    """

    upstream: bool = False
    causes: tuple[Cause, ...] = ()
    handed_on: tuple[Cause, ...] | None = None
    raised: tuple[Cause, ...] = ()
    judged: tuple[FindingId, ...] = ()
    not_judged: tuple[tuple[FindingId, str], ...] = ()
    needs_more: bool = False
    is_faulty: bool = False
    course: Course = field(default_factory=Course)
    changed_unix_s: float = -inf
    number: int = 0

    @property
    def all_causes(self) -> tuple[Cause, ...]:
        """Causes, with those raised here."""
        return merged_causes(self.causes, self.raised) if self.raised else self.causes


_RAISED_TO: Sequence[Severity] = ("ok", "info", "warning", "critical")


def add_failure(judgement: Judgement, sample: Sample, state: State) -> Severity:
    """Adds to a worker's causes why its query failed, if it did; returns the severity of its sample."""
    found = judgement.causes
    if sample.failure is not None:
        judgement.causes = (*found, Cause(words=sample.failure.message))
    if state == "down":
        return "critical"
    if not sample.responded or state in {"busy", "continuous", "paused"}:
        return "unknown" if sample.of_exporter else judgement.course.severity
    if judgement.upstream and judgement.handed_on is None:
        return judgement.course.severity
    if found:
        return found[0].severity
    never = any(finding == "hang" for finding, _ in judgement.not_judged)
    if state == "no-activity":
        return "ok" if never or "hang" in judgement.judged else "unknown"
    return "ok" if sample.failure is None else "unknown"


def began_of(causes: Sequence[Cause], at: Moment) -> Moment:
    """When the first of a worker's warnings began, if that was before the sample that completes it."""
    since = [cause.since_unix_s for cause in causes if cause.finding is not None and cause.severity != "info"]
    earlier_s = at.time_unix_s - min((time for time in since if time is not None), default=at.time_unix_s)
    if earlier_s <= 0:
        return at
    return Moment(at.time_unix_s - earlier_s, None if at.monotonic_s is None else at.monotonic_s - earlier_s)


def verdict_of(history: WorkerHistory, judgement: Judgement, now_unix_s: float) -> Verdict:
    course, now_s, state = judgement.course, history.monotonic_s(), history.state(now_unix_s)
    severity: Severity = "unknown" if state in {"stale", "waiting"} else course.severity
    failure = None if history.last is None else history.last.failure
    causes = judgement.all_causes if state != "stale" or failure is not None else ()
    since = None if course.since is None else course.since.unix_s(now_unix_s, now_s)
    critical = None
    if state == "live" and severity == "critical" and course.critical_since is not None:
        critical = course.critical_since.unix_s(now_unix_s, now_s)
    if judgement.raised and severity in _RAISED_TO:
        raised = judgement.raised[0].severity
        began = min((one.since_unix_s for one in judgement.raised if one.since_unix_s is not None), default=None)
        if _RAISED_TO.index(raised) > _RAISED_TO.index(severity):
            since = began if severity in WELL or since is None else min(since, began or since)
            critical = began if raised == "critical" else None
            severity = raised
    return Verdict(
        state=state,
        severity=severity,
        causes=causes,
        since_unix_s=since,
        critical_since_unix_s=critical,
        excess=causes[0].excess if causes and causes[0].severity != "info" else 0.0,
    )


def resumed(standing: Standing) -> Course:
    """The course of a worker as an exporter knows it."""

    def moment(time_unix_s: float | None) -> Moment | None:
        return None if time_unix_s is None else Moment(time_unix_s)

    return Course(
        state=None if standing.state == "waiting" else standing.state,
        severity=standing.severity,
        mark_since=moment(standing.mark_since_unix_s),
        ok=standing.ok,
        ok_since=moment(standing.ok_since_unix_s),
        critical_since=moment(standing.critical_since_unix_s),
    )
