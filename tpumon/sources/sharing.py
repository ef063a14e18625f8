"""How workers share what there is: turns at being traced, memory, and processes that read traces.

A worker that does not answer waits for others like it only, and so do one that never answered and one whose traces take
long to read.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Self

from tpumon.system.memory import memory_limit_bytes

_QUICK_MB, _OTHER_MB = 768, 256  # at most, for answers: a host of a TPU has much memory, but not for us
_SOON_S = 0.25  # a usual trace is read in a tenth of that


class Loan:
    """Memory that was lent until it is given back.

    Attributes:
        amount: how much it is, in bytes.
    """

    def __init__(self, of: Bytes, amount: int) -> None:
        self._of = of
        self.amount = amount

    def resize(self, amount: int) -> None:
        """Notes how much it really is. If that is more than was lent, the next ones wait until it is there again."""
        self._of.give_back(self.amount - amount)
        self.amount = amount


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
    async def hold(self, amount: int) -> AsyncIterator[Loan]:
        """Waits for so many bytes."""
        loan = Loan(self, await self.take(amount))
        try:
            yield loan
        finally:
            loan.resize(0)

    def has(self, amount: int) -> bool:
        """Whether nobody would wait for so many bytes."""
        return not self._waiting and min(amount, self.total) <= self._free

    async def take(self, amount: int) -> int:
        """Waits for so many bytes; returns how many they are, to be given back."""
        amount = min(amount, self.total)
        if self.has(amount):
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
        readers: how many traces are read at a time, at most.
        answers: memory for answers that are being received or wait to be read.
        reading: memory for reading.
        cpu_s: processor time for reading a trace, besides what grows with its size.
        nice: how much the processes that read yield to all others.
        silent_s: after how long without an answer a worker passes its turn on, not its memory; None: it keeps both.
    """

    def __init__(
        self,
        *,
        turns: int,
        readers: int,
        answers: Bytes,
        reading: Bytes,
        cpu_s: float = 1.0,
        nice: int = 10,
        silent_s: float | None = None,
    ) -> None:
        self.turns = asyncio.Semaphore(turns)
        self.readers = asyncio.Semaphore(readers)
        self.answers = answers
        self.reading = reading
        self.cpu_s = cpu_s
        self.nice = nice
        self.silent_s = silent_s
        self._processors = asyncio.Semaphore(len(os.sched_getaffinity(0)))

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[None]:
        """Waits until a trace may be read: until a processor has none to read, or one that takes long.

        On one processor, two readers at once take an eighth more processor time for the same traces (`fleet.py core`).
        """
        async with self.readers:
            await self._processors.acquire()
            with ExitStack() as held:
                held.callback(self._processors.release)
                held.callback(asyncio.get_running_loop().call_later(_SOON_S, held.close).cancel)
                yield


class Turn:
    """A worker's turn in a lane, with the memory that it holds there; given back when the block ends.

    Attributes:
        lane: in which it is.
    """

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self._held = AsyncExitStack()
        self._turn = ExitStack()

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.give_back()

    async def _begin(self) -> None:
        await self.lane.turns.acquire()
        self._turn.callback(self.lane.turns.release)
        self._held.callback(self._turn.close)

    async def hold(self, amount: int) -> Loan:
        """Waits for memory of the lane, for the rest of the turn."""
        return await self._held.enter_async_context(self.lane.answers.hold(amount))

    @contextmanager
    def waiting(self, usual_s: float = 0.0) -> Iterator[None]:
        """Waits for an answer within the block; the turn is passed on if it takes longer than the lane allows.

        Args:
            usual_s: how long the answer takes at least.
        """
        if self.lane.silent_s is None:
            yield
            return
        passing_on = asyncio.get_running_loop().call_later(usual_s + self.lane.silent_s, self._turn.close)
        try:
            yield
        finally:
            passing_on.cancel()

    async def give_back(self) -> None:
        """Gives back the turn and its memory."""
        await self._held.aclose()

    async def move(self, lane: Lane) -> bool:
        """Changes to a turn in another lane, if one is free now; returns whether it was."""
        if lane.turns.locked():
            return False
        await self.give_back()
        self.lane = lane
        await self._begin()
        return True


class Sharing:
    """What the workers of one sampler share, so that none takes from those of another kind.

    Attributes:
        quick: of workers that answer in time with traces that are read in no time.
        new: of workers that have not answered with a trace yet, or not since they restarted. Most will at once, some
            never: who is silent passes its turn on, so that the others do not wait for it.
        heavy: of workers whose traces are large or take long to read.
        late: of workers that let time pass without an answer.
    """

    def __init__(self, memory_bytes: int | None = None) -> None:
        memory = memory_limit_bytes() if memory_bytes is None else memory_bytes

        def share(ratio: float, most_mb: float = math.inf) -> Bytes:
            return Bytes(int(min(ratio * memory, most_mb * 1e6)))

        # What is left is for everything else.
        large = share(0.2)
        small = share(0.1)
        self.quick = Lane(turns=24, readers=2, answers=share(0.25, _QUICK_MB), reading=small, cpu_s=0.5, nice=0)
        self.new = Lane(turns=24, readers=2, answers=share(0.1, _OTHER_MB), reading=small, silent_s=_SOON_S)
        self.heavy = Lane(turns=4, readers=1, answers=share(0.1, _OTHER_MB), reading=large)
        self.late = Lane(turns=8, readers=1, answers=share(0.1, _OTHER_MB), reading=large)
