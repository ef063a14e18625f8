"""In which order rows stand. They do not jump: a new order only when a state changes, or after five seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tpumon.fleet import FIGURES
from tpumon.view.names import natural
from tpumon.view.scene import Row

_HOLD_S = 5.0

_HIGH_FIRST = {"idle", "step", "infeed", "hbm"}

SORTS: tuple[str, ...] = ("worst", "name", *FIGURES)
"""What rows can be sorted by. `mxu`: the least first; other figures: the greatest; workers without it come last."""


class Order:
    """The order of a fleet's rows.

    Attributes:
        by: one of SORTS.
        reverse: the other way round.
    """

    def __init__(self, by: str, *, reverse: bool) -> None:
        self.by = by
        self.reverse = reverse
        self._names: list[str] = []
        self._ranks: dict[str, int] = {}
        self._since_unix_s = 0.0

    def cycle(self) -> None:
        """Sorts by the next."""
        self.by, self.reverse = SORTS[(SORTS.index(self.by) + 1) % len(SORTS)], False

    def arrange(self, rows: Sequence[Row], now_unix_s: float, *, at_once: bool = False) -> list[Row]:
        """The rows in order.

        Args:
            rows: all workers'.
            now_unix_s: by the wall clock.
            at_once: not only when it is time to.
        """
        ranks = {row.name: row.verdict.rank for row in rows}
        held = 0 <= now_unix_s - self._since_unix_s < _HOLD_S
        if at_once or not held or ranks != self._ranks:
            self._since_unix_s = now_unix_s
            self._ranks = ranks
            self._names = [row.name for row in self._sorted(rows)]
        by_name = {row.name: row for row in rows}
        return [by_name[name] for name in self._names]

    def _sorted(self, rows: Sequence[Row]) -> list[Row]:
        rows = sorted(rows, key=lambda row: natural(row.name))
        if self.by == "name":
            return rows[::-1] if self.reverse else rows
        if self.by == "worst":
            return sorted(rows, key=lambda row: row.verdict.rank, reverse=self.reverse)
        get = FIGURES[self.by]
        known = [(value, row) for row in rows if row.sample is not None and (value := get(row.sample)) is not None]
        known.sort(key=lambda pair: pair[0], reverse=(self.by in _HIGH_FIRST) != self.reverse)
        missing = {row.name for row in rows} - {row.name for _, row in known}
        return [row for _, row in known] + [row for row in rows if row.name in missing]


def matches(text: str) -> Callable[[Row], bool]:
    """Whether a worker's name, address or slice contains what was typed, in upper or lower case."""
    wanted = text.lower()
    return lambda row: any(
        wanted in (part or "").lower() for part in (row.name, row.history.target.address, row.history.target.slice)
    )
