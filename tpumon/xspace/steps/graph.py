"""What leads from the roots of steps to the devices: nodes within nodes, and contexts that one makes and another uses.

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
    """Which nodes make, or use, which contexts."""

    def __init__(self) -> None:
        self.nodes: list[Ints] = []
        """The node of each link, in parts."""
        self._contexts: list[list[Words]] = []

    def add(self, nodes: Ints, picked: Mask, kind: int, columns: Sequence[Words]) -> None:
        """Adds links of some of the nodes.

        Args:
            nodes: all of them.
            picked: which of them have the link.
            kind: of the contexts.
            columns: numbers that tell contexts of this kind apart, one array for each, of all nodes.
        """
        if not picked.any():
            return
        rows = slice(None) if picked.all() else picked
        self.nodes.append(nodes[rows])
        self._contexts.append([np.array([kind], dtype=np.uint64), *(_brief(column[rows]) for column in columns)])

    def __len__(self) -> int:
        return sum(map(len, self.nodes))

    def parts(self, of_links: Ints) -> list[tuple[Ints, Ints]]:
        """The nodes of each part, and what belongs to their links."""
        ends = np.cumsum([len(nodes) for nodes in self.nodes])
        return list(zip(self.nodes, np.split(of_links, ends[:-1]), strict=True)) if len(ends) else []

    def contexts(self, column: int) -> list[tuple[Words, int]]:
        """One number of each link's context, in parts, and how long each is; 0 where its kind has no such number.

        Of a part whose numbers are all the same, it is there once.
        """
        return [
            (context[column] if column < len(context) else np.zeros(1, dtype=np.uint64), len(nodes))
            for nodes, context in zip(self.nodes, self._contexts, strict=True)
        ]


def _brief(numbers: Words) -> Words:
    """One number for all if they are the same, as the types of a thread's contexts often are."""
    return numbers if numbers[-1] != numbers[0] or (numbers != numbers[0]).any() else numbers[:1].copy()


class Graph(Struct, frozen=True, kw_only=True, eq=False):
    """Events of the host that may lead somewhere; a node is an index.

    Attributes:
        size: how many there are.
        within: those that are directly within another one.
        around: of each of these, the one that it is within.
        roots: nodes that are roots of steps, ascending.
        levels: of each root; higher ones count first.
        begins_ps: start of each root.
        made: contexts that nodes make.
        used: contexts that nodes use.
    """

    size: int
    within: Ints
    around: Ints
    roots: Ints
    levels: Words
    begins_ps: Ints
    made: Links
    used: Links

    def numbers(self, devices: Links, count: int) -> Ints:
        """The number of each marker on a device that a root leads to, in the order of roots; -1 for the others.

        Args:
            devices: contexts that markers use; their nodes are markers.
            count: how many markers there are.

        Raises:
            SourceError: `malformed`.
        """
        numbers = np.full(count, -1, dtype=np.int64)
        made_of, used_of, wanted_of = _numbered([self.made, self.used, devices])
        contexts = int(max((part.max(initial=-1) for part in (made_of, used_of, wanted_of)), default=-1)) + 1
        makers = np.bincount(made_of, minlength=contexts)
        if not (makers[wanted_of] > 0).any():
            return numbers
        on_host, linked = _linked(makers, used_of, wanted_of)
        # Of a context with one maker, which nearly all have, the links begin at that; others are nodes, too.
        source = np.empty(contexts, dtype=np.int64)
        for nodes, of in self.made.parts(made_of):
            source[of] = nodes
        shared = makers > 1
        size = self.size + int(shared.sum())
        source[shared] = np.arange(self.size, size)

        def edges(linked: Mask) -> _Edges:
            """From node to node within, from maker to context, from there to the nodes that use it."""
            parts = [(self.around, self.within)]
            going = linked & shared
            for nodes, of in self.made.parts(made_of) if size > self.size else ():
                go = going[of]
                parts.append((nodes[go], source[of[go]]))
            for nodes, of in self.used.parts(used_of):
                come = linked[of]
                parts.append((source[of], nodes) if come.all() else (source[of[come]], nodes[come]))
            return _Edges(parts, size)

        paths = edges(on_host)
        inner = self._inner_roots(paths)
        if (linked != on_host).any():
            paths = edges(linked)
        order = np.lexsort((self.begins_ps, ~self.levels))
        outer = self.roots[order][~inner[order]]
        if not len(outer):  # those of a circle are all below each other
            return numbers
        led = np.flatnonzero(linked[wanted_of])
        found = paths.first_to_reach(outer, source[wanted_of[led]])
        best = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(best, np.concatenate(devices.nodes)[led[found >= 0]], found[found >= 0])
        return np.where(best < np.iinfo(np.int64).max, best, -1)

    def _inner_roots(self, edges: _Edges) -> Mask:
        """Which roots lie below another root of the same level."""
        inner = np.zeros(len(self.roots), dtype=np.bool_)
        levels, counts = np.unique(self.levels, return_counts=True)
        if len(levels) > _MOST_LEVELS:
            raise SourceError("malformed", f"the trace is broken: its roots have {len(levels)} levels")
        for level in levels[counts > 1]:
            own = self.levels == level
            inner[own] = edges.reached_from_another(self.roots[own])
        return inner


def _linked(makers: Ints, used_of: Ints, wanted_of: Ints) -> tuple[Mask, Mask]:
    """Which contexts lead from makers to users on the host, and which still do if markers count as users, too.

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

    Nearly every node is reached from one other node only, so that such rows of nodes can be followed at once. A node
    often leads to the next one: such neighbours are a run, and runs are followed as if they were one node each.

    Args:
        parts: begin and end of each edge, in any number of parts.
        size: number of nodes, contexts included.
    """

    def __init__(self, parts: Sequence[tuple[Ints, Ints]], size: int) -> None:
        self._above = np.arange(size)
        for begins, ends in parts:
            self._above[ends] = begins
        # Where edges from several nodes end, only one of these can be there.
        several = np.zeros(size, dtype=np.bool_)
        for begins, ends in parts:
            several[ends[self._above[ends] != begins]] = True
        self._above[several] = np.flatnonzero(several)
        joins = [(begins[here], ends[here]) for begins, ends in parts if (here := several[ends]).any()]
        self._joins = np.concatenate([np.zeros((2, 0), dtype=np.int64), *joins], axis=1)
        """Edges to nodes that several lead to."""
        is_first = np.ones(size, dtype=np.bool_)
        is_first[1:] = self._above[1:] != np.arange(size - 1)
        self._first, self._run = np.flatnonzero(is_first), np.cumsum(is_first) - 1
        """The first node of each run, and the run of each node."""

    def first_to_reach(self, roots: Ints, nodes: Ints) -> Ints:
        """For each of some nodes the first of the roots, by its place among them, that leads to it; -1 where none."""
        (first,) = self._least([np.arange(len(roots))], roots, nodes)
        return np.where(first < _NONE, first, -1)

    def reached_from_another(self, roots: Ints) -> Mask:
        """Which of the roots another one leads to: not itself alone is first, and last, to reach what leads to it."""
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
            nodes: those that are asked for.
        """
        within = _WithinRuns(numbers, roots, self._run)
        above = self._above[self._first]
        entering, top = within.least(above), self._run[above]
        for _ in range(len(top).bit_length() + 1):  # each round looks twice as far up
            entering, further = _twice_as_far(entering, top)
            if (further == top).all():
                break
            top = further

        def least(some: Ints) -> list[Ints]:
            runs = self._run[some]
            return [np.minimum(own, into[runs]) for own, into in zip(within.least(some), entering, strict=True)]

        found = least(nodes)
        begins, ends = self._joins
        if not len(begins):
            return found
        heads, place_of = np.unique(np.concatenate([top[self._run[begins]], self._run[ends]]), return_inverse=True)
        links = np.split(place_of, 2)
        for own, at_heads, at_begins in zip(found, least(self._first[heads]), least(begins), strict=True):
            np.minimum.at(at_heads, links[1], at_begins)
            by_joins = np.full(len(top), _NONE)
            by_joins[heads] = _handed_on(at_heads, *links)
            np.minimum(own, by_joins[top[self._run[nodes]]], out=own)
        return found


class _WithinRuns:
    """The least numbers of roots along runs of nodes.

    Args:
        numbers: of each root, one array for each way to number them.
        roots: different nodes, one at least.
        run: of each node; neighbours have the same, and runs ascend.
    """

    def __init__(self, numbers: Sequence[Ints], roots: Ints, run: Ints) -> None:
        order = np.argsort(roots)
        is_root = np.zeros(len(run), dtype=np.bool_)
        is_root[roots] = True
        self._run, self._run_of = run, run[roots[order]]
        self._last = np.cumsum(is_root) - 1
        """Of each node: which root is the last one up to it, itself included."""
        # Each run so much lower than the one before that it takes nothing over from that.
        lower = self._run_of * (2 * _NONE)
        self._numbers = [np.minimum.accumulate(own[order] - lower) + lower for own in numbers]

    def least(self, nodes: Ints) -> list[Ints]:
        """For each way to number the roots: the least number from the beginning of each node's run up to the node."""
        last = self._last[nodes]
        some = (last >= 0) & (self._run_of[last] == self._run[nodes])
        return [np.where(some, own[last], _NONE) for own in self._numbers]


def _handed_on(least: Ints, above: Ints, below: Ints) -> Ints:
    """Hands numbers on from nodes to those below them, the least ones first, so that each is visited once.

    Args:
        least: of each node, by its own row.
        above: of each edge: where it begins.
        below: of each edge: where it ends.

    Returns:
        Of each node, the least of itself and of all that leads to it.
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


def _twice_as_far(least: Sequence[Ints], top: Ints) -> tuple[list[Ints], Ints]:
    """The least numbers so far up, and how far up they were looked for, after one more look from there."""
    return [np.minimum(own, own[top]) for own in least], top[top]


def _numbered(parts: Sequence[Links]) -> list[Ints]:
    """A number for the context of each link, the same for the same ones, from 0 on without gaps."""
    columns = []
    for i in range(_COLUMNS):
        pieces = [piece for part in parts for piece in part.contexts(i)]
        if any(len(piece) > 1 or piece[0] != pieces[0][0][0] for piece, _ in pieces):
            columns.append(np.concatenate([np.broadcast_to(piece, count) for piece, count in pieces]))
    ends = np.cumsum([len(part) for part in parts])
    if not columns:
        return np.split(np.zeros(ends[-1], dtype=np.int64), ends[:-1])
    # What threads tell mostly ascends, which makes a stable sort quick.
    order = np.lexsort(columns)
    differs = np.zeros(len(order), dtype=np.bool_)
    while columns:  # which are as large as all links: none is kept longer than it is needed
        ordered = columns.pop()[order]
        differs[1:] |= ordered[1:] != ordered[:-1]
        del ordered
    numbers = np.empty_like(order)
    numbers[order] = np.cumsum(differs)
    return np.split(numbers, ends[:-1])
