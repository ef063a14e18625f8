"""How workers share what there is: turns at being traced, memory, and processes that read traces.

A worker that does not answer waits for others like it only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tpumon.system.memory import memory_limit_bytes


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


class Lane:
    """What workers of one kind share.

    Args:
        turns: how many are probed or traced at a time.
        readers: how many traces are read at a time.
        memory: for answers that are being received or wait to be read, in bytes.
    """

    def __init__(self, *, turns: int, readers: int, memory: float) -> None:
        self.turns = asyncio.Semaphore(turns)
        self.readers = asyncio.Semaphore(readers)
        self.answers = Bytes(int(memory))


class Sharing:
    """What the workers of one sampler share, so that none takes from those of another kind.

    Attributes:
        quick: of workers that answer in time with traces that are read in no time.
        heavy: of workers whose traces take long to read.
        late: of workers that let time pass without an answer.
        reading: memory for reading traces.
    """

    def __init__(self, memory_bytes: int | None = None) -> None:
        memory = memory_limit_bytes() if memory_bytes is None else memory_bytes
        self.quick = Lane(turns=24, readers=2, memory=0.25 * memory)  # 24 jobs are 2 % of 1,000
        self.heavy = Lane(turns=4, readers=1, memory=0.1 * memory)
        self.late = Lane(turns=8, readers=1, memory=0.1 * memory)
        self.reading = Bytes(int(0.3 * memory))  # what is left is for everything else
