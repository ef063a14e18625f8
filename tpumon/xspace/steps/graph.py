"""What leads from the roots of steps to the devices: nodes within nodes, and contexts that one makes and another uses.

Contexts are numbered by sorting and links are arrays of positions, so that the search itself only follows positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tpumon.errors import SourceError
from tpumon.xspace.columns.columns import Ints, Mask, Words
from tpumon.xspace.struct import struct

_MOST_LINKS = 64  # a context with more on both sides says nothing
_MOST_LEVELS = 64  # of roots; profilers use three
_COLUMNS = 5  # of a context: its kind, and four numbers at most


class Links:
    """Which nodes make, or use, which contexts."""

    def __init__(self) -> None:
        self._nodes: list[Ints] = []
        self._contexts: list[Words] = []

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
        contexts = np.zeros((int(picked.sum()), _COLUMNS), dtype=np.uint64)
        contexts[:, 0] = kind
        for i, column in enumerate(columns, 1):
            contexts[:, i] = column[picked]
        self._nodes.append(nodes[picked])
        self._contexts.append(contexts)

    def __len__(self) -> int:
        return sum(map(len, self._nodes))

    @property
    def nodes(self) -> Ints:
        """The node of each link."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self._nodes])

    @property
    def contexts(self) -> Words:
        """The context of each link; shape (links, columns)."""
        return np.concatenate([np.zeros((0, _COLUMNS), dtype=np.uint64), *self._contexts])


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
        rows = np.concatenate([self.made.contexts, self.used.contexts, devices.contexts])
        made_of, used_of, wanted_of = np.split(_numbered(rows), np.cumsum([len(made), len(used)]))
        contexts = int(max((part.max(initial=-1) for part in (made_of, used_of, wanted_of)), default=-1)) + 1
        makers, users, markers = (np.bincount(part, minlength=contexts) for part in (made_of, used_of, wanted_of))
        if not (makers[wanted_of] > 0).any():
            return numbers
        size = len(self.parent)
        # Of a context with one maker, which nearly all have, the links begin at that; others are nodes, too.
        source = np.arange(size, size + contexts)
        source[made_of] = np.where(makers[made_of] == 1, made, source[made_of])

        def edges(linked: Mask) -> _Edges:
            """From node to node within, from maker to context, from there to the nodes that use it."""
            within = np.flatnonzero(self.parent >= 0)
            go, come = linked[made_of] & (makers[made_of] > 1), linked[used_of]
            return _Edges(
                np.concatenate([self.parent[within], made[go], source[used_of[come]]]),
                np.concatenate([within, made_of[go] + size, used[come]]),
                size + contexts,
            )

        few = makers < _MOST_LINKS
        inner = self._inner_roots(edges(few | (users < _MOST_LINKS)))
        linked = few | (users + markers < _MOST_LINKS)
        order = np.lexsort((self.begins_ps, ~self.levels))
        found = edges(linked).first_to_reach([int(root) for root in self.roots[order] if int(root) not in inner])
        reached = np.where(linked, np.array(found, dtype=np.int64)[source], -1)[wanted_of]
        best = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(best, wanted[reached >= 0], reached[reached >= 0])
        return np.where(best < np.iinfo(np.int64).max, best, -1)

    def _inner_roots(self, edges: _Edges) -> set[int]:
        """The roots that lie below another root of the same level."""
        inner: set[int] = set()
        levels = Counter(self.levels.tolist())
        if len(levels) > _MOST_LEVELS:
            raise SourceError("malformed", f"the trace is broken: its roots have {len(levels)} levels")
        for level, count in levels.items():
            if count > 1:
                inner |= edges.reached_from_another(self.roots[self.levels == level].tolist())
        return inner


class _Edges:
    """Directed edges by where they begin.

    Args:
        begins: of each edge.
        ends: of each edge.
        size: number of nodes, contexts included.
    """

    def __init__(self, begins: Ints, ends: Ints, size: int) -> None:
        self._size = size
        self._ends: list[int] = ends[np.argsort(begins, kind="stable")].tolist()
        self._first: list[int] = np.concatenate([[0], np.cumsum(np.bincount(begins, minlength=size))]).tolist()

    def first_to_reach(self, roots: Sequence[int]) -> list[int]:
        """For each node the first of the roots, by its place among them, that leads to it; -1 where none does."""
        ends, first = self._ends, self._first
        number_of = [-1] * self._size
        for number, root in enumerate(roots):
            if number_of[root] >= 0:
                continue
            number_of[root] = number
            waiting = [root]
            while waiting:
                here = waiting.pop()
                for node in ends[first[here] : first[here + 1]]:
                    if number_of[node] < 0:
                        number_of[node] = number
                        waiting.append(node)
        return number_of

    def reached_from_another(self, roots: Sequence[int]) -> set[int]:
        """The roots that another one leads to.

        Every root sends its own name down as far as the next roots, which send theirs. A node passes the first two
        names that it gets on: one of them at least is another's. So each is visited twice at most.
        """
        ends, first = self._ends, self._first
        reached: set[int] = set()
        name_of, other_of = [-1] * self._size, [-1] * self._size
        own = set(roots)
        waiting = [(root, root) for root in roots]
        while waiting:
            here, name = waiting.pop()
            for node in ends[first[here] : first[here + 1]]:
                if node in own:
                    if node != name:
                        reached.add(node)
                elif name_of[node] < 0:
                    name_of[node] = name
                    waiting.append((node, name))
                elif name_of[node] != name and other_of[node] < 0:
                    other_of[node] = name
                    waiting.append((node, name))
        return reached


def _numbered(rows: Words) -> Ints:
    """A number for each row, the same for the same rows, from 0 on without gaps."""
    numbers = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        if len(column) and (column != column[0]).any():
            values, own = np.unique(column, return_inverse=True)
            if numbers.any():
                _, own = np.unique(numbers * len(values) + own, return_inverse=True)
            numbers = own.astype(np.int64)
    return numbers
