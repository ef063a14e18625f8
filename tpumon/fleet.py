"""What stands out among workers: by thresholds, and against the others of its slice. Pure, no clock."""

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
"""unknown: there is no present sample, or none with figures of the worker's profiler, to judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From when on a figure stands out. XProf's for infeed.

    Attributes:
        infeed_warn_ratio, infeed_critical_ratio: share of a step spent waiting for input.
        hbm_warn_ratio, hbm_critical_ratio: used of total HBM, of the fullest device.
        step_warn_ratio, step_critical_ratio: step time against the median of the worker's slice.
        idle_apart_ratio: how much less than the median of its slice a worker idles to be the one that others wait for.
        sustained: present samples in a row that must agree before step or idle time counts.
    """

    infeed_warn_ratio: float = 0.05
    infeed_critical_ratio: float = 0.20
    hbm_warn_ratio: float = 0.90
    hbm_critical_ratio: float = 0.97
    step_warn_ratio: float = 1.10
    step_critical_ratio: float = 1.25
    idle_apart_ratio: float = 0.10
    sustained: int = 3


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a worker stands out.

    Attributes:
        words: a few words for people.
        figure: key of the figure that it is about; None for a failure.
        critical: whether the figure is beyond its second threshold.
        excess: how far the figure is above its first threshold, as a share of it.
    """

    words: str
    figure: str | None = None
    critical: bool = False
    excess: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to think of one worker.

    Attributes:
        state: whether there is something to judge.
        severity: the worst of its causes.
        causes: what stands out, worst first.
        since_unix_s: when it began to be so: state and severity.
        excess: how far the worst figure is above its first threshold, as a share of it; 0 where none is.
    """

    state: State
    severity: Severity
    causes: tuple[Cause, ...] = ()
    since_unix_s: float | None = None
    excess: float = 0.0

    @property
    def rank(self) -> int:
        """Order of worst first: 0 is the worst."""
        return _RANKS[self.state if self.state != "live" else self.severity]


_RANKS = {
    name: rank
    for rank, name in enumerate(("down", "critical", "stale", "warn", "waiting", "busy", "paused", "unknown", "ok"))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """One figure across the workers that have it now."""

    count: int
    min: float
    avg: float
    max: float
    median: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """A fleet at one moment.

    Attributes:
        verdicts: by worker, in the order in which they were found.
        figures: by key of `tpumon.figures`; only those that some worker has.
        counts: workers by severity, and those without a present sample by state.
    """

    verdicts: Mapping[str, Verdict]
    figures: Mapping[str, Across]
    counts: Mapping[Severity | State, int]


@dataclass(slots=True)
class _Memory:
    """What is remembered of a worker between assessments."""

    judged: Sample | None = None
    read: Sample | None = None
    figures: Mapping[str, float | None] = field(default_factory=lambda: _NONE)
    slow_for: int = 0
    very_slow_for: int = 0
    idle_apart_for: int = 0
    severity: Severity | None = None
    state: State | None = None
    since_unix_s: float | None = None


@dataclass(slots=True)
class Fleet:
    """Histories of all workers, and what stands out among them.

    Attributes:
        thresholds: from when on.
        histories: the workers.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    histories: Histories = field(default_factory=Histories)
    _memories: dict[str, _Memory] = field(default_factory=dict)

    def follow(self, found: Workers) -> None:
        """From now on these are the workers."""
        self.histories.follow(found)
        self._memories = {target.worker: self._memories.get(target.worker) or _Memory() for target in found.targets}

    def add(self, sample: Sample) -> None:
        """Notes one query's sample."""
        self.histories.add(sample)

    def assess(self, now_unix_s: float) -> Assessment:
        """Judges every worker; to be called once for what came together, not for each sample."""
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
        found: list[Cause] = []
        if look.sample is not None:
            self._count(memory, look, median_step_s, median_idle)
            found = self._causes(memory, look.figures, median_step_s, median_idle)
            severity = "ok" if not found else "critical" if found[0].critical else "warn"
        causes = list(found)
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
            excess=found[0].excess if found else 0.0,
        )

    def _count(self, memory: _Memory, look: _Look, median_step_s: float | None, median_idle: float | None) -> None:
        """For how many samples in a row step and idle time have stood out."""
        if memory.judged is look.sample:
            return
        memory.judged = look.sample
        limits, step, idle = self.thresholds, look.figures[STEP.key], look.figures[IDLE.key]
        ratio = step / median_step_s if step is not None and median_step_s else 0.0
        apart = median_idle - idle if idle is not None and median_idle is not None else 0.0
        memory.slow_for = memory.slow_for + 1 if ratio > limits.step_warn_ratio else 0
        memory.very_slow_for = memory.very_slow_for + 1 if ratio > limits.step_critical_ratio else 0
        memory.idle_apart_for = memory.idle_apart_for + 1 if apart > limits.idle_apart_ratio else 0

    def _causes(
        self,
        memory: _Memory,
        figures: Mapping[str, float | None],
        median_step_s: float | None,
        median_idle: float | None,
    ) -> list[Cause]:
        """What stands out, worst first."""
        limits = self.thresholds
        found: list[Cause] = []
        step, idle, infeed, hbm = (figures[figure.key] for figure in (STEP, IDLE, INFEED, HBM))
        if step is not None and median_step_s and memory.slow_for >= limits.sustained:
            ratio = step / median_step_s
            critical = memory.very_slow_for >= limits.sustained
            found.append(
                _cause(STEP, f"step {ratio:.2f}x the median", ratio, limits.step_warn_ratio, critical=critical)
            )
        if idle is not None and median_idle is not None and memory.idle_apart_for >= limits.sustained:
            words = f"idle {idle:.0%}, median {median_idle:.0%}: others wait for it"
            found.append(_cause(IDLE, words, median_idle - idle, limits.idle_apart_ratio))
        if infeed is not None and infeed > limits.infeed_warn_ratio:
            critical = infeed > limits.infeed_critical_ratio
            found.append(_cause(INFEED, f"infeed {infeed:.0%}", infeed, limits.infeed_warn_ratio, critical=critical))
        if hbm is not None and hbm > limits.hbm_warn_ratio:
            critical = hbm > limits.hbm_critical_ratio
            found.append(_cause(HBM, f"HBM {hbm:.0%} full", hbm, limits.hbm_warn_ratio, critical=critical))
        return sorted(found, key=lambda cause: (not cause.critical, -cause.excess))


def _cause(figure: Figure, words: str, value: float, limit: float, *, critical: bool = False) -> Cause:
    return Cause(words, figure.key, critical, value / limit - 1 if limit else value)


_NONE: Mapping[str, float | None] = dict.fromkeys(COMPARED)


@dataclass(frozen=True, slots=True)
class _Look:
    """One worker at one moment."""

    history: WorkerHistory
    state: State
    sample: Sample | None
    figures: Mapping[str, float | None]


def _group(target: Target) -> str | None:
    """Whom a worker is compared with: its slice; without one, those that somebody named together with it."""
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
    avg = fsum(values) / len(values)
    return Across(count=len(values), min=values[0], avg=avg, max=values[-1], median=median(values))
