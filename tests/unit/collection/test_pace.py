"""Whether this machine keeps up with what it is asked to sample."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean

import pytest

from tpumon.collection.sampler.pace import KeepingUp, jittered, on_tick


def keeping_up(actual_s, planned_s=1.0, pace=None):
    """What was noted of workers of which each took so long from one query to the next."""
    pace = pace or KeepingUp()
    for number, each_s in enumerate(actual_s):
        pace.note(f"w{number}", planned_s, each_s)
    return pace


@pytest.mark.parametrize(
    ("actual_s", "interval_s"),
    [
        ([1.0] * 20, None),
        ([1.5] * 20, None),
        ([1.0] * 4 + [5.0] * 4, 3.0),
        ([1.0] * 11 + [9.0] * 9, None),
        ([9.0] * 7, None),
        ([9.0] * 8, 9.0),
        ([1.0] * 4 + [5.0] * 8, 5.0),
    ],
)
def test_half_of_at_least_eight_workers_must_be_late(actual_s, interval_s):
    """A few slow workers are not this machine's fault."""
    assert keeping_up(actual_s).interval_s == interval_s


def test_what_helps_is_said_once():
    pace = keeping_up([30.0] * 256)
    assert pace.advice() is None, "the first interval has the start in it"
    pace = keeping_up([4.0] * 256, pace=pace)
    assert "queried every 4 s only: they answer too late for --interval" in (said := pace.advice() or "")
    assert said.endswith("raise it to 5 s)")
    assert pace.advice() is None


def test_one_late_round_is_no_reason_for_advice():
    """tpumon was stopped by Ctrl-Z for a while."""
    pace = keeping_up([28.0] * 8, pace=keeping_up([1.0] * 8))
    assert (pace.interval_s, pace.advice()) == (28.0, None)


def test_once_it_keeps_up_again_intervals_are_as_planned():
    """Also when the workers that were late are gone."""
    pace = keeping_up([4.0] * 10)
    for number in range(6):
        pace.note(f"w{number}", 1.0, 1.0)
    assert pace.interval_s is None
    gone = keeping_up([4.0] * 8 + [1.0] * 16)
    gone.forget({f"w{number}" for number in range(8, 24)})
    assert gone.interval_s is None
    gone.note("w8", 1.0, 4.0)
    assert gone.interval_s is None


@pytest.mark.parametrize("interval_s", [0.01, 0.25, 1.0, 10.0])
def test_common_ticks_change_neither_the_interval_nor_its_jitter(interval_s):
    starts_s = [1000.0]
    for _ in range(4000):
        starts_s.append(on_tick(starts_s[-1] + jittered(interval_s), interval_s))
    gaps_s = [after - before for before, after in pairwise(starts_s)]
    assert mean(gaps_s) == pytest.approx(interval_s, rel=0.01)
    assert 0.89 * interval_s < min(gaps_s) < 0.95 * interval_s
    assert 1.05 * interval_s < max(gaps_s) < 1.11 * interval_s


def test_workers_that_are_due_at_about_the_same_time_share_a_tick():
    assert len({on_tick(1000 + place / 256, 1.0) for place in range(256)}) <= 11
