"""Help: keys, messages, marks, the words of the header, thresholds, and where figures come from."""

from __future__ import annotations

from tpumon.analysis.findings import Thresholds
from tpumon.analysis.history import State
from tpumon.model import Severity
from tpumon.outputs.drawing.cells import clock
from tpumon.outputs.drawing.line import Line, Lines, plain, tame, wrapped
from tpumon.outputs.drawing.style import BADGES, BOLD, Glyphs
from tpumon.outputs.live.parts.frame import Frame
from tpumon.outputs.live.screens.screen import Picture, Screen

_KEY = 22

_MARKS: tuple[tuple[Severity | State, str], ...] = (
    ("ok", "nothing is found"),
    ("info", "a finding is worth knowing; nothing is to be done"),
    ("warning", "a finding is a warning; w says what, why, and what to do"),
    ("critical", "a finding is critical"),
    ("down", "the last query failed"),
    ("no-activity", "it answers, but nothing runs: no op on its device, no step in its host trace"),
    ("unknown", "too little to judge: few samples, only runtime metrics answer, or not seen"),
    ("stale", "no figures for 2.5 intervals and a window; old ones are not shown"),
    ("busy", "another profiler, or another tpumon, has the worker; this one waits"),
    ("continuous", "a continuous profiling session of the owner runs; tpumon stands back"),
    ("paused", "`tpumon pause` stopped sampling on this host"),
    ("waiting", "no answer yet"),
)

_HEADER = (
    ("LIVE 7/8", "7 of 8 workers have fresh figures"),
    ("STALE 35s", "no worker has fresh figures; the newest are 35 s old"),
    ("WAITING", "there is no job to watch yet"),
    ("DOWN >20s", "at least so long: it was so when it was first looked at; of a time, `or earlier` says that"),
    ("FROZEN  10:25:07", "you froze the picture (p) at that time; sampling goes on"),
    ("EXPORTER DOWN 9s", "the exporter behind --from does not answer, so nothing is known about any worker"),
    ("every 10s, @10s", "interval between queries of a worker; longer than --interval if tracing would cost too much"),
    ("traced 1.9%", "overhead: share of the last 10 min, or of its life, that all tpumons here traced a job; the most"),
    ("X2 !1 B1", "number of workers by mark, where there is no room for the words"),
    ("last 10:25:07", "time of the newest sample with figures"),
    ("SIMULATED", "the figures are made up"),
)

_METHODS = (
    ("MXU:counter", "a hardware counter in the trace; not shown, and neither is the server's own figure"),
    ("MXU:perf-counters", "sampled hardware counters"),
    ("MXU:flops", "FLOPS of the ops divided by the chip's peak"),
    ("steps:steps", "the profiler's step markers; not shown"),
    ("steps:modules", "from one start of the main program to the next"),
    ("steps:host", "from one step event on the host to the next"),
    ("n/a", "unavailable; the worker's page shows the reason"),
)

_GRAPHS = (
    ("33.0% - 35.8%", "the least and the greatest value in the time that a graph shows"),
    ("last 15m", "that time; `15m until 10:25:07`: the worker has no fresh figures since then"),
    ("columns", "filled up to the median; two more shades begin at the least value and above the median"),
    (
        "DD, NN, BB, PP",
        "in the lowest line: the worker was down, without activity, busy, paused; empty: nobody watched",
    ),
    ("the median", "of a column's samples; of a long column, of the medians of shorter times"),
    ("MXU 20-45%", "range of the sparklines below, the same for all workers"),
    ("slice 37.0", "median of the worker's slice; `fleet` where no slice is known"),
)


class HelpScreen(Screen):
    """Everything that needs an explanation."""

    name = "help"
    title = "the help screen"

    def draw(self, frame: Frame) -> Picture:
        """One section after another, to scroll through."""
        page = _Page(frame.width, frame.glyphs)
        for section in frame.keys:
            page.title(section.title)
            for key in section.keys:
                page.pair(key.names, key.words)
        if frame.messages:
            page.title("Messages, newest first")
            for message in reversed(frame.messages):
                page.text(f"{clock(message.at_unix_s, frame.now_unix_s)}  {message.text}")
        page.title("Marks of workers")
        for kind, text in _MARKS:
            badge = BADGES[kind]
            page.pair(f"{badge.mark}  {badge.word}", text)
        for title, pairs in (
            ("In the header", _HEADER),
            ("Graphs and comparisons", _GRAPHS),
            ("Thresholds", _thresholds(frame.settings.thresholds)),
            ("Where figures come from", (*frame.settings.sources.items(), *_METHODS)),
        ):
            page.title(title)
            for name, text in pairs:
                page.pair(name, text)
        return Picture(lines=page.lines)


class _Page:
    """Titles and explanations, as lines of one width."""

    def __init__(self, width: int, glyphs: Glyphs) -> None:
        self._width = width
        self._glyphs = glyphs
        self.lines: Lines = []

    def title(self, text: str) -> None:
        if self.lines:
            self.lines.append([])
        self.lines.append(plain(f" {text}", self._width, BOLD))

    def pair(self, name: str, text: str) -> None:
        """A name and what it means: beside it, or below it on a narrow screen."""
        beside = self._width >= 2 * _KEY + 8
        indent = _KEY + 2 if beside else 4
        parts = wrapped(text, self._width - indent)
        if not beside:
            self.lines.append(plain(f"  {name}", self._width, BOLD))
        for place, part in enumerate(parts):
            line = Line(self._width)
            line.add(f"  {name if place == 0 else ''}".ljust(indent), BOLD) if beside else line.fill(indent)
            self.lines.append(line.add(part).segments())

    def text(self, text: str) -> None:
        for part in wrapped(tame(text, ascii_only=self._glyphs.ascii), self._width - 2, indent=2):
            self.lines.append(Line(self._width).fill(2).add(part).segments())


def _thresholds(limits: Thresholds) -> list[tuple[str, str]]:
    warn, critical = limits.step_warn_ratio, limits.step_critical_ratio
    points = f"{100 * limits.idle_below_ratio:g}"
    own_work = f"! own work above {warn:g}x the slice's median, X above {critical:g}x"
    infeed = f"! above {limits.infeed_warn_ratio:.0%} of a step, X above {limits.infeed_critical_ratio:.0%}"
    return [
        ("straggler", f"{own_work}, while it waits at least {points} points less than the others"),
        ("infeed", f"{infeed}, {limits.sustained} samples in a row"),
        ("HBM", f"! above {limits.hbm_warn_ratio:.0%} of the fullest device, X above {limits.hbm_critical_ratio:.0%}"),
        ("MXU", "none: how busy the matrix units can be depends on the model"),
    ]
