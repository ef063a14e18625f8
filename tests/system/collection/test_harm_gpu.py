"""What a job that can use a GPU notices of tpumon: calls of NVIDIA's libraries, counted by stand-ins for them."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes.run import Tpumon, tpumon
from support import require
from support.gpu_stand_ins import GpuStandIns
from support.jobs import Job, jax_python, start_jax

pytestmark = [pytest.mark.real, pytest.mark.nightly]

VERSION = "cuda-0.10.2"


@dataclass(frozen=True)
class GpuJob:
    """A job whose JAX has the CUDA plugin, and what it called."""

    job: Job
    gpu: GpuStandIns


@pytest.fixture(scope="module")
def gpu_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuJob]:
    python = jax_python(VERSION)
    require(python.exists(), f"JAX {VERSION} in {python.parent.parent}")
    require(shutil.which("gcc"), "gcc, to build stand-ins for NVIDIA's libraries")
    (plugin,) = python.parent.parent.rglob("xla_cuda_plugin.so")
    gpu = GpuStandIns(tmp_path_factory.mktemp("gpu"), plugin)
    job = start_jax(tmp_path_factory.mktemp("job"), VERSION, env={"LD_LIBRARY_PATH": str(gpu.directory)})
    try:
        yield GpuJob(job, gpu)
    finally:
        job.stop()


def test_no_default_command_calls_cuda_or_cupti(gpu_job: GpuJob, tmp_path: Path) -> None:
    """Not one call, nor are the libraries loaded, while the job is sampled, exported and examined."""
    address = gpu_job.job.address
    for args in (("--level", "1"), ("--level", "2"), ("--port", str(gpu_job.job.port))):
        where = () if args[0] == "--port" else ("--service-addr", address)
        done = tpumon(*args, *where, "--num-queries", "1", "--output", "jsonl").ended(0)
        assert done.samples[-1]["source"] == "trace"
    kept = tmp_path / "samples.jsonl"
    with Tpumon("serve", "--listen", "127.0.0.1:0", "--export", f"jsonl={kept}", "--service-addr", address) as serve:
        serve.wait_for(lambda: kept.exists() and '"source":"trace"' in kept.read_text(), 60)
        serve.signal(signal.SIGTERM).end()
    tpumon("doctor", "--service-addr", address).ended(0)
    assert gpu_job.gpu.calls == {}


def test_a_profile_warns_first(gpu_job: GpuJob, tmp_path) -> None:
    """Level 0 holds all devices: it calls CUPTI, which shows that the stand-ins count; the plugin is the sign."""
    where = ("--service-addr", gpu_job.job.address)
    done = tpumon("--level", "0", "--logdir", str(tmp_path), "--duration-ms", "100", *where, timeout_s=90)
    assert "loads CUPTI into the job" in done.err
    assert gpu_job.gpu.calls["cuInit"] > 0
    assert gpu_job.gpu.calls["cuptiEnableCallback"] > 100
