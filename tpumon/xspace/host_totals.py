"""One host's trace, read and added up: what figures need, but for top operations, which are read from its planes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import BinaryIO, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tpumon.model import SIMULATED_MARK, FigureWarning, TracedPrograms
from tpumon.model.figures import NO_STEP
from tpumon.xspace.columns.columns import Ints
from tpumon.xspace.columns.intervals import covered_ps, extent
from tpumon.xspace.core_totals import Core, CoreTotals, cores_of
from tpumon.xspace.hardware import GpuActivity, Peak, gpu_name, mxu_busy_ratio, peak_of, read_gpus, text_of
from tpumon.xspace.ops.op_tables import OpTable, merge_tables
from tpumon.xspace.planes.core import (
    CoreLines,
    chip_times_ps,
    core_place,
    read_core_lines,
    read_sparse_core,
)
from tpumon.xspace.planes.space import PlaneIndex, read_space
from tpumon.xspace.served_programs import traced_programs
from tpumon.xspace.steps.functions import (
    Function,
    StepChoice,
    choose_step,
    gather,
    keeps_step,
    named_program,
    program_of,
)
from tpumon.xspace.steps.host_threads import (
    HostActivity,
    annotates_steps,
    may_show_input,
    read_compiling,
    read_host,
)
from tpumon.xspace.steps.linking import CONSUMER_STATS, number_markers
from tpumon.xspace.steps.tpu_steps import (
    CoreSteps,
    HostSteps,
    host_steps,
)
from tpumon.xspace.truncation.search import ALWAYS, Truncation, find_truncation
from tpumon.xspace.wire import stored

Hardware = Literal["TPU", "GPU", "CPU"]


class HostTimes(Struct, frozen=True, kw_only=True, eq=False):
    """Shares of the time from the first event of host or devices to the last.

    Attributes:
        compile_ratio: the host traced or compiled functions; None without events of the host.
        input_wait_ratio: the training thread waited for TensorFlow's input pipeline; of the time of its whole steps if
            it shows steps; None if no event shows waiting.
        callback_ratio: a program that ran on the host's CPU called Python; None if no op of the host's names its
            program.
    """

    compile_ratio: float | None = None
    input_wait_ratio: float | None = None
    callback_ratio: float | None = None


class TraceSteps(Struct, frozen=True, kw_only=True, eq=False):
    """The steps of one host, and what tells them.

    Attributes:
        marked: as the devices mark them; None where they do not.
        module_steps: if no step is marked, each core's periods between runs of the function that is the step; cores
            that do not run it twice are left out.
        choice: which function that is; None if steps are marked, or no core ran any module.
        functions: what the cores ran; what the host called if there is no TPU.
        host: what the host's threads show; None if they were not needed.
    """

    marked: HostSteps | None
    module_steps: Mapping[int, CoreSteps]
    choice: StepChoice | None
    functions: tuple[Function, ...]
    host: HostActivity | None


class HostTotals(Struct, frozen=True, kw_only=True, eq=False, dict=True):
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
        has_matrix_ops: whether any op uses the matrix units.
        has_programs_only: whether programs ran, but no op was recorded.
        has_infeed: whether any op is an infeed.
        steps: what its steps are.
        programs_ps: time of each program, by its id; of the host's own where no core ran any.
        program_names: of those that ran on its TensorCores, by their numbers.
        served: the programs of a server of models; None if it ran none.
        host_times: shares of the time in which the host did what may keep devices waiting.
        gpus: what its GPUs did.
        start_unix_s, stop_unix_s: when the window began and ended, by the host's clock; None where the trace does not
            say.
        hostnames: as the trace says.
        simulated: whether tpumon's simulator made it.
        warnings: what a reader of the figures should know.
        truncation: what is missing and which span the figures of devices cover; None for a whole trace. Where no span
            is long enough, they are of nothing, but for steps where some cores are whole.
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
    has_matrix_ops: bool
    has_programs_only: bool
    has_infeed: bool
    steps: TraceSteps
    programs_ps: Mapping[str, int]
    program_names: Mapping[int, str]
    served: TracedPrograms | None
    host_times: HostTimes
    gpus: GpuActivity
    start_unix_s: float | None
    stop_unix_s: float | None
    hostnames: tuple[str, ...]
    simulated: bool
    warnings: tuple[FigureWarning, ...]
    truncation: Truncation | None

    @cached_property
    def table(self) -> OpTable:
        """Ops of all TensorCores (at least one), added up once."""
        return merge_tables([core.table for core in self.cores])


def read_host_totals(xspace: bytes | BinaryIO) -> HostTotals:
    """Reads a serialized XSpace of one host.

    Args:
        xspace: its bytes, or a regular file of them, which is then not held in memory as a whole.

    Raises:
        SourceError: as `tpumon.xspace.trace_figures.read_figures`.
    """
    return host_totals_of(read_space(stored(xspace)))


def host_totals_of(space: PlaneIndex, *, by_op: bool = False) -> HostTotals:
    """Adds up a trace whose planes are known by kind already.

    Args:
        space: the planes.
        by_op: whether the time of each op in each step is wanted.

    Raises:
        SourceError: `malformed`.
    """
    # GPU planes come first even where there are TPUs; XProf: SetRunEnvironment.
    hardware: Hardware = "GPU" if space.gpus else "TPU" if space.tensor_cores else "CPU"
    planes = space.tensor_cores if hardware == "TPU" else ()
    lines = [read_core_lines(plane, CONSUMER_STATS, by_op=by_op) for plane in planes]
    ran = any(len(core.modules) for core in lines)
    # Whether all of it counts is known when all of it has been read. Truncated traces are read again.
    trace, cores = _trace(space, hardware, lines, None, ran=ran)
    marked = [core.marked_runs for core in cores if core.marked_runs is not None]
    truncation = find_truncation(space, [core.runs for core in cores], marked)
    if truncation is None:
        return trace
    if not truncation.is_sure:
        warnings = (FigureWarning("missing-cores", reason) for reason in truncation.reasons)
        return replace(trace, warnings=(*trace.warnings, *warnings))

    def within(span_ps: tuple[int, int]) -> HostTotals:
        return _trace(space, hardware, [core.within(span_ps) for core in lines], truncation, ran=ran)[0]

    counted = within(truncation.span_ps or _NOTHING_PS)
    if truncation.steps_ps is None:
        return counted
    whole_cores = trace if truncation.steps_ps == ALWAYS else within(truncation.steps_ps)
    return replace(counted, steps=whole_cores.steps)


_NOTHING_PS = (0, -1)  # a span that holds no event


def _trace(
    space: PlaneIndex, hardware: Hardware, lines: Sequence[CoreLines], truncation: Truncation | None, *, ran: bool
) -> tuple[HostTotals, Sequence[Core]]:
    """The trace, and its cores.

    Args:
        space: the host's.
        hardware: what ran the program.
        lines: of its TensorCores, as far as they count.
        truncation: why they count as far as they do.
        ran: whether any program ran on them, counted or not.
    """
    runs = [(name, i, *times) for i, core in enumerate(lines) for name, times in core.module_runs().items()]
    steps, cores, capped = _find_steps(space, lines, gather(runs, on_device=True))
    activity = _host_for_times(space, steps.host, on_cores=bool(cores))
    gpus = read_gpus(space.gpus)
    windows = [core.window_ps for core in cores if core.window_ps is not None]
    duties = [(core.totals.place, core.duty) for core in cores]
    if hardware == "TPU":
        span_ps = None if truncation is None else truncation.span_ps or _NOTHING_PS
        duties += [(core_place(plane), read_sparse_core(plane, span_ps)) for plane in space.sparse_cores]
    window_ps = gpus.window_ps or _window(windows, steps.host, truncation)
    trace = HostTotals(
        hardware=hardware,
        device_type=_device_type(space, hardware),
        core_count=len(space.gpus) if hardware == "GPU" else len(cores),
        cores=tuple(core.totals for core in cores),
        window_ps=window_ps,
        duty_ps=chip_times_ps(duties),
        peak=_peak(space, hardware, lines),
        mxu_counter=_mxu_counter(space),
        mxu_perf_counters=mxu_busy_ratio(space.tpu_planes) if hardware == "TPU" else None,
        has_matrix_ops=any(core.totals.table.matrix.any() for core in cores),
        has_programs_only=ran and not any(core.has_ops for core in cores),
        has_infeed=any(core.has_infeed for core in cores),
        steps=steps,
        programs_ps=_programs_ps(runs) or (activity.programs_ps if activity else {}),
        program_names=dict(filter(None, (named_program(name) for name, *_ in runs))),
        served=None
        if hardware == "GPU"
        else _served(space, lines, steps.functions, cores, runs, window_ps, truncation),
        host_times=_host_part(activity, windows),
        gpus=gpus,
        start_unix_s=space.start_unix_s,
        stop_unix_s=space.stop_unix_s,
        hostnames=space.hostnames,
        simulated=any(SIMULATED_MARK in remark for remark in space.remarks),
        warnings=_warnings(space, cores, capped),
        truncation=truncation,
    )
    return trace, cores


def _served(
    space: PlaneIndex,
    lines: Sequence[CoreLines],
    functions: Sequence[Function],
    cores: Sequence[Core],
    runs: Sequence[tuple[str, int, Ints, Ints]],
    window_ps: tuple[int, int] | None,
    truncation: Truncation | None,
) -> TracedPrograms | None:
    """The programs of a server of models in the window, or in what counts of it; None: it ran none."""
    return traced_programs(
        functions,
        window_ps if truncation is None else truncation.span_ps,
        duties=[core.duty for core in cores],
        cores=[core.plane for core in lines],
        runs=runs,
        host=space.host,
    )


def _find_steps(
    space: PlaneIndex, lines: Sequence[CoreLines], functions: tuple[Function, ...]
) -> tuple[TraceSteps, Sequence[Core], str | None]:
    """Finds out what the step is, and adds up the cores by it.

    Args:
        space: the host's.
        lines: of its TensorCores, as far as they count.
        functions: what these ran.

    Returns:
        the steps, the cores, and what there was too much of to match the steps of all cores; None if there was not.
    """
    are_marked = any(len(core.steps) for core in lines)
    host = None if are_marked else _host_for_steps(space, functions)
    choice = None if are_marked or not functions else choose_step(functions, host.annotated if host else 0)
    numbered = number_markers(space.host, lines)
    cores = cores_of(lines, numbered, choice)
    by_core = {i: core.steps for i, core in enumerate(cores) if core.steps is not None}
    marked = host_steps([*by_core.values()], numbered.step_of) if are_marked else None
    if are_marked and marked is None:
        host = _host_for_steps(space, ())
    steps = TraceSteps(
        marked=marked,
        module_steps={} if are_marked else by_core,
        choice=choice,
        functions=functions or (host.functions if host else ()),
        host=host,
    )
    return steps, cores, numbered.capped


def _programs_ps(runs: Sequence[tuple[str, int, Ints, Ints]]) -> dict[str, int]:
    """Time of each program, by its id, on all cores together."""
    times_ps = Counter[str]()
    for name, _, _, duration_ps in runs:
        times_ps[program_of(name)] += int(duration_ps.sum())
    return times_ps


def _host_for_steps(space: PlaneIndex, functions: Sequence[Function]) -> HostActivity | None:
    """Activity of the host's threads, for steps; where cores ran modules, only if the program marks its steps."""
    if space.host is None or (functions and not annotates_steps(space.host)):
        return None
    host = read_host(space.host, space.gpus)
    if functions and not host.annotated:
        return None
    if not space.tensor_cores or not host.periods_s or keeps_step(float(np.mean(host.periods_s)), functions):
        return host
    apart = f"{NO_STEP}those that the host marks are not the devices'" if functions else "no program ran in the window"
    return replace(host, periods_s=(), reason=apart)


def _host_for_times(space: PlaneIndex, host: HostActivity | None, *, on_cores: bool) -> HostActivity | None:
    """Activity of the host's threads, for the shares of time; None without events of the host.

    Of its steps it says nothing where nobody needs them.

    Args:
        space: the trace.
        host: the whole activity, if that is known already.
        on_cores: whether there are TensorCores.
    """
    if space.host is None or not space.host.lines():
        return None
    if host is None and (not on_cores or may_show_input(space.host)):
        return read_host(space.host, space.gpus)
    if host is None:
        compiling = read_compiling(space.host)
        spans = (compiling.begin_ps, compiling.end_ps)
        return HostActivity(compile_ps=covered_ps(*spans), window_ps=extent(spans))
    return host


def _host_part(host: HostActivity | None, windows: Sequence[tuple[int, int]]) -> HostTimes:
    if host is None:
        return HostTimes()
    known = [*windows, *filter(None, [host.window_ps])]
    # Nothing takes no time in no window.
    window_ps = max(max(end for _, end in known) - min(begin for begin, _ in known) if known else 0, 1)
    wait_ps, callback_ps = host.input_wait_ps, host.callback_ps
    of_window = None if wait_ps is None else wait_ps / window_ps
    return HostTimes(
        compile_ratio=host.compile_ps / window_ps,
        input_wait_ratio=of_window if host.input_wait_ratio is None else host.input_wait_ratio,
        callback_ratio=None if callback_ps is None else callback_ps / window_ps,
    )


def _device_type(space: PlaneIndex, hardware: Hardware) -> str | None:
    if hardware == "TPU":
        return text_of(space.tensor_cores[0].stats.get("device_type_string"))
    if hardware == "GPU":
        return gpu_name(space.gpus[0].stats)
    return "CPU"


def _peak(space: PlaneIndex, hardware: Hardware, cores: Sequence[CoreLines]) -> Peak:
    planes = Counter(core.place.chip for core in cores if core.place.chip is not None)
    stats = space.tpu_planes[0].stats if space.tpu_planes else {}
    return peak_of(stats, _device_type(space, hardware), max(planes.values(), default=1))


def _mxu_counter(space: PlaneIndex) -> float | None:
    """The profiler's own ratio; None for what cannot be one."""
    percent = space.host.stats.get("matrix_unit_utilization_percent") if space.host else None
    return percent / 100 if isinstance(percent, (int, float)) and 0 <= percent <= 100 else None


def _window(
    cores: Sequence[tuple[int, int]], host: HostActivity | None, truncation: Truncation | None
) -> tuple[int, int] | None:
    if cores:
        return min(begin for begin, _ in cores), max(end for _, end in cores)
    if truncation is not None and truncation.window_ps is not None:
        return truncation.window_ps
    return host.window_ps if host else None


def _warnings(space: PlaneIndex, cores: Sequence[Core], capped: str | None) -> tuple[FigureWarning, ...]:
    warnings = [FigureWarning("profiler", remark) for remark in space.remarks if SIMULATED_MARK not in remark]
    warnings += [FigureWarning("capped", words) for words in (*space.capped, *filter(None, [capped]))]
    if dropped := sum(core.dropped for core in cores):
        warnings.append(
            FigureWarning("impossible-times", f"{dropped} device events with impossible times are left out")
        )
    return tuple(warnings)
