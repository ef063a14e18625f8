"""Pieces of PromQL that the dashboards share. They ask for tpumon's own series, not for recorded ones, so that the
dashboards need no rules.
"""

from __future__ import annotations

JOB = 'job=~"$job"'
CHOSEN = f'{JOB},worker=~"$worker"'

_GROUP = "job, tpu_job, tpu_slice, slice"


def of(metric: str, *matchers: str) -> str:
    """The series of the chosen workers."""
    return f"{metric}{{{','.join((CHOSEN, *matchers))}}}"


def few(metric: str, most: int = 10) -> str:
    """Those of the chosen workers' series that were highest in the range shown; all of them where there are few."""
    return f"{of(metric)} and topk({most}, avg_over_time({of(metric)}[$__range] @ end()))"


def per_worker(metric: str, how: str = "max") -> str:
    """One value a worker, with no other labels: what tables join on."""
    return f"{how} by (job, worker) ({of(metric)})"


def _sliced(metric: str, selector: str) -> str:
    return f"{metric}{{{selector}}} * on (job, instance, worker) group_left (slice) tpu_worker_info{{{selector}}}"


def beside_median(metric: str, operator: str) -> str:
    """A worker's value beside the median of its whole slice, chosen or not, as `recording.rules.yml` has it."""
    return (
        f"({_sliced(metric, CHOSEN)}) {operator} on ({_GROUP}) group_left ()"
        f" quantile by ({_GROUP}) (0.5, {_sliced(metric, JOB)})"
    )


STEP_TO_MEDIAN = beside_median("tpu_step_time_seconds", "/")
IDLE_BELOW_MEDIAN = f"-({beside_median('tpu_idle_ratio', '-')})"

HBM_USAGE = f"{of('tpu_hbm_used_bytes')} / {of('tpu_hbm_total_bytes')}"
FULLEST_DEVICE = f"max by (job, worker) ({HBM_USAGE})"

SILENT_FOR = f"time() - {of('tpumon_target_last_success_timestamp_seconds')}"

STATE = (
    f"max by (job, worker) ({of('tpumon_target_up')} + {of('tpumon_target_busy')}"
    f" or 3 * ({of('tpumon_target_paused')} == 1))"
)
"""0 down, 1 answers, 2 busy, 3 paused; see `panels.STATES`."""

STEPS_BY_LE = f"sum by (le) (increase({of('tpu_steps_seconds_bucket')}[$__rate_interval]))"


def step_quantile(ratio: float) -> str:
    """Of the steps seen by all chosen workers."""
    rates = f"sum by (le) (rate({of('tpu_steps_seconds_bucket')}[$__rate_interval]))"
    return f"histogram_quantile({ratio:g}, {rates})"
