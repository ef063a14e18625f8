"""What the host dispatched is held against what ran: what never ran was lost, and a job that stopped is whole."""

from __future__ import annotations

import pytest

from support.captures import real_trace
from support.traces import ALL_REDUCE, CONV, US, Traced
from tpumon.proto.xplane_pb2 import XSpace
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts

MS, S = 1e3, 1e6
START_NS = 1_700_000_000 * 10**9


def job(runs, calls, *, length_us, stop_us, cores=1, talk=True, name="train_step", busy_until_us=0.0, first_us=100.0):
    """A job whose calls are at these times, and whose cores run one after the other from the first call on.

    Args:
        talk: whether its programs hold a collective.
        busy_until_us: until when another of the host's threads has events.
    """
    traced = Traced()
    module = f"jit_{name}(42)".replace("<", "_").replace(">", "_")
    for number in range(cores):
        plane = traced.core(number)
        for run in range(runs):
            at_us = first_us + run * length_us
            plane.event("XLA Modules", module, at_us, length_us * 0.98)
            plane.event("XLA Ops", CONV, at_us, length_us * 0.8)
            if talk:
                plane.event("XLA Ops", ALL_REDUCE, at_us + length_us * 0.8, length_us * 0.1)
    host = traced.host()
    for at_us in calls:
        for shift_us in (0, 1):  # JAX records each call twice, one in the other
            host.event("python", f"PjitFunction({name})", at_us + shift_us, 10 - 2 * shift_us)
    for at_us in range(0, round(busy_until_us), round(max(busy_until_us / 50, 1))):
        host.event("waits", "ReadSyncFlag", at_us, 5)
    environment = traced.named("Task Environment")
    stop_ns = START_NS + round(stop_us * 1000)
    environment.put(environment.plane.stats, {"profile_start_time": START_NS, "profile_stop_time": stop_ns})
    return traced.space


def of(space):
    return figures_of_hosts([read_host_totals(space.SerializeToString())])


def burst(count, begin_us=50.0, every_us=20.0):
    return [begin_us + every_us * i for i in range(count)]


@pytest.mark.parametrize("cores", [1, 2, 4])
@pytest.mark.parametrize(("runs", "calls"), [(50, 100), (10, 100), (90, 200)])
@pytest.mark.parametrize("name", ["train_step", "<lambda>"])
def test_devices_that_fall_silent_before_all_calls_ran_are_truncated(cores, runs, calls, name):
    """The host dispatched all of them at once, long before, and says nothing more."""
    found = of(job(runs, burst(calls), length_us=100 * MS, stop_us=30 * S, cores=cores, name=name))
    assert f"{calls - runs} of {calls} calls of jit_" in found.truncated
    assert found.figures.step_time_s.count == runs - 1


@pytest.mark.parametrize(("runs", "calls"), [(20, 24), (5, 12), (50, 60)])
def test_few_missing_runs_count_where_the_host_was_still_traced(runs, calls):
    space = job(runs, burst(calls), length_us=100 * MS, stop_us=30 * S, busy_until_us=29 * S)
    assert f"{calls - runs} of {calls} calls" in of(space).truncated


@pytest.mark.parametrize("at", [0.25, 0.5, 0.75, 0.9])
def test_the_real_trace_cut_on_all_chips_is_truncated(at):
    space = XSpace.FromString(real_trace().read_bytes())
    planes = [plane for plane in space.planes if plane.name.startswith("/device:TPU:")]
    lines = [line for plane in planes for line in plane.lines]
    base_ns = min(line.timestamp_ns for line in lines if line.events)

    def end_ps(line, event):
        return (line.timestamp_ns - base_ns) * 1000 + event.offset_ps + event.duration_ps

    last_ps = max(end_ps(line, event) for line in lines for event in line.events)
    for line in lines:
        kept = [event for event in line.events if end_ps(line, event) <= at * last_ps]
        del line.events[:]
        line.events.extend(kept)
    assert of(space).truncated


LATE = [0.3 * S, 3 * S]  # so much later does the profiler note that it stopped


@pytest.mark.parametrize("late_us", LATE)
@pytest.mark.parametrize("runs", [1, 2, 3, 8, 30])
@pytest.mark.parametrize("length_us", [1 * MS, 5 * MS, 90 * MS])
@pytest.mark.parametrize("cores", [1, 4])
def test_a_job_that_stopped_is_whole(late_us, runs, length_us, cores):
    """Whether all calls were made at once, or each when the one before had run."""
    for calls in (burst(runs), [50 + i * length_us for i in range(runs)], burst(runs, 10, 1)):
        space = job(runs, calls, length_us=length_us, stop_us=runs * length_us + late_us, cores=cores)
        assert of(space).truncated is None


@pytest.mark.parametrize("late_us", LATE)
@pytest.mark.parametrize("ahead", [1, 8, 33])
def test_a_host_that_was_ahead_when_the_profiler_stopped_is_whole(late_us, ahead):
    """Nothing is traced of the time until the profiler notes that it stopped."""
    length_us, runs = 5 * MS, 40
    calls = [50 + max(i - ahead, 0) * length_us for i in range(runs + ahead)]
    assert of(job(runs, calls, length_us=length_us, stop_us=runs * length_us + late_us)).truncated is None


def test_runs_that_were_called_before_the_trace_began_hide_none():
    calls = [(i - 20) * 5 * MS for i in range(20, 60)]
    space = job(60, calls, length_us=5 * MS, stop_us=3 * S)
    assert of(space).truncated is None


def test_calls_before_the_devices_were_traced_are_not_missing():
    calls = burst(80, every_us=5 * MS)
    space = job(20, calls, length_us=5 * MS, stop_us=5 * S, first_us=300 * MS, busy_until_us=5 * S)
    assert of(space).truncated is None


def test_a_job_that_goes_on_at_the_windows_end_is_whole():
    """The calls after the pause were made just now."""
    calls = [*burst(20), *burst(32, begin_us=9.99 * S, every_us=100)]
    space = job(20, calls, length_us=100 * MS, stop_us=10 * S, busy_until_us=10 * S)
    assert of(space).truncated is None


def test_a_call_for_each_core_is_one_run_on_one_core():
    calls = [at_us + core for at_us in burst(30, every_us=50) for core in (0.0, 12.0, 24.0, 36.0)]
    space = job(30, calls, length_us=5 * MS, stop_us=3 * S, cores=4, talk=False, busy_until_us=3 * S)
    assert of(space).truncated is None


def test_functions_that_were_only_traced_are_not_missing():
    """A function of next to no time on the device, called again and again while others are compiled."""
    space = job(20, burst(20), length_us=100 * MS, stop_us=10 * S, busy_until_us=10 * S)
    traced = Traced(space)
    host = next(plane for plane in space.planes if plane.name == "/host:CPU")
    device = next(plane for plane in space.planes if plane.name == "/device:TPU:0")
    for plane, what, name, count in (
        (host, "compile", "PjitFunction(_where)", 200),
        (device, "XLA Modules", "jit__where(7)", 2),
    ):
        number = max(plane.event_metadata, default=0) + 1
        plane.event_metadata[number].id = number
        plane.event_metadata[number].name = name
        line = next((line for line in plane.lines if line.name == what), None) or plane.lines.add(id=99, name=what)
        for i in range(count):
            line.events.add(metadata_id=number, offset_ps=round((10 + 0.1 * i) * US), duration_ps=50_000)
    assert of(traced.space).truncated is None
