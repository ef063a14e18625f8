"""Adds the processes of workers that were named by an address of this host."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from contextlib import aclosing, suppress
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

from tpumon.discovery.finder import Discovery
from tpumon.discovery.host.listening import Owner, find_owners, read_listeners
from tpumon.discovery.host.processes import PROC
from tpumon.model import Address, Target, Workers

_LOOK_S = 5.0  # reading who listens costs as much as asking some workers


class WithProcesses:
    """Another discovery's workers; those of this host with their process, if that is a job's and can be seen.

    What only passes a connection on, such as ssh or a container's proxy, is no worker's process.

    Args:
        discovery: finds the workers.
        proc: where to look.
        every_s: how often to look at who listens.
    """

    def __init__(self, discovery: Discovery, *, proc: Path = PROC, every_s: float = _LOOK_S) -> None:
        self._discovery = discovery
        self._proc = proc
        self._every_s = every_s
        self._inodes: dict[int, frozenset[int]] = {}
        self._owners: dict[int, Owner] = {}

    async def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields what the other discovery yields, also when only a process has changed."""
        async with aclosing(self._discovery.watch(all_gone)) as changes:
            change = asyncio.ensure_future(anext(changes, None))
            latest: Workers | None = None
            sent: Workers | None = None
            ports: Mapping[str, int] = {}
            has_ended = False
            try:
                while ports or not has_ended:
                    if has_ended:
                        await asyncio.sleep(self._every_s)
                    else:
                        await asyncio.wait({change}, timeout=self._every_s if ports else None)
                    if change.done() and not has_ended:
                        found = change.result()
                        if found is None:
                            has_ended = True
                            continue
                        latest, ports = found, ports_here({one.address for one in found.targets}, self._proc)
                        change = asyncio.ensure_future(anext(changes, None))
                    assert latest is not None
                    if ports:
                        await asyncio.to_thread(self._look, set(ports.values()))
                    workers = replace(latest, targets=tuple(self._known(one, ports) for one in latest.targets))
                    if workers != sent:
                        sent = workers
                        yield workers
            finally:
                change.cancel()
                await asyncio.gather(change, return_exceptions=True)

    def _look(self, ports: Collection[int]) -> None:
        """Finds who listens to these ports, where that is no longer who did."""
        try:
            listeners = [one for one in read_listeners(self._proc) if one.port in ports]
        except OSError:
            return
        for port in self._inodes.keys() - {one.port for one in listeners}:
            del self._inodes[port]
            self._owners.pop(port, None)
        new = [one for one in listeners if self._inodes.get(one.port) != one.inodes]
        if not new:
            return
        owners = find_owners(frozenset().union(*(one.inodes for one in new)), self._proc)
        for listener in new:
            self._inodes[listener.port] = listener.inodes
            held = [owners[inode] for inode in listener.inodes if inode in owners]
            owner = min(held, key=lambda owner: owner.pid, default=None)
            if owner is not None and owner.runs_xla and not owner.is_tpumon:
                self._owners[listener.port] = owner
            else:
                self._owners.pop(listener.port, None)

    def _known(self, target: Target, ports: Mapping[str, int]) -> Target:
        owner = self._owners.get(ports.get(target.address, -1))
        return target if owner is None else replace(target, process=owner.process, kind_signs=owner.kind_signs)


def ports_here(addresses: Collection[str], proc: Path = PROC) -> Mapping[str, int]:
    """The ports of those that are on this host, by address: of loopback, its name, or one of its interfaces."""
    places = {address: Address.parse(address) for address in addresses}
    own = {socket.gethostname(), *_own_ips(proc)}
    return {
        address: place.port
        for address, place in places.items()
        if place.is_this_host or (place.host if place.ip is None else str(place.ip)) in own
    }


def _own_ips(proc: Path) -> Iterator[str]:
    """The addresses of this host's interfaces.

    Source: /proc/net/fib_trie, if_inet6.
    """
    with suppress(OSError), (proc / "net" / "fib_trie").open(encoding="ascii", errors="replace") as lines:
        for line, kind in pairwise(lines):
            if kind.split() == ["/32", "host", "LOCAL"]:
                yield line.split()[-1]
    with suppress(OSError), (proc / "net" / "if_inet6").open(encoding="ascii", errors="replace") as lines:
        yield from (str(ipaddress.IPv6Address(int(line.split()[0], 16))) for line in lines)
