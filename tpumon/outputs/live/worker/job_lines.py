"""The kind of a worker's job, and the programs of a server."""

from __future__ import annotations

from collections.abc import Sequence

from tpumon.model import Figures, JobKind
from tpumon.model.server_figures import families_of
from tpumon.outputs.drawing.cells import NOT_KNOWN, number, percent, step_cell, step_word
from tpumon.outputs.drawing.line import Line, Lines, cut, plain, tame
from tpumon.outputs.drawing.style import BOLD, DIM, Glyphs
from tpumon.outputs.live.parts.tables import TableColumn, table

_NAME = 12


def kind_line(kind: JobKind | None, width: int, glyphs: Glyphs) -> Lines:
    """The kind of a job, and what that rests on: a line, or none where nothing is known."""
    if kind is None or (kind.kind == "unknown" and not kind.evidence):
        return []
    words = tame("; ".join(kind.evidence), ascii_only=glyphs.ascii)
    named = "unknown kind of job" if kind.kind == "unknown" else f"{kind.kind} job"
    return [plain(cut(f" {named}{words and ': '}{words}", width, glyphs.ellipsis), width, DIM)]


def family_line(figures: Figures, width: int, glyphs: Glyphs) -> Lines:
    """The same in one line, as much as fits; none of a server without programs."""
    families = families_of(figures)
    if not families:
        return []
    line = Line(width).fill(2).add("Programs:".ljust(10), BOLD)
    for place, each in enumerate(families):
        late = None if each.duration_s is None else each.duration_s.p95
        words = f"{each.family} {percent(each.time_ratio)} {number(each.executions_per_s)}/s p95 {step_word(late)}"
        if line.room >= len(words) + len(glyphs.dot):
            line.add(f"{glyphs.dot if place else ''}{words}")
    return [line.segments()]


def family_table(figures: Figures, width: int, glyphs: Glyphs) -> Lines:
    """A line per family of a server's programs: share of their time, runs per second, durations, and sizes."""
    families = families_of(figures)
    if not families:
        return []
    times = [each.duration_s for each in families]
    columns = [
        TableColumn("TIME", [percent(each.time_ratio) for each in families], 7),
        TableColumn("RUNS/s", [number(each.executions_per_s) for each in families], 8),
        TableColumn("p50 ms", [step_cell(None if each is None else each.p50) for each in times], 8),
        TableColumn("p95 ms", [step_cell(None if each is None else each.p95) for each in times], 8),
        TableColumn("SIZES", [_ends_of(each.sizes, glyphs.dash) for each in families], 11),
    ]
    names = TableColumn("PROGRAMS", [each.family for each in families], _NAME)
    return [line.segments() for line in table([names], columns, width, glyphs)]


def _ends_of(sizes: Sequence[int], dash: str) -> str:
    if not sizes:
        return NOT_KNOWN
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]}{dash}{sizes[-1]}"
