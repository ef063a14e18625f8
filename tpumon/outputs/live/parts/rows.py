"""A row per worker; columns disappear by priority as the screen gets narrower."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment

from tpumon.analysis import WorkerStatus
from tpumon.model import Cause, Sample
from tpumon.model.figure_spec import FigureSpec, serves
from tpumon.model.figure_table import HBM, MXU, NAME, WORST
from tpumon.outputs.drawing.cells import FORMATS, NOT_KNOWN, age, gib
from tpumon.outputs.drawing.graphs import RATIO, Axis, soft_axis, soft_ratio_axis, spark
from tpumon.outputs.drawing.line import Line, cut, tame
from tpumon.outputs.drawing.names import short_processes
from tpumon.outputs.drawing.style import BOLD, DIM, GRAPH, SORTED, badge_of, state_badge
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.parts.scene import Scene, methods
from tpumon.outputs.live.parts.waiting import waiting_words

_COMPACT = 32
"""Below this width figures have no decimals."""

_COMPACT_WIDTH = 4
LEAST_SPARK = 8
_GOOD_SPARK = 18
_MOST_SPARK = 60
_LEAST_NOTE = 12
_PROCESS = "PROCESS"
_LEAST_PROCESS, _MOST_PROCESS = len(_PROCESS), 26
_LEAST_LABEL = 20
"""Names of up to this many cells are never shortened where there is room."""
_TRUNCATED = "truncated trace"


class WorkerColumn(Struct, frozen=True, kw_only=True):
    """One column of the list of workers.

    Attributes:
        key: the figure, if rows can be sorted by it.
        title: the text above it.
        width: cells, without the gap before it.
        text: what it shows of a present sample.
        level: the monitoring level that it needs.
        needs: key of the figure that some worker must have had; None: always shown.
    """

    key: str
    title: str
    width: int
    text: Callable[[Sample], str]
    level: int = 2
    needs: str | None = None


class Sparks(NamedTuple):
    """A column of sparklines."""

    figure: FigureSpec
    width: int
    axis: Axis


def _columns(applicable: Sequence[FigureSpec]) -> list[WorkerColumn]:
    """A column for each figure that workers are compared by."""
    return [
        WorkerColumn(
            key=figure.key,
            title=figure.title,
            width=max(FORMATS[figure.unit].width, len(figure.title)),
            text=_writer(figure, FORMATS[figure.unit].cell),
            needs=None if figure.always_shown else figure.key,
        )
        for figure in applicable
    ]


def _compact_columns(applicable: Sequence[FigureSpec]) -> list[WorkerColumn]:
    """The most important figures, in four cells each."""
    return [
        WorkerColumn(
            key=figure.key,
            title=short_title(figure)[:_COMPACT_WIDTH],
            width=_COMPACT_WIDTH,
            text=_writer(figure, FORMATS[figure.unit].short),
        )
        for figure in applicable
        if figure.always_shown
    ]


def _wide_columns(applicable: Sequence[FigureSpec], level: int) -> list[WorkerColumn]:
    """Columns that appear only if they leave enough room for sparklines; the first come first."""
    ranges = [_range_column(figure) for figure in applicable if figure.range is not None]
    columns = (
        *ranges[:1],
        WorkerColumn(key="", title="HBM GiB", width=11, text=_hbm_sizes, needs=HBM.key),
        WorkerColumn(key="", title="FIGURES FROM", width=20, text=_sources, level=1, needs=MXU.key),
        *ranges[1:],
    )
    return [column for column in columns if column.level <= level]


def _range_column(figure: FigureSpec) -> WorkerColumn:
    title = f"{short_title(figure)} min-max"
    form, ends = FORMATS[figure.unit], figure.range
    assert ends is not None

    def text(sample: Sample) -> str:
        low_high = ends(sample.figures)
        if low_high is None:
            return NOT_KNOWN
        low, high = map(form.cell, low_high)
        return f"{low.removesuffix('%')}-{high}"

    return WorkerColumn(key="", title=title, width=max(2 * form.width - 2, len(title)), text=text, needs=figure.key)


def _writer(figure: FigureSpec, form: Callable[[float | None], str]) -> Callable[[Sample], str]:
    return lambda sample: form(figure.value(sample.figures)) if figure.applies_to(sample) else ""


def short_title(figure: FigureSpec) -> str:
    """The title of a figure without its unit: STEP."""
    return figure.title.partition(" ")[0]


def _hbm_sizes(sample: Sample) -> str:
    used_total = HBM.size_bytes(sample.figures)
    return NOT_KNOWN if used_total is None else f"{gib(used_total[0])}/{gib(used_total[1])}"


def _sources(sample: Sample) -> str:
    sources = [*methods(sample).values(), _TRUNCATED if sample.truncated else None]
    return "/".join(dict.fromkeys(method for method in sources if method is not None and method != "server"))


class Rows:
    """Layout of the rows of a frame."""

    def __init__(self, frame: Frame) -> None:
        scene, width, level, seen = frame.scene, frame.width, frame.level, frame.seen
        self._frame = frame
        self._scene = scene
        self._width = width
        self._glyphs = frame.glyphs
        self._sort = frame.controls.order.by
        self._sorted = frame.glyphs.sorted[frame.controls.order.reverse]
        self._compact = width < _COMPACT
        self._gap = 1 if self._compact else 2
        self._before = 1 if self._compact else 3
        applicable = [figure for figure in scene.applicable if figure.level <= level]
        offered = _compact_columns(applicable) if self._compact else _columns(applicable)
        self._columns = [column for column in offered if column.needs is None]
        room = width - self._before - sum(column.width + self._gap for column in self._columns)
        most = min(max(_LEAST_LABEL, width // 6), room)
        self._labels = scene.labels.at(most)
        self._name_width = max(min(scene.labels.width_at(most), room), min(len("WORKER"), room))
        room -= self._name_width
        self._processes, self._process_width = self._fitting_processes(room)
        room -= self._process_width
        wide = [] if self._compact else _wide_columns(applicable, level)
        for column in (*offered, *wide):
            left = room - column.width - self._gap
            enough = 2 * (_GOOD_SPARK + self._gap) if column in wide else 0
            if column.needs is not None and column.needs in seen and left >= enough:
                self._columns.append(column)
                room = left
        self._sparks = self._spark_columns(room - self._gap, level)
        self._tail = room
        self.title_places: list[tuple[str, int, int]] = []
        """Sort key, first cell and the cell behind the last, for each title that `titles` has drawn."""

    def _fitting_processes(self, room: int) -> tuple[Mapping[str, str], int]:
        """Processes that tell rows apart, and the cells that they take, the gap before them included."""
        most = min(_MOST_PROCESS, room - self._gap)
        if self._compact or most < _LEAST_PROCESS:
            return {}, 0
        ascii_only, ellipsis = self._glyphs.ascii, self._glyphs.ellipsis
        processes = short_processes(self._scene.rows)
        short = {name: cut(tame(text, ascii_only=ascii_only), most, ellipsis) for name, text in processes.items()}
        return short, self._gap + max(map(cell_len, [_PROCESS, *short.values()])) if short else 0

    def _spark_columns(self, room: int, level: int) -> list[Sparks]:
        """Rows share a figure's axis, so that a worker that differs stands out."""
        if room < LEAST_SPARK:
            return []
        figures = [figure for figure in self._scene.leading if figure.level <= level]
        figures = figures[: max(room // _GOOD_SPARK, 1)]
        each = min((room - self._gap * (len(figures) - 1)) // max(len(figures), 1), _MOST_SPARK)
        return [Sparks(figure, each, axis_of(self._scene, figure)) for figure in figures]

    def titles(self) -> list[Segment]:
        """The column titles, with an arrow at the one that rows are sorted by; by worst, above the marks."""
        line = Line(self._width).fill(self._before - 2)
        line.add(self._sorted if self._sort == WORST else " ", BOLD).fill(min(self._before, 2) - 1)
        line.add("WORKER"[: self._name_width], SORTED if self._sort == NAME else BOLD)
        # Behind the title, as the arrow of the order by worst stands before it.
        line.add(self._sorted if self._sort == NAME else "", BOLD)
        at = self._before + self._name_width
        self.title_places = [(WORST, 0, self._before - 1), (NAME, self._before - 1, at)]
        if self._processes:
            line.fill(at + self._gap - (self._width - line.room)).add(_PROCESS, BOLD)
            at += self._process_width
        for column in self._columns:
            self.title_places += [(column.key, at, at + self._gap + column.width)] if column.key else []
            at += self._gap + column.width
            is_sorted = column.key == self._sort
            line.fill(at - len(column.title) - is_sorted - (self._width - line.room))
            line.add(self._sorted if is_sorted else "", BOLD).add(column.title, SORTED if is_sorted else BOLD)
        line.fill(at - (self._width - line.room))
        for sparks in self._sparks:
            title = cut(axis_title(sparks.figure, sparks.axis), sparks.width, self._glyphs.ellipsis)
            line.fill(self._gap).add(title.ljust(sparks.width), BOLD)
        return line.segments()

    def row(self, row: WorkerStatus, now_unix_s: float, *, selected: bool) -> list[Segment]:
        badge = badge_of(row)
        line = Line(self._width)
        if not self._compact:
            line.add(self._glyphs.cursor if selected else " ", BOLD)
        line.add(badge.mark, badge.style).fill(self._before - 2)
        label = self._labels.get(row.name, "")
        line.add(label, SORTED if selected else None).fill(line.room - (self._width - self._before - self._name_width))
        if self._processes:
            line.fill(self._gap).add(self._processes.get(row.name, ""), DIM)
            line.fill(line.room - (self._width - self._before - self._name_width - self._process_width))
        if not has_figures(row):
            return self._absent(line, row, now_unix_s)
        for column in self._columns:
            self._figure(line, column, row)
        return self._history(line, row)

    def _figure(self, line: Line, column: WorkerColumn, row: WorkerStatus) -> None:
        text = NOT_KNOWN if row.sample is None else column.text(row.sample)
        if len(text) > column.width:  # a figure is never cut
            text = self._glyphs.ellipsis
        stands_out = column.key and row.marks(column.key)
        style = DIM if text == NOT_KNOWN else badge_of(row).style if stands_out else None
        line.add(text.rjust(self._gap + column.width), style)

    def _history(self, line: Line, row: WorkerStatus) -> list[Segment]:
        """Sparklines; the worst cause, if there is one, takes the room at their end."""
        words = [cause.words for cause in row.verdict.marking[:1]]
        words += [_TRUNCATED] if row.sample is not None and row.sample.truncated else []
        causes = tame(", ".join(words), ascii_only=self._glyphs.ascii)
        note = 0
        least = 0 if row.verdict.severity == "unknown" else LEAST_SPARK  # without figures there is little history
        if causes and self._sparks and self._tail >= LEAST_SPARK + _LEAST_NOTE + 2 * self._gap:
            note = min(cell_len(causes), self._tail - least - 2 * self._gap)
        trend = self._scene.trend_of(row)
        end = line.room - (self._tail - note - self._gap if note else self._tail)
        for sparks in self._sparks:
            room = min(sparks.width, line.room - end - self._gap)
            if room > 0:
                values = trend.last(sparks.figure.key, room)
                line.fill(self._gap).add(spark(values, sparks.axis, room, self._glyphs), GRAPH)
        if note:
            line.fill(line.room - note).add(cut(causes, note, self._glyphs.ellipsis), badge_of(row).style)
        return line.segments()

    def _absent(self, line: Line, row: WorkerStatus, now_unix_s: float) -> list[Segment]:
        """State of a worker without figures, and for how long; after n/a cells if there is room."""
        badge = badge_of(row)
        words = absent_words(row, now_unix_s)
        findings = (cause for cause in row.verdict.reasons if cause.finding is not None)
        message = next(cause_words(findings), row.history.failure_words)
        if row.verdict.state == "waiting" or (row.verdict.state == "stale" and not message):  # a pause is over
            message = waiting_words(self._frame, row)
        columns = self._columns if row.sample is not None else [one for one in self._columns if one.needs is None]
        if line.room - sum(column.width + self._gap for column in columns) >= len(words) + _LEAST_NOTE:
            for column in columns:
                self._figure(line, column, row)
        line.fill(self._gap)
        text = tame(f"{words}: {message}" if message else words, ascii_only=self._glyphs.ascii)
        return line.add(cut(text, line.room, self._glyphs.ellipsis), badge.style).segments()


def axis_of(scene: Scene, figure: FigureSpec) -> Axis:
    """The axis of a figure's sparklines: covers all workers now, and their average over the last minutes."""
    values = scene.trend_of_fleet().last(figure.key, _MOST_SPARK)
    across = scene.figures.get(figure.key)
    if across is not None:
        values += [across.min, across.max]
    wanted = soft_ratio_axis(values) if figure.unit == "ratio" else soft_axis(values, least_share=0.5)
    if not any(map(math.isfinite, values)):
        return wanted
    return scene.stable_axes.axis(figure.key, values, wanted, scene.time_unix_s)


def axis_title(figure: FigureSpec, axis: Axis) -> str:
    """A figure and the range of its sparklines: `MXU 20-45%`."""
    low, high = axis
    if axis == RATIO and figure.unit != "ratio":  # nothing is known yet
        return short_title(figure)
    if figure.unit == "ratio":
        return f"{short_title(figure)} {100 * low:.0f}-{100 * high:.0f}%"
    if figure.unit == "seconds":
        return f"{short_title(figure)} {low * 1000:g}-{high * 1000:g} ms"
    return f"{short_title(figure)} {low:g}-{high:g}"


def has_figures(row: WorkerStatus) -> bool:
    """True if its figures are current: it is live, or serves, and those cover more than the last window."""
    waits = row.verdict.state == "no-activity" and row.sample is not None and serves(row.sample)
    return waits or row.verdict.state == "live"


def absent_words(row: WorkerStatus, now_unix_s: float) -> str:
    """The state of a worker without figures: STALE 35s, DOWN 2h05m, WAITING; from the first look on: DOWN >20s."""
    word = state_badge(row).word.upper()
    return word if row.verdict.state == "waiting" else f"{word} {lasting(row, now_unix_s)}".rstrip()


def lasting(row: WorkerStatus, now_unix_s: float) -> str:
    """Time in its state: 35s; at least so long: >35s; empty if that is not known."""
    since_unix_s = row.verdict.since_unix_s
    return "" if since_unix_s is None else f"{'>' * row.verdict.since_or_earlier}{age(now_unix_s - since_unix_s)}"


def cause_words(causes: Iterable[Cause]) -> Iterator[str]:
    """Words of the causes that mark a worker, and of a hang: `may hang` while it is no alarm."""
    for cause in causes:
        if cause.finding == "hang":
            yield f"{'may ' if cause.severity == 'info' else ''}hang: {cause.words}"
        elif cause.severity != "info":
            yield cause.words
