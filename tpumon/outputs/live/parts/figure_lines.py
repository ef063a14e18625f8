"""The figures of one worker now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tpumon.analysis import WorkerStatus
from tpumon.model import Figures
from tpumon.model.figure_table import COMPARED, STEP, Figure
from tpumon.outputs.live.drawing.cells import FORMATS, NOT_KNOWN, gib
from tpumon.outputs.live.drawing.graphs import bar
from tpumon.outputs.live.drawing.line import Line, Lines, cut, tame
from tpumon.outputs.live.drawing.style import BOLD, DIM, GRAPH, LOOKS, Glyphs
from tpumon.outputs.live.parts.peers import ALONE, Peers

_NAME = 10
_VALUE = 9
_LEAST_BAR = 10
_MOST_BAR = 50
_WITH_DECIMALS = 32


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


def short_lines(row: WorkerStatus, width: int, level: int) -> Lines:
    """The most important figures in one line, or more on a narrow screen: `MXU 40.0%  idle 10.0%  step 62.7ms`."""
    if row.sample is None:
        return []
    style = LOOKS[row.verdict.mark].style
    lines = [Line(width)]
    for figure in COMPARED.values():
        if figure.level > level or not figure.always_shown:
            continue
        form = FORMATS[figure.unit]
        short = form.short if width < _WITH_DECIMALS and figure.unit == "ratio" else form.word
        title, value = figure.label if figure.label.isupper() else figure.key, short(figure.value(row.sample.figures))
        if lines[-1].room < len(title) + len(value) + 1 + 2 * (lines[-1].room < width):
            lines.append(Line(width))
        marked = style if row.marks(figure.key) else BOLD
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


def figure_lines(row: WorkerStatus, width: int, level: int, glyphs: Glyphs, peers: Peers = ALONE) -> Lines:
    """A line per figure: name, value, bar and details; if it is absent, the reason."""
    if row.sample is None:
        return []
    look = LOOKS[row.verdict.mark]
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
        line.add(value.rjust(_VALUE), look.style if row.marks(figure.key) else BOLD)
        if line.room > 8:
            filled, track = bar(ratio, bar_width, glyphs)
            line.fill(2).add(filled, GRAPH).add(track, DIM)
            gap = 2 if ratio is not None else 0
            line.fill(gap).add(cut(more, line.room, glyphs.ellipsis) if line.room > 4 else "")
        lines.append(line.segments())
    return lines
