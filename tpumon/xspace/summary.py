"""The figures of one or several hosts, by XProf's definitions; docs/figures.md lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tpumon.model import MxuMethod, Spread, StepSource, StepTimes
from tpumon.xspace.ops import Category, merge_tables, root_totals
from tpumon.xspace.planes import PS_PER_S
from tpumon.xspace.steps import HostSteps, align_hosts, infeed_ratios, mean_step, step_parts_s
from tpumon.xspace.trace import CoreTotals, Trace

_NO_TPU = "no TPU in the trace"
_NO_DEVICE = "no device in the trace"
_DEVICE_FIGURES = (
    "mxu_utilization_ratio",
    "idle_ratio",
    "duty_cycle_ratio",
    "flops_utilization_ratio",
    "hbm_bandwidth_utilization_ratio",
    "infeed_ratio",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a trace says; names, units and meaning as in model.Sample.

    Attributes:
        window_s: from the first to the last event of steps, modules and ops; of all events on a host-only trace.
        absent: for every figure that is None: why, by field name.
        step_durations_s: each step seen.
        warnings: what a reader should know, one line each.
    """

    device_type: str | None = None
    cores: int | None = None
    window_s: float = 0.0
    simulated: bool = False
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
    per_core: tuple[Mapping[str, float | int | None], ...] = ()
    absent: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    step_durations_s: tuple[float, ...] = ()
    hostnames: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def figures(traces: Sequence[Trace]) -> Figures:
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
    values: dict[str, object] = {}
    absent: dict[str, str] = {}
    warnings = list(dict.fromkeys(remark for trace in traces for remark in trace.remarks))
    hardware = traces[-1].hardware
    if hardware == "TPU":
        _device_figures(traces, values, absent, warnings)
    else:
        reason = "a GPU, not a TPU" if hardware == "GPU" else _NO_DEVICE
        absent.update(dict.fromkeys(_DEVICE_FIGURES, reason))
        if hardware == "GPU":
            _gpu_figures(traces, values, absent, warnings)
    if all(trace.steps is not None for trace in traces):
        _marked_steps(traces, values, absent, warnings)
    elif all(trace.module_steps for trace in traces):
        _module_steps(traces, values, absent)
    else:
        _host_steps(traces, values, absent)
    if any(trace.truncated for trace in traces):
        warnings.append("the profiler dropped events: what looks idle may have been busy")
    windows_s = [(end - begin) / PS_PER_S for begin, end in (trace.window_ps for trace in traces if trace.window_ps)]
    return Figures(
        device_type=traces[-1].device_type,
        cores=sum(trace.core_count for trace in traces),
        window_s=max(windows_s, default=0.0),
        simulated=any(trace.simulated for trace in traces),
        absent=MappingProxyType(absent),
        hostnames=tuple(dict.fromkeys(name for trace in traces for name in trace.hostnames)),
        warnings=tuple(warnings),
        **values,  # type: ignore[arg-type]  # each helper puts in what its field holds
    )


def _put(values: dict[str, object], absent: dict[str, str], name: str, value: object, reason: str) -> None:
    """A figure, or why there is none."""
    if value is None:
        absent[name] = reason
    else:
        values[name] = value


def _device_figures(
    traces: Sequence[Trace], values: dict[str, object], absent: dict[str, str], warnings: list[str]
) -> None:
    """Everything but steps. XProf: op_metrics_db_utils.cc, op_profile_builder.cc, duty_cycle_combiner.h."""
    cores = [core for trace in traces for core in trace.cores]
    op_time_ps, total_ps = (sum(getattr(core, name) for core in cores) for name in ("op_time_ps", "total_ps"))
    _put(values, absent, "idle_ratio", _part(total_ps - op_time_ps, total_ps), "no ops and no steps in the window")
    busy_ps, chips_ps = (sum(trace.duty_ps[i] for trace in traces) for i in (0, 1))
    _put(values, absent, "duty_cycle_ratio", _part(busy_ps, chips_ps), "no ops and no modules in the window")
    # XProf takes the last host's peaks.
    peak = traces[-1].peak
    root = root_totals(merge_tables(core.table for core in cores))
    for name, amount, time_ps, rate in (
        ("flops_utilization_ratio", root.flops, root.normalized_ps or root.time_ps, peak.flops_per_s),
        ("hbm_bandwidth_utilization_ratio", root.hbm_bytes, total_ps, peak.hbm_bytes_per_s),
    ):
        value = None if rate is None else _part(amount * PS_PER_S, time_ps * rate)
        _put(values, absent, name, value, "no peak known for this chip" if rate is None else "no ops in the window")
    if peak.from_table:
        warnings.append("the trace does not say what the chip can do at most; the peaks are from a table of chips")
    _mxu(traces, values, absent)


def _part(amount: float, whole: float) -> float | None:
    """A ratio, at most 1; None of nothing."""
    return min(float(amount) / float(whole), 1.0) if whole > 0 else None


def _mxu(traces: Sequence[Trace], values: dict[str, object], absent: dict[str, str]) -> None:
    """The mean over hosts, all by the same method; XProf: CombineAllOpStats, which knows the counter only."""
    flops = [_mxu_by_flops(trace) for trace in traces]
    # A counter of exactly 0 while ops carry FLOPs is one that did not count.
    counters = [
        None if trace.mxu_counter == 0 and by_flops else trace.mxu_counter
        for trace, by_flops in zip(traces, flops, strict=True)
    ]
    methods: tuple[tuple[MxuMethod, list[float | None]], ...] = (
        ("counter", counters),
        ("perf-counters", [trace.mxu_perf_counters for trace in traces]),
        ("flops", flops),
    )
    for method, per_host in methods:
        known = [value for value in per_host if value is not None]
        if len(known) == len(traces):
            values["mxu_utilization_ratio"], values["mxu_method"] = sum(known) / len(known), method
            return
    absent["mxu_utilization_ratio"] = "no counter, and no op says how many FLOPs it does"


def _mxu_by_flops(trace: Trace) -> float | None:
    """FLOPs done over what the host's cores could have done in the window, idle time included."""
    done = root_totals(merge_tables(core.table for core in trace.cores)).model_flops
    if not done or trace.window_ps is None or trace.peak.flops_per_s is None:
        return None
    window_s = (trace.window_ps[1] - trace.window_ps[0]) / PS_PER_S
    return _part(done, window_s * trace.peak.flops_per_s * len(trace.cores))


def _gpu_figures(
    traces: Sequence[Trace], values: dict[str, object], absent: dict[str, str], warnings: list[str]
) -> None:
    busy_ps, total_ps = (sum(trace.gpu_ps[i] for trace in traces) for i in (0, 1))
    absent.pop("idle_ratio")
    _put(values, absent, "idle_ratio", _part(total_ps - busy_ps, total_ps), "no events on the GPU in the window")
    warnings.append("a GPU: idle is the time without any event on it, step time is the host's")


def _step_times(durations_s: NDArray[np.float64]) -> StepTimes:
    """XProf: GetStepSummaryForSampleStats; the deviation is the sample's, 0 of a single step."""
    return StepTimes(
        avg=float(durations_s.mean()),
        min=float(durations_s.min()),
        max=float(durations_s.max()),
        stddev=float(durations_s.std(ddof=1)) if len(durations_s) > 1 else 0.0,
        count=len(durations_s),
    )


def _marked_steps(
    traces: Sequence[Trace], values: dict[str, object], absent: dict[str, str], warnings: list[str]
) -> None:
    hosts = [trace.steps for trace in traces if trace.steps is not None]
    shared = align_hosts(hosts) if len(hosts) > 1 else hosts
    _put_per_core(traces, hosts, values)
    if not len(shared[0]):
        absent.update(dict.fromkeys(("step_time_s", "step_parts_s", "infeed_ratio"), "no step that all hosts saw"))
        return
    # A step is as long as on its slowest host; XProf: ComputeStepTimeSummaryInMs.
    durations_s = np.max([steps.duration_ps for steps in shared], axis=0) / PS_PER_S
    values["step_time_s"] = _step_times(durations_s)
    values["step_source"] = "steps"
    values["step_durations_s"] = tuple(durations_s.tolist())
    values["step_parts_s"] = step_parts_s(shared)
    if any(trace.has_infeed for trace in traces):
        most = np.max([infeed_ratios(steps).max(axis=0) for steps in shared], axis=0)
        values["infeed_ratio"] = Spread(avg=float(most.mean()), min=float(most.min()), max=float(most.max()))
    else:
        absent["infeed_ratio"] = "no infeed ops"
    missing = sum(len(trace.cores) - len(steps.cores) for trace, steps in zip(traces, hosts, strict=True))
    if missing:
        warnings.append(f"{missing} of {sum(len(trace.cores) for trace in traces)} cores took part in no common step")


def _module_steps(traces: Sequence[Trace], values: dict[str, object], absent: dict[str, str]) -> None:
    """Steps between runs of the heaviest module: those of the core that is slowest on average.

    Cores are not matched step by step, as nothing says which run on one belongs to which on another.
    """
    means = [mean_step(trace.module_steps) for trace in traces]
    _put_per_core(traces, means, values)
    cores = [core for trace in traces for core in trace.module_steps.values()]
    durations_s = max(cores, key=lambda core: core.duration_ps.mean()).duration_ps / PS_PER_S
    values["step_time_s"], values["step_source"] = _step_times(durations_s), "modules"
    values["step_durations_s"] = tuple(durations_s.tolist())
    values["step_parts_s"] = step_parts_s(means)
    if any(trace.has_infeed for trace in traces):
        ratios = [core.by_category_ps[:, Category.INFEED] / np.maximum(core.duration_ps, 1) for core in cores]
        most = max(ratios, key=lambda ratio: ratio.mean())
        values["infeed_ratio"] = Spread(avg=float(most.mean()), min=float(most.min()), max=float(most.max()))
    else:
        absent["infeed_ratio"] = "no infeed ops"


def _host_steps(traces: Sequence[Trace], values: dict[str, object], absent: dict[str, str]) -> None:
    """Steps as the hosts' threads show them; a step is as long as on the slowest host."""
    periods = [np.array(trace.host.periods_s if trace.host else ()) for trace in traces]
    if traces[-1].hardware == "TPU":
        _put_per_core(traces, [None] * len(traces), values)
        absent["infeed_ratio"] = absent.get("infeed_ratio", "no steps in the window")
        absent["step_parts_s"] = "no steps in the window"
        if not any(trace.has_infeed for trace in traces):
            absent["infeed_ratio"] = "no infeed ops"
    else:
        absent["step_parts_s"] = "no steps of a TPU"
        waits_s = [trace.host.input_wait_s for trace in traces if trace.host and trace.host.input_wait_s is not None]
        if waits_s:
            values["step_parts_s"] = {"input_wait": max(waits_s)}
            del absent["step_parts_s"]
    count = min(len(each) for each in periods)
    if not count:
        absent["step_time_s"] = "no two steps in the window"
        return
    durations_s = np.max([each[:count] for each in periods], axis=0)
    values["step_time_s"], values["step_source"] = _step_times(durations_s), "host"
    values["step_durations_s"] = tuple(durations_s.tolist())


def _put_per_core(traces: Sequence[Trace], hosts: Sequence[HostSteps | None], values: dict[str, object]) -> None:
    several = len(traces) > 1
    values["per_core"] = tuple(
        _core_figures(core, trace, steps, i, several=several)
        for trace, steps in zip(traces, hosts, strict=True)
        for i, core in enumerate(trace.cores)
    )


def _core_figures(
    core: CoreTotals, trace: Trace, steps: HostSteps | None, position: int, *, several: bool
) -> Mapping[str, float | int | None]:
    """One core's figures; its chip is numbered within the slice where several hosts are shown."""
    root = root_totals(core.table)
    rate = trace.peak.flops_per_s
    infeed = step_s = None
    if steps is not None and position in steps.cores and len(steps):
        row = steps.cores.index(position)
        step_s = float(steps.own_ps[row].mean()) / PS_PER_S
        infeed = float(infeed_ratios(steps)[row].mean()) if trace.has_infeed else None
    chip = core.place.global_chip if several else core.place.chip
    return MappingProxyType(
        {
            "chip": position if chip is None else chip,
            "core": core.place.core,
            "idle_ratio": _part(core.total_ps - core.op_time_ps, core.total_ps),
            "flops_utilization_ratio": (
                _part(root.flops * PS_PER_S, (root.normalized_ps or root.time_ps) * rate) if rate else None
            ),
            "infeed_ratio": infeed,
            "step_time_s": step_s,
        }
    )
