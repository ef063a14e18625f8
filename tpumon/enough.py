"""Whether there are enough samples to judge a worker: most findings appear only if several in a row agree."""

from __future__ import annotations

from collections import Counter

from tpumon.assessment import Assessment
from tpumon.figures import IDLE, INFEED, STEP
from tpumon.fleet import Fleet, group_of
from tpumon.history import WorkerHistory

_RECENT_S = 3600.0


def needs_several(history: WorkerHistory) -> bool:
    """Whether the worker had a figure that makes a finding only if several samples agree; it may hang since."""
    answer = history.answer
    return answer is not None and any(one.value(answer.figures) is not None for one in (STEP, IDLE, INFEED))


def compared(fleet: Fleet) -> frozenset[str]:
    """The workers that are compared: those with a step or idle time, if another one of their slice has it."""
    here = [
        history.target
        for history in fleet.histories.all()
        if history.last is not None and any(one.value(history.last.figures) is not None for one in (STEP, IDLE))
    ]
    sizes = Counter(map(group_of, here))
    return frozenset(target.worker for target in here if sizes[group_of(target)] > 1)


def unjudged(fleet: Fleet, assessment: Assessment) -> frozenset[str]:
    """The workers that seem ok, but have too few samples to be judged."""
    return frozenset(
        history.target.worker
        for history in fleet.histories.all()
        if needs_several(history)
        and assessment.verdicts[history.target.worker].mark == "ok"
        and not _is_told(fleet, history)
        and samples_of(history) < fleet.thresholds.sustained
    )


def _is_told(fleet: Fleet, history: WorkerHistory) -> bool:
    """Whether somebody else had enough samples to judge the worker."""
    told = None if history.last is None else history.last.judged
    return fleet.is_told and told is not None and "idle" in told


def samples_of(history: WorkerHistory) -> int:
    """How many recent samples of a worker are known; those that an exporter handed on count, if they are remembered."""
    newest_unix_s = None if history.tiers is None else history.tiers.newest_unix_s
    if history.tiers is None or newest_unix_s is None:
        return history.samples
    points = history.tiers.series(STEP.key, newest_unix_s - _RECENT_S, newest_unix_s)
    return max(history.samples, sum(point.count for point in points))
