"""The figures of a worker over a week, in three rings of plain arrays: the older, the coarser.

A row of the first ring is a sample. One of the others has the number of queries, the states of the worker, and of each
figure min, median (of medians) and max. All are floats of 32 bits; NaN: absent.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from functools import cache, reduce
from itertools import chain, filterfalse, groupby, pairwise, repeat
from math import isnan, nan
from operator import or_
from typing import Any, NamedTuple, get_args

from tpumon.model import State

_STATES: tuple[State, ...] = get_args(State)  # handed on as bits: a new state goes to the end
_RINGS = ((0.0, 3600.0), (60.0, 86_400.0), (600.0, 7 * 86_400.0))  # seconds of a row, and of all
_MOST_SAMPLES = 3600
_MOST_ROWS = 5000  # of a ring that another process hands on
_AT_ONCE = 32  # rows are forgotten together
_SAME_S = 0.005
_ROUNDED_S = 0.1  # lengths are kept as 32 bits
_CLOCK_SET_S = 900.0
_LARGEST = 1e30
_EVER_S, _LATEST_S = -1e12, 1e11  # before all times, and after them
_HEAD = 3  # numbers of a row before those of figures: its length in seconds, queries, states
_PLAIN_BYTES = 8  # of a number as JSON, about


class Point(NamedTuple):
    """One figure over a part of the time.

    Attributes:
        start_unix_s, end_unix_s: the part of the time; equal for a single sample.
        min, median, max: of the figure, in its unit; None: it was absent.
        queries: number of queries, answered or not.
        states: the states that the worker was in.
    """

    start_unix_s: float
    end_unix_s: float
    min: float | None
    median: float | None
    max: float | None
    queries: int
    states: frozenset[State]


class _Ring:
    """Rows, the oldest first: `starts`, and in `cells` the numbers of one row after the other.

    Attributes:
        since_s: no row from then on was forgotten.
        until_s: rows of the finer ring are in it until then.
    """

    def __init__(self, figures: int, row_s: float, span_s: float) -> None:
        self.row_s, self.span_s = row_s, span_s
        self.figures, self.parts = figures, 3 if row_s else 1
        self.width = _HEAD + self.parts * figures
        self.starts, self.cells = array("d"), array("f")
        self.since_s = self.until_s = _EVER_S

    def column(self, place: int, first: int, end: int) -> array[float]:
        """One number of each row from `first` to before `end`."""
        return self.cells[first * self.width + place : end * self.width : self.width]

    def figure(self, figure: int | None, first: int, end: int) -> Iterable[array[float]]:
        """Min, median and max of a figure in each row from `first` to before `end`; None: one that no row has."""
        if figure is None:
            return repeat(array("f", [nan]) * (end - first), 3)
        place = _HEAD + self.parts * figure
        return (self.column(place + part, first, end) for part in (0, self.parts // 2, self.parts - 1))

    def widen(self) -> None:
        """Adds a figure, which no row has."""
        rows, width, absent = self.cells, self.width, array("f", [nan]) * self.parts
        self.figures, self.width, self.cells = self.figures + 1, width + self.parts, array("f")
        for at in range(0, len(rows), width):
            self.cells += rows[at : at + width] + absent

    def append_from(self, finer: _Ring, until_s: float) -> None:
        """Adds the rows of a finer ring until a time, several as one."""
        begin, end = (bisect_left(finer.starts, at_s) for at_s in (self.until_s, until_s))
        for place, rows in groupby(range(begin, end), key=lambda row: finer.starts[row] // self.row_s):
            first, last = min(group := [*rows]), max(group)
            start_s = max(place * self.row_s, self.until_s)
            ends_s = max((place + 1) * self.row_s, finer.starts[last] + finer.column(0, last, last + 1)[0])
            self.until_s = min(ends_s, until_s)
            self.starts.append(start_s)
            self.cells.extend(finer.merged(first, last + 1, self.until_s - start_s))
        self.until_s = until_s

    def merged(self, first: int, end: int, length_s: float) -> Iterator[float]:
        """The numbers of one row for several."""
        width, cells = self.width, self.cells[first * self.width : end * self.width]
        yield from (length_s, sum(cells[1::width]), reduce(or_, map(int, cells[2::width])))
        for place in range(_HEAD, width, self.parts):
            known = sorted(filterfalse(isnan, cells[place + self.parts // 2 :: width]))
            if not known:
                yield from (nan, nan, nan)
                continue
            yield min(filterfalse(isnan, cells[place::width]), default=nan)
            yield (known[len(known) // 2] + known[(len(known) - 1) // 2]) / 2
            yield max(filterfalse(isnan, cells[place + self.parts - 1 :: width]), default=nan)

    def forget(self, rows: int) -> None:
        """Forgets the oldest rows."""
        self.since_s = self.starts[rows]
        del self.starts[:rows], self.cells[: rows * self.width]

    def row_end_s(self, at_s: float) -> float:
        """The end of the row that a time is in; the time if it is in none."""
        row = bisect_left(self.starts, at_s) - 1
        return at_s if row < 0 else max(at_s, self.starts[row] + self.column(0, row, row + 1)[0])

    def points(self, figure: int | None, begin_s: float, until_s: float, shift_s: float) -> Iterator[Point]:
        """One figure of the rows that begin in this time."""
        rows = first, end = bisect_left(self.starts, begin_s), bisect_left(self.starts, until_s)
        heads = (self.column(place, *rows) for place in range(_HEAD))
        for start, length, queries, states, *ends in zip(
            self.starts[first:end], *heads, *self.figure(figure, *rows), strict=True
        ):
            low, mid, high = (None if isnan(value) else value for value in ends)
            begin = start + shift_s
            yield Point(begin, begin + length, low, mid, high, int(queries), _states_of(int(states)))


class RollupSeries:
    """The figures of one worker over the last 7 days. One thread adds, any may read.

    A figure takes room only once the worker has had it.

    Args:
        keys: keys of the figures, in the order in which `add` takes them.

    Attributes:
        factor: so many times longer rows of a day and of a week are than usual, and fewer samples are kept.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)
        self._kept: list[int] = []  # of the figures that it has had, places in `keys`
        self._lock = threading.Lock()
        self._shift_s = 0.0  # from the times of the rows to those of the wall clock as it is set now
        self._zero_s: float | None = None  # from the monotonic clock to the times of the rows
        self.factor = 1
        self._clear()

    def _clear(self) -> None:
        self._rings = [_Ring(len(self._kept), self.factor * row_s, span_s) for row_s, span_s in _RINGS]
        self._last_s = _EVER_S

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
            at_s = time_unix_s - self._shift_s
            if taken_monotonic_s is not None:
                if self._zero_s is None:
                    self._zero_s = at_s - taken_monotonic_s
                at_s = taken_monotonic_s + self._zero_s
                self._shift_s = time_unix_s - at_s
            if at_s < self._last_s + _SAME_S:
                if at_s > self._last_s - _CLOCK_SET_S:
                    return
                self._clear()
            self._last_s = at_s
            for finer, ring in pairwise(self._rings):
                place_s = at_s // ring.row_s * ring.row_s
                if place_s > ring.until_s:
                    ring.append_from(finer, place_s)
            values = tuple(figures)
            for place, value in enumerate(values):
                if value is not None and place not in self._kept:
                    self._kept.append(place)
                    for ring in self._rings:
                        ring.widen()
            cells = (_cell(values[place]) for place in self._kept)
            self._rings[0].starts.append(at_s)
            self._rings[0].cells.extend((0.0, 1.0, 1 << _STATES.index(state), *cells))
            self._trim()

    def _trim(self) -> None:
        """Forgets what is too old, and samples that are too many; never what a coarser ring still needs."""
        for ring, coarser in zip(self._rings, [*self._rings[1:], None], strict=True):
            gone = bisect_left(ring.starts, self._last_s - ring.span_s)
            if not ring.row_s:
                gone = max(gone, len(ring.starts) - _MOST_SAMPLES // self.factor)
            if gone >= _AT_ONCE:
                gone = gone if coarser is None else min(gone, bisect_left(ring.starts, coarser.until_s))
                ring.forget(min(gone, len(ring.starts) - 1))

    def coarsen(self, factor: int) -> None:
        """Makes rows of a day and of a week so many times longer than usual, and forgets samples."""
        with self._lock:
            known, last_s, self.factor = self._rings, self._last_s, factor
            self._clear()
            self._rings[0], self._last_s = known[0], last_s
            for ring, before, coarser in zip(self._rings[1:], known[1:], [*known[2:], known[-1]], strict=True):
                ring.append_from(before, coarser.until_s)  # no row is in two of the next ring
                ring.append_from(before, before.until_s)
                ring.since_s = before.since_s
            self._trim()

    @property
    def oldest_unix_s(self) -> float | None:
        """Time of the earliest remembered query; None: there is none."""
        with self._lock:
            ring = next((ring for ring in self._rings if ring.since_s < 0), self._rings[-1])
            return ring.starts[0] + self._shift_s if ring.starts else None

    def goes_back_beyond(self, other: RollupSeries | None) -> bool:
        """True if this knows earlier times than another one, or neither knows any; False if there is no other."""
        if other is None:
            return False
        own_unix_s, other_unix_s = self.oldest_unix_s, other.oldest_unix_s
        return other_unix_s is None or (own_unix_s is not None and own_unix_s <= other_unix_s)

    @property
    def newest_unix_s(self) -> float | None:
        """Start of the last query; None: there was none."""
        return self._last_s + self._shift_s if self._last_s >= 0 else None

    def points(self, key: str, begin_unix_s: float, end_unix_s: float, every_s: float = 0.0) -> list[Point]:
        """One figure over a time: each part of it from the finest ring that goes back so far.

        Args:
            key: key of the figure.
            begin_unix_s: first moment to show, by the wall clock as it is set now.
            end_unix_s: last moment to show, by the same clock.
            every_s: rows of this length are fine enough.

        Returns:
            The points, oldest first. A time without a query has no point; a query without the figure has one without
            values.
        """
        if key not in self._keys:
            return []
        pieces, place = [], self._keys.index(key)
        with self._lock:
            figure = self._kept.index(place) if place in self._kept else None
            begin_s, until_s = begin_unix_s - self._shift_s - 1e-6, end_unix_s - self._shift_s + 1e-6
            for from_s, ring in self._read(every_s):
                points = ring.points(figure, max(begin_s, from_s), until_s, self._shift_s)
                pieces.append([*points])
                until_s = min(until_s, from_s)
        return [*chain.from_iterable(reversed(pieces))]

    def _read(self, every_s: float) -> list[tuple[float, _Ring]]:
        """Rings from the finest to the coarsest, each with the time to read it from; the next has what is older."""
        read = [(_EVER_S, self._rings[-1])]
        for ring in reversed(self._rings[:-1]):
            coarser = read[0][1]
            from_s = max(ring.since_s, coarser.until_s) if coarser.row_s <= every_s else ring.since_s
            before = next((each for since_s, each in read if since_s < from_s), coarser)
            read.insert(0, (before.row_end_s(from_s), ring))
        return read

    def row_s(self, span_s: float) -> float:
        """Seconds of the rows that are kept for so long; 0: they are samples."""
        return next((ring.row_s for ring in self._rings if span_s <= ring.span_s), self._rings[-1].row_s)

    def to_plain(self, most_bytes: int = 1 << 30) -> dict[str, Any]:
        """Everything that is remembered as JSON, in about `most_bytes`: coarser if that is too little."""
        copy = RollupSeries(self._keys)
        with self._lock:
            copy._rings, copy._last_s, copy.factor = deepcopy(self._rings), self._last_s, self.factor
            copy._kept = [*self._kept]
            shift_s = self._shift_s
        times = sum(len(ring.cells) for ring in copy._rings) * _PLAIN_BYTES // most_bytes + 1
        if times > 1:
            copy.coarsen(copy.factor * times)
        rings = [
            {
                "since_unix_s": ring.since_s + shift_s,
                "until_unix_s": ring.until_s + shift_s,
                "starts_unix_s": [start + shift_s for start in ring.starts],
                "rows": _rounded(ring),
            }
            for ring in copy._rings
        ]
        return {"figures": [self._keys[place] for place in copy._kept], "rings": rings}

    @classmethod
    def from_plain(cls, plain: Any, keys: Sequence[str], *, shift_s: float = 0.0) -> RollupSeries:
        """Reverses `to_plain`.

        Args:
            plain: JSON of another process, which may be of another version.
            keys: keys of the figures that are wanted.
            shift_s: to be added to its times.

        Raises:
            ValueError: it is not of this form.
        """
        series = cls(keys)
        try:
            if not set(keys).issuperset(plain["figures"]):
                raise ValueError("it has other figures")
            series._kept = [series._keys.index(key) for key in dict.fromkeys(plain["figures"])]
            series._clear()
            for ring, part in zip(series._rings, plain["rings"], strict=True):
                ring.since_s, ring.until_s = part["since_unix_s"] + shift_s, part["until_unix_s"] + shift_s
                ring.starts = array("d", (start + shift_s for start in part["starts_unix_s"]))
                ring.cells = array("f", map(_cell, part["rows"]))
                _check(ring)
            series._last_s = series._rings[0].starts[-1]
        except (TypeError, KeyError, IndexError, OverflowError):
            raise ValueError("it is no history") from None
        if any(ring.until_s > series._last_s for ring in series._rings):
            raise ValueError("its last samples are missing")
        return series


def _check(ring: _Ring) -> None:
    """Checks a ring of another process.

    Raises:
        ValueError: its rows are too many, in no order, or of no time.
    """
    rows = len(ring.starts)
    if rows > _MOST_ROWS or len(ring.cells) != rows * ring.width:
        raise ValueError("too many rows, or parts of rows")
    heads = [ring.column(place, 0, rows) for place in range(_HEAD)]
    ends = (start + length for start, length in zip(ring.starts, heads[0], strict=True))
    until_s = ring.until_s if ring.row_s and rows else _LATEST_S
    times = [0.0, *chain.from_iterable(zip(ring.starts, ends, strict=True)), until_s, _LATEST_S]
    in_order = all(earlier <= later + _ROUNDED_S for earlier, later in pairwise(times))
    if not in_order or not max(ring.since_s, ring.until_s) <= _LATEST_S or any(map(isnan, chain(*heads))):
        raise ValueError("rows of no time")
    if max(heads[2], default=0) >= 1 << len(_STATES):
        raise ValueError("a state that is not known")


def _rounded(ring: _Ring) -> list[float | None]:
    """The numbers of all rows, figures to four digits."""
    rows = [None if isnan(cell) else float(f"{cell:.4g}") for cell in ring.cells]
    for place in range(_HEAD):
        rows[place :: ring.width] = ring.column(place, 0, len(ring.starts)).tolist()
    return rows


def _cell(value: float | None) -> float:
    """A figure as it is kept: NaN if it is absent, or one that no TPU has."""
    return value + 0.0 if value is not None and 0.0 <= value < _LARGEST else nan


@cache
def _states_of(bits: int) -> frozenset[State]:
    return frozenset(state for bit, state in enumerate(_STATES) if bits >> bit & 1)
