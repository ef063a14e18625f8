"""One host's trace, read and added up: all that figures need, and nothing of the bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import BinaryIO, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from tpumon.model import SIMULATED_MARK, Caution
from tpumon.untrusted_text import one_line
from tpumon.xspace.catalogue.totals import OpTable, merge_tables
from tpumon.xspace.columns.columns import Ints
from tpumon.xspace.columns.intervals import covered_ps, extent
from tpumon.xspace.columns.timeline import Events
from tpumon.xspace.hardware.counters import mxu_busy_ratio
from tpumon.xspace.hardware.gpu import GpuActivity, gpu_name, read_gpus
from tpumon.xspace.hardware.peaks import Peak, peak_of
from tpumon.xspace.planes.core import (
    ChipDuties,
    CoreLines,
    CoreOps,
    CorePlace,
    ModuleRuns,
    core_ops,
    core_place,
    read_core_lines,
    read_sparse_core,
)
from tpumon.xspace.planes.plane import Plane, Value
from tpumon.xspace.planes.space import Space, read_space
from tpumon.xspace.steps.functions import Function, Runs, StepChoice, choose_step, gather, named_program, program_of
from tpumon.xspace.steps.host import HostActivity, annotates_steps, read_host
from tpumon.xspace.steps.host_time import may_show_input, read_compiling
from tpumon.xspace.steps.linking import CONSUMER_STATS, Numbered, number_markers
from tpumon.xspace.steps.steps import CoreSteps, HostSteps, core_steps, host_steps, period_steps, periods, whole_steps
from tpumon.xspace.steps.waits import StepWaits, step_waits
from tpumon.xspace.truncation.search import ALWAYS, Evidence, Truncation, evidence_of, find_truncation
from tpumon.xspace.wire.stored import FileBytes, Stored

Hardware = Literal["TPU", "GPU", "CPU"]


class CoreTotals(Struct, frozen=True, kw_only=True, eq=False):
    """What is kept of one TensorCore.

    Attributes:
        place: where it sits.
        table: its ops, added up.
        op_time_ps: self time of its ops.
        total_ps: from first to last of its steps and ops.
        waits: what it did in its steps that is no op; None where it has no steps.
    """

    place: CorePlace
    table: OpTable
    op_time_ps: float
    total_ps: float
    waits: StepWaits | None


class Trace(Struct, frozen=True, kw_only=True, eq=False, dict=True):
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
        programs_ps: time that ran of each program, by its id.
        program_names: of those that ran on its TensorCores, by their numbers.
        host: what the host's threads show; None if they were not needed.
        compile_ratio: share of the time from the first event of host or devices to the last in which the host traced
            or compiled functions; None without events of the host.
        input_wait_ratio: share of the same time in which the training thread waited for TensorFlow's input pipeline;
            None if no event shows that.
        callback_ratio: share of the same time in which a program that ran on the host's CPU called Python; None if no
            op of the host's names its program.
        gpus: what its GPUs did.
        start_unix_s: when the window began, by the host's clock; None where the trace does not say.
        hostnames: as the trace says.
        simulated: whether tpumon's simulator made it.
        remarks: what a reader of the figures should know.
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
    has_matrix_ops: bool | None
    has_infeed: bool
    steps: HostSteps | None
    module_steps: Mapping[int, CoreSteps]
    choice: StepChoice | None
    functions: tuple[Function, ...]
    programs_ps: Mapping[str, int]
    program_names: Mapping[int, str]
    host: HostActivity | None
    compile_ratio: float | None
    input_wait_ratio: float | None
    callback_ratio: float | None
    gpus: GpuActivity
    start_unix_s: float | None
    hostnames: tuple[str, ...]
    simulated: bool
    remarks: tuple[Caution, ...]
    truncation: Truncation | None

    @cached_property
    def table(self) -> OpTable:
        """The ops of all its TensorCores, of which there is at least one; added up once."""
        return merge_tables([core.table for core in self.cores])


class _Core(Struct, frozen=True, kw_only=True, eq=False):
    """One TensorCore, added up.

    Attributes:
        totals: what is kept of it.
        steps: its steps, marked or between runs of the function that is the step; None where it has neither.
        window_ps: first and last moment of steps, modules and ops; None where there are none.
        has_ops: whether there is any op.
        has_infeed: whether any op is an infeed.
        dropped: events left out because their times are absurd.
        evidence: what it shows of dropped events.
    """

    totals: CoreTotals
    steps: CoreSteps | None
    window_ps: tuple[int, int] | None
    has_ops: bool
    has_infeed: bool
    dropped: int
    evidence: Evidence


def read_trace(xspace: bytes | BinaryIO) -> Trace:
    """Reads a serialized XSpace of one host.

    Args:
        xspace: its bytes, or a regular file of them, which is then not held in memory as a whole.

    Raises:
        SourceError: `malformed`, the bytes are not a trace; `empty-trace`, it holds no event; `too-large`, it has more
            ids in a plane, or events in a line, than are read.
    """
    return trace_of(read_space(stored(xspace)))


def stored(xspace: bytes | memoryview | BinaryIO) -> Stored:
    """The bytes, or those of a regular file, to be read by slices."""
    return memoryview(xspace) if isinstance(xspace, (bytes, memoryview)) else FileBytes(xspace)


def trace_of(space: Space) -> Trace:
    """Reads a trace whose planes are sorted already.

    Raises:
        SourceError: `malformed`.
    """
    # GPU planes come first even where there are TPUs; XProf: SetRunEnvironment.
    hardware: Hardware = "GPU" if space.gpus else "TPU" if space.tensor_cores else "CPU"
    lines = [read_core_lines(plane, CONSUMER_STATS) for plane in space.tensor_cores] if hardware == "TPU" else []
    ran = any(len(core.modules) for core in lines)
    # Whether all of it counts is known when all of it has been read. Truncated traces are read again.
    trace, evidence = _trace(space, hardware, lines, None, ran=ran)
    truncation = find_truncation(space, evidence)
    if truncation is None:
        return trace

    def within(span_ps: tuple[int, int]) -> Trace:
        return _trace(space, hardware, [core.within(span_ps) for core in lines], truncation, ran=ran)[0]

    counted = within(truncation.span_ps or _NOTHING_PS)
    if truncation.steps_ps is None:
        return counted
    others = trace if truncation.steps_ps == ALWAYS else within(truncation.steps_ps)
    return replace(counted, **{name: getattr(others, name) for name in _OF_STEPS})


_NOTHING_PS = (0, -1)  # a span that holds no event
_OF_STEPS = ("steps", "module_steps", "choice", "functions", "host")


def _trace(
    space: Space, hardware: Hardware, lines: Sequence[CoreLines], truncation: Truncation | None, *, ran: bool
) -> tuple[Trace, list[Evidence]]:
    """The trace, and what its cores show of dropped events.

    Args:
        space: the host's.
        hardware: what ran the program.
        lines: of its TensorCores, as far as they count.
        truncation: why they count as far as they do.
        ran: whether any program ran on them, counted or not.
    """
    marked = any(len(core.steps) for core in lines)
    runs = [core.module_runs() for core in lines]
    functions = _functions(runs)
    host = None if marked else _host(space, functions)
    choice = None if marked or not functions else choose_step(functions, host.annotated if host else 0)
    sparse = [(core_place(plane), plane) for plane in (space.sparse_cores if hardware == "TPU" else ())]
    duties = ChipDuties([*(core.place for core in lines), *(place for place, _ in sparse)])
    span_ps = None if truncation is None else truncation.span_ps or _NOTHING_PS
    numbered = number_markers(space.host, lines)
    cores = _cores(lines, numbered, choice, duties, sparse, span_ps)
    steps = host_steps([core.steps for core in cores if core.steps is not None]) if marked else None
    if steps is not None and not (len(steps) and len(steps.cores)):
        steps, host = None, _host(space, ())
    gpus = read_gpus(space.gpus)
    spent = _host_times(space, host, cores)
    device_type = _device_type(space, hardware)
    windows = [core.window_ps for core in cores if core.window_ps is not None]
    host_stats = space.host.stats if space.host else {}
    planes_per_chip = max(Counter(core.place.chip for core in lines if core.place.chip is not None).values(), default=1)
    trace = Trace(
        hardware=hardware,
        device_type=device_type,
        core_count=len(space.gpus) if hardware == "GPU" else len(cores),
        cores=tuple(core.totals for core in cores),
        window_ps=gpus.window_ps or _window(windows, host, truncation),
        duty_ps=(duties.busy_ps, duties.total_ps),
        peak=peak_of(space.tpu_planes[0].stats if space.tpu_planes else {}, device_type, planes_per_chip),
        mxu_counter=_ratio(host_stats.get("matrix_unit_utilization_percent")),
        mxu_perf_counters=mxu_busy_ratio(space.tpu_planes) if hardware == "TPU" else None,
        has_matrix_ops=_has_matrix_ops(cores, ran=ran),
        has_infeed=any(core.has_infeed for core in cores),
        steps=steps,
        module_steps={} if marked else {i: core.steps for i, core in enumerate(cores) if core.steps is not None},
        choice=choice,
        functions=functions or (host.functions if host else ()),
        programs_ps=_programs_ps(runs) or spent.programs_ps,
        program_names=_program_names(name for modules in runs for name in modules),
        host=host,
        compile_ratio=spent.compile_ratio,
        input_wait_ratio=spent.input_wait_ratio,
        callback_ratio=spent.callback_ratio,
        gpus=gpus,
        start_unix_s=space.start_unix_s,
        hostnames=space.hostnames,
        simulated=any(SIMULATED_MARK in remark for remark in space.remarks),
        remarks=_remarks(space, cores, numbered.capped),
        truncation=truncation,
    )
    return trace, [core.evidence for core in cores]


def _cores(
    lines: Sequence[CoreLines],
    numbered: Numbered,
    choice: StepChoice | None,
    duties: ChipDuties,
    sparse: Sequence[tuple[CorePlace, Plane]],
    span_ps: tuple[int, int] | None,
) -> list[_Core]:
    """The cores, added up one after the other: of their ops only one core's are in memory at a time.

    Args:
        lines: theirs.
        numbered: their step markers.
        choice: which function is the step, where no step is marked.
        duties: takes when they worked, and the SparseCores.
        sparse: the SparseCores, and where they sit.
        span_ps: where only what begins and ends in a span counts.
    """
    by_markers = not any(len(core.modules) for core in lines)
    marked = any(len(core.steps) for core in lines)
    runs = choice.function.places if choice and choice.function else {}
    beside: dict[int | None, list[tuple[CorePlace, Plane]]] = {}
    for place, plane in sparse:
        beside.setdefault(place.chip, []).append((place, plane))

    def add(sparse: Iterable[tuple[CorePlace, Plane]]) -> None:
        for place, plane in sparse:
            duties.add(place, read_sparse_core(plane, span_ps, shared=duties.is_shared(place)))

    cores = []
    for i, (core, own) in enumerate(zip(lines, numbered.markers, strict=True)):
        cores.append(_core(core, own if marked else None, runs.get(i), duties, by_markers=by_markers))
        add(beside.pop(core.place.chip, ()))  # now, so that its chip is done
    for rest in beside.values():
        add(rest)
    return cores


def _core(
    core: CoreLines, own: tuple[Events, Ints] | None, runs: Runs | None, duties: ChipDuties, *, by_markers: bool
) -> _Core:
    """A core, added up.

    Args:
        core: whose lines.
        own: its step markers and their numbers; None where no core of the host has any.
        runs: of the function that is the step, on this core.
        duties: takes when it worked.
        by_markers: whether no core of the host has programs.
    """
    ops = core_ops(core.plane, core.read_ops())
    steps = waits = None
    if own is not None:
        whole, groups = whole_steps(core, ops.events, *own)
        steps = core_steps(ops, whole, groups)
        waits = step_waits(core, whole)
    elif runs is not None and len(runs) > 1:
        whole = periods(runs)
        steps = period_steps(ops, whole)
        waits = step_waits(core, whole)
    duties.add(core.place, ops.duty(core.modules, shared=duties.is_shared(core.place)))
    every = [(events.begin_ps, events.end_ps) for events in (core.steps, core.modules, ops.events)]
    return _Core(
        # Markers that do not count are none, unless none of the core's counts.
        totals=_totals(core, ops, own[0] if own is not None and len(own[0]) else core.steps, waits),
        steps=steps,
        window_ps=extent(*every),
        has_ops=len(ops.events) > 0,
        has_infeed=ops.has_infeed,
        dropped=core.steps.dropped + core.modules.dropped + ops.events.dropped,
        evidence=evidence_of(core, ops.events, by_markers=by_markers),
    )


def _totals(core: CoreLines, ops: CoreOps, markers: Events, waits: StepWaits | None) -> CoreTotals:
    """What is kept of a core; its time lasts from first to last of ops and markers. XProf: SetTotalTimePs."""
    begin_ps, duration_ps = markers.device_span_ps()
    spans = [span for span in (ops.span_ps, extent((begin_ps, begin_ps + duration_ps))) if span is not None]
    span_ps = float(max(end for _, end in spans) - min(begin for begin, _ in spans)) if spans else 0.0
    return CoreTotals(
        place=core.place,
        table=ops.table,
        op_time_ps=ops.op_time_ps,
        total_ps=max(ops.op_time_ps, span_ps),
        waits=waits,
    )


def _functions(cores: Sequence[Mapping[str, ModuleRuns]]) -> tuple[Function, ...]:
    runs = (
        (name, i, module.begin_ps, module.duration_ps)
        for i, modules in enumerate(cores)
        for name, module in modules.items()
    )
    return gather(runs, on_device=True)


def _programs_ps(cores: Sequence[Mapping[str, ModuleRuns]]) -> dict[str, int]:
    times_ps = Counter[str]()
    for modules in cores:
        for name, runs in modules.items():
            times_ps[program_of(name)] += int(runs.duration_ps.sum())
    return times_ps


def _program_names(modules: Iterable[str]) -> dict[int, str]:
    return dict(filter(None, map(named_program, modules)))


class _HostTimes(NamedTuple):
    """Shares of the time in which the host did something, and the programs that it ran itself."""

    compile_ratio: float | None = None
    input_wait_ratio: float | None = None
    callback_ratio: float | None = None
    programs_ps: Mapping[str, int] = MappingProxyType({})


def _host_times(space: Space, host: HostActivity | None, cores: Sequence[_Core]) -> _HostTimes:
    """What the host's threads spent their time on.

    Args:
        space: the trace.
        host: what its threads show, if that is known already.
        cores: its TensorCores.
    """
    if space.host is None or not space.host.lines():
        return _HostTimes()
    if host is None and (not cores or may_show_input(space.host)):
        host = read_host(space.host, space.gpus)
    spans = [core.window_ps for core in cores]
    if host is None:
        compiling = read_compiling(space.host)
        host = HostActivity(compile_ps=covered_ps(compiling.begin_ps, compiling.end_ps))
        spans.append(extent((compiling.begin_ps, compiling.end_ps)))
    else:
        spans.append(host.window_ps)
    known = [span for span in spans if span is not None]
    # Nothing takes no time in no window.
    window_ps = max(max(end for _, end in known) - min(begin for begin, _ in known) if known else 0, 1)
    wait_ps, callback_ps = host.input_wait_ps, host.callback_ps
    return _HostTimes(
        compile_ratio=host.compile_ps / window_ps,
        input_wait_ratio=None if wait_ps is None else wait_ps / window_ps,
        callback_ratio=None if callback_ps is None else callback_ps / window_ps,
        programs_ps=host.programs_ps,
    )


def _host(space: Space, functions: Sequence[Function]) -> HostActivity | None:
    """What the host's threads show; where cores ran modules, only if the program marks its steps."""
    if space.host is None or (functions and not annotates_steps(space.host)):
        return None
    host = read_host(space.host, space.gpus)
    return None if functions and not host.annotated else host


def _device_type(space: Space, hardware: Hardware) -> str | None:
    if hardware == "TPU":
        return _text(space.tensor_cores[0].stats.get("device_type_string"))
    if hardware == "GPU":
        return gpu_name(space.gpus[0].stats)
    return "CPU"


def _has_matrix_ops(cores: Sequence[_Core], *, ran: bool) -> bool | None:
    if any(core.totals.table.matrix.any() for core in cores):
        return True
    return None if ran and not any(core.has_ops for core in cores) else False


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


def _remarks(space: Space, cores: Sequence[_Core], capped: str | None) -> tuple[Caution, ...]:
    remarks = [Caution("profiler", remark) for remark in space.remarks if SIMULATED_MARK not in remark]
    remarks += [Caution("capped", words) for words in (*space.capped, *filter(None, [capped]))]
    if dropped := sum(core.dropped for core in cores):
        remarks.append(Caution("impossible-times", f"{dropped} device events with impossible times are left out"))
    return tuple(remarks)
