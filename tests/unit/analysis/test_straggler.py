"""Stragglers by samples made up here: what varies, by chance or from phase to phase, and true ones."""

import random

import pytest

from support.samples import sample
from support.scenes import Scene
from tpumon.analysis import Analysis
from tpumon.analysis.findings import Thresholds
from tpumon.analysis.findings.finding_state import FindingState
from tpumon.analysis.findings.rule import Member, NeedsFewMoreSamples, Observation
from tpumon.analysis.findings.rules.straggler import Straggler
from tpumon.analysis.findings.slice_work import WorkAndWaiting
from tpumon.analysis.history import Moment
from tpumon.model import FindingDetail, StepTimes, Target, Workers

BEGIN_S, INTERVAL_S = 1.8e9, 10.0
BUSY = 2.5
MORE = NeedsFewMoreSamples(takes=3)


def judged(workers, rounds, work_of, seed, length_of=lambda _worker, _round: 1.0, slices=1, source="trace"):
    """The status after each round.

    Args:
        workers, rounds: how many; each round takes a sample of each worker.
        work_of: tells the own work of a worker in a round.
        seed: of chance.
        length_of: tells how long the steps of a worker's sample are, with all that is in them.
        slices: of how many slices these are.
        source: of the samples.
    """
    draw, now_s = random.Random(seed), [BEGIN_S]
    analysis = Analysis(monotonic_s=lambda: now_s[0])
    names = [f"w{number}" for number in range(workers)]
    of = {name: f"s{place * slices // workers}" for place, name in enumerate(names)}
    given = {"job": "j", "job_kind": "training", "slice_workers": workers // slices, "job_slices": slices}
    targets = (Target(worker=name, address=f"{name}:1", slice=of[name], **given) for name in names)
    analysis.add(Workers(targets=tuple(targets)))
    for number in range(rounds):
        for place, name in enumerate(names):
            now_s[0] = BEGIN_S + INTERVAL_S * (number + place / workers)
            usual_s = 0.1 * length_of(place, number)
            work_s, step_s = usual_s * work_of(place, number, draw) * draw.gauss(1, 0.002), usual_s * BUSY * 1.05
            analysis.add(
                sample(
                    name, step_time_s=StepTimes(avg=step_s, min=step_s, max=step_s), step_work_s=work_s,
                    idle_ratio=1 - work_s / step_s, time_unix_s=now_s[0], interval_s=INTERVAL_S, job="j",
                    slice=of[name], source=source,
                )
            )  # fmt: skip
        yield analysis.status(now_s[0])


def said(*given):
    """When each worker was called a straggler first, and since when; of what `judged` takes."""
    found = {}
    for number, status in enumerate(judged(*given)):
        for finding in status.findings:
            if finding.finding == "straggler":
                for name in finding.workers:
                    found.setdefault(name, (number, round(finding.since_unix_s - BEGIN_S)))
    return found


def busy_at_random(workers):
    return lambda _worker, _round, draw: BUSY if draw.randrange(workers) == 0 else 1.0


def test_who_has_the_busy_expert_by_chance_is_no_straggler():
    """Two or three samples in a row are nothing special where being slow moves from worker to worker."""
    named = [said(8, 20, busy_at_random(8), seed) for seed in range(30)]
    assert [each for each in named if each] == []


def test_who_is_busy_all_the_time_among_experts_is_a_straggler():
    at_random = busy_at_random(8)
    found = said(8, 50, lambda worker, number, draw: BUSY if worker == 3 else at_random(worker, number, draw), 1)
    assert set(found) == {"w3"}


@pytest.mark.parametrize("begin", [0, 8])
@pytest.mark.parametrize("workers", [2, 4, 16])
def test_few_samples_show_it_and_it_began_with_the_first_of_them(workers, begin):
    found = said(workers, 14, lambda worker, number, _: 1.5 if worker == 1 and number >= begin else 1.0, 1)
    number, since_s = found.pop("w1")
    assert found == {}
    assert begin + 2 <= number <= begin + 3
    assert since_s == round(INTERVAL_S * (begin + 1 / workers))


@pytest.mark.parametrize(
    ("said", "since", "or_earlier"),
    [
        ([0.5, 0.5, MORE, MORE, 2.0], 2, False),  # the first of those that show it were not enough
        ([0.5, 0.5, 0.5, 0.5, 2.0], 2, False),
        ([0.5, MORE, 2.0], 0, True),  # from the first sample on
        ([0.5, 0.5, "not known", 0.5, 2.0], 3, True),  # what was before is not known
    ],
)
def test_it_began_with_the_first_of_the_samples_that_show_it_or_earlier(said, since, or_earlier, monkeypatch):
    rule = Straggler(Thresholds())
    state = FindingState(rule, 1, None)
    monkeypatch.setattr(rule, "detail", lambda _: FindingDetail(words="", sentence=""))
    for number, ratio in enumerate(said):
        monkeypatch.setattr(rule, "severity_ratio", lambda _, ratio=ratio: ratio)
        one = sample(time_unix_s=BEGIN_S + number)
        target, at = Target(worker="w0", address="w0:1"), Moment.of(one)
        seen = Observation(target=target, sample=one, at=at, state="live", values={})
        state.judge(Member(seen, WorkAndWaiting(), {}))
    assert (state.since.time_unix_s - BEGIN_S, state.was_there) == (since, or_earlier)


@pytest.mark.parametrize("seeds", [150, pytest.param(400, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("workers", [2, 4])
def test_chance_in_the_first_samples_makes_no_straggler(workers, seeds):
    """Three numbers may be nearly equal by chance, and then say nothing of how much they vary."""
    named = [said(workers, 5, lambda _worker, _round, draw: draw.gauss(1, 0.15), seed) for seed in range(seeds)]
    assert [each for each in named if each] == []


@pytest.mark.parametrize("workers", [2, 4])
def test_what_few_samples_say_of_a_straggler_is_right_or_not_said(workers):
    """A small one among steps that vary: found, or not judged while that may be chance; the others are not named."""
    late = 0
    for seed in range(40):
        work = lambda worker, _round, draw: draw.gauss(1.08 if worker == 1 else 1.0, 0.01)  # noqa: E731
        for number, status in enumerate(judged(workers, 16, work, seed)):
            named = {name for one in status.findings if one.finding == "straggler" for name in one.workers}
            assert named <= {"w1"}
            if not named:
                late += number >= 4
                assert "straggler" not in status.workers["w1"].judged
                reason = next((one.reason for one in status.workers["w1"].not_judged if one.finding == "straggler"), "")
                assert number == 0 or "it takes" in reason
    assert late > 40


def in_turn(samples):
    """Rollouts and learning, so many samples of each; workers are sampled one after the other, also at the edges."""
    return lambda worker, number: 1.0 if (number + (worker == 0)) // samples % 2 else 16.0


@pytest.mark.parametrize("samples", [2, 4, 8])
def test_phases_of_other_lengths_are_not_compared(samples):
    named = [
        said(2, 60, lambda _worker, _round, draw: draw.gauss(1, 0.1), seed, in_turn(samples)) for seed in range(10)
    ]
    assert [each for each in named if each] == []


@pytest.mark.parametrize("samples", [2, 4, 8])
def test_a_straggler_is_found_whatever_the_phase(samples):
    found = said(2, 40, lambda worker, _round, draw: draw.gauss(1.2 if worker else 1.0, 0.01), 1, in_turn(samples))
    assert set(found) == {"w1"}


@pytest.mark.parametrize(("of", "slices", "slow"), [("own_work", 1, {1}), ("slice_work", 3, {4, 5, 6, 7})])
def test_what_it_says_is_of_one_moment_also_as_it_ends(of, slices, slow):
    """The ratio comes from several samples; beside it stand the times and shares of one that shows it."""
    ended = 0
    work = lambda worker, number, _: 1.4 if worker in slow and number < 20 else 1.0  # noqa: E731
    for number, status in enumerate(judged(4 * slices, 30, work, 1, slices=slices)):
        for evidence in (one.evidence for one in status.findings if one.finding == "straggler"):
            own, idle = evidence[f"{of}_s"], evidence["idle_ratio"]
            assert own.value / own.reference == pytest.approx(evidence[f"{of}_ratio"].value, abs=0.05)
            assert idle.value < idle.reference - 0.1
            ended += number >= 20
    assert ended


@pytest.mark.parametrize("lasts", [True, False])
def test_after_a_gap_one_sample_tells_whether_it_is_still_there(lasts):
    """Samples before the gap count no more: it is old what they showed. One that goes on has its begin."""
    scene = Scene(f"straggler@60s+{900 if lasts else 300}s:worker=3,by=0.8", computed=True)
    analysis, found = Analysis(), []
    analysis.add(scene.workers)
    for number in (*range(30), 40, 41):
        for one in scene.round(number):
            judged = analysis.add(one).sample
            idle = [cause.finding for cause in judged.findings or () if cause.finding in {"idle", "host-bound"}]
            assert number < 40 or not idle, "the least idle one of long ago"
        found.append({cause.finding: cause.since_unix_s for cause in judged.findings or ()}.get("straggler"))
    assert found[29] is not None
    assert found[30:] == [found[29] if lasts else None] * 2


@pytest.mark.parametrize(("source", "said"), [("monitor", ["of a single core; the Monitor RPC tells"]), ("trace", [])])
def test_that_a_single_core_is_not_judged_by_monitor_is_said(source, said):
    """Workers are."""
    *_, status = judged(4, 12, lambda *_: 1.0, 1, source=source)
    assert "straggler" in status.workers["w0"].judged
    assert [one.reason[:39] for one in status.not_judged() if one.finding == "straggler"] == [
        each[:39] for each in said
    ]
