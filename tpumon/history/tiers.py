"""A worker's figures over time, in tiers: the older, the coarser. Bounded by number of rows, and compressed.

A row of the first tier is one query: the worker's state and its figures, exact to 0.05 %. Rows of the others hold the
number of queries, the states that the worker was in, and the median, min and max of each figure: min and max are exact
to 0.15 %, medians of medians to 0.4 %. Zero is exact, and an absent value is absent.
"""

from __future__ import annotations

import math
import struct
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, reduce
from itertools import chain, groupby
from operator import or_
from statistics import median
from typing import NamedTuple, get_args

from tpumon.history.codes import ABSENT, Packing, highest, lowest, middle, present, value_of
from tpumon.history.rows import LARGEST, Rows, from_little, little
from tpumon.model import State
from tpumon.model.frozen import frozen

STATES: tuple[State, ...] = get_args(State)
"""The bits of a row's states, in this order: packed history holds them, so a new state goes to the end."""


_BITS = {state: 1 << bit for bit, state in enumerate(STATES)}


class _Layout(NamedTuple):
    """The numbers of a row: first some of the query, the last of them the states, then some for each figure.

    Of one query these are the state, and a code for each figure. Of several, they are the number of queries and the
    states, and for each figure the code of the median, how far the min is below it, and the max above it.

    Attributes:
        head: how many numbers come before those of the figures.
        absent: the numbers of an absent figure.
        unit: what 1 stands for in a number of a figure.
    """

    head: int
    absent: tuple[int, ...]
    unit: int

    def width(self, figures: int) -> int:
        return self.head + len(self.absent) * figures

    def place(self, figure: int) -> int:
        return self.head + len(self.absent) * figure


_ONE, _SEVERAL = _Layout(1, (ABSENT,), 1), _Layout(2, (ABSENT // 2, 0, 0), 2)


class _Spec(NamedTuple):
    """A tier: its rows cover `unit_s` each, go back `span_s`, and are no more than `most_rows`."""

    unit_s: float
    span_s: float
    most_rows: int
    layout: _Layout = _SEVERAL


_SAMPLES_UNIT_S = 0.01
_TIERS = (
    _Spec(_SAMPLES_UNIT_S, 15 * 60.0, 900, _ONE),
    _Spec(10.0, 2 * 3600.0, 720),
    _Spec(60.0, 24 * 3600.0, 1440),
    _Spec(600.0, 7 * 86400.0, 1008),
)
"""All samples of 15 min (900 at most), 10 s of 2 h, 1 min of 24 h, 10 min of 7 days."""

_MAGIC = b"TPH3"
_HEAD = struct.Struct("<4sddB")  # magic, shift, time of the last query, number of tiers
_TIER = struct.Struct("<?qHI")  # whether trimmed, place of the rows that wait, their numbers, bytes of the rows
_LATEST_S = 1e12

_MOST_NEW = 32  # queries that wait to become rows
_WIDTHS_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@frozen(kw_only=False)
class Point:
    """One figure over a part of the time.

    Attributes:
        start_unix_s, end_unix_s: the part of the time; equal for a single sample.
        min, median, max: of the figure; None: it was absent. In the unit of the figure.
        count: number of queries, answered or not.
        states: the states that the worker was in.
        of_medians: whether `median` is the median of medians of shorter parts, not of samples.
    """

    start_unix_s: float
    end_unix_s: float
    min: float | None
    median: float | None
    max: float | None
    count: int
    states: frozenset[State]
    of_medians: bool = False


class Tiers:
    """The figures of one worker over the last 7 days. One thread adds, any may read.

    Args:
        keys: keys of the figures, in the order in which `add` takes them.
    """

    __slots__ = ("_keys", "_last_s", "_lock", "_new", "_packing", "_shift_s", "_tiers", "_until_s", "_zero_s")

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)
        self._lock = threading.Lock()
        self._tiers = _tiers(len(self._keys))
        self._shift_s = 0.0  # from the times of the rows to those of the wall clock as it is set now
        self._zero_s: float | None = None  # from the monotonic clock to the times of the rows
        self._last_s = -math.inf
        self._packing = _packing(len(self._keys))
        # Queries that came since then, packed. They become rows when a row of the second tier is complete, or when
        # somebody asks: thousands of workers take turns, and so adding one touches little of a worker's memory.
        self._until_s = -math.inf
        self._new = bytearray()

    def add(
        self,
        time_unix_s: float,
        state: State,
        figures: Iterable[float | None],
        *,
        taken_monotonic_s: float | None = None,
    ) -> None:
        """Adds one query.

        A query that is not later than the last one is taken for one that is known already. If it is more than 15 min
        earlier, the clock was set, and history starts again.

        Args:
            time_unix_s: its start, by the wall clock.
            state: the worker's state after it.
            figures: in the order of `keys`.
            taken_monotonic_s: its start by the monotonic clock; then setting the wall clock moves all of history.
        """
        with self._lock:
            self._add(time_unix_s, state, figures, taken_monotonic_s)

    def _add(
        self, time_unix_s: float, state: State, figures: Iterable[float | None], taken_monotonic_s: float | None
    ) -> None:
        if taken_monotonic_s is None:
            at_s = time_unix_s - self._shift_s
        else:
            if self._zero_s is None:
                self._zero_s = time_unix_s - taken_monotonic_s - self._shift_s
            at_s = taken_monotonic_s + self._zero_s
            self._shift_s = time_unix_s - at_s
        if at_s < self._last_s + _SAMPLES_UNIT_S / 2:
            if at_s > self._last_s - _TIERS[0].span_s:
                return
            self._tiers = _tiers(len(self._keys))
            self._new = bytearray()
        if at_s >= self._until_s or len(self._new) >= _MOST_NEW * self._packing.size:
            self._make_rows()
            self._until_s = (_place(at_s, _TIERS[1].unit_s) + 1) * _TIERS[1].unit_s
        self._last_s = at_s
        numbers = [math.nan if figure is None else figure + 0.0 for figure in figures]  # -0.0 is a figure, too
        self._new += self._packing.pack(at_s, _BITS[state], numbers)

    def _make_rows(self) -> None:
        """Makes rows of the queries that came since the last call."""
        times_s, rows = self._packing.unpack(self._new)
        self._new = bytearray()
        first, second, *others = self._tiers
        first.extend(times_s, rows)
        closed = second.take(times_s, rows)
        for tier in others:
            closed = [one for at_s, row in closed for one in tier.take((at_s,), row)]

    @property
    def oldest_unix_s(self) -> float | None:
        """The earliest time of which anything is known; None: nothing is."""
        with self._lock:
            self._make_rows()
            known = [tier for tier in self._tiers if tier.oldest_s is not None]
            whole = next((tier for tier in known if not tier.trimmed), None)  # the finest: rows of others begin earlier
            oldest_s = known[-1].oldest_s if known and whole is None else None if whole is None else whole.oldest_s
            return None if oldest_s is None else oldest_s + self._shift_s

    @property
    def newest_unix_s(self) -> float | None:
        """Start of the last query; None: there was none."""
        return self._last_s + self._shift_s if self._last_s > -math.inf else None

    def packed(self, most_bytes: int = 1 << 30) -> bytes:
        """All that is remembered, in about `most_bytes` at most: of each tier, the oldest rows are left out."""
        with self._lock:
            self._make_rows()
            parts = [_HEAD.pack(_MAGIC, self._shift_s, self._last_s, len(self._tiers))]
            left = most_bytes
            for number, tier in enumerate(self._tiers):
                parts.append(tier.packed(left // (len(self._tiers) - number)))
                left -= len(parts[-1])
            return b"".join(parts)

    @classmethod
    def unpacked(cls, plain: bytes, theirs: Sequence[str], keys: Sequence[str], *, shift_s: float = 0.0) -> Tiers:
        """Reverses `packed`, also if it has other figures.

        Args:
            plain: what `packed` returned, perhaps in another process.
            theirs: keys of the figures in it.
            keys: keys of the figures that are wanted.
            shift_s: to be added to its times.

        Raises:
            ValueError: it is of another version, or damaged.
        """
        tiers = cls(keys)
        try:
            magic, shift, last_s, count = _HEAD.unpack_from(plain)
        except struct.error:
            raise ValueError("history is too short") from None
        if magic != _MAGIC or count != len(_TIERS):
            raise ValueError("history of another version")
        shift += shift_s
        if not (abs(shift) < _LATEST_S and (abs(last_s) < _LATEST_S or last_s == -math.inf)):
            raise ValueError("history of no time at all")
        at = _HEAD.size
        tiers._shift_s, tiers._last_s = shift, last_s
        next_s = last_s
        for tier in tiers._tiers:
            at = tier.unpack(plain, at, theirs, keys)
            next_s = tier.continued(next_s)
        return tiers

    def series(self, key: str, begin_unix_s: float, end_unix_s: float, most_points: int = 600) -> list[Point]:
        """One figure over a time: each part of it from the finest tier that goes back so far.

        Args:
            key: key of the figure.
            begin_unix_s: first moment to show, by the wall clock as it is set now.
            end_unix_s: last moment to show, by the same clock.
            most_points: if there are more, neighbours are merged: min of the mins, median of the medians, max of the
                maxes, over a round number of seconds.

        Returns:
            The points, oldest first. A time without a query has no point; a query without the figure has one without
            values.
        """
        if key not in self._keys or end_unix_s < begin_unix_s:
            return []
        place = self._keys.index(key)
        with self._lock:
            points = [self._point(row) for row in self._rows(place, begin_unix_s, end_unix_s)]
        if len(points) <= most_points:
            return points
        least_s = (end_unix_s - begin_unix_s) / max(most_points - 1, 1)
        widths = bisect_left(_WIDTHS_S, least_s)
        width_s = _WIDTHS_S[widths] if widths < len(_WIDTHS_S) else least_s
        groups = groupby(points, key=lambda point: point.start_unix_s // width_s)
        return [_merged(list(group), bin_ * width_s, (bin_ + 1) * width_s) for bin_, group in groups]

    def _rows(self, place: int, begin_unix_s: float, end_unix_s: float) -> list[_Row]:
        self._make_rows()
        begin_s, until_s = begin_unix_s - self._shift_s, end_unix_s - self._shift_s + 1e-6
        pieces: list[list[_Row]] = []
        for number, tier in enumerate(self._tiers):
            from_s = tier.whole_from_s(_TIERS[number + 1].unit_s if number + 1 < len(_TIERS) else 0.0)
            pieces.append(list(tier.rows(place, max(begin_s, from_s), until_s)))
            until_s = min(until_s, from_s)
            if begin_s >= from_s:
                break
        return [row for piece in reversed(pieces) for row in piece]

    def _point(self, row: _Row) -> Point:
        low, code, high = row.codes
        value = value_of(code)
        start_unix_s = row.start_s + self._shift_s
        return Point(
            start_unix_s=start_unix_s,
            end_unix_s=start_unix_s + row.length_s,
            min=value if low == code else value_of(low),
            median=value,
            max=value if high == code else value_of(high),
            count=row.queries,
            states=_states_of(row.states),
            of_medians=row.length_s > _TIERS[1].unit_s,
        )


@cache
def _states_of(bits: int) -> frozenset[State]:
    return frozenset(state for bit, state in enumerate(STATES) if bits >> bit & 1)


class _Row(NamedTuple):
    """One row of a tier and one figure: `codes` are those of min, median and max."""

    start_s: float
    length_s: float
    queries: int
    states: int
    codes: tuple[int, int, int]


@cache
def _packing(figures: int) -> Packing:
    return Packing(figures)


def _place(at_s: float, unit_s: float) -> int:
    """Place of the row that a moment belongs to."""
    return math.floor(at_s / unit_s + 1e-6)


def _tiers(figures: int) -> list[_Tier]:
    return [_Tier(spec, finer, figures) for finer, spec in zip((_TIERS[0], *_TIERS), _TIERS, strict=False)]


class _Tier:
    """The rows of one tier, and those of the finer tier that wait to become its next row."""

    __slots__ = ("_at", "_figures", "_finer", "_rows", "_span", "_spec", "_waiting", "trimmed")

    def __init__(self, spec: _Spec, finer: _Spec, figures: int) -> None:
        self._spec, self._finer = spec, finer
        self._span = round(spec.span_s / spec.unit_s)
        self._figures = figures
        self._rows = Rows(spec.layout.width(figures), rare=spec.unit_s > _SAMPLES_UNIT_S)
        self._at: int | None = None
        self._waiting = array("H")  # one row after the other
        self.trimmed = False
        """Whether older rows are gone."""

    def extend(self, times_s: Sequence[float], rows: array[int]) -> None:
        """Adds the rows of queries as they are."""
        if times_s:
            self._add([_place(at_s, self._spec.unit_s) for at_s in times_s], rows)

    def _add(self, places: Sequence[int], rows: array[int]) -> None:
        self._rows.extend(places, rows)
        self.trimmed = self._rows.trim(places[-1] - self._span, self._spec.most_rows) or self.trimmed

    def take(self, times_s: Iterable[float], rows: array[int]) -> list[tuple[float, array[int]]]:
        """Takes rows of the finer tier; returns those that this closes here, with their starts."""
        closed, begin, width = [], 0, self._finer.layout.width(self._figures)
        for number, at_s in enumerate(times_s):
            at = _place(at_s, self._spec.unit_s)
            if at == self._at:
                continue
            self._waiting += rows[begin * width : number * width]
            begin = number
            if self._at is not None:
                whole = self._merged()
                self._add((self._at,), whole)
                closed.append((self._at * self._spec.unit_s, whole))
            self._at, self._waiting = at, array("H")
        self._waiting += rows[begin * width :]
        return closed

    def _merged(self) -> array[int]:
        """One row for those that wait."""
        return merged_rows(self._waiting, self._finer.layout, self._figures)

    def packed(self, most_bytes: int) -> bytes:
        """Its rows, the newest first, and those that wait."""
        rows, whole = self._rows.packed(max(most_bytes, 0))
        at = -1 if self._at is None else self._at
        head = _TIER.pack(self.trimmed or not whole, at, len(self._waiting), len(rows))
        return head + little(self._waiting) + rows

    def unpack(self, plain: bytes, at: int, theirs: Sequence[str], keys: Sequence[str]) -> int:
        """Takes what `packed` returned from a place on; returns where it ends.

        Raises:
            ValueError: it is damaged.
        """
        try:
            self.trimmed, waits_at, waiting, size = _TIER.unpack_from(plain, at)
        except struct.error:
            raise ValueError("history ends early") from None
        at += _TIER.size
        begin: int = at + 2 * waiting
        layout, waits = self._spec.layout, self._finer.layout
        width = waits.width(len(theirs))
        most = 2 * round(self._spec.unit_s / self._finer.unit_s)
        numbers = from_little("H", plain[at:begin])
        if len(numbers) != waiting or waiting % width or waiting > width * most:
            raise ValueError("history is damaged")
        places = [theirs.index(key) if key in theirs else None for key in keys]
        rows = Rows.unpacked(
            plain[begin : begin + size],
            layout.width(len(theirs)),
            self._spec.most_rows,
            rare=self._spec.unit_s > _SAMPLES_UNIT_S,
        )
        self._waiting = array("H")
        for first in range(0, waiting, width):
            self._waiting += _in_order(numbers[first : first + width], waits, places)
        self._at = waits_at if self._waiting else None
        if tuple(theirs) == tuple(keys):
            self._rows = rows
        else:
            for place, row in rows.all():
                self._rows.extend((place,), _in_order(row, layout, places))
        return begin + int(size)

    def continued(self, from_s: float) -> float:
        """Checks that it can go on with what comes from a moment on; returns where what it hands on itself begins.

        Raises:
            ValueError: it has later rows, or rows in no order.
        """
        places = [place for place in (self._rows.last, self._at) if place is not None]
        if places and not (from_s > -math.inf and 0 <= places[0] <= places[-1] <= _place(from_s, self._spec.unit_s)):
            raise ValueError("history is damaged")
        return from_s if self._at is None else self._at * self._spec.unit_s

    @property
    def oldest_s(self) -> float | None:
        first = self._rows.first
        at = self._at if first is None else first
        return None if at is None else at * self._spec.unit_s

    def whole_from_s(self, next_unit_s: float) -> float:
        """Returns the moment since which no row of this tier is missing, rounded up to a row of the next tier."""
        first, last = self._rows.first, self._rows.last
        if first is None or last is None or not next_unit_s:
            return -math.inf
        # Rows are forgotten by the block; where the tier ends does not depend on where blocks do.
        oldest = max(first, last - self._span)
        if oldest == first and not self.trimmed:
            return -math.inf
        return math.ceil(oldest * self._spec.unit_s / next_unit_s) * next_unit_s

    def rows(self, place: int, begin_s: float, until_s: float) -> Iterator[_Row]:
        """The rows that begin in this time, oldest first."""
        unit_s, layout = self._spec.unit_s, self._spec.layout
        first, last = math.ceil(begin_s / unit_s - 1e-6) if begin_s > -math.inf else 0, until_s / unit_s
        column, unit = layout.place(place), layout.unit
        if layout is _ONE:
            for at, states, code in self._rows.read((0, column), first, last):
                yield _Row(at * unit_s, 0.0, 1, states, (code, code, code))
            return
        rows = self._rows.read((0, 1, column, column + 1, column + 2), first, last)
        if self._at is not None and first <= self._at < last:
            row = self._merged()
            rows = chain(rows, [(self._at, row[0], row[1], *row[column : column + 3])])
        for at, count, states, code, below, above in rows:
            codes = lowest(code * unit, below * unit), code * unit, highest(code * unit, above * unit)
            yield _Row(at * unit_s, unit_s, count, states, codes)


def merged_rows(rows: array[int], layout: _Layout, figures: int) -> array[int]:
    """One row for several: counts add up, states unite, and of each figure min, median of the medians and max.

    Args:
        rows: one after the other.
        layout: of each of them.
        figures: of each row.
    """
    width = layout.width(figures)
    queries = sum(rows[::width]) if layout is _SEVERAL else len(rows) // width
    merged = array("H", (min(queries, LARGEST), reduce(or_, rows[layout.head - 1 :: width])))
    unit = _SEVERAL.unit
    for place in range(layout.head, width, len(layout.absent)):
        codes = rows[place::width] if layout is _ONE else [code * unit for code in rows[place::width]]
        found = present(codes)
        if not found:
            merged.extend(_SEVERAL.absent)
            continue
        low, high = found[0], found[-1]
        if layout is _SEVERAL:
            below, above = rows[place + 1 :: width], rows[place + 2 :: width]
            low = min(lowest(code, less * unit) for code, less in zip(codes, below, strict=True))
            high = max(highest(code, more * unit) for code, more in zip(codes, above, strict=True) if code <= found[-1])
        # Rounded down: the code above the highest is that of no figure.
        low, median_, high = low // unit, middle(found) // unit, high // unit
        merged.extend((median_, median_ - low, high - median_))
    return merged


def _in_order(row: Sequence[int], layout: _Layout, figures: Sequence[int | None]) -> array[int]:
    """A row with its figures in this order; None: a figure that it lacks."""
    ordered = array("H", row[: layout.head])
    for figure in figures:
        begin = 0 if figure is None else layout.place(figure)
        ordered.extend(layout.absent if figure is None else row[begin : begin + len(layout.absent)])
    return ordered


def _merged(points: list[Point], start_unix_s: float, end_unix_s: float) -> Point:
    medians = [point.median for point in points if point.median is not None]
    return Point(
        start_unix_s=start_unix_s,
        end_unix_s=end_unix_s,
        min=min((point.min for point in points if point.min is not None), default=None),
        median=median(medians) if medians else None,
        max=max((point.max for point in points if point.max is not None), default=None),
        count=sum(point.count for point in points),
        states=frozenset().union(*(point.states for point in points)),
        of_medians=any(point.of_medians or point.count > 1 for point in points),
    )
