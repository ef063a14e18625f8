"""What leads from the roots of steps to the devices: nodes within nodes, and contexts that one makes and another uses.

Contexts are numbered by sorting and links are arrays of positions, so that the search itself only follows positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tpumon.errors import SourceError
from tpumon.model.frozen import struct
from tpumon.xspace.columns.columns import Ints, Mask, Words

_MOST_LINKS = 64  # a context with more on both sides says nothing
_MOST_LEVELS = 64  # of roots; profilers use three
_COLUMNS = 5  # of a context: its kind, and four numbers at most


class Links:
    """Which nodes make, or use, which contexts."""

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
        if not picked.any():
            return
        rows = slice(None) if picked.all() else picked
        self._nodes.append(nodes[rows])
        said = [np.broadcast_to(np.uint64(kind), len(self._nodes[-1])), *(column[rows] for column in columns)]
        self._contexts.append(said)

    def __len__(self) -> int:
        return sum(map(len, self._nodes))

    @property
    def nodes(self) -> Ints:
        """The node of each link."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self._nodes])

    def contexts(self, column: int) -> list[Words]:
        """One number of each link's context, in parts; 0 where its kind has no such number."""
        return [
            context[column] if column < len(context) else np.broadcast_to(np.uint64(0), len(context[0]))
            for context in self._contexts
        ]


@struct
class Graph:
    """Events of the host that may lead somewhere; a node is an index.

    Attributes:
        parent: of each node, the one that it is directly within; -1 for none.
        roots: nodes that are roots of steps, ascending.
        levels: of each root; higher ones count first.
        begins_ps: start of each root.
        made: contexts that nodes make.
        used: contexts that nodes use.
    """

    parent: Ints
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
        made, used, wanted = self.made.nodes, self.used.nodes, devices.nodes
        made_of, used_of, wanted_of = _numbered([self.made, self.used, devices])
        contexts = int(max((part.max(initial=-1) for part in (made_of, used_of, wanted_of)), default=-1)) + 1
        makers, users, markers = (np.bincount(part, minlength=contexts) for part in (made_of, used_of, wanted_of))
        if not (makers[wanted_of] > 0).any():
            return numbers
        size = len(self.parent)
        # Of a context with one maker, which nearly all have, the links begin at that; others are nodes, too.
        source = np.empty(contexts, dtype=np.int64)
        source[made_of] = made
        others = np.flatnonzero(makers != 1)
        source[others] = np.arange(size, size + len(others))

        def edges(linked: Mask) -> _Edges:
            """From node to node within, from maker to context, from there to the nodes that use it."""
            within = np.flatnonzero(self.parent >= 0)
            go, come = linked[made_of] & (makers[made_of] > 1), linked[used_of]
            return _Edges(
                np.concatenate([self.parent[within], made[go], source[used_of[come]]]),
                np.concatenate([within, source[made_of[go]], used[come]]),
                size + len(others),
            )

        few = makers < _MOST_LINKS
        on_host, linked = few | (users < _MOST_LINKS), few | (users + markers < _MOST_LINKS)
        paths = edges(on_host)
        inner = self._inner_roots(paths)
        if (linked != on_host).any():
            paths = edges(linked)
        order = np.lexsort((self.begins_ps, ~self.levels))
        outer = self.roots[order][~inner[order]]
        found = paths.first_to_reach(outer)
        reached = np.where(linked, found[source], -1)[wanted_of]
        best = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(best, wanted[reached >= 0], reached[reached >= 0])
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


_NONE = 1 << 30  # no root: more than there are roots


class _Edges:
    """Directed edges by where they begin.

    Nearly every node is reached from one other node only, so that such rows of nodes can be followed at once.

    Args:
        begins: of each edge.
        ends: of each edge.
        size: number of nodes, contexts included.
    """

    def __init__(self, begins: Ints, ends: Ints, size: int) -> None:
        self._begins, self._ends = begins, ends
        only = np.bincount(ends, minlength=size)[ends] == 1
        self._above = np.arange(size)
        self._above[ends[only]] = begins[only]
        self._joins = np.flatnonzero(~only)
        """Edges to nodes that several lead to."""

    def first_to_reach(self, roots: Ints) -> Ints:
        """For each node the first of the roots, by its place among them, that leads to it; -1 where none does."""
        (first,) = self._least([np.arange(len(roots))], roots)
        return np.where(first < _NONE, first, -1)

    def reached_from_another(self, roots: Ints) -> Mask:
        """Which of the roots another one leads to: not itself alone is first, and last, to reach what leads to it."""
        place = np.arange(len(roots))
        first, last = self._least([place, -place], roots)
        place_of = np.full(len(self._above), -1, dtype=np.int64)
        place_of[roots] = place
        to_roots = np.flatnonzero(place_of[self._ends] >= 0)
        begins, own = self._begins[to_roots], place_of[self._ends[to_roots]]
        another = (first[begins] < _NONE) & ((first[begins] != own) | (last[begins] != -own))
        reached = np.zeros(len(roots), dtype=np.bool_)
        reached[own[another]] = True
        return reached

    def _least(self, numbers: Sequence[Ints], roots: Ints) -> list[Ints]:
        """For each way to number the roots: the least number of a root that leads to each node, or that it is."""
        # A node often leads to the next one: such neighbours count as one, and few are left to be followed.
        is_first = self._above != np.arange(-1, len(self._above) - 1)
        run, first = np.cumsum(is_first) - 1, np.flatnonzero(is_first)
        above = self._above[first]
        found, entering = [], []
        for own in numbers:
            least = np.full(len(self._above), _NONE)
            least[roots] = own
            # Each run so much lower than the one before that it takes nothing over from that.
            least -= run * (2 * _NONE)
            np.minimum.accumulate(least, out=least)
            least += run * (2 * _NONE)
            found.append(least)
            entering.append(least[above])
        top = run[above]
        for _ in range(len(top).bit_length() + 1):  # each round looks twice as far up
            entering, further = _twice_as_far(entering, top)
            if (further == top).all():
                break
            top = further
        for least, into in zip(found, entering, strict=True):
            np.minimum(least, into[run], out=least)
            if len(self._joins):
                self._join(least, first[top][run])
        return found

    def _join(self, least: Ints, top: Ints) -> None:
        """Hands numbers on from rows of nodes to those below them, the least ones first, so that each is visited once.

        Args:
            least: of each node, by its own row; of all that leads to it afterwards.
            top: first node of each node's row.
        """
        joins = self._joins
        begins, ends = self._begins[joins], self._ends[joins]
        np.minimum.at(least, ends, least[begins])
        heads, place_of = np.unique(np.concatenate([top[begins], ends]), return_inverse=True)
        above, below = np.split(place_of, 2)
        after = below[np.argsort(above, kind="stable")].tolist()
        at = np.concatenate([[0], np.cumsum(np.bincount(above, minlength=len(heads)))]).tolist()
        best = least[heads].tolist()
        done = [False] * len(best)
        for start in np.argsort(least[heads], kind="stable").tolist():
            waiting = [start]
            while waiting:
                here = waiting.pop()
                if done[here]:
                    continue
                done[here], best[here] = True, min(best[here], best[start])
                waiting += after[at[here] : at[here + 1]]
        least[heads] = best
        np.minimum(least, least[top], out=least)


def _twice_as_far(least: Sequence[Ints], top: Ints) -> tuple[list[Ints], Ints]:
    """The least numbers so far up, and how far up they were looked for, after one more look from there."""
    return [np.minimum(own, own[top]) for own in least], top[top]


def _numbered(parts: Sequence[Links]) -> list[Ints]:
    """A number for the context of each link, the same for the same ones, from 0 on without gaps."""
    columns = []
    for i in range(_COLUMNS):
        pieces = [piece for part in parts for piece in part.contexts(i)]
        if any((piece != pieces[0][0]).any() for piece in pieces):
            columns.append(np.concatenate(pieces))
    ends = np.cumsum([len(part) for part in parts])
    numbers = np.zeros(ends[-1], dtype=np.int64)
    if columns:
        # What threads tell mostly ascends, which makes a stable sort quick.
        order = np.lexsort(columns)
        differs = np.zeros(len(order), dtype=np.bool_)
        for column in columns:
            ordered = column[order]
            differs[1:] |= ordered[1:] != ordered[:-1]
        numbers[order] = np.cumsum(differs)
    return np.split(numbers, ends[:-1])
