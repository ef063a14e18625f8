"""The figures of one or several hosts, by XProf's definitions; docs/figures.md lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tpumon.model import Figures, FigureWarning, MxuMethod
from tpumon.model.chips import chip_of
from tpumon.model.figure_table import DEVICE_FIELDS
from tpumon.model.figures import MOST_PROGRAMS, NO_STEP
from tpumon.xspace.columns.columns import PS_PER_S
from tpumon.xspace.core_totals import CoreTotals
from tpumon.xspace.hardware import Peak
from tpumon.xspace.host_totals import HostTotals, host_totals_of
from tpumon.xspace.ops.op_kinds import WIDTHS, TimeKind
from tpumon.xspace.ops.op_tables import (
    custom_call_ratio,
    matrix_flops,
    merge_tables,
    padding_ratio,
    root_totals,
    times_by_kind_ps,
    unknown_bytes_ratio,
)
from tpumon.xspace.partial_figures import WINDOW_WITHOUT_STEPS, PartialFigures, of_peak, ratio
from tpumon.xspace.planes.space import read_space
from tpumon.xspace.profile.top_ops import top_ops
from tpumon.xspace.step_figures import step_figures
from tpumon.xspace.truncation.search import REASON as TRUNCATED
from tpumon.xspace.wire import stored

_NO_DEVICE = "no device in the trace"
_A_GPU = "a GPU, not a TPU"
_NO_OPS_RECORDED = "programs ran, but no op was recorded"
_NO_HOST_EVENTS = "the host is not in the trace"
_NOTHING = Figures()
_NO_MATRIX_SHAPES = "no matrix operation whose shapes the trace tells"


class TraceFigures(Struct, frozen=True, kw_only=True):
    """Figures of the traces of one or several hosts.

    Attributes:
        device_type: as the trace names it.
        core_count: TensorCores of all hosts, or GPUs.
        window_s: from the first to the last event of steps, modules and ops; of all events on a host-only trace.
        simulated: whether tpumon's simulator made any of them.
        hostnames: as the traces report them.
        warnings: what a reader of the figures should know.
        truncated: what is missing from the traces and which span the figures cover; None for whole traces.
        figures: the figures; for each one that is None, `absent` says why.
        op_within_s: the shortest window that held a whole op of the busiest core wherever it began; None: no two ops.
        stepless: whether a longer window would show no step either, as with eager dispatch or requests at random times.
    """

    device_type: str | None
    core_count: int
    window_s: float
    simulated: bool
    hostnames: tuple[str, ...]
    warnings: tuple[FigureWarning, ...]
    truncated: str | None
    figures: Figures
    op_within_s: float | None = None
    stepless: bool = False


def read_figures(xspace: bytes | memoryview | BinaryIO, most_ops: int) -> TraceFigures:
    """The figures of one host's trace, its top operations and their categories among them.

    Args:
        xspace: its bytes, or a regular file of them.
        most_ops: how many operations, and how many categories; 0: none are wanted.

    Raises:
        SourceError: `malformed`, the bytes are not a trace; `empty-trace`, it holds no event; `too-large`, it has more
            ids in a plane, or events in a line, than are read.
    """
    space = read_space(stored(xspace))
    trace = host_totals_of(space)
    result = figures_of_hosts([trace])
    if not most_ops:
        return result
    if reason := _why_no_ops(trace):
        return replace(result, figures=replace(result.figures, absent={**result.figures.absent, "ops": reason}))
    ops, categories = top_ops(space, trace, most_ops)
    return replace(result, figures=replace(result.figures, ops=ops, op_categories=categories))


def _why_no_ops(trace: HostTotals) -> str | None:
    """Reason that there is no operation to show; None if there is one."""
    if trace.hardware != "TPU":
        return _A_GPU if trace.hardware == "GPU" else _NO_DEVICE
    if any(len(core.table) for core in trace.cores):
        return None
    return _NO_OPS_RECORDED if trace.has_programs_only else "no ops in the window"


def figures_of_hosts(traces: Sequence[HostTotals]) -> TraceFigures:
    """The figures of one host, or of several of one session combined as XProf combines them.

    Hosts without a device take no part where others have one; XProf: IsCoordinator.

    Args:
        traces: of the hosts, at least one.
    """
    if not traces:
        raise ValueError("figures of no trace")
    traces = [trace for trace in traces if trace.hardware != "CPU"] or traces
    if any(trace.hardware == "TPU" for trace in traces):
        traces = [trace for trace in traces if trace.hardware == "TPU"]
    device, steps, host = _device_part(traces), step_figures(traces), _host_times(traces)
    warnings = [*dict.fromkeys(warning for trace in traces for warning in trace.warnings)]
    warnings += [*device.warnings, *steps.warnings]
    truncated = _truncated(traces)
    lost = dict.fromkeys(trace.truncation.words for trace in traces if trace.truncation is not None)
    warnings += [FigureWarning("truncated", f"the trace is truncated: {words}") for words in lost]
    within_ps = [core.op_within_ps for trace in traces for core in trace.cores]
    within_s = [one_ps / PS_PER_S for one_ps in within_ps if one_ps is not None]
    windows_s = [(end - begin) / PS_PER_S for begin, end in (trace.window_ps for trace in traces if trace.window_ps)]
    return TraceFigures(
        device_type=traces[-1].device_type,
        core_count=sum(trace.core_count for trace in traces),
        window_s=max(windows_s, default=0.0),
        simulated=any(trace.simulated for trace in traces),
        hostnames=tuple(dict.fromkeys(name for trace in traces for name in trace.hostnames)),
        warnings=tuple(warnings),
        truncated=truncated,
        figures=_without_lost(traces, _together(device, steps, host)),
        op_within_s=min(within_s, default=None),
        stepless=steps.absent.get("step_time_s", "").startswith(NO_STEP),
    )


def _truncated(traces: Sequence[HostTotals]) -> str | None:
    several = len(traces) > 1
    words = [
        f"{', '.join(trace.hostnames)}: {trace.truncation.words}"
        if several and trace.hostnames
        else trace.truncation.words
        for trace in traces
        if trace.truncation is not None
    ]
    return "; ".join(dict.fromkeys(words)) or None


def _without_lost(traces: Sequence[HostTotals], figures: Figures) -> Figures:
    """The figures without those that need every core of every host, if no span of one of them is whole.

    The counters of the hardware stand, and so do the steps of cores that are whole where others have no event: all take
    as long. A host's own calls tell no step of its TPUs: it may be many runs ahead.
    """
    lost = [trace.truncation for trace in traces if trace.truncation is not None and trace.truncation.span_ps is None]
    if not lost:
        return figures
    names = {*DEVICE_FIELDS, "step_time_s", "step_parts_s"}
    if figures.mxu_method in {"counter", "perf-counters"}:
        names.remove("mxu_utilization_ratio")
    if figures.step_source == "host":
        has_steps = traces[-1].hardware == "GPU"
    else:
        has_steps = all(each.steps_ps is not None for each in lost)
    if has_steps:
        names.remove("step_time_s")
    gone: dict[str, Any] = dict.fromkeys({*names, "step_work_s"})
    if "mxu_utilization_ratio" in names:
        gone["mxu_method"] = None
    if "step_time_s" in names:
        gone |= {"step_source": None, "step_name": None, "step_durations_s": (), "functions": ()}
    return replace(figures, **gone, per_core=(), absent={**figures.absent, **dict.fromkeys(names, TRUNCATED)})


def _together(device: PartialFigures, *others: PartialFigures) -> Figures:
    """The device's figures, those of the steps and of the host; each field is computed by one of them at most."""
    computed = {
        name: value
        for part in others
        for name in Figures.__struct_fields__
        if (value := getattr(part.figures, name)) != getattr(_NOTHING, name)
    }
    absent = {name: why for part in (device, *others) for name, why in part.absent.items()}
    return replace(device.figures, **computed, absent=absent)


def _device_part(traces: Sequence[HostTotals]) -> PartialFigures:
    """Everything but steps."""
    match traces[-1].hardware:
        case "TPU":
            return _tpu_part(traces)
        case "GPU":
            return _gpu_part(traces)
    return PartialFigures(absent=dict.fromkeys(DEVICE_FIELDS, _NO_DEVICE))


def _tpu_part(traces: Sequence[HostTotals]) -> PartialFigures:
    """XProf: op_metrics_db_utils.cc, op_profile_builder.cc, duty_cycle_combiner.h."""
    cores = [core for trace in traces for core in trace.cores]
    op_time_ps, total_ps = (sum(getattr(core, name) for core in cores) for name in ("op_time_ps", "total_ps"))
    busy_ps, chips_ps = (sum(trace.duty_ps[i] for trace in traces) for i in (0, 1))
    # XProf takes the last host's peaks.
    peak = traces[-1].peak
    table = traces[0].table if len(traces) == 1 else merge_tables([core.table for core in cores])
    root = root_totals(table)
    mxu, mxu_method = _mxu(traces)
    has_programs_only = any(trace.has_programs_only for trace in traces)
    barrier, debug_print = _wait_ratios(cores)
    computed = Figures(
        mxu_utilization_ratio=mxu,
        mxu_method=mxu_method,
        idle_ratio=None if has_programs_only else ratio(total_ps - op_time_ps, total_ps),
        duty_cycle_ratio=None if has_programs_only else ratio(busy_ps, chips_ps),
        flops_utilization_ratio=of_peak(root.flops, root.normalized_ps or root.time_ps, peak.flops_per_s),
        hbm_bandwidth_utilization_ratio=(
            of_peak(root.hbm_bytes, total_ps, peak.hbm_bytes_per_s) if root.has_bytes else None
        ),
        op_time_ratios=None if has_programs_only else _op_time_ratios(cores, total_ps),
        matmul_padding_ratio=padding_ratio(table, _mxu_width(traces)),
        idle_between_programs_ratio=None if has_programs_only else _idle_between_programs(cores, total_ps),
        barrier_ratio=barrier,
        debug_print_ratio=debug_print,
    )
    reasons = {
        "mxu_utilization_ratio": _why_no_mxu(traces),
        "idle_ratio": _NO_OPS_RECORDED if has_programs_only else "no ops and no steps in the window",
        "duty_cycle_ratio": _NO_OPS_RECORDED if has_programs_only else "no ops and no modules in the window",
        "flops_utilization_ratio": _why_no_rate(peak.flops_per_s),
        "hbm_bandwidth_utilization_ratio": (
            "no op reports the bytes it moves"
            if len(table) and not root.has_bytes
            else _why_no_rate(peak.hbm_bytes_per_s)
        ),
        "op_time_ratios": _NO_OPS_RECORDED if has_programs_only else "no ops and no steps in the window",
        "matmul_padding_ratio": _NO_MATRIX_SHAPES,
        "idle_between_programs_ratio": _NO_OPS_RECORDED if has_programs_only else "no run of a program in the window",
        "barrier_ratio": WINDOW_WITHOUT_STEPS,
        "debug_print_ratio": WINDOW_WITHOUT_STEPS,
    }
    return PartialFigures(
        figures=computed,
        absent={name: reason for name, reason in reasons.items() if getattr(computed, name) is None},
        warnings=_tpu_warnings(peak, custom_call_ratio(table), unknown_bytes_ratio(table) if root.has_bytes else None),
    )


_WORTH_A_WARNING = 0.01


def _tpu_warnings(peak: Peak, custom_calls: float | None, unknown_bytes: float | None) -> tuple[FigureWarning, ...]:
    warnings = []
    if peak.from_table:
        words = "the trace does not report the chip's peak rates; they come from a table of chips"
        warnings.append(FigureWarning("peaks-from-table", words))
    if custom_calls is not None and custom_calls >= _WORTH_A_WARNING:
        words = (
            f"{custom_calls:.0%} of the FLOPs are claimed by custom calls (Pallas kernels, for example), whose claims "
            "can be far too high or too low; figures made from FLOPs are as good as they are"
        )
        warnings.append(FigureWarning("custom-call-flops", words))
    if unknown_bytes is not None and unknown_bytes >= _WORTH_A_WARNING:
        words = (
            f"HBM bandwidth leaves out ops that take {unknown_bytes:.0%} of the time: they do not report the "
            "bytes they move"
        )
        warnings.append(FigureWarning("hbm-incomplete", words))
    return tuple(warnings)


def _why_no_rate(peak_per_s: float | None) -> str:
    return "no peak known for this chip" if peak_per_s is None else "no ops in the window"


def _mxu(traces: Sequence[HostTotals]) -> tuple[float, MxuMethod] | tuple[None, None]:
    """The mean over hosts, all by the same method; XProf: CombineAllOpStats, which knows the counter only."""
    methods: tuple[tuple[MxuMethod, list[float | None]], ...] = (
        ("counter", [_mxu_by_counter(trace) for trace in traces]),
        ("perf-counters", [trace.mxu_perf_counters for trace in traces]),
        ("flops", [_mxu_by_flops(trace) for trace in traces]),
    )
    for method, per_host in methods:
        known = [value for value in per_host if value is not None]
        if len(known) == len(traces):
            return sum(known) / len(known), method
    return None, None


def _mxu_by_counter(trace: HostTotals) -> float | None:
    """The profiler's counter; one of exactly 0 did not count, unless the program has no matrix operation."""
    may_be_right = trace.mxu_counter != 0 or not (trace.has_matrix_ops or trace.has_programs_only)
    return trace.mxu_counter if may_be_right else None


def _why_no_mxu(traces: Sequence[HostTotals]) -> str:
    if any(trace.mxu_counter == 0 for trace in traces):
        return "the counter is 0 although the program has matrix operations, and none reports its FLOPs"
    return "no counter, and no matrix operation reports its FLOPs"


def _mxu_by_flops(trace: HostTotals) -> float | None:
    """FLOPs of matrix operations over what the host's cores could have done in the window, idle time included."""
    if trace.window_ps is None or trace.peak.flops_per_s is None:
        return None
    done = matrix_flops(trace.table, trace.peak.flops_per_s)
    if not done:
        return None
    window_s = (trace.window_ps[1] - trace.window_ps[0]) / PS_PER_S
    return ratio(done, window_s * trace.peak.flops_per_s * len(trace.cores))


def _gpu_part(traces: Sequence[HostTotals]) -> PartialFigures:
    busy_ps, total_ps = (sum(getattr(trace.gpus, name) for trace in traces) for name in ("busy_ps", "total_ps"))
    devices, working = (sum(getattr(trace.gpus, name) for trace in traces) for name in ("devices", "working"))
    idle_ratio = ratio(total_ps - busy_ps, total_ps)
    absent = dict.fromkeys(DEVICE_FIELDS, _A_GPU) | {"idle_ratio": "no events on the GPU in the window"}
    if idle_ratio is not None:
        del absent["idle_ratio"]
    words = (
        f"a GPU: idle is the time without anything on its streams, of {working} of {devices} GPUs; the others did "
        "nothing"
        if 0 < working < devices
        else f"a GPU: idle is the time without anything on its streams, of all {devices} GPUs"
        if working > 1
        else "a GPU: idle is the time without anything on its streams"
    )
    words += "; step time is the host's"
    return PartialFigures(
        figures=Figures(idle_ratio=idle_ratio), absent=absent, warnings=(FigureWarning("gpu", words),)
    )


def _op_time_ratios(cores: Sequence[CoreTotals], total_ps: float) -> dict[str, float] | None:
    """Shares of the cores' time by kind of op; with the idle share they add up to 1. None of no time."""
    if total_ps <= 0:
        return None
    times_ps = np.sum([times_by_kind_ps(core.table) for core in cores], axis=0)
    return {kind.name.lower(): min(float(times_ps[kind]) / total_ps, 1.0) for kind in TimeKind}


def _idle_between_programs(cores: Sequence[CoreTotals], total_ps: float) -> float | None:
    """Share of the cores' time in which no program ran; None if a core does not show it."""
    between_ps = [core.idle_between_ps for core in cores if core.total_ps]
    known_ps = [each for each in between_ps if each is not None]
    return ratio(sum(known_ps), total_ps) if len(known_ps) == len(between_ps) else None


def _wait_ratios(cores: Sequence[CoreTotals]) -> tuple[float | None, float | None]:
    """Shares of the steps in which cores wait at barriers, and print; None without steps."""
    waits = [core.waits for core in cores if core.waits is not None]
    steps_ps = sum(each.steps_ps for each in waits)
    if not steps_ps:
        return None, None
    spent_ps = (sum(each.barrier_ps for each in waits), sum(each.debug_print_ps for each in waits))
    return min(spent_ps[0] / steps_ps, 1.0), min(spent_ps[1] / steps_ps, 1.0)


def _mxu_width(traces: Sequence[HostTotals]) -> int:
    """Width of the matrix units of the last host's chips; the usual one where they are unknown."""
    chip = chip_of(traces[-1].device_type)
    return WIDTHS[0] if chip is None else chip.mxu_width


def _host_times(traces: Sequence[HostTotals]) -> PartialFigures:
    """Compiling, input and callbacks, of the host with most of it; which programs ran, and those of a server."""
    reasons = {
        "compile_ratio": _NO_HOST_EVENTS,
        "input_wait_ratio": "no event of an input pipeline",
        "callback_ratio": "no op of the host's names its program",
    }
    ratios: dict[str, Any] = {
        name: max((own for trace in traces if (own := getattr(trace.host_times, name)) is not None), default=None)
        for name in reasons
    }
    has_events = ratios["compile_ratio"] is not None
    absent = {name: why if has_events else _NO_HOST_EVENTS for name, why in reasons.items() if ratios[name] is None}
    times_ps = Counter[str]()
    for trace in traces:
        times_ps.update(trace.programs_ps)
    programs = tuple(program for program, _ in times_ps.most_common(MOST_PROGRAMS))
    served = next((trace.served for trace in traces if trace.served is not None), None)
    return PartialFigures(figures=Figures(**ratios, programs=programs, traced_programs=served), absent=absent)
