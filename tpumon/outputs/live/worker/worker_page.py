"""A worker's page: everything known about it, as lines to scroll through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import fields, replace
from rich.segment import Segment
from rich.style import Style

from tpumon.analysis import WorkerStatus
from tpumon.analysis.history import WELL
from tpumon.analysis.sufficiency import lacking
from tpumon.model import CoreFigures, DeviceFigures, Percentiles, RuntimeFigures, Sample
from tpumon.model.chips import spoken_name
from tpumon.model.figure_spec import FigureSpec, is_on_cpu, trains
from tpumon.model.figure_table import FIGURES, OP_KINDS, OP_TIME, WITHOUT_TPU, applicable_figures
from tpumon.outputs.drawing.cells import (
    FORMATS,
    NOT_KNOWN,
    age,
    clock,
    gib,
    percent,
    short_time,
    step_cell,
    step_word,
)
from tpumon.outputs.drawing.graphs import Axis, soft_axis
from tpumon.outputs.drawing.line import Line, Lines, cut, plain, tame, wrapped
from tpumon.outputs.drawing.style import BOLD, DIM, Badge, badge_of
from tpumon.outputs.live.parts.change_lines import change_lines
from tpumon.outputs.live.parts.findings import cause_lines
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.parts.header import traced_share
from tpumon.outputs.live.parts.op_lines import category_table, op_lines, op_table
from tpumon.outputs.live.parts.rows import absent_words, cause_words, has_figures
from tpumon.outputs.live.parts.scene import leading_of
from tpumon.outputs.live.parts.spans import Span, span_of
from tpumon.outputs.live.parts.tables import TableColumn, table
from tpumon.outputs.live.parts.waiting import waiting_words
from tpumon.outputs.live.worker.charts import (
    LEAST_CHART,
    Graphed,
    chart_figures,
    charts,
    charts_height,
    side_by_side,
    span_words,
)
from tpumon.outputs.live.worker.figure_lines import figure_lines, short_lines
from tpumon.outputs.live.worker.job_lines import family_line, family_table, kind_line
from tpumon.outputs.live.worker.part_lines import LEAST_SHARE, part_line, part_table
from tpumon.outputs.live.worker.slice_medians import medians_of

_PART_NAME = 20
_TWO_BESIDE = 100
_MOST_FUNCTIONS = 8
_MOST_BUSY = 4  # functions above the graphs
_MOST_CHANGES = 5
_MOST_OPS = 5
_ROOM_FOR_PARTS = 36
_ROOM_FOR_EARLIER = 40


def _count(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.0f}"


def _seconds(value: float | None) -> str:
    return NOT_KNOWN if value is None else short_time(value)


_COLUMNS: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "idle_ratio": ("IDLE", percent),
    "flops_utilization_ratio": ("FLOPS", percent),
    "infeed_ratio": ("INFEED", percent),
    "collective_ratio": ("COLLECT", percent),
    "step_time_s": ("STEP ms", step_cell),
    "hbm_used_bytes": ("HBM GiB", gib),
    "hbm_total_bytes": ("OF GiB", gib),
    "runtime_duty_cycle_ratio": ("DUTY", percent),
    "runtime_hbm_bandwidth_utilization_ratio": ("HBM BW", percent),
    "runtime_tensorcore_idle_s": ("IDLE FOR", _seconds),
    "runtime_hlo_queue_size": ("QUEUE", _count),
}
"""Columns of cores and devices, by field."""

_TABLE_CELL = 9
_LABELS = {figure.name: figure.label for figure in FIGURES} | {"ops": "Operations"}


class WorkerPage:
    """Builds the lines of one worker."""

    def __init__(self, frame: Frame, row: WorkerStatus, notices: Sequence[tuple[float, str]] = ()) -> None:
        self._frame = frame
        self._scene = frame.scene
        self._row = row
        self._width = frame.width
        self._level = frame.level
        self._seen = frame.seen
        self._sources = frame.settings.sources
        self._glyphs = frame.glyphs
        self._now_unix_s = frame.now_unix_s
        self._notices = notices
        self._medians = medians_of(frame.scene, row)

    def _main_lines(self) -> Lines:
        """Identity, verdict and figures of the worker."""
        return self._who() + self._process() + self._kind() + self._verdict() + self._figures()

    def _fitting_parts(self) -> Lines:
        """The parts of a step and the top operations in a line each, where their table is likely to be out of sight."""
        return self._short_parts() if self._frame.height < _ROOM_FOR_PARTS else []

    def _short_parts(self) -> Lines:
        sample = self._row.sample
        ops = op_lines(sample, self._width, self._glyphs) if sample is not None and self._level > 1 else []
        families = [] if sample is None else family_line(sample.figures, self._width, self._glyphs)
        return self._part_line() + families + ops

    def _part_line(self) -> Lines:
        if self._level < 2:
            return []
        return part_line(self._row, self._medians, self._scene.stable_axes, self._width, self._glyphs)

    def lines_that_fit(self, height: int) -> Lines:
        """Everything that fits without scrolling, then graphs; if little fits, the main figures come first."""
        lines = self._main_lines()
        if len(lines) <= height:
            return self._filled(lines, height)
        return (
            short_lines(self._row, self._width, self._level)
            + self._verdict()
            + self._who()
            + self._process()
            + self._kind()
            + self._figures()
        )

    def preview_lines(self, height: int) -> Lines:
        """Everything that its row does not say, in at most `height` lines."""
        return self._filled((self._who() + self._verdict())[:height], height)

    def verdict_line(self) -> list[Segment]:
        """Verdict on the worker in one line, with name, begin and reason."""
        name = self._scene.labels.whole(self._row.name)
        mark, text = self._verdict_text()
        text = text.removeprefix(f"{self._badge.word} ")  # the mark says so already
        text = tame(f"{mark} {name} {text}", ascii_only=self._glyphs.ascii)
        return plain(cut(f" {text}", self._width, self._glyphs.ellipsis), self._width, self._badge.style)

    def _filled(self, lines: Lines, height: int) -> Lines:
        room = height - len(lines) - 1
        for parts in (self._short_parts() + self._busiest(), self._short_parts(), self._part_line()):
            if room - len(parts) >= 2 * LEAST_CHART:
                lines = lines + parts
                room -= len(parts)
                break
        return lines + self._blank(self._charts(room)) if room >= LEAST_CHART else lines

    def all_lines(self, chart_height: int) -> Lines:
        """Everything; on wide screens step parts, cores and devices are side by side.

        Graphs have `chart_height` lines, or more if lines of the screen would be empty otherwise.
        """
        above = self._main_lines() + cause_lines(self._frame, self._row)
        sample = self._row.sample
        if sample is not None and self._level > 1:
            above += self._fitting_parts() + self._more(sample)
        below = self._below_charts()
        drawn = self._charts_height(chart_height)
        left = self._frame.height - len(above) - len(below) - (drawn and drawn + 1)
        return above + self._blank(self._charts(chart_height + max(left, 0))) + below

    def _below_charts(self) -> Lines:
        lines: Lines = []
        sample = self._row.sample
        if sample is not None and self._level > 1:
            two = self._width >= _TWO_BESIDE
            half = (self._width - 2) // 2 if two else self._width
            parts = part_table(sample.figures, self._medians, half, self._glyphs)
            cores = self._cores(sample, half)
            names = [device.device for device in sample.figures.devices]
            devices = self._table("DEVICE", names, sample.figures.devices, half)
            functions = self._functions(sample, half)
            ops = op_table(sample.figures.ops[:_MOST_OPS], half, self._glyphs) if sample.figures.ops else []
            categories = sample.figures.op_categories or ()
            kinds = category_table(categories[:_MOST_OPS], half, self._glyphs) if categories else []
            families = family_table(sample.figures, half, self._glyphs)
            blocks = (parts, families, cores, ops, kinds, functions, devices)
            lines += self._columns([block for block in blocks if block], half)
            lines += self._runtime(sample)
        if sample is not None:
            lines += self._blank(self._absent(sample)) + self._blank(self._warnings(sample))
        return lines + self._blank(self._changes()) + self._blank(self._queries()) + self._blank(self._said())

    def _columns(self, blocks: list[Lines], half: int) -> Lines:
        """Blocks below each other; if there is room, in two columns of about the same height."""
        if half == self._width or len(blocks) < 2:
            return [line for block in blocks for line in self._blank(block)]
        left, right = self._blank(blocks[0]), self._blank(blocks[1])
        for block in blocks[2:]:
            shorter = left if len(left) < len(right) else right
            shorter += self._blank(block)
        return side_by_side([left, right], half, self._width)

    def _span(self) -> Span | None:
        """The time that its graphs show; None: there are none."""
        series, frame = self._row.history.series, self._frame
        return (
            None
            if series is None
            else span_of(series, frame.controls.span_s, frame.controls.end_unix_s, frame.now_unix_s)
        )

    def _charts_height(self, height: int) -> int:
        """Number of lines that `_charts` returns."""
        return 0 if self._span() is None else charts_height(len(self._chart_figures()), self._width, height)

    def _charts(self, height: int) -> Lines:
        history, frame, span = self._row.history, self._frame, self._span()
        series, moved = history.series, frame.controls.end_unix_s is not None
        if series is None or span is None:
            return []
        fresh_for_s = 0.0 if history.last is None else history.last.fresh_for_s
        live = self._row.verdict.state == "live"
        words = span_words(span, frame.now_unix_s, ends_now=live, moved=moved)
        row_s = series.row_s(span.end_unix_s - span.begin_unix_s)
        if row_s and series.factor > 1:  # because there are so many workers
            words += f" in steps of {short_time(row_s)}"
        shown = (self._row.name, frame.controls.span_s, frame.controls.end_unix_s)

        def axis(figure: FigureSpec, values: Sequence[float]) -> Axis:
            return self._scene.stable_axes.axis((*shown, figure.key), values, soft_axis(values), self._now_unix_s)

        graphed = Graphed(
            series=series, span=span, fresh_for_s=fresh_for_s, words=words, axis=axis, is_seen=self._row.is_seen
        )
        return charts(graphed, self._chart_figures(), self._width, height, self._glyphs)

    def _chart_figures(self) -> Sequence[FigureSpec]:
        sample = self._row.sample or self._row.history.answer
        applicable = self._scene.applicable if sample is None else applicable_figures([sample])
        leading = self._scene.leading if sample is None else leading_of(applicable)
        return chart_figures(applicable, self._seen, leading, self._level)

    def _blank(self, lines: Lines) -> Lines:
        return [[], *lines] if lines else []

    def _text(self, text: str, style: Style | None = None, indent: int = 2) -> Lines:
        """Text made safe and wrapped."""
        text = " " * indent + tame(text, ascii_only=self._glyphs.ascii)
        return [plain(line, self._width, style) for line in wrapped(text, self._width, indent=indent + 2)]

    def _title(self, text: str) -> Lines:
        return [plain(f" {text}", self._width, BOLD)]

    def _who(self) -> Lines:
        target, answer = self._row.history.target, self._row.history.answer
        words = []
        if target.address != target.worker:
            words.append(tame(target.address, ascii_only=self._glyphs.ascii))
        if target.job is not None:
            words.append(f"job {tame(target.job, ascii_only=self._glyphs.ascii)}")
        if target.slice is not None:
            words.append(f"slice {tame(target.slice, ascii_only=self._glyphs.ascii)}")
        if answer is not None and answer.device_type is not None:
            words.append(tame(spoken_name(answer.device_type), ascii_only=self._glyphs.ascii))
        if answer is not None and answer.cores:
            words.append(f"{answer.cores} core{'s' if answer.cores != 1 else ''}")
        if answer is not None and answer.source is not None:
            runtime = " and runtime metrics" if not answer.companions_only and _has_runtime(answer) else ""
            source = self._sources.get(answer.source, tame(answer.source, ascii_only=self._glyphs.ascii))
            words.append(f"from {source}{runtime}")
        line = Line(self._width).add(" ").add(self._scene.labels.whole(self._row.name), BOLD)
        for word in words:
            if line.room >= len(word) + 3:
                line.add(self._glyphs.dot, DIM).add(word)
        return [line.segments()]

    def _process(self) -> Lines:
        """The process, where it is known: `python train.py, pid 4711 of root, started 12:00:00`."""
        process = self._row.process
        if process is None:
            return []
        words = [process.command] if process.command else []
        words.append(f"pid {process.pid}" + (f" of {process.user}" if process.user else ""))
        if process.started_unix_s is not None:
            words.append(f"started {clock(process.started_unix_s, self._now_unix_s)}")
        text = tame(", ".join(words), ascii_only=self._glyphs.ascii)
        return [plain(cut(f" {text}", self._width, self._glyphs.ellipsis), self._width, DIM)]

    def _kind(self) -> Lines:
        last, process = self._row.history.last, self._row.process
        kind = None if last is None else last.job_kind
        since_unix_s = None if kind is None else kind.since_unix_s
        began_unix_s = None if process is None else process.started_unix_s
        if since_unix_s is not None and began_unix_s is not None and since_unix_s < began_unix_s:
            return []  # it is that of the job before
        return kind_line(kind, self._width, self._glyphs)

    def _figures(self) -> Lines:
        lines = figure_lines(self._row, self._width, self._level, self._glyphs, self._medians)
        sample = self._row.sample
        if sample is None or not is_on_cpu(sample):
            return lines
        return lines + self._text(WITHOUT_TPU, DIM)

    def _verdict(self) -> Lines:
        """Mark and state of the worker; without figures, or while they are late, also the sampler's present action."""
        mark, text = self._verdict_text()
        doing = waiting_words(self._frame, self._row, late_only=has_figures(self._row))
        return self._text(f"{mark} {text}{doing and '; '}{doing}".lstrip(), self._badge.style, indent=1)

    @property
    def _badge(self) -> Badge:
        return badge_of(self._row)

    def _verdict_text(self) -> tuple[str, str]:
        """Mark of the worker, and its state with begin and reason."""
        verdict = self._row.verdict
        since = "" if verdict.since_unix_s is None else f" since {self._began(verdict.since_unix_s)}"
        if verdict.state != "live":
            if not has_figures(self._row):
                since = f"{since}, no figures {'now' if self._row.history.had_figures() else 'yet'}"
            text = f"{absent_words(self._row, self._now_unix_s)}{since}"
        else:
            text = f"{self._badge.word}{self._since_critical() or since}{self._not_judged_yet()}"
        causes = ", ".join(cause_words(verdict.reasons))
        return self._badge.mark, f"{text}: {causes}" if causes else text

    def _not_judged_yet(self) -> str:
        """Findings that take more samples before a worker is rightly called ok."""
        lacks = lacking(self._row, only_decisive=True) if self._row.verdict.status in WELL else {}
        most = max(lacks.values(), default=0)
        return f"; not judged yet: {', '.join(lacks)} ({most} more sample{'s' if most > 1 else ''})" if lacks else ""

    def _since_critical(self) -> str:
        """Time since which it is critical, if it was in trouble before."""
        verdict = self._row.verdict
        critical, trouble = verdict.critical_since_unix_s, verdict.since_unix_s
        if critical is None or trouble is None or critical - trouble < 1:
            return ""
        return f" since {clock(critical, self._now_unix_s)}, in trouble since {self._began(trouble)}"

    def _began(self, since_unix_s: float) -> str:
        or_earlier = self._width >= _ROOM_FOR_EARLIER and self._row.verdict.since_or_earlier
        return clock(since_unix_s, self._now_unix_s, or_earlier=or_earlier)

    def _more(self, sample: Sample) -> Lines:
        """Figures that are not compared."""
        pairs = [
            (figure.label, FORMATS[figure.unit].word(value))
            for figure in FIGURES
            if not (figure.compared or (figure.origin == "host" and is_on_cpu(sample)))
            and (value := figure.value(sample.figures)) is not None
        ]
        lines = self._text(", ".join(f"{title} {value}" for title, value in pairs)) if pairs else []
        shares = {OP_KINDS[kind]: share for kind, share in (sample.figures.op_time_ratios or {}).items()}
        words = ", ".join(f"{kind.lower()} {percent(share)}" for kind, share in shares.items() if share >= LEAST_SHARE)
        return lines + (self._text(f"{OP_TIME.label}: {words}") if words else [])

    def _table(
        self, title: str, names: Sequence[str], rows: Sequence[CoreFigures | DeviceFigures], width: int
    ) -> Lines:
        """A line per core or device; only columns with values."""
        cells = {key: [getattr(row, key, None) for row in rows] for key in _COLUMNS}
        columns = [
            TableColumn(column, list(map(written, cells[key])), _TABLE_CELL)
            for key, (column, written) in _COLUMNS.items()
            if any(value is not None for value in cells[key])
        ]
        return self._lines(TableColumn(title, names, _TABLE_CELL), columns, width) if rows else []

    def _cores(self, sample: Sample, width: int) -> Lines:
        rows = sample.figures.per_core
        if not trains(sample):
            rows = tuple(replace(row, idle_ratio=None, infeed_ratio=None, step_time_s=None) for row in rows)
        return self._table("CORE", [f"{row.chip}.{row.core}" for row in rows], rows, width)

    def _functions(self, sample: Sample, width: int) -> Lines:
        """A line per function: its share of the devices' time, its runs, median period and duration."""
        functions = sample.figures.functions[:_MOST_FUNCTIONS]
        columns = [
            TableColumn(
                "SHARE" if is_on_cpu(sample) else "DEVICE",
                [percent(each.device_time_ratio) for each in functions],
                _TABLE_CELL,
            ),
            TableColumn("RUNS", [str(each.runs) for each in functions], _TABLE_CELL),
            TableColumn("EVERY ms", [_median(each.period_s) for each in functions], _TABLE_CELL),
            TableColumn("TAKES ms", [_median(each.duration_s) for each in functions], _TABLE_CELL),
        ]
        names = TableColumn("FUNCTION", [each.name for each in functions], _PART_NAME)
        return self._lines(names, columns, width) if functions else []

    def _busiest(self) -> Lines:
        """On a CPU, the functions that it runs most: there is room for them."""
        sample = self._row.sample
        if sample is None or self._level < 2 or not is_on_cpu(sample):
            return []
        return self._blank(self._functions(sample, self._width)[: 1 + _MOST_BUSY])

    def _lines(self, names: TableColumn, columns: Sequence[TableColumn], width: int) -> Lines:
        return [line.segments() for line in table([names], columns, width, self._glyphs)]

    def _runtime(self, sample: Sample) -> Lines:
        words = []
        for item in fields(RuntimeFigures):
            key, value = item.name, getattr(sample.figures.runtime, item.name)
            if value is None:
                continue
            name = key.removesuffix("_s").replace("_", " ")
            words.append(f"{name} {age(value) if key.endswith('_s') else f'{value:g}'}")
        return self._blank(self._text(f"Runtime: {', '.join(words)}")) if words else []

    def _absent(self, sample: Sample) -> Lines:
        wanted: dict[str, list[str]] = {}
        for name, why in sample.figures.absent.items():
            if getattr(sample.figures, name, None) is None:
                wanted.setdefault(why, []).append(_LABELS.get(name, name))
        if not wanted or self._level < 2:
            return []
        lines = self._title("Unavailable")
        for why, labels in wanted.items():
            lines += self._text(f"{', '.join(labels)}: {why}")
        return lines

    def _warnings(self, sample: Sample) -> Lines:
        lines = self._title("Warnings") if sample.warnings else []
        for warning in sample.warnings:
            lines += self._text(warning.message)
        return lines

    def _changes(self) -> Lines:
        changes = self._scene.changes_of(self._row.name)[: -_MOST_CHANGES - 1 : -1]
        if not changes:
            return []
        return self._title("Changes, newest first (e: all)") + change_lines(self._frame, changes, 0)

    def _queries(self) -> Lines:
        history = self._row.history
        failed = ", ".join(f"{reason} {count}" for reason, count in history.errors.most_common())
        queries = f"{history.samples} answered, {sum(history.errors.values())} failed{failed and f' ({failed})'}"
        lines = self._title("Queries") + self._text(queries)
        last = history.last
        if last is not None:
            window = "" if last.window_s is None else f", window {short_time(last.window_s)}"
            lines += self._text(
                f"last at {clock(last.time_unix_s, self._now_unix_s)}{window}, answered in {step_word(last.took_s)}"
                if last.has_figures
                else f"last at {clock(last.time_unix_s, self._now_unix_s)}, failed after {step_word(last.took_s)}"
            )
        if history.traced_s:
            share = traced_share(self._frame, self._row)
            of_time = "" if share is None else f", {100 * share.ratio:.1f}% {share.words}"
            lines += self._text(f"traced for {short_time(history.traced_s)} in all{of_time}")
        return lines + self._last_error()

    def _last_error(self) -> Lines:
        failed = self._row.history.failed
        error = None if failed is None else failed.failure
        if failed is None or error is None:
            return []
        ago = age(self._now_unix_s - failed.time_unix_s)
        text = (
            f"last error at {clock(failed.time_unix_s, self._now_unix_s)}, {ago} ago: {error.message} [{error.reason}]"
        )
        return self._text(text)

    def _said(self) -> Lines:
        lines = self._title("Messages") if self._notices else []
        for at, text in reversed(self._notices):
            lines += self._text(f"{clock(at, self._now_unix_s)}  {text}")
        return lines


def _median(times_s: Percentiles | None) -> str:
    return step_cell(None if times_s is None else times_s.p50)


def _has_runtime(sample: Sample) -> bool:
    """True if the runtime metric service reported anything."""
    return bool(sample.figures.devices) or sample.figures.runtime != RuntimeFigures()
