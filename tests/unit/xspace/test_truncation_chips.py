"""Chips without events beside whole ones: steps are those of the whole chips, or absent with the reason."""

from __future__ import annotations

from itertools import combinations

import pytest

from support.captures import real_trace
from support.traces import ALL_REDUCE, CONV, INFEED, Traced, run_step
from tpumon.proto.xplane_pb2 import XSpace
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts

TPU = "/device:TPU:"
SOME = [chips for count in (1, 2, 3) for chips in combinations(range(4), count)]


def of(space):
    return figures_of_hosts([read_host_totals(space.SerializeToString())])


def without_events(space, chips):
    """The trace in which these chips have lines, but no event."""
    emptied = XSpace()
    emptied.CopyFrom(space)
    for plane in emptied.planes:
        if plane.name in {f"{TPU}{chip}" for chip in chips}:
            for line in plane.lines:
                del line.events[:]
    return emptied


def without(space, chips):
    """The trace of the other chips alone."""
    rest = XSpace()
    rest.CopyFrom(space)
    kept = [plane for plane in space.planes if plane.name not in {f"{TPU}{chip}" for chip in chips}]
    del rest.planes[:]
    rest.planes.extend(kept)
    return rest


def training(markers):
    """Four chips that wait for each other, of a host that calls all steps at once."""
    traced = Traced()
    for number in range(4):
        plane, at_us = traced.core(number), 1000.0 + number
        for _ in range(20):
            at_us = (
                run_step(plane, at_us, [(INFEED, 100), (CONV, 700 + 10 * number), (ALL_REDUCE, 90 - 10 * number)]) + 30
            )
        if not markers:
            del next(line for line in plane.plane.lines if line.name == "Steps").events[:]
    host = traced.host()
    for step in range(20):
        host.event("python", "PjitFunction(train_step)", 100 + 40 * step, 20)
    return traced.space


@pytest.mark.parametrize("chips", SOME, ids=str)
def test_steps_of_the_real_trace_are_those_of_the_whole_chips(chips):
    space = XSpace.FromString(real_trace().read_bytes())
    whole, found, others = of(space), of(without_events(space, chips)), of(without(space, chips))
    assert others.truncated is None
    assert found.figures.step_time_s == others.figures.step_time_s
    assert found.figures.step_time_s.avg == pytest.approx(whole.figures.step_time_s.avg, rel=0.005)
    assert (found.figures.step_source, found.figures.step_name) == ("modules", "jit_f")
    assert found.truncated.endswith("steps are those of the cores with events")
    assert found.figures.absent["idle_ratio"] == "truncated"
    assert found.figures.step_work_s is None


@pytest.mark.parametrize("chips", SOME, ids=str)
@pytest.mark.parametrize("markers", [True, False], ids=["markers", "modules"])
def test_steps_are_those_of_the_whole_chips(chips, markers):
    space = training(markers)
    found, others = of(without_events(space, chips)), of(without(space, chips))
    assert found.figures.step_time_s == others.figures.step_time_s
    assert found.figures.step_source == ("steps" if markers else "modules")
    assert found.figures.idle_ratio is found.figures.step_parts_s is None


@pytest.mark.parametrize("markers", [True, False], ids=["markers", "modules"])
def test_steps_of_several_hosts_are_those_of_the_whole_chips(markers):
    first, second = training(markers), without_events(training(markers), [2])
    both = figures_of_hosts([read_host_totals(space.SerializeToString()) for space in (first, second)])
    rest = figures_of_hosts([read_host_totals(space.SerializeToString()) for space in (first, without(second, [2]))])
    assert both.figures.step_time_s == rest.figures.step_time_s
    assert both.figures.step_source == ("steps" if markers else "modules")


def test_steps_are_absent_where_nothing_is_whole():
    """The host's calls are no steps: it may be many runs ahead of its TPUs."""
    space = without_events(training(markers=False), [0])
    for plane in space.planes:
        if plane.name.startswith(TPU):
            del next(line for line in plane.lines if line.name == "XLA Ops").events[:]
    found = of(space)
    assert found.figures.step_time_s is None
    assert found.figures.absent["step_time_s"] == "truncated"
    assert found.figures.step_source is None


def test_what_else_is_lost_is_left_out_of_the_steps():
    space = without_events(training(markers=False), [0])
    plane = next(plane for plane in space.planes if plane.name == f"{TPU}1")
    for line in plane.lines:
        kept = [event for event in line.events if event.offset_ps < 12_000 * 10**6]
        del line.events[:]
        line.events.extend(kept)
    found = of(space).figures
    assert found.step_time_s.avg == pytest.approx(920e-6, rel=0.02)
    assert found.step_time_s.count < 15
