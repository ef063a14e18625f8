"""How often an owner who opens traces of their job at random moments meets a sample, which makes their call raise.

The sampler with its own pace, in virtual time, samples one job for weeks; what answers is a stand-in for a profiler
server with its one session at a time. The owner opens a trace at moments that do not depend on tpumon's: so a trace
meets a sample as often as samples take up the time in which the owner is not tracing anyway. While the owner traces
there is no sample (tpumon is refused, and yields), so that share is greater than the traced share of all the time by
the owner's own part of it, and by nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import virtual_time
from support.samples import sample
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sources import ProfilerSource
from tpumon.discovery.finder import Fixed
from tpumon.errors import SourceError
from tpumon.model import Query, Sample, Target

DAYS = 20
OWNER_PAUSES_S = 200.0  # on average, exponentially distributed
OWNER_TRACES_S = 5.0
SAMPLES_S = (0.15, 0.6, 2.2, 4.5, 11.0)  # collecting included
TOLERATED_ERRORS = 3  # standard errors of the count


async def _no_pause() -> None:
    """This host is not paused."""


@dataclass
class Job(ProfilerSource):
    """A profiler server, and how often it was asked what.

    Attributes:
        sample_s: how long each sample traces.
        tracing: who is: "owner", "tpumon" or nobody.
    """

    sample_s: float
    tracing: str | None = None
    traced_s: float = 0.0
    owner_s: float = 0.0
    opened: int = 0
    met: int = 0
    refused: int = 0

    usual_interval_s = 10.0
    costs_job = True
    name = "trace"

    def likely_s(self, query: Query) -> float:
        return self.sample_s

    async def fetch(self, query: Query) -> Sample:
        """tpumon's side."""
        if self.tracing is not None:
            self.refused += 1
            raise SourceError("busy", "another profiling session is active; standing back")
        self.tracing = "tpumon"
        await asyncio.sleep(self.sample_s)
        self.tracing = None
        self.traced_s += self.sample_s
        return sample(
            "job",
            window_s=self.sample_s,
            took_s=self.sample_s,
            interval_s=query.interval_s,
            traced_s=self.sample_s,
        )

    async def owner(self) -> None:
        """The owner's side: without end, a trace now and then."""
        while True:
            await asyncio.sleep(random.expovariate(1 / OWNER_PAUSES_S))
            self.opened += 1
            if self.tracing is not None:
                self.met += 1
                continue
            self.tracing = "owner"
            await asyncio.sleep(OWNER_TRACES_S)
            self.tracing = None
            self.owner_s += OWNER_TRACES_S


class NoChannel:
    """Takes the place of a channel to a worker."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass


async def watched(job: Job) -> None:
    sampler = Sampler(
        Fixed([Target(worker="job", address="job:1")]),
        Query(level=2),
        Pace(),
        on_sample=lambda _: None,
        open_client=lambda _: NoChannel(),  # type: ignore[arg-type,return-value]
        profilers=[lambda *_: job],
        pause=_no_pause,
    )
    owner = asyncio.create_task(job.owner())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DAYS * 86400):
            await sampler.run()
    owner.cancel()


def main() -> None:
    random.seed(1)
    print(
        f"{DAYS} days each; the owner opens a trace of {OWNER_TRACES_S:.0f} s every {OWNER_PAUSES_S:.0f} s on average"
    )
    for sample_s in SAMPLES_S:
        job = Job(sample_s)
        virtual_time.run(watched(job))
        all_s = DAYS * 86400
        met, share = job.met / job.opened, job.traced_s / all_s
        free_share = job.traced_s / (all_s - job.owner_s)
        error = math.sqrt(free_share * (1 - free_share) / job.opened)
        verdict = "as said" if met <= free_share + TOLERATED_ERRORS * error else "MORE than the traced share explains"
        print(
            f"samples of {sample_s:5.2f} s: {job.met:4} of {job.opened} traces met one = {met:.2%} (± {error:.2%}); "
            f"traced share {share:.2%}, of the time in which the owner did not trace {free_share:.2%}: {verdict}; "
            f"tpumon was refused {job.refused} times"
        )


if __name__ == "__main__":
    main()
