"""`tpumon why --request` of a real JAX program that annotates its batches, against its own log."""

from __future__ import annotations

import json
import re

import pytest

from fakes.run import tpumon
from support import require, wait_until
from support.jobs import jax_python, start_job

pytestmark = pytest.mark.real


def test_a_request_of_a_real_program(tmp_path):
    """The request's span, the others' turns and its compiling are those that the program measured."""
    require(jax_python("0.10.2").exists(), "JAX 0.10.2 in .venvs")
    (tmp_path / "job").mkdir()
    job = start_job("batches", jax_python("0.10.2"), "batches.py", tmp_path / "job")
    try:
        level_0 = ("--level", "0", "--host-tracer-level", "1", "--duration-ms", "2000")
        tpumon(*level_0, "--service-addr", job.address, "--logdir", str(tmp_path / "kept")).ended(0)
        missing = tpumon("why", "--request", "r-", str(tmp_path / "kept")).ended(2).said
        request = sorted(re.findall(r'"(r-\d+)"', missing), key=lambda each: int(each[2:]))[1]  # the first may be cut
        truth = re.compile(rf"^request {request} (\S+) (\S+) (\S+)$", re.MULTILINE)
        wait_until(lambda: truth.search(job.log), 40, lambda: f"{request} ended\n{job.log[-2000:]}")
        span_s, queue_s, compile_s = map(float, truth.search(job.log).groups())
    finally:
        job.stop()

    answer = json.loads(tpumon("why", "--request", request, str(tmp_path / "kept"), "--output", "json").ended(0).out)
    (host,) = answer["hosts"]
    assert (host["batches"], host["other_batches"], host["cut"]) == (6, 5, False)
    assert host["span_s"] == pytest.approx(span_s, rel=0.05, abs=0.02)
    assert host["queue_s"] == pytest.approx(queue_s, rel=0.05, abs=0.02)
    assert host["compile_s"] == pytest.approx(compile_s, rel=0.2, abs=0.02)
    assert host["device_s"] > 0
    assert host["host_gap_s"] > 5 * 0.003
    parts = ("device_s", "compile_s", "host_gap_s", "queue_s")
    assert sum(host[part] for part in parts) == pytest.approx(host["span_s"], abs=1e-9)
