"""Metrics from libtpu's runtime metric service."""

from __future__ import annotations

from collections.abc import Callable

from tpumon.analysis.history import WorkerHistory
from tpumon.model import RUNTIME_COUNTS, RUNTIME_LATENCIES, Distribution, Sample
from tpumon.outputs.metrics.metric_types import HistogramMetric, SampleMetric, SampleValues, of_each, single

SOURCE = "Source: libtpu's runtime metric service,"


def _per_device(key: str) -> SampleValues:
    return of_each(lambda sample: sample.figures.devices, lambda device: device.device, key)


def _of_worker(key: str) -> SampleValues:
    return single(lambda sample: getattr(sample.figures.runtime, key))


def _counted(key: str) -> SampleValues:
    return single(lambda sample: sample.figures.runtime_counts.get(key))


def _latencies(key: str) -> Callable[[WorkerHistory, Sample], Distribution | None]:
    return lambda _history, sample: sample.figures.runtime_latencies.get(key)


def _job_began(history: WorkerHistory) -> float | None:
    return history.job_began_unix_s


RUNTIME_GAUGES: tuple[SampleMetric, ...] = (
    SampleMetric(
        name="tpu_hbm_used_bytes",
        help=f"HBM in use on a device. {SOURCE} tpu.runtime.hbm.memory.usage.bytes.",
        labels=("device",),
        values=_per_device("hbm_used_bytes"),
    ),
    SampleMetric(
        name="tpu_hbm_total_bytes",
        help=f"HBM of a device that is available to jobs. {SOURCE} tpu.runtime.hbm.memory.total.bytes.",
        labels=("device",),
        values=_per_device("hbm_total_bytes"),
    ),
    SampleMetric(
        name="tpu_runtime_duty_cycle_ratio",
        help=f"Share of the service's last period in which a device was busy. {SOURCE} "
        "tpu.runtime.tensorcore.dutycycle.percent.",
        labels=("device",),
        values=_per_device("runtime_duty_cycle_ratio"),
    ),
    SampleMetric(
        name="tpu_runtime_hbm_bandwidth_utilization_ratio",
        help=f"HBM bandwidth in use; not capacity. {SOURCE} tpu.runtime.hbm.utilization.percent.",
        labels=("device",),
        values=_per_device("runtime_hbm_bandwidth_utilization_ratio"),
    ),
    SampleMetric(
        name="tpu_runtime_tensorcore_idle_seconds",
        help=f"Time since a TensorCore last ran something; 0 while it is busy. {SOURCE} "
        "tpu.runtime.tensorcore.idle_duration.seconds.",
        labels=("device",),
        values=_per_device("runtime_tensorcore_idle_s"),
    ),
    SampleMetric(
        name="tpu_runtime_hlo_queue_size",
        help=f"Programs queued for a device's TensorCore. {SOURCE} hlo.queue.size.gauge.",
        labels=("device",),
        values=_per_device("runtime_hlo_queue_size"),
    ),
    SampleMetric(
        name="tpu_runtime_uptime_seconds",
        help=f"Uptime of the job's runtime. {SOURCE} tpu.runtime.uptime.seconds.gauge.",
        values=_of_worker("uptime_s"),
    ),
    SampleMetric(
        name="tpu_runtime_megascale_error",
        help=f"1 while the runtime detects a hang or an error between slices. {SOURCE} megascale.error.detected.gauge.",
        values=_of_worker("megascale_error"),
    ),
    SampleMetric(
        name="tpu_runtime_slice_error",
        help=f"1 while the runtime detects a failed slice. {SOURCE} slice.error.detected.gauge.",
        values=_of_worker("slice_error"),
    ),
)

RUNTIME_COUNTERS: tuple[SampleMetric, ...] = tuple(
    SampleMetric(
        name=f"tpu_runtime_megascale_{key}_total",
        help=f"{row.about}, since the job started. {SOURCE} {row.name}.",
        kind="counter",
        since=_job_began,
        values=_counted(key),
    )
    for key, row in RUNTIME_COUNTS.items()
)

RUNTIME_HISTOGRAMS: tuple[HistogramMetric, ...] = tuple(
    HistogramMetric(
        name=f"tpu_runtime_megascale_{key}_seconds",
        help=f"{row.about}, since the job started. {SOURCE} {row.name}.",
        kind="histogram",
        since=_job_began,
        value=_latencies(key),
    )
    for key, row in RUNTIME_LATENCIES.items()
)
