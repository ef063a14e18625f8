"""The figures of one worker now."""

from __future__ import annotations

from collections.abc import Iterator

from tpumon.analysis import WorkerStatus
from tpumon.model import Figures, Sample
from tpumon.model.figure_spec import FigureSpec, is_on_cpu
from tpumon.model.figure_table import FIGURES, STEP, applicable_figures
from tpumon.outputs.drawing.cells import FORMATS, gib
from tpumon.outputs.drawing.graphs import bar
from tpumon.outputs.drawing.line import Line, Lines, cut, tame
from tpumon.outputs.drawing.style import BOLD, DIM, GRAPH, Glyphs, badge_of
from tpumon.outputs.live.worker.slice_medians import ALONE, SliceMedians

_NAME = 10
_VALUE = 9
_LEAST_BAR = 10
_MOST_BAR = 50
_WITH_DECIMALS = 32
_WITH_NAMES, _SHORT_NAME = 30, 6


def _shown(sample: Sample, level: int) -> list[FigureSpec]:
    """Compared figures in the table's order that are present, always shown, or absent for a known reason.

    On a CPU also those of the host: there is little else.
    """
    figures = sample.figures
    hosts = [figure for figure in FIGURES if figure.origin == "host" and figure.applies_to(sample)]
    return [
        figure
        for figure in (*applicable_figures([sample]), *(hosts if is_on_cpu(sample) else ()))
        if figure.level <= level
        and (figure.value(figures) is not None or figure.always_shown or figure.why_absent(figures) is not None)
    ]


def _details(figure: FigureSpec, figures: Figures, glyphs: Glyphs, medians: SliceMedians) -> Iterator[str]:
    """The median of its slice, the range over the steps, sizes, and the method."""
    form = FORMATS[figure.unit]
    usual = medians.figures.get(figure.key)
    if usual is not None:
        yield f"{medians.word} {form.word(usual)}"
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
    style = badge_of(row).style
    lines = [Line(width)]
    for figure in applicable_figures([row.sample]):
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
    "host": "by host steps",
    "libtpu": "by libtpu's duty cycle",
    "programs": "by programs in traces",
    "median": "median run",
}


def figure_lines(row: WorkerStatus, width: int, level: int, glyphs: Glyphs, medians: SliceMedians = ALONE) -> Lines:
    """A line per figure: name, value, bar and details; if it is absent, the reason."""
    if row.sample is None:
        return []
    figures = row.sample.figures
    shown = {figure: ", ".join(_details(figure, figures, glyphs, medians)) for figure in _shown(row.sample, level)}
    longest = max(
        (len(more) for figure, more in shown.items() if figure.unit == "ratio" and figure.value(figures) is not None),
        default=0,
    )
    wide = width >= _WITH_NAMES
    name_width = max([_NAME, *(len(figure.label) + 1 for figure in shown)]) if wide else _SHORT_NAME
    bar_width = min(max(width - 2 - name_width - _VALUE - 5 - longest, _LEAST_BAR), _MOST_BAR)
    lines = []
    for figure, more in shown.items():
        value = figure.value(figures)
        line = Line(width).fill(2 if wide else 0).add(figure.label.ljust(name_width), BOLD)
        text = FORMATS[figure.unit].word(value).rjust(_VALUE)
        if value is None:
            reason = tame(figure.why_absent(figures) or "", ascii_only=glyphs.ascii)
            lines.append(line.add(text, DIM).fill(2).add(cut(reason, line.room, glyphs.ellipsis), DIM).segments())
            continue
        line.add(text, badge_of(row).style if row.marks(figure.key) else BOLD)
        if line.room > 8:
            line.fill(2)
            if figure.unit == "ratio":
                filled, track = bar(value, bar_width, glyphs)
                line.add(filled, GRAPH).add(track, DIM).fill(2)
            line.add(cut(more, line.room, glyphs.ellipsis) if line.room > 4 else "")
        lines.append(line.segments())
    return lines
