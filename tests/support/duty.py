"""Tpumons of one host that follow one job in virtual time, and the files by which they share its time."""

from __future__ import annotations

import asyncio
import json
import os

from support.no_client import NoClient
from support.samples import sample as taken
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sampler.duty import DutyControl
from tpumon.discovery.finder import Fixed
from tpumon.errors import SourceError
from tpumon.model import Process, Query, StepTimes, Target, Workers
from tpumon.system import host_files, ledger
from tpumon.system.ledger import DutyLedger

ADDRESS = "10.0.0.2:9999"
HERE = "localhost:9999"
TRACE_S = 0.2
STEPS = {"step_time_s": StepTimes(avg=0.04, min=0.04, max=0.04)}
ENTRY = {"since_s": 990.0, "time_s": 999.0, "traced_s": 0.5, "debt_s": 0.5, "duty_ratio": 0.01, "interval_s": 10.0,
         "calls": 3, "window_s": 0.1, "unanswered_s": 0.0, "answered_s": 0.0, "waits_since_s": 0.0,
         "turn": None}  # fmt: skip


class Job:
    """A profiler server that is traced by many: notes when. The first trace of each may take longer than the others."""

    def __init__(self, trace_s=TRACE_S, first_s=None, figures=None):
        self.trace_s = trace_s
        self.first_s = first_s or trace_s
        self.figures = figures or {}
        self.spans, self.queries = [], []
        self.has_ended = False

    def __call__(self, client, target, options):
        job = self

        class Source:
            is_silent, unanswered_s = False, 0.0
            name, usual_interval_s, costs_job, current_traced_s = "fake", 10.0, True, 0.0

            def activity_check_s(self, query):
                return 0.0

            def window_s(self, query):
                return query.window_s or 0.09

            def likely_s(self, query):  # a first guess, like that of real traces
                return job.trace_s if self.current_traced_s or query.known_window_s else 0.6

            async def probe(self):
                if job.has_ended:
                    raise SourceError("unavailable", "connection refused")
                self.current_traced_s = 0.001

            async def fetch(self, query):
                job.queries.append(query)
                begun_s = asyncio.get_running_loop().time()
                self.current_traced_s = job.trace_s if self.current_traced_s or query.known_window_s else job.first_s
                try:
                    await asyncio.sleep(self.current_traced_s)
                finally:  # a session goes on on the server when its caller is gone
                    job.spans.append((begun_s, begun_s + self.current_traced_s))
                given = {"window_s": 0.13, "traced_s": self.current_traced_s, "source": "fake"} | job.figures
                return taken(target.worker, address=target.address, **given)

        return Source()

    def share(self, begin_s, end_s):
        """The share of a span of time for which it was traced; sessions that overlap count twice."""
        return sum(max(0.0, min(end, end_s) - max(begin, begin_s)) for begin, end in self.spans) / (end_s - begin_s)

    def largest_share_of(self, span_s):
        """The largest share in any span of this length; it begins with a trace."""
        return max(self.share(begin, begin + span_s) for begin, _ in self.spans)


async def no_pause():
    """This host is not paused."""


def tpumon(
    job,
    *,
    num_queries=0,
    address=ADDRESS,
    max_duty_ratio=0.01,
    interval_s=None,
    window_s=0.1,
    samples=None,
    attempts=3,
    pid=None,
    pause=no_pause,
):
    """A tpumon of its own that follows the job."""
    return Sampler(
        Fixed([Target(worker="w", address=address, process=None if pid is None else Process(pid=pid))]),
        Query(level=2, window_s=window_s),
        Pace(num_queries=num_queries, max_duty_ratio=max_duty_ratio, interval_s=interval_s, attempts=attempts),
        on_sample=(samples if samples is not None else []).append,
        open_client=NoClient,
        profilers=[job],
        extra_sources=[],
        pause=pause,
        ledger=DutyLedger(),
    )


async def for_a_while(seconds, *samplers):
    """Runs samplers until then, and ends them as Ctrl-C does."""
    tasks = [asyncio.create_task(sampler.run()) for sampler in samplers]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def killed_after(seconds, sampler):
    """Runs one, and ends it without a word to the others."""
    sampler._duty.close = no_pause
    await for_a_while(seconds, sampler)
    for left in (sampler._duty._again, sampler._duty._next):
        if left is not None:
            left.cancel()


class Restarts:
    """Finds a worker whose process is another one after each of these spans of time."""

    def __init__(self, *spans_s, known=True):
        self._spans_s = spans_s
        self._known = known

    async def watch(self, _all_gone):
        for number, span_s in enumerate((*self._spans_s, 1e6)):
            process = Process(pid=number + 1) if self._known else None
            yield Workers(targets=(Target(worker="w", address=HERE, process=process),))
            await asyncio.sleep(span_s)


def of_restarting(job, *spans_s, known=True, **pace):
    """A tpumon that follows a job that starts again and again."""
    sampler = tpumon(job, address=HERE, **pace)
    sampler._discovery = Restarts(*spans_s, known=known)
    return sampler


def said_by(directory, uid=None, name="tpumon-duty-1-x", boot=None, **changed):
    """A file that says something of the server."""
    path = directory / name
    servers = {ledger._key(ADDRESS): list({**ENTRY, **changed}.values())}
    path.write_text(json.dumps({"boot": boot or host_files.boot(), "servers": servers}))
    if uid is not None:
        os.chown(path, uid, uid)
    return path


async def beside(directory, *, silent=False, **says):
    """The account of one that has traced the server, after others began to say something."""
    control = DutyControl(0.01, DutyLedger())
    account = control.follow(ADDRESS)
    account.interval_s = 10.0
    await control.enter(account, lambda: 0.1)
    control.settle(account, 0.1, 0.1)
    await asyncio.sleep(15)
    now_s = asyncio.get_running_loop().time()
    said_by(directory, **{"since_s": now_s, "time_s": now_s, "traced_s": 0.0, "debt_s": 0.0, "calls": 0} | says)
    account.waits_for_s, account.is_silent = 0.1, silent
    await control._exchange()
    return account, now_s
