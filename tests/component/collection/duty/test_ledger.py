"""Files by which the tpumons of a host tell each other what they trace, and nonsense in them."""

from __future__ import annotations

import asyncio
import os

import pytest

from support import virtual_time
from support.duty import ADDRESS, ENTRY, Job, beside, for_a_while, killed_after, said_by, tpumon
from tpumon.collection.sampler import duty
from tpumon.collection.sampler.duty import DutyControl
from tpumon.system import host_files, ledger
from tpumon.system.ledger import DutyLedger, Turn

pytestmark = pytest.mark.virtual_time

OTHER_UID = 54321
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's files")


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


@pytest.mark.parametrize("turn", [[2, 0.0, 0.1], {"rank": 0}, "later", [0], [0, -1.0, 0.1], [0, 990.0, 0.1, "more"]])
async def test_what_one_of_a_later_version_has_traced_counts_however_it_says_that_it_waits(directory, turn):
    account, _ = await beside(directory, turn=turn, debt_s=0.0, traced_s=0.7)
    (peer,) = account._peers
    assert peer.entry.traced_s == 0.7
    assert peer.entry.turn == (Turn(0, 990.0, 0.1) if "more" in turn else None)


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
