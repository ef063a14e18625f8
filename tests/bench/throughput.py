"""Steps a second of a training job that tpumon follows at its defaults. Target: median ratio 0.98 or better.

Two equal jobs run as fast as they can, each on a core of its own; only one of them is sampled, and tpumon shares that
one's core. A pair is the span around a sample (from its start until 1 s later, which takes in the collecting and
tpumon's own work) and the equally long one before it, in which nothing is sampled. In each, what counts is how far the
sampled job gets, divided by how far its twin gets: what else the machine does hits both alike. With over without is the
ratio while sampling; over a whole interval it weighs as much as the span takes of it, and that is the ratio to judge.

Arguments: frameworks, `tf` or a version of JAX; without, `tf 0.10.2`.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.run import Tpumon
from support.jobs import Job, start_jax, start_tf

TARGET = 0.98
SAMPLES = 20
SKIPPED = 2  # the first come early, on credit
SPAN_S = 1.0
STEPS = ("--step-ms", "0", "--width", "8192")  # 2 to 4 ms of computing


@contextmanager
def on_core(number: int) -> Iterator[None]:
    """What is started meanwhile stays on this core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[number % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def start(framework: str, directory: Path) -> Job:
    directory.mkdir()
    return start_tf(directory, *STEPS) if framework == "tf" else start_jax(directory, framework, *STEPS)


def watch(framework: str) -> tuple[list[dict[str, Any]], list[list[float]]]:
    """The samples, and when each step of the sampled job and of its twin ended."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        jobs = []
        for core, name in enumerate(("sampled", "twin")):
            with on_core(core):
                jobs.append(start(framework, directory / name))
            stack.callback(jobs[-1].stop)
        with on_core(0):
            command = stack.enter_context(
                Tpumon("--level", "2", "--service-addr", jobs[0].address, "--output", "jsonl")
            )
        command.wait_for(lambda: command.out.count("\n") >= SKIPPED + SAMPLES, timeout_s=60 * SAMPLES)
        time.sleep(SPAN_S + 0.2)  # and for the jobs to report it
        result = command.signal(signal.SIGTERM).end()
        return [json.loads(line) for line in result.out.splitlines()], [job.step_ends() for job in jobs]


def measure(framework: str) -> None:
    samples, ends = watch(framework)

    def progress(begin_s: float) -> float:
        mine, other = (bisect(job, begin_s + SPAN_S) - bisect(job, begin_s) for job in ends)
        return mine / other

    starts = [sample["time_unix_s"] for sample in samples[SKIPPED:]]
    whole_s = starts[-1] - starts[0]
    weight = SPAN_S * (len(starts) - 1) / whole_s
    while_sampling = [progress(start) / progress(start - SPAN_S) for start in starts]
    overall = [1 - weight * (1 - ratio) for ratio in while_sampling]
    traced_s = sum(sample["traced_s"] for sample in samples[SKIPPED:-1])
    low, median, high = statistics.quantiles(overall, n=4)
    print(
        f"{framework:7} {len(overall)} pairs, one every {whole_s / (len(starts) - 1):.1f} s: median ratio {median:.3f} "
        f"(quartiles {low:.3f}, {high:.3f}; all {min(overall):.3f}-{max(overall):.3f}), target {TARGET}; in the second "
        f"of a sample {statistics.median(while_sampling):.3f}; traced {traced_s / whole_s:.2%} of the time; steps of "
        f"{1000 * (ends[0][-1] - ends[0][0]) / len(ends[0]):.1f} ms",
        flush=True,
    )
    unanswered = sum(sample["source"] is None for sample in samples)
    if unanswered:
        print(f"{framework:7} {unanswered} samples without an answer: {samples[-1]['errors']}")


def main() -> None:
    for framework in sys.argv[1:] or ("tf", "0.10.2"):
        measure(framework)


if __name__ == "__main__":
    main()
