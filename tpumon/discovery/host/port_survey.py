"""Decides which ports of this host are called, and calls them for `tpumon doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from tpumon.collection.sources.runtime_metrics import PORTS
from tpumon.discovery.host.announced import attached_processes
from tpumon.discovery.host.listening import Listener, Owner, find_owners, read_listeners
from tpumon.discovery.host.own_processes import ports_here
from tpumon.discovery.host.probe import knock
from tpumon.discovery.host.processes import PROC
from tpumon.errors import START_JAX_SERVER, SUGGESTED_PORT, SourceError
from tpumon.model import Framework
from tpumon.untrusted_text import listed, plain_word

USUAL_PORTS = (8466, 9999, 9012, 6000, 6009)
"""Of TPU nodes, and of the documentation of JAX, PyTorch/XLA and TensorFlow (two)."""

RUNTIME_PORTS = PORTS
"""Where a runtime metric service may be: one port per process."""

_STARTS: Mapping[Framework | None, tuple[str, int]] = {
    "TensorFlow": ("tf.profiler.experimental.server.start({})", 6009),
    "PyTorch/XLA": ("server = torch_xla.debug.profiler.start_server({})", 9012),
}
_JAX_START = START_JAX_SERVER, SUGGESTED_PORT

_MOST_NAMED = 3  # servers, in a message
_NOBODY: Mapping[int, int] = MappingProxyType({})

TPU_RUNTIME_PORTS = range(8470, 8480)  # TPU_PROCESS_PORT, mesh controller, coordinator: of the job itself
_LAST_PRIVILEGED_PORT = 1023
HIDDEN = "its process is hidden; run tpumon as the job's user, or give --port"


class SurveyedPort(Struct, frozen=True, kw_only=True):
    """The outcome of one port, for people.

    Attributes:
        address: `host:port`.
        owner: the process that listens, if it may be seen.
        not_approached: why it was not called; None if it was.
        answer: what it answered, if it is not a profiler server.
        is_profiler: whether a profiler server answered.
        attached: whether its job says that it is attached (`tpumon run`).
    """

    address: str
    port: int
    owner: Owner | None = None
    not_approached: str | None = None
    answer: SourceError | None = None
    is_profiler: bool = False
    attached: bool = False


def line_for(framework: Framework | None, port: int | None = None) -> str:
    """The line that a job needs to be seen; JAX's if its framework is unknown.

    Args:
        framework: that of the job.
        port: the one that was asked; None: the framework's usual one.
    """
    start, usual = _STARTS.get(framework, _JAX_START)
    return start.format(port or usual)


def of_others(ports: Sequence[int]) -> tuple[str, str]:
    """Words for ports whose processes are hidden, and what to do to have them asked."""
    remedy = "run tpumon as the job's user, or give --port {}"
    if len(ports) == 1:
        return f"port {ports[0]} of another user", remedy.format(ports[0])
    return f"ports of other users ({listed(map(str, sorted(ports)), _MOST_NAMED)})", remedy.format("N")


def why_not_approached(
    port: int, owner: Owner | None, *, asked_for: bool = False, attached: Mapping[int, int] = _NOBODY
) -> str | None:
    """The reason why a listening port is not called; None: it is called.

    A job listens on more ports than its profiler's, and strangers on others. Usual ports of profilers are always
    called; any other port only if its process can have a profiler server. An attached job announces its port.
    """
    if owner is not None and owner.is_tpumon:
        return "it is tpumon's own"
    if asked_for or port in attached:
        return None
    said = next((there for there, pid in attached.items() if owner is not None and pid == owner.pid), None)
    if said is not None:
        return f"the profiler server of its process is on port {said}"
    if port in USUAL_PORTS:
        return None
    if port <= _LAST_PRIVILEGED_PORT:
        return "no job listens below 1024"
    if port in RUNTIME_PORTS:
        return "it is the runtime metric service's"
    if port in TPU_RUNTIME_PORTS:
        return "the TPU runtime's own ports are here"
    if owner is None:
        return HIDDEN
    if not owner.runs_xla:
        return "no JAX, TensorFlow or PyTorch/XLA process listens there"
    if owner.runs_nccl and owner.signs.holds_gpu:  # PyPI's PyTorch loads it without a GPU, too
        return "NCCL listens on such ports and must not be disturbed; give --port if it is the profiler's"
    return None


async def survey(port: int | None = None) -> list[SurveyedPort]:
    """Lists everything that listens here; each port gets at most one call, the harmless one.

    Raises:
        OSError: the listeners cannot be read.
    """
    listeners = await asyncio.to_thread(read_listeners)
    owners = await asyncio.to_thread(owners_of, listeners, PROC)
    attached = await asyncio.to_thread(attached_processes, listeners)

    async def see(listener: Listener) -> SurveyedPort:
        owner = owners.get(listener.port)
        reason = why_not_approached(listener.port, owner, asked_for=listener.port == port, attached=attached)
        if reason is None and port not in {None, listener.port}:
            reason = f"only port {port} was asked for"
        seen = SurveyedPort(
            address=listener.address,
            port=listener.port,
            owner=owner,
            not_approached=reason,
            attached=listener.port in attached,
        )
        if reason is not None:
            return seen
        answer = await knock(listener.address)
        return replace(seen, answer=answer, is_profiler=answer is None)

    return _without_subprocesses(await asyncio.gather(*(see(listener) for listener in listeners)))


class Elsewhere:
    """Finds profiler servers of this host at other ports than the ones that did not answer.

    Ports are called again only when the listeners of this host have changed, so no process is called on and on.
    """

    def __init__(self) -> None:
        self._looking = asyncio.Lock()
        self._listeners: list[Listener] | None = None  # when ports were last called
        self._profilers: list[SurveyedPort] = []

    async def words(self, address: str, asked: Collection[str] = ()) -> str:
        """`; ` and the same: the end of a message about an address that has none; arguments as of `remedy`."""
        remedy = await self.remedy(address, asked)
        return remedy and f"; {remedy}"

    async def remedy(self, address: str, asked: Collection[str] = ()) -> str:
        """`a profiler server answers at ...`, with a command; empty: none does, as far as known.

        Args:
            address: `host:port` that was asked in vain; of another host there is nothing to say.
            asked: the other addresses that are asked.
        """
        here = await asyncio.to_thread(ports_here, {address, *asked})
        if address not in here:
            return ""
        async with self._looking:
            try:
                listeners = await asyncio.to_thread(read_listeners)
                if listeners != self._listeners:
                    self._profilers = [one for one in await survey() if one.is_profiler]
                    self._listeners = listeners
            except Exception:  # noqa: BLE001 - the message that this adds to is right without it
                return ""
        others = [one for one in self._profilers if one.port not in here.values()][:_MOST_NAMED]
        if not others:
            return ""
        places = ", ".join(one.address + _holder(one.owner) for one in others)
        are = "a profiler server answers" if len(others) == 1 else "profiler servers answer"
        return f"{are} at {places}: `tpumon --service-addr {','.join(one.address for one in others)}`"


def _holder(owner: Owner | None) -> str:
    return "" if owner is None else f" (pid {owner.pid}, {plain_word(owner.command.split()[-1])})"


def _without_subprocesses(seen: Iterable[SurveyedPort]) -> list[SurveyedPort]:
    """Marks profiler servers of subprocesses as no profilers of their own."""
    listed = list(seen)
    pids = {one.owner.pid for one in listed if one.is_profiler and one.owner is not None}
    return [
        replace(one, is_profiler=False, not_approached=f"it is a subprocess of {parent}, which has a profiler server")
        if one.is_profiler and (parent := parent_of(one.owner, pids)) is not None
        else one
        for one in listed
    ]


def parent_of(owner: Owner | None, pids: Collection[int]) -> int | None:
    """The one of these processes from which a process descends; None: it descends from none.

    jax.profiler.register_subprocess has a process traced by that one. While one of the two is traced, the other
    refuses or loses its part, so only the parent is sampled.
    """
    return None if owner is None else next((pid for pid in owner.ancestors if pid in pids), None)


def owners_of(listeners: Iterable[Listener], proc: Path = PROC) -> dict[int, Owner]:
    """Owners by port; a port shared by several processes goes to the first of them."""
    listed = list(listeners)
    owners = find_owners({inode for listener in listed for inode in listener.inodes}, proc)
    by_port = {listener.port: [owners[inode] for inode in listener.inodes if inode in owners] for listener in listed}
    return {port: min(of_port, key=lambda owner: owner.pid) for port, of_port in by_port.items() if of_port}
