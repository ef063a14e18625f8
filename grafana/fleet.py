"""Is the job healthy, and who is slow?"""

from __future__ import annotations

from grafana.config import Config
from grafana.panels import STATES, Dashboard, Panel, Query, Row, bars, heatmap, lines, number, table, to_worker
from grafana.queries import (
    CHOSEN,
    FULLEST_DEVICE,
    IDLE_BELOW_MEDIAN,
    JOB,
    PER_WORKER,
    SILENT_FOR,
    STATE,
    STEP_TO_MEDIAN,
    counted,
    of,
    per_worker,
)

WORKER_UID = "tpumon-worker"


def dashboard(config: Config) -> Dashboard:
    """Builds the overview dashboard."""
    return Dashboard(
        config=config,
        uid="tpumon-fleet",
        title="TPU fleet",
        description="All workers of TPU jobs: which respond, how busy they are, which are slow. Data: tpumon.",
        rows=[
            Row(title="Is the job healthy?", panels=_now()),
            Row(title="Workers", panels=_workers()),
            Row(title="Over time", panels=_over_time()),
            Row(title="Outliers now", panels=_outliers()),
            Row(title="Alerts and exporters", panels=_watching()),
        ],
    )


def _now() -> list[Panel]:
    return [
        number(
            "Workers",
            "Number of selected workers that respond, are down, are busy (another session is profiling them) or are "
            "paused by `tpumon pause`. For workers that are down, see the table below and the runbook TpuWorkerDown.",
            Query(expr=f"sum({of('tpumon_target_up')})", legend="up"),
            Query(expr=f"sum(1 - {of('tpumon_target_up')})", legend="down"),
            Query(expr=f"sum({of('tpumon_target_busy')})", legend="busy"),
            Query(expr=f"sum({of('tpumon_target_paused')})", legend="paused"),
            unit="short",
            size=(8, 4),
        ),
        number(
            "Matrix units",
            "Mean utilization of the matrix units (MXU) over workers with a current sample. A good value depends on "
            "the model, so compare with the past. Near 0, see the runbook TpuIdle.",
            Query(expr=f"avg({of('tpu_mxu_utilization_ratio')})"),
            unit="percentunit",
        ),
        number(
            "Step time",
            "Average step time of the median worker. The label step_source of tpu_worker_info says what counts as a "
            "step.",
            Query(expr=f"quantile(0.5, {of('tpu_step_time_seconds')})"),
            unit="s",
        ),
        number(
            "Max infeed wait",
            "Largest share of the step time that a worker spends waiting for infeed. Investigate from 5 %; from 20 % "
            "the job is input-bound. n/a: no program uses infeed; JAX jobs wait for input as idle time.",
            Query(expr=f"max({of('tpu_infeed_ratio')})"),
            unit="percentunit",
            limits=(0.05, 0.20),
        ),
        number(
            "Max HBM usage",
            "HBM usage of the fullest device of the selected workers. n/a: no runtime metric service responds.",
            Query(expr=f"max({FULLEST_DEVICE})"),
            unit="percentunit",
            limits=(0.90, 0.97),
        ),
    ]


def _workers() -> list[Panel]:
    return [
        table(
            "Workers, down first",
            "One row per worker. A worker that is down keeps its row without figures: they are absent, not 0. "
            "Last sample age: time since its last figures. Step / median: relative to the median of its slice; from "
            "1.1 the worker is a straggler.",
            Query(expr=STATE, legend="State"),
            Query(expr=f"max by ({PER_WORKER}) ({SILENT_FOR})", legend="Last sample age", unit="s"),
            Query(expr=per_worker("tpu_mxu_utilization_ratio"), legend="MXU", unit="percentunit"),
            Query(expr=per_worker("tpu_idle_ratio"), legend="Idle", unit="percentunit"),
            Query(expr=per_worker("tpu_step_time_seconds"), legend="Step", unit="s"),
            Query(expr=f"max by ({PER_WORKER}) ({STEP_TO_MEDIAN})", legend="Step / median", unit="none"),
            Query(expr=per_worker("tpu_infeed_ratio"), legend="Infeed", unit="percentunit"),
            Query(expr=FULLEST_DEVICE, legend="HBM", unit="percentunit"),
            unit="none",
            labels={"worker": "Worker", "namespace": "Namespace", "job": "Job"},
            sort="State",
            descending=False,
            links={"Worker": to_worker(WORKER_UID)},
            mappings={"State": STATES},
        ),
    ]


def _over_time() -> list[Panel]:
    return [
        lines(
            "Workers by state",
            "If `up` drops and neither `busy` nor `paused` rises, a worker was lost.",
            Query(expr=f"sum({of('tpumon_target_up')})", legend="up"),
            Query(expr=f"sum(1 - {of('tpumon_target_up')})", legend="down"),
            Query(expr=f"sum({of('tpumon_target_busy')})", legend="busy"),
            Query(expr=f"sum({of('tpumon_target_paused')})", legend="paused"),
            unit="short",
        ),
        _spread(
            "Matrix units",
            "tpu_mxu_utilization_ratio",
            "percentunit",
            "If all drop, look at the job; if only min drops, at one worker.",
        ),
        _spread(
            "Step time",
            "tpu_step_time_seconds",
            "s",
            "Workers of a synchronous job have equal step times, because they wait for the slowest.",
        ),
        _spread(
            "Idle",
            "tpu_idle_ratio",
            "percentunit",
            "If min is far below the median, the other workers wait for that one.",
        ),
        _spread(
            "Infeed wait",
            "tpu_infeed_ratio",
            "percentunit",
            "The dashboard TPU steps and input shows where the time goes.",
            small=True,
        ),
        heatmap(
            "Matrix units, distribution over workers",
            "Darker cells contain more workers. A second band, or a tail below the rest, is workers that do something "
            "different.",
            Query(expr=counted("tpu_mxu_utilization_ratio", 0.05), legend="{{le}}"),
            unit="percentunit",
        ),
    ]


def _spread(title: str, metric: str, unit: str, hint: str, *, small: bool = False) -> Panel:
    return lines(
        f"{title}, across workers",
        f"{metric}: min, median and max of the selected workers with a current sample. {hint}",
        Query(expr=f"max({of(metric)})", legend="max"),
        Query(expr=f"quantile(0.5, {of(metric)})", legend="median"),
        Query(expr=f"min({of(metric)})", legend="min"),
        unit=unit,
        small=small,
    )


def _outliers() -> list[Panel]:
    return [
        bars(
            "Slowest relative to their slice's median",
            "Step time of a worker divided by the median of its slice; the ten largest. 1 is as fast as the others; "
            "from 1.1, see the runbook TpuStraggler.",
            Query(expr=f"topk(10, {STEP_TO_MEDIAN})", legend="{{worker}}"),
            unit="none",
            limits=(1.10, 1.25),
        ),
        bars(
            "Idle below their slice's median",
            "How far a worker's idle ratio is below the median of its slice; the ten largest. Clearly above 0: the "
            "other workers wait while this one works.",
            Query(expr=f"topk(10, {IDLE_BELOW_MEDIAN})", legend="{{worker}}"),
            unit="percentunit",
            limits=(0.10, 0.25),
        ),
        bars(
            "Lowest matrix unit utilization",
            "The ten workers with the lowest utilization of their matrix units.",
            Query(expr=f"bottomk(10, {of('tpu_mxu_utilization_ratio')})", legend="{{worker}}"),
            unit="percentunit",
        ),
        bars(
            "Highest infeed wait",
            "The ten workers that spend the largest share of the step time waiting for infeed. If only a few are "
            "high, look at their hosts or their share of the data; if all are, at the input pipeline. See the runbook "
            "TpuInputBound.",
            Query(expr=f"topk(10, {of('tpu_infeed_ratio')})", legend="{{worker}}"),
            unit="percentunit",
            size=(12, 8),
            limits=(0.05, 0.20),
        ),
        bars(
            "Highest HBM usage",
            "The ten workers with the highest HBM usage, by their fullest device. See the runbook TpuHbmNearlyFull.",
            Query(expr=f"topk(10, {FULLEST_DEVICE})", legend="{{worker}}"),
            unit="percentunit",
            size=(12, 8),
            limits=(0.90, 0.97),
        ),
    ]


def _watching() -> list[Panel]:
    return [
        table(
            "Alerts",
            "Pending and firing alerts of alerts.rules.yml about the selected jobs. Empty: there are none, or the "
            "rules are not loaded.",
            Query(
                expr="max by (alertname, alertstate, severity, @{job_labels}, slice, worker, instance) "
                f'(ALERTS{{alertname=~"Tpu.*|Tpumon.*",{JOB}}})',
                legend="Count",
            ),
            unit="none",
            labels={
                "alertname": "Alert",
                "alertstate": "State",
                "severity": "Severity",
                "namespace": "Namespace",
                "job": "Job",
                "tpu_job": "TPU job",
                "slice": "Slice",
                "worker": "Worker",
                "instance": "Exporter",
            },
            sort="State",
            descending=False,
            size=(14, 8),
        ),
        table(
            "Exporters",
            "The scraped tpumon processes: whether they respond (1), and how long a scrape takes. No worker is 1 if "
            "tpumon finds none to watch; see the runbook TpuJobGone. Targets that have exported within a day.",
            Query(expr=_of_exporters("up"), legend="Up", unit="none"),
            Query(expr=_of_exporters("scrape_duration_seconds"), legend="Scrape duration", unit="s"),
            Query(expr=f"max by (@{{exporter}}) (tpumon_waiting{{{JOB}}})", legend="No worker", unit="none"),
            unit="none",
            labels={"namespace": "Namespace", "job": "Job", "instance": "Exporter"},
            sort="Up",
            descending=False,
            size=(10, 8),
        ),
        lines(
            "Failed queries",
            "Failed queries per second, by reason. busy and paused are not faults.",
            Query(
                expr=f"sum by (reason) (rate(tpumon_sample_errors_total{{{CHOSEN}}}[$__rate_interval]))",
                legend="{{reason}}",
            ),
            unit="ops",
        ),
        lines(
            "Profiling overhead",
            "Share of time for which jobs were traced: max and mean of the selected workers. tpumon stays below 1 % "
            "unless --max-duty allows more.",
            Query(expr=f"max(rate({of('tpumon_traced_seconds_total')}[$__rate_interval]))", legend="max"),
            Query(expr=f"avg(rate({of('tpumon_traced_seconds_total')}[$__rate_interval]))", legend="mean"),
            unit="percentunit",
            small=True,
        ),
    ]


def _of_exporters(metric: str) -> str:
    """Of the scraped tpumon processes only: with all variables on All, the job's matchers fit every target."""
    seen = f"present_over_time(tpumon_build_info{{{JOB}}}[1d])"
    return f"max by (@{{exporter}}) ({metric}{{{JOB}}} and on (@{{exporter}}) {seen})"
