"""Operations of a sampled trace that took most time, in the numbers of `tpumon report --section ops`.

Metadata is read of the few ops only that are shown.
"""

from __future__ import annotations

import numpy as np

from tpumon.model import OpCategoryFigures, OpFigures
from tpumon.untrusted_text import one_line
from tpumon.xspace.columns.columns import PS_PER_S, Floats, Ints
from tpumon.xspace.host_totals import HostTotals
from tpumon.xspace.planes.space import PlaneIndex
from tpumon.xspace.profile.op_times import Op, read_ops
from tpumon.xspace.profile.op_work import Capacity, cores_time_s, per, program_name, work_of_op
from tpumon.xspace.profile.profile import program_names

NAME_LENGTH = 100  # characters; a name of XLA's has some twenty
_MOST_EQUAL = 100  # ops that took the same time, whose names are read to put them in order


def top_ops(
    space: PlaneIndex, trace: HostTotals, most: int
) -> tuple[tuple[OpFigures, ...], tuple[OpCategoryFigures, ...]]:
    """The operations with the longest self time on all cores together, and the categories.

    Args:
        space: where the trace is from; its names are read.
        trace: what the cores did, at least one op.
        most: how many of each.

    Raises:
        SourceError: `malformed`.
    """
    table, tables = trace.table, [core.table for core in trace.cores]
    shown = np.flatnonzero(table.shown)

    def read(rows: Ints) -> tuple[Op, ...]:
        return read_ops(space.tensor_cores, tables, table, rows)

    capacity = Capacity(
        time_s=cores_time_s(trace.cores), flops_rate=trace.peak.flops_per_s, hbm_rate=trace.peak.hbm_bytes_per_s
    )
    longest = read(_longest(table.self_ps[shown], most, shown))
    longest = tuple(sorted(longest, key=lambda op: (-op.self_time_s, _short(op.name))))[:most]
    programs = program_names(space, trace, {op.program_id for op in longest})
    ops = tuple(_op_figures(op, program_name(programs, op.program_id), capacity) for op in longest)

    keys, first, of_op, counts = np.unique(
        table.category_key[shown], return_index=True, return_inverse=True, return_counts=True
    )
    self_ps = np.bincount(of_op, weights=table.self_ps[shown], minlength=len(keys)).astype(np.float64, copy=False)
    occurrences = np.bincount(of_op, weights=table.occurrences[shown], minlength=len(keys))
    rows = _longest(self_ps, most, np.arange(len(keys)))
    # XProf: UpdateNodeMetrics.
    categories = [
        OpCategoryFigures(
            name=_short(op.category),
            ops=int(counts[row]),
            self_time_s=float(self_ps[row]) / PS_PER_S,
            time_ratio=per(float(self_ps[row]) / PS_PER_S, capacity.time_s),
            occurrences=round(float(occurrences[row])),
        )
        for row, op in zip(rows.tolist(), read(shown[first[rows]]), strict=True)
    ]
    return ops, tuple(sorted(categories, key=lambda category: (-category.self_time_s, category.name))[:most])


def _longest(self_ps: Floats, most: int, rows: Ints) -> Ints:
    """Rows with the greatest times, and further rows that take as long as the last of these."""
    if len(rows) <= most:
        return rows
    least_ps = np.partition(self_ps, -most)[-most]
    return np.concatenate([rows[self_ps > least_ps], rows[self_ps == least_ps][:_MOST_EQUAL]])


def _short(text: str) -> str:
    return one_line(text, limit=NAME_LENGTH)


def _op_figures(op: Op, program: str, capacity: Capacity) -> OpFigures:
    work = work_of_op(capacity, op)
    return OpFigures(
        name=_short(op.name),
        program=_short(program),
        category=_short(op.category),
        self_time_s=work.self_time_s,
        time_ratio=work.time_ratio,
        occurrences=work.occurrences,
        flops_rate=work.flops_rate,
        flops_utilization_ratio=work.flops_utilization_ratio,
        hbm_rate=work.hbm_rate,
        hbm_utilization_ratio=work.hbm_utilization_ratio,
    )
