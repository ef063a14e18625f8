"""One core of a TPU: where it sits, its lines, and its ops added up."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from google.protobuf.message import DecodeError
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from tpumon.proto.xplane_pb2 import CoreDetails
from tpumon.xspace.columns.columns import Events, Ints, Mask
from tpumon.xspace.columns.intervals import (
    by_id,
    covered_ps,
    extent,
    indexed,
    own_intervals,
    self_times_ps,
    timeline_order,
    union,
)
from tpumon.xspace.ops.catalogue import CATALOGUE
from tpumon.xspace.ops.op_kinds import INFEED, Category
from tpumon.xspace.ops.op_tables import OP_STATS, OpTable, add_up
from tpumon.xspace.planes.plane import (
    SPARSE_CORE_MODULES,
    SPARSE_CORE_OPS,
    STEP_STATS,
    TENSOR_CORE_MODULES,
    TENSOR_CORE_OPS,
    TENSOR_CORE_STEPS,
    Plane,
)

_MOST_OF_HOST, _MOST_OF_SLICE = 64, 1 << 20  # chips, and cores of a chip; numbers beyond are mistakes

ROUNDING_PS = 1000
"""By which neighbours overlap at most where times were rounded to nanoseconds."""

_IS_INFEED: Mask = np.isin(list(Category), INFEED)  # by category


class CorePlace(Struct, frozen=True, kw_only=True, eq=False):
    """Place of a core.

    Attributes:
        chip: number of its chip on the host; None where the trace does not say.
        global_chip: number of its chip in the slice.
        core: number of the core on its chip.
    """

    chip: int | None
    global_chip: int | None
    core: int


class CoreDuty(Struct, frozen=True, kw_only=True, eq=False):
    """Busy time of a core, for the duty cycle; XProf: ConstructDutyCycleTracker.

    Attributes:
        begin_ps: starts of busy intervals, disjoint, ascending.
        end_ps: their ends.
        span_ps: first and last moment of ops and modules; None where there are none.
    """

    begin_ps: Ints
    end_ps: Ints
    span_ps: tuple[int, int] | None


def chip_times_ps(cores: Iterable[tuple[CorePlace, CoreDuty]]) -> tuple[int, int]:
    """Busy time and time of all chips; cores of one chip count as one. XProf: DutyCycleCombiner."""
    by_chip: dict[int, list[CoreDuty]] = {}
    for i, (place, duty) in enumerate(cores):
        by_chip.setdefault(-1 - i if place.chip is None else place.chip, []).append(duty)
    busy_ps = total_ps = 0
    for duties in by_chip.values():
        spans = [duty.span_ps for duty in duties if duty.span_ps is not None]
        if spans:
            total_ps += max(end for _, end in spans) - min(begin for begin, _ in spans)
            begin_ps = np.concatenate([duty.begin_ps for duty in duties])
            busy_ps += covered_ps(begin_ps, np.concatenate([duty.end_ps for duty in duties]))
    return busy_ps, total_ps


class CoreLines(Struct, frozen=True, kw_only=True, eq=False):
    """A TensorCore's lines of steps and modules, as read. Its many ops are read when asked for.

    Attributes:
        plane: the core's.
        place: where it sits.
        steps: its step markers in timeline order, their stats included.
        modules: runs of programs in timeline order, their stats included.
        span_ps: only what begins and ends in it counts; None where everything does.
        by_op: whether the time of each op in each step is wanted.
    """

    plane: Plane
    place: CorePlace
    steps: Events
    modules: Events
    by_op: bool
    span_ps: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """Name of the core in messages: "TPU:3"."""
        return self.plane.name.removeprefix("/device:")

    def within(self, span_ps: tuple[int, int]) -> CoreLines:
        """Only what begins and ends in a span."""
        steps, modules = self.steps.within(span_ps), self.modules.within(span_ps)
        return replace(self, steps=steps, modules=modules, span_ps=span_ps)

    def read_ops(self) -> Events:
        """Ops of the core in the order of the device's clock, with their stats.

        Raises:
            SourceError: `malformed`.
        """
        ops = self.plane.read(self.plane.lines(TENSOR_CORE_OPS), OP_STATS)
        return ops.sorted(by_device=True).within(self.span_ps)

    def module_runs(self) -> dict[str, tuple[Ints, Ints]]:
        """Starts, ascending, and durations of the runs of each of its modules, by name."""
        modules = self.modules
        return {
            self.plane.event_name(number): (modules.begin_ps[rows], modules.duration_ps[rows])
            for number, rows in by_id(modules.metadata_id)
        }


def read_core_lines(plane: Plane, module_stats: tuple[str, ...] = (), *, by_op: bool = False) -> CoreLines:
    """Reads the steps and modules of a TensorCore.

    Args:
        plane: the core's.
        module_stats: stats of its module events to keep.
        by_op: whether the time of each op in each step is wanted.

    Raises:
        SourceError: `malformed`.
    """
    return CoreLines(
        plane=plane,
        place=core_place(plane),
        steps=_apart(plane.read(plane.lines(TENSOR_CORE_STEPS), (*STEP_STATS, *module_stats)).sorted()),
        modules=plane.read(plane.lines(TENSOR_CORE_MODULES), module_stats).sorted(),
        by_op=by_op,
    )


def _apart(markers: Events) -> Events:
    """Ends a marker where the next one begins if they overlap by rounding, or the next one would lose its first op."""
    over_ps = markers.end_ps[:-1] - markers.begin_ps[1:]
    rounded = (over_ps > 0) & (over_ps <= np.minimum(ROUNDING_PS, markers.duration_ps[:-1] - 1))
    if not rounded.any():
        return markers
    cut_ps = np.append(np.where(rounded, over_ps, 0), 0)
    return replace(markers, duration_ps=markers.duration_ps - cut_ps)


class CoreOps(Struct, frozen=True, kw_only=True, eq=False):
    """The ops of one core's op line in timeline order; arrays have one element per event.

    Attributes:
        events: on the host's clock.
        device_begin_ps: on the device's clock, where the trace tells.
        device_duration_ps: on the device's clock.
        self_ps: the same without the ops within.
        category: of each event, values of Category.
        on_duty: whether the event counts towards the duty cycle.
        counted: whether XProf adds the event's op up.
        has_infeed: whether any op is an infeed.
        all_reduce_id: which all-reduce the event is part of, -1 where it does not say; None where no event says.
        table: the ops, added up.
        keys: of the different ops, see OpTable.
        of_event: of each event, which of these it is of.
    """

    events: Events
    device_begin_ps: Ints
    device_duration_ps: Ints
    self_ps: Ints
    category: NDArray[np.uint8]
    on_duty: Mask
    counted: Mask
    has_infeed: bool
    all_reduce_id: Ints | None
    table: OpTable
    keys: Ints
    of_event: Ints

    @property
    def span_ps(self) -> tuple[int, int] | None:
        """First and last moment on the device's clock; None where there are no ops."""
        return extent((self.device_begin_ps, self.device_begin_ps + self.device_duration_ps))

    @property
    def op_time_ps(self) -> float:
        """Self time of all counted ops."""
        return float(self.self_ps[self.counted].sum())

    def duty(self, modules: Events) -> CoreDuty:
        """Busy time of the core.

        Args:
            modules: runs of programs on the core.
        """
        return _duty(self.events, self.on_duty, modules)


def core_ops(plane: Plane, events: Events) -> CoreOps:
    """The ops of a core, what they are and what they did.

    Args:
        plane: the core's.
        events: its ops in the order of the device's clock.

    Raises:
        SourceError: `malformed`.
    """
    numbers, of_event = indexed(events.metadata_id)
    kinds = CATALOGUE.kinds(plane, numbers.tolist())
    begin_ps, duration_ps = events.device_span_ps()
    self_ps = self_times_ps(begin_ps, duration_ps)
    all_reduce = events.stats.get("all_reduce_unique_id")
    return CoreOps(
        events=events.bare(),
        device_begin_ps=begin_ps,
        device_duration_ps=duration_ps,
        self_ps=self_ps,
        category=kinds["category"][of_event],
        on_duty=kinds["on_duty"][of_event],
        counted=kinds["counted"][of_event],
        has_infeed=bool(_IS_INFEED[kinds["category"]].any()),
        all_reduce_id=None if all_reduce is None else all_reduce.integers(-1),
        table=add_up(events, duration_ps, self_ps, numbers=numbers, of_event=of_event, kinds=kinds),
        keys=kinds["key"],
        of_event=of_event,
    )


def read_sparse_core(plane: Plane, span_ps: tuple[int, int] | None) -> CoreDuty:
    """Reads the busy time of a SparseCore: all its ops count as work.

    Args:
        plane: the SparseCore's.
        span_ps: where only what begins and ends in a span counts.

    Raises:
        SourceError: `malformed`.
    """
    ops = plane.read(plane.lines(SPARSE_CORE_OPS)).within(span_ps)
    modules = plane.read(plane.lines(SPARSE_CORE_MODULES)).within(span_ps)
    return _duty(ops, np.ones(len(ops), dtype=np.bool_), modules)


def core_place(plane: Plane) -> CorePlace:
    """From the stat core_details; what it does not say is None, as XProf then counts the core as a chip of its own."""
    unknown = CorePlace(chip=None, global_chip=None, core=0)
    details = plane.stats.get("core_details")
    if not isinstance(details, bytes):
        return unknown
    try:
        message = CoreDetails.FromString(details)
    except DecodeError:
        return unknown
    if max(message.local_chip_id, message.core_num) >= _MOST_OF_HOST or message.global_chip_id >= _MOST_OF_SLICE:
        return unknown
    return CorePlace(chip=message.local_chip_id, global_chip=message.global_chip_id, core=message.core_num)


def _duty(ops: Events, working: Mask, modules: Events) -> CoreDuty:
    begin_ps, end_ps = ops.begin_ps, ops.end_ps
    span_ps = extent((begin_ps, end_ps), (modules.begin_ps, modules.end_ps))
    if not working.all():
        # Waiting within a loop is not work, nor is a loop's body waiting.
        order = timeline_order(begin_ps, ops.duration_ps)
        rows = slice(None) if order is None else order
        begin_ps, end_ps = own_intervals(begin_ps[rows], end_ps[rows], working[rows])
    begin_ps, end_ps = union(begin_ps, end_ps)
    return CoreDuty(begin_ps=begin_ps, end_ps=end_ps, span_ps=span_ps)
