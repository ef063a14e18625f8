"""Makes samples and findings of series: what is absent there is absent here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, get_args

from tpumon.errors import Reason
from tpumon.figures import HBM, IDLE, INFEED, MXU, STEP, Figure
from tpumon.findings import GRADES, RULES, Thresholds
from tpumon.model import (
    Cause,
    DeviceFigures,
    Evidence,
    Failure,
    Figures,
    Finding,
    FindingId,
    Grade,
    NotJudged,
    Sample,
    Spread,
    StepTimes,
    bounded,
)
from tpumon.model.bounds import BYTES_BELOW
from tpumon.model.figures import MxuMethod, StepSource
from tpumon.model.frozen import frozen
from tpumon.model.sample import EXPORTER
from tpumon.prometheus import queries
from tpumon.prometheus.queries import names_of
from tpumon.prometheus.table import Table
from tpumon.prometheus.wire import Series
from tpumon.prometheus.workers import Key, Known, key_of, keys_of

_SOURCE = "prometheus"
_FRESH_INTERVALS = 2.5  # as in Sample.fresh_for_s
_WHY: Mapping[str, tuple[Reason, str]] = {
    queries.PAUSED: ("paused", "its exporter is paused by `tpumon pause`"),
    queries.BUSY: ("busy", "another session is profiling it, says its exporter"),
    queries.UP: ("unavailable", "it does not answer its exporter"),
    queries.ACTIVE: ("empty-trace", "nothing runs, says its exporter"),
}
"""What each state means, the strongest first."""

_INFO: frozenset[FindingId] = frozenset({"compute-bound", "memory-bound", "low-mxu", "truncated", "not-observed"})
_FIGURES: Mapping[FindingId, Figure] = {
    "straggler": IDLE,
    "idle": IDLE,
    "host-bound": IDLE,
    "input-bound": INFEED,
    "slow-down": STEP,
    "recompiling": STEP,
    "hbm-nearly-full": HBM,
    "hbm-growing": HBM,
    "low-mxu": MXU,
}
_REMEDIES = {rule.finding: rule.remedy for rule in RULES}
_ORDER = {rule.finding: place for place, rule in enumerate(RULES)}
_IDS: Mapping[str, FindingId] = {name: name for name in get_args(FindingId)}
_MXU_METHODS: Mapping[str, MxuMethod] = {name: name for name in get_args(MxuMethod)}
_STEP_SOURCES: Mapping[str, StepSource] = {name: name for name in get_args(StepSource)}


Totals = Mapping[tuple[Key, str], float]
"""Sizes of HBM by worker and device, in bytes."""


@dataclass(slots=True)
class Told:
    """What Prometheus says of one worker now.

    Attributes:
        numbers: by name of the metric.
        devices: bytes of HBM used and in total, by device.
        states: names of the metrics whose value says that it is not simply live.
        findings: those that it has.
    """

    numbers: dict[str, float] = field(default_factory=dict)
    devices: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    states: set[str] = field(default_factory=set)
    findings: set[FindingId] = field(default_factory=set)


@dataclass(slots=True)
class Picture:
    """All workers at one time, made of one answer after the other as they come.

    Attributes:
        identity: labels that tell workers apart.
        told: what is said of each worker.
        judged: of how many workers each finding is judged.
    """

    identity: Sequence[str]
    told: dict[Key, Told] = field(default_factory=dict)
    judged: dict[FindingId, int] = field(default_factory=dict)

    def _of(self, key: Key) -> Told:
        one = self.told.get(key)
        if one is None:
            one = self.told[key] = Told()
        return one

    def take_numbers(self, numbers: Table) -> None:
        """Takes the numbers of workers."""
        for key, name, value in zip(keys_of(numbers, self.identity), names_of(numbers), numbers.values, strict=True):
            self._of(key).numbers[name] = value

    def take_devices(self, devices: Table, totals: Totals | None = None) -> Totals:
        """Takes HBM of devices whose used memory is known; returns their sizes, which are those given, if any."""
        columns = keys_of(devices, self.identity), devices.column("device"), names_of(devices), devices.values
        rows = list(zip(*columns, strict=True))
        if totals is None:
            totals = {(key, device): value for key, device, name, value in rows if name == queries.HBM_TOTAL}
        for key, device, name, value in rows:
            if name != queries.HBM_TOTAL:
                self._of(key).devices[device] = value, totals.get((key, device))
        return totals

    def take_states(self, series: Iterable[Series]) -> None:
        """Takes what keeps workers from being live."""
        for labels, _ in series:
            self._of(key_of(labels, self.identity)).states.add(queries.name_of(labels))

    def take_findings(self, series: Iterable[Series]) -> None:
        """Takes the findings that workers have, and of how many each one is judged."""
        for labels, points in series:
            finding = _IDS.get(labels.get("finding", ""))
            if finding is None:
                continue
            if "worker" in labels:
                self._of(key_of(labels, self.identity)).findings.add(finding)
            else:
                self.judged[finding] = int(points[-1][1])


@frozen
class Now:
    """When Prometheus was asked.

    Attributes:
        asked_unix_s: by its clock.
        shift_s: from its clock to ours.
        unix_s, monotonic_s: by our clocks.
        poll_s: interval between refreshes.
    """

    asked_unix_s: float
    shift_s: float
    unix_s: float
    monotonic_s: float
    poll_s: float

    def ours(self, time_unix_s: float, interval_s: float | None) -> dict[str, Any]:
        """Times of a sample by our clocks, and an interval that keeps it current until the refresh after the next."""
        age_s = max(self.asked_unix_s - time_unix_s, 0.0)
        return {
            "time_unix_s": min(time_unix_s + self.shift_s, self.unix_s),
            "taken_monotonic_s": self.monotonic_s - age_s,
            "interval_s": max(interval_s or 0.0, (age_s + 2 * self.poll_s) / _FRESH_INTERVALS),
        }


def state_metric(states: Iterable[str]) -> str | None:
    """The strongest of the states; None: it is live."""
    return next((name for name in _WHY if name in states), None)


def failure_of(states: Iterable[str]) -> Failure | None:
    """Why a worker in these states has no figures; None if it is live."""
    name = state_metric(states)
    if name is None:
        return None
    reason, message = _WHY[name]
    return Failure(source=_SOURCE, reason=reason, message=message)


def sample_of(known: Known, told: Told, now: Now) -> Sample | None:
    """The sample that a worker's series tell of, not judged; None: it was not queried yet.

    Args:
        known: the worker.
        told: what its series say.
        now: when Prometheus was asked: the time of what has no time of its own.
    """
    took_s = told.numbers.get(queries.TOOK)
    if took_s is None:
        return None
    target, info, numbers = known.target, known.info, told.numbers
    success_unix_s = numbers.get(queries.SUCCESS)
    failure = failure_of(told.states)
    is_current = info is not None
    if is_current and failure is not None and failure.reason in {"empty-trace", "unavailable"}:
        failure = None  # it has figures, which say themselves that nothing runs
    elif not is_current and failure is None:
        failure = Failure(source=EXPORTER, reason="unavailable", message="its exporter has no current figures of it")
    answered = is_current and failure is None and success_unix_s is not None
    begin_unix_s = success_unix_s - took_s if answered and success_unix_s is not None else now.asked_unix_s
    info = info or {}
    times = now.ours(max(begin_unix_s, 0.0), numbers.get(queries.INTERVAL)) if (is_plain := _is_plain(told)) else {}
    sample = Sample(
        worker=target.worker,
        address=target.address,
        slice=target.slice,
        **(times if is_plain else {"time_unix_s": max(begin_unix_s, 0.0), "interval_s": numbers.get(queries.INTERVAL)}),
        window_s=numbers.get(queries.WINDOW),
        took_s=max(took_s, 0.0),
        source=(info.get("source") or _SOURCE) if is_current else None,
        companions_only=is_current and failure is not None,
        simulated=info.get("simulated") == "true",
        device_type=info.get("device_type") or None,
        cores=_whole(info.get("cores")),
        figures=_figures(told, info) if is_current else Figures(),
        errors=() if failure is None else (failure,),
    )
    if is_plain:
        return sample
    sample = bounded(sample)
    return replace(sample, **now.ours(sample.time_unix_s, sample.interval_s))


def _is_plain(told: Told) -> bool:
    """Whether no number is one that no worker can have, so that none has to be looked for one by one."""
    numbers = told.numbers
    for average, least, most in queries.RANGED.values():
        if not numbers.get(least, 0.0) <= numbers.get(average, 0.0) <= numbers.get(most, 0.0):
            return False
    for name, value in numbers.items():
        if name in queries.RATIOS:
            if not 0 <= value <= 1:
                return False
        elif not (1e-9 <= value < 1e6 or value == 0 or name == queries.SUCCESS):
            return False
    devices = (value for device in told.devices.values() for value in device if value is not None)
    return all(0 <= value < BYTES_BELOW for value in devices)


def _figures(told: Told, info: Mapping[str, str]) -> Figures:
    numbers = told.numbers
    step, infeed = (tuple(map(numbers.get, queries.RANGED[figure.key])) for figure in (STEP, INFEED))
    single: dict[str, Any] = {figure: numbers.get(name) for figure, name in _SINGLE.items()}
    return Figures(
        **single,
        mxu_method=_MXU_METHODS.get(info.get("mxu_method", "")),
        step_source=_STEP_SOURCES.get(info.get("step_source", "")),
        step_time_s=None if None in step else StepTimes(avg=step[0] or 0.0, min=step[1] or 0.0, max=step[2] or 0.0),
        infeed_ratio=None if None in infeed else Spread(avg=infeed[0] or 0.0, min=infeed[1] or 0.0, max=infeed[2] or 0),
        devices=tuple(
            DeviceFigures(
                device=device, hbm_used_bytes=int(used), hbm_total_bytes=None if total is None else int(total)
            )
            for device, (used, total) in sorted(told.devices.items())
        ),
    )


_SINGLE = dict(
    zip(
        (
            "mxu_utilization_ratio",
            "idle_ratio",
            "duty_cycle_ratio",
            "flops_utilization_ratio",
            "hbm_bandwidth_utilization_ratio",
        ),
        queries.SINGLE,
        strict=True,
    )
)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None


def cause_of(finding: FindingId, figures: Figures, limits: Thresholds, since_unix_s: float | None) -> Cause:
    """A finding as it concerns one worker. How bad it is follows from its figure where Prometheus has that."""
    figure = _FIGURES.get(finding)
    value = None if figure is None else figure.value(figures)
    words = finding if figure is None or value is None else f"{finding}: {figure.label} {_shown(figure, value)}"
    return Cause(
        words=words,
        finding=finding,
        severity=_grade(finding, value, limits),
        since_unix_s=since_unix_s,
        figure=None if figure is None else figure.key,
    )


def _grade(finding: FindingId, value: float | None, limits: Thresholds) -> Grade:
    limit = {"input-bound": limits.infeed_critical_ratio, "hbm-nearly-full": limits.hbm_critical_ratio}.get(finding)
    if finding in _INFO:
        return "info"
    return "critical" if finding == "hang" or (limit is not None and value is not None and value > limit) else "warning"


def worst_first(causes: Iterable[Cause]) -> list[Cause]:
    """Causes of one worker: the worst first, then in the order of the table of findings."""
    return sorted(causes, key=lambda cause: (GRADES[cause.severity], _ORDER.get(cause.finding or "hang", 0)))


def findings_of(samples: Sequence[Sample]) -> list[Finding]:
    """What is wrong, by slice, the worst first, from the samples of all workers with their causes."""
    slices: dict[tuple[FindingId, str | None], list[tuple[Cause, Sample]]] = {}
    of_slice: dict[str | None, list[Sample]] = {}
    for sample in samples:
        of_slice.setdefault(sample.slice, []).append(sample)
        for cause in sample.findings or ():
            if cause.finding is not None:
                slices.setdefault((cause.finding, sample.slice), []).append((cause, sample))
    found = [_finding(finding, name, having, of_slice.get(name, [])) for (finding, name), having in slices.items()]
    return sorted(found, key=lambda one: (GRADES[one.severity], _ORDER[one.finding]))


def _finding(
    finding: FindingId, slice_name: str | None, having: Sequence[tuple[Cause, Sample]], all_of_it: Sequence[Sample]
) -> Finding:
    figure = _FIGURES.get(finding)
    having = sorted(having, key=lambda pair: GRADES[pair[0].severity])
    since = [cause.since_unix_s for cause, _ in having if cause.since_unix_s is not None]
    worst = having[0][1]
    who = f"On {worst.worker}" if len(having) == 1 else f"On {len(having)} of {len(all_of_it)} workers"
    value = None if figure is None else figure.value(worst.figures)
    sentence, evidence = f"{who}: {finding}.", {}
    if figure is not None and value is not None:
        usual = median(each for one in all_of_it if (each := figure.value(one.figures)) is not None)
        evidence = {figure.fields[0]: Evidence(value=value, reference=usual)}
        sentence = (
            f"{who}: {finding}; {figure.label} is {_shown(figure, value)} on {worst.worker}, the median of "
            f"its slice is {_shown(figure, usual)}."
        )
    return Finding(
        finding=finding,
        severity=having[0][0].severity,
        confidence="medium",
        workers=tuple(sample.worker for _, sample in having),
        slice=slice_name,
        since_unix_s=min(since, default=None),
        evidence=evidence,
        sentence=sentence,
        remedy=_REMEDIES.get(finding, ""),
        url=f"docs/findings.md#{finding}",
    )


def not_judged_of(picture: Picture, workers: int) -> list[NotJudged]:
    """The findings that no exporter, or not every one, judges of its workers."""
    return [
        NotJudged(finding=finding, reason="its exporter cannot judge it", workers=workers - judged)
        for finding in _ORDER
        if (judged := picture.judged.get(finding, 0)) < workers
    ]


def _shown(figure: Figure, value: float) -> str:
    return f"{value * 1000:.3g} ms" if figure.unit == "seconds" else f"{value:.1%}"
