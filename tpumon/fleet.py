"""What stands out among workers: by thresholds, and against the others of its slice. Pure, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Literal

from tpumon.history import Histories, State, WorkerHistory
from tpumon.model import Found, Sample

Severity = Literal["ok", "warn", "critical", "unknown"]
"""unknown: there is no present sample to judge."""


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
    """

    state: State
    severity: Severity
    causes: tuple[str, ...] = ()
    since_unix_s: float | None = None

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

    def follow(self, found: Found) -> None:
        """From now on these are the workers."""
        self.histories.follow(found)
        self._memories = {target.worker: self._memories.get(target.worker) or _Memory() for target in found.targets}

    def add(self, sample: Sample) -> None:
        """Notes one query's sample."""
        self.histories.add(sample)

    def assess(self, now_unix_s: float) -> Assessment:
        """Judges every worker; to be called once for what came together, not for each sample."""
        workers = self.histories.all()
        present = {history.target.worker: history.current(now_unix_s) for history in workers}
        steps_s, idle = _medians(workers, present, step_s), _medians(workers, present, idle_ratio)
        verdicts = {}
        counts: dict[Severity | State, int] = {}
        for history in workers:
            name, slice_name = history.target.worker, _slice(history)
            verdict = self._judge(history, present[name], steps_s.get(slice_name), idle.get(slice_name), now_unix_s)
            verdicts[name] = verdict
            kind = verdict.severity if verdict.state == "live" else verdict.state
            counts[kind] = counts.get(kind, 0) + 1
        figures = {name: across for name, get in FIGURES.items() if (across := _across(present, get)) is not None}
        return Assessment(verdicts=verdicts, figures=figures, counts=counts)

    def _judge(
        self,
        history: WorkerHistory,
        sample: Sample | None,
        median_step_s: float | None,
        median_idle: float | None,
        now_unix_s: float,
    ) -> Verdict:
        memory = self._memories[history.target.worker]
        state = history.state(now_unix_s)
        severity: Severity = "unknown"
        causes: list[str] = []
        if sample is not None:
            self._count(memory, sample, median_step_s, median_idle)
            severity, causes = self._causes(memory, sample, median_step_s, median_idle)
        if history.last is not None and history.last.failure is not None:
            causes.append(history.last.failure.message)
        if (state, severity) != (memory.state, memory.severity):
            memory.state, memory.severity = state, severity
            memory.since_unix_s = history.last.time_unix_s if history.last is not None else now_unix_s
        return Verdict(state=state, severity=severity, causes=tuple(causes), since_unix_s=memory.since_unix_s)

    def _count(self, memory: _Memory, sample: Sample, median_step_s: float | None, median_idle: float | None) -> None:
        """For how many samples in a row step and idle time have stood out."""
        if memory.judged is sample:
            return
        memory.judged = sample
        limits, step, idle = self.thresholds, step_s(sample), idle_ratio(sample)
        ratio = step / median_step_s if step is not None and median_step_s else 0.0
        apart = median_idle - idle if idle is not None and median_idle is not None else 0.0
        memory.slow_for = memory.slow_for + 1 if ratio > limits.step_warn_ratio else 0
        memory.very_slow_for = memory.very_slow_for + 1 if ratio > limits.step_critical_ratio else 0
        memory.idle_apart_for = memory.idle_apart_for + 1 if apart > limits.idle_apart_ratio else 0

    def _causes(
        self, memory: _Memory, sample: Sample, median_step_s: float | None, median_idle: float | None
    ) -> tuple[Severity, list[str]]:
        limits = self.thresholds
        found: list[tuple[bool, str]] = []
        step, idle, infeed, hbm = step_s(sample), idle_ratio(sample), infeed_ratio(sample), hbm_ratio(sample)
        if step is not None and median_step_s and memory.slow_for >= limits.sustained:
            words = f"step {step / median_step_s:.2f}x the median"
            found.append((memory.very_slow_for >= limits.sustained, words))
        if idle is not None and median_idle is not None and memory.idle_apart_for >= limits.sustained:
            found.append((False, f"idle {idle:.0%}, median {median_idle:.0%}: others wait for it"))
        if infeed is not None and infeed > limits.infeed_warn_ratio:
            found.append((infeed > limits.infeed_critical_ratio, f"infeed {infeed:.0%}"))
        if hbm is not None and hbm > limits.hbm_warn_ratio:
            found.append((hbm > limits.hbm_critical_ratio, f"HBM {hbm:.0%} full"))
        found.sort(key=lambda item: not item[0])
        severity: Severity = "ok" if not found else "critical" if found[0][0] else "warn"
        return severity, [words for _, words in found]


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
    ratios = [
        float(used) / float(total)
        for row in sample.devices
        if (used := row.get("hbm_used_bytes")) is not None and (total := row.get("hbm_total_bytes"))
    ]
    if ratios:
        return max(ratios)
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


def _slice(history: WorkerHistory) -> str | None:
    return history.target.slice


def _medians(
    workers: list[WorkerHistory], present: Mapping[str, Sample | None], get: Callable[[Sample], float | None]
) -> dict[str | None, float]:
    """By slice."""
    values: dict[str | None, list[float]] = {}
    for history in workers:
        sample = present[history.target.worker]
        value = None if sample is None else get(sample)
        if value is not None:
            values.setdefault(_slice(history), []).append(value)
    return {name: median(of_slice) for name, of_slice in values.items()}


def _across(present: Mapping[str, Sample | None], get: Callable[[Sample], float | None]) -> Across | None:
    values = [value for sample in present.values() if sample is not None and (value := get(sample)) is not None]
    if not values:
        return None
    return Across(count=len(values), min=min(values), avg=fmean(values), max=max(values), median=median(values))
