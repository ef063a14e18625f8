"""The catalogue says of an op what its metadata says, however often it is asked and whoever else has asked."""

from __future__ import annotations

import threading

import pytest

from support.traces import ALL_REDUCE, CONV, CUSTOM, INFEED, LOOP, Op, Traced, run_step
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.ops import catalogue
from tpumon.xspace.ops.catalogue import Catalogue
from tpumon.xspace.ops.op_kinds import KIND
from tpumon.xspace.planes.space import read_space
from tpumon.xspace.trace_figures import figures_of_hosts

FLOPS = KIND.names.index("flops")
OPS = (CONV, LOOP, INFEED, ALL_REDUCE, CUSTOM, Op("region.1", "loop fusion", flops=5))


def traced(*ops, first_stats=(), number=0):
    """A core that ran these ops, whose plane gives these stats the lowest ids."""
    trace = Traced()
    core = trace.core(number)
    for name in first_stats:
        core.stat_id(name)
    run_step(core, 0, [(op, 10) for op in ops])
    return trace


def plane_of(trace):
    return read_space(memoryview(trace.bytes())).tensor_cores[0]


def kinds_of(where, trace):
    plane = plane_of(trace)
    return where.kinds(plane, sorted(plane.metadata_by_id)).tolist()


def test_ops_that_are_known_are_what_they_were_when_new():
    where = Catalogue()
    new = kinds_of(where, traced(*OPS))
    count = len(where)
    assert kinds_of(where, traced(*OPS)) == new
    assert len(where) == count == len(new)


@pytest.fixture
def read(monkeypatch):
    """Grows by one for each op that is read."""
    ops = []
    original = catalogue.op_kind
    monkeypatch.setattr(catalogue, "op_kind", lambda *args: ops.append(args[1]) or original(*args))
    return ops


def test_the_next_core_with_the_same_ops_is_not_read_again(read):
    where = Catalogue()
    kinds = kinds_of(where, traced(*OPS))
    read.clear()
    assert kinds_of(where, traced(*OPS, number=1)) == kinds
    assert kinds_of(where, traced(*OPS[:-1], number=2))[: len(OPS) - 1] == kinds[: len(OPS) - 1]
    assert not read
    assert (
        kinds_of(where, traced(*OPS[:-1], number=2, first_stats=("symbol_id",)))[: len(OPS) - 1]
        == kinds[: len(OPS) - 1]
    )
    assert len(read) == len(kinds) - 1


def with_many_stats(first):
    """A core whose plane calls a thousand stats the same."""
    trace = traced(*OPS)
    for number in range(first, first + 1000):
        trace.space.planes[0].stat_metadata[number].name = "flops"
    return trace


def test_what_planes_call_their_stats_takes_room_too(monkeypatch):
    monkeypatch.setattr(catalogue, "_MOST_BYTES", 300_000)
    where = Catalogue()
    kinds_of(where, with_many_stats(1000))
    count = len(where)
    kinds_of(where, with_many_stats(2000))
    assert len(where) == 2 * count
    kinds_of(where, with_many_stats(3000))
    assert not len(where)


def test_the_same_bytes_say_what_the_plane_calls_their_stats():
    where = Catalogue()
    trace = traced(Op("fusion.1", "loop fusion", flops=5))
    (kind, *_) = kinds_of(where, trace)
    plane = trace.space.planes[0]
    (number,) = (each for each, metadata in plane.stat_metadata.items() if metadata.name == "flops")
    plane.stat_metadata[number].name = "something else"
    (other, *_) = kinds_of(where, trace)
    assert (kind[FLOPS], other[FLOPS]) == (5, 0)


def test_an_op_of_several_cores_is_one_of_their_host():
    trace = Traced()
    for number in range(2):
        run_step(trace.core(number), 0, [(CONV, 10), (LOOP, 20), (CONV, 10)])
    read = read_host_totals(trace.bytes())
    assert [sorted(core.table.occurrences.tolist()) for core in read.cores] == [[1, 2]] * 2
    assert sorted(read.table.occurrences.tolist()) == [2, 4]


def test_the_same_op_under_another_id_is_the_same():
    where = Catalogue()
    kinds = kinds_of(where, traced(CONV, LOOP))
    again = kinds_of(where, traced(CONV, LOOP, first_stats=("flops", "hlo_category")))
    # Stats of other ids are other bytes, but what they say is the same.
    assert kinds[:2] == again[:2]


def test_an_op_that_needs_its_plane_is_not_kept():
    """What it holds, or the text that it refers to, another plane may say otherwise."""
    where = Catalogue()
    trace = traced(Op("fusion.1", "loop fusion"), CONV)
    fusion = trace.space.planes[0].event_metadata[1]
    fusion.child_id.append(2)
    held = traced(Op("fusion.1", "loop fusion"), INFEED)
    held.space.planes[0].event_metadata[1].child_id.append(2)
    assert plane_kinds(where, trace)[0]["matrix"]
    assert not plane_kinds(where, held)[0]["matrix"]

    referring, other = traced(LOOP), traced(LOOP)
    for each, category in ((referring, "infeed"), (other, "outfeed")):
        plane = each.space.planes[0]
        number = next(n for n, metadata in plane.stat_metadata.items() if metadata.name == "hlo_category")
        plane.stat_metadata[900].name = category
        next(s for s in plane.event_metadata[1].stats if s.metadata_id == number).ref_value = 900
    assert plane_kinds(where, referring)[0]["category"] != plane_kinds(where, other)[0]["category"]


def plane_kinds(where, trace):
    return where.kinds(plane_of(trace), [1])


def test_ops_within_ops_cost_their_number_only():
    """Fusions that all list each other: without memory of what was visited that is 300 to the power of four."""
    trace = traced(*(Op(f"fusion.{i}", "loop fusion") for i in range(300)))
    every = trace.space.planes[0].event_metadata
    for metadata in every.values():
        metadata.child_id.extend(every.keys())
    assert not any(kind["matrix"] for kind in plane_kinds(Catalogue(), trace))


@pytest.mark.parametrize("limit", ["_MOST_ROWS", "_MOST_BYTES"])
def test_it_begins_anew_when_it_is_full(monkeypatch, limit):
    monkeypatch.setattr(catalogue, limit, 8 if limit == "_MOST_ROWS" else 2000)
    where = Catalogue()
    for i in range(20):
        ops = [Op(f"fusion.{i}.{j}", "loop fusion", flops=i + j) for j in range(6)]
        assert [kind[FLOPS] for kind in kinds_of(where, traced(*ops))[:6]] == [i + j for j in range(6)]
        assert len(where) <= 8 or limit == "_MOST_BYTES"
    assert len(where) < 40


def test_a_full_one_that_knows_all_ops_stays(monkeypatch):
    where = Catalogue()
    kinds_of(where, traced(*OPS))
    count = len(where)
    monkeypatch.setattr(catalogue, "_MOST_ROWS", count)
    monkeypatch.setattr(catalogue, "_MOST_BYTES", 0)
    kinds_of(where, traced(*OPS))
    assert len(where) == count


def test_traces_are_the_same_before_and_after_it_began_anew():
    xspace = traced(*OPS).bytes()
    before = read_host_totals(xspace)
    catalogue.CATALOGUE.clear()
    after = read_host_totals(xspace)
    alone, both = figures_of_hosts([before]).figures, figures_of_hosts([before, after]).figures
    assert both.flops_utilization_ratio == pytest.approx(alone.flops_utilization_ratio)
    assert both.mxu_utilization_ratio == alone.mxu_utilization_ratio


def test_threads_share_it():
    where = Catalogue()
    traces = [traced(*(Op(f"fusion.{j}", "loop fusion", flops=j) for j in range(i, i + 60))) for i in range(8)]
    expected = [kinds_of(Catalogue(), trace) for trace in traces]
    found = [None] * len(traces)

    def read(i):
        found[i] = [kinds_of(where, traces[i]) for _ in range(5)]

    threads = [threading.Thread(target=read, args=(i,)) for i in range(len(traces))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each == [expected[i]] * 5 for i, each in enumerate(found))
