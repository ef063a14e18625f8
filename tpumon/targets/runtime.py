"""Where the runtime metric service of a worker is looked for: where somebody said, else at libtpu's usual port."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import zip_longest

from tpumon.errors import UsageError
from tpumon.model import Target, Workers
from tpumon.targets.addresses import parse_address
from tpumon.targets.base import Discovery
from tpumon.targets.local import RUNTIME_PORTS


class WithUsualRuntime:
    """A finder whose workers may have a runtime metric service at their host's usual port.

    A host with several workers has one a worker, and which is whose is not to be known from elsewhere: they get none.

    Args:
        finder: finds the workers.
    """

    def __init__(self, finder: Discovery) -> None:
        self._finder = finder

    async def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields what the finder does."""
        async with aclosing(self._finder.watch(all_gone)) as changes:
            async for found in changes:
                workers = Counter(map(_host, found.targets))
                yield replace(
                    found,
                    targets=tuple(
                        replace(target, runtime_addresses=(f"{_host(target)}:{RUNTIME_PORTS[0]}",))
                        if workers[_host(target)] == 1 and not target.runtime_addresses
                        else target
                        for target in found.targets
                    ),
                )


class WithRuntimeAt:
    """A finder whose workers have their runtime metric services where somebody said, in the order of the workers.

    Args:
        finder: finds the workers.
        addresses: `host:port` or `unix:PATH`, as `parse_runtime_addresses` gives them.
    """

    def __init__(self, finder: Discovery, addresses: Sequence[str]) -> None:
        self._finder = finder
        self._addresses = tuple(addresses)

    async def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields what the finder does."""
        async with aclosing(self._finder.watch(all_gone)) as changes:
            async for found in changes:
                told = zip_longest(found.targets, self._addresses[: len(found.targets)])
                yield replace(
                    found,
                    targets=tuple(
                        target if address is None else replace(target, runtime_addresses=(address,))
                        for target, address in told
                    ),
                )


def parse_runtime_addresses(texts: Sequence[str]) -> tuple[str, ...]:
    """Addresses from an option that may repeat and may hold several with commas.

    Raises:
        UsageError: one of them is bad.
    """
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    for part in parts:
        if part.startswith("unix:") and not part.removeprefix("unix:").startswith("/"):
            raise UsageError(f"cannot use the address {part!r}: give the whole path, for example unix:/run/tpu.sock")
    return tuple(
        part if part.startswith("unix:") else parse_address(part, default_port=RUNTIME_PORTS[0]) for part in parts
    )


def _host(target: Target) -> str:
    return target.address.rpartition(":")[0]
