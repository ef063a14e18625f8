"""The parts of a worker's step, beside those of its slice."""

from __future__ import annotations

from tpumon.analysis import WorkerStatus
from tpumon.model import Figures
from tpumon.model.figure_table import STEP, STEP_PARTS
from tpumon.outputs.drawing.cells import percent, step_cell, step_word
from tpumon.outputs.drawing.line import Line, Lines, tame
from tpumon.outputs.drawing.stable_axes import StableAxes
from tpumon.outputs.drawing.style import BOLD, Glyphs
from tpumon.outputs.live.parts.tables import TableColumn, add_bar, table
from tpumon.outputs.live.worker.slice_medians import SliceMedians

_NAME = 20
LEAST_SHARE = 0.0005  # that is not 0.0%
_NOISE = 0.03  # of a step: parts that differ less from the slice's do so by chance


def part_table(figures: Figures, medians: SliceMedians, width: int, glyphs: Glyphs) -> Lines:
    """A line per part: its time, its share of the step, the slice's median, and a bar."""
    parts, usual = figures.step_parts_s, medians.parts_s
    if not parts:
        return []
    whole = STEP.value(figures) or max(parts.values())
    shares = [value / whole if whole > 0 else 0.0 for value in parts.values()]
    columns = [
        TableColumn("TIME", list(map(step_word, parts.values())), 8),
        TableColumn("SHARE", list(map(percent, shares)), 7),
    ]
    if usual:
        times = [step_word(usual.get(key, 0.0)) for key in parts]
        columns.append(TableColumn(medians.word.upper(), times, 9, dim=True))
    names = TableColumn("PARTS OF A STEP", [STEP_PARTS.get(key, key) for key in parts], _NAME)
    title, *rows = table([names], columns, width, glyphs)
    for line, share in zip(rows, shares, strict=True):
        add_bar(line, share, line.room - 4, glyphs)
    return [line.segments() for line in (title, *rows)]


def part_line(row: WorkerStatus, medians: SliceMedians, stable_axes: StableAxes, width: int, glyphs: Glyphs) -> Lines:
    """The parts in one line, as many as fit; beside each the slice's median.

    Parts that differ from the slice's come first, then the greatest; none moves while figures only jitter.
    """
    figures = Figures() if row.sample is None else row.sample.figures
    parts, usual, whole_s = figures.step_parts_s, medians.parts_s, STEP.value(figures) or 0.0
    if not parts or whole_s <= 0:
        return []
    places = {}
    for name, value in parts.items():
        differs = abs(value - usual.get(name, value))
        places[name] = (
            -stable_axes.size((row.name, name, "differs"), differs, _NOISE * whole_s),
            -stable_axes.size((row.name, name), value, LEAST_SHARE * whole_s),
        )
    line = Line(width).fill(2).add("A step:".ljust(10), BOLD)
    for name in sorted(places, key=places.__getitem__):
        value, words = parts[name], STEP_PARTS.get(name, name).lower().replace("flops", "FLOPS")
        if usual and name not in usual:
            continue
        if usual:
            text = f"{words} {step_word(value)}, {medians.word} {step_cell(usual[name])}"
        else:
            text = f"{words} {percent(value / whole_s)}"
        text = tame(text, ascii_only=glyphs.ascii)
        if max(value, usual.get(name, 0.0)) >= LEAST_SHARE * whole_s and line.room >= len(text) + 3:
            line.add(text if line.room == width - 12 else f"{glyphs.dot}{text}")
    return [line.segments()]
