"""Sufficiency of samples: most findings appear only if several in a row agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tpumon.analysis.findings import slice_key_of
from tpumon.analysis.findings.rule import SERVERS
from tpumon.analysis.history import WELL, WorkerHistory
from tpumon.analysis.status import FleetStatus, WorkerStatus
from tpumon.model import COMPILE_LIMIT_RATIO, FindingId, Sample, State
from tpumon.model.figure_spec import is_on_cpu
from tpumon.model.figure_table import IDLE, INFEED, STEP
from tpumon.model.figures import NO_STEP

_RECENT_S = 3600.0
_TELLING: frozenset[State] = frozenset({"live", "no-activity"})
_OF_SERVERS: tuple[FindingId, ...] = ("stuck",)
_ON_CPUS: tuple[FindingId, ...] = ("hang",)
_ALONE: tuple[FindingId, ...] = ("idle",)
_COMPARED: tuple[FindingId, ...] = ("idle", "straggler")


def decisive(worker: WorkerStatus, *, is_compared: bool) -> tuple[FindingId, ...]:
    """Findings that must be judged before a worker may be called ok."""
    if worker.history.kind in SERVERS:
        return _OF_SERVERS
    if worker.sample is not None and is_on_cpu(worker.sample):
        return _ON_CPUS
    return _COMPARED if is_compared else _ALONE


def needs_several(history: WorkerHistory) -> bool:
    """True if the worker had a figure that makes a finding only if several samples agree; it may hang since.

    Also without any, where steps would count: the next windows are longer, or after a compilation, which may show one.
    """
    answer = history.answer
    if answer is None:
        return False
    why = why_no_step(answer)
    lacks_steps = why is not None and (_compiles(answer) or not why.startswith(NO_STEP))
    return lacks_steps or any(one.value(answer.figures) is not None for one in (STEP, IDLE, INFEED))


def why_no_step(sample: Sample) -> str | None:
    """The reason why a job whose steps would count shows none; None: it shows some, or has none."""
    why = STEP.why_absent(sample.figures)
    if why is not None and _compiles(sample):  # calls that wait for that look as if they ran ahead
        why = f"{NO_STEP}the host compiles {sample.figures.compile_ratio:.0%} of the time"
    return why if STEP.applies_to(sample) else None


def missed_steps(worker: WorkerStatus) -> bool:
    """True of a worker on a CPU, of which steps alone show that all is well, if its window was too short for two."""
    sample = worker.sample
    why = None if sample is None or not is_on_cpu(sample) else why_no_step(sample)
    return why is not None and not why.startswith(NO_STEP)


def _compiles(sample: Sample) -> bool:
    return (sample.figures.compile_ratio or 0.0) > COMPILE_LIMIT_RATIO


def compared(status: FleetStatus) -> frozenset[str]:
    """The workers that are compared: those with a step or idle time, if another one of their slice has it."""
    here = [
        history.target
        for history in (worker.history for worker in status.all())
        if history.last is not None and any(one.value(history.last.figures) is not None for one in (STEP, IDLE))
    ]
    sizes = Counter(map(slice_key_of, here))
    return frozenset(target.worker for target in here if sizes[slice_key_of(target)] > 1)


def unjudged(status: FleetStatus, sustained: int) -> frozenset[str]:
    """The workers that seem ok, but have too few samples to be judged.

    Args:
        status: of all workers.
        sustained: number of samples in a row that must agree.
    """
    return frozenset(worker.name for worker in status.all() if _has_too_few(worker, sustained))


def unsure_of(status: FleetStatus, sustained: int) -> frozenset[str]:
    """The workers that seem ok, but cannot be called so: they are unjudged, or samples speak for a finding."""
    return unjudged(status, sustained) | {worker.name for worker in status.all() if is_suspected(worker)}


def _has_too_few(worker: WorkerStatus, sustained: int) -> bool:
    if worker.verdict.status not in WELL or (worker.judged_upstream and "idle" in worker.judged):
        return False
    return needs_several(worker.history) and samples_of(worker.history) < sustained


def is_suspected(worker: WorkerStatus) -> bool:
    """True if a worker seems ok, but samples speak for a finding that takes more of them."""
    return worker.verdict.status in WELL and any(one.is_suspected for one in worker.not_judged)


def lacking(worker: WorkerStatus, *, only_decisive: bool = False) -> Mapping[FindingId, int]:
    """Samples that findings of a worker take still, of a live one only.

    At least one, however many there are: some tell too little.

    Args:
        worker: the worker.
        only_decisive: leave out findings that need not be judged before a worker may be called ok.
    """
    if worker.verdict.state != "live":
        return {}
    taken, must = samples_of(worker.history), decisive(worker, is_compared=True)
    return {
        one.finding: max(one.takes - taken, 1)
        for one in worker.not_judged
        if one.takes is not None and (one.finding in must or one.is_suspected or not only_decisive)
    }


def lacking_s(worker: WorkerStatus) -> float:
    """Seconds until these samples are there, at the present interval."""
    return max(lacking(worker).values(), default=0) * worker.history.interval_s


def samples_of(history: WorkerHistory, last_s: float = _RECENT_S) -> int:
    """Number of recent samples of a worker with figures, remembered samples of an exporter included.

    Rows of the history with a pause or an outage in them do not count.
    """
    newest_unix_s = None if history.series is None else history.series.newest_unix_s
    if history.series is None or newest_unix_s is None:
        return history.samples
    points = history.series.points(STEP.key, newest_unix_s - last_s, newest_unix_s)
    return max(history.samples, sum(point.queries for point in points if point.states <= _TELLING))
