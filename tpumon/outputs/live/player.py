"""The live view of recorded samples: a display whose clock is the recording's, and the keys that move it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tpumon.analysis import Analysis
from tpumon.analysis.playback import Recorded, between
from tpumon.analysis.recorded_clock import RecordedClock
from tpumon.model import Change
from tpumon.outputs.live.display import Display
from tpumon.outputs.live.drawing.cells import clock
from tpumon.outputs.live.drawing.line import Lines
from tpumon.outputs.live.screens.screen import Reply
from tpumon.outputs.live.view_settings import DisplaySettings, KeySection, KeyWords

LOOK_BACK_S = 3600.0
"""Time before a moment that is read to show it: states and since are known from there on."""

KEYS = KeySection(
    "Keys of a recording",
    [
        KeyWords("Space", "play, or stop", "Space play"),
        KeyWords(", .", "go back or forward by 10 seconds", ", . time"),
        KeyWords("< >", "go back or forward by 10 minutes"),
        KeyWords("!", "go to the next change of a worker", "! next change"),
        KeyWords("x", "play faster: 1, 10, 60 or 600 times"),
    ],
)

_MOVES_S = {",": -10.0, ".": 10.0, "<": -600.0, ">": 600.0}
_SPEEDS = (1, 10, 60, 600)
_FRAME_S = 0.25


class Moments(Protocol):
    """A recording."""

    def span_unix_s(self) -> tuple[float, float]:
        """The times of its first and last moment."""

    def moments(self, begin_unix_s: float) -> Iterator[Recorded]:
        """Yields what was recorded from a time on."""


class Player(Display):
    """A display of a recording, with the recording's clock. It begins at the end, stopped.

    Args:
        settings: the user's.
        now_s: reads the wall clock.
    """

    def __init__(self, settings: DisplaySettings, now_s: Callable[[], float] = time.time) -> None:
        super().__init__(settings, Analysis())
        self._thresholds = settings.thresholds
        self._now_s = now_s
        self._playing = False
        self._speed = _SPEEDS[0]

    def show(self, recording: Moments) -> None:
        """Shows the end of a recording."""
        self._recording = recording
        self._first_unix_s, self._last_unix_s = recording.span_unix_s()
        self._at_unix_s = self._last_unix_s  # the time that is shown, when the wall clock showed ...
        self._since_s = 0.0  # ... this
        self._jump(self._last_unix_s)

    def refresh(self, now_unix_s: float) -> None:
        """Reads on up to the moment that is shown now."""
        at_unix_s = self._time(now_unix_s)
        self._read_to(at_unix_s)
        if self._playing and at_unix_s >= self._last_unix_s:
            self._set(at_unix_s, playing=False)
            self.notice("the recording ends here")
        self.recorded = f"RECORDED {f'{self._speed}x' if self._playing else 'stopped'}"
        super().refresh(at_unix_s)

    def render(self, width: int, height: int, now_unix_s: float) -> Lines:
        """The picture of the moment that is shown now."""
        return super().render(width, height, self._time(now_unix_s))

    def changes_at(self, now_unix_s: float) -> float | None:
        """Returns when the picture changes by itself, by the wall clock; None while it is frozen."""
        if not self._playing:
            return None
        at_unix_s = self._time(now_unix_s)
        times = [self._last_unix_s, super().changes_at(at_unix_s)]
        times.append(None if self._next is None else self._next.time_unix_s)
        until_s = min(time for time in times if time is not None) - at_unix_s
        return now_unix_s + max(until_s / self._speed, _FRAME_S)

    def press(self, name: str) -> Reply:
        """Takes a key: those that move the time, and all others for the display."""
        if not self._controls.typing:
            at_unix_s = self._time(self._now_s())
            if name in _MOVES_S:
                self._go_to(at_unix_s + _MOVES_S[name])
                return Reply.REDRAW
            if name in {" ", "x", "!"}:
                self._set(at_unix_s, playing=self._playing ^ (name == " "))
                if name == "x":
                    self._speed = _SPEEDS[(_SPEEDS.index(self._speed) + 1) % len(_SPEEDS)]
                    self._set(at_unix_s, playing=True)
                elif name == "!":
                    self._go_to_change()
                elif self._playing and at_unix_s >= self._last_unix_s:
                    self._go_to(self._first_unix_s)
                self.refresh(self._now_s())
                return Reply.REDRAW
        return super().press(name)

    # ---- time

    def _time(self, now_unix_s: float) -> float:
        """The recorded time that is shown at a time of the wall clock."""
        passed_s = max(now_unix_s - self._since_s, 0.0) * self._speed if self._playing else 0.0
        return min(self._at_unix_s + passed_s, self._last_unix_s)

    def _set(self, at_unix_s: float, *, playing: bool) -> None:
        self._at_unix_s, self._since_s, self._playing = at_unix_s, self._now_s(), playing

    def _go_to(self, at_unix_s: float) -> None:
        at_unix_s = min(max(at_unix_s, self._first_unix_s), self._last_unix_s)
        if not self._read_unix_s <= at_unix_s <= self._read_unix_s + LOOK_BACK_S:
            self._jump(at_unix_s)
        self._set(at_unix_s, playing=self._playing)
        self.refresh(self._since_s)

    def _go_to_change(self) -> None:
        """Reads on until a worker's state or severity changes, for an hour of the recording at most."""
        until_unix_s = self._read_unix_s + LOOK_BACK_S
        changes: Sequence[Change] = ()
        while not changes and self._next is not None and self._next.time_unix_s <= until_unix_s:
            changes = self._read_next()
        if changes:
            words = f": {changes[0].words}" if changes[0].words else ""
            self.notice(f"{changes[0].worker}: {changes[0].status}{words}")
        else:
            self.notice(f"no change up to {clock(self._read_unix_s, self._last_unix_s)}")
        self._set(min(self._read_unix_s, self._last_unix_s), playing=False)

    # ---- reading

    def _jump(self, at_unix_s: float) -> None:
        """Forgets what was read, and reads again what leads to a moment."""
        begin_unix_s = max(at_unix_s - LOOK_BACK_S, self._first_unix_s)
        self._moments = iter(self._recording.moments(begin_unix_s))
        self._next = next(self._moments, None)
        self._read_unix_s = begin_unix_s
        self._analysis = Analysis(self._thresholds, recorded=RecordedClock())
        self._analysis.remember()
        self.start_again(self._analysis)
        self._read_to(at_unix_s)

    def _read_to(self, at_unix_s: float) -> None:
        """Analyses what was recorded up to a moment."""
        while self._next is not None and self._next.time_unix_s <= at_unix_s:
            self._read_next()
        self._read_unix_s = max(self._read_unix_s, at_unix_s)

    def _read_next(self) -> Sequence[Change]:
        """Analyses the next moment; returns what changed."""
        moment = self._next
        if moment is None:
            return ()
        updates = [*between(self._analysis, self._read_unix_s, moment.time_unix_s), self._analysis.take(moment.event)]
        for update in updates:
            self.on_update(update)
        self._read_unix_s = max(self._read_unix_s, moment.time_unix_s)
        self._next = next(self._moments, None)
        return [change for update in updates for change in update.changes]
