"""Is the job healthy, and who is slow?"""

from __future__ import annotations

from grafana.board import Dashboard, Row
from grafana.config import Config
from grafana.filling import FLEET
from grafana.panels import (
    SEVERITIES,
    STATES,
    WHOSE,
    Panel,
    Query,
    bars,
    heatmap,
    lines,
    number,
    table,
    to_job,
    to_worker,
)
from grafana.queries import (
    CLUSTERS,
    DOWN,
    EACH,
    FINDINGS,
    FULLEST_DEVICE,
    JOB,
    MOST_ROWS,
    NO_FINDING,
    PER_SLICE,
    PER_WORKER,
    SEVERITY,
    SILENT_FOR,
    SINCE,
    STATE,
    UP,
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
        uid=FLEET,
        title="TPU fleet",
        description="All workers of TPU jobs: which respond, how busy they are, which are slow. Data: tpumon.",
        rows=[
            Row(title="Which job is not healthy?", panels=[_verdicts()]),
            Row(title="How are the selected ones?", panels=_now()),
            Row(title="What is wrong", panels=_findings()),
            Row(title="Workers", panels=_workers()),
            Row(title="Over time", panels=_over_time()),
            Row(title="Highest and lowest now", panels=_outliers()),
            Row(title="How far the figures can be trusted", panels=_trust()),
            Row(title="Exporters", panels=_watching()),
        ],
    )


def _verdicts() -> Panel:
    return table(
        "Verdict by job",
        "One row per slice of a job, the worst first: the severity of the worst finding of its workers (a worker that "
        "is down is critical), and how many of them respond, are down, and have a finding that is more than info.",
        Query(expr=f"max by ({PER_SLICE}) (3 * (1 - {UP}) > 0 or {SEVERITY} or {NO_FINDING})", legend="Severity"),
        Query(expr=f"sum by ({PER_SLICE}) (1 - {UP})", legend="Down"),
        Query(expr=f"sum by ({PER_SLICE}) ({UP})", legend="Up"),
        Query(expr=f"sum by ({PER_SLICE}) (({SEVERITY} or {NO_FINDING}) >= bool 2)", legend="Workers with findings"),
        unit="none",
        labels={label: name for label, name in WHOSE.items() if label != "worker"},
        sort="Severity",
        size=(24, 7),
        links={WHOSE["tpu_job"]: to_job(FLEET)},
        mappings={"Severity": SEVERITIES},
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


_FOUND = f"topk({MOST_ROWS}, {FINDINGS})"


def _findings() -> list[Panel]:
    return [
        table(
            "Findings",
            "What tpumon finds wrong with workers now, how bad it is, and since when, the worst first; "
            f"docs/findings.md explains each. At most {MOST_ROWS}. Empty: nothing is wrong, or nothing can be judged.",
            Query(expr=_FOUND, legend="Severity"),
            Query(
                expr=f"1000 * {SINCE} and on ({EACH}) {_FOUND}",
                legend="Since",
                unit="dateTimeFromNow",
            ),
            unit="none",
            labels={"finding": "Finding", **WHOSE},
            sort="Severity",
            size=(12, 9),
            links={"Worker": to_worker(WORKER_UID)},
            mappings={"Severity": SEVERITIES},
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
                **WHOSE,
                "instance": "Exporter",
            },
            sort="State",
            descending=False,
            size=(12, 9),
        ),
    ]  # fmt: skip


def _alerts() -> str:
    labels = "alertname, severity, @{worker}, instance"
    ours = f'alertname=~"Tpu.*|Tpumon.*",severity!="none",{JOB}'
    since = f"max by ({labels}) (ALERTS_FOR_STATE{{{ours}}})"
    return f"1000 * max by ({labels}, alertstate) (ALERTS{{{ours}}}) * on ({labels}) group_left () {since}"


def _workers() -> list[Panel]:
    return [
        table(
            "Workers, down first",
            "One row per worker; of many, the "
            f"{MOST_ROWS} that are down or have the worst findings. A worker that is down keeps its row without "
            "figures: they are absent, not 0. Severity: of its worst finding. Last sample age: time since its last "
            "figures.",
            Query(expr=worst(STATE), legend="State"),
            Query(expr=worst(SEVERITY), legend="Severity"),
            Query(expr=worst(f"max by ({PER_WORKER}) ({SILENT_FOR})"), legend="Last sample age", unit="s"),
            Query(expr=worst(per_worker("tpu_mxu_utilization_ratio")), legend="MXU", unit="percentunit"),
            Query(expr=worst(per_worker("tpu_idle_ratio")), legend="Idle", unit="percentunit"),
            Query(expr=worst(per_worker("tpu_step_time_seconds")), legend="Step", unit="s"),
            Query(expr=worst(per_worker("tpu_infeed_ratio")), legend="Infeed", unit="percentunit"),
            Query(expr=worst(FULLEST_DEVICE), legend="HBM", unit="percentunit"),
            unit="none",
            labels=WHOSE,
            sort="State",
            descending=False,
            links={"Worker": to_worker(WORKER_UID)},
            mappings={"State": STATES, "Severity": SEVERITIES},
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
            limits=(0.05, 0.20),
        ),
        bars(
            "Highest HBM usage",
            "The ten workers with the highest HBM usage, by their fullest device. See the runbook TpuHbmNearlyFull.",
            Query(expr=f"topk(10, {FULLEST_DEVICE})", legend="{{worker}}"),
            unit="percentunit",
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
            "than the window, or are absent. See truncated in docs/findings.md.",
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
            "worker is 1 if tpumon finds none to watch. Finding works is 0 if the targets file, the name server or the "
            "TPU API cannot be read; see the runbook TpumonDiscoveryFailing. Targets that "
            f"have exported within a day, of whatever job, at most {MOST_ROWS}.",
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
    """Of the scraped tpumon processes only: the matchers fit every target."""
    seen = f"present_over_time(tpumon_build_info{{{CLUSTERS}}}[1d])"
    return f"max by (@{{exporter}}) ({metric}{{{CLUSTERS}}} and on (@{{exporter}}) {seen})"


def _of_exporter(metric: str, how: str) -> str:
    return f"{how} by (@{{exporter}}) ({metric}{{{CLUSTERS}}})"


def _first(expr: str) -> str:
    return f"{expr} and on (@{{exporter}}) bottomk({MOST_ROWS}, {_of_exporters('up')})"
