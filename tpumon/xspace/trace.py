"""One host's trace, read and added up: all that figures need, and nothing of the bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tpumon.model import SIMULATED_MARK, Caution
from tpumon.text import one_line
from tpumon.xspace.counters import mxu_busy_ratio
from tpumon.xspace.device import CoreLines, CorePlace, Duty, TensorCore, read_core_lines, read_sparse_core, tensor_core
from tpumon.xspace.functions import Function, StepChoice, choose_step, gather
from tpumon.xspace.gpu import GpuActivity, gpu_name, read_gpus
from tpumon.xspace.host import HostActivity, annotates_steps, read_host
from tpumon.xspace.intervals import covered_ps
from tpumon.xspace.linking import CONSUMER_STATS, number_markers
from tpumon.xspace.ops import OpTable
from tpumon.xspace.peaks import Peak, peak_of
from tpumon.xspace.planes import Events, Space, Value, read_space
from tpumon.xspace.reader import Ints
from tpumon.xspace.steps import CoreSteps, HostSteps, core_steps, host_steps, period_steps, whole_steps
from tpumon.xspace.truncation import Truncation, find_truncation

Hardware = Literal["TPU", "GPU", "CPU"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTotals:
    """What is kept of one TensorCore.

    Attributes:
        place: where it sits.
        table: its ops, added up.
        op_time_ps: self time of its ops.
        total_ps: from first to last of its steps and ops.
    """

    place: CorePlace
    table: OpTable = field(repr=False)
    op_time_ps: float
    total_ps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One host's trace.

    Attributes:
        hardware: what ran the program; XProf: SetRunEnvironment.
        device_type: as the trace calls it.
        core_count: planes of its devices: TensorCores, or GPUs.
        cores: its TensorCores.
        window_ps: first and last moment of steps, modules and ops, or of everything where there are none.
        duty_ps: busy time and time of chips, each summed over chips.
        peak: of one TensorCore.
        mxu_counter: what the profiler counted, as a ratio; None where it did not.
        mxu_perf_counters: the same from hardware counters.
        has_matrix_ops: whether any op uses the matrix units; None where programs ran but no op was recorded.
        has_infeed: whether any op is an infeed.
        steps: as the devices mark them; None where they do not.
        module_steps: if no step is marked, each core's periods between runs of the function that is the step; cores
            that do not run it twice are left out.
        choice: which function that is; None if steps are marked, or no core ran any module.
        functions: what the cores ran; what the host called if there is no TPU.
        host: what the host's threads show; None if they were not needed.
        gpus: what its GPUs did.
        start_unix_s: when the window began, by the host's clock; None where the trace does not say.
        hostnames: as the trace says.
        simulated: whether tpumon's simulator made it.
        remarks: what a reader of the figures should know.
        truncation: what is missing and which span the figures of devices cover; None for a whole trace. Where no span
            is long enough, they are of nothing.
    """

    hardware: Hardware
    device_type: str | None
    core_count: int
    cores: tuple[CoreTotals, ...]
    window_ps: tuple[int, int] | None
    duty_ps: tuple[int, int]
    peak: Peak
    mxu_counter: float | None
    mxu_perf_counters: float | None
    has_matrix_ops: bool | None
    has_infeed: bool
    steps: HostSteps | None
    module_steps: Mapping[int, CoreSteps]
    choice: StepChoice | None
    functions: tuple[Function, ...]
    host: HostActivity | None
    gpus: GpuActivity
    start_unix_s: float | None
    hostnames: tuple[str, ...]
    simulated: bool
    remarks: tuple[Caution, ...]
    truncation: Truncation | None


def read_trace(xspace: bytes) -> Trace:
    """Reads a serialized XSpace of one host.

    Raises:
        SourceError: `malformed`, the bytes are not a trace; `empty-trace`, it holds no event.
    """
    space = read_space(xspace)
    # GPU planes come first even where there are TPUs; XProf: SetRunEnvironment.
    hardware: Hardware = "GPU" if space.gpus else "TPU" if space.tensor_cores else "CPU"
    host_stats = space.host.stats() if space.host else {}
    lines = [read_core_lines(plane, CONSUMER_STATS) for plane in space.tensor_cores] if hardware == "TPU" else []
    truncation = find_truncation(space, lines)
    cores = [tensor_core(each) for each in _whole(lines, truncation)]
    markers = number_markers(space.host, cores)
    steps = _marked_steps(cores, markers)
    functions = _functions(cores)
    marked = any(len(core.steps) for core in cores)
    host = _host(space, () if marked else functions) if steps is None else None
    choice = None if marked or not functions else choose_step(functions, host.annotated if host else 0)
    gpus = read_gpus(space.gpus)
    device_type = _device_type(space, hardware)
    windows = [core.window_ps for core in cores if core.window_ps is not None]
    return Trace(
        hardware=hardware,
        device_type=device_type,
        core_count=len(space.gpus) if hardware == "GPU" else len(cores),
        cores=tuple(
            CoreTotals(
                place=core.place,
                table=core.table,
                op_time_ps=core.op_time_ps,
                # Markers that do not count are none, unless none of the core's counts.
                total_ps=core.total_ps(marked if len(marked) else core.steps),
            )
            for core, (marked, _) in zip(cores, markers, strict=True)
        ),
        window_ps=gpus.window_ps or _window(windows, host, truncation),
        duty_ps=_duty([(core.place, core.duty) for core in cores] + _sparse_cores(space, truncation)),
        peak=peak_of(space.tpu_planes[0].stats() if space.tpu_planes else {}, device_type, _planes_per_chip(cores)),
        mxu_counter=_ratio(host_stats.get("matrix_unit_utilization_percent")),
        mxu_perf_counters=mxu_busy_ratio(space.tpu_planes) if hardware == "TPU" else None,
        has_matrix_ops=_has_matrix_ops(cores, lines),
        has_infeed=any(core.has_infeed for core in cores),
        steps=steps,
        module_steps=_module_steps(cores, choice.function) if choice and choice.function else {},
        choice=choice,
        functions=functions or (host.functions if host else ()),
        host=host,
        gpus=gpus,
        start_unix_s=space.start_unix_s,
        hostnames=space.hostnames,
        simulated=any(SIMULATED_MARK in remark for remark in space.remarks),
        remarks=_remarks(space, cores),
        truncation=truncation,
    )


_NOTHING_PS = (0, -1)  # a span that holds no event


def _whole(lines: Sequence[CoreLines], truncation: Truncation | None) -> Sequence[CoreLines]:
    """What the figures are taken from."""
    if truncation is None:
        return lines
    return [core.within(truncation.span_ps or _NOTHING_PS) for core in lines]


def _sparse_cores(space: Space, truncation: Truncation | None) -> list[tuple[CorePlace, Duty]]:
    span_ps = None if truncation is None else truncation.span_ps or _NOTHING_PS
    return [read_sparse_core(plane, span_ps) for plane in space.sparse_cores]


def _marked_steps(cores: Sequence[TensorCore], markers: Sequence[tuple[Events, Ints]]) -> HostSteps | None:
    whole = [whole_steps(core, *marked) for core, marked in zip(cores, markers, strict=True)]
    steps = host_steps([core_steps(core, *marked) for core, marked in zip(cores, whole, strict=True)])
    return steps if len(steps) and len(steps.cores) else None


def _functions(cores: Sequence[TensorCore]) -> tuple[Function, ...]:
    runs = (
        (name, i, module.begin_ps, module.duration_ps)
        for i, core in enumerate(cores)
        for name, module in core.modules.items()
    )
    return gather(runs, on_device=True)


def _module_steps(cores: Sequence[TensorCore], function: Function) -> dict[int, CoreSteps]:
    """The periods between starts of a function, by position of the core."""
    return {i: period_steps(cores[i], runs) for i, runs in function.places.items() if len(runs) > 1}


def _host(space: Space, functions: Sequence[Function]) -> HostActivity | None:
    """What the host's threads show; where cores ran modules, only if the program marks its steps."""
    if space.host is None or (functions and not annotates_steps(space.host)):
        return None
    host = read_host(space.host, space.gpus)
    return None if functions and not host.annotated else host


def _device_type(space: Space, hardware: Hardware) -> str | None:
    if hardware == "TPU":
        return _text(space.tensor_cores[0].stats().get("device_type_string"))
    if hardware == "GPU":
        return gpu_name(space.gpus[0].stats())
    return "CPU"


def _planes_per_chip(cores: Sequence[TensorCore]) -> int:
    """How many TensorCores of one chip have a plane of their own."""
    return max(Counter(core.place.chip for core in cores if core.place.chip is not None).values(), default=1)


def _has_matrix_ops(cores: Sequence[TensorCore], lines: Sequence[CoreLines]) -> bool | None:
    if any(totals.matrix for core in cores for totals in core.table.values()):
        return True
    ran_unseen = any(len(core.modules) for core in lines) and not any(len(core.ops.events) for core in cores)
    return None if ran_unseen else False


def _text(value: Value | None) -> str | None:
    return one_line(value) or None if isinstance(value, str) else None


def _ratio(percent: Value | None) -> float | None:
    """A percentage as a ratio; None for what cannot be one."""
    return percent / 100 if isinstance(percent, (int, float)) and 0 <= percent <= 100 else None


def _window(
    cores: Sequence[tuple[int, int]], host: HostActivity | None, truncation: Truncation | None
) -> tuple[int, int] | None:
    if cores:
        return min(begin for begin, _ in cores), max(end for _, end in cores)
    if truncation is not None and truncation.window_ps is not None:
        return truncation.window_ps
    return host.window_ps if host else None


def _duty(cores: Sequence[tuple[CorePlace, Duty]]) -> tuple[int, int]:
    """Busy time and time of chips; cores of one chip count as one. XProf: DutyCycleCombiner."""
    chips: dict[tuple[str, int], list[Duty]] = {}
    for i, (place, duty) in enumerate(cores):
        chips.setdefault(("alone", i) if place.chip is None else ("chip", place.chip), []).append(duty)
    busy_ps = total_ps = 0
    for duties in chips.values():
        spans = [duty.span_ps for duty in duties if duty.span_ps is not None]
        if spans:
            begin_ps = np.concatenate([duty.begin_ps for duty in duties])
            busy_ps += covered_ps(begin_ps, np.concatenate([duty.end_ps for duty in duties]))
            total_ps += max(end for _, end in spans) - min(begin for begin, _ in spans)
    return busy_ps, total_ps


def _remarks(space: Space, cores: Sequence[TensorCore]) -> tuple[Caution, ...]:
    remarks = [Caution("profiler", remark) for remark in space.remarks if SIMULATED_MARK not in remark]
    remarks += [Caution("capped", words) for words in space.capped]
    if dropped := sum(core.dropped for core in cores):
        remarks.append(Caution("impossible-times", f"{dropped} device events with impossible times are left out"))
    return tuple(remarks)
