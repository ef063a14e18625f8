"""JAX jobs of several generations, each training while tpumon samples it at its defaults: what became of them.

And the counter-test: --host-tracer-level 1, which tpumon never chooses there, hangs jaxlib 0.8.2; so this can tell.

Arguments: versions of JAX. Those that `make test` has not put in place are installed from PyPI into a temporary
directory; `compatibility.py 0.6.2 0.7.2 0.8.2 0.9.2 0.10.2` is the whole of it. Without, only those that are in place.
Ends with 1 if a job was harmed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.run import Tpumon
from support import REPOSITORY
from support.jobs import jax_python, start_jax

IN_PLACE = ("0.6.2", "0.8.2", "0.10.2")
HANGS = "0.8.2"
WATCHED_S = 25.0
AFTERWARDS_S = 3.0
LONGEST_STOP_S = 2.0


@dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Attributes:
        longest_stop_s: the longest time without a step, from tpumon's start until a while after its end.
        rates: steps a second in the moment before, meanwhile, afterwards.
        wrote: what is in the job's working directory, and what tpumon left of its temporary files.
        traced_s: by all samples together.
        told: what the samples said, counted.
    """

    longest_stop_s: float
    rates: tuple[float, float, float]
    wrote: list[str]
    traced_s: float
    told: dict[str, int]

    @property
    def unharmed(self) -> bool:
        return self.longest_stop_s < LONGEST_STOP_S and not self.wrote


def python_with(version: str, scratch: Path) -> Path:
    """An interpreter with that JAX and without TensorFlow."""
    if (there := jax_python(version)).exists():
        return there
    uv, environment = REPOSITORY / ".uv" / "bin" / "uv", scratch / f"venv-{version}"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)
    python = environment / "bin" / "python"
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", python, f"jax=={version}", f"jaxlib=={version}"], check=True
    )
    return python


def watch(version: str, python: Path, scratch: Path, *options: str) -> Outcome:
    """One job, sampled for a while, and ended for sure."""
    scratch.mkdir()
    temporary = scratch / "tmp"
    temporary.mkdir()
    job = start_jax(scratch, version, python=python)
    try:
        time.sleep(AFTERWARDS_S)
        begin_s = time.time()
        with Tpumon(
            *("--level", "2", "--service-addr", job.address, "--output", "jsonl", *options),
            env={"TMPDIR": str(temporary)},
        ) as command:
            time.sleep(WATCHED_S)
            result = command.signal(signal.SIGTERM).end()
        end_s = time.time()
        time.sleep(AFTERWARDS_S + 0.2)
        ends = job.step_ends()
        spans = ((begin_s - AFTERWARDS_S, begin_s), (begin_s, end_s), (end_s, end_s + AFTERWARDS_S))
        rates = [sum(start <= end < stop for end in ends) / (stop - start) for start, stop in spans]
        samples = [json.loads(line) for line in result.out.splitlines()]
        told = [sample["errors"][-1]["reason"] if sample["errors"] else "figures" for sample in samples]
        return Outcome(
            longest_stop_s=job.longest_gap_s(begin_s, end_s + AFTERWARDS_S),
            rates=(rates[0], rates[1], rates[2]),
            wrote=job.cwd_listing() + [path.name for path in temporary.iterdir()],
            traced_s=sum(sample["traced_s"] for sample in samples),
            told={word: told.count(word) for word in dict.fromkeys(told)},
        )
    finally:
        job.stop()


def main() -> int:
    versions = sys.argv[1:] or IN_PLACE
    as_it_should = True
    print(f"{'JAX':8} {'steps/s before, during, after':30} {'longest stop':>12}  {'traced':>7}  samples; verdict")
    with tempfile.TemporaryDirectory() as name:
        runs = [(version, ()) for version in versions]
        if HANGS in versions:
            runs.append((HANGS, ("--host-tracer-level", "1")))
        for i, (version, options) in enumerate(runs):
            python = python_with(version, Path(name))
            outcome = watch(version, python, Path(name, str(i)), *options)
            hangs = bool(options)
            as_it_should &= outcome.unharmed is not hangs
            verdict = ("unharmed" if outcome.unharmed else "HARMED") + (" (it should hang)" if hangs else "")
            rates = ", ".join(f"{rate:.1f}" for rate in outcome.rates)
            told = ", ".join(f"{count} {word}" for word, count in outcome.told.items()) or "none"
            remarks = [*options, *(f"wrote {path}" for path in outcome.wrote)]
            print(
                f"{version:8} {rates:30} {outcome.longest_stop_s:10.2f} s  {outcome.traced_s:5.2f} s  "
                f"{told}; {verdict} {' '.join(remarks)}",
                flush=True,
            )
    return 0 if as_it_should else 1


if __name__ == "__main__":
    sys.exit(main())
