"""What a worker's devices spent their time on: its top operations and their categories, as tables or in a line each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment

from tpumon.analysis import WorkerStatus
from tpumon.model import OpCategoryFigures, OpFigures, Sample
from tpumon.outputs.live.drawing.cells import percent, step_cell
from tpumon.outputs.live.drawing.graphs import bar
from tpumon.outputs.live.drawing.line import Line, Lines, cut, tame
from tpumon.outputs.live.drawing.style import BOLD, DIM, GRAPH, Glyphs

BY_TIME, BY_CATEGORY = "time", "category"
"""Orders of the table of operations."""

_ONLY_TRACES = "only traces show them, and its figures come from the Monitor RPC"
_NOT_TAKEN = "they are not taken where these samples come from; start that tpumon with --with-ops N"
_LEAST_NAME, _MOST_NAME = 16, 60
_IN_A_LINE = 5
_LONGEST_IN_A_LINE = 20
_TAIL = 4
_LABEL = 10
_MOST_BAR = 40


def why_no_ops(row: WorkerStatus, level: int) -> str | None:
    """Why there is no operation of a worker to show; None if there is one."""
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
    """A line per operation; the first columns, if there is no room for all."""
    columns = (
        ("SHARE", 7, [percent(op.time_ratio) for op in ops]),
        ("SELF ms", 8, [step_cell(op.self_time_s) for op in ops]),
        ("TIMES", 8, [_count(op.occurrences) for op in ops]),
        ("FLOPS", 7, [percent(op.flops_utilization_ratio) for op in ops]),
        ("HBM BW", 8, [percent(op.hbm_utilization_ratio) for op in ops]),
    )
    names = (
        ("OPERATION", [op.name for op in ops]),
        ("CATEGORY", [op.category for op in ops]),
        ("PROGRAM", [op.program.rpartition("(")[0] for op in ops]),
    )
    return [line.segments() for line in _table(names, columns, width, glyphs)]


def category_table(categories: Sequence[OpCategoryFigures], width: int, glyphs: Glyphs) -> Lines:
    """A line per category, with a bar of its share."""
    columns = (
        ("SHARE", 7, [percent(each.time_ratio) for each in categories]),
        ("SELF ms", 8, [step_cell(each.self_time_s) for each in categories]),
        ("TIMES", 8, [_count(each.occurrences) for each in categories]),
        ("OPS", 6, [_count(each.ops) for each in categories]),
    )
    title, *rows = _table((("CATEGORY", [each.name for each in categories]),), columns, width, glyphs)
    for line, category in zip(rows, categories, strict=True):
        filled, track = bar(category.time_ratio, min(line.room - 2, _MOST_BAR), glyphs)
        line.fill(2).add(filled, GRAPH).add(track, DIM)
    return [line.segments() for line in (title, *rows)]


def _table(
    names: Sequence[tuple[str, Sequence[str]]],
    columns: Sequence[tuple[str, int, Sequence[str]]],
    width: int,
    glyphs: Glyphs,
) -> list[Line]:
    """Names at the left, then columns of numbers; the first of both, if there is no room for all.

    Args:
        names: title and texts of each column at the left.
        columns: title, width and texts of each column at the right.
        width: of a line.
        glyphs: for names that are cut.
    """
    numbers = [columns[0]]
    for column in columns[1:]:
        if 2 + _LEAST_NAME + sum(each[1] for each in numbers) + column[1] <= width:
            numbers.append(column)
    room = max(width - 2 - sum(each[1] for each in numbers), 1)
    shown = names[: max(room // _LEAST_NAME, 1)]
    widths = [min(max(map(cell_len, (title, *texts))) + 1, _MOST_NAME) for title, texts in shown]
    widths[1:] = [min(each, room // len(shown)) for each in widths[1:]]
    widths[0] = min(widths[0], room - sum(widths[1:]))
    lines = []
    for place in range(len(names[0][1]) + 1):
        style = None if place else BOLD
        line = Line(width).fill(2)
        for (title, texts), cells in zip(shown, widths, strict=True):
            text = cut_within(tame(texts[place - 1] if place else title, ascii_only=glyphs.ascii), cells - 1, glyphs)
            line.add(text + " " * (cells - cell_len(text)), style)
        for title, cells, texts in numbers:
            line.add((texts[place - 1] if place else title).rjust(cells), style)
        lines.append(line)
    return lines


def cut_within(text: str, width: int, glyphs: Glyphs) -> str:
    """Cuts text to `width` cells in the middle: its end tells ops of one kind apart, as fusion.12 and fusion.13."""
    tail = text[-_TAIL:]
    if cell_len(text) <= width or width < 3 * _TAIL or cell_len(tail) > _TAIL:
        return cut(text, width, glyphs.ellipsis)
    return cut(text[:-_TAIL], width - _TAIL, glyphs.ellipsis) + tail


def _count(value: int) -> str:
    return str(value) if value < 10_000_000 else f"{value / 1e6:.0f}M"
