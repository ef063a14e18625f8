"""Messages to the user of the program, of one line each."""

from __future__ import annotations

import os
import sys

_LONGEST = 500
_STDERR = 2


def _file_of(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


_stderr = _file_of(_STDERR) if sys.__stderr__ is not None else None
"""Device and inode of stderr when this process was attached; None if it was closed when Python started."""


def say(message: str) -> None:
    """Prints one line on stderr; drops it where that would block or fail.

    Drops it, too, if descriptor 2 is another file than at the start. The program may have put its log there, or a file
    of its data got the number of a closed stderr: a lost line is better than a line in the program's data.
    """
    line = " ".join(message.split())[:_LONGEST]
    try:
        import select  # not at the top: each Python that a job starts would load it

        if _stderr is not None and _file_of(_STDERR) == _stderr and select.select([], [_STDERR], [], 0)[1]:
            os.write(_STDERR, f"tpumon: {line}\n".encode(errors="replace"))
    except Exception:  # noqa: S110 - a file system that is full, a reader that went away
        pass


def error_words(error: BaseException) -> str:
    """An unexpected error, for a line."""
    return f"{type(error).__name__}: {error}"
