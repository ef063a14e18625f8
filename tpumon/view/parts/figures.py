"""The figures of one worker, now and over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from rich.segment import Segment

from tpumon.figures import COMPARED, MXU, STEP, Figure
from tpumon.model import Figures
from tpumon.view.drawing.cells import FORMATS, NOT_KNOWN, gib, short_time
from tpumon.view.drawing.graphs import RATIO, bar, chart, pooled, soft_axis
from tpumon.view.drawing.lines import Line, Lines, cut, tame
from tpumon.view.drawing.style import BOLD, DIM, GRAPH, LOOKS, Glyphs, kind_of
from tpumon.view.parts.peers import ALONE, Peers
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
"""Lines of the smallest chart, including its title."""


class Shown(NamedTuple):
    """A figure of one worker, as it is written.

    Attributes:
        figure: which one.
        value: its value.
        ratio: length of its bar; None: it has none.
        more: details behind it.
    """

    figure: Figure
    value: str
    ratio: float | None
    more: str


def shown_figures(figures: Figures, level: int, glyphs: Glyphs, peers: Peers = ALONE) -> list[Shown]:
    """The compared figures in the table's order: those that are there, always shown, or absent for a known reason."""
    shown = []
    for figure in COMPARED.values():
        value = figure.value(figures)
        wanted = value is not None or figure.always_shown or figure.why_absent(figures) is not None
        if figure.level <= level and wanted:
            text = FORMATS[figure.unit].word(value)
            ratio = value if figure.unit == "ratio" else None
            shown.append(Shown(figure, text, ratio, ", ".join(_details(figure, figures, glyphs, peers))))
    return shown


def _details(figure: Figure, figures: Figures, glyphs: Glyphs, peers: Peers) -> Iterator[str]:
    """The median of its slice, the range over the steps, sizes, and the method."""
    form = FORMATS[figure.unit]
    usual = peers.figures.get(figure.key)
    if usual is not None:
        yield f"{peers.word} {form.word(usual)}"
    ends = None if figure.range is None else figure.range(figures)
    if ends is not None:
        count = figures.step_time_s.count if figure is STEP and figures.step_time_s is not None else None
        over = "" if count is None else f" over {count} step{'s' if count != 1 else ''}"
        yield f"{form.cell(ends[0])} {glyphs.dash} {form.word(ends[1])}{over}"
    used_total = figure.size_bytes(figures)
    if used_total is not None:
        size = f"{gib(used_total[0])} of {gib(used_total[1])} GiB"
        count = len(figures.devices)
        yield f"the fullest of {count}; {size} in all" if count > 1 else size
    method = figure.method(figures)
    if method is not None:
        words = _METHODS.get(method, f"by {method}")
        subject = figure.subject(figures)
        yield f"{words}: {tame(subject, ascii_only=glyphs.ascii)}" if subject else words


def short_lines(row: Row, width: int, level: int) -> Lines:
    """The most important figures in one line, or more on a narrow screen: `MXU 40.0%  idle 10.0%  step 62.7ms`."""
    if row.sample is None:
        return []
    style = LOOKS[kind_of(row.verdict)].style
    lines = [Line(width)]
    for figure in COMPARED.values():
        if figure.level > level or not figure.always_shown:
            continue
        form = FORMATS[figure.unit]
        short = form.short if width < _WITH_DECIMALS and figure.unit == "ratio" else form.word
        title, value = figure.label if figure.label.isupper() else figure.key, short(figure.value(row.sample.figures))
        if lines[-1].room < len(title) + len(value) + 1 + 2 * (lines[-1].room < width):
            lines.append(Line(width))
        marked = style if row.causes(figure.key) else BOLD
        lines[-1].fill(2 * (lines[-1].room < width)).add(f"{title} ").add(value, marked)
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


def figure_lines(row: Row, width: int, level: int, glyphs: Glyphs, peers: Peers = ALONE) -> Lines:
    """A line per figure: name, value, bar and details; if it is absent, the reason."""
    if row.sample is None:
        return []
    look = LOOKS[kind_of(row.verdict)]
    lines = []
    figures = shown_figures(row.sample.figures, level, glyphs, peers)
    details = max((len(shown.more) for shown in figures if shown.ratio is not None), default=0)
    name_width = max([_NAME, *(len(shown.figure.label) + 1 for shown in figures)])
    bar_width = min(max(width - 2 - name_width - _VALUE - 5 - details, _LEAST_BAR), _MOST_BAR)
    for figure, value, ratio, more in figures:
        line = Line(width).fill(2 if width >= 30 else 0).add(figure.label.ljust(name_width if width >= 30 else 6), BOLD)
        if value == NOT_KNOWN:
            reason = tame(figure.why_absent(row.sample.figures) or "", ascii_only=glyphs.ascii)
            line.add(value.rjust(_VALUE), DIM)
            lines.append(line.fill(2).add(cut(reason, line.room, glyphs.ellipsis), DIM).segments())
            continue
        line.add(value.rjust(_VALUE), look.style if row.causes(figure.key) else BOLD)
        if line.room > 8:
            filled, track = bar(ratio, bar_width, glyphs)
            line.fill(2).add(filled, GRAPH).add(track, DIM)
            gap = 2 if ratio is not None else 0
            line.fill(gap).add(cut(more, line.room, glyphs.ellipsis) if line.room > 4 else "")
        lines.append(line.segments())
    return lines


def chart_figures(seen: frozenset[str], level: int) -> list[Figure]:
    """The figures to draw over time: MXU, step time, then the others in the table's order."""
    drawn = [figure for figure in COMPARED.values() if figure.level <= level and figure.key in {*seen, MXU.key}]
    return sorted(drawn, key=lambda figure: figure not in {MXU, STEP})


def charts(
    trend: Trend, figures: Sequence[Figure], width: int, height: int, glyphs: Glyphs, *, until: str | None
) -> Lines:
    """Figures over time, as many as fit in `height` lines; two side by side on wide screens.

    Args:
        trend: the values.
        figures: which ones, the most important first.
        width: cells in a line.
        height: lines at most.
        glyphs: characters to draw with.
        until: when the charts end; None: now.
    """
    beside = 2 if width >= _TWO_BESIDE and len(figures) > 1 else 1
    figures = figures[: max(beside * (height // LEAST_CHART), 1)]
    rows = -(-len(figures) // beside)
    each_height = min(height // rows, _MOST_CHART)
    if each_height < LEAST_CHART or width < _AXIS + 10:
        return []
    lines = []
    for at in range(0, len(figures), beside):
        group = figures[at : at + beside]
        each_width = (width - 2 * (len(group) - 1)) // len(group)
        blocks = [_chart(trend, figure, each_width, each_height, glyphs, until) for figure in group]
        lines += side_by_side(blocks, each_width, width)
    return lines


def side_by_side(blocks: Sequence[Lines], each_width: int, width: int) -> Lines:
    """Blocks of lines side by side, two cells apart."""
    lines = []
    for parts in zip_longest(*blocks, fillvalue=[]):
        line = Line(width)
        for place, part in enumerate(parts):
            line.fill(place * (each_width + 2) - (width - line.room))
            for segment in part:
                line.add(segment.text, segment.style)
        lines.append(line.segments())
    return lines


def _chart(trend: Trend, figure: Figure, width: int, height: int, glyphs: Glyphs, until: str | None) -> Lines:
    worst: Callable[[Sequence[float]], float] = min if figure.worse == "low" else max
    columns, size = pooled(trend.last(figure.key), trend.count, width - _AXIS - 1, worst)
    axis = RATIO if figure.unit == "ratio" else soft_axis(columns)
    span = f"last {short_time(trend.span_s(len(columns) * size))}" if until is None else f"until {until}"
    lines = [_chart_title(figure, columns, span, size, width, glyphs)]
    nothing = all(map(math.isnan, columns))
    for place, text in enumerate(chart(columns, axis, height - 1, glyphs)):
        end = axis[1] if place == 0 else axis[0] if place == height - 2 else None
        label = (
            ""
            if end is None or nothing
            else f"{100 * end:.0f}%"
            if figure.unit == "ratio"
            else FORMATS[figure.unit].cell(end)
        )
        line = Line(width).add(label.rjust(_AXIS - 1), DIM).add(glyphs.tick if label else glyphs.axis, DIM)
        lines.append(line.add(text, GRAPH).segments())
    return lines


def _chart_title(
    figure: Figure, columns: Sequence[float], span: str, size: int, width: int, glyphs: Glyphs
) -> list[Segment]:
    """The figure, its range and the time span, as far as there is room."""
    line = Line(width).fill(2).add(figure.label, BOLD)
    known = [value for value in columns if not math.isnan(value)]
    if not known:
        return line.add("  nothing yet", DIM).segments()
    form = FORMATS[figure.unit]
    ends = f"{form.cell(min(known))} {glyphs.dash} {form.cell(max(known))}{form.unit}"
    each = f", worst of {size}" if size > 1 else ""
    for text in (f"{ends}, {span}{each}", f"{ends}, {span}", ends):
        if len(text) + 2 <= line.room:
            return line.add(f"  {text}", DIM).segments()
    return line.segments()
