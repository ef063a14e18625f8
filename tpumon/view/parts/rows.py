"""A row per worker: columns that leave by priority as the screen gets narrower."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment

from tpumon.figures import HBM, IDLE, INFEED, MXU, STEP
from tpumon.model import Sample
from tpumon.view.drawing.cells import NOT_KNOWN, age, gib, percent, percent_short, step_cell, step_short
from tpumon.view.drawing.graphs import Axis, soft_axis, soft_ratio_axis, spark
from tpumon.view.drawing.lines import Line, cut, tame
from tpumon.view.drawing.style import BOLD, DIM, GRAPH, LOOKS, SORTED, kind_of
from tpumon.view.parts.frame import Frame
from tpumon.view.parts.scene import Row, Scene

_COMPACT = 32
"""Below so many cells figures have no decimals."""

_LEAST_SPARK = 8
_GOOD_SPARK = 18
_MOST_SPARK = 60
_LEAST_NOTE = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A figure of each row.

    Attributes:
        key: what is sorted by, where it can be.
        title: stands above.
        width: cells, without the gap before it.
        text: of a present sample.
        level: from which level on.
        needs: only once somebody had this figure; None: always.
    """

    key: str
    title: str
    width: int
    text: Callable[[Sample], str]
    level: int = 2
    needs: str | None = None


class Sparks(NamedTuple):
    """A column of sparklines."""

    figure: str
    width: int
    axis: Axis


def _range(low: str, high: str) -> str:
    return f"{low}-{high}"


def _steps(sample: Sample) -> str:
    times = sample.figures.step_time_s
    return NOT_KNOWN if times is None else _range(step_cell(times.min), step_cell(times.max))


def _infeeds(sample: Sample) -> str:
    spread = sample.figures.infeed_ratio
    return NOT_KNOWN if spread is None else _range(f"{100 * spread.min:.1f}", percent(spread.max))


def _hbm(sample: Sample) -> str:
    used_total = HBM.size_bytes(sample.figures)
    return NOT_KNOWN if used_total is None else f"{gib(used_total[0])}/{gib(used_total[1])}"


def _source(sample: Sample) -> str:
    methods = [sample.source, MXU.method(sample.figures), STEP.method(sample.figures)]
    return "/".join(dict.fromkeys(method for method in methods if method is not None and method != "server"))


_COLUMNS = (
    Column(key="mxu", title="MXU", width=6, text=lambda sample: percent(MXU.value(sample.figures)), level=1),
    Column(key="idle", title="IDLE", width=6, text=lambda sample: percent(IDLE.value(sample.figures))),
    Column(key="step", title="STEP ms", width=7, text=lambda sample: step_cell(STEP.value(sample.figures))),
    Column(
        key="infeed", title="INFEED", width=6, text=lambda sample: percent(INFEED.value(sample.figures)), needs="infeed"
    ),
    Column(key="hbm", title="HBM", width=6, text=lambda sample: percent(HBM.value(sample.figures)), needs="hbm"),
)
_WIDE_COLUMNS = (
    Column(key="", title="STEP min-max", width=12, text=_steps, needs="step"),
    Column(key="", title="HBM GiB", width=11, text=_hbm, needs="hbm"),
    Column(key="", title="FIGURES FROM", width=20, text=_source, level=1, needs="mxu"),
    Column(key="", title="INFEED min-max", width=14, text=_infeeds, needs="infeed"),
)
"""Only where sparklines have room enough beside them; the first ones first."""

_COMPACT_COLUMNS = (
    Column(key="mxu", title="MXU", width=4, text=lambda sample: percent_short(MXU.value(sample.figures)), level=1),
    Column(key="idle", title="IDLE", width=4, text=lambda sample: percent_short(IDLE.value(sample.figures))),
    Column(key="step", title="STEP", width=4, text=lambda sample: step_short(STEP.value(sample.figures))),
)


class Rows:
    """How rows are laid out in a frame."""

    def __init__(self, frame: Frame) -> None:
        scene, width, level, seen = frame.scene, frame.width, frame.level, frame.seen
        self._scene = scene
        self._width = width
        self._glyphs = frame.glyphs
        self._sort = frame.sort
        self._compact = width < _COMPACT
        self._gap = 1 if self._compact else 2
        self._before = 1 if self._compact else 3
        offered = [
            column
            for column in (_COMPACT_COLUMNS if self._compact else _COLUMNS)
            if column.level <= level and (column.needs is None or column.needs in seen)
        ]
        self._columns = [column for column in offered if column.needs is None]
        room = width - self._before - sum(column.width + self._gap for column in self._columns)
        self._name_width = max(min(scene.labels.longest, max(16, width // 4), room), min(len("WORKER"), room))
        room -= self._name_width
        wide = [] if self._compact else _WIDE_COLUMNS
        offered += [
            column for column in wide if column.level <= level and (column.needs is None or column.needs in seen)
        ]
        for column in offered[len(self._columns) :]:
            left = room - column.width - self._gap
            if left >= (2 * (_GOOD_SPARK + self._gap) if column in wide else 0):
                self._columns.append(column)
                room = left
        self._sparks = self._spark_columns(room - self._gap, level)
        self._tail = room

    def _spark_columns(self, room: int, level: int) -> list[Sparks]:
        """Rows share the axis of a figure, so that one that differs is seen to."""
        if room < _LEAST_SPARK:
            return []
        if level < 2 or room < 2 * _GOOD_SPARK:
            return [Sparks("mxu", min(room, _MOST_SPARK), axis_of(self._scene, "mxu"))]
        each = min((room - self._gap) // 2, _MOST_SPARK)
        return [Sparks(name, each, axis_of(self._scene, name)) for name in ("mxu", "step")]

    def titles(self) -> list[Segment]:
        """The line above the rows."""
        line = Line(self._width).fill(self._before)
        line.add("WORKER"[: self._name_width].ljust(self._name_width), SORTED if self._sort == "name" else BOLD)
        for column in self._columns:
            line.fill(self._gap + column.width - len(column.title))
            line.add(column.title, SORTED if column.key == self._sort else BOLD)
        for sparks in self._sparks:
            title = cut(axis_title(sparks.figure, sparks.axis), sparks.width, self._glyphs.ellipsis)
            line.fill(self._gap).add(title.ljust(sparks.width), BOLD)
        return line.segments()

    def row(self, row: Row, now_unix_s: float, *, selected: bool) -> list[Segment]:
        """One worker."""
        look = LOOKS[kind_of(row.verdict)]
        line = Line(self._width)
        if not self._compact:
            line.add(self._glyphs.cursor if selected else " ", BOLD)
        line.add(look.mark, look.style).fill(self._before - 2)
        label = self._scene.labels.at(self._name_width).get(row.name, "")
        line.add(label, SORTED if selected else None).fill(line.room - (self._width - self._before - self._name_width))
        if row.verdict.state != "live":
            return self._absent(line, row, now_unix_s)
        for column in self._columns:
            self._figure(line, column, row)
        return self._history(line, row)

    def _figure(self, line: Line, column: Column, row: Row) -> None:
        text = NOT_KNOWN if row.sample is None else column.text(row.sample)
        if len(text) > column.width:  # a figure is shown whole or not at all
            text = self._glyphs.ellipsis
        stands_out = column.key and row.causes(column.key)
        style = DIM if text == NOT_KNOWN else LOOKS[kind_of(row.verdict)].style if stands_out else None
        line.add(text.rjust(self._gap + column.width), style)

    def _history(self, line: Line, row: Row) -> list[Segment]:
        """Sparklines; where something stands out it is said at their end, in their place."""
        causes = tame(", ".join(row.short(cause.words) for cause in row.verdict.causes), ascii_only=self._glyphs.ascii)
        note = 0
        least = 0 if row.verdict.severity == "unknown" else _LEAST_SPARK  # without figures there is little history
        if causes and self._sparks and self._tail >= _LEAST_SPARK + _LEAST_NOTE + 2 * self._gap:
            note = min(cell_len(causes), self._tail - least - 2 * self._gap)
        trend = self._scene.trends.of(row.name)
        end = line.room - (self._tail - note - self._gap if note else self._tail)
        for sparks in self._sparks:
            room = min(sparks.width, line.room - end - self._gap)
            if room > 0:
                values = trend.last(sparks.figure, room)
                line.fill(self._gap).add(spark(values, sparks.axis, room, self._glyphs), GRAPH)
        if note:
            line.fill(line.room - note).add(cut(causes, note, self._glyphs.ellipsis), LOOKS[kind_of(row.verdict)].style)
        return line.segments()

    def _absent(self, line: Line, row: Row, now_unix_s: float) -> list[Segment]:
        """No figures: what the worker is instead, and for how long; n/a first where there is room for both."""
        look = LOOKS[kind_of(row.verdict)]
        words = absent_words(row, now_unix_s)
        said = _message(row)
        columns = self._columns if row.sample is not None else [one for one in self._columns if one.needs is None]
        if line.room - sum(column.width + self._gap for column in columns) >= len(words) + _LEAST_NOTE:
            for column in columns:
                self._figure(line, column, row)
        line.fill(self._gap)
        text = tame(f"{words}: {said}" if said else words, ascii_only=self._glyphs.ascii)
        return line.add(cut(text, line.room, self._glyphs.ellipsis), look.style).segments()


def axis_of(scene: Scene, figure: str) -> Axis:
    """What sparklines of a figure stand for: all workers now, and their average over the last minutes."""
    values = scene.trends.fleet.last(figure, _MOST_SPARK)
    across = scene.assessment.figures.get(figure)
    if across is not None:
        values += [across.min, across.max]
    return soft_axis(values, least_share=0.5) if figure == "step" else soft_ratio_axis(values)


def axis_title(figure: str, axis: Axis) -> str:
    """What a figure's sparklines show, from where to where."""
    low, high = axis
    if figure == "step":
        return f"STEP {low * 1000:g}-{high * 1000:g} ms"
    return f"{figure.upper()} {100 * low:.0f}-{100 * high:.0f}%"


def absent_words(row: Row, now_unix_s: float) -> str:
    """STALE 35s, DOWN 2h05m, WAITING: what a worker without figures is."""
    word = LOOKS[row.verdict.state].word.upper()
    if row.verdict.state == "waiting" or row.since_unix_s is None:
        return word
    return f"{word} {age(now_unix_s - row.since_unix_s)}"


def _message(row: Row) -> str:
    """What its last query failed with, without the address that it may begin with."""
    failure = None if row.history.last is None else row.history.last.failure
    return "" if failure is None else row.short(failure.message)
