"""The screens of words: help, and what is shown while there is no job to watch."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment

from tpumon.fleet import Severity, Thresholds
from tpumon.history import State
from tpumon.view.parts.cells import clock
from tpumon.view.parts.lines import Line, plain, tame, wrapped
from tpumon.view.parts.style import BOLD, LOOKS, Glyphs

_KEY = 22

_KEYS = (
    ("q, Ctrl-C", "quit"),
    ("p, Space", "hold the picture; sampling goes on, and p shows what came in since"),
    ("s, S", "sort by the next figure; the other way round"),
    ("up, down, j, k", "choose a worker, or scroll"),
    ("PgUp, PgDn", "a screen up or down"),
    ("g, G, Home, End", "to the first, to the last; the first follows whoever is first"),
    ("Enter, Esc", "the chosen worker's own screen, and back"),
    ("/", "only workers whose name, address or slice contains what is typed; Enter keeps it, Esc shows all"),
    ("f", "only workers that are not ok"),
    ("r, Ctrl-L", "draw again; never asks the job for more"),
    ("h, ?", "this, and back"),
)

_MARKS: tuple[tuple[Severity | State, str], ...] = (
    ("ok", "nothing stands out"),
    ("warn", "a figure is above its first threshold"),
    ("critical", "a figure is above its second threshold"),
    ("down", "its last query failed"),
    ("unknown", "answers with runtime metrics alone: whether it trains well is not to be told"),
    ("stale", "no answer for 2.5 intervals: its figures are not shown"),
    ("busy", "someone else is profiling it: tpumon stands back, longer each time"),
    ("paused", "`tpumon pause` stops sampling on this host"),
    ("waiting", "not answered yet"),
)

_STATES = (
    ("LIVE 7/8", "so many workers have present figures"),
    ("STALE 35s", "nobody has; the newest are so old"),
    ("WAITING", "there is no job to watch yet"),
    ("PAUSED", "the picture is held (p); the time beside it is when"),
    ("EXPORTER DOWN 9s", "the exporter behind --from does not answer: nothing is known of any worker"),
    (
        "every 10s, @10s",
        "from one query of a worker to the next; longer than asked for where tracing would cost too much",
    ),
    ("traced 1.9%", "share of time that a job is traced for, the greatest of all: what watching costs"),
    ("X2 !1 B1", "workers by mark"),
    ("SIMULATED", "figures are made up"),
)


class _Pages:
    def __init__(self, width: int, glyphs: Glyphs) -> None:
        self._width = width
        self._glyphs = glyphs
        self.lines: list[list[Segment]] = []

    def title(self, text: str) -> None:
        if self.lines:
            self.lines.append([])
        self.lines.append(plain(f" {text}", self._width, BOLD))

    def pair(self, name: str, text: str) -> None:
        """What it is called, and what it means beside it, or below where the screen is narrow."""
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


def help_lines(
    width: int, glyphs: Glyphs, limits: Thresholds, notices: Sequence[tuple[float, str]], now_unix_s: float
) -> list[list[Segment]]:
    """Keys, marks, thresholds, and the last messages."""
    pages = _Pages(width, glyphs)
    pages.title("Keys")
    for name, text in _KEYS:
        pages.pair(name, text)
    if notices:
        pages.title("Messages, the newest first")
        for at, text in reversed(notices):
            pages.text(f"{clock(at, now_unix_s)}  {text}")
    pages.title("Marks of a worker")
    for kind, text in _MARKS:
        look = LOOKS[kind]
        pages.pair(f"{look.mark}  {look.word}", text)
    pages.title("At the top")
    for name, text in _STATES:
        pages.pair(name, text)
    pages.title("Thresholds")
    for name, text in _thresholds(limits):
        pages.pair(name, text)
    pages.title("Where figures come from")
    for name, text in _SOURCES:
        pages.pair(name, text)
    return pages.lines


_SOURCES = (
    ("monitor", "the server's own Monitor RPC"),
    ("trace", "short traces, analysed as XProf does"),
    ("MXU:counter", "of the hardware, in the trace; goes without saying, as does the server's own"),
    ("MXU:perf-counters", "of the hardware, sampled"),
    ("MXU:flops", "what the ops do against the peak"),
    ("steps:steps", "the profiler's step markers; go without saying"),
    ("steps:modules", "from one start of the main program to the next"),
    ("steps:host", "from one step event of the host to the next"),
    ("last 25m, worst of 3", "a graph's length, and how many samples share a column where they are too many"),
    ("until 10:25:07", "when a graph ends that has nothing of now"),
    ("MXU 20-45%", "above rows: from where to where their sparklines go, the same for all"),
    ("n/a", "not to be had; the worker's own screen says why"),
)


def _thresholds(limits: Thresholds) -> list[tuple[str, str]]:
    times = f"{limits.sustained} times in a row"
    warn, critical = limits.step_warn_ratio, limits.step_critical_ratio
    return [
        ("step time", f"! above {warn:g}x the slice's median, X above {critical:g}x, {times}"),
        ("idle", f"! {100 * limits.idle_apart_ratio:g} points below the slice's median, {times}: others wait for it"),
        ("infeed", f"! above {limits.infeed_warn_ratio:.0%} of a step, X above {limits.infeed_critical_ratio:.0%}"),
        ("HBM", f"! above {limits.hbm_warn_ratio:.0%} of the fullest device, X above {limits.hbm_critical_ratio:.0%}"),
        ("MXU", "none: how busy the matrix units can be depends on the model"),
    ]


def waiting_lines(width: int, glyphs: Glyphs, waiting: str | None) -> list[list[Segment]]:
    """What to do where there is nobody to watch."""
    text = tame(waiting or "looking for workers", ascii_only=glyphs.ascii)
    return [[], *(Line(width).fill(1).add(part).segments() for part in wrapped(text, width - 2))]
