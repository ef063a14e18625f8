"""Since when a worker is as it is, what counts as a change, and how many changes are remembered."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from support.exporter import found
from support.samples import failed_sample, sample
from support.scenes import BEGIN_UNIX_S, Scene
from tpumon.analysis import Analysis
from tpumon.analysis.fleet_verdict import verdict_on
from tpumon.analysis.history import Changes, Histories, Moment, ReportedStatus, StatusTimeline
from tpumon.analysis.history.changes import MOST_CHANGES, MOST_OF_A_WORKER
from tpumon.analysis.playback import played
from tpumon.analysis.recorded_clock import RecordedClock
from tpumon.model import Change, Process, Spread, StepTimes, Target, Workers

NOW = 1_800_000_000.0


def timeline_of(*marks):
    """What was noted every 10 s, and what each note changed."""
    timeline = StatusTimeline()
    whats = []
    for i, mark in enumerate(marks):
        live = mark in {"ok", "warning", "critical", "unknown"}
        whats.append(timeline.note(Moment(10.0 * i), "live" if live else mark, mark if live else "unknown"))
    return timeline, whats


@pytest.mark.parametrize(
    ("marks", "since_s"),
    [
        (["ok", "ok"], 0),
        (["ok", "warning", "critical", "warning"], 10),
        (["ok", "busy", "busy", "ok"], 0),
        (["ok", "continuous", "paused", "stale", "ok"], 0),
        (["critical", "busy", "critical"], 0),
        (["ok", "busy", "busy"], 10),
        (["ok", "busy", "critical"], 20),
        (["ok", "down", "ok"], 20),
        (["ok", "no-activity", "ok"], 20),
        (["critical", "down", "warning"], 0),
        (["critical", "no-activity", "critical"], 0),
        (["ok", "down", "down"], 10),
        (["ok", "unknown", "ok"], 0),
        (["ok", "unknown", "unknown"], 10),
        (["ok", "no-activity", "stale", "busy", "no-activity"], 10),
        (["ok", "down", "paused", "down"], 10),
        (["down", "stale", "no-activity"], 20),
        (["down", "stale", "down", "no-activity", "busy", "down"], 50),
    ],
)
def test_since_when(marks, since_s):
    """Gaps that say nothing about a worker restart nothing, nor does trouble that changes its severity."""
    timeline, _ = timeline_of(*marks)
    assert timeline.since == Moment(since_s)


def test_when_it_became_critical_is_remembered_beside_when_trouble_began():
    timeline, _ = timeline_of("ok", "warning", "critical", "busy", "critical")
    assert (timeline.since, timeline.critical_since) == (Moment(10), Moment(20))
    timeline, _ = timeline_of("critical", "warning")
    assert timeline.critical_since is None


def test_a_restarted_job_begins_anew():
    """Its trouble is not that of the job before."""
    timeline, _ = timeline_of("critical", "down")
    timeline.note(Moment(20), "live", "critical", restarted=True)
    assert (timeline.since, timeline.critical_since) == (Moment(20), Moment(20))


@pytest.mark.parametrize(
    ("marks", "whats"),
    [
        (["ok", "ok"], [None, None]),
        (["down", "down", "ok"], ["state", None, "state"]),
        (["ok", "warning", "critical", "ok"], [None, "severity", "severity", "severity"]),
        (["ok", "busy", "continuous", "ok"], [None, "capture-began", "state", "capture-ended"]),
        (["ok", "busy", "down"], [None, "capture-began", "capture-ended"]),
        (["critical"], ["state"]),
    ],
)
def test_what_changed(marks, whats):
    """Each change once; to be well from the first is none."""
    assert timeline_of(*marks)[1] == whats


def told_of(marks, interval_s=10.0):
    """Of a worker that counts as this from query to query, what is told: when, since when, and as what."""
    told, letters = (
        ReportedStatus(),
        {"o": "ok", "n": "no-activity", "w": "warning", "c": "critical", "d": "down", "b": "busy"},
    )
    for place, letter in enumerate(marks):
        at = Moment(interval_s * place)
        if (since := told.note(at, letters[letter], interval_s)) is not None:
            yield place, int(since.time_unix_s / interval_s), letter


@pytest.mark.parametrize(
    ("marks", "told"),
    [
        ("oooo", []),
        ("onooo", [(1, 1, "n"), (4, 2, "o")]),  # an end is told once it lasts
        ("ononoonnooooo", [(1, 1, "n"), (12, 8, "o")]),  # and that is longer than between two pauses
        ("onoon" + "won" * 9 + "wwwww" + "ooooo", [(1, 1, "n"), (5, 5, "w"), (41, 37, "o")]),
        ("onoo" + "wwnn" * 5 + "oooooo", [(1, 1, "n"), (4, 4, "w"), (28, 24, "o")]),
        ("onooonnnnn", [(1, 1, "n"), (4, 2, "o"), (7, 5, "n")]),  # a hang soon after a pause
        ("onnnnooonnnnnnnnnnnnn", [(1, 1, "n"), (7, 5, "o"), (14, 8, "n")]),  # after a long one
        ("ocococ", [(1, 1, "c")]),
        ("ococooocooooooo", [(1, 1, "c"), (6, 4, "o"), (7, 7, "c"), (14, 8, "o")]),  # what is critical never waits
        ("odoodoo", [(1, 1, "d"), (2, 2, "o"), (4, 4, "d")]),  # an answer between two outages is told
        ("ondndd", [(1, 1, "n"), (2, 2, "d"), (3, 3, "n"), (4, 4, "d")]),  # also one without figures
        ("o" + "do" * 9, [(1, 1, "d"), (2, 2, "o"), (3, 3, "d")]),  # not each of many
        ("odooodooooooo", [(1, 1, "d"), (2, 2, "o"), (5, 5, "d"), (12, 6, "o")]),
        ("wcwcwww", [(0, 0, "w"), (1, 1, "c"), (6, 4, "w")]),
        ("obobo", [(1, 1, "b"), (2, 2, "o"), (3, 3, "b"), (4, 4, "o")]),  # captures are all told
        ("o" + "n" * 70 + "o", [(1, 1, "n"), (71, 71, "o")]),  # long ago is not again
    ],
)
def test_what_comes_and_goes_is_told_once(marks, told):
    """What is new, and what is critical, at once; what comes again only when it lasts, from when it began."""
    assert list(told_of(marks)) == told


def test_a_compile_storm_is_told_when_it_begins_as_a_warning_and_when_it_ends():
    """However often its pauses fall into a sample."""
    scene, fleet = Scene("recompiling@30+120:every=8", "v5e-8", interval_s=2.0), Analysis()
    fleet.add(scene.workers)
    for number in range(110):
        for one in scene.round(number):
            fleet.add(one)
    changes = fleet.status(BEGIN_UNIX_S + 220).changes
    assert [(one.before, one.status) for one in changes] == [
        ("ok", "no-activity"), ("no-activity", "warning"), ("warning", "ok"),
    ]  # fmt: skip
    assert changes[1].words == "3 new programs"


def change(worker):
    return Change(number=0, time_unix_s=NOW, worker=worker, what="state", state="down", severity="unknown")


def test_changes_are_bounded_and_one_worker_does_not_displace_the_others():
    """Of one that changes all the time, fewer are kept."""
    changes = Changes()
    changes.add(change("calm"))
    for _ in range(3 * MOST_OF_A_WORKER):
        changes.add(change("restless"))
    assert [one.number for one in changes.all() if one.worker == "calm"] == [1]
    assert len(changes.all()) == 1 + MOST_OF_A_WORKER
    for number in range(2 * MOST_CHANGES):
        changes.add(change(f"w{number % 100}"))
    kept = changes.all()
    assert len(kept) == MOST_CHANGES
    assert [one.number for one in kept] == sorted(one.number for one in kept)
    assert [one.number for one in changes.after(changes.last - 2)] == [changes.last - 1, changes.last]


def test_samples_between_two_looks_are_all_judged():
    """A capture that began and ended in the meantime is told, and samples that wait for input all count."""
    fleet = Analysis()
    fleet.add(found(*"abcd"))

    def infeed(worker, at, ratio):
        return sample(worker, time_unix_s=at, infeed_ratio=Spread(avg=ratio, min=ratio, max=ratio))

    for worker in "abcd":
        fleet.add(infeed(worker, NOW, 0.01))
    fleet.status(NOW)
    fleet.add(failed_sample("a", "busy", time_unix_s=NOW + 10))
    fleet.add(infeed("a", NOW + 20, 0.01))
    for i in range(1, 4):
        fleet.add(infeed("d", NOW + 5 * i, 0.3))
    status = fleet.status(NOW + 21)
    a, d = (status.workers[worker].verdict for worker in "ad")
    changes = [one for one in status.changes if one.worker == "a"]
    assert [one.title for one in changes] == ["capture began", "capture ended, ok"]
    assert [one.words for one in changes] == ["busy", "after about 10 s"]
    assert (a.since_unix_s, d.severity, d.since_unix_s) == (NOW, "critical", NOW + 5)


def test_a_worker_that_falls_silent_is_told_once():
    """Nobody's sample tells: the time does."""
    fleet = Analysis()
    fleet.add(found("a"))
    fleet.add(sample("a", time_unix_s=NOW))
    for age_s in (1, 20, 30, 40, 50):
        verdict = fleet.status(NOW + age_s).workers["a"].verdict
    assert (verdict.status, verdict.since_unix_s) == ("stale", NOW)
    assert [one.title for one in fleet.status(NOW + 50).changes] == ["stale"]
    fleet.add(sample("a", time_unix_s=NOW + 25, took_s=30.0))
    times = [one.time_unix_s for one in fleet.status(NOW + 51).changes]
    assert times == sorted(times), "a query that began before is answered after"


def test_a_sample_that_comes_too_late_is_no_change():
    """Nor is its return, within an interval; what the worker counts as then is told as if it had never been stale."""
    for late_s, after, told in (
        (30, sample, []),
        (30, failed_sample, [("ok", "down", NOW + 30)]),
        (60, sample, [("ok", "stale", NOW), ("stale", "ok", NOW + 60)]),
    ):
        fleet = Analysis()
        fleet.add(found("a"))
        for at_s in (0, *range(-30, 1, 10)):
            fleet.add(sample("a", time_unix_s=NOW + at_s))
        for at_s in range(1, late_s):
            fleet.tick(NOW + at_s)
        assert fleet.status(NOW + late_s).workers["a"].verdict.status == "stale"
        fleet.add(after("a", time_unix_s=NOW + late_s))
        changes = fleet.status(NOW + late_s).changes
        assert [(one.before, one.status, one.time_unix_s) for one in changes] == told


def test_a_restart_is_dated_by_the_start_of_the_process():
    """Not by the sample that shows it; never before what was seen of the worker before.

    Where nothing says when it started, by that sample, or earlier.
    """
    for started_s, dated_s, or_earlier in ((12.0, 12.0, False), (3.0, 3.0, False), (1e9, 60.0, True)):
        fleet = Analysis()
        fleet.add(found("a"))
        fleet.add(sample("a", time_unix_s=NOW, process=Process(pid=1, started_unix_s=NOW - 100)))
        fleet.add(sample("a", time_unix_s=NOW + 60, process=Process(pid=2, started_unix_s=NOW + started_s)))
        status = fleet.status(NOW + 61)
        title = "job restarted then or earlier" if or_earlier else "job restarted"
        assert [(one.title, one.time_unix_s) for one in status.changes] == [(title, NOW + dated_s)]
        (restarted,) = (one for one in verdict_on(status).findings if one.finding == "restarted")
        assert (restarted.since_unix_s, restarted.since_or_earlier) == (NOW + dated_s, or_earlier)


@pytest.mark.parametrize(
    ("sampled", "told"),
    [
        (Process(pid=2, started_unix_s=NOW + 20), [NOW + 20]),
        (Process(pid=1, started_unix_s=NOW - 100), []),
        (Process(pid=3, started_unix_s=NOW - 200), []),  # a sample that an exporter took of the job before
        (Process(pid=2), []),
        (None, []),
    ],
)
def test_a_restart_before_the_first_sample_is_told(sampled, told):
    """By the process with which the worker was found."""
    fleet = Analysis()
    fleet.add(Workers(targets=(Target(worker="a", address="a:1", process=Process(pid=1, started_unix_s=NOW - 100)),)))
    fleet.add(Workers(targets=(Target(worker="a", address="a:1", process=sampled),)))
    fleet.add(failed_sample("a", detail="connection-refused", time_unix_s=NOW + 10))
    fleet.add(sample("a", time_unix_s=NOW + 60, process=sampled))
    fleet.add(sample("a", time_unix_s=NOW + 90, process=sampled))
    assert [one.time_unix_s for one in fleet.status(NOW + 91).changes if one.what == "restart"] == told


def test_a_restart_before_the_first_sample_is_told_of_a_recording():
    """Which does not say with which process a worker was found; a sample that was not answered may."""
    fleet = Analysis()
    fleet.add(found("a"))
    for at_s, pid, taken in ((10, 1, failed_sample), (20, 2, failed_sample), (60, 2, sample)):
        given = {"reason": "paused"} if taken is failed_sample else {}
        process = Process(pid=pid, started_unix_s=NOW - 100 + 110 * (pid - 1))
        fleet.add(taken("a", time_unix_s=NOW + at_s, process=process, **given))
    assert [one.time_unix_s for one in fleet.status(NOW + 61).changes if one.what == "restart"] == [NOW + 10]


@pytest.mark.parametrize("started_s", [-50.0, 1e9])
def test_a_restart_is_never_dated_before_the_job_that_it_ended(started_s):
    """A process that has run for long takes the port of another one, or starts its runtime again."""
    fleet = Analysis()
    fleet.add(found("a"))
    fleet.add(sample("a", time_unix_s=NOW, process=Process(pid=1, started_unix_s=NOW - 100)))
    fleet.add(failed_sample("a", detail="connection-refused", time_unix_s=NOW + 30))
    fleet.add(sample("a", time_unix_s=NOW + 60, process=Process(pid=2, started_unix_s=NOW + started_s)))
    same = {"process": Process(pid=2, started_unix_s=NOW + started_s)}
    fleet.add(sample("a", time_unix_s=NOW + 90, runtime={"uptime_s": 1000.0}, **same))
    fleet.add(sample("a", time_unix_s=NOW + 120, runtime={"uptime_s": 20.0}, **same))
    restarts = [one.time_unix_s for one in fleet.status(NOW + 121).changes if one.what == "restart"]
    assert restarts == [NOW + 60, NOW + 100]


def test_a_restart_between_two_runs_of_tpumon_is_dated_after_the_last_activity():
    fleet = Analysis()
    fleet.add(found("a"))
    fleet.add(sample("a", time_unix_s=NOW, process=Process(pid=1)))
    for started_s, dated_s in ((20.0, 20.0), (-50.0, 60.0)):
        again = Analysis()
        again.resume(fleet.kept(NOW + 10), NOW + 50)
        again.add(found("a"))
        again.add(sample("a", time_unix_s=NOW + 60, process=Process(pid=2, started_unix_s=NOW + started_s)))
        assert [(one.what, one.time_unix_s) for one in again.status(NOW + 61).changes] == [("restart", NOW + dated_s)]


def test_what_does_not_come_back_is_forgotten_after_a_day():
    fleet = Analysis()
    fleet.add(found("a"))
    fleet.add(sample("a", time_unix_s=NOW))
    again = Analysis()
    again.resume(fleet.kept(NOW), NOW + 10)
    assert [len(again.kept(NOW + hours * 3600).workers) for hours in (1, 23, 25)] == [1, 1, 0]


@pytest.mark.parametrize("interval_s", [10.0, 100.0])
def test_a_long_gap_of_a_recording_is_told(interval_s):
    """However long the intervals are: it is looked at now and then only."""
    fleet = Analysis(recorded=RecordedClock())
    given = [
        (NOW + interval_s * n, sample("a", time_unix_s=NOW + interval_s * n, interval_s=interval_s)) for n in (0, 1)
    ]
    again_s = NOW + 3600
    given.append((again_s, sample("a", time_unix_s=again_s, interval_s=interval_s)))
    moments = [SimpleNamespace(time_unix_s=NOW, event=found("a"))]
    moments += [SimpleNamespace(time_unix_s=at_unix_s, event=one) for at_unix_s, one in given]
    told = [change for update in played(fleet, moments) for change in update.changes]
    assert [(one.before, one.status) for one in told] == [("ok", "stale"), ("stale", "ok")]


def test_what_came_of_a_short_gap_is_told_as_if_there_was_none():
    good, bad = ({"devices": [{"device": "0", "hbm_used_bytes": used, "hbm_total_bytes": 100}]} for used in (9, 99))
    fleet = Analysis()
    fleet.add(found("a"))
    fleet.add(sample("a", time_unix_s=NOW, **good))
    for at_s in range(1, 30):
        fleet.tick(NOW + at_s)
    for at_s in (30, 40, 50, 60):
        fleet.add(sample("a", time_unix_s=NOW + at_s, **bad))
    told = [(one.what, one.before, one.status) for one in fleet.status(NOW + 61).changes]
    assert told == [("severity", "ok", "critical")]


def hung(**runtime):
    """A TPU that nothing runs on: the trace is empty, or only the runtime answers."""
    devices = tuple(
        {"device": str(i), "runtime_duty_cycle_ratio": 0.0, "runtime_tensorcore_idle_s": 7.3} for i in range(4)
    )
    return failed_sample(source="runtime", devices=devices, **runtime)


@pytest.mark.parametrize(
    ("one", "mark"),
    [
        (failed_sample(reason="empty-trace"), "no-activity"),
        (hung(reason="empty-trace"), "no-activity"),
        (hung(reason="deadline"), "no-activity"),
        (hung(reason="busy"), "busy"),
        (failed_sample(source="runtime", devices=({"device": "0", "runtime_duty_cycle_ratio": 0.4},)), "unknown"),
        (sample(idle_ratio=1.0), "no-activity"),
        (sample(idle_ratio=1.0, mxu_utilization_ratio=0.0), "no-activity"),
        (sample(idle_ratio=0.99), "ok"),
        (sample(idle_ratio=1.0, step_time_s=StepTimes(avg=1.0, min=1.0, max=1.0)), "ok"),
        (sample(idle_ratio=1.0, infeed_ratio=Spread(avg=0.5, min=0.5, max=0.5)), "no-activity"),
        (sample(), "ok"),
    ],
)
def test_a_worker_on_which_nothing_runs(one, mark):
    """It answers, so it is not down; and it does not look well."""
    fleet = Analysis()
    fleet.add(found("w0"))
    fleet.add(one)
    assert fleet.status(one.time_unix_s + 1).workers["w0"].verdict.status == mark
    stale = fleet.status(one.time_unix_s + 100).workers["w0"].verdict.status
    assert stale == ("busy" if mark == "busy" else "stale"), "what is old is stale"


def ran(after_s, uptime_s):
    """Answered after so many seconds, by a runtime that has run for so long."""
    return sample(time_unix_s=1000.0 + after_s, runtime={"uptime_s": uptime_s})


CLOSED = failed_sample(detail="connection-refused")
COMPILES = failed_sample(reason="empty-trace", time_unix_s=1015.0)
AGAIN = sample(time_unix_s=1020.0)


@pytest.mark.parametrize(
    ("samples", "restarts"),
    [
        ([ran(0, 900.0), ran(10, 910.0)], 0),
        ([ran(0, 900.0), ran(10, 4.0)], 1),
        ([ran(0, 900.0), failed_sample(time_unix_s=1010.0), ran(20, 4.0), ran(30, 14.0)], 1),
        ([ran(0, 900.0), ran(10, 4.0), ran(20, 14.0), ran(30, 4.0)], 2),
        ([ran(0, 2.0), CLOSED, ran(20, 8.0), ran(30, 18.0)], 1),  # began since, though no uptime went back
        ([ran(0, 2.0), CLOSED, ran(20, 22.0)], 0),  # its profiler server was stopped
        ([sample(), CLOSED, AGAIN], 1),
        ([ran(0, 900.0), CLOSED, AGAIN, ran(30, 12.0)], 1),
        ([sample(), CLOSED, COMPILES, AGAIN], 1),
        ([ran(0, 900.0), CLOSED, COMPILES, ran(60, 12.0)], 1),
        ([sample(), CLOSED, failed_sample(reason="busy", time_unix_s=1020.0), AGAIN], 1),
        ([sample(), CLOSED, failed_sample(reason="paused", time_unix_s=1020.0)], 0),
        ([CLOSED, AGAIN], 0),
        ([sample(), failed_sample(reason="deadline"), AGAIN], 0),
    ],
)
def test_a_restarted_job(samples, restarts):
    """Its runtime's uptime goes back, or nothing listened at its port before it answers again; each is told once."""
    histories = Histories()
    histories.follow(found("w0"))
    seen = []
    for one in samples:
        history = histories.add(one)
        if history.restarted is not None and history.restarted not in seen:
            seen.append(history.restarted)
    assert len(seen) == restarts
