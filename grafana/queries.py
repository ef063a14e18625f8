"""PromQL expressions that the dashboards share.

They query tpumon's own series, so the dashboards need no recording rules. `Dashboard.to_json` puts values of the
configuration in the places of `@{...}`.
"""

from __future__ import annotations

CLUSTERS = "@{chosen_clusters}"
JOB = "@{chosen}"
CHOSEN = f'{JOB},worker=~"$worker"'

PER_WORKER = "@{worker}"
"""Labels of a worker, whichever tpumon watches it: what rows of tables are joined on."""

PER_SLICE = "@{slice}"

MOST_ROWS = 150
"""Rows of a table of workers: with ten columns, 1,500 series."""


def of(metric: str, *matchers: str) -> str:
    """The series of the selected workers."""
    return f"{metric}{{{','.join((CHOSEN, *matchers))}}}"


def over(function: str, metric: str, span: str, *matchers: str) -> str:
    """A function of the series of the selected workers over a span: `avg_over_time`, `rate` and so on."""
    return f"{function}({of(metric, *matchers)}[{span}])"


def rate(metric: str, *matchers: str) -> str:
    """The rates of the selected workers' counters."""
    return over("rate", metric, "$__rate_interval", *matchers)


def averaged(metric: str, function: str = "avg_over_time") -> str:
    """The selected workers' averages, or another function, over the time range, at its end."""
    return f"{function}({of(metric)}[$__range] @ end())"


def few(metric: str, most: int = 10) -> str:
    """The selected workers' series with the highest averages over the time range, at most `most`."""
    return f"{of(metric)} and topk({most}, {averaged(metric)})"


def per_worker(metric: str, how: str = "max") -> str:
    """One value per worker without other labels, which tables join on."""
    return f"{how} by ({PER_WORKER}) ({of(metric)})"


HBM_USAGE = f"{of('tpu_hbm_used_bytes')} / {of('tpu_hbm_total_bytes')}"
FULLEST_DEVICE = f"max by ({PER_WORKER}) ({HBM_USAGE})"

SILENT_FOR = f"(time() - {of('tpumon_target_last_success_timestamp_seconds')})"

STATE = (
    f"max by ({PER_WORKER}) ({of('tpumon_target_up')} + {of('tpumon_target_busy')}"
    f" or 3 * ({of('tpumon_target_paused')} == 1))"
)
"""0 down, 1 up, 2 busy, 3 paused; see `panels.STATES`."""

EACH = f"{PER_WORKER}, finding"
FINDINGS = f"(max by ({EACH}) ({of('tpumon_finding_severity')}) > 0)"
"""Findings by worker: the worst that any tpumon says; see `panels.SEVERITIES`."""

SINCE = f"min by ({EACH}) ({of('tpumon_finding_since_timestamp_seconds')})"
SEVERITY = per_worker("tpumon_finding_severity")

NO_FINDING = f"0 * max by ({PER_WORKER}) ({of('tpumon_target_paused')})"
UP = per_worker("tpumon_target_up")
_DOWN = f"max by ({PER_WORKER}) (1 - {of('tpumon_target_up')})"
WORST = f"topk({MOST_ROWS}, ((100 * {_DOWN}) or {NO_FINDING}) + (({SEVERITY}) or {NO_FINDING}))"
"""The workers in tables, if there are many: those that are down, then those with the worst findings."""


def worst(expr: str) -> str:
    """Of one value per worker, those in tables."""
    return f"{expr} and on ({PER_WORKER}) {WORST}"


def number_of(metric: str) -> str:
    """The sum of a metric that paused workers do not have; 0 if all are paused."""
    return f"(sum({of(metric)}) or 0 * sum({of('tpumon_target_paused')}))"


DOWN = f"(sum(1 - {of('tpumon_target_up')}) or 0 * sum({of('tpumon_target_paused')}))"

_STEPS = "tpu_step_duration_seconds"
STEPS_BY_LE = f"sum by (le) ({over('increase', f'{_STEPS}_bucket', '$__rate_interval')})"
STEPS_SEEN = (
    f"sum({over('increase', f'{_STEPS}_count', '$__range')})"
    f" or histogram_count(sum({over('increase', _STEPS, '$__range')}))"
)


def quantile(ratio: float, histogram: str) -> str:
    """A quantile of a histogram of all selected workers."""
    return f"histogram_quantile({ratio:g}, sum by (le) ({rate(f'{histogram}_bucket')}))"


def step_quantile(ratio: float) -> str:
    """A quantile of step durations; where Prometheus takes native histograms, of those."""
    return f"{quantile(ratio, _STEPS)} or histogram_quantile({ratio:g}, sum({rate(_STEPS)}))"


def counted(metric: str, width: float) -> str:
    """Number of the selected workers' series by value, rounded to multiples of `width`: few series to draw."""
    return f'count_values("le", round({of(metric)}, {width:g}))'
