"""Search from the roots of steps to the devices: over nodes within nodes, and contexts that one makes and another uses.

Contexts are numbered by sorting and links are arrays of positions, so that the search itself only follows positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tpumon.errors import SourceError
from tpumon.xspace.columns.columns import Ints, Mask, Words

_MOST_LINKS = 64  # a context with more on both sides says nothing
_MOST_LEVELS = 64  # of roots; profilers use three
_COLUMNS = 5  # of a context: its kind, and four numbers at most


class Links:
    """Pairs of nodes and the contexts that they make, or use."""

    def __init__(self) -> None:
        self._nodes: list[Ints] = []
        self._contexts: list[list[Words]] = []

    def add(self, nodes: Ints, picked: Mask, kind: int, columns: Sequence[Words]) -> None:
        """Adds links of some of the nodes.

        Args:
            nodes: all of them.
            picked: which of them have the link.
            kind: of the contexts.
            columns: numbers that tell contexts of this kind apart, one array for each, of all nodes.
        """
        if picked.any():
            self._nodes.append(nodes[picked])
            kinds = np.full(len(self._nodes[-1]), kind, dtype=np.uint64)
            self._contexts.append([kinds, *(column[picked] for column in columns)])

    def __len__(self) -> int:
        return sum(map(len, self._nodes))

    @property
    def nodes(self) -> Ints:
        """The node of each link."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self._nodes])

    def numbers(self, column: int) -> Words:
        """One number of each link's context; 0 where its kind has no such number."""
        nothing = np.zeros(0, dtype=np.uint64)
        pairs = zip(self._nodes, self._contexts, strict=True)
        parts = [own[column] if column < len(own) else np.zeros(len(nodes), dtype=np.uint64) for nodes, own in pairs]
        return np.concatenate([nothing, *parts])


class HostGraph(Struct, frozen=True, kw_only=True, eq=False):
    """Events of the host that may lead somewhere; a node is an index.

    Attributes:
        size: how many there are.
        within: those that are directly within another one.
        around: of each of these, the one that it is within.
        roots: nodes that are roots of steps, ascending.
        levels: of each root; higher ones count first.
        begins_ps: start of each root.
        steps: the program's own number of the step that each root is; -1 where it has none.
        made: contexts that nodes make.
        used: contexts that nodes use.
    """

    size: int
    within: Ints
    around: Ints
    roots: Ints
    levels: Words
    begins_ps: Ints
    steps: Ints
    made: Links
    used: Links

    def numbers(self, devices: Links, count: int) -> tuple[Ints, dict[int, int]]:
        """The number of each marker on a device that a root leads to, in the order of roots; -1 for the others.

        Also the program's own numbers of the steps, by these; none unless each step has one of its own.

        Args:
            devices: contexts that markers use; their nodes are markers.
            count: how many markers there are.

        Raises:
            SourceError: `malformed`.
        """
        numbers = np.full(count, -1, dtype=np.int64)
        made_of, used_of, wanted_of = _numbered([self.made, self.used, devices])
        contexts = 1 + max(int(part.max(initial=-1)) for part in (made_of, used_of, wanted_of))
        makers = np.bincount(made_of, minlength=contexts)
        if not (makers[wanted_of] > 0).any():
            return numbers, {}
        on_host, linked = _linked(makers, used_of, wanted_of)
        made, used = self.made.nodes, self.used.nodes
        # Of a context with one maker, which nearly all have, the links begin at that; others are nodes, too.
        source = np.empty(contexts, dtype=np.int64)
        source[made_of] = made
        shared = makers > 1
        size = self.size + int(shared.sum())
        source[shared] = np.arange(self.size, size)

        def edges(linked: Mask) -> _Edges:
            """From node to node within, from maker to context, from there to the nodes that use it."""
            go, come = (linked & shared)[made_of], linked[used_of]
            begins = np.concatenate([self.around, made[go], source[used_of[come]]])
            return _Edges(begins, np.concatenate([self.within, source[made_of[go]], used[come]]), size)

        inner = self._inner_roots(edges(on_host))
        order = np.lexsort((self.begins_ps, ~self.levels))
        outer = self.roots[order][~inner[order]]
        if not len(outer):  # those of a circle are all below each other
            return numbers, {}
        led = np.flatnonzero(linked[wanted_of])
        first_root = edges(linked).first_to_reach(outer, source[wanted_of[led]])
        best = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(best, devices.nodes[led[first_root >= 0]], first_root[first_root >= 0])
        numbers = np.where(best < np.iinfo(np.int64).max, best, -1)
        used = np.unique(numbers[numbers >= 0])
        steps = self.steps[order][~inner[order]][used]
        known = (steps >= 0).all() and len(np.unique(steps)) == len(steps)
        return numbers, dict(zip(used.tolist(), steps.tolist(), strict=True)) if known else {}

    def _inner_roots(self, edges: _Edges) -> Mask:
        """True for roots that lie below another root of the same level."""
        inner = np.zeros(len(self.roots), dtype=np.bool_)
        levels, counts = np.unique(self.levels, return_counts=True)
        if len(levels) > _MOST_LEVELS:
            raise SourceError("malformed", f"the trace is broken: its roots have {len(levels)} levels")
        for level in levels[counts > 1]:
            own = self.levels == level
            inner[own] = edges.reached_from_another(self.roots[own])
        return inner


def _linked(makers: Ints, used_of: Ints, wanted_of: Ints) -> tuple[Mask, Mask]:
    """Contexts that lead from makers to users on the host, and those that still do if markers count as users, too.

    Args:
        makers: of each context, how many there are.
        used_of: context that each link of a user is of.
        wanted_of: context that each link of a marker is of.
    """
    users = np.bincount(used_of, minlength=len(makers))
    made, few = makers > 0, makers < _MOST_LINKS
    on_host = made & (few | (users < _MOST_LINKS))
    users += np.bincount(wanted_of, minlength=len(makers))
    return on_host, made & (few | (users < _MOST_LINKS))


_NONE = 1 << 30  # no root: more than there are roots


class _Edges:
    """Directed edges by where they begin.

    Nearly every node is reached from one other node only, so that such rows of nodes can be followed at once.

    Args:
        begins: node at the begin of each edge.
        ends: node at its end.
        size: number of nodes, contexts included.
    """

    def __init__(self, begins: Ints, ends: Ints, size: int) -> None:
        self._above = np.arange(size)
        self._above[ends] = begins
        # Where edges from several nodes end, only one of these can be there.
        several = np.zeros(size, dtype=np.bool_)
        several[ends[self._above[ends] != begins]] = True
        self._above[several] = np.flatnonzero(several)
        self._joins = begins[several[ends]], ends[several[ends]]
        """Edges to nodes that several lead to."""

    def first_to_reach(self, roots: Ints, nodes: Ints) -> Ints:
        """For each of some nodes the first of the roots, by its place among them, that leads to it; -1 where none."""
        (first,) = self._least([np.arange(len(roots))], roots, nodes)
        return np.where(first < _NONE, first, -1)

    def reached_from_another(self, roots: Ints) -> Mask:
        """True for roots that another one leads to: not itself alone is first, and last, to reach what leads to it."""
        place = np.arange(len(roots))
        below = np.flatnonzero(self._above[roots] != roots)
        begins, own = self._above[roots[below]], below
        if len(self._joins[0]):
            place_of = np.full(len(self._above), -1, dtype=np.int64)
            place_of[roots] = place
            to_roots = np.flatnonzero(place_of[self._joins[1]] >= 0)
            begins = np.concatenate([begins, self._joins[0][to_roots]])
            own = np.concatenate([own, place_of[self._joins[1][to_roots]]])
        first, last = self._least([place, -place], roots, begins)
        another = (first < _NONE) & ((first != own) | (last != -own))
        reached = np.zeros(len(roots), dtype=np.bool_)
        reached[own[another]] = True
        return reached

    def _least(self, numbers: Sequence[Ints], roots: Ints, nodes: Ints) -> list[Ints]:
        """For each way to number the roots: the least number of a root that leads to each of the nodes, or that it is.

        Args:
            numbers: of each root, one array for each way.
            roots: different nodes.
            nodes: the nodes to number.
        """
        least = [np.full(len(self._above), _NONE) for _ in numbers]
        for own, numbered in zip(least, numbers, strict=True):
            own[roots] = numbered
        top = self._above
        for _ in range(len(top).bit_length() + 1):  # each round looks twice as far up
            least, further = [np.minimum(own, own[top]) for own in least], top[top]
            if (further == top).all():
                break
            top = further
        begins, ends = self._joins
        if not len(begins):
            return [own[nodes] for own in least]
        heads, place_of = np.unique(np.concatenate([top[begins], ends]), return_inverse=True)
        above, below = np.split(place_of, 2)
        least_of_nodes = []
        for own in least:
            at_heads = own[heads]
            np.minimum.at(at_heads, below, own[begins])
            by_joins = np.full(len(top), _NONE)
            by_joins[heads] = _handed_on(at_heads, above, below)
            least_of_nodes.append(np.minimum(own, by_joins[top])[nodes])
        return least_of_nodes


def _handed_on(least: Ints, above: Ints, below: Ints) -> Ints:
    """Passes numbers from nodes to the nodes below, the least first, so that each node is visited once.

    Args:
        least: of each node, by its own row.
        above: of each edge: its begin.
        below: of each edge: its end.

    Returns:
        For each node the least number of itself and of all nodes that lead to it.
    """
    after = below[np.argsort(above, kind="stable")].tolist()
    at = np.concatenate([[0], np.cumsum(np.bincount(above, minlength=len(least)))]).tolist()
    best = least.tolist()
    done = [False] * len(best)
    for start in np.argsort(least, kind="stable").tolist():
        waiting = [start]
        while waiting:
            here = waiting.pop()
            if done[here]:
                continue
            done[here], best[here] = True, min(best[here], best[start])
            waiting += after[at[here] : at[here + 1]]
    return np.array(best, dtype=np.int64)


def _numbered(parts: Sequence[Links]) -> list[Ints]:
    """A number for the context of each link, the same for the same ones, from 0 on without gaps."""
    columns = [np.concatenate([part.numbers(i) for part in parts]) for i in range(_COLUMNS)]
    ends = np.cumsum([len(part) for part in parts])
    columns = [column for column in columns if (column[1:] != column[:-1]).any()]
    if not columns:
        return np.split(np.zeros(ends[-1], dtype=np.int64), ends[:-1])
    order = np.lexsort(columns)
    differs = np.zeros(len(order), dtype=np.bool_)
    for column in columns:
        differs[1:] |= column[order[1:]] != column[order[:-1]]
    numbers = np.empty_like(order)
    numbers[order] = np.cumsum(differs)
    return np.split(numbers, ends[:-1])
