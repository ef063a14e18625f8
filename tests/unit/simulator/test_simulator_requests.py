"""A simulated server of models: its requests, its programs and its memory."""

from __future__ import annotations

import pytest

from tpumon.simulator.expected_figures import figures
from tpumon.simulator.scenario import BATCH, SECOND, SimulatedJob
from tpumon.simulator.serving_page import metrics_page
from tpumon.simulator.topology import parse_topology


def job(scenario: str) -> SimulatedJob:
    return SimulatedJob(topology=parse_topology("v6e-8"), scenario=scenario, seed=3)


def busy(of: SimulatedJob, at_s: float) -> float:
    return max(figures(of, 0, int(at_s * SECOND), int((at_s + 1) * SECOND)).busy)


def test_a_busy_server_makes_tokens_all_the_time():
    server = job("serving")
    before, after = (server.requests(at_s * SECOND) for at_s in (100, 110))
    steps = sum(1 for _ in server.steps(100 * SECOND, 110 * SECOND))
    assert after.tokens - before.tokens == pytest.approx(steps * BATCH, abs=2 * BATCH)
    assert (after.running, after.waiting, after.preemptions) == (BATCH, 0, 0)
    assert busy(server, 100) > 0.8
    assert {step.work.program.function for step in server.steps(100 * SECOND, 101 * SECOND)} == {"run_model_impl"}


@pytest.mark.parametrize(("scenario", "running"), [("serving+quiet-night", 0), ("serving+stuck", BATCH)])
def test_only_the_requests_tell_a_quiet_night_from_a_stuck_server(scenario, running):
    server = job(scenario)
    assert server.requests(50 * SECOND).running == BATCH
    before, after = (server.requests(at_s * SECOND) for at_s in (70, 500))
    assert before.tokens == after.tokens > 0
    assert after.running == running
    assert busy(server, 500) == 0


def test_bursts_leave_the_server_alone_in_between():
    server = job("serving+bursts")
    counts = {server.requests(at_s * SECOND).running for at_s in range(60, 120)}
    assert counts == {0, BATCH}


def test_buckets_are_a_few_programs_of_one_function_that_come_back():
    server = job("serving+buckets")
    programs = [step.work.program for step in server.steps(20 * SECOND, 80 * SECOND)]
    assert len({program.number for program in programs}) == 4
    assert {program.function for program in programs} == {"run_model_impl"}
    assert programs[0] in programs[-len(programs) // 2 :]


def test_the_cache_is_allocated_at_the_start_and_stays_whatever_comes():
    server = job("serving+quiet-night+pool-pressure")
    assert len({server.hbm_used_bytes(0, 0, at_s * SECOND) for at_s in (1, 50, 70, 800, 2000)}) == 1


def test_a_full_cache_puts_requests_back():
    server = job("serving+pool-pressure")
    assert server.requests(20 * SECOND).preemptions == server.requests(20 * SECOND).waiting == 0
    full = server.requests(90 * SECOND)
    assert full.preemptions == 60
    assert full.waiting > 0
    assert full.kv_ratio > 0.99


def test_the_page_has_the_names_of_vllm():
    page = metrics_page(job("serving"), 100 * SECOND)
    assert f'vllm:num_requests_running{{engine="0",model_name="simulated"}} {BATCH}\n' in page
    assert "# TYPE vllm:generation_tokens counter\n" in page
    assert page.startswith("# Simulated by tpumon\n")
