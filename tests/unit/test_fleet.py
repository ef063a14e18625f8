"""What stands out among workers."""

from __future__ import annotations

import pytest

from support.samples import changed, failed_sample, sample
from tpumon.fleet import Fleet, Thresholds
from tpumon.model import (
    Cause,
    Finding,
    Handover,
    NotJudged,
    Spread,
    Standing,
    StepTimes,
    Target,
    Workers,
)

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


def rounds(fleet, count, begin=NOW, **idle):
    """So many samples of each worker: all of one step time, since they step together; the last assessment."""
    for i in range(count):
        for worker, ratio in idle.items():
            add(fleet, worker, begin + 10 * i, step=1, idle=ratio)
        assessment = fleet.assess(begin + 10 * i + 1)
    return assessment


def infeeds(fleet, *ratios, begin=NOW):
    """Samples of worker a with these shares of infeed, 10 s apart; its severity after each."""
    found = []
    for i, ratio in enumerate(ratios):
        add(fleet, "a", begin + 10 * i, infeed=ratio)
        found.append(fleet.assess(begin + 10 * i).verdicts["a"].severity)
    return found


FOUR = dict.fromkeys("abcd", "s")
EVEN = dict.fromkeys("abcd", 0.2)


def test_a_straggler_is_named_only_when_it_stays_one():
    """Two samples may be chance; the third makes a verdict, with since when."""
    fleet = fleet_of(FOUR)
    assert rounds(fleet, 2, **EVEN | {"d": 0.1}).verdicts["d"].severity == "ok"
    verdict = rounds(fleet, 1, NOW + 20, **EVEN | {"d": 0.1}).verdicts["d"]
    assert (verdict.severity, words(verdict)) == ("warn", ("own work +12%, others wait for it",))
    assert (verdict.since_unix_s, verdict.causes[0].finding) == (NOW + 20, "straggler")


def test_what_is_slow_comes_first_in_a_list():
    """A list cuts the words: what is left must not say that the straggler waits."""
    fleet = fleet_of(FOUR)
    (of_worker,) = words(rounds(fleet, 3, **EVEN | {"d": 0.1}).verdicts["d"])
    assert of_worker.startswith("own work +12%")
    fleet = fleet_of({"a": None})
    step = StepTimes(avg=1, min=1, max=1)
    cores = tuple({"chip": 3, "core": core, "idle_ratio": idle} for core, idle in enumerate((0.3, 0.2)))
    for i in range(3):
        fleet.add(sample("a", time_unix_s=NOW + 10 * i, step_time_s=step, idle_ratio=0.25, per_core=cores))
        fleet.assess(NOW + 10 * i)
    assert words(fleet.assess(NOW + 20).verdicts["a"]) == ("slow core 1 of chip 3: waits 10 points less",)


def test_looking_again_at_the_same_sample_is_no_further_sample():
    """A redraw must not make a verdict."""
    fleet = fleet_of(FOUR)
    rounds(fleet, 2, **EVEN | {"d": 0.0})
    assert all(fleet.assess(NOW + 11 + i / 10).verdicts["d"].severity == "ok" for i in range(10))
    assert rounds(fleet, 1, NOW + 20, **EVEN | {"d": 0.0}).verdicts["d"].severity != "ok", "but a third one is"


def test_a_straggler_that_waits_like_the_others_again_is_ok_after_three_samples():
    """One such sample may be chance, too."""
    fleet = fleet_of(FOUR)
    rounds(fleet, 4, **EVEN | {"d": 0.1})
    assert rounds(fleet, 1, NOW + 40, **EVEN).verdicts["d"].severity == "warn"
    assert rounds(fleet, 2, NOW + 50, **EVEN).verdicts["d"].severity == "ok"


def test_a_long_step_alone_makes_no_straggler():
    """All wait for the slowest: a worker whose step seems longer than the others', but who waits alike, is none."""
    fleet = fleet_of(FOUR)
    for i in range(6):
        for worker in "abcd":
            add(fleet, worker, NOW + 10 * i, step=2 if worker == "d" else 1, idle=None if i < 3 else 0.2)
        assessment = fleet.assess(NOW + 10 * i)
    assert {verdict.severity for verdict in assessment.verdicts.values()} == {"ok"}


def test_three_samples_in_a_row_make_a_finding_and_two_end_it():
    """Since the first of the three; one between two others ends the row."""
    assert infeeds(fleet_of({"a": None}), 0.1, 0.1, 0.01, 0.1, 0.1) == ["ok"] * 5
    fleet = fleet_of({"a": None})
    assert infeeds(fleet, 0.01, 0.1, 0.1, 0.1) == ["ok", "ok", "ok", "warn"]
    assert fleet.assess(NOW + 31).verdicts["a"].causes[0].since_unix_s == NOW + 10
    assert infeeds(fleet, 0.01, 0.1, 0.01, 0.01, begin=NOW + 40) == ["warn", "warn", "warn", "ok"]


@pytest.mark.parametrize(("first", "severity"), [(0.049, "ok"), (0.06, "warn")])
def test_at_a_limit_nothing_comes_and_goes(first, severity):
    """What is there stays until it is well below the limit; what is not there is not there for single samples."""
    fleet = fleet_of({"a": None})
    infeeds(fleet, first, first, first)
    assert set(infeeds(fleet, *[0.051, 0.051, 0.049] * 10, begin=NOW + 30)) == {severity}
    assert len(fleet.changes.all()) == (severity == "warn")


def test_as_many_samples_as_the_user_wants_must_agree():
    assert infeeds(fleet_of({"a": None}, sustained=1), 0.1) == ["warn"]
    assert infeeds(fleet_of({"a": None}, sustained=5), *[0.1] * 5) == ["ok"] * 4 + ["warn"]


def test_workers_are_compared_within_their_slice():
    """Two jobs that wait differently: nobody stands out among their own."""
    fleet = fleet_of({"a": "busy", "b": "busy", "c": "waits", "d": "waits", "e": "waits"})
    assessment = rounds(fleet, 3, a=0.02, b=0.02, c=0.18, d=0.18, e=0.18)
    assert {verdict.severity for verdict in assessment.verdicts.values()} == {"ok"}


def test_on_a_slice_the_one_that_waits_least_is_named():
    """Idle time and time in collectives are waiting; nobody else is named."""
    fleet = fleet_of(FOUR)
    for i in range(3):
        for worker in "abcd":
            waits = {"idle_ratio": 0.02, "op_time_ratios": {"collective": 0.0 if worker == "d" else 0.38}}
            step = StepTimes(avg=1, min=1, max=1)
            fleet.add(sample(worker, time_unix_s=NOW + 10 * i, step_time_s=step, **waits))
        assessment = fleet.assess(NOW + 10 * i)
    assert words(assessment.verdicts["d"]) == ("own work +63%, others wait for it",)
    assert [w for w, v in assessment.verdicts.items() if v.severity != "ok"] == ["d"]
    (found,) = fleet.findings(NOW + 20)
    assert (found.finding, found.severity, found.workers, found.slice) == ("straggler", "critical", ("d",), "s")


def test_what_cannot_be_judged_is_said():
    """Without idle time nobody knows who waits; that no straggler is named is no all-clear."""
    fleet = fleet_of(FOUR)
    rounds(fleet, 3, **dict.fromkeys("abcd"))
    reasons = {one.finding: (one.reason, one.workers) for one in fleet.not_judged(NOW + 20)}
    reason, workers = reasons["straggler"]
    assert ("idle time is not known" in reason, workers) == (True, 4)


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
        ({"idle": 0.2}, "ok"),
        ({"idle": 0.21}, "warn"),
        ({"idle": 0.99, "infeed": 0.3}, "critical"),
    ],
)
def test_thresholds(figures, severity):
    """XProf's for infeed, 90 and 97 % for HBM, 20 % for idle time; at the limit is not beyond it."""
    fleet = fleet_of({"a": None}, sustained=1)
    add(fleet, "a", **figures)
    verdict = fleet.assess(NOW).verdicts["a"]
    assert verdict.severity == severity
    assert bool(verdict.causes) is (severity != "ok")


def told(worker, findings, at=NOW, **figures):
    """A sample that somebody else has judged."""
    return sample(worker, time_unix_s=at, findings=findings, **figures)


INFEED = {"infeed_ratio": Spread(avg=0.5, min=0.5, max=0.5)}


def test_findings_that_an_exporter_tells_are_those_that_are_shown():
    """It has seen more, and has its own limits: nothing is judged anew, whatever the figures are."""
    fleet = fleet_of({"a": None, "b": None}, sustained=1)
    cause = Cause(words="infeed 7%", finding="input-bound", since_unix_s=NOW - 500)
    for worker, findings in (("a", (cause,)), ("b", ())):
        fleet.add(told(worker, findings, **INFEED))
    verdicts = fleet.assess(NOW).verdicts
    assert (verdicts["a"].severity, verdicts["a"].causes) == ("warn", (cause,))
    assert (verdicts["b"].severity, verdicts["b"].causes) == ("ok", ())

    finding = Finding(finding="input-bound", severity="warning", workers=("a",), sentence="On a, 7% is infeed.")
    missing = NotJudged(finding="straggler", reason="idle time is not known", workers=2)
    fleet.take_over(Handover(complete=True, number=1, findings=(finding,), not_judged=(missing,)))
    assert (fleet.findings(NOW), fleet.not_judged(NOW)) == ((finding,), (missing,))


def test_samples_between_those_that_come_with_findings_change_nothing():
    """Of those that come together only the last is told with findings: nor after a gap, nor when a view attaches."""
    cause = Cause(words="infeed 50%", finding="input-bound", severity="critical", since_unix_s=NOW - 500)
    standing = Standing(worker="a", state="live", severity="critical", ok=False,
                        ok_since_unix_s=NOW - 500, critical_since_unix_s=NOW - 400)  # fmt: skip
    fleet = fleet_of({"a": None})
    fleet.take_over(Handover(complete=True, number=1, standings=(standing,), findings=(), not_judged=()))
    for at, findings in [(0, None), (10, None), (20, (cause,)), (300, None), (310, None), (320, (cause,))]:
        if at == 300:
            assert fleet.assess(NOW + 299).verdicts["a"].mark == "stale"
        fleet.add(told("a", findings, NOW + at))
        verdict = fleet.assess(NOW + at).verdicts["a"]
        assert verdict.mark == "critical"
        assert (verdict.since_unix_s, verdict.critical_since_unix_s) == (NOW - 500, NOW - 400)


def test_an_exporter_that_does_not_judge_leaves_it_to_the_reader():
    """An old one: its samples are judged here."""
    fleet = fleet_of({"a": None}, sustained=1)
    fleet.take_over(Handover(complete=True, number=1))
    fleet.add(told("a", None, **INFEED))
    assert words(fleet.assess(NOW).verdicts["a"]) == ("infeed 50%",)
    assert [one.finding for one in fleet.findings(NOW)] == ["input-bound"]


def test_what_is_worth_knowing_marks_nobody():
    """`info` is told with the others, but the worker is ok."""
    fleet = fleet_of({"a": None})
    cause = Cause(words="many collectives", finding="collective-bound", severity="info", excess=0.5)
    fleet.add(told("a", (cause,)))
    assessment = fleet.assess(NOW)
    verdict = assessment.verdicts["a"]
    assert (verdict.severity, verdict.mark, verdict.causes) == ("ok", "ok", (cause,))
    assert (assessment.counts, fleet.changes.all()) == ({"ok": 1}, [])


def test_a_sample_is_handed_on_with_the_findings_of_its_worker():
    """The last one only; one with none says so, which is another thing than not to be judged."""
    fleet = fleet_of({"a": None, "b": None}, sustained=1)
    early, late = (sample("a", time_unix_s=NOW + at, **INFEED) for at in (0, 10))
    well = sample("b", time_unix_s=NOW)
    for one in (early, late, well):
        fleet.add(one)
    fleet.assess(NOW + 10)
    assert [one.finding for one in fleet.with_findings(late).findings] == ["input-bound"]
    assert (fleet.with_findings(well).findings, fleet.with_findings(early)) == ((), early)
    assert fleet.judged("a")["input-bound"].finding == "input-bound"
    assert "straggler" not in fleet.judged("a"), "it cannot be judged"


def test_the_worst_cause_stands_first():
    """Who reads only the first cause reads the one that decides."""
    fleet = fleet_of({"a": None}, sustained=1)
    add(fleet, "a", infeed=0.1, hbm=99)
    assert words(fleet.assess(NOW).verdicts["a"]) == ("HBM 99% full", "infeed 10%")


def test_of_causes_that_are_equally_bad_the_more_telling_is_first():
    """As findings are ordered: how far figures are off is not comparable."""
    fleet = fleet_of({"a": None}, sustained=1)
    add(fleet, "a", idle=0.9, infeed=0.1)
    add(fleet, "a", infeed=0.06, hbm=96)
    causes = fleet.assess(NOW).verdicts["a"].causes
    assert [cause.finding for cause in causes] == ["input-bound", "hbm-nearly-full"]
    assert causes[0].excess > 0


def test_a_worker_on_which_nothing_runs_says_so_without_runtime_metrics():
    """The finding stands before why the query has failed, and marks nobody at first."""
    fleet = fleet_of({"a": None})
    add(fleet, "a", step=1)
    for i in range(1, 4):
        add(fleet, "a", NOW + 10 * i, reason="empty-trace")
        verdict = fleet.assess(NOW + 10 * i).verdicts["a"]
    assert (verdict.state, words(verdict)) == ("no-activity", ("nothing runs for 30 s", "empty-trace"))
    assert verdict.causes[0].severity == "info"


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


def test_a_sample_that_comes_when_it_is_no_longer_current_is_judged():
    """By the others, who are."""
    fleet = fleet_of(FOUR)
    rounds(fleet, 3, NOW - 60, **EVEN)
    for worker in "abc":
        add(fleet, worker, NOW + 10, step=1, idle=0.2)
    add(fleet, "d", NOW - 20, step=1, idle=0.1)
    assert fleet.assess(NOW + 10).verdicts["d"].mark == "stale"


def test_workers_that_nobody_named_together_are_compared_with_none():
    """Several jobs of one host: one that never waits is no straggler of the others."""
    fleet = Fleet()
    fleet.follow(Workers(targets=tuple(Target(worker=w, address=f"{w}:1", independent=True) for w in "abc")))
    assessment = rounds(fleet, 3, a=0.2, b=0.2, c=0.0)
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
    """Who waits much less than the others is worse than who waits a little less."""
    fleet = fleet_of(dict.fromkeys("abcdefg", "s"))
    verdicts = rounds(fleet, 3, **dict.fromkeys("abcde", 0.4), f=0.2, g=0.0).verdicts
    assert verdicts["f"].severity == verdicts["g"].severity == "critical"
    assert verdicts["g"].excess > verdicts["f"].excess > verdicts["a"].excess == 0
