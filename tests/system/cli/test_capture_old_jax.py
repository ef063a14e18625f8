"""Level 0 against JAX jobs without TensorFlow that hang for good when host events are asked of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.run import tpumon
from support.jobs import Job
from support.xprof import host_event_names

pytestmark = pytest.mark.real


@pytest.mark.nightly
@pytest.mark.parametrize("jax_job", ["0.6.2", "0.8.2"], indirect=True)
def test_the_job_trains_on(jax_job: Job, tmp_path: Path) -> None:
    """Host events are left out, unasked; the user hears that, why, and what overrides it; the job does not notice.

    Without a device there is then nothing to trace, so there is no profile and the command has failed.
    """
    done = tpumon(
        *("--level", "0", "--service-addr", jax_job.address, "--logdir", str(tmp_path), "--duration-ms", "500")
    ).ended(1)

    jax_job.wait_for_more_steps(200)
    assert jax_job.cwd_listing() == []
    (why,) = (line for line in done.messages if "--host-tracer-level" in line)
    assert "the host (what the job runs on its CPU) is not traced" in why
    assert "update the job to jaxlib 0.9 or newer" in why
    assert re.search(r"hang", why)
    assert any("no trace event" in line for line in done.messages)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "no profile is better than an empty one"


@pytest.mark.nightly
def test_an_old_server_writes_the_profile_itself(start_job: Callable[..., Job], tmp_path: Path) -> None:
    """A server that cannot return traces writes into --logdir, where the file is found, verified and shown."""
    job = start_job("0.6.2", "--tensorflow-stub")
    done = tpumon(
        *("--level", "0", "--service-addr", job.address, "--logdir", str(tmp_path)),
        *("--duration-ms", "500", "--host-tracer-level", "2"),
    ).ended(0)

    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert re.fullmatch(rf"plugins/profile/[^/]+/127\.0\.0\.1_{job.port}\.xplane\.pb", str(file.relative_to(tmp_path)))
    assert str(file.parent) in done.out
    assert file.name in done.out
    assert "PjitFunction(train_step)" in host_event_names(file)
    job.wait_for_more_steps(50)
    assert job.cwd_listing() == []
