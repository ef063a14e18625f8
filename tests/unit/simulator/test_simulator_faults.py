"""Faults of the simulated job: their text, their bounds, when they begin and end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpumon.errors import UsageError
from tpumon.simulator.scenario import CHAPTER_NS, KINDS, SCENARIOS, SECOND, Fault, SimulatedJob
from tpumon.simulator.scenario.fault_table import PARAMETERS
from tpumon.simulator.scenario.faults import parse_faults
from tpumon.simulator.topology import parse_topology

V4_32 = parse_topology("v4-32")


def job(scenario="steady", *, seed=4, faults=()):
    return SimulatedJob(topology=V4_32, scenario=scenario, seed=seed, faults=faults)


def values_of(name):
    parameter = PARAMETERS[name]
    numbers = st.integers(int(parameter.least), int(parameter.most))
    return (
        numbers
        if parameter.quantity is None
        else st.sampled_from([max(parameter.least, 0.01), max(parameter.least, min(parameter.most, 0.75))])
    )


@st.composite
def faults(draw):
    kind = draw(st.sampled_from(list(KINDS)))
    given = {
        name: draw(st.none() | values_of(name)) for name in KINDS[kind].parameters if name not in {"every", "lasts"}
    }
    start_s = draw(st.none() | st.integers(0, 10_000_000))
    length_s = None if start_s is None else draw(st.none() | st.integers(1, 10_000_000))
    return Fault(kind=kind, start_s=start_s, length_s=length_s, **given)


@given(st.lists(faults(), min_size=1, max_size=4))
def test_what_a_fault_says_of_itself_can_be_typed(faults):
    assert parse_faults("+".join(map(str, faults))) == tuple(faults)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stedy", "unknown scenario 'stedy'; did you mean steady?"),
        ("nope", "unknown scenario 'nope'; choose one of steady, input-bound, "),
        ("", "unknown scenario ''; choose one of "),
        ("straggler+", "scenario 'straggler+' is not NAME[@START[+LENGTH]][:PARAMETER=VALUE,...], for example "),
        ("slow-down@300-600", "scenario 'slow-down@300-600' is not NAME[@START"),
        ("slow-down@", "scenario 'slow-down@' is not NAME[@START"),
        ("slow-down@1.2.3", "scenario slow-down: start 1.2.3: give a time, such as 5m"),
        ("slow-down@99999999", "scenario slow-down: start 99999999 is not within 0 to 10000000 seconds"),
        ("slow-down@300+0.1", "scenario slow-down: length 0.1 is not within 1 to 10000000 seconds"),
        ("steady@3", "scenario steady takes neither times nor parameters"),
        ("straggler:wroker=3", "scenario straggler has no parameter 'wroker'; did you mean worker?"),
        ("straggler:nope=3", "scenario straggler has no parameter 'nope'; it takes worker, by"),
        ("straggler:=3", "scenario straggler has no parameter ''; it takes worker, by"),
        ("jax:wroker=3", "scenario jax has no parameter 'wroker'; it takes none"),
        ("straggler:worker", "scenario straggler: 'worker' is not PARAMETER=VALUE; its parameters: worker, by"),
        ("straggler:share=0.3", "scenario straggler has no parameter 'share'; it takes worker, by"),
        ("jax:by=0.3", "scenario jax has no parameter 'by'; it takes none"),
        ("straggler:worker=3.5", "scenario straggler: worker=3.5: give a whole number"),
        ("straggler:by=nan", "scenario straggler: by=nan: give a share of at most 100%, such as 10%"),
        (
            "straggler:by=5",
            "scenario straggler: by=5: give a share of at most 100%, such as 10%; for percent, write 5%",
        ),
        ("straggler:by=150%", "scenario straggler: by=150%: give a share of at most 100%, such as 10%"),
        ("straggler:worker=4", "scenario straggler: no worker 4 on v4-32; the last worker is 3"),
        ("slow-core:core=4", "scenario slow-core: no core 4 on v4-32; the last core is 3"),
        ("checkpoint:every=5", "scenario checkpoint: every=5 must be at least 11, longer than it lasts"),
        ("input-bound+host-bound:share=0.5", "the shares of a scenario's faults add up to 0.8 at most, these to 0.94"),
        ("+".join(["jitter"] * 13), "a scenario has at most 12 faults, this one has 13"),
        ("x" * 501, "a scenario has at most 500 characters, this one has 501"),
    ],
)
def test_a_wrong_scenario_is_answered_in_words(text, message):
    with pytest.raises(UsageError) as refused:
        job(text)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


@given(text=st.text("slow-downjax@+:=,.0159by ", max_size=30))
def test_any_text_is_a_scenario_or_a_usage_error(text):
    try:
        job(text)
    except UsageError as error:
        refused = str(error)
        assert "\n" not in refused


def test_a_fault_from_python_is_the_same_as_from_text():
    typed = job("slow-down@30+60:by=0.1+straggler:worker=2")
    made = job(faults=(Fault(kind="slow-down", start_s=30, length_s=60, by=0.1), Fault(kind="straggler", worker=2)))
    assert made.title == "steady+slow-down@30+60:by=10%+straggler:worker=2"
    whole = Fault(kind="slow-down", by=1.0)
    assert parse_faults(str(whole)) == (whole,)  # 1 alone is no share
    assert list(typed.steps(0, 40 * SECOND)) == list(made.steps(0, 40 * SECOND))


def test_a_fault_begins_and_ends_at_its_moment():
    slow = job("slow-down@301+100:by=0.5")
    lengths = {step.start_ns / SECOND: step.period_ns / 1e6 for step in slow.steps(290 * SECOND, 420 * SECOND)}
    assert all(length > 85 for at, length in lengths.items() if 301.1 < at < 400.9)
    assert all(length < 75 for at, length in lengths.items() if at < 300.9 or at > 401.1)
    assert min(length for at, length in lengths.items() if 301.1 < at < 400.9) == pytest.approx(96, rel=0.07)


@pytest.mark.parametrize("begin_s", [16.0, 17.3, 23.99])
def test_no_step_runs_while_the_job_stops(begin_s):
    stopped = job(f"checkpoint@{begin_s:g}:every=0,lasts=20")
    begin_ns, end_ns = int(begin_s * SECOND), int((begin_s + 20) * SECOND)
    assert not list(stopped.steps(begin_ns, end_ns))
    before = list(stopped.steps(begin_ns - SECOND, begin_ns))[-1]
    after = next(stopped.steps(end_ns, end_ns + SECOND))
    assert after.number == before.number + 1
    # Steps keep their length; what is left over of 8 s is silence.
    assert begin_ns - before.start_ns - before.period_ns < 0.25 * SECOND
    assert after.start_ns - end_ns < 0.25 * SECOND
    assert {piece.work.stop for piece in stopped.silences(begin_ns, end_ns)} == {"checkpoint"}


def test_far_moments_count_the_same_steps():
    """Steps before a moment are counted in stretches in which nothing changes; step by step, they are as many."""
    for scenario in ("steady", "checkpoint", "slow-down@100+600", "drift:over=500", "compile-pause+hang@304+9"):
        # Two seeds with the same random numbers, and a clock each.
        at_once, stepwise = job(scenario, seed=5), job(scenario, seed=5 + (1 << 64))
        last = 1000 * SECOND // CHAPTER_NS
        far = next(at_once.steps(last * CHAPTER_NS, (last + 1) * CHAPTER_NS))
        count = 0
        for chapter in range(last):
            steps = stepwise.steps(chapter * CHAPTER_NS, (chapter + 1) * CHAPTER_NS)
            count += sum(step.start_ns >= chapter * CHAPTER_NS for step in steps)
        assert far.number == count


def test_the_seed_picks_the_worker_unless_it_is_given():
    assert {job("straggler", seed=seed).work(0).factor(1, 0, 0.0) > 1 for seed in range(20)} == {True, False}
    assert [job("straggler:worker=1", seed=seed).work(0).factor(1, 0, 0.0) > 1 for seed in range(20)] == [True] * 20
    picked = {
        (worker, core)
        for seed in range(60)
        for worker in range(4)
        for core in range(4)
        if job("slow-core", seed=seed).work(0).factor(worker, core, 0.0) > 1
    }
    assert len(picked) > 10


def test_the_worker_that_hangs_is_idle_first():
    hanging = job("hang@100:worker=2")
    idle_s = [160 - hanging.last_busy_ns(worker, 160 * SECOND) / SECOND for worker in range(4)]
    others = [idle for worker, idle in enumerate(idle_s) if worker != 2]
    assert idle_s[2] > max(others) + 0.03
    assert max(others) - min(others) < 0.001
    assert 59 < min(others) < idle_s[2] < 61
    assert [hanging.queue_size(worker, 160 * SECOND) for worker in range(4)] == [1, 1, 0, 1]
    assert [hanging.up_since_ns(worker, 160 * SECOND) for worker in range(4)] == [0] * 4
    # One that ends goes on.
    assert list(job("hang@100+30").steps(131 * SECOND, 132 * SECOND))


def test_a_restart_takes_all_processes_down_and_a_preemption_one():
    restarted, preempted = job("restart@50:lasts=20"), job("preemption@50:worker=1,lasts=20")
    assert [restarted.up_since_ns(worker, 60 * SECOND) for worker in range(4)] == [None] * 4
    assert [restarted.up_since_ns(worker, 80 * SECOND) for worker in range(4)] == [70 * SECOND] * 4
    assert [preempted.up_since_ns(worker, 60 * SECOND) for worker in range(4)] == [0, None, 0, 0]
    assert [preempted.up_since_ns(worker, 80 * SECOND) for worker in range(4)] == [0, 70 * SECOND, 0, 0]
    for one in (restarted, preempted):
        assert one.goes_down
        assert not list(one.steps(52 * SECOND, 77 * SECOND))  # the job compiles after it
        assert {piece.work.stop for piece in one.silences(71 * SECOND, 77 * SECOND)} == {"compile"}
        assert list(one.steps(79 * SECOND, 80 * SECOND))
    assert not job("hang").goes_down
    # The window of a fault may end with it, or in the middle.
    assert job("restart@50+100:lasts=20").up_since_ns(0, 900 * SECOND) == 70 * SECOND
    assert job("restart@50+10:lasts=20").up_since_ns(0, 900 * SECOND) == 60 * SECOND
    assert job("restart@50:lasts=20,every=100").up_since_ns(0, 240 * SECOND) == 170 * SECOND


def test_hbm_leaks_until_it_is_full_or_the_process_ends():
    usable = V4_32.device_hbm_bytes * 31.25 / 32
    leaking = job("hbm-leak@100:over=1000+restart@700")
    used = [leaking.hbm_used_bytes(0, 0, t * SECOND) / usable for t in (50, 350, 650, 750, 3000)]
    assert max(used[0], used[3]) < 0.65
    assert 0.69 < used[1] < used[2]
    assert 0.99 < used[4] < 1
    assert 0.94 < job("hbm-nearly-full").hbm_used_bytes(0, 0, 0) / usable < 0.96
    for scenario in SCENARIOS:
        for t in (0, 5_000, 500_000):
            assert 0 < job(scenario).hbm_used_bytes(1, 3, t * SECOND) < usable
