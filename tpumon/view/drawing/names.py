"""Short names for workers that stay distinct."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from rich.cells import cell_len, chop_cells, set_cell_size

from tpumon.view.drawing.lines import tame
from tpumon.view.drawing.style import Glyphs

_NUMBERS = re.compile(r"(\d+)")
_BOUNDARY = re.compile(r"[-._:/]")


@lru_cache(maxsize=8192)
def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that puts w2 before w10."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in _NUMBERS.split(name.lower()))


class Labels:
    """Short forms of a fleet's names, cached for the last width."""

    def __init__(self, workers: Sequence[str], glyphs: Glyphs) -> None:
        self._names = {worker: tame(worker, ascii_only=glyphs.ascii) or "?" for worker in workers}
        self._ellipsis = glyphs.ellipsis
        self._shown: dict[int, dict[str, str]] = {}
        self.longest = max(map(cell_len, self._names.values()), default=0)
        """Width of the longest name in cells."""

    def whole(self, worker: str) -> str:
        """The name, safe to show."""
        return self._names.get(worker, "?")

    def at(self, width: int) -> dict[str, str]:
        """Labels of at most `width` cells by worker; distinct if that is possible."""
        if width not in self._shown:
            self._shown = {width: self._shorten(width)}
        return self._shown[width]

    def _shorten(self, width: int) -> dict[str, str]:
        if self.longest <= width:
            labels = dict(self._names)
        else:
            prefix, suffix = self._shared()
            labels = {worker: self._cut(name, width, prefix, suffix) for worker, name in self._names.items()}
        return self._numbered(labels, width)

    def _shared(self) -> tuple[int, int]:
        """Lengths of the prefix and suffix that all names share, up to a word boundary."""
        names = list(self._names.values())
        if len(names) < 2:
            return 0, 0
        prefix, suffix = _common(names), _common([name[::-1] for name in names])
        first = max((match.end() for match in _BOUNDARY.finditer(prefix)), default=0)
        last = max((match.end() for match in _BOUNDARY.finditer(suffix)), default=0)
        return first, last

    def _cut(self, name: str, width: int, prefix: int, suffix: int) -> str:
        """Drops the shared suffix first, then the shared prefix, then the middle."""
        if cell_len(name) > width and suffix and prefix + suffix < len(name):
            name = name[:-suffix]
        if cell_len(name) > width and prefix:
            rest = name[prefix:]
            name = rest if cell_len(rest) == width else self._ellipsis + rest
        if cell_len(name) <= width:
            return name
        head = max((width - 1) // 3, 0)
        start, end = set_cell_size(name, head), _end(name, width - 1 - head)
        return set_cell_size(start + self._ellipsis + end, width).rstrip()

    def _numbered(self, labels: dict[str, str], width: int) -> dict[str, str]:
        """Replaces the ends of equal labels by the workers' numbers."""
        counts = Counter(labels.values())
        if len(counts) == len(labels):
            return labels
        numbered = {}
        for number, (worker, label) in enumerate(labels.items(), start=1):
            ordinal = f"{self._ellipsis}{number}" if len(str(number)) < width else str(number)[-width:]
            room = max(width - len(ordinal), 0)
            numbered[worker] = set_cell_size(label, room).rstrip() + ordinal if counts[label] > 1 else label
        return numbered


def _end(text: str, width: int) -> str:
    """The last characters of a text that fit into `width` cells."""
    return chop_cells(text[::-1], width)[0][::-1] if width > 0 and text else ""


def _common(names: Sequence[str]) -> str:
    """The prefix that all names share."""
    first, last = min(names), max(names)
    same = next((place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), None)
    return first[:same]
