"""Conditions of comparing: all workers of a slice and all slices of its job are followed, and nearly all have figures.

A worker that is not followed, or has no figures, may be the one that the others wait for. What one worker shows by
itself is always judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tpumon.analysis.findings.finding_state import JobState, SliceState, WorkerState
from tpumon.analysis.findings.recent import SAMPLES
from tpumon.analysis.findings.rule import NeedsFewMoreSamples, NeedsMoreSamples
from tpumon.analysis.findings.rule_table import BLAMING, RULE_INDEXES

_ENOUGH_RATIO = 0.9
_BLAMING = [RULE_INDEXES[finding] for finding in BLAMING]
_FEW = 16  # workers: cheap to look at
_EARLY = NeedsFewMoreSamples("has too few samples to tell who waits for whom")
_ONE = "follows one worker of a slice of unknown size"


def note_followed(job: JobState) -> None:
    """Notes of each slice of a job what is not followed of it, or of the job, as far as the numbers are known."""
    slices = _most(worker.target.job_slices for worker in job.workers)
    partial = [(slice_state, why) for slice_state in job.slices if (why := _not_followed(slice_state)) is not None]
    elsewhere = None
    if slices is not None and len(job.slices) < slices and all(_slice_name(slice_state) for slice_state in job.slices):
        elsewhere = f"follows {len(job.slices)} of {slices} slices"
    elif partial:
        elsewhere = f"{partial[0][1]} of slice {_slice_name(partial[0][0])}"
    own = {id(slice_state): why for slice_state, why in partial}
    for slice_state in job.slices:
        slice_state.not_followed = own.get(id(slice_state), elsewhere)
        slice_state.unseen = slice_state.not_followed or (_ONE if _may_have_more(slice_state) else None)


def count_current(job: JobState, stale: Collection[str]) -> None:
    """Notes how many workers of each slice of a job have figures now, so that the next judgement compares them anew.

    In a large job this is done only after a quarter of the workers was queried: doing it each time would be quadratic.
    """
    if len(job.workers) <= _FEW or 4 * job.queries >= len(job.workers):
        job.queries = 0
        job.slice_stats.clear()
        for slice_state in job.slices:
            slice_state.current = sum(_is_current(worker, stale) for worker in slice_state.workers)
            slice_state.counted = _counted(slice_state)
            slice_state.is_early = _is_early(slice_state)


def ends_being_early(slice_state: SliceState) -> bool:
    """Notes that enough samples tell now who waits for whom in a slice; True if they did not at the last look."""
    if not slice_state.is_early or slice_state.job.queries:  # not counted now
        return False
    slice_state.is_early = _is_early(slice_state)
    return not slice_state.is_early


def _is_early(slice_state: SliceState) -> bool:
    """True if too few samples tell whether the others wait for one of its workers."""
    return any(_may_straggle(worker) for worker in slice_state.workers)


def _may_straggle(worker: WorkerState) -> bool:
    """True if too few samples tell whether others wait for it."""
    states = worker.finding_states
    return bool(states) and any(states[rule_index].may_begin for rule_index in _BLAMING)


def why_not_compared(slice_state: SliceState) -> str | None:
    """Reason for which the workers of a slice are not compared, as of the last look; None: they are."""
    if slice_state.not_followed is not None:
        return slice_state.not_followed
    if has_enough(slice_state):
        return None
    if any(worker.seen is None for worker in slice_state.workers):  # the first round: nobody is missing yet
        return NeedsFewMoreSamples(takes=SAMPLES)
    return NeedsMoreSamples(
        f"fewer than nine tenths of its slice's {slice_state.counted} workers have current samples", takes=SAMPLES
    )


def why_not_itself(worker: WorkerState) -> str | None:
    """Reason for which one worker is not compared with the others of its slice; None: it is."""
    return "two exporters have a worker of this name; tell them apart by --job" if worker.target.ambiguous else None


def why_not_alone(slice_state: SliceState) -> str | None:
    """Reason why a worker may wait for another one that is not visible here; None: all others are visible."""
    return slice_state.unseen or (_EARLY if slice_state.is_early else None)


def has_enough(slice_state: SliceState) -> bool:
    """True if nearly all workers of a slice have figures."""
    return slice_state.current >= _ENOUGH_RATIO * max(slice_state.counted, 1)


def lacks_some(job: JobState) -> bool:
    """True if any worker of a job has no figures."""
    return any(slice_state.current < len(slice_state.workers) for slice_state in job.slices)


def _counted(slice_state: SliceState) -> int:
    """Number of a slice's workers: an address that never answered is one only if something says so."""
    known = _most(worker.target.slice_workers for worker in slice_state.workers) or 0
    members = sum(not _is_mere_address(worker) for worker in slice_state.workers)
    return max(members, min(known, len(slice_state.workers)))


def _is_mere_address(worker: WorkerState) -> bool:
    """True if nothing but the list of addresses names a worker: it was asked, and never had figures."""
    target = worker.target
    return worker.seen is not None and not worker.has_answered and target.job is None and target.slice is None


def _not_followed(slice_state: SliceState) -> str | None:
    known = _most(worker.target.slice_workers for worker in slice_state.workers)
    count = len(slice_state.workers)
    return None if known is None or count >= known else f"follows {count} of {known} workers"


def _may_have_more(slice_state: SliceState) -> bool:
    """True for a single worker in a named slice of unknown size: the slice may have workers that are not followed."""
    target = slice_state.workers[0].target
    return len(slice_state.workers) == 1 and None not in {target.job, target.slice} and target.slice_workers is None


def _is_current(worker: WorkerState, stale: Collection[str]) -> bool:
    seen = worker.seen
    return (
        not worker.target.ambiguous
        and seen is not None
        and seen.state in {"live", "no-activity"}
        and worker.target.worker not in stale
    )


def _most(numbers: Iterable[int | None]) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


def _slice_name(slice_state: SliceState) -> str | None:
    return slice_state.workers[0].target.slice
