"""Adds the processes of workers that were named by an address of this host."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

from tpumon.discovery.finder import Discovery, Refreshed
from tpumon.discovery.host.listening import Owner, find_owners, read_listeners
from tpumon.discovery.host.processes import PROC
from tpumon.model import Address, Target

_LOOK_S = 5.0  # reading all listeners costs as much as asking some workers


class WithProcesses(Refreshed):
    """Adds to another discovery's workers of this host their process, if it can be seen and is a job's.

    What only passes a connection on, such as ssh or a container's proxy, is no worker's process.

    Args:
        discovery: finds the workers.
        proc: where to look.
        every_s: seconds from one look at the listening processes to the next.
    """

    def __init__(self, discovery: Discovery, *, proc: Path = PROC, every_s: float = _LOOK_S) -> None:
        super().__init__(discovery, every_s)
        self._proc = proc
        self._targets: Sequence[Target] = ()
        self._ports: Mapping[str, int] = {}
        self._inodes: dict[int, frozenset[int]] = {}
        self._owners: dict[int, Owner] = {}

    async def _look(self, targets: Sequence[Target]) -> bool:
        if targets is not self._targets:
            self._targets, self._ports = targets, ports_here({one.address for one in targets}, self._proc)
        if self._ports:
            await asyncio.to_thread(self._find_owners, set(self._ports.values()))
        return bool(self._ports)

    def _complete(self, targets: Sequence[Target]) -> Iterator[Target]:
        for target in targets:
            owner = self._owners.get(self._ports.get(target.address, -1))
            yield target if owner is None else replace(target, process=owner.process, kind_signs=owner.kind_signs)

    def _find_owners(self, ports: Collection[int]) -> None:
        """Finds the processes that listen at these ports, as far as they have changed."""
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
            of_sockets = [owners[inode] for inode in listener.inodes if inode in owners]
            owner = min(of_sockets, key=lambda owner: owner.pid, default=None)
            if owner is not None and owner.runs_xla and not owner.is_tpumon:
                self._owners[listener.port] = owner
            else:
                self._owners.pop(listener.port, None)


def ports_here(addresses: Collection[str], proc: Path = PROC) -> Mapping[str, int]:
    """Ports by address, of addresses of this host: loopback, its name, or one of its interfaces."""
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
