"""PromQL expressions that the dashboards share.

They query tpumon's own series, so the dashboards need no recording rules, but for since when findings are there.
`Dashboard.to_json` puts values of the configuration in the places of `@{...}`.
"""

from __future__ import annotations

JOB = "@{chosen_jobs}"
CHOSEN = f'{JOB},worker=~"$worker"'

PER_WORKER = "@{row}"
"""Labels of a worker, whichever tpumon watches it: what rows of tables are joined on."""

MOST_ROWS = 150
"""Rows of a table of workers: with ten columns, 1,500 series."""

OF_SLICES = f'and on (@{{worker}}) tpumon_target_info{{{CHOSEN},slice=~"$slice"}}'
"""Only the workers of the selected slices: the label is in no other series of a worker that is down or paused."""


def _selected(metric: str, *matchers: str) -> str:
    return f"{metric}{{{','.join((CHOSEN, *matchers))}}}"


def of(metric: str, *matchers: str) -> str:
    """The series of the selected workers."""
    return f"({_selected(metric, *matchers)} {OF_SLICES})"


def over(function: str, metric: str, span: str, *matchers: str) -> str:
    """A function of the series of the selected workers over a span: `avg_over_time`, `rate` and so on."""
    return f"({function}({_selected(metric, *matchers)}[{span}]) {OF_SLICES})"


def rate(metric: str, *matchers: str) -> str:
    """The rates of the selected workers' counters."""
    return over("rate", metric, "$__rate_interval", *matchers)


def averaged(metric: str, function: str = "avg_over_time") -> str:
    """The selected workers' averages, or another function, over the time range, at its end."""
    return f"({function}({_selected(metric)}[$__range] @ end()) {OF_SLICES})"


def few(metric: str, most: int = 10) -> str:
    """The selected workers' series with the highest averages over the time range, at most `most`."""
    return f"{of(metric)} and topk({most}, {averaged(metric)})"


def per_worker(metric: str, how: str = "max") -> str:
    """One value per worker without other labels, which tables join on."""
    return f"{how} by ({PER_WORKER}) ({of(metric)})"


def _sliced(metric: str, selector: str) -> str:
    newest = f"topk by (@{{worker}}) (1, timestamp(tpu_worker_info{{{selector}}}))"
    slices = f"group by (@{{worker}}, slice) ({newest})"
    alone = f"unless on (@{{worker}}) tpumon_target_independent{{{selector}}} == 1"
    return f"({metric}{{{selector}}} {alone}) * on (@{{worker}}) group_left (slice) {slices}"


def beside_median(metric: str, operator: str) -> str:
    """A worker's value relative to the median of its slice, selected or not; as in `recording.rules.yml`."""
    return (
        f"(({_sliced(metric, CHOSEN)}) {operator} on (@{{slice}}) group_left ()"
        f" quantile by (@{{slice}}) (0.5, {_sliced(metric, JOB)}) {OF_SLICES})"
    )


STEP_TO_MEDIAN = beside_median("tpu_step_time_seconds", "/")
IDLE_BELOW_MEDIAN = f"-({beside_median('tpu_idle_ratio', '-')})"

HBM_USAGE = f"({_selected('tpu_hbm_used_bytes')} / {_selected('tpu_hbm_total_bytes')} {OF_SLICES})"
FULLEST_DEVICE = f"max by ({PER_WORKER}) ({HBM_USAGE})"

SILENT_FOR = f"(time() - {of('tpumon_target_last_success_timestamp_seconds')})"

STATE = (
    f"max by ({PER_WORKER}) ({of('tpumon_target_up')} + {of('tpumon_target_busy')}"
    f" or 3 * ({of('tpumon_target_paused')} == 1))"
)
"""0 down, 1 up, 2 busy, 3 paused; see `panels.STATES`."""

_FINDING = _selected("tpumon_finding", 'finding!="compute-bound"')
FINDINGS = f"(({_FINDING} == 1) {OF_SLICES})"
"""What is wrong now; `compute-bound` is no fault."""

HAS_FINDINGS = f"(sum by ({PER_WORKER}) ({_FINDING} {OF_SLICES}))"
SINCE = f"(worker:tpumon_finding:since{{{CHOSEN}}} {OF_SLICES})"

_NONE = f"0 * max by ({PER_WORKER}) ({of('tpumon_target_paused')})"
_DOWN = f"max by ({PER_WORKER}) (1 - {of('tpumon_target_up')})"
WORST = f"topk({MOST_ROWS}, ((100 * {_DOWN}) or {_NONE}) + ({HAS_FINDINGS} or {_NONE}))"
"""The workers in tables, if there are many: those that are down, then those with the most findings."""


def worst(expr: str) -> str:
    """Of one value per worker, those in tables."""
    return f"{expr} and on ({PER_WORKER}) {WORST}"


def number_of(metric: str) -> str:
    """The sum of a metric that paused workers do not have; 0 if all are paused."""
    return f"(sum({of(metric)}) or 0 * sum({of('tpumon_target_paused')}))"


DOWN = f"(sum(1 - {of('tpumon_target_up')}) or 0 * sum({of('tpumon_target_paused')}))"

STEPS_BY_LE = f"sum by (le) ({over('increase', 'tpu_step_duration_seconds_bucket', '$__rate_interval')})"


def quantile(ratio: float, histogram: str) -> str:
    """A quantile of a histogram of all selected workers."""
    return f"histogram_quantile({ratio:g}, sum by (le) ({rate(f'{histogram}_bucket')}))"


def counted(metric: str, width: float) -> str:
    """How many of the selected workers' series have each value, rounded to multiples of `width`: few series to draw."""
    return f'count_values("le", round({of(metric)}, {width:g}))'
