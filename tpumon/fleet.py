"""What stands out among workers: by thresholds, and against the others of its slice. Pure, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import fsum
from statistics import median
from typing import Literal

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to think of one worker.

    Attributes:
        state: whether there is something to judge.
        severity: the worst of its causes.
        causes: what stands out, worst first, a few words each.
        since_unix_s: when it began to be so: state and severity.
        excess: how far the worst figure is above its first threshold, as a share of it; 0 where none is.
    """

    state: State
    severity: Severity
    causes: tuple[str, ...] = ()
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
        figures: by name: `mxu`, `idle`, `infeed`, `hbm` (ratios), `step` (seconds); only those that somebody has.
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
        usual = {name: (_median(of_slice, "step"), _median(of_slice, "idle")) for name, of_slice in by_slice.items()}
        verdicts = {}
        counts: Counter[Severity | State] = Counter()
        for look in looks:
            target = look.history.target
            verdicts[target.worker] = verdict = self._judge(look, *usual[_group(target)], now_unix_s)
            counts[verdict.severity if verdict.state == "live" else verdict.state] += 1
        figures = {name: across for name in FIGURES if (across := _across(looks, name)) is not None}
        return Assessment(verdicts=verdicts, figures=figures, counts=counts)

    def _look(self, history: WorkerHistory, now_unix_s: float) -> _Look:
        memory, sample = self._memories[history.target.worker], history.current(now_unix_s)
        if sample is not memory.read:
            memory.read = sample
            memory.figures = _NONE if sample is None else {name: get(sample) for name, get in FIGURES.items()}
        return _Look(history, history.state(now_unix_s), sample, memory.figures)

    def _judge(self, look: _Look, median_step_s: float | None, median_idle: float | None, now_unix_s: float) -> Verdict:
        history = look.history
        memory = self._memories[history.target.worker]
        severity: Severity = "unknown"
        found: list[_Cause] = []
        if look.sample is not None:
            self._count(memory, look, median_step_s, median_idle)
            found = self._causes(memory, look.figures, median_step_s, median_idle)
            severity = "ok" if not found else "critical" if found[0].critical else "warn"
        causes = [cause.words for cause in found]
        if history.last is not None and history.last.failure is not None:
            causes.append(history.last.failure.message)
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
        limits, step, idle = self.thresholds, look.figures["step"], look.figures["idle"]
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
    ) -> list[_Cause]:
        """What stands out, worst first."""
        limits = self.thresholds
        found: list[_Cause] = []
        step, idle, infeed, hbm = (figures[name] for name in ("step", "idle", "infeed", "hbm"))
        if step is not None and median_step_s and memory.slow_for >= limits.sustained:
            ratio = step / median_step_s
            critical = memory.very_slow_for >= limits.sustained
            found.append(_Cause.of(f"step {ratio:.2f}x the median", ratio, limits.step_warn_ratio, critical=critical))
        if idle is not None and median_idle is not None and memory.idle_apart_for >= limits.sustained:
            words = f"idle {idle:.0%}, median {median_idle:.0%}: others wait for it"
            found.append(_Cause.of(words, median_idle - idle, limits.idle_apart_ratio))
        if infeed is not None and infeed > limits.infeed_warn_ratio:
            critical = infeed > limits.infeed_critical_ratio
            found.append(_Cause.of(f"infeed {infeed:.0%}", infeed, limits.infeed_warn_ratio, critical=critical))
        if hbm is not None and hbm > limits.hbm_warn_ratio:
            critical = hbm > limits.hbm_critical_ratio
            found.append(_Cause.of(f"HBM {hbm:.0%} full", hbm, limits.hbm_warn_ratio, critical=critical))
        return sorted(found, key=lambda cause: (not cause.critical, -cause.excess))


@dataclass(frozen=True, slots=True)
class _Cause:
    """One figure that stands out."""

    words: str
    critical: bool
    excess: float

    @classmethod
    def of(cls, words: str, value: float, limit: float, *, critical: bool = False) -> _Cause:
        return cls(words, critical, value / limit - 1 if limit else value)


def mxu_ratio(sample: Sample) -> float | None:
    """Utilisation of the matrix units."""
    return sample.mxu_utilization_ratio


def idle_ratio(sample: Sample) -> float | None:
    """Share of time in which the device idled."""
    return sample.idle_ratio


def step_s(sample: Sample) -> float | None:
    """Average step time in seconds."""
    return None if sample.step_time_s is None else sample.step_time_s.avg


def infeed_ratio(sample: Sample) -> float | None:
    """Average share of a step spent waiting for infeed."""
    return None if sample.infeed_ratio is None else sample.infeed_ratio.avg


def hbm_ratio(sample: Sample) -> float | None:
    """HBM used of total on the fullest device; of the worker where devices are not told apart."""
    fullest = None
    for row in sample.devices:
        used, total = row.get("hbm_used_bytes"), row.get("hbm_total_bytes")
        if used is not None and total:
            fullest = max(fullest or 0.0, float(used) / float(total))
    if fullest is not None:
        return fullest
    if sample.hbm_used_bytes is None or not sample.hbm_total_bytes:
        return None
    return sample.hbm_used_bytes / sample.hbm_total_bytes


FIGURES: Mapping[str, Callable[[Sample], float | None]] = {
    "mxu": mxu_ratio,
    "idle": idle_ratio,
    "step": step_s,
    "infeed": infeed_ratio,
    "hbm": hbm_ratio,
}
"""The figures that workers are compared by."""


_NONE: Mapping[str, float | None] = dict.fromkeys(FIGURES)


@dataclass(frozen=True, slots=True)
class _Look:
    """One worker at one moment."""

    history: WorkerHistory
    state: State
    sample: Sample | None
    figures: Mapping[str, float | None]


def _group(target: Target) -> str | None:
    """Whom a worker is compared with: its slice; without one, those that somebody named together with it."""
    return f"\0{target.worker}" if target.apart else target.slice


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
