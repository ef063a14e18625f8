"""The TensorCores of a host, each read and added up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tpumon.xspace.columns.columns import Events, Ints
from tpumon.xspace.columns.intervals import covered_ps, extent
from tpumon.xspace.ops.op_tables import OpTable
from tpumon.xspace.planes.core import CoreDuty, CoreLines, CoreOps, CorePlace, core_ops
from tpumon.xspace.steps.functions import Runs, StepChoice
from tpumon.xspace.steps.linking import Numbered
from tpumon.xspace.steps.tpu_steps import CoreSteps, StepWaits, core_steps, periods, step_waits, whole_steps
from tpumon.xspace.truncation.runs import CoreRuns


class CoreTotals(Struct, frozen=True, kw_only=True, eq=False):
    """Sums over one TensorCore.

    Attributes:
        place: where it sits.
        table: its ops, added up.
        op_time_ps: self time of its ops.
        total_ps: from first to last of its steps and ops.
        waits: what it did in its steps that is no op; None where it has no steps.
        idle_between_ps: of the time without an op, that in which no program ran; None where no run of one is shown.
        op_within_ps: the shortest window that holds a whole op wherever it begins; None where there are no two ops.
    """

    place: CorePlace
    table: OpTable
    op_time_ps: float
    total_ps: float
    waits: StepWaits | None
    idle_between_ps: float | None
    op_within_ps: int | None


class Core(Struct, frozen=True, kw_only=True, eq=False):
    """One TensorCore, added up.

    Attributes:
        totals: what is kept of it.
        steps: its steps, marked or between runs of the function that is the step; None where it has neither.
        window_ps: first and last moment of steps, modules and ops; None where there are none.
        duty: when it worked.
        has_ops: whether there is any op.
        has_infeed: whether any op is an infeed.
        dropped: events left out because their times are absurd.
        runs: of programs; step markers stand for them where no core of the host has any.
        marked_runs: the same by step markers; None where they are the runs, or there are none.
    """

    totals: CoreTotals
    steps: CoreSteps | None
    window_ps: tuple[int, int] | None
    duty: CoreDuty
    has_ops: bool
    has_infeed: bool
    dropped: int
    runs: CoreRuns
    marked_runs: CoreRuns | None


def cores_of(lines: Sequence[CoreLines], numbered: Numbered, choice: StepChoice | None) -> list[Core]:
    """The cores, added up one after the other: of their ops only one core's are in memory at a time."""
    marked = any(len(core.steps) for core in lines)
    by_markers = not any(len(core.modules) for core in lines)
    step_runs = choice.function.places if choice and choice.function else {}
    return [
        _core(core, own if marked else None, step_runs.get(i), by_markers=by_markers)
        for i, (core, own) in enumerate(zip(lines, numbered.markers, strict=True))
    ]


def _core(core: CoreLines, own: tuple[Events, Ints] | None, runs: Runs | None, *, by_markers: bool) -> Core:
    """A core, added up.

    Args:
        core: whose lines.
        own: its step markers and their numbers; None where no core of the host has any.
        runs: of the function that is the step, on this core.
        by_markers: whether no core of the host has programs.
    """
    ops = core_ops(core.plane, core.read_ops())
    steps = waits = None
    if own is not None:
        whole, groups = whole_steps(core, ops.events, *own)
        steps = core_steps(ops, whole, groups, by_op=core.by_op)
        waits = step_waits(core, whole)
    elif runs is not None and len(runs) > 1:
        whole = periods(runs)
        steps = core_steps(ops, whole, np.arange(len(whole)), by_op=core.by_op, touching=False)
        waits = step_waits(core, whole)
    every = [(events.begin_ps, events.end_ps) for events in (core.steps, core.modules, ops.events)]
    return Core(
        # Markers that do not count are none, unless none of the core's counts.
        totals=_totals(core, ops, own[0] if own is not None and len(own[0]) else core.steps, waits),
        steps=steps,
        window_ps=extent(*every),
        duty=ops.duty(core.modules),
        has_ops=len(ops.events) > 0,
        has_infeed=ops.has_infeed,
        dropped=core.steps.dropped + core.modules.dropped + ops.events.dropped,
        runs=CoreRuns(core, ops.events, by_markers=by_markers),
        marked_runs=None if by_markers or not len(core.steps) else CoreRuns(core, ops.events, by_markers=True),
    )


def _totals(core: CoreLines, ops: CoreOps, markers: Events, waits: StepWaits | None) -> CoreTotals:
    """Sums over a core; its time lasts from first to last of ops and markers. XProf: SetTotalTimePs."""
    begin_ps, duration_ps = markers.device_span_ps()
    spans = [span for span in (ops.span_ps, extent((begin_ps, begin_ps + duration_ps))) if span is not None]
    span_ps = float(max(end for _, end in spans) - min(begin for begin, _ in spans)) if spans else 0.0
    total_ps, between_ps = max(ops.op_time_ps, span_ps), None
    if len(core.modules):
        without_program_ps = total_ps - covered_ps(*_programs_ps(core, ops))
        between_ps = min(max(without_program_ps, 0.0), total_ps - ops.op_time_ps)
    return CoreTotals(
        place=core.place,
        table=ops.table,
        op_time_ps=ops.op_time_ps,
        total_ps=total_ps,
        waits=waits,
        idle_between_ps=between_ps,
        op_within_ps=op_within_ps(ops.device_begin_ps, ops.device_begin_ps + ops.device_duration_ps),
    )


def _programs_ps(core: CoreLines, ops: CoreOps) -> tuple[Ints, Ints]:
    """Begins and ends of times in which a program runs.

    A run that the window cuts has ops, but no event of its own: it runs from its first op to its last.
    """
    begin_ps, duration_ps = core.modules.device_span_ps()
    end_ps = begin_ps + duration_ps
    first_ps, last_ps = begin_ps.min(), end_ps.max()
    op_begin_ps, op_end_ps = ops.device_begin_ps, ops.device_begin_ps + ops.device_duration_ps
    before, after = op_begin_ps < first_ps, op_end_ps > last_ps
    begins, ends = [begin_ps], [end_ps]
    if before.any():
        begins.append(op_begin_ps[before][:1])
        ends.append(np.minimum(op_end_ps[before].max(keepdims=True), first_ps))
    if after.any():
        begins.append(np.maximum(op_begin_ps[after][:1], last_ps))
        ends.append(op_end_ps[after].max(keepdims=True))
    return np.concatenate(begins), np.concatenate(ends)


def op_within_ps(begin_ps: Ints, end_ps: Ints) -> int | None:
    """Longest time from the begin of an op to the first end of a later op: a window just after that begin needs it.

    Args:
        begin_ps: begins of the ops, ascending.
        end_ps: ends of the ops.
    """
    if len(begin_ps) < 2:
        return None
    first_end_ps = np.minimum.accumulate(end_ps[::-1])[::-1]  # of this op and all later ones
    return int((first_end_ps[1:] - begin_ps[:-1]).max())
