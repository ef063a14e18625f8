"""`tpumon doctor` as its users run it, on real jobs and on the simulator."""

from __future__ import annotations

import json

import pytest

from fakes.run import Tpumon, tpumon
from support import free_port


def examined(address, rc=0):
    done = tpumon("doctor", "--service-addr", address, "--output", "json").ended(rc)
    assert done.err == ""
    return json.loads(done.out)


@pytest.mark.real
@pytest.mark.parametrize(
    ("version", "states", "age"),
    [
        pytest.param("0.6.2", ["absent", "ok", "absent"], "jaxlib 0.6 or older", marks=pytest.mark.nightly),
        pytest.param("0.8.2", ["absent", "ok", "absent"], "jaxlib 0.7 and 0.8", marks=pytest.mark.nightly),
        ("0.10.2", ["absent", "ok", "ok"], "jaxlib 0.9 or newer"),
    ],
)
def test_a_real_job_is_examined_and_trains_on(start_job, version, states, age):
    """Its age is told by its answers, twice over; nothing is written where it runs."""
    job = start_job(version)
    for _ in range(2):
        # Without a TPU 0.8 can give nothing: host events would hang it.
        server = examined(job.address, rc=3 if version == "0.8.2" else 0)["servers"][0]
        assert [answer["state"] for answer in server["answers"]] == states
        assert age in server["generation"]
    job.wait_for_more_steps(20)
    assert job.cwd_listing() == []


@pytest.mark.real
def test_a_wrong_port_of_this_host_names_the_right_one(start_job, dead_address):
    job = start_job("0.10.2")
    right = f"{job.address} (pid {job.process.pid}, "
    assert right in examined(dead_address, rc=3)["problems"][0]["remedy"]
    done = tpumon("once", "--service-addr", dead_address).ended(3)
    assert all(f"a profiler server answers at {right}" in said for said in (done.out, done.err))


@pytest.mark.real
@pytest.mark.nightly
def test_a_job_of_tensorflow_is_examined(tf_job):
    """It has a server as new as JAX's."""
    server = examined(tf_job.address)["servers"][0]

    assert server["source"] == "trace"
    assert server["device_planes"] is False
    tf_job.wait_for_more_steps(5)


def test_the_simulator_in_a_pipe():
    """Eighty columns, no colours, whatever the terminal."""
    port = free_port()
    with Tpumon("simulate", "v5e-8", "--port", str(port)) as fleet:
        fleet.wait_for(lambda: "watch it" in fleet.out)
        done = tpumon("doctor", "--service-addr", f"127.0.0.1:{port}").ended(0)

    assert max(map(len, done.out.splitlines())) <= 80
    assert "Simulated by tpumon" in done.out
    assert "returns traces, with device planes" in done.out


def test_nothing_usable_is_exit_status_3(dead_address):
    """In both outputs, with what to do."""
    assert "connection refused" in examined(dead_address, rc=3)["problems"][0]["what"]


def test_this_host_is_looked_at_without_being_told():
    """Whatever runs here: it ends within seconds, with a verdict."""
    done = tpumon("doctor", timeout_s=30)

    assert done.rc in {0, 3}
    assert "What is wrong" in done.out
