"""Compares workers with thresholds and with the median of their slice. Pure: the caller passes the time."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import fsum, inf
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from tpumon.figures import COMPARED, HBM, IDLE, INFEED, STEP, Figure
from tpumon.history import NO_FIGURES, Changes, Course, Histories, Moment, Tiers, WorkerHistory
from tpumon.model import Change, Handover, Mark, Sample, Severity, Standing, State, Target, What, Workers
from tpumon.text import one_line

__all__ = ["MOST_HISTORY_BYTES", "Across", "Assessment", "Cause", "Fleet", "Severity", "Thresholds", "Verdict"]

MOST_HISTORY_BYTES = 12_000_000
"""How much history of all workers together is handed on."""

_JUDGE_S = 20.0  # between two assessments of what was recorded, at most
_MOST_NEW = 100  # samples of a worker that wait to be judged
_SAME_TIME_S = 0.001
_OVERLAP_S = 60.0  # the longest that a query may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Limits beyond which a worker is marked. The defaults for infeed are XProf's.

    Attributes:
        infeed_warn_ratio, infeed_critical_ratio: share of a step spent waiting for infeed.
        hbm_warn_ratio, hbm_critical_ratio: HBM used relative to its total, on the fullest device.
        step_warn_ratio, step_critical_ratio: step time relative to the median of the worker's slice.
        idle_below_ratio: how far below the slice's median idle ratio a worker must be to count as the straggler.
        sustained: number of consecutive samples that must agree before step time or idle time marks a worker.
    """

    infeed_warn_ratio: float = 0.05
    infeed_critical_ratio: float = 0.20
    hbm_warn_ratio: float = 0.90
    hbm_critical_ratio: float = 0.97
    step_warn_ratio: float = 1.10
    step_critical_ratio: float = 1.25
    idle_below_ratio: float = 0.10
    sustained: int = 3


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why a worker is marked.

    Attributes:
        words: the reason in a few words, for display.
        figure: key of the figure that exceeds its limit; None for a failed query.
        critical: whether the figure exceeds its critical limit.
        excess: how far the figure exceeds its warning limit, as a fraction of that limit.
    """

    words: str
    figure: str | None = None
    critical: bool = False
    excess: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The assessment of one worker.

    Attributes:
        state: state of the worker.
        severity: that of its worst cause.
        causes: why it is marked, worst first.
        since_unix_s: while it is live and well, since when it is well; while it is in trouble, warning or critical,
            since when; otherwise since when it is in this state. Gaps that say nothing about a worker (another session,
            a pause, a late sample) do not count. None: it was never queried.
        critical_since_unix_s: since when it is critical; None: it is not.
        excess: how far its worst figure exceeds its warning limit, as a fraction of that limit; 0 if none does.
    """

    state: State
    severity: Severity
    causes: tuple[Cause, ...] = ()
    since_unix_s: float | None = None
    critical_since_unix_s: float | None = None
    excess: float = 0.0

    @property
    def mark(self) -> Mark:
        """What the worker counts as: its severity while it is live, otherwise its state."""
        return self.severity if self.state == "live" else self.state

    @property
    def rank(self) -> int:
        """Sort key that puts the worst first; 0 is the worst."""
        return _RANKS[self.mark]


_RANKS = {
    name: rank
    for rank, name in enumerate(
        ("down", "critical", "no-activity", "stale", "warn", "waiting", "busy", "continuous", "paused", "unknown", "ok")
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """One figure over all workers that have it now; `count` is their number.

    Attributes:
        min_worker, max_worker: name of the first worker with the min, and of the first with the max.
    """

    count: int
    min: float
    avg: float
    max: float
    median: float
    min_worker: str
    max_worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """All workers at one moment.

    Attributes:
        verdicts: by worker, in the order of `Workers.targets`.
        figures: by key of `tpumon.figures`; only those that at least one worker has.
        counts: number of workers by severity; those that are not live, by state.
    """

    verdicts: Mapping[str, Verdict]
    figures: Mapping[str, Across]
    counts: Mapping[Mark, int]


class _Query(NamedTuple):
    """A query that is not judged yet: its sample, what is known of it, and whether the job was restarted before it."""

    sample: Sample
    state: State
    figures: Mapping[str, float | None]
    restarted: bool


@dataclass(slots=True)
class _Memory:
    """What is kept of a worker between assessments; `*_for` count consecutive samples."""

    new: deque[_Query] = field(default_factory=lambda: deque(maxlen=_MOST_NEW))
    slow_for: int = 0
    very_slow_for: int = 0
    less_idle_for: int = 0
    judged_unix_s: float = -inf
    known_unix_s: float = -inf
    """Start of the last sample that the exporter had judged when this took over from it."""
    causes: tuple[Cause, ...] = ()
    course: Course = field(default_factory=Course)
    changed_unix_s: float = -inf
    number: int = 0
    """That of the last change of its course."""


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
        self._number = 0
        self._told = False

    def follow(self, workers: Workers) -> None:
        """Replaces the workers; those that stay keep what is known of them."""
        self.histories.follow(workers)
        self._memories = {target.worker: self._memories.get(target.worker) or _Memory() for target in workers.targets}

    def add(self, sample: Sample) -> None:
        """Adds the sample of one query."""
        history = self.histories.add(sample)
        if history is not None:
            query = _Query(sample, history.last_state, history.figures, history.restarted is sample)
            self._memories[sample.worker].new.append(query)

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
        by_slice: dict[str | None, list[_Look]] = {}
        for look in looks:
            by_slice.setdefault(group_of(look.history.target), []).append(look)
        medians = {
            name: _Medians(_median(group, STEP.key), _median(group, IDLE.key)) for name, group in by_slice.items()
        }
        verdicts = {}
        counts: Counter[Mark] = Counter()
        for look in looks:
            target = look.history.target
            self._judge(look, medians[group_of(target)], now_unix_s)
            verdicts[target.worker] = verdict = self._verdict(look, now_unix_s)
            counts[verdict.mark] += 1
        figures = {name: across for name in COMPARED if (across := _across(looks, name)) is not None}
        self._remember_average(figures, now_unix_s)
        return Assessment(verdicts=verdicts, figures=figures, counts=counts)

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
        )

    def take_over(self, handover: Handover) -> None:
        """Takes over what an exporter knows: from now on changes are only those that it notes."""
        self._told = True
        if handover.complete:
            self.changes.replace(handover.changes)
            for worker, packed in handover.history.items():
                self._unpack(worker, packed, handover)
        else:
            for change in handover.changes:
                self.changes.add(change)
        self._number = handover.number
        for standing in handover.standings:
            memory = self._memories.get(standing.worker)
            if memory is not None:
                _resume(memory, standing, complete=handover.complete)
                memory.number = handover.number

    def _unpack(self, worker: str, packed: bytes, handover: Handover) -> None:
        history = self.histories.get(worker)
        known = self.average if worker == "" else None if history is None else history.tiers
        if known is None:
            return
        try:
            tiers = Tiers.unpacked(packed, handover.figures, tuple(COMPARED), shift_s=handover.shift_s)
        except ValueError:  # of another version, or damaged: history then begins here
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
            slow_for=memory.slow_for,
            very_slow_for=memory.very_slow_for,
            less_idle_for=memory.less_idle_for,
            judged_unix_s=None if memory.judged_unix_s == -inf else memory.judged_unix_s,
        )

    def _look(self, history: WorkerHistory, now_unix_s: float) -> _Look:
        sample = history.current(now_unix_s)
        figures = NO_FIGURES if sample is None else history.figures
        return _Look(history, self._memories[history.target.worker], history.state(now_unix_s), sample, figures)

    def _judge(self, look: _Look, medians: _Medians, now_unix_s: float) -> None:
        """Judges the samples that came since the last assessment, one by one, and then the present state."""
        history, memory = look.history, look.memory
        while memory.new:
            sample, state, figures, restarted = memory.new.popleft()
            failure = sample.failure
            severity: Severity = "unknown"
            memory.causes = ()
            if sample.responded:
                if failure is None and sample.time_unix_s > memory.known_unix_s + _SAME_TIME_S:
                    self._count(memory, figures, medians)
                memory.causes = tuple(self._causes(memory, figures, medians))
                severity = "ok" if not memory.causes else "critical" if memory.causes[0].critical else "warn"
            if not sample.of_exporter:
                memory.judged_unix_s = max(memory.judged_unix_s, sample.time_unix_s)
            if failure is not None:
                memory.causes = (*memory.causes, Cause(failure.message))
                severity = "unknown" if severity == "ok" else severity
            at = Moment(sample.time_unix_s, sample.taken_monotonic_s)
            self._note(history, memory, at, sample.time_unix_s, state, severity, restarted=restarted)
        if look.state == "stale" and memory.course.state != "stale" and history.last is not None:
            at = Moment(history.last.time_unix_s, history.last.taken_monotonic_s)
            memory.causes = (Cause("no figures in time"),)
            self._note(history, memory, at, now_unix_s, "stale", "unknown")

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
        if self._told or (what is None and not restarted and course.mark == before):
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
        causes = memory.causes if look.sample is not None or failure is None else (Cause(failure.message),)
        return Verdict(
            state=look.state,
            severity=severity,
            causes=causes if look.state != "stale" or failure is not None else (),
            since_unix_s=None if since is None else since.unix_s(now_unix_s, now_s),
            critical_since_unix_s=None if critical is None else critical.unix_s(now_unix_s, now_s),
            excess=causes[0].excess if causes else 0.0,
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

    def _count(self, memory: _Memory, figures: Mapping[str, float | None], medians: _Medians) -> None:
        """Counts for how many consecutive samples step time and idle time have exceeded their limits."""
        limits, step, idle = self.thresholds, figures[STEP.key], figures[IDLE.key]
        ratio = step / medians.step_s if step is not None and medians.step_s else 0.0
        below_median = medians.idle - idle if idle is not None and medians.idle is not None else 0.0
        memory.slow_for = memory.slow_for + 1 if ratio > limits.step_warn_ratio else 0
        memory.very_slow_for = memory.very_slow_for + 1 if ratio > limits.step_critical_ratio else 0
        memory.less_idle_for = memory.less_idle_for + 1 if below_median > limits.idle_below_ratio else 0

    def _causes(self, memory: _Memory, figures: Mapping[str, float | None], medians: _Medians) -> list[Cause]:
        """The figures that exceed their limits, worst first."""
        limits, median_step_s, median_idle = self.thresholds, medians.step_s, medians.idle
        causes: list[Cause] = []
        step, idle, infeed, hbm = (figures[figure.key] for figure in (STEP, IDLE, INFEED, HBM))
        if step is not None and median_step_s and memory.slow_for >= limits.sustained:
            ratio = step / median_step_s
            critical = memory.very_slow_for >= limits.sustained
            causes.append(
                _cause(STEP, f"step {ratio:.2f}x the median", ratio, limits.step_warn_ratio, critical=critical)
            )
        if idle is not None and median_idle is not None and memory.less_idle_for >= limits.sustained:
            words = f"idle {idle:.0%}, median {median_idle:.0%}: others wait for it"
            causes.append(_cause(IDLE, words, median_idle - idle, limits.idle_below_ratio))
        if infeed is not None and infeed > limits.infeed_warn_ratio:
            critical = infeed > limits.infeed_critical_ratio
            causes.append(_cause(INFEED, f"infeed {infeed:.0%}", infeed, limits.infeed_warn_ratio, critical=critical))
        if hbm is not None and hbm > limits.hbm_warn_ratio:
            critical = hbm > limits.hbm_critical_ratio
            causes.append(_cause(HBM, f"HBM {hbm:.0%} full", hbm, limits.hbm_warn_ratio, critical=critical))
        return sorted(causes, key=lambda cause: (not cause.critical, -cause.excess)) if len(causes) > 1 else causes


def _cause(figure: Figure, words: str, value: float, limit: float, *, critical: bool = False) -> Cause:
    return Cause(words, figure.key, critical, value / limit - 1 if limit else value)


class _Medians(NamedTuple):
    """Step time and idle ratio of the workers of a slice."""

    step_s: float | None
    idle: float | None


def _resume(memory: _Memory, standing: Standing, *, complete: bool) -> None:
    """Goes on from what an exporter knows of a worker."""

    def moment(time_unix_s: float | None) -> Moment | None:
        return None if time_unix_s is None else Moment(time_unix_s)

    memory.course = Course(
        state=None if standing.state == "waiting" else standing.state,
        severity=standing.severity,
        mark_since=moment(standing.mark_since_unix_s),
        ok=standing.ok,
        ok_since=moment(standing.ok_since_unix_s),
        critical_since=moment(standing.critical_since_unix_s),
    )
    if complete:
        memory.slow_for, memory.very_slow_for = standing.slow_for, standing.very_slow_for
        memory.less_idle_for = standing.less_idle_for
        memory.known_unix_s = -inf if standing.judged_unix_s is None else standing.judged_unix_s


class _Look(NamedTuple):
    """One worker at the moment of an assessment."""

    history: WorkerHistory
    memory: _Memory
    state: State
    sample: Sample | None
    figures: Mapping[str, float | None]


def group_of(target: Target) -> str | None:
    """The group a worker is compared with: its slice, or all workers without one; an independent worker is alone."""
    return f"\0{target.worker}" if target.independent else target.slice


def _values(looks: list[_Look], name: str) -> list[float]:
    return [value for look in looks if (value := look.figures[name]) is not None]


def _median(looks: list[_Look], name: str) -> float | None:
    values = _values(looks, name)
    return median(values) if values else None


def _across(looks: list[_Look], name: str) -> Across | None:
    found = [(value, look.history.target.worker) for look in looks if (value := look.figures[name]) is not None]
    if not found:
        return None
    values = sorted(value for value, _ in found)
    return Across(
        count=len(values),
        min=values[0],
        avg=fsum(value / len(values) for value in values),  # of the sum, the largest floats would overflow
        max=values[-1],
        median=median(values),
        min_worker=min(found, key=itemgetter(0))[1],
        max_worker=max(found, key=itemgetter(0))[1],
    )
