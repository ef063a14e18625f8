"""A real small server of models, and what its own log says of the spans in which tpumon looked."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fakes.run import environment
from support import REPOSITORY, free_port, require, wait_until
from support.jobs import JOBS, SMALL, jax_python

LOOP = REPOSITORY.parent / "shared" / "data" / "serving_loop.py"
_COMPILES_S = 240  # many programs, on a machine that does much else
_LARGE = ("--width", "768", "--layers", "4")
"""A model of which a step takes a hundred times as long as what the host does for it."""
FAMILIES = {"run_model_impl": "step", "prefill": "prefill", "generate": "decode"}


@dataclass(frozen=True)
class Truth:
    """What the log says of some spans.

    Attributes:
        steps: rows of steps that begin in them.
        whole: those that end in them, too.
        busy_ratio: share of the spans in steps.
        waited_ratio: share of the steps' time in which the machine kept them waiting for a processor, or the host's
            part was not the program's.
    """

    steps: Sequence[Mapping[str, Any]]
    whole: Sequence[Mapping[str, Any]]
    spans_s: float
    busy_ratio: float
    waited_ratio: float

    def seconds(self, family: str) -> list[float]:
        """How long the whole steps of a family took, ascending."""
        return sorted(row["seconds"] for row in self.whole if FAMILIES[row["program"]] == family)

    def rate(self, family: str) -> float:
        """How many steps of a family begin per second."""
        return sum(FAMILIES[row["program"]] == family for row in self.steps) / self.spans_s

    @property
    def padding_ratio(self) -> float:
        """Share of the computed tokens that are padding."""
        tokens = sum(row["prefill_tokens"] + row["decode_tokens"] for row in self.whole)
        return 1 - tokens / sum(row["bucket"] for row in self.whole)


@dataclass(frozen=True)
class Server:
    """A running server."""

    address: str
    log: Path
    processor_times: Path

    def truth(self, spans: Sequence[tuple[float, float]]) -> Truth:
        """What it wrote of these spans, in seconds since 1970."""
        lines, times = self.log.read_text().splitlines(), self.processor_times.read_text().split()
        rows = [{**json.loads(line), "cpu_s": float(cpu_s)} for line, cpu_s in zip(lines, times, strict=False)]
        ends = [(row["time_unix_s"], row["time_unix_s"] + row["seconds"], row) for row in rows]
        whole = [row for begin, end, row in ends if any(first <= begin and end <= last for first, last in spans)]
        spans_s = sum(last - first for first, last in spans)
        busy_s = sum(max(0.0, min(end, last) - max(begin, first)) for begin, end, _ in ends for first, last in spans)
        steps_s = sum(row["seconds"] for row in whole)
        return Truth(
            steps=[row for begin, _, row in ends if any(first <= begin < last for first, last in spans)],
            whole=whole,
            spans_s=spans_s,
            busy_ratio=busy_s / spans_s,
            waited_ratio=max(0.0, 1 - sum(row["cpu_s"] for row in whole) / steps_s) if steps_s else 0.0,
        )


@contextlib.contextmanager
def serving(directory: Path, load: str, *options: str) -> Iterator[Server]:
    """A server under load, its programs compiled; the test is skipped where there is none."""
    if not LOOP.exists():
        pytest.skip(f"{LOOP}: not there")
    python = jax_python("0.10.2")
    require(python.exists(), "JAX 0.10.2")
    log, times, printed = (directory / name for name in ("log", "times", "printed"))
    for folder in ("cwd", "home", "run"):
        (directory / folder).mkdir()
    port, more = free_port(), (*_LARGE, "--load", load, *options)
    with printed.open("wb") as out:
        process = subprocess.Popen(
            [python, JOBS / "serving.py", LOOP, times, "--profiler-port", str(port), "--log", log, *more],
            cwd=directory / "cwd",
            env=environment(directory) | SMALL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        ready = lambda: process.poll() is not None or "READY" in printed.read_text(errors="replace")  # noqa: E731
        wait_until(ready, _COMPILES_S, lambda: printed.read_text(errors="replace")[-2000:])
        assert process.poll() is None, printed.read_text(errors="replace")[-2000:]
        yield Server(address=f"127.0.0.1:{port}", log=log, processor_times=times)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
