"""What stands out among workers."""

from __future__ import annotations

import pytest

from support.samples import changed, failed_sample, sample
from tpumon.analysis import Analysis
from tpumon.analysis.findings import Thresholds
from tpumon.model import (
    Cause,
    ExporterSnapshot,
    Finding,
    NotJudged,
    Spread,
    StatusSnapshot,
    StepTimes,
    Target,
    Workers,
)

NOW = 1_000_000.0


def words(verdict):
    return tuple(cause.words for cause in verdict.causes)


def fleet_of(workers, **limits):
    """A fleet of workers, given as name: slice, or name: (job, slice)."""
    fleet = Analysis(Thresholds(**limits))
    places = {w: place if isinstance(place, tuple) else (None, place) for w, place in workers.items()}
    fleet.add(
        Workers(targets=tuple(Target(worker=w, address=f"{w}:1", job=j, slice=s) for w, (j, s) in places.items()))
    )
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
    """So many samples of each worker: all of one step time, since they step together; the last status."""
    for i in range(count):
        for worker, ratio in idle.items():
            add(fleet, worker, begin + 10 * i, step=1, idle=ratio)
        status = fleet.status(begin + 10 * i + 1)
    return status


def infeeds(fleet, *ratios, begin=NOW):
    """Samples of worker a with these shares of infeed, 10 s apart; its severity after each."""
    found = []
    for i, ratio in enumerate(ratios):
        add(fleet, "a", begin + 10 * i, infeed=ratio)
        found.append(fleet.status(begin + 10 * i).workers["a"].verdict.severity)
    return found


FOUR = dict.fromkeys("abcd", "s")
EVEN = dict.fromkeys("abcd", 0.2)


def test_a_straggler_is_named_only_when_it_stays_one():
    """Two samples may be chance; the third makes a verdict, with since when."""
    fleet = fleet_of(FOUR)
    assert rounds(fleet, 2, **EVEN | {"d": 0.1}).workers["d"].verdict.severity == "ok"
    verdict = rounds(fleet, 1, NOW + 20, **EVEN | {"d": 0.1}).workers["d"].verdict
    assert (verdict.severity, words(verdict)) == ("warning", ("own work +12% or more, others wait for it",))
    assert (verdict.since_unix_s, verdict.causes[0].finding) == (NOW, "straggler")


def test_what_is_slow_comes_first_in_a_list():
    """A list cuts the words: what is left must not say that the straggler waits."""
    fleet = fleet_of(FOUR)
    (of_worker,) = words(rounds(fleet, 3, **EVEN | {"d": 0.1}).workers["d"].verdict)
    assert of_worker.startswith("own work +12%")
    fleet = fleet_of({"a": None})
    step = StepTimes(avg=1, min=1, max=1)
    cores = tuple({"chip": 3, "core": core, "idle_ratio": idle} for core, idle in enumerate((0.3, 0.2)))
    for i in range(3):
        fleet.add(sample("a", time_unix_s=NOW + 10 * i, step_time_s=step, idle_ratio=0.25, per_core=cores))
        fleet.status(NOW + 10 * i)
    assert words(fleet.status(NOW + 20).workers["a"].verdict) == ("slow core 1 of chip 3: the others wait for it",)
    fleet = fleet_of(FOUR)
    for i in range(3):
        for worker, idle in (EVEN | {"d": 0.1}).items():
            cores = tuple({"chip": 3, "core": core, "idle_ratio": idle + 0.1 * core} for core in range(2))
            fleet.add(sample(worker, time_unix_s=NOW + 10 * i, step_time_s=step, idle_ratio=idle, per_core=cores))
            fleet.status(NOW + 10 * i)
    slow = ("slow core 0 of chip 3: own work +12% or more, others wait for it",)
    assert words(fleet.status(NOW + 20).workers["d"].verdict) == slow


def test_looking_again_at_the_same_sample_is_no_further_sample():
    """A redraw must not make a verdict."""
    fleet = fleet_of(FOUR)
    rounds(fleet, 2, **EVEN | {"d": 0.0})
    assert all(fleet.status(NOW + 11 + i / 10).workers["d"].verdict.severity == "ok" for i in range(10))
    assert rounds(fleet, 1, NOW + 20, **EVEN | {"d": 0.0}).workers["d"].verdict.severity != "ok", "but a third one is"


def test_a_straggler_that_waits_like_the_others_again_is_ok_after_three_samples():
    """One such sample may be chance, too."""
    fleet = fleet_of(FOUR)
    rounds(fleet, 4, **EVEN | {"d": 0.1})
    assert rounds(fleet, 1, NOW + 40, **EVEN).workers["d"].verdict.severity == "warning"
    assert rounds(fleet, 2, NOW + 50, **EVEN).workers["d"].verdict.severity == "ok"


def test_a_long_step_alone_makes_no_straggler():
    """All wait for the slowest: a worker whose step seems longer than the others', but who waits alike, is none."""
    fleet = fleet_of(FOUR)
    for i in range(6):
        for worker in "abcd":
            add(fleet, worker, NOW + 10 * i, step=2 if worker == "d" else 1, idle=None if i < 3 else 0.2)
        status = fleet.status(NOW + 10 * i)
    assert {worker.verdict.severity for worker in status.all()} == {"ok"}


def test_three_samples_in_a_row_make_a_finding_and_two_end_it():
    """Since the first of the three; one between two others ends the row."""
    assert infeeds(fleet_of({"a": None}), 0.1, 0.1, 0.01, 0.1, 0.1) == ["ok"] * 5
    fleet = fleet_of({"a": None})
    assert infeeds(fleet, 0.01, 0.1, 0.1, 0.1) == ["ok", "ok", "ok", "warning"]
    assert fleet.status(NOW + 31).workers["a"].verdict.causes[0].since_unix_s == NOW + 10
    assert infeeds(fleet, 0.01, 0.1, 0.01, 0.01, begin=NOW + 40) == ["warning", "warning", "warning", "ok"]


@pytest.mark.parametrize(("first", "severity"), [(0.049, "ok"), (0.06, "warning")])
def test_at_a_limit_nothing_comes_and_goes(first, severity):
    """What is there stays until it is well below the limit; what is not there is not there for single samples."""
    fleet = fleet_of({"a": None})
    infeeds(fleet, first, first, first)
    assert set(infeeds(fleet, *[0.051, 0.051, 0.049] * 10, begin=NOW + 30)) == {severity}
    assert len(fleet.status(NOW + 320).changes) == (severity == "warning")


def test_as_many_samples_as_the_user_wants_must_agree():
    assert infeeds(fleet_of({"a": None}, sustained=1), 0.1) == ["warning"]
    assert infeeds(fleet_of({"a": None}, sustained=5), *[0.1] * 5) == ["ok"] * 4 + ["warning"]


def test_workers_are_compared_within_their_job_and_slice():
    """Two jobs that wait differently: nobody stands out among their own."""
    busy, waits = ("busy", "0"), ("waits", "0")
    fleet = fleet_of({"a": busy, "b": busy, "c": waits, "d": waits, "e": waits})
    status = rounds(fleet, 3, a=0.02, b=0.02, c=0.18, d=0.18, e=0.18)
    assert {worker.verdict.severity for worker in status.all()} == {"ok"}


def test_on_a_slice_the_one_that_waits_least_is_named():
    """Idle time and time in collectives are waiting; nobody else is named."""
    fleet = fleet_of(FOUR)
    for i in range(3):
        for worker in "abcd":
            waits = {"idle_ratio": 0.02, "op_time_ratios": {"collective": 0.0 if worker == "d" else 0.38}}
            step = StepTimes(avg=1, min=1, max=1)
            fleet.add(sample(worker, time_unix_s=NOW + 10 * i, step_time_s=step, **waits))
        status = fleet.status(NOW + 10 * i)
    assert words(status.workers["d"].verdict) == ("own work +63%, others wait for it",)
    assert [each.name for each in status.all() if each.verdict.severity != "ok"] == ["d"]
    (found,) = status.findings
    assert (found.finding, found.severity, found.workers, found.slice) == ("straggler", "critical", ("d",), "s")


def test_what_cannot_be_judged_is_said():
    """Without idle time nobody knows who waits; that no straggler is named is no all-clear."""
    fleet = fleet_of(FOUR)
    rounds(fleet, 3, **dict.fromkeys("abcd"))
    reasons = {one.finding: (one.reason, one.workers) for one in fleet.status(NOW + 20).not_judged()}
    reason, workers = reasons["straggler"]
    assert ("idle time is not known" in reason, workers) == (True, 4)


@pytest.mark.parametrize(
    ("figures", "severity"),
    [
        ({"infeed": 0.05}, "ok"),
        ({"infeed": 0.051}, "warning"),
        ({"infeed": 0.21}, "critical"),
        ({"hbm": 90}, "ok"),
        ({"hbm": 91}, "warning"),
        ({"hbm": 98}, "critical"),
        ({"hbm": 91, "infeed": 0.3}, "critical"),
        ({"idle": 0.2}, "ok"),
        ({"idle": 0.21}, "warning"),
        ({"idle": 0.99, "infeed": 0.3}, "critical"),
    ],
)
def test_thresholds(figures, severity):
    """XProf's for infeed, 90 and 97 % for HBM, 20 % for idle time; at the limit is not beyond it."""
    fleet = fleet_of({"a": None}, sustained=1)
    add(fleet, "a", **figures)
    verdict = fleet.status(NOW).workers["a"].verdict
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
    finding = Finding(finding="input-bound", severity="warning", workers=("a",), sentence="On a, 7% is infeed.")
    missing = NotJudged(finding="straggler", reason="idle time is not known", workers=2)
    fleet.add(ExporterSnapshot(complete=True, number=1, findings=(finding,), not_judged=(missing,)))
    for worker, findings in (("a", (cause,)), ("b", ())):
        fleet.add(told(worker, findings, **INFEED))
    a, b = (fleet.status(NOW).workers[worker].verdict for worker in "ab")
    assert (a.severity, a.causes) == ("warning", (cause,))
    assert (b.severity, b.causes) == ("ok", ())
    assert (fleet.status(NOW).findings, fleet.status(NOW).not_judged()) == ((finding,), (missing,))


def test_samples_between_those_that_come_with_findings_change_nothing():
    """Of those that come together only the last is told with findings: nor after a gap, nor when a view attaches."""
    cause = Cause(words="infeed 50%", finding="input-bound", severity="critical", since_unix_s=NOW - 500)
    standing = StatusSnapshot(worker="a", state="live", severity="critical", ok=False,
                        ok_since_unix_s=NOW - 500, critical_since_unix_s=NOW - 400)  # fmt: skip
    fleet = fleet_of({"a": None})
    fleet.add(ExporterSnapshot(complete=True, number=1, statuses=(standing,), findings=(), not_judged=()))
    for at, findings in [(0, None), (10, None), (20, (cause,)), (300, None), (310, None), (320, (cause,))]:
        if at == 300:
            assert fleet.status(NOW + 299).workers["a"].verdict.status == "stale"
        fleet.add(told("a", findings, NOW + at))
        verdict = fleet.status(NOW + at).workers["a"].verdict
        assert verdict.status == "critical"
        assert (verdict.since_unix_s, verdict.critical_since_unix_s) == (NOW - 500, NOW - 400)


def test_an_exporter_that_does_not_judge_leaves_it_to_the_reader():
    """An old one: its samples are judged here."""
    fleet = fleet_of({"a": None}, sustained=1)
    fleet.add(ExporterSnapshot(complete=True, number=1))
    fleet.add(told("a", None, **INFEED))
    assert words(fleet.status(NOW).workers["a"].verdict) == ("infeed 50%",)
    assert [one.finding for one in fleet.status(NOW).findings] == ["input-bound"]


def test_what_is_worth_knowing_marks_nobody():
    """`info` is told with the others, and is no change."""
    fleet = fleet_of({"a": None})
    cause = Cause(words="many collectives", finding="collective-bound", severity="info", excess=0.5)
    fleet.add(told("a", (cause,)))
    status = fleet.status(NOW)
    verdict = status.workers["a"].verdict
    assert (verdict.severity, verdict.status, verdict.causes) == ("info", "info", (cause,))
    assert (status.counts(), status.changes) == ({"info": 1}, ())


def test_a_sample_is_handed_on_with_the_findings_of_its_worker():
    """One with none says so, which is another thing than not to be judged."""
    fleet = fleet_of({"a": None, "b": None}, sustained=1)
    early, late = (sample("a", time_unix_s=NOW + at, **INFEED) for at in (0, 10))
    well = sample("b", time_unix_s=NOW)
    found = [[cause.finding for cause in fleet.add(one).sample.findings] for one in (early, late, well)]
    assert found == [["input-bound"], ["input-bound"], []]
    a = fleet.status(NOW + 10).workers["a"]
    assert a.history.last.findings == a.verdict.causes
    assert a.findings["input-bound"] is not None
    assert "straggler" not in a.findings, "it cannot be judged"


def test_the_worst_cause_stands_first():
    """Who reads only the first cause reads the one that decides."""
    fleet = fleet_of({"a": None}, sustained=1)
    add(fleet, "a", infeed=0.1, hbm=99)
    assert words(fleet.status(NOW).workers["a"].verdict) == ("HBM 99% full", "infeed 10%")


def test_of_causes_that_are_equally_bad_the_more_telling_is_first():
    """As findings are ordered: how far figures are off is not comparable."""
    fleet = fleet_of({"a": None}, sustained=1)
    add(fleet, "a", idle=0.9, infeed=0.1)
    add(fleet, "a", infeed=0.06, hbm=96)
    causes = fleet.status(NOW).workers["a"].verdict.causes
    assert [cause.finding for cause in causes] == ["input-bound", "hbm-nearly-full"]
    assert causes[0].excess > 0


def test_a_worker_on_which_nothing_runs_says_so_without_runtime_metrics():
    """The finding says it, in place of why the query has failed, and marks nobody at first."""
    fleet = fleet_of({"a": None})
    add(fleet, "a", step=1)
    for i in range(1, 4):
        add(fleet, "a", NOW + 10 * i, reason="empty-trace")
        verdict = fleet.status(NOW + 10 * i).workers["a"].verdict
    assert (verdict.state, words(verdict)) == ("no-activity", ("no activity seen for 30 s",))
    assert verdict.causes[0].severity == "info"


def test_what_does_not_answer_is_critical_and_says_why():
    """A worker that is down is judged by its state; its failure is the cause."""
    fleet = fleet_of({"a": None, "b": None})
    add(fleet, "a", reason="unavailable")
    add(fleet, "b", step=1)
    status = fleet.status(NOW)
    verdict = status.workers["a"].verdict
    assert (verdict.state, verdict.severity, words(verdict)) == ("down", "critical", ("unavailable",))
    assert status.counts() == {"down": 1, "ok": 1}
    assert verdict.rank < status.workers["b"].verdict.rank


def test_figures_across_the_fleet_are_of_those_that_have_them_now():
    """A stale worker and one without the figure do not count; how many do is told."""
    fleet = fleet_of(FOUR)
    add(fleet, "a", step=1)
    add(fleet, "b", step=3)
    add(fleet, "c", NOW - 100, step=1000)
    across = fleet.status(NOW).figures()["step"]
    assert (across.count, across.min, across.avg, across.max) == (2, 1, 2, 3)
    assert "infeed" not in fleet.status(NOW).figures()


def test_a_sample_that_comes_when_it_is_no_longer_current_is_judged():
    """By the others, who are."""
    fleet = fleet_of(FOUR)
    rounds(fleet, 3, NOW - 60, **EVEN)
    for worker in "abc":
        add(fleet, worker, NOW + 10, step=1, idle=0.2)
    add(fleet, "d", NOW - 20, step=1, idle=0.1)
    assert fleet.status(NOW + 10).workers["d"].verdict.status == "stale"


def test_a_late_sample_of_a_stale_worker_is_no_recovery():
    """It stays stale, for as long as it was, without a change; a current one ends that."""
    fleet = fleet_of(FOUR)
    rounds(fleet, 3, NOW - 60, **EVEN)
    add(fleet, "a", NOW, step=1, idle=0.2)
    before = fleet.status(NOW + 1)
    for at in (NOW - 45, NOW - 30):
        add(fleet, "d", at, step=1, idle=0.1)
        status = fleet.status(NOW + 2)
        assert status.workers["d"].verdict.status == "stale"
        assert status.workers["d"].verdict.since_unix_s == before.workers["d"].verdict.since_unix_s
        assert status.changes == before.changes
    add(fleet, "d", NOW + 2, step=1, idle=0.1)
    assert [change.status for change in fleet.status(NOW + 4).changes if change.worker == "d"] == ["stale", "ok"]


def test_workers_that_nobody_named_together_are_compared_with_none():
    """Several jobs of one host: one that never waits is no straggler of the others."""
    fleet = Analysis()
    fleet.add(Workers(targets=tuple(Target(worker=w, address=f"{w}:1", independent=True) for w in "abc")))
    status = rounds(fleet, 3, a=0.2, b=0.2, c=0.0)
    assert {worker.verdict.severity for worker in status.all()} == {"ok"}


def test_runtime_metrics_alone_are_not_ok():
    """A worker whose profiler is gone is not known to be well; its HBM is judged all the same."""
    fleet = fleet_of({"a": None})
    alone = failed_sample(
        "a", message="a: connection refused", time_unix_s=NOW, window_s=None, source="runtime", hbm_used_bytes=50,
        hbm_total_bytes=100,
    )  # fmt: skip
    fleet.add(alone)
    status = fleet.status(NOW)
    verdict = status.workers["a"].verdict
    assert (verdict.state, verdict.severity, words(verdict)) == ("live", "unknown", ("a: connection refused",))
    assert status.counts() == {"unknown": 1}
    assert status.figures()["hbm"].max == 0.5
    fleet.add(changed(alone, hbm_used_bytes=99))
    assert fleet.status(NOW).workers["a"].verdict.severity == "critical"


def test_excess_tells_the_worst_of_the_same_severity():
    """Who waits much less than the others is worse than who waits a little less."""
    fleet = fleet_of(dict.fromkeys("abcdefg", "s"))
    workers = rounds(fleet, 4, **dict.fromkeys("abcde", 0.4), f=0.2, g=0.0).workers
    verdicts = {name: each.verdict for name, each in workers.items()}
    assert verdicts["f"].severity == verdicts["g"].severity == "critical"
    assert verdicts["g"].excess > verdicts["f"].excess > verdicts["a"].excess == 0
