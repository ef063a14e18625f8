"""What being attached costs a job, and what it is good for: start-up time, throughput, forks, traces under samples.

Prints ratios. `start` and `throughput` compare with the same program without tpumon; `sessions` has a job trace itself
in many rounds while half of the time a tpumon samples it, attached and, as the counter-test, not attached. `forks` has
a job fork 20 times in each way that Python has, attached and not.

Arguments: parts to run (`start`, `throughput`, `forks`, `sessions`; default: all), --rounds N of sessions (default
1000), --hook DIR of `forks` (default: this tree's), --jobs: any of
SERVERS in compatibility.py, as far as they are in place here or in --keep DIR (default: jax-0.6.2 jax-0.10.2 tf-2.21).
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import grpc
from compatibility import python_with

from fakes.run import environment
from support import REPOSITORY, free_port
from support.jobs import JOBS, SMALL, jax_python
from support.profiler import Profiler

HOOK = REPOSITORY / "tpumon" / "attach" / "pythonpath"
WRITES_ONLY = ("jax-0.4", "jax-0.5", "jax-0.6", "tf-2.16", "torch_xla")
NO_HOST_EVENTS = ("jax-0.5", "jax-0.6", "jax-0.7", "jax-0.8")
SAMPLE_MS = 20
FORKS, FORKS_S = 20, 90
WAYS = ("os.fork", "Pool", "Process", "ProcessPoolExecutor", "preexec_fn")


def start_up(rounds: int) -> None:
    """A Python that does nothing: alone, with the hook, and under `tpumon run`."""
    plain = [sys.executable, "-c", "pass"]
    with_hook = {**os.environ, "PYTHONPATH": str(HOOK)}
    ways = {
        "alone": (plain, None),
        "with the hook on PYTHONPATH": (plain, with_hook),
        "tpumon run": ([sys.executable, "-m", "tpumon", "run", *plain], None),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (command, env) in ways.items():
            start_s = time.perf_counter()
            subprocess.run(command, check=True, env=env)
            took[name].append(time.perf_counter() - start_s)
    alone_s = statistics.median(took["alone"])
    for name, durations_s in took.items():
        more_ms = (statistics.median(durations_s) - alone_s) * 1000
        print(f"start: {name}: median {statistics.median(durations_s) * 1000:.0f} ms, {more_ms:+.1f} ms")


def throughput(pairs: int, seconds: float) -> None:
    """Steps of a job, attached and plain by turns, on the same core."""
    ratios = []
    for pair in range(pairs):
        rates = {}
        for attached in (True, False) if pair % 2 else (False, True):
            with tempfile.TemporaryDirectory() as scratch:
                env = {**job_environment(Path(scratch)), "LOOP_S": str(seconds)}
                env |= {"PYTHONPATH": str(HOOK), "TPUMON_ATTACH_PORT": str(free_port())} if attached else {}
                job = [jax_python("0.10.2"), "-c", LOOP]
                done = subprocess.run(["taskset", "-c", "1", *job], env=env, capture_output=True, text=True, check=True)
                rates[attached] = float(done.stdout)
        ratios.append(rates[True] / rates[False])
        print(f"throughput: attached {rates[True]:.0f} steps/s, plain {rates[False]:.0f}, ratio {ratios[-1]:.4f}")
    print(f"throughput: median ratio {statistics.median(ratios):.4f} of {pairs} pairs")


LOOP = """
import os, time
import jax, jax.numpy as jnp
step = jax.jit(lambda x: jnp.tanh(x @ x))
x = step(jnp.ones((64, 64))).block_until_ready()
time.sleep(1)
end, steps, start = time.process_time() + float(os.environ["LOOP_S"]), 0, time.process_time()
while time.process_time() < end:
    x = step(x).block_until_ready()
    steps += 1
print(steps / (time.process_time() - start))
"""


def job_environment(scratch: Path) -> dict[str, str]:
    for name in ("home", "run"):
        (scratch / name).mkdir(exist_ok=True)
    return {**environment(scratch), **SMALL}


def forks(name: str, python: Path, hook: Path, *, attached: bool) -> bool:
    """Whether a job goes on after each of its forks; each way has a job of its own."""
    told = []
    for way in WAYS:
        with tempfile.TemporaryDirectory() as scratch_name:
            scratch = Path(scratch_name)
            env = {**job_environment(scratch), "PJRT_DEVICE": "CPU", "TPUMON_ATTACH_PORT": str(free_port())}
            env |= {"PYTHONPATH": str(hook), "TPUMON_ATTACH_DIR": scratch_name} if attached else {}
            command = [python, JOBS / "forks.py", name.partition("-")[0], str(FORKS), way]
            with subprocess.Popen(
                command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
            ) as job:
                alarm = threading.Timer(FORKS_S, os.killpg, (job.pid, signal.SIGKILL))  # children that hang, too
                alarm.start()
                assert job.stdout is not None
                lines = job.stdout.read().splitlines()
                alarm.cancel()
            told.append(f"{way} {len([line for line in lines if line.startswith(way)])}/{FORKS}")
    how = "attached" if attached else "not attached"
    print(f"forks: {name}, {how}: {', '.join(told)}", flush=True)
    return all(line.endswith(f" {FORKS}/{FORKS}") for line in told)


def sessions(name: str, python: Path, rounds: int, *, attached: bool) -> bool:
    """Whether all rounds went as if nobody sampled (or, not attached, whether some did not)."""
    old, host_level = name.startswith(WRITES_ONLY), 0 if name.startswith(NO_HOST_EVENTS) else 1
    with tempfile.TemporaryDirectory() as scratch_name:
        scratch = Path(scratch_name)
        port = free_port()
        env = {**job_environment(scratch), "PJRT_DEVICE": "CPU"}
        env |= {"PYTHONPATH": str(HOOK)} if attached else {}
        command = [python, JOBS / "rounds.py", name.partition("-")[0], str(port), str(rounds)]
        with subprocess.Popen(
            command, env=env, cwd=scratch, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL,
        ) as job:  # fmt: skip
            assert job.stdin is not None
            assert job.stdout is not None
            assert job.stdout.readline() == "READY\n"
            over = threading.Event()
            counts: dict[str, int] = {}
            sampler = threading.Thread(target=sample, args=(port, host_level, old, scratch / "files", over, counts))
            sampler.start()
            job.stdin.write("go\n")
            job.stdin.flush()
            told = job.stdout.readline().strip()
            over.set()
            sampler.join()
            job.stdin.close()
    told_ok = told.startswith(f"{rounds} rounds, 0 failed")
    fine = told_ok and counts.get("answered", 0) > 0 if attached else not told_ok
    how = "attached" if attached else "not attached (counter-test)"
    verdict = "as expected" if fine else "NOT AS EXPECTED"
    print(f"sessions: {name}, {how}: {told}; samples {counts}: {verdict}", flush=True)
    return fine


def sample(port: int, host_level: int, old: bool, files: Path, over: threading.Event, counts: dict[str, int]) -> None:
    """Half of the time a sample, however the job's own traces let it."""
    with Profiler(f"127.0.0.1:{port}") as profiler:
        while not over.is_set():
            request = profiler._request(SAMPLE_MS, f"s{time.monotonic_ns()}", host_level)
            if old:
                request.emit_xspace, request.repository_root = False, str(files)
            start_s = time.monotonic()
            try:
                profiler._method("Profile")(request.SerializeToString(), timeout=60)
                kind = "answered"
            except grpc.RpcError as error:
                kind = "busy" if "Another" in (error.details() or "") else error.details() or "?"
            counts[kind] = counts.get(kind, 0) + 1
            if counts[kind] % 50 == 0:
                shutil.rmtree(files, ignore_errors=True)
            time.sleep(time.monotonic() - start_s if kind == "answered" else 0.005)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--hook", type=Path, default=HOOK)
    parser.add_argument("--jobs", nargs="*", default=["jax-0.6.2", "jax-0.10.2", "tf-2.21"])
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "no-such-directory")
    given = parser.parse_args()
    parts, fine = given.parts or ["start", "throughput", "forks", "sessions"], True
    if "start" in parts:
        start_up(15)
    if "throughput" in parts:
        throughput(7, 8.0)
    for name in given.jobs:
        python = python_with(name, given.keep)
        assert python is not None, f"no Python for {name}"
        if "forks" in parts:
            fine = forks(name, python, given.hook, attached=True) and fine
            fine = forks(name, python, given.hook, attached=False) and fine
        if "sessions" in parts:
            fine = sessions(name, python, given.rounds, attached=True) and fine
            fine = sessions(name, python, min(given.rounds, 100), attached=False) and fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
