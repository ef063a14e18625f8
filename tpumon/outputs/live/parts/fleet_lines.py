"""A fleet in a few lines: mean, min and max of each figure, workers by state, and a strip of all workers."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from tpumon.analysis import FigureStats, WorkerStatus
from tpumon.analysis.history import State
from tpumon.model import Severity
from tpumon.model.figure_spec import FigureSpec
from tpumon.outputs.drawing.cells import FORMATS, clock, short_time
from tpumon.outputs.drawing.graphs import Axis, level, spark
from tpumon.outputs.drawing.line import Line
from tpumon.outputs.drawing.style import BADGES, BOLD, DIM, GRAPH, Glyphs
from tpumon.outputs.live.parts.rows import LEAST_SPARK, axis_of
from tpumon.outputs.live.parts.scene import Scene

_COUNTED: tuple[Severity | State, ...] = (
    "ok",
    "info",
    "critical",
    "warning",
    "down",
    "no-activity",
    "stale",
    "unknown",
    "busy",
    "continuous",
    "paused",
    "waiting",
)
_CELL = 8
_COUNT = 11
_MOST_WHO = 8


def figures(scene: Scene, level: int) -> list[FigureSpec]:
    """Figures to show: figures that some worker has had, and figures that are always shown."""
    return [
        figure
        for figure in scene.applicable
        if figure.level <= level and (figure.always_shown or figure.key in scene.seen)
    ]


def figure_lines(scene: Scene, figures: Sequence[FigureSpec], width: int, glyphs: Glyphs) -> list[list[Segment]]:
    """A title, and per figure a line: average, min, max with workers, number of workers, the average over time."""
    trend, who = scene.trend_of_fleet(), min(scene.labels.width_at(_MOST_WHO), _MOST_WHO)
    left = width - 1 - _CELL * 4 - _COUNT - 2 - 3  # for names and history
    names = scene.labels.at(_MOST_WHO) if left >= 2 * (who + 1) + LEAST_SPARK else {}
    cells = left - (2 * (who + 1) if names else 0)
    if any(row.verdict.state == "live" for row in scene.rows):
        span = f"LAST {short_time(trend.span_s(max(cells, 1)))}"
    else:
        span = f"UNTIL {clock(trend.end_unix_s, scene.time_unix_s)}"
    titles = Line(width).fill(1 + _CELL)
    for title in ("AVG", "MIN", "MAX"):
        titles.add(title.rjust(_CELL), BOLD).fill(who + 1 if names and title != "AVG" else 0)
    titles.add("WORKERS".rjust(_COUNT), BOLD)
    average = next((title for title in (f"AVERAGE, {span}", span) if len(title) <= cells), "")
    lines = [titles.fill(2).add(average if cells >= LEAST_SPARK else "", BOLD).segments()]
    for figure in figures:
        line = Line(width).fill(1).add(figure.title[: _CELL - 1].ljust(_CELL), BOLD)
        across = scene.figures.get(figure.key)
        for text, worker in zip(_texts(figure, across), _workers(across), strict=True):
            line.add(text.rjust(_CELL), DIM if across is None else None)
            if names and worker is not None:
                name = names.get(worker, "")
                line.fill(1).add(name, DIM).fill(who - cell_len(name))
        line.add(f"{0 if across is None else across.count}/{len(scene.rows)}".rjust(_COUNT))
        if cells >= LEAST_SPARK:
            values = trend.last(figure.key, cells)
            axis = axis_of(scene, figure)
            line.fill(2).add(spark(values, axis, min(cells, max(len(values), 1)), glyphs), GRAPH)
        lines.append(line.segments())
    return lines


def _workers(across: FigureStats | None) -> tuple[str | None, str | None, str | None]:
    """Workers beside average, min and max; "": there is none, as all are equal, or none has the figure."""
    if across is None or across.min == across.max:
        return None, "", ""
    return None, across.min_worker, across.max_worker


def one_line(scene: Scene, figures: Sequence[FigureSpec], width: int) -> list[Segment]:
    """All figures in one line: averages and ranges."""
    line = Line(width)
    for figure in figures:
        across = scene.figures.get(figure.key)
        average, low, high = _texts(figure, across)
        text = f"{average} ({low}-{high})" if across is not None else average
        if line.room >= len(figure.title) + len(text) + 3:
            line.fill(1 if line.room == width else 2).add(f"{figure.title} ", BOLD).add(text)
    return line.segments()


def counts_line(scene: Scene, width: int) -> list[Segment]:
    """Workers by state: `224 ok   X 3 critical   ! 29 warning`."""
    line = Line(width)
    counts = scene.status.counts()
    for kind in _COUNTED:
        if kind in counts:
            badge = BADGES[kind]
            text = (
                f"{counts[kind]} {badge.word}" if badge.style is None else f"{badge.mark} {counts[kind]} {badge.word}"
            )
            if line.room >= len(text) + 3:
                line.fill(1 if line.room == width else 3).add(text, badge.style)
    return line.segments()


def strip(scene: Scene, width: int, most_lines: int, glyphs: Glyphs) -> list[list[Segment]]:
    """One cell per worker in discovery order; if there are too many, per group of workers, showing the worst.

    A worker that is ok shows how much it uses its TPUs as the cell's fill, any other its mark.
    """
    room = (width - 2) * most_lines
    if room <= 0 or not scene.rows:
        return []
    size = -(-len(scene.rows) // room)
    use = scene.leading[0]
    axis = axis_of(scene, use)
    cells = [_cell(scene.rows[at : at + size], use, axis, glyphs) for at in range(0, len(scene.rows), size)]
    lines = []
    for at in range(0, len(cells), width - 2):
        line = Line(width).fill(1)
        for text, style in cells[at : at + width - 2]:
            line.add(text, style)
        lines.append(line.segments())
    return lines


def strip_size(workers: int, width: int, most_lines: int) -> int:
    """Number of workers for which one cell of the strip stands."""
    return -(-workers // max((width - 2) * most_lines, 1))


def _cell(rows: Sequence[WorkerStatus], use: FigureSpec, axis: Axis, glyphs: Glyphs) -> tuple[str, Style | None]:
    worst = min(rows, key=lambda row: row.verdict.rank)
    badge = BADGES[worst.verdict.mark]
    if badge.style is not None:
        return badge.mark, badge.style
    values = [use.value(row.sample.figures) for row in rows if row.sample is not None]
    known = [value for value in values if value is not None]
    return (level(min(known), axis, glyphs.levels), GRAPH) if known else (glyphs.levels[1], DIM)


def _texts(figure: FigureSpec, across: FigureStats | None) -> tuple[str, str, str]:
    shown = FORMATS[figure.unit].cell
    if across is None:
        return shown(None), "", ""
    return shown(across.avg), shown(across.min), shown(across.max)
