"""What the user of the program should know, in one line."""

from __future__ import annotations

import os
import select

_LONGEST = 500


def say(message: str) -> None:
    """Prints one line on stderr; drops it where that would block or fail."""
    line = " ".join(message.split())[:_LONGEST]
    try:
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"tpumon: {line}\n".encode(errors="replace"))
    except (OSError, ValueError):
        pass


def explain(error: BaseException) -> str:
    """An unexpected error, for a line."""
    return f"{type(error).__name__}: {error}"
