"""Everything about a worker over time, by core and device."""

from __future__ import annotations

from grafana.panels import Dashboard, Panel, Query, Row, lines, states, table
from grafana.queries import HBM_USAGE, SILENT_FOR, STATE, few, of

UID = "tpumon-worker"
_FEW = "At most 10 of the chosen workers are drawn, those highest on average."
_FEW_CORES = "At most 32 of the chosen workers' cores are drawn, those highest on average."
_FEW_DEVICES = "At most 32 of the chosen workers' devices are drawn, those highest on average."
_RUNTIME = "From libtpu's runtime metric service; absent where that is not reached."


def dashboard() -> Dashboard:
    """What is known of a worker."""
    return Dashboard(
        uid=UID,
        title="TPU worker",
        description="A few workers in detail: choose them above. Data: tpumon.",
        rows=[
            Row(title="State", panels=_state()),
            Row(title="Figures", panels=_figures()),
            Row(title="Cores", panels=_cores()),
            Row(title="Devices", panels=_devices()),
            Row(title="How it is watched", panels=_watching()),
        ],
    )


def _state() -> list[Panel]:
    return [
        states(
            "State",
            "answers; down: does not answer; busy: someone else is profiling it and tpumon stands back; paused: by "
            "`tpumon pause`. No band: not watched. At most 25 workers are drawn, those that answered least.",
            Query(expr=f"{STATE} and on (job, worker) {_least_up()}", legend="{{worker}}"),
            size=(12, 8),
        ),
        table(
            "What it is",
            "Type and cores, where the figures come from (monitor: the Monitor RPC; trace: short traces), how the "
            "MXU figure "
            "was got and what a step is. Simulated: made up by tpumon's simulator.",
            Query(expr=of("tpu_worker_info"), legend="Present"),
            unit="none",
            labels={
                "worker": "Worker",
                "device_type": "Type",
                "cores": "Cores",
                "slice": "Slice",
                "source": "Source",
                "mxu_method": "MXU by",
                "step_source": "Step by",
                "simulated": "Simulated",
            },
            sort="Worker",
            descending=False,
            size=(12, 8),
        ),
    ]


def _least_up() -> str:
    up, busy = (f"avg_over_time({of(f'tpumon_target_{name}')}[$__range] @ end())" for name in ("up", "busy"))
    return f"bottomk(25, {up} or {busy})"  # one that was paused all the time has no `up`


def _each(title: str, metric: str, description: str, unit: str = "percentunit", *, small: bool = False) -> Panel:
    query = Query(expr=few(metric), legend="{{worker}}")
    return lines(title, f"{description} {_FEW}", query, unit=unit, size=(8, 8), small=small)


def _figures() -> list[Panel]:
    return [
        _each("Matrix units", "tpu_mxu_utilization_ratio", "Utilisation of the matrix units, idle time included."),
        _each(
            "Idle", "tpu_idle_ratio", "Share of time in which no op ran. High: input, host code, or waiting for others."
        ),
        _each(
            "Duty cycle",
            "tpu_duty_cycle_ratio",
            "Share of time in which ops ran, those that wait for input not counted.",
        ),
        _each(
            "FLOP/s of the peak",
            "tpu_flops_utilization_ratio",
            "FLOP/s while ops ran, of the peak: how good the program is while it runs. Low: shapes, layouts, "
            "precision.",
        ),
        _each(
            "HBM bandwidth of the peak",
            "tpu_hbm_bandwidth_utilization_ratio",
            "Bytes moved to and from HBM, of the peak. High with low FLOP/s: bound by memory; fuse, or recompute.",
        ),
        _each(
            "Waiting for input",
            "tpu_infeed_ratio",
            "Share of a step spent waiting for infeed; absent without infeed.",
            small=True,
        ),
        lines(
            "Step time, shortest, average and longest",
            "Of the steps in each sample. The longest far above the average: single steps stall, for example on "
            "checkpoints, compiling or input. " + _FEW,
            *(
                Query(expr=few(f"tpu_step_time{key}_seconds"), legend=f"{{{{worker}}}} {word}")
                for key, word in (("_max", "longest"), ("", "average"), ("_min", "shortest"))
            ),
            unit="s",
            size=(24, 8),
        ),
    ]


def _core(title: str, metric: str, description: str, unit: str = "percentunit", *, small: bool = False) -> Panel:
    query = Query(expr=few(metric, 32), legend="{{worker}} core {{core}}")
    description = f"{description} Core is chip.core. {_FEW_CORES}"
    return lines(f"{title}, by core", description, query, unit=unit, small=small)


def _cores() -> list[Panel]:
    return [
        _core(
            "Idle", "tpu_core_idle_ratio", "Share of time in which no op ran on the core. One apart: uneven sharding."
        ),
        _core("FLOP/s of the peak", "tpu_core_flops_utilization_ratio", "While ops ran on the core, of its peak."),
        _core(
            "Waiting for input",
            "tpu_core_infeed_ratio",
            "Share of the core's step spent waiting for infeed.",
            small=True,
        ),
        _core("Step time", "tpu_core_step_time_seconds", "Average step of the core.", "s"),
    ]


def _device(title: str, expr: str, description: str, unit: str) -> Panel:
    query = Query(expr=expr, legend="{{worker}} device {{device}}")
    return lines(f"{title}, by device", f"{description} {_RUNTIME} {_FEW_DEVICES}", query, unit=unit, size=(8, 8))


def _devices() -> list[Panel]:
    highest = f"topk(32, avg_over_time({of('tpu_hbm_used_bytes')}[$__range] @ end()))"
    return [
        _device("HBM in use", few("tpu_hbm_used_bytes", 32), "Bytes of HBM in use.", "bytes"),
        _device(
            "HBM in use of total",
            f"({HBM_USAGE}) and on (job, instance, worker, device) {highest}",
            "Above 90 % see the runbook TpuHbmNearlyFull.",
            "percentunit",
        ),
        _device(
            "Duty cycle of the runtime",
            few("tpu_runtime_duty_cycle_ratio", 32),
            "Share of the service's last period in which the device was busy; not the profiler's duty cycle.",
            "percentunit",
        ),
        _device(
            "HBM bandwidth",
            few("tpu_runtime_hbm_bandwidth_utilization_ratio", 32),
            "Bandwidth in use, not capacity.",
            "percentunit",
        ),
        _device(
            "TensorCore idle for",
            few("tpu_runtime_tensorcore_idle_seconds", 32),
            "Time since a TensorCore last ran something, 0 while it is busy. It grows while a job hangs or waits.",
            "s",
        ),
        _device(
            "Programs waiting",
            few("tpu_runtime_hlo_queue_size", 32),
            "Programs that wait for the TensorCore. 0 all the time while idle is high: the host does not keep up.",
            "short",
        ),
        lines(
            "Age of the runtime",
            f"Back to 0: the job was started again. {_RUNTIME} {_FEW}",
            Query(expr=few("tpu_runtime_uptime_seconds"), legend="{{worker}}"),
            unit="s",
        ),
        lines(
            "Errors that the runtime detects",
            f"1: the runtime detects a hang or error between slices (megascale), or a failed slice. See the runbook "
            f"TpuRuntimeError. {_RUNTIME} {_FEW}",
            Query(expr=few("tpu_runtime_megascale_error"), legend="{{worker}} megascale"),
            Query(expr=few("tpu_runtime_slice_error"), legend="{{worker}} slice"),
            unit="short",
        ),
    ]


def _last_success() -> str:
    return of("tpumon_target_last_success_timestamp_seconds")


def _watching() -> list[Panel]:
    return [
        lines(
            "Traced share of time",
            "For how much of the time the job was traced, collecting included: what watching it costs. At most 10 of "
            "the chosen workers are drawn, those whose queries take longest.",
            Query(
                expr=f"rate({of('tpumon_traced_seconds_total')}[$__rate_interval]) and on (job, instance, worker) "
                f"topk(10, avg_over_time({of('tpumon_sample_duration_seconds')}[$__range] @ end()))",
                legend="{{worker}}",
            ),
            unit="percentunit",
            size=(8, 8),
            small=True,
        ),
        lines(
            "Queries",
            "Queries a second of all chosen workers that were answered, and that failed, by reason. busy and paused "
            "are no faults.",
            Query(expr=f"sum(rate({of('tpumon_samples_total')}[$__rate_interval]))", legend="answered"),
            Query(
                expr=f"sum by (reason) (rate({of('tpumon_sample_errors_total')}[$__rate_interval]))",
                legend="{{reason}}",
            ),
            unit="ops",
            size=(8, 8),
        ),
        lines(
            "Silent for",
            "Time since the worker last gave figures. It rises between samples and falls with each; rising on: see the "
            "runbook TpuNoSamples. At most 10 of the chosen workers are drawn, those that are silent longest.",
            Query(
                expr=f"{SILENT_FOR} and bottomk(10, max_over_time({_last_success()}[$__range] @ end()))",
                legend="{{worker}}",
            ),
            unit="s",
            size=(8, 8),
        ),
        _each("A query takes", "tpumon_sample_duration_seconds", "From asking to having the answer, or failing.", "s"),
        _each("Window", "tpumon_sample_window_seconds", "Length of the window that a sample's figures cover.", "s"),
        _each(
            "Interval",
            "tpumon_sample_interval_seconds",
            "From one query to the next. Longer than asked for: traces are dear and --max-duty bounds their share.",
            "s",
        ),
    ]
