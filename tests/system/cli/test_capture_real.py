"""Level 0, and what level 2 says, against the profiler servers of live TensorFlow and JAX jobs."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.run import Tpumon, tpumon
from support import require
from support.jobs import Job
from support.profiler import Profiler
from support.xprof import host_event_names, open_with_xprof
from tpumon.proto.xplane_pb2 import XSpace

pytestmark = pytest.mark.real

TRAIN_STEP = {"tf": re.compile(r"__inference_train_step_\d+"), "jax-0.10.2": re.compile(r"PjitFunction\(train_step\)")}


@pytest.fixture(params=[pytest.param("tf", marks=pytest.mark.nightly), "jax"])
def job(request: pytest.FixtureRequest) -> Job:
    """One job of each framework."""
    return request.getfixturevalue(f"{request.param}_job")


def files_below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def file_of(job: Job, session: str = r"[\w.-]+") -> str:
    """A pattern for where TensorBoard and XProf look for this job's profile."""
    return rf"plugins/profile/{session}/127\.0\.0\.1_{job.port}\.xplane\.pb"


def assert_unharmed(job: Job) -> None:
    """The job trains on, and nothing was written into its working directory."""
    job.wait_for_more_steps(50)
    assert job.cwd_listing() == []


def assert_profile(file: Path, job: Job) -> None:
    """XProf opens it and shows what the job's own threads did, the training step among it."""
    names = host_event_names(file)
    assert any(TRAIN_STEP[job.name].search(name) for name in names), names
    assert open_with_xprof([file], "overview_page")


def window_ns(file: Path) -> tuple[int, int]:
    """When the server began and ended the profile, by its own record."""
    (plane,) = (plane for plane in XSpace.FromString(file.read_bytes()).planes if plane.name == "Task Environment")
    stats = {plane.stat_metadata[stat.metadata_id].name: stat.uint64_value for stat in plane.stats}
    return stats["profile_start_time"], stats["profile_stop_time"]


def test_one_profile_of_one_job(job: Job, tmp_path: Path) -> None:
    """Level 0 leaves one file where XProf looks, XProf shows host events in it, and the job is none the worse."""
    done = tpumon(
        *("--level", "0", "--service-addr", job.address, "--logdir", str(tmp_path), "--duration-ms", "500")
    ).ended(0)

    (file,) = files_below(tmp_path)
    assert re.fullmatch(file_of(job), file)
    assert all(part in done.out for part in file.rsplit("/", 1)), "it says where the profile is"
    assert_profile(tmp_path / file, job)
    start_ns, stop_ns = window_ns(tmp_path / file)
    assert stop_ns - start_ns >= 500e6, "the window is the one that was asked for"
    assert_unharmed(job)


@pytest.mark.nightly
def test_old_command_line(tf_job: Job, tmp_path: Path) -> None:
    """What people typed for capture_tpu_profile takes a profile again."""
    tpumon("--service_addr", tf_job.address, "--logdir", str(tmp_path), "--duration_ms", "500").ended(0)

    (file,) = files_below(tmp_path)
    assert re.fullmatch(file_of(tf_job), file)
    assert_profile(tmp_path / file, tf_job)
    assert_unharmed(tf_job)


@pytest.mark.nightly
def test_two_workers_at_the_same_moment(tf_job: Job, jax_job: Job, tmp_path: Path) -> None:
    """Both workers' files stand in one session, and both show the same half second."""
    addresses = f"{tf_job.address},{jax_job.address}"
    tpumon("--level", "0", "--service-addr", addresses, "--logdir", str(tmp_path), "--duration-ms", "500").ended(0)

    (session,) = (tmp_path / "plugins" / "profile").iterdir()
    files = {job.name: session / f"127.0.0.1_{job.port}.xplane.pb" for job in (tf_job, jax_job)}
    assert files_below(session) == sorted(file.name for file in files.values())
    windows = [window_ns(file) for file in files.values()]
    assert min(stop for _, stop in windows) - max(start for start, _ in windows) > 250e6, windows
    for job in (tf_job, jax_job):
        assert_profile(files[job.name], job)
        assert_unharmed(job)
    assert open_with_xprof(list(files.values()), "overview_page"), "XProf reads them together"


@pytest.mark.nightly
def test_a_dead_worker_beside_a_live_one(jax_job: Job, dead_address: str, tmp_path: Path) -> None:
    """The live worker's file is kept, the dead one is named in a line of its own, and the command has failed."""
    addresses = f"{dead_address},{jax_job.address}"
    done = tpumon(
        *("--level", "0", "--service-addr", addresses, "--logdir", str(tmp_path)),
        *("--duration-ms", "300", "--num-tracing-attempts", "1"),
    ).ended(1)

    (file,) = files_below(tmp_path)
    assert re.fullmatch(file_of(jax_job), file)
    assert_profile(tmp_path / file, jax_job)
    (line,) = (line for line in done.messages if dead_address in line)
    assert "unavailable" in line
    assert not any(jax_job.address in message for message in done.messages)
    assert_unharmed(jax_job)


@pytest.mark.nightly
def test_level_2_says_that_monitor_is_not_there(job: Job) -> None:
    """An open profiler server has no Monitor: one line says where figures come from and why; nothing is made up."""
    query = ("--level", "2", "--service-addr", job.address, "--num-queries", "1", "--duration-ms", "300")

    text = tpumon(*query, "--output", "text").ended(0)
    (line,) = text.messages
    assert job.address in line
    assert "figures come from short traces of the job (its profiler has no Monitor RPC)" in line
    assert "%" not in text.out, "no figure of a TPU"

    (sample,) = tpumon(*query, "--output", "jsonl").ended(0).samples
    assert (sample["address"], sample["source"], sample["step_source"]) == (job.address, "trace", "host")
    for figure in ("mxu_utilization_ratio", "mxu_method", "idle_ratio", "infeed_ratio"):
        assert sample[figure] is None, figure
    assert_unharmed(job)


@pytest.mark.nightly
def test_busy_then_done(jax_job: Job, tmp_path: Path) -> None:
    """While somebody else profiles, level 0 waits, says so, and takes its profile afterwards; theirs is whole."""
    with Profiler(jax_job.address) as other:
        theirs = other.begin(6000, session_id="somebody-else", host_level=1)
        with Tpumon(
            *("--level", "0", "--service-addr", jax_job.address, "--logdir", str(tmp_path)),
            *("--duration-ms", "300", "--num-tracing-attempts", "10"),
        ) as command:
            command.wait_for(lambda: "another profiling session is active" in command.err)
            command.end().ended(0)
        trace = theirs.result().xspace

    (file,) = files_below(tmp_path)
    assert_profile(tmp_path / file, jax_job)
    (tmp_path / "theirs").write_bytes(trace)
    start_ns, stop_ns = window_ns(tmp_path / "theirs")
    assert stop_ns - start_ns >= 6000e6
    assert window_ns(tmp_path / file)[0] >= stop_ns
    assert_unharmed(jax_job)


def test_stands_back_from_a_continuous_session(jax_job: Job, tmp_path: Path) -> None:
    """A continuous session is the owner's: level 0 gives up on that worker, says busy, and the session goes on."""
    with Profiler(jax_job.address) as owner:
        owner.start_continuous("the-owners")
        try:
            done = tpumon(
                *("--level", "0", "--service-addr", jax_job.address, "--logdir", str(tmp_path)),
                *("--duration-ms", "300", "--num-tracing-attempts", "2"),
            ).ended(1)
            assert owner.busy(), "the session still runs"
        finally:
            owner.stop_continuous()

    assert "busy" in done.err
    assert files_below(tmp_path) == []
    assert_unharmed(jax_job)


@pytest.mark.nightly
def test_a_bucket_is_reached_by_tensorflows_file_systems() -> None:
    """What goes to gs:// goes through tf.io.gfile; its file system in memory stands for the bucket."""
    require(importlib.util.find_spec("tensorflow"), "TensorFlow beside pytest")
    program = """
from tpumon.system.logdir import open_logdir
logdir = open_logdir("ram://bucket/log")
logdir.prepare()
session = logdir.new_session()
assert logdir.load(session, "w.xplane.pb") is None
path = logdir.save(session, "w.xplane.pb", b"trace")
assert path == f"ram://bucket/log/plugins/profile/{session}/w.xplane.pb", path
assert logdir.load(session, "w.xplane.pb") == b"trace"
assert logdir.new_session() != session
logdir.discard(session, "w.xplane.pb")
assert logdir.load(session, "w.xplane.pb") is None
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
