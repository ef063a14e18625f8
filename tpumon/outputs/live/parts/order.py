"""The order of rows. Rows do not jump: within five seconds, only workers that got worse or better move."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from tpumon.analysis import Verdict, WorkerStatus
from tpumon.analysis.history import WELL
from tpumon.model import Figures, FindingId
from tpumon.model.figure_table import COMPARED, NAME, SORT_KEYS, WORST
from tpumon.outputs.drawing.names import natural
from tpumon.outputs.live.parts.scene import Scene

_HOLD_S = 5.0
_ALIKE = math.log(1.08)
"""Workers whose excess differs by less than this factor are equally bad."""

_MOST_EXCESS = 1e9
_TELLING = frozenset({"hang", "straggler"})
_FEW_RATIO = 0.25  # of the workers: a finding of so many tells them apart

NOT_OK = "not ok"

_RANK_OF_WELL = Verdict(state="live", severity="ok").rank
_Place = tuple[bool, float, float, float, tuple[tuple[int, int, str], ...]]


class Order:
    """The order of a fleet's rows.

    Attributes:
        by: one of `tpumon.model.figure_table.SORT_KEYS`.
        reverse: whether the order is reversed.
        keeps_places: whether rows keep their places though the figures that they are sorted by say otherwise by now.
    """

    def __init__(self, by: str, *, reverse: bool) -> None:
        self.by = by
        self.reverse = reverse
        self.keeps_places = False
        self._names: list[str] = []
        self._places: dict[str, _Place] = {}
        self._ranks: dict[str, int] = {}
        self._excesses: dict[str, int] = {}
        self._shared: frozenset[FindingId] = frozenset()
        self._since_unix_s = 0.0

    def cycle(self, rows: Sequence[WorkerStatus]) -> None:
        """Sorts by the next figure that some of these workers have."""
        figures = [row.sample.figures for row in rows if row.sample is not None]
        place = SORT_KEYS.index(self.by) + 1
        following = (*SORT_KEYS[place:], *SORT_KEYS[:place])
        self.by = next(key for key in following if key not in COMPARED or any(_has(key, each) for each in figures))
        self.reverse = False

    def arrange(self, rows: Sequence[WorkerStatus], now_unix_s: float, *, at_once: bool = False) -> list[WorkerStatus]:
        """Returns the rows in order.

        Args:
            rows: the rows of all workers.
            now_unix_s: wall-clock time.
            at_once: sort now, even if the five seconds are not over.
        """
        self._shared = _shared(rows)
        ranks = {row.name: _rank(row) for row in rows}
        is_soon = 0 <= now_unix_s - self._since_unix_s < _HOLD_S
        if at_once or not is_soon or ranks.keys() != self._ranks.keys():
            self._since_unix_s = now_unix_s
            self._excesses = {name: step for name, step in self._excesses.items() if name in ranks}
            self._places = {row.name: self._place(row) for row in rows}
            self._sort()
        elif self.by == WORST and ranks != self._ranks:
            # Only workers that got worse or better move; the others keep their places.
            self._places |= {row.name: self._place(row) for row in rows if _rank(row) != self._ranks[row.name]}
            self._sort()
        self._ranks = ranks
        by_name = {row.name: row for row in rows}
        arranged = [by_name[name] for name in self._names]
        places = [self._place(row) for row in arranged] if self.by in COMPARED else []
        self.keeps_places = places != sorted(places)
        return arranged

    def _sort(self) -> None:
        self._names = sorted(self._places, key=self._places.__getitem__, reverse=self.by == NAME and self.reverse)

    def _place(self, row: WorkerStatus) -> _Place:
        """Sort key of a row: missing figures last in either direction, ties by name."""
        sign = -1.0 if self.reverse else 1.0
        name = natural(row.name)
        if self.by == NAME:
            return False, 0.0, 0.0, 0.0, name
        if self.by == WORST:
            # Who differs from the others comes before those that all have the same, and before those that wait for it.
            alike = row.waits + (not any(cause.finding not in self._shared for cause in row.verdict.marking))
            return False, sign * _rank(row), sign * alike, -sign * self._excess(row), name
        value = None if row.sample is None else COMPARED[self.by].value(row.sample.figures)
        if value is None:
            return True, 0.0, 0.0, 0.0, name
        return False, -sign * value if COMPARED[self.by].worse == "high" else sign * value, 0.0, 0.0, name

    def _excess(self, row: WorkerStatus) -> int:
        """Excess of a row, in coarse steps that noise does not cross: rows that are equally bad stay by name."""
        exact = math.log1p(min(max(row.verdict.excess, 0.0), _MOST_EXCESS)) / _ALIKE
        step = self._excesses.get(row.name)
        if step is None or abs(exact - step) > 1:
            step = self._excesses[row.name] = round(exact)
        return step


def _has(key: str, figures: Figures) -> bool:
    return COMPARED[key].value(figures) is not None


def _shared(rows: Sequence[WorkerStatus]) -> frozenset[FindingId]:
    """Findings that many workers have, without findings that name the worker that others wait for."""
    counts = Counter(cause.finding for row in rows for cause in row.verdict.marking if cause.finding is not None)
    return frozenset(
        finding for finding, count in counts.items() if count > _FEW_RATIO * len(rows) and finding not in _TELLING
    )


def _rank(row: WorkerStatus) -> int:
    """Rank of a row's worker; `info` ranks the same as `ok`."""
    return _RANK_OF_WELL if row.verdict.status in WELL else row.verdict.rank


def kinds(scene: Scene) -> list[str]:
    """Filters of workers: `NOT_OK`, then each kind of trouble that some worker has, the worst first."""
    marks = sorted({(row.verdict.rank, row.verdict.mark) for row in scene.rows})
    troubles = [kind for _, kind in marks if kind not in WELL]
    return [NOT_OK, *troubles] if len(troubles) > 1 else [NOT_OK]


def is_of(kind: str) -> Callable[[WorkerStatus], bool]:
    """Returns a test for workers of a kind that `kinds` names."""
    if kind == NOT_OK:
        return lambda row: row.verdict.status not in WELL
    return lambda row: row.verdict.mark == kind
