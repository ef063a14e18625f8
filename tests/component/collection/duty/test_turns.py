"""Turns of those who trace a job beside others: who goes first, and for how long."""

from __future__ import annotations

import asyncio
import itertools
import os
import time

import pytest
from msgspec.structs import replace

from support.duty import ADDRESS, STEPS, Job, beside, for_a_while, killed_after, said_by, tpumon
from tpumon.collection.sampler import duty_account
from tpumon.collection.sampler.duty import DutyControl
from tpumon.discovery.host.processes import user_named
from tpumon.model.progress import Traced
from tpumon.system.ledger import DutyLedger

pytestmark = pytest.mark.virtual_time


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


async def test_who_has_let_one_without_a_figure_go_first_waits_for_no_other_one(directory):
    """Though that one has no figure either."""
    account, now_s = await beside(directory, traced_s=0.1, calls=1)
    said_by(directory, name="tpumon-duty-2-x", since_s=now_s, time_s=now_s, traced_s=0.0, debt_s=0.0, calls=0,
            turn=[0, now_s, 0.99])  # fmt: skip
    account.note_peers(DutyLedger().peers([ADDRESS])[ADDRESS], now_s)
    assert not account.gives_way(now_s)
    assert account.entry(now_s).turn.rank == 0


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
