"""Time for which a signal had stopped the job's process while its trace was waited for: the trace cost it nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Self

from tpumon.model import Process

_LOOK_S = 0.1


class StoppedTime:
    """Measures it between entering and leaving this context.

    Args:
        process: of the job; None: not known, so that nothing is measured.
        is_stopped: looks at a process of this host.

    Attributes:
        seconds: for which the process was stopped, so far.
    """

    def __init__(self, process: Process | None, is_stopped: Callable[[int], bool]) -> None:
        self.seconds = 0.0
        self._is_stopped = is_stopped
        self._process = process
        self._watching: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        if self._process is not None:
            self._watching = asyncio.create_task(self._watch(self._process.pid), name="time for which a job is stopped")
        return self

    def __exit__(self, *error: object) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self, pid: int) -> None:
        looked_s = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_S)
            before_s, looked_s = looked_s, time.monotonic()
            if self._is_stopped(pid):
                self.seconds += looked_s - before_s
