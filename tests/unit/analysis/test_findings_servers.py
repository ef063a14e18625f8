"""Findings of servers of models, each in its own trouble, just below it, and without the figures that it needs."""

from __future__ import annotations

import pytest

from support.samples import failed_sample, sample
from tpumon.analysis import Analysis
from tpumon.analysis.fleet_verdict import verdict_on
from tpumon.model import FamilyFigures, Percentiles, Process, ServerFigures, StepTimes, Target, Workers

INTERVAL_S = 10.0
BEGIN_S = 1000.0
STEP = StepTimes(avg=0.01, min=0.01, max=0.01)
WELL = {
    "requests_running": 4.0, "requests_waiting": 0.0, "tokens_per_s": 400.0, "busy_ratio": 0.8, "host_gap_ratio": 0.2,
    "kv_used_ratio": 0.5, "preemptions_per_s": 0.0, "padding_ratio": 0.3,
}  # fmt: skip
OF_SERVERS = (
    *("stuck", "host-gap", "compiling-while-serving", "kv-pressure", "batch-underfilled", "replica-imbalance"),
)


class Servers:
    """Replicas of one server that are queried round after round."""

    def __init__(self, *workers, kind="serving", **target):
        self.workers = workers or ("a",)
        self.fleet, self.now = Analysis(), BEGIN_S
        self.targets = tuple(Target(worker=w, address=f"{w}:1", job="j", job_kind=kind, **target) for w in self.workers)
        self.fleet.add(Workers(targets=self.targets))

    def round(self, count=1, figures=None, others=None, *, silent=False, **server):
        """Findings by id after so many samples of all; `others` have other figures of a server than the first one."""
        for _ in range(count):
            self.now += INTERVAL_S
            for worker in self.workers:
                own = {**WELL, **server, **(others or {} if worker != self.workers[0] else {})}
                one = {"time_unix_s": self.now, "interval_s": INTERVAL_S, "server": ServerFigures(**own), "job": "j"}
                if silent:
                    self.fleet.add(failed_sample(worker, "empty-trace", **one))
                else:
                    steps = {"step_time_s": STEP, "step_source": "modules", "compile_ratio": 0.0}
                    self.fleet.add(sample(worker, **one, **(steps | (figures or {}))))
        return self.found()

    def found(self):
        return {one.finding: one for one in self.fleet.status(self.now + 1).findings}

    def reasons(self):
        return {one.finding: one.reason for one in self.fleet.status(self.now + 1).not_judged()}


STUCK = {"silent": True, "tokens_per_s": 0.0}


def test_requests_that_run_without_a_program_and_a_token_are_stuck_after_a_minute():
    job = Servers()
    assert job.round(20) == {}
    assert job.round(7, **STUCK) == {}
    found = job.round(1, **STUCK)["stuck"]
    assert (found.severity, found.since_unix_s) == ("critical", BEGIN_S + 21 * INTERVAL_S)
    assert "4 requests run, but no program has run and no token has come for 70 s" in found.sentence
    status = job.fleet.status(job.now + 1)
    assert (verdict_on(status).verdict, status.workers["a"].verdict.severity) == ("stuck", "critical")
    assert job.round(1) == {}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"requests_running": 0.0}, id="nobody asks"),
        pytest.param({"tokens_per_s": 3.0}, id="tokens come: short windows missed their programs"),
        pytest.param({"prompt_tokens_per_s": 3.0}, id="prompts are read"),
        pytest.param({"silent": False}, id="programs run: a long prompt"),
    ],
)
def test_a_server_that_works_or_waits_is_not_stuck(given):
    job = Servers()
    job.round(5)
    assert job.round(100, **{**STUCK, **given}) == {}
    assert verdict_on(job.fleet.status(job.now + 1)).verdict == "ok"


def test_it_counts_from_the_sample_up_to_which_tokens_came():
    job = Servers()
    job.round(5)
    assert job.round(1, **STUCK | {"tokens_per_s": 50.0}) == {}
    assert set(job.round(7, **STUCK)) == {"stuck"}
    assert job.found()["stuck"].since_unix_s == BEGIN_S + 6 * INTERVAL_S


def test_long_steps_take_longer_to_be_called_stuck():
    job = Servers()
    long = FamilyFigures(family="prefill", duration_s=Percentiles(p50=9.0, p95=20.0))
    job.round(5, families=(long,))
    assert job.round(20, **STUCK) == {}
    assert set(job.round(2, **STUCK)) == {"stuck"}


def test_a_first_request_may_wait_for_the_compiler():
    """Of a server that compiles nothing ahead; after a restart of tpumon it is known to have worked before."""
    job = Servers()
    assert job.round(61, **STUCK) == {}
    assert set(job.round(1, **STUCK)) == {"stuck"}
    job = Servers()
    job.round(5)
    again = Servers()
    again.fleet = Analysis()
    again.fleet.resume(job.fleet.kept(job.now), job.now)
    again.fleet.add(Workers(targets=job.targets))
    assert again.round(7, **STUCK) == {}
    assert set(again.round(1, **STUCK)) == {"stuck"}


def test_time_in_which_nobody_looked_does_not_count_as_stuck():
    job = Servers()
    job.round(5)
    job.round(3, **STUCK)
    job.now += 600.0
    assert job.round(7, **STUCK) == {}
    assert set(job.round(1, **STUCK)) == {"stuck"}


@pytest.mark.parametrize(("away_s", "goes_on"), [(20.0, True), (200.0, False)])
def test_a_stuck_server_stays_so_over_a_restart_of_tpumon_that_does_not_take_long(away_s, goes_on):
    """A first sample tells no rate of tokens."""
    job = Servers()
    job.round(5)
    before = job.round(9, **STUCK)["stuck"]
    kept, job.fleet = job.fleet.kept(job.now), Analysis()
    job.now += away_s
    job.fleet.resume(kept, job.now)
    job.fleet.add(Workers(targets=job.targets))
    after = [job.round(1, **{**STUCK, "tokens_per_s": tokens}) for tokens in (None, 0.0, 0.0)]
    assert {found["stuck"].since_unix_s for found in after if "stuck" in found} == {before.since_unix_s}
    assert [found["stuck"].severity for found in after if "stuck" in found] == ["critical"] * (3 if goes_on else 1)


def test_a_server_that_compiles_is_not_stuck():
    job = Servers()
    job.round(5)
    assert job.round(60, **STUCK, figures={}) != {}
    compiling = {"figures": {"step_time_s": None, "idle_ratio": 1.0, "compile_ratio": 0.9}}
    assert "stuck" not in job.round(60, tokens_per_s=0.0, **compiling)


def test_a_gap_of_the_host_is_info_from_30_percent_and_a_warning_from_50():
    job = Servers()
    assert job.round(9, host_gap_ratio=0.29) == {}
    assert job.round(3, host_gap_ratio=0.31)["host-gap"].severity == "info"
    found = job.round(1, host_gap_ratio=0.6)["host-gap"]
    assert (found.severity, "no program for 60% of the time" in found.sentence) == ("warning", True)
    assert set(job.round(10, host_gap_ratio=0.6, **STUCK)) == {"stuck"}, "which explains it"


def test_a_standstill_is_no_gap_of_the_host_before_it_is_long_enough_for_stuck():
    job = Servers()
    job.round(5)
    assert job.round(7, host_gap_ratio=0.6, **STUCK) == {}
    assert "stuck" in job.reasons()["host-gap"]
    assert set(job.round(1, host_gap_ratio=0.6, **STUCK)) == {"stuck"}
    slow = {"silent": True, "tokens_per_s": 3.0}
    assert set(Servers().round(7, host_gap_ratio=0.6, **slow)) == {"host-gap"}, "a window between two steps"


COMPILES = {"figures": {"compile_ratio": 0.4}}


def test_compiling_while_there_are_requests_counts_after_the_warm_up():
    job = Servers()
    assert job.round(181, **COMPILES) == {}, "30 minutes"
    assert job.round(1, **COMPILES) == {}
    found = job.round(1, **COMPILES)["compiling-while-serving"]
    assert (found.severity, "the host compiles 40% of the time" in found.sentence) == ("warning", True)
    assert job.round(30) == {}
    assert job.round(30, **COMPILES, requests_running=0.0) == {}, "nobody waits"
    assert job.round(30, figures={"compile_ratio": 0.09}) == {}


def test_a_process_that_began_long_before_tpumon_is_warm():
    job = Servers()
    old = {"figures": {"compile_ratio": 0.4, "process": Process(pid=1, started_unix_s=0.0)}}
    job.now += 3600.0
    assert set(job.round(2, **old)) == {"compiling-while-serving"}


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"preemptions_per_s": 0.2}, "requests are put back and computed again, 0.2 a second"),
        ({"kv_used_ratio": 0.97, "requests_waiting": 5.0}, "97% full: 5 requests wait"),
        ({"kv_used_ratio": 0.97}, None),
        ({"kv_used_ratio": 0.93, "requests_waiting": 5.0}, None),
    ],
)
def test_a_cache_that_is_too_small(server, words):
    found = Servers().round(4, **server)
    assert set(found) == ({"kv-pressure"} if words else set())
    assert not words or (found["kv-pressure"].severity == "info" and words in found["kv-pressure"].sentence)


@pytest.mark.parametrize(
    ("server", "finding"),
    [
        ({"padding_ratio": 0.6, "requests_waiting": 3.0}, "batch-underfilled"),
        ({"padding_ratio": 0.6}, None),
        ({"padding_ratio": 0.4, "requests_waiting": 3.0}, None),
        ({"padding_ratio": 0.6, "requests_waiting": 3.0, "kv_used_ratio": 0.97}, "kv-pressure"),
    ],
)
def test_batches_that_are_mostly_padding_count_while_requests_wait(server, finding):
    assert set(Servers().round(4, **server)) == ({finding} if finding else set())


@pytest.mark.parametrize(
    ("first", "others", "words"),
    [
        ({"requests_running": 20.0}, {"requests_running": 4.0}, "more to do than others"),
        ({"requests_running": 0.0}, {"requests_running": 9.0}, "less to do than others"),
        ({"busy_ratio": 0.2}, {"busy_ratio": 0.6}, "less to do than others"),
        ({"requests_running": 3.0}, {"requests_running": 0.0}, None),
        ({"requests_running": 7.0}, {"requests_running": 4.0}, None),
        ({"busy_ratio": 0.4}, {"busy_ratio": 0.6}, None),
    ],
)
def test_replicas_with_unequal_loads(first, others, words):
    job = Servers("a", "b", "c")
    found = job.round(9, **first, others=others)
    assert set(found) == ({"replica-imbalance"} if words else set())
    if words:
        assert found["replica-imbalance"].workers == ("a",)
        assert found["replica-imbalance"].severity == "info"
        assert job.fleet.status(job.now + 1).workers["a"].verdict.causes[0].words == words


def test_replicas_are_compared_only_where_all_are_followed():
    job = Servers("a", "b", slice="s", slice_workers=4)
    assert job.round(8, requests_running=90.0, others={"requests_running": 0.0}) == {}
    assert job.reasons()["replica-imbalance"] == "follows 2 of 4 workers"
    job = Servers()
    job.round(8)
    assert job.reasons()["replica-imbalance"] == "no other replica of its job is followed"


def test_without_its_own_metrics_a_server_is_not_judged_and_the_reason_says_what_to_do():
    job = Servers()
    nothing = dict.fromkeys(WELL)
    job.round(5, **nothing)
    reasons = job.reasons()
    for finding in ("stuck", "host-gap", "compiling-while-serving", "kv-pressure", "batch-underfilled"):
        assert "--server-metrics URL" in reasons[finding]
    said = verdict_on(job.fleet.status(job.now + 1))
    assert said.verdict == "unknown"
    assert "--server-metrics URL" in said.sentence


@pytest.mark.parametrize(
    ("target", "absent", "why"),
    [
        ({}, {}, "--server-metrics URL names the page"),
        ({"server_metrics": "http://h/metrics"}, {}, "the page on which the server counts them does not answer"),
        ({"server_metrics": "http://h/metrics"}, {"requests_running": "of slots a share"}, "of slots a share"),
    ],
)
def test_the_reason_tells_a_page_that_lacks_requests_from_none(target, absent, why):
    job = Servers(**target)
    job.round(3, {"absent": absent}, **dict.fromkeys(WELL))
    for finding in ("stuck", "host-gap", "compiling-while-serving", "kv-pressure", "batch-underfilled"):
        assert job.reasons()[finding].startswith(f"nothing tells its requests: {why}")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("training", "it serves no models"), ("batch", "it serves no models"),
        ("unknown", "it is not known to serve models (--job-kind serving)"),
    ],
)  # fmt: skip
def test_findings_of_servers_are_not_judged_of_other_jobs(kind, reason):
    job = Servers("a", "b", kind=kind)
    job.round(40, host_gap_ratio=0.9, kv_used_ratio=0.99, requests_waiting=9.0)
    assert {finding: job.reasons()[finding] for finding in OF_SERVERS} == dict.fromkeys(OF_SERVERS, reason)


def test_where_training_and_rollouts_alternate_the_findings_of_servers_hold():
    assert "kv-pressure" in Servers(kind="mixed").round(4, preemptions_per_s=1.0)
