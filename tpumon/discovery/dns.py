"""Workers behind names that stand for several addresses, such as Kubernetes' headless services."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from tpumon.discovery.addresses import name_targets
from tpumon.model import Address, Workers
from tpumon.system.threads import Resolve, resolve_host
from tpumon.untrusted_text import unexpected

_log = logging.getLogger(__name__)

_RESOLVE_EVERY_S = 30.0
_SOON_S = 5.0  # when no worker answers any more
_FIRST_S = 3.0  # the first result does not wait longer for a name server
_AT_ONCE = 32
_GONE_AFTER = 3
"""Answers in a row without an address until it counts as gone: name servers give partial answers at times."""


@dataclass(slots=True)
class _Name:
    """A name and its addresses.

    Attributes:
        address: as it was given.
        several: whether any answer held several addresses: then each of them is a worker.
        missed: known addresses, oldest first, with the number of answers in a row that lacked them.
        resolved: whether the last look-up had an answer; None before the first one.
    """

    address: str
    host: str
    port: int
    several: bool = False
    missed: dict[str, int] = field(default_factory=dict)
    resolved: bool | None = None

    def learn(self, ips: Sequence[str], *, all_gone: bool) -> None:
        """Notes an answer. IPv4 and IPv6 addresses are the same workers twice, so only the known version counts."""
        by_version: dict[int, list[str]] = {4: [], 6: []}
        for ip in ips:
            by_version[ipaddress.ip_address(ip).version].append(ip)
        known = next((ipaddress.ip_address(ip).version for ip in self.missed), None)
        if all_gone and ips and not set(ips) & set(self.missed):
            self.missed, known = {}, None  # all are new: do not wait for the others
        here = by_version[known or (4 if by_version[4] else 6)]
        self.several = self.several or len(here) > 1
        if not self.several:  # the one place may have moved; the name stays
            self.missed = dict.fromkeys(here or self.missed, 0)
            return
        self.missed = {ip: 0 if ip in here else count + 1 for ip, count in self.missed.items()}
        self.missed |= {ip: 0 for ip in sorted(here, key=ipaddress.ip_address) if ip not in self.missed}
        if any(count < _GONE_AFTER for count in self.missed.values()):  # the last ones stay and are down
            self.missed = {ip: count for ip, count in self.missed.items() if count < _GONE_AFTER}

    def addresses(self) -> list[str]:
        """The addresses of its workers; the name itself, which gRPC resolves, while it stands for one place."""
        if not self.several:
            return [self.address]
        return [str(Address(ip, self.port)) for ip in self.missed]


class DnsNames:
    """Finds the workers behind addresses; names are resolved every 30 s and may have several.

    Args:
        addresses: `host:port`, as `parse_addresses` gives them.
        resolve: looks up all addresses of a name; raises OSError without an answer.
        resolve_every_s: time between look-ups.
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
        self._names = {address: name for address in addresses if (name := _parsed_name(address)) is not None}
        self._said: set[str] = set()
        self._resolve = resolve
        self._resolve_every_s = resolve_every_s
        self._soon_s = soon_s

    async def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields the workers each time they have changed; ends at once if there is no name among them."""
        sent: Workers | None = None
        clock_s = asyncio.get_running_loop().time
        if not self._names:
            yield self._workers()
            return
        while True:
            start_s = clock_s()
            asking = asyncio.create_task(self._learn(all_gone))
            try:
                if sent is None:
                    await asyncio.wait([asking], timeout=_FIRST_S)
                    sent = self._workers()
                    yield sent
                await asking
            finally:
                asking.cancel()
            workers = self._workers()
            if workers != sent:
                sent = workers
                yield workers
            # `all_gone` is a question, not an event to wait for.
            while clock_s() - start_s < (self._soon_s if all_gone() else self._resolve_every_s):  # noqa: ASYNC110
                await asyncio.sleep(self._soon_s / 4)

    async def _learn(self, all_gone: Callable[[], bool]) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def ask(name: _Name) -> None:
            async with slots:
                try:
                    name.learn(await self._resolve(name.host), all_gone=all_gone())
                except (OSError, UnicodeError):  # no answer in time, or a name that cannot be; what was known stays
                    name.resolved = False
                except Exception as error:  # noqa: BLE001 - one name costs no other its addresses
                    name.resolved = False
                    if name.host not in self._said:
                        self._said.add(name.host)
                        _log.warning("the addresses of %s cannot be read: %s", name.host, unexpected(error))
                else:
                    name.resolved = True

        async with asyncio.TaskGroup() as group:
            for name in self._names.values():
                group.create_task(ask(name))

    def _workers(self) -> Workers:
        names = self._names
        places = [names[address].addresses() if address in names else [address] for address in self._addresses]
        targets = name_targets([place for some in places for place in some])
        answers = [name.resolved for name in names.values() if name.resolved is not None]
        return Workers(targets=targets, finders={"dns": all(answers)} if answers else {})


def _parsed_name(text: str) -> _Name | None:
    """None for an IP address and for this host, which need no look-up."""
    address = Address.parse(text)
    return None if address.ip is not None or address.is_this_host else _Name(text, address.host, address.port)
