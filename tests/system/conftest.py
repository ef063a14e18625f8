"""Training jobs to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support import free_port
from support.jobs import Job, start_jax, start_tf


@pytest.fixture(scope="module")
def tf_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A TensorFlow 2.21 job, one for each test module: starting it takes seconds, and it uses a core while it runs."""
    job = start_tf(tmp_path_factory.mktemp("tf"))
    yield job
    job.stop()


@pytest.fixture(scope="module")
def jax_job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A JAX job, one for each test module: 0.10.2, or what `parametrize("jax_job", [VERSION], indirect=True)` says."""
    version = getattr(request, "param", "0.10.2")
    job = start_jax(tmp_path_factory.mktemp(f"jax-{version}"), version)
    yield job
    job.stop()


@pytest.fixture
def start_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Job]]:
    """`start_job("tf", "--annotate")`, `start_job("0.10.2", "--step-ms", "50")`: a job with options, for one test."""
    started: list[Job] = []

    def start(framework: str, *options: str) -> Job:
        directory = tmp_path_factory.mktemp("job")
        job = start_tf(directory, *options) if framework == "tf" else start_jax(directory, framework, *options)
        started.append(job)
        return job

    yield start
    for job in started:
        job.stop()


@pytest.fixture
def dead_address() -> str:
    """An address on this host where nothing listens."""
    return f"127.0.0.1:{free_port()}"
