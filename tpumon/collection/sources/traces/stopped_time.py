"""Time for which a signal had stopped the job's process while its trace was waited for: the trace cost it nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Self

from tpumon.model import ProcessState

_POLL_S = 0.1


class StoppedTime:
    """Measures it between entering and leaving this context.

    Args:
        pid: the job's process; None: not known, so that nothing is measured.
        state_of: the state of a process of this host.

    Attributes:
        seconds: for which the process was stopped, so far.
    """

    def __init__(self, pid: int | None, state_of: Callable[[int], ProcessState]) -> None:
        self.seconds = 0.0
        self._state_of = state_of
        self._pid = pid
        self._watching: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        if self._pid is not None:
            self._watching = asyncio.create_task(self._watch(self._pid), name="time for which a job is stopped")
        return self

    def __exit__(self, *error: object) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self, pid: int) -> None:
        seen_s = time.monotonic()
        while True:
            await asyncio.sleep(_POLL_S)
            before_s, seen_s = seen_s, time.monotonic()
            if self._state_of(pid) in {"stopped", "debugged"}:
                self.seconds += seen_s - before_s
