"""Arithmetic of intervals: union, self time, overlap. All times in picoseconds, as int64 arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_MOST_ROUNDS = 64
_DENSE_LIMIT = 1 << 20
_FEW = 8
_NO_PARENT = -1


def first_of_equal(values: NDArray[Any]) -> Ints:
    """Indices, ascending, at which runs of equal values begin."""
    return np.concatenate([[True], values[1:] != values[:-1]])[: len(values)].nonzero()[0]


def is_ascending(values: Ints) -> bool:
    """True if no value is less than the one before it."""
    return bool((values[1:] >= values[:-1]).all())


def indexed(numbers: Ints) -> tuple[Ints, Ints]:
    """The different numbers, ascending, and for each element the index of its own among them."""
    if not len(numbers):
        return numbers, numbers
    high = int(numbers.view(np.uint64).max())  # as unsigned numbers, negative ones are large
    if high >= _DENSE_LIMIT:
        different, index = np.unique(numbers, return_inverse=True)
        return different, index.astype(np.int64)
    present = np.zeros(high + 1, dtype=np.bool_)
    present[numbers] = True
    different = present.nonzero()[0]
    position = np.zeros(high + 1, dtype=np.int64)
    position[different] = np.arange(len(different))
    return different, position[numbers]


def among(values: Ints, wanted: Collection[int]) -> Mask:
    """True for the wanted values. `np.isin` takes ten times as long for short arrays and few wanted ones."""
    if len(wanted) > _FEW:
        return np.isin(values, list(wanted))
    is_wanted = np.zeros(len(values), dtype=np.bool_)
    for each in wanted:
        is_wanted |= values == each
    return is_wanted


def by_id(ids: Ints) -> Iterator[tuple[int, Ints]]:
    """Each different id, ascending, and the rows that have it, ascending: in one sort, however many ids there are."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    for begin, end in pairwise([*first_of_equal(ordered).tolist(), len(ids)]):
        yield int(ordered[begin]), order[begin:end]


def union(begin_ps: Ints, end_ps: Ints) -> tuple[Ints, Ints]:
    """The least set of disjoint intervals that covers the same time, ascending; touching ones become one."""
    if not len(begin_ps):
        return begin_ps, end_ps
    if not is_ascending(begin_ps):
        order = np.argsort(begin_ps, kind="stable")
        begin_ps, end_ps = begin_ps[order], end_ps[order]
    reach = np.maximum.accumulate(end_ps)
    first = np.concatenate([[True], begin_ps[1:] > reach[:-1]]).nonzero()[0]
    last = np.concatenate([first[1:] - 1, [len(begin_ps) - 1]])
    return begin_ps[first], reach[last]


def covered_ps(begin_ps: Ints, end_ps: Ints) -> int:
    """The time that the intervals cover together."""
    begin_ps, end_ps = union(begin_ps, end_ps)
    return int((end_ps - begin_ps).sum())


def extent(*spans: tuple[Ints, Ints]) -> tuple[int, int] | None:
    """First begin and last end of some intervals; None where there are none."""
    extents = [(int(begin_ps.min()), int(end_ps.max())) for begin_ps, end_ps in spans if len(begin_ps)]
    return (min(begin for begin, _ in extents), max(end for _, end in extents)) if extents else None


def timeline_order(begin_ps: Ints, duration_ps: Ints) -> Ints | None:
    """The order in which an outer event comes before what it holds; None where the events are in it already."""
    later = begin_ps[1:] > begin_ps[:-1]
    if (later | ((begin_ps[1:] == begin_ps[:-1]) & (duration_ps[1:] <= duration_ps[:-1]))).all():
        return None
    return np.lexsort((-duration_ps, begin_ps))


def parents(end_ps: Ints) -> Ints:
    """For each of a line's events the index of the innermost one that encloses it; -1 where none does.

    As XProf's AncestorStack has it: an event that does not lie within the one before it closes that one, also where
    the two overlap.

    Args:
        end_ps: ends of events in timeline order; with begins ascending, to end no later is to lie within.
    """
    # Whatever holds an event holds the one right after itself, too. Few events do, and only those are searched.
    holds = end_ps[:-1] >= end_ps[1:]
    holders = np.flatnonzero(holds)
    if not len(holders):
        return np.full(len(end_ps), _NO_PARENT, dtype=np.int64)
    ends_ps = end_ps[holders]
    # Of holders, the nearest earlier one that ends no earlier. Each guess is its predecessor's guess: every holder
    # between a guess and its owner ends before the owner does, and following guesses keeps that true.
    above = np.arange(-1, len(holders) - 1, dtype=np.int64)
    # Of all events, the last holder before each, or one that holds it.
    guess = np.concatenate([[0], np.cumsum(holds)]) - 1
    if not (_follow(above, above, ends_ps, ends_ps) and _follow(guess, above, ends_ps, end_ps)):
        return _parents_one_by_one(end_ps)
    return np.where(guess >= 0, holders[guess], _NO_PARENT)


def _follow(guess: Ints, above: Ints, ends_ps: Ints, end_ps: Ints) -> bool:
    """Moves guesses on to what is above them until each ends no earlier than its owner; False if that takes long.

    Args:
        guess: of each event: the position of a holder, or -1.
        above: of each holder: that of another one, or -1; may be the guesses themselves.
        ends_ps: of the holders.
        end_ps: of the events.
    """
    open_rows = np.flatnonzero((guess >= 0) & (ends_ps[guess] < end_ps))
    for _ in range(_MOST_ROUNDS):
        if not len(open_rows):
            return True
        further = above[guess[open_rows]]
        guess[open_rows] = further
        open_rows = open_rows[(further >= 0) & (ends_ps[further] < end_ps[open_rows])]
    return not len(open_rows)


def _parents_one_by_one(end_ps: Ints) -> Ints:
    """Returns as `parents`, in time that grows with the number of events however they are nested."""
    out = np.full(len(end_ps), _NO_PARENT, dtype=np.int64)
    stack: list[tuple[int, int]] = []
    for row, end in enumerate(end_ps.tolist()):
        while stack and stack[-1][0] < end:
            stack.pop()
        if stack:
            out[row] = stack[-1][1]
        stack.append((end, row))
    return out


def own_intervals(begin_ps: Ints, end_ps: Ints, picked: Mask) -> tuple[Ints, Ints]:
    """The time of some events that is their own: their intervals without those of the events directly within.

    Args:
        begin_ps: of all events of a line, in timeline order.
        end_ps: of all events.
        picked: whose own time is asked for.

    Returns:
        Begins and ends, in no order; an event with others within gives several.
    """
    parent = parents(end_ps)
    within = np.flatnonzero(parent >= 0)
    if not len(within):
        return begin_ps[picked], end_ps[picked]
    # Neighbours within one event end one after the other: had the later one ended first, it would lie in the earlier.
    child = within[np.argsort(parent[within], kind="stable")]
    above = parent[child]
    is_first = np.concatenate([[True], above[1:] != above[:-1]])
    is_last = np.concatenate([is_first[1:], [True]])
    before_ps = np.where(is_first, begin_ps[above], np.roll(end_ps[child], 1))
    leaf = np.ones(len(begin_ps), dtype=np.bool_)
    leaf[above] = False
    leaf &= picked
    mine = picked[above]
    begins = np.concatenate([begin_ps[leaf], before_ps[mine], end_ps[child[mine & is_last]]])
    ends = np.concatenate([end_ps[leaf], begin_ps[child[mine]], end_ps[above[mine & is_last]]])
    some = ends > begins
    return begins[some], ends[some]


def self_times_ps(begin_ps: Ints, duration_ps: Ints) -> Ints:
    """Each event's duration without the events directly within it.

    Args:
        begin_ps: in timeline order, see `timeline_order`.
        duration_ps: none negative.
    """
    parent = parents(begin_ps + duration_ps)
    within = parent >= 0
    if not within.any():
        return duration_ps
    out = duration_ps.copy()
    np.subtract.at(out, parent[within], duration_ps[within])
    return out


def first_overlapping(begin_ps: Ints, end_ps: Ints, within_begin_ps: Ints, within_end_ps: Ints) -> Ints:
    """For each interval the index of the first of a row of intervals that it overlaps or touches; -1 where none.

    Args:
        begin_ps: of the intervals to place.
        end_ps: of the intervals to place.
        within_begin_ps: of the row; ascending, disjoint or nearly so.
        within_end_ps: of the row.
    """
    if not len(within_begin_ps):
        return np.full(len(begin_ps), -1, dtype=np.int64)
    reach_ps = np.maximum.accumulate(within_end_ps)
    beyond_ps = np.concatenate([within_begin_ps, [np.iinfo(np.int64).max]])
    index = np.searchsorted(reach_ps, begin_ps, side="left")
    index[beyond_ps[index] > end_ps] = -1
    return index
