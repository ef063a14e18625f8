"""Finds a tpumon of this host that samples the same jobs, by its port; trusts it by the owner of its socket."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection, Sequence

from tpumon.collection.remote.exporter import SamplesPage
from tpumon.collection.remote.exporter_client import ExchangeError
from tpumon.discovery.addresses import server_name
from tpumon.discovery.host.announced import attached_processes
from tpumon.discovery.host.listening import Listener, read_listeners, user_at
from tpumon.discovery.host.port_survey import owners_of, parent_of, why_not_approached
from tpumon.discovery.host.probe import knock
from tpumon.model import Address
from tpumon.model.page import Page
from tpumon.system.exporter_ports import EXPORTER_PORT, announced, host_key
from tpumon.system.threads import in_thread

_MOST_ASKED = 8
_ANSWER_S = 1.0  # for the first answer: whoever takes longer is not read
_ACCEPT_S, _POLL_S = 2.0, 0.01
_AGAIN_S = 30.0  # between two comparisons with the jobs; one reads the files of all processes
_LAST_SYSTEM_ACCOUNT = 999
_NOBODY = 65_534  # stands for all users whom a container does not know
_HERE = "localhost:"


class Nearby(SamplesPage):
    """The samples of a tpumon of this host.

    Each connection and each answer is checked, so a later process at the same port is not asked. That tpumon is given
    up once another user starts a job that its owner is not trusted for, or once it has missed a job for half a minute.

    Args:
        listener: where it listens.
        least_level: the lowest level that will do.
        wanted: the servers asked for, by `server_name`: it must sample them, its others are left out; none: it must
            sample all jobs of this host, and nothing else.
        is_announced: whether a note of its owner says that it listens in this network.
    """

    read_s = 3.0

    def __init__(
        self,
        listener: Listener,
        least_level: int,
        wanted: frozenset[str] = frozenset(),
        *,
        is_announced: bool = False,
    ) -> None:
        super().__init__(f"http://{listener.address}")
        self.uid = listener.uid
        self._least_level = least_level
        self._wanted = wanted
        self._is_announced = is_announced
        self._compared_s = time.monotonic()
        self._missed_job = False
        self._no_profilers: set[frozenset[int]] = set()  # sockets

    async def fetch(self, after: int | None, changed: int | None = None, history_bytes: int | None = None) -> Page:
        """Fetches the page, as any exporter's; now and then checks whether it may still be believed."""
        page = await super().fetch(after, changed, history_bytes)
        if time.monotonic() - self._compared_s >= _AGAIN_S:
            await self._compare_jobs(_ports_on(page))
        return page

    async def _compare_jobs(self, ports: Collection[int]) -> None:
        jobs = await asyncio.to_thread(lambda: _Jobs(read_listeners(), self._wanted))
        if jobs.users and not jobs.may_believe(self.uid):
            raise self.trouble("refused", "there are jobs of other users now")
        missed, self._missed_job = self._missed_job, await self.misses_job(jobs.beside(ports))
        if missed and self._missed_job:
            raise self.trouble("refused", "it does not sample all jobs of this host")
        self._compared_s = time.monotonic()

    async def misses_job(self, beside: Sequence[Listener]) -> bool:
        """Tells that one of these, which it does not sample, is a profiler server. One that is none is called once."""
        asked = [one for one in beside if one.inodes not in self._no_profilers]
        answers = await asyncio.gather(*(knock(one.address, timeout_s=_ANSWER_S) for one in asked))
        none = {
            one.inodes
            for one, answer in zip(asked, answers, strict=True)
            if answer is not None and answer.reason != "deadline"
        }
        self._no_profilers |= none
        return len(none) < len(asked)

    async def check(self, connection: asyncio.StreamWriter) -> None:
        """Refuses a process of another user, and a process that accepts no connection."""
        ends = [connection.get_extra_info(end) for end in ("peername", "sockname")]
        if None in ends:
            raise ConnectionError(None, "the connection was closed at once")
        there, here = (Address(*end[:2]) for end in ends)
        async with asyncio.timeout(_ACCEPT_S):
            while (uid := await asyncio.to_thread(user_at, there, here)) is None:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)
        if uid != self.uid:
            raise PermissionError(None, "the connection is another user's")

    async def ports(self) -> Collection[int]:
        """Ports at which its workers have their profiler servers; empty if it has none, or does not answer at once."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                page = await self.ask(f"/samples?after={10**15}", self._checked)
            return _ports_on(page)
        except (ExchangeError, TimeoutError, ValueError):
            return ()

    def _checked(self, status: int, body: bytes) -> Page:
        page = super()._checked(status, body)
        servers = {target.worker: server_name(target.address) for target in page.targets}
        is_here = page.host == host_key() or (page.host is None and self._is_announced)
        has_others = page.host is None and any(not server.startswith(_HERE) for server in servers.values())
        if not is_here or (has_others and not self._wanted):
            raise self.trouble("refused", "it does not sample the jobs of this host")
        if (page.level or 0) < self._least_level:
            raise self.trouble("refused", f"its level is lower than {self._least_level}")
        if missing := self._wanted - set(servers.values()):
            raise self.trouble("refused", f"it does not sample {min(missing)}")
        return page.of({name for name, server in servers.items() if server in self._wanted}) if self._wanted else page


async def find_nearby(least_level: int, addresses: Collection[str] = ()) -> Nearby | None:
    """Finds a tpumon of this host that samples what this process would.

    Args:
        least_level: the lowest level that will do.
        addresses: of the workers; none: all jobs of this host that this process would find.

    Returns:
        Samples of that tpumon; None: there is none, it has no worker, wants a password, or its owner is not trusted.
    """
    try:
        listeners = await asyncio.to_thread(read_listeners)
    except OSError:
        return None
    try:
        said = await in_thread(announced, timeout_s=_ANSWER_S)
    except TimeoutError:  # any user may fill /tmp
        said = set()
    open_ = [one for one in listeners if one.port == EXPORTER_PORT or (one.uid, one.port) in said]
    if not open_ or host_key() is None:
        return None
    wanted = frozenset(map(server_name, addresses))
    jobs = await asyncio.to_thread(_Jobs, listeners, wanted)
    open_.sort(key=lambda one: (one.port != EXPORTER_PORT, one.port))
    asked = [one for one in open_ if jobs.may_believe(one.uid) and not jobs.may_be_at(one.port)][:_MOST_ASKED]
    pages = [Nearby(one, least_level, wanted, is_announced=(one.uid, one.port) in said) for one in asked]
    answers = await asyncio.gather(*(page.ports() for page in pages))
    for page, ports in zip(pages, answers, strict=True):
        if ports and not await page.misses_job(jobs.beside(ports)):
            return page
    return None


def _ports_on(page: Page) -> set[int]:
    return {Address.parse(target.address).port for target in page.targets}


class _Jobs:
    """The ports of this host that this process would take for jobs'. Calls none of them.

    Args:
        listeners: what listens on this host.
        wanted: the servers that are asked for, by `server_name`; none: all.

    Attributes:
        users: owners of the ports; -1 stands for servers of other hosts.
    """

    def __init__(self, listeners: Sequence[Listener], wanted: frozenset[str] = frozenset()) -> None:
        self._owners = owners_of(listeners)
        attached = attached_processes(listeners)
        own = [
            one
            for one in listeners
            if why_not_approached(one.port, self._owners.get(one.port), attached=attached) is None
        ]
        self.users = {one.uid for one in own}
        self._certain = [one for one in own if one.port in attached or self._runs_xla(one.port)]
        if wanted:  # others' jobs are left out, and the exporter has those
            self.users = {one.uid for one in listeners if f"{_HERE}{one.port}" in wanted}
            self.users |= {-1 for server in wanted if not server.startswith(_HERE)}
            self._certain = []

    def may_believe(self, uid: int) -> bool:
        """Tells that a user decides about the jobs anyway: this one, a system account, or the owner of all of them."""
        if uid < 0 or uid == _NOBODY:
            return False
        return uid <= _LAST_SYSTEM_ACCOUNT or uid == os.getuid() or self.users == {uid}

    def may_be_at(self, port: int) -> bool:
        """Tells that a job listens there: a tpumon that was killed had announced this port, or it is the usual one."""
        owner = self._owners.get(port)
        return owner is not None and not owner.is_tpumon and (owner.runs_xla or owner.runs_nccl)

    def beside(self, ports: Collection[int]) -> list[Listener]:
        """Listeners of job processes that have none of these ports: another user's tpumon may not see them."""
        pids = {self._owners[port].pid for port in ports if port in self._owners}
        return [one for one in self._certain if one.port not in ports and not self._is_of(one.port, pids)]

    def _is_of(self, port: int, pids: Collection[int]) -> bool:
        owner = self._owners.get(port)
        return owner is not None and (owner.pid in pids or parent_of(owner, pids) is not None)

    def _runs_xla(self, port: int) -> bool:
        owner = self._owners.get(port)
        return owner is not None and owner.runs_xla
