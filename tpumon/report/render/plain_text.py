"""Sections as text: tables in columns, graphs and heat maps as lines of cells."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

from tpumon.outputs.drawing.graphs import soft_axis
from tpumon.report.blocks import Block, Facts, HeatMap, ReportColumn, SectionPage, StackedGraph, Table
from tpumon.report.render.svg import LEAST_SPAN, squeezed

_GAP = 2
_USUAL_WIDE, _LEAST_WIDE = 28, 12  # cells of a column that may be cut
_LEVELS = "▁▂▃▄▅▆▇█"
_SHADES = " ░▒▓█"
_MOST_LABEL = 24
_ASCII = str.maketrans("▁▂▃▄▅▆▇█░▒▓…µ\N{NO-BREAK SPACE}", "_.-=+*%#.+*~u ")


def as_ascii(text: str) -> str:
    """Text for a terminal or a log without block characters."""
    return text.translate(_ASCII)


def render(pages: Iterable[SectionPage], width: int) -> str:
    """All sections, one below the other.

    Args:
        pages: the sections.
        width: cells of a line; tables are made narrower where they can be.
    """
    lines: list[str] = []
    for page in pages:
        lines += [*([""] if lines else []), page.title, "=" * cell_len(page.title)]
        for block in page.blocks:
            lines += ["", *_block(block, width)]
    return "\n".join(line.rstrip() for line in lines)


def _block(block: Block, width: int) -> list[str]:
    match block:
        case Table():
            return [block.title, *_table(block, width)]
        case Facts():
            wide = max((cell_len(label) for label, _ in block.rows), default=0)
            return [block.title, *(f"  {_fit(label, wide)}  {words}" for label, words in block.rows)]
        case StackedGraph() | HeatMap():
            return [block.title, *picture(block, width)]
    wrapped = (textwrap.wrap(line, width, initial_indent="  ", subsequent_indent="    ") for line in block.lines)
    return [block.title, *(row for rows in wrapped for row in rows or [""])]


def picture(block: StackedGraph | HeatMap, width: int) -> list[str]:
    """A graph or a heat map as lines of cells, without its title."""
    return _graph(block, width) if isinstance(block, StackedGraph) else _heat_map(block, width)


def _fit(text: str, cells: int, *, tail: bool = False) -> str:
    """The text in exactly this many cells; text that is cut begins or ends with an ellipsis."""
    if cell_len(text) <= cells:
        return set_cell_size(text, cells)
    if tail:
        while cell_len(text) > cells - 1:
            text = text[1:]
        return set_cell_size(f"…{text}", cells)
    return set_cell_size(text, cells - 1) + "…"


def _table(table: Table, width: int) -> list[str]:
    columns = table.columns
    lines = [[column.title for column in columns], *([cell.text for cell in row] for row in table.rows)]
    widths = [max(map(cell_len, texts)) for texts in zip(*lines, strict=True)]
    shown = _narrow(columns, widths, width - 2)
    made = ["  " + (" " * _GAP).join(_aligned(texts[i], columns[i], widths[i]) for i in shown) for texts in lines]
    return [*made, *([f"  ({table.note})"] if table.note else [])]


def _aligned(text: str, column: ReportColumn, width: int) -> str:
    if column.number is None:
        return _fit(text, width, tail=column.tail)
    return " " * (width - cell_len(text)) + text


def _narrow(columns: Sequence[ReportColumn], widths: list[int], room: int) -> list[int]:
    """Cuts words, then leaves columns out, then cuts more, until all fit; returns the columns that are left."""
    shown = list(range(len(columns)))

    def excess() -> int:
        return sum(widths[i] for i in shown) + _GAP * (len(shown) - 1) - room

    def cut(least: int) -> None:
        while excess() > 0:
            i = max((i for i in shown if columns[i].wide), key=lambda i: widths[i], default=None)
            if i is None or widths[i] <= least:
                return
            widths[i] -= 1

    cut(_USUAL_WIDE)
    while excess() > 0 and (droppable := [i for i in shown if columns[i].rank]):
        shown.remove(max(droppable, key=lambda i: (columns[i].rank, i)))
    cut(_LEAST_WIDE)
    return shown


def _graph(graph: StackedGraph, width: int) -> list[str]:
    """One line for the sum, and one for each part, all on the same axis."""
    totals = [sum(values) for values in zip(*(part.values for part in graph.parts), strict=True)]
    rows = [("all", totals)] if len(graph.parts) > 1 else []
    rows += [(part.name, list(part.values)) for part in graph.parts]
    label = min(max(cell_len(name) for name, _ in rows), _MOST_LABEL)
    places = max(width - label - 18, 8)
    top = max(totals, default=0.0)
    lines = []
    for name, values in rows:
        shown = squeezed(values, places, max)
        bars = "".join(_LEVELS[min(int(value / top * 8), 7)] if top > 0 else " " for value in shown)
        mean = sum(values) / len(values) if values else 0.0
        lines.append(f"  {_fit(name, label)}  {bars}  {graph.number(mean)} mean")
    lines.append(f"  {len(totals)} {graph.places}s from left to right; a full cell is {graph.number(top)}")
    return lines


def _heat_map(heat_map: HeatMap, width: int) -> list[str]:
    known = [value for _, values in heat_map.rows for value in values if math.isfinite(value)]
    low, high = soft_axis(known, least_share=LEAST_SPAN)
    label = min(max((cell_len(name) for name, _ in heat_map.rows), default=0), _MOST_LABEL)
    places = max(width - label - 6, 8)
    lines = []
    for name, values in heat_map.rows:
        cells = "".join(_shade(value, low, high) for value in squeezed(values, places, max))
        lines.append(f"  {_fit(name, label)} |{cells}|")
    longest = max((len(values) for _, values in heat_map.rows), default=0)
    lines.append(f"  {longest} {heat_map.places}s from left to right; the darker, the longer")
    return lines


def _shade(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return "?"
    share = (value - low) / (high - low) if high > low else 0.5
    return _SHADES[1 + min(max(int(share * 4), 0), 3)]
