"""Makes untrusted text safe: for a terminal, and as data, not as instructions, for a program that reads it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_TERMINAL_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, modes
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and other strings: titles, clipboard, hyperlinks
    r"|\x1b.?",
    re.DOTALL,
)

_SUSPECT = re.compile(r"[^\n\t\x20-\x7e]")
_NO_WORD = re.compile(r"[^A-Za-z0-9_.:/@%+#=\[\]-]+")
_LONGEST_WORD = 40
LONGEST_ID = 128
"""Of a request: an ID that is cut could not be asked for."""


def safe(text: str) -> str:
    """Removes terminal escape sequences, control characters and invisible characters that reorder text.

    Newlines and tabs stay.
    """
    if not _SUSPECT.search(text):
        return text
    text = _TERMINAL_SEQUENCE.sub("", text).replace("\r\n", "\n")
    return _SUSPECT.sub(lambda match: "" if unicodedata.category(match[0]) in {"Cc", "Cf", "Cs"} else match[0], text)


LONGEST_PATH = 4096


def one_line(text: str, *, limit: int = 200) -> str:
    """Joins `text` into one safe line of at most `limit` characters; a longer one ends with an ellipsis."""
    line = " ".join(safe(text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def unexpected(error: Exception) -> str:
    """One line about an unexpected error, such as an error of a reader of foreign data."""
    return one_line(f"{type(error).__name__}: {error}")


def plain_word(text: str, *, longest: int = _LONGEST_WORD) -> str:
    """A name as one word of ASCII letters, digits and a few signs, at most `longest`; `_` stands for others."""
    word = _NO_WORD.sub("_", one_line(text, limit=1000)) or "_"
    return word if len(word) <= longest else f"{word[:22]}...{word[3 + 22 - longest :]}"


def listed(names: Iterable[str], most: int, more: int = 0) -> str:
    """The first names, and the number of all others; `more` counts names that are not given."""
    named = list(names)
    more += max(len(named) - most, 0)
    return ", ".join(named[:most]) + f" and {more} more" * (more > 0)


def quote_names(text: str, foreign: Iterable[str]) -> str:
    """The text with the names that servers chose in double quotes, each as `plain_word` makes it.

    Args:
        text: our own words, with such names in them.
        foreign: all names that servers chose; a mere number may as well be one of ours.
    """
    names_of_words = {name for name in foreign if re.search(r"[^\W\d_]", name)}
    longest_first = sorted((name for name in names_of_words if name in text), key=len, reverse=True)
    if longest_first:
        names = re.compile("|".join(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in longest_first))
        text = names.sub(lambda match: f'"{plain_word(match[0])}"', text)
    return ascii_line(text)


def quote(text: str) -> str:
    """Words of a server, in double quotes."""
    return f'"{ascii_line(text, 200).replace(chr(34), chr(39))}"'


def ascii_line(text: str, limit: int = 1000) -> str:
    """The text as one line of ASCII, with `...` where it is cut."""
    line = one_line(text, limit=4 * limit).replace("…", "...").encode("ascii", "replace").decode()
    return line if len(line) <= limit else line[: limit - 3] + "..."
