"""Level 2 by traces, against live TensorFlow and JAX jobs that log their own step times."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.run import Tpumon, tpumon
from fakes.tpu_node import TpuNode
from support.jobs import Job
from support.profiler import Profiler
from tpumon.collection.sources import Client, SourceOptions
from tpumon.collection.sources.traces.backoff import Backoff
from tpumon.collection.sources.traces.source import TraceSource
from tpumon.errors import SourceError
from tpumon.model import SIMULATED_MARK, Query, Target

pytestmark = pytest.mark.real

NO_DEVICE = ("mxu_utilization_ratio", "idle_ratio", "infeed_ratio")
AT_ONCE = ("--interval", "0.1", "--max-duty", "100%")
"""The usual pace would keep a test waiting for 10 s and more."""


@pytest.fixture(params=["tf", pytest.param("jax", marks=pytest.mark.nightly)])
def job(request: pytest.FixtureRequest) -> Job:
    """One job of each framework."""
    return request.getfixturevalue(f"{request.param}_job")


def level_2(job: Job, *options: str) -> tuple[str, ...]:
    return ("--level", "2", "--service-addr", job.address, *options)


def samples_so_far(command: Tpumon) -> list[dict[str, Any]]:
    """The whole lines that a running `--output jsonl` has written."""
    return [json.loads(line) for line in command.out.splitlines(keepends=True) if line.endswith("\n")]


def reasons(sample: dict[str, Any]) -> list[str]:
    return [error["reason"] for error in sample["errors"]]


def findings_of(sample: dict[str, Any]) -> set[str]:
    return {finding["finding"] for finding in sample["findings"]}


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def assert_true_step_time(sample: dict[str, Any], job: Job) -> None:
    """The average is the one that the job itself counts over as many steps of the same time."""
    start_s, times = sample["time_unix_s"], sample["step_time_s"]
    own_s = job.step_times_s(start_s, start_s + sample["traced_s"], times["count"])
    assert any(times["avg"] == pytest.approx(each, rel=0.02) for each in own_s), (own_s, sample)


@pytest.mark.parametrize("options", [(), ("--annotate", "--input-delay-ms", "20")], ids=["", "annotated"])
def test_step_time_is_what_the_job_itself_counts(job: Job, options: tuple[str, ...]) -> None:
    """Annotated or not, waiting for input or not, steps are as long as the job says; nothing else is made up."""
    with job.trained_with(*options):
        job.wait_for_more_steps(10)
        (sample,) = tpumon(*level_2(job, "--output", "jsonl", "--num-queries", "1")).ended(0).samples

        assert sample["source"] == "trace"
        assert sample["step_source"] == "host"
        assert_true_step_time(sample, job)
        times = sample["step_time_s"]
        assert times["min"] <= times["avg"] <= times["max"]
        assert times["count"] * times["avg"] <= sample["window_s"] <= sample["took_s"]
        for figure in NO_DEVICE:
            assert sample[figure] is None, figure
            assert sample["absent"][figure], figure
        assert (sample["device_type"], sample["cores"], sample["per_core"]) == ("CPU", 0, [])
        assert (sample["simulated"], sample["errors"]) == (False, [])
        assert job.cwd_listing() == []


def test_steps_longer_than_the_first_windows_are_found(job: Job) -> None:
    """From query to query the window doubles until steps of 1.5 s fit: 0.5, 1, 2, 4 s, in which there must be two."""
    with job.trained_with("--step-ms", "1500"):
        job.wait_for_more_steps(1)
        command = level_2(job, "--output", "jsonl", "--num-queries", "4", "--num-tracing-attempts", "1", *AT_ONCE)
        samples = tpumon(*command).ended(0).samples

        assert samples[0]["step_time_s"] is None, "half a second cannot hold two of them"
        assert_true_step_time(samples[-1], job)


@pytest.mark.parametrize("program", ["jitted", "shapes"])
def test_the_step_is_the_function_for_whatever_shape(jax_job: Job, program: str) -> None:
    """Two shapes that alternate are two programs of one function, and a step is no two of them."""
    with jax_job.trained_with("--program", program):
        jax_job.wait_for_more_steps(10)
        (sample,) = tpumon(*level_2(jax_job, "--output", "jsonl", "--num-queries", "1")).ended(0).samples

        assert (sample["step_source"], sample["step_name"]) == ("host", "train_step")
        assert_true_step_time(sample, jax_job)
        (function,) = (each for each in sample["functions"] if each["name"] == "train_step")
        assert function["runs"] == sample["step_time_s"]["count"] + 1
        assert function["device_time_ratio"] > 0.9
        assert function["period_s"]["p50"] <= function["period_s"]["p95"]


def test_gradients_that_are_accumulated_make_one_step(jax_job: Job) -> None:
    """Four calls at once and an update, for which alone the job waits."""
    with jax_job.trained_with("--program", "accumulate"):
        jax_job.wait_for_more_steps(10)
        (sample,) = tpumon(*level_2(jax_job, "--output", "jsonl", "--num-queries", "1")).ended(0).samples

        assert (sample["step_source"], sample["step_name"]) == ("host", "update")
        assert_true_step_time(sample, jax_job)


@pytest.mark.nightly
def test_compiling_is_told_from_running(jax_job: Job) -> None:
    """A batch of a new shape at each step is compiled at each step; the usual ones are not."""
    command = level_2(jax_job, "--output", "jsonl", *AT_ONCE)
    usual = tpumon(*command, "--num-queries", "3").ended(0).samples
    with jax_job.trained_with("--program", "new-shapes"):
        jax_job.wait_for_more_steps(3)
        # The first windows may be too short for steps that compile.
        compiling = tpumon(*command, "--num-queries", "7").ended(0).samples

    assert {sample["compile_ratio"] for sample in usual} == {0}
    assert "recompiling" not in findings_of(usual[-1])
    assert compiling[-1]["compile_ratio"] > 0.3
    assert compiling[0]["programs"] != compiling[-1]["programs"]
    assert "recompiling" in findings_of(compiling[-1])


@pytest.mark.parametrize(("delay", "least", "most"), [((), 0.0, 0.3), (("--input-delay-ms", "40"), 0.5, 1.0)])
def test_waiting_for_input_is_told(tf_job: Job, delay: tuple[str, ...], least: float, most: float) -> None:
    """What TensorFlow's pipeline makes the training thread wait; of JAX nothing is said."""
    with tf_job.trained_with(*delay):
        tf_job.wait_for_more_steps(10)
        (sample,) = tpumon(*level_2(tf_job, "--output", "jsonl", "--num-queries", "1")).ended(0).samples

    assert least < sample["input_wait_ratio"] < most


@pytest.mark.nightly
def test_eager_dispatch_has_no_step(jax_job: Job) -> None:
    """A job that runs operation by operation: which ones is shown, and that none of them is a step."""
    with jax_job.trained_with("--program", "eager"):
        jax_job.wait_for_more_steps(10)
        query = ("--output", "jsonl", "--num-queries", "2", *AT_ONCE)
        samples = tpumon(*level_2(jax_job, *query)).ended(0).samples

        for sample in samples:
            assert (sample["step_time_s"], sample["step_source"], sample["step_name"]) == (None, None, None)
            assert sample["absent"]["step_time_s"] == "no step: eager dispatch"
            assert {"matmul", "add"} <= {each["name"] for each in sample["functions"]}
        # A longer window would show no step either.
        assert samples[1]["window_s"] == pytest.approx(samples[0]["window_s"], abs=0.3)
        block = tpumon(*level_2(jax_job, "--num-queries", "1")).ended(0).out
        assert "Step time: n/a (no step: eager dispatch)\n" in block


def test_text(jax_job: Job) -> None:
    """The block that scripts parse says which figures are not to be had and why, and how steps were found."""
    block = tpumon(*level_2(jax_job, "--num-queries", "1")).ended(0).out.rstrip("\n").split("\n")

    assert [line.partition(": ")[0] for line in block] == [
        "Timestamp",
        "TPU type",
        "Number of TPU cores",
        "TPU idle time (lower is better)",
        "Utilization of TPU Matrix Units (higher is better)",
        "Step time",
        "Infeed percentage",
    ]
    for line in (block[3], block[4], block[6]):
        assert re.search(r": n/a \(.+\)$", line), line
    assert re.fullmatch(
        r"Step time: [\d.]+ms \(avg\), [\d.]+ms \(min\), [\d.]+ms \(max\) \(host: train_step\)", block[5]
    )


def test_yields_while_the_owner_profiles(job: Job, tmp_path: Path) -> None:
    """While the owner's own trace runs tpumon says busy; the owner gets their trace, and tpumon goes on afterwards."""
    job.change("--own-trace", str(tmp_path))
    job.wait_for_log(f"trace begun {tmp_path}")
    with Tpumon(*level_2(job, "--output", "jsonl", *AT_ONCE)) as command:
        command.wait_for(lambda: len(samples_so_far(command)) >= 2)
        job.change()  # which ends the owner's trace
        job.wait_for_log(f"trace ended {tmp_path}")
        command.wait_for(lambda: samples_so_far(command)[-1]["step_time_s"])
        samples = command.signal(signal.SIGINT).end().ended(130).samples

    assert [reasons(sample) for sample in samples[:2]] == [["busy"]] * 2
    assert all(sample["source"] is None and sample["traced_s"] == 0 for sample in samples[:2])
    assert [path for path in files_below(tmp_path) if path.name.endswith(".xplane.pb")], "the owner's trace"
    assert job.cwd_listing() == []


def test_paused_no_server_is_asked_anything(tmp_path: Path) -> None:
    """While paused a query is a sample that says so and by whom, and the server does not see a single call."""
    env = {"TPUMON_PAUSE_DIR": str(tmp_path)}
    assert "paused by" in tpumon("pause", "60s", env=env).ended(0).out
    with TpuNode(device=True) as node:
        query = ("--level", "2", "--service-addr", node.address, "--output", "jsonl", "--num-queries", "2")
        done = tpumon(*query, env=env)
        assert node.calls == []

    assert [reasons(sample) for sample in done.samples] == [["paused"]] * 2
    assert all("paused by" in sample["errors"][0]["message"] for sample in done.samples)
    assert all(sample["source"] is None and sample["traced_s"] == 0 for sample in done.samples)


def test_a_pause_begins_and_ends_while_tpumon_runs(jax_job: Job, tmp_path: Path) -> None:
    """`tpumon pause` stops the sampling of a tpumon that runs already, and `tpumon pause 0` lets it go on."""
    env = {"TPUMON_PAUSE_DIR": str(tmp_path)}
    with Tpumon(*level_2(jax_job, "--output", "jsonl", *AT_ONCE), env=env) as command:
        command.wait_for(lambda: any(sample["step_time_s"] for sample in samples_so_far(command)))
        tpumon("pause", "10m", env=env).ended(0)
        command.wait_for(lambda: reasons(samples_so_far(command)[-1]) == ["paused"])
        assert "not paused" in tpumon("pause", "0", env=env).ended(0).out
        command.wait_for(lambda: samples_so_far(command)[-1]["step_time_s"])
        command.signal(signal.SIGINT).end().ended(130)


@pytest.mark.nightly
@pytest.mark.parametrize("jax_job", ["0.6.2", "0.8.2"], indirect=True)
def test_servers_that_host_events_would_hang(jax_job: Job, tmp_path: Path) -> None:
    """There is no figure then; the reason says why and what overrides it; the job trains on and no file is left."""
    query = level_2(jax_job, "--output", "jsonl", "--num-queries", "1")
    (sample,) = tpumon(*query, env={"TMPDIR": str(tmp_path)}).samples

    assert sample["step_time_s"] is None
    (error,) = sample["errors"]
    assert error["reason"] == "empty-trace"
    assert "--host-tracer-level" in error["message"]
    assert "hang" in error["message"]
    jax_job.wait_for_more_steps(200)
    assert jax_job.cwd_listing() == []
    assert list(tmp_path.iterdir()) == [], "the private directory that an old server was given is gone"


@pytest.mark.nightly
@pytest.mark.parametrize("level", [0, 2])
def test_who_hung_a_job_by_the_option_that_may_is_told_so_by_every_later_tpumon(
    start_job: Callable[..., Job], tmp_path: Path, level: int
) -> None:
    """The server then refuses all as busy: nobody else's session, and nothing that a wait would end."""
    jax_job = start_job("0.8.2")
    env = {"TPUMON_PAUSE_DIR": str(tmp_path)}
    traced = ("--service-addr", jax_job.address, "--host-tracer-level", "1")
    if level == 0:
        done = tpumon("--level", "0", *traced, "--logdir", str(tmp_path / "logs"), env=env).ended(1)
        assert "has not ended: the job has probably hung" in done.err
        assert "another profiling session" not in done.err
        assert "this host trace may hang jobs of jaxlib 0.5.0 to 0.8.3" in done.err
    else:
        with Tpumon("--level", "2", *traced, "--output", "text", env=env) as command:
            command.wait_for(lambda: "has not ended" in command.err)
            command.signal(signal.SIGINT).end().ended(130)

    why = tpumon("why", "--service-addr", jax_job.address, env=env).ended(3).out
    assert "the trace of the host that tpumon began at" in why
    assert "restart the job" in why
    doctor = " ".join(tpumon("doctor", "--service-addr", jax_job.address, env=env).ended(3).out.split())
    assert (
        "has not ended: the job has probably hung; restart it, and leave out --host-tracer-level -> restart" in doctor
    )


@pytest.mark.nightly
def test_an_old_server_on_this_host_writes_into_a_private_directory(
    start_job: Callable[..., Job], tmp_path: Path
) -> None:
    """A server that cannot return its trace is read by way of a temporary directory, of which nothing is left."""
    job = start_job("0.6.2", "--tensorflow-stub")
    query = level_2(job, "--output", "jsonl", "--num-queries", "1", "--host-tracer-level", "1")
    (sample,) = tpumon(*query, env={"TMPDIR": str(tmp_path)}).ended(0).samples

    assert (sample["source"], sample["step_source"]) == ("trace", "host")
    assert_true_step_time(sample, job)
    assert list(tmp_path.iterdir()) == []
    job.wait_for_more_steps(50)
    assert job.cwd_listing() == []


def test_a_simulated_tpu_without_monitor() -> None:
    """A v5e knows no Monitor: its figures come from traces, all of them, and say that they are simulated."""
    query = ("--level", "2", "--simulate", "v5e-8", "--num-queries", "1")
    (sample,) = tpumon(*query, "--output", "jsonl").ended(0).samples
    assert (sample["source"], sample["step_source"], sample["simulated"]) == ("trace", "steps", True)
    assert (sample["device_type"], sample["cores"]) == ("TPU v5 Lite", 8)
    assert sample["mxu_method"] == "counter"
    for figure in ("mxu_utilization_ratio", "idle_ratio", "duty_cycle_ratio", "flops_utilization_ratio"):
        assert 0 < sample[figure] < 1, figure
    assert sample["step_time_s"]["min"] <= sample["step_time_s"]["avg"] <= sample["step_time_s"]["max"]
    assert 0 < sample["infeed_ratio"]["avg"] < 1
    assert len(sample["per_core"]) == 8

    block = tpumon(*query).ended(0).out
    times, spread = r"([\d.]+ms \((avg|min|max)\)(, )?){3}", r"([\d.]+% \((avg|min|max)\)(, )?){3}"
    assert re.fullmatch(
        r"Timestamp: \d\d:\d\d:\d\d\n"
        r"TPU type: TPU v5 Lite\n"
        r"Number of TPU cores: 8\n"
        r"TPU idle time \(lower is better\): [\d.]+%\n"
        r"Utilization of TPU Matrix Units \(higher is better\): [\d.]+%\n"
        rf"Step time: {times}\n"
        rf"Infeed percentage: {spread}\n"
        rf"{SIMULATED_MARK}.*\n\n",
        block,
    ), block


def test_a_continuous_session_of_the_owner_is_left_alone(job: Job) -> None:
    """Busy, then after five minutes continuous, until it is over; the job trains, and the owner has all of the data."""
    now_s = 0.0

    async def follow() -> list[str]:
        nonlocal now_s
        seen = []
        async with Client(job.address) as client:
            source = TraceSource(client, Target(worker="w", address=job.address), SourceOptions())
            source._backoff = Backoff(client, clock_s=lambda: now_s)
            with Profiler(job.address) as owner:
                owner.start_continuous("the-owners")
                try:
                    for at_s in (0.0, 10.0, 300.0, 310.0):
                        now_s = at_s
                        with pytest.raises(SourceError) as refused:
                            await source.fetch(Query(level=2))
                        assert refused.value.traced_s == 0
                        seen.append(refused.value.reason)
                    job.wait_for_more_steps(10)
                    assert len(owner.snapshot().xspace) > 1000
                finally:
                    owner.stop_continuous()
            now_s = 700.0
            seen.append((await source.fetch(Query(level=2))).source or "")
        return seen

    assert asyncio.run(follow()) == ["busy", "busy", "continuous", "continuous", "trace"]
    assert job.cwd_listing() == []
