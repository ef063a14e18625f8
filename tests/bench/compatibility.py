"""Jobs of several generations of servers, each training while tpumon samples it at its defaults: what became of them.

tpumon runs all the time, and is paused and not paused in turns, so that what else this machine does meets both alike.
Printed are the medians of steps a second of both, and of the ratios of neighbours.

And the counter-test: --host-tracer-level 1, which tpumon never chooses there, hangs jaxlib 0.8.2; so this can tell.

Arguments: names of SERVERS; `all` for all of them. Those that `make test` has not put in place are installed from PyPI
into a temporary directory (or into that of --keep DIR, where they stay), if there is an interpreter for them. Without
arguments, only those that are in place. Ends with 1 if a job was harmed.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.run import Tpumon, tpumon
from support import REPOSITORY
from support.jobs import Job, jax_python, start_jax, start_job

SERVERS = {
    "jax-0.4.38": ("3.11", "jax==0.4.38", "jaxlib==0.4.38"),
    "jax-0.5.3": ("3.11", "jax==0.5.3", "jaxlib==0.5.3"),
    "jax-0.6.2": ("3.11", "jax==0.6.2", "jaxlib==0.6.2"),
    "jax-0.8.2": ("3.11", "jax==0.8.2", "jaxlib==0.8.2"),
    "jax-0.8.3": ("3.12", "jax==0.8.3", "jaxlib==0.8.3"),
    "jax-0.9.1": ("3.12", "jax==0.9.1", "jaxlib==0.9.1"),
    "jax-0.10.2": ("3.11", "jax==0.10.2", "jaxlib==0.10.2"),
    "jax-newest": ("3.13", "jax", "jaxlib"),
    "tf-2.16": ("3.12", "tensorflow-cpu==2.16.2"),
    "tf-2.21": ("3.11", "tensorflow==2.21.0"),
    "torch_xla-2.9": ("3.11", "torch==2.9.0", "torch_xla==2.9.0", "numpy"),
}
"""By name: Python, and what to install. The part before the dash names the job."""

IN_PLACE = ("jax-0.6.2", "jax-0.8.2", "jax-0.10.2", "tf-2.21")
HANGS = "jax-0.8.2"
PAIRS = 6
WINDOW_S = 10.0  # in which a sample falls at the usual pace
SETTLE_S = 1.5
LONGEST_STOP_S = 2.0


@dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Attributes:
        longest_stop_s: the longest time without a step, from tpumon's start until its end.
        paused_rates: steps a second while tpumon is paused.
        sampled_rates: steps a second in the windows between.
        wrote: what is in the job's working directory, and what tpumon left of its temporary files.
        traced_s: by all samples together.
        told: what the samples said, counted.
    """

    longest_stop_s: float
    paused_rates: list[float]
    sampled_rates: list[float]
    wrote: list[str]
    traced_s: float
    told: dict[str, int]

    @property
    def ratio(self) -> float:
        """Steps a second while it is sampled, of those while it is not: the median of neighbours; NaN if it hung."""
        before, after = self.paused_rates[:-1], self.paused_rates[1:]
        neighbours = zip(self.sampled_rates, before, after, strict=True)
        ratios = [2 * sampled / (one + other) for sampled, one, other in neighbours if one + other]
        return median(ratios) if ratios else math.nan

    @property
    def unharmed(self) -> bool:
        return self.longest_stop_s < LONGEST_STOP_S and not self.wrote


def interpreter(version: str) -> Path | None:
    """A Python of that version on this machine."""
    named = shutil.which(f"python{version}")
    places = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    return places[-1] if places else Path(named) if named else None


def python_with(name: str, scratch: Path) -> Path | None:
    """An interpreter with those packages and no others; None if this machine has no such Python."""
    if name == "tf-2.21":
        return Path(sys.executable)
    if name.startswith("jax-") and (there := jax_python(name.removeprefix("jax-"))).exists():
        return there
    version, *packages = SERVERS[name]
    uv, environment = REPOSITORY / ".uv" / "bin" / "uv", scratch / name
    python = environment / "bin" / "python"
    if not python.exists():
        base = interpreter(version)
        if base is None:
            return None
        subprocess.run([uv, "venv", "--quiet", "--python", base, environment], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *packages], check=True)
    return python


def start(name: str, python: Path, scratch: Path) -> Job:
    """The job of a kind of server."""
    kind, _, version = name.partition("-")
    if kind == "jax":
        return start_jax(scratch, version, python=python)
    return start_job(name, python, {"tf": "tf_loop.py", "torch_xla": "torch_loop.py"}[kind], scratch)


def watch(name: str, python: Path, scratch: Path, *options: str) -> Outcome:
    """One job, sampled for a while, and ended for sure."""
    scratch.mkdir()
    temporary = scratch / "tmp"
    pauses = scratch / "pauses"
    temporary.mkdir()
    pauses.mkdir(mode=0o700)
    job = start(name, python, scratch)
    try:
        env = {"TMPDIR": str(temporary), "TPUMON_PAUSE_DIR": str(pauses)}
        windows: list[tuple[float, float]] = []
        begin_s = time.time()
        with Tpumon("--level", "2", "--service-addr", job.address, "--output", "jsonl", *options, env=env) as command:
            for number in range(2 * PAIRS + 1):
                tpumon("pause", "0" if number % 2 else "1h", env=env)
                time.sleep(SETTLE_S)
                windows.append((time.time(), time.time() + WINDOW_S))
                time.sleep(WINDOW_S)
            result = command.signal(signal.SIGTERM).end()
        end_s = time.time()
        time.sleep(1.0)  # the job's report may lag
        ends = job.step_ends()
        rates = [sum(start <= end < stop for end in ends) / WINDOW_S for start, stop in windows]
        samples = [json.loads(line) for line in result.out.splitlines()]
        told = [sample["errors"][-1]["reason"] if sample["errors"] else "figures" for sample in samples]
        return Outcome(
            longest_stop_s=job.longest_gap_s(begin_s, end_s),
            paused_rates=rates[::2],
            sampled_rates=rates[1::2],
            wrote=job.cwd_listing() + [path.name for path in temporary.iterdir()],
            traced_s=sum(sample["traced_s"] for sample in samples),
            told={word: told.count(word) for word in dict.fromkeys(told)},
        )
    finally:
        job.stop()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or any of {', '.join(SERVERS)}")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    names = list(SERVERS) if "all" in arguments.names else arguments.names or list(IN_PLACE)
    as_it_should = True
    print(f"{'server':14} {'steps/s paused, sampled, ratio':30} {'longest stop':>12}  {'traced':>7}  samples; verdict")
    with tempfile.TemporaryDirectory() as scratch:
        runs: list[tuple[str, tuple[str, ...]]] = [(name, ()) for name in names]
        if HANGS in names:
            runs.append((HANGS, ("--host-tracer-level", "1")))
        for i, (name, options) in enumerate(runs):
            python = python_with(name, arguments.keep or Path(scratch))
            if python is None:
                print(f"{name:14} not run: no Python {SERVERS[name][0]} here", flush=True)
                continue
            outcome = watch(name, python, Path(scratch, str(i)), *options)
            hangs = bool(options)
            as_it_should &= outcome.unharmed is not hangs
            verdict = ("unharmed" if outcome.unharmed else "HARMED") + (" (it should hang)" if hangs else "")
            rates = f"{median(outcome.paused_rates):.1f}, {median(outcome.sampled_rates):.1f}, {outcome.ratio:.3f}"
            told = ", ".join(f"{count} {word}" for word, count in outcome.told.items()) or "none"
            remarks = [*options, *(f"wrote {path}" for path in outcome.wrote)]
            print(
                f"{name:14} {rates:30} {outcome.longest_stop_s:10.2f} s  {outcome.traced_s:5.2f} s  "
                f"{told}; {verdict} {' '.join(remarks)}",
                flush=True,
            )
    return 0 if as_it_should else 1


if __name__ == "__main__":
    sys.exit(main())
