"""The live view of recorded samples: a display whose clock is the recording's, and the keys that move it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from math import inf
from typing import NamedTuple

from tpumon.analysis import Analysis
from tpumon.analysis.playback import LOOK_BACK_S, UNSETTLED_S, Playback, Recorded, RecordingLike, began_then
from tpumon.analysis.recorded_clock import RecordedClock
from tpumon.model import Change, Workers
from tpumon.outputs.drawing.cells import clock
from tpumon.outputs.drawing.line import Lines
from tpumon.outputs.live.display import LEAST_PAUSE_S, Display
from tpumon.outputs.live.parts.spans import Span
from tpumon.outputs.live.screens.screen import Reply
from tpumon.outputs.live.view_settings import DisplaySettings, KeySection, KeyWords

KEYS = KeySection(
    "Keys of a recording",
    [
        KeyWords("Space", "play, or stop", "Space play"),
        KeyWords(", .", "go back or forward by 10 seconds", ", . time"),
        KeyWords("< >", "go back or forward by 10 minutes"),
        KeyWords(
            "[ ]", "go to the previous change, or the next; what a slice's workers had together is one", "[ ] change"
        ),
        KeyWords("t", "go to a time that you type: 03:12, -20m before the end, 2026-01-31T03:12", "t go to"),
        KeyWords("x", "speed of playing: up to 1, 10, 60 or 600 times"),
    ],
)

_MOVES_S = {",": -10.0, ".": 10.0, "<": -600.0, ">": 600.0}
_SPEEDS = (1, 10, 60, 600)
_FIRST_ANSWERS_S = 60.0
_READ_S = 0.3  # while it plays or looks for a change, before the screen is drawn and keys are read again


_Looking = Generator[float, None, tuple[float, Change] | None]


class _Search(NamedTuple):
    """A search for a change.

    Attributes:
        looking: yields how far it is, returns the change; None: there is none up to the end.
        end_unix_s: that end.
        words: `since` or `up to`, for what was looked through.
    """

    looking: _Looking
    end_unix_s: float
    words: str


class Player(Display):
    """A display of a recording, with the recording's clock.

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
        self._search: _Search | None = None  # for a change, while it takes long

    def show(self, recording: RecordingLike, at_unix_s: float | None = None) -> None:
        """Shows a moment of a recording, stopped.

        Args:
            recording: the recording.
            at_unix_s: the moment; None: its end.
        """
        self._recording = recording
        self._begin_unix_s, self._last_unix_s = recording.span_unix_s()
        answered_unix_s = _answered_unix_s(recording.moments(), self._begin_unix_s)
        self._first_unix_s, is_asked_for = min(answered_unix_s, self._last_unix_s), at_unix_s is not None
        at_unix_s = self._within(self._last_unix_s if at_unix_s is None else at_unix_s)
        self._at_unix_s = at_unix_s  # the time that is shown, when the wall clock showed ...
        self._since_s = 0.0  # ... this
        if is_asked_for:
            self._go_to_time(at_unix_s)
        else:
            self._jump(at_unix_s)

    def refresh(self, now_unix_s: float) -> None:
        """Reads on up to the moment that is shown now, or to the change that is looked for."""
        if self._search is not None:
            self._search_further(self._search)
            return
        at_unix_s = self._played_to(now_unix_s) if self._playing else self._time(now_unix_s)
        self._read_to(at_unix_s)
        if self._playing and at_unix_s >= self._last_unix_s:
            self._set(at_unix_s, playing=False)
        self.recorded = f"RECORDED {self._pace(at_unix_s)}"
        self._take_in(at_unix_s)

    def _pace(self, at_unix_s: float) -> str:
        if self._playing:
            return f"{self._speed}x"
        if at_unix_s >= self._last_unix_s:
            where = "end"
        else:
            where = "beginning" if at_unix_s <= self._first_unix_s else "stopped"
        return where if self._speed == _SPEEDS[0] else f"{where}, {self._speed}x"

    def render(self, width: int, height: int, now_unix_s: float) -> Lines:
        # Not later than was read: while it plays fast, what passes until it is drawn would look like a silence.
        return super().render(width, height, min(self._time(now_unix_s), self._read.until_unix_s))

    def pause_s(self, busy_s: float) -> float:
        """As of a display; none while a change is looked for, and while it plays, which is asked for, half a core."""
        if self._search is not None:
            return LEAST_PAUSE_S
        return min(max(LEAST_PAUSE_S, busy_s / 0.5), 1.0) if self._playing else super().pause_s(busy_s)

    def changes_at(self, now_unix_s: float) -> float | None:
        """Returns when the picture changes by itself, by the wall clock; None while it is frozen."""
        if self._search is not None:
            return now_unix_s
        if not self._playing:
            return None
        at_unix_s = self._time(now_unix_s)
        times = [self._last_unix_s, super().changes_at(at_unix_s)]
        times.append(None if self._read.next is None else self._read.next.time_unix_s)
        until_s = min(time for time in times if time is not None) - at_unix_s
        return now_unix_s + max(until_s / self._speed, LEAST_PAUSE_S)

    def _press(self, name: str) -> Reply:
        """Handles a key: moves the time, or passes the key to the display."""
        if self._controls.typing:
            return super()._press(name)
        stopped, self._search = self._search is not None, None
        at_unix_s = min(self._time(self._now_s()), self._read.until_unix_s)  # what is shown
        if stopped:
            self._messages.end()
        if stopped and name == "esc":
            return Reply.REDRAW
        if name in _MOVES_S:
            self._go_to(at_unix_s + _MOVES_S[name])
            self._messages.end()  # what was passed by may be long over
        elif name == "[":
            self._search_further(_Search(self._changes_before(at_unix_s), self._first_unix_s, "since"))
        elif name == "]":
            self._search_further(_Search(self._changes_after(at_unix_s), self._last_unix_s, "up to"))
        elif name == "x":
            self._speed = _SPEEDS[(_SPEEDS.index(self._speed) + 1) % len(_SPEEDS)]
            self._go_to(at_unix_s)
        elif name == " ":
            from_unix_s = self._first_unix_s if at_unix_s >= self._last_unix_s else at_unix_s
            self._go_to(at_unix_s if self._playing else from_unix_s, playing=not self._playing)
        else:
            return super()._press(name)
        return Reply.REDRAW

    # ---- time

    def _time(self, now_unix_s: float) -> float:
        """The recorded time that is shown at a time of the wall clock."""
        passed_s = max(now_unix_s - self._since_s, 0.0) * self._speed if self._playing else 0.0
        return min(self._at_unix_s + passed_s, self._last_unix_s)

    def _played_to(self, now_unix_s: float) -> float:
        """The time to show while it plays: earlier than its speed asks for if reading that far takes too long."""
        at_unix_s, until_s = self._time(now_unix_s), time.monotonic() + _READ_S
        while self._read.next is not None and self._read.next.time_unix_s <= at_unix_s:
            self._read_next()
            if time.monotonic() >= until_s:
                self._set(self._read.until_unix_s, playing=True)
                return self._at_unix_s
        return at_unix_s

    def _set(self, at_unix_s: float, *, playing: bool) -> None:
        self._at_unix_s, self._since_s, self._playing = at_unix_s, self._now_s(), playing

    def _within(self, at_unix_s: float) -> float:
        return min(max(at_unix_s, self._first_unix_s), self._last_unix_s)

    def _go_to(self, at_unix_s: float, *, playing: bool | None = None) -> None:
        """Shows a moment; one beyond an end is that end."""
        at_unix_s = self._within(at_unix_s)
        if not self._read.until_unix_s <= at_unix_s <= self._read.until_unix_s + LOOK_BACK_S:
            self._jump(at_unix_s)
        self._set(at_unix_s, playing=self._playing if playing is None else playing)
        self.refresh(self._since_s)

    def _changes_before(self, at_unix_s: float) -> _Looking:
        """Looks back for the last change before a moment, an hour at a time; yields how far, returns the change."""
        read, from_unix_s, until_unix_s = self._read, self._read_from_unix_s, at_unix_s
        while True:
            is_first = from_unix_s <= self._first_unix_s
            known_unix_s = self._first_unix_s if is_first else from_unix_s + UNSETTLED_S
            earlier = [each for each in read.stops() if known_unix_s <= each[0] < until_unix_s]
            if earlier or is_first:
                return earlier[-1] if earlier else None
            until_unix_s = min(until_unix_s, known_unix_s)
            from_unix_s = max(until_unix_s - LOOK_BACK_S, self._first_unix_s)
            read = self._from(from_unix_s)
            for _ in read.read_to(until_unix_s):
                yield until_unix_s

    def _changes_after(self, at_unix_s: float) -> _Looking:
        """Reads on, and shows it, until something changes; yields how far, returns the change."""
        while self._read.next is not None:
            before = self._read.last_number
            self._read_next()
            if self._read.last_number > before:
                stop = next((each for each in self._read.stops() if each[0] > at_unix_s), None)
                if stop is not None:
                    return stop
            self._set(self._within(self._read.until_unix_s), playing=False)
            yield self._at_unix_s
        return None

    def _search_further(self, search: _Search) -> None:
        """Looks for a change for a moment; goes there, or to the end that it comes to, or is to look further."""
        self._search = None
        until_s = time.monotonic() + _READ_S
        try:
            at_unix_s = next(search.looking)
            while time.monotonic() < until_s:
                at_unix_s = next(search.looking)
        except StopIteration as end:
            if end.value is not None:
                self._go_to_change(*end.value)
                return
            self._go_to(search.end_unix_s, playing=False)
            self._say(f"no change {search.words} {clock(search.end_unix_s, self._last_unix_s)}")
            return
        self.refresh(self._now_s())
        self._search = search
        self._say(f"looking for a change: none {search.words} {clock(at_unix_s, self._last_unix_s)}; Esc stops")

    def _go_to_change(self, at_unix_s: float, change: Change) -> None:
        """Shows the moment of a change."""
        self._go_to(at_unix_s, playing=False)
        self._say(f"{change.worker}: {change.sentence}")

    def _known(self) -> Span:
        return Span(self._begin_unix_s, self._last_unix_s)

    def _go_to_time(self, at_unix_s: float) -> None:
        """Shows a moment that was named, with what was known in that second; says what began in it and was known later.

        Events name when a change began. However somebody came there, it is the same picture.
        """
        at_unix_s = self._within(at_unix_s)
        self._jump(at_unix_s)
        self._go_to(at_unix_s, playing=False)
        began = began_then(self._recording, self._read.analysis, at_unix_s, self._thresholds)
        self._go_to(began.shown_unix_s, playing=False)
        self._say(began.words)

    # ---- reading

    def _jump(self, at_unix_s: float) -> None:
        """Forgets what was read, and reads again what leads to a moment."""
        self._read_from_unix_s = begin_unix_s = max(at_unix_s - LOOK_BACK_S, self._first_unix_s)
        self._read = self._from(begin_unix_s)
        self._read.analysis.remember()
        self.start_again(self._read.analysis)
        self._read_to(at_unix_s)

    def _from(self, begin_unix_s: float) -> Playback:
        """Playback from a time on."""
        begin_unix_s = -inf if begin_unix_s <= self._first_unix_s else begin_unix_s
        return Playback(self._recording, begin_unix_s, Analysis(self._thresholds, recorded=RecordedClock()))

    def _read_to(self, at_unix_s: float) -> None:
        for update in self._read.read_to(at_unix_s):
            self.on_update(update)

    def _read_next(self) -> None:
        for update in self._read.read_next():
            self.on_update(update)


def _answered_unix_s(moments: Iterable[Recorded], first_unix_s: float) -> float:
    """The first moment at which all workers of then had been asked, or a minute after the first had been."""
    missing: set[str] = set()
    asked: set[str] = set()
    until_unix_s: float | None = None
    for moment in moments:
        if isinstance(moment.event, Workers):
            missing = {target.worker for target in moment.event.targets} - asked
            continue
        asked.add(moment.event.worker)
        missing.discard(moment.event.worker)
        until_unix_s = until_unix_s or moment.time_unix_s + _FIRST_ANSWERS_S
        if not missing or moment.time_unix_s >= until_unix_s:
            return moment.time_unix_s
    return first_unix_s
