"""The figures of one worker. Absent is None, never 0.

Ratios are 0-1, times in seconds, sizes in bytes, as the names say. `tpumon.figures` is the table of how each is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tpumon.model.codec import limited, not_in_json

MxuMethod = Literal["server", "counter", "perf-counters", "flops"]
StepSource = Literal["server", "steps", "modules", "host"]

_MOST_ROWS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A ratio over the steps of a window."""

    avg: float
    min: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Step durations in seconds over the steps of a window; `stddev` and `count` where the source reports them."""

    avg: float
    min: float
    max: float
    stddev: float | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreFigures:
    """One core of a worker, from a trace; meanings as in `Figures`.

    Attributes:
        chip: number of the chip on its host; within the slice where several hosts are shown.
        core: number of the core on its chip.
    """

    chip: int | None = None
    core: int | None = None
    idle_ratio: float | None = None
    flops_utilization_ratio: float | None = None
    infeed_ratio: float | None = None
    step_time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFigures:
    """One device as libtpu's runtime metric service reports it.

    Attributes:
        device: its id within the slice, as reported.
        hbm_used_bytes: from tpu.runtime.hbm.memory.usage.bytes.
        hbm_total_bytes: from tpu.runtime.hbm.memory.total.bytes.
        runtime_duty_cycle_ratio: from tpu.runtime.tensorcore.dutycycle.percent.
        runtime_hbm_bandwidth_utilization_ratio: from tpu.runtime.hbm.utilization.percent.
        runtime_tensorcore_idle_s: from tpu.runtime.tensorcore.idle_duration.seconds.
        runtime_hlo_queue_size: from hlo.queue.size.gauge, summed over the device's cores.
    """

    device: str
    hbm_used_bytes: int | None = None
    hbm_total_bytes: int | None = None
    runtime_duty_cycle_ratio: float | None = None
    runtime_hbm_bandwidth_utilization_ratio: float | None = None
    runtime_tensorcore_idle_s: float | None = None
    runtime_hlo_queue_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeFigures:
    """A worker's runtime as a whole, as libtpu's runtime metric service reports it; errors are 0 or 1."""

    uptime_s: float | None = None
    megascale_error: float | None = None
    slice_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one worker in one window, by XProf's definitions where they come from traces.

    A new figure is a field here, its computation in a source, and a row in `tpumon.figures`.

    Attributes:
        mxu_utilization_ratio: utilisation of the matrix units, by `mxu_method`.
        idle_ratio: share of the window without any op.
        duty_cycle_ratio: share of time with ops, of XProf's op profile.
        flops_utilization_ratio: FLOP/s against the peak, idle time left out.
        hbm_bandwidth_utilization_ratio: bytes moved to and from HBM against the peak.
        step_time_s: durations of the steps; `step_source` says what a step is.
        infeed_ratio: share of a step spent waiting for infeed.
        step_parts_s: what an average step spends its time on, by the part's name.
        per_core: a row per core; empty without a trace.
        hbm_used_bytes, hbm_total_bytes: of the whole worker.
        devices: a row per device of the runtime metric service.
        runtime: the runtime as a whole.
        absent: for each figure that is None although it was asked for: why, by field name.
        step_durations_s: every step of the window; not part of the JSON.
    """

    mxu_utilization_ratio: float | None = None
    mxu_method: MxuMethod | None = None
    idle_ratio: float | None = None
    duty_cycle_ratio: float | None = None
    flops_utilization_ratio: float | None = None
    hbm_bandwidth_utilization_ratio: float | None = None
    step_time_s: StepTimes | None = None
    step_source: StepSource | None = None
    infeed_ratio: Spread | None = None
    step_parts_s: Mapping[str, float] | None = None
    per_core: tuple[CoreFigures, ...] = field(default=(), metadata=limited(_MOST_ROWS))
    hbm_used_bytes: int | None = None
    hbm_total_bytes: int | None = None
    devices: tuple[DeviceFigures, ...] = field(default=(), metadata=limited(_MOST_ROWS))
    runtime: RuntimeFigures = field(default_factory=RuntimeFigures)
    absent: Mapping[str, str] = field(default_factory=dict)
    step_durations_s: tuple[float, ...] = field(default=(), metadata=not_in_json())
