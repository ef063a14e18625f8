"""What the simulated job does: deterministic, consistent, and as its scenario says."""

from __future__ import annotations

import hashlib
import itertools

from hypothesis import given
from hypothesis import strategies as st

from tpumon.simulator.expected_figures import figures, window_events
from tpumon.simulator.scenario import CHAPTER_NS, SCENARIOS, SECOND, STEP_GAP_NS, SimulatedJob
from tpumon.simulator.topology import parse_topology

TRAINING = [scenario for scenario in SCENARIOS if scenario != "idle"]
TOGETHER = [
    "input-bound+straggler",
    "jax+input-bound+host-bound:share=0.3",
    "slow-down@300.5+600:by=100%+straggler@200+1000:by=100%+collective-bound:share=0.8",
    "hang@300.01+50+checkpoint:every=13,lasts=1+drift:over=100",
    "preemption:every=90+recompiling:every=3,lasts=1+jitter:by=100%+slow-core:by=100%",
    "evaluation@7+1+slow-down@14.99+1.1",
]
jobs = st.builds(
    SimulatedJob,
    topology=st.sampled_from([parse_topology(name) for name in ("v2-8", "v3-32", "v4-16", "v5e-1", "v5p-128")]),
    scenario=st.sampled_from([*TRAINING, *TOGETHER]),
    seed=st.integers(-(2**70), 2**70),
)
moments_ns = st.integers(0, 30 * 24 * 3600 * SECOND // 1000)


def job(scenario, *, topology="v5e-8", seed=0):
    return SimulatedJob(topology=parse_topology(topology), scenario=scenario, seed=seed)


@given(job=jobs, start_ns=moments_ns, data=st.data())
def test_the_parts_of_a_step_fill_it(job, start_ns, data):
    worker = data.draw(st.integers(0, job.topology.hosts - 1))
    device = data.draw(st.integers(0, job.topology.devices_per_host - 1))
    for step in job.steps(start_ns, start_ns + SECOND):
        parts = job.parts(step, worker, device)
        assert min(parts) >= 0
        assert min(parts.convolution, parts.loop, parts.all_reduce, parts.marker) > 0
        assert parts.busy + parts.idle == parts.marker
        assert parts.idle >= parts.barrier + parts.debug_print
        assert parts.marker + parts.gap + STEP_GAP_NS <= step.period_ns
        if step.missing is not None:
            continue
        slots = job.slots(step, worker, parts)
        assert sum(slot.duration_ns for slot in slots) == parts.busy
        assert slots[0].offset_ns == 0 or step.work.program.jax
        assert slots[-1].offset_ns + slots[-1].duration_ns == parts.marker
        assert all(a.offset_ns + a.duration_ns <= b.offset_ns for a, b in itertools.pairwise(slots))


@given(job=jobs, start_ns=moments_ns)
def test_steps_follow_each_other(job, start_ns):
    stop_ns = start_ns + 3 * CHAPTER_NS
    steps = list(job.steps(start_ns, stop_ns))
    without_silence = not list(job.silences(start_ns, stop_ns))
    if without_silence:
        assert len(steps) > 20
        assert steps[0].start_ns <= start_ns
        assert steps[-1].start_ns + steps[-1].period_ns >= stop_ns
    for step, following in itertools.pairwise(steps):
        assert following.number == step.number + 1
        assert following.start_ns >= step.start_ns + step.period_ns
        if without_silence:
            assert following.start_ns == step.start_ns + step.period_ns


@given(job=jobs, start_ns=moments_ns, cut_ns=st.integers(1, 20 * SECOND))
def test_a_moment_is_the_same_however_it_is_looked_at(job, start_ns, cut_ns):
    whole = list(job.steps(start_ns, start_ns + 20 * SECOND))
    first, second = (
        list(job.steps(start_ns, start_ns + cut_ns)),
        list(job.steps(start_ns + cut_ns, start_ns + 20 * SECOND)),
    )
    assert sorted({*first, *second}) == whole


@given(job=jobs, start_ns=moments_ns, window_ns=st.integers(1, 3 * SECOND), data=st.data())
def test_figures_are_shares_of_what_they_should_be(job, start_ns, window_ns, data):
    worker = data.draw(st.integers(0, job.topology.hosts - 1))
    found = figures(job, worker, start_ns, start_ns + window_ns)
    assert 0 <= found.mxu_ratio <= 1
    assert all(0 <= share <= 1 + 1e-9 for share in found.busy)
    assert (found.step_s is None) == (found.infeed_ratio is None) == (found.steps == 0)
    if found.idle_ratio is not None:
        assert -1e-9 <= found.idle_ratio < 1
    if found.step_s is not None and found.infeed_ratio is not None:
        assert 0 < found.step_s.min <= found.step_s.avg * (1 + 1e-9)
        assert found.step_s.avg <= found.step_s.max * (1 + 1e-9)
        assert 0 <= found.infeed_ratio.min <= found.infeed_ratio.max < 1


def test_the_same_seed_makes_the_same_job_and_another_seed_another():
    def seen(seed):
        return figures(job("steady", seed=seed), 0, 100 * SECOND, 101 * SECOND)

    assert seen(7) == seen(7)
    assert seen(7) != seen(8)


def test_figures_drift_and_jitter_but_stay_a_jobs():
    seen = [figures(job("jitter:by=0.1%"), 0, t * SECOND, (t + 1) * SECOND) for t in range(0, 240, 8)]
    steps = [found.step_s.avg for found in seen]
    assert len(set(steps)) == len(steps)
    assert all(0.055 < step < 0.075 for step in steps)
    assert max(steps) - min(steps) > 0.002
    assert all(abs(a - b) < 0.003 for a, b in itertools.pairwise(steps))
    # The program's FLOPs are constant: when steps are longest the matrix units are least busy.
    by_step = sorted(seen, key=lambda found: found.step_s.avg)
    assert by_step[0].mxu_ratio > by_step[-1].mxu_ratio


def test_scenarios_are_what_they_are_called():
    steady, bound = (figures(job(name), 0, 0, 5 * SECOND) for name in ("steady", "input-bound"))
    assert steady.infeed_ratio.avg < 0.03
    assert bound.infeed_ratio.avg > 0.4
    assert bound.mxu_ratio < steady.mxu_ratio
    idle = figures(job("idle"), 0, 0, 5 * SECOND)
    assert (idle.mxu_ratio, idle.idle_ratio, idle.step_s, idle.steps) == (0, None, None, 0)


def test_steady_is_the_same_at_any_time():
    """Two profiles of it differ by less than a report calls noise."""
    steps = [figures(job("steady"), 0, t * SECOND, (t + 2) * SECOND).step_s.avg for t in range(0, 240, 8)]
    assert max(steps) - min(steps) < 0.01 * min(steps)


def test_steady_is_what_it_was():
    """Pictures, golden files and benchmarks are made of it."""
    pod = job("steady", topology="v4-16", seed=7)
    text = repr(
        [
            (step.number, step.start_ns, [tuple(slot) for slot in pod.slots(step, worker, parts)])
            for step in pod.steps(100 * SECOND, 101 * SECOND)
            for worker in range(2)
            if (parts := pod.parts(step, worker, 1))
        ]
    )
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "7173e97b65aa89fd"


def test_on_a_single_host_one_device_is_the_straggler():
    host = job("straggler", seed=3)
    assert [host.work(0).factor(0, device, 0.0) > 1 for device in range(8)].count(True) == 1


def test_compile_pauses_leave_windows_without_steps():
    seen = [figures(job("compile-pause"), 0, t * SECOND, (t + 1) * SECOND).steps for t in range(64)]
    assert 8 <= seen.count(0) <= 12  # two pauses of 4 to 6 s, and the seconds that hold only part of a step
    assert seen[16:20] == [0, 0, 0, 0]
    assert min(seen[:16]) > 10


def test_a_crashed_worker_comes_back_with_a_new_process():
    crashing = job("crash-and-return", topology="v4-16")
    assert crashing.up_since_ns(0, 24 * SECOND) == 0
    assert crashing.up_since_ns(0, 26 * SECOND) is None
    back_ns = crashing.up_since_ns(0, 39 * SECOND)
    assert 31 * SECOND <= back_ns <= 35 * SECOND
    assert crashing.up_since_ns(0, back_ns) == back_ns
    assert crashing.up_since_ns(0, back_ns - 1) is None
    assert crashing.up_since_ns(0, 64 * SECOND) == back_ns
    assert crashing.up_since_ns(0, 66 * SECOND) is None
    assert crashing.up_since_ns(1, 39 * SECOND) != back_ns


def test_flaky_calls_fail_the_same_way_each_time():
    def outcomes():
        return [job("flaky").call_fails(0, call) for call in range(1000)]

    assert outcomes() == outcomes()
    assert 100 < outcomes().count("unavailable") < 200
    assert 20 < outcomes().count("hang") < 60
    assert {job("steady").call_fails(0, call) for call in range(1000)} == {None}


@given(job=jobs, start_ns=moments_ns, window_ns=st.integers(1, SECOND))
def test_only_what_lies_in_the_window_is_seen(job, start_ns, window_ns):
    for core in window_events(job, 0, start_ns, start_ns + window_ns):
        for seen in core:
            for slot in seen.slots:
                assert seen.step.start_ns + slot.offset_ns >= start_ns
                assert seen.step.start_ns + slot.offset_ns + slot.duration_ns <= start_ns + window_ns
            if seen.partial is None:
                assert start_ns <= seen.step.start_ns
                assert seen.step.start_ns + seen.parts.marker <= start_ns + window_ns


def test_memory_in_use_fits():
    for scenario in SCENARIOS:
        for device in range(8):
            used = job(scenario).hbm_used_bytes(0, device, 10 * SECOND)
            assert 0 < used < job(scenario).topology.device_hbm_bytes
