"""Short names for workers that stay distinct."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from rich.cells import cell_len, chop_cells, set_cell_size

from tpumon.analysis import WorkerStatus
from tpumon.model import Process
from tpumon.outputs.drawing.line import tame
from tpumon.outputs.drawing.style import Glyphs

_NUMBERS = re.compile(r"(\d+)")
_MOST_WIDTHS = 4
_BOUNDARY = re.compile(r"[-._:/]")


@lru_cache(maxsize=8192)
def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that puts w2 before w10."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in _NUMBERS.split(name.lower()))


class Labels:
    """Short forms of a fleet's names, cached for a few widths.

    Attributes:
        workers: the names.
    """

    def __init__(self, workers: Sequence[str], glyphs: Glyphs) -> None:
        self.workers = workers
        self._names = {worker: tame(worker, ascii_only=glyphs.ascii) or "?" for worker in workers}
        self._ellipsis = glyphs.ellipsis
        self._shown: dict[int, dict[str, str]] = {}
        self._longest = _longest(self._names.values())

    def whole(self, worker: str) -> str:
        """The name, safe to show."""
        return self._names.get(worker, "?")

    def at(self, width: int) -> dict[str, str]:
        """Labels of at most `width` cells by worker; distinct if that is possible."""
        if width not in self._shown:
            if len(self._shown) >= _MOST_WIDTHS:
                self._shown.clear()
            self._shown[width] = self._shorten(width)
        return self._shown[width]

    def width_at(self, width: int) -> int:
        """Width of the longest of those labels in cells."""
        return _longest(self.at(width).values())

    def _shorten(self, width: int) -> dict[str, str]:
        """Drops the suffix that all names share, then leading words that they share, then the middle of each."""
        if self._longest <= width:
            return self._numbered(dict(self._names), width)
        prefixes, suffix = self._shared()
        names = self._names
        if suffix and all(len(name) > suffix + prefixes[-1] for name in names.values()):
            names = {worker: name[:-suffix] for worker, name in names.items()}
        for prefix in prefixes:
            shorter = {w: self._ellipsis + name[prefix:] if prefix else name for w, name in names.items()}
            if _longest(shorter.values()) <= width:
                return self._numbered(shorter, width)
        last = prefixes[-1]
        return self._numbered({worker: self._cut(name, width, last) for worker, name in names.items()}, width)

    def _shared(self) -> tuple[list[int], int]:
        """Places of words in the prefix that all names share, and the length of the suffix that they share."""
        names = list(self._names.values())
        if len(names) < 2:
            return [0], 0
        prefix, suffix = _common(names), _common([name[::-1] for name in names])
        last = max((match.end() for match in _BOUNDARY.finditer(suffix)), default=0)
        return [0, *(match.end() for match in _BOUNDARY.finditer(prefix))], last

    def _cut(self, name: str, width: int, prefix: int) -> str:
        """A name without the shared prefix; if it is still too long, without its middle."""
        rest = name[prefix:]
        name = self._ellipsis + rest if prefix and cell_len(rest) < width else rest
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


def short_processes(workers: Iterable[WorkerStatus]) -> Mapping[str, str]:
    """By worker, its process in short, `4711 ada train.py`, where several workers of a host have one; else empty."""
    processes = {worker.name: worker.process for worker in workers}
    hosts = Counter(name.partition(":")[0] for name, process in processes.items() if process is not None)
    if max(hosts.values(), default=0) < 2:
        return {}
    return {name: "" if process is None else _short_process(process) for name, process in processes.items()}


def _short_process(process: Process) -> str:
    script = (process.command or "").rpartition(" ")[2].rpartition("/")[2]
    return " ".join(filter(None, [str(process.pid), process.user, script]))


def _end(text: str, width: int) -> str:
    """The last characters of a text that fit into `width` cells."""
    return chop_cells(text[::-1], width)[0][::-1] if width > 0 and text else ""


def _longest(names: Iterable[str]) -> int:
    return max(map(cell_len, names), default=0)


def _common(names: Sequence[str]) -> str:
    """The prefix that all names share."""
    first, last = min(names), max(names)
    same = next((place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), None)
    return first[:same]
