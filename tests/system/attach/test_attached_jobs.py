"""Real jobs that are attached: found without a line of code, and able to trace themselves while they are sampled."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fakes.run import Tpumon, environment
from support import free_port, require, wait_until
from support.jobs import JOBS, SMALL, START_S, Job, jax_python, start_job
from support.profiler import Profiler

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # it takes 20 s, of which jobs start for most

HOOK = Path(__file__).parents[3] / "tpumon" / "attach" / "pythonpath"


@contextmanager
def unprepared(directory: Path, env: Mapping[str, str], *options: str) -> Iterator[Job]:
    """A job without a profiler server of its own, started by `tpumon run`."""
    python = jax_python("0.10.2")
    require(python.exists(), "JAX 0.10.2")
    for name in ("home", "run", "cwd"):
        (directory / name).mkdir()
    log = directory / "log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-m", "tpumon", "run", python, JOBS / "unprepared_loop.py", *options],
            env={**environment(directory), **SMALL, **env},
            cwd=directory / "cwd",
            stdout=file,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield Job("unprepared", process, int(env["TPUMON_ATTACH_PORT"]), directory / "cwd", log)
        finally:
            process.kill()


def test_a_job_without_a_line_of_code_is_watched(tmp_path: Path) -> None:
    """A tpumon that waits finds it as attached, with the steps that it marks, and nothing else is there."""
    env = {"TPUMON_ATTACH_PORT": str(free_port()), "TPUMON_ATTACH_DIR": str(tmp_path)}
    watching = Tpumon(
        "--level", "2", "--output", "jsonl", "--duration-ms", "200", env={"TPUMON_ATTACH_DIR": str(tmp_path)}
    )
    with watching, unprepared(tmp_path, env, "--steps") as job:

        def sampled() -> bool:
            """Whether there is a sample with the job's own steps."""
            lines = [line for line in watching.out.splitlines(keepends=True) if line.endswith("\n")]
            samples = [json.loads(line) for line in lines]
            return any(sample["step_name"] == "step" for sample in samples if sample["address"] == job.address)

        watching.wait_for(lambda: job.process.poll() is None and sampled(), START_S)
        (announced,) = tmp_path.glob("tpumon-run-*/*")
        assert announced.name.endswith(f"-{job.process.pid}")
        job.wait_for_more_steps(10)
        job.process.send_signal(signal.SIGINT)
        assert job.process.wait(60) == -signal.SIGINT
        watching.signal(signal.SIGTERM).end()
    assert job.log.endswith("KeyboardInterrupt\n")
    assert not re.search("tpumon: ", job.log), job.log
    assert job.cwd_listing() == []
    assert list(tmp_path.glob("tpumon-run-*/*")) == []


@contextmanager
def fitting(directory: Path, *options: str) -> Iterator[tuple[str, Path]]:
    """Keras' `fit`, started by `tpumon run`, which ends as usual: the address of its profiler server, and its log."""
    port, stop, log = free_port(), directory / "stop", directory / "log"
    for name in ("home", "run"):
        (directory / name).mkdir()
    env = {**environment(directory), **SMALL, "TPUMON_ATTACH_PORT": str(port), "TPUMON_ATTACH_DIR": str(directory)}
    command = [sys.executable, "-m", "tpumon", "run", sys.executable, JOBS / "keras_fit.py", stop, *options]
    with log.open("wb") as file, subprocess.Popen(command, env=env, stdout=file, stderr=subprocess.STDOUT) as process:
        try:
            wait_until(lambda: any(directory.glob(f"tpumon-run-*/*-{process.pid}")), START_S, log.read_text)
            wait_until(lambda: "epoch 3" in log.read_text(), START_S, log.read_text)
            yield f"127.0.0.1:{port}", log
            stop.touch()
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.mark.nightly
@pytest.mark.parametrize("input_ms", ["30", "100"])
def test_keras_fit_that_waits_for_its_input_is_found(tmp_path: Path, input_ms: str) -> None:
    """By the one sample that traces more of the host, and still after more of them."""
    with fitting(tmp_path, input_ms) as (address, _):
        often = ("--interval", "1", "--max-duty", "50%", "--num-queries", "12")
        with Tpumon("--level", "2", "--service-addr", address, "--output", "jsonl", *often) as watching:
            samples = watching.end(200).ended(0).samples
    found = [[finding["finding"] for finding in sample["findings"]] for sample in samples]
    assert all("input-bound" in findings for findings in found[6:]), found


def test_keras_fit_is_watched_and_ends_as_usual(tmp_path: Path) -> None:
    """A script that never heard of a profiler: its server is announced, its steps are in a trace, its status is 0."""
    with fitting(tmp_path) as (address, log), Profiler(address) as profiler:
        xspace = profiler.begin(300, session_id="sample", host_level=1).result(timeout=60).xspace
        assert b"/host:CPU" in xspace
    assert log.read_text().endswith("fitted\n")
    assert "not fitted" not in log.read_text()
    assert "tpumon:" not in log.read_text()
    assert not any(tmp_path.glob("tpumon-run-*/*"))


@pytest.fixture
def attached_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Job]]:
    """`attached_job("0.10.2")`, `attached_job("tf")`: a job with a server of its own."""
    started: list[Job] = []

    def start(framework: str) -> Job:
        python = Path(sys.executable) if framework == "tf" else jax_python(framework)
        require(python.exists(), f"JAX {framework}")
        script = "tf_loop.py" if framework == "tf" else "jax_loop.py"
        job = start_job(
            framework, python, script, tmp_path_factory.mktemp("job"), ("--step-ms", "8"), {"PYTHONPATH": str(HOOK)}
        )
        started.append(job)
        return job

    yield start
    for job in started:
        job.stop()


@pytest.mark.parametrize("framework", ["0.10.2", pytest.param("tf", marks=pytest.mark.nightly)])
def test_its_own_traces_meet_no_sample(attached_job: Callable[[str], Job], framework: str, tmp_path: Path) -> None:
    """A trace that is begun during a sample begins when that ends and is whole, and so is the next one."""
    job = attached_job(framework)
    with Profiler(job.address) as profiler:
        for number in range(2):
            directory = tmp_path / str(number)
            sample = profiler.begin(1000, session_id=f"sample-{number}", host_level=1)
            job.change("--own-trace", str(directory))
            job.wait_for_log(f"trace begun {directory}")
            assert sample.result(timeout=60).xspace  # what was begun first was not disturbed
            assert profiler.busy()
            job.change()
            job.wait_for_log(f"trace ended {directory}")
            assert list(directory.rglob("*.xplane.pb"))
            assert not profiler.busy()
    assert "trace not" not in job.log
    assert "tpumon:" not in job.log


def test_processes_that_own_devices_are_attached_once_each(tmp_path: Path) -> None:
    """Two workers that are spawned have a server each, at ports of their own; their parent uses no device."""
    python = jax_python("0.10.2")
    require(python.exists(), "JAX 0.10.2")
    (tmp_path / "home").mkdir()
    (tmp_path / "run").mkdir()
    script = tmp_path / "workers.py"
    script.write_text(
        "import multiprocessing, os, sys\n"
        "def work(end):\n"
        "    import jax\n"
        "    print('uses', jax.local_device_count(), os.getpid(), flush=True)\n"
        "    end.wait()\n"
        "if __name__ == '__main__':\n"
        "    spawn = multiprocessing.get_context('spawn')\n"
        "    end = spawn.Event()\n"
        "    workers = [spawn.Process(target=work, args=(end,)) for _ in range(2)]\n"
        "    for worker in workers: worker.start()\n"
        "    sys.stdin.readline()\n"
        "    end.set()\n"
        "    for worker in workers: worker.join()\n"
        "    print([worker.exitcode for worker in workers])\n"
    )
    env = {**environment(tmp_path), **SMALL, "TPUMON_ATTACH_PORT": str(free_port())}
    announced = tmp_path / "run" / f"tpumon-run-{os.geteuid()}"

    def files() -> list[Path]:
        return [path for path in announced.glob("*") if not path.name.startswith(".")]

    command = [sys.executable, "-m", "tpumon", "run", python, script]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=env, cwd=tmp_path, **streams) as process:  # type: ignore[call-overload]
        try:
            wait_until(lambda: len(files()) == 2, START_S, lambda: f"both are announced: {files()}")
            ports = {int(path.read_text().split()[1]) for path in files()}
            pids = {int(path.name.rpartition("-")[2]) for path in files()}
            out, err = process.communicate("\n", timeout=60)
        finally:
            process.kill()
    assert len(ports) == 2
    assert pids == {int(line.split()[2]) for line in out.splitlines() if line.startswith("uses")}
    assert out.splitlines()[-1] == "[0, 0]"
    assert err == ""
    assert process.pid not in pids


@pytest.mark.parametrize("version", [pytest.param("0.6.2", marks=pytest.mark.nightly), "0.10.2"])
def test_backends_that_are_cleared_are_noticed_when_they_are_used(tmp_path: Path, version: str) -> None:
    """A program may clear JAX's backends before it uses them for the first time."""
    python = jax_python(version)
    require(python.exists(), f"JAX {version}")
    for name in ("home", "run"):
        (tmp_path / name).mkdir()
    program = (
        "import jax.extend, sys; jax.extend.backend.clear_backends(); jax.device_count(); print('used', flush=True); "
        "sys.stdin.read()"
    )
    env = {**environment(tmp_path), **SMALL, "TPUMON_ATTACH_PORT": str(free_port()), "TPUMON_ATTACH_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tpumon", "run", python, "-c", program]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=env, cwd=tmp_path, **streams) as process:  # type: ignore[call-overload]
        try:
            wait_until(lambda: any(tmp_path.glob(f"tpumon-run-*/*-{process.pid}")), 30, "it is announced")
            out, err = process.communicate("", timeout=60)
        finally:
            process.kill()
    assert (out, err, process.returncode) == ("used\n", "", 0)


FORKS = ("os.fork", "Pool", "Process", "ProcessPoolExecutor", "preexec_fn")


OTHERS = [pytest.param(name, marks=pytest.mark.nightly) for name in ("0.6.2", "0.8.2", "tf")]


@pytest.mark.parametrize("framework", ["0.10.2", *OTHERS])
def test_it_forks_as_without_tpumon(tmp_path: Path, framework: str) -> None:
    """In every way Python has, three times each, with a server that has started: parent and children go on and end."""
    kind, python = ("tf", Path(sys.executable)) if framework == "tf" else ("jax", jax_python(framework))
    require(python.exists(), f"JAX {framework}")
    for name in ("home", "run"):
        (tmp_path / name).mkdir()
    ways = (*FORKS, "sys.exit") if framework == "0.6.2" else FORKS  # of the others some crash or hang there, alone too
    env = {**environment(tmp_path), **SMALL, "TPUMON_ATTACH_PORT": str(free_port()), "TPUMON_ATTACH_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tpumon", "run", python, JOBS / "forks.py", kind, "3", *ways]
    log = tmp_path / "log"
    with (
        log.open("wb") as file,
        subprocess.Popen(command, env=env, stdout=file, stderr=subprocess.STDOUT, start_new_session=True) as process,
    ):
        try:
            wait_until(lambda: process.poll() is not None, START_S, log.read_text)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # children that hang, too
    assert process.returncode == 0, log.read_text()
    assert log.read_text().endswith("DONE\n")
    assert "tpumon:" not in log.read_text()
