"""Truncated traces are never presented as whole; whole ones are never called truncated."""

from __future__ import annotations

import random

import pytest

from support.captures import real_trace
from support.traces import ALL_REDUCE, CONV, INFEED, LOOP, Plane, Traced, run_step
from support.truncated import KINDS, cores_of, truncated, whole, window_of
from tpumon.model import Sample
from tpumon.model.documents import encoded
from tpumon.proto.xplane_pb2 import XStat
from tpumon.simulator.scenario import SCENARIOS, SECOND, SimulatedJob
from tpumon.simulator.topology import parse_topology
from tpumon.simulator.trace_writer import TraceOptions, build_trace
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts

pytestmark = pytest.mark.slow

DRAWN = 67  # of each of 15 kinds: 1,005 together
ABSENT = {
    "marked, ops lost here and there": 35,
    "all lines cut, all cores, the host dispatches": 25,
    "a core without an event": DRAWN,
    "programs without any op": DRAWN,
}
"""Most traces without figures, of kinds that leave few whole spans or none."""

FIGURES = (
    "mxu_utilization_ratio",
    "idle_ratio",
    "duty_cycle_ratio",
    "flops_utilization_ratio",
    "hbm_bandwidth_utilization_ratio",
    "infeed_ratio",
    "step_time_s",
)


def of(space):
    return figures_of_hosts([read_host_totals(space.SerializeToString())])


def number(figures, name):
    value = getattr(figures, name)
    return getattr(value, "avg", value)


def check(kind, seed):
    """A truncated trace says so; its figures are near those of the whole one, or absent for that reason."""
    whole, cut = truncated(kind, seed)
    expected, found = of(whole.space), of(cut.space)
    assert expected.truncated is None, f"seed {seed}: a whole trace is called truncated: {expected.truncated}"
    assert found.truncated, f"seed {seed}: presented as whole"
    assert any(warning.code == "truncated" for warning in found.warnings)
    for name in FIGURES:
        value, true = number(found.figures, name), number(expected.figures, name)
        if value is None:
            assert found.figures.absent[name], f"seed {seed}: {name} is absent without a reason"
        elif true is not None:
            # A span of few steps has a pause less than it has steps.
            off = 0.1 if found.window_s > 2 * 1e-6 * cut.step_us else 0.2
            assert value == pytest.approx(true, abs=off, rel=off), f"seed {seed}: {name}: {found.truncated}"
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_truncated_trace_is_never_presented_as_whole(kind):
    for seed in range(DRAWN // 5):
        check(kind, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_figures_that_could_be_known_are_there(kind):
    found = [check(kind, seed) for seed in range(DRAWN)]
    absent = sum(each.figures.idle_ratio is None for each in found)
    assert absent <= ABSENT.get(kind.name, DRAWN // 5), "figures that could be known are absent"


@pytest.mark.parametrize("clipped", [False, True])
def test_a_window_that_begins_and_ends_within_steps_is_whole(clipped):
    for seed in range(50):
        draw = random.Random(seed)
        trace = whole(draw, dispatches=draw.random() < 0.5)
        begin_us = draw.uniform(0, trace.begin_us + 2 * trace.step_us)
        end_us = draw.uniform(begin_us + 1.5 * trace.step_us, trace.end_us)
        found = of(window_of(trace, begin_us, end_us, clipped=clipped))
        assert found.truncated is None, f"seed {seed}: {found.truncated}"


@pytest.mark.parametrize(
    ("value", "is_mark"),
    [
        (3, True),
        (3.0, True),
        ("12", True),
        (b"4", True),
        ("some", True),
        (0, False),
        (0.0, False),
        ("0", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("where", ["plane", "event", "metadata", "line"])
def test_the_stat_counts_wherever_it_is_and_of_whatever_kind(value, is_mark, where):
    trace = whole(random.Random(5), dispatches=True)
    plane = Plane(cores_of(trace.space)[0])
    match where:
        case "plane":
            plane.put(plane.plane.stats, {"dropped_traces": value})
        case "event":
            plane.event("XLA TraceMe", "barrier-cores", 50, 1, dropped_traces=value)
        case "metadata":
            plane.event("XLA TraceMe", "barrier-cores", 50, 1)
            plane.put(plane.plane.event_metadata[plane.event_id("barrier-cores")].stats, {"dropped_traces": value})
        case "line":
            stat = XStat(metadata_id=plane.stat_id("dropped_traces"))
            set_stat(stat, value)
            raw = stat.SerializeToString()
            line = plane.plane.lines[0]
            # Field 5 of a line is not in the published format; it may become its stats.
            line.MergeFromString(bytes([5 << 3 | 2, len(raw)]) + raw)
    assert bool(of(trace.space).truncated) is is_mark


@pytest.mark.parametrize(
    ("name", "is_mark"),
    [
        ("Trace Buffers Dropped", True),
        ("dropped_trace_entries", True),
        ("Dropped trace events: 48,211 on core 0", True),
        ("Dropped trace events: 0", False),
        ("Trace events dropped = 0 on TPU:3", False),
        ("dropout", False),
    ],
)
def test_events_of_the_profiler_count_by_name_unless_they_count_none(name, is_mark):
    trace = whole(random.Random(5), dispatches=True)
    Plane(cores_of(trace.space)[0]).event("XLA TraceMe", name, 50, 0)
    assert bool(of(trace.space).truncated) is is_mark


def set_stat(stat, value):
    name = {int: "int64_value", float: "double_value", str: "str_value", bytes: "bytes_value"}[type(value)]
    setattr(stat, name, value)


@pytest.mark.parametrize(
    "words", ["XLA trace buffer is full, events were dropped", "truncated: 12 chunks lost", "Trace buffer overflow"]
)
def test_words_of_the_profiler_count(words):
    trace = whole(random.Random(5), dispatches=True)
    trace.space.errors.append(words)
    assert words in of(trace.space).truncated


def test_words_that_say_that_nothing_was_dropped_do_not_count():
    trace = whole(random.Random(5), dispatches=True)
    trace.space.warnings.extend(["0 events dropped", "no host events were lost"])
    assert of(trace.space).truncated is None


def test_the_real_trace_is_whole():
    assert figures_of_hosts([read_host_totals(real_trace().read_bytes())]).truncated is None


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "compile-pause"])
@pytest.mark.parametrize("topology", ["v3-8", "v5e-8"])
@pytest.mark.parametrize("windows", [3, pytest.param(8, marks=pytest.mark.nightly)])
def test_the_simulators_traces_are_whole(scenario, topology, windows):
    """At each level of the host's tracer."""
    job = SimulatedJob(topology=parse_topology(topology), scenario=scenario, seed=4)
    for start in range(windows):
        start_ns = start * 777_123_456
        options = TraceOptions(host_tracer_level=start % 3)
        trace = build_trace(
            job, 0, start_ns=start_ns, stop_ns=start_ns + SECOND, epoch_unix_ns=1_700_000_000 * SECOND, options=options
        )
        if not trace.empty:
            assert figures_of_hosts([read_host_totals(trace.xspace)]).truncated is None


def steps_of(plane, count, parts, *, begin_us=100.0):
    at_us = begin_us
    for _ in range(count):
        at_us = run_step(plane, at_us, parts) + 20
    return at_us


TRAIN = [(INFEED, 100), (CONV, 700), (None, 50), (LOOP, 100)]


def test_a_stub_at_the_end_is_no_sign():
    traced = Traced()
    plane = traced.core(0)
    at_us = steps_of(plane, 5, TRAIN)
    plane.event("XLA Modules", "jit_train_step(42)", at_us, 60)
    plane.event("Steps", "train", at_us, 60)
    assert of(traced.space).truncated is None


def test_a_program_without_ops_is_no_sign_where_it_is_short():
    traced = Traced()
    plane = traced.core(0)
    plane.event("XLA Modules", "jit_convert_element_type(7)", 20, 3)
    steps_of(plane, 5, TRAIN)
    assert of(traced.space).truncated is None


def test_programs_whose_number_of_ops_varies_are_whole():
    traced = Traced()
    plane, at_us = traced.core(0), 100.0
    for step in range(12):
        loop = [(LOOP, 100)] * (1 + step * 7 % 5)
        at_us = run_step(plane, at_us, [(INFEED, 100), (CONV, 700), *loop, (None, 30 + step), (ALL_REDUCE, 40)]) + 20
    assert of(traced.space).truncated is None


def test_a_pause_that_the_host_makes_is_no_hole():
    traced = Traced()
    plane = traced.core(0)
    steps_of(plane, 6, TRAIN)
    end_us = steps_of(plane, 6, TRAIN, begin_us=60_000)
    host = traced.host()
    for begin_us in (*range(100, 5900, 970), *range(60_000, round(end_us), 970)):
        host.event("python", "PjitFunction(train_step)", begin_us, 50)
    assert of(traced.space).truncated is None


def test_a_host_without_a_line_dispatches_nothing():
    traced = Traced()
    plane = traced.core(0)
    steps_of(plane, 6, TRAIN)
    steps_of(plane, 6, TRAIN, begin_us=60_000)
    host = traced.host()
    host.event("python", "PjitFunction(train_step)", 100, 50)
    del host.plane.lines[:]
    assert of(traced.space).figures.idle_ratio is not None


@pytest.mark.parametrize("used", [1, 2, 3])
def test_a_job_on_some_devices_of_several_keeps_its_figures_and_says_so(used):
    traced = Traced()
    for number in range(4):
        plane = traced.core(number)
        if number < used:
            steps_of(plane, 6, TRAIN)
    found = of(traced.space)
    assert found.truncated is None
    assert any("TPU:3 ha" in warning.message for warning in found.warnings if warning.code == "missing-cores")
    assert found.figures.idle_ratio == pytest.approx(1 - 6 * 900 / (6 * 950 + 5 * 20))


def test_a_device_that_works_by_itself_may_be_idle_while_others_go_on():
    traced = Traced()
    for number, count in enumerate((6, 9)):
        steps_of(traced.core(number), count, [(CONV, 700 + 90 * number)], begin_us=100 + 77 * number)
    found = of(traced.space)
    assert found.truncated is None
    assert ["TPU:0 ends" in warning.message for warning in found.warnings if warning.code == "missing-cores"] == [True]


@pytest.mark.parametrize("runs", [1, 2, 3, 20])
@pytest.mark.parametrize("after_us", [300_000, 3_000_000])
def test_without_events_of_the_host_a_late_stop_or_a_pause_is_no_sign(runs, after_us):
    traced = Traced()
    end_us = max(steps_of(traced.core(number), runs, [*TRAIN, (ALL_REDUCE, 50)]) for number in range(4))
    environment = traced.named("Task Environment")
    times = {"profile_start_time": 10**18, "profile_stop_time": 10**18 + round(1000 * (end_us + after_us))}
    environment.put(environment.plane.stats, times)
    assert of(traced.space).truncated is None


def test_one_device_of_several_without_events_is_truncated_where_they_talk():
    talking = Traced()
    steps_of(talking.core(0), 6, [*TRAIN, (ALL_REDUCE, 50)])
    talking.core(1)
    assert of(talking.space).figures.absent["idle_ratio"] == "truncated"


def test_one_truncated_host_of_two():
    first, second = Traced(), Traced()
    for traced in (first, second):
        steps_of(traced.core(0), 6, TRAIN)
        traced.host(None)
    first.space.hostnames.append("a")
    second.space.hostnames.append("b")
    del next(line for line in second.space.planes[0].lines if line.name == "XLA Ops").events[:]
    found = figures_of_hosts([read_host_totals(each.bytes()) for each in (first, second)])
    assert found.truncated.startswith("b: programs ran")
    assert found.figures.idle_ratio is found.figures.duty_cycle_ratio is found.figures.step_time_s is None
    assert found.figures.absent["idle_ratio"] == "truncated"


def test_a_host_without_a_device_that_lost_events_has_no_step_time():
    traced = Traced()
    host = traced.named("/host:CPU")
    for step in range(6):
        host.event("python", "train", 1000 * step, 400, step_num=step)
    assert of(traced.space).figures.step_time_s is not None
    traced.space.warnings.append("events were dropped")
    assert of(traced.space).figures.absent["step_time_s"] == "truncated"


def test_a_sample_carries_it_through_json():
    sample = Sample(worker="a", address="a:1", time_unix_s=1.0, window_s=1.0, took_s=1.0, truncated="why")
    assert Sample.from_json(encoded(sample.document())).truncated == "why"
