"""Length of a sampled trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tpumon.model import LONGEST_WINDOW_S, Figures, FigureWarning, Query, StepSource
from tpumon.model.figures import SHARES_OF_WINDOW

if TYPE_CHECKING:
    from tpumon.xspace.trace_figures import TraceFigures

USUAL_LONGEST_WINDOW_S = 2.0
"""The longest window as long as nothing shows that steps are longer."""

BUSY_IDLE_RATIO = 0.5
"""A device that is idle for less than this, without a whole step, is taken to be within a long one."""

_SUGGESTED = 5  # times the window that held no step
_MOST_IN_VAIN = 4
FIRST_WINDOW_S = 0.5
"""The window as long as nothing is known of the job."""

_COMPILING_RATIO = 0.1  # of a window in which no step was to be expected
_COMPILING_WINDOW_S = 0.25  # shows that it goes on, and short steps once they have begun
_MOST_COMPILING = 8
_COMPILING = "probably compiling, as in the last trace with events; this one has none, as they come when it is over"
_SHORTEST_WINDOW_S = 0.1
_MOSTLY = 0.5  # of the window
_STEPS_WANTED = 2.25  # one of them is whole wherever the window starts, also if steps vary a little
_STARTS_WANTED = 3.25  # the same for steps from start to start: the run that begins the next one must be whole, too


class Window:
    """Length of the next trace: about two steps, 100 ms to 2 s; up to 10 s once steps turn out not to fit.

    The first one is 0.5 s long, 0.25 s while the job compiles; one of a server as long as is allowed.

    Steps from start to start (of modules, on the host) need a little more than three: a trace holds whole runs alone.

    Level 1 shows matrix units alone, which need no whole step: one step, from 100 ms to 500 ms.
    """

    def __init__(self) -> None:
        self._length_s: float | None = None
        self._longest_s = LONGEST_WINDOW_S
        self._steps_wanted = _STEPS_WANTED
        self._in_vain = 0  # windows of the greatest length without a whole step, in a row
        self._compiling = 0  # windows without a step in which the job compiled, in a row
        self._knows_steps = False
        self.shows_compiling = False
        """True if the last window with an event held no step, and the job compiled in it."""

    @property
    def length_s(self) -> float:
        """The window that shows steps, as far as it is known."""
        return FIRST_WINDOW_S if self._length_s is None else self._length_s

    def of_level(self, level: int, known_s: float | None = None) -> float:
        """The window for the figures of a level.

        Args:
            level: 1 or 2.
            known_s: the one that shows steps to somebody else: the first one. None: there is none.
        """
        length_s = self.length_s
        if self._length_s is None and known_s is not None:
            length_s = min(USUAL_LONGEST_WINDOW_S, max(_SHORTEST_WINDOW_S, known_s))
        if level > 1:
            return length_s
        return min(FIRST_WINDOW_S, max(_SHORTEST_WINDOW_S, length_s / self._steps_wanted))

    def learn(self, step_s: float, source: StepSource | None = "steps") -> None:
        """Notes how long a step takes, on average, and what counts as one."""
        self._steps_wanted = _STEPS_WANTED if source in {"steps", "server"} else _STARTS_WANTED
        self._in_vain, self._compiling, self._knows_steps, self.shows_compiling = 0, 0, True, False
        wanted_s = step_s * self._steps_wanted
        longest_s = USUAL_LONGEST_WINDOW_S if wanted_s <= USUAL_LONGEST_WINDOW_S else LONGEST_WINDOW_S
        self._length_s = min(longest_s, self._longest_s, max(_SHORTEST_WINDOW_S, wanted_s))

    def grow(self, longest_s: float) -> None:
        """Notes that the last window held no whole step.

        Once several in a row were as long as traces may be without being too large, longer ones are tried again: the
        program may be another one.
        """
        self._in_vain = self._in_vain + 1 if self.length_s >= self._longest_s else 0
        if self._in_vain >= _MOST_IN_VAIN:
            self._longest_s, self._in_vain = min(LONGEST_WINDOW_S, 2 * self._longest_s), 0
        self._length_s = max(self.length_s, min(longest_s, self._longest_s, 2 * self.length_s))

    def note_compiling(self, ratio: float | None) -> bool:
        """Notes for what share of the last window, which held no step, the job compiled; returns whether that is why.

        A longer window would show no step either. As long as none is known the next ones are short: they cost the job
        less, and so come sooner. Not after many: a job may compile again and again amid long steps.
        """
        self.shows_compiling = (ratio or 0.0) >= _COMPILING_RATIO
        if not self.shows_compiling or self._compiling >= _MOST_COMPILING:
            return False
        self._compiling += 1
        if not self._knows_steps:
            self._length_s = _COMPILING_WINDOW_S
        return True

    def why_empty(self, words: str) -> str:
        """The reason why a trace holds no event: a compilation that lasts longer shows none, where the job compiles.

        Args:
            words: the reason otherwise.
        """
        return _COMPILING if self.shows_compiling else words

    def note_server_window(self, allowed_s: float) -> None:
        """Notes that the last window shows a server whose requests come at random times: the longer, the better.

        Args:
            allowed_s: the longest that may be traced without asking less often.
        """
        self._length_s = min(self._longest_s, max(FIRST_WINDOW_S, allowed_s))

    def warning(self, query: Query, figures: Figures) -> FigureWarning | None:
        """A warning if the device was busy, no step was whole, and the window does not grow by itself."""
        window_s = query.window_s or self.length_s
        grows = query.window_s is None and window_s < self._longest_s
        busy = figures.idle_ratio is not None and figures.idle_ratio < BUSY_IDLE_RATIO
        if query.level < 2 or grows or not busy or figures.step_time_s is not None:
            return None
        wanted_ms = _SUGGESTED * window_s * 1000
        words = f"steps seem longer than the window of {window_s * 1000:.0f} ms; give --duration-ms {wanted_ms:.0f}"
        return FigureWarning("long-steps", words)

    def shrink(self) -> None:
        """Notes that the last window's trace was too large."""
        self._length_s = self._longest_s = max(_SHORTEST_WINDOW_S, self.length_s / 2)


def figures_of_window(trace_figures: TraceFigures, window_s: float) -> Figures:
    """Figures corrected for the length of the window: a trace shows only the time in which the device ran.

    If the device stopped or began amid the window, without a whole step, shares of the rest are no shares of the time.
    """
    figures = trace_figures.figures
    programs = figures.traced_programs
    if trace_figures.truncated:
        return figures
    if programs is not None:
        figures = replace(figures, traced_programs=replace(programs, window_s=max(window_s, programs.window_s)))
    if figures.serves:
        return figures
    if not trace_figures.core_count or figures.step_time_s is not None or trace_figures.window_s > _MOSTLY * window_s:
        return figures
    why = f"the device ran for {trace_figures.window_s:.2g} s of {window_s:.2g} s, no whole step"
    return replace(
        figures, **dict.fromkeys(SHARES_OF_WINDOW), absent={**figures.absent, **dict.fromkeys(SHARES_OF_WINDOW, why)}
    )
