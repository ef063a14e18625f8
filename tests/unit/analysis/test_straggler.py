"""Stragglers by samples made up here: experts, of which another worker has the busy one each time, and true ones."""

import random

import pytest

from support.samples import sample
from tpumon.analysis import Analysis
from tpumon.model import StepTimes, Target, Workers

BEGIN_S, INTERVAL_S = 1.8e9, 10.0
BUSY = 2.5


def said(workers, rounds, work_of, seed):
    """When each worker was called a straggler first, and since when; `work_of` tells its own work in a sample."""
    draw, now_s = random.Random(seed), [BEGIN_S]
    analysis = Analysis(monotonic_s=lambda: now_s[0])
    names = [f"w{number}" for number in range(workers)]
    given = {"job": "j", "slice": "s", "job_kind": "training", "slice_workers": workers, "job_slices": 1}
    analysis.take(Workers(targets=tuple(Target(worker=name, address=f"{name}:1", **given) for name in names)))
    found = {}
    for number in range(rounds):
        for place, name in enumerate(names):
            now_s[0] = BEGIN_S + INTERVAL_S * (number + place / workers)
            work_s, step_s = 0.1 * work_of(place, number, draw) * draw.gauss(1, 0.002), 0.1 * BUSY * 1.05
            analysis.take(
                sample(
                    name, step_time_s=StepTimes(avg=step_s, min=step_s, max=step_s), step_work_s=work_s,
                    idle_ratio=1 - work_s / step_s, time_unix_s=now_s[0], interval_s=INTERVAL_S, job="j", slice="s",
                )
            )  # fmt: skip
        for finding in analysis.status(now_s[0]).findings:
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
