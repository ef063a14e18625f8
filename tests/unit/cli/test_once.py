"""`tpumon once`: how many samples it takes, what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import re
import signal
import time
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from support.given_feed import GivenFeed
from support.sample_kinds import on_cpu
from support.samples import failed_sample, sample
from tpumon.analysis.findings.rule import NeedsFewMoreSamples
from tpumon.analysis.findings.rules.straggler import Straggler
from tpumon.analysis.history import RollupSeries
from tpumon.cli import enough_samples
from tpumon.cli.commands import once, why
from tpumon.cli.enough_samples import Needs
from tpumon.collection.event_sources import ExportersSource, RecordingSource, SamplingSource
from tpumon.collection.sources import SourceOptions
from tpumon.errors import NOT_SEEN, NoTargetError
from tpumon.model import (
    ExporterSnapshot,
    FunctionFigures,
    NotJudged,
    Process,
    Query,
    Spread,
    StepTimes,
    Target,
    Workers,
)
from tpumon.model.figure_table import COMPARED
from tpumon.pipeline import FeedSettings
from tpumon.system.signals import StoppedError

NAMES = ("w0", "w1", "w2")
STEP_S = 0.1
WORK_S = {"w0": 0.095}
"""Of a step, how much a worker does not wait."""
EXPORTER = ExportersSource("http://h:1")
LOCAL = SamplingSource(query=Query(level=2))


def answered(worker, **given):
    times = StepTimes(avg=STEP_S, min=STEP_S, max=STEP_S, count=5)
    work_s = WORK_S.get(worker, 0.06)
    figures = {"step_time_s": times, "step_work_s": work_s, "mxu_utilization_ratio": 0.4, "time_unix_s": time.time()}
    return sample(worker, **figures | given)


def failed(worker, reason="unavailable", message=None, **given):
    return failed_sample(worker, reason, message or reason, **{"time_unix_s": time.time()} | given)


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command on events that are made as it asks for them; returns status, stdout and how many it took."""

    def run(events, *, samples=3, output="text", workers=NAMES, source=EXPORTER, about=None, command=once, **more):
        taken = []
        independent = source is LOCAL
        targets = tuple(
            Target(worker=worker, address=f"{worker}:1", independent=independent, **about or {}) for worker in workers
        )

        def made():
            yield Workers(targets=targets)
            for event in events:
                taken.append(event)
                yield event() if callable(event) else event

        monkeypatch.setattr(enough_samples, "open_feed", lambda given, **more: GivenFeed(given, made, **more))
        monkeypatch.setattr(enough_samples, "_AGAIN_S", 0.0)
        status = command.run(feed=FeedSettings(source=source), needs=Needs(samples=samples, **more), output=output)
        return status, capsys.readouterr().out, len(taken)

    return run


def rounds(count, workers=NAMES):
    """So many samples of each worker, each one made when it is asked for."""
    return [lambda worker=worker: answered(worker) for _ in range(count) for worker in workers]


def test_it_takes_as_many_samples_as_must_agree_and_names_the_straggler(run):
    """Three of each, one more of those who were asked before the last: none is compared then; a status for scripts."""
    status, printed, taken = run(rounds(9))
    answer, _, *lines = printed.splitlines()
    assert (status, taken) == (1, 11)
    assert answer.startswith("straggler: On ")
    assert lines[0].split() == ["WORKER", "STATE", "SINCE", "MXU", "IDLE", "STEP", "ms", "WHY"]
    assert lines[1].startswith("X  w0      critical  ")
    assert lines[1].endswith("own work +58%, others wait for it")
    assert [line.split()[:2] for line in lines[2:]] == [["w1", "ok"], ["w2", "ok"]]


def test_what_all_samples_of_a_worker_show_is_no_all_clear_while_they_are_too_few(run):
    """A window without a step tells nothing of input, and so not that the host is slow: two of three do."""
    waits = {"idle_ratio": 0.45, "infeed_ratio": Spread(avg=0.02, min=0.02, max=0.02)}
    samples = [lambda: answered("w0", **waits), lambda: answered("w0", **waits | {"infeed_ratio": None})]
    status, printed, _ = run([*samples, samples[0]], workers=["w0"], all_of_them=True)
    assert status == 0
    assert printed.startswith("unknown: May be host-bound: its samples show it so far, but 3 in a row must agree. ")
    assert printed.splitlines()[3].split()[:3] == ["?", "w0", "unknown"]


def test_a_sample_without_figures_is_made_up_for(run):
    """A window too short for a step is no sample to judge by: one more is taken, of the others too."""
    short = [lambda worker=worker: answered(worker, idle_ratio=None, step_time_s=None) for worker in ("w1", "w2")]
    status, _, taken = run([*rounds(1), *rounds(1, ["w0"]), *short, *rounds(9)])
    assert (status, taken) == (1, 14)
    _, _, taken = run([*rounds(1), *rounds(1, ["w0"]), *short, *rounds(9)], all_of_them=True)
    assert taken == 9, "--num-queries 3 was given"


@pytest.mark.parametrize("command", [once, why])
def test_a_job_that_compiles_is_asked_again_and_is_not_ok(run, monkeypatch, command):
    """A first compilation, or one of many: the next samples may tell; before that, it is no all-clear."""
    monkeypatch.setattr("sys.argv", ["x", "once"])
    on_cpu = {"mxu_utilization_ratio": None, "step_work_s": None, "device_type": "CPU", "interval_s": 1.0}
    compiles = on_cpu | {"step_time_s": None, "compile_ratio": 0.9, "absent": {"step_time_s": "no step: none"}}
    _, printed, taken = run([lambda: answered("w0", **compiles)] * 20, workers=["w0"], source=LOCAL, command=command)
    first = printed.splitlines()[0]
    assert taken == 9
    says = "compiling in 9 of 9 samples: the job begins, or it compiles again and again. "
    assert first.startswith(f"unknown: May be recompiling: {says}")
    assert first.endswith(" takes a longer look: tpumon once --num-queries 12")
    assert command is why or printed.splitlines()[3].split()[:3] == ["?", "w0", "unknown"]
    steps = [lambda: answered("w0", **on_cpu, compile_ratio=0.0)] * 3
    events = [lambda: answered("w0", **compiles), *steps]
    _, printed, taken = run(events, workers=["w0"], source=LOCAL, command=command)
    assert taken == 3
    assert printed.splitlines()[0].startswith("ok: ")


def test_workers_that_have_no_more_to_tell_are_not_asked_for_ever(run, monkeypatch):
    """After three times as many samples as needed, what is known stands, though a rule always asks for more."""
    monkeypatch.setattr(Straggler, "severity_ratio", lambda *_: NeedsFewMoreSamples("it always takes more"))
    _, _, taken = run([lambda: answered("w0")] * 18, workers=["w0"])
    assert taken == 9


def test_too_few_samples_are_said_and_make_nobody_ok(run):
    """`--num-queries 1`: neither the straggler nor the others are judged."""
    status, printed, taken = run(rounds(9), samples=1)
    assert (status, taken) == (0, 3)
    assert "too few samples to judge 3 of 3 workers: 3 are needed" in printed
    assert " ok" not in printed
    _, printed, _ = run(rounds(9), samples=1, output="json")
    found = json.loads(printed)
    assert found["too_few_samples"] is True
    assert found["verdict"] == "unknown"
    assert '3 of 3 workers have too few samples: "w0", "w1", "w2".' in found["sentence"]
    assert found["fleet"] == {"unknown": 3}
    assert {worker["severity"] for worker in found["workers"]} == {"unknown"}


def compiled(interval_s, count):
    """Samples of one worker whose traces show which program runs."""
    shown = {
        "idle_ratio": 0.05,
        "programs": ("1",),
        "functions": (FunctionFigures(name="f", runs=5),),
        "interval_s": interval_s,
    }
    return [lambda: answered("w0", **shown)] * count


@pytest.mark.parametrize(
    ("interval_s", "more_s", "taken", "few", "longer"),
    [
        (1.0, 30.0, 7, "", ""),
        (10.0, 30.0, 3, ", too few for recompiling", " --timeout 10m"),
        (1.0, 0.0, 3, ", too few for recompiling", None),
    ],
)
def test_why_takes_what_comes_soon_and_says_how_to_look_longer(
    run, monkeypatch, interval_s, more_s, taken, few, longer
):
    monkeypatch.setattr("sys.argv", ["x", "why", "--from", "http://me:secret@h:1", "--timeout", "3m"])
    given = {"workers": ["w0"], "source": LOCAL, "more_s": more_s, "command": why}
    _, printed, count = run(compiled(interval_s, 60), **given)
    assert count == taken
    first = printed.splitlines()[0]
    assert first.startswith(f"ok: Nothing is wrong, as far as {taken} samples tell{few}.")
    assert ("recompiling: it takes 7 samples (about 2 min)" in printed) == (interval_s == 10.0)
    assert ("secret" in first, "longer look" in first) == (False, longer is not None)
    if longer is not None:
        assert first.endswith(f": tpumon why --from http://h:1 --num-queries 40{longer}")
    _, printed, _ = run(compiled(interval_s, 60), **given, samples=40, all_of_them=True)
    assert printed.splitlines()[0] == "ok: Nothing is wrong, as far as it can be judged."


def test_what_no_number_of_samples_tells_is_not_promised(run, monkeypatch):
    """As recompiling, where nothing shows programs."""
    monkeypatch.setattr("sys.argv", ["x", "why"])
    events = [lambda: answered("w0", idle_ratio=0.05, interval_s=1.0)] * 60
    first = run(events, workers=["w0"], source=LOCAL, more_s=30.0, command=why)[1].splitlines()[0]
    assert "What comes and goes takes a longer look: " in first


def test_a_straggler_that_more_samples_would_tell_has_the_command_that_takes_them(run, monkeypatch):
    monkeypatch.setattr("sys.argv", ["x", "once"])
    monkeypatch.setattr(Straggler, "severity_ratio", lambda *_: NeedsFewMoreSamples("at most {takes}", takes=16))
    first = run([*rounds(9)], source=LOCAL)[1].splitlines()[0]
    assert first.endswith(" To take more samples: tpumon once --num-queries 16 --timeout 4m")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (EXPORTER, "straggler: known in about 20 s; then ask again: tpumon once --num-queries 1"),
        (LOCAL, "To take more samples: tpumon once --num-queries 3"),
    ],
)
def test_who_has_too_few_samples_is_told_when_to_ask_again(run, monkeypatch, source, told):
    monkeypatch.setattr("sys.argv", ["x", "once", "--num-queries", "1"])
    events = [lambda worker=worker: answered(worker, interval_s=10.0) for worker in NAMES]
    _, printed, _ = run(events, samples=1, all_of_them=True, source=source)
    assert printed.splitlines()[0].startswith("unknown: ")
    assert printed.splitlines()[0].endswith(f" {told}")


def test_a_command_whose_own_trace_of_the_host_has_no_answer_says_so_when_its_time_is_over(run, monkeypatch):
    """More time would not help."""
    words = "a trace of the host by tpumon has had no answer since 22:42:34: it may have hung the job"
    LOCAL.progress.does("w0:1", words, "tracing", detail="host-trace-waits")
    monkeypatch.setattr("sys.argv", ["x", "once"])
    _, printed, _ = run([], workers=["w0"], source=LOCAL, timeout_s=0.0)
    first = printed.splitlines()[0]
    assert first.startswith("unknown: ")
    assert f" w0: {words}. To do: ask again in half a minute; without an answer by then, restart the job" in first
    assert "To wait longer" not in first
    LOCAL.progress.forget("w0:1")


@pytest.mark.parametrize("command", [once, why])
@pytest.mark.parametrize(
    ("before", "told", "more"),
    [
        (2, "3 samples tell, too few for recompiling", "More is known in about "),
        (20, "21 samples tell", "What comes and goes, such as recompiling, takes more samples: ask again in about "),
        (50, "it can be judged", ""),
    ],
)
def test_an_ok_of_an_exporter_says_on_how_few_samples_it_rests(run, command, before, told, more):
    """Samples that it took before count, however far apart they are: it has judged them all."""
    series = RollupSeries(tuple(COMPARED))
    for number in range(before, 0, -1):
        series.add(time.time() - 300.0 * number, "live", [None] * len(COMPARED))
    few = [NotJudged(finding="recompiling", reason="too few", takes=7, workers=1)] * (before < 7)
    handed_on = {"findings": (), "not_judged": tuple(few), "history": {"w0": series.to_plain()}}
    judged = ("idle", "hang") if few else ("idle", "hang", "recompiling")
    events = [lambda: answered("w0", findings=(), judged=judged, interval_s=10.0)] * 3
    events.insert(0, ExporterSnapshot(complete=True, number=1, **handed_on))
    _, printed, _ = run(events, workers=["w0"], command=command)
    few = ", too few for what comes and goes, such as recompiling" * (before == 20)
    assert printed.splitlines()[0] == f"ok: Nothing is wrong, as far as {told}{few}."
    _, printed, _ = run(events, workers=["w0"], command=command, more_s=30.0)
    assert printed.splitlines()[0].startswith(f"ok: Nothing is wrong, as far as {told}. {more}".rstrip())


def test_what_an_exporter_saw_compiling_is_not_ok_and_is_asked_again(run, monkeypatch):
    monkeypatch.setattr("sys.argv", ["x", "once"])
    seen = NotJudged(finding="recompiling", reason="compiling in 2 of 3 samples", workers=1, is_suspected=True)
    events = [lambda: answered("w0", findings=(), judged=("idle", "hang"), interval_s=10.0)]
    events.insert(0, ExporterSnapshot(complete=True, number=1, findings=(), not_judged=(seen,), history={}))
    _, printed, _ = run(events, workers=["w0"])
    first = printed.splitlines()[0]
    assert first.startswith('unknown: May be recompiling: "compiling in 2 of 3 samples". Nothing was found, but')
    assert "takes more samples: ask again in about " in first


@pytest.mark.parametrize("command", [once, why])
def test_what_a_pause_or_an_outage_refused_is_no_sample_on_which_an_ok_rests(run, command):
    """Neither before it was asked, at the exporter, nor since; that nothing ran tells something."""
    series = RollupSeries(tuple(COMPARED))
    states = ["live"] * 3 + ["no-activity"] + ["paused"] * 60 + ["down"] * 5
    for number, state in enumerate(states):
        series.add(time.time() - 600.0 + number, state, [None] * len(COMPARED))
    events = [lambda: answered("w0", findings=(), judged=("idle", "hang", "recompiling"), interval_s=10.0)]
    events.insert(
        0, ExporterSnapshot(complete=True, number=1, findings=(), not_judged=(), history={"w0": series.to_plain()})
    )
    _, printed, _ = run(events, workers=["w0"], command=command)
    assert printed.startswith("ok: Nothing is wrong, as far as 5 samples tell")
    events = [*compiled(1.0, 3), lambda: failed("w0", "paused"), *compiled(1.0, 4)]
    _, printed, count = run(events, workers=["w0"], source=LOCAL, command=command, samples=8, all_of_them=True)
    assert count == 8
    assert printed.startswith("ok: Nothing is wrong, as far as 7 samples tell")


@pytest.mark.parametrize(("count", "told"), [(3, "3 samples tell, too few for recompiling"), (50, "it can be judged")])
def test_an_ok_of_a_recording_says_on_how_few_samples_it_rests(run, count, told):
    """No more come, so no command is told."""
    _, printed, _ = run(compiled(1.0, count), workers=["w0"], source=RecordingSource("/dir"), command=why, more_s=30.0)
    assert printed.splitlines()[0] == f"ok: Nothing is wrong, as far as {told}."


def test_a_worker_alone_needs_as_many_samples(run):
    """There is nobody to compare it with, but its own findings need several, too."""
    status, printed, taken = run(rounds(5, ["w0"]), workers=["w0"], output="json")
    found = json.loads(printed)
    assert (status, taken) == (0, 3)
    assert (found["fleet"], found["too_few_samples"]) == ({"ok": 1}, False)


def test_what_was_there_at_the_first_look_may_have_begun_before(run):
    """Not so a worker that went down meanwhile."""
    _, printed, _ = run(rounds(3, ["w0"]), workers=["w0"])
    assert re.search(r"ok +[0-9:]{8} or earlier \(\d+s\)", printed)
    _, printed, _ = run(rounds(9), output="json")
    slow = next(worker for worker in json.loads(printed)["workers"] if worker["severity"] == "critical")
    assert (slow["since_or_earlier"], [one["since_or_earlier"] for one in slow["findings"]]) == (True, [True])
    begin_unix_s = time.time() - 20
    later = [lambda: answered("w0", time_unix_s=begin_unix_s), lambda: failed("w0", time_unix_s=begin_unix_s + 5)]
    _, printed, _ = run(later, workers=["w0"])
    assert "DOWN: " in printed
    assert "or earlier" not in printed
    later = [lambda: answered("w0", time_unix_s=begin_unix_s), lambda: failed("w0", time_unix_s=begin_unix_s + 5)]
    _, printed, _ = run(later, workers=["w0"], output="json")
    assert [worker["since_or_earlier"] for worker in json.loads(printed)["workers"]] == [False]


def test_a_worker_that_stops_meanwhile_is_asked_as_often(run):
    """Its first silence says nothing yet; three of them are a hang."""
    begin_unix_s = time.time() - 10
    silent = [failed("w0", "empty-trace", source="runtime", time_unix_s=begin_unix_s + at_s) for at_s in range(1, 9)]
    events = [answered("w0", time_unix_s=begin_unix_s), *silent]
    _, printed, taken = run(events, samples=4, workers=["w0"], output="json", source=LOCAL)
    (worker,) = json.loads(printed)["workers"]
    assert (taken, worker["state"]) == (4, "no-activity")
    assert [finding["finding"] for finding in worker["findings"]] == ["hang"]


def test_a_silence_that_libtpu_times_is_a_hang_at_the_first_look(run):
    """As long as it says."""
    device = {"device": "0", "runtime_tensorcore_idle_s": 1000.0}
    quiet = {"source": "runtime", "devices": [device], "runtime": {"uptime_s": 1e6}, "interval_s": 1.0}
    events = [lambda: failed("w0", "empty-trace", **quiet)] * 9
    status, printed, taken = run(events, workers=["w0"], about={"job_kind": "training"}, output="json")
    (finding,) = json.loads(printed)["workers"][0]["findings"]
    assert (status, taken) == (1, 1)
    assert (finding["finding"], finding["severity"]) == ("hang", "critical")
    assert finding["since_unix_s"] == pytest.approx(time.time() - 1000, abs=60)


def test_who_does_not_answer_any_more_is_the_answer_and_nobody_is_asked_for_more(run, monkeypatch):
    """Nor are those that wait for it, of which no sample tells more while nothing runs."""
    monkeypatch.setattr(Straggler, "severity_ratio", lambda *_: NeedsFewMoreSamples("it always takes more"))
    gone = [lambda: failed("w0"), *[lambda name=name: failed(name, "empty-trace") for name in NAMES[1:]]]
    status, printed, taken = run([*rounds(1), *gone * 6])
    assert (status, taken) == (1, 9)
    assert printed.startswith('DOWN: "w0" does not answer')
    assert "a hang from a pause" not in printed
    _, _, taken = run([*rounds(1), *[lambda name=name: failed(name, "empty-trace") for name in NAMES] * 6])
    assert taken == 12


@pytest.mark.parametrize(("state", "begins"), [("runs", "unknown: "), ("ended", "DOWN: ")])
def test_a_job_that_ended_just_after_its_last_sample_is_down(run, state, begins):
    """The next sample says so: the sampler looks at processes each second."""
    source = SamplingSource(query=Query(level=2), sources=SourceOptions(state_of=lambda _pid: state))
    events = [*rounds(3, ["w0"]), lambda: failed("w0")]
    _, printed, _ = run(events, workers=["w0"], source=source, about={"process": Process(pid=7)})
    assert printed.startswith(begins)


def test_a_worker_of_which_nothing_needs_several_samples_is_asked_once(run):
    """At level 1 there is only MXU, and no finding rests on it."""
    events = [lambda: sample("w0", time_unix_s=time.time(), mxu_utilization_ratio=0.4)] * 5
    status, printed, taken = run(events, workers=["w0"], output="json")
    assert (status, taken, json.loads(printed)["fleet"]) == (0, 1, {"ok": 1})


def test_json_has_the_figures_of_samples_and_the_findings(run):
    """One object; nothing measured is null, not 0."""
    waits = [lambda: answered("w0", infeed_ratio=Spread(avg=0.3, min=0.3, max=0.3))]
    events = [*waits, lambda: failed("w2"), *[*waits, *rounds(1, ["w1"])] * 3]
    status, printed, _ = run(events, output="json")
    found = json.loads(printed)
    assert status == 1
    assert found["fleet"] == {"down": 1, "critical": 1, "ok": 1}
    down, critical, ok = found["workers"]
    assert (down["worker"], down["state"], down["step_time_s"], down["time_unix_s"]) == ("w2", "down", None, None)
    assert critical["step_time_s"]["avg"] == STEP_S
    (finding,) = critical["findings"]
    assert finding | {"finding": "input-bound", "severity": "critical", "words": critical["causes"][0]} == finding
    assert finding["since_unix_s"] == pytest.approx(time.time(), abs=60)
    assert (ok["worker"], ok["severity"], ok["findings"]) == ("w1", "ok", [])


def test_a_worker_that_never_answered_holds_up_nobody(run):
    """One failed query says that it is down; with nobody else it is status 3."""
    status, printed, taken = run([lambda: failed("w0")] * 9, workers=["w0"])
    assert (status, taken) == (3, 1)
    assert "down" in printed
    assert "unavailable" in printed


def test_without_a_worker_it_ends_with_the_reason(run):
    """Instead of waiting for a job to start."""
    with pytest.raises(NoTargetError, match="no job here"):
        run([Workers(waiting="no job here"), None], workers=[])


def test_samples_that_do_not_come_are_not_waited_for_without_end(run, monkeypatch):
    """An exporter whose sampling hangs has given one sample, and no more come."""
    monkeypatch.setattr(enough_samples, "_LATE_S", 0.0)
    events = [lambda worker=worker: answered(worker, interval_s=0.0) for worker in NAMES]
    status, printed, _ = run([*events, *([None] * 50)])
    assert status == 0
    assert "too few samples" in printed


def test_one_that_has_just_begun_is_waited_for(run, monkeypatch):
    """A view of this host with one sample: how often it samples is not known yet."""
    monkeypatch.setattr(enough_samples, "_LATE_S", 0.0)
    first = [lambda worker=worker: answered(worker, interval_s=None) for worker in NAMES]
    _, printed, taken = run([*first, *([None] * 50), *rounds(9)])
    assert taken > len(first) + 50
    assert "too few samples" not in printed


def test_infeed_is_a_finding_of_three_samples(run):
    """After a single one nothing is known."""
    infeed = Spread(avg=0.5, min=0.5, max=0.5)
    events = [lambda: sample("w0", time_unix_s=time.time(), infeed_ratio=infeed)] * 3
    status, printed, _ = run(events, workers=["w0"], output="json")
    (worker,) = json.loads(printed)["workers"]
    assert (status, worker["findings"][0]["finding"]) == (1, "input-bound")
    status, printed, _ = run(events, samples=1, workers=["w0"], output="json")
    assert (status, json.loads(printed)["fleet"]) == (0, {"unknown": 1})


@pytest.mark.parametrize(("workers", "words"), [(["w0"], "1 worker has"), (["w0", "w1"], "2 workers have")])
def test_how_many_came_too_late_is_said(run, said, workers, words):
    """Of one worker as of one."""
    run(rounds(1), workers=workers, timeout_s=0.0)
    assert f"--timeout): {words} too few samples" in said[0]


@pytest.mark.parametrize("command", [once, why])
def test_sigterm_ends_it_with_what_is_known(run, capsys, said, command):
    """As `timeout` sends it; Ctrl-C, and a signal before the first sample, end it without an answer."""

    def stop(number=signal.SIGTERM):
        raise StoppedError(number)

    for events in [stop], [*rounds(1), lambda: stop(signal.SIGINT)]:
        with pytest.raises(StoppedError):
            run(events, command=command)
        assert capsys.readouterr().out == ""
    with pytest.raises(StoppedError) as stopped:
        run([*rounds(1), stop], command=command)
    assert stopped.value.exit_status == 143
    assert capsys.readouterr().out.startswith("unknown: Nothing was found, but too little can be judged.")
    assert said == ["stopped by SIGTERM before there were enough samples; this is what is known"]


def test_a_paused_host_and_an_idle_job_are_answers(run):
    """Nobody is down: the status is 0, and the state says what is so."""
    status, printed, taken = run([lambda: failed("w0", "paused")], workers=["w0"])
    assert (status, taken) == (0, 1)
    assert "paused" in printed
    status, printed, taken = run([lambda: failed("w0", "empty-trace")] * 5, workers=["w0"], output="json")
    assert (status, json.loads(printed)["fleet"]) == (0, {"no-activity": 1})


def test_who_waits_is_told_how_many_samples_there_are_and_what_goes_on(run, monkeypatch):
    """In lines, without a terminal: none of a short wait, no number of seconds that nobody knows."""
    said = []
    monkeypatch.setattr(enough_samples._log, "info", lambda text, *values: said.append(text % values))
    monkeypatch.setattr(enough_samples, "_BETWEEN_LINES_S", 0.0)
    source = SamplingSource(query=Query(level=2))
    source.sources.progress.waits("w0:1", "asked again", 7.0)
    run(rounds(9, ["w0"]), workers=["w0"], source=source)
    assert said == []
    monkeypatch.setattr(enough_samples, "_LONG_S", 0.0)
    run(rounds(9, ["w0"]), workers=["w0"], source=source)
    assert said[0] == "0 of 3 samples; w0: asked again in 7 s; 120 s at most (--timeout)"
    assert [line.partition(";")[0] for line in said] == [f"{taken} of 3 samples" for taken in (0, 1, 2)]
    said.clear()
    monkeypatch.setattr(Straggler, "severity_ratio", lambda *_: NeedsFewMoreSamples("it always takes more"))
    run(rounds(9, ["w0"]), workers=["w0"], source=source)
    assert said[3].partition(";")[0] == "3 of 3 samples, some findings take more"


def test_a_long_wait_for_more_samples_is_said_at_once_with_its_reason_and_for_all_of_them(run, monkeypatch):
    """In one line; a short one is not, nor one for the first sample: that is announced where it is waited for."""
    said, why = [], "tpumon 12 of ann has just traced it (--max-duty)"
    monkeypatch.setattr(enough_samples._log, "info", lambda text, *values: said.append(text % values))
    source = SamplingSource(query=Query(level=2))
    for left_s, lines in (
        (4.0, []),
        (20.0, [f"1 of 3 samples; w0: traced in 20 s, all samples in about 41 s: {why}; 120 s at most (--timeout)"]),
    ):
        source.sources.progress.waits("w0:1", "traced", left_s, why, 2 * left_s + 0.5)
        run(rounds(9, ["w0"]), workers=["w0"], source=source)
        assert said == lines


def test_that_a_wait_is_beyond_the_time_limit_is_said_in_each_line_while_it_is(monkeypatch):
    """A line without it would read as if the time sufficed now."""
    said, now_s = [], [0.0]
    monkeypatch.setattr(enough_samples._log, "info", lambda text, *values: said.append(text % values))
    waiting = enough_samples._Waiting(FeedSettings(source=SamplingSource(query=Query(level=2))), Needs(samples=3))
    monkeypatch.setattr(enough_samples.time, "monotonic", lambda: now_s[0])
    needed = iter((130.0, 110.0, 130.0))
    monkeypatch.setattr(enough_samples._Waiting, "_needed_s", property(lambda _: next(needed)))
    for _ in range(3):
        now_s[0] += 1e7
        with enough_samples.Bar(io.StringIO()) as bar:
            waiting.show(bar)
    assert ["too few for that" in line for line in said] == [True, False, True]


@pytest.mark.parametrize(
    ("samples", "left_s", "all_s", "longer"),
    [(3, 20.0, 141.0, "4m"), (3, 20.0, 100.0, None), (1, 130.0, None, "4m"), (1, 100.0, None, None)],
)
@pytest.mark.parametrize("on_terminal", [False, True])
def test_a_wait_beyond_the_time_limit_is_said_at_once(run, monkeypatch, on_terminal, samples, left_s, all_s, longer):
    """With what it needs and the option that gives it that, not when the time is over; on a terminal, too."""
    said, why = [], "it was traced for its share of time (--max-duty)"
    monkeypatch.setattr(enough_samples._log, "info", lambda text, *values: said.append(text % values))
    monkeypatch.setattr("sys.argv", ["x", "once", "--num_queries", "9", "--timeout", "120"])
    if on_terminal:
        monkeypatch.setattr(enough_samples.Bar, "refresh_s", 0.1)
        monkeypatch.setattr(enough_samples.Bar, "count", lambda *_: None)
    source = SamplingSource(query=Query(level=2))
    source.sources.progress.waits("w0:1", "traced", left_s, why, all_s)
    run([None, *rounds(samples, ["w0"])], samples=samples, workers=["w0"], source=source)
    told = [line for line in said if "too few for that" in line]
    assert len(told) == (1 if longer else 0)
    for line in told:
        total = f", all samples in about {all_s:.0f} s" if all_s else ""
        assert line == (
            f"0 of {samples} samples; w0: traced in {left_s:.0f} s{total}: {why}; 120 s at most (--timeout), "
            f"too few for that; to wait so long: tpumon once --num_queries 9 --timeout {longer}"
        )


@pytest.mark.parametrize(
    ("source", "words"),
    [(SamplingSource(query=Query(level=2)), "looking for jobs"), (EXPORTER, "waiting for an answer")],
)
def test_before_there_is_a_worker_what_is_waited_for_is_said(run, monkeypatch, source, words):
    """An exporter that does not answer is no search for jobs."""
    said = []
    monkeypatch.setattr(enough_samples._log, "info", lambda text, *values: said.append(text % values))
    monkeypatch.setattr(enough_samples, "_LONG_S", 0.0)
    run([Workers(), *rounds(9, ["w0"])], workers=[], source=source)
    assert said[0] == f"{words}; 120 s at most (--timeout)"


@pytest.mark.parametrize("command", [once, why])
def test_who_is_down_is_said_at_once_while_the_others_are_waited_for(run, monkeypatch, command):
    """In one line, however short the wait is so far; its queries are no samples. Where all are down, nobody waits."""
    said = []
    monkeypatch.setattr(enough_samples._log, "info", lambda text, *values: said.append(text % values))
    run([*rounds(1, ["w0"]), lambda: failed("w1"), *rounds(9, ["w0"])], workers=["w0", "w1"], command=command)
    assert said == ["w1 is down; the others are waited for: 1 of 3 samples; 120 s at most (--timeout)"]
    run([lambda: failed("w1"), lambda: failed("w2"), *rounds(3, ["w0"])], command=command)
    assert len(said) == 2
    assert said[1].startswith("w1 is down; the others are waited for: 0 of 6 samples; ")
    monkeypatch.setattr(enough_samples, "_BETWEEN_LINES_S", 0.0)
    run([lambda: failed("w1"), lambda: failed("w2"), *rounds(3, ["w0"])], command=command)
    assert said[3].startswith("w1, w2 are down; the others are waited for: 0 of 3 samples; ")
    said.clear()
    run([lambda: failed("w1")] * 5, workers=["w1"], command=command)
    assert said == []


def test_a_job_on_a_cpu_is_ok_and_what_it_cannot_have_is_said(run):
    """Its row and the verdict say the same; no column is empty."""
    events = [lambda: on_cpu("vm", time_unix_s=time.time())] * 4
    status, printed, _ = run(events, workers=["vm"])
    answer, _, titles, row = printed.splitlines()
    assert status == 0
    assert answer == (
        "ok: Nothing is wrong, as far as 3 samples tell, too few for what comes and goes, such as recompiling. "
        "Steps run, 125 ms each. No TPU in its trace, so there is no MXU, TPU idle, Infeed, HBM."
    )
    assert titles.split() == ["WORKER", "STATE", "SINCE", "STEP", "ms", "WHY"]
    assert row.split()[:2] == ["vm", "ok"]


def test_several_workers_of_a_host_show_their_process(run):
    """Else nothing but their ports would tell them apart. Of different hosts it tells nothing."""
    processes = [Process(pid=7, user="ada", command="python jobs/train.py"), Process(pid=8, command="python -m eval")]

    def rounds_of(*names):
        return [
            lambda name=name, process=process: on_cpu(name, time_unix_s=time.time(), process=process)
            for _ in range(3)
            for name, process in zip(names, processes, strict=True)
        ]

    _, printed, _ = run(rounds_of("vm", "vm:9012"), workers=["vm", "vm:9012"], source=LOCAL)
    titles, *rows = printed.splitlines()[2:]
    assert titles.split()[:3] == ["WORKER", "PROCESS", "STATE"]
    assert sorted(row.split("  ok")[0].strip() for row in rows) == ["vm       7 ada train.py", "vm:9012  8 eval"]
    _, printed, _ = run(rounds_of("a", "b"), workers=["a", "b"], source=LOCAL)
    assert "PROCESS" not in printed


def test_in_a_narrow_terminal_the_last_figures_then_processes_give_way_and_are_named(run, monkeypatch):
    """The verdict stands above them in any case, and into a pipe all of it is written."""
    processes = [Process(pid=number, user="ann", command=f"python train_{number}.py") for number in (7, 8)]
    events = [
        lambda name=name, process=process: answered(
            name,
            process=process,
            hbm_used_bytes=5,
            hbm_total_bytes=10,
            infeed_ratio=Spread(avg=0.01, min=0.01, max=0.01),
            idle_ratio=0.1,
        )
        for _ in range(4)
        for name, process in zip(("vm", "vm:9012"), processes, strict=True)
    ]

    def printed(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        return run(events, workers=["vm", "vm:9012"], source=LOCAL)[1].splitlines()

    whole = printed(0)
    assert whole[0].startswith("ok: Nothing is wrong")
    assert re.fullmatch(r" +WORKER +PROCESS +STATE +SINCE +MXU +IDLE +STEP ms +INFEED +HBM +WHY", whole[2])
    assert printed(len(whole[2]))[2] == whole[2]
    for less, left_out in ((1, "HBM"), (8, "INFEED, HBM"), (16, "PROCESS, INFEED, HBM")):
        columns = len(whole[2]) - less
        lines = printed(columns)
        assert lines[0].startswith("ok: Nothing is wrong")
        assert max(map(len, lines[2:5])) <= columns
        assert lines[-1].endswith(f"no room: {left_out}")


def test_why_nothing_is_seen_is_said_once(run):
    """By the verdict, with what to do; the column says what is the matter."""
    why_not = "no TPU in its traces, and the host is not traced; add --host-tracer-level 1"
    events = [lambda: failed("w0", "empty-trace", f"{NOT_SEEN}: {why_not}", detail="not-seen")] * 3
    _, out, _ = run(events, workers=("w0",))
    _, document, _ = run(events, workers=("w0",), output="json")

    assert out.count(why_not) == 1
    assert out.startswith("unknown: ")
    assert re.search(rf"(?m)^\? +w0 .* {NOT_SEEN}$", out)
    assert json.loads(document)["workers"][0]["causes"] == [f"{NOT_SEEN}: {why_not}"]


def test_of_a_worker_that_was_not_seen_and_is_stale_the_table_says_the_latter(run):
    _, out, _ = run(
        [lambda: failed("w0", "empty-trace", NOT_SEEN, detail="not-seen", time_unix_s=1e9)], workers=("w0",)
    )
    assert re.search(r"(?m)^. +w0 .* no figures in time$", out)
    assert "More is known with the next sample; then ask again: " in out.splitlines()[0]


def test_a_figure_that_is_absent_has_its_reason_below_the_table(run):
    """Once for all that have it."""
    absent = {"mxu_utilization_ratio": "no counter", "step_time_s": "no two steps in the window"}
    events = [lambda name=name: sample(name, time_unix_s=time.time(), absent=absent) for name in NAMES] * 3
    _, printed, _ = run(events)
    assert [line for line in printed.splitlines() if " n/a: " in line] == [
        "   MXU n/a: no counter",
        "   STEP ms n/a: no two steps in the window",
    ]


def test_a_long_reason_is_printed_to_its_end_in_ascii(run):
    """What to do stands there; a terminal in the C locale shows no ellipsis."""
    remedy = "--host-tracer-level 1 includes them anyway"
    for words in (f"{'x' * 300}; {remedy}", "y" * 2000):
        _, printed, _ = run([lambda words=words: failed("w0", "empty-trace", words)], workers=["w0"])
        assert printed.isascii()
        assert remedy in printed or printed.endswith("...\n")


def test_of_another_tpumon_that_is_read_nothing_is_kept(monkeypatch):
    """It keeps its own, in what may be the same directory."""

    async def nearby(_level, _addresses):
        return SimpleNamespace(name="tpumon serve", uid=0)

    monkeypatch.setattr(enough_samples, "find_nearby", nearby)
    settings = FeedSettings(source=LOCAL, nearby_level=2, state_dir="kept")
    assert enough_samples.with_one_sampler(settings).state_dir is None
    assert enough_samples.with_one_sampler(replace(settings, nearby_level=None)).state_dir == "kept"
