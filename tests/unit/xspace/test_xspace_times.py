"""Where the time goes: by kind of op, in waits of steps, in compiling and waiting for input; and what padding takes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.captures import real_trace
from support.traces import ALL_REDUCE, CONV, INFEED, LOOP, WHILE, Op, Traced, run_ops, run_step
from support.truncated import whole
from tpumon.model.figure_table import OP_KINDS
from tpumon.simulator.scenario import SECOND, SimulatedJob
from tpumon.simulator.topology import parse_topology
from tpumon.simulator.trace_writer import TraceOptions, build_trace
from tpumon.xspace.core_totals import op_within_ps
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.ops.op_kinds import TimeKind, paddings, time_kind
from tpumon.xspace.trace_figures import figures_of_hosts, read_figures

# hlo_category, name of the op: what its time is.
KINDS = {
    ("convolution fusion", "fusion.1"): "compute",
    ("loop fusion", "fusion.2"): "compute",
    ("custom-call", "attention.1"): "compute",
    ("copy-start", "copy-start.1"): "compute",
    ("all-reduce", "all-reduce.1"): "collective",
    ("all-reduce-scatter fusion", "fusion.3"): "collective",
    ("all-gather-done", "all-gather-done.1"): "collective",
    ("reduce-scatter", "reduce-scatter.1"): "collective",
    ("collective-permute-done", "collective-permute-done.1"): "collective",
    ("ragged-all-to-all", "ragged-all-to-all.1"): "collective",
    ("async-done", "all-gather.3"): "collective",
    ("async-done", "async-collective-done.2"): "collective",
    ("send-done", "send-done.1"): "collective",
    ("megacore fusion", "fusion.4"): "collective",
    ("infeed", "infeed.1"): "infeed",
    ("outfeed", "outfeed.1"): "outfeed",
    ("host send", "send.1"): "host_transfer",
    ("host recv-done", "recv-done.1"): "host_transfer",
    ("copy-done", "copy-done.1"): "async_wait",
    ("slice-done", "slice-done.1"): "async_wait",
    ("async-done", "async-done.1"): "async_wait",
    ("data formatting", "copy.1"): "data_shuffle",
    ("dynamic-update-slice", "dynamic-update-slice.1"): "data_shuffle",
    ("sparsecorev0 infeed", "infeed.2"): "sparsecore",
    ("sparsecorev0 infeed wait", "infeed.3"): "sparsecore",
    ("sparsecorev0 outfeed", "outfeed.2"): "sparsecore",
}


def of(traced):
    """The figures of a trace that `support.traces` made, or of a whole space."""
    data = traced.bytes() if isinstance(traced, Traced) else traced.SerializeToString()
    return figures_of_hosts([read_host_totals(data)]).figures


def adds_up(found):
    return found.idle_ratio + sum(found.op_time_ratios.values()) == pytest.approx(1, abs=1e-9)


def test_the_kinds_have_labels():
    assert [kind.name.lower() for kind in TimeKind] == list(OP_KINDS)


@pytest.mark.parametrize(("category", "name"), KINDS)
def test_what_time_an_op_takes(category, name):
    assert time_kind(category, name, f"%{name} = f32[8]{{0}} op()").name.lower() == KINDS[category, name]


def test_a_wait_whose_hlo_names_the_sparsecore_is_for_it():
    text = '%call-done = f32[8]{0} async-done(%call-start), async_execution_thread="sparsecore"'
    assert time_kind("async-done", "call-done", text) is TimeKind.SPARSECORE
    assert time_kind("loop fusion", "fusion", text) is TimeKind.COMPUTE
    assert time_kind(None, "fusion", text) is TimeKind.COMPUTE


OPS = st.sampled_from([*(Op(name, category) for category, name in KINDS), Op("while.1", "while")])


@given(st.lists(st.tuples(OPS, st.integers(0, 50), st.integers(1, 100)), min_size=1, max_size=30), st.booleans())
def test_idle_and_kinds_add_up_to_the_window(ops, nested):
    """Whatever runs, an op within another one, too."""
    traced = Traced()
    core = traced.core(0)
    parts = [part for op, pause_us, length_us in ops for part in ((None, pause_us), (op, length_us))]
    end_us = run_step(core, 100, parts)
    if nested:
        core.event("XLA Ops", WHILE, 50, end_us)
    assert adds_up(of(traced))


def test_each_kind_has_its_share():
    traced = Traced()
    run_step(traced.core(0), 0, [(INFEED, 10), (CONV, 40), (None, 20), (ALL_REDUCE, 25), (LOOP, 5)])
    run_step(traced.core(1), 0, [(INFEED, 10), (CONV, 50), (ALL_REDUCE, 35), (LOOP, 5)])
    found = of(traced)
    shares = {"compute": 0.5, "collective": 0.3, "infeed": 0.1}
    assert found.op_time_ratios == pytest.approx(dict.fromkeys(OP_KINDS, 0.0) | shares)
    assert found.idle_ratio == pytest.approx(0.1)
    assert [core.collective_ratio for core in found.per_core] == pytest.approx([0.25, 0.35])


def test_idle_is_told_between_programs_and_within():
    """Of 2 x 200 us: 20 without a program, 45 without an op."""
    traced = Traced()
    for number in range(2):
        core = traced.core(number)
        end_us = run_step(core, 0, [(CONV, 40), (None, 15 * number), (LOOP, 45 - 15 * number)], length_us=90)
        run_step(core, end_us + 20 * number, [(CONV, 110 - 20 * number)])
    found = of(traced)
    assert found.idle_ratio == pytest.approx((5 + 5 + 15 + 20) / 400)
    assert found.idle_between_programs_ratio == pytest.approx(20 / 400)


def test_a_run_that_the_window_cuts_is_a_program_although_it_has_no_event():
    """Before and after the whole run 20 us without a program; within the cut ones 10 us without an op."""
    traced = Traced()
    core = traced.core(0)
    run_ops(core, 0, [(CONV, 30), (None, 10), (CONV, 20)])
    run_ops(core, run_step(core, 80, [(CONV, 100)]) + 20, [(CONV, 30), (None, 10), (CONV, 20)])
    found = of(traced)
    assert found.idle_ratio == pytest.approx(60 / 260)
    assert found.idle_between_programs_ratio == pytest.approx(40 / 260)


def simulated(scenario, at_s=3.017, level=2, topology="v4-32"):
    job = SimulatedJob(topology=parse_topology(topology), scenario=scenario, seed=4)
    start_ns = int(at_s * SECOND)
    trace = build_trace(
        job,
        1,
        start_ns=start_ns,
        stop_ns=start_ns + SECOND,
        epoch_unix_ns=1_700_000_000 * SECOND,
        options=TraceOptions(host_tracer_level=level),
    )
    return figures_of_hosts([read_host_totals(trace.xspace)]).figures


def test_a_real_trace_adds_up():
    found = figures_of_hosts([read_host_totals(real_trace().read_bytes())]).figures
    assert adds_up(found)
    assert found.op_time_ratios["async_wait"] == pytest.approx(304033212062500 / 363729698768750)
    # As many as it ran, the one that took most first.
    assert found.programs[0] == "12190760917235803885"
    assert len(found.programs) == 4


@pytest.mark.parametrize("seed", range(5))
def test_generated_traces_add_up(seed):
    assert adds_up(of(whole(random.Random(seed), dispatches=True).space))


# A fault of the simulated job: the figure that it moves, and to what.
MOVED = {
    "collective-bound": lambda found: found.op_time_ratios["collective"],
    "outfeed-bound": lambda found: found.op_time_ratios["outfeed"],
    "host-transfer-bound": lambda found: found.op_time_ratios["host_transfer"],
    "async-wait": lambda found: found.op_time_ratios["async_wait"],
    "data-shuffle": lambda found: found.op_time_ratios["data_shuffle"],
    "sparsecore-bound": lambda found: found.op_time_ratios["sparsecore"],
    "input-bound": lambda found: found.op_time_ratios["infeed"],
    "barrier-wait": lambda found: found.barrier_ratio,
    "debug-print": lambda found: found.debug_print_ratio,
}


@pytest.mark.parametrize("program", ["", "jax+"])
@pytest.mark.parametrize("fault", MOVED)
def test_a_fault_of_the_job_moves_its_figure_and_no_other(fault, program):
    found = simulated(f"{program}{fault}:share=0.3")
    if f"{program}{fault}" != "jax+input-bound":  # a JAX program waits for input between steps, not in an op
        assert MOVED[fault](found) == pytest.approx(0.3, abs=0.03)
    assert all(value(found) < 0.1 for name, value in MOVED.items() if name != fault)
    assert adds_up(found)


@pytest.mark.parametrize(
    ("topology", "padding"), [("v4-32", 1 - 7200 / (104 * 128)), ("v6e-16", 1 - 7200 / (104 * 256))]
)
def test_small_shapes_are_padded_to_the_width_of_the_matrix_unit(topology, padding):
    assert simulated("small-shapes", topology=topology).matmul_padding_ratio == pytest.approx(padding, abs=0.002)
    assert simulated("steady", topology=topology).matmul_padding_ratio < 0.01


def test_padding_is_weighted_by_time():
    traced = Traced()
    core = traced.core(0)
    run_step(core, 0, [(Op("wide", "convolution"), 30), (Op("thin", "convolution"), 10), (LOOP, 60)])
    for metadata in traced.space.planes[0].event_metadata.values():
        if metadata.display_name in {"wide", "thin"}:
            columns = 128 if metadata.display_name == "wide" else 32
            metadata.name = f"%{metadata.display_name} = f32[8,{columns}]{{1,0}} dot()"
    assert of(traced).matmul_padding_ratio == pytest.approx(0.75 * 10 / 40)


@pytest.mark.parametrize(
    ("text", "flops", "expected"),
    [
        ("%d = f32[8,128]{1,0:T(8,128)} dot(f32[8,256]{1,0} %a)", 2 * 8 * 128 * 256, (0.0, 0.5)),
        ("%d = f32[16,100]{1,0} dot()", 0, (1 - 100 / 128, 1 - 100 / 256)),
        # The layout says which dimension lies along the lanes.
        ("%d = f32[100,16]{0,1} dot()", 0, (1 - 100 / 128, 1 - 100 / 256)),
        ("%d = f32[16,128] dot()", 0, (0.0, 0.5)),
        # K of 64 fills half of 128.
        ("%d = f32[8,128]{1,0} fusion()", 2 * 8 * 128 * 64, (0.5, 1 - 128 * 64 / 256 / 256)),
        # The largest result counts, operands do not, nor do FLOPs too few for the result.
        ("%d = (f32[8]{0}, f32[8,128]{1,0}, /*index=2*/f32[1,1]{1,0}) fusion(f32[999,999] %a)", 5, (0.0, 0.5)),
        ("%d = f32[] dot(f32[8,8] %a, f32[8,8] %b)", 0, None),
        ("%d = f32[0,8]{1,0} dot()", 0, None),
        ("%d = f32[8,8]{1,7} dot()", 0, None),
        ("fusion", 0, None),
    ],
)
def test_padding_of_a_shape(text, flops, expected):
    assert paddings(text, flops) == (None if expected is None else pytest.approx(expected))


@given(st.text("f32[]{}(),=% bT8128:"), st.integers(0, 1 << 60))
def test_no_text_breaks_it(text, flops):
    found = paddings(f"%x = {text}", flops)
    assert found is None or all(0 <= padding < 1 for padding in found)


def test_a_kernel_and_a_loop_have_no_padding():
    traced = Traced()
    run_step(traced.core(0), 0, [(Op("custom-call.1", "custom-call"), 30), (LOOP, 60)])
    for metadata in traced.space.planes[0].event_metadata.values():
        metadata.name = metadata.name.replace("bf16[8]", "bf16[8,8]")
    found = of(traced)
    assert found.matmul_padding_ratio is None
    assert found.absent["matmul_padding_ratio"] == "no matrix operation whose shapes the trace tells"


def waiting(*, steps=True):
    """Two cores of 4 steps of 1000 us; the first waits 100 us in every second step, and both print before the first."""
    traced = Traced()
    for number in range(2):
        core = traced.core(number)
        core.event("XLA TraceMe", "debug_print", 5, 50)
        for step in range(4):
            begin_us = 100 + 1100 * step
            core.event("XLA Ops", CONV, begin_us, 1000)
            if steps:
                core.event("Steps", "train", begin_us, 1000)
            if not number and step % 2:
                core.event("XLA TraceMe", "my-barrier-cores.1", begin_us + 500, 100)
    return traced


def test_waits_are_a_share_of_the_steps():
    found = of(waiting())
    assert found.barrier_ratio == pytest.approx(200 / 8000)
    assert found.debug_print_ratio == 0.0


def test_without_steps_waits_cannot_be_told():
    found = of(waiting(steps=False))
    assert (found.barrier_ratio, found.debug_print_ratio) == (None, None)
    assert found.absent["barrier_ratio"] == found.absent["debug_print_ratio"] == "no steps in the window"


def called(*events, device=False):
    """A host that runs steps of 1000 us, and these events: thread, name, begin, duration."""
    traced = Traced()
    if device:
        run_step(traced.core(0), 100, [(CONV, 3000)])
    host = traced.named("/host:CPU")
    for step in range(4):
        host.event("python", "PjitFunction(f)", 1000 * step, 1000)
    for thread, *event in events:
        host.event(thread, *event)
    return of(traced)


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        *("backend_compile", "backend_compile_and_load", "lower_sharding_computation", "trace_to_jaxpr_dynamic"),
        *(
            "PjRtCpuClient::Compile",
            "CpuCompiler::RunBackend",
            "TaskDispatcher::dispatch",
            "tf.function-graph_building",
        ),
    ],
)
def test_compiling(name, device):
    found = called(("python", name, 500, 1000), ("pool", name, 1000, 1500), ("python", "Compile shader", 0, 4000))
    assert found.compile_ratio == pytest.approx(2000 / 4000)
    assert called(device=device).compile_ratio == 0.0


def test_without_host_events_nothing_is_said_of_compiling():
    assert simulated("steady", level=0).compile_ratio is None
    assert simulated("steady", level=0).absent["compile_ratio"] == "the host is not in the trace"
    assert simulated("recompiling", at_s=11.5).compile_ratio == pytest.approx(0.5, abs=0.03)


def test_callbacks_to_python():
    """As JAX 0.8 and 0.10 name them; without ops that name their program, nothing is said."""
    traced = Traced()
    host = traced.named("/host:CPU")
    host.event("python", "PjitFunction(f)", 0, 1000)
    for thread, name, begin_us, length_us in (
        ("tf_XLAEigen/1", "pure_callback.1", 100, 300),
        ("tf_XLAEigen/2", "debug_callback", 300, 200),
        ("tf_XLAEigen/2", "io_callback.12", 600, 100),
        ("tf_XLAEigen/2", "fusion.1", 800, 200),
    ):
        event = host.event(thread, name, begin_us, length_us)
        event.stats.add(metadata_id=host.stat_id("program_id"), uint64_value=7)
    assert of(traced).callback_ratio == pytest.approx(0.5)
    other = called(("tf_XLAEigen/1", "pure_callback.1", 100, 300))
    assert other.callback_ratio is None
    assert other.absent["callback_ratio"] == "no op of the host's names its program"


@pytest.mark.parametrize("device", [False, True])
def test_waiting_for_input(device):
    ahead = ("tf_data_iterator_resource", "Iterator::Root::Prefetch", 0, 4000)
    own = called(
        ("python", "IteratorGetNextOp::DoCompute", 0, 800), ("other", "Iterator::Root", 0, 4000), device=device
    )
    assert own.input_wait_ratio == pytest.approx(0.8 / 3)  # of three whole steps
    # A compiled loop asks in a thread of TensorFlow's; another thread of the program reads ahead.
    loop = called(("tf_data_iterator_get_next", "IteratorGetNextOp::DoCompute", 0, 400), ahead, device=device)
    assert loop.input_wait_ratio == pytest.approx(0.4 / 3)
    other = called(("prefetcher", "IteratorGetNextOp::DoCompute", 0, 4000), ahead, device=device)
    assert other.input_wait_ratio is None
    assert other.absent["input_wait_ratio"] == "no event of an input pipeline"


def test_waiting_for_input_in_a_loop_in_python():
    """What TensorFlow records at host tracer level 1: ops that are run eagerly, and what they are."""
    traced = Traced()
    host = traced.named("/host:CPU")
    kinds = {name: host.stat_id(name) for name in ("IteratorGetNext", "AssignVariableOp")}
    for step in range(4):
        host.event("python", "PjitFunction(f)", 1000 * step, 1000)
        for name, begin_us, length_us in (("IteratorGetNext", 100, 300), ("AssignVariableOp", 500, 400)):
            event = host.event("python", "EagerExecute", 1000 * step + begin_us, length_us)
            event.stats.add(metadata_id=host.stat_id("eager_op"), ref_value=kinds[name])
    assert of(traced).input_wait_ratio == pytest.approx(0.3)


@pytest.mark.parametrize("at_s", [9.0, 9.03, 9.06, 9.09])
@pytest.mark.parametrize("program", ["", "jax+"])
def test_a_job_that_waits_for_input(program, at_s):
    assert simulated(f"{program}input-bound:share=0.4", at_s=at_s).input_wait_ratio == pytest.approx(0.4, abs=0.03)


def test_programs_by_their_time():
    traced = Traced()
    core = traced.core(0)
    for number in range(40):
        core.event("XLA Modules", f"jit_f({number})", 100 * number, 1 + number)
        core.event("XLA Ops", CONV, 100 * number, 1)
    core.event("XLA Modules", "main", 5000, 500)
    core.event("XLA Ops", CONV, 5000, 1)
    programs = of(traced).programs
    assert programs[:3] == ("main", "39", "38")
    assert len(programs) == 32


def test_programs_that_the_host_ran():
    traced = Traced()
    host = traced.named("/host:CPU")
    for number in range(3):
        host.event("pool", "fusion", 100 * number, 10 + number, hlo_module="jit_f", program_id=number)
    assert of(traced).programs == ("2", "1", "0")


def test_new_shapes_are_a_new_program():
    assert simulated("recompiling", at_s=9.0).programs != simulated("recompiling", at_s=15.0).programs
    assert simulated("steady", at_s=9.0).programs == simulated("steady", at_s=15.0).programs


@pytest.mark.parametrize(
    ("ops", "within_ps"),
    [
        ([(0, 10), (50, 10), (200, 10)], 160),  # from just after 50 until 210
        ([(0, 300), (10, 10), (100, 10)], 100),  # a loop that holds the others
        ([(0, 300), (10, 10)], 20),
        ([(0, 10)], None),
        ([], None),
    ],
)
def test_a_window_that_holds_a_whole_op_wherever_it_begins(ops, within_ps):
    """So a short look at a device that is busy shows one."""
    begin_ps, duration_ps = (np.array([op[i] for op in ops], dtype=np.int64) for i in (0, 1))
    assert op_within_ps(begin_ps, begin_ps + duration_ps) == within_ps


def test_ops_of_a_real_trace_may_be_longer_than_a_short_look():
    """Its job stops for some seconds, and has ops of 0.2 s."""
    with real_trace().open("rb") as file:
        assert read_figures(file, 0).op_within_s == pytest.approx(5.6687, abs=1e-3)
