"""The job of this host that was seen last, as all tpumons of the host remember it together."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from tpumon.discovery.host import last_job, own_processes, servers
from tpumon.discovery.host.last_job import WithLastJob, gone_job
from tpumon.discovery.host.processes import user_named
from tpumon.discovery.selection import Selection, open_discovery
from tpumon.model import Process, Target, Workers

NONE = Workers(waiting="no profiler server here")


class Changing:
    """Workers that change."""

    def __init__(self, *changes: Workers) -> None:
        self._changes = changes

    async def watch(self, _all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        for workers in self._changes:
            yield workers


def seen(*changes: Workers, port: int | None = None, notes: bool = True) -> list[Workers]:
    """The workers that follow from changes."""

    async def watched() -> list[Workers]:
        async with aclosing(WithLastJob(Changing(*changes), port, notes=notes).watch(bool)) as found:
            return [workers async for workers in found]

    return asyncio.run(watched())


def workers(pid: int | None, port: int = 9999) -> Workers:
    process = None if pid is None else Process(pid=pid, command="python train.py")
    return Workers(targets=(Target(worker="vm", address=f"127.0.0.1:{port}", process=process),))


def test_a_job_that_ends_with_the_command_that_sampled_it_has_an_end(job: subprocess.Popen[bytes]) -> None:
    """As of `why`, which is over before discovery misses the job."""

    async def sampled() -> None:
        async with aclosing(WithLastJob(Changing(workers(job.pid), NONE)).watch(bool)) as found:
            await anext(found)
            end(job)

    asyncio.run(sampled())
    assert " until " in gone_job()


@pytest.fixture
def job() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is the job."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def note_file() -> Path:
    (path,) = Path(os.environ["TPUMON_PAUSE_DIR"]).glob("tpumon-jobs-*")
    return path


def test_a_later_tpumon_says_which_job_was_here_and_until_when(
    job: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_job, "time_of_day", lambda time_s: f"T{time_s:.0f}")
    times = iter(range(100, 200))
    monkeypatch.setattr(last_job, "since_boot_s", lambda: next(times))
    monkeypatch.setattr(last_job, "read_listeners", lambda: [type("One", (), {"port": 9999})])
    here = workers(job.pid)
    assert seen(here, workers(None)) == [here, workers(None)]
    end(job)
    (found,) = seen(NONE)
    name = user_named(os.getuid())
    assert found.waiting == (
        f"`python train.py` (pid {job.pid}, port 9999) is gone: sampled by tpumons of this host from T101 "
        f"until T103 (last: tpumon {os.getpid()} of {name}); look at the end of its log; {NONE.waiting}"
    )
    assert seen(NONE, port=9012) == [NONE]


@pytest.mark.parametrize(
    ("command", "port", "gone", "is_known"),
    [
        ("python train.py", 9999, True, True),
        ("python other.py", 9999, True, False),
        ("python train.py", 9012, True, False),
        ("python train.py", 9999, False, False),
    ],
)
def test_the_process_that_a_job_has_replaced_is_known_to_a_tpumon_that_did_not_watch(
    job: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, command: str, port: int, gone: bool, is_known: bool
) -> None:
    """One of the same command and port, that is gone and was sampled shortly before."""
    monkeypatch.setattr(last_job, "read_listeners", lambda: [type("One", (), {"port": each}) for each in (9999, 9012)])
    seen(workers(job.pid))
    time.sleep(0.05)  # some ticks, in which processes count their starts
    if gone:
        end(job)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as later:
        process = Process(pid=later.pid, command=command, started_unix_s=time.time())
        (found,) = seen(Workers(targets=(Target(worker="vm", address=f"127.0.0.1:{port}", process=process),)))
        end(later)
    before = found.targets[0].process_before
    assert (before is not None and before.pid == job.pid) == is_known
    if before is not None and before.started_unix_s is not None:
        assert 0 < time.time() - before.started_unix_s < 60


def test_the_end_is_not_told_where_nobody_saw_it(job: subprocess.Popen[bytes]) -> None:
    seen(workers(job.pid))
    end(job)
    assert f"(pid {job.pid})" in gone_job()  # nothing listens, so no port is named
    assert "until" not in gone_job()
    assert " on (last: " in gone_job()


def test_jobs_of_another_network_are_kept(job: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    seen(workers(job.pid))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(last_job, "network", lambda: 1)
        seen(workers(os.getpid()))
    end(job)
    assert f"(pid {job.pid})" in gone_job()


def test_who_takes_a_profile_has_not_sampled(job: subprocess.Popen[bytes]) -> None:
    seen(workers(job.pid), notes=False)
    end(job)
    assert gone_job() == ""


def test_nothing_is_said_of_a_job_that_goes_on_or_of_another_day(
    job: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen(workers(job.pid), workers(None))
    assert gone_job() == ""  # it has only closed its port
    end(job)
    assert gone_job()
    later_s = last_job.since_boot_s() + 25 * 3600
    monkeypatch.setattr(last_job, "since_boot_s", lambda: later_s)
    assert gone_job() == ""


@pytest.mark.parametrize("change", [{"network": 1}, {"boot": "another"}, {"jobs": [{"pid": -1}]}, {"jobs": None}])
def test_what_makes_no_sense_here_is_not_believed(job: subprocess.Popen[bytes], change: dict[str, object]) -> None:
    seen(workers(job.pid))
    end(job)
    assert gone_job()
    note_file().write_text(json.dumps(json.loads(note_file().read_text()) | change))
    assert gone_job() == ""
    assert seen(NONE) == [NONE]


def test_names_of_others_are_printed_safely(job: subprocess.Popen[bytes]) -> None:
    seen(workers(job.pid))
    end(job)
    note = json.loads(note_file().read_text())
    note["jobs"][0]["name"] = "a`\x1b[31m\n" + "b" * 500
    note_file().write_text(json.dumps(note))
    assert gone_job().isprintable()
    assert len(gone_job()) < 250


def test_workers_of_this_host_are_looked_for_so(job: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    seen(workers(job.pid))
    end(job)
    monkeypatch.setattr(servers, "LocalDiscovery", lambda *_, **__: Changing(NONE))

    async def found() -> Workers:
        async with AsyncExitStack() as stack:
            discovery = await open_discovery(Selection(), stack)
            async with aclosing(discovery.watch(bool)) as changes:
                return await anext(changes)

    assert asyncio.run(found()).waiting == f"{gone_job()}; {NONE.waiting}"


def test_a_worker_that_is_named_is_noted_too_so_that_its_restart_is_known(
    job: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others are asked for, a job that is gone is not named."""

    async def first(*changes: Workers) -> Workers:
        monkeypatch.setattr(own_processes, "WithProcesses", lambda _discovery: Changing(*changes))
        async with AsyncExitStack() as stack:
            discovery = await open_discovery(Selection(addresses=("127.0.0.1:9999",)), stack)
            async with aclosing(discovery.watch(bool)) as found:
                return await anext(found)

    asyncio.run(first(workers(job.pid)))
    end(job)
    assert f"(pid {job.pid})" in gone_job()
    assert asyncio.run(first(NONE)).waiting == NONE.waiting
