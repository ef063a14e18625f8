"""A day of 64 workers and a million names in virtual time: is memory flat, and is every figure what the job said?

The sampler, its sources, the analysis and the page of metrics are the real ones; only the network is not: each worker
is asked every 10 s, 8,640 times in all, and answers with the bytes of the simulator, damaged or not, or fails as calls
do. Every 6 s, 70 workers get other names; those are never reached. `soak.py` does the same with sockets and processes.
Ends with 1 if anything grows or a figure is false.

python tests/bench/day.py [--hours 24] [--seed N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Self, TypeVar

sys.path.insert(0, str(Path(__file__).parents[1]))

from google.protobuf.message import Message
from soaking.faults import DAMAGING, HOSTILE_TEXT, Fault, damaged, next_fault
from soaking.job import SCENARIOS, TOPOLOGY, figures_of
from soaking.ledger import Ledger
from soaking.vitals import VITALS, Course

from support import virtual_time
from tpumon.analysis import Analysis
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sources.monitor_rpc import MonitorSource
from tpumon.collection.sources.rpc import _explain
from tpumon.collection.sources.traces.answers import parse
from tpumon.errors import SourceError
from tpumon.model import Query, Sample, Target, Workers
from tpumon.proto.profiler_pb2 import MonitorResponse
from tpumon.simulator.expected_figures import figures
from tpumon.simulator.grpc_servers import Code
from tpumon.simulator.monitor_text import monitor_text
from tpumon.simulator.profiler import BUSY, monitor_result
from tpumon.simulator.scenario import SECOND, SimulatedJob
from tpumon.simulator.topology import parse_topology
from tpumon_exporters.exposition import Exposition

WORKERS, GHOSTS = 64, 70
INTERVAL_S, CHANGE_S, PAGE_S, NOTE_S = 10.0, 6.0, 60.0, 120.0
ANSWERS = 60  # different ones of a worker, which then come again
_STATUS: dict[Fault, tuple[Code, str]] = {
    "dead": (Code.UNAVAILABLE, "Connection refused"),
    "garbage": (Code.UNAVAILABLE, "Failed parsing HTTP/2"),
    "silent": (Code.DEADLINE_EXCEEDED, ""),
    "hang": (Code.DEADLINE_EXCEEDED, ""),
    "busy": (Code.INTERNAL, BUSY),
    "huge": (Code.RESOURCE_EXHAUSTED, "Received message larger than max (9000000 vs. 4194304)"),
}

_Reply = TypeVar("_Reply", bound=Message)


class _Server:
    """What one worker answers, and when it is faulty."""

    def __init__(self, number: int, seed: int) -> None:
        job = SimulatedJob(topology=parse_topology(TOPOLOGY), scenario=SCENARIOS[number % len(SCENARIOS)], seed=seed)
        windows = [figures(job, number, at * SECOND, (at + 1) * SECOND) for at in range(10, 10 + ANSWERS)]
        self._answers = [
            MonitorResponse(
                data=monitor_text(job, window, level=2, unix_s=0.0), monitor_result=monitor_result(window, level=2)
            ).SerializeToString()
            for window in windows
        ]
        self._asked = 0
        self.dice = random.Random(f"{seed} {number}")
        self._fault: Fault | None = None
        self._until_s = 0.0
        self._then: tuple[Fault, float] | None = None

    def fault(self, now_s: float) -> Fault | None:
        """Its fault at that time, if any."""
        while now_s >= self._until_s:
            if self._then is not None:
                (self._fault, faulty_s), self._then = self._then, None
                self._until_s += faulty_s
            else:
                healthy_s, fault, faulty_s = next_fault(self.dice)
                self._fault, self._then = None, (fault, faulty_s)
                self._until_s = (self._until_s or now_s) + healthy_s
        return self._fault

    def answer(self) -> bytes:
        """The next answer of a healthy server."""
        self._asked += 1
        return self._answers[self._asked % ANSWERS]


class _Client:
    """Stands in for a channel."""

    def __init__(self, address: str, server: _Server | None, ledger: Ledger) -> None:
        self.address = address
        self._server = server
        self._ledger = ledger

    def grace_s(self, _path: str) -> float:
        return 10.0

    async def wait_for_turn(self) -> None:
        return None

    async def call(self, path: str, _request: Message, reply_type: type[_Reply], *, timeout_s: float) -> _Reply:
        now_s = asyncio.get_running_loop().time()
        if self._server is None:
            raise self._error(*_STATUS["dead"], timeout_s)
        fault = self._server.fault(now_s)
        if fault in _STATUS or fault == "refusing":
            await asyncio.sleep(timeout_s if fault in {"silent", "hang"} else 0.1)
            code = self._server.dice.choice([code for code in Code if code is not Code.OK])
            raise self._error(*_STATUS.get(fault, (code, HOSTILE_TEXT)), timeout_s)
        await asyncio.sleep(1.0 if fault != "slow" else 5.0)
        answer = self._server.answer()
        said = figures_of("monitor", MonitorResponse.FromString(answer).monitor_result)
        self._ledger.said({"at_s": now_s, "address": self.address, "damaged": fault in DAMAGING, **said})
        if fault in DAMAGING:
            answer = damaged(answer, fault, path, self._server.dice)
        return await parse(answer, reply_type, "Monitor")

    def _error(self, code: Code, details: str, timeout_s: float) -> SourceError:
        reason, words = _explain(code, details, timeout_s)
        return SourceError(reason, words, address=self.address)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        return None


class _Day:
    """The sampler's surroundings, and what is checked."""

    def __init__(self, hours: float, seed: int) -> None:
        self.ledger = Ledger()
        self.course = Course(os.getpid())
        self.names = 0
        self._hours = hours
        self._servers = {f"10.64.0.{number}:8466": _Server(number, seed) for number in range(WORKERS)}
        self._workers = [f"w-{number}" for number in range(WORKERS)]
        self._fleet = Analysis()
        self._page = Exposition("prometheus")
        self._last_page_s = self._last_note_s = 0.0

    async def run(self) -> None:
        """Samples for the whole time."""
        sampler = Sampler(
            self,
            Query(level=2, window_s=1.0),
            Pace(interval_s=INTERVAL_S),
            on_sample=self._take,
            on_workers=self._fleet.take,
            open_client=lambda address: _Client(address, self._servers.get(address), self.ledger),  # type: ignore[arg-type]
            profilers=(MonitorSource,),
            companions=(),
            pause=_no_pause,
        )
        try:
            async with asyncio.timeout(self._hours * 3600):
                await sampler.run()
        except TimeoutError:
            return

    async def watch(self, _all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """A discovery whose workers change their names."""
        stay = tuple(
            Target(worker=worker, address=address, slice="soak")
            for worker, address in zip(self._workers, self._servers, strict=True)
        )
        while True:
            ghosts = (Target(worker=f"ghost-{self.names + n}", address=f"10.65.0.{n}:8466") for n in range(GHOSTS))
            yield Workers(targets=(*stay, *ghosts))
            self.names += GHOSTS
            await asyncio.sleep(CHANGE_S)

    def _take(self, sample: Sample) -> None:
        raw = json.loads(json.dumps(sample.to_json(), allow_nan=False))
        self._fleet.take(sample)
        now_s = asyncio.get_running_loop().time()
        if sample.worker.startswith("w-"):
            self.ledger.sample(now_s, raw)
        self.ledger.check_sample(raw)
        if now_s >= self._last_page_s + PAGE_S:
            self._last_page_s = now_s
            self.ledger.check_page(now_s, self._page.render(self._fleet.status(time.time())), self._workers)
        if now_s >= self._last_note_s + NOTE_S:
            self._last_note_s = now_s
            self.course.note()
            if len(self.course.times_s) % 15 == 0:  # half an hour
                counts, rss_mb = self.ledger.counts, self.course.values[VITALS[0].name][-1]
                print(f"... {counts['samples']} samples, {self.names} names, {counts['false']} false, "
                      f"RSS {rss_mb:.1f} MB", flush=True)  # fmt: skip


async def _no_pause() -> None:
    return None


def main() -> None:
    """Runs it and prints what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the faults (default: random)")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    day = _Day(given.hours, given.seed)
    began_s = time.process_time()
    virtual_time.run(day.run())
    counts: dict[str, Any] = day.ledger.counts
    asked = sorted(day.ledger.taken[f"w-{number}"] for number in range(WORKERS))
    took_s = time.process_time() - began_s
    print(f"{given.hours:g} h in {took_s:.0f} s of processor time; {day.names} names; queries per worker {asked[0]} "
          f"to {asked[-1]}; failures {dict(day.ledger.reasons.most_common())}")  # fmt: skip
    rows = day.course.rows()
    print("\n".join(words for words, _ in rows))
    print(f"checked: figures of {counts['figures as said']} samples, {counts['series as sampled']} series of "
          f"{counts['pages']} pages; FALSE: {counts['false']}")  # fmt: skip
    well = not counts["false"] and all(flat for _, flat in rows) and counts["figures as said"] > 0
    print("all is well" if well else "SOMETHING GROWS, OR FIGURES ARE FALSE")
    sys.exit(not well)


if __name__ == "__main__":
    main()
