"""Truncated traces: what gives them away, and which span of them is whole.

A profiler whose buffers are full drops events, and what is missing looks idle. Some say so (`marks`); of others only
the holes can be seen. Figures are then taken from the longest span in which every core is whole, if that is long
enough, and otherwise from nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from tpumon.xspace.columns.columns import PS_PER_S, Ints, Mask
from tpumon.xspace.columns.intervals import union
from tpumon.xspace.planes.space import PlaneIndex
from tpumon.xspace.truncation.dispatches import Dispatches, goes_on, launched
from tpumon.xspace.truncation.loss_marks import Mark, find_marks
from tpumon.xspace.truncation.runs import (
    CoreRuns,
    heaviest_function,
    programs_of,
    runs_beside,
    runs_with_fewer_ops,
    runs_without_ops,
)

REASON = "truncated"
"""Why a figure is absent that a truncated trace cannot give."""

_ENOUGH_STEPS = 2
_ENOUGH_PS = 100_000_000_000  # 100 ms
_NEVER = 1 << 62
_ALIGNED_RATIO, _LOCKSTEP_RATIO = 0.25, 0.8  # of a period; of a core's runs
_SURE_RUNS = 5
_END_PERIODS = 3
_EARLY_RATIO, _EARLY_PERIODS = 0.2, 1.5
_HOLE_PERIODS = 4
_MOST_REASONS = 4
_COLLECTIVE = re.compile(r"all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute|\bsend|\brecv")


class Truncation(Struct, frozen=True, eq=False):
    """Loss of events from a trace.

    Attributes:
        reasons: how that is known, one line each.
        span_ps: the longest span in which every core is whole; None where none is long enough.
        is_sure: False if nothing may be missing: some cores had nothing to do, or lost their events.
        window_ps: what the trace would cover if it were whole.
        steps_ps: if there is no such span because of cores without any event: the same span of the others, whose steps
            are the steps of all.
    """

    reasons: tuple[str, ...]
    span_ps: tuple[int, int] | None
    is_sure: bool = True
    window_ps: tuple[int, int] | None = None
    steps_ps: tuple[int, int] | None = None

    @property
    def words(self) -> str:
        """Reasons, and the span that the figures cover."""
        why = "; ".join(self.reasons[:_MOST_REASONS])
        if len(self.reasons) > _MOST_REASONS:
            why += f"; and {len(self.reasons) - _MOST_REASONS} more"
        if self.span_ps is None:
            others = "; steps are those of the cores with events" if self.steps_ps is not None else ""
            return f"{why}; no span of two steps or 100 ms is whole on every core{others}"
        length_s = (self.span_ps[1] - self.span_ps[0]) / PS_PER_S
        if self.window_ps is None:
            return f"{why}; the figures cover {length_s:.3g} s"
        whole_s = (self.window_ps[1] - self.window_ps[0]) / PS_PER_S
        return f"{why}; the figures cover {length_s:.3g} s of {whole_s:.3g} s"


class _Loss(Struct, frozen=True, eq=False):
    """Something that is missing.

    Attributes:
        reason: how that is known.
        spans_ps: when; empty where nothing that is there is affected, or where it is not known.
        is_sure: False if there may have been nothing to do.
    """

    reason: str
    spans_ps: tuple[tuple[int, int], ...] = ()
    is_sure: bool = True


ALWAYS = (-_NEVER, _NEVER)
_ALL = (ALWAYS,)


def find_truncation(space: PlaneIndex, cores: Sequence[CoreRuns], marked: Sequence[CoreRuns]) -> Truncation | None:
    """Finds dropped events of a host's trace, and what is left; None for a trace that shows no sign of any.

    Args:
        space: the host's.
        cores: runs of programs on its TensorCores; step markers stand for them where no core has any. None for a host
            without a TPU, where only marks tell.
        marked: the same by step markers, where these are not the runs.

    Raises:
        SourceError: `malformed`.
    """
    marks = find_marks(space)
    working = [core for core in cores if len(core.activity[0])]
    if not working:
        reasons = tuple(dict.fromkeys(mark.words for mark in marks))
        return Truncation(reasons, None) if marks else None
    dispatches = Dispatches(space.host)
    dead = list(_dead(cores))
    others = [
        *_marked(marks, cores),
        *_lost_ops(working, strict=bool(marks)),
        *_lost_markers(marked),
        *(list(_out_of_step(working)) or _early_cores(working)),
        *_holes(working, dispatches),
        *_early_end(working, space.stop_ps, dispatches),
    ]
    losses = [*dead, *others]
    if not losses:
        return None
    reasons = tuple(dict.fromkeys(loss.reason for loss in losses))
    span_ps = _whole_span(working, losses, is_marked=bool(marks))
    steps_ps = None
    if dead and span_ps is None:
        steps_ps = _whole_span(working, others, is_marked=bool(marks)) if others else ALWAYS
    first_ps = min(int(core.activity[0][0]) for core in working)
    last_ps = max(int(core.activity[1][-1]) for core in working)
    if space.stop_ps is not None and last_ps < space.stop_ps:
        last_ps = space.stop_ps
    is_sure = bool(marks) or any(loss.is_sure for loss in losses)
    return Truncation(reasons, span_ps, is_sure, (first_ps, last_ps), steps_ps)


def _marked(marks: Sequence[Mark], cores: Sequence[CoreRuns]) -> Iterator[_Loss]:
    """Losses that the trace states itself. An event of no length stands in the silence that it speaks of."""
    by_plane = {f"/device:{core.name}": core for core in cores}
    for mark in marks:
        core = by_plane.get(mark.plane or "")
        if mark.span_ps is None or core is None:
            yield _Loss(mark.words)
            continue
        begins, ends = core.activity
        begin_ps, end_ps = mark.span_ps
        yield _Loss(mark.words, (_silence(begins, ends, begin_ps, end_ps),))


def _silence(begins: Ints, ends: Ints, begin_ps: int, end_ps: int) -> tuple[int, int]:
    """From the last activity that ends before a span to the first that begins after it."""
    before = int(np.searchsorted(ends, begin_ps, side="right")) - 1
    after = int(np.searchsorted(begins, end_ps, side="left"))
    return int(ends[before]) if before >= 0 else -_NEVER, int(begins[after]) if after < len(begins) else _NEVER


def _dead(cores: Sequence[CoreRuns]) -> Iterator[_Loss]:
    """Cores without any event beside others that work. A program that does not talk to them may leave them idle."""
    silent = [core.name for core in cores if not len(core.activity[0])]
    if not silent:
        return
    names = f"{_core_names(silent)} {_has(silent)} no event"
    if _work_together(cores):
        yield _Loss(f"{names} while {_count(len(cores) - len(silent), 'core')} beside worked", _ALL)
    else:
        yield _Loss(f"{names}: not used by the program, or lost; figures are of the others", is_sure=False)


def _work_together(cores: Sequence[CoreRuns]) -> bool:
    """True if any of their ops is a collective."""
    planes = (core.plane for core in cores)
    return any(_COLLECTIVE.search(plane.event_name(number)) for plane in planes for number in plane.metadata_by_id)


def _lost_ops(cores: Sequence[CoreRuns], *, strict: bool) -> Iterator[_Loss]:
    """Runs of programs without the ops that they ought to have."""
    if not any(core.has_ops for core in cores):
        # Without any op only the runs of programs are known; step markers alone say nothing at all.
        yield _Loss("programs ran, but no op was recorded", _ALL)
        return
    programs = programs_of(cores)
    empty = runs_without_ops(cores, programs)
    fewer, beside = runs_with_fewer_ops(cores, programs, strict=strict), runs_beside(cores, programs, empty)
    for core, none, some, near in zip(cores, empty, fewer, beside, strict=True):
        for lost, what in ((none, "without any op"), (some | near, "with fewer ops than others")):
            if lost.any():
                yield _Loss(f"{core.name} has {_count(int(lost.sum()), 'run')} {what}", _spans(core, lost))


def _lost_markers(cores: Sequence[CoreRuns]) -> Iterator[_Loss]:
    """Step markers without an op while others have some; the last one may just have begun."""
    cores = [core for core in cores if core.has_ops]
    for core, lost in zip(cores, runs_without_ops(cores, programs_of(cores)), strict=True):
        if lost.any():
            lost[-1:] &= core.end_ps[-1:] - core.begin_ps[-1:] >= np.median(core.end_ps - core.begin_ps)
        if lost.any():
            yield _Loss(f"{core.name} has {_count(int(lost.sum()), 'step')} without any op", _spans(core, lost))


def _spans(core: CoreRuns, lost: Mask) -> tuple[tuple[int, int], ...]:
    return tuple(zip(core.begin_ps[lost].tolist(), core.end_ps[lost].tolist(), strict=True))


def _out_of_step(cores: Sequence[CoreRuns]) -> Iterator[_Loss]:
    """Cores that fall silent while others, which ran the same function at the same time so far, go on with it."""
    leaders: dict[str, tuple[CoreRuns, float]] = {}
    for core in cores:
        function = heaviest_function([core])
        if function is None:
            continue
        own = core.begins_of(function)
        if function not in leaders:
            leader = max(cores, key=lambda other: len(other.begins_of(function)))
            begins = leader.begins_of(function)
            leaders[function] = leader, float(np.median(np.diff(begins))) if len(begins) > 1 else 0.0
        leader, period_ps = leaders[function]
        begins, ends = leader.begins_of(function), leader.ends_of(function)
        if leader is core or len(begins) < 2:
            continue
        missed = _missed(core, begins, ends)
        if not missed.any() or not len(own):
            continue
        away_ps = np.abs(own - begins[_nearest(begins, own)])
        if (away_ps <= _ALIGNED_RATIO * period_ps).mean() >= _LOCKSTEP_RATIO:
            yield from _silences(core, leader, missed, begins, ends, sure=len(own) >= _SURE_RUNS)


def _early_cores(cores: Sequence[CoreRuns]) -> Iterator[_Loss]:
    """Cores whose events end long before other cores'; a core that works by itself may have been idle."""
    ends_ps = [int(core.activity[1][-1]) for core in cores]
    first_ps, last_ps = min(int(core.activity[0][0]) for core in cores), max(ends_ps)
    periods = _periods_ps(cores)
    least_ps = max(_EARLY_RATIO * (last_ps - first_ps), _EARLY_PERIODS * float(periods.max(initial=0)))
    for core, end_ps in zip(cores, ends_ps, strict=True):
        if last_ps - end_ps > least_ps:
            missing_s = (last_ps - end_ps) / PS_PER_S
            words = f"{core.name} ends {missing_s:.3g} s before others"
            together = _work_together(cores)
            if not together:
                words += ": it was idle, or its events were dropped"
            yield _Loss(words, ((end_ps, _NEVER),), is_sure=together)


def _nearest(sorted_ps: Ints, at_ps: Ints) -> Ints:
    right = np.clip(np.searchsorted(sorted_ps, at_ps), 1, len(sorted_ps) - 1)
    left = right - 1
    return np.where(at_ps - sorted_ps[left] <= sorted_ps[right] - at_ps, left, right)


def _missed(core: CoreRuns, begins: Ints, ends: Ints) -> Mask:
    """In which of the leader's runs the core did nothing."""
    active_begins, active_ends = core.activity
    first = np.searchsorted(active_ends, begins, side="right")
    missed: Mask = (first >= len(active_begins)) | (active_begins[np.minimum(first, len(active_begins) - 1)] >= ends)
    return missed


def _silences(
    core: CoreRuns, leader: CoreRuns, missed: Mask, begins: Ints, ends: Ints, *, sure: bool
) -> Iterator[_Loss]:
    """Times in which the leader ran and the core did nothing; one run alone must be the only one of its kind."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], missed.astype(np.int8), [0]])))
    groups = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
    for start, stop in groups:
        if stop - start == 1 and not (sure and len(groups) == 1):
            continue
        span = _silence(*core.activity, int(begins[start]), int(ends[stop - 1]))
        yield _Loss(f"{core.name} is silent during {_count(stop - start, 'run')} on {leader.name}", (span,))


def _together(cores: Sequence[CoreRuns]) -> tuple[Ints, Ints]:
    """Times at which any core was active."""
    return union(
        np.concatenate([core.activity[0] for core in cores]), np.concatenate([core.activity[1] for core in cores])
    )


def _periods_ps(cores: Sequence[CoreRuns]) -> Ints:
    """From start to start of the runs of the heaviest function, of all cores."""
    function = heaviest_function(cores)
    return np.concatenate([np.diff(core.begins_of(function or "")) for core in cores])


def _holes(cores: Sequence[CoreRuns], dispatches: Dispatches) -> Iterator[_Loss]:
    """Silences of all cores, many periods long, in which the host went on dispatching."""
    periods = _periods_ps(cores)
    if not len(periods) or not dispatches.recorded:
        return
    begins, ends = _together(cores)
    long = np.flatnonzero(begins[1:] - ends[:-1] > _HOLE_PERIODS * float(np.median(periods)))
    active_ps = (int(begins[0]), int(ends[-1]))
    for i in long.tolist():
        hole = (int(ends[i]), int(begins[i + 1]))
        if any(goes_on(starts, hole, active_ps) for starts in dispatches.starts):
            length_s = (hole[1] - hole[0]) / PS_PER_S
            yield _Loss(f"no core has an event for {length_s:.3g} s while the host goes on dispatching", (hole,))


def _early_end(cores: Sequence[CoreRuns], stop_ps: int | None, dispatches: Dispatches) -> Iterator[_Loss]:
    """All cores end long before the window does, and the host shows that not all it dispatched has run.

    Without the host's events nothing tells that from a pause, or from a profiler that was slow to stop.
    """
    if stop_ps is None or not dispatches.recorded:
        return
    begins, ends = _together(cores)
    active_ps, after_ps = (int(begins[0]), int(ends[-1])), (int(ends[-1]), stop_ps)
    missing_ps = stop_ps - int(ends[-1])
    periods = _periods_ps(cores)
    if not len(periods):
        periods = np.array([(core.end_ps - core.begin_ps).max(initial=0) for core in cores])
    if missing_ps <= _END_PERIODS * int(np.sort(periods)[len(periods) // 2]):
        return
    words = f"the devices' events end {missing_ps / PS_PER_S:.3g} s before the window does"
    together = len(cores) == 1 or _work_together(cores)
    functions = list(launched(dispatches, cores, active_ps, together=together))
    missing = max(functions, key=lambda each: each.missing, default=None)
    if (
        missing is not None
        and not missing.all_ran
        and (missing.never_ran or dispatches.any_after((after_ps[0] + after_ps[1]) // 2))
    ):
        words += f", and {missing.missing} of {missing.calls} calls of {missing.function} have no run"
    elif missing_ps > _END_PERIODS * int(periods.max()) and any(
        goes_on(starts, after_ps, active_ps) for starts in dispatches.starts
    ):
        words += ", while the host goes on dispatching"
    else:
        return
    yield _Loss(words, ((after_ps[0], _NEVER),))


def _whole_span(cores: Sequence[CoreRuns], losses: Sequence[_Loss], *, is_marked: bool) -> tuple[int, int] | None:
    """The longest span in which nothing is missing on any core; None where it is too short.

    Args:
        cores: those that work.
        losses: what is missing.
        is_marked: whether the trace says so: if nobody knows the place, runs must vouch for the span.
    """
    lost_ps = [span for loss in losses for span in loss.spans_ps]
    begin_ps = max(int(core.activity[0][0]) for core in cores)
    end_ps = min(int(core.activity[1][-1]) for core in cores)
    if lost_ps:
        begins, ends = union(*(np.array(side, dtype=np.int64) for side in zip(*lost_ps, strict=True)))
        edges = np.clip(
            np.concatenate([[begin_ps], np.stack([begins, ends], axis=1).ravel(), [end_ps]]), begin_ps, end_ps
        )
    else:
        edges = np.array([begin_ps, end_ps])
    lengths = edges[1::2] - edges[::2]
    best = int(lengths.argmax())
    span_ps = (int(edges[2 * best]), int(edges[2 * best + 1]))
    function = heaviest_function(cores)
    steps = min(
        int(((core.begins_of(function or "") >= span_ps[0]) & (core.ends_of(function or "") <= span_ps[1])).sum())
        for core in cores
    )
    if is_marked and not lost_ps and steps < _ENOUGH_STEPS:
        return None
    if not all(_works_in(core, span_ps) for core in cores):
        return None
    return span_ps if steps >= _ENOUGH_STEPS or lengths[best] >= _ENOUGH_PS else None


def _works_in(core: CoreRuns, span_ps: tuple[int, int]) -> bool:
    begins, ends = core.activity
    return bool(((begins < span_ps[1]) & (ends > span_ps[0])).any())


def _core_names(cores: Sequence[str]) -> str:
    return cores[0] if len(cores) == 1 else f"{', '.join(cores[:3])}{' and more' if len(cores) > 3 else ''}"


def _has(cores: Sequence[str]) -> str:
    return "has" if len(cores) == 1 else "have"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
