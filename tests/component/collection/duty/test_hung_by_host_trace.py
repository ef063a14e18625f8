"""Traces of the host without an answer, which may have hung the job: who says so, and of which process."""

from __future__ import annotations

import asyncio
import os

import pytest

from support.duty import HERE, Job, for_a_while, of_restarting, tpumon
from tpumon.cli.commands import capture
from tpumon.collection.sampler import duty, host_traces
from tpumon.collection.sampler.duty import DutyControl
from tpumon.errors import SourceError, remedy
from tpumon.model import JobSigns, Target
from tpumon.system import host_files, ledger
from tpumon.system.pausing import Pause

pytestmark = pytest.mark.virtual_time


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
    await for_a_while(watched_s, tpumon(job, samples=first, address=HERE, pid=1))
    assert failures(first)[:1] == [("deadline", "host-trace")] * (watched_s > 30)
    assert set(failures(first)) <= {("deadline", "host-trace")}
    await asyncio.sleep(15)
    await for_a_while(5, tpumon(job, samples=second, address=HERE, pid=2))
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
    assert host_traces.signs_and_hang_at(HERE).hung_before_s == 0
    watching = of_restarting(job, *([50] if ends == "while it is followed" else []))
    if ends == "before its deadline":
        await for_a_while(20, watching)
        await asyncio.sleep(20)
        assert host_traces.signs_and_hang_at(HERE).hung_before_s == 0
    else:
        following = asyncio.create_task(for_a_while(80, watching))
        await asyncio.sleep(45)
        assert host_traces.signs_and_hang_at(HERE).hung_before_s == 0
        await asyncio.sleep(20)
        assert host_traces.signs_and_hang_at(HERE).hung_before_s == pytest.approx(begun_s, abs=3)
        await following
    assert host_traces.signs_and_hang_at(HERE).hung_before_s == pytest.approx(begun_s, abs=3)
    await asyncio.sleep(86_400)
    pids = iter((2,))
    assert host_traces.signs_and_hang_at(HERE).hung_before_s == 0


async def test_a_command_says_that_a_host_trace_has_no_answer_so_far(monkeypatch):
    """Of one that it meets as another session, until it is known to have hung the job; no session of anybody else's."""
    monkeypatch.setattr(host_traces, "signs_at", lambda _address: None)
    monkeypatch.setattr(duty, "start_ticks_of", {1: 7}.get)
    busy = SourceError("busy", "another profiling session is active; standing back")

    async def said_after(seconds, job):
        watching = asyncio.create_task(for_a_while(seconds + 1, tpumon(job, address=HERE, pid=1)))
        await asyncio.sleep(seconds)
        error = host_traces.actual_failure(busy, HERE)
        await watching
        return error.reason, error.message, error.detail

    await asyncio.sleep(100)
    assert await said_after(5, Job(trace_s=0.2)) == ("busy", busy.message, None)
    reason, words, detail = await said_after(5, HungByHostTrace())
    assert (reason, detail) == ("busy", "host-trace-waits")
    assert words.startswith(f"a trace of the host by tpumon (pid {os.getpid()}) has had no answer since ")
    assert "restart the job" in remedy("busy", detail)
    await asyncio.sleep(60)
    assert host_traces.actual_failure(busy, HERE) is busy, "nobody waits for it any more"


async def test_a_profile_whose_own_host_trace_has_hung_the_job_says_so_and_is_not_tried_again(monkeypatch):
    """Another attempt would meet its session at best; after a deadline for another reason it may be answered."""
    monkeypatch.setattr(host_traces, "signs_at", lambda _address: None)
    for module in (host_traces, ledger, host_files):  # in a thread
        monkeypatch.setattr(module, "since_boot_s", lambda: 130.0)
    silent = SourceError("deadline", "no answer within 30 s", address=HERE)
    for began_s, detail in ((100.0, "host-trace"), (0.0, None)):
        worker = capture.ProfiledWorker(Target(worker="w", address=HERE), None)
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

    await tpumon(silent, samples=samples, num_queries=1, attempts=1, address=HERE, pid=7).run()
    assert failures(samples) == [("deadline", "stopped")]


async def test_who_asks_beside_a_host_trace_without_an_answer_so_far_says_so(monkeypatch):
    """Another tpumon meets that as a session, which is nobody else's; of another process it says nothing."""
    job, samples, others = HungByHostTrace(), [], []
    monkeypatch.setattr(duty, "start_ticks_of", {1: 7, 2: 8}.get)
    await asyncio.sleep(100)
    watching = asyncio.create_task(for_a_while(25, tpumon(job, address=HERE, pid=1)))
    await asyncio.sleep(5)
    asking = [tpumon(job, samples=taken, address=HERE, pid=pid) for taken, pid in ((samples, 1), (others, 2))]
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
    first = tpumon(job, address=HERE, pid=1, window_s=2.0)
    watching = asyncio.create_task(for_a_while(20, first))
    await asyncio.sleep(8)
    assert first._options.progress.of(HERE).detail == "host-trace-waits"
    await for_a_while(4, tpumon(job, samples=samples, address=HERE, pid=1))
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
    await for_a_while(20, tpumon(job, address=HERE, pid=1))
    await asyncio.sleep(15)
    await for_a_while(5, tpumon(answering, address=HERE, pid=1))
    await asyncio.sleep(3 * 3600)
    await for_a_while(5, tpumon(job, samples=later, address=HERE, pid=1))
    assert {reason for reason, _ in failures(later)} == {"busy"}
    account = DutyControl(0.01).follow(HERE)
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
    account = all_of_them.follow(HERE)
    for begun_s, blames in ((now_s - 86_401, False), (now_s - 5, False), (now_s - 600, True)):
        account.unanswered_s = begun_s
        assert bool(account.hung_by) == blames
    all_of_them.leave(account)
    assert not all_of_them.follow(HERE).hung_by
    account = all_of_them.follow(HERE)
    for start, blames in ((7, True), (8, False)):
        account.note_host_trace(now_s - 600, is_answered=False)
        account.note_process(start, now_s)
        assert bool(account.hung_by) == blames
