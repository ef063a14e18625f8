"""The operations of a sampled trace that took most time, at a small part of what reading all of them costs.

The numbers are those of `tpumon report --section ops`: the same sums (`OpTable`), the same `work`, the same order.
Names are read of the few ops only that are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import BinaryIO

import numpy as np
from msgspec.structs import replace

from tpumon.model import OpCategoryFigures, OpFigures
from tpumon.proto.xplane_pb2 import XEventMetadata
from tpumon.untrusted_text import one_line
from tpumon.xspace.columns.columns import PS_PER_S, Floats, Ints
from tpumon.xspace.ops.op_kinds import category_name
from tpumon.xspace.ops.op_tables import OpTable
from tpumon.xspace.planes.plane import Plane, Value, named
from tpumon.xspace.planes.space import Space, read_space
from tpumon.xspace.profile.op_work import Whole, Work, cores_time_s, program_name, work
from tpumon.xspace.profile.profile import program_names
from tpumon.xspace.summary import TraceFigures, figures
from tpumon.xspace.trace import Trace, trace_of
from tpumon.xspace.wire import stored

NAME_LENGTH = 100  # characters; a name of XLA's has some twenty
_MOST_EQUAL = 100  # ops that took the same time, whose names are read to put them in order
_STATS = ("hlo_category", "program_id")


def read_figures(xspace: bytes | memoryview | BinaryIO, most_ops: int) -> TraceFigures:
    """The figures of one host's trace, its top operations and their categories among them.

    Args:
        xspace: its bytes, or a regular file of them.
        most_ops: how many operations, and how many categories; 0: none are wanted.

    Raises:
        SourceError: as `read_trace`.
    """
    space = read_space(stored(xspace))
    trace = trace_of(space)
    found = figures([trace])
    if not most_ops:
        return found
    reason = _why_none(trace)
    if reason is not None:
        return replace(found, figures=replace(found.figures, absent={**found.figures.absent, "ops": reason}))
    ops, categories = top_ops(space, trace, most_ops)
    return replace(found, figures=replace(found.figures, ops=ops, op_categories=categories))


def _why_none(trace: Trace) -> str | None:
    """Why there is no operation to show; None if there is one."""
    if trace.hardware != "TPU":
        return "a GPU, not a TPU" if trace.hardware == "GPU" else "no device in the trace"
    if any(len(core.table) for core in trace.cores):
        return None
    return "programs ran, but no op was recorded" if trace.has_matrix_ops is None else "no ops in the window"


def top_ops(space: Space, trace: Trace, most: int) -> tuple[tuple[OpFigures, ...], tuple[OpCategoryFigures, ...]]:
    """The operations with the longest self time on all cores together, and the categories.

    Args:
        space: where the trace is from; its names are read.
        trace: what the cores did, at least one op.
        most: how many of each.

    Raises:
        SourceError: `malformed`.
    """
    table = trace.table
    shown = np.flatnonzero(table.shown)
    reader = _Names(space.tensor_cores, [core.table for core in trace.cores])
    whole = Whole(
        time_s=cores_time_s(trace.cores), flops_rate=trace.peak.flops_per_s, hbm_rate=trace.peak.hbm_bytes_per_s
    )
    longest = [(row, reader.of(table, row)) for row in _longest(table.self_ps[shown], most, shown)]
    longest.sort(key=lambda each: (-table.self_ps[each[0]], each[1].name))
    longest = longest[:most]
    programs = program_names(space, trace, {said.program for _, said in longest})
    ops = tuple(
        _op(said.name, said.category, program_name(programs, said.program), _work(table, row, whole))
        for row, said in longest
    )
    return ops, _categories(table, shown, reader, whole, most)


def _longest(self_ps: Floats, most: int, rows: Ints) -> list[int]:
    """The rows with the greatest times, and those that take as long as the last of them."""
    if len(rows) <= most:
        return list(map(int, rows))
    least_ps = np.partition(self_ps, -most)[-most]
    longer, equal = rows[self_ps > least_ps], rows[self_ps == least_ps]
    return [*map(int, longer), *map(int, equal[:_MOST_EQUAL])]


class _Names:
    """Reads what metadata says of an op, of the first core that ran it.

    Args:
        planes: of the cores.
        tables: what the ops of each core did, in the same order.
    """

    def __init__(self, planes: Sequence[Plane], tables: Sequence[OpTable]) -> None:
        self._cores = [(plane, table) for plane, table in zip(planes, tables, strict=True) if len(table)]

    def of(self, merged: OpTable, row: int) -> _Said:
        """What is said of an op."""
        key = merged.key[row]
        for plane, table in self._cores:
            at = int(np.searchsorted(table.key, key))
            if at < len(table) and table.key[at] == key:
                return _Said(plane, plane.event_metadata(int(table.number[at])))
        raise AssertionError("an op that no core ran")


class _Said:
    """What metadata says of an op: its name, and what is read only of an op that is shown.

    Args:
        plane: where it is from.
        metadata: of the op.
    """

    def __init__(self, plane: Plane, metadata: XEventMetadata) -> None:
        self._plane, self._metadata = plane, metadata
        self.name = one_line(metadata.display_name or metadata.name, limit=NAME_LENGTH)

    @cached_property
    def _stats(self) -> dict[str, Value]:
        return named(self._metadata.stats, self._plane.stat_names, self._plane.numbers_of(_STATS))

    @property
    def category(self) -> str:
        """Of XLA."""
        return category_name(self._stats.get("hlo_category"))

    @property
    def program(self) -> int:
        """The number of its program."""
        number = self._stats.get("program_id")
        return number if isinstance(number, int) else 0


def _work(table: OpTable, row: int, whole: Whole) -> Work:
    return work(
        whole,
        time_s=float(table.time_ps[row]) / PS_PER_S,
        self_time_s=float(table.self_ps[row]) / PS_PER_S,
        normalized_s=float(table.normalized_ps[row]) / PS_PER_S,
        occurrences=float(table.occurrences[row]),
        flops=float(table.flops[row]),
        hbm_bytes=float(table.hbm_bytes[row]) if table.has_bytes[row] else None,
    )


def _op(name: str, category: str, program: str, done: Work) -> OpFigures:
    return OpFigures(
        name=name,
        program=one_line(program, limit=NAME_LENGTH),
        category=one_line(category, limit=NAME_LENGTH),
        self_time_s=done.self_time_s,
        time_ratio=done.time_ratio,
        occurrences=done.occurrences,
        flops_rate=done.flops_rate,
        flops_utilization_ratio=done.flops_utilization_ratio,
        hbm_rate=done.hbm_rate,
        hbm_utilization_ratio=done.hbm_utilization_ratio,
    )


def _categories(table: OpTable, shown: Ints, reader: _Names, whole: Whole, most: int) -> tuple[OpCategoryFigures, ...]:
    """The categories with the longest self time. XProf: UpdateNodeMetrics."""
    keys, first, of_op, counts = np.unique(
        table.category_key[shown], return_index=True, return_inverse=True, return_counts=True
    )
    self_ps = np.bincount(of_op, weights=table.self_ps[shown], minlength=len(keys)).astype(np.float64, copy=False)
    occurrences = np.bincount(of_op, weights=table.occurrences[shown], minlength=len(keys))
    rows = _longest(self_ps, most, np.arange(len(keys)))
    found = [(row, reader.of(table, int(shown[first[row]])).category) for row in rows]
    found.sort(key=lambda each: (-self_ps[each[0]], each[1]))
    return tuple(
        OpCategoryFigures(
            name=one_line(name, limit=NAME_LENGTH),
            ops=int(counts[row]),
            self_time_s=float(self_ps[row]) / PS_PER_S,
            time_ratio=float(self_ps[row]) / PS_PER_S / whole.time_s if whole.time_s > 0 else 0.0,
            occurrences=round(float(occurrences[row])),
        )
        for row, name in found[:most]
    )
