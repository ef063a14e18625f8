"""Real jobs train while tpumon samples them at its defaults: not one of them notices."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from fakes.run import Result, Tpumon
from support import wait_until
from support.jobs import Job, start_jax

pytestmark = pytest.mark.real

LONGEST_WATCH_S = 80.0
AFTERWARDS_S = 3.0
LONGEST_STOP_S = 20.0
"""A step takes 8 ms. A job that hangs never ends another; a busy machine may hold one up for a while."""


@dataclass(frozen=True)
class Watch:
    """Jobs that one tpumon has followed.

    Attributes:
        begin_unix_s: when it began.
        end_unix_s: when it had ended.
        result: how it ended.
        left: what it left in its directory for temporary files.
    """

    jobs: dict[str, Job]
    begin_unix_s: float
    end_unix_s: float
    result: Result
    left: list[str]

    def samples(self, job: Job) -> list[dict[str, Any]]:
        return [sample for sample in self.result.samples if sample["address"] == job.address]


def seen(out: str, job: Job, figure: str) -> list[str]:
    """The samples of a job so far that have a figure."""
    return [line for line in out.splitlines() if f'"address":"{job.address}"' in line and figure in line]


@pytest.fixture(scope="module")
def watch(tf_job: Job, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """All three jobs are followed at once, by a tpumon with nothing set but where they are."""
    with ExitStack() as stack:
        jobs = {"tf-2.21": tf_job}
        for version in ("0.6.2", "0.10.2"):
            jobs[f"jax-{version}"] = job = start_jax(tmp_path_factory.mktemp(f"jax-{version}"), version)
            stack.callback(job.stop)
        scratch = tmp_path_factory.mktemp("scratch")
        addresses = ",".join(job.address for job in jobs.values())
        wanted = [(job, "" if name == "jax-0.6.2" else '"step_time_s":{') for name, job in jobs.items()]
        begin_unix_s = time.time()
        command = stack.enter_context(
            Tpumon("--level", "2", "--service-addr", addresses, "--output", "jsonl", env={"TMPDIR": str(scratch)})
        )
        wait_until(
            lambda: all(seen(command.out, job, figure) for job, figure in wanted),
            LONGEST_WATCH_S,
            lambda: f"each job is sampled\n{command.out}\n{command.err}",
        )
        result = command.signal(signal.SIGINT).end()
        yield Watch(jobs, begin_unix_s, time.time(), result, sorted(path.name for path in scratch.iterdir()))


@pytest.mark.parametrize("name", ["jax-0.6.2", "jax-0.10.2", "tf-2.21"])
def test_the_job_trains_all_the_time(watch: Watch, name: str) -> None:
    """Its steps go on before, during and after every sample, and nothing appears in its working directory."""
    job = watch.jobs[name]
    after_s = watch.end_unix_s + AFTERWARDS_S
    job.wait_until_trained_past(after_s)
    assert job.longest_gap_s(watch.begin_unix_s, after_s) < LONGEST_STOP_S
    assert job.cwd_listing() == []


@pytest.mark.parametrize("name", ["jax-0.10.2", "tf-2.21"])
def test_it_was_sampled_meanwhile(watch: Watch, name: str) -> None:
    """The job was traced in that time and gave figures: what is shown above is not an idle tpumon."""
    assert any(sample["step_time_s"] for sample in watch.samples(watch.jobs[name])), watch.result


def test_the_old_one_was_traced_too(watch: Watch) -> None:
    """jaxlib 0.6.2 can only write its traces into files: it did so, and none is left."""
    samples = watch.samples(watch.jobs["jax-0.6.2"])
    assert sum(sample["traced_s"] for sample in samples) > 0, watch.result
    assert watch.left == []


def test_interrupted_it_ends_at_once(watch: Watch) -> None:
    """Ctrl-C ends it with 130, also in the middle of a sample."""
    watch.result.ended(130)
