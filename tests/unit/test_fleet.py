"""What stands out among workers."""

from __future__ import annotations

import pytest

from support.samples import changed, failed_sample, sample
from tpumon.fleet import Fleet, Thresholds
from tpumon.model import Spread, StepTimes, Target, Workers

NOW = 1_000_000.0


def words(verdict):
    return tuple(cause.words for cause in verdict.causes)


def fleet_of(workers, **limits):
    """A fleet of workers, given as name: slice."""
    fleet = Fleet(Thresholds(**limits))
    fleet.follow(Workers(targets=tuple(Target(worker=w, address=f"{w}:1", slice=s) for w, s in workers.items())))
    return fleet


def add(fleet, worker, at=NOW, *, step=None, idle=None, infeed=None, hbm=None, reason=None):
    """One sample: a step of so many seconds, or a failure."""
    if reason is not None:
        fleet.add(failed_sample(worker, reason, time_unix_s=at))
        return
    fleet.add(
        sample(
            worker, time_unix_s=at,
            step_time_s=None if step is None else StepTimes(avg=step, min=step, max=step),
            idle_ratio=idle,
            infeed_ratio=None if infeed is None else Spread(avg=infeed, min=infeed, max=infeed),
            devices=() if hbm is None else ({"device": "0", "hbm_used_bytes": hbm, "hbm_total_bytes": 100},),
        )
    )  # fmt: skip


def rounds(fleet, count, **steps):
    """So many samples of each worker with that step time; the last assessment."""
    for i in range(count):
        for worker, step in steps.items():
            add(fleet, worker, NOW + 10 * i, step=step)
        assessment = fleet.assess(NOW + 10 * i + 1)
    return assessment


FOUR = dict.fromkeys("abcd", "s")


def test_a_slow_worker_is_named_only_when_it_stays_slow():
    """Two slow samples may be chance; the third makes a verdict, with since when."""
    fleet = fleet_of(FOUR)
    assert rounds(fleet, 2, a=1, b=1, c=1, d=1.2).verdicts["d"].severity == "ok"
    add(fleet, "d", NOW + 20, step=1.2)
    verdict = fleet.assess(NOW + 21).verdicts["d"]
    assert (verdict.severity, words(verdict), verdict.since_unix_s) == ("warn", ("step 1.20x the median",), NOW + 20)


def test_looking_again_at_the_same_sample_is_no_further_sample():
    """A redraw must not make a verdict."""
    fleet = fleet_of(FOUR)
    rounds(fleet, 1, a=1, b=1, c=1, d=2)
    assert all(fleet.assess(NOW + 1 + i / 10).verdicts["d"].severity == "ok" for i in range(10))


def test_one_good_sample_ends_it():
    """A worker that is as fast as the others is ok at once."""
    fleet = fleet_of(FOUR)
    assert rounds(fleet, 3, a=1, b=1, c=1, d=2).verdicts["d"].severity == "critical"
    add(fleet, "d", NOW + 30, step=1)
    assert fleet.assess(NOW + 31).verdicts["d"].severity == "ok"


def test_medians_are_taken_within_a_slice():
    """Two jobs of different pace: nobody is slow among their own."""
    fleet = fleet_of({"a": "fast", "b": "fast", "c": "slow", "d": "slow", "e": "slow"})
    assessment = rounds(fleet, 3, a=1, b=1, c=5, d=5, e=5)
    assert {verdict.severity for verdict in assessment.verdicts.values()} == {"ok"}


def test_on_a_slice_the_one_that_waits_least_is_named():
    """All step together, so step times are equal; the straggler is the one that does not idle."""
    fleet = fleet_of(FOUR)
    for i in range(3):
        for worker in "abcd":
            add(fleet, worker, NOW + 10 * i, step=1, idle=0.02 if worker == "d" else 0.4)
        assessment = fleet.assess(NOW + 10 * i)
    assert words(assessment.verdicts["d"]) == ("idle 2%, median 40%: others wait for it",)
    assert [w for w, v in assessment.verdicts.items() if v.severity != "ok"] == ["d"]


@pytest.mark.parametrize(
    ("figures", "severity"),
    [
        ({"infeed": 0.05}, "ok"),
        ({"infeed": 0.051}, "warn"),
        ({"infeed": 0.21}, "critical"),
        ({"hbm": 90}, "ok"),
        ({"hbm": 91}, "warn"),
        ({"hbm": 98}, "critical"),
        ({"hbm": 91, "infeed": 0.3}, "critical"),
        ({"idle": 0.99}, "ok"),
    ],
)
def test_thresholds(figures, severity):
    """XProf's for infeed, 90 and 97 % for HBM; at the limit is not beyond it; idle alone is no fault."""
    fleet = fleet_of({"a": None})
    add(fleet, "a", **figures)
    verdict = fleet.assess(NOW).verdicts["a"]
    assert verdict.severity == severity
    assert bool(verdict.causes) is (severity != "ok")


def test_the_worst_cause_stands_first():
    """Who reads only the first cause reads the one that decides."""
    fleet = fleet_of({"a": None})
    add(fleet, "a", infeed=0.1, hbm=99)
    assert words(fleet.assess(NOW).verdicts["a"]) == ("HBM 99% full", "infeed 10%")


def test_what_does_not_answer_has_no_severity_but_a_reason():
    """A worker that is down is judged by its state; its failure is the cause."""
    fleet = fleet_of({"a": None, "b": None})
    add(fleet, "a", reason="unavailable")
    add(fleet, "b", step=1)
    assessment = fleet.assess(NOW)
    verdict = assessment.verdicts["a"]
    assert (verdict.state, verdict.severity, words(verdict)) == ("down", "unknown", ("unavailable",))
    assert assessment.counts == {"down": 1, "ok": 1}
    assert verdict.rank < assessment.verdicts["b"].rank


def test_figures_across_the_fleet_are_of_those_that_have_them_now():
    """A stale worker and one without the figure do not count; how many do is told."""
    fleet = fleet_of(FOUR)
    add(fleet, "a", step=1)
    add(fleet, "b", step=3)
    add(fleet, "c", NOW - 100, step=1000)
    across = fleet.assess(NOW).figures["step"]
    assert (across.count, across.min, across.avg, across.max) == (2, 1, 2, 3)
    assert "infeed" not in fleet.assess(NOW).figures


def test_workers_that_nobody_named_together_are_compared_with_none():
    """Several jobs of one host: a slow one is no straggler of the others."""
    fleet = Fleet()
    fleet.follow(Workers(targets=tuple(Target(worker=w, address=f"{w}:1", independent=True) for w in "abc")))
    assessment = rounds(fleet, 3, a=1, b=1, c=20)
    assert {verdict.severity for verdict in assessment.verdicts.values()} == {"ok"}


def test_runtime_metrics_alone_are_not_ok():
    """A worker whose profiler is gone is not known to be well; its HBM is judged all the same."""
    fleet = fleet_of({"a": None})
    alone = failed_sample(
        "a", message="a: connection refused", time_unix_s=NOW, window_s=None, source="runtime", hbm_used_bytes=50,
        hbm_total_bytes=100,
    )  # fmt: skip
    fleet.add(alone)
    assessment = fleet.assess(NOW)
    verdict = assessment.verdicts["a"]
    assert (verdict.state, verdict.severity, words(verdict)) == ("live", "unknown", ("a: connection refused",))
    assert assessment.counts == {"unknown": 1}
    assert assessment.figures["hbm"].max == 0.5
    fleet.add(changed(alone, hbm_used_bytes=99))
    assert fleet.assess(NOW).verdicts["a"].severity == "critical"


def test_excess_tells_the_worst_of_the_same_severity():
    """A step of three times the median is worse than one of 1.3 times."""
    fleet = fleet_of(dict.fromkeys("abcdefg", "s"))
    verdicts = rounds(fleet, 3, a=1, b=1, c=1, d=1, e=1, f=1.3, g=3).verdicts
    assert verdicts["g"].excess > verdicts["f"].excess > verdicts["a"].excess == 0
