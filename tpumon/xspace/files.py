"""Saved profiles as files: which ones a path leads to, how they are opened, and why one cannot be read."""

from __future__ import annotations

import os
import shlex
import signal
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from tpumon.errors import Reason, SourceError, UsageError
from tpumon.system.logdir import SESSIONS, TRACE_SUFFIX
from tpumon.untrusted_text import one_line, unexpected

_MAX_BYTES = 1 << 31  # the limit of protobuf
_CPU_S, _CPU_S_PER_MB = 10.0, 0.5  # for reading a profile; all sections of a report take a fifteenth of that
_AGAIN_S = 1.0
_UNPACKERS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}  # by how a packed file begins; no trace does


def trace_files(paths: Iterable[str], option: str = "") -> dict[Path, str]:
    """Returns the traces that the paths lead to, each once, with the path that does.

    Args:
        paths: files, session directories, or log directories, of which the newest session counts.
        option: that gives them, if any.

    Raises:
        UsageError: a path leads to no trace.
    """
    files: dict[Path, str] = {}
    for text in paths:
        path = Path(text).expanduser()
        if path.is_dir():
            here = _in_directory(path)
        elif path.exists():
            here = [path]
        else:
            raise UsageError(f"{text}: no such file or directory", option=option)
        if not here:
            words = _why_closed(path) or f"no *{TRACE_SUFFIX} file in it, nor in a session below {SESSIONS}"
            raise UsageError(f"{text}: {words}", option=option)
        files |= {file: text for file in here if file not in files}
    return files


def _in_directory(path: Path) -> list[Path]:
    """Returns the traces of a session, or of the newest session of a log directory."""
    if own := _traces(path):
        return own
    for root in (path / SESSIONS, path):
        sessions = sorted((p for p in _entries(root) if p.is_dir()), key=lambda p: (modified(p), p.name), reverse=True)
        for session in sessions:
            if traces := _traces(session):
                return traces
    return []


def _traces(path: Path) -> list[Path]:
    return sorted(p for p in _entries(path) if p.name.endswith(TRACE_SUFFIX) and p.is_file())


def file_title(file: Path) -> str:
    """The name of a trace for people, without its suffix, in one line."""
    return one_line(file.name.removesuffix(TRACE_SUFFIX)) or "?"


def _entries(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []


def _why_closed(path: Path) -> str:
    """The reason why a directory cannot be looked into; empty: it can."""
    try:
        next(path.iterdir(), None)
    except OSError as error:
        return error.strerror or "cannot be read"
    return ""


def modified(path: Path) -> float:
    """Time of a file's last change; 0 if that is not known."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """Opens a file to read, in so much processor time as its size allows.

    Opening a pipe without a writer, or reading a device, might never end.

    Raises:
        SourceError: `refused`, the file is no regular one, or packed; `too-large`, also if reading takes too long.
        OSError: the file cannot be opened.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as handle:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SourceError("refused", "not a regular file, but a directory, pipe or device")
        if status.st_size > _MAX_BYTES:
            raise SourceError("too-large", f"{status.st_size} bytes; the maximum is {_MAX_BYTES}")
        begin = handle.read(max(map(len, _UNPACKERS)))
        handle.seek(0)
        for magic, command in _UNPACKERS.items():
            if begin.startswith(magic):
                # By the file's contents, whatever its name is.
                how = f"{command} -dc < {shlex.quote(one_line(str(file)))} > unpacked{TRACE_SUFFIX}"
                raise SourceError("refused", f"it is packed; unpack it first: {how}")
        with _limited(status.st_size):
            yield handle


@contextmanager
def _limited(size: int) -> Iterator[None]:
    """Lets reading a file of this size take so much processor time; in the main thread, others get no signals.

    Raises:
        SourceError: `too-large`, it takes more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    limit_s = _CPU_S + _CPU_S_PER_MB * size / 1e6

    def give_up(_signal_number: int, _frame: FrameType | None) -> None:
        message = (
            f"reading these {size / 1e6:.1f} MB was given up after {limit_s:.0f} s of processor time, which no usual "
            "profile takes; take one of a shorter window"
        )
        raise SourceError("too-large", message)

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, limit_s, _AGAIN_S)  # Python drops what is raised while a destructor runs
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def why_unread(error: Exception) -> tuple[Reason, str]:
    """The reason and a line that says why a file cannot be read."""
    if isinstance(error, SourceError):
        return error.reason, str(error)
    if isinstance(error, OSError):
        return "unavailable", error.strerror or str(error)
    if isinstance(error, MemoryError):
        return "too-large", "there is not enough memory to read it"
    return "internal", bug(error)


def bug(error: Exception) -> str:
    """Line about an unexpected error."""
    return f"a bug in tpumon: {unexpected(error)}"
