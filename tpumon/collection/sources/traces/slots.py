"""Turns at being traced, which bound how many traces are in memory at a time.

Workers that are slow, silent or new do not take turns from those that answer in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

from tpumon.system.limits import memory_limit_bytes

QUICK_BYTES = 8_000_000
"""The largest trace that counts as usual."""

_AT_ONCE = 24
_COPIES = 3  # of a trace: as gRPC receives it, as it puts it together, and the answer
_SHARE = 0.25  # of the memory: a host of a TPU has much, but not for us
_SILENT_S = 0.25


class TraceSlots:
    """The slots that the workers of one sampler share.

    Attributes:
        in_time: for workers whose last trace came in time over the connection that they have now.
        others: for all other workers. Some may never answer: a silent worker passes the turn on.
        heavy: for workers in time whose traces are large or take long to read.
    """

    def __init__(self) -> None:
        at_once = max(1, min(_AT_ONCE, int(_SHARE * memory_limit_bytes()) // (_COPIES * QUICK_BYTES)))
        self.in_time = asyncio.Semaphore(at_once)
        self.others = asyncio.Semaphore(at_once)
        self.heavy = asyncio.Lock()

    @asynccontextmanager
    async def slot(self, *, in_time: bool, heavy: bool, window_s: float) -> AsyncIterator[Callable[[], None]]:
        """Waits for a turn, and gives it back when the block ends.

        Args:
            in_time: whether the worker answers in time.
            heavy: whether its traces are large or take long to read.
            window_s: how long it traces before it can answer.

        Yields:
            a function to call when the answer is there; if it is not called in time, the turn passes on.
        """
        turns = (self.heavy if heavy else self.in_time) if in_time else self.others
        await turns.acquire()
        with ExitStack() as turn:
            turn.callback(turns.release)
            if in_time:
                yield lambda: None
                return
            passing_on = asyncio.get_running_loop().call_later(window_s + _SILENT_S, turn.close)
            turn.callback(passing_on.cancel)
            yield passing_on.cancel
