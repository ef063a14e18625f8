"""The table of scenarios and findings: each fault of a simulated job is found, by its name, and nothing else is."""

from __future__ import annotations

import random
from typing import get_args

import pytest
from msgspec.structs import replace

from support.samples import failed_sample, sample
from support.scenes import BEGIN_UNIX_S, Scene
from tpumon.analysis import Analysis
from tpumon.analysis.findings import RULES
from tpumon.analysis.findings.rules.slow_down import SlowDown
from tpumon.model import FindingId, StepTimes, Target, Workers
from tpumon.simulator.scenario.fault_table import PRESETS

pytestmark = pytest.mark.slow

BEGIN, END, ROUNDS = 12, 22, 28
SAMPLES = 3
INTERVAL_S = 10.0

AT = f"@{BEGIN * INTERVAL_S:.0f}+{(END - BEGIN) * INTERVAL_S:.0f}"

# finding: scenarios that have it, and in them nothing else
DIAGONAL = {
    "input-bound": [f"input-bound{AT}", f"input-bound{AT}:share=0.15+jitter"],
    "host-bound": [f"host-bound{AT}"],
    "idle": [f"jax+input-bound{AT}", f"jax+host-bound{AT}"],
    "straggler": [
        f"straggler{AT}:by=0.4", f"straggler{AT}:by=0.1+jitter", f"straggler{AT}:by=0.05+jitter",
        f"jax+straggler{AT}:by=0.1", f"slow-core{AT}:by=0.4", f"slow-core{AT}:by=0.1+jitter",
    ],
    "slow-down": [f"slow-down{AT}:by=0.5", f"slow-down{AT}:by=0.2", f"jax+slow-down{AT}:by=0.3+jitter"],
    "hang": [f"hang{AT}", f"jax+hang{AT}"],
    "hbm-nearly-full": [f"hbm-nearly-full{AT}"],
    "collective-bound": [f"collective-bound{AT}", f"jax+collective-bound{AT}:share=0.6+jitter"],
    "outfeed-bound": [f"outfeed-bound{AT}", f"outfeed-bound{AT}:share=0.1"],
    "host-transfer-bound": [f"host-transfer-bound{AT}"],
    "async-wait": [f"async-wait{AT}", f"jax+async-wait{AT}:share=0.7"],
    "data-shuffle": [f"data-shuffle{AT}:share=0.4"],
    "sparsecore-bound": [f"sparsecore-bound{AT}"],
    "barrier-wait": [f"barrier-wait{AT}", f"jax+barrier-wait{AT}"],
    "debug-print": [f"debug-print{AT}", f"jax+debug-print{AT}:share=0.1"],
    "low-mxu": [f"small-shapes{AT}"],
    "memory-bound": [f"memory-bound{AT}"],
    "compute-bound": [f"compute-bound{AT}"],
    "truncated": [f"overflow{AT}", f"jax+overflow-refused{AT}"],
}  # fmt: skip
SEVERITIES = {rule.finding: rule.severities for rule in RULES}
# The first of each every day, on two workers; all each night, on four.
ROWS = [
    pytest.param(finding, scenario, "v6e-8", id=f"{finding}: {scenario}")
    for finding, (scenario, *_) in DIAGONAL.items()
] + [
    pytest.param(finding, scenario, "v6e-16", marks=pytest.mark.nightly, id=f"{finding}: {scenario}, four workers")
    for finding, scenarios in DIAGONAL.items()
    for scenario in scenarios
]

NOTHING = ["jitter", "compile-pause", "jax+checkpoint@60:every=60"]


# They take more than a few samples: each has a test of its own below.
SLOW = {"hbm-growing", "not-observed", "recompiling"}

# Judged of other jobs than these: tests/unit/analysis/test_findings_servers.py.
OF_SERVERS = {rule.finding for rule in RULES if "training" in rule.not_for}


def course(scenario, rounds=ROUNDS, *, interval_s=INTERVAL_S, taken=lambda sample: sample, **given):
    """The findings after each round of samples, each as `taken` makes it; steps drift, whatever else there is."""
    drift = "" if "jitter" in scenario or scenario in PRESETS else "+jitter:by=0.1%"
    scene, fleet = Scene(scenario + drift, interval_s=interval_s, **given), Analysis()
    fleet.add(scene.workers)
    found = []
    for number in range(rounds):
        for one in scene.round(number):
            fleet.add(taken(one))
        now_unix_s = BEGIN_UNIX_S + interval_s * (number + 1)
        found.append({finding.finding: finding for finding in fleet.status(now_unix_s).findings})
        assert all(finding.severity in SEVERITIES[finding.finding] for finding in found[-1].values())
    return found


@pytest.mark.parametrize(("finding", "scenario", "topology"), ROWS)
def test_a_fault_is_found_within_three_samples_alone_and_leaves_within_three(finding, scenario, topology):
    """The diagonal of the table; off it, nothing but a slow-down that is worse than what explains it."""
    found = course(scenario, topology=topology)
    assert all(not round_ for round_ in found[:BEGIN])
    is_info = any(round_[finding].severity == "info" for round_ in found if finding in round_)
    beside = {"slow-down"} if is_info and finding in SlowDown.hidden_by_new else set()
    assert all(set(round_) <= {finding, *beside} for round_ in found)
    first = BEGIN + SAMPLES - 1 + (finding == "slow-down")  # once all of the slice were sampled since most are slow
    assert all(finding in round_ for round_ in found[first:END])
    assert all(not round_ for round_ in found[END + SAMPLES - 1 :])


@pytest.mark.parametrize("order", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (2, 3))])
def test_who_waits_for_a_straggler_is_blamed_for_nothing(order):
    """Whoever of the slice is sampled last, and whenever one looks: also before it is found, and when it has ended."""
    scene, fleet = Scene(f"straggler{AT}:by=0.4+jitter:by=0.1%", interval_s=INTERVAL_S), Analysis()
    fleet.add(scene.workers)
    found, workers = set(), random.Random(order).sample(range(len(scene.names)), len(scene.names))
    for turn in range(len(workers) * ROUNDS):
        fleet.add(scene.sample(workers[turn % len(workers)], INTERVAL_S * turn / len(workers)))
        found |= {each.finding for each in fleet.status(BEGIN_UNIX_S + INTERVAL_S * turn / len(workers)).findings}
    assert found == {"straggler"}


def test_what_is_only_information_hides_no_slow_down():
    """A job that became slower is not ok because it is known where the time goes."""
    found = course(f"collective-bound{AT}", topology="v6e-8")[BEGIN + SAMPLES : END]
    grades = [{name: finding.severity for name, finding in round_.items()} for round_ in found]
    assert grades == [{"slow-down": "critical", "collective-bound": "info"}] * len(found)


def test_every_finding_is_in_the_table():
    """What the diagonal shows of one, it shows of all: nothing else is found."""
    remedy = "add a scenario to DIAGONAL, or the name to SLOW and a test of its own"
    assert set(DIAGONAL) | SLOW | OF_SERVERS == set(get_args(FindingId)), remedy
    assert not set(DIAGONAL) & SLOW


def test_hbm_that_grows_is_found_alone_within_ten_minutes():
    """Long before it is nearly full; its waves are as high as what it grows by in a minute and a half."""
    found = course("hbm-leak@100:over=3600+jitter", rounds=110, topology="v6e-8", computed=True)
    first = next(number for number, round_ in enumerate(found) if round_)
    assert 10 + 24 <= first <= 10 + 63
    assert all(set(round_) == {"hbm-growing"} for round_ in found[first:])
    for number, round_ in enumerate(found[first:], start=first + 1):
        left_s = round_["hbm-growing"].evidence["hbm_full_in_s"].value
        assert left_s == pytest.approx(3700 - INTERVAL_S * number, rel=0.15)  # from what is in use now


def test_hbm_that_will_be_full_in_a_quarter_of_an_hour_is_found_within_five_minutes():
    """Long before it is nearly full."""
    found = course("hbm-leak@100:over=900", rounds=45, topology="v6e-8", computed=True)
    first = next(number for number, round_ in enumerate(found) if round_)
    assert 10 + 18 <= first <= 10 + 30
    assert all(set(round_) == {"hbm-growing"} for round_ in found[first:])
    assert found[first]["hbm-growing"].since_unix_s == pytest.approx(BEGIN_UNIX_S + 100, abs=110)


@pytest.mark.parametrize("rises", [(0.2, 0.1, 0.05, 0.02, 0.01), (0.0, 0.3, 0.0, 0.0, 0.3)])
def test_hbm_that_fills_as_a_job_warms_up_is_no_leak(rises):
    used, per = 0.1, {}
    for number, rise in enumerate(rises):
        used += rise
        per.update(dict.fromkeys(range(6 * number, 6 * number + 6), used))

    def taken(name, number, **given):
        device = {"device": "0", "hbm_used_bytes": int(per.get(number, used) * 1e9), "hbm_total_bytes": 10**9}
        return sample(name, step_time_s=steps_of(0.1), devices=[device], **given)

    assert not any(after_each_round(("w0",), 60, 10.0, taken))


@pytest.mark.parametrize("interval_s", [1.0, 10.0])
def test_a_job_that_compiles_again_and_again_is_found_where_the_host_tells(interval_s):
    """Windows must hold the end of a compilation: they are longer than it."""
    scenario = "recompiling@0:every=3.1,lasts=1"
    found = course(scenario, rounds=20, interval_s=interval_s, topology="v6e-8", host_level=1, window_s=2.0)
    assert any("recompiling" in round_ for round_ in found)


@pytest.mark.parametrize(
    ("scenario", "interval_s", "rounds"), [("recompiling", 1.0, 45), ("recompiling:every=8", 10.0, 40)]
)
def test_a_job_that_compiles_again_and_again_is_found_by_its_programs(scenario, interval_s, rounds):
    """Where nothing tells what the host does, as on TPUs."""
    found = course(scenario, rounds=rounds, interval_s=interval_s, topology="v6e-8")
    assert any("recompiling" in round_ for round_ in found)
    healthy = course("buckets+compile-pause", rounds, interval_s=interval_s, topology="v6e-8")
    assert not any("recompiling" in round_ for round_ in healthy)


def test_a_job_that_somebody_else_profiles_is_not_observed_after_ten_minutes():
    """Figures that are kept away are no fault of the job; they come back at once."""
    begin_unix_s, end_unix_s = BEGIN_UNIX_S + 200, BEGIN_UNIX_S + 1100

    def taken(sample):
        if not begin_unix_s <= sample.time_unix_s < end_unix_s:
            return sample
        busy = failed_sample(sample.worker, "busy", time_unix_s=sample.time_unix_s)
        return replace(busy, address=sample.address, interval_s=sample.interval_s)

    found = course("jitter", rounds=120, topology="v6e-8", computed=True, taken=taken)
    assert not any(found[:80])
    assert all(set(round_) == {"not-observed"} for round_ in found[81:110])
    assert not any(found[111:])
    assert {round_["not-observed"].since_unix_s for round_ in found[81:110]} == {begin_unix_s}


@pytest.mark.parametrize("scenario", NOTHING)
def test_a_healthy_job_has_no_finding(scenario):
    """Jitter, checkpoints and compilations are no fault."""
    assert all(not round_ for round_ in course(scenario, topology="v6e-8"))


@pytest.mark.parametrize("scenario", [f"straggler{AT}:worker=2,by=0.1", f"slow-core{AT}:worker=2,core=1,by=0.4"])
def test_the_straggler_is_named(scenario):
    """Of four workers that step together, the third."""
    last = course(scenario)[END - 1]["straggler"]
    assert last.workers == ("sim-v6e-16-w2",)
    assert last.since_unix_s == pytest.approx(BEGIN_UNIX_S + BEGIN * INTERVAL_S, abs=2.1 * INTERVAL_S)
    if "core" in scenario:
        assert "core 0 of chip 1" in last.sentence


def test_a_core_that_may_be_the_slow_one_is_named_before_it_is_sure():
    """With the samples that it takes; a worker that is slow as a whole has no such core."""
    found = course("slow-core@0:worker=2,core=1,by=0.1+jitter", rounds=9, seed=5)
    said = [round_["straggler"].sentence for round_ in found if round_]
    assert said[0].endswith(" It may be its core 0 of chip 1 alone: to tell that takes 16 samples at most.")
    assert "core 0 of chip 1 is slow" in said[-1]
    assert "alone" not in said[-1]
    found = course("straggler@0:worker=2,by=0.1+jitter", rounds=9, seed=5)
    assert not any("alone" in round_["straggler"].sentence for round_ in found if round_)


@pytest.mark.parametrize("scenario", ["slow-down@0:by=0.3", "slow-down@0:by=0.3+jitter:by=0.05"])
def test_of_several_jobs_named_together_nobody_is_called_a_straggler(scenario):
    """Their steps are not equally long, so nobody waits for anybody; what to do stands in the reason."""
    scenes = [Scene("jitter", "v6e-8"), Scene(scenario, "v5e-8", seed=2)]
    targets = tuple(target for scene in scenes for target in scene.workers.targets)
    fleet = Analysis()
    fleet.add(Workers(targets=targets))
    for number in range(8):
        for scene in scenes:
            for one in scene.round(number):
                fleet.add(one)
        now_unix_s = BEGIN_UNIX_S + INTERVAL_S * (number + 1)
        status = fleet.status(now_unix_s)
        assert "straggler" not in {finding.finding for finding in status.findings}
    (reason,) = (one.reason for one in status.not_judged() if one.finding == "straggler")
    assert "give each a job (--targets)" in reason


def test_a_hang_began_with_the_last_activity_that_was_seen():
    """By libtpu, which saw it after the last sample did; severity counts from there, too."""
    found = course("hang@120", rounds=80, topology="v6e-8", computed=True)
    first = next(round_["hang"] for round_ in found if "hang" in round_)
    assert first.since_unix_s == BEGIN_UNIX_S + 120
    severities = [round_["hang"].severity if "hang" in round_ else None for round_ in found]
    assert "warning" not in severities, "nobody goes on"
    assert severities.index("critical") == 12 + 60 + 1


def test_who_hung_first_is_named():
    """By the queue of programs that is empty, while those of the others are not."""
    found = course(f"hang{AT}:worker=1")[END - 1]["hang"]
    assert "Stopped first: sim-v6e-16-w1," in found.sentence
    assert found.workers[0] == "sim-v6e-16-w1"
    assert found.evidence["queue_size"].value == 0


def after_each_round(names, rounds, interval_s, taken):
    """The findings of workers that are named together; `taken` makes a sample from name, number and times."""
    fleet = Analysis()
    fleet.add(Workers(targets=tuple(Target(worker=name, address=f"{name}:1", job_kind="training") for name in names)))
    for number in range(rounds):
        now_unix_s = BEGIN_UNIX_S + interval_s * number
        for name in names:
            fleet.add(taken(name, number, time_unix_s=now_unix_s, interval_s=interval_s))
        yield fleet.status(now_unix_s + 1).findings


def steps_of(time_s):
    return StepTimes(avg=time_s, min=time_s, max=time_s)


def hung_beside_another_worker(other_step_s):
    """The hang of two workers with steps of 100 ms after 11 minutes, and a third worker that is down meanwhile."""

    def taken(name, number, **given):
        if number < 4:
            return sample(name, step_time_s=steps_of(other_step_s if name == "b0" else 0.1), **given)
        return failed_sample(name, "unavailable" if name == "b0" else "empty-trace", **given)

    *_, (found,) = after_each_round(("a0", "a1", "b0"), 27, 30.0, taken)
    return found


def test_a_hang_names_a_worker_that_is_gone_only_if_that_may_be_of_the_same_job():
    """A hang is as severe beside it as without: who does not answer to tpumon may run all the same."""
    same = hung_beside_another_worker(0.101)
    assert (same.finding, same.severity) == ("hang", "critical")
    assert "the others may wait for them: b0." in same.sentence
    other = hung_beside_another_worker(0.2)
    assert (other.finding, other.severity, other.workers) == ("hang", "critical", ("a0", "a1"))
    assert "b0" not in other.sentence


@pytest.mark.parametrize("varies_ratio", [0.02, 0.08])
def test_a_hang_names_a_worker_that_is_gone_however_much_steps_vary(varies_ratio):
    """What a sample says of steps varies; the median of three does so, too."""
    chance = random.Random(3)

    def taken(name, number, **given):
        if number < 9:
            return sample(name, step_time_s=steps_of(chance.gauss(0.1, 0.1 * varies_ratio)), **given)
        return failed_sample(name, "unavailable" if name == "w0" else "empty-trace", **given)

    *_, (found,) = after_each_round([f"w{number}" for number in range(8)], 32, 30.0, taken)
    assert (found.finding, found.severity, len(found.workers)) == ("hang", "critical", 7)
    assert "the others may wait for them: w0." in found.sentence


@pytest.mark.parametrize(
    ("steps_s", "is_first"), [((0.1, 0.1, 0.1), True), ((0.1, 0.1, 0.2), False), ((0.1, 0.2, 0.1), True)]
)
def test_who_stopped_first_is_looked_for_in_the_same_job(steps_s, is_first):
    """Work in the queue of another job says nothing: w0 has none, the last one has some."""
    workers = dict(zip(("w0", "w1", "w2"), zip(steps_s, (0, None, 3), strict=True), strict=True))

    def taken(name, number, **given):
        step_s, queue = workers[name]
        ran = {"step_time_s": steps_of(step_s), "idle_ratio": 0.1} if number < 4 else {"idle_ratio": 1.0}
        return sample(name, devices=[{"device": 0, "runtime_hlo_queue_size": queue}], **given, **ran)

    *_, last = after_each_round(tuple(workers), 8, 10.0, taken)
    found = next(one for one in last if "w0" in one.workers)
    assert ("Stopped first: w0," in found.sentence) is is_first


def test_how_much_workers_vary_is_asked_of_many():
    """Of a large slice not all are looked at, but neither only the first, which is as steady as no other."""
    chance = random.Random(1)

    def taken(name, _number, **given):
        idle = 0.3 if name == "w000" else min(max(chance.gauss(0.3, 0.06), 0.0), 1.0)
        return sample(name, step_time_s=steps_of(0.1), idle_ratio=idle, **given)

    for found in after_each_round([f"w{number:03}" for number in range(150)], 12, 10.0, taken):
        assert "straggler" not in {one.finding for one in found}


def test_several_faults_at_once_are_all_found():
    """A straggler does not hide that HBM is full, nor input that is slow."""
    last = course(f"straggler{AT}:by=0.3+hbm-nearly-full{AT}+input-bound{AT}")[END - 1]
    assert set(last) == {"straggler", "hbm-nearly-full", "input-bound"}


@pytest.mark.parametrize(
    ("scenario", "within"),
    [
        ("slow-down@7200:by=0.06", 60),
        pytest.param("drift@7200:by=0.3,over=1200", 90, marks=pytest.mark.nightly),
    ],
)
def test_little_more_is_found_after_hours_of_less_in_the_whole_slice_at_once(scenario, within):
    """Steps drift by 3 % up and down in three minutes: a block must be longer than that."""
    begin = 720
    found = course(scenario, rounds=begin + within + 2, computed=True)
    first = next(number for number, round_ in enumerate(found) if round_)
    assert begin < first <= begin + within
    assert all(set(round_) == {"slow-down"} for round_ in found[first:])
    assert len(found[first + 1]["slow-down"].workers) == 4
    assert found[-1]["slow-down"].since_unix_s == pytest.approx(BEGIN_UNIX_S + 7200, abs=300)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("scenario", "topology", "interval_s"), [("steady", "v5e-8", 2.0), ("jitter:by=0.1%", "v5e-16", 10.0)]
)
def test_a_steady_day_has_no_event(scenario, topology, interval_s):
    """1.06x comes and goes."""
    scene, fleet = Scene(scenario, topology, interval_s=interval_s, computed=True), Analysis()
    fleet.add(scene.workers)
    for number in range(int(86_400 / interval_s)):
        for one in scene.round(number):
            fleet.add(one)
    assert fleet.status(BEGIN_UNIX_S + 86_400).changes == ()


def test_another_program_is_no_slow_down():
    """An evaluation with shorter steps, and the training after it."""
    found = course("evaluation@120:every=600,lasts=200", rounds=60, topology="v6e-8")
    assert all(not round_ for round_ in found)


def test_an_evaluation_of_half_an_hour_is_no_fault():
    """Nor is the training after it."""
    scenario = "evaluation@300:every=7200,lasts=1800+jitter"
    found = course(scenario, rounds=85, interval_s=30.0, topology="v6e-8")
    assert all(not round_ for round_ in found)
