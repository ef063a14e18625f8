"""The list of workers: a row each; above them a summary of a large fleet, below few rows a preview of one."""

from __future__ import annotations

from operator import methodcaller

from rich.segment import Segment

from tpumon.analysis.history import WELL
from tpumon.outputs.drawing.line import Line, Lines, cut, plain, tame
from tpumon.outputs.drawing.style import BADGES, BOLD, DIM
from tpumon.outputs.live.parts import fleet_lines
from tpumon.outputs.live.parts.findings import marking, worst_line
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.parts.rows import Rows, axis_of, axis_title
from tpumon.outputs.live.screens.screen import SPAN_KEYS, Hit, Key, Picture, Screen
from tpumon.outputs.live.worker.worker_page import WorkerPage

_FEW = 16
"""Up to this many workers need no fleet_lines."""

_ROOMY = 28
_LEAST_PREVIEW = 4
_ROOMY_PREVIEW = 9
_LEAST_SUMMARY = 9

OPEN_WORKER = Key(
    names=("enter",),
    hint="open",
    words="open the worker's page, with all its figures; Esc goes back",
    press=lambda controls, _: controls.open_worker(),
)


class WorkersScreen(Screen):
    """All workers, unless the filter hides some; the worst first."""

    name = "workers"
    title = "the list of workers"
    keys = (
        OPEN_WORKER,
        Key(
            names=("/",),
            hint="filter",
            words="show only workers whose name, address or slice contains what you type, or in that state or with "
            "that finding (hang); Esc shows all",
            press=lambda controls, _: controls.start_typing(),
        ),
        Key(
            names=("s", "S"),
            words="sort by the next figure, the worst first (s), or in reverse (S), at once; later figures move rows "
            "every 5 s (held)",
            press=lambda controls, key: controls.sort(reverse=key == "S"),
        ),
        Key(
            names=("f",),
            hint=lambda controls: kind_words(controls.next_kind()) or "all",
            words="show only workers that are not ok, then those of each state or severity, then all; of one finding: "
            "/ and its name",
            press=lambda controls, _: controls.show_next_kind(),
        ),
        Key(
            names=("up", "down", "k", "j"),
            hint="choose",
            words="choose a worker",
            press=lambda controls, key: controls.choose(-1 if key in {"up", "k"} else 1),
        ),
        Key(
            names=("pageup", "pagedown"),
            words="choose a worker one page up or down",
            press=lambda controls, key: controls.choose(-controls.page if key == "pageup" else controls.page),
        ),
        Key(
            names=("g", "home", "G", "end"),
            words="show the first rows (g, Home), or choose the last worker (G, End)",
            press=lambda controls, key: controls.choose_end(first=key in {"g", "home"}),
        ),
        *SPAN_KEYS,
    )

    def draw(self, frame: Frame) -> Picture:
        """Summary, rows, and a preview or a line about the worst."""
        total = len(frame.scene.rows)
        notes = filter_notes(frame)
        if not frame.rows:
            return Picture(lines=[_no_match(frame)][: frame.height], position=f"0/{total}", notes=notes)
        if total > 1:
            order = frame.controls.order
            notes.append(f"s sort:{order.by}{' reversed' * order.reverse}{' held' * order.keeps_places}")
        table, worst = Rows(frame), worst_line(frame)
        above = _above(frame, table, worst)
        page = min(max(frame.height - len(above), 0), len(frame.rows))
        below = _preview(frame, frame.height - len(above) - page, worst)
        top = _top(frame, max(page, 1))
        visible = frame.rows[top : top + page]
        rows = [table.row(row, frame.now_unix_s, selected=row.name == frame.controls.selected) for row in visible]
        first = len(above)
        hits = [Hit(first + i, 0, frame.width, methodcaller("click", row.name)) for i, row in enumerate(visible)]
        hits += [Hit(first - 1, begin, end, methodcaller("sort_by", key)) for key, begin, end in table.title_places]
        lines = [*above, *rows, *below][: frame.height]
        hits += [Hit(place, 0, frame.width, "w") for place, line in enumerate(lines) if worst and line is worst[0]]
        among = f"{len(frame.rows)} of {total}" if len(frame.rows) < total else f"{total}"
        return Picture(
            lines=lines,
            position=f"{top + 1}-{top + len(visible)}/{among}" if visible else f"0/{among}",
            page=max(page, 1),
            top=top,
            notes=notes,
            hits=hits,
        )


def filter_notes(frame: Frame) -> list[str]:
    """Filters that hide workers, for the footer."""
    notes = [f"/{tame(frame.controls.filter, ascii_only=frame.glyphs.ascii)[:20]}"] if frame.controls.filter else []
    return [*notes, kind_words(frame.controls.kind)] if frame.controls.kind else notes


def kind_words(kind: str) -> str:
    """Words of the footer for a kind of workers."""
    return next((badge.word for name, badge in BADGES.items() if name == kind), kind)


def _no_match(frame: Frame) -> list[Segment]:
    kinds = f" that is {kind_words(frame.controls.kind)}" if frame.controls.kind else ""
    named = f" matches /{tame(frame.controls.filter, ascii_only=frame.glyphs.ascii)}" if frame.controls.filter else ""
    line = f" no worker{kinds}{named}; Esc shows all"
    return plain(cut(line, frame.width, frame.glyphs.ellipsis), frame.width)


def _top(frame: Frame, page: int) -> int:
    """Place of the first visible row: the worker at the cursor stays in sight."""
    place = next((place for place, row in enumerate(frame.rows) if row.name == frame.controls.selected), None)
    if place is None:
        return 0
    top = min(max(frame.controls.top, place - page + 1), place)
    return max(min(top, len(frame.rows) - page), 0)


def _above(frame: Frame, table: Rows, worst: Lines) -> Lines:
    height = frame.height
    above: Lines = []
    if len(frame.scene.rows) > _FEW or len(frame.rows) + 1 > height:
        above = _summary(frame)
    if height >= _LEAST_SUMMARY and len(above) + 1 + len(frame.rows) >= height:
        above += worst or _worst(frame)  # there is no room for it below the rows
    if height - len(above) >= 4:
        above.append(table.titles())
    return above


def _summary(frame: Frame) -> Lines:
    """The fleet in as many lines as the height allows."""
    height = frame.height
    figures = fleet_lines.figures(frame.scene, frame.level)
    if height < _LEAST_SUMMARY:
        return []
    if height < 15:
        return [fleet_lines.one_line(frame.scene, figures, frame.width)]
    lines = fleet_lines.figure_lines(frame.scene, figures[: 3 if height < 18 else None], frame.width, frame.glyphs)
    lines.append(fleet_lines.counts_line(frame.scene, frame.width))
    if height >= 18:
        most = max(height // 8, 1)
        size = fleet_lines.strip_size(len(frame.scene.rows), frame.width, most)
        each = "" if size == 1 else f", in each cell the worst of {size}"
        use = frame.scene.leading[0]
        title = f"ALL WORKERS, {axis_title(use, axis_of(frame.scene, use))}{each}"
        blank: Lines = [[]] if height >= _ROOMY else []
        lines += [*blank, plain(f" {title}", frame.width, BOLD)]
        lines += [*fleet_lines.strip(frame.scene, frame.width, most, frame.glyphs), *blank]
    return lines


def _preview(frame: Frame, room: int, worst: Lines) -> Lines:
    """Below few rows: the worst finding, then the chosen worker, or the first, in more detail; or just the worst."""
    row = next((row for row in frame.rows if row.name == frame.controls.selected), frame.rows[0])
    if room >= _LEAST_PREVIEW and [one.workers for one in marking(frame.scene)] == [(row.name,)]:
        worst = []  # the preview says so
    if room - len(worst) < _LEAST_PREVIEW:
        return (worst or _worst(frame))[:room]
    room -= len(worst)
    rule = Line(frame.width).add(frame.glyphs.rule * frame.width, DIM).segments()
    above: Lines = [[], rule] if room >= _ROOMY_PREVIEW else [rule]
    return [*worst, *above, *WorkerPage(frame, row).preview_lines(room - len(above))]


def _worst(frame: Frame) -> Lines:
    """One line about the worst live worker, as rows do not say since when; no line if all are ok."""
    marked = [row for row in frame.rows if row.verdict.state == "live" and row.verdict.severity not in WELL]
    worst = min(marked, key=lambda row: (row.verdict.rank, -row.verdict.excess), default=None)
    return [] if worst is None else [WorkerPage(frame, worst).verdict_line()]
