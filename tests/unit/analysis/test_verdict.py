"""The verdict: the worst of states and findings, and the exit status that it makes."""

from __future__ import annotations

import json

import pytest

from support.samples import failed_sample, sample
from tpumon.analysis import Analysis
from tpumon.analysis.explain import diagnose
from tpumon.analysis.findings.rules.input_bound import InputBound
from tpumon.model import Spread, StepTimes, Target, Workers

NOW = 1_769_000_000.0
STEP = StepTimes(avg=0.1, min=0.1, max=0.1, count=5)
LOW, HIGH = (Spread(avg=ratio, min=ratio, max=ratio) for ratio in (0.0, 0.3))


def at(worker, number, **given):
    usual = {"infeed_ratio": LOW, "idle_ratio": 0.1, "step_time_s": STEP, "interval_s": 10.0}
    return sample(worker, time_unix_s=NOW + 10 * number, **(usual | given))


def down(worker, number, **given):
    return failed_sample(worker, time_unix_s=NOW + 10 * number, interval_s=10.0, **given)


def judged(*samples, names="ab"):
    fleet = Analysis()
    fleet.take(Workers(targets=tuple(Target(worker=name, address=f"{name}:1", job="j", slice="s") for name in names)))
    for each in samples:
        fleet.take(each)
    last = max(samples, key=lambda each: each.time_unix_s)
    return fleet.status(last.time_unix_s + 1)


def both(count, **given):
    return [at(name, number, **given) for number in range(count) for name in "ab"]


def test_a_worker_that_is_down_is_the_verdict_whatever_else_is_found():
    """Critical, with since when, the reason, who goes on, and what to do."""
    answer = diagnose(judged(*both(3, infeed_ratio=HIGH), at("a", 3, infeed_ratio=HIGH), down("b", 3)))
    assert (answer.verdict, answer.title, answer.severity) == ("down", "DOWN", "critical")
    first, second = answer.findings
    assert (first.finding, first.severity, first.workers) == ("down", "critical", ("b",))
    assert (first.job, first.slice, first.since_unix_s) == ("j", "s", NOW + 30)
    assert first.sentence.startswith('"b" does not answer (unavailable')
    assert "1 of 2 run" in first.sentence
    assert "start_server" in first.remedy
    assert second.finding == "input-bound"
    assert answer.exit_status("critical") == 1


def test_a_job_without_devices_is_said_to_run_and_why_its_idle_time_is_not_known():
    """As on CPUs: nothing is found, and that its steps run is known all the same."""
    absent = {"idle_ratio": "no device in the trace"}
    on_cpu = [at("a", number, idle_ratio=None, infeed_ratio=None, absent=absent) for number in range(3)]
    answer = diagnose(judged(*on_cpu, names="a"))
    assert answer.verdict == "unknown"
    assert "Steps run, 100 ms each. idle: idle time is not known (no device in the trace)." in answer.sentence


def test_a_restart_is_said_for_ten_minutes_and_fails_nothing():
    up = [at("a", number, runtime={"uptime_s": 100.0 + 10 * number}) for number in range(3)]
    again = at("a", 3, runtime={"uptime_s": 5.0})
    answer = diagnose(judged(*up, again, names="a"))
    assert (answer.verdict, answer.title) == ("restarted", "RESTARTED")
    assert answer.findings[0].since_unix_s == NOW + 25, "since its runtime is up"
    assert answer.exit_status("info") == 0
    later = [at("a", number, runtime={"uptime_s": 5.0 + 10 * (number - 3)}) for number in range(4, 65)]
    assert diagnose(judged(*up, again, *later, names="a")).verdict == "ok"


@pytest.mark.parametrize(
    ("ratio", "fails"),
    [(0.0, []), (0.1, ["info", "warning"]), (0.3, ["info", "warning", "critical"])],
)
def test_the_exit_status_is_that_of_the_severity(ratio, fails):
    """1 from the chosen severity on."""
    answer = diagnose(judged(*both(3, infeed_ratio=Spread(avg=ratio, min=ratio, max=ratio))))
    assert [level for level in ("info", "warning", "critical", "never") if answer.exit_status(level)] == fails


def test_nobody_answered_is_3_whatever_is_asked():
    answer = diagnose(judged(down("a", 0), down("b", 0)))
    assert (answer.verdict, answer.exit_status("never")) == ("down", 3)


def test_severities_of_states():
    """Of a worker that does not run: down is critical, no activity what its hang is, stale nothing."""
    status = judged(down("a", 0), at("b", 0, idle_ratio=0.1))
    assert {name: each.verdict.severity for name, each in status.workers.items()} == {"a": "critical", "b": "ok"}
    never = judged(failed_sample("a", "empty-trace", time_unix_s=NOW), names="a")
    assert (never.workers["a"].verdict.state, never.workers["a"].verdict.severity) == ("no-activity", "ok")
    silent = [failed_sample("a", "empty-trace", time_unix_s=NOW + 10 * number, interval_s=10.0) for number in (3, 4, 5)]
    hangs = judged(*(at("a", number) for number in range(3)), *silent, names="a")
    assert (hangs.workers["a"].verdict.state, hangs.workers["a"].verdict.severity) == ("no-activity", "info")
    assert (diagnose(hangs).verdict, diagnose(hangs).title) == ("hang", "HANG")
    busy = judged(*both(3, infeed_ratio=HIGH), failed_sample("a", "busy", time_unix_s=NOW + 30, interval_s=10.0))
    assert (busy.workers["a"].verdict.state, busy.workers["a"].verdict.severity) == ("busy", "critical")
    fleet = Analysis()
    fleet.take(Workers(targets=(Target(worker="a", address="a:1"),)))
    fleet.take(at("a", 0))
    assert fleet.status(NOW + 1000).workers["a"].verdict.severity == "unknown"


def test_a_worker_that_answers_again_is_not_stale_to_the_judge():
    """A look for stale workers just before its sample must not make it one that the others wait for."""
    fleet = Analysis()
    fleet.take(Workers(targets=(Target(worker="a", address="a:1"),)))
    for number in range(3):
        fleet.take(at("a", number))
    for number in range(10, 14):
        fleet.tick(NOW + 10 * number - 0.2)
        fleet.take(failed_sample("a", "empty-trace", time_unix_s=NOW + 10 * number - 0.1, interval_s=1.0))
    (finding,) = (one for one in fleet.status(NOW + 130).findings if one.finding == "hang")
    assert "do not answer" not in finding.sentence


def test_json_counts_findings_beyond_ten_and_groups_what_is_not_judged():
    answer = json.loads(diagnose(judged(*both(3, infeed_ratio=HIGH))).to_json())
    assert answer["findings"][0]["remedy"] == InputBound.remedy, "not cut"
    reasons = [group["reason"] for group in answer["not_judged"]]
    assert len(reasons) == len(set(reasons))
    assert "not_judged" not in json.loads(diagnose(judged(*both(3))).to_json(brief=True))
