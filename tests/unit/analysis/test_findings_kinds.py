"""Kinds of job for which findings hold: for others they are not judged, with the reason, or info at most."""

from __future__ import annotations

import pytest

from support.samples import failed_sample, sample
from tpumon.analysis import Analysis
from tpumon.analysis.findings import RULES
from tpumon.model import DeviceFigures, ServerFigures, Spread, StepTimes, Target, Workers

INTERVAL_S = 10.0
STEP = StepTimes(avg=0.01, min=0.01, max=0.01)
WAITS = "a server waits for requests"


class Worker:
    """One worker of a job of a kind."""

    def __init__(self, kind):
        self.fleet, self.now = Analysis(), 1000.0
        target = Target(worker="w0", address="w0:1", job_kind=kind)
        self.fleet.add(Workers(targets=(target,)))

    def live(self, count=5, **figures):
        for _ in range(count):
            self.now += INTERVAL_S
            self.fleet.add(sample(time_unix_s=self.now, **{"step_time_s": STEP, "step_source": "modules", **figures}))

    def silent(self, count=5, **figures):
        for _ in range(count):
            self.now += INTERVAL_S
            self.fleet.add(failed_sample(reason="empty-trace", time_unix_s=self.now, interval_s=INTERVAL_S, **figures))

    def found(self):
        return {one.finding: one.severity for one in self.fleet.status(self.now + 1).findings}

    def reasons(self):
        return {one.finding: one.reason for one in self.fleet.status(self.now + 1).not_judged()}


TROUBLE = {
    "idle_ratio": 0.6,
    "compile_ratio": 0.3,
    "infeed_ratio": Spread(avg=0.3, min=0.3, max=0.3),
    "truncated": "the profiler dropped events",
    "devices": (DeviceFigures(device="0", hbm_used_bytes=98, hbm_total_bytes=100),),
    "hbm_used_bytes": 98,
    "hbm_total_bytes": 100,
}
OF_STEPS = ("hang", "slow-down", "recompiling", "input-bound", "host-bound", "idle", "truncated")


def test_a_server_that_waits_for_requests_is_not_judged_by_what_training_must_not_do():
    job = Worker("serving")
    job.live(20, **TROUBLE)
    job.live(20, **TROUBLE, step_time_s=StepTimes(avg=0.02, min=0.02, max=0.02))
    assert job.found() == {"hbm-nearly-full": "info"}
    job.silent(90)
    assert job.found() == {}
    reasons = job.reasons()
    assert {finding: reasons.get(finding) for finding in OF_STEPS} == dict.fromkeys(OF_STEPS, WAITS)


def test_what_was_found_before_it_was_known_to_serve_goes():
    job = Worker(None)
    job.live(**TROUBLE)
    assert job.found()["input-bound"] == "critical"
    job.live(4, **TROUBLE, server=ServerFigures(requests_running=1.0))
    assert set(job.found()) == {"hbm-nearly-full"}


@pytest.mark.parametrize(
    ("kind", "severity"),
    [(kind, "critical") for kind in ("training", "mixed", "batch")] + [("interactive", "info"), ("unknown", "info")],
)
def test_a_hang_holds_also_where_training_and_serving_alternate(kind, severity):
    job = Worker(kind)
    job.live(20)
    job.silent(70)
    assert job.found() == {"hang": severity}


def test_a_preallocated_cache_gets_other_advice():
    remedies = []
    for kind in ("serving", "training"):
        job = Worker(kind)
        job.live(**TROUBLE)
        remedies += [one.remedy for one in job.fleet.status(job.now).findings if one.finding == "hbm-nearly-full"]
    assert "cache of keys and values" in remedies[0]
    assert "a smaller batch" in remedies[1]


def test_each_rule_says_for_which_kinds_it_holds():
    of_servers = {rule.finding for rule in RULES if "training" in rule.not_for}
    assert {rule.finding for rule in RULES if "serving" in rule.not_for} == set(OF_STEPS)
    for rule in RULES:
        assert not rule.not_for & rule.info_for
        assert "mixed" not in rule.not_for, "both kinds of findings hold"
        assert "serving" not in rule.not_for or rule.finding not in of_servers
