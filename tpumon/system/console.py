"""The user's two streams: what was asked for, on stdout, and messages of one line each, on stderr, by `logging`.

Foreign text in them is harmless to a terminal. A thread writes messages, so that a terminal or pipe that takes nothing
delays only them. `QueueHandler` and `QueueListener` would do, but for the oldest lines, which are dropped here when
the queue is full, and for the order of the two streams.
"""

from __future__ import annotations

import codecs
import contextlib
import locale
import logging
import os
import queue
import re
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from tpumon.untrusted_text import one_line, safe

OURS = ("tpumon", "tpumon_exporters")
_MAX_LENGTH = 1000
_WAITING_LIMIT = 1000
_ORDER_S = 0.5
_QUIET_S = 5.0  # without a message: then what was left out is said by itself
_LINES_AT_ONCE, _LINES_PER_S = 10.0, 1 / 60  # about one worker
_ALL_AT_ONCE, _ALL_PER_S = 200.0, 1 / 6
_QUIET_LINES = 2.0  # that may be printed and are not: so nothing more comes to which what was left out could be added
_MOST_WORKERS = 1000  # whose lines are counted
_MOST_KEPT = 20


def show(text: str) -> None:
    """Prints text and a line's end on stdout, at once.

    Raises:
        OSError: it cannot be written.
    """
    _stderr.keep_order()
    sys.stdout.write(f"{safe(text)}\n")
    sys.stdout.flush()


def terminal_is_utf_8() -> bool:
    """True if both stdout and the locale say UTF-8."""
    return _is_utf_8(sys.stdout.encoding) and _is_utf_8(_locale_encoding())


def _locale_encoding() -> str:
    """The encoding that the locale promises.

    Python uses UTF-8 in the C locale, too, although LC_ALL=C asks for ASCII. A locale that is not installed here, as
    is usual over ssh, acts like the C locale, but its name still names the encoding.
    """
    named = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    return "utf-8" if re.search(r"\.utf-?8\b", named, re.IGNORECASE) else locale.getencoding()


def _is_utf_8(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name == "utf-8"
    except LookupError:
        return False


def set_up() -> None:
    """Has messages printed on stderr: of tpumon from INFO on, of libraries from WARNING on."""
    logging.raiseExceptions = False  # a message that cannot be printed is no reason to print a traceback
    for name in OURS:
        logging.getLogger(name).setLevel(logging.INFO)
    if _stderr not in logging.getLogger().handlers:
        logging.getLogger().addHandler(_stderr)


def be_verbose() -> None:
    for name in OURS:
        logging.getLogger(name).setLevel(logging.DEBUG)


@contextlib.contextmanager
def shown_by(show: Callable[[str], None], *, alone: bool = True) -> Iterator[None]:
    """Gives messages to a function, from any thread, while the block runs.

    Args:
        show: gets each line; must not block.
        alone: stderr gets none of them.
    """
    root, handler = logging.getLogger(), _Passing(show)
    root.addHandler(handler)
    if alone:
        root.removeHandler(_stderr)
    try:
        yield
    finally:
        if alone:
            root.addHandler(_stderr)
        root.removeHandler(handler)


def pop_said() -> list[str]:
    """The last messages that stderr got since the last call, for a view that covers them."""
    return [_stderr.said.popleft() for _ in range(len(_stderr.said))]


def flush(timeout_s: float) -> bool:
    """Waits for this long until all messages are written; returns whether they are."""
    return _stderr.wait(timeout_s)


class Allowance:
    """Number of things that may pass: some at once, then a few from time to time.

    Args:
        at_once: number of those that may pass at first, and after a long time without one.
        per_s: number of those that may pass each second in the long run.
        now_s: the present time, by a monotonic clock, as in all methods.

    Attributes:
        left_out: number of those that might not pass, since the last one that did.
    """

    __slots__ = ("_allowed", "_at_once", "_counted_s", "_per_s", "left_out")

    def __init__(self, at_once: float, per_s: float, now_s: float) -> None:
        self._at_once = self._allowed = at_once
        self._per_s = per_s
        self._counted_s = now_s
        self.left_out = 0

    def left(self, now_s: float) -> float:
        """Number of things that may pass now."""
        self._allowed = min(self._allowed + (now_s - self._counted_s) * self._per_s, self._at_once)
        self._counted_s = now_s
        return self._allowed

    def use(self, now_s: float) -> int | None:
        """Counts one; None: it may not pass, otherwise the number of those left out before it."""
        if self.left(now_s) < 1:
            self.left_out += 1
            return None
        self._allowed -= 1
        left_out, self.left_out = self.left_out, 0
        return left_out


class RepetitionFilter(logging.Filter):
    """Limits messages about workers, which a server can cause without end.

    Each worker gets ten at once, then one a minute; all together get two hundred at once, then ten a minute. Messages
    about workers have an attribute `worker`: its name, or "" if they are about several; others always pass. The first
    message after a gap gets an attribute `left_out`: words for how many are missing.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._all = Allowance(_ALL_AT_ONCE, _ALL_PER_S, clock_s())
        self._workers: OrderedDict[str, Allowance] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Tells if a message may pass."""
        worker, words = getattr(record, "worker", None), ""
        if worker is not None:
            with self._lock:
                now_s = self._clock_s()
                of_worker = self._of(worker, now_s).use(now_s) if worker else 0
                of_all = None if of_worker is None else self._all.use(now_s)
            if of_worker is None or of_all is None:
                return False
            words += f" (left out before: {of_worker} lines about this worker)" if of_worker else ""
            words += f" (left out before: {of_all} lines)" if of_all else ""
        record.left_out = words
        return True

    def left_out_line(self) -> str:
        """A line about what was left out, once there is room for more than that; empty if there is nothing to say."""
        with self._lock:
            left_out = self._all.left_out
            if not left_out or self._all.left(self._clock_s()) < _QUIET_LINES:
                return ""
            self._all.use(self._clock_s())
        return f"left out before: {left_out} lines"

    def _of(self, worker: str, now_s: float) -> Allowance:
        allowance = self._workers.pop(worker, None) or Allowance(_LINES_AT_ONCE, _LINES_PER_S, now_s)
        self._workers[worker] = allowance
        if len(self._workers) > _MOST_WORKERS:
            self._workers.popitem(last=False)
        return allowance


class _Passing(logging.Handler):
    """Gives each message as one line to a function."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._show = show
        self.addFilter(RepetitionFilter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._show(_line(record))
        except Exception:  # noqa: BLE001 - no message is worth an error
            self.handleError(record)


class StderrHandler(logging.Handler):
    """Writes each message as one line `tpumon: ...` on stderr. Never raises.

    Delays only the main thread, for at most 0.5 s, so that the line precedes what is printed next. While stderr takes
    nothing, no thread waits, and lines beyond the newest 1,000 are dropped, oldest first.

    Attributes:
        said: the last messages.
    """

    def __init__(self) -> None:
        super().__init__()
        self._limit = RepetitionFilter()
        self.addFilter(self._limit)
        self._lines: queue.Queue[str] = queue.Queue(_WAITING_LIMIT)
        self.said: deque[str] = deque(maxlen=_MOST_KEPT)
        self._dropped = 0
        self._stalled = False  # waiting for a line took too long, and not all are written since
        self._thread: threading.Thread | None = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Passes it on, and waits for it in the main thread."""
        passed = bool(super().handle(record))
        if passed and threading.current_thread() is threading.main_thread():
            self.keep_order()
        return passed

    def keep_order(self) -> None:
        """Waits until all lines are written, for at most 0.5 s; not again while stderr takes nothing."""
        self._stalled = self._stalled or not self.wait(_ORDER_S)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.said.append(_line(record))
            line = f"tpumon: {self.said[-1]}\n"
        except Exception:  # noqa: BLE001 - see the class
            self.handleError(record)
            return
        while True:
            try:
                self._lines.put_nowait(line)
                break
            except queue.Full:
                with contextlib.suppress(queue.Empty):
                    self._lines.get_nowait()
                    self._lines.task_done()
                    self._dropped += 1
        if self._thread is None or not self._thread.is_alive():  # a fork has no threads
            self._thread = threading.Thread(target=self._write, name="tpumon-stderr", daemon=True)
            self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Waits until all lines are written; returns whether they are."""
        with self._lines.all_tasks_done:
            return self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, timeout_s)

    def _write(self) -> None:
        while True:
            try:
                line = self._lines.get(timeout=_QUIET_S)
            except queue.Empty:
                if left_out := self._limit.left_out_line():
                    self._print(f"tpumon: {left_out}\n")
                continue
            self.acquire()
            dropped, self._dropped = self._dropped, 0
            self.release()
            if dropped:
                line = f"tpumon: {dropped} messages were not shown: nothing read stderr\n{line}"
            self._print(line)
            self._lines.task_done()
            if not self._lines.unfinished_tasks:
                self._stalled = False

    @staticmethod
    def _print(line: str) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(line)
            sys.stderr.flush()


def _line(record: logging.LogRecord) -> str:
    return one_line(record.getMessage() + getattr(record, "left_out", ""), limit=_MAX_LENGTH)


_stderr = StderrHandler()
