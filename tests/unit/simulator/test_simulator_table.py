"""What each fault changes in the figures that tpumon shows, against the same job without it.

The figures are those that tpumon computes from the trace, and those of the runtime metrics. One row a fault.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from tpumon.proto import xplane_pb2
from tpumon.simulator.expected_figures import figures as simulated
from tpumon.simulator.scenario import KINDS, SECOND, SimulatedJob
from tpumon.simulator.topology import parse_topology
from tpumon.simulator.trace_writer import TraceOptions, build_trace
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts

AT_S = 3.017
V4_32 = parse_topology("v4-32")
SEED = 4
SLOW = 0  # the worker that this seed picks


@dataclass
class Seen:
    """One worker of a job in a window of a second: its figures, and the trace."""

    job: SimulatedJob
    worker: int
    at_s: float
    space: xplane_pb2.XSpace
    data: bytes

    def __post_init__(self):
        self.trace = figures_of_hosts([read_host_totals(self.data)])
        self.figures = self.trace.figures
        parts = self.figures.step_parts_s or {}
        length_s = self.figures.step_time_s.avg if self.figures.step_time_s else 1.0
        self.share = {name: part_s / length_s for name, part_s in parts.items()}
        self.step_ms = 1e3 * length_s

    def host(self):
        """Names of the events of the host, and how long they are together."""
        plane = next(plane for plane in self.space.planes if plane.name == "/host:CPU")
        names: Counter[str] = Counter()
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                names[name] += event.duration_ps / 1e12
        return names

    def modules(self):
        plane = next(plane for plane in self.space.planes if plane.name == "/device:TPU:0")
        return {each.name for each in plane.event_metadata.values() if each.name.startswith("jit_")}

    def texts(self):
        """HLO of the ops of the first core."""
        plane = next(plane for plane in self.space.planes if plane.name == "/device:TPU:0")
        return [each.name for each in plane.event_metadata.values() if each.name.startswith("%")]

    def annotated(self, name):
        """Share of the window in events of a device with this name."""
        plane = next(plane for plane in self.space.planes if plane.name == "/device:TPU:0")
        return sum(
            event.duration_ps / 1e12
            for line in plane.lines
            for event in line.events
            if plane.event_metadata[event.metadata_id].name == name
        )


def look(scenario, worker=1, at_s=AT_S):
    job = SimulatedJob(topology=V4_32, scenario=scenario, seed=SEED)
    start_ns = int(at_s * SECOND)
    trace = build_trace(
        job,
        worker,
        start_ns=start_ns,
        stop_ns=start_ns + SECOND,
        epoch_unix_ns=1_700_000_000 * SECOND,
        options=TraceOptions(host_tracer_level=2),
    )
    return Seen(job, worker, at_s, xplane_pb2.XSpace.FromString(trace.xspace), trace.xspace)


@pytest.fixture(scope="module")
def steady():
    return look("steady")


def near(value, expected, tolerance=0.03):
    return abs(value - expected) <= tolerance


# A part of the step, or of the window, takes the share that was asked for.
SHARES = {
    "input-bound": lambda seen: seen.figures.infeed_ratio.avg,
    "host-bound": lambda seen: (seen.figures.idle_ratio - 0.1) / 0.9,
    "collective-bound": lambda seen: seen.share["collective"],
    "outfeed-bound": lambda seen: seen.share["outfeed"],
    "host-transfer-bound": lambda seen: seen.share["host_transfer"],
    "async-wait": lambda seen: seen.share["async_wait"],
    "data-shuffle": lambda seen: (seen.share["low_flops_compute"] - 10.9 / 64) / (1 - 10.9 / 64),
    "sparsecore-bound": lambda seen: 1 - sum(seen.share.values()),
    "barrier-wait": lambda seen: seen.annotated("barrier-cores"),
    "debug-print": lambda seen: seen.annotated("debug_print"),
}


@pytest.mark.parametrize("share", [None, 0.15])
@pytest.mark.parametrize("kind", SHARES)
def test_a_part_takes_its_share(kind, share, steady):
    asked = KINDS[kind].parameters["share"] if share is None else share
    seen = look(kind if share is None else f"{kind}:share={share}")
    assert near(SHARES[kind](seen), asked)
    assert SHARES[kind](steady) < 0.1
    assert seen.figures.mxu_utilization_ratio == pytest.approx(
        steady.figures.mxu_utilization_ratio * (1 - asked), rel=0.1
    )


def test_every_fault_of_a_share_is_in_the_table():
    assert set(SHARES) == {name for name, kind in KINDS.items() if "share" in kind.parameters}


OTHERS = {
    # busy devices whose matrix units are not
    "small-shapes": lambda seen, steady: (
        seen.figures.mxu_utilization_ratio < 0.05
        and near(seen.figures.idle_ratio, steady.figures.idle_ratio, 0.01)
        and all("bf16[8,100,72]{2,1,0:T(8,128)" in text for text in seen.texts())
    ),
    "memory-bound": lambda seen, _: (
        seen.figures.hbm_bandwidth_utilization_ratio > 0.7 and seen.figures.mxu_utilization_ratio < 0.5
    ),
    "compute-bound": lambda seen, _: (
        seen.figures.mxu_utilization_ratio > 0.7 and seen.figures.hbm_bandwidth_utilization_ratio < 0.5
    ),
    "slow-down": lambda seen, steady: near(seen.step_ms / steady.step_ms, 1.2, 0.02),
    "slow-down:by=0.1": lambda seen, steady: near(seen.step_ms / steady.step_ms, 1.1, 0.02),
    "drift:over=6": lambda seen, _: look("drift:over=6").step_ms + 5 < look("drift:over=6", at_s=9.1).step_ms,
    "jax": lambda seen, steady: (
        seen.figures.infeed_ratio is None
        and seen.figures.step_source == "modules"
        and near(seen.step_ms, steady.step_ms, 1.0)
        and "train" not in seen.host()
    ),
    # what a JAX job does that waits for input: gaps between modules, and the host's input beside them
    "jax+input-bound": lambda seen, _: (
        seen.figures.infeed_ratio is None
        and near(seen.share["idle"], 0.5, 0.06)
        and near(seen.host()["next_batch"], 0.42, 0.06)
        and seen.host()["IteratorGetNextOp::DoCompute"] > 0.3
    ),
    "jax+host-bound": lambda seen, _: (
        near(seen.share["idle"], 0.47, 0.06) and "next_batch" not in seen.host() and seen.host()["log_metrics"] > 0.15
    ),
    "input-bound": lambda seen, _: near(seen.host()["next_batch"], 0.42, 0.06),
    "host-bound": lambda seen, steady: (
        near(seen.step_ms, steady.step_ms, 2.0) and seen.host()["np.asarray(jax.Array)"] > 0.1
    ),
    "jitter": lambda seen, steady: steady.share["collective"] + 0.002 < seen.share["collective"] < 0.12,
    "sparsecore-bound": lambda seen, _: any("SparseCore" in plane.name for plane in seen.space.planes),
    "input-bound+straggler": lambda seen, _: seen.figures.infeed_ratio.avg > 0.3 and seen.share["collective"] > 0.1,
}


@pytest.mark.parametrize("scenario", OTHERS)
def test_a_fault_shows_in_the_figures(scenario, steady):
    assert OTHERS[scenario](look(scenario), steady)
    if scenario != "drift:over=6":
        assert not OTHERS[scenario](steady, steady)


@pytest.mark.parametrize("by", [0.05, 0.4])
@pytest.mark.parametrize("program", ["steady", "jax", "jitter"])
def test_the_straggler_waits_least_and_all_end_the_collective_together(program, by):
    """Step times are equal: only what the workers wait for tells who is slow."""
    scenario = f"{program}+straggler:by={by}"
    seen = [look(scenario, worker) for worker in range(4)]
    others = [one for worker, one in enumerate(seen) if worker != SLOW]
    assert max(one.step_ms for one in seen) - min(one.step_ms for one in seen) < 0.1
    assert seen[SLOW].share["collective"] < min(one.share["collective"] for one in others) - 0.4 * by * 49 / 64 / 2
    assert seen[SLOW].figures.idle_ratio < min(one.figures.idle_ratio for one in others) - 0.1 * by
    ends = [
        step.start_ns + slot.offset_ns + slot.duration_ns
        for worker in range(4)
        for step in list(seen[0].job.steps(3 * SECOND, 4 * SECOND))[:1]
        for slot in seen[0].job.slots(step, worker, seen[0].job.parts(step, worker, 0))
        if slot.op == 7  # the all-reduce
    ]
    assert max(ends) - min(ends) < 0.003 * 64e6


def test_a_slow_core_makes_the_other_cores_wait():
    seen = look("slow-core:worker=1,core=2")
    idle = [core.idle_ratio for core in seen.figures.per_core]
    assert idle.index(min(idle)) == 2
    assert sorted(idle)[1] > min(idle) + 0.03
    other = look("slow-core:worker=1,core=2", worker=3)
    assert min(core.idle_ratio for core in other.figures.per_core) > min(idle) + 0.03


def test_a_new_compilation_is_a_new_program():
    before, after = look("recompiling", at_s=9.0), look("recompiling", at_s=15.0)
    assert len(before.modules()) == len(after.modules()) == 1
    assert before.modules() != after.modules()
    assert before.texts() != after.texts()
    across = look("recompiling", at_s=11.5)
    assert across.modules() == before.modules()
    assert across.host()["backend_compile"] > 0.2
    assert near(after.step_ms, look("steady", at_s=15.0).step_ms, 1.5)


def test_evaluation_runs_another_program():
    training, both, evaluation = (look("evaluation", at_s=at_s) for at_s in (590.0, 599.5, 650.0))
    assert evaluation.step_ms < 0.5 * training.step_ms
    assert [f.name for f in evaluation.figures.functions] == ["jit_eval_step"]
    assert {f.name for f in both.figures.functions} == {"jit_train_step", "jit_eval_step"}
    assert look("evaluation", at_s=2500.0).modules() == training.modules()


def test_a_checkpoint_stops_the_job_while_the_host_writes():
    seen = look("checkpoint", at_s=302.0)
    assert seen.host().keys() == {"save_checkpoint"}
    assert simulated(seen.job, 1, 302 * SECOND, 303 * SECOND).busy == (0.0,) * 4
    assert seen.job.last_busy_ns(1, 302 * SECOND) == pytest.approx(300 * SECOND, abs=SECOND // 4)
    assert look("checkpoint", at_s=311.0).figures.step_time_s is not None
    assert look("checkpoint", at_s=602.0).figures.step_time_s is None


def test_a_hang_shows_nothing_but_idle_time():
    job = SimulatedJob(topology=V4_32, scenario="hang", seed=SEED)
    for worker in range(4):
        trace = build_trace(
            job,
            worker,
            start_ns=70 * SECOND,
            stop_ns=71 * SECOND,
            epoch_unix_ns=0,
            options=TraceOptions(host_tracer_level=2),
        )
        assert trace.empty
        assert simulated(job, worker, 70 * SECOND, 71 * SECOND).busy == (0.0,) * 4
        assert 9.9 < (70 * SECOND - job.last_busy_ns(worker, 70 * SECOND)) / SECOND < 10.2
        assert job.up_since_ns(worker, 70 * SECOND) == 0


SHOWN_ELSEWHERE = {
    *("compile-pause", "idle", "flaky", "crash-and-return", "overflow", "overflow-refused", "overflow-nothing"),
    *("hang", "checkpoint", "evaluation", "recompiling", "straggler", "slow-core"),
    *("serving", "quiet-night", "bursts", "buckets", "stuck", "pool-pressure"),
    *("hbm-leak", "hbm-nearly-full", "restart", "preemption", "drift"),
}
"""Faults with a test of their own, here or in the other tests of the simulator."""


def test_no_fault_is_without_a_test():
    assert {*SHARES, *OTHERS, *SHOWN_ELSEWHERE} >= set(KINDS)
