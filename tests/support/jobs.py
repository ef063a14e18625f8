"""Real training jobs, each a process of its own in an empty directory, for profilers to look at."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

import grpc
import pytest

from fakes.run import environment
from support import REPOSITORY, free_port, require, wait_until
from support.profiler import Profiler

JOBS = REPOSITORY / "tests" / "system" / "jobs"
_PATIENCE_S = 40.0  # a busy machine stands still for seconds at times
_NOTHING: Mapping[str, str] = MappingProxyType({})
START_S = 90
"""Importing TensorFlow takes 4 s, and 14 s the first time."""

SMALL = {
    # Two cores are all that a small machine has, and the job is not what is measured.
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "1",
}


@dataclass
class Job:
    """A training loop with a profiler server.

    Attributes:
        port: of the profiler server, which listens on every address of this host.
        cwd: the job's working directory, empty at its start.
    """

    name: str
    process: subprocess.Popen[bytes]
    port: int
    cwd: Path
    log_file: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What the job has printed."""
        return self.log_file.read_text(errors="replace")

    @property
    def ready(self) -> bool:
        """Whether it trains and serves; fails the test if it has ended."""
        if self.process.poll() is not None:
            pytest.fail(f"{self.name} ended with {self.process.returncode}:\n{self.log[-4000:]}")
        return bool(re.search(r"^READY$", self.log, re.MULTILINE))

    def where_it_is(self) -> str:
        """The end of its log, the stack of each of its threads last."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(1)
        return self.log[-4000:]

    def steps(self) -> int:
        """Steps trained so far, as the job itself counts them (about 20 reports a second)."""
        done = re.findall(r"^steps (\d+)$", self.log, re.MULTILINE)
        return int(done[-1]) if done else 0

    def wait_for_more_steps(self, count: int, timeout_s: float = _PATIENCE_S) -> None:
        """Fails the test unless the job trains `count` further steps: a hung one does not."""
        wanted = self.steps() + count
        wait_until(
            lambda: self.ready and self.steps() >= wanted,
            timeout_s,
            lambda: f"{self.name} at step {wanted}; it is at {self.steps()}\n{self.where_it_is()}",
        )

    def step_ends(self) -> list[float]:
        """When each step ended, by this host's wall clock; the last few are reported a moment later."""
        lines = re.findall(r"^ended (.+)\n", self.log, re.MULTILINE)
        return [float(end) for line in lines for end in line.split()]

    def step_times_s(self, from_unix_s: float, to_unix_s: float, steps: int) -> list[float]:
        """The job's own averages over so many steps, for each such run of steps of a span.

        A trace sees steps start, this log sees them end: at either edge the two may differ by one step.
        """
        self.wait_until_trained_past(to_unix_s)
        ends = self.step_ends()
        first = max(bisect.bisect_left(ends, from_unix_s) - 1, 0)
        ends = ends[first : bisect.bisect_right(ends, to_unix_s) + 1]
        assert len(ends) > steps, f"{self.name} ended {len(ends)} steps around {from_unix_s} to {to_unix_s}"
        return [(later - earlier) / steps for earlier, later in zip(ends, ends[steps:], strict=False)]

    def wait_until_trained_past(self, unix_s: float, timeout_s: float = _PATIENCE_S) -> None:
        """Fails the test unless a step ends after that moment."""
        wait_until(
            lambda: self.ready and max(self.step_ends(), default=0.0) > unix_s,
            timeout_s,
            lambda: f"{self.name} trained past {unix_s}; it is at step {self.steps()}\n{self.where_it_is()}",
        )

    def longest_gap_s(self, from_unix_s: float, to_unix_s: float) -> float:
        """The longest time of a span in which no step ended."""
        ends = [end for end in self.step_ends() if from_unix_s < end < to_unix_s]
        return max(later - earlier for earlier, later in itertools.pairwise([from_unix_s, *ends, to_unix_s]))

    def change(self, *options: str) -> None:
        """Has it train with these options and no others from now on; returns once it does."""
        assert self.process.stdin is not None
        line = shlex.join(options)
        seen = len(re.findall(r"^options ", self.log, re.MULTILINE))
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        wait_until(
            lambda: self.ready and len(re.findall(r"^options ", self.log, re.MULTILINE)) > seen,
            _PATIENCE_S,
            lambda: f"{self.name} trains with {line!r}\n{self.where_it_is()}",
        )

    @contextlib.contextmanager
    def trained_with(self, *options: str) -> Iterator[Self]:
        """Has it train with these options for a while, afterwards with the usual ones."""
        self.change(*options)
        try:
            yield self
        finally:
            self.change()

    def wait_for_log(self, line: str) -> None:
        """Returns once the job has printed that line."""
        found = re.compile(rf"^{re.escape(line)}$", re.MULTILINE)
        wait_until(lambda: self.ready and found.search(self.log), _PATIENCE_S, lambda: f"{line!r}\n{self.log[-2000:]}")

    def cwd_listing(self) -> list[str]:
        """Everything in the job's working directory: nothing, unless somebody wrote into it."""
        return sorted(str(path.relative_to(self.cwd)) for path in self.cwd.rglob("*"))

    def stop(self) -> None:
        """Ends it for sure: a hung job does not react to less."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


def start_tf(directory: Path, *options: str) -> Job:
    """Starts TensorFlow's loop from the environment of the tests; options as in jobs/options.py."""
    require((Path(sys.prefix) / "bin" / "saved_model_cli").exists(), "TensorFlow beside pytest")
    return start_job("tf", Path(sys.executable), "tf_loop.py", directory, options)


def jax_python(version: str) -> Path:
    """The interpreter that `make test` has put in place for that version, if it is one of those."""
    return REPOSITORY / ".venvs" / f"jax-{version.replace('.', '-')}" / "bin" / "python"


def start_jax(
    directory: Path,
    version: str,
    *options: str,
    python: Path | None = None,
    env: Mapping[str, str] = _NOTHING,
) -> Job:
    """Starts JAX's loop in the environment of that version, which has no TensorFlow."""
    if python is None:
        python = jax_python(version)
        require(python.exists(), f"JAX {version} in {python.parent.parent.relative_to(REPOSITORY)}")
    return start_job(f"jax-{version}", python, "jax_loop.py", directory, options, env)


def start_job(
    name: str,
    python: Path,
    script: str,
    directory: Path,
    options: tuple[str, ...] = (),
    env: Mapping[str, str] = _NOTHING,
) -> Job:
    """Starts a script of tests/system/jobs with an interpreter; returns once it trains and serves."""
    cwd, log_file = directory / "cwd", directory / "log"
    for folder in ("cwd", "home", "run"):
        (directory / folder).mkdir()
    port = free_port()
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [python, JOBS / script, "--port", str(port), *options],
            cwd=cwd,
            env=environment(directory) | SMALL | dict(env),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    job = Job(name=name, process=process, port=port, cwd=cwd, log_file=log_file)
    try:
        wait_until(lambda: job.ready, START_S, lambda: f"{name} trains\n{job.log[-4000:]}")
        # Where the port was taken meanwhile, JAX only logs it and trains without a profiler server.
        with Profiler(job.address) as profiler, pytest.raises(grpc.RpcError) as answer:
            profiler.monitor()
        assert answer.value.code() is grpc.StatusCode.UNIMPLEMENTED, answer.value
        assert answer.value.details() == "unimplemented.", answer.value
    except BaseException:
        job.stop()
        raise
    return job
