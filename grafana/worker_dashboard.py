"""All figures of a worker over time, by core and device."""

from __future__ import annotations

from collections.abc import Mapping

from grafana.board import Dashboard, Row
from grafana.config import Config
from grafana.panels import SEVERITIES, Panel, Query, lines, states, table
from grafana.queries import EACH, FINDINGS, HBM_USAGE, PER_WORKER, SILENT_FOR, STATE, averaged, few, of, rate
from tpumon.model.figure_spec import Unit
from tpumon.model.figure_table import COMPILING, FIGURES, FLOPS, HBM_BANDWIDTH, IDLE, INFEED, STEP

UID = "tpumon-worker"
_FEW = "Shows the selected workers with the highest averages, at most 10."
_FEW_CORES = "Shows the selected workers' cores with the highest averages, at most 32."
_FEW_DEVICES = "Shows the selected workers' devices with the highest averages, at most 32."
_RUNTIME = "Source: libtpu's runtime metric service; absent if that is unavailable."


def dashboard(config: Config) -> Dashboard:
    """Builds the dashboard of single workers."""
    return Dashboard(
        config=config,
        uid=UID,
        one_worker=True,
        title="TPU worker",
        description="Details of a few workers; select them above. Data: tpumon.",
        rows=[
            Row(title="State", panels=_state()),
            Row(title="Figures", panels=_figures()),
            Row(title="Cores", panels=_cores()),
            Row(title="Devices", panels=_devices()),
            Row(title="Sampling", panels=_watching()),
        ],
    )


def _state() -> list[Panel]:
    return [
        states(
            "State",
            "up: responds; down: does not respond; busy: another session is profiling it, and tpumon does not sample "
            "it; paused: by `tpumon pause`. No band: not watched. Shows the workers with the lowest availability, at "
            "most 25.",
            Query(expr=f"{STATE} and on ({PER_WORKER}) {_least_up()}", legend="{{worker}}"),
            size=(12, 8),
        ),
        table(
            "Worker",
            "Type and cores, the source of the figures (monitor: the Monitor RPC; trace: short traces), the method of "
            "the MXU figure, and what counts as a step. Simulated: the figures come from tpumon's simulator.",
            Query(expr=of("tpu_worker_info"), legend="Current"),
            unit="none",
            labels={
                "worker": "Worker",
                "device_type": "Type",
                "cores": "Cores",
                "tpu_job": "TPU job",
                "tpu_slice": "TPU slice",
                "source": "Source",
                "mxu_method": "MXU method",
                "step_source": "Step source",
                "simulated": "Simulated",
            },
            sort="Worker",
            descending=False,
            size=(12, 8),
        ),
        states(
            "Findings",
            "What tpumon found wrong, when, and how bad it was; docs/findings.md explains each. No band: not found, or "
            "not to be judged. Shows the worst and longest, at most 25.",
            Query(
                expr=f"{FINDINGS} and topk(25, max by ({EACH}) ({averaged('tpumon_finding_severity')}) > 0)",
                legend="{{worker}} {{finding}}",
            ),
            mappings=SEVERITIES,
        ),
    ]


def _least_up() -> str:
    up, busy = (averaged(f"tpumon_target_{name}") for name in ("up", "busy"))
    return f"bottomk(25, {up} or {busy})"  # one that was paused all the time has no `up`


def _each(title: str, metric: str, description: str, unit: str = "percentunit", *, small: bool = False) -> Panel:
    query = Query(expr=few(metric), legend="{{worker}}")
    return lines(title, f"{description} {_FEW}", query, unit=unit, size=(8, 8), small=small)


_ADVICE: Mapping[str, str] = {
    IDLE.key: "If high, look at input, host code, or slower workers.",
    FLOPS.key: "If low, look at shapes, layouts and precision.",
    HBM_BANDWIDTH.key: "If high while FLOP/s are low, the program is memory-bound: fuse ops, or recompute.",
}
"""Advice to whoever looks at a panel, by key of the figure."""

_UNITS: Mapping[Unit, str] = {"ratio": "percentunit", "seconds": "s", "count": "short", "rate": "short"}
"""Grafana's names of the units of figures."""


def _figures() -> list[Panel]:
    """One panel for each figure that has a metric: a new row of the table appears by itself.

    Steps have a panel of their own; compiling, and servers' figures, are on other dashboards.
    """
    elsewhere = {STEP.key, COMPILING.key}
    drawn = [each for each in FIGURES if each.metric and not (each.key in elsewhere or each.of_server)]
    return [
        *(
            _each(
                figure.label,
                figure.metric or "",
                f"{figure.about} {_ADVICE.get(figure.key, '')}".strip(),
                _UNITS[figure.unit],
                small=figure is INFEED,
            )
            for figure in drawn
        ),
        lines(
            "Step time, min, average and max",
            "Step times in each sample. If max is far above the average, single steps stall, for example on "
            "checkpoints, compilation or input. " + _FEW,
            *(
                Query(expr=few(f"tpu_step_time{key}_seconds"), legend=f"{{{{worker}}}} {word}")
                for key, word in (("_max", "max"), ("", "average"), ("_min", "min"))
            ),
            unit="s",
            size=(24, 8),
        ),
    ]


def _core(title: str, metric: str, description: str, unit: str = "percentunit", *, small: bool = False) -> Panel:
    query = Query(expr=few(metric, 32), legend="{{worker}} core {{core}}")
    description = f"{description} Cores are named chip.core. {_FEW_CORES}"
    return lines(f"{title}, by core", description, query, unit=unit, small=small)


def _cores() -> list[Panel]:
    return [
        _core(
            "Idle",
            "tpu_core_idle_ratio",
            "Share of time in which no op ran on the core. If one core differs, sharding is uneven.",
        ),
        _core(
            "FLOP/s relative to peak",
            "tpu_core_flops_utilization_ratio",
            "FLOP/s while ops ran on the core, relative to its peak.",
        ),
        _core(
            "Infeed wait",
            "tpu_core_infeed_ratio",
            "Share of the core's step time spent waiting for infeed.",
            small=True,
        ),
        _core("Step time", "tpu_core_step_time_seconds", "Average step time of the core.", "s"),
    ]


def _device(title: str, expr: str, description: str, unit: str) -> Panel:
    query = Query(expr=expr, legend="{{worker}} device {{device}}")
    return lines(f"{title}, by device", f"{description} {_RUNTIME} {_FEW_DEVICES}", query, unit=unit, size=(8, 8))


def _devices() -> list[Panel]:
    highest = f"topk(32, {averaged('tpu_hbm_used_bytes')})"
    return [
        _device("HBM in use", few("tpu_hbm_used_bytes", 32), "Bytes of HBM in use.", "bytes"),
        _device(
            "HBM usage",
            f"({HBM_USAGE}) and on (@{{worker}}, device) {highest}",
            "HBM in use divided by the total. Above 90 %, see the runbook TpuHbmNearlyFull.",
            "percentunit",
        ),
        _device(
            "Runtime duty cycle",
            few("tpu_runtime_duty_cycle_ratio", 32),
            "Share of the service's last period in which the device was busy; differs from the profiler's duty cycle.",
            "percentunit",
        ),
        _device(
            "HBM bandwidth",
            few("tpu_runtime_hbm_bandwidth_utilization_ratio", 32),
            "HBM bandwidth in use; not capacity.",
            "percentunit",
        ),
        _device(
            "TensorCore idle time",
            few("tpu_runtime_tensorcore_idle_seconds", 32),
            "Time since a TensorCore last ran something; 0 while it is busy. Grows while a job hangs or waits.",
            "s",
        ),
        _device(
            "Queued programs",
            few("tpu_runtime_hlo_queue_size", 32),
            "Programs queued for the TensorCore. If always 0 while idle is high, the host does not keep up.",
            "short",
        ),
        lines(
            "Runtime uptime",
            f"Time since the job's runtime started; a drop to 0 is a restart of the job. {_RUNTIME} {_FEW}",
            Query(expr=few("tpu_runtime_uptime_seconds"), legend="{{worker}}"),
            unit="s",
        ),
        lines(
            "Runtime errors",
            f"1 while the runtime detects a hang or an error between slices (megascale), or a failed slice. See the "
            f"runbook TpuRuntimeError. {_RUNTIME} {_FEW}",
            Query(expr=few("tpu_runtime_megascale_error"), legend="{{worker}} megascale"),
            Query(expr=few("tpu_runtime_slice_error"), legend="{{worker}} slice"),
            unit="short",
        ),
    ]


def _last_success() -> str:
    return averaged("tpumon_target_last_success_timestamp_seconds", "max_over_time")


def _slowest() -> str:
    return f"on (@{{worker}}) topk(10, {averaged('tpumon_sample_duration_seconds')})"


def _watching() -> list[Panel]:
    return [
        lines(
            "Profiling overhead",
            "Share of time for which the job was traced, including collection. Shows the selected workers with the "
            "longest queries, at most 10.",
            Query(
                expr=f"{rate('tpumon_traced_seconds_total')} and {_slowest()}",
                legend="{{worker}}",
            ),
            unit="percentunit",
            size=(8, 8),
            small=True,
        ),
        lines(
            "Queries",
            "Queries per second over all selected workers: answered ones, and failed ones by reason. busy and paused "
            "are not faults.",
            Query(expr=f"sum({rate('tpumon_samples_total')})", legend="answered"),
            Query(expr=f"sum by (reason) ({rate('tpumon_sample_errors_total')})", legend="{{reason}}"),
            unit="ops",
            size=(8, 8),
        ),
        lines(
            "Last sample age",
            "Time since the worker's last figures. It grows between samples and drops with each; if it keeps growing, "
            "see the runbook TpuNoSamples. Shows the selected workers with the oldest samples, at most 10.",
            Query(
                expr=f"{SILENT_FOR} and bottomk(10, {_last_success()})",
                legend="{{worker}}",
            ),
            unit="s",
            size=(8, 8),
        ),
        lines(
            "Truncated samples",
            "Share of the samples that rest on truncated traces: their figures cover less than the window, or are "
            "absent; see truncated in docs/findings.md. Shows the selected workers with the longest queries, at most "
            "10.",
            Query(
                expr=f"{rate('tpumon_truncated_samples_total')} / ({rate('tpumon_samples_total')} > 0)"
                f" and {_slowest()}",
                legend="{{worker}}",
            ),
            unit="percentunit",
            size=(8, 8),
            small=True,
        ),
        _each("Query duration", "tpumon_sample_duration_seconds", "Duration of queries, answered or failed.", "s"),
        _each(
            "Window", "tpumon_sample_window_seconds", "Length of the window that the figures of a sample cover.", "s"
        ),
        _each(
            "Interval",
            "tpumon_sample_interval_seconds",
            "Time between the starts of two queries. --max-duty can make it longer than requested.",
            "s",
        ),
    ]
