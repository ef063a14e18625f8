"""The table of metrics: what a Prometheus scrape shows and where each value comes from, and `collect`, which reads it.

`docs/metrics.md` is generated from it. Ratios are 0-1, times seconds, sizes bytes. An absent value has no series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from tpumon import __version__
from tpumon.figures import FIGURES, MXU, STEP, Figure
from tpumon.history import Histories, State, StepHistogram, WorkerHistory
from tpumon.model import FindingId, Sample

Kind = Literal["gauge", "counter", "histogram"]
Series = tuple[tuple[str, ...], float]
"""Values of a metric's own labels, in order, and its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What every metric has.

    Attributes:
        name: as exposed; a counter's ends in `_total`.
        help: one line: what is measured, and by which RPC, proto field or XProf function.
        kind: its Prometheus type.
        labels: its own labels, in addition to `worker`, which every metric about a worker has.
    """

    name: str
    help: str
    kind: Kind = "gauge"
    labels: tuple[str, ...] = ()

    @property
    def series_names(self) -> tuple[str, ...]:
        """Names of its series on a Prometheus page."""
        if self.kind == "histogram":
            return tuple(f"{self.name}{suffix}" for suffix in ("_bucket", "_count", "_sum"))
        return (self.name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleMetric(Metric):
    """A figure of a worker's current sample; absent once the sample is stale.

    Attributes:
        values: the series of one sample.
    """

    values: Callable[[Sample], Iterable[Series]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetMetric(Metric):
    """Describes how a worker is watched; present as long as the worker is followed.

    Attributes:
        values: the series of one worker at a time, in seconds since the epoch.
    """

    values: Callable[[WorkerHistory, float], Iterable[Series]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramMetric(Metric):
    """Durations in the classic buckets of `tpumon.history.STEP_BUCKETS_S`; absent once the worker's sample is stale.

    Attributes:
        value: the histogram of one worker; None if nothing was counted.
    """

    value: Callable[[WorkerHistory], StepHistogram | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingMetric(Metric):
    """What is wrong with a worker, as far as that can be judged; absent once the worker's sample is stale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterMetric(Metric):
    """Describes the exporter itself; has no `worker` label.

    Attributes:
        values: the series, from everything that is followed.
    """

    values: Callable[[Histories], Iterable[Series]]


_SampleValues = Callable[[Sample], Iterable[Series]]
_TargetValues = Callable[[WorkerHistory, float], Iterable[Series]]


def _figure(get: Callable[[Sample], float | None]) -> _SampleValues:
    """One series, or none if the figure is absent."""

    def values(sample: Sample) -> Iterable[Series]:
        value = get(sample)
        return () if value is None else (((), float(value)),)

    return values


def _of_table(figure: Figure) -> Iterator[SampleMetric]:
    """The metrics of a figure: its value, and min and max where it has a range."""
    assert figure.metric is not None
    yield SampleMetric(
        name=figure.metric, help=figure.about, values=_figure(lambda sample: figure.value(sample.figures))
    )
    if figure.range is None:
        return
    get_range = figure.range
    stem, _, unit = figure.metric.rpartition("_")
    for place, end, words in ((0, "min", "Min"), (1, "max", "Max")):

        def value(sample: Sample, place: int = place) -> float | None:
            ends = get_range(sample.figures)
            return None if ends is None else ends[place]

        help_text = f"{words} of {figure.metric} over the steps in the window."
        yield SampleMetric(name=f"{stem}_{end}_{unit}", help=help_text, values=_figure(value))


def _per_core(key: str) -> _SampleValues:
    """One series per core, named chip.core."""

    def values(sample: Sample) -> Iterator[Series]:
        for core in sample.figures.per_core:
            value = getattr(core, key)
            if value is not None:
                yield (f"{core.chip}.{core.core}",), float(value)

    return values


def _per_device(key: str) -> _SampleValues:
    """One series per device."""

    def values(sample: Sample) -> Iterator[Series]:
        for device in sample.figures.devices:
            value = getattr(device, key)
            if value is not None:
                yield (device.device,), float(value)

    return values


def _runtime(key: str) -> _SampleValues:
    return _figure(lambda sample: getattr(sample.figures.runtime, key))


def _parts(parts_s: Mapping[str, float] | None) -> Iterable[Series]:
    return (((name,), value) for name, value in (parts_s or {}).items())


def _info(sample: Sample) -> Iterable[Series]:
    if not sample.answered:
        return ()
    labels = (
        sample.device_type or "",
        "" if sample.cores is None else str(sample.cores),
        sample.source or "",
        MXU.method(sample.figures) or "",
        STEP.method(sample.figures) or "",
        sample.slice or "",
        "true" if sample.simulated else "false",
    )
    return ((labels, 1.0),)


_RUNTIME = "Source: libtpu's runtime metric service,"
_BY_TRACE = "Only from traces."

SAMPLE_METRICS: tuple[SampleMetric, ...] = (
    SampleMetric(
        name="tpu_worker_info",
        help="Describes a worker and the source of its figures; always 1. Join on worker.",
        labels=("device_type", "cores", "source", "mxu_method", "step_source", "slice", "simulated"),
        values=_info,
    ),
    *(metric for figure in FIGURES if figure.metric is not None for metric in _of_table(figure)),
    SampleMetric(
        name="tpu_step_part_seconds",
        help=f"Time that an average step spends in each of XProf's categories. {_BY_TRACE}",
        labels=("part",),
        values=lambda sample: _parts(sample.figures.step_parts_s),
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
        name="tpu_hbm_used_bytes",
        help=f"HBM in use on a device. {_RUNTIME} tpu.runtime.hbm.memory.usage.bytes.",
        labels=("device",),
        values=_per_device("hbm_used_bytes"),
    ),
    SampleMetric(
        name="tpu_hbm_total_bytes",
        help=f"HBM of a device that is available to jobs. {_RUNTIME} tpu.runtime.hbm.memory.total.bytes.",
        labels=("device",),
        values=_per_device("hbm_total_bytes"),
    ),
    SampleMetric(
        name="tpu_runtime_duty_cycle_ratio",
        help=f"Share of the service's last period in which a device was busy. {_RUNTIME} "
        "tpu.runtime.tensorcore.dutycycle.percent.",
        labels=("device",),
        values=_per_device("runtime_duty_cycle_ratio"),
    ),
    SampleMetric(
        name="tpu_runtime_hbm_bandwidth_utilization_ratio",
        help=f"HBM bandwidth in use; not capacity. {_RUNTIME} tpu.runtime.hbm.utilization.percent.",
        labels=("device",),
        values=_per_device("runtime_hbm_bandwidth_utilization_ratio"),
    ),
    SampleMetric(
        name="tpu_runtime_tensorcore_idle_seconds",
        help=f"Time since a TensorCore last ran something; 0 while it is busy. {_RUNTIME} "
        "tpu.runtime.tensorcore.idle_duration.seconds.",
        labels=("device",),
        values=_per_device("runtime_tensorcore_idle_s"),
    ),
    SampleMetric(
        name="tpu_runtime_hlo_queue_size",
        help=f"Programs queued for a device's TensorCore. {_RUNTIME} hlo.queue.size.gauge.",
        labels=("device",),
        values=_per_device("runtime_hlo_queue_size"),
    ),
    SampleMetric(
        name="tpu_runtime_uptime_seconds",
        help=f"Uptime of the job's runtime. {_RUNTIME} tpu.runtime.uptime.seconds.gauge.",
        values=_runtime("uptime_s"),
    ),
    SampleMetric(
        name="tpu_runtime_megascale_error",
        help=f"1 while the runtime detects a hang or an error between slices. {_RUNTIME} "
        "megascale.error.detected.gauge.",
        values=_runtime("megascale_error"),
    ),
    SampleMetric(
        name="tpu_runtime_slice_error",
        help=f"1 while the runtime detects a failed slice. {_RUNTIME} slice.error.detected.gauge.",
        values=_runtime("slice_error"),
    ),
)

STEPS = HistogramMetric(
    name="tpu_steps_seconds",
    help="Durations of the steps in traces; covers the sampled windows, not every step of the job.",
    kind="histogram",
    value=lambda history: history.steps,
)

FINDING = FindingMetric(
    name="tpumon_finding",
    help="1 while the worker has a finding; 0 while it has not, or another finding explains it; absent where it cannot "
    "be judged. See docs/findings.md.",
    labels=("finding",),
)


def _up(history: WorkerHistory, now_unix_s: float) -> Iterable[Series]:
    up = history.is_up(now_unix_s)
    return () if up is None else (((), float(up)),)


def _in_state(*states: State) -> _TargetValues:
    return lambda history, now_unix_s: (((), float(history.state(now_unix_s) in states)),)


def _active(history: WorkerHistory, now_unix_s: float) -> Iterable[Series]:
    state = history.state(now_unix_s)
    return (((), float(state == "live")),) if state in {"live", "no-activity"} else ()


def _of_last(get: Callable[[Sample], float | None]) -> _TargetValues:
    """A figure of the last query, answered or not."""
    values = _figure(get)
    return lambda history, _now_unix_s: () if history.last is None else values(history.last)


def _last_success(history: WorkerHistory, _now_unix_s: float) -> Iterable[Series]:
    return () if history.answer is None else (((), history.answer.time_unix_s + history.answer.took_s),)


TARGET_METRICS: tuple[TargetMetric, ...] = (
    TargetMetric(
        name="tpumon_target_up",
        help="1 if the worker responds, even if only that another session is active; 0 if it does not; "
        "absent while that is not known: before the first query, and while paused.",
        values=_up,
    ),
    TargetMetric(
        name="tpumon_target_active",
        help="0 if the worker answers, but nothing runs: no event in its trace, or no step and an idle device; 1 if "
        "something runs; absent while that is not known.",
        values=_active,
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
        values=lambda history, _now_unix_s: (((), float(history.target.independent)),),
    ),
    TargetMetric(
        name="tpumon_target_last_success_timestamp_seconds",
        help="Time of the worker's last answer with figures, in seconds since the epoch.",
        values=_last_success,
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
        values=lambda history, _now_unix_s: (((), float(history.samples)),),
    ),
    TargetMetric(
        name="tpumon_truncated_samples_total",
        help="Number of queries answered with a truncated trace; the figures cover what is whole, or are absent.",
        kind="counter",
        values=lambda history, _now_unix_s: (((), float(history.truncated)),),
    ),
    TargetMetric(
        name="tpumon_sample_errors_total",
        help="Number of queries that failed, by reason.",
        kind="counter",
        labels=("reason",),
        values=lambda history, _now_unix_s: (((reason,), float(count)) for reason, count in history.errors.items()),
    ),
    TargetMetric(
        name="tpumon_traced_seconds_total",
        help="Time for which the worker's job was traced, including collection: the profiling overhead.",
        kind="counter",
        values=lambda history, _now_unix_s: (((), history.traced_s),),
    ),
)


def _waiting(histories: Histories) -> Iterable[Series]:
    if histories.waiting is not None:
        return (((), 1.0),)
    return (((), 0.0),) if histories.all() else ()


EXPORTER_METRICS: tuple[ExporterMetric, ...] = (
    ExporterMetric(
        name="tpumon_waiting",
        help="1 while no worker is found, so there are no figures; 0 once one is followed; absent until this is known.",
        values=_waiting,
    ),
    ExporterMetric(
        name="tpumon_build_info",
        help="Version of the tpumon that exports this; always 1.",
        labels=("version",),
        values=lambda _histories: (((__version__,), 1.0),),
    ),
)

METRICS: tuple[Metric, ...] = (*SAMPLE_METRICS, STEPS, FINDING, *TARGET_METRICS, *EXPORTER_METRICS)
"""All metrics, in the order of the page."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric and its values at one time.

    Attributes:
        metric: the metric.
        series: a worker's name and its series; None for series of the exporter itself.
        histograms: a worker's name and its histogram; only for a HistogramMetric.
    """

    metric: Metric
    series: Sequence[tuple[str | None, Sequence[Series]]] = ()
    histograms: Sequence[tuple[str, StepHistogram]] = ()


Judged = Callable[[str], Mapping[FindingId, bool]]
"""Each finding that can be judged of a worker, by its name, and whether it is shown."""


def collect(
    histories: Histories,
    now_unix_s: float,
    on_error: Callable[[Metric, Exception], None],
    *,
    judged: Judged | None = None,
    workers: Sequence[WorkerHistory] | None = None,
    names: AbstractSet[str] | None = None,
) -> Iterator[Family]:
    """Reads every metric, in the order of the table; also those without values.

    Values are finite, and no two series have the same labels. A metric that raises for a worker has no value there.

    Args:
        histories: the workers.
        now_unix_s: the time, which decides whose sample is current.
        on_error: called with each metric that raises, for each worker.
        judged: what is wrong with a worker; None: nobody judges.
        workers: the workers to read; None: all.
        names: read only metrics with a series of one of these names; None: all.
    """
    followed = [(h.target.worker, h) for h in (histories.all() if workers is None else workers)]
    current = [(worker, h, sample) for worker, h in followed if (sample := h.current(now_unix_s)) is not None]
    for metric in METRICS:
        if names is not None and names.isdisjoint(metric.series_names):
            continue
        reads: Iterable[_Read]
        match metric:
            case SampleMetric(values=of_sample):
                reads = ((worker, of_sample, (sample,)) for worker, _, sample in current)
            case FindingMetric():
                reads = ((worker, _findings, (judged, worker)) for worker, _, _ in current if judged is not None)
            case TargetMetric(values=of_target):
                reads = ((worker, of_target, (history, now_unix_s)) for worker, history in followed)
            case ExporterMetric(values=of_all):
                reads = ((None, of_all, (histories,)),)
            case HistogramMetric():
                yield Family(metric, histograms=_histograms(metric, current, on_error))
                continue
        yield Family(metric, _series(metric, reads, on_error))


def _findings(judged: Judged, worker: str) -> Iterable[Series]:
    return [((finding,), float(present)) for finding, present in judged(worker).items()]


_Read = tuple[str | None, Callable[..., Iterable[Series]], tuple[object, ...]]
"""A worker's name, and the function that reads its series, with its arguments."""


def _series(
    metric: Metric, reads: Iterable[_Read], on_error: Callable[[Metric, Exception], None]
) -> list[tuple[str | None, Sequence[Series]]]:
    labelled = bool(metric.labels)
    rows: list[tuple[str | None, Sequence[Series]]] = []
    for worker, read, arguments in reads:
        try:
            series = read(*arguments)
            if labelled:  # of two series with the same labels, which no scraper would take, the last
                series = dict(series).items()
            finite = [each for each in series if isfinite(each[1])]
        except Exception as error:  # noqa: BLE001 - one metric's bug must not cost the others
            on_error(metric, error)
            continue
        if finite:
            rows.append((worker, finite))
    return rows


def _histograms(
    metric: HistogramMetric,
    current: Iterable[tuple[str, WorkerHistory, Sample]],
    on_error: Callable[[Metric, Exception], None],
) -> list[tuple[str, StepHistogram]]:
    rows: list[tuple[str, StepHistogram]] = []
    for worker, history, _ in current:
        try:
            steps = metric.value(history)
            if steps is not None and isfinite(steps.sum_s):
                rows.append((worker, steps))
        except Exception as error:  # noqa: BLE001 - one metric's bug must not cost the others
            on_error(metric, error)
    return rows
