"""What the commands say to people: messages on stderr, one line each."""

from __future__ import annotations

import contextlib
import sys

from tpumon.text import one_line

_LONGEST_MESSAGE = 1000


def say(message: str) -> None:
    """One line on stderr. Never fails: a message that cannot be said is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        print(f"tpumon: {one_line(message, limit=_LONGEST_MESSAGE)}", file=sys.stderr, flush=True)
