"""Workers behind names that stand for several addresses, such as Kubernetes' headless services."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tpumon.model import Workers
from tpumon.system.threads import in_thread
from tpumon.targets.addresses import name_targets

_RESOLVE_EVERY_S = 30.0
_SOON_S = 5.0  # when nobody answers any more
_ANSWER_S = 5.0
_FIRST_S = 3.0  # the first result does not wait longer for a name server
_AT_ONCE = 32
_GONE_AFTER = 3
"""Answers in a row without an address until it is gone: name servers give parts of the truth at times."""

Resolve = Callable[[str], Awaitable[Sequence[str]]]


async def resolve_host(host: str) -> Sequence[str]:
    """All addresses of a name, by this machine's resolver.

    Raises:
        OSError: there are none, or no answer within 5 s.
    """
    found = await in_thread(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM), timeout_s=_ANSWER_S)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


@dataclass(slots=True)
class _Name:
    """A name, and the addresses that it stands for.

    Attributes:
        address: as it was given.
        several: whether one answer has ever held several: then each of them is a worker.
        missed: known addresses, in the order found, with how many answers in a row have been without.
    """

    address: str
    host: str
    port: str
    several: bool = False
    missed: dict[str, int] = field(default_factory=dict)

    def learn(self, ips: Sequence[str], *, all_gone: bool) -> None:
        """Notes an answer; of IPv4 and IPv6, which would be the same workers twice, the one that is known."""
        by_version: dict[int, list[str]] = {4: [], 6: []}
        for ip in ips:
            by_version[ipaddress.ip_address(ip).version].append(ip)
        known = next((ipaddress.ip_address(ip).version for ip in self.missed), None)
        if all_gone and ips and not set(ips) & set(self.missed):
            self.missed, known = {}, None  # all are new: nobody waits for the others
        here = by_version[known or (4 if by_version[4] else 6)]
        self.several = self.several or len(here) > 1
        if not self.several:  # the one place may be another by now, and its name goes on
            self.missed = dict.fromkeys(here or self.missed, 0)
            return
        self.missed = {ip: 0 if ip in here else count + 1 for ip, count in self.missed.items()}
        self.missed |= {ip: 0 for ip in sorted(here, key=ipaddress.ip_address) if ip not in self.missed}
        if any(count < _GONE_AFTER for count in self.missed.values()):  # the last ones stay, to be down
            self.missed = {ip: count for ip, count in self.missed.items() if count < _GONE_AFTER}

    def addresses(self) -> list[str]:
        """Where its workers are; the name itself while it stands for one place, which gRPC resolves."""
        if not self.several:
            return [self.address]
        return [f"[{ip}]:{self.port}" if ":" in ip else f"{ip}:{self.port}" for ip in self.missed]


class DnsNames:
    """Finds the workers behind addresses, some of which are names with several; resolved every 30 s.

    Args:
        addresses: `host:port`, as `parse_addresses` gives them.
        resolve: all addresses of a name; raises OSError where there is no answer.
        resolve_every_s: from one time to the next.
        soon_s: the same while no worker answers.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        resolve: Resolve = resolve_host,
        resolve_every_s: float = _RESOLVE_EVERY_S,
        soon_s: float = _SOON_S,
    ) -> None:
        self._addresses = list(addresses)
        self._names = {address: name for address in addresses if (name := _name(address)) is not None}
        self._resolve = resolve
        self._resolve_every_s = resolve_every_s
        self._soon_s = soon_s

    async def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields the workers, each time they have changed; once, where there is no name among them."""
        told: Workers | None = None
        clock_s = asyncio.get_running_loop().time
        if not self._names:
            yield self._found()
            return
        while True:
            start_s = clock_s()
            asking = asyncio.create_task(self._learn(all_gone))
            try:
                if told is None:
                    await asyncio.wait([asking], timeout=_FIRST_S)
                    told = self._found()
                    yield told
                await asking
            finally:
                asking.cancel()
            found = self._found()
            if found != told:
                told = found
                yield found
            # `all_gone` is a question, not an event to wait for.
            while clock_s() - start_s < (self._soon_s if all_gone() else self._resolve_every_s):  # noqa: ASYNC110
                await asyncio.sleep(self._soon_s / 4)

    async def _learn(self, all_gone: Callable[[], bool]) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def ask(name: _Name) -> None:
            async with slots:
                try:
                    ips = await self._resolve(name.host)
                except (OSError, UnicodeError):  # no answer in time, or a name that cannot be; what was known stays
                    return
                name.learn(ips, all_gone=all_gone())

        async with asyncio.TaskGroup() as group:
            for name in self._names.values():
                group.create_task(ask(name))

    def _found(self) -> Workers:
        names = self._names
        places = [names[address].addresses() if address in names else [address] for address in self._addresses]
        return Workers(targets=name_targets([place for some in places for place in some]))


def _name(address: str) -> _Name | None:
    """None for an address in numbers, and for this host."""
    host, _, port = address.rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None if host == "localhost" else _Name(address, host, port)
    return None
