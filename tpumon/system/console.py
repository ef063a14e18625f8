"""What the user reads: what was asked for, on stdout, and messages of one line each, on stderr.

Foreign text in it is harmless to a terminal. A thread writes messages, so that a terminal or pipe that takes nothing
delays only them.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque

from tpumon.untrusted_text import one_line, safe

_MAX_LENGTH = 1000
_WAITING_LIMIT = 1000
_ORDER_S = 0.5


def show(text: str) -> None:
    """Prints text and a line's end on stdout, at once.

    Raises:
        OSError: it cannot be written.
    """
    sys.stdout.write(f"{safe(text)}\n")
    sys.stdout.flush()


def say(message: str) -> None:
    """Prints one line on stderr. Never raises: a message that cannot be printed is no reason to stop.

    Blocks only the main thread, for at most 0.5 s, so that the line precedes what is printed next. While stderr
    takes nothing, no thread waits, and lines beyond the newest 1,000 are dropped, oldest first.
    """
    _lines.put(f"tpumon: {one_line(message, limit=_MAX_LENGTH)}\n")
    if threading.current_thread() is threading.main_thread() and not _lines.stalled:
        _lines.stalled = not _lines.wait(_ORDER_S)


def flush(timeout_s: float) -> bool:
    """Waits for this long until all lines are written; returns whether they are."""
    return _lines.wait(timeout_s)


class _Lines:
    """A queue of lines, and the thread that writes them.

    Attributes:
        stalled: waiting for a line took too long; cleared once all are written.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[str] = deque()
        self._dropped = 0
        self._writing = False
        self.stalled = False
        self._thread: threading.Thread | None = None

    def put(self, line: str) -> None:
        with self._changed:
            if len(self._waiting) >= _WAITING_LIMIT:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append(line)
            self._changed.notify_all()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._write, name="tpumon-stderr", daemon=True)
                self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Waits until all lines are written; returns whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._writing, timeout_s)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                if not self._waiting:
                    self.stalled = False
                    self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting)
                line, self._writing = self._waiting.popleft(), True
                dropped, self._dropped = self._dropped, 0
            if dropped:
                line = f"tpumon: {dropped} messages were not shown: nothing read stderr\n{line}"
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(line)
                sys.stderr.flush()


_lines = _Lines()
