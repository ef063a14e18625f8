"""The interface of all discoveries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Protocol

from msgspec.structs import replace

from tpumon.model import Target, Workers


class Discovery(Protocol):
    """One way to find out where the workers are.

    A new one is a file here and a line in `tpumon.discovery.selection`.
    """

    def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields the workers at once, then each time they have changed; ends if they cannot change.

        The caller closes it (`aclose`). Trouble after the first result raises nothing: the known workers stay.

        Args:
            all_gone: whether none of the workers yielded last answers now, which is a reason to look again.

        Raises:
            TpumonError: before the first result: asking again would not help.
        """


class Fixed:
    """Workers that are known and do not change."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._workers = Workers(targets=tuple(targets))

    async def watch(self, _all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields them, once."""
        yield self._workers


class Completed:
    """Base of discoveries that add something to the workers of another one."""

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery

    def _complete(self, targets: Sequence[Target]) -> Iterable[Target]:
        raise NotImplementedError

    async def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields what the other discovery yields."""
        async with aclosing(self._discovery.watch(all_gone)) as changes:
            async for workers in changes:
                yield replace(workers, targets=tuple(self._complete(workers.targets)))


class Refreshed(Completed):
    """A `Completed` whose additions change by themselves: refreshed every `every_s`, and for new workers."""

    def __init__(self, discovery: Discovery, every_s: float) -> None:
        super().__init__(discovery)
        self._every_s = every_s

    async def _look(self, targets: Sequence[Target]) -> bool:
        """Finds out what `_complete` needs; False: nothing can change while these are the workers."""
        raise NotImplementedError

    async def watch(self, all_gone: Callable[[], bool]) -> AsyncGenerator[Workers, None]:
        """Yields what the other discovery yields, also when only what is added has changed."""
        async with aclosing(self._discovery.watch(all_gone)) as changes:
            change = asyncio.ensure_future(anext(changes, None))
            latest: Workers | None = None
            sent: Workers | None = None
            looks = has_ended = False
            try:
                while looks or not has_ended:
                    if has_ended:
                        await asyncio.sleep(self._every_s)
                    else:
                        await asyncio.wait({change}, timeout=self._every_s if looks else None)
                    if change.done() and not has_ended:
                        result = change.result()
                        if result is None:
                            has_ended = True
                            continue
                        latest, change = result, asyncio.ensure_future(anext(changes, None))
                    assert latest is not None
                    looks = await self._look(latest.targets)
                    workers = replace(latest, targets=tuple(self._complete(latest.targets)))
                    if workers != sent:
                        sent = workers
                        yield workers
            finally:
                change.cancel()
                await asyncio.gather(change, return_exceptions=True)
