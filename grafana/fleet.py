"""Is the job healthy, and who is slow?"""

from __future__ import annotations

from grafana.board import Dashboard, Row
from grafana.config import Config
from grafana.panels import STATES, Panel, Query, bars, heatmap, lines, number, table, to_worker
from grafana.queries import (
    DOWN,
    FINDINGS,
    FULLEST_DEVICE,
    HAS_FINDINGS,
    IDLE_BELOW_MEDIAN,
    JOB,
    MOST_ROWS,
    PER_WORKER,
    SILENT_FOR,
    SINCE,
    STATE,
    STEP_TO_MEDIAN,
    counted,
    number_of,
    of,
    per_worker,
    rate,
    worst,
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
            Row(title="What is wrong", panels=_findings()),
            Row(title="Workers", panels=_workers()),
            Row(title="Over time", panels=_over_time()),
            Row(title="Outliers now", panels=_outliers()),
            Row(title="How far the figures can be trusted", panels=_trust()),
            Row(title="Exporters", panels=_watching()),
        ],
    )


def _now() -> list[Panel]:
    return [
        number(
            "Workers",
            "Number of selected workers that respond, are down, are busy (another session is profiling them) or are "
            "paused by `tpumon pause`. For workers that are down, see the table below and the runbook TpuWorkerDown.",
            Query(expr=number_of("tpumon_target_up"), legend="up"),
            Query(expr=DOWN, legend="down"),
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


_FOUND = f"topk({MOST_ROWS}, max by ({PER_WORKER}, finding) ({FINDINGS}))"


def _findings() -> list[Panel]:
    return [
        table(
            "Findings",
            "What tpumon finds wrong with workers now; docs/findings.md explains each. Since: from the recording "
            f"rules, n/a without them. At most {MOST_ROWS}. Empty: nothing is wrong, or nothing can be judged.",
            Query(expr=_FOUND, legend="Found"),
            Query(
                expr=f"max by ({PER_WORKER}, finding) (1000 * {SINCE}) and on ({PER_WORKER}, finding) {_FOUND}",
                legend="Since",
                unit="dateTimeFromNow",
            ),
            unit="none",
            labels={"finding": "Finding", "worker": "Worker", "namespace": "Namespace", "job": "Job"},
            sort="Since",
            descending=False,
            size=(12, 9),
            links={"Worker": to_worker(WORKER_UID)},
        ),
        table(
            "Alerts",
            "Pending and firing alerts of alerts.rules.yml about the selected jobs, with the time since when. Empty: "
            "there are none, or the rules are not loaded.",
            Query(expr=f"topk({MOST_ROWS}, {_alerts()})", legend="Since", unit="dateTimeFromNow"),
            unit="none",
            labels={
                "alertname": "Alert",
                "alertstate": "State",
                "severity": "Severity",
                "namespace": "Namespace",
                "job": "Job",
                "tpu_job": "TPU job",
                "tpu_slice": "TPU slice",
                "slice": "Slice",
                "worker": "Worker",
                "instance": "Exporter",
            },
            sort="State",
            descending=False,
            size=(12, 9),
        ),
    ]  # fmt: skip


def _alerts() -> str:
    labels = "alertname, severity, @{job_labels}, slice, worker, instance"
    ours = f'alertname=~"Tpu.*|Tpumon.*",{JOB}'
    since = f"max by ({labels}) (ALERTS_FOR_STATE{{{ours}}})"
    return f"1000 * max by ({labels}, alertstate) (ALERTS{{{ours}}}) * on ({labels}) group_left () {since}"


def _workers() -> list[Panel]:
    return [
        table(
            "Workers, down first",
            "One row per worker; of many, the "
            f"{MOST_ROWS} that are down or have the most findings. A worker that is down keeps its row without "
            "figures: they are absent, not 0. Last sample age: time since its last figures. Step / median: relative "
            "to the median of its slice.",
            Query(expr=worst(STATE), legend="State"),
            Query(expr=worst(HAS_FINDINGS), legend="Findings"),
            Query(expr=worst(f"max by ({PER_WORKER}) ({SILENT_FOR})"), legend="Last sample age", unit="s"),
            Query(expr=worst(per_worker("tpu_mxu_utilization_ratio")), legend="MXU", unit="percentunit"),
            Query(expr=worst(per_worker("tpu_idle_ratio")), legend="Idle", unit="percentunit"),
            Query(expr=worst(per_worker("tpu_step_time_seconds")), legend="Step", unit="s"),
            Query(expr=worst(f"max by ({PER_WORKER}) ({STEP_TO_MEDIAN})"), legend="Step / median", unit="none"),
            Query(expr=worst(per_worker("tpu_infeed_ratio")), legend="Infeed", unit="percentunit"),
            Query(expr=worst(FULLEST_DEVICE), legend="HBM", unit="percentunit"),
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
            Query(expr=number_of("tpumon_target_up"), legend="up"),
            Query(expr=DOWN, legend="down"),
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


def _trust() -> list[Panel]:
    return [
        table(
            "Sources and methods",
            "Where the current figures come from, and of how many workers: the Monitor RPC, short traces, or only the "
            "runtime; how the matrix units were measured; what counts as a step. docs/figures.md says how they differ.",
            Query(
                expr=f"count by (source, mxu_method, step_source, simulated) ({of('tpu_worker_info')})",
                legend="Workers",
            ),
            unit="none",
            labels={
                "source": "Source",
                "mxu_method": "MXU method",
                "step_source": "Step source",
                "simulated": "Simulated",
            },
            sort="Workers",
            size=(9, 8),
        ),
        number(
            "Workers with current figures",
            "Share of the selected workers that have a current sample. The others are down, paused, busy, or give "
            "none.",
            Query(expr=f"(count({of('tpu_worker_info')}) or 0 * count({_watched()})) / count({_watched()})"),
            unit="percentunit",
            size=(5, 8),
        ),
        lines(
            "Age of figures",
            "Time since the last figures, over the selected workers. It grows between samples; a maximum that keeps "
            "growing is a worker that gives none.",
            Query(expr=f"max({SILENT_FOR})", legend="max"),
            Query(expr=f"quantile(0.5, {SILENT_FOR})", legend="median"),
            unit="s",
            size=(5, 8),
        ),
        lines(
            "Truncated samples",
            "Share of the samples that rest on truncated traces, over the selected workers: their figures cover less "
            "than the window, or are absent. See the runbook TpuTruncated.",
            Query(
                expr=f"sum({rate('tpumon_truncated_samples_total')}) / (sum({rate('tpumon_samples_total')}) > 0)",
                legend="truncated",
            ),
            unit="percentunit",
            size=(5, 8),
            small=True,
        ),
    ]


def _watched() -> str:
    return of("tpumon_target_paused")


def _watching() -> list[Panel]:
    return [
        table(
            "Exporters",
            "The scraped tpumon processes, down first: whether they respond (1), and how long a scrape takes. No "
            "worker is 1 if tpumon finds none to watch; see the runbook TpuJobGone. Finding works is 0 if the targets "
            "file, the name server or the TPU API cannot be read; see the runbook TpumonDiscoveryFailing. Targets "
            f"that have exported within a day, at most {MOST_ROWS}.",
            Query(expr=_first(_of_exporters("up")), legend="Up", unit="none"),
            Query(expr=_first(_of_exporters("scrape_duration_seconds")), legend="Scrape duration", unit="s"),
            Query(expr=_first(_of_exporter("tpumon_waiting", "max")), legend="No worker", unit="none"),
            Query(expr=_first(_of_exporter("tpumon_discovery_up", "min")), legend="Finding works", unit="none"),
            unit="none",
            labels={"namespace": "Namespace", "job": "Job", "instance": "Exporter"},
            sort="Up",
            descending=False,
            size=(24, 8),
        ),
        lines(
            "Failed queries",
            "Failed queries per second, by reason. busy and paused are not faults.",
            Query(expr=f"sum by (reason) ({rate('tpumon_sample_errors_total')})", legend="{{reason}}"),
            unit="ops",
        ),
        lines(
            "Profiling overhead",
            "Share of time for which jobs were traced: max and mean of the selected workers. tpumon stays below 1 % "
            "unless --max-duty allows more.",
            Query(expr=f"max({rate('tpumon_traced_seconds_total')})", legend="max"),
            Query(expr=f"avg({rate('tpumon_traced_seconds_total')})", legend="mean"),
            unit="percentunit",
            small=True,
        ),
    ]


def _of_exporters(metric: str) -> str:
    """Of the scraped tpumon processes only: with all variables on All, the job's matchers fit every target."""
    seen = f"present_over_time(tpumon_build_info{{{JOB}}}[1d])"
    return f"max by (@{{exporter}}) ({metric}{{{JOB}}} and on (@{{exporter}}) {seen})"


def _of_exporter(metric: str, how: str) -> str:
    return f"{how} by (@{{exporter}}) ({metric}{{{JOB}}})"


def _first(expr: str) -> str:
    return f"{expr} and on (@{{exporter}}) bottomk({MOST_ROWS}, {_of_exporters('up')})"
