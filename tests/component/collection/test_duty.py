"""For how long a job is traced by all tpumons of a host together, in virtual time; and what they tell each other."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import time

import pytest
from msgspec.structs import replace

from support import virtual_time
from support.no_client import NoClient
from support.samples import sample as taken
from tpumon.cli.commands import capture
from tpumon.collection.sampler import Pace, Sampler, duty, duty_account, host_traces, traced_spans
from tpumon.collection.sampler.duty import DutyControl
from tpumon.discovery import addresses
from tpumon.discovery.addresses import server_name
from tpumon.discovery.finder import Fixed
from tpumon.discovery.host.processes import user_named
from tpumon.errors import SourceError, remedy
from tpumon.model import JobSigns, Process, Query, StepTimes, Target, Workers
from tpumon.model.progress import Traced
from tpumon.system import exporter_ports, host_files, ledger
from tpumon.system.ledger import DutyLedger, Turn
from tpumon.system.pausing import Pause

pytestmark = pytest.mark.virtual_time

ADDRESS = "10.0.0.2:9999"
TRACE_S = 0.2
OTHER_UID = 54321
STEPS = {"step_time_s": StepTimes(avg=0.04, min=0.04, max=0.04)}
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's files")


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    """A directory for the files; threads and clocks are those of virtual time."""

    async def at_once(function, *, timeout_s):
        return function()

    def since_boot_s():
        return asyncio.get_running_loop().time()

    monkeypatch.setenv("TPUMON_PAUSE_DIR", str(tmp_path))
    monkeypatch.setattr(duty, "in_thread", at_once)
    monkeypatch.setattr(duty.time, "thread_time", lambda: 0.0)  # looks are as rare as they are dear
    for module in (duty_account, traced_spans, host_traces, ledger, host_files):
        monkeypatch.setattr(module, "since_boot_s", since_boot_s)
    return tmp_path


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
            name, usual_interval_s, costs_job, unpaid_s = "fake", 10.0, True, 0.0

            def look_s(self, query):
                return 0.0

            def window_s(self, query):
                return query.window_s or 0.09

            def likely_s(self, query):  # a first guess, like that of real traces
                return job.trace_s if self.unpaid_s or query.known_window_s else 0.6

            async def probe(self):
                if job.has_ended:
                    raise SourceError("unavailable", "connection refused")
                self.unpaid_s = 0.001

            async def fetch(self, query):
                job.queries.append(query)
                begun_s = asyncio.get_running_loop().time()
                self.unpaid_s = job.trace_s if self.unpaid_s or query.known_window_s else job.first_s
                try:
                    await asyncio.sleep(self.unpaid_s)
                finally:  # a session goes on on the server when its caller is gone
                    job.spans.append((begun_s, begun_s + self.unpaid_s))
                given = {"window_s": 0.13, "traced_s": self.unpaid_s, "source": "fake"} | job.figures
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


async def one(job, end_s):
    await for_a_while(end_s, tpumon(job))


async def one_that_wants_more(job, end_s):
    await for_a_while(end_s, tpumon(job, interval_s=0.0))


async def five_at_once(job, end_s):
    await for_a_while(end_s, *(tpumon(job) for _ in range(5)))


async def one_after_the_other(job, end_s, count=5):
    await asyncio.gather(*(starting_at(5.0 * i, job, end_s) for i in range(count)))


async def ten_one_after_the_other(job, end_s):
    await one_after_the_other(job, end_s, 10)


async def starting_at(at_s, job, end_s):
    await asyncio.sleep(at_s)
    await for_a_while(end_s - at_s, tpumon(job))


async def restarting(job, end_s):
    for _ in range(int(end_s / 4)):
        await for_a_while(4, tpumon(job))


async def killed_every_four_seconds(job, end_s):
    for _ in range(int(end_s / 4)):
        await killed_after(4, tpumon(job))


async def once_in_a_loop(job, end_s):
    async def loop():
        while True:
            await tpumon(job, num_queries=3, interval_s=1.0).run()
            await asyncio.sleep(1)

    task = asyncio.create_task(loop())
    await asyncio.sleep(end_s)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def all_of_it(job, end_s):
    await asyncio.gather(one(job, end_s), restarting(job, end_s), once_in_a_loop(job, end_s))


@pytest.mark.parametrize(
    "who",
    [
        one,
        one_that_wants_more,
        five_at_once,
        one_after_the_other,
        pytest.param(ten_one_after_the_other, marks=pytest.mark.nightly),
        restarting,
        killed_every_four_seconds,
        once_in_a_loop,
        all_of_it,
    ],
)
async def test_however_many_trace_a_job_and_however_often_they_start_it_is_one_share_of_its_time(who):
    """At most 1.5 % of any ten minutes, and 3 % of any minute; and nearly all of that is used."""
    job = Job()
    begun_s = asyncio.get_running_loop().time()
    await who(job, 900.0)
    end_s = begun_s + 900.0
    assert job.largest_share_of(600) <= 0.015
    assert job.largest_share_of(60) <= 0.03
    assert job.share(job.spans[0][0] + 300, end_s) > 0.007


def test_a_query_is_due_by_what_it_is_likely_to_cost_not_by_what_the_last_one_did():
    """The first window is long, as nothing is known of the steps; the next ones come at the usual interval."""
    job, samples = Job(0.1, first_s=0.6), []
    virtual_time.run(for_a_while(60, tpumon(job, samples=samples)))
    assert len(samples) >= 5
    assert samples[0].interval_s == pytest.approx(10)


def test_those_who_share_a_job_get_as_much_each_and_say_how_often_they_really_sample():
    """Five of them: a fifth of the samples each, and the interval told is the one that is kept."""
    job, samples = Job(), [[] for _ in range(5)]

    async def main():
        await for_a_while(3000, *(tpumon(job, samples=each, interval_s=1.0) for each in samples))

    virtual_time.run(main())
    counts = [len(each) for each in samples]
    assert sum(counts) == pytest.approx(150, rel=0.15)
    assert max(counts) < 1.4 * min(counts)
    told = [each[-1].interval_s for each in samples]
    assert all(one == pytest.approx(100, rel=0.01) or one == pytest.approx(150, rel=0.01) for one in told)  # it saves


@pytest.mark.parametrize("many", [1, 2, 3])
def test_each_of_those_who_share_a_job_says_once_that_another_one_is_there(many, said):
    virtual_time.run(for_a_while(600, *(tpumon(Job(), interval_s=1.0) for _ in range(many))))
    shared = [line for line in said if "another tpumon of this host samples it, too" in line]
    assert len(shared) == (many if many > 1 else 0)
    assert all(line.startswith(f"{ADDRESS}: another tpumon") for line in shared)
    assert all("--from" not in line for line in said), "views have nothing that it could read"


def test_where_another_tpumon_can_be_read_it_is_said_how(said, monkeypatch):
    """Not by itself, of what it serves."""
    take_back = exporter_ports.announce(7001)
    virtual_time.run(for_a_while(600, *(tpumon(Job(), interval_s=1.0) for _ in range(2))))
    assert not any("--from" in line for line in said)
    monkeypatch.setattr(exporter_ports, "_own", set())
    virtual_time.run(for_a_while(600, *(tpumon(Job(), interval_s=1.0) for _ in range(2))))
    take_back()
    assert any(line.endswith("; tpumon --from 127.0.0.1:7001 shows what a running one samples") for line in said)


async def test_the_smallest_share_that_one_of_them_allows_holds_for_all():
    """And only while it follows the job."""
    job = Job()
    careful = asyncio.create_task(for_a_while(3000, tpumon(job, max_duty_ratio=0.002)))
    await asyncio.sleep(30)
    await for_a_while(2970, tpumon(job, interval_s=1.0))
    await careful
    begun_s = asyncio.get_running_loop().time()
    await for_a_while(2000, tpumon(job, interval_s=1.0))
    assert job.share(begun_s - 2000, begun_s) == pytest.approx(0.002, rel=0.15)
    assert job.share(begun_s + 1000, begun_s + 2000) == pytest.approx(0.01, rel=0.15)


async def test_who_no_longer_renews_its_entry_shares_no_longer():
    """Three intervals after one was killed, the other has all of the share."""
    job, samples = Job(), []
    other = asyncio.create_task(killed_after(300, tpumon(job, interval_s=1.0)))
    await for_a_while(2000, tpumon(job, interval_s=1.0, samples=samples))
    await other
    assert samples[-1].interval_s == pytest.approx(20)


def test_a_server_is_one_whatever_its_address_is_called():
    """`localhost`, a loopback address and this host's name are one port of one host; another port is another server."""
    names = ["localhost:9999", "127.0.0.1:9999", "[::1]:9999", f"{os.uname().nodename}:9999"]
    assert {server_name(name) for name in names} == {"localhost:9999"}
    assert server_name("localhost:9998") != "localhost:9999"
    assert server_name("10.99.99.99:9999") == "10.99.99.99:9999"


async def test_files_go_when_they_have_no_effect(directory):
    """Those of a tpumon that was killed are removed by the next one; a tpumon that traced nothing leaves none."""
    job = Job()
    for _ in range(3):
        await killed_after(10, tpumon(job))
    left = len(list(directory.iterdir()))
    await asyncio.sleep(1000)
    await for_a_while(1, tpumon(Job(), address="10.0.0.3:1"))
    assert left == 3
    assert len(list(directory.iterdir())) == 1


def test_every_user_can_read_the_file_whatever_the_umask(directory):
    """And only its owner can write to it."""
    before = os.umask(0o077)
    try:
        virtual_time.run(for_a_while(1, tpumon(Job())))
    finally:
        os.umask(before)
    (file,) = directory.iterdir()
    assert file.stat().st_mode & 0o777 == 0o644


def test_who_cannot_write_there_says_so_and_counts_for_itself(monkeypatch, said):
    """Sampling goes on as if it were alone."""
    monkeypatch.setenv("TPUMON_PAUSE_DIR", "/nonexistent/directory")
    job = Job()
    virtual_time.run(for_a_while(600, tpumon(job)))
    assert len(said) == 1
    assert said[0].startswith("/nonexistent/directory: No such file or directory")
    assert 0.005 < job.share(1000, 1600) <= 0.015


async def test_a_pause_that_begins_while_a_worker_waits_for_its_share_holds():
    """Its owner profiles the job by then."""
    job, samples, pauses = Job(), [], []

    async def pause():
        return pauses[0] if pauses else None

    for _ in range(4):
        await for_a_while(3, tpumon(job, interval_s=0.0))
    waiting = tpumon(job, samples=samples)
    waiting._pause = pause
    task = asyncio.create_task(for_a_while(300, waiting))
    await asyncio.sleep(1)
    pauses.append(Pause(until_unix_s=0, who="owner"))
    before = len(job.spans)
    await task
    assert before == len(job.spans)
    assert {sample.errors[0].reason for sample in samples} == {"paused"}


@pytest.mark.parametrize("address", [ADDRESS, "127.0.0.1:9999"])
async def test_late_first_figures_are_explained(address, said):
    """Another tpumon has just used the credit: who comes now is told why it waits, once, of the worker's address."""
    job = Job()
    for _ in range(4):
        await for_a_while(3, tpumon(job, address=address, interval_s=0.0))
    said.clear()
    await tpumon(job, address=address, num_queries=1).run()
    assert len(said) == 1
    assert said[0].startswith(f"{address}: the first sample comes in ")
    assert "--max-duty" in said[0]


@pytest.mark.parametrize("beside", [False, True])
async def test_a_command_is_told_when_it_will_have_all_samples_once_a_trace_has_shown_its_cost(beside, said):
    """Alone when all has been paid; beside another one about then, as that takes turns with it.

    Before that a guess would be many times too long, and only the time of the first sample is told.
    """
    job, samples, clock_s = Job(0.6), [], asyncio.get_running_loop().time
    other = asyncio.create_task(for_a_while(800 if beside else 3, tpumon(job, interval_s=0.0)))
    await asyncio.sleep(3 if beside else 4)
    said.clear()
    begun_s = clock_s()
    command = tpumon(job, samples=samples, interval_s=1.0)
    command._pace = replace(command._pace, awaited=3)
    running = asyncio.create_task(for_a_while(700, command))
    left, promised_s = {}, None
    while len(samples) < 3:
        await asyncio.sleep(1)
        doing = command._options.progress.of(ADDRESS)
        if doing is not None and doing.waits:
            left[len(samples)] = doing.all_unix_s is not None, bool(doing.why)
        if promised_s is None and doing is not None and doing.all_unix_s is not None:
            promised_s = clock_s() + doing.all_unix_s - time.time() - begun_s
    assert len([line for line in said if "the first sample comes" in line]) == 1
    assert clock_s() - begun_s == pytest.approx(promised_s, rel=0.35 if beside else 0.12)
    assert [left[taken] for taken in range(3)] == [(False, True), (True, True), (False, True)]
    await asyncio.gather(running, other)


@pytest.mark.parametrize(("trace_s", "interval_s"), [(0.1, None), (0.4, None), (0.7, None), (0.4, 60.0)])
async def test_a_command_of_many_samples_is_told_when_it_will_have_them_all(trace_s, interval_s):
    """At any time, as well as after its first few, for which the credit is; no sooner than the interval allows."""
    job, samples, clock_s = Job(trace_s), [], asyncio.get_running_loop().time
    command = tpumon(job, samples=samples, interval_s=interval_s)
    command._pace = replace(command._pace, awaited=9)
    running, promised = asyncio.create_task(for_a_while(1200, command)), []
    begun_s = clock_s()
    while len(samples) < 9:
        await asyncio.sleep(5)
        doing = command._options.progress.of(ADDRESS)
        if doing is not None and doing.all_unix_s is not None:
            promised.append(clock_s() + doing.all_unix_s - time.time())
    assert len(promised) > 5
    took_s = clock_s() - begun_s
    assert [at_s - begun_s for at_s in promised] == pytest.approx([took_s] * len(promised), rel=0.2)
    await running


@pytest.mark.usefixtures("starts")
async def test_how_long_a_job_was_traced_is_told_of_all_tpumons():
    """Also of those that were there before, as evenly as they may have traced it."""
    job, clock_s = Job(), asyncio.get_running_loop().time
    await asyncio.sleep(3600)
    others = [asyncio.create_task(for_a_while(900 - late_s, tpumon(job, address=HERE))) for late_s in (0, 400)]
    await asyncio.sleep(500)
    watching = tpumon(job, address=HERE)
    own = asyncio.create_task(for_a_while(400, watching))
    await asyncio.sleep(300)
    traced = watching._options.progress.traced(HERE)
    now_s, shown_unix_s = clock_s(), traced.spans[-1][1]
    assert traced.ratio(shown_unix_s) == pytest.approx(job.share(now_s - 600, now_s), rel=0.3)
    await asyncio.gather(own, *others)


@pytest.mark.parametrize(
    ("sampled_s", "later_s", "detail", "words"),
    [
        (5, 10, "connection-refused", "sampled it from"),
        (60, 10, "connection-refused", "sampled it from"),
        (5, 1000, "connection-refused", ""),
        (5, 10, None, ""),  # nothing is known of the port
    ],
)
async def test_a_server_that_another_tpumon_has_sampled_is_known_to_have_run(sampled_s, later_s, detail, words):
    """Where nothing listens now, as long as its file says so: then there is no line to add to the job."""
    job, samples, gone = Job(), [], Job()
    other = asyncio.create_task(for_a_while(sampled_s, tpumon(job)))
    await asyncio.sleep(min(sampled_s, 6) + later_s)

    def refusing(client, target, options):
        source = gone(client, target, options)

        async def fetch(_query):
            raise SourceError("unavailable", "it is away", detail=detail)

        source.fetch = fetch
        return source

    await tpumon(refusing, samples=samples, num_queries=1, attempts=1).run()
    await other
    (failure,) = samples[0].errors
    assert failure.message.startswith("it is away")
    assert failure.detail == ("server-gone" if words else detail)
    assert (f" any more: tpumon {os.getpid()} of {user_named(os.getuid())} {words}" in failure.message) == bool(words)
    advice = remedy(failure.reason, failure.detail, addresses=[ADDRESS])
    assert advice.startswith("look at the end of the job's log" if words else "check that the job runs")


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


HERE = "localhost:9999"


@pytest.fixture
def starts(monkeypatch):
    """The start of each process is its number."""
    monkeypatch.setattr(duty, "start_ticks_of", lambda pid: pid)


def of_restarting(job, *spans_s, known=True, **pace):
    """A tpumon that follows a job that starts again and again."""
    sampler = tpumon(job, address=HERE, **pace)
    sampler._discovery = Restarts(*spans_s, known=known)
    return sampler


@pytest.mark.usefixtures("starts")
async def test_a_new_process_has_a_share_of_its_own():
    """Its first figures come at once, also while the last one's share was waited for."""
    job = Job()
    begun_s = asyncio.get_running_loop().time()
    await for_a_while(300, of_restarting(job, 100, interval_s=1.0))
    assert job.share(begun_s + 100, begun_s + 102) >= 0.1
    assert job.share(begun_s + 100, begun_s + 300) < 0.02


@pytest.mark.usefixtures("starts")
async def test_a_process_that_ran_before_tpumon_came_does_not_delay_the_next_one():
    """It counts when the process began, not when it was first seen here."""
    job, begun_s = Job(0.5), asyncio.get_running_loop().time()
    await for_a_while(50, of_restarting(job, 30, interval_s=1.0))
    assert job.share(begun_s + 30, begun_s + 32) >= 0.1


@pytest.mark.usefixtures("starts")
async def test_a_process_that_follows_soon_pays_for_the_one_before_for_a_minute_at_most():
    """And says so."""
    job, samples, begun_s = Job(0.9), [], asyncio.get_running_loop().time()
    sampler = of_restarting(job, 100, 10, interval_s=1.0, samples=samples)
    await for_a_while(230, sampler)
    began_s = [begin - begun_s for begin, _ in job.spans if begin > begun_s + 105]
    assert began_s == [pytest.approx(160, abs=6)]
    told = [one for one in samples if "both processes" in str(one.figures.absent)]
    assert len(told) == 1
    assert "both" not in str(samples[-1].figures.absent)


async def test_what_a_process_that_follows_soon_was_traced_itself_stays_counted():
    now_s = asyncio.get_running_loop().time()
    account = duty_account.DutyAccount(0.01, now_s)
    for start, later_s, traced_s in ((1, 0, 1.0), (2, 0, 0.8), (3, 10, 0.3)):
        account.note_process(start, now_s + later_s)
        account.charge(traced_s, now_s + later_s)
    assert account.entry(now_s + 59).debt_s == pytest.approx(0.8 + 0.3 - 0.59)
    account.enter(0.1, now_s + 60)
    assert account.entry(now_s + 60).debt_s == pytest.approx(0.3 + 0.1)


class Ends:
    """Finds a worker whose process has ended after 5 s."""

    async def watch(self, _all_gone):
        for process in (Process(pid=1), None):
            yield Workers(targets=(Target(worker="w", address=HERE, process=process),))
            await asyncio.sleep(5)
        await asyncio.sleep(1e6)


@pytest.mark.usefixtures("starts")
async def test_a_job_that_ends_while_its_share_is_waited_for_is_told_at_once():
    job, samples = Job(), []
    for _ in range(3):
        await for_a_while(3, of_restarting(job, interval_s=0.0))
    before, job.has_ended = len(job.spans), True
    waiting = tpumon(job, address=HERE, samples=samples)
    waiting._discovery = Ends()
    await for_a_while(7, waiting)
    assert {sample.errors[0].reason for sample in samples} == {"unavailable"}
    assert len(job.spans) == before


@pytest.mark.usefixtures("starts")
@pytest.mark.parametrize("second_knows", [True, False])
async def test_all_who_trace_a_new_process_have_one_share_of_its_time(second_knows):
    """Whether or not one of them can see which process it is."""
    job = Job()
    begun_s = asyncio.get_running_loop().time()
    both = [of_restarting(job, 100, known=known, interval_s=1.0) for known in (True, second_knows)]
    await for_a_while(1300, *both)
    assert job.share(begun_s + 100, begun_s + 700) <= 0.015
    assert job.share(begun_s + 700, begun_s + 1300) <= 0.0115


@pytest.mark.usefixtures("starts")
async def test_a_loop_of_restarts_gives_each_process_no_more_than_its_share():
    """Nor all of them together more than one credit a minute."""
    job = Job()
    begun_s = asyncio.get_running_loop().time()
    await for_a_while(300, *(of_restarting(job, *[10.0] * 29, interval_s=0.5) for _ in range(2)))
    traced_s = [job.share(at, at + 10) * 10 for at in (begun_s + 10 * number for number in range(30))]
    assert max(traced_s) <= duty_account.CREDIT_S + 0.01 * 10 + TRACE_S
    assert sum(traced_s) <= (duty_account.CREDIT_S + TRACE_S) * 300 / 60 + 0.01 * 300


@pytest.mark.usefixtures("starts")
@pytest.mark.parametrize(
    ("restarted", "known", "waits"), [(True, True, False), (False, True, True), (True, False, True)]
)
async def test_what_was_traced_of_the_last_process_delays_nobody_who_comes_later(restarted, known, waits):
    """Of the same process it does, and where the process is not known."""
    job = Job()
    for _ in range(3):
        await for_a_while(3, of_restarting(job, known=known, interval_s=0.0))
    begun_s = asyncio.get_running_loop().time()
    await for_a_while(2, of_restarting(job, *[0] * restarted, known=known))
    assert (job.spans[-1][0] < begun_s) is waits


async def test_who_comes_second_is_told_why_it_waits_and_goes_first_once():
    """Its first call costs more than those of the other, which would always be before it; that one gets no stale."""
    job, firsts, seconds = Job(0.05, first_s=0.5), [], []
    first = asyncio.create_task(for_a_while(300, tpumon(job, samples=firsts, interval_s=1.0)))
    await asyncio.sleep(4)
    second = tpumon(job, samples=seconds, interval_s=1.0)
    following = asyncio.create_task(for_a_while(240, second))
    await asyncio.sleep(5)
    waits = second._options.progress.of(ADDRESS)
    assert waits.why.startswith(f"tpumon {os.getpid()} of ")
    assert waits.why.endswith("samples it, too: each at half the rate (--max-duty)")
    await asyncio.sleep(30)
    assert seconds
    await asyncio.gather(first, following)
    gaps = [(later[0] - before[0]) for before, later in itertools.pairwise(job.spans)]
    assert max(gaps) <= 2.5 * 10


async def test_who_waits_beside_another_one_names_who_has_traced_the_job():
    """Until it has traced the job again itself."""
    job, why = Job(0.25, first_s=0.6, figures=STEPS), []
    watching = tpumon(job, window_s=None)

    async def look():
        while True:
            await asyncio.sleep(1)
            doing = watching._options.progress.of(ADDRESS)
            why.append(doing.why if doing is not None else "")

    looking = asyncio.create_task(look())
    first = asyncio.create_task(for_a_while(400, watching))
    await asyncio.sleep(60)
    assert not any("tpumon" in each for each in why)
    await tpumon(job, num_queries=3, window_s=None).run()
    await first
    looking.cancel()
    who = f"tpumon {os.getpid()} of {user_named(os.getuid())}"
    assert any(each.startswith(f"{who} has just traced it") for each in why)
    assert not any("just traced" in each for each in why[-60:])


async def test_who_waits_longer_than_it_was_told_is_told_who_has_traced_the_job_meanwhile():
    """Of two that wait as long, either goes first, and its first call costs more than a usual one."""
    job, told = Job(first_s=0.62), ([], [])
    others = [tpumon(job, window_s=None) for _ in range(2)]
    running = []
    for one in others:
        running.append(asyncio.create_task(for_a_while(150, one)))
        await asyncio.sleep(6)
    third = tpumon(job, num_queries=1, window_s=None)
    waiting = asyncio.create_task(third.run())
    while not waiting.done():
        await asyncio.sleep(1)
        for said, each in zip(told, (others[1], third), strict=True):
            doing = each._options.progress.of(ADDRESS)
            if doing is not None and doing.why:
                said.append((doing.until_unix_s, doing.why))
    await asyncio.gather(*running)
    later = [
        why for said in told for (before_s, _), (until_s, why) in itertools.pairwise(said) if until_s > before_s + 5
    ]
    assert later
    who = f"tpumon {os.getpid()} of {user_named(os.getuid())}"
    assert set(later) <= {
        f"{who} goes first, as it has no figures yet (--max-duty)",
        f"{who} goes first, as it has waited longer (--max-duty)",
        f"{who} has just traced it; 2 other tpumons sample it, too: each at a part of the rate (--max-duty)",
    }


@pytest.mark.parametrize("late_s", [10.0, 60.0, 71.0, 79.0, 120.0, 200.0])
async def test_three_samples_beside_another_tpumon_come_soon(late_s):
    """Sooner once the other has left the reserve alone for a while; that one is late by one sample at most."""
    job, clock_s = Job(0.25, first_s=0.6, figures=STEPS), asyncio.get_running_loop().time
    first = asyncio.create_task(for_a_while(400, tpumon(job, window_s=None)))
    await asyncio.sleep(late_s)
    samples, begun_s = [], clock_s()
    await tpumon(job, samples=samples, num_queries=3, window_s=None).run()
    assert len(samples) == 3
    assert clock_s() - begun_s < (50 if late_s >= 120 else 105)
    await first
    gaps = [later[0] - before[0] for before, later in itertools.pairwise(job.spans)]
    assert max(gaps) < 2 * 25


async def first_sample_s(job, **words):
    """Seconds until the first sample of a command, which takes three."""
    samples, begun_s = [], asyncio.get_running_loop().time()
    command = asyncio.create_task(tpumon(job, samples=samples, num_queries=3, interval_s=1.0, **words).run())
    while not samples:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    first_s = asyncio.get_running_loop().time() - begun_s
    await command
    return first_s


async def test_a_view_beside_commands_one_after_the_other_is_late_by_one_sample_at_most():
    """Also where all that may be traced at once is used up; whoever has waited longest goes next."""
    job, samples = Job(0.15, first_s=0.62, figures=STEPS), []
    view = asyncio.create_task(for_a_while(300, tpumon(job, samples=samples, window_s=None)))
    await asyncio.sleep(20)
    for _ in range(4):
        await first_sample_s(job, window_s=None)
    await view
    taken_s = [one.taken_monotonic_s for one in samples]
    assert len(samples) >= 9
    assert max(later - before for before, later in itertools.pairwise(taken_s)) < 2 * 15 + 6


class _Moments(list):
    """Samples, and when each came."""

    def append(self, sample):
        super().append(asyncio.get_running_loop().time())


@pytest.mark.parametrize("late_s", [75.0, 300.0, 330.0])
@pytest.mark.parametrize("trace_s", [0.2, 0.3, 0.4])
async def test_a_command_beside_a_view_that_has_figures_goes_first_until_it_can_answer(trace_s, late_s):
    """As soon as the job may be traced, and about when it was told; then the view goes, before another command."""
    job, seen, clock_s = Job(trace_s, first_s=0.55, figures=STEPS), _Moments(), asyncio.get_running_loop().time
    view = asyncio.create_task(for_a_while(900, tpumon(job, samples=seen, window_s=None)))
    await asyncio.sleep(late_s)
    for is_first in (True, False):
        samples, begun_s, promised = _Moments(), clock_s(), []
        command = tpumon(job, samples=samples, window_s=None, interval_s=1.0)
        command._pace = replace(command._pace, awaited=3)
        running = asyncio.create_task(command.run())
        while len(samples) < 3:
            await asyncio.sleep(1)
            doing = command._options.progress.of(ADDRESS)
            if doing is not None and doing.all_unix_s is not None:
                promised.append(clock_s() - begun_s + doing.all_unix_s - time.time())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        took_s = samples[2] - begun_s
        if is_first:
            assert took_s < 115
            assert not any(samples[0] + 2 < at_s < samples[2] for at_s in seen), "but for one that was under way"
            assert promised[:1] == pytest.approx([took_s] * len(promised[:1]), rel=0.33)
    await view
    assert max(later - before for before, later in itertools.pairwise(seen)) < 60 + 3 * 100 * trace_s
    assert job.largest_share_of(600) <= 0.015


async def test_a_view_that_never_had_a_figure_waits_for_no_command_that_has_one():
    """Though its first trace is dearer than theirs: only for the first sample of those that came before it."""
    job, views, commands = Job(0.15, first_s=0.62, figures=STEPS), [], [[], [], []]
    running = []
    for samples in commands:
        running.append(asyncio.create_task(tpumon(job, samples=samples, num_queries=3, interval_s=1.0).run()))
        await asyncio.sleep(1)
    view = asyncio.create_task(for_a_while(300, tpumon(job, samples=views, window_s=None)))
    while not views:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    assert [len(samples) for samples in commands[1:]] == [1, 1]
    await asyncio.gather(view, *running)


@pytest.mark.parametrize("commands", [1, 2])
async def test_the_first_sample_beside_a_view_comes_at_once(commands):
    """A view that has run for a while leaves some of the credit to those who come."""
    job = Job(0.2, first_s=0.62, figures=STEPS)
    view = asyncio.create_task(for_a_while(400, tpumon(job, window_s=None)))
    await asyncio.sleep(300)
    waited_s = await asyncio.gather(*(first_sample_s(job, window_s=None) for _ in range(commands)))
    assert max(waited_s) < 4
    await view
    assert job.largest_share_of(60) <= 0.03


async def test_who_was_killed_while_it_waited_for_its_turn_keeps_nobody_waiting_longer_than_a_moment():
    """Its file still says that it waits, and that it has no figure."""
    job, samples, clock_s = Job(0.2, figures=STEPS), [], asyncio.get_running_loop().time
    for _ in range(4):
        await for_a_while(3, tpumon(job, interval_s=0.0))
    await killed_after(5, tpumon(job))
    begun_s = clock_s()
    await for_a_while(60, tpumon(job, samples=samples))
    assert samples
    assert job.spans[-1][0] >= begun_s
    first_s = next(begin for begin, _ in job.spans if begin >= begun_s)
    debt_s = sum(end - begin for begin, end in job.spans if begin < first_s) - 0.01 * (first_s - job.spans[0][0])
    assert debt_s + 0.6 >= duty_account.CREDIT_S - 0.01 * 6


@pytest.mark.parametrize(
    ("figures", "window_s", "known_s"), [(STEPS, None, 0.09), (STEPS, 0.13, None), ({}, None, None)]
)
async def test_who_comes_second_begins_with_the_window_that_shows_steps(figures, window_s, known_s):
    """Not with the longer one in which they were found, one that a user gave, nor one that showed none."""
    by_first, by_second = Job(figures=figures), Job(figures=figures)
    first = asyncio.create_task(for_a_while(60, tpumon(by_first, window_s=window_s)))
    await asyncio.sleep(50)
    await tpumon(by_second, num_queries=1).run()
    assert {query.known_window_s for query in by_first.queries} == {None}
    assert [query.known_window_s for query in by_second.queries] == [known_s]
    await first


@pytest.mark.parametrize("late_s", [0.05, 1.0, 5.0])
@pytest.mark.parametrize(("first_s", "trace_s"), [(0.8, 0.3), (1.0, 0.5), (1.5, 0.3)])
async def test_the_time_that_the_second_is_promised_holds_whatever_the_first_one_costs(said, late_s, first_s, trace_s):
    """The first call of the other turns out dearer than was thought, and its second one is due before this one's."""
    job, samples, clock_s = Job(trace_s, first_s=first_s), [], asyncio.get_running_loop().time
    first = asyncio.create_task(for_a_while(300, tpumon(job)))
    await asyncio.sleep(late_s)
    second = tpumon(job, samples=samples)
    following = asyncio.create_task(for_a_while(300 - late_s, second))
    await asyncio.sleep(5)
    promised_s = second._duty._accounts[ADDRESS].promised_s
    assert promised_s > clock_s()
    await asyncio.sleep(promised_s - clock_s())
    assert not samples
    await asyncio.sleep(first_s + 2)
    assert samples
    promises = [line for line in said if "the first sample comes" in line]
    assert [
        re.search(rf" at the earliest \(..:..:..\): tpumon {os.getpid()} of ", line) is not None for line in promises
    ] == [True]
    await asyncio.gather(first, following)


ENTRY = {"since_s": 990.0, "time_s": 999.0, "traced_s": 0.5, "debt_s": 0.5, "duty_ratio": 0.01, "interval_s": 10.0,
         "calls": 3, "window_s": 0.1, "unanswered_s": 0.0, "answered_s": 0.0, "waits_since_s": 0.0,
         "turn": None}  # fmt: skip


def said_by(directory, uid=None, name="tpumon-duty-1-x", boot=None, **changed):
    """A file that says something of the server."""
    path = directory / name
    servers = {ledger._key(ADDRESS): list({**ENTRY, **changed}.values())}
    path.write_text(json.dumps({"boot": boot or host_files.boot(), "servers": servers}))
    if uid is not None:
        os.chown(path, uid, uid)
    return path


@pytest.mark.parametrize(
    "changed",
    [
        {"time_s": 2000.0},
        {"since_s": 1000.0, "time_s": 999.0},
        {"debt_s": -1.0},
        {"debt_s": float("nan")},
        {"debt_s": float("inf")},
        {"debt_s": 10**400},
        {"debt_s": "1"},
        {"debt_s": None},
        {"duty_ratio": 0.0},
        {"duty_ratio": 7.0},
        {"boot": "another"},
        {"calls": -1},
        {"window_s": float("nan")},
        {"more": 1},
    ],
    ids=str,
)
def test_nonsense_counts_for_nothing(directory, changed):
    """Whatever is no entry of this boot: the first sample comes at once."""
    said_by(directory, **changed)
    job = Job()
    virtual_time.run(for_a_while(5, tpumon(job)))
    assert len(job.spans) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"boot": 1}', "[" * 100_000, "\0" * 1000, '{"servers": []}'])
def test_what_is_no_ledger_counts_for_nothing(directory, text):
    (directory / "tpumon-duty-1-x").write_text(text)
    job = Job()
    virtual_time.run(for_a_while(5, tpumon(job)))
    assert len(job.spans) == 1


@pytest.mark.parametrize(
    ("calls", "rank", "since_s", "why"),
    [
        (0, 0, 1010.0, "goes first, as it has no figures yet"),
        (9, 1, 990.0, "goes first, as it has waited longer"),
        (9, 0, 990.0, "goes first, as it has waited longer"),  # it has let one without a figure go first
        (9, 1, 1005.0, ""),
    ],
)
@pytest.mark.parametrize("ends", ["it has traced", "killed"])
async def test_who_goes_first_and_for_how_long(directory, calls, rank, since_s, why, ends):
    """Whoever has no figure, then who has waited longest, also if its call costs more; until it has gone, or ended."""
    control, told, clock_s = DutyControl(0.01, DutyLedger()), [], asyncio.get_running_loop().time
    account = control.follow(ADDRESS)
    account.interval_s = 10.0
    await control.enter(account, lambda: 0.1)
    control.settle(account, 0.1, 0.1)
    await asyncio.sleep(15)
    begun_s = clock_s()
    says = {"since_s": begun_s - 1, "traced_s": 0.0, "debt_s": 0.1, "calls": calls}
    said_by(directory, **says, time_s=begun_s, turn=[rank, since_s, 0.99])
    entering = asyncio.create_task(control.enter(account, lambda: 0.1, lambda *_: told.append(account.others)))
    await asyncio.sleep(5)
    assert [each.partition(f"{user_named(os.getuid())} ")[2] for each in set(told)] == ([why] if why else [])
    if ends == "it has traced":
        said_by(directory, **says | {"time_s": clock_s(), "traced_s": 0.2, "calls": calls + 1})
        await asyncio.sleep(2.1)
    await entering
    assert clock_s() - begun_s < (15 if ends == "killed" else 8)


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


async def test_who_has_let_one_without_a_figure_go_first_waits_for_no_other_one(directory):
    """Though that one has no figure either."""
    account, now_s = await beside(directory, traced_s=0.1, calls=1)
    said_by(directory, name="tpumon-duty-2-x", since_s=now_s, time_s=now_s, traced_s=0.0, debt_s=0.0, calls=0,
            turn=[0, now_s, 0.99])  # fmt: skip
    account.note_peers(DutyLedger().peers([ADDRESS])[ADDRESS], now_s)
    assert not account.gives_way(now_s)
    assert account.entry(now_s).turn.rank == 0


@pytest.mark.parametrize("turn", [[2, 0.0, 0.1], {"rank": 0}, "later", [0], [0, -1.0, 0.1], [0, 990.0, 0.1, "more"]])
async def test_what_one_of_a_later_version_has_traced_counts_however_it_says_that_it_waits(directory, turn):
    account, _ = await beside(directory, turn=turn, debt_s=0.0, traced_s=0.7)
    (peer,) = account._peers
    assert peer.entry.traced_s == 0.7
    assert peer.entry.turn == (Turn(0, 990.0, 0.1) if "more" in turn else None)


async def test_who_takes_back_what_it_counted_before_its_call_has_not_traced(directory):
    """Nor did it go first, nor was the job traced for less than no time when what it counted is long ago."""
    account, now_s = await beside(directory, traced_s=0.0)
    account.enter(0.1, now_s)
    account.settle(0.1, 0.1, now_s)
    for later_s, traced_s, calls, words in (0, 0.6, 0, ""), (12, 0.0, 0, ""), (24, 0.3, 1, "has just traced it"):
        await asyncio.sleep(now_s + later_s - asyncio.get_running_loop().time())
        says = {"since_s": now_s, "time_s": now_s + later_s, "debt_s": 0.0, "interval_s": 1000.0}
        said_by(directory, **says, traced_s=traced_s, calls=calls)
        peers = [one for one in DutyLedger().peers([ADDRESS])[ADDRESS] if one.file == "tpumon-duty-1-x"]
        account.note_peers(peers, now_s + later_s)
        assert ("has just traced it" in account.others) == bool(words)
        account.waits_for_s = 0.01
        assert account._turn(now_s + later_s).rank == (0 if words else 1)
        account.waits_for_s = None
    traced = Traced(0.0, ((0.0, 1.0, 0.6), (500.0, 500.0, -0.5)))
    assert traced.ratio(900.0) == 0


@pytest.mark.parametrize("ends", ["the call", "the other one"])
async def test_nobody_is_said_to_go_first_when_nothing_waits_or_that_one_is_gone(directory, ends):
    control, clock_s = DutyControl(0.01, DutyLedger()), asyncio.get_running_loop().time
    account, ended = control.follow(ADDRESS), []
    account.interval_s = 10.0
    await control.enter(account, lambda: 0.4)
    control.settle(account, 0.4, 0.4)
    await asyncio.sleep(15)
    now_s = clock_s()
    other = said_by(directory, since_s=now_s, time_s=now_s, traced_s=0.0, debt_s=0.9, calls=0, turn=[0, now_s, 0.9])
    waiting = asyncio.create_task(control.enter(account, lambda: 0.4, ended=lambda: bool(ended)))
    await asyncio.sleep(3)
    assert "goes first" in account.others
    later_s = account.turn_s(0.4)
    if ends == "the call":
        ended.append(True)
        account.wake()
        assert await waiting is None
    else:
        other.unlink()
        await control._exchange()
        waiting.cancel()
    assert "goes first" not in account.others
    assert account.turn_s(0.4) < later_s


@pytest.mark.parametrize(("debt_s", "gives_way"), [(0.0, False), (0.5, True)])
async def test_who_may_count_more_than_this_one_is_given_the_time_to_go(directory, debt_s, gives_way):
    account, now_s = await beside(directory, debt_s=debt_s, turn=[0, 1010.0, 0.6])
    assert account.gives_way(now_s) == gives_way


@pytest.mark.parametrize("cost_s", [0.2, 0.98, 5.0])
async def test_who_says_for_ever_that_it_waits_keeps_nobody_waiting_for_ever(directory, cost_s, said):
    """A minute or two, which is promised; then a sample is taken."""
    job, samples, left_s, clock_s = Job(), [], [], asyncio.get_running_loop().time
    begun_s, following = clock_s(), tpumon(job, samples=samples)

    async def says_so():
        while True:
            now_s = clock_s()
            debt_s = 0.9 if cost_s < 0.5 else 0.0  # what it counts of a process that is gone
            says = {"since_s": begun_s, "time_s": now_s, "traced_s": 0.0, "debt_s": debt_s, "calls": 0}
            said_by(directory, **says, turn=[0, begun_s, cost_s])
            await asyncio.sleep(2)
            doing = following._options.progress.of(ADDRESS)
            if not samples and doing is not None and "goes first" in doing.why:
                left_s.append((doing.until_unix_s - time.time(), now_s - begun_s))

    saying = asyncio.create_task(says_so())
    await asyncio.sleep(3)
    running = asyncio.create_task(for_a_while(900, following))
    while not samples:  # noqa: ASYNC110
        await asyncio.sleep(1)
    first_s = clock_s() - begun_s
    assert first_s < 200
    assert all(left > 0 for left, _ in left_s)
    assert left_s[-1][0] < 5
    await running
    saying.cancel()
    assert len(samples) >= 6
    (line,) = (line for line in said if "the first sample comes" in line)
    assert " goes first, as it has no figures yet (--max-duty)" in line


async def test_a_look_whether_a_silent_device_runs_again_waits_for_nobody(directory):
    account, now_s = await beside(directory, silent=True, turn=[0, 1010.0, 0.99])
    assert not account.gives_way(now_s)


@pytest.mark.parametrize("debt_s", [0.95, 1.5])
@pytest.mark.parametrize("is_renewed", [False, True])
async def test_what_was_held_is_probed_unless_it_was_traced_too_long_already(directory, debt_s, is_renewed):
    account, now_s = await beside(directory, since_s=990.0, debt_s=debt_s)
    assert account.needs_probe(0.1, now_s, is_renewed=is_renewed) == (is_renewed or debt_s < 1)
    account.probed_s = now_s
    assert account.needs_probe(0.1, now_s + 1, is_renewed=is_renewed) == is_renewed


@pytest.mark.parametrize(("calls", "pace_s"), [(2, 100), (3, 200)])
async def test_who_takes_a_few_samples_only_makes_no_other_one_ask_less_often(directory, calls, pace_s):
    """A command is over by then."""
    account, _ = await beside(directory, calls=calls)
    assert account.pace_s == pytest.approx(pace_s)


async def test_the_life_of_a_job_is_that_of_its_process():
    """Since this machine was started; not known, it is none."""
    account = DutyControl(0.01).follow(HERE)
    assert account.traced().begun_unix_s == 0
    await asyncio.sleep(1000)
    now_s = asyncio.get_running_loop().time()
    account.note_process(int((now_s - 60) * os.sysconf("SC_CLK_TCK")), now_s)
    assert account.traced().of_s(time.time()) == pytest.approx(60, abs=1)


@needs_root
@pytest.mark.parametrize(
    "changed", [{"debt_s": 1e9}, {"traced_s": 1e9}, {"interval_s": 1e9}, {"duty_ratio": 0.0001}], ids=str
)
async def test_another_user_can_slow_sampling_but_not_stop_it_for_good(directory, changed, monkeypatch):
    """An entry counts for no more than the time that has passed, and at first for a minute of tracing at most."""
    monkeypatch.setattr(os, "getuid", lambda: 12345)  # root would be believed
    job = Job()
    said_by(directory, uid=OTHER_UID)
    task = asyncio.create_task(for_a_while(12_000, tpumon(job)))
    await asyncio.sleep(100)
    said_by(directory, uid=OTHER_UID, **{"time_s": 1099.0, **changed})
    await task
    assert job.spans[-1][0] > 1000 + 10_000
    assert job.share(9_000, 13_000) > 0.002


def test_a_file_is_replaced_at_once_and_its_temporary_is_not_left(directory):
    """A reader never sees half a file."""
    files = host_files.HostFiles("tpumon-duty-", most_of_one_user=3, most_bytes=100)
    path = files.new_path()
    files.write(path, "a")
    files.write(path, "b")
    assert [file.path for file in files.listed()] == [path]
    assert files.read(path) == ("b", os.getuid())
    assert len(list(directory.iterdir())) == 1


async def test_an_account_outlives_the_worker_until_it_is_full():
    """A worker that comes back under another name is not traced more."""
    all_of_them = DutyControl(0.01)
    account = all_of_them.follow(ADDRESS)
    await all_of_them.enter(account, lambda: 0.5)
    all_of_them.settle(account, 0.5, 3.0)
    all_of_them.leave(account)
    again = all_of_them.follow(ADDRESS)
    waits_s = again.ready_s(0.5) - asyncio.get_running_loop().time()
    all_of_them.leave(again)
    await asyncio.sleep(301)
    all_of_them.leave(all_of_them.follow("10.0.0.3:1"))
    assert (again is account, waits_s, all_of_them.follow(ADDRESS) is account) == (True, pytest.approx(250), False)


async def test_all_go_on_at_once_after_a_pause_and_none_is_left_behind():
    """By then their files have no effect any more, and are removed by each other."""
    job, pauses, samples = Job(), [], [[] for _ in range(5)]

    async def pause():
        return pauses[0] if pauses else None

    samplers = [tpumon(job, samples=each, interval_s=1.0) for each in samples]
    for sampler in samplers:
        sampler._pause = pause
    running = asyncio.create_task(for_a_while(3000, *samplers))
    await asyncio.sleep(900)
    pauses.append(Pause(until_unix_s=0, who="owner"))
    await asyncio.sleep(500)
    pauses.clear()
    before = [len(each) for each in samples]
    await running
    assert min([len(each) - count for each, count in zip(samples, before, strict=True)]) >= 11
    assert job.largest_share_of(600) <= 0.015
    assert job.largest_share_of(60) <= 0.03


async def test_a_file_that_was_away_is_not_counted_once_more(directory):
    """During a pause the files of all lose their effect and are removed; what was traced before is long over."""
    all_of_them = DutyControl(0.01, DutyLedger())
    account = all_of_them.follow(ADDRESS)
    debts_s = []
    for waits_s, traced_s, debt_s in (
        (0, None, 0.0),
        (10, 0.6, 0.6),
        (5000, 50.0, 0.0),
        (600, None, 0.0),
        (1, 50.2, 0.2),
    ):
        await asyncio.sleep(waits_s)
        now_s = asyncio.get_running_loop().time()
        path = directory / "tpumon-duty-1-x"
        path.unlink(missing_ok=True)
        if traced_s is not None:
            said_by(directory, since_s=1005.0, time_s=now_s, traced_s=traced_s, debt_s=debt_s)
        await all_of_them._exchange()
        debts_s.append(account.entry(now_s).debt_s)
    assert debts_s == [0, pytest.approx(0.5), 0, 0, pytest.approx(0.2, abs=0.02)]


async def test_files_that_cannot_be_used_for_a_while_change_nothing(said):
    """Three who share a job: each still takes a third, and nothing is counted twice when the files are back."""
    job, samples = Job(), [[] for _ in range(3)]

    def no_answer(_own):
        raise TimeoutError

    samplers = [tpumon(job, samples=each, interval_s=1.0) for each in samples]
    running = asyncio.create_task(for_a_while(2200, *samplers))
    await asyncio.sleep(1000)
    usual = [sampler._duty._ledger.exchange for sampler in samplers]
    for sampler in samplers:
        sampler._duty._ledger.exchange = no_answer
    await asyncio.sleep(150)
    for sampler, exchange in zip(samplers, usual, strict=True):
        sampler._duty._ledger.exchange = exchange
    back_s = asyncio.get_running_loop().time()
    await running
    assert sum("by this tpumon alone" in line for line in said) == 3
    assert job.largest_share_of(600) <= 0.015
    assert job.largest_share_of(60) <= 0.03
    assert job.share(back_s, back_s + 1000) == pytest.approx(0.01, rel=0.2)


async def test_who_looks_rarely_counts_the_time_that_has_passed_for_all_others_together():
    """It waits for none of what they traced within their share since it looked last."""
    job, samples = Job(), []
    others = (tpumon(job, interval_s=1.0) for _ in range(4))
    await for_a_while(3200, tpumon(job, interval_s=400.0, samples=samples), *others)
    assert len(samples) >= 7
    assert all(sample.interval_s == 400.0 for sample in samples[1:])


async def test_whatever_goes_wrong_with_the_files_sampling_goes_on(monkeypatch, said):
    """An error that nobody thought of is no reason to sample less, nor to give the files up."""
    job = Job()
    sampler = tpumon(job)
    failing = [RuntimeError("can't start new thread")]

    async def at_once(function, *, timeout_s):
        if failing:
            raise failing.pop()
        return function()

    monkeypatch.setattr(duty, "in_thread", at_once)
    await for_a_while(300, sampler)
    assert [line.partition("; ")[0].rpartition(": ")[2] for line in said] == ["can't start new thread"]
    assert job.share(1000, 1300) > 0.005
    (file,) = host_files.HostFiles("tpumon-duty-", most_of_one_user=3, most_bytes=100).listed()
    assert file.uid == os.getuid()


async def test_a_file_that_cannot_be_read_for_a_moment_is_not_removed(directory, monkeypatch):
    """Such as by a process that has no descriptor left: what it says still counts, and counts once."""
    path = said_by(directory, time_s=999.0)
    read = host_files.HostFiles.read
    results = [None]

    def once_not(files, at):
        return results.pop() if results else read(files, at)

    monkeypatch.setattr(host_files.HostFiles, "read", once_not)
    book = DutyLedger()
    entry = ledger.Entry(**{name: value for name, value in ENTRY.items() if name != "turn"})
    assert [len(book.exchange({ADDRESS: entry})) for _ in range(2)] == [0, 1]
    assert path.exists()


async def test_a_worker_cut_off_before_its_call_costs_nothing():
    """Discovery may drop it while it looks for a pause."""
    looks = []

    async def pause():
        looks.append(1)
        if len(looks) >= 2:
            await asyncio.Event().wait()

    sampler = tpumon(Job())
    sampler._pause = pause
    await for_a_while(5, sampler)
    assert (len(looks) >= 2, sampler._duty._accounts) == (True, {})


class OneSession(Job):
    """A profiler server that refuses a second session."""

    def __init__(self):
        super().__init__(trace_s=0.3)
        self.busy_until_s = 0.0

    def __call__(self, client, target, options):
        source = super().__call__(client, target, options)
        fetch = source.fetch

        async def refused_while_busy(query):
            now_s = asyncio.get_running_loop().time()
            if now_s < self.busy_until_s:
                raise SourceError("busy", "another profiling session is active; standing back")
            self.busy_until_s = now_s + self.trace_s
            return await fetch(query)

        source.fetch, source.likely_s = refused_while_busy, lambda _query: self.trace_s
        return source


@pytest.mark.parametrize("attempts", [1, 3])
async def test_another_tpumon_is_not_called_somebody_elses_session(attempts):
    """This host's files tell who traces the server; its sample is over soon, so it is waited for."""
    samples, job = [], OneSession()
    watching = asyncio.create_task(for_a_while(10, tpumon(job)))
    await asyncio.sleep(0.1)
    await for_a_while(2, tpumon(job, samples=samples, attempts=attempts))
    failure = samples[0].failure
    assert (failure is None) == (attempts > 1)
    assert failure is None or "another tpumon of this host samples the job" in failure.message
    await watching


async def test_an_owners_session_is_not_called_that_of_another_tpumon_which_follows_the_server():
    samples, job = [], OneSession()
    watching = asyncio.create_task(for_a_while(30, tpumon(job)))
    await asyncio.sleep(25)  # before it traces again
    job.busy_until_s = asyncio.get_running_loop().time() + 60
    await for_a_while(4, tpumon(job, samples=samples))
    assert {one.failure.message for one in samples} == {"another profiling session is active; standing back"}
    await watching


def test_a_host_has_one_address_by_which_its_servers_are_one(monkeypatch):
    """At its others, of services or containers, the same port may be another server's: each has an account."""
    monkeypatch.setattr(addresses, "_own_ip", {4: "10.0.0.2", 6: "fd00::2"}.get)
    server_name.cache_clear()
    names = [server_name(f"{host}:8466") for host in ("10.0.0.2", "[fd00::2]", "127.0.0.1", "10.0.0.3", "127.0.0.9")]
    server_name.cache_clear()
    assert names == ["localhost:8466"] * 3 + ["10.0.0.3:8466", "127.0.0.9:8466"]


async def test_who_asks_each_second_is_seen_while_it_waits_for_its_share():
    """As `once` does, which renews its entry each 10 s then: else the first tpumon would not give way to it."""
    all_of_them = DutyControl(0.01)
    account = all_of_them.follow(ADDRESS)
    account.interval_s = 1.0
    await asyncio.sleep(100)
    entry = account.entry(100.0)
    assert entry.shares_until_s > entry.time_s + duty_account.INFORM_AGAIN_S
    account.interval_s = 0.0
    assert account.entry(100.0).shares_until_s < 0, "it has stopped"


class HungByHostTrace(Job):
    """A job that the first trace of the host hangs: no answer, and from then on its session is active."""

    hung = False

    def __call__(self, client, target, options):
        source = super().__call__(client, target, options)

        async def fetch(query):
            self.queries.append(query)
            source.unanswered_s = 0.0
            await probe()
            self.hung, source.unanswered_s = True, asyncio.get_running_loop().time()
            await asyncio.sleep(30)
            raise SourceError("deadline", "no answer within 30 s")

        async def probe():
            if self.hung:
                raise SourceError("busy", "another profiling session is active; standing back")

        source.fetch, source.probe = fetch, probe
        return source


LOCAL = "localhost:9999"


def failures(samples):
    return [(one.failure.reason, one.failure.detail) for one in samples]


@pytest.mark.parametrize("watched_s", [60, 20])  # until after its deadline, or the user has stopped it before
@pytest.mark.parametrize(
    ("process", "later"),
    [(7, ("deadline", "host-trace")), (8, ("busy", None))],
)
async def test_a_job_that_tpumons_own_trace_has_hung_is_told_as_such_by_later_ones(
    watched_s, process, later, monkeypatch
):
    """Not of another process at that address, whose session is somebody else's."""
    first, second, job = [], [], HungByHostTrace()
    starts = {1: 7, 2: process}
    monkeypatch.setattr(duty, "start_ticks_of", starts.get)
    await asyncio.sleep(100)  # since boot
    await for_a_while(watched_s, tpumon(job, samples=first, address=LOCAL, pid=1))
    assert failures(first)[:1] == [("deadline", "host-trace")] * (watched_s > 30)
    assert set(failures(first)) <= {("deadline", "host-trace")}
    await asyncio.sleep(15)
    await for_a_while(5, tpumon(job, samples=second, address=LOCAL, pid=2))
    assert set(failures(second)) == {later}
    assert remedy("deadline", "host-trace").startswith("restart the job")


@pytest.mark.parametrize("ends", ["while it is followed", "unseen", "before its deadline"])
async def test_the_process_that_follows_one_that_a_host_trace_has_hung_is_spared_by_all_for_a_day(ends, monkeypatch):
    """Whoever asks, also once the tpumon that began it follows the next one, or has stopped; not the same process."""
    monkeypatch.setattr(duty, "start_ticks_of", lambda pid: pid)
    monkeypatch.setattr(host_traces, "start_ticks_of", lambda pid: pid)
    pids = iter((1, 1, 2, 2, 2))
    monkeypatch.setattr(host_traces, "signs_at", lambda _address: JobSigns(pid=next(pids)))
    clock_s = asyncio.get_running_loop().time
    await asyncio.sleep(100)
    begun_s, job = clock_s(), HungByHostTrace()
    assert host_traces.signs_and_hang_at(LOCAL).hung_before_s == 0
    watching = of_restarting(job, *([50] if ends == "while it is followed" else []))
    if ends == "before its deadline":
        await for_a_while(20, watching)
        await asyncio.sleep(20)
        assert host_traces.signs_and_hang_at(LOCAL).hung_before_s == 0
    else:
        following = asyncio.create_task(for_a_while(80, watching))
        await asyncio.sleep(45)
        assert host_traces.signs_and_hang_at(LOCAL).hung_before_s == 0
        await asyncio.sleep(20)
        assert host_traces.signs_and_hang_at(LOCAL).hung_before_s == pytest.approx(begun_s, abs=3)
        await following
    assert host_traces.signs_and_hang_at(LOCAL).hung_before_s == pytest.approx(begun_s, abs=3)
    await asyncio.sleep(86_400)
    pids = iter((2,))
    assert host_traces.signs_and_hang_at(LOCAL).hung_before_s == 0


async def test_a_command_says_that_a_host_trace_has_no_answer_so_far(monkeypatch):
    """Of one that it meets as another session, until it is known to have hung the job; no session of anybody else's."""
    monkeypatch.setattr(host_traces, "signs_at", lambda _address: None)
    monkeypatch.setattr(duty, "start_ticks_of", {1: 7}.get)
    busy = SourceError("busy", "another profiling session is active; standing back")

    async def said_after(seconds, job):
        watching = asyncio.create_task(for_a_while(seconds + 1, tpumon(job, address=LOCAL, pid=1)))
        await asyncio.sleep(seconds)
        error = host_traces.actual_failure(busy, LOCAL)
        await watching
        return error.reason, error.message, error.detail

    await asyncio.sleep(100)
    assert await said_after(5, Job(trace_s=0.2)) == ("busy", busy.message, None)
    reason, words, detail = await said_after(5, HungByHostTrace())
    assert (reason, detail) == ("busy", "host-trace-waits")
    assert words.startswith(f"a trace of the host by tpumon (pid {os.getpid()}) has had no answer since ")
    assert "restart the job" in remedy("busy", detail)
    await asyncio.sleep(60)
    assert host_traces.actual_failure(busy, LOCAL) is busy, "nobody waits for it any more"


async def test_a_profile_whose_own_host_trace_has_hung_the_job_says_so_and_is_not_tried_again(monkeypatch):
    """Another attempt would meet its session at best; after a deadline for another reason it may be answered."""
    monkeypatch.setattr(host_traces, "signs_at", lambda _address: None)
    for module in (host_traces, ledger, host_files):  # in a thread
        monkeypatch.setattr(module, "since_boot_s", lambda: 130.0)
    silent = SourceError("deadline", "no answer within 30 s", address=LOCAL)
    for began_s, detail in ((100.0, "host-trace"), (0.0, None)):
        worker = capture.ProfiledWorker(Target(worker="w", address=LOCAL), None)
        await capture._fail(worker, silent, began_s)
        assert (worker.failure.reason, worker.failure.detail, worker.pending) == ("deadline", detail, detail is None)


async def test_a_call_that_meets_a_job_that_a_signal_has_stopped_says_so(monkeypatch):
    """Before any look at its process."""
    samples = []
    monkeypatch.setattr(duty, "start_ticks_of", lambda pid: pid)
    monkeypatch.setattr(host_traces, "is_stopped", lambda _pid: True)

    def silent(client, target, options):
        source = Job()(client, target, options)

        async def fetch(_query):
            raise SourceError("deadline", "no answer within 10 s")

        source.fetch = fetch
        return source

    await tpumon(silent, samples=samples, num_queries=1, attempts=1, address=LOCAL, pid=7).run()
    assert failures(samples) == [("deadline", "stopped")]


async def test_who_asks_beside_a_host_trace_without_an_answer_so_far_says_so(monkeypatch):
    """Another tpumon meets that as a session, which is nobody else's; of another process it says nothing."""
    job, samples, others = HungByHostTrace(), [], []
    monkeypatch.setattr(duty, "start_ticks_of", {1: 7, 2: 8}.get)
    await asyncio.sleep(100)
    watching = asyncio.create_task(for_a_while(25, tpumon(job, address=LOCAL, pid=1)))
    await asyncio.sleep(5)
    asking = [tpumon(job, samples=taken, address=LOCAL, pid=pid) for taken, pid in ((samples, 1), (others, 2))]
    await for_a_while(20, *asking)
    await watching
    assert set(failures(samples)) == {("busy", "host-trace-waits")}
    assert all("a trace of the host by tpumon (pid " in one.failure.message for one in samples)
    assert {detail for _, detail in failures(others)} == {None}


async def test_who_comes_to_a_job_that_may_hang_says_so_without_waiting_for_its_share(monkeypatch):
    """That has been used up; and who began the trace says so, too, before its call has ended."""
    job, samples = HungByHostTrace(), []
    monkeypatch.setattr(duty, "start_ticks_of", {1: 7}.get)
    await asyncio.sleep(100)
    first = tpumon(job, address=LOCAL, pid=1, window_s=2.0)
    watching = asyncio.create_task(for_a_while(20, first))
    await asyncio.sleep(8)
    assert first._options.progress.of(LOCAL).detail == "host-trace-waits"
    await for_a_while(4, tpumon(job, samples=samples, address=LOCAL, pid=1))
    await watching
    assert failures(samples)[:1] == [("busy", "host-trace-waits")]


async def test_a_pause_does_not_hide_that_a_host_trace_has_no_answer():
    """Nobody asks then, but that is known; one who has begun none says the pause alone."""
    samples, others, paused_s = [], [], asyncio.get_running_loop().time() + 110

    async def pause():
        is_paused = asyncio.get_running_loop().time() > paused_s
        return Pause(until_unix_s=0.0, who="ada") if is_paused else None

    await asyncio.sleep(100)
    await for_a_while(35, tpumon(HungByHostTrace(), samples=samples, pause=pause))
    await for_a_while(5, tpumon(Job(), samples=others, pause=pause))
    assert {one.failure.reason for one in samples[1:]} == {one.failure.reason for one in others} == {"paused"}
    assert all("; the trace of the host that tpumon began at" in one.failure.message for one in samples[1:])
    assert not any("trace of the host" in one.failure.message for one in others)


async def test_a_host_trace_that_was_answered_after_all_hangs_nobody(monkeypatch):
    """Who is answered takes the blame back, also of one that is gone; what is busy then is somebody else's session."""
    job, answering, later = HungByHostTrace(), Job(), []
    monkeypatch.setattr(duty, "start_ticks_of", lambda _pid: 7)
    await asyncio.sleep(100)
    await for_a_while(20, tpumon(job, address=LOCAL, pid=1))
    await asyncio.sleep(15)
    await for_a_while(5, tpumon(answering, address=LOCAL, pid=1))
    await asyncio.sleep(3 * 3600)
    await for_a_while(5, tpumon(job, samples=later, address=LOCAL, pid=1))
    assert {reason for reason, _ in failures(later)} == {"busy"}
    account = DutyControl(0.01).follow(LOCAL)
    now_s = asyncio.get_running_loop().time()
    for is_answered, is_gone, blames in ((False, False, True), (True, False, False), (False, True, False)):
        account.note_host_trace(now_s - 50.0, is_answered=False)
        account.note_host_trace(0.0, is_answered=is_answered, is_gone=is_gone)
        assert bool(account.hung_by) == blames


async def test_nobody_is_blamed_after_a_day_nor_the_process_that_follows():
    """Where the process is not known, no longer than the worker is followed without a break."""
    all_of_them = DutyControl(0.01)
    await asyncio.sleep(2 * 86_400)
    now_s = asyncio.get_running_loop().time()
    account = all_of_them.follow(LOCAL)
    for begun_s, blames in ((now_s - 86_401, False), (now_s - 5, False), (now_s - 600, True)):
        account.unanswered_s = begun_s
        assert bool(account.hung_by) == blames
    all_of_them.leave(account)
    assert not all_of_them.follow(LOCAL).hung_by
    account = all_of_them.follow(LOCAL)
    for start, blames in ((7, True), (8, False)):
        account.note_host_trace(now_s - 600, is_answered=False)
        account.note_process(start, now_s)
        assert bool(account.hung_by) == blames


@pytest.mark.parametrize("beside", [0, 1])
async def test_the_share_told_of_a_job_that_was_restarted_soon_is_that_of_its_present_process(monkeypatch, beside):
    """At any age, by all who trace it, also by one that comes only then."""
    begun_s, job = asyncio.get_running_loop().time(), Job()
    restarted_s = begun_s + 24
    ticks = os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(duty, "start_ticks_of", lambda pid: int((begun_s if pid < 2 else restarted_s) * ticks))
    watching = [of_restarting(job, 24, interval_s=1.0) for _ in range(1 + beside)]
    running, ages_s, told = asyncio.create_task(for_a_while(200, *watching)), range(5, 120, 5), []
    for age_s in ages_s:
        await asyncio.sleep(restarted_s + age_s - asyncio.get_running_loop().time())
        if age_s == 60:
            watching.append(of_restarting(job, 0, interval_s=1.0))
            late = asyncio.create_task(for_a_while(100, watching[-1]))
            await asyncio.sleep(1)
        for sampler in watching:
            await sampler._duty._exchange()  # what others traced since is not known before
            ratio = sampler._duty._accounts[HERE].traced().ratio(time.time())
            told.append((ratio or 0.0, job.share(restarted_s, asyncio.get_running_loop().time()), age_s))
    for ratio, truth, age_s in told:
        assert truth - 0.002 < ratio < truth + 0.002 + 0.2 / age_s, "a trace of 0.2 s counts before it has ended"
    await asyncio.gather(running, late)


async def test_a_trace_that_has_not_ended_counts_as_it_runs():
    """Of this tpumon: one under way, and one of the host without an answer until the server gives one again."""
    account = DutyControl(0.01).follow(HERE)
    clock_s = asyncio.get_running_loop().time
    account.note_process(int(clock_s() * os.sysconf("SC_CLK_TCK")), clock_s())
    await asyncio.sleep(40)
    account.enter(0.1, clock_s())
    traced = account.traced()
    assert traced.ratio(time.time() + 40) == pytest.approx(0.5, abs=0.01)
    await asyncio.sleep(40)
    account.note_host_trace(clock_s() - 40, is_answered=False)
    account.settle(0.1, 0.0, clock_s())
    await asyncio.sleep(40)
    assert account.traced().ratio(time.time()) == pytest.approx(2 / 3, abs=0.01)
    account.note_host_trace(0.0, is_answered=True)
    await asyncio.sleep(40)
    assert account.traced().ratio(time.time()) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("said", ["unanswered_s", "waits_since_s"])
async def test_a_trace_of_another_tpumon_that_has_not_ended_counts_as_it_runs(directory, said):
    account, _ = await beside(directory, **{said: asyncio.get_running_loop().time() + 5})
    assert not account.traced().since_unix_s, "it may be of another process"
    account.process, account._peers = 7, [replace(peer, process=7) for peer in account._peers]
    assert account.traced().since_unix_s


async def test_all_who_trace_a_job_tell_the_same_share_a_few_seconds_later():
    """Also amid a long wait; not each second, as a look is dear."""
    job, clock_s, late = Job(), asyncio.get_running_loop().time, []
    both = [tpumon(job, interval_s=1.0) for _ in range(2)]
    running = asyncio.create_task(for_a_while(300, *both))
    await asyncio.sleep(30)
    while clock_s() < job.spans[0][0] + 280:
        await asyncio.sleep(1)
        if clock_s() - job.spans[-1][1] > 5:
            told = [sampler._options.progress.traced(ADDRESS) for sampler in both]
            late += [[each.ratio(time.time()) for each in told]] * (not any(each.since_unix_s for each in told))
    assert len(late) > 100
    assert all(one == pytest.approx(other) for one, other in late)
    await running


async def test_what_another_one_traced_counts_once_though_it_did_not_know_the_process_at_first(directory):
    account, now_s = await beside(directory, traced_s=0.5, debt_s=0.5)
    account.process = 7
    account.note_peers([replace(peer, process=7) for peer in account._peers], now_s)
    assert sum(traced_s for _, _, traced_s in account.traced().spans) == pytest.approx(0.1 + 0.5)


async def test_what_tpumons_that_have_ended_traced_is_told_for_ten_minutes():
    """Long after it is paid for."""
    job = Job()
    for _ in range(3):
        await for_a_while(60, tpumon(job))
        await asyncio.sleep(120)
    late = tpumon(job)
    running = asyncio.create_task(for_a_while(10, late))
    await asyncio.sleep(5)
    told = late._options.progress.traced(ADDRESS).spans
    assert sum(traced_s for _, _, traced_s in told) == pytest.approx(
        sum(end - begin for begin, end in job.spans), rel=0.05
    )
    await running
