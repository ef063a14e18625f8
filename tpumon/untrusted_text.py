"""Makes untrusted text safe for a terminal."""

from __future__ import annotations

import re
import unicodedata

_TERMINAL_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, modes
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and other strings: titles, clipboard, hyperlinks
    r"|\x1b.?",
    re.DOTALL,
)

_SUSPECT = re.compile(r"[^\n\t\x20-\x7e]")


def safe(text: str) -> str:
    """Removes terminal escape sequences, control characters and invisible characters that reorder text.

    Newlines and tabs stay.
    """
    if not _SUSPECT.search(text):
        return text
    text = _TERMINAL_SEQUENCE.sub("", text).replace("\r\n", "\n")
    return _SUSPECT.sub(lambda found: "" if unicodedata.category(found[0]) in {"Cc", "Cf", "Cs"} else found[0], text)


LONGEST_PATH = 4096


def one_line(text: str, *, limit: int = 200) -> str:
    """Joins `text` into one safe line of at most `limit` characters; a longer one ends with an ellipsis."""
    line = " ".join(safe(text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def unexpected(error: Exception) -> str:
    """One line about an error that nobody foresaw, such as one of a reader of foreign data."""
    return one_line(f"{type(error).__name__}: {error}")
