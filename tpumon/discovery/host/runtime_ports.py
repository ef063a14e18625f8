"""Adds the addresses of workers' runtime metric services: named by the user, otherwise libtpu's usual port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tpumon.discovery.addresses import parse_address
from tpumon.discovery.finder import Completed, Discovery
from tpumon.discovery.host.port_survey import RUNTIME_PORTS
from tpumon.errors import UsageError
from tpumon.model import Address, Target


class WithRuntime(Completed):
    """Another discovery's workers, with the addresses of their runtime metric services.

    Without addresses, a worker that is alone on its host gets its host's usual port. Of several workers on a host it
    is unknown from elsewhere which service is whose: they get none.

    Args:
        discovery: finds the workers.
        addresses: `host:port` or `unix:PATH` in the order of the workers, as `parse_runtime_addresses` gives them.
    """

    def __init__(self, discovery: Discovery, addresses: Sequence[str] = ()) -> None:
        super().__init__(discovery)
        self._addresses = tuple(addresses)

    def _complete(self, targets: Sequence[Target]) -> Iterator[Target]:
        if not self._addresses:
            yield from _usual(targets)
            return
        for place, target in enumerate(targets):
            given = self._addresses[place : place + 1]
            yield replace(target, runtime_addresses=given) if given else target


def _usual(targets: Sequence[Target]) -> Iterator[Target]:
    addresses = [Address.parse(target.address) for target in targets]
    workers_at = Counter(address.host for address in addresses)
    for target, address in zip(targets, addresses, strict=True):
        known = target.runtime_addresses or workers_at[address.host] > 1
        yield target if known else replace(target, runtime_addresses=(str(address.at(RUNTIME_PORTS[0])),))


def parse_runtime_addresses(texts: Sequence[str]) -> tuple[str, ...]:
    """Reads an option that may repeat and may hold several addresses with commas.

    Raises:
        UsageError: an address is bad.
    """
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    for part in parts:
        if part.startswith("unix:") and not (part.startswith("unix:/") and part.isprintable()):
            why = f"cannot use the address {part!r}: give the whole path, for example unix:/run/tpu.sock"
            raise UsageError(why, option="runtime-addr")
    return tuple(
        part if part.startswith("unix:") else parse_address(part, default_port=RUNTIME_PORTS[0]) for part in parts
    )
