"""Turn styled lines into what is sent to a terminal. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

_ERASE_REST = "\x1b[K"
_WITHOUT_COLOR = re.compile(r"vt\d|.*-m(ono)?$")


def wants_color(choice: str, environment: Mapping[str, str]) -> bool:
    """Chooses colors or none. `choice` is auto, always or never; auto follows NO_COLOR and TERM."""
    if choice == "auto":
        return not environment.get("NO_COLOR") and not _WITHOUT_COLOR.match(environment.get("TERM", ""))
    return choice == "always"


class Painter:
    """Turns lines of segments into what is sent to a terminal.

    Args:
        color: whether to use colors: the 16 that every theme defines. Bold, reverse and the like are used anyway.
        ascii_only: write `?` for everything that is not ASCII.
    """

    def __init__(self, *, color: bool, ascii_only: bool) -> None:
        self._color = color
        self._ascii_only = ascii_only
        self._codes: dict[Style, tuple[str, str]] = {}

    def line(self, segments: Sequence[Segment], width: int) -> str:
        """Returns a line of at most `width` cells: longer text is cut, the rest of the line is erased."""
        parts = []
        left = width
        for text, style, control in segments:
            if control or not text:
                continue
            shown = text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
            if shown.isascii():
                cells = len(shown)
            else:
                if self._ascii_only:
                    shown = shown.encode("ascii", "replace").decode()
                cells = cell_len(shown)
            if cells > left:
                shown, cells = set_cell_size(shown, left), left
            before, after = self._codes_of(style) if style is not None else ("", "")
            parts.append(f"{before}{shown}{after}")
            left -= cells
            if not left:
                break
        else:
            parts.append(_ERASE_REST)
        return "".join(parts)

    def _codes_of(self, style: Style) -> tuple[str, str]:
        codes = self._codes.get(style)
        if codes is None:
            used = style if self._color else style.without_color
            before, _, after = used.render("\0", color_system=ColorSystem.STANDARD).partition("\0")
            codes = self._codes[style] = before, after
        return codes
