"""Messages to the user: one line each, on stderr."""

from __future__ import annotations

import contextlib
import sys

from tpumon.text import one_line

_MAX_LENGTH = 1000


def say(message: str) -> None:
    """Prints one line on stderr. Never raises: a message that cannot be printed is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"tpumon: {one_line(message, limit=_MAX_LENGTH)}\n")
        sys.stderr.flush()
