"""Shares of a job's time, of all tpumons of its host together, and how often each of them samples it."""

from __future__ import annotations

import asyncio
import os

import pytest

from support import virtual_time
from support.duty import ADDRESS, STEPS, Job, beside, for_a_while, killed_after, tpumon
from tpumon.collection.sampler import duty_account
from tpumon.collection.sampler.duty import DutyControl
from tpumon.discovery import addresses
from tpumon.discovery.addresses import server_name
from tpumon.system.pausing import Pause

pytestmark = pytest.mark.virtual_time


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


async def test_who_looks_rarely_counts_the_time_that_has_passed_for_all_others_together():
    """It waits for none of what they traced within their share since it looked last."""
    job, samples = Job(), []
    others = (tpumon(job, interval_s=1.0) for _ in range(4))
    await for_a_while(3200, tpumon(job, interval_s=400.0, samples=samples), *others)
    assert len(samples) >= 7
    assert all(sample.interval_s == 400.0 for sample in samples[1:])


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


@pytest.mark.parametrize(("calls", "pace_s"), [(2, 100), (3, 200)])
async def test_who_takes_a_few_samples_only_makes_no_other_one_ask_less_often(directory, calls, pace_s):
    """A command is over by then."""
    account, _ = await beside(directory, calls=calls)
    assert account.pace_s == pytest.approx(pace_s)


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


def test_a_server_is_one_whatever_its_address_is_called():
    """`localhost`, a loopback address and this host's name are one port of one host; another port is another server."""
    names = ["localhost:9999", "127.0.0.1:9999", "[::1]:9999", f"{os.uname().nodename}:9999"]
    assert {server_name(name) for name in names} == {"localhost:9999"}
    assert server_name("localhost:9998") != "localhost:9999"
    assert server_name("10.99.99.99:9999") == "10.99.99.99:9999"


def test_a_host_has_one_address_by_which_its_servers_are_one(monkeypatch):
    """At its others, of services or containers, the same port may be another server's: each has an account."""
    monkeypatch.setattr(addresses, "_own_ip", {4: "10.0.0.2", 6: "fd00::2"}.get)
    server_name.cache_clear()
    names = [server_name(f"{host}:8466") for host in ("10.0.0.2", "[fd00::2]", "127.0.0.1", "10.0.0.3", "127.0.0.9")]
    server_name.cache_clear()
    assert names == ["localhost:8466"] * 3 + ["10.0.0.3:8466", "127.0.0.9:8466"]
