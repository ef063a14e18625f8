"""Following what a finder says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec.structs import replace

from tpumon.discovery.finder import Discovery
from tpumon.model import Workers

_LONG_S = 30.0


class Watch:
    """What a finder has said.

    Attributes:
        found: the workers each time they have changed, in order.
        finders: each time, whether they can be found.
        gone: what the finder is told when it asks whether all workers are gone.
    """

    def __init__(self) -> None:
        self.found: list[Workers] = []
        self.finders: list[dict[str, bool]] = []
        self.gone = False

    @property
    def now(self) -> dict[str, str]:
        """Addresses by worker."""
        return {target.worker: target.address for target in self.found[-1].targets} if self.found else {}

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Returns once the condition holds; fails the test if that takes long."""
        try:
            async with asyncio.timeout(_LONG_S):
                while not condition():  # noqa: ASYNC110 - what it asks for is anywhere
                    await asyncio.sleep(0.005)
        except TimeoutError:
            pytest.fail(f"in vain: {what}; found {self.found}")

    async def shows(self, workers: dict[str, str]) -> None:
        """Returns once these are the workers, and where."""
        await self.until(lambda: self.now == workers, f"{workers}")

    async def follow(self, finder: Discovery) -> None:
        async with contextlib.aclosing(finder.watch(lambda: self.gone)) as changes:
            async for found in changes:
                self.finders.append(dict(found.finders))
                if not self.found or found != replace(self.found[-1], finders=found.finders):
                    self.found.append(found)


@contextlib.asynccontextmanager
async def watching(finder: Discovery) -> AsyncIterator[Watch]:
    """Follows the finder inside the block; what it raises fails the test there."""
    watch = Watch()
    task = asyncio.create_task(watch.follow(finder))
    try:
        yield watch
    finally:
        if task.done() and not task.cancelled():
            task.result()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
