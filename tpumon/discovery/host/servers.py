"""The profiler servers of this host, among all that listens here."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tpumon.discovery.host.announced import announced_environment, attached_processes
from tpumon.discovery.host.jobs import HostJob, find_job
from tpumon.discovery.host.listening import Listener, Owner, page_of, read_listeners
from tpumon.discovery.host.port_survey import (
    HIDDEN,
    RUNTIME_PORTS,
    TPU_RUNTIME_PORTS,
    USUAL_PORTS,
    Elsewhere,
    line_for,
    of_others,
    owners_of,
    parent_of,
    why_not_approached,
)
from tpumon.discovery.host.probe import knock
from tpumon.discovery.host.processes import PROC, environment_of
from tpumon.discovery.identity import LISTED_VARIABLE, VARIABLES
from tpumon.errors import SUGGESTED_PORT, SourceError
from tpumon.model import Target, Workers
from tpumon.system.first_port import NOTE_EVERY_S, first_port
from tpumon.system.threads import in_thread
from tpumon.untrusted_text import unexpected

_log = logging.getLogger(__name__)

_POLL_S = 1.0  # a job shall be found within 2 s
_FIRST_S = 2.5  # the first result waits so long for a first answer ...
_OTHERS_S = 0.5  # ... and so long for others after it
_KEEP_GONE_S = 600.0
_NAME_S = 2.0  # for the files that say which port was the first
_CLOSED_S = 8.0  # for a port if only a call shows whether anything listens
_SILENT_S, _SILENT_TRIES = 30.0, 3
_JOBS_S = 30.0  # between two looks for a job without a profiler server
_STRANGERS_TRIES, _FORGET_S = 2, 600.0


@dataclass(slots=True)
class _LocalServer:
    """A profiler server.

    Attributes:
        name: to show; given before it is first yielded.
        gone_s: when its port had closed; None while it is open.
        environment: the variables that name its job, as far as they were read.
        announced: whether they were read after its process had said that it is attached; None: not yet.
    """

    listener: Listener
    owner: Owner | None
    name: str | None = None
    gone_s: float | None = None
    environment: tuple[tuple[str, str], ...] = ()
    announced: bool | None = None


@dataclass(slots=True)
class _Refused:
    """A port where no profiler server answered.

    Attributes:
        inodes: of the listener that was there.
        at_s: when it was called.
        tries: recent calls of this port.
        again_s: when the same listener may be called again.
        silent: whether it took the connection and never answered.
    """

    inodes: frozenset[int]
    at_s: float
    tries: int
    again_s: float
    silent: bool


@dataclass(slots=True)
class _Call:
    """A call under way."""

    listener: Listener
    owner: Owner | None
    task: asyncio.Task[SourceError | None]


class LocalDiscovery:
    """Finds the profiler servers of this host, and follows them as jobs end and start.

    Reads the listeners from /proc every second, and calls a new one once. If /proc cannot be read, it calls the usual
    ports, and closed ones again every 8 s.

    A job that ends stays as a worker that is down, for 10 minutes or until another job takes its place.

    Args:
        port: the only one to look at; None: all, as `why_not_approached` says.
        runtime_only: whether a job with runtime metrics, but without a profiler server, is a worker.
        proc: where /proc is.
        elsewhere: names the profiler servers at other ports than the one; None: they are not looked for.
        only: which listeners to see; for tests, which share their machine.
        call: the harmless call.
        poll_s: time between looks.
        keep_gone_s: how long a worker stays after its port has closed.
    """

    def __init__(
        self,
        port: int | None = None,
        *,
        runtime_only: bool = True,
        elsewhere: Elsewhere | None = None,
        proc: Path = PROC,
        only: Callable[[Listener], bool] = lambda _listener: True,
        call: Callable[[str], Awaitable[SourceError | None]] = knock,
        poll_s: float = _POLL_S,
        keep_gone_s: float = _KEEP_GONE_S,
    ) -> None:
        self._port = port
        self._runtime_only = runtime_only
        self._elsewhere = elsewhere
        self._others = ""  # the words for profiler servers at other ports
        self._proc = proc
        self._only = only
        self._call = call
        self._poll_s = poll_s
        self._keep_gone_s = keep_gone_s
        self._host = socket.gethostname()
        self._blind: str | None = None  # why what listens here cannot be read
        self._listeners: dict[int, Listener] = {}
        self._owners: dict[int, Owner] = {}
        self._attached: dict[int, int] = {}  # by port, the process that says so
        self._calls: dict[int, _Call] = {}
        self._refused: dict[int, _Refused] = {}
        self._workers: dict[int, _LocalServer] = {}
        self._job: HostJob | None = None  # one without a profiler server, as far as is known
        self._look_for_job_s = self._noted_s = -math.inf
        self._said_lack: tuple[str, str] | None = None
        self._said_unreadable = False
        self._said_subprocesses: set[int] = set()
        self._said_pages: set[str] = set()

    async def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields this host's workers each time they have changed."""
        clock_s = asyncio.get_running_loop().time
        sent: Workers | None = None
        try:
            while True:
                await self._look()
                self._note_gone(clock_s(), all_gone=all_gone())
                self._note_answers(clock_s())
                self._call_new_ones(clock_s())
                if sent is None:
                    await self._first_answers(clock_s)
                await self._find_job(clock_s())
                await self._look_elsewhere()
                await self._read_environments()
                await self._name_workers(clock_s())
                workers = self._now()
                if self._calls and sent is not None and not (sent.targets or workers.targets):
                    workers = sent  # the answer will say more
                if workers != sent:
                    sent = workers
                    yield workers
                await self._wait(self._poll_s)
        finally:
            tasks = [call.task for call in self._calls.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> None:
        """Reads what listens now and, for what is new, which process."""
        try:
            listeners = await asyncio.to_thread(read_listeners, self._proc)
            self._blind = None
        except OSError as error:
            ports = USUAL_PORTS if self._port is None else (self._port,)
            listeners = [Listener(port=port, address=f"127.0.0.1:{port}", inodes=frozenset()) for port in ports]
            self._blind = error.strerror or str(error)
        before, self._listeners = self._listeners, {one.port: one for one in listeners if self._only(one)}
        here = self._listeners
        self._owners = {port: owner for port, owner in self._owners.items() if _same(before[port], here.get(port))}
        fresh = [one for one in here.values() if not _same(one, before.get(one.port))]
        if fresh and self._blind is None:
            self._owners |= await asyncio.to_thread(owners_of, fresh, self._proc)
        try:
            self._attached = await asyncio.to_thread(attached_processes, list(here.values()), self._proc)
        except Exception as error:  # noqa: BLE001 - whatever is in the files of others
            if not self._said_unreadable:
                self._said_unreadable = True
                _log.warning("what attached jobs announce cannot be read: %s", unexpected(error))

    async def _find_job(self, now_s: float) -> None:
        """While there is no worker: which job could be one, if it had a profiler server."""
        if self._workers or self._port is not None or self._blind is not None:
            self._job = None
            return
        ended = self._job is not None and not (self._proc / str(self._job.pid)).exists()
        if ended or now_s - self._look_for_job_s >= _JOBS_S:
            self._look_for_job_s = now_s
            self._job = await asyncio.to_thread(find_job, self._proc)

    async def _look_elsewhere(self) -> None:
        """While nothing answers at the one port: which profiler servers answer at others."""
        self._others = ""
        if self._elsewhere is not None and self._port is not None and self._port not in {*self._workers, *self._calls}:
            self._others = await self._elsewhere.remedy(f"127.0.0.1:{self._port}")

    async def _name_workers(self, now_s: float) -> None:
        """Names new workers: by the host at its first port, by host and port at others."""
        here = {
            one.listener.port: one
            for one in self._not_subprocesses(list(self._workers.values()))
            if one.gone_s is None or one.name is None
        }
        if not here or (now_s - self._noted_s < NOTE_EVERY_S and all(one.name is not None for one in here.values())):
            return
        self._noted_s = now_s
        try:
            first = await in_thread(partial(first_port, tuple(here)), timeout_s=_NAME_S)
        except Exception:  # noqa: BLE001 - whatever is in the files of others: a worker needs a name
            first = min(here)
        taken = {one.name for one in self._workers.values()}
        for port, worker in here.items():
            if worker.name is None:
                worker.name = self._host if port == first and self._host not in taken else f"{self._host}:{port}"

    async def _read_environments(self) -> None:
        """Reads, once for each process and once more when it has announced itself, what names its job."""
        for port, worker in self._workers.items():
            announced = port in self._attached
            if worker.owner is not None and worker.announced != announced and worker.gone_s is None:
                worker.announced = announced
                environment = await asyncio.to_thread(_environment_of, worker.owner.pid, announced, self._proc)
                worker.environment = tuple(sorted(environment.items())) or worker.environment  # it may be about to end

    def _note_gone(self, now_s: float, *, all_gone: bool) -> None:
        for port, worker in list(self._workers.items()):
            there = _same(worker.listener, self._listeners.get(port))
            if there and not (self._blind is not None and all_gone):
                worker.gone_s = None
            elif worker.gone_s is None:
                worker.gone_s = now_s
            elif now_s - worker.gone_s > self._keep_gone_s:
                del self._workers[port]

    def _call_new_ones(self, now_s: float) -> None:
        for port, listener in self._listeners.items():
            worker = self._workers.get(port)
            known = port in self._calls or (worker is not None and worker.gone_s is None)
            if known or self._port not in {None, port}:
                continue
            call_at_s = self._call_at_s(listener, now_s)
            if call_at_s <= now_s:
                task = asyncio.create_task(self._ask(listener.address), name=f"knock {listener.address}")
                self._calls[port] = _Call(listener, self._owners.get(port), task)
            elif call_at_s == math.inf:  # a stranger has the port and would be called on and on
                self._workers.pop(port, None)

    def _call_at_s(self, listener: Listener, now_s: float) -> float:
        """The time from which on a port may be called; infinite: not while this one listens there."""
        owner, asked_for = self._owners.get(listener.port), listener.port == self._port
        reason = why_not_approached(listener.port, owner, asked_for=asked_for, attached=self._attached)
        if reason is not None:
            return math.inf
        refused = self._refused.get(listener.port)
        if refused is None:
            return now_s
        if refused.inodes == listener.inodes or refused.inodes & listener.inodes:
            return refused.again_s
        # Something new listens there. A stranger that restarts over and over is not called each time.
        job = asked_for or (owner is not None and owner.runs_xla)
        return now_s if job or refused.tries < _STRANGERS_TRIES else refused.at_s + _FORGET_S

    async def _ask(self, address: str) -> SourceError | None:
        try:
            return await self._call(address)
        except Exception as error:  # noqa: BLE001 - a bug in one call must not end the search
            return SourceError("internal", f"a bug in tpumon: {unexpected(error)}", address=address)

    async def _wait(self, timeout_s: float) -> None:
        """Waits for an answer, or for so long."""
        if self._calls:
            tasks = [call.task for call in self._calls.values()]
            await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(timeout_s)

    async def _first_answers(self, clock_s: Callable[[], float]) -> None:
        start_s = clock_s()
        while self._calls and (left_s := start_s + (_OTHERS_S if self._workers else _FIRST_S) - clock_s()) > 0:
            await self._wait(left_s)
            self._note_answers(clock_s())

    def _note_answers(self, now_s: float) -> None:
        for port, call in list(self._calls.items()):
            if call.task.done():
                del self._calls[port]
                answer = call.task.result()
                if answer is None:
                    self._arrive(call)
                else:
                    self._note_refusal(call, answer, now_s)

    def _arrive(self, call: _Call) -> None:
        port = call.listener.port
        self._refused.pop(port, None)
        if port in self._workers:
            worker = self._workers[port]
            worker.listener, worker.owner, worker.gone_s = call.listener, call.owner, None
            worker.environment, worker.announced = (), None
            return
        # A job that restarts on other ports does not stay a second one.
        gone = [worker for worker in self._workers.values() if worker.gone_s is not None]
        if len(gone) == len(self._workers):
            self._workers.clear()
        if self._workers and gone:
            del self._workers[min(gone, key=lambda worker: worker.gone_s or 0.0).listener.port]
        self._workers[port] = _LocalServer(call.listener, call.owner)

    def _note_refusal(self, call: _Call, answer: SourceError, now_s: float) -> None:
        before = self._refused.get(call.listener.port)
        tries = 1 + (before.tries if before is not None and now_s - before.at_s <= _FORGET_S else 0)
        again_s = math.inf
        if self._blind is not None:
            again_s = now_s + (_CLOSED_S if answer.reason == "unavailable" else _FORGET_S)
        elif answer.reason == "deadline" and call.owner is not None and call.owner.runs_xla and tries < _SILENT_TRIES:
            again_s = now_s + _SILENT_S  # a job may be too busy to answer, or stopped for a moment
        silent = answer.reason == "deadline"
        self._refused[call.listener.port] = _Refused(call.listener.inodes, now_s, tries, again_s, silent)

    def _now(self) -> Workers:
        workers = self._not_subprocesses([worker for _, worker in sorted(self._workers.items())])
        if not workers:
            target = self._without_profiler() if self._runtime_only else None
            lack = None if target is None else self._lack()
            if lack is not None and lack != self._said_lack:
                _log.warning("%s: only memory and duty cycle are available; %s", *lack)
            self._said_lack = lack
            return Workers(waiting=self._waiting()) if target is None else Workers(targets=(target,))
        self._said_lack = None
        alone = len(workers) == 1
        pages = self._pages([worker.owner for worker in workers])
        targets = []
        for worker, page in zip(workers, pages, strict=True):
            runtime = self._runtime_addresses(worker.owner, alone=alone)
            address = worker.listener.address
            targets.append(
                Target(
                    worker=worker.name or f"{self._host}:{worker.listener.port}",
                    address=address,
                    independent=True,
                    runtime_addresses=runtime,
                    server_metrics=page,
                    attached=worker.listener.port in self._attached,
                    process=None if worker.owner is None or worker.gone_s is not None else worker.owner.process,
                    kind_signs=() if worker.owner is None else worker.owner.kind_signs,
                    environment=worker.environment,
                )
            )
        return Workers(targets=tuple(targets))

    def _not_subprocesses(self, workers: list[_LocalServer]) -> list[_LocalServer]:
        pids = {worker.owner.pid for worker in workers if worker.owner is not None and worker.gone_s is None}
        own = []
        for worker in workers:
            parent = parent_of(worker.owner, pids)
            if parent is None:
                own.append(worker)
            elif worker.owner is not None and worker.owner.pid not in self._said_subprocesses:
                self._said_subprocesses.add(worker.owner.pid)
                _log.warning(
                    "%s belongs to a subprocess of %s, which has a profiler server too; only that "
                    "one is sampled (to sample the other instead: --port %s)",
                    worker.listener.address,
                    parent,
                    worker.listener.port,
                )
        self._said_subprocesses &= {worker.owner.pid for worker in workers if worker.owner is not None}
        return own

    def _pages(self, owners: Sequence[Owner | None]) -> list[str | None]:
        """The page of metrics of each worker's server; none where several have one, which counts for all of them."""
        here = self._listeners.values()
        pages = [None if owner is None else page_of(owner, here, self._owners) for owner in owners]
        for page in sorted({page for page in pages if page is not None and pages.count(page) > 1} - self._said_pages):
            self._said_pages.add(page)
            _log.warning(
                "%s counts the requests of several workers; it is not read (to read it for one of them: "
                "--server-metrics WORKER=%s)",
                page,
                page,
            )
        return [page if pages.count(page) == 1 else None for page in pages]

    def _runtime_addresses(self, owner: Owner | None, *, alone: bool) -> tuple[str, ...]:
        """The runtime addresses of the profiler's process; if that is unknown, all of them where it is alone."""
        here = self._runtime_ports()
        ports = [port for port in here if owner and (its := self._owners.get(port)) and its.pid == owner.pid]
        if alone and not ports:
            ports = here or [port for port in RUNTIME_PORTS[:1] if port not in self._listeners]
        return tuple(f"localhost:{port}" for port in ports)

    def _runtime_ports(self) -> list[int]:
        """Ports where a runtime metric service seems to listen; no stranger's, as they are asked again and again."""
        here = [port for port in RUNTIME_PORTS if port in self._listeners]
        return [port for port in here if (owner := self._owners.get(port)) is None or owner.runs_xla]

    def _without_profiler(self) -> Target | None:
        """A worker that has only the runtime metric service."""
        ports = self._runtime_ports()
        # Where its profiler server will be once it has one; not where others listen, who would be called on and on.
        wanted = (SUGGESTED_PORT, *USUAL_PORTS) if self._port is None else (self._port,)
        port = next((port for port in wanted if port not in self._listeners or port in self._calls), None)
        if not ports or port is None:
            return None
        runtime = tuple(f"localhost:{number}" for number in ports)
        owner = self._owners.get(ports[0])
        return Target(
            worker=self._host,
            address=f"127.0.0.1:{port}",
            independent=True,
            runtime_addresses=runtime,
            server_metrics=self._pages([owner])[0],
            process=None if owner is None else owner.process,
            kind_signs=() if owner is None else owner.kind_signs,
        )

    def _lack(self) -> tuple[str, str]:
        """The words for a job that has only the runtime metric service, and what to do."""
        if self._others:
            return f"no profiler server on this host's port {self._port}", self._others
        if self._job is not None and (words := self._job.not_yet(time.time())) is not None:
            return words
        owners = (self._owners.get(port) for port in self._runtime_ports())
        line = line_for(next((owner.signs.framework for owner in owners if owner is not None), None), self._port)
        return (
            "the job on this host has no profiler server",
            f"for matrix units, idle and step time add `{line}` to it",
        )

    def _waiting(self) -> str:
        """The places where tpumon looked, and what to do."""
        where = f"port {self._port}"
        if self._port is None:
            where = f"usual ports ({', '.join(map(str, USUAL_PORTS))})"
            if self._blind is not None:
                where += f"; what else listens here cannot be read ({self._blind})"
            elif hidden := [one for one in self._listeners if why_not_approached(one, self._owners.get(one)) == HIDDEN]:
                where += "; not asked: {} ({})".format(*of_others(hidden))
            else:
                where += ", nor on another port of a job"
        refused = ((one.address, self._refused.get(port)) for port, one in self._listeners.items())
        silent = [address for address, its in refused if its is not None and its.silent]
        if silent:
            where += f" ({', '.join(silent[:3])} took the call and never answered)"
        if self._others:
            return f"no profiler server on this host's {where}; {self._others}"
        job = self._job
        if job is not None and (job.stopped or not self._may_have_profiler(job.pid)):
            if (words := job.not_yet(time.time())) is not None:
                return "; ".join(words)
            return (
                f"{job.lack}: add `{line_for(job.framework)}`, or start it with `tpumon run`, or give --service-addr "
                f"HOST:PORT; there is none on this host's {where}"
            )
        line = line_for(None, self._port)
        return (
            f"no profiler server on this host's {where}; start the job with `tpumon run`, or add `{line}` to "
            "it, or give --service-addr HOST:PORT; to look around: tpumon --simulate v5e-8"
        )

    def _may_have_profiler(self, pid: int) -> bool:
        """Tells if a process listens on a port that was not called, or did not answer."""
        not_profilers = {*RUNTIME_PORTS, *TPU_RUNTIME_PORTS}
        ports = [port for port, one in self._owners.items() if one.pid == pid and port not in not_profilers]
        return any(port not in self._refused or self._refused[port].silent for port in ports)


def _environment_of(pid: int, announced: bool, proc: Path) -> dict[str, str]:
    environment = environment_of(pid, VARIABLES, proc, LISTED_VARIABLE)
    return environment | announced_environment(pid, proc) if announced else environment


def _same(listener: Listener, other: Listener | None) -> bool:
    """Tells if the same server listens; assumed if nothing is known about either."""
    return other is not None and (listener.inodes == other.inodes or not listener.inodes.isdisjoint(other.inodes))
