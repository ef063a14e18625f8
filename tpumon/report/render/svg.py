"""Where the lines and areas of graphs are, for the template to write them as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec import Struct

from tpumon.outputs.live.drawing.graphs import soft_axis
from tpumon.report.blocks import Graph, HeatMap
from tpumon.report.words import size_word, time_word

WIDTH, HEIGHT = 800, 160
_MOST_COLUMNS = 200
_MOST_CELLS = 6000
_ROW, _LABEL, _MOST_LABEL = 16, 180, 28
_LEAST_SPAN = 0.1


class Area(Struct, frozen=True):
    """One part of a graph.

    Attributes:
        name: of the part.
        kind: the CSS class that colours it.
        path: what SVG calls `d`.
        mean: in words.
    """

    name: str
    kind: str
    path: str
    mean: str


class Column(Struct, frozen=True):
    """One place of a graph, to point at; `words` say its values."""

    x: float
    width: float
    words: str


class Drawing(Struct, frozen=True):
    """A graph.

    Attributes:
        areas: from the bottom to the top.
        columns: to point at.
        top: what the upper edge is, in words.
        count: places before neighbouring ones were put together.
        places: what they are.
    """

    areas: tuple[Area, ...]
    columns: tuple[Column, ...]
    top: str
    count: int
    places: str


def draw(graph: Graph) -> Drawing:
    """Stacks the parts. Of neighbouring places, where there are very many, the mean is drawn."""
    word = size_word if graph.unit == "bytes" else time_word
    count = len(graph.series[0].values) if graph.series else 0
    series = [_means(one.values, _MOST_COLUMNS) for one in graph.series]
    totals = [sum(values) for values in zip(*series, strict=True)]
    top = max(totals, default=0.0) or 1.0
    width = WIDTH / max(len(totals), 1)
    areas, floor = [], [0.0] * len(totals)
    for i, (one, values) in enumerate(zip(graph.series, series, strict=True)):
        ceiling = [below + value for below, value in zip(floor, values, strict=True)]
        mean = sum(one.values) / count if count else 0.0
        areas.append(Area(one.name, one.key or f"any{i % 8}", _path(floor, ceiling, top, width), word(mean)))
        floor = ceiling
    columns = tuple(
        Column(round(i * width, 2), round(width, 2), _words(graph, [values[i] for values in series], i, count, word))
        for i in range(len(totals))
    )
    return Drawing(tuple(areas), columns, word(top), count, graph.places)


def _words(graph: Graph, values: Sequence[float], column: int, count: int, word: Callable[[float], str]) -> str:
    columns = min(count, _MOST_COLUMNS)
    first, last = column * count // columns, (column + 1) * count // columns - 1
    place = f"{graph.places} {first}" if last <= first else f"{graph.places}s {first} to {last}"
    parts = [f"{one.name} {word(value)}" for one, value in zip(graph.series, values, strict=True) if value]
    return "\n".join([f"{place}: {word(sum(values))}", *(parts if len(parts) > 1 else [])])


def _path(floor: Sequence[float], ceiling: Sequence[float], top: float, width: float) -> str:
    """The outline of one part: along its upper edge, and back along the lower one."""

    def y(value: float) -> str:
        return f"{HEIGHT * (1 - value / top):.2f}"

    there = [f"L{i * width:.2f} {y(value)}H{(i + 1) * width:.2f}" for i, value in enumerate(ceiling)]
    back = [f"L{(i + 1) * width:.2f} {y(floor[i])}H{i * width:.2f}" for i in reversed(range(len(floor)))]
    return f"M0 {y(floor[0])}" + "".join([*there, *back]) + "Z" if floor else ""


def _means(values: Sequence[float], most: int) -> list[float]:
    if len(values) <= most:
        return list(values)
    edges = [i * len(values) // most for i in range(most + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


class HeatRow(Struct, frozen=True):
    """One row of a heat map: its label, and x, strength from 0 to 1 and value in words of each cell."""

    label: str
    y: int
    cells: tuple[tuple[float, float, str], ...]


class HeatDrawing(Struct, frozen=True):
    """A heat map; sizes in the units of SVG."""

    rows: tuple[HeatRow, ...]
    cell_width: float
    height: int
    label_width: int
    low: str
    high: str
    places: str


def draw_heat(heat: HeatMap) -> HeatDrawing:
    """Cells that are darker where the value is higher; jitter looks like jitter."""
    longest = max((len(values) for _, values in heat.rows), default=0)
    most = max(min(_MOST_COLUMNS, _MOST_CELLS // max(len(heat.rows), 1)), 1)
    rows = [(label, _means(values, most)) for label, values in heat.rows]
    known = [value for _, values in rows for value in values if math.isfinite(value)]
    low, high = soft_axis(known, least_share=_LEAST_SPAN)
    width = (WIDTH - _LABEL) / max(min(longest, most), 1)
    made = tuple(
        HeatRow(
            label if len(label) <= _MOST_LABEL else f"{label[: _MOST_LABEL - 1]}…",
            _ROW * i,
            tuple(
                (round(_LABEL + j * width, 2), _strength(value, low, high), time_word(value))
                for j, value in enumerate(values)
                if math.isfinite(value)
            ),
        )
        for i, (label, values) in enumerate(rows)
    )
    return HeatDrawing(made, round(width, 2), _ROW * len(made), _LABEL, time_word(low), time_word(high), heat.places)


def _strength(value: float, low: float, high: float) -> float:
    share = (value - low) / (high - low) if high > low else 0.5
    return round(0.08 + 0.92 * min(max(share, 0.0), 1.0), 3)
