"""A tpumon of this host that samples its jobs: found by its port, and believed by whose its socket is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from tpumon.collection.remote.exporter import SamplesPage
from tpumon.collection.remote.places import EXPORTER_PORT
from tpumon.collection.remote.server import TroubleError
from tpumon.discovery.host.announced import attached_processes
from tpumon.discovery.host.listening import Listener, read_listeners, user_at
from tpumon.discovery.host.ports import owners_of, parent_of, why_not_approached
from tpumon.discovery.host.processes import PROC
from tpumon.model import Address
from tpumon.model.page import Page
from tpumon.system.exporter_ports import announced, host_key

_MOST_ASKED = 4
_ANSWER_S = 1.0  # for the first answer: whoever takes longer is not read
_ACCEPT_S, _LOOK_S = 2.0, 0.01
_LAST_SYSTEM_ACCOUNT = 999
_NOBODY = 65_534  # stands for all users whom a container does not know


class Nearby(SamplesPage):
    """The samples of a tpumon of this host.

    Whoever has its port later is not asked: each connection, and each answer, is checked.

    Args:
        listener: where it listens.
        least_level: the level that it must have at least.
        proc: where /proc is.
    """

    read_s = 3.0

    def __init__(self, listener: Listener, least_level: int, proc: Path = PROC) -> None:
        super().__init__(f"http://{listener.address}")
        self.uid = listener.uid
        self._least_level = least_level
        self._proc = proc

    async def check(self, connection: asyncio.StreamWriter) -> None:
        """Refuses another user's process, and one that accepts nothing."""
        ends = (Address(*connection.get_extra_info(end)[:2]) for end in ("peername", "sockname"))
        there, here = ends
        async with asyncio.timeout(_ACCEPT_S):
            while (uid := await asyncio.to_thread(user_at, there, here, self._proc)) is None:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
        if uid != self.uid:
            raise PermissionError(None, "the connection is another user's")

    async def ports(self) -> Collection[int]:
        """Where its workers have their profiler servers; empty if it has none, or does not answer at once."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                page = await self.ask(f"/samples?after={10**15}", self._checked)
            return {Address.parse(target.address).port for target in page.targets}
        except (TroubleError, TimeoutError, ValueError):
            return ()

    def _checked(self, status: int, body: bytes) -> Page:
        page = super()._checked(status, body)
        if page.host != host_key():
            raise self.trouble("refused", "it does not sample the jobs of this host")
        if (page.level or 0) < self._least_level:
            raise self.trouble("refused", f"its level is lower than {self._least_level}")
        return page


async def find_nearby(least_level: int, proc: Path = PROC) -> Nearby | None:
    """Finds a tpumon that samples all jobs of this host that this process would find.

    Args:
        least_level: the level that it must have at least.
        proc: where /proc is.

    Returns:
        Its samples; None if there is none, it has no worker yet, it wants a password, or its user may not be believed.
    """
    try:
        listeners = await asyncio.to_thread(read_listeners, proc)
    except OSError:
        return None
    said = await asyncio.to_thread(announced)
    open_ = [one for one in listeners if one.port == EXPORTER_PORT or (one.uid, one.port) in said]
    if not open_ or host_key() is None:
        return None
    jobs = await asyncio.to_thread(_Jobs, listeners, proc)
    open_.sort(key=lambda one: (one.port != EXPORTER_PORT, one.port))
    pages = [Nearby(one, least_level, proc) for one in open_ if jobs.may_believe(one.uid)][:_MOST_ASKED]
    answers = await asyncio.gather(*(page.ports() for page in pages))
    return next((page for page, ports in zip(pages, answers, strict=True) if jobs.are_all_at(ports)), None)


class _Jobs:
    """The ports of this host that this process would take for jobs'. Calls none of them."""

    def __init__(self, listeners: Sequence[Listener], proc: Path) -> None:
        self._owners = owners_of(listeners, proc)
        attached = attached_processes(listeners, proc)
        own = [
            one
            for one in listeners
            if why_not_approached(one.port, self._owners.get(one.port), attached=attached) is None
        ]
        self._users = {one.uid for one in own}
        self._certain = [one.port for one in own if one.port in attached or self._runs_xla(one.port)]

    def may_believe(self, uid: int) -> bool:
        """Tells that a user decides about the jobs anyway: this one, a system account, or the owner of all of them."""
        if uid < 0 or uid == _NOBODY:
            return False
        return uid <= _LAST_SYSTEM_ACCOUNT or uid == os.getuid() or self._users == {uid}

    def are_all_at(self, ports: Collection[int]) -> bool:
        """Tells that these are the ports of all jobs: another user's tpumon may see fewer processes than this one."""
        pids = {self._owners[port].pid for port in ports if port in self._owners}
        return bool(ports) and all(port in ports or self._is_of(port, pids) for port in self._certain)

    def _is_of(self, port: int, pids: Collection[int]) -> bool:
        owner = self._owners.get(port)
        return owner is not None and (owner.pid in pids or parent_of(owner, pids) is not None)

    def _runs_xla(self, port: int) -> bool:
        owner = self._owners.get(port)
        return owner is not None and owner.runs_xla
