"""The verdict: the worst of states and findings, and the exit status that it makes."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from support.sample_kinds import cpus
from support.samples import changed, failed_sample, sample
from tpumon.analysis import Analysis
from tpumon.analysis.findings.rules.input_bound import InputBound
from tpumon.analysis.fleet_verdict import verdict_on
from tpumon.errors import NOT_SEEN
from tpumon.model import Spread, StepTimes, Target, Workers

NOW = 1_769_000_000.0
STEP = StepTimes(avg=0.1, min=0.1, max=0.1, count=5)
LOW, HIGH = (Spread(avg=ratio, min=ratio, max=ratio) for ratio in (0.0, 0.3))


def at(worker, number, **given):
    usual = {"infeed_ratio": LOW, "idle_ratio": 0.1, "step_time_s": STEP, "interval_s": 10.0}
    return sample(worker, time_unix_s=NOW + 10 * number, **(usual | given))


def down(worker, number, **given):
    return failed_sample(worker, time_unix_s=NOW + 10 * number, interval_s=10.0, **given)


def judged(*samples, names="ab", independent=False, job_kind=None):
    fleet = Analysis()
    fleet.remember()
    one = Target(worker="", address="", job="j", slice="s", independent=independent, job_kind=job_kind)
    fleet.add(Workers(targets=tuple(replace(one, worker=name, address=f"{name}:1") for name in names)))
    for each in samples:
        fleet.add(each)
    last = max(samples, key=lambda each: each.time_unix_s)
    return fleet.status(last.time_unix_s + 1)


def both(count, **given):
    return [at(name, number, **given) for number in range(count) for name in "ab"]


def test_a_worker_that_is_down_is_the_verdict_whatever_else_is_found():
    """Critical, with since when, the reason, who goes on, and what to do."""
    answer = verdict_on(judged(*both(3, infeed_ratio=HIGH), at("a", 3, infeed_ratio=HIGH), down("b", 3)))
    assert (answer.verdict, answer.title, answer.severity) == ("down", "DOWN", "critical")
    first, second = answer.findings
    assert (first.finding, first.severity, first.workers) == ("down", "critical", ("b",))
    assert (first.job, first.slice, first.since_unix_s) == ("j", "s", NOW + 30)
    assert first.sentence.startswith('"b" does not answer (unavailable')
    assert "1 of 2 run" in first.sentence
    assert first.remedy.startswith("look at the end of the job's log"), "it answered before"
    status = judged(*both(3), down("b", 3))
    handed_on = replace(status.workers["b"], history=replace(status.workers["b"].history, answer=None))
    (of_exporter,) = verdict_on(replace(status, workers={**status.workers, "b": handed_on})).findings
    assert of_exporter.remedy == first.remedy, "an exporter hands on figures over time"
    (never,) = verdict_on(judged(down("a", 0), names="a")).findings
    assert "start_server" in never.remedy
    (beside_others,) = verdict_on(judged(*[at("a", number) for number in range(3)], down("b", 3))).findings
    assert beside_others.remedy.endswith("others of its slice answer")
    assert second.finding == "input-bound"
    assert answer.exit_status("critical") == 1


def test_workers_that_are_down_for_another_reason_are_named_in_the_sentence_too():
    """What else was found, after them."""
    names = "abcd"
    failed = [down("a", 1), down("b", 1, reason="deadline"), down("c", 1, reason="resolve")]
    answer = verdict_on(judged(*[at(name, 0) for name in names], *failed, at("d", 1), names=names))
    assert answer.sentence.startswith('"a" does not answer (unavailable')
    assert answer.sentence.endswith('Also down: "b", "c".')


def test_workers_that_an_exporter_does_not_tell_of_are_no_all_clear():
    status = judged(*both(20))
    assert verdict_on(status).verdict == "ok"
    answer = verdict_on(replace(status, exporters_unheard=("http://b:10466",)))
    assert (answer.verdict, answer.severity) == ("unknown", "unknown")
    assert 'exporters that do not answer are not known: "http://b:10466".' in answer.sentence


def test_steps_of_several_jobs_are_said_to_be_of_several():
    """Workers that are merely found on one host are a job each."""
    answer = verdict_on(judged(*cpus(2), names=["cpu-0", "cpu-1"], independent=True))
    assert "Steps of 2 jobs run, 124 to 130 ms each." in answer.sentence


def test_a_hang_that_is_no_alarm_may_hang_also_beside_others():
    full = {"hbm_used_bytes": 98, "hbm_total_bytes": 100}
    later = [
        one for number in range(3, 13) for one in (at("a", number, **full), down("b", number, reason="empty-trace"))
    ]
    answer = verdict_on(judged(*both(3, **full), *later))
    assert answer.verdict == "hbm-nearly-full"
    assert "Also found: may hang." in answer.sentence


def test_a_job_on_a_cpu_whose_steps_run_is_ok_and_what_it_cannot_have_is_said():
    """Once, in the sentence and for one reason: no rule asks for a device."""
    status = judged(*cpus(1), names=["cpu-0"])
    answer = verdict_on(status)
    assert (answer.verdict, answer.severity, status.all()[0].verdict.severity) == ("ok", "ok", "ok")
    assert answer.sentence == (
        "Nothing is wrong, as far as it can be judged. Steps run, 130 ms each. No TPU in its trace, so there is no "
        "MXU, TPU idle, Infeed, HBM."
    )
    reasons = {one.finding: one.reason for one in answer.not_judged}
    assert {one for one, why in reasons.items() if why == "no TPU in its trace"} == {
        *("idle", "straggler", "collective-bound", "barrier-wait", "sparsecore-bound", "host-transfer-bound"),
        *("outfeed-bound", "async-wait", "data-shuffle", "debug-print", "memory-bound", "low-mxu", "compute-bound"),
        *("hbm-nearly-full", "hbm-growing"),
    }


def test_a_job_without_a_step_is_ok_with_a_sentence_that_says_so_first():
    """It runs, on a CPU or a TPU, and more is not known; as its row is."""
    for why in ("no two steps in the window", "no step: eager dispatch"):
        absent = {"step_time_s": why}
        on_tpu = [at("a", number, step_time_s=None, absent=absent) for number in range(3)]
        for status in (
            judged(changed(cpus(1)[0], step_time_s=None, absent=absent), names=["cpu-0"]),
            judged(*on_tpu, names="a"),
        ):
            answer = verdict_on(status)
            if why.startswith("no two") and status.all()[0].name == "cpu-0":
                assert answer.verdict == "unknown", (
                    "of a job on a CPU steps alone tell, and the next window may show them"
                )
                assert answer.sentence.endswith("No step is seen: no two steps in the window.")
                continue
            assert answer.verdict == "ok"
            no_step = f"No step is seen: {why.removeprefix('no step: ')}."
            assert answer.sentence.startswith(f"{no_step} Nothing is wrong")
            assert verdict_on(status, frozenset({status.all()[0].name})).sentence.endswith(no_step)


def test_workers_without_a_step_are_named_where_others_have_one():
    first, second = changed(cpus(1)[0], worker="a"), changed(cpus(1)[0], worker="b")
    without = changed(second, step_time_s=None, absent={"step_time_s": "no two steps in the window"})
    answer = verdict_on(judged(first, without, names="ab", independent=True))
    assert answer.sentence.endswith('No step of "b" is seen: no two steps in the window.')


def test_a_job_that_compiles_is_not_told_to_call_ahead():
    """Calls that wait for the compiler look as if they ran ahead of the device."""
    absent = {"step_time_s": "no step: train is called far ahead of its runs, or pauses most of the time"}
    answers = [
        verdict_on(judged(changed(cpus(1)[0], step_time_s=None, absent=absent, compile_ratio=ratio), names=["cpu-0"]))
        for ratio in (0.4, 0.05)
    ]
    assert answers[0].sentence.startswith("No step is seen: the host compiles 40% of the time.")
    assert answers[1].sentence.startswith("No step is seen: train is called far ahead")


def test_beside_workers_on_a_tpu_those_on_a_cpu_are_named():
    """What they cannot have, the others have."""
    of_tpu = [at("a", number) for number in range(3)]
    on_one = [changed(cpus(1)[0], worker="b", time_unix_s=NOW + 10 * number) for number in range(3)]
    answer = verdict_on(judged(*of_tpu, *on_one, independent=True))
    assert answer.sentence.endswith('Infeed, HBM: "b".')


def test_a_job_whose_figures_are_missing_is_unknown_and_says_why():
    """Nothing is found, and that its steps run is known all the same."""
    absent = {"idle_ratio": "the device ran for 1 s of 2 s, no whole step"}
    stopped = [at("a", number, idle_ratio=None, infeed_ratio=None, absent=absent) for number in range(3)]
    answer = verdict_on(judged(*stopped, names="a"))
    assert answer.verdict == "unknown"
    assert "Steps run, 100 ms each. idle: idle time is not known (the device ran for 1 s of 2 s" in answer.sentence


def test_a_worker_whose_traces_can_show_nothing_is_not_said_to_run_nothing():
    """It answers, so it is not down either; why nothing is seen, and what to do, is in the sentence."""
    words = f"{NOT_SEEN}: its traces show no TPU, and the host is not traced; --host-tracer-level 1 includes them"
    unseen = [down("a", n, reason="empty-trace", message=words, detail="not-seen") for n in range(20)]
    status = judged(*unseen, names="a")
    answer, (worker,) = verdict_on(status), status.all()
    assert (answer.verdict, answer.exit_status("info")) == ("unknown", 0)
    assert (worker.verdict.state, worker.verdict.severity, worker.is_seen) == ("no-activity", "unknown", False)
    assert "answer, but do not show whether anything runs" in answer.sentence
    assert "(its traces show no TPU, and the host is not traced; --host-tracer-level 1" in answer.sentence
    assert "run nothing" not in answer.sentence
    assert "tell a hang from a pause" not in answer.sentence


def test_beside_a_restart_it_is_said_what_the_first_samples_show():
    """Of a job that was restarted and waits for input; three samples will tell."""
    up = [at("a", number, runtime={"uptime_s": 100.0 + 10 * number}) for number in range(3)]
    waits = {"infeed_ratio": Spread(avg=0.4, min=0.4, max=0.4)}
    again = [at("a", number, runtime={"uptime_s": 10.0 * number - 25}, **waits) for number in (3, 4)]
    answer = verdict_on(judged(*up, *again, names="a"))
    assert (answer.verdict, answer.severity) == ("restarted", "unknown")
    assert "May be input-bound: its samples show it so far, but 3 in a row must agree." in answer.sentence


def test_a_restart_is_said_for_ten_minutes_and_fails_nothing():
    up = [at("a", number, runtime={"uptime_s": 100.0 + 10 * number}) for number in range(3)]
    again = at("a", 3, runtime={"uptime_s": 5.0})
    answer = verdict_on(judged(*up, again, names="a"))
    assert (answer.verdict, answer.title) == ("restarted", "RESTARTED")
    assert answer.findings[0].since_unix_s == NOW + 25, "since its runtime is up"
    assert answer.exit_status("info") == 0
    assert answer.last_restart is None, "the finding says it"
    later = [at("a", number, runtime={"uptime_s": 5.0 + 10 * (number - 3)}) for number in range(4, 65)]
    answer = verdict_on(judged(*up, again, *later, names="a"))
    assert (answer.verdict, answer.severity, answer.last_restart) == ("ok", "ok", (NOW + 25, '"a"', True))
    answer = verdict_on(judged(*up, again, *later, down("a", 65), names="a"))
    assert (answer.verdict, answer.last_restart) == ("down", (NOW + 25, '"a"', False))


def test_workers_that_were_restarted_together_are_named_together():
    def uptimes(worker, last):
        return [at(worker, number, runtime={"uptime_s": 900.0 + 10 * number}) for number in range(last)] + [
            at(worker, number, runtime={"uptime_s": 5.0 + 10 * (number - last)}) for number in range(last, 90)
        ]

    answer = verdict_on(judged(*uptimes("a", 3), *uptimes("b", 6), *uptimes("c", 20), names="abc"))
    assert answer.last_restart == (NOW + 195, '"c"', True)
    answer = verdict_on(judged(*uptimes("a", 3), *uptimes("b", 6), names="ab"))
    assert answer.last_restart == (NOW + 25, '"a", "b"', True), "when the first of them was, as `events` has it"


@pytest.mark.parametrize(
    ("ratio", "fails"),
    [(0.0, []), (0.1, ["info", "warning"]), (0.3, ["info", "warning", "critical"])],
)
def test_the_exit_status_is_that_of_the_severity(ratio, fails):
    """1 from the chosen severity on."""
    answer = verdict_on(judged(*both(3, infeed_ratio=Spread(avg=ratio, min=ratio, max=ratio))))
    assert [level for level in ("info", "warning", "critical", "never") if answer.exit_status(level)] == fails


def test_nobody_answered_is_3_whatever_is_asked():
    answer = verdict_on(judged(down("a", 0), down("b", 0)))
    assert (answer.verdict, answer.exit_status("never")) == ("down", 3)
    assert answer.findings[0].since_or_earlier
    assert not verdict_on(judged(*both(3), down("b", 3))).findings[0].since_or_earlier


def test_severities_of_states():
    """Of a worker that does not run: down is critical, no activity what its hang is, stale nothing."""
    status = judged(down("a", 0), at("b", 0, idle_ratio=0.1))
    assert {name: each.verdict.severity for name, each in status.workers.items()} == {"a": "critical", "b": "ok"}
    never = judged(failed_sample("a", "empty-trace", time_unix_s=NOW), names="a")
    assert (never.workers["a"].verdict.state, never.workers["a"].verdict.severity) == ("no-activity", "ok")
    silent = [failed_sample("a", "empty-trace", time_unix_s=NOW + 10 * number, interval_s=10.0) for number in (3, 4, 5)]
    hangs = judged(*(at("a", number) for number in range(3)), *silent, names="a")
    assert (hangs.workers["a"].verdict.state, hangs.workers["a"].verdict.severity) == ("no-activity", "info")
    assert (verdict_on(hangs).verdict, verdict_on(hangs).title) == ("hang", "may hang")
    long = [
        failed_sample("a", "empty-trace", time_unix_s=NOW + 10 * number, interval_s=10.0) for number in range(3, 65)
    ]
    assert verdict_on(judged(*(at("a", number) for number in range(3)), *long, names="a")).title == "may hang"
    alarms = judged(*(at("a", number) for number in range(3)), *long, names="a", job_kind="training")
    assert (verdict_on(alarms).severity, verdict_on(alarms).title) == ("critical", "HANG")
    busy = judged(*both(3, infeed_ratio=HIGH), failed_sample("a", "busy", time_unix_s=NOW + 30, interval_s=10.0))
    assert (busy.workers["a"].verdict.state, busy.workers["a"].verdict.severity) == ("busy", "critical")
    fleet = Analysis()
    fleet.add(Workers(targets=(Target(worker="a", address="a:1"),)))
    fleet.add(at("a", 0))
    assert fleet.status(NOW + 1000).workers["a"].verdict.severity == "unknown"


def test_a_worker_that_answers_again_is_not_stale_to_the_judge():
    """A look for stale workers just before its sample must not make it one that the others wait for."""
    fleet = Analysis()
    fleet.add(Workers(targets=(Target(worker="a", address="a:1"),)))
    for number in range(3):
        fleet.add(at("a", number))
    for number in range(10, 14):
        fleet.tick(NOW + 10 * number - 0.2)
        fleet.add(failed_sample("a", "empty-trace", time_unix_s=NOW + 10 * number - 0.1, interval_s=1.0))
    (finding,) = (one for one in fleet.status(NOW + 130).findings if one.finding == "hang")
    assert "do not answer" not in finding.sentence


def test_json_counts_findings_beyond_ten_and_groups_what_is_not_judged():
    answer = json.loads(verdict_on(judged(*both(3, infeed_ratio=HIGH))).to_json())
    assert answer["findings"][0]["remedy"] == InputBound.remedy, "not cut"
    reasons = [group["reason"] for group in answer["not_judged"]]
    assert len(reasons) == len(set(reasons))
    assert "not_judged" not in json.loads(verdict_on(judged(*both(3))).to_json(brief=True))
