"""Twice the trace is twice the work and memory, whatever it has more of. Work is counted, not timed."""

from __future__ import annotations

import pytest

from support.growth import cost
from support.traces import CONV, LOOP, WHILE, Op, Traced, run_step
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts

pytestmark = pytest.mark.slow

MOST = 2.5


def planes(count):
    traced = Traced()
    for number in range(count):
        run_step(traced.core(number), 0, [(CONV, 10)] * 3)
    return traced


def lines(count):
    traced = planes(1)
    host = traced.host()
    for number in range(count):
        host.line(f"thread/{number}", number=number + 1).events.add(metadata_id=host.event_id("call"), duration_ps=5)
    return traced


def ids(count):
    traced = Traced()
    core = traced.core(0)
    run_step(core, 0, [(Op(f"fusion.{i}", "loop fusion", flops=i), 1) for i in range(count)])
    return traced


def modules(count):
    traced = Traced()
    core = traced.core(0)
    for number in range(count):
        core.event("XLA Modules", f"jit_f{number}({number})", 10 * number, 8)
        core.event("XLA Ops", CONV, 10 * number, 4)
    return traced


def runs_with_lost_ops(count):
    """Every second run of a program has fewer ops than the others."""
    traced = Traced()
    core = traced.core(0)
    for number in range(count):
        core.event("XLA Modules", "jit_f(1)", 10 * number, 8)
        for part in range(2 + number % 2):
            core.event("XLA Ops", CONV, 10 * number + 2 * part, 1)
    return traced


def roots(count):
    """Steps of a core that are reached over a chain of roots, each of which leads to the next one."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    for number in range(count):
        run_step(core, 10 * number, [(CONV, 5)])
        host.event("thread", "step", 10 * number, 5, _r=1, _pt=1, _p=number + 1, _ct=1, _c=number)
    for number, step in enumerate(core.line("Steps").events):
        core.put(step.stats, {"_ct": 1, "_c": number})
    return traced


def names_of_roots(count):
    """Roots of as many names."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    run_step(core, 0, [(CONV, 5)])
    core.put(core.line("Steps").events[0].stats, {"_ct": 1, "_c": 0})
    for number in range(count):
        host.event("thread", f"step {number}", 10 * number, 5, _r=1, _pt=1, _p=number)
    return traced


def nested_roots(count):
    traced = Traced()
    core, host = traced.core(0), traced.host()
    for number in range(5):
        run_step(core, 10 * number, [(CONV, 5)])
        core.put(core.line("Steps").events[number].stats, {"_ct": 1, "_c": number})
    for depth in range(count):
        host.event("thread", "step", depth, 4 * count - 2 * depth, _r=1, _pt=1, _p=depth % 7)
    return traced


def stats(count):
    """As many stats as there are, none of the same name."""
    traced = Traced()
    core = traced.core(0)
    run_step(core, 0, [(CONV, 1, {f"stat_{number}": number}) for number in range(count)])
    return traced


def metadata(count):
    """Ops that nothing ran."""
    traced = planes(1)
    core = traced.core(1)
    for number in range(count):
        core.event_id(Op(f"fusion.{number}", "loop fusion"))
    run_step(core, 0, [(LOOP, 3)])
    return traced


def events(count):
    """Ops of a few kinds, one after the other."""
    traced = Traced()
    core = traced.core(0)
    for number in range(5):
        run_step(core, number * count, [(CONV, 3), (LOOP, 2)] * (count // 5))
    return traced


def ops_within_ops(count):
    traced = Traced()
    core = traced.core(0)
    core.event("Steps", "1", 0, 3 * count)
    for depth in range(count):
        core.event("XLA Ops", WHILE, depth, 3 * count - 2 * depth)
    return traced


def stats_of_events(count):
    """Every event has as many stats."""
    traced = Traced()
    run_step(traced.core(0), 0, [(CONV, 1, {f"stat_{number}": number for number in range(count // 20)})] * 20)
    return traced


def stats_of_metadata(count):
    """As many stats of one op's metadata."""
    traced = planes(1)
    core = traced.core(1)
    metadata = core.plane.event_metadata[core.event_id(LOOP)]
    core.put(metadata.stats, {f"stat_{number}": number for number in range(count)})
    run_step(core, 0, [(LOOP, 3)])
    return traced


def names_of_stats(count):
    """Stats that nothing has."""
    traced = planes(1)
    for number in range(count):
        traced.host().stat_id(f"stat_{number}")
    return traced


def levels_of_roots(count):
    """Roots in a row, each on a thread of its own and with the steps of a core below it."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    for number in range(count):
        run_step(core, 10 * number, [(CONV, 5)])
        host.event(f"thread {number}", "step", 10 * number, 5, _r=1 + number % 3, _pt=1, _p=number)
    for number, step in enumerate(core.line("Steps").events):
        core.put(step.stats, {"_ct": 1, "_c": number})
    return traced


def calls_on_the_host(count):
    traced = Traced()
    host = traced.host()
    for number in range(count):
        host.event("python", f"PjitFunction(f{number})", 3 * number, 2)
    return traced


SHAPES = [
    *((planes, 16), (lines, 200), (ids, 300), (modules, 120), (runs_with_lost_ops, 200), (roots, 200)),
    *((nested_roots, 1500), (stats, 200), (metadata, 400), (calls_on_the_host, 300)),
    *((events, 3000), (ops_within_ops, 1000), (stats_of_events, 400), (stats_of_metadata, 400), (names_of_stats, 250)),
    *((levels_of_roots, 40), (names_of_roots, 500)),
]


@pytest.mark.parametrize(("shape", "count"), SHAPES, ids=[shape.__name__ for shape, _ in SHAPES])
def test_twice_as_many_cost_twice_as_much(shape, count):
    figures_of_hosts([read_host_totals(shape(1).bytes())])  # imports what it needs
    once, twice = (cost(shape(number).bytes()) for number in (count, 2 * count))
    assert twice[0] < MOST * once[0]
    assert twice[1] < MOST * once[1]
