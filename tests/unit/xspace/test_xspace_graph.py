"""Roots reach what a search from each of them finds, whether rows of nodes are followed at once or one by one."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.traces import CONV, Traced, run_step
from tpumon.xspace.columns.columns import Events, StatColumn
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.steps import graph, linking
from tpumon.xspace.steps.graph import HostGraph, Links, _Edges, _numbered
from tpumon.xspace.steps.linking import _nested

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
    assert edges.first_to_reach(np.array(roots), np.arange(NODES)).tolist() == first
    assert edges.reached_from_another(np.array(roots)).tolist() == inner


@pytest.fixture
def joined(monkeypatch):
    """How often nodes were visited one by one."""
    calls = []
    original = graph._handed_on
    monkeypatch.setattr(graph, "_handed_on", lambda *args: calls.append(1) or original(*args))
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


@pytest.mark.parametrize(
    "row",
    [np.arange(5000), np.arange(5000)[::-1], np.arange(5000).reshape(50, 100)[::-1].ravel()],
    ids=["one after the other", "backwards", "some neighbours"],
)
def test_a_long_row_is_followed_to_its_end(row):
    edges = _Edges(row[:-1], row[1:], len(row))
    assert edges.first_to_reach(row[:1], row).tolist() == [0] * len(row)
    assert edges.first_to_reach(row[2500:2501], row).tolist() == [-1] * 2500 + [0] * 2500


LINKS = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(0, 2), st.lists(st.integers(0, 2), min_size=2, max_size=4)),
    max_size=12,
)
"""Nodes, and the contexts that they make or use: a kind, and the numbers of that kind."""


def links_of(links):
    """The same as the decoder puts them together: those of one kind and length in one go."""
    out, order = Links(), []
    for form in sorted({(kind, len(numbers)) for _, kind, numbers in links}):
        own = [link for link in links if (link[1], len(link[2])) == form]
        columns = [np.array(column, dtype=np.uint64) for column in zip(*(numbers for *_, numbers in own), strict=True)]
        out.add(np.array([node for node, *_ in own]), np.ones(len(own), dtype=np.bool_), form[0], columns)
        order += own
    return out, [(node, (kind, *numbers, *[0] * (4 - len(numbers)))) for node, kind, numbers in order]


@given(st.lists(LINKS, min_size=3, max_size=3))
def test_contexts_have_the_same_number_where_they_are_the_same(parts):
    made = [links_of(part) for part in parts]
    numbers = [part.tolist() for part in _numbered([links for links, _ in made])]
    assert [len(part) for part in numbers] == [len(part) for part in parts]
    pairs = {
        (number, context)
        for part, (_, said) in zip(numbers, made, strict=True)
        for number, (_, context) in zip(part, said, strict=True)
    }
    assert {number for number, _ in pairs} == set(range(len({context for _, context in pairs})))
    assert len(pairs) == len({number for number, _ in pairs}) == len({context for _, context in pairs})


@given(
    st.lists(st.integers(-1, NODES - 1), min_size=NODES, max_size=NODES),
    st.lists(LINKS, min_size=3, max_size=3),
    st.lists(st.integers(0, NODES - 1), min_size=1, max_size=NODES, unique=True).map(sorted),
    st.data(),
)
def test_markers_have_the_number_of_the_first_root_that_leads_to_them(parents, parts, roots, data):
    """Whether contexts have no maker, one, or several."""
    parents = [parent if parent < node else -1 for node, parent in enumerate(parents)]
    levels = data.draw(st.lists(st.integers(1, 2), min_size=len(roots), max_size=len(roots)))
    begins = data.draw(st.lists(st.integers(0, 9), min_size=len(roots), max_size=len(roots)))
    (made, makers), (used, users), (devices, markers) = map(links_of, parts)
    graph_of = HostGraph(
        size=NODES,
        within=np.flatnonzero(np.array(parents) >= 0),
        around=np.array([parent for parent in parents if parent >= 0], dtype=np.int64),
        roots=np.array(roots),
        levels=np.array(levels, dtype=np.uint64),
        begins_ps=np.array(begins),
        steps=np.arange(len(roots)) + 100,
        made=made,
        used=used,
    )
    pairs = [(parent, node) for node, parent in enumerate(parents) if parent >= 0]
    pairs += makers + [(context, node) for node, context in users]
    below = {root: reached(pairs, root) for root in roots}
    level = dict(zip(roots, levels, strict=True))
    outer = [
        root
        for _, _, root in sorted(zip([-own for own in levels], begins, roots, strict=True))
        if not any(root in below[other] for other in roots if other != root and level[other] == level[root])
    ]
    expected = []
    for marker in range(NODES):
        own = {context for node, context in markers if node == marker}
        expected.append(next((i for i, root in enumerate(outer) if own & below[root]), -1))
    numbers, steps = graph_of.numbers(devices, NODES)
    assert numbers.tolist() == expected
    assert steps == {i: 100 + roots.index(outer[i]) for i in expected if i >= 0}


def test_roots_of_a_circle_number_nothing():
    """Each is below the other, so none is the outer one."""
    nodes, all_of = np.arange(2), np.ones(2, dtype=np.bool_)
    made, used, devices = Links(), Links(), Links()
    made.add(nodes, all_of, 0, [np.array([7, 8], dtype=np.uint64)])
    used.add(nodes, all_of, 0, [np.array([8, 7], dtype=np.uint64)])
    devices.add(nodes, all_of, 0, [np.array([7, 8], dtype=np.uint64)])
    nothing = np.zeros(0, dtype=np.int64)
    levels = np.ones(2, dtype=np.uint64)
    circle = HostGraph(
        size=2,
        within=nothing,
        around=nothing,
        roots=nodes,
        levels=levels,
        begins_ps=nodes,
        steps=nodes,
        made=made,
        used=used,
    )
    numbers, steps = circle.numbers(devices, 2)
    assert (numbers.tolist(), steps) == ([-1, -1], {})


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.sampled_from([0, 0, 0, 1])), max_size=NODES))
def test_events_are_within_the_innermost_one_around_them_unless_asynchronous(spans):
    begin_ps, duration_ps, asynchronous = (np.array([span[i] for span in spans], dtype=np.int64) for i in range(3))
    events = Events(
        metadata_id=begin_ps,
        begin_ps=begin_ps,
        duration_ps=duration_ps,
        stats={"_a": StatColumn.of(asynchronous)},
    )
    expected, stack = set(), []
    for row in sorted(range(len(spans)), key=lambda row: (spans[row][0], -spans[row][1])):
        begin, duration, alone = spans[row]
        if alone:
            continue
        while stack and sum(spans[stack[-1]][:2]) < begin + duration:
            stack.pop()
        expected |= {(row, stack[-1])} if stack else set()
        stack.append(row)
    within, around = _nested(events)
    assert set(zip(within.tolist(), around.tolist(), strict=True)) == expected
    assert len(within) == len(expected)


def test_what_threads_show_is_in_memory_once_while_roots_are_followed(monkeypatch):
    traced = Traced()
    core, host = traced.core(0), traced.host()
    run_step(core, 0, [(CONV, 50)])
    core.put(core.line("Steps").events[0].stats, {"_ct": 1, "_c": 7})
    host.event("thread", "step", 0, 60, _r=1, _pt=1, _p=7)
    threads, alive = [], []
    collect, follow = linking._Threads, HostGraph.numbers

    def noted(*args):
        found = collect(*args)
        threads.append(weakref.ref(found))
        return found

    def checked(*args):
        alive.extend(reference() for reference in threads)
        return follow(*args)

    monkeypatch.setattr(linking, "_Threads", noted)
    monkeypatch.setattr(HostGraph, "numbers", checked)
    read_host_totals(traced.bytes())
    assert alive == [None]
