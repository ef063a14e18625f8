"""Sufficiency of samples: most findings appear only if several in a row agree."""

from __future__ import annotations

from collections import Counter

from tpumon.analysis.findings import group_of
from tpumon.analysis.history import WELL, WorkerHistory
from tpumon.analysis.status import FleetStatus, WorkerStatus
from tpumon.model.figure_table import IDLE, INFEED, STEP

_RECENT_S = 3600.0


def needs_several(history: WorkerHistory) -> bool:
    """True if the worker had a figure that makes a finding only if several samples agree; it may hang since."""
    answer = history.answer
    return answer is not None and any(one.value(answer.figures) is not None for one in (STEP, IDLE, INFEED))


def compared(status: FleetStatus) -> frozenset[str]:
    """The workers that are compared: those with a step or idle time, if another one of their slice has it."""
    here = [
        history.target
        for history in (worker.history for worker in status.all())
        if history.last is not None and any(one.value(history.last.figures) is not None for one in (STEP, IDLE))
    ]
    sizes = Counter(map(group_of, here))
    return frozenset(target.worker for target in here if sizes[group_of(target)] > 1)


def unjudged(status: FleetStatus, sustained: int) -> frozenset[str]:
    """The workers that seem ok, but have too few samples to be judged.

    Args:
        status: of all workers.
        sustained: number of samples in a row that must agree.
    """
    return frozenset(worker.name for worker in status.all() if _has_too_few(worker, sustained))


def _has_too_few(worker: WorkerStatus, sustained: int) -> bool:
    if worker.verdict.status not in WELL or (worker.judged_upstream and "idle" in worker.judged):
        return False
    return needs_several(worker.history) and samples_of(worker.history) < sustained


def samples_of(history: WorkerHistory) -> int:
    """Number of recent samples of a worker; those that an exporter handed on count, if they are remembered."""
    newest_unix_s = None if history.series is None else history.series.newest_unix_s
    if history.series is None or newest_unix_s is None:
        return history.samples
    points = history.series.points(STEP.key, newest_unix_s - _RECENT_S, newest_unix_s)
    return max(history.samples, sum(point.queries for point in points))
