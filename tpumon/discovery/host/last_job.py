"""Remembers the jobs that tpumons of this host sampled: one that is gone is named, one that was started again is known.

Each user has one file, beside the ledger's; only those of this user and root are believed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from tpumon.discovery.finder import Discovery
from tpumon.discovery.host.listening import read_listeners
from tpumon.discovery.host.processes import s_of_ticks, start_ticks_of, state_of, tpumon_named
from tpumon.model import Address, Process, Target, Workers
from tpumon.model.documents import decoded, encoded
from tpumon.system.host_files import HostFiles, boot, network, since_boot_s, time_of_day
from tpumon.system.threads import in_thread
from tpumon.untrusted_text import one_line

_FILES = HostFiles("tpumon-jobs-", most_of_one_user=4, most_bytes=64 * 1024)
_FORGOTTEN_S = 24 * 3600.0
_MOST_JOBS = 64
_LONGEST_NAME = 60
_ANSWER_S = 2.0
_SOON_S = 600.0  # after which a job of the same command is not the same job, started again

_Count = Annotated[int, Meta(ge=0, le=2**62)]


class _Job(Struct, frozen=True, kw_only=True):
    """A job that had a profiler server.

    Attributes:
        pid, start: its process, and when that began, in clock ticks since the boot.
        name: its command.
        port: where its profiler server was; None: it had only runtime metrics.
        tpumon: the process that sampled it last.
        since_s: when it was first seen, in seconds since the boot.
        until_s: when it was seen to have ended; None: it was not.
    """

    pid: _Count
    start: _Count | None
    name: str | None
    port: _Count | None
    tpumon: _Count
    since_s: float
    until_s: float | None = None

    @property
    def is_gone(self) -> bool:
        return state_of(self.pid) == "ended" or start_ticks_of(self.pid) != self.start

    @property
    def seen_s(self) -> float:
        return self.since_s if self.until_s is None else self.until_s


class _Note(Struct, frozen=True, kw_only=True):
    """Content of a user's file: the jobs that tpumons of that user have sampled last."""

    boot: str
    network: int
    jobs: list[_Job]


class WithLastJob:
    """Another discovery's workers of this host, which are noted; where there are none, the words for the last job.

    Args:
        discovery: finds the workers.
        port: the only one where jobs are looked for; None: any.
        notes: whether the workers are noted: they are to be sampled.
        tells_of_gone: whether a job that is gone is named where there is no worker; False where others are asked for.
    """

    def __init__(
        self, discovery: Discovery, port: int | None = None, *, notes: bool = True, tells_of_gone: bool = True
    ) -> None:
        self._discovery = discovery
        self._tells_of_gone = tells_of_gone
        self._port = port
        self._notes = notes

    async def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields what the other discovery yields."""
        here: list[_Job] = []
        try:
            async with aclosing(self._discovery.watch(all_gone)) as changes:
                async for found in changes:
                    workers, gone = found, ""
                    with suppress(Exception):  # whatever is in the files of others
                        if self._notes:
                            workers = await in_thread(partial(_with_those_before, workers), timeout_s=_ANSWER_S)
                            here = await in_thread(partial(_noted, here, workers.targets), timeout_s=_ANSWER_S)
                        if self._tells_of_gone and not workers.targets:
                            gone = await in_thread(partial(gone_job, self._port), timeout_s=_ANSWER_S)
                    yield replace(workers, waiting=f"{gone}; {workers.waiting}") if gone else workers
        finally:  # a job may have ended that the other discovery has not missed yet
            if ended := [job for job in here if job.is_gone]:
                with suppress(Exception):
                    await in_thread(partial(_noted, ended, ()), timeout_s=_ANSWER_S)


def _noted(before: Sequence[_Job], targets: Sequence[Target]) -> list[_Job]:
    """The jobs that are here, noted; of those that were here before and are not any more, that they were until now."""
    now_s, path, known = since_boot_s(), None, list[_Job]()
    here = {target.process.pid: (target.process, target) for target in targets if target.process is not None}
    if not here and not before:
        return []
    for file in _FILES.listed():
        read = _FILES.read(file.path) if file.uid == os.getuid() else None
        if read is not None and not _is_elsewhere(read[0], now_s):
            path, known = file.path, _jobs_of(read[0], now_s)
    jobs = {(job.pid, job.start): job for job in known}
    jobs |= {(job.pid, job.start): replace(job, until_s=now_s) for job in before}
    listening = {one.port for one in read_listeners()} if here else set()
    now_here = []
    for process, target in here.values():
        job = _job(process, Address.parse(target.address).port, listening, now_s)
        old = jobs.get((job.pid, job.start))
        now_here.append(job if old is None else replace(job, since_s=old.since_s))
    jobs |= {(job.pid, job.start): job for job in now_here}
    latest = sorted(jobs.values(), key=lambda job: job.seen_s)[-_MOST_JOBS:]
    note = _Note(boot=boot(), network=network(), jobs=latest)
    _FILES.write(path or _FILES.new_path(), encoded(note))
    return now_here


def _job(process: Process, port: int, listening: set[int], now_s: float) -> _Job:
    return _Job(
        pid=process.pid,
        start=start_ticks_of(process.pid),
        name=process.command,
        port=port if port in listening else None,
        tpumon=os.getpid(),
        since_s=now_s,
    )


def gone_job(port: int | None = None) -> str:
    """Words for the job of this host that was seen last and has ended, and what to do; empty: none is known.

    Args:
        port: where its profiler server must have been; None: anywhere.
    """
    jobs = [(job, uid) for job, uid in _believed() if port in {None, job.port}]
    last = max(jobs, key=lambda each: each[0].seen_s, default=None)
    if last is None or not last[0].is_gone:
        return ""
    job, uid = last
    at = "" if job.port is None else f", port {job.port}"
    name = one_line(job.name or "", limit=_LONGEST_NAME).replace("`", "'")
    since = time_of_day(job.since_s)
    until = " on" if job.until_s is None else f" until {time_of_day(job.until_s)}"
    what = f"`{name}` (pid {job.pid}{at})" if name else f"the job (pid {job.pid}{at})"
    seen = f"from {since}{until} (last: {tpumon_named(job.tpumon, uid)})"
    return f"{what} is gone: sampled by tpumons of this host {seen}; look at the end of its log"


def _believed() -> list[tuple[_Job, int]]:
    """The jobs in the files of this user and root, each with the user."""
    now_s, jobs = since_boot_s(), list[tuple[_Job, int]]()
    for file in _FILES.listed():
        read = _FILES.read(file.path)
        if read is not None and read[1] in {0, os.getuid()}:
            jobs += [(job, read[1]) for job in _jobs_of(read[0], now_s)]
    return jobs


def _with_those_before(workers: Workers) -> Workers:
    """The workers with the processes that they replaced: a restart that no tpumon watched."""
    jobs = [job for job, _ in _believed()]
    return replace(workers, targets=tuple(replace(one, process_before=_before(one, jobs)) for one in workers.targets))


def _before(target: Target, jobs: Sequence[_Job]) -> Process | None:
    """The process of the same command that was sampled at a worker's port shortly before its own began; or None."""
    process = target.process
    start = None if process is None else start_ticks_of(process.pid)
    if process is None or process.started_unix_s is None or process.command is None or start is None:
        return None
    place = process.command, Address.parse(target.address).port
    known = [
        (job, start - job.start)
        for job in jobs
        if (job.name, job.port) == place and job.start is not None and job.start < start
        if s_of_ticks(start) - job.seen_s <= _SOON_S
    ]
    last, earlier = max(known, key=lambda each: each[0].seen_s, default=(None, 0))
    if last is None or not last.is_gone:
        return None
    began_unix_s = process.started_unix_s - s_of_ticks(earlier)
    return Process(pid=last.pid, command=last.name, started_unix_s=began_unix_s)


def _is_elsewhere(text: str, now_s: float) -> bool:
    """True for a file of another network, as of a container that shares the folder: it is not to be overwritten."""
    try:
        note = decoded(_Note, text)
    except ValueError:
        return False
    is_other = note.boot == boot() and note.network != network()
    return is_other and any(now_s - job.seen_s <= _FORGOTTEN_S for job in note.jobs)


def _jobs_of(text: str, now_s: float) -> list[_Job]:
    """The jobs in a file that are of this boot, network and day."""
    try:
        note = decoded(_Note, text)
    except ValueError:
        return []
    if (note.boot, note.network) != (boot(), network()):
        return []
    return [job for job in note.jobs if 0 <= now_s - job.seen_s <= _FORGOTTEN_S]
