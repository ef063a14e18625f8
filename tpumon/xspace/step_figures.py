"""The figures of steps, of one host or of several: times, parts, infeed, each core's, and the functions that ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tpumon.model import CoreFigures, Figures, FigureWarning, Spread, StepTimes
from tpumon.xspace.columns.columns import PS_PER_S
from tpumon.xspace.core_totals import CoreTotals
from tpumon.xspace.host_totals import HostTotals
from tpumon.xspace.ops.op_kinds import Category, TimeKind
from tpumon.xspace.ops.op_tables import root_totals, times_by_kind_ps
from tpumon.xspace.partial_figures import WINDOW_WITHOUT_STEPS, PartialFigures, of_peak, ratio
from tpumon.xspace.steps.functions import TOO_FEW, function_figures
from tpumon.xspace.steps.tpu_steps import HostSteps, align_hosts, infeed_ratios, mean_step, own_work_s, step_parts_s


def _step_times(durations_s: NDArray[np.float64]) -> StepTimes:
    """XProf: GetStepSummaryForSampleStats; the deviation is the sample's, 0 of a single step."""
    return StepTimes(
        avg=float(durations_s.mean()),
        min=float(durations_s.min()),
        max=float(durations_s.max()),
        stddev=float(durations_s.std(ddof=1)) if len(durations_s) > 1 else 0.0,
        count=len(durations_s),
    )


def step_figures(traces: Sequence[HostTotals]) -> PartialFigures:
    """Step time, parts, infeed, cores and functions, from the best marks of steps that all hosts have."""
    if all(trace.steps.marked is not None for trace in traces):
        part = _marked_steps(traces)
    elif all(trace.steps.module_steps for trace in traces):
        part = _module_steps(traces)
    else:
        part = _host_steps(traces)
    functions = function_figures([trace.steps.functions for trace in traces])
    return replace(part, figures=replace(part.figures, functions=functions))


def _marked_steps(traces: Sequence[HostTotals]) -> PartialFigures:
    hosts = [trace.steps.marked for trace in traces if trace.steps.marked is not None]
    shared = align_hosts(hosts) if len(hosts) > 1 else hosts
    per_core = _per_core(traces, hosts)
    if not len(shared[0]):
        absent = dict.fromkeys(("step_time_s", "step_parts_s", "infeed_ratio"), "no step that all hosts saw")
        return PartialFigures(figures=Figures(per_core=per_core), absent=absent)
    # A step is as long as on its slowest host; XProf: ComputeStepTimeSummaryInMs.
    durations_s = np.max([steps.duration_ps for steps in shared], axis=0) / PS_PER_S
    infeed, absent = None, {"infeed_ratio": "no infeed ops"}
    if any(trace.has_infeed for trace in traces):
        most = np.max([infeed_ratios(steps).max(axis=0) for steps in shared], axis=0)
        infeed, absent = _spread(most), {}
    missing = sum(len(trace.cores) - len(steps.cores) for trace, steps in zip(traces, hosts, strict=True))
    words = f"{missing} of {sum(len(trace.cores) for trace in traces)} cores took part in no common step"
    return PartialFigures(
        figures=Figures(
            step_time_s=_step_times(durations_s),
            step_source="steps",
            step_durations_s=tuple(durations_s.tolist()),
            step_parts_s=step_parts_s(shared),
            step_work_s=own_work_s(shared),
            infeed_ratio=infeed,
            per_core=per_core,
        ),
        absent=absent,
        warnings=(FigureWarning("missing-cores", words),) if missing else (),
    )


def _module_steps(traces: Sequence[HostTotals]) -> PartialFigures:
    """Steps between starts of the function that is the step: those of the core that is slowest on average.

    Cores are not matched step by step, as nothing says which run on one belongs to which on another.
    """
    means = [mean_step(trace.steps.module_steps) for trace in traces]
    cores = [core for trace in traces for core in trace.steps.module_steps.values()]
    durations_s = max(cores, key=lambda core: core.duration_ps.mean()).duration_ps / PS_PER_S
    functions = [choice.function for trace in traces if (choice := trace.steps.choice) and choice.function]
    pauses_s = [pause_ps / PS_PER_S for function in functions for pause_ps in function.pauses_ps().tolist()]
    infeed, absent = None, {"infeed_ratio": "no infeed ops"}
    if any(trace.has_infeed for trace in traces):
        ratios = [core.by_category_ps[:, Category.INFEED] / np.maximum(core.duration_ps, 1) for core in cores]
        infeed, absent = _spread(max(ratios, key=lambda ratio: ratio.mean())), {}
    return PartialFigures(
        figures=Figures(
            step_time_s=_step_times(durations_s),
            step_source="modules",
            step_name=_step_names(function.name for function in functions),
            step_durations_s=tuple(durations_s.tolist()),
            step_parts_s=step_parts_s(means),
            step_work_s=own_work_s(means),
            infeed_ratio=infeed,
            per_core=_per_core(traces, means),
        ),
        absent=absent,
        warnings=_pauses(pauses_s),
    )


def _host_steps(traces: Sequence[HostTotals]) -> PartialFigures:
    """Steps as the hosts' threads show them; a step is as long as on the slowest host."""
    hosts = [trace.steps.host for trace in traces if trace.steps.host]
    absent: dict[str, str] = {}
    per_core: tuple[CoreFigures, ...] = ()
    parts_s: Mapping[str, float] | None = None
    if traces[-1].hardware == "TPU":
        per_core = _per_core(traces, [None] * len(traces))
        has_infeed = any(trace.has_infeed for trace in traces)
        absent["infeed_ratio"] = WINDOW_WITHOUT_STEPS if has_infeed else "no infeed ops"
        absent["step_parts_s"] = WINDOW_WITHOUT_STEPS
    else:
        waits_s = [host.input_wait_s for host in hosts if host.input_wait_s is not None]
        if waits_s:
            parts_s = {"input_wait": max(waits_s)}
        else:
            absent["step_parts_s"] = "no steps of a TPU"
    periods = [np.array(trace.steps.host.periods_s if trace.steps.host else ()) for trace in traces]
    count = min(len(each) for each in periods)
    computed = Figures(per_core=per_core, step_parts_s=parts_s)
    if not count:
        return PartialFigures(figures=computed, absent={"step_time_s": _why_no_step(traces), **absent})
    durations_s = np.max([each[:count] for each in periods], axis=0)
    pauses_s = [pause_s for host in hosts for pause_s in host.pauses_s]
    return PartialFigures(
        figures=replace(
            computed,
            step_time_s=_step_times(durations_s),
            step_source="host",
            step_name=_step_names(host.step_name for host in hosts if host.step_name),
            step_durations_s=tuple(durations_s.tolist()),
        ),
        absent=absent,
        warnings=_pauses(pauses_s),
    )


def _why_no_step(traces: Sequence[HostTotals]) -> str:
    """Reason of the first host that shows no step."""
    for trace in traces:
        choice, host = trace.steps.choice, trace.steps.host
        if choice is not None and not (host and host.periods_s):
            return choice.reason
        if host is not None and not host.periods_s:
            return host.reason
    return TOO_FEW


def _step_names(names: Iterable[str]) -> str | None:
    """One name for the steps of all hosts."""
    return ", ".join(dict.fromkeys(names)) or None


def _pauses(pauses_s: Sequence[float]) -> tuple[FigureWarning, ...]:
    if not pauses_s:
        return ()
    words = f"{len(pauses_s)} pauses between steps, {sum(pauses_s):.3g} s in all, do not count as steps"
    return (FigureWarning("pauses", words),)


def _spread(ratios: NDArray[np.float64]) -> Spread:
    return Spread(avg=float(ratios.mean()), min=float(ratios.min()), max=float(ratios.max()))


def _per_core(traces: Sequence[HostTotals], hosts: Sequence[HostSteps | None]) -> tuple[CoreFigures, ...]:
    several = len(traces) > 1
    return tuple(
        _core_figures(core, trace, steps, i, several=several)
        for trace, steps in zip(traces, hosts, strict=True)
        for i, core in enumerate(trace.cores)
    )


def _core_figures(
    core: CoreTotals, trace: HostTotals, steps: HostSteps | None, position: int, *, several: bool
) -> CoreFigures:
    """One core's figures; its chip is numbered within the slice where several hosts are shown."""
    root = root_totals(core.table)
    infeed = step_s = None
    if steps is not None and position in steps.cores and len(steps):
        row = steps.cores.index(position)
        step_s = float(steps.own_ps[row].mean()) / PS_PER_S
        infeed = float(infeed_ratios(steps)[row].mean()) if trace.has_infeed else None
    chip = core.place.global_chip if several else core.place.chip
    return CoreFigures(
        chip=position if chip is None else chip,
        core=core.place.core,
        idle_ratio=ratio(core.total_ps - core.op_time_ps, core.total_ps),
        flops_utilization_ratio=of_peak(root.flops, root.normalized_ps or root.time_ps, trace.peak.flops_per_s),
        infeed_ratio=infeed,
        step_time_s=step_s,
        collective_ratio=(
            ratio(times_by_kind_ps(core.table)[TimeKind.COLLECTIVE], core.total_ps) if len(core.table) else None
        ),
    )
