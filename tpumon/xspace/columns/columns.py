"""Columns of a line's events: one array for each field and stat, with one element for each event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
Mask = NDArray[np.bool_]


class StatColumn(Struct, frozen=True, eq=False):
    """One stat of a line's events; all arrays have one element per event.

    Attributes:
        values: the number's 64 bits, a double's included; 0 for text and bytes, and where there is none. If an event
            has the stat twice, its last one.
        present: which events have it; None where all have.
        doubles: which bits are a double's; None where none are.
    """

    values: Words
    present: Mask | None = None
    doubles: Mask | None = None

    @property
    def rows(self) -> Ints:
        """Indices of the events that have it, ascending."""
        return np.arange(len(self.values)) if self.present is None else np.flatnonzero(self.present)

    def integers(self, default: int = 0) -> Ints:
        """The stat as integers, `default` where there is none."""
        values = self.values.view(np.int64)
        return values if self.present is None else np.where(self.present, values, default)

    def numbers(self, default: float = 0.0) -> Floats:
        """The stat as floating point numbers, `default` where there is none."""
        numbers = self.values.view(np.int64).astype(np.float64)
        if self.doubles is not None:
            numbers = np.where(self.doubles, self.values.view(np.float64), numbers)
        return numbers if self.present is None else np.where(self.present, numbers, default)

    def take(self, picked: Ints | Mask) -> StatColumn:
        """That of some of the events."""
        return StatColumn(
            self.values[picked],
            None if self.present is None else self.present[picked],
            None if self.doubles is None else self.doubles[picked],
        )


class EventColumns(Struct, frozen=True, kw_only=True, eq=False):
    """The events of a line, in the line's order; all arrays have one element per event.

    Attributes:
        metadata_id: key into the plane's event_metadata.
        offset_ps: start, from the line's timestamp on.
        duration_ps: may be negative where the trace is absurd.
        stats: by metadata id of the stat, those that were asked for and found.
    """

    metadata_id: Ints
    offset_ps: Ints
    duration_ps: Ints
    stats: Mapping[int, StatColumn] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.metadata_id)


class StatBuilder:
    """A stat's column in the making.

    Args:
        count: of events.
    """

    def __init__(self, count: int) -> None:
        self._values = np.zeros(count, dtype=np.uint64)
        self._present = np.zeros(count, dtype=np.bool_)
        self._doubles: Mask | None = None

    def put(self, rows: Ints | slice, values: Words, *, is_double: bool) -> None:
        """Sets the stat of some events."""
        self._values[rows] = values
        self._present[rows] = True
        if is_double and self._doubles is None:
            self._doubles = np.zeros(len(self._values), dtype=np.bool_)
        if self._doubles is not None:
            self._doubles[rows] = is_double

    def forget(self, rows: Ints) -> None:
        """Takes the stat from some events."""
        self._values[rows], self._present[rows] = 0, False

    def column(self) -> StatColumn | None:
        """The column; None if none of the events has the stat."""
        if self._present.all():
            return StatColumn(self._values, None, self._doubles)
        return StatColumn(self._values, self._present, self._doubles) if self._present.any() else None


def join_stats(parts: Sequence[Mapping[str, StatColumn]], counts: Sequence[int]) -> dict[str, StatColumn]:
    """The stats of several lines, one after the other.

    Args:
        parts: of each line.
        counts: how many events each line has.
    """
    joined = {}
    for name in {name for part in parts for name in part}:
        columns = [
            part[name]
            if name in part
            else StatColumn(np.zeros(count, dtype=np.uint64), np.zeros(count, dtype=np.bool_))
            for part, count in zip(parts, counts, strict=True)
        ]
        joined[name] = StatColumn(
            np.concatenate([column.values for column in columns]),
            _together([column.present for column in columns], counts, missing=True),
            _together([column.doubles for column in columns], counts, missing=False),
        )
    return joined


def _together(masks: Sequence[Mask | None], counts: Sequence[int], *, missing: bool) -> Mask | None:
    if all(mask is None for mask in masks):
        return None
    whole = [np.full(n, missing) if mask is None else mask for mask, n in zip(masks, counts, strict=True)]
    return np.concatenate(whole)
