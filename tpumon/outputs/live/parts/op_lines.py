"""Top operations of a worker and their categories, as tables or in a line each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment

from tpumon.analysis import WorkerStatus
from tpumon.model import OpCategoryFigures, OpFigures, Sample
from tpumon.outputs.drawing.cells import percent, step_cell
from tpumon.outputs.drawing.line import Line, Lines, tame
from tpumon.outputs.drawing.style import BOLD, Glyphs
from tpumon.outputs.live.parts.tables import TableColumn, add_bar, cut_within, table

BY_TIME, BY_CATEGORY = "time", "category"
"""Orders of the table of operations."""

_ONLY_TRACES = "only traces show them, and its figures come from the Monitor RPC"
_NOT_TAKEN = "they are not taken where these samples come from; start that tpumon with --with-ops N"
_IN_A_LINE = 5
_LONGEST_IN_A_LINE = 20
_LABEL = 10


def why_no_ops(row: WorkerStatus, level: int) -> str | None:
    """Reason why there is no operation of a worker to show; None if there is one."""
    sample = row.sample
    if level < 2:
        return "they are shown at --level 2"
    if sample is None or sample.companions_only:
        return "there are no figures now"
    if sample.figures.ops:
        return None
    return sample.figures.absent.get("ops", _ONLY_TRACES if sample.source == "monitor" else _NOT_TAKEN)


def op_lines(sample: Sample, width: int, glyphs: Glyphs) -> Lines:
    """The first operations and categories, in a line each; nothing where there is none."""
    named: tuple[tuple[str, Sequence[OpFigures | OpCategoryFigures]], ...] = (
        ("Ops (o):", sample.figures.ops or ()),
        ("Category:", sample.figures.op_categories or ()),
    )
    return [_shares_line(label, rows[:_IN_A_LINE], width, glyphs) for label, rows in named if rows]


def _shares_line(
    label: str, rows: Sequence[OpFigures | OpCategoryFigures], width: int, glyphs: Glyphs
) -> list[Segment]:
    line = Line(width).fill(2).add(label.ljust(_LABEL), BOLD)
    for place, row in enumerate(rows):
        name = cut_within(tame(row.name, ascii_only=glyphs.ascii), _LONGEST_IN_A_LINE, glyphs)
        text = f"{glyphs.dot if place else ''}{name} {percent(row.time_ratio)}"
        if place and line.room < cell_len(text):
            break
        line.add(text)
    return line.segments()


def sorted_ops(sample: Sample, order: str) -> list[OpFigures]:
    """The operations by time, or by category: the category first whose operations took most time."""
    ops = list(sample.figures.ops or ())
    if order == BY_CATEGORY:
        place = {category.name: place for place, category in enumerate(sample.figures.op_categories or ())}
        ops.sort(key=lambda op: (place.get(op.category, len(place)), op.category))
    return ops


def op_table(ops: Sequence[OpFigures], width: int, glyphs: Glyphs) -> Lines:
    names = (
        TableColumn("OPERATION", [op.name for op in ops]),
        TableColumn("CATEGORY", [op.category for op in ops]),
        TableColumn("PROGRAM", [op.program.rpartition("(")[0] for op in ops]),
    )
    columns = (
        *_columns(ops),
        TableColumn("FLOPS", [percent(op.flops_utilization_ratio) for op in ops], 7),
        TableColumn("HBM BW", [percent(op.hbm_utilization_ratio) for op in ops], 8),
    )
    return [line.segments() for line in table(names, columns, width, glyphs)]


def category_table(categories: Sequence[OpCategoryFigures], width: int, glyphs: Glyphs) -> Lines:
    """A line per category, with a bar of its share."""
    names = [TableColumn("CATEGORY", [each.name for each in categories])]
    columns = (*_columns(categories), TableColumn("OPS", [_count(each.ops) for each in categories], 6))
    title, *rows = table(names, columns, width, glyphs)
    for line, category in zip(rows, categories, strict=True):
        add_bar(line, category.time_ratio, line.room - 2, glyphs)
    return [line.segments() for line in (title, *rows)]


def _columns(rows: Sequence[OpFigures | OpCategoryFigures]) -> tuple[TableColumn, ...]:
    return (
        TableColumn("SHARE", [percent(row.time_ratio) for row in rows], 7),
        TableColumn("SELF ms", [step_cell(row.self_time_s) for row in rows], 8),
        TableColumn("TIMES", [_count(row.occurrences) for row in rows], 8),
    )


def _count(value: int) -> str:
    return str(value) if value < 10_000_000 else f"{value / 1e6:.0f}M"
