"""Findings of jobs that really train: slow input, slower steps, callbacks, compiling, a step that never ends."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading

import pytest

from fakes.run import environment
from support import wait_until
from support.jobs import start_jax, start_tf

PATIENCE_S = 90.0


class Watch:
    """`tpumon --output jsonl` beside a job; the findings of each line."""

    def __init__(self, process):
        self._process = process
        self.lines = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        self.lines.extend(json.loads(line) for line in self._process.stdout)

    def end(self):
        """Returns once there are no more lines."""
        self._thread.join()

    @property
    def now(self):
        """Ids of the findings of the last line."""
        return {finding["finding"] for finding in self.lines[-1]["findings"]} if self.lines else None

    def wait_for(self, finding, timeout_s=PATIENCE_S):
        """Returns once the finding is there; its cause."""
        wait_until(lambda: self.now and finding in self.now, timeout_s, lambda: f"{finding}: {self.lines[-6:]}")
        return next(cause for cause in self.lines[-1]["findings"] if cause["finding"] == finding)

    def wait_until_well(self, samples=8):
        """Returns after so many more samples without a finding, in a row."""
        begin = len(self.lines)
        wait_until(
            lambda: len(self.lines) >= begin + samples and not any(one["findings"] for one in self.lines[-samples:]),
            PATIENCE_S,
            lambda: f"well again: {[one['findings'] for one in self.lines[-samples:]]}",
        )


@contextlib.contextmanager
def watched(job, tmp_path, options=("--interval", "0.5", "--max-duty", "0.9")):
    """Samples a job, if not told otherwise, as fast as allowed."""
    command = (sys.executable, "-m", "tpumon", "--service-addr", job.address, *options, "--output", "jsonl")
    home = tmp_path / "watch"
    for folder in ("home", "run"):
        (home / folder).mkdir(parents=True)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(home), text=True
    ) as process:
        watch = Watch(process)
        try:
            yield watch
        finally:
            process.terminate()
            watch.end()


@pytest.fixture
def jax_job(tmp_path):
    (tmp_path / "job").mkdir()
    job = start_jax(tmp_path / "job", "0.10.2", "--annotate", "--step-ms", "20")
    yield job
    job.stop()


@pytest.mark.nightly
def test_waiting_for_input_is_found_and_leaves(tmp_path):
    """TensorFlow, tf.data: a map function that takes 40 ms an example."""
    (tmp_path / "job").mkdir()
    job = start_tf(tmp_path / "job", "--annotate", "--step-ms", "20")
    try:
        with watched(job, tmp_path) as watch:
            watch.wait_until_well()
            job.change("--annotate", "--input-delay-ms", "40", "--step-ms", "20")
            assert watch.wait_for("input-bound")["severity"] == "critical"
            job.change("--annotate", "--step-ms", "20")
            watch.wait_until_well()
    finally:
        job.stop()


def test_slower_steps_are_found_and_leave(jax_job, tmp_path):
    """JAX: 20 ms, then 60 ms a step; the program is the same."""
    with watched(jax_job, tmp_path) as watch:
        watch.wait_until_well(30)
        jax_job.change("--annotate", "--step-ms", "60")
        assert "its own before" in watch.wait_for("slow-down")["words"]
        jax_job.change("--annotate", "--step-ms", "20")
        watch.wait_until_well()


@pytest.mark.nightly
def test_a_step_that_calls_python_is_host_bound(jax_job, tmp_path):
    """JAX: a callback of 20 ms in the compiled step; steps without it take as long."""
    with watched(jax_job, tmp_path) as watch:
        watch.wait_until_well()
        assert "host-bound" not in watch.lines[-1]["judged"]  # Python between steps leaves no trace
        jax_job.change("--annotate", "--program", "callback", "--step-ms", "25")
        assert "callbacks" in watch.wait_for("host-bound")["words"]
        jax_job.change("--annotate", "--step-ms", "20")
        watch.wait_until_well()


@pytest.mark.nightly
def test_a_step_that_never_ends_is_a_hang(jax_job, tmp_path):
    """JAX: the training thread waits for ever, the process lives and answers."""
    with watched(jax_job, tmp_path) as watch:
        watch.wait_until_well()
        jax_job.change("--input-delay-ms", "100000000")
        assert "nothing runs" in watch.wait_for("hang")["words"]
        assert watch.lines[-1]["errors"][-1]["reason"] == "empty-trace"


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_a_hang_is_found_soon_though_a_sample_takes_ten_seconds_and_a_hundredth_of_the_time(jax_job, tmp_path):
    """JAX without a device: the next sample would come 17 minutes later."""
    with watched(jax_job, tmp_path, ("--duration-ms", "10000")) as watch:
        watch.wait_until_well(1)
        jax_job.change("--input-delay-ms", "100000000")
        assert watch.wait_for("hang", 240)["severity"] == "info"
        assert sum(line["traced_s"] for line in watch.lines[1:]) < 3


@pytest.mark.nightly
def test_compiling_again_and_again_is_found(jax_job, tmp_path):
    """JAX: each batch has another shape."""
    with watched(jax_job, tmp_path) as watch:
        watch.wait_until_well()
        jax_job.change("--program", "new-shapes", "--step-ms", "20")
        watch.wait_for("recompiling")
