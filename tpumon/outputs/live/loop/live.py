"""The loop of the live view: samples, keys, signals and the clock in, pictures out; one thread, nothing blocks it."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tpumon.outputs.live.loop.keys import KeyParser
from tpumon.outputs.live.loop.terminal import (
    AlternateScreen,
    CaughtStderr,
    TerminalGoneError,
    has_mouse,
    in_background,
    open_terminal,
)
from tpumon.system.signals import STOPPING, StoppedError

_Event = TypeVar("_Event")

if TYPE_CHECKING:
    from tpumon.outputs.live.display import Display

    Fetch = Callable[[], tuple[Sequence[_Event], bool]]

_KEY_FRAME_S = 0.05
_LEAST_FETCH_GAP_S, _MOST_FETCH_GAP_S = 0.25, 1.0
_BATCH_S = 0.02  # what a refresh sends of thousands of workers comes within that
_LOOK_AGAIN_S = 1.0
_LONGEST_WAIT_S = 10.0
_PATIENCE_S = 2.0
_ENDING = (
    STOPPING if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN else (*STOPPING, signal.SIGQUIT)  # Ctrl-\
)


def can_be_live() -> str | None:
    """Returns why the live view cannot run here, in a few words; None: it can."""
    if not os.isatty(1):
        return "stdout is not a terminal"
    term = os.environ.get("TERM", "")
    if term in {"", "dumb", "unknown"}:
        return f"TERM={term or '(not set)'} cannot be drawn on"
    try:
        if os.tcgetpgrp(1) != os.getpgrp():
            return "it runs in the background"
    except OSError:
        return "stdout is a terminal that this process does not belong to"
    try:
        os.close(open_terminal())
    except OSError as error:
        return f"/dev/tty: {error.strerror}"
    return None


def run(
    display: Display,
    fetch: Fetch[_Event],
    wake_fd: int,
    *,
    deliver: Callable[[_Event], None],
    color: str = "auto",
    ascii_only: bool = False,
) -> bool:
    """Shows the display on this process's terminal until the user quits or the feed ends. Call it in the main thread.

    However it ends, the terminal is restored. A signal that ends the run is recorded and raised after that. If stderr
    is this terminal, lines written to it become notices of the display.

    Args:
        display: what is shown.
        fetch: as `Background.fetch`: returns what has come, without waiting, and whether the feed has ended.
        wake_fd: non-blocking; readable when there may be something to fetch.
        deliver: receives each fetched event before it is drawn.
        color: auto, always or never.
        ascii_only: write nothing but ASCII.

    Returns:
        True if the feed ended; False: the user quit.

    Raises:
        StoppedError: a signal came; SIGHUP also if the terminal went away.
        OSError: there is no terminal.
        Exception: whatever `fetch`, `deliver` or the display raised.
    """
    from tpumon.outputs.live.loop.paint import Painter, wants_color

    terminal = open_terminal()
    painter = Painter(color=wants_color(color, os.environ), ascii_only=ascii_only)
    screen = AlternateScreen(terminal, painter, has_mouse=has_mouse(os.environ.get("TERM", "")))
    signals, stderr = _Signals(), CaughtStderr(terminal)
    try:
        signals.install()
        stderr.catch()
        with contextlib.closing(_Loop(display, fetch, wake_fd, deliver, terminal, screen, signals, stderr)) as loop:
            ended = loop.run()
    except TerminalGoneError:
        ended, signals.stopped = False, signals.stopped or signal.SIGHUP
    finally:
        signals.hold()
        screen.leave()
        screen.say(stderr.give_back().encode())
        os.close(terminal)
        signals.restore()
    if signals.stopped is not None:
        raise StoppedError(signals.stopped)
    return ended


class _Signals:
    """Signals that the loop can select on: recorded when they come, handled in the loop.

    Attributes:
        fd: readable when a signal came.
        stopped: the first signal that asks to end.
    """

    def __init__(self) -> None:
        self.fd, self._write_end = os.pipe()
        for end in (self.fd, self._write_end):
            os.set_blocking(end, False)
        self.stopped: int | None = None
        self._stopped_s = 0.0
        self._holding = False
        self._caught: set[int] = set()
        self._before: dict[int, Any] = {}
        self._wakeup_before: int | None = None

    def install(self) -> None:
        self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in (*_ENDING, signal.SIGWINCH, signal.SIGCONT):
            self._set(number, self._note)
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            self._set(signal.SIGTSTP, self._note)
        # A process that is put into the background between a check and a call gets an error and is not stopped.
        for number in (signal.SIGTTOU, signal.SIGTTIN):
            self._set(number, signal.SIG_IGN)

    def hold(self) -> None:
        """Raises nothing from now on, however often the user presses Ctrl-C."""
        self._holding = True

    def restore(self) -> None:
        if self._wakeup_before is not None:
            signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for end in (self.fd, self._write_end):
            os.close(end)

    def caught(self) -> set[int]:
        """Returns the signals that came since the last call."""
        _drain(self.fd)
        caught, self._caught = self._caught, set()
        return caught

    def suspend(self) -> None:
        """Stops this process as Ctrl-Z does; returns when it is continued, or at once if nothing could continue it."""
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._note)

    def _set(self, number: int, handler: Any) -> None:
        self._before[number] = signal.getsignal(number)
        signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._caught.add(number)
        if number not in _ENDING:
            return
        now_s = time.monotonic()
        if self.stopped is None:
            self.stopped, self._stopped_s = number, now_s
        elif not self._holding and now_s - self._stopped_s > _PATIENCE_S:
            raise StoppedError(number)  # the loop hangs in something that it called


class _Loop(Generic[_Event]):
    """Draws on new data, a key, another size, or when the display's clock says so; sleeps otherwise."""

    def __init__(
        self,
        display: Display,
        fetch: Fetch[_Event],
        wake_fd: int,
        deliver: Callable[[_Event], None],
        terminal: int,
        screen: AlternateScreen,
        signals: _Signals,
        stderr: CaughtStderr,
    ) -> None:
        self._display, self._fetch_events, self._deliver = display, fetch, deliver
        self._wake_fd, self._terminal = wake_fd, terminal
        self._screen, self._signals, self._stderr = screen, signals, stderr
        self._keys = KeyParser()
        self._has_keys = _is_same_terminal(0, 1)
        self._ended = self._quit = False
        self._selector = selectors.DefaultSelector()
        self._terminal_mask = 0
        # When to do what, on the monotonic clock; None: there is no reason to.
        self._fetch_due_s: float | None = None
        self._draw_due_s: float | None = None
        self._flush_keys_due_s: float | None = None
        self._look_due_s: float | None = None
        self._changes_due_s: float | None = None
        self._refresh_due_s = self._draw_last_s = 0.0
        self._fetch_last_s = 0.0
        self._has_news = True

    def run(self) -> bool:
        """Runs until the user quits, the feed ends or a signal asks to end; returns whether the feed ended."""
        self._selector.register(self._wake_fd, selectors.EVENT_READ, self._on_wake)
        self._selector.register(self._signals.fd, selectors.EVENT_READ, self._on_signal)
        if self._stderr.fd is not None:
            self._selector.register(self._stderr.fd, selectors.EVENT_READ, self._on_stderr)
        self._take_terminal()
        self._fetch()
        self._draw_due_s = time.monotonic()
        while not self._ended and not self._quit and self._signals.stopped is None:
            self._do_what_is_due()
            self._watch_terminal()
            for key, mask in self._selector.select(self._wait_s()):
                key.data(mask)
        return self._ended

    def close(self) -> None:
        self._selector.close()

    # What comes in.

    def _on_wake(self, _mask: int) -> None:
        if not _drain(self._wake_fd):
            self._selector.unregister(self._wake_fd)
        if self._fetch_due_s is None:
            # Not before it can be drawn: taking the samples of thousands of workers together costs less.
            soonest = min(
                max(self._refresh_due_s, self._fetch_last_s + _LEAST_FETCH_GAP_S),
                self._fetch_last_s + _MOST_FETCH_GAP_S,
            )
            self._fetch_due_s = max(soonest, time.monotonic() + _BATCH_S)

    def _on_signal(self, _mask: int) -> None:
        caught = self._signals.caught()
        if signal.SIGTSTP in caught and self._signals.stopped is None:
            self._screen.leave()
            self._signals.suspend()
            caught = self._signals.caught() | {signal.SIGCONT}
        if signal.SIGCONT in caught:
            self._take_terminal()
        if signal.SIGWINCH in caught:
            self._draw_soon()

    def _on_terminal(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._screen.flush()
        if mask & selectors.EVENT_READ:
            try:
                typed = self._screen.read()
            except TerminalGoneError:
                if not in_background(self._terminal):
                    raise
                self._take_terminal()  # it was taken from us
                return
            self._press(self._keys.feed(typed))
            waits_s = self._keys.waits_s
            self._flush_keys_due_s = None if waits_s is None else time.monotonic() + waits_s

    def _on_stderr(self, _mask: int) -> None:
        for line in self._stderr.lines():
            self._display.notice(line)
            self._note_news()

    def _press(self, keys: Sequence[str]) -> None:
        from tpumon.outputs.live.screens.screen import Reply

        for key in keys:
            reply = self._display.press(key)
            if reply is Reply.QUIT:
                self._quit = True
                return
            if reply is not Reply.NOTHING:
                self._draw_soon()
            if reply is Reply.REPAINT:
                self._screen.forget()

    def _fetch(self) -> None:
        self._fetch_due_s, self._fetch_last_s = None, time.monotonic()
        events, self._ended = self._fetch_events()
        for event in events:
            self._deliver(event)
        if self._ended:
            self._fetch_events()  # raises what ended it
        if events:
            self._note_news()

    # When to do what.

    def _note_news(self) -> None:
        self._has_news = True
        self._draw_no_later_than(self._refresh_due_s)

    def _draw_soon(self) -> None:
        self._draw_no_later_than(self._draw_last_s + _KEY_FRAME_S)

    def _draw_no_later_than(self, at: float) -> None:
        self._draw_due_s = at if self._draw_due_s is None else min(self._draw_due_s, at)

    def _can_draw(self) -> bool:
        return self._screen.up and not self._screen.pending

    def _wait_s(self) -> float:
        """Seconds until something is due, if no event comes before."""
        dues = [self._fetch_due_s, self._flush_keys_due_s, self._look_due_s]
        if self._can_draw():
            dues += [self._draw_due_s, self._changes_due_s]
        now = time.monotonic()
        return max(0.0, min([_LONGEST_WAIT_S, *(due - now for due in dues if due is not None)]))

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        if self._fetch_due_s is not None and now >= self._fetch_due_s:
            self._fetch()
        if self._flush_keys_due_s is not None and now >= self._flush_keys_due_s:
            self._flush_keys_due_s = None
            self._press(self._keys.flush())
        if self._look_due_s is not None and now >= self._look_due_s:
            self._take_terminal()
        if self._ended or self._quit or not self._can_draw():
            return
        if self._changes_due_s is not None and now >= self._changes_due_s:
            self._changes_due_s = None
            self._note_news()
        if self._draw_due_s is not None and now >= self._draw_due_s:
            self._draw(now)

    # The terminal.

    def _draw(self, now: float) -> None:
        now_unix_s, busy_s = time.time(), time.thread_time()
        refreshes = self._has_news and now >= self._refresh_due_s
        if refreshes:
            self._display.refresh(now_unix_s)
            self._has_news = False
        width, height = self._screen.size()
        self._screen.use_mouse(self._has_keys and self._display.wants_mouse)
        if self._display.pop_alarm():
            self._screen.ring()
        self._screen.show(self._display.render(width, height, now_unix_s), width, height)
        changes_at_unix_s = self._display.changes_at(now_unix_s)
        self._changes_due_s = None if changes_at_unix_s is None else now + max(changes_at_unix_s - now_unix_s, 0.0)
        self._draw_last_s, self._draw_due_s = now, None
        if refreshes:
            self._refresh_due_s = now + self._display.pause_s(time.thread_time() - busy_s)
        if self._has_news:
            self._note_news()

    def _take_terminal(self) -> None:
        """Takes the terminal if it is ours; if the shell has it (bg), leaves it alone and checks again later."""
        if in_background(self._terminal):
            self._screen.leave()
            self._look_due_s = time.monotonic() + _LOOK_AGAIN_S
        else:
            self._look_due_s = None
            self._screen.enter()
            self._draw_soon()

    def _watch_terminal(self) -> None:
        """Selects for keys; for writability only while output is pending, as the terminal is nearly always writable."""
        mask = 0
        if self._screen.up:
            mask = selectors.EVENT_READ if self._has_keys else 0
            mask |= selectors.EVENT_WRITE if self._screen.pending else 0
        if mask == self._terminal_mask:
            return
        if not mask:
            self._selector.unregister(self._terminal)
        elif not self._terminal_mask:
            self._selector.register(self._terminal, mask, self._on_terminal)
        else:
            self._selector.modify(self._terminal, mask, self._on_terminal)
        self._terminal_mask = mask


def _drain(fd: int) -> bool:
    """Empties a non-blocking pipe; False: its write end is closed."""
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 4096):
            pass
        return False
    return True


def _is_same_terminal(one: int, other: int) -> bool:
    try:
        return os.isatty(one) and os.fstat(one).st_rdev == os.fstat(other).st_rdev
    except OSError:
        return False
