"""XProf reads the simulator's traces as a TPU's and computes the figures that the scenario set.

What the overview page shows is rounded: times to 0.01 ms, shares to 0.1 %. So times are compared to 0.1 % and shares
to 0.001. Per step XProf gives full precision, and there the comparison is exact.
"""

from __future__ import annotations

import pytest

from support.captures import simulated_session
from support.xprof import open_with_xprof, overview, ratio, step_rows
from tpumon.simulator.expected_figures import figures
from tpumon.simulator.scenario import SECOND, SimulatedJob
from tpumon.simulator.topology import parse_topology

START_NS = 3 * SECOND + 17_123_456
STOP_NS = START_NS + SECOND

CASES = [
    (topology, scenario)
    for topology in ("v3-8", "v5e-8", "v4-16")
    for scenario in ("steady", "input-bound", "straggler")
]


def check(found, job, expected):
    """The page's properties of one worker against the simulator's figures; what is absent is 0 there."""
    assert found["hardware_type"] == "TPU"
    assert found["device_type"] == job.topology.generation.device_type
    assert int(found["device_core_count"]) == job.topology.devices_per_host
    for name, field in (("average", "avg"), ("minimum", "min"), ("maximum", "max")):
        ranges = (expected.step_s, expected.infeed_ratio)
        step_s, infeed_ratio = (0 if one is None else getattr(one, field) for one in ranges)
        assert float(found[f"steptime_ms_{name}"]) == pytest.approx(1e3 * step_s, rel=1e-3)
        assert float(found[f"infeed_percent_{name}"]) / 100 == pytest.approx(infeed_ratio, abs=1e-3)
    assert ratio(found, "mxu_utilization_percent") == pytest.approx(expected.mxu_ratio, abs=1e-3)
    assert ratio(found, "device_idle_time_percent") == pytest.approx(expected.idle_ratio, abs=1e-3)


FAULTS = [
    ("jax+input-bound", 3.0),
    ("host-bound", 3.0),
    ("slow-core+slow-down", 3.0),
    ("recompiling", 11.5),
    ("evaluation", 599.5),
    ("hang", 59.5),
    ("collective-bound+outfeed-bound", 3.0),
    ("host-transfer-bound+async-wait", 3.0),
    ("data-shuffle+sparsecore-bound", 3.0),
    ("barrier-wait+debug-print", 3.0),
    ("small-shapes", 3.0),
    ("memory-bound", 3.0),
    ("compute-bound+jitter", 3.0),
]


@pytest.mark.parametrize(("scenario", "start_s"), FAULTS)
def test_the_overview_page_shows_what_faults_make_of_a_job(scenario, start_s, tmp_path):
    job = SimulatedJob(topology=parse_topology("v4-16"), scenario=scenario, seed=4)
    start_ns = int(start_s * SECOND)
    file = simulated_session(tmp_path, job, host_level=2, start_ns=start_ns)[0]
    check(overview([file]), job, figures(job, 0, start_ns, start_ns + SECOND))


@pytest.mark.parametrize("host_level", [0, 2])
@pytest.mark.parametrize(("topology", "scenario"), CASES)
def test_the_overview_page_shows_what_each_worker_was_set_to(topology, scenario, host_level, tmp_path):
    job = SimulatedJob(topology=parse_topology(topology), scenario=scenario, seed=4)
    for worker, file in enumerate(simulated_session(tmp_path, job, start_ns=START_NS, host_level=host_level)):
        check(overview([file]), job, figures(job, worker, START_NS, STOP_NS))


def test_xprof_counts_the_same_steps_with_the_same_infeed(tmp_path):
    job = SimulatedJob(topology=parse_topology("v3-8"), scenario="input-bound", seed=4)
    rows = step_rows(simulated_session(tmp_path, job, start_ns=START_NS))
    expected = figures(job, 0, START_NS, STOP_NS)
    assert len(rows) == expected.steps > 5
    # The page's own minimum and maximum, before it rounds them: over steps, of the most waiting core of each.
    assert min(row["infeedPercentMax"] for row in rows) / 100 == pytest.approx(expected.infeed_ratio.min, rel=1e-9)
    assert max(row["infeedPercentMax"] for row in rows) / 100 == pytest.approx(expected.infeed_ratio.max, rel=1e-9)


def test_a_pod_is_as_slow_as_its_slowest_worker(tmp_path):
    job = SimulatedJob(topology=parse_topology("v4-16"), scenario="straggler", seed=4)
    found = overview(simulated_session(tmp_path, job, start_ns=START_NS))
    workers = [figures(job, worker, START_NS, STOP_NS) for worker in range(2)]
    assert found["host_count"] == "2"
    # XProf takes the longest core of each step, and the mean of the hosts' MXU counters.
    assert float(found["steptime_ms_average"]) == pytest.approx(1e3 * max(w.step_s.avg for w in workers), rel=1e-3)
    assert ratio(found, "mxu_utilization_percent") == pytest.approx(sum(w.mxu_ratio for w in workers) / 2, abs=1e-3)
    assert ratio(found, "device_idle_time_percent") == pytest.approx(sum(w.idle_ratio for w in workers) / 2, abs=5e-3)


def test_op_profile_shows_the_flops_and_bytes_that_were_set(tmp_path):
    job = SimulatedJob(topology=parse_topology("v6e-8"), scenario="steady")
    root = open_with_xprof(simulated_session(tmp_path, job, start_ns=START_NS), "op_profile")["byProgramExcludeIdle"][
        "metrics"
    ]
    expected = figures(job, 0, START_NS, STOP_NS)
    assert root["flops"] == pytest.approx(expected.flops_ratio, rel=1e-3)
    assert root["rawTime"] > 0


@pytest.mark.parametrize(
    ("scenario", "start_ns", "stop_ns"),
    [
        ("idle", START_NS, STOP_NS),
        ("compile-pause", 17 * SECOND, 18 * SECOND),
        ("steady", START_NS, START_NS + 30_000_000),
    ],
)
def test_a_window_without_a_step_has_no_step_time(scenario, start_ns, stop_ns, tmp_path):
    job = SimulatedJob(topology=parse_topology("v5e-8"), scenario=scenario)
    found = overview(simulated_session(tmp_path, job, start_ns=start_ns, stop_ns=stop_ns))
    assert found["hardware_type"] == "TPU"
    assert float(found["steptime_ms_average"]) == 0
    assert figures(job, 0, start_ns, stop_ns).steps == 0
