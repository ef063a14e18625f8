"""Restarts of a job's process, and its end: what was traced of the one before, and of this one."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from support.duty import HERE, TRACE_S, Job, for_a_while, of_restarting, tpumon
from tpumon.collection.sampler import duty, duty_account
from tpumon.collection.sampler.duty import DutyControl
from tpumon.model import Process, Target, Workers

pytestmark = pytest.mark.virtual_time


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


async def test_the_life_of_a_job_is_that_of_its_process():
    """Since this machine was started; not known, it is none."""
    account = DutyControl(0.01).follow(HERE)
    assert account.traced().begun_unix_s == 0
    await asyncio.sleep(1000)
    now_s = asyncio.get_running_loop().time()
    account.note_process(int((now_s - 60) * os.sysconf("SC_CLK_TCK")), now_s)
    assert account.traced().of_s(time.time()) == pytest.approx(60, abs=1)


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
