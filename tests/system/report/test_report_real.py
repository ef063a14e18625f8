"""`tpumon report` on live jobs: a profile taken now, and two compared after a known change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes.run import tpumon
from support.jobs import Job
from support.xprof import same_schedules

pytestmark = pytest.mark.real


def captured(job: Job, directory: Path) -> str:
    words = ("--level", "0", "--service-addr", job.address, "--logdir", str(directory), "--duration-ms", "800")
    tpumon(*words).ended(0)
    return str(directory)


def test_memory_over_the_schedule_is_that_of_the_memory_viewer(jax_job: Job, tmp_path: Path) -> None:
    (file,) = Path(captured(jax_job, tmp_path)).rglob("*.xplane.pb")
    assert max(same_schedules(file)) > 2


@pytest.mark.nightly
def test_two_captures_of_a_job_whose_input_became_slower(jax_job: Job, tmp_path: Path) -> None:
    """Only the host shows steps on a CPU: they became longer, and the check for CI fails."""
    before = captured(jax_job, tmp_path / "before")
    with jax_job.trained_with("--step-ms", "30", "--input-delay-ms", "25"):
        after = captured(jax_job, tmp_path / "after")

    done = tpumon("report", after, "--against", before, "--fail-above", "20%", "--output", "json")
    found = json.loads(done.out)
    assert done.rc == 1
    assert found["step_time_ratio"] > 2
    assert found["step_time_noise"] is False
    assert found["changes"] == []
    assert "above 20.0%" in done.err

    tpumon("report", before, "--against", after, "--fail-above", "20%").ended(0)


def test_a_report_of_a_live_job(jax_job: Job) -> None:
    """A profile is taken, shown and not kept; the job trains on."""
    done = tpumon("report", "--service-addr", jax_job.address, "--duration-ms", "300", "--output", "json").ended(0)

    overview = json.loads(done.out)["sections"]["overview"]
    assert overview["step_source"] == "host"
    assert overview["step_time_s"]["avg"] > 0.005
    assert overview["environment"]["device_type"] == "CPU"
    jax_job.wait_for_more_steps(20)
    assert jax_job.cwd_listing() == []


def test_a_worker_that_does_not_answer(dead_address: str) -> None:
    """It is named, and there is no report."""
    done = tpumon("report", "--service-addr", dead_address, "--duration-ms", "100")
    assert (done.rc, done.out) == (1, "")
    assert f"{dead_address}: connection refused" in done.err.partition("no profile of ")[2]
