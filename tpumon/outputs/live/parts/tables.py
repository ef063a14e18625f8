"""Tables: names at the left, numbers at the right; the first of both where there is no room for all."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from rich.cells import cell_len

from tpumon.outputs.drawing.cells import NOT_KNOWN
from tpumon.outputs.drawing.graphs import bar
from tpumon.outputs.drawing.line import Line, cut, tame
from tpumon.outputs.drawing.style import BOLD, DIM, GRAPH, Glyphs

_LEAST_NAME, _MOST_NAME = 16, 60
_TAIL = 4
_MOST_BAR = 40


class TableColumn(Struct, frozen=True):
    """A column of names or numbers.

    Attributes:
        title: above it.
        texts: one per row, not yet safe to show.
        width: cells; 0, only for names: as many as the longest needs, if there is room.
        dim: True if it is drawn faintly.
    """

    title: str
    texts: Sequence[str]
    width: int = 0
    dim: bool = False


def table(names: Sequence[TableColumn], columns: Sequence[TableColumn], width: int, glyphs: Glyphs) -> list[Line]:
    """The titles and a line per row."""
    least = names[0].width or _LEAST_NAME
    numbers = list(columns[:1])
    for column in columns[1:]:
        if 2 + least + sum(each.width for each in numbers) + column.width > width:
            break
        numbers.append(column)
    room = max(width - 2 - sum(each.width for each in numbers), 1)
    shown = names[: max(room // _LEAST_NAME, 1)]
    widths = [each.width or min(max(map(cell_len, (each.title, *each.texts))) + 1, _MOST_NAME) for each in shown]
    widths[1:] = [min(each, room // len(shown)) for each in widths[1:]]
    widths[0] = min(widths[0], room - sum(widths[1:]))
    lines = []
    for place in range(len(names[0].texts) + 1):
        line = Line(width).fill(2)
        for each, cells in zip(shown, widths, strict=True):
            text = tame(each.texts[place - 1] if place else each.title, ascii_only=glyphs.ascii)
            text = cut_within(text, cells - 1, glyphs)
            line.add(text + " " * (cells - cell_len(text)), None if place else BOLD)
        for column in numbers:
            text = column.texts[place - 1] if place else column.title
            faint = DIM if column.dim or text == NOT_KNOWN else None
            line.add(text.rjust(column.width), faint if place else BOLD)
        lines.append(line)
    return lines


def add_bar(line: Line, share: float, width: int, glyphs: Glyphs) -> None:
    """Adds a bar behind a row, up to 40 cells wide."""
    filled, track = bar(share, min(width, _MOST_BAR), glyphs)
    line.fill(2).add(filled, GRAPH).add(track, DIM)


def cut_within(text: str, width: int, glyphs: Glyphs) -> str:
    """Cuts text to `width` cells in the middle: its end tells ops of one kind apart, as fusion.12 and fusion.13."""
    tail = text[-_TAIL:]
    if cell_len(text) <= width or width < 3 * _TAIL or cell_len(tail) > _TAIL:
        return cut(text, width, glyphs.ellipsis)
    return cut(text[:-_TAIL], width - _TAIL, glyphs.ellipsis) + tail
