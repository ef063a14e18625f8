"""PromQL expressions that the dashboards share.

They query tpumon's own series, so the dashboards need no recording rules. `Dashboard.to_json` puts values of the
configuration in the places of `@{...}`.
"""

from __future__ import annotations

JOB = "@{chosen_jobs}"
CHOSEN = f'{JOB},worker=~"$worker"'

PER_WORKER = "@{row}"
"""Labels of a worker, whichever tpumon watches it: what rows of tables are joined on."""


def of(metric: str, *matchers: str) -> str:
    """The series of the selected workers."""
    return f"{metric}{{{','.join((CHOSEN, *matchers))}}}"


def few(metric: str, most: int = 10) -> str:
    """The selected workers' series with the highest averages over the time range, at most `most`."""
    return f"{of(metric)} and topk({most}, avg_over_time({of(metric)}[$__range] @ end()))"


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
        f"({_sliced(metric, CHOSEN)}) {operator} on (@{{slice}}) group_left ()"
        f" quantile by (@{{slice}}) (0.5, {_sliced(metric, JOB)})"
    )


STEP_TO_MEDIAN = beside_median("tpu_step_time_seconds", "/")
IDLE_BELOW_MEDIAN = f"-({beside_median('tpu_idle_ratio', '-')})"

HBM_USAGE = f"{of('tpu_hbm_used_bytes')} / {of('tpu_hbm_total_bytes')}"
FULLEST_DEVICE = f"max by ({PER_WORKER}) ({HBM_USAGE})"

SILENT_FOR = f"time() - {of('tpumon_target_last_success_timestamp_seconds')}"

STATE = (
    f"max by ({PER_WORKER}) ({of('tpumon_target_up')} + {of('tpumon_target_busy')}"
    f" or 3 * ({of('tpumon_target_paused')} == 1))"
)
"""0 down, 1 up, 2 busy, 3 paused; see `panels.STATES`."""

STEPS_BY_LE = f"sum by (le) (increase({of('tpu_steps_seconds_bucket')}[$__rate_interval]))"


def step_quantile(ratio: float) -> str:
    """A quantile of the step times of all selected workers."""
    rates = f"sum by (le) (rate({of('tpu_steps_seconds_bucket')}[$__rate_interval]))"
    return f"histogram_quantile({ratio:g}, {rates})"


def counted(metric: str, width: float) -> str:
    """How many of the selected workers' series have each value, rounded to multiples of `width`: few series to draw."""
    return f'count_values("le", round({of(metric)}, {width:g}))'
