"""What is taken as a step, and what is not: traces built after what programs leave behind."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.traces import ALL_REDUCE, CONV, INFEED, LOOP, Traced, run_step
from tpumon.model import Percentiles
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.steps.functions import (
    EAGER,
    MOST_FUNCTIONS,
    TOO_FEW,
    choose_step,
    function_figures,
    gather,
    is_primitive,
    named_function,
)
from tpumon.xspace.trace_figures import figures_of_hosts


def of(*traced):
    return figures_of_hosts([read_host_totals(one.bytes()) for one in traced])


def device(runs, *, cores=2, host=None):
    """A TPU without step markers that ran these modules: (name, begin, duration) in microseconds."""
    traced = Traced()
    for number in range(cores):
        plane = traced.core(number)
        for name, begin_us, duration_us in runs:
            plane.event("XLA Modules", name, begin_us + number, duration_us)
            plane.event("XLA Ops", CONV, begin_us + number, duration_us)
    annotated = traced.host()
    for step, begin_us in enumerate(host or ()):
        annotated.event("python", "train", begin_us, 20, step_num=step)
    return traced


def one_after_the_other(*rounds, pause_us=10):
    """Runs of (name, duration), with a pause after each."""
    runs, at_us = [], 100.0
    for name, duration_us in rounds:
        runs.append((name, at_us, duration_us))
        at_us += duration_us + pause_us
    return runs


def calls(*rounds, pause_us=10, thread="python"):
    """A host without a device whose program called these functions: JAX records each call twice."""
    traced = Traced()
    host = traced.named("/host:CPU")
    for name, begin_us, duration_us in one_after_the_other(*rounds, pause_us=pause_us):
        host.event(thread, f"PjitFunction({name})", begin_us, duration_us)
        host.event(thread, f"PjitFunction({name})", begin_us + 1, duration_us - 2)
    return traced


def step(found):
    """How long a step is on average in microseconds, from what, and which function it is."""
    shown = found.figures
    return shown.step_time_s and round(1e6 * shown.step_time_s.avg, 3), shown.step_source, shown.step_name


def no_step(found):
    assert found.stepless is (found.figures.absent["step_time_s"] != TOO_FEW)
    assert step(found) == (None, None, None)
    assert found.figures.step_parts_s is None
    assert set(found.figures.absent) >= {"step_time_s", "step_parts_s"}
    return found.figures.absent["step_time_s"]


# What serves and trains


def test_one_module_is_the_step():
    found = of(device(one_after_the_other(("jit_init(7)", 30), *[("jit_step(42)", 90)] * 10)))
    assert step(found) == (100.0, "modules", "jit_step")
    assert found.figures.step_time_s.count == 9
    run, init = found.figures.functions
    assert (run.name, run.runs, run.device_time_ratio) == ("jit_step", 10, pytest.approx(900 / 930))
    assert run.period_s == Percentiles(p50=pytest.approx(100e-6), p95=pytest.approx(100e-6))
    assert run.duration_s == Percentiles(p50=pytest.approx(90e-6), p95=pytest.approx(90e-6))
    assert (init.name, init.runs, init.period_s) == ("jit_init", 1, None)


@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=40))
def test_percentiles_are_those_of_numpy(lengths_us):
    starts_us = np.cumsum([0, *(2 * length for length in lengths_us)])
    (function,) = gather([("jit_step", 0, starts_us[:-1], np.array(lengths_us))], on_device=True)
    (shown,) = function_figures([[function]])
    for found, times in ((shown.period_s, np.diff(starts_us[:-1])), (shown.duration_s, lengths_us)):
        assert (found.p50, found.p95) == tuple(np.percentile(times, (50, 95)) / 1e12)


def test_programs_of_one_function_are_one_step():
    """A server compiles a program per shape: two that alternate are not a step of twice the period."""
    found = of(device(one_after_the_other(*[("jit_run_model(111)", 190), ("jit_run_model(222)", 90)] * 5)))
    assert step(found) == (pytest.approx(1400 / 9, abs=1e-3), "modules", "jit_run_model")
    (function,) = found.figures.functions
    assert (function.runs, function.device_time_ratio, function.programs) == (10, 1, 2)


def test_programs_of_a_function_are_counted_on_the_core_that_ran_most():
    runs = [(f"jit_stage({place})", place, np.array([0, 10]), np.array([9, 9])) for place in range(2)]
    (shown,) = function_figures([gather(runs, on_device=True)])
    assert (shown.runs, shown.programs) == (2, 1)
    (shown,) = function_figures([gather(runs, on_device=False)])
    assert shown.programs is None


def test_the_step_of_a_server_is_its_dominant_function_and_both_are_shown():
    rounds = [
        ("jit_prefill(1)", 300),
        *[("jit_decode(2)", 90)] * 20,
        ("jit_prefill(3)", 200),
        *[("jit_decode(2)", 90)] * 9,
    ]
    found = of(device(one_after_the_other(*rounds)))
    assert step(found)[1:] == ("modules", "jit_decode")
    assert [(each.name, each.runs) for each in found.figures.functions] == [("jit_decode", 29), ("jit_prefill", 2)]
    assert found.figures.functions[0].period_s.p50 == pytest.approx(100e-6)
    assert sum(each.device_time_ratio for each in found.figures.functions) == pytest.approx(1)


def test_no_step_where_no_function_takes_most_of_the_time():
    found = of(device(one_after_the_other(*[("jit_a(1)", 90), ("jit_b(2)", 80), ("jit_c(3)", 70)] * 6)))
    assert no_step(found) == "no step: no function takes most of the time"
    assert len(found.figures.functions) == 3


def test_programs_of_different_lengths_with_the_same_pause_are_regular():
    draw = random.Random(2)
    rounds = [(f"jit_run_model({us})", us) for us in (draw.choice((50, 180)) for _ in range(20))]
    assert step(of(device(one_after_the_other(*rounds, pause_us=250))))[1:] == ("modules", "jit_run_model")


def requests(seed, *, evenly=False):
    """Runs when requests arrive, but not before the previous run has ended."""
    draw, runs, at_us, duration_us = random.Random(seed), [], 100.0, 5.0
    for _ in range(60):
        at_us += draw.uniform(10, 1000) if evenly else draw.expovariate(1 / 200)
        runs.append(("jit_generate(5)", at_us, duration_us))
        at_us += duration_us
    return runs


@pytest.mark.parametrize("evenly", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_requests_at_random_times_are_no_steps(seed, evenly):
    found = of(device(requests(seed, evenly=evenly), cores=1))
    assert no_step(found) == "no step: jit_generate does not start at regular intervals"
    assert found.figures.functions[0].duration_s.p50 == pytest.approx(5e-6)


def test_pauses_between_bursts_are_no_steps():
    burst = one_after_the_other(*[("jit_decode(5)", 9)] * 20, pause_us=1)
    runs = [(name, at + offset_us, length) for offset_us in (0, 5000, 9000) for name, at, length in burst]
    found = of(device(runs, cores=1))
    assert step(found) == (10.0, "modules", "jit_decode")
    assert found.figures.step_time_s.count == 57
    (warning,) = (each for each in found.warnings if each.code == "pauses")
    assert warning.message.startswith("2 pauses between steps")
    # What lies in a pause belongs to no step.
    assert found.figures.step_parts_s["idle"] == pytest.approx(1e-6)


def test_waiting_for_input_now_and_then_is_part_of_a_step():
    rounds = one_after_the_other(*[("jit_step(1)", 90)] * 12)
    runs = [(name, at + 400 * (i // 4), length) for i, (name, at, length) in enumerate(rounds)]
    found = of(device(runs, cores=1))
    assert step(found)[1:] == ("modules", "jit_step")
    assert found.figures.step_time_s.max == pytest.approx(500e-6)
    assert not found.warnings


@given(st.lists(st.integers(0, 3), min_size=12, max_size=12), st.randoms())
def test_neither_shapes_nor_order_on_file_nor_the_clock_change_the_step(shapes, shuffled):
    rounds = one_after_the_other(*[("jit_step(0)", 90)] * 12)
    mixed = [(f"jit_step({shape})", at + 1e6, length) for shape, (_, at, length) in zip(shapes, rounds, strict=True)]
    shuffled.shuffle(mixed)
    expected = of(device(rounds, cores=1)).figures
    found = of(device(mixed, cores=1)).figures
    assert found.step_time_s.avg == pytest.approx(expected.step_time_s.avg)
    assert (found.step_name, found.functions[0].runs) == (expected.step_name, expected.functions[0].runs)


@given(st.integers(1, 9), st.integers(2, 6))
def test_a_function_beside_the_step_does_not_become_it(small_us, every):
    """Metrics, evaluation and the like: the less, the more often or not."""
    rounds = [pair for i in range(24) for pair in [("jit_step(1)", 90), *[("jit_log(2)", small_us)] * (i % every == 0)]]
    found = of(device(one_after_the_other(*rounds), cores=1))
    assert found.figures.step_name == "jit_step"
    assert found.figures.functions[0].runs == 24


# Eager programs: every operation is a function of its own

ATTENTION = [*["add", "matmul", "matmul", "multiply"] * 4, "sqrt"]
"""A round of a benchmark; three of them: 12 runs of add, 24 of matmul, 12 of multiply, 3 of sqrt."""
ELEMENTWISE = ["exp", "add", "tanh", "add", "multiply", "subtract", "log1p"]
PRODUCTS = [*["convert_element_type"] * 2, *["dot"] * 3]


def eager(operations, rounds, *, heavy="", heavy_us=50):
    return [(name, heavy_us if name == heavy else 10) for _ in range(rounds) for name in operations]


@pytest.mark.parametrize("heavy_us", [10, 50, 5000])
@pytest.mark.parametrize(
    ("operations", "rounds", "heavy"),
    [(ATTENTION, 3, "matmul"), (ELEMENTWISE, 5, "exp"), (PRODUCTS, 6, "dot")],
    ids=["attention", "elementwise", "products"],
)
def test_eager_dispatch_has_no_step(operations, rounds, heavy, heavy_us):
    """However much of the time one operation takes."""
    ran = eager(operations, rounds, heavy=heavy, heavy_us=heavy_us)
    on_device = of(device(one_after_the_other(*[(f"jit_{name}({len(name)})", us) for name, us in ran])))
    on_host = of(calls(*ran))
    for found in (on_device, on_host):
        assert no_step(found) == EAGER
        assert {each.name.removeprefix("jit_") for each in found.figures.functions} == set(operations)


OPERATIONS = ["add", "matmul", "multiply", "exp", "dot", "where", "_reduce_sum", "convert_element_type"]


@given(
    st.lists(
        st.tuples(st.sampled_from(OPERATIONS), st.integers(1, 8), st.integers(1, 1000)),
        min_size=2,
        unique_by=lambda o: o[0],
    ),
    st.integers(2, 12),
    st.randoms(),
)
def test_no_round_of_operations_is_a_step(operations, rounds, shuffled):
    """Whatever runs how often and for how long in it, in whatever order."""
    order = [(f"jit_{name}({name_us})", name_us) for name, count, name_us in operations for _ in range(count)]
    shuffled.shuffle(order)
    at = one_after_the_other(*order * rounds)
    runs = gather(((name, 0, np.array([begin]), np.array([length])) for name, begin, length in at), on_device=True)
    assert choose_step(runs).reason == EAGER


def test_a_jitted_function_among_operations_is_the_step():
    rounds = [pair for _ in range(8) for pair in [("train_step", 200), ("add", 10), ("true_divide", 10), ("add", 10)]]
    assert step(of(calls(*rounds)))[1:] == ("host", "train_step")
    on_device = one_after_the_other(*[(f"jit_{name}(3)", us) for name, us in rounds])
    assert step(of(device(on_device)))[1:] == ("modules", "jit_train_step")


def test_an_operation_that_is_all_there_is_is_the_step():
    assert step(of(device(one_after_the_other(*[("jit_matmul(3)", 90)] * 3)))) == (100.0, "modules", "jit_matmul")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("jit_add", True),
        ("jit__where", True),
        ("_reduce_sum", True),
        ("_threefry_split_foldlike", True),
        ("jit__truncated_normal", True),
        ("scatter-add", True),
        ("jit__generate_jit", False),
        ("_prefill_jit", False),
        ("_insert_jit", False),
        ("jit__decode_core_impl", False),
        ("_train_step", False),
        ("jit_train_step", False),
        ("_fun", False),
        ("jit_f", False),
        ("update", False),
    ],
)
def test_names_of_operations(name, answer):
    assert is_primitive(name) is answer


# What the host annotates


def test_an_annotated_function_is_the_step_however_irregular():
    runs = requests(3)
    found = of(device(runs, host=[begin_us - 50 for _, begin_us, _ in runs]))
    assert step(found)[1:] == ("modules", "jit_generate")


def test_annotations_count_where_no_function_runs_once_a_step():
    """Gradients are accumulated over four runs: the update closes a step, but the program's own marks come first."""
    rounds = [pair for _ in range(6) for pair in [*[("jit_accumulate(1)", 90)] * 4, ("jit_apply(2)", 40)]]
    without = of(device(one_after_the_other(*rounds)))
    assert step(without) == (pytest.approx(450, abs=10), "modules", "jit_apply")
    found = of(device(one_after_the_other(*rounds), host=range(100, 2800, 450)))
    assert step(found)[1:] == ("modules", "jit_apply")
    halves = of(device(one_after_the_other(*rounds), host=range(100, 2800, 900)))
    assert step(halves) == (900.0, "host", "train")


def test_the_markers_of_pytorch_xla():
    traced = Traced()
    host = traced.named("/host:CPU")
    for at_us in range(0, 6000, 1000):
        host.event("python", "StepMarker", at_us, 3)
        host.event("tf_pytorchxla/7", "PjRtCpuExecutable::ExecuteHelper", at_us + 100, 700)
    assert step(of(traced)) == (1000.0, "host", "StepMarker")


def test_calls_of_irregular_times_are_no_steps_on_a_host():
    traced = Traced()
    host = traced.named("/host:CPU")
    for _, at_us, length_us in requests(5):
        host.event("python", "PjitFunction(predict)", at_us, length_us)
    assert no_step(of(traced)) == "no step: predict does not start at regular intervals"


def test_time_on_the_device_and_not_in_calls_tells_which_function_dominates():
    """Dispatch of a big function is as short as that of a small one; ops say what they are of."""
    traced = calls(*[("train_step", 10), ("summary", 40)] * 6)
    host = traced.space.planes[0]
    number = max(host.stat_metadata, default=0) + 1
    for i, name in enumerate(("hlo_module", "jit_train_step", "jit_summary")):
        host.stat_metadata[number + i].id, host.stat_metadata[number + i].name = number + i, name
    line = host.lines.add(id=99, name="tf_XLAEigen/1")
    host.event_metadata[50].id, host.event_metadata[50].name = 50, "fusion"
    for i in range(12):
        event = line.events.add(metadata_id=50, offset_ps=i * 10**8, duration_ps=9 * 10**7 if i % 2 else 10**6)
        event.stats.add(metadata_id=number, ref_value=number + (1 if i % 2 else 2))
    found = of(traced)
    assert step(found)[1:] == ("host", "train_step")
    assert [each.device_time_ratio for each in found.figures.functions] == pytest.approx([90 / 91, 1 / 91])


# Names and bounds


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("jit_run_model(123)", "jit_run_model"),
        ("PjitFunction(train_step)", "train_step"),
        ("PjitFunction(jit(f))", "f"),
        ("PjitFunction(<lambda>)", "<lambda>"),
        ("jit_f(x)(77)", "jit_f(x)"),
        ("train#step_num=5,_r=1#", "train"),
        ("\x1b[31mred\x07\n(3)", "red"),
        ("", "unnamed"),
        ("jit_" + "x" * 500 + "(3)", "jit_" + "x" * 55 + "…"),
    ],
)
def test_names_are_those_of_functions_and_safe(raw, name):
    assert named_function(raw) == name


def test_functions_are_bounded_and_the_heaviest_come_first():
    rounds = [(f"jit_f{i}({i})", 10 + i) for i in range(2 * MOST_FUNCTIONS)]
    shown = of(device(one_after_the_other(*rounds))).figures.functions
    assert [each.name for each in shown] == [f"jit_f{i}" for i in range(2 * MOST_FUNCTIONS - 1, MOST_FUNCTIONS - 1, -1)]


def test_functions_of_several_hosts_are_one_table():
    rounds = one_after_the_other(*[("jit_step(1)", 90)] * 5)
    found = of(device(rounds, cores=1), device([*rounds, ("jit_eval(2)", 5000, 450)], cores=1))
    assert [(each.name, each.runs) for each in found.figures.functions] == [("jit_step", 5), ("jit_eval", 1)]
    assert found.figures.functions[1].device_time_ratio == pytest.approx(450 / 1350)
    assert found.figures.step_name == "jit_step"


def test_functions_beside_step_markers():
    traced = Traced()
    plane, at_us = traced.core(0), 100.0
    for _ in range(4):
        at_us = run_step(plane, at_us, [(CONV, 700)]) + 50
    traced.host()
    found = of(traced)
    assert step(found) == (700.0, "steps", None)
    assert [(each.name, each.runs) for each in found.figures.functions] == [("jit_train_step", 4)]


RUNS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.integers(0, 10**12), st.integers(0, 10**9)))


@given(RUNS, st.integers(0, 40))
def test_a_step_is_always_supported_by_the_trace(runs, annotated):
    functions = gather(
        ((name, place, np.array([begin]), np.array([length])) for name, place, begin, length in runs), on_device=True
    )
    choice = choose_step(functions, annotated)
    if choice.function is None:
        assert choice.reason == TOO_FEW or choice.reason.startswith("no step: ")
        return
    assert choice.function.runs > 1
    if annotated > 1:
        assert abs(choice.function.runs - annotated) <= max(1, annotated / 8)
    else:
        assert choice.function.weight_ps >= sum(each.weight_ps for each in functions) / 2
        assert choice.function.is_regular


# Markers that the window cut

PARTS = [(INFEED, 100), (CONV, 700), (LOOP, 100), (ALL_REDUCE, 60)]


def marked(*, steps=5, cores=2, gap_us=20):
    traced = Traced()
    for number in range(cores):
        plane, at_us = traced.core(number), 1000.0 + number
        for _ in range(steps):
            at_us = run_step(plane, at_us, PARTS) + gap_us
    return traced


def cut(traced, from_us, to_us):
    """What a window holds: events outside of it are gone, those at its ends are cut off."""
    for plane in traced.space.planes:
        for line in plane.lines:
            for event in list(line.events):
                begin, end = max(event.offset_ps, from_us * 10**6), event.offset_ps + event.duration_ps
                end = min(end, to_us * 10**6)
                if end <= begin:
                    line.events.remove(event)
                event.offset_ps, event.duration_ps = begin, max(end - begin, 0)
    return traced


def test_whole_steps_all_count():
    assert of(marked()).figures.step_time_s.count == 5


@given(st.integers(1, 959))
def test_a_step_that_the_window_ends_in_does_not_count(into_us):
    """Wherever it is cut before its last op begins."""
    found = of(cut(marked(cores=1), 0, 1000 + 4 * 980 + into_us)).figures
    assert found.step_time_s.count == (4 if into_us <= 900 else 5)
    assert found.step_time_s.max == pytest.approx(960e-6)


@given(st.integers(1, 959))
def test_a_step_that_the_window_begins_in_does_not_count(into_us):
    """Wherever it is cut after its first op has ended."""
    found = of(cut(marked(cores=1), 1000 + into_us, 10**6)).figures
    assert found.step_time_s.count == (4 if into_us >= 100 else 5)
    assert found.step_time_s.max == pytest.approx(960e-6)


def test_a_window_within_whole_steps_loses_both_ends():
    found = of(cut(marked(), 1300, 1000 + 4 * 980 + 500)).figures
    assert found.step_time_s.count == 3
    assert found.step_time_s.min == pytest.approx(960e-6)


def test_what_is_left_of_the_first_step_does_not_vouch_for_the_last_one():
    """Which has more ops, but fewer than a whole one."""
    found = of(cut(marked(cores=1), 1000 + 900, 1000 + 4 * 980 + 400)).figures
    assert found.step_time_s.count == 3
    assert found.step_time_s.min == pytest.approx(960e-6)


@given(st.integers(1, 899))
def test_the_only_marker_of_a_window_is_compared_with_the_step_before(into_us):
    """Its step began before the window, so it has no marker, but its end is there."""
    traced = marked(steps=2, cores=1)
    for line in traced.space.planes[0].lines:
        if line.name == "Steps":
            del line.events[0]
    whole = of(cut(traced, 1500, 10**6)).figures
    assert whole.step_time_s.count == 1
    found = of(cut(traced, 1500, 1980 + into_us))
    assert no_step(found) == TOO_FEW


def test_a_marker_without_length_is_none():
    traced = marked()
    for plane in traced.space.planes:
        step_line, module_line, op_line = (
            next(line for line in plane.lines if line.name == name) for name in ("Steps", "XLA Modules", "XLA Ops")
        )
        at_ps = 6000 * 10**6
        step_line.events.add(metadata_id=step_line.events[0].metadata_id, offset_ps=at_ps)
        module_line.events.add(metadata_id=module_line.events[0].metadata_id, offset_ps=at_ps, duration_ps=10**8)
        op_line.events.add(metadata_id=op_line.events[0].metadata_id, offset_ps=at_ps, duration_ps=10**8)
    found = of(traced).figures
    assert (found.step_time_s.count, found.step_time_s.min) == (5, pytest.approx(960e-6))


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("over_us", [0, 1e-6, 1e-3, 2e-3])
def test_markers_that_overlap_by_rounding_are_all_steps(over_us, linked):
    """Each has its own ops, and the program that the host started; what overlaps by more is no rounding."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    for number in range(5):
        begin_us, length_us = 100 + 100.0 * number, 100 + over_us
        core.event("Steps", "train", begin_us, length_us)
        core.event("XLA Modules", "jit_train(1)", begin_us, length_us, run_id=number, queue_id=4)
        core.event("XLA Ops", CONV, begin_us, 60)
        core.event("XLA Ops", LOOP, begin_us + 60, length_us - 60)
        if linked:
            host.event("thread", "step", 100 * number, 60, _r=1)
            launch = {"device_ordinal": 0, "queue_id": 4, "run_id": number}
            host.event("thread", "DoEnqueueProgram", 100 * number + 10, 20, **launch)
    found = of(traced).figures.step_time_s
    assert (found.count == 5) == (over_us <= 1e-3)
    assert found.avg == pytest.approx(100e-6, abs=3e-9)


def test_steps_of_different_lengths_are_all_whole():
    traced = Traced()
    plane, at_us = traced.core(0), 100.0
    for length_us in (900, 300, 1200, 200):
        at_us = run_step(plane, at_us, [(INFEED, 50), (CONV, length_us), (LOOP, 20)]) + 10
    assert of(traced).figures.step_time_s.count == 4


def led_to(host_events):
    """How many steps there are of three whose programs calls on the host lead to: 0, 1 and 2 by their contexts."""
    traced = Traced()
    core, host = traced.core(0), traced.host()
    host.stat_id("_r")
    for number in range(3):
        run_step(core, 100 * number, [(CONV, 50)])
    for number, step in enumerate(core.line("Steps").events):
        core.put(step.stats, {"_ct": 1, "_c": number})
    for name, begin_us, duration_us, *context in host_events:
        host.event("thread", name, begin_us, duration_us, **({"_pt": 1, "_p": context[0]} if context else {}))
    return of(traced).figures.step_time_s.count


@pytest.mark.parametrize("name", ["TraceContext", "ProcessBatch", "BatchingSessionRun"])
def test_events_of_some_names_are_roots_that_do_not_say_so(name):
    calls = [(name, 0, 60), ("run", 10, 20, 0), (name, 100, 60), ("run", 110, 20, 1), ("run", 210, 20, 2)]
    assert led_to(calls) == 2
    assert led_to([("Other", *times) for _, *times in calls]) == 3  # counted


def test_a_root_of_a_higher_level_counts_within_one_of_a_lower_level():
    inner = [("run", 10, 20, 0), ("ProcessBatch", 100, 60), ("run", 110, 20, 1)]
    assert led_to([("TraceContext", 0, 290), ("ProcessBatch", 0, 60), *inner]) == 2
    assert led_to([("ProcessBatch", 0, 290), ("ProcessBatch", 0, 60), *inner]) == 1


def test_a_launch_is_told_by_as_many_bits_of_its_number_as_the_device_knows():
    traced = Traced()
    core, host = traced.core(0), traced.host()
    for number in range(3):
        run_step(core, 100 * number, [(CONV, 50)])
        core.put(core.line("XLA Modules").events[number].stats, {"run_id": number, "queue_id": 4})
    for number in range(2):
        host.event("thread", "step", 100 * number, 60, _r=1)
        launch = {"device_ordinal": 0, "queue_id": 4, "run_id": (9 << 27) + number}
        host.event("thread", "DoEnqueueProgram", 100 * number + 10, 20, **launch)
    assert of(traced).figures.step_time_s.count == 2
