"""Compares workers with thresholds and with the median of their slice. Pure: the caller passes the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum
from statistics import median
from typing import Literal

from tpumon.figures import COMPARED, HBM, IDLE, INFEED, STEP, Figure, values
from tpumon.history import Histories, State, WorkerHistory
from tpumon.model import Sample, Target, Workers

Severity = Literal["ok", "warn", "critical", "unknown"]
"""unknown: there is no current sample to judge, or only one without figures of the worker's profiler."""


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
        since_unix_s: when state or severity last changed.
        excess: how far its worst figure exceeds its warning limit, as a fraction of that limit; 0 if none does.
    """

    state: State
    severity: Severity
    causes: tuple[Cause, ...] = ()
    since_unix_s: float | None = None
    excess: float = 0.0

    @property
    def rank(self) -> int:
        """Sort key that puts the worst first; 0 is the worst."""
        return _RANKS[self.state if self.state != "live" else self.severity]


_RANKS = {
    name: rank
    for rank, name in enumerate(
        ("down", "critical", "stale", "warn", "waiting", "busy", "continuous", "paused", "unknown", "ok")
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """One figure over all workers that have it now; `count` is their number."""

    count: int
    min: float
    avg: float
    max: float
    median: float


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
    counts: Mapping[Severity | State, int]


@dataclass(slots=True)
class _Memory:
    """State of a worker that is kept between assessments; `*_for` count consecutive samples."""

    judged: Sample | None = None
    read: Sample | None = None
    figures: Mapping[str, float | None] = field(default_factory=lambda: _NONE)
    slow_for: int = 0
    very_slow_for: int = 0
    less_idle_for: int = 0
    severity: Severity | None = None
    state: State | None = None
    since_unix_s: float | None = None


@dataclass(slots=True)
class Fleet:
    """The histories of all workers, and their assessment.

    Attributes:
        thresholds: limits beyond which a worker is marked.
        histories: the history of each worker.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    histories: Histories = field(default_factory=Histories)
    _memories: dict[str, _Memory] = field(default_factory=dict)

    def follow(self, workers: Workers) -> None:
        """Replaces the workers; those that stay keep what is known of them."""
        self.histories.follow(workers)
        self._memories = {target.worker: self._memories.get(target.worker) or _Memory() for target in workers.targets}

    def add(self, sample: Sample) -> None:
        """Adds the sample of one query."""
        self.histories.add(sample)

    def assess(self, now_unix_s: float) -> Assessment:
        """Assesses every worker. Call it once per batch of samples, not for each one: it visits all workers."""
        looks = [self._look(history, now_unix_s) for history in self.histories.all()]
        by_slice: dict[str | None, list[_Look]] = {}
        for look in looks:
            by_slice.setdefault(_group(look.history.target), []).append(look)
        medians = {
            name: (_median(of_slice, STEP.key), _median(of_slice, IDLE.key)) for name, of_slice in by_slice.items()
        }
        verdicts = {}
        counts: Counter[Severity | State] = Counter()
        for look in looks:
            target = look.history.target
            verdicts[target.worker] = verdict = self._judge(look, *medians[_group(target)], now_unix_s)
            counts[verdict.severity if verdict.state == "live" else verdict.state] += 1
        figures = {name: across for name in COMPARED if (across := _across(looks, name)) is not None}
        return Assessment(verdicts=verdicts, figures=figures, counts=counts)

    def compared(self) -> frozenset[str]:
        """The workers that are compared: those with a step or idle time, if another one of their slice has it."""
        here = [
            history.target
            for history in self.histories.all()
            if history.last is not None
            and any(figure.value(history.last.figures) is not None for figure in (STEP, IDLE))
        ]
        sizes = Counter(map(_group, here))
        return frozenset(target.worker for target in here if sizes[_group(target)] > 1)

    def unjudged(self, assessment: Assessment) -> frozenset[str]:
        """The workers that seem ok, but have too few samples to be compared with the others of their slice."""
        compared = self.compared()
        return frozenset(
            history.target.worker
            for history in self.histories.all()
            if history.target.worker in compared
            and assessment.verdicts[history.target.worker].rank == _RANKS["ok"]
            and history.samples < self.thresholds.sustained
        )

    def _look(self, history: WorkerHistory, now_unix_s: float) -> _Look:
        memory, sample = self._memories[history.target.worker], history.current(now_unix_s)
        if sample is not memory.read:
            memory.read = sample
            memory.figures = _NONE if sample is None else values(sample.figures)
        return _Look(history, history.state(now_unix_s), sample, memory.figures)

    def _judge(self, look: _Look, median_step_s: float | None, median_idle: float | None, now_unix_s: float) -> Verdict:
        history = look.history
        memory = self._memories[history.target.worker]
        severity: Severity = "unknown"
        exceeded: list[Cause] = []
        if look.sample is not None:
            self._count(memory, look, median_step_s, median_idle)
            exceeded = self._causes(memory, look.figures, median_step_s, median_idle)
            severity = "ok" if not exceeded else "critical" if exceeded[0].critical else "warn"
        causes = list(exceeded)
        if history.last is not None and history.last.failure is not None:
            causes.append(Cause(history.last.failure.message))
            severity = "unknown" if severity == "ok" else severity
        if (look.state, severity) != (memory.state, memory.severity):
            memory.state, memory.severity = look.state, severity
            memory.since_unix_s = history.last.time_unix_s if history.last is not None else now_unix_s
        return Verdict(
            state=look.state,
            severity=severity,
            causes=tuple(causes),
            since_unix_s=memory.since_unix_s,
            excess=exceeded[0].excess if exceeded else 0.0,
        )

    def _count(self, memory: _Memory, look: _Look, median_step_s: float | None, median_idle: float | None) -> None:
        """Counts for how many consecutive samples step time and idle time have exceeded their limits."""
        if memory.judged is look.sample:
            return
        memory.judged = look.sample
        limits, step, idle = self.thresholds, look.figures[STEP.key], look.figures[IDLE.key]
        ratio = step / median_step_s if step is not None and median_step_s else 0.0
        below_median = median_idle - idle if idle is not None and median_idle is not None else 0.0
        memory.slow_for = memory.slow_for + 1 if ratio > limits.step_warn_ratio else 0
        memory.very_slow_for = memory.very_slow_for + 1 if ratio > limits.step_critical_ratio else 0
        memory.less_idle_for = memory.less_idle_for + 1 if below_median > limits.idle_below_ratio else 0

    def _causes(
        self,
        memory: _Memory,
        figures: Mapping[str, float | None],
        median_step_s: float | None,
        median_idle: float | None,
    ) -> list[Cause]:
        """The figures that exceed their limits, worst first."""
        limits = self.thresholds
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
        return sorted(causes, key=lambda cause: (not cause.critical, -cause.excess))


def _cause(figure: Figure, words: str, value: float, limit: float, *, critical: bool = False) -> Cause:
    return Cause(words, figure.key, critical, value / limit - 1 if limit else value)


_NONE: Mapping[str, float | None] = dict.fromkeys(COMPARED)


@dataclass(frozen=True, slots=True)
class _Look:
    """One worker at the moment of an assessment."""

    history: WorkerHistory
    state: State
    sample: Sample | None
    figures: Mapping[str, float | None]


def _group(target: Target) -> str | None:
    """The group a worker is compared with: its slice, or all workers without one; an independent worker is alone."""
    return f"\0{target.worker}" if target.independent else target.slice


def _values(looks: list[_Look], name: str) -> list[float]:
    return [value for look in looks if (value := look.figures[name]) is not None]


def _median(looks: list[_Look], name: str) -> float | None:
    values = _values(looks, name)
    return median(values) if values else None


def _across(looks: list[_Look], name: str) -> Across | None:
    values = sorted(_values(looks, name))
    if not values:
        return None
    avg = fsum(value / len(values) for value in values)  # of the sum, the largest floats would overflow
    return Across(count=len(values), min=values[0], avg=avg, max=values[-1], median=median(values))
