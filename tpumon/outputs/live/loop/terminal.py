"""The terminal of the live view: drawn on without waiting for it, and restored at the end."""

from __future__ import annotations

import contextlib
import os
import re
import select
import stat
import sys
import termios
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tpumon.untrusted_text import safe

if TYPE_CHECKING:
    from rich.segment import Segment

    from tpumon.outputs.live.loop.paint import Painter

_ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h"  # alternate screen, no cursor, no wrapping, pasted text is marked
# On terminals without an alternate screen the cursor ends below what was drawn.
_LEAVE = b"\x1b[?2026l\x1b[0m\x1b[?1006l\x1b[?1000l\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[999;1H\r\n\x1b[?1049l"
_MOUSE = {True: b"\x1b[?1000h\x1b[?1006h", False: b"\x1b[?1006l\x1b[?1000l"}  # buttons and wheel, any column
_WITHOUT_MOUSE = re.compile(r"linux|vt\d|dumb|cons")
_FRAME = "\x1b[?2026h{}\x1b[?2026l"  # shown at once, where the terminal can do that

_USUAL_SIZE = (80, 24)
_LEAVE_S = 0.5
_LONGEST_LINE = 4096
_READ_BYTES = 65536


def has_mouse(term: str) -> bool:
    """True if a terminal of this TERM can report its mouse."""
    return not _WITHOUT_MOUSE.match(term)


class TerminalGoneError(Exception):
    """The terminal is gone: its window was closed or the connection broke."""


def open_terminal() -> int:
    """Opens this process's terminal for reading and writing without waiting.

    It is opened anew: O_NONBLOCK on fd 0 or 1 would hold for the shell as well. By /dev/tty, because a terminal's own
    device may belong to another user (su) or not be there (containers).

    Raises:
        OSError: there is no terminal.
    """
    return os.open("/dev/tty", os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def in_background(fd: int) -> bool:
    """True if another process group has the terminal, usually the shell's; False if that is unknown."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False


class AlternateScreen:
    """The alternate screen of a terminal: writes only the lines that have changed.

    All methods return at once. Output that the terminal does not accept yet is `pending`; meanwhile nothing is drawn.

    Args:
        fd: the terminal, opened for this purpose, non-blocking.
        painter: turns lines into bytes.
        has_mouse: True if the terminal can report its mouse.
    """

    def __init__(self, fd: int, painter: Painter, *, has_mouse: bool = False) -> None:
        self._fd = fd
        self._painter = painter
        self._has_mouse = has_mouse
        self._mouse = False
        self._modes: list[int | list[bytes | int]] | None = None
        self._shown: list[str] | None = None
        self._shown_size = (0, 0)
        self._pending = b""
        self.up = False
        """True while the view has the terminal."""

    @property
    def pending(self) -> bool:
        """True while output is waiting for the terminal: call `flush` once it is writable."""
        return bool(self._pending)

    def enter(self) -> None:
        """Takes the terminal; call it again after another program may have used it.

        Raises:
            TerminalGoneError: the terminal is gone.
        """
        try:
            if not self.up:
                self._modes = termios.tcgetattr(self._fd)
            assert self._modes is not None
            self.up = True
            termios.tcsetattr(self._fd, termios.TCSANOW, _modes_to_draw(self._modes))
        except termios.error as error:
            raise TerminalGoneError(str(error)) from error
        self.forget()
        self._pending = _ENTER + (_MOUSE[True] if self._mouse else b"")
        self.flush()

    def use_mouse(self, wanted: bool) -> None:
        """Has the terminal report its mouse, or not: then it selects text again. Does nothing where there is none.

        Raises:
            TerminalGoneError: the terminal is gone.
        """
        if self._has_mouse and wanted != self._mouse:
            self._mouse = wanted
            self._send(_MOUSE[wanted])

    def ring(self) -> None:
        """Rings the terminal's bell.

        Raises:
            TerminalGoneError: the terminal is gone.
        """
        self._send(b"\a")

    def _send(self, data: bytes) -> None:
        """Writes this after what is pending; nothing while the view does not have the terminal."""
        if self.up:
            self._pending += data
            self.flush()

    def leave(self) -> None:
        """Restores the terminal. Never raises, takes half a second at most, may be called again."""
        if not self.up:
            return
        try:
            self.say(_LEAVE)
            if self._pending:
                # The terminal is stalled. Pending output is dropped, so that it is in order once it is read again.
                with contextlib.suppress(termios.error):
                    termios.tcflush(self._fd, termios.TCOFLUSH)
                self.say(_LEAVE, wait_s=0)
        finally:
            self._pending = b""
            # In the background it is the shell that has set the modes, for itself.
            if self._modes is not None and not in_background(self._fd):
                with contextlib.suppress(termios.error):
                    termios.tcsetattr(self._fd, termios.TCSANOW, self._modes)  # the other ways would wait for a reader
            self.up = False

    def say(self, data: bytes, *, wait_s: float = _LEAVE_S) -> None:
        """Writes this instead of pending output, waiting for the terminal for `wait_s` at most. Never raises."""
        self._pending = data
        deadline_s = time.monotonic() + wait_s
        writable = select.poll()
        writable.register(self._fd, select.POLLOUT)
        with contextlib.suppress(TerminalGoneError):
            self.flush()
            while self._pending and (left_s := deadline_s - time.monotonic()) > 0:
                writable.poll(left_s * 1000)
                self.flush()

    def size(self) -> tuple[int, int]:
        """Columns and lines; 80 and 24 if the terminal does not know, as on a serial line.

        Raises:
            TerminalGoneError: the terminal is gone.
        """
        try:
            width, height = os.get_terminal_size(self._fd)
        except OSError as error:
            raise TerminalGoneError(str(error)) from error
        return (width, height) if width and height else _USUAL_SIZE

    def forget(self) -> None:
        """Has the next picture written in full, because something else may have written to the screen."""
        self._shown = None

    def show(self, lines: Sequence[Sequence[Segment]], width: int, height: int) -> None:
        """Shows a picture, cut to the screen's size. Does nothing while output is pending.

        Raises:
            TerminalGoneError: the terminal is gone.
        """
        if self._pending:
            return
        painted = [self._painter.line(line, width) for line in lines[:height]]
        painted += [self._painter.line([], width)] * (height - len(painted))
        known = self._shown if self._shown_size == (width, height) else None
        changed = [
            f"\x1b[{row + 1}H{line}" for row, line in enumerate(painted) if known is None or line != known[row]
        ]  # fmt: skip
        self._shown, self._shown_size = painted, (width, height)
        if changed:
            self._pending = _FRAME.format("".join(changed)).encode(errors="replace")
            self.flush()

    def flush(self) -> None:
        """Writes as much pending output as the terminal accepts.

        Raises:
            TerminalGoneError: the terminal is gone.
        """
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._fd, self._pending) :]
        except BlockingIOError:
            pass
        except OSError as error:
            raise TerminalGoneError(str(error)) from error

    def read(self) -> bytes:
        """Returns what was typed; empty if nothing was.

        Raises:
            TerminalGoneError: the terminal is gone.
        """
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise TerminalGoneError(str(error)) from error
        if not data:
            raise TerminalGoneError("end of file")
        return data


def _modes_to_draw(modes: list[int | list[bytes | int]]) -> list[int | list[bytes | int]]:
    """Modes for drawing: unbuffered keys, no echo; Ctrl-C and Ctrl-Z send signals, Ctrl-S does not stop output."""
    iflag, oflag, cflag, lflag, *speeds, characters = modes
    assert isinstance(iflag, int)
    assert isinstance(lflag, int)
    assert isinstance(characters, list)
    characters = [*characters]
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    lflag = (lflag | termios.ISIG) & ~(termios.ICANON | termios.ECHO)
    return [iflag & ~termios.IXON, oflag, cflag, lflag, *speeds, characters]


class CaughtStderr:
    """Captures what any library writes to fd 2, which would otherwise garble the screen.

    Does nothing if fd 2 is not the terminal: then the user has redirected it on purpose.
    """

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._saved: int | None = None
        self._unfinished = b""
        self.fd: int | None = None
        """Readable when there are lines; None: nothing is captured."""

    def catch(self) -> None:
        if not self._is_terminal(2):
            return
        self._saved = os.dup(2)
        self.fd, write_end = os.pipe()
        for end in (self.fd, write_end):
            os.set_blocking(end, False)  # other writers must not wait for this process
        os.dup2(write_end, 2)
        os.close(write_end)

    def lines(self) -> list[str]:
        """Returns the lines written since the last call, made safe."""
        self._unfinished += self._read()
        *lines, self._unfinished = self._unfinished.split(b"\n")
        if len(self._unfinished) > _LONGEST_LINE:
            lines, self._unfinished = [*lines, self._unfinished], b""
        texts = (safe(line.decode(errors="replace")).strip() for line in lines)
        return [text for text in texts if text]

    def give_back(self) -> str:
        """Restores fd 2 and returns what was not fetched yet. Never raises."""
        if self._saved is None:
            return ""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        with contextlib.suppress(OSError):
            os.dup2(self._saved, 2)
        rest = safe((self._unfinished + self._read()).decode(errors="replace"))
        assert self.fd is not None
        for fd in (self._saved, self.fd):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._saved = self.fd = None
        return rest if not rest or rest.endswith("\n") else rest + "\n"

    def _read(self) -> bytes:
        assert self.fd is not None
        parts = []
        with contextlib.suppress(OSError):
            while part := os.read(self.fd, _READ_BYTES):
                parts.append(part)
        return b"".join(parts)

    def _is_terminal(self, fd: int) -> bool:
        try:
            status = os.fstat(fd)
            same = {os.fstat(1).st_rdev, os.fstat(self._terminal).st_rdev}
        except OSError:
            return False
        return stat.S_ISCHR(status.st_mode) and os.isatty(fd) and status.st_rdev in same
