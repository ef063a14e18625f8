"""The figures of one worker over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain, groupby, zip_longest

from msgspec import Struct
from rich.segment import Segment

from tpumon.analysis.history import RollupSeries, State
from tpumon.model.figure_spec import FigureSpec
from tpumon.outputs.drawing.cells import FORMATS, clock, short_time
from tpumon.outputs.drawing.graphs import RATIO, Axis, chart
from tpumon.outputs.drawing.line import Line, Lines, cut
from tpumon.outputs.drawing.style import BADGES, BOLD, DIM, GRAPH, NOT_SEEN_BADGE, Badge, Glyphs
from tpumon.outputs.live.parts.spans import Span, SpanColumns, columns_of

_AXIS = 8
_TWO_BESIDE = 76
_MOST_CHART = 14
_LEAST_LABEL = 4
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))
LEAST_CHART = 4
"""Lines of the smallest chart, including its title."""


class Graphed(Struct, frozen=True, kw_only=True):
    """Series and span of the charts of a worker.

    Attributes:
        series: the worker's figures.
        span: the time to show.
        fresh_for_s: for how long a figure counts.
        words: the span in words: `last 15m`.
        axis: the axis of a figure's values.
        is_seen: False if its traces cannot show whether anything runs.
    """

    series: RollupSeries
    span: Span
    fresh_for_s: float
    words: str
    axis: Callable[[FigureSpec, Sequence[float]], Axis]
    is_seen: bool = True

    def badge(self, state: State) -> Badge:
        """The badge of a state that it was in."""
        return BADGES[state] if self.is_seen or state != "no-activity" else NOT_SEEN_BADGE


def span_words(span: Span, now_unix_s: float, *, ends_now: bool, moved: bool) -> str:
    """A span in words.

    Args:
        span: the span.
        now_unix_s: the time that is shown.
        ends_now: whether it ends with fresh figures.
        moved: whether the user has moved it.
    """
    length_s = round(span.end_unix_s - span.begin_unix_s)
    units = ((each_s, unit) for each_s, unit in _UNITS if length_s % each_s == 0)
    length = next((f"{length_s // each_s}{unit}" for each_s, unit in units), short_time(length_s))
    if moved:
        return f"{clock(span.begin_unix_s, now_unix_s)} to {clock(span.end_unix_s, now_unix_s)}"
    return f"last {length}" if ends_now else f"{length} until {clock(span.end_unix_s, now_unix_s)}"


def chart_figures(
    applicable: Sequence[FigureSpec], seen: frozenset[str], leading: Sequence[FigureSpec], level: int
) -> list[FigureSpec]:
    """The figures to draw over time.

    Args:
        applicable: those that say something of the worker's job, in the table's order.
        seen: keys of those that any worker has had.
        leading: the ones that come first; of these the first is always there.
        level: 1 or 2.
    """
    drawn = [figure for figure in applicable if figure.level <= level and figure.key in {*seen, leading[0].key}]
    return sorted(drawn, key=lambda figure: figure not in leading)


def charts(graphed: Graphed, figures: Sequence[FigureSpec], width: int, height: int, glyphs: Glyphs) -> Lines:
    """Figures over time, as many as fit in `height` lines; two side by side on wide screens."""
    beside, rows, each_height = _layout(len(figures), width, height)
    figures = figures[: beside * rows]
    lines = []
    # All charts have columns of one length, so that what happened at the same time is in the same place.
    each_width = (width - 2 * (beside - 1)) // beside
    for at in range(0, len(figures), beside):
        blocks = [_chart(graphed, figure, each_width, each_height, glyphs) for figure in figures[at : at + beside]]
        lines += side_by_side(blocks, each_width, width)
    return lines


def charts_height(figures: int, width: int, height: int) -> int:
    """Number of lines that `charts` of this many figures returns."""
    _, rows, each_height = _layout(figures, width, height)
    return rows * each_height


def _layout(figures: int, width: int, height: int) -> tuple[int, int, int]:
    """Number of charts side by side, number below each other, and the lines of each; no rows: none fits."""
    beside = 2 if width >= _TWO_BESIDE and figures > 1 else 1
    rows = -(-min(figures, max(beside * (height // LEAST_CHART), 1)) // beside)
    each_height = min(height // rows, _MOST_CHART if figures > 1 else 2 * _MOST_CHART) if rows else 0
    return (beside, rows, each_height) if each_height >= LEAST_CHART and width >= _AXIS + 10 else (beside, 0, 0)


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


def _chart(graphed: Graphed, figure: FigureSpec, width: int, height: int, glyphs: Glyphs) -> Lines:
    columns = width - _AXIS - 1
    shown = columns_of(graphed.series, figure.key, graphed.span, columns, graphed.fresh_for_s)
    values = [value for value in chain.from_iterable(shown.bands) if not math.isnan(value)]
    axis = RATIO if figure.unit == "ratio" or not values else graphed.axis(figure, values)
    lines = [_title(figure, shown, graphed, width, glyphs)]
    for place, text in enumerate(chart(shown.bands, axis, height - 1, glyphs)):
        end = axis[1] if place == 0 else axis[0] if place == height - 2 else None
        label = ""
        if end is not None and values:
            label = f"{100 * end:.0f}%" if figure.unit == "ratio" else FORMATS[figure.unit].cell(end)
        line = Line(width).add(label.rjust(_AXIS - 1), DIM).add(glyphs.tick if label else glyphs.axis, DIM)
        if place == height - 2:
            _add_states(line, text, shown.states, graphed.badge)
        else:
            line.add(text.rstrip(), GRAPH)
        lines.append(line.segments())
    return lines


def _add_states(line: Line, text: str, states: Sequence[State | None], badge: Callable[[State], Badge]) -> None:
    """Adds the lowest line of a chart: where the worker had no figures, the mark of its state."""
    at = 0
    for state, columns in groupby(states):
        count = len(list(columns))
        here = text[at : at + count]
        at += count
        if state is None:
            line.add(here if at < len(text) else here.rstrip(), GRAPH)
        else:
            line.add(badge(state).mark * count, badge(state).style)


def _title(figure: FigureSpec, shown: SpanColumns, graphed: Graphed, width: int, glyphs: Glyphs) -> list[Segment]:
    """The figure and the span; where there is room, its least and greatest value in it, and what the marks mean.

    Without the span, a graph of what was looks like one of now: all else gives way to it.
    """
    words = graphed.words
    label = cut(figure.label, max(width - len(words) - 4, _LEAST_LABEL), glyphs.ellipsis)
    line = Line(width).fill(2).add(label, BOLD).fill(2, DIM)
    ends = "none"
    if shown.ends is not None:
        form = FORMATS[figure.unit]
        ends = f"{form.cell(shown.ends[0])} {glyphs.dash} {form.cell(shown.ends[1])}{form.unit}"
    badges = [graphed.badge(state) for state in dict.fromkeys(shown.states) if state]
    marks = "".join(f", {badge.mark} {badge.word}" for badge in badges)
    texts = (f"{ends}, {words}{marks}", f"{ends}, {words}", f"{words}{marks}")
    text = next((text for text in texts if len(text) <= line.room), words)
    return line.add(cut(text, line.room, glyphs.ellipsis), DIM).segments()
