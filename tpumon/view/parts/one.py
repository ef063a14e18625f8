"""The figures of one worker: now, and over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from rich.segment import Segment

from tpumon.figures import HBM, IDLE, MXU, STEP
from tpumon.model import Sample
from tpumon.view.drawing.cells import NOT_KNOWN, gib, percent, percent_short, short_time, step_cell, step_word
from tpumon.view.drawing.graphs import RATIO, Axis, bar, chart, pooled, soft_axis
from tpumon.view.drawing.lines import Line, cut, tame
from tpumon.view.drawing.style import BOLD, DIM, GRAPH, LOOKS, Glyphs, kind_of
from tpumon.view.parts.scene import Row
from tpumon.view.parts.trends import Trend

_NAME = 10
_VALUE = 9
_LEAST_BAR = 10
_MOST_BAR = 50
_AXIS = 8
_TWO_BESIDE = 76
_WITH_DECIMALS = 32
_MOST_CHART = 14
LEAST_CHART = 4
"""Lines of the lowest chart, its title included."""


class Figure(NamedTuple):
    """A figure of one worker.

    Attributes:
        key: as in `tpumon.fleet.FIGURES`; empty for those that are not compared.
        field: of the sample, for why it is absent.
        title: before it.
        value: as shown.
        ratio: for its bar; None: it has none.
        more: what stands behind it.
    """

    key: str
    field: str
    title: str
    value: str
    ratio: float | None
    more: str


def figures(sample: Sample, level: int, glyphs: Glyphs) -> list[Figure]:
    """The main figures of a present sample, in their order."""
    found = [
        Figure(
            "mxu",
            MXU.fields[0],
            "MXU",
            percent(MXU.value(sample.figures)),
            MXU.value(sample.figures),
            _method(MXU.method(sample.figures)),
        )
    ]
    if level < 2:
        return found
    step, infeed = sample.figures.step_time_s, sample.figures.infeed_ratio
    memory, idle_ratio = HBM.size_bytes(sample.figures), IDLE.value(sample.figures)
    steps = ""
    if step is not None:
        count = "" if step.count is None else f" over {step.count} step{'s' if step.count != 1 else ''}"
        method = _method(STEP.method(sample.figures))
        steps = f"{step_cell(step.min)} {glyphs.dash} {step_word(step.max)}{count}{method and ', '}{method}"
    infeeds = "" if infeed is None else f"{percent(infeed.min)} {glyphs.dash} {percent(infeed.max)}"
    found += [
        Figure("idle", "idle_ratio", "TPU idle", percent(idle_ratio), idle_ratio, ""),
        Figure("step", "step_time_s", "Step", NOT_KNOWN if step is None else step_word(step.avg), None, steps),
        Figure(
            "infeed",
            "infeed_ratio",
            "Infeed",
            NOT_KNOWN if infeed is None else percent(infeed.avg),
            None if infeed is None else infeed.avg,
            infeeds,
        ),
    ]
    if memory is not None:
        several = len(sample.figures.devices) > 1
        size = f"{gib(memory[0])} of {gib(memory[1])} GiB"
        more = f"the fullest of {len(sample.figures.devices)}; {size} in all" if several else size
        ratio = HBM.value(sample.figures)
        found.append(Figure("hbm", "hbm_used_bytes", "HBM", percent(ratio), ratio, more))
    return found


def short_lines(row: Row, width: int, level: int) -> list[list[Segment]]:
    """The main figures in a line, in more on a narrow screen: `MXU 40.0%  idle 10.0%  step 62.7ms`."""
    sample = row.sample
    if sample is None:
        return []
    shown = percent if width >= _WITH_DECIMALS else percent_short
    figures = [("mxu", "MXU", shown(MXU.value(sample.figures)))]
    if level > 1:
        figures += [
            ("idle", "idle", shown(IDLE.value(sample.figures))),
            ("step", "step", step_word(STEP.value(sample.figures))),
        ]
    style = LOOKS[kind_of(row.verdict)].style
    lines = [Line(width)]
    for key, title, value in figures:
        if lines[-1].room < len(title) + len(value) + 1 + 2 * (lines[-1].room < width):
            lines.append(Line(width))
        lines[-1].fill(2 * (lines[-1].room < width)).add(f"{title} ").add(value, style if row.causes(key) else BOLD)
    return [line.segments() for line in lines]


_METHODS = {
    "server": "by the server",
    "counter": "by counter",
    "perf-counters": "by perf-counters",
    "flops": "by FLOPS of the ops",
    "steps": "by step markers",
    "modules": "by modules",
    "host": "by host events",
}


def _method(method: str | None) -> str:
    return "" if method is None else _METHODS.get(method, f"by {method}")


def figure_lines(row: Row, width: int, level: int, glyphs: Glyphs) -> list[list[Segment]]:
    """A line per figure: name, value, bar, details; where it is absent, why."""
    if row.sample is None:
        return []
    look = LOOKS[kind_of(row.verdict)]
    lines = []
    shown = figures(row.sample, level, glyphs)
    details = max((len(figure.more) for figure in shown if figure.ratio is not None), default=0)
    bar_width = min(max(width - 2 - _NAME - _VALUE - 5 - details, _LEAST_BAR), _MOST_BAR)
    for figure in shown:
        line = Line(width).fill(2 if width >= 30 else 0).add(figure.title.ljust(_NAME if width >= 30 else 6), BOLD)
        if figure.value == NOT_KNOWN:
            reason = tame(row.sample.figures.absent.get(figure.field, ""), ascii_only=glyphs.ascii)
            line.add(figure.value.rjust(_VALUE), DIM)
            lines.append(line.fill(2).add(cut(reason, line.room, glyphs.ellipsis), DIM).segments())
            continue
        line.add(figure.value.rjust(_VALUE), look.style if row.causes(figure.key) else BOLD)
        if line.room > 8:
            filled, track = bar(figure.ratio, bar_width, glyphs)
            line.fill(2).add(filled, GRAPH).add(track, DIM)
            more = figure.more.strip()
            gap = 2 if figure.ratio is not None else 0
            line.fill(gap).add(cut(more, line.room, glyphs.ellipsis) if line.room > 4 else "")
        lines.append(line.segments())
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chart:
    title: str
    unit: str
    shown: Callable[[float | None], str]
    worst: Callable[[Sequence[float]], float]
    fixed: Axis | None


_CHARTS = {
    "mxu": _Chart(title="MXU", unit="", shown=percent, worst=min, fixed=RATIO),
    "step": _Chart(title="Step time", unit=" ms", shown=step_cell, worst=max, fixed=None),
    "idle": _Chart(title="TPU idle", unit="", shown=percent, worst=max, fixed=RATIO),
    "infeed": _Chart(title="Infeed", unit="", shown=percent, worst=max, fixed=RATIO),
    "hbm": _Chart(title="HBM", unit="", shown=percent, worst=max, fixed=RATIO),
}


def chart_names(seen: set[str], level: int) -> list[str]:
    """What is drawn over time, the most telling first."""
    return [name for name in _CHARTS if name == "mxu" or (level > 1 and name in seen)]


def charts(
    trend: Trend, names: Sequence[str], width: int, height: int, glyphs: Glyphs, *, until: str | None
) -> list[list[Segment]]:
    """Figures over time, as many as fit, two beside each other on wide screens; at most `height` lines.

    Args:
        trend: what is drawn.
        names: its figures, the most telling first.
        width: cells.
        height: lines.
        glyphs: characters.
        until: when they end; None: now.
    """
    beside = 2 if width >= _TWO_BESIDE and len(names) > 1 else 1
    names = names[: max(beside * (height // LEAST_CHART), 1)]
    rows = -(-len(names) // beside)
    each_height = min(height // rows, _MOST_CHART)
    if each_height < LEAST_CHART or width < _AXIS + 10:
        return []
    found = []
    for at in range(0, len(names), beside):
        group = names[at : at + beside]
        each_width = (width - 2 * (len(group) - 1)) // len(group)
        blocks = [_chart(trend, name, each_width, each_height, glyphs, until) for name in group]
        found += side_by_side(blocks, each_width, width)
    return found


def side_by_side(blocks: Sequence[list[list[Segment]]], each_width: int, width: int) -> list[list[Segment]]:
    """Blocks of lines beside each other, two cells between them."""
    found = []
    for parts in zip_longest(*blocks, fillvalue=[]):
        line = Line(width)
        for place, part in enumerate(parts):
            line.fill(place * (each_width + 2) - (width - line.room))
            for segment in part:
                line.add(segment.text, segment.style)
        found.append(line.segments())
    return found


def _chart(trend: Trend, name: str, width: int, height: int, glyphs: Glyphs, until: str | None) -> list[list[Segment]]:
    what = _CHARTS[name]
    columns, size = pooled(trend.last(name), trend.count, width - _AXIS - 1, what.worst)
    axis = what.fixed or soft_axis(columns)
    span = f"last {short_time(trend.span_s(len(columns) * size))}" if until is None else f"until {until}"
    lines = [_chart_title(what, columns, span, size, width, glyphs)]
    nothing = all(map(math.isnan, columns))
    for place, text in enumerate(chart(columns, axis, height - 1, glyphs)):
        end = axis[1] if place == 0 else axis[0] if place == height - 2 else None
        label = "" if end is None or nothing else f"{100 * end:.0f}%" if what.fixed else what.shown(end)
        line = Line(width).add(label.rjust(_AXIS - 1), DIM).add(glyphs.tick if label else glyphs.axis, DIM)
        lines.append(line.add(text, GRAPH).segments())
    return lines


def _chart_title(
    what: _Chart, columns: Sequence[float], span: str, size: int, width: int, glyphs: Glyphs
) -> list[Segment]:
    """What it shows, of how long, from where to where: as much of it as there is room for."""
    line = Line(width).fill(2).add(what.title, BOLD)
    known = [value for value in columns if not math.isnan(value)]
    if not known:
        return line.add("  nothing yet", DIM).segments()
    ends = f"{what.shown(min(known))} {glyphs.dash} {what.shown(max(known))}{what.unit}"
    each = f", worst of {size}" if size > 1 else ""
    for text in (f"{ends}, {span}{each}", f"{ends}, {span}", ends):
        if len(text) + 2 <= line.room:
            return line.add(f"  {text}", DIM).segments()
    return line.segments()
