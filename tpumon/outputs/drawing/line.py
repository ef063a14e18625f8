"""Lines of a known width, built from styled pieces and never wider than allowed."""

from __future__ import annotations

import textwrap
from functools import lru_cache
from typing import Self

from rich.cells import cell_len, chop_cells, get_character_cell_size, set_cell_size
from rich.segment import Segment
from rich.style import Style

from tpumon.untrusted_text import one_line

_LONGEST = 2000

Lines = list[list[Segment]]
"""Lines of a picture, each a list of styled pieces."""


class Line:
    """A line that is filled from the left.

    Attributes:
        room: cells that are still empty.
    """

    __slots__ = ("_pieces", "room")

    def __init__(self, width: int) -> None:
        self.room = width
        self._pieces: list[tuple[str, Style | None]] = []

    def add(self, text: str, style: Style | None = None) -> Self:
        """Appends text, cut to the remaining room."""
        if self.room <= 0 or not text:
            return self
        cells = len(text) if text.isascii() else cell_len(text)
        if cells > self.room:
            text, cells = set_cell_size(text, self.room), self.room
        self.room -= cells
        if self._pieces and self._pieces[-1][1] is style:
            text = self._pieces.pop()[0] + text
        self._pieces.append((text, style))
        return self

    def fill(self, cells: int, style: Style | None = None) -> Self:
        return self.add(" " * cells, style)

    def right(self, text: str, style: Style | None = None) -> Self:
        """Puts text at the right end if it fits completely."""
        gap = self.room - cell_len(text)
        return self.fill(gap, None).add(text, style) if gap >= 0 else self

    def segments(self) -> list[Segment]:
        return [Segment(text, style) for text, style in self._pieces]


def plain(text: str, width: int, style: Style | None = None) -> list[Segment]:
    return Line(width).add(text, style).segments()


@lru_cache(maxsize=8192)
def tame(text: str, *, ascii_only: bool) -> str:
    """Makes untrusted text one printable line whose width on a terminal is known: no zero-width characters.

    Args:
        text: from any source.
        ascii_only: replace everything else by `?`.
    """
    line = one_line(text, limit=_LONGEST)
    if line.isascii():
        return line
    if ascii_only:
        line = line.replace("…", "~")
        return "".join(char if char.isascii() else "?" for char in line)
    return "".join(char if char.isprintable() else "?" for char in line if get_character_cell_size(char) > 0)


def cut(text: str, width: int, ellipsis: str) -> str:
    """Cuts text to `width` cells; an ellipsis shows that it was cut."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + ellipsis if width > 0 else ""


def wrapped(text: str, width: int, *, indent: int = 0) -> list[str]:
    """Breaks text into lines of at most `width` cells; all but the first are indented."""
    width = max(width, 1)
    indent = min(indent, width // 2)
    lines = textwrap.wrap(text, width, subsequent_indent=" " * indent) or [""]
    # textwrap counts characters, not cells, so wide characters need a second pass.
    return [
        set_cell_size(part, min(cell_len(part), width)) for line in lines for part in chop_cells(line, width) or [""]
    ]
