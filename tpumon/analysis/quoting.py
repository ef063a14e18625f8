"""Marks what servers said in text that a program reads, for example a language model: as data, not as instructions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tpumon.untrusted_text import one_line

LONGEST = 40
_OTHER = re.compile(r"[^A-Za-z0-9_.:/@%+#=\[\]-]+")


def plain(text: str) -> str:
    """A name as one word of ASCII letters, digits and a few signs, at most 40 characters; `_` stands for others."""
    word = _OTHER.sub("_", one_line(text, limit=1000)) or "_"
    return word if len(word) <= LONGEST else f"{word[:22]}...{word[3 + 22 - LONGEST :]}"


def quoted(text: str, foreign: Iterable[str]) -> str:
    """The text with the names that servers chose in double quotes, each as `plain` makes it.

    Args:
        text: our own words, with such names in them.
        foreign: all names that servers chose.
    """
    found = sorted({name for name in foreign if name.strip() and name in text}, key=len, reverse=True)
    if found:
        names = re.compile("|".join(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in found))
        text = names.sub(lambda match: f'"{plain(match[0])}"', text)
    return cut(text)


def told(text: str) -> str:
    """Words of a server, in double quotes."""
    return f'"{cut(text, 200).replace(chr(34), chr(39))}"'


def cut(text: str, limit: int = 1000) -> str:
    """The text as one line of ASCII, with `...` where it is cut."""
    line = one_line(text, limit=4 * limit).replace("…", "...").encode("ascii", "replace").decode()
    return line if len(line) <= limit else line[: limit - 3] + "..."
