"""Messages about others that sample the job, times promised of samples, and the share told of what was traced."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import time

import pytest
from msgspec.structs import replace

from support import virtual_time
from support.duty import ADDRESS, HERE, STEPS, Job, beside, for_a_while, tpumon
from tpumon.collection.sampler.duty import DutyControl
from tpumon.discovery.host.processes import user_named
from tpumon.errors import SourceError, remedy
from tpumon.system import exporter_ports

pytestmark = pytest.mark.virtual_time


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
