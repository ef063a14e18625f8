"""Where the runtime metric service of a named worker is looked for: beside it, at libtpu's usual port."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from tpumon.model import Found, Target
from tpumon.targets.base import Finder
from tpumon.targets.local import RUNTIME_PORTS


class WithUsualRuntime:
    """A finder whose workers may have a runtime metric service at their host's usual port.

    A host with several workers has one a worker, and which is whose is not to be known from elsewhere: they get none.

    Args:
        finder: finds the workers.
    """

    def __init__(self, finder: Finder) -> None:
        self._finder = finder

    async def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Found, None]:
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


def _host(target: Target) -> str:
    return target.address.rpartition(":")[0]
