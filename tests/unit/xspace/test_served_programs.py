"""Programs of a server in traces made by hand."""

from __future__ import annotations

import pytest

from support.traces import ALL_REDUCE, LOOP, Op, Plane, Traced
from tpumon.model.server_figures import family_of
from tpumon.xspace.trace_figures import read_figures

MS = 1000.0  # microseconds


def served(traced):
    return read_figures(traced.bytes(), 0).figures.traced_programs


def by_family(programs):
    return {each.family: each for each in programs.families}


def put_program(plane: Plane, number: int, ops: dict[Op, int]) -> None:
    """Says of some ops which program they are of, and which shape they make."""
    for op, rows in ops.items():
        metadata = plane.plane.event_metadata[plane.event_id(op)]
        metadata.name = f"%{op.name} = bf16[{rows},128]{{1,0}} fusion(bf16[128,128] %p)"
        for stat in metadata.stats:
            if stat.metadata_id == plane.stat_id("program_id"):
                stat.int64_value = number


def run(plane: Plane, name: str, at_ms: float, ms: float, op: Op = LOOP) -> None:
    plane.event("XLA Modules", name, at_ms * MS, ms * MS)
    plane.event("XLA Ops", op, at_ms * MS, ms * MS)


@pytest.mark.parametrize(
    ("function", "family"),
    [
        ("jit_run_model_impl", "step"),
        ("jit_run_model", "step"),
        ("jit_step_fun_impl", "step"),
        ("jit_jitted_run_model", "step"),
        ("jit_jitted_run_and_sample", "step"),
        ("jit__decode_core_impl", "decode"),
        ("jit__generate_jit", "decode"),
        ("jit__prefill_jit", "prefill"),
        ("jit__prefill_multisampling_jit", "prefill"),
        ("jit_prefill_concat", "prefill"),
        ("jit__insert_jit", "move"),
        ("jit_bulk_insert", "move"),
        ("jit_sample", "sample"),
        ("jit_jitted_sampler", "sample"),
        ("jit_run_compute_logits", "sample"),
        ("jit_compute_and_gather_logprobs", "sample"),
        ("jit__select_from_array_fn", "sample"),
        ("jit__substitute_placeholder_token", "other"),
        ("jit_run_draft_model", "other"),
        ("jit_draft_step_fun_impl", "other"),
        ("jit_train_step", "other"),
        ("jit_forward_backward", "other"),
        ("jit_decoder_layer", "other"),
        ("jit_generated", "other"),
        ("jit_regenerate", "other"),
        ("jit_decode_loss", "other"),
    ],
)
def test_families(function, family):
    assert family_of(function) == family
    assert family_of(f"{function}(1234567)") == family


def test_a_training_trace_has_none():
    traced = Traced()
    plane = traced.core(0)
    for step in range(4):
        run(plane, "jit_train_step(42)", 10 * step, 8)
        run(plane, "jit_copy(43)", 10 * step + 8, 1)
    assert served(traced) is None


def test_a_window_may_show_no_more_than_what_follows_a_long_step():
    traced = Traced()
    run(traced.core(0), "jit_sample(43)", 0, 1)
    programs = served(traced)
    assert (programs.runs_model, programs.busy_s) == (False, pytest.approx(0.001))
    run(traced.core(0), "jit_train_step(42)", 1, 8)
    assert served(traced) is None


def test_runs_of_each_family_on_the_core_with_most():
    """10 ms of prefill and 3 x 4 ms of generate on core 0; core 1 has one run less; insert on both."""
    traced = Traced()
    for number in (0, 1):
        plane = traced.core(number)
        run(plane, "jit__prefill_jit(1)", 5, 10)
        run(plane, "jit__insert_jit(2)", 16, 1)
        for i in range(3 - number):
            run(plane, "jit__generate_jit(3)", 20 + 10 * i, 4 + i)
    programs = served(traced)
    found = by_family(programs)
    assert set(found) == {"prefill", "move", "decode"}
    assert found["prefill"].durations_s == (0.010,)
    assert found["decode"].durations_s == (0.004, 0.005, 0.006)
    assert sum(found["move"].durations_s) == pytest.approx(0.001)
    assert programs.busy_s == pytest.approx(0.026)
    assert programs.window_s == pytest.approx(0.041)  # from 5 to 46 ms
    assert (programs.real_tokens, programs.padded_tokens) == (None, None)
    assert all(each.sizes == () for each in programs.families)


def test_busy_time_counts_a_program_that_the_window_cuts():
    """Its ops are shown where its module is not: 3 ms of them before the first whole run, 2 ms after the last one."""
    traced = Traced()
    plane = traced.core(0)
    plane.event("XLA Ops", LOOP, 0, 3 * MS)
    run(plane, "jit_run_model_impl(7)", 4, 6)
    plane.event("XLA Ops", LOOP, 11 * MS, 2 * MS)
    programs = served(traced)
    assert len(programs.families[0].durations_s) == 1
    assert programs.busy_s == pytest.approx(0.011)


def test_overlapping_programs_are_busy_once():
    traced = Traced()
    plane = traced.core(0)
    run(plane, "jit_run_model(7)", 0, 10)
    run(plane, "jit_sample(8)", 8, 4)
    assert served(traced).busy_s == pytest.approx(0.012)


BATCHES = ((20, 0), (40, 10), (50, 20))
"""Tokens of three batches, and when they begin in milliseconds: 110 tokens."""


def annotated(*, shapes: bool) -> Traced:
    """Two programs of one function for 32 and 64 tokens: the first runs once, the second twice."""
    traced = Traced()
    plane = traced.core(0)
    small, large, odd = (Op(f"fusion.{i}", "loop fusion") for i in (11, 12, 13))
    for op in (small, large, odd):
        plane.event_id(op)
    number = 1 << 63 | 5 + shapes  # hashes of programs have all 64 bits
    if shapes:
        put_program(plane, 10, {small: 32, odd: 4096, Op("fusion.14", "loop fusion"): 32, Op("fusion.15", "x"): 32})
        put_program(plane, number - (1 << 64), {large: 64, Op("fusion.16", "loop fusion"): 64})
    run(plane, f"jit_run_model_impl({9 + shapes})", 0.5, 5, small)
    run(plane, f"jit_run_model_impl({number})", 10.5, 8, large)
    run(plane, f"jit_run_model_impl({number})", 20.5, 8, large)
    host = traced.host()
    for tokens, at_ms in BATCHES:
        host.event("python", f"execute_model: 3 reqs, {tokens} toks", at_ms * MS, 9 * MS)
        host.event("python", "execute_model: 0 reqs, 0 toks", (at_ms + 9.5) * MS, 1)
    return traced


def test_sizes_by_the_shapes_of_ops():
    programs = served(annotated(shapes=True))
    assert programs.families[0].sizes == (32, 64)
    assert (programs.real_tokens, programs.padded_tokens) == (110, 160)


def test_without_shapes_batches_are_padded_to_powers_of_two():
    programs = served(annotated(shapes=False))
    assert programs.families[0].sizes == ()
    assert (programs.real_tokens, programs.padded_tokens) == (110, 160)  # 32 + 64 + 64


def on_host(*, runs: bool) -> Traced:
    """Three steps on the host's own processors, with ops that tell their runs if so asked."""
    traced = Traced()
    host = traced.host()
    for i, (tokens, at_ms) in enumerate([(3, 0), (30, 20), (31, 40), (5, 60)]):
        host.event("python", f"execute_model: 1 reqs, {tokens} toks", at_ms * MS, 12 * MS)
        host.event("python", "PjitFunction(run_model_impl)", at_ms * MS, 1 * MS)
        told = {"hlo_module": "jit_run_model_impl", "run_id": 100 + i, "device_ordinal": 0, "program_id": 5}
        for part in range(2 if runs else 0):
            event = host.event("tf_XLAEigen", f"fusion.{part}", (at_ms + 1 + 5 * part) * MS, 5 * MS)
            host.put(event.stats, {name: value for name, value in told.items() if name != "hlo_module"})
            event.stats.add(metadata_id=host.stat_id("hlo_module"), ref_value=host.stat_id("jit_run_model_impl"))
    return traced


def test_runs_on_the_hosts_own_processors():
    programs = served(on_host(runs=True))
    (step,) = programs.families
    assert step.durations_s == pytest.approx((0.010,) * 4)
    assert step.sizes == (16, 32)
    assert programs.busy_s == pytest.approx(0.040)
    assert (programs.real_tokens, programs.padded_tokens) == (69, 96)


def test_runs_that_the_window_cuts_on_the_hosts_own_processors():
    """Of the first run the first op is missing, of the last one the last: neither is whole."""
    traced = on_host(runs=True)
    host = Plane(traced.space.planes[0])
    (line,) = (line for line in host.plane.lines if line.name == "tf_XLAEigen")
    del line.events[-1], line.events[0]
    programs = served(traced)
    (step,) = programs.families
    assert step.durations_s == pytest.approx((0.010, 0.010))
    assert programs.busy_s == pytest.approx(0.030)  # with what is shown of the others


@pytest.mark.parametrize("end", [0, 1])
def test_the_only_run_of_a_program_at_the_edge_of_a_window(end):
    """Its ops do not tell if it is whole: the first one had no call in the window, nothing runs after the last one."""
    traced = on_host(runs=True)
    host = Plane(traced.space.planes[0])
    (line,) = (line for line in host.plane.lines if line.name == "tf_XLAEigen")
    for event in (line.events[:2], line.events[-2:])[end]:
        for stat in event.stats:
            if stat.metadata_id == host.stat_id("program_id"):
                stat.int64_value = 6
    if not end:
        (python,) = (line for line in host.plane.lines if line.name == "python")
        del python.events[:2]
    (step,) = served(traced).families
    assert len(step.durations_s) == 3


def test_calls_alone_do_not_tell_when_programs_ran():
    programs = served(on_host(runs=False))
    assert programs.families[0].durations_s == pytest.approx((0.001,) * 4)
    assert programs.busy_s is None


def test_several_cores_with_collectives():
    """The busiest core counts, not the first."""
    traced = Traced()
    for number, ms in enumerate((3, 7, 5)):
        plane = traced.core(number)
        for i in range(2):
            run(plane, "jit_step_fun_impl(4)", 10 * i, ms, ALL_REDUCE)
    assert served(traced).busy_s == pytest.approx(0.014)
