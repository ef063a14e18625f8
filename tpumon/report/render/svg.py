"""Shapes of graphs and heat maps, which the template of the page writes as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from statistics import fmean
from typing import NamedTuple

from tpumon.outputs.drawing.graphs import soft_axis
from tpumon.report.blocks import HeatMap, StackedGraph
from tpumon.report.formats import time_text

WIDTH, HEIGHT = 800, 160
LEAST_SPAN = 0.1  # of a heat map, relative to its middle, so that jitter looks like jitter
_MOST_COLUMNS = 200
_MOST_CELLS = 6000
_ROW_HEIGHT, _LABEL_WIDTH, _MOST_LABEL = 16, 180, 28


class Area(NamedTuple):
    """A part of a graph: its name, its CSS class, its `d` in SVG, and its mean in words."""

    name: str
    kind: str
    path: str
    mean: str


class HoverPoint(NamedTuple):
    """A place of a graph, to point at; `words` say its values."""

    x: float
    width: float
    words: str


class GraphShapes(NamedTuple):
    """A graph: areas from the bottom to the top, the value of the upper edge, and the number of places."""

    areas: list[Area]
    columns: list[HoverPoint]
    top: str
    length: int


def draw(graph: StackedGraph) -> GraphShapes:
    """Stacks the parts. Of neighbouring places, where there are very many, the mean is drawn."""
    count = len(graph.parts[0].values) if graph.parts else 0
    parts = [squeezed(part.values, _MOST_COLUMNS, fmean) for part in graph.parts]
    columns = list(zip(*parts, strict=True))
    edges = [list(accumulate(column, initial=0.0)) for column in columns]
    top = max(map(sum, columns), default=0.0) or 1.0
    width = WIDTH / max(len(columns), 1)
    areas = [
        Area(
            part.name,
            part.key or f"any{i % 8}",
            _outline([edge[i] / top for edge in edges], [edge[i + 1] / top for edge in edges], width),
            graph.number(sum(part.values) / count if count else 0.0),
        )
        for i, part in enumerate(graph.parts)
    ]
    points = []
    for i, column in enumerate(columns):
        words = _hover_words(graph, column, i * count // len(columns), (i + 1) * count // len(columns) - 1)
        points.append(HoverPoint(round(i * width, 2), round(width, 2), words))
    return GraphShapes(areas, points, graph.number(top), count)


def _hover_words(graph: StackedGraph, values: Sequence[float], first: int, last: int) -> str:
    place = f"{graph.places} {first}" if last <= first else f"{graph.places}s {first} to {last}"
    parts = [f"{part.name} {graph.number(value)}" for part, value in zip(graph.parts, values, strict=True) if value]
    return "\n".join([f"{place}: {graph.number(sum(values))}", *(parts if len(parts) > 1 else [])])


def _outline(floor: Sequence[float], ceiling: Sequence[float], width: float) -> str:
    """The outline of an area, along its upper edge and back along the lower one; heights are shares of the top."""
    if not floor:
        return ""

    def y(share: float) -> str:
        return f"{HEIGHT * (1 - share):.2f}"

    there = [f"L{i * width:.2f} {y(share)}H{(i + 1) * width:.2f}" for i, share in enumerate(ceiling)]
    back = [f"L{(i + 1) * width:.2f} {y(floor[i])}H{i * width:.2f}" for i in reversed(range(len(floor)))]
    return f"M0 {y(floor[0])}{''.join([*there, *back])}Z"


def squeezed(values: Sequence[float], places: int, one: Callable[[Sequence[float]], float]) -> list[float]:
    """One of neighbouring values each, such as their mean, where there are more than places."""
    if len(values) <= places:
        return list(values)
    edges = [i * len(values) // places for i in range(places + 1)]
    return [one(values[first:last]) for first, last in pairwise(edges)]


class HeatRow(NamedTuple):
    """A row of a heat map: its label, and x, strength from 0 to 1 and value in words of each cell."""

    label: str
    y: int
    cells: list[tuple[float, float, str]]


class HeatShapes(NamedTuple):
    """A heat map; sizes in the units of SVG."""

    rows: list[HeatRow]
    cell_width: float
    height: int
    low: str
    high: str


def draw_heat(heat: HeatMap) -> HeatShapes:
    """Cells that are darker where the value is higher."""
    longest = max((len(values) for _, values in heat.rows), default=0)
    most = max(min(_MOST_COLUMNS, _MOST_CELLS // max(len(heat.rows), 1)), 1)
    rows = [(label, squeezed(values, most, fmean)) for label, values in heat.rows]
    known = [value for _, values in rows for value in values if math.isfinite(value)]
    low, high = soft_axis(known, least_share=LEAST_SPAN)
    width = (WIDTH - _LABEL_WIDTH) / max(min(longest, most), 1)

    def strength(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return round(0.08 + 0.92 * min(max(share, 0.0), 1.0), 3)

    made = [
        HeatRow(
            label if len(label) <= _MOST_LABEL else f"{label[: _MOST_LABEL - 1]}…",
            _ROW_HEIGHT * i,
            [
                (round(_LABEL_WIDTH + j * width, 2), strength(value), time_text(value))
                for j, value in enumerate(values)
                if math.isfinite(value)
            ],
        )
        for i, (label, values) in enumerate(rows)
    ]
    return HeatShapes(made, round(width, 2), _ROW_HEIGHT * len(made), time_text(low), time_text(high))
