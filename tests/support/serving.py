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
_LARGE = ("--width", "512", "--layers", "4")
"""A model of which a step takes a hundred times as long as what the host does for it."""
FAMILIES = {"run_model_impl": "step", "prefill": "prefill", "generate": "decode"}


@dataclass(frozen=True)
class Truth:
    """What the log says of some spans.

    Attributes:
        steps: rows of steps that begin in them.
        whole: those that end in them, too.
        busy_ratios: share of the spans in the model's program: at least, and at most.
    """

    steps: Sequence[Mapping[str, Any]]
    whole: Sequence[Mapping[str, Any]]
    spans_s: float
    busy_ratios: tuple[float, float]

    def seconds(self, family: str) -> list[float]:
        """How long the model's program took at most in the whole steps of a family, ascending."""
        return sorted(row["program_s"] for row in self.whole if FAMILIES[row["program"]] == family)

    def least_seconds(self, family: str) -> list[float]:
        """The same, at least."""
        return sorted(row["least_s"] for row in self.whole if FAMILIES[row["program"]] == family)

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
    page: str
    log: Path
    program_times: Path
    page_readings: Path

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its steps so far: of each its log, and how long its program took."""
        lines, times = self.log.read_text().splitlines(), self.program_times.read_text().splitlines()
        columns = ("least_s", "program_s")
        return [
            json.loads(line) | dict(zip(columns, map(float, words.split()), strict=True))
            for line, words in zip(lines, times, strict=False)
        ]

    @property
    def readings(self) -> list[tuple[float, float]]:
        """When its page was read, in seconds since 1970, and how many tokens it said it had generated."""
        lines = (line.split() for line in self.page_readings.read_text().splitlines())
        return [(float(time_unix_s), float(tokens)) for time_unix_s, tokens in lines]

    def truth(self, spans: Sequence[tuple[float, float]]) -> Truth:
        """What it wrote of these spans, in seconds since 1970."""
        rows = self.rows
        ends = [(row["time_unix_s"], row["time_unix_s"] + row["seconds"], row) for row in rows]
        whole = [row for begin, end, row in ends if any(first <= begin and end <= last for first, last in spans)]
        spans_s = sum(last - first for first, last in spans)
        inside = lambda begin, end: sum(max(0.0, min(end, last) - max(begin, first)) for first, last in spans)  # noqa: E731
        least_s, most_s = (
            sum(inside(begin, begin + row[name]) for begin, _, row in ends) for name in ("least_s", "program_s")
        )
        return Truth(
            steps=[row for begin, _, row in ends if any(first <= begin < last for first, last in spans)],
            whole=whole,
            spans_s=spans_s,
            busy_ratios=(least_s / spans_s, most_s / spans_s),
        )


@contextlib.contextmanager
def serving(directory: Path, load: str, *options: str, **variables: str) -> Iterator[Server]:
    """A server under load, its programs compiled; skipped where there is none. `variables`: of its process."""
    if not LOOP.exists():
        pytest.skip(f"{LOOP}: not there")
    python = jax_python("0.10.2")
    require(python.exists(), "JAX 0.10.2")
    log, times, readings, printed = (directory / name for name in ("log", "times", "readings", "printed"))
    for folder in ("cwd", "home", "run"):
        (directory / folder).mkdir()
    port, page_port = free_port(), free_port()
    more = (*_LARGE, "--metrics-port", str(page_port), "--load", load, *options)
    with printed.open("wb") as out:
        process = subprocess.Popen(
            [python, JOBS / "serving.py", LOOP, times, readings, "--profiler-port", str(port), "--log", log, *more],
            cwd=directory / "cwd",
            env=environment(directory) | SMALL | {"NPROC": "1"} | variables,  # XLA: one thread of a program
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        ready = lambda: process.poll() is not None or "READY" in printed.read_text(errors="replace")  # noqa: E731
        wait_until(ready, _COMPILES_S, lambda: printed.read_text(errors="replace")[-2000:])
        assert process.poll() is None, printed.read_text(errors="replace")[-2000:]
        page = f"http://127.0.0.1:{page_port}/metrics"
        yield Server(address=f"127.0.0.1:{port}", page=page, log=log, program_times=times, page_readings=readings)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
