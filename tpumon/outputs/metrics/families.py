"""The table of metrics: names, help, and where each value comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tpumon import __version__
from tpumon.analysis.history import FIRST_STEP_BUCKET, STEP_SCHEMA, State, WorkerHistory
from tpumon.errors import Reason
from tpumon.model import SEVERITY_LEVELS, Cause, Sample
from tpumon.model.figure_spec import FigureSpec
from tpumon.model.figure_table import FIGURES, MXU, OP_TIME, PARTS, STEP
from tpumon.outputs.metrics.metric_types import (
    ExporterMetric,
    FindingMetric,
    HistogramMetric,
    SampleMetric,
    SampleValues,
    Series,
    TargetMetric,
    followed_since,
    of_each,
    single,
)
from tpumon.outputs.metrics.runtime_families import RUNTIME_COUNTERS, RUNTIME_GAUGES, RUNTIME_HISTOGRAMS
from tpumon.outputs.metrics.server_families import SERVER_METRICS

_TargetValues = Callable[[WorkerHistory, float], Iterable[Series]]


def _of_table(figure: FigureSpec) -> Iterator[SampleMetric]:
    """The metrics of a figure: its value, and min and max where it has a range."""
    assert figure.metric is not None
    yield SampleMetric(name=figure.metric, help=figure.help, values=single(lambda sample: figure.value(sample.figures)))
    if figure.range is None:
        return
    get_range = figure.range
    stem, _, unit = figure.metric.rpartition("_")
    for place, end, words in ((0, "min", "Min"), (1, "max", "Max")):

        def value(sample: Sample, place: int = place) -> float | None:
            ends = get_range(sample.figures)
            return None if ends is None else ends[place]

        help_text = f"{words} of {figure.metric} over the steps in the window."
        yield SampleMetric(name=f"{stem}_{end}_{unit}", help=help_text, values=single(value))


def _per_core(key: str) -> SampleValues:
    return of_each(lambda sample: sample.figures.per_core, lambda core: f"{core.chip}.{core.core}", key)


def _devices_of_cores(sample: Sample) -> Iterator[Series]:
    """Device of each core, by order: a chip's cores are one device each, or all together one."""
    cores = sorted((core.chip, core.core or 0) for core in sample.figures.per_core if core.chip is not None)
    chips = sorted({chip for chip, _ in cores})
    devices = [device.device for device in sample.figures.devices]
    if len(devices) == len(cores):
        yield from (((f"{chip}.{core}", device), 1.0) for (chip, core), device in zip(cores, devices, strict=True))
    elif len(devices) == len(chips):
        of_chip = dict(zip(chips, devices, strict=True))
        yield from (((f"{chip}.{core}", of_chip[chip]), 1.0) for chip, core in cores)


def _by_key(values: Mapping[str, float] | None) -> Iterable[Series]:
    return (((name,), value) for name, value in (values or {}).items())


def _info(sample: Sample) -> Iterable[Series]:
    if not sample.has_figures:
        return ()
    labels = (
        sample.device_type or "",
        "" if sample.cores is None else str(sample.cores),
        sample.source or "",
        MXU.method(sample.figures) or "",
        STEP.method(sample.figures) or "",
        "true" if sample.simulated else "false",
    )
    return ((labels, 1.0),)


_BY_TRACE = "Only from traces."

SAMPLE_METRICS: tuple[SampleMetric, ...] = (
    SampleMetric(
        name="tpu_worker_info",
        help="Describes a worker and the source of its figures; always 1. Join on worker.",
        labels=("device_type", "cores", "source", "mxu_method", "step_source", "simulated"),
        values=_info,
    ),
    *(metric for figure in FIGURES if figure.metric is not None for metric in _of_table(figure)),
    SampleMetric(
        name="tpu_step_part_seconds",
        help=PARTS.help,
        labels=("part",),
        values=lambda sample: _by_key(sample.figures.step_parts_s),
    ),
    SampleMetric(
        name="tpu_op_time_ratio",
        help=OP_TIME.help,
        labels=("kind",),
        values=lambda sample: _by_key(sample.figures.op_time_ratios),
    ),
    SampleMetric(
        name="tpu_core_idle_ratio",
        help=f"tpu_idle_ratio of one core; the label core is chip.core. {_BY_TRACE}",
        labels=("core",),
        values=_per_core("idle_ratio"),
    ),
    SampleMetric(
        name="tpu_core_flops_utilization_ratio",
        help=f"tpu_flops_utilization_ratio of one core. {_BY_TRACE}",
        labels=("core",),
        values=_per_core("flops_utilization_ratio"),
    ),
    SampleMetric(
        name="tpu_core_infeed_ratio",
        help=f"tpu_infeed_ratio of one core. {_BY_TRACE}",
        labels=("core",),
        values=_per_core("infeed_ratio"),
    ),
    SampleMetric(
        name="tpu_core_step_time_seconds",
        help=f"tpu_step_time_seconds of one core. {_BY_TRACE}",
        labels=("core",),
        values=_per_core("step_time_s"),
    ),
    SampleMetric(
        name="tpu_core_info",
        help="Which device a core is; always 1. By order: neither source names the other's. Absent if the numbers of "
        "cores, chips and devices do not fit.",
        labels=("core", "device"),
        values=_devices_of_cores,
    ),
    *SERVER_METRICS,
    *RUNTIME_GAUGES,
    *RUNTIME_COUNTERS,
)

HISTOGRAMS: tuple[HistogramMetric, ...] = (
    HistogramMetric(
        name="tpu_step_duration_seconds",
        help="Durations of the steps in traces; covers the sampled windows, not every step of the job.",
        kind="histogram",
        since=followed_since,
        value=lambda history, _sample: history.steps,
        native=(STEP_SCHEMA, FIRST_STEP_BUCKET),
    ),
    *RUNTIME_HISTOGRAMS,
)


def _severity(cause: Cause | None) -> float:
    return 0.0 if cause is None else float(SEVERITY_LEVELS[cause.severity])


FINDING_METRICS: tuple[FindingMetric, ...] = (
    FindingMetric(
        name="tpumon_finding_severity",
        help="How bad a finding is for the worker: 1 info, 2 warning, 3 critical; 0 while it is absent, or another "
        "finding explains it; no series where it cannot be judged. See docs/findings.md.",
        value=_severity,
    ),
    FindingMetric(
        name="tpumon_finding_active_severity",
        help="The same of findings that are a warning or critical; no series of others, so alerts read little.",
        value=lambda cause: severity if (severity := _severity(cause)) >= SEVERITY_LEVELS["warning"] else None,
    ),
    FindingMetric(
        name="tpumon_finding_since_timestamp_seconds",
        help="Since when the worker has the finding, in seconds since the epoch; absent where that is not known.",
        value=lambda cause: None if cause is None else cause.since_unix_s,
    ),
)


def _in_state(*states: State) -> _TargetValues:
    return single(lambda history, now_unix_s: history.state(now_unix_s) in states)


def _active(history: WorkerHistory, now_unix_s: float) -> float | None:
    state, last = history.state(now_unix_s), history.last
    is_known = state in {"live", "no-activity"} and (last is None or last.why_not_seen is None)
    return state == "live" if is_known else None


def _of_last(get: Callable[[Sample], float | None]) -> _TargetValues:
    """A figure of the last query, answered or not."""
    return single(lambda history, _now_unix_s: None if history.last is None else get(history.last))


def _last_success(history: WorkerHistory, _now_unix_s: float) -> float | None:
    return None if history.answer is None else history.answer.time_unix_s + history.answer.took_s


_USUAL_REASONS: tuple[Reason, ...] = ("unavailable", "deadline", "busy", "malformed", "too-large", "internal")
"""Reasons that are exposed from the start, as 0, so that `increase` counts the first time, too."""


def _errors(history: WorkerHistory, _now_unix_s: float) -> Iterable[Series]:
    counts = dict.fromkeys(_USUAL_REASONS, 0) | history.errors
    return (((reason,), float(count)) for reason, count in counts.items())


TARGET_METRICS: tuple[TargetMetric, ...] = (
    TargetMetric(
        name="tpumon_target_up",
        help="1 if the worker responds, even if only that another session is active; 0 if it does not; "
        "absent while that is not known: before the first query, and while paused.",
        values=single(lambda history, now_unix_s: history.is_up(now_unix_s)),
    ),
    TargetMetric(
        name="tpumon_target_info",
        help="A worker that is followed; always 1, whether it answers or not. job_kind: the kind of its job.",
        labels=("job_kind",),
        values=lambda history, _now_unix_s: (((history.kind or "",), 1.0),),
    ),
    TargetMetric(
        name="tpumon_target_pod_info",
        help="The container that holds the TPUs of the worker's host, as the kubelet says; always 1. Absent where "
        "several hold some, or the kubelet does not say.",
        labels=("tpu_namespace", "tpu_pod", "tpu_container"),
        values=lambda history, _now_unix_s: (
            () if (pod := history.target.pod) is None else (((pod.namespace, pod.name, pod.container), 1.0),)
        ),
    ),
    TargetMetric(
        name="tpumon_target_active",
        help="0 if the worker answers, but nothing runs: no event in its trace, or no step and an idle device; 1 if "
        "something runs; absent while that is not known.",
        values=single(_active),
    ),
    TargetMetric(
        name="tpumon_target_busy",
        help="1 while another session is profiling the worker and tpumon does not sample it; otherwise 0.",
        values=_in_state("busy", "continuous"),
    ),
    TargetMetric(
        name="tpumon_target_paused",
        help="1 while `tpumon pause` has stopped sampling on this host; otherwise 0.",
        values=_in_state("paused"),
    ),
    TargetMetric(
        name="tpumon_target_independent",
        help="1 if the worker is not known to work together with others; it is then compared with none. Otherwise 0.",
        values=single(lambda history, _now_unix_s: history.target.independent),
    ),
    TargetMetric(
        name="tpumon_target_slice_workers",
        help="How many workers the worker's slice is to have; absent where nothing tells. Alerts compare it with those "
        "that are followed.",
        values=single(lambda history, _now_unix_s: history.target.slice_workers),
    ),
    TargetMetric(
        name="tpumon_target_last_success_timestamp_seconds",
        help="Time of the worker's last answer with figures, in seconds since the epoch.",
        values=single(_last_success),
    ),
    TargetMetric(
        name="tpumon_sample_duration_seconds",
        help="Duration of the last query, answered or failed.",
        values=_of_last(lambda sample: sample.took_s),
    ),
    TargetMetric(
        name="tpumon_sample_window_seconds",
        help="Length of the window that the figures of the last query cover.",
        values=_of_last(lambda sample: sample.window_s),
    ),
    TargetMetric(
        name="tpumon_sample_interval_seconds",
        help="Effective interval between the starts of two queries.",
        values=_of_last(lambda sample: sample.interval_s),
    ),
    TargetMetric(
        name="tpumon_samples_total",
        help="Number of queries that the worker answered.",
        kind="counter",
        since=followed_since,
        values=single(lambda history, _now_unix_s: history.samples),
    ),
    TargetMetric(
        name="tpumon_truncated_samples_total",
        help="Number of queries answered with a truncated trace; the figures cover what is whole, or are absent.",
        kind="counter",
        since=followed_since,
        values=single(lambda history, _now_unix_s: history.truncated),
    ),
    TargetMetric(
        name="tpumon_sample_errors_total",
        help="Number of queries that failed, by reason; the usual reasons are there from the start, as 0.",
        kind="counter",
        labels=("reason",),
        values=_errors,
    ),
    TargetMetric(
        name="tpumon_traced_seconds_total",
        help="Time for which the worker's job was traced, including collection: the profiling overhead.",
        kind="counter",
        since=followed_since,
        values=single(lambda history, _now_unix_s: history.traced_s),
    ),
)


EXPORTER_METRICS: tuple[ExporterMetric, ...] = (
    ExporterMetric(
        name="tpumon_waiting",
        help="1 while no worker is found, so there are no figures; 0 once one is followed; absent until this is known.",
        values=single(lambda status: True if status.waiting is not None else False if status.workers else None),
    ),
    ExporterMetric(
        name="tpumon_discovery_up",
        help="1 while workers can be found by what was given: targets-file, dns, tpu-api; 0 while it cannot be read or "
        "does not answer, and the workers known before stay. Absent if there is nothing to look up.",
        labels=("finder",),
        values=lambda status: (((finder,), float(works)) for finder, works in sorted(status.finders.items())),
    ),
    ExporterMetric(
        name="tpumon_build_info",
        help="Version of the tpumon that exports this; always 1.",
        labels=("version",),
        values=lambda _status: (((__version__,), 1.0),),
    ),
)
