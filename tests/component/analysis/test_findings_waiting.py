"""Workers that wait for one of them, in any collective: traces made by hand, read and judged."""

from __future__ import annotations

import random

import pytest

from support.samples import sample
from support.traces import ALL_REDUCE, BETWEEN_SLICES, CONV, INFEED, LOOP, Op, Traced, run_step
from tpumon.analysis import Analysis
from tpumon.analysis.fleet_verdict import verdict_on
from tpumon.model import Figures, Target, Workers
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts

WORK_US, TRANSFER_US = 6000.0, 400.0
ROUNDS, STEPS, CORES = 6, 3, 2

ALL_GATHER_DONE = Op("all-gather-done.3", "all-gather-done")
ALL_TO_ALL = Op("all-to-all.1", "all-to-all")
PERMUTE_DONE = Op("collective-permute-done.2", "collective-permute-done")
RECV_DONE = Op("recv-done.1", "recv-done")
COLLECTIVES = {
    "all-reduce": ALL_REDUCE,
    "all-gather": Op("all-gather.1", "all-gather"),
    "all-gather fusion": Op("fusion.7", "all-gather fusion"),
    "all-gather-start": Op("all-gather-start.3", "all-gather-start"),
    "all-gather-done": ALL_GATHER_DONE,
    "reduce-scatter": Op("reduce-scatter.1", "reduce-scatter"),
    "all-reduce-scatter fusion": Op("fusion.8", "all-reduce-scatter fusion"),
    "async-done": Op("reduce-scatter-done.4", "async-done"),
    "collective-permute": Op("collective-permute.1", "collective-permute"),
    "collective-permute-done": PERMUTE_DONE,
    "all-to-all": ALL_TO_ALL,
    "ragged-all-to-all": Op("ragged-all-to-all.1", "ragged-all-to-all"),
    "recv-done": RECV_DONE,
    "between slices": BETWEEN_SLICES,
}


def trace(step_of, *, steps=STEPS):
    """What one worker's trace shows.

    Args:
        step_of: gives the ops of a step by its number, with their microseconds.
    """
    traced = Traced()
    for number in range(CORES):
        core, at_us = traced.core(number), 100.0
        for step in range(steps):
            at_us = run_step(core, at_us, step_of(step))
    traced.host()
    found = figures_of_hosts([read_host_totals(traced.bytes())]).figures
    return {name: getattr(found, name) for name in Figures.__struct_fields__}


def judged(step_of, names=("w0", "w1", "w2", "w3"), *, rounds=ROUNDS, slice_of=lambda _: "s"):
    """The verdict on a job after some rounds of samples.

    Args:
        step_of: gives the ops of a step by round, worker and number of the step.
    """
    fleet = Analysis()
    fleet.add(Workers(targets=tuple(Target(worker=n, address=f"{n}:1", slice=slice_of(n), job="j") for n in names)))
    for number in range(rounds):
        for name in names:
            found = trace(lambda step, name=name, number=number: step_of(number, name, step))
            fleet.add(sample(name, time_unix_s=1000.0 + 10 * number, **found))
    return verdict_on(fleet.status(1000.0 + 10 * (rounds - 1) + 1))


def findings(verdict):
    return {one.finding: one for one in verdict.findings}


def waiting(factors, waits, *, noise=0.004):
    """Steps of workers that wait for the slowest of them.

    Args:
        factors: own work of each worker that is not as usual.
        waits: the ops in which they wait, each with its share.
    """

    def step_of(number, name, step):
        rng = random.Random(f"{number} {step}")
        work_us = {
            each: WORK_US * factors.get(each, 1.0) * rng.gauss(1.0, noise) for each in sorted({*factors, name, "w0"})
        }
        wait_us = max(work_us.values()) - work_us[name] + TRANSFER_US
        own = [(CONV, 0.6 * work_us[name]), (LOOP, 0.4 * work_us[name])]
        return [own[0], *((op, share * wait_us) for op, share in waits), own[1]]

    return step_of


@pytest.mark.parametrize(("kind", "by"), [*((kind, 0.1) for kind in COLLECTIVES), ("all-gather-done", 0.8)])
def test_the_one_waited_for_is_found_in_whatever_collective(kind, by):
    found = findings(judged(waiting({"w2": 1 + by}, [(COLLECTIVES[kind], 1.0)])))
    assert set(found) == {"straggler"}
    straggler = found["straggler"]
    assert straggler.workers == ("w2",)
    assert straggler.severity == ("critical" if by > 0.25 else "warning")
    step_us = (1 + by) * WORK_US + TRANSFER_US
    assert straggler.evidence["own_work_ratio"].value == pytest.approx(1 + by, abs=0.02)
    waits = straggler.evidence["op_time_ratios.collective"]
    assert waits.value == pytest.approx(TRANSFER_US / step_us, abs=0.01)
    assert waits.reference == pytest.approx((TRANSFER_US + by * WORK_US) / step_us, abs=0.01)
    assert f"(collectives {waits.value:.0%}, the median {waits.reference:.0%})" in straggler.sentence


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "collective-permute-done", "between slices"])
@pytest.mark.parametrize("share", [0.5, 0.8])
def test_waiting_in_two_kinds_counts_whole(kind, share):
    found = findings(judged(waiting({"w1": 1.16}, [(COLLECTIVES[kind], share), (ALL_REDUCE, 1 - share)])))
    assert set(found) == {"straggler"}
    assert found["straggler"].workers == ("w1",)
    assert found["straggler"].evidence["own_work_ratio"].value == pytest.approx(1.16, abs=0.02)


def test_of_workers_with_equal_work_nobody_is_named():
    assert not findings(judged(waiting({}, [(op, 1 / len(COLLECTIVES)) for op in COLLECTIVES.values()])))


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter", "collective-permute-done"])
def test_who_starves_is_bound_by_input_and_no_straggler(kind):
    """The others wait for it in a collective as long as it waits for infeed."""

    def step_of(number, name, step):
        rng = random.Random(f"{number} {name} {step}")
        work_us, starved_us = WORK_US * rng.gauss(1.0, 0.004), 0.4 * WORK_US
        infeed_us = starved_us if name == "w1" else 1.0
        step_us = 1.02 * WORK_US + starved_us + TRANSFER_US
        return [(INFEED, infeed_us), (CONV, work_us), (COLLECTIVES[kind], step_us - infeed_us - work_us)]

    verdict = judged(step_of)
    assert verdict.verdict == "input-bound"
    assert set(findings(verdict)) == {"input-bound"}
    assert verdict.findings[0].workers == ("w1",)


def pipeline(factors, op, *, microbatches=8):
    """Stages of a pipeline, one a worker: each waits for those before it at first, for those behind it at the end."""
    names = ("w0", "w1", "w2", "w3")

    def step_of(number, name, step):
        rng = random.Random(f"{number} {step}")
        stage = names.index(name)
        slot_us = {each: 500 * factors.get(each, 1.0) * rng.gauss(1.0, 0.004) for each in names}
        longest_us = max(slot_us.values())
        fill_us = sum(slot_us[each] for each in names[:stage])
        drain_us = sum(slot_us[each] for each in names[stage + 1 :])
        parts = [(op, fill_us + 1)]
        for _ in range(microbatches):
            parts += [(CONV, slot_us[name]), (op, longest_us - slot_us[name] + 10)]
        return [*parts, (op, drain_us + 1)]

    return step_of


@pytest.mark.parametrize("op", [PERMUTE_DONE, RECV_DONE, BETWEEN_SLICES], ids=lambda op: op.name)
def test_stages_of_a_pipeline_that_wait_by_design_are_not_blamed(op):
    """A bubble is no fault; nor is a stage that has less to do than the others."""
    assert not {"straggler"} & set(findings(judged(pipeline({}, op))))
    assert not {"straggler"} & set(findings(judged(pipeline({"w0": 0.6}, op))))


@pytest.mark.parametrize("op", [PERMUTE_DONE, RECV_DONE, BETWEEN_SLICES], ids=lambda op: op.name)
def test_the_stage_that_a_pipeline_waits_for_is_named(op):
    found = findings(judged(pipeline({"w2": 1.3}, op)))
    assert found["straggler"].workers == ("w2",)
    assert "collective-bound" not in found


@pytest.mark.parametrize("every", ["step", "sample"])
def test_experts_that_are_busy_in_turns_are_not_blamed(every):
    names = ("w0", "w1", "w2", "w3")

    def step_of(number, name, step):
        busy = names[(step if every == "step" else number) % 4]
        work_us = WORK_US * (1.4 if name == busy else 1.0)
        return [(CONV, work_us), (ALL_TO_ALL, 1.4 * WORK_US - work_us + TRANSFER_US)]

    assert "straggler" not in findings(judged(step_of, rounds=13))


TWO_SLICES = {"names": ("a0", "a1", "b0", "b1"), "slice_of": lambda name: name[0]}


@pytest.mark.parametrize("kind", ["between slices", "all-reduce", "all-gather-done"])
def test_a_slow_slice_is_named_and_the_one_that_waits_is_not_blamed(kind):
    factors = {"b0": 1.9, "b1": 1.9}
    found = judged(waiting(factors, [(COLLECTIVES[kind], 1.0)]), **TWO_SLICES).findings
    assert [(one.finding, one.slice) for one in found] == [("straggler", "b")]
    assert "(collectives 3%, theirs 49%)" in found[0].sentence


def test_communication_that_costs_all_workers_is_found_in_all_slices():
    def step_of(_number, _name, _step):
        return [(CONV, WORK_US), (BETWEEN_SLICES, 0.8 * WORK_US)]

    found = judged(step_of, **TWO_SLICES).findings
    assert [(one.finding, one.slice) for one in found] == [("collective-bound", "a"), ("collective-bound", "b")]
