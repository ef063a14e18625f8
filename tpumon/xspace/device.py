"""One core of a TPU: its lines read and added up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from google.protobuf.message import DecodeError

from tpumon.wire.xplane_pb2 import CoreDetails
from tpumon.xspace.intervals import by_id, own_intervals, self_times_ps, timeline_order, union
from tpumon.xspace.ops import INFEED, OFF_DUTY, OP_STATS, Category, CoreOps, OpIndex, OpTable
from tpumon.xspace.planes import (
    SPARSE_CORE_MODULES,
    SPARSE_CORE_OPS,
    TENSOR_CORE_MODULES,
    TENSOR_CORE_OPS,
    TENSOR_CORE_STEPS,
    Events,
    Plane,
)
from tpumon.xspace.reader import Ints, Mask

_MOST_OF_HOST, _MOST_OF_SLICE = 64, 1 << 20  # chips, and cores of a chip; numbers beyond are mistakes

STEP_STATS = ("device_offset_ps", "device_duration_ps")


@dataclass(frozen=True, slots=True, kw_only=True)
class CorePlace:
    """Where a core sits.

    Attributes:
        chip: number of its chip on the host; None where the trace does not say.
        global_chip: number of its chip in the slice.
        core: number of the core on its chip.
    """

    chip: int | None
    global_chip: int | None
    core: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """When a core worked, for the duty cycle; XProf: ConstructDutyCycleTracker.

    Attributes:
        begin_ps: starts of busy intervals, disjoint, ascending.
        end_ps: their ends.
        span_ps: first and last moment of ops and modules; None where there are none.
    """

    begin_ps: Ints
    end_ps: Ints
    span_ps: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleRuns:
    """Executions of one XLA module on one core.

    Attributes:
        begin_ps: starts, ascending.
        duration_ps: shape as `begin_ps`.
    """

    begin_ps: Ints
    duration_ps: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCore:
    """One TensorCore's part of a trace.

    Attributes:
        number: N of /device:TPU:N.
        place: where it sits.
        steps: step markers in timeline order, their stats included.
        modules: executions by module name.
        module_events: all executions in timeline order, their stats included.
        ops: the ops, one by one.
        table: the ops, added up.
        op_time_ps: self time of all counted ops.
        window_ps: first and last moment of steps, modules and ops; None where there are none.
        duty: when it worked.
        has_infeed: whether any op is an infeed.
        dropped: events left out because their times are absurd.
    """

    number: int
    place: CorePlace
    steps: Events
    modules: Mapping[str, ModuleRuns]
    module_events: Events
    ops: CoreOps
    table: OpTable = field(repr=False)
    op_time_ps: float
    window_ps: tuple[int, int] | None
    duty: Duty
    has_infeed: bool
    dropped: int

    def total_ps(self, markers: Events) -> float:
        """Time from first to last of ops and step markers, no less than the ops' own; XProf: SetTotalTimePs."""
        spans = [(self.ops.device_begin_ps, self.ops.device_duration_ps), markers.device_span_ps()]
        span_ps = extent(*((begin_ps, begin_ps + duration_ps) for begin_ps, duration_ps in spans))
        return max(self.op_time_ps, float(span_ps[1] - span_ps[0]) if span_ps else 0.0)


@dataclass(frozen=True, slots=True)
class CoreLines:
    """The lines of a TensorCore that figures need, as read.

    Attributes:
        plane: the core's.
        steps: its step markers in timeline order, their stats included.
        modules: runs of programs in timeline order, their stats included.
        ops: in the order of the device's clock, their stats included.
    """

    plane: Plane
    steps: Events
    modules: Events
    ops: Events

    @property
    def name(self) -> str:
        """What messages call the core: "TPU:3"."""
        return self.plane.name.removeprefix("/device:")

    def within(self, span_ps: tuple[int, int]) -> CoreLines:
        """Only what begins and ends in a span."""
        return CoreLines(self.plane, self.steps.within(span_ps), self.modules.within(span_ps), self.ops.within(span_ps))


def read_core_lines(plane: Plane, module_stats: tuple[str, ...] = ()) -> CoreLines:
    """Reads the lines of a TensorCore that figures need.

    Args:
        plane: the core's.
        module_stats: stats of its module events to keep.

    Raises:
        SourceError: `malformed`.
    """
    return CoreLines(
        plane,
        steps=sorted_events(plane.read(plane.lines(TENSOR_CORE_STEPS), (*STEP_STATS, *module_stats))),
        modules=sorted_events(plane.read(plane.lines(TENSOR_CORE_MODULES), module_stats)),
        ops=sorted_events(plane.read(plane.lines(TENSOR_CORE_OPS), OP_STATS), by_device=True),
    )


def tensor_core(lines: CoreLines) -> TensorCore:
    """Adds up the lines of a TensorCore.

    Raises:
        SourceError: `malformed`.
    """
    plane, steps, modules, op_events = lines.plane, lines.steps, lines.modules, lines.ops
    index = OpIndex(plane, op_events.metadata_id)
    ops = _core_ops(op_events, index)
    self_ps = self_times_ps(ops.device_begin_ps, ops.device_duration_ps)
    table = index.totals(op_events, ops.device_duration_ps, self_ps)
    op_time_ps = float(self_ps[ops.counted].sum())
    every = [(events.begin_ps, events.end_ps) for events in (steps, modules, ops.events)]
    return TensorCore(
        number=plane.tensor_core or 0,
        place=core_place(plane),
        steps=steps,
        modules=_module_runs(plane, modules),
        module_events=modules,
        ops=ops,
        table=table,
        op_time_ps=op_time_ps,
        window_ps=extent(*every),
        duty=_duty(ops.events, ~_among(OFF_DUTY)[ops.category], modules),
        has_infeed=bool(_among(INFEED)[ops.category].any()),
        dropped=steps.dropped + modules.dropped + op_events.dropped,
    )


def _among(categories: Collection[Category]) -> Mask:
    """For each category whether it is one of these."""
    return np.array([category in categories for category in Category], dtype=np.bool_)


def read_sparse_core(plane: Plane, span_ps: tuple[int, int] | None = None) -> tuple[CorePlace, Duty]:
    """When a SparseCore worked: all its ops count as work.

    Args:
        plane: the SparseCore's.
        span_ps: where only what begins and ends in a span counts.

    Raises:
        SourceError: `malformed`.
    """
    ops = plane.read(plane.lines(SPARSE_CORE_OPS))
    modules = plane.read(plane.lines(SPARSE_CORE_MODULES))
    if span_ps is not None:
        ops, modules = ops.within(span_ps), modules.within(span_ps)
    return core_place(plane), _duty(ops, np.ones(len(ops), dtype=np.bool_), modules)


def core_place(plane: Plane) -> CorePlace:
    """From the stat core_details; what it does not say is None, as XProf then counts the core as a chip of its own."""
    unknown = CorePlace(chip=None, global_chip=None, core=0)
    details = plane.stats().get("core_details")
    if not isinstance(details, bytes):
        return unknown
    message = CoreDetails()
    try:
        message.ParseFromString(details)
    except DecodeError:
        return unknown
    if max(message.local_chip_id, message.core_num) >= _MOST_OF_HOST or message.global_chip_id >= _MOST_OF_SLICE:
        return unknown
    return CorePlace(chip=message.local_chip_id, global_chip=message.global_chip_id, core=message.core_num)


def sorted_events(events: Events, *, by_device: bool = False) -> Events:
    """The events in timeline order, stats and all; on the device's clock if so asked."""
    begin_ps, duration_ps = events.device_span_ps() if by_device else (events.begin_ps, events.duration_ps)
    order = timeline_order(begin_ps, duration_ps)
    if order is None:
        return events
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return Events(
        metadata_id=events.metadata_id[order],
        begin_ps=events.begin_ps[order],
        duration_ps=events.duration_ps[order],
        stats={name: replace(column, rows=rank[column.rows]) for name, column in events.stats.items()},
        dropped=events.dropped,
    )


def _core_ops(events: Events, index: OpIndex) -> CoreOps:
    begin_ps, duration_ps = events.device_span_ps()
    all_reduce = events.stats.get("all_reduce_unique_id")
    return CoreOps(
        events=replace(events, stats={}),
        device_begin_ps=begin_ps,
        device_duration_ps=duration_ps,
        category=index.spread(np.array([kind.category for kind in index.kinds], dtype=np.uint8)),
        counted=index.spread(np.array([kind.counted for kind in index.kinds], dtype=np.bool_)),
        all_reduce_id=np.full(len(events), -1) if all_reduce is None else all_reduce.integers(len(events), -1),
    )


def _module_runs(plane: Plane, modules: Events) -> dict[str, ModuleRuns]:
    runs: dict[str, ModuleRuns] = {}
    for number, here in by_id(modules.metadata_id):
        runs[plane.event_name(number)] = ModuleRuns(
            begin_ps=modules.begin_ps[here], duration_ps=modules.duration_ps[here]
        )
    return runs


def _duty(ops: Events, working: Mask, modules: Events) -> Duty:
    begin_ps, end_ps = ops.begin_ps[working], ops.end_ps[working]
    if not working.all() and (ops.begin_ps[1:] < ops.end_ps[:-1]).any():
        # Waiting within a loop is not work, nor is a loop's body waiting.
        line = sorted_events(replace(ops, stats={}))
        order = timeline_order(ops.begin_ps, ops.duration_ps)
        begin_ps, end_ps = own_intervals(line.begin_ps, line.end_ps, working if order is None else working[order])
    begin_ps, end_ps = union(begin_ps, end_ps)
    span_ps = extent((ops.begin_ps, ops.end_ps), (modules.begin_ps, modules.end_ps))
    return Duty(begin_ps=begin_ps, end_ps=end_ps, span_ps=span_ps)


def extent(*spans: tuple[Ints, Ints]) -> tuple[int, int] | None:
    """First begin and last end of some intervals; None where there are none."""
    found = [(int(begin_ps.min()), int(end_ps.max())) for begin_ps, end_ps in spans if len(begin_ps)]
    return (min(begin for begin, _ in found), max(end for _, end in found)) if found else None
