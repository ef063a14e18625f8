"""Compares workers with thresholds and with the median of their slice. Pure: the caller passes the time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from tpumon.assessment import Across, Assessment, Verdict, across_of
from tpumon.figures import COMPARED
from tpumon.findings import Judge, Seen, Thresholds, group_of
from tpumon.history import NO_FIGURES, Changes, Course, Histories, Moment, Tiers, WorkerHistory
from tpumon.model import (
    Cause,
    Change,
    Finding,
    FindingId,
    Grade,
    Handover,
    NotJudged,
    Sample,
    Severity,
    Standing,
    State,
    Target,
    What,
    Workers,
)
from tpumon.text import one_line

__all__ = ["MOST_HISTORY_BYTES", "Fleet", "Thresholds", "group_of", "last_query"]

MOST_HISTORY_BYTES = 12_000_000
"""How much history of all workers together is handed on."""

_JUDGE_S = 20.0  # between two assessments of what was recorded, at most
_MOST_NEW = 100  # samples of a worker that wait to be judged
_SAME_TIME_S = 0.001
_OVERLAP_S = 60.0  # the longest that a query may take


@dataclass(slots=True)
class Query:
    """A query that is not judged yet: its sample, the state after it, its figures, and whether it shows a restart."""

    sample: Sample
    state: State
    figures: Mapping[str, float | None]
    restarted: bool

    def seen(self, target: Target) -> Seen:
        """What it showed of its worker."""
        return Seen(target=target, sample=self.sample, state=self.state, values=self.figures, restarted=self.restarted)


@dataclass(slots=True)
class _Memory:
    """What is kept of a worker between assessments.

    Attributes:
        new: queries that are not judged yet.
        causes: why it is marked.
        is_told: whether its samples come with findings, so that it is not judged here.
        told: the findings that came last; None: none came yet. Of several samples only the last comes with them.
        changed_unix_s, number: time and number of the last change of its course.
    """

    new: list[Query] = field(default_factory=list)
    causes: tuple[Cause, ...] = ()
    is_told: bool = False
    told: tuple[Cause, ...] | None = None
    course: Course = field(default_factory=Course)
    changed_unix_s: float = -inf
    number: int = 0


class Fleet:
    """The histories of all workers, their assessment, and the changes of it.

    Args:
        thresholds: limits beyond which a worker is marked.
        remember: whether to keep the figures of a week.
        monotonic_s: reads the monotonic clock of `Sample.taken_monotonic_s`.

    Attributes:
        histories: the history of each worker.
        changes: what changed, as far as `assess` was called.
        average: the average of each figure over all workers, over time; None if it is not remembered.
    """

    def __init__(
        self,
        thresholds: Thresholds | None = None,
        *,
        remember: bool = False,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.thresholds = thresholds or Thresholds()
        self.histories = Histories(remember=remember, monotonic_s=monotonic_s)
        self.changes = Changes()
        self.average = Tiers(tuple(COMPARED)) if remember else None
        self._monotonic_s = monotonic_s
        self._average_unix_s = -inf
        self._average_known = False
        self._memories: dict[str, _Memory] = {}
        self._judge = Judge(self.thresholds)
        self._number = 0
        self._told: Handover | None = None

    def follow(self, workers: Workers) -> None:
        """Replaces the workers; those that stay keep what is known of them."""
        self.histories.follow(workers)
        self._judge.follow(workers.targets)
        self._memories = {target.worker: self._memories.get(target.worker) or _Memory() for target in workers.targets}

    def add(self, sample: Sample) -> None:
        """Adds the sample of one query."""
        history = self.histories.add(sample)
        if history is not None:
            new = self._memories[sample.worker].new
            new.append(last_query(history, sample))
            del new[:-_MOST_NEW]

    def take(self, event: Workers | Sample | Handover) -> None:
        """Follows workers, adds a sample, or takes over what an exporter knows."""
        if isinstance(event, Workers):
            self.follow(event)
        elif isinstance(event, Sample):
            self.add(event)
        else:
            self.take_over(event)

    def is_due(self, event: Workers | Sample, after_s: float) -> bool:
        """Whether who reads old events faster than they came is to call `assess` before this one.

        It is if the sample's worker has another one that is not judged yet: that one would be compared with medians of
        later samples. It is, too, if the last assessment is some time ago: a worker may have become stale.

        Args:
            event: what was recorded next.
            after_s: how long after the last assessment.
        """
        memory = self._memories.get(event.worker) if isinstance(event, Sample) else None
        return after_s > _JUDGE_S or (memory is not None and bool(memory.new))

    def assess(self, now_unix_s: float) -> Assessment:
        """Assesses every worker, and notes what changed.

        Call it once per batch of samples, not for each one: it visits all workers.
        """
        looks = [self._look(history, now_unix_s) for history in self.histories.all()]
        self._judge_new(looks, now_unix_s)
        verdicts = {look.history.target.worker: self._verdict(look, now_unix_s) for look in looks}
        counts = Counter(verdict.mark for verdict in verdicts.values())
        figures = {name: across for name in COMPARED if (across := across_of(_known(looks, name))) is not None}
        self._remember_average(figures, now_unix_s)
        return Assessment(verdicts=verdicts, figures=figures, counts=counts)

    @property
    def is_told(self) -> bool:
        """Whether an exporter says what is wrong, so that nothing is judged here."""
        return self._told is not None and self._told.findings is not None

    def findings(self, now_unix_s: float) -> tuple[Finding, ...]:
        """What is wrong, by slice, the worst first. Call `assess` first."""
        there = self._there(now_unix_s)
        if self._told is not None and self._told.findings is not None:
            return self._told.findings if _any(there) else ()  # without the exporter, nothing is known
        return self._judge.findings(there)

    def not_judged(self, now_unix_s: float, worker: str | None = None) -> tuple[NotJudged, ...]:
        """What cannot be judged of all workers, or of one, and why. Call `assess` first."""
        there = self._there(now_unix_s, worker)
        if self._told is None or self._told.findings is None:
            return self._judge.not_judged(there)
        if not _any(there):
            return ()
        if worker is None:
            return self._told.not_judged
        missing = (one for one in self._told.not_judged if one.finding not in self.judged(worker))
        return tuple(
            one if one.workers == 1 else replace(one, reason=f"for most workers: {one.reason}") for one in missing
        )

    def with_findings(self, sample: Sample) -> Sample:
        """The last sample of a worker with the findings that it has; any other one as it is. Call `assess` first."""
        history = self.histories.get(sample.worker)
        if (
            history is None
            or history.last is None
            or history.last.time_unix_s != sample.time_unix_s
            or sample.findings is not None
            or sample.of_exporter
        ):
            return sample
        return replace(sample, findings=self._judge.causes(sample.worker), judged=tuple(self.judged(sample.worker)))

    def judged(self, worker: str) -> Mapping[FindingId, Cause | None]:
        """Each finding that can be judged of a worker, with its cause while it is shown. Call `assess` first."""
        memory, history = self._memories.get(worker), self.histories.get(worker)
        if memory is None or history is None:
            return {}
        shown = {cause.finding: cause for cause in memory.causes}
        told = None if history.last is None else history.last.judged
        judged = (told or ()) if memory.is_told else self._judge.judged(worker)
        return {finding: shown.get(finding) for finding in judged}

    def needs_more(self, worker: str) -> bool:
        """Whether one or two more samples of a worker would tell more of it. Call `assess` first."""
        memory = self._memories.get(worker)
        return memory is not None and not memory.is_told and self._judge.needs_more(worker)

    def _there(self, now_unix_s: float, worker: str | None = None) -> Iterator[str]:
        """The workers, or this one, that have current figures, or whose figures somebody keeps away."""
        known = None if worker is None else self.histories.get(worker)
        for history in self.histories.all() if worker is None else filter(None, (known,)):
            if history.state(now_unix_s) not in {"down", "stale", "waiting"}:
                yield history.target.worker

    def handover(
        self, now_unix_s: float, *, after: int | None = None, most_bytes: int = MOST_HISTORY_BYTES
    ) -> Handover:
        """What to hand on to a reader, so that it knows what is known here. Call `assess` first.

        Args:
            now_unix_s: the time.
            after: number of the last change that the reader knows; None: it knows nothing.
            most_bytes: the most that the history of all workers may take; what is older is left out first.
        """
        if after is not None and after > self._number:  # the exporter behind --from was restarted
            after = None
        known = 0 if after is None else after
        standings = tuple(
            self._standing(history, self._memories[history.target.worker], now_unix_s)
            for history in self.histories.all()
            if after is None or self._memories[history.target.worker].number > known
        )
        tiers: dict[str, Tiers | None] = {}
        if after is None:
            tiers = {"": self.average, **{history.target.worker: history.tiers for history in self.histories.all()}}
        most_each = most_bytes // max(len(tiers), 1)
        return Handover(
            complete=after is None,
            number=self._number,
            standings=standings,
            changes=tuple(self.changes.all(after=known)),
            history={worker: each.packed(most_each) for worker, each in tiers.items() if each is not None},
            figures=tuple(COMPARED),
            findings=self.findings(now_unix_s),
            not_judged=self.not_judged(now_unix_s),
        )

    def take_over(self, handover: Handover) -> None:
        """Takes over what an exporter knows: from now on changes are only those that it notes."""
        self._told = handover
        if handover.complete:
            self.changes.replace(handover.changes)
        else:
            for change in handover.changes:
                self.changes.add(change)
        for worker, packed in handover.history.items():
            self._unpack(worker, packed, handover)
        self._number = handover.number
        for standing in handover.standings:
            memory = self._memories.get(standing.worker)
            if memory is not None:
                memory.course = _resumed(standing)
                memory.is_told = memory.is_told or self.is_told
                memory.number = handover.number

    def _unpack(self, worker: str, packed: bytes, handover: Handover) -> None:
        """Takes a history that goes further back than what is known here."""
        history = self.histories.get(worker)
        known = self.average if worker == "" else None if history is None else history.tiers
        if known is None:
            return
        try:
            tiers = Tiers.unpacked(packed, handover.figures, tuple(COMPARED), shift_s=handover.shift_s)
        except ValueError:  # of another version, or damaged: history then begins here
            return
        ours_unix_s, theirs_unix_s = known.oldest_unix_s, tiers.oldest_unix_s
        if ours_unix_s is not None and (theirs_unix_s is None or ours_unix_s < theirs_unix_s):
            return
        if history is None:
            self.average = tiers
        else:
            history.tiers = tiers

    def _standing(self, history: WorkerHistory, memory: _Memory, now_unix_s: float) -> Standing:
        course, now_s = memory.course, history.monotonic_s()

        def time_of(moment: Moment | None) -> float | None:
            return None if moment is None else moment.unix_s(now_unix_s, now_s)

        return Standing(
            worker=history.target.worker,
            state=course.state or "waiting",
            severity=course.severity,
            mark_since_unix_s=time_of(course.mark_since),
            ok=course.ok,
            ok_since_unix_s=time_of(course.ok_since),
            critical_since_unix_s=time_of(course.critical_since),
        )

    def _look(self, history: WorkerHistory, now_unix_s: float) -> _Look:
        sample = history.current(now_unix_s)
        figures = NO_FIGURES if sample is None else history.figures
        return _Look(history, self._memories[history.target.worker], history.state(now_unix_s), sample, figures)

    def _judge_new(self, looks: Sequence[_Look], now_unix_s: float) -> None:
        """Judges the queries since the last assessment in rounds, one of each worker; then who became stale."""
        stale = {look.history.target.worker for look in looks if look.state == "stale"}
        waiting = [look for look in looks if look.memory.new]
        while waiting:
            batch = [(look, look.memory.new.pop(0)) for look in waiting]
            seen = []
            for look, query in batch:
                look.memory.is_told = look.memory.is_told or query.sample.findings is not None
                if not look.memory.is_told:
                    seen.append(query.seen(look.history.target))
            others = self._judge.judge(seen, stale)
            for look, query in batch:
                self._take(look, query)
            for look in looks if others else ():
                if look.history.target.worker in others and look.state != "stale" and not look.memory.new:
                    self._explain_anew(look, _began(batch[-1][1].sample))
            waiting = [look for look in waiting if look.memory.new]
        for look in looks:
            last, memory = look.history.last, look.memory
            if look.state == "stale" and memory.course.state != "stale" and last is not None:
                memory.causes = (Cause(words="no figures in time"),)
                self._note(look.history, memory, _began(last), now_unix_s, "stale", "unknown")

    def _take(self, look: _Look, query: Query) -> None:
        """Notes what a query says, once it is judged."""
        memory, sample = look.memory, query.sample
        if sample.findings is not None:
            memory.told = sample.findings
        if not memory.is_told:
            memory.causes = self._judge.causes(sample.worker)
        else:
            memory.causes = () if sample.of_exporter else memory.told or ()
        severity = _add_failure(memory, sample)
        at = _began(sample)
        self._note(look.history, memory, at, at.time_unix_s, query.state, severity, restarted=query.restarted)

    def _explain_anew(self, look: _Look, at: Moment) -> None:
        """Notes that a sample of another worker explains what this one has, or no longer does."""
        memory, last = look.memory, look.history.last
        if memory.is_told or last is None:
            return
        memory.causes = self._judge.causes(last.worker)
        severity = _add_failure(memory, last)
        self._note(look.history, memory, at, at.time_unix_s, memory.course.state or look.state, severity)

    def _note(
        self,
        history: WorkerHistory,
        memory: _Memory,
        at: Moment,
        time_unix_s: float,
        state: State,
        severity: Severity,
        *,
        restarted: bool = False,
    ) -> None:
        """Notes what a worker counts as, and remembers the change."""
        course = memory.course
        before, since = course.mark, course.mark_since
        what = course.note(at, state, severity, restarted=restarted)
        if self._told is not None or (what is None and not restarted and course.mark == before):
            return
        words = "; ".join(cause.words for cause in memory.causes)
        if what == "capture-ended" and since is not None:
            words = f"after about {max(at.time_unix_s - since.time_unix_s, 0.0):.0f} s"
        changes: list[tuple[What, str]] = [("restart", "its job was restarted")] if restarted else []
        changes += [] if what is None else [(what, words)]
        # A query that began before the last change may end after it.
        memory.changed_unix_s = max(time_unix_s, min(memory.changed_unix_s, time_unix_s + _OVERLAP_S))
        for kind, why in changes:
            self._number += 1
            change = Change(
                number=self._number,
                time_unix_s=memory.changed_unix_s,
                worker=history.target.worker,
                what=kind,
                state=state,
                severity=severity,
                before=before,
                words=one_line(why),
            )
            self.changes.add(change)
        self._number += not changes
        memory.number = self._number

    def _verdict(self, look: _Look, now_unix_s: float) -> Verdict:
        history, memory = look.history, look.memory
        course, now_s = memory.course, history.monotonic_s()
        severity = course.severity if look.sample is not None else "unknown"
        since = course.since
        critical = course.critical_since if look.state == "live" and severity == "critical" else None
        failure = None if history.last is None else history.last.failure
        causes = memory.causes if look.state != "stale" or failure is not None else ()
        return Verdict(
            state=look.state,
            severity=severity,
            causes=causes,
            since_unix_s=None if since is None else since.unix_s(now_unix_s, now_s),
            critical_since_unix_s=None if critical is None else critical.unix_s(now_unix_s, now_s),
            excess=causes[0].excess if causes and causes[0].severity != "info" else 0.0,
        )

    def _remember_average(self, figures: Mapping[str, Across], now_unix_s: float) -> None:
        """Adds the averages over all workers, once per interval; a time without any figures is a single gap."""
        if self.average is None or not (figures or self._average_known):
            return
        lasts = [history.last for history in self.histories.all() if history.last is not None]
        intervals_s = [last.interval_s for last in lasts if last.interval_s is not None]
        if 0 <= now_unix_s - self._average_unix_s < 0.9 * min(intervals_s, default=1.0):
            return
        self._average_unix_s, self._average_known = now_unix_s, bool(figures)
        averages = [figures[key].avg if key in figures else None for key in COMPARED]
        is_live = any(last.taken_monotonic_s is not None for last in lasts)  # a recording's time is another one
        taken_monotonic_s = self._monotonic_s() if is_live else None
        self.average.add(now_unix_s, "live" if figures else "waiting", averages, taken_monotonic_s=taken_monotonic_s)


def _any(workers: Iterator[str]) -> bool:
    return next(workers, None) is not None


_SEVERITY: Mapping[Grade, Severity] = {"info": "ok", "warning": "warn", "critical": "critical"}


def _add_failure(memory: _Memory, sample: Sample) -> Severity:
    """Adds to a worker's causes why its query failed, if it did; returns the severity of its sample."""
    severity: Severity = "unknown"
    if sample.responded and memory.is_told and memory.told is None:
        severity = memory.course.severity
    elif sample.responded:
        severity = _SEVERITY[memory.causes[0].severity] if memory.causes else "ok"
    if sample.failure is not None:
        memory.causes = (*memory.causes, Cause(words=sample.failure.message))
        severity = "unknown" if severity == "ok" else severity
    return severity


def _began(sample: Sample) -> Moment:
    return Moment(sample.time_unix_s, sample.taken_monotonic_s)


def last_query(history: WorkerHistory, sample: Sample) -> Query:
    """The query whose sample was just added to its worker's history."""
    return Query(sample, history.last_state, history.figures, history.restarted is sample)


def _resumed(standing: Standing) -> Course:
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


class _Look(NamedTuple):
    """One worker at the moment of an assessment."""

    history: WorkerHistory
    memory: _Memory
    state: State
    sample: Sample | None
    figures: Mapping[str, float | None]


def _known(looks: Sequence[_Look], name: str) -> list[tuple[float, str]]:
    """A figure of each worker that has it."""
    return [(value, look.history.target.worker) for look in looks if (value := look.figures[name]) is not None]
