"""Roots reach what a search from each of them finds, whether rows of nodes are followed at once or one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpumon.xspace.steps import graph
from tpumon.xspace.steps.graph import _Edges

NODES = 12
PAIRS = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=24)
"""Edges, several of which may end in one node."""

ROWS = st.permutations(range(NODES)).flatmap(
    lambda ends: st.lists(st.integers(0, NODES - 1), max_size=NODES).map(
        lambda begins: list(zip(begins, ends, strict=False))
    )
)
"""Edges that end in different nodes: trees, rows and circles."""

ROOTS = st.lists(st.integers(0, NODES - 1), min_size=1, max_size=NODES, unique=True)


def reached(pairs, start):
    """The nodes that a node leads to over one edge or more."""
    found, waiting = set(), [start]
    while waiting:
        here = waiting.pop()
        new = {end for begin, end in pairs if begin == here} - found
        found |= new
        waiting += new
    return found


def check(pairs, roots):
    begins, ends = (np.array(side, dtype=np.int64) for side in (zip(*pairs, strict=True) if pairs else ((), ())))
    edges = _Edges(begins, ends, NODES)
    below = {root: reached(pairs, root) for root in roots}
    first = [next((i for i, root in enumerate(roots) if node in below[root] | {root}), -1) for node in range(NODES)]
    inner = [any(root in below[other] for other in roots if other != root) for root in roots]
    assert edges.first_to_reach(np.array(roots)).tolist() == first
    assert edges.reached_from_another(np.array(roots)).tolist() == inner


@pytest.fixture
def joined(monkeypatch):
    """How often nodes were visited one by one."""
    calls = []
    original = graph._Edges._join
    monkeypatch.setattr(graph._Edges, "_join", lambda *args: calls.append(1) or original(*args))
    return calls


def test_what_several_lead_to_is_visited_one_by_one(joined):
    @given(PAIRS, ROOTS)
    def search(pairs, roots):
        check(pairs, roots)

    search()
    assert len(joined) > 10


def test_rows_are_followed_at_once(joined):
    @given(ROWS, ROOTS)
    def search(pairs, roots):
        check(pairs, roots)

    search()
    assert not joined


def test_a_long_row_takes_rounds_by_its_logarithm(monkeypatch):
    """Of the last node, the first root is known after twice as many rounds for a row a thousand times as long."""
    count = 5000
    rounds = []
    original = np.minimum
    monkeypatch.setattr(graph.np, "minimum", lambda *args, **rest: rounds.append(1) or original(*args, **rest))
    edges = _Edges(np.arange(count - 1), np.arange(1, count), count)
    assert edges.first_to_reach(np.array([0])).tolist() == [0] * count
    assert len(rounds) <= count.bit_length() + 1
