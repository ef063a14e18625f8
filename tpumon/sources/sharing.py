"""How workers share what there is: turns at being traced, memory, and processes that read traces.

A worker that is slow to answer waits for other slow ones only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tpumon.system.memory import memory_limit_bytes

_QUICK_TURNS, _SLOW_TURNS = 24, 8  # 24 are 2 % of 1,000 jobs
_QUICK_READERS, _SLOW_READERS = 2, 1
_ANSWERS_SHARE, _READING_SHARE = 0.4, 0.3  # of the memory there is; the rest is for everything else


class Bytes:
    """An amount of memory that is lent, first come, first served.

    Args:
        total: how much there is; who wants more gets this much, alone.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, amount: int) -> AsyncIterator[int]:
        """Waits for so many bytes; yields how many they are."""
        lent = await self.take(amount)
        try:
            yield lent
        finally:
            self.give_back(lent)

    async def take(self, amount: int) -> int:
        """Waits for so many bytes; returns how many they are, to be given back."""
        amount = min(amount, self.total)
        if not self._waiting and amount <= self._free:
            self._free -= amount
            return amount
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free += amount
            self._wake()
            raise
        return amount

    def give_back(self, amount: int) -> None:
        """Returns bytes that were taken."""
        self._free += amount
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            amount, turn = self._waiting[0]
            if not turn.done():
                if amount > self._free:
                    return
                self._free -= amount
                turn.set_result(None)
            self._waiting.popleft()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What the workers of one sampler share.

    Attributes:
        quick: turns at being traced, of workers that answer in time.
        slow: turns of the others.
        quick_readers: turns at having a trace read, of workers whose traces are read in no time.
        slow_readers: turns of the others.
        answers: memory for traces that are being received, or wait to be read.
        memory: memory for reading them.
    """

    quick: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_QUICK_TURNS))
    slow: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_SLOW_TURNS))
    quick_readers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_QUICK_READERS))
    slow_readers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_SLOW_READERS))
    answers: Bytes = field(default_factory=lambda: Bytes(int(_ANSWERS_SHARE * memory_limit_bytes())))
    memory: Bytes = field(default_factory=lambda: Bytes(int(_READING_SHARE * memory_limit_bytes())))

    def turn(self, *, slow: bool) -> asyncio.Semaphore:
        """A turn at being traced."""
        return self.slow if slow else self.quick

    def reading(self, *, slow: bool) -> asyncio.Semaphore:
        """A turn at having a trace read."""
        return self.slow_readers if slow else self.quick_readers
