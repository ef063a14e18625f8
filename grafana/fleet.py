"""Is the job healthy, and who is slow?"""

from __future__ import annotations

from grafana.panels import STATES, Dashboard, Panel, Query, Row, bars, heatmap, lines, number, table, to_worker
from grafana.queries import (
    CHOSEN,
    FULLEST_DEVICE,
    IDLE_BELOW_MEDIAN,
    JOB,
    SILENT_FOR,
    STATE,
    STEP_TO_MEDIAN,
    of,
    per_worker,
)

WORKER_UID = "tpumon-worker"


def dashboard() -> Dashboard:
    """The first one to look at."""
    return Dashboard(
        uid="tpumon-fleet",
        title="TPU fleet",
        description="All workers of TPU jobs: who answers, how busy they are, who is slow. Data: tpumon.",
        rows=[
            Row(title="Is the job healthy?", panels=_now()),
            Row(title="Workers", panels=_workers()),
            Row(title="Over time", panels=_over_time()),
            Row(title="Who stands out now?", panels=_outliers()),
            Row(title="Alerts and exporters", panels=_watching()),
        ],
    )


def _now() -> list[Panel]:
    return [
        number(
            "Workers",
            "How many of the chosen workers answer; are down; are left alone because someone else profiles them "
            "(busy) "
            "or because of `tpumon pause`. Down: see the table below, and the runbook TpuWorkerDown.",
            Query(expr=f"sum({of('tpumon_target_up')})", legend="answer"),
            Query(expr=f"sum(1 - {of('tpumon_target_up')})", legend="down"),
            Query(expr=f"sum({of('tpumon_target_busy')})", legend="busy"),
            Query(expr=f"sum({of('tpumon_target_paused')})", legend="paused"),
            unit="short",
            size=(8, 4),
        ),
        number(
            "Matrix units",
            "Utilisation of the matrix units (MXU), mean of the workers with a present sample. What is good "
            "depends on the "
            "model; compare with its own past. Near 0: see the runbook TpuIdle.",
            Query(expr=f"avg({of('tpu_mxu_utilization_ratio')})"),
            unit="percentunit",
        ),
        number(
            "Step time",
            "Average step of the median worker. tpu_worker_info's step_source says what a step is.",
            Query(expr=f"quantile(0.5, {of('tpu_step_time_seconds')})"),
            unit="s",
        ),
        number(
            "Waiting for input, worst",
            "Largest share of a step that a worker spends waiting for infeed. From 5 % on it is worth a look, from "
            "20 % on "
            "input holds the job up. n/a: no program with infeed; JAX jobs wait for input as idle time.",
            Query(expr=f"max({of('tpu_infeed_ratio')})"),
            unit="percentunit",
            limits=(0.05, 0.20),
        ),
        number(
            "HBM, fullest device",
            "HBM in use on the fullest device of the chosen workers. n/a: no worker's runtime metric service was "
            "reached.",
            Query(expr=f"max({FULLEST_DEVICE})"),
            unit="percentunit",
            limits=(0.90, 0.97),
        ),
    ]


def _workers() -> list[Panel]:
    return [
        table(
            "Workers, those that do not answer first",
            "One row a worker. A worker that is down keeps its row and has no figures: they are absent, not 0. "
            "Silent for: "
            "since it last gave figures. Step / median: beside the median of its slice; from 1.1 on it is a "
            "straggler.",
            Query(expr=STATE, legend="State"),
            Query(expr=f"max by (job, worker) ({SILENT_FOR})", legend="Silent for", unit="s"),
            Query(expr=per_worker("tpu_mxu_utilization_ratio"), legend="MXU", unit="percentunit"),
            Query(expr=per_worker("tpu_idle_ratio"), legend="Idle", unit="percentunit"),
            Query(expr=per_worker("tpu_step_time_seconds"), legend="Step", unit="s"),
            Query(expr=f"max by (job, worker) ({STEP_TO_MEDIAN})", legend="Step / median", unit="none"),
            Query(expr=per_worker("tpu_infeed_ratio"), legend="Infeed", unit="percentunit"),
            Query(expr=FULLEST_DEVICE, legend="HBM", unit="percentunit"),
            unit="none",
            labels={"worker": "Worker", "job": "Job"},
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
            "A step down of `answer` with no step up of `busy` or `paused` is a worker that was lost.",
            Query(expr=f"sum({of('tpumon_target_up')})", legend="answer"),
            Query(expr=f"sum(1 - {of('tpumon_target_up')})", legend="down"),
            Query(expr=f"sum({of('tpumon_target_busy')})", legend="busy"),
            Query(expr=f"sum({of('tpumon_target_paused')})", legend="paused"),
            unit="short",
        ),
        _spread(
            "Matrix units",
            "tpu_mxu_utilization_ratio",
            "percentunit",
            "A drop of all: the job; of the least: one worker.",
        ),
        _spread(
            "Step time",
            "tpu_step_time_seconds",
            "s",
            "Workers of a synchronous job have equal steps: they wait for the slowest.",
        ),
        _spread(
            "Idle",
            "tpu_idle_ratio",
            "percentunit",
            "Where the least is far below the median, the others wait for that worker.",
        ),
        _spread(
            "Waiting for input",
            "tpu_infeed_ratio",
            "percentunit",
            "See the dashboard on steps for where the time goes.",
            small=True,
        ),
        heatmap(
            "Matrix units, how many workers at which utilisation",
            "Darker: more workers. A second band or a tail below the rest are workers that do something else.",
            Query(expr=of("tpu_mxu_utilization_ratio")),
            unit="percentunit",
            bucket=0.05,
        ),
    ]


def _spread(title: str, metric: str, unit: str, hint: str, *, small: bool = False) -> Panel:
    return lines(
        f"{title}, across workers",
        f"{metric}: least, median and greatest of the chosen workers with a present sample. {hint}",
        Query(expr=f"max({of(metric)})", legend="greatest"),
        Query(expr=f"quantile(0.5, {of(metric)})", legend="median"),
        Query(expr=f"min({of(metric)})", legend="least"),
        unit=unit,
        small=small,
    )


def _outliers() -> list[Panel]:
    return [
        bars(
            "Slowest against the median of their slice",
            "Step time of a worker over the median of its slice; the ten greatest. 1 is as fast as the others; "
            "from 1.1 on "
            "see the runbook TpuStraggler.",
            Query(expr=f"topk(10, {STEP_TO_MEDIAN})", legend="{{worker}}"),
            unit="none",
            limits=(1.10, 1.25),
        ),
        bars(
            "Idle less than the others",
            "By how much less than the median of its slice a worker idles; the ten greatest. Clearly above 0: the "
            "others "
            "wait while this worker works.",
            Query(expr=f"topk(10, {IDLE_BELOW_MEDIAN})", legend="{{worker}}"),
            unit="percentunit",
            limits=(0.10, 0.25),
        ),
        bars(
            "Least use of the matrix units",
            "The ten workers that use their matrix units least.",
            Query(expr=f"bottomk(10, {of('tpu_mxu_utilization_ratio')})", legend="{{worker}}"),
            unit="percentunit",
        ),
        bars(
            "Waiting most for input",
            "The ten workers with the largest share of a step spent waiting for infeed. Few of many: their hosts "
            "or their "
            "share of the data; all: the input pipeline. See the runbook TpuInputBound.",
            Query(expr=f"topk(10, {of('tpu_infeed_ratio')})", legend="{{worker}}"),
            unit="percentunit",
            size=(12, 8),
            limits=(0.05, 0.20),
        ),
        bars(
            "Fullest HBM",
            "The ten workers whose fullest device has most of its HBM in use. See the runbook TpuHbmNearlyFull.",
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
            "Alerts of alerts.rules.yml about the chosen jobs, pending and firing. Empty: none, or the rules are "
            "not loaded.",
            Query(
                expr="max by (alertname, alertstate, severity, job, worker, instance) "
                f'(ALERTS{{alertname=~"Tpu.*|Tpumon.*",{JOB}}})',
                legend="Count",
            ),
            unit="none",
            labels={
                "alertname": "Alert",
                "alertstate": "State",
                "severity": "Severity",
                "job": "Job",
                "worker": "Worker",
                "instance": "Exporter",
            },
            sort="State",
            descending=False,
            size=(14, 8),
        ),
        table(
            "Exporters",
            "The tpumon processes that are scraped, whether they answer (1) and how long a scrape takes. No worker: 1 "
            "where one finds none to watch; see the runbook TpuJobGone.",
            Query(expr=f"max by (job, instance) (up{{{JOB}}})", legend="Up", unit="none"),
            Query(expr=f"max by (job, instance) (scrape_duration_seconds{{{JOB}}})", legend="Scrape takes", unit="s"),
            Query(expr=f"max by (job, instance) (tpumon_waiting{{{JOB}}})", legend="No worker", unit="none"),
            unit="none",
            labels={"job": "Job", "instance": "Exporter"},
            sort="Up",
            descending=False,
            size=(10, 8),
        ),
        lines(
            "Failed queries",
            "Queries of workers that failed, a second, by reason. busy and paused are no faults.",
            Query(
                expr=f"sum by (reason) (rate(tpumon_sample_errors_total{{{CHOSEN}}}[$__rate_interval]))",
                legend="{{reason}}",
            ),
            unit="ops",
        ),
        lines(
            "What watching costs",
            "Share of time for which jobs were traced: greatest and mean of the chosen workers. tpumon keeps to 2 % "
            "unless --max-duty says otherwise.",
            Query(expr=f"max(rate({of('tpumon_traced_seconds_total')}[$__rate_interval]))", legend="greatest"),
            Query(expr=f"avg(rate({of('tpumon_traced_seconds_total')}[$__rate_interval]))", legend="mean"),
            unit="percentunit",
            small=True,
        ),
    ]
