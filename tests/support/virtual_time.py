"""An event loop in which waiting takes no time: sleeps end at once and in order, and its clock says they took long."""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")
_THREADS = "tpumon-blocking"
_CALL_S = 1.0  # longer calls in threads hang on purpose


class _JumpingSelector(selectors.DefaultSelector):
    """Where the loop would wait for its next timer, the clock is put forward instead, once no thread works for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self._hanging: set[threading.Thread] = set()

    def select(self, timeout=None):
        end_s = time.monotonic() + _CALL_S
        while timeout and (working := self._working()):
            if ready := super().select(0.001):
                return ready
            if time.monotonic() > end_s:
                self._hanging |= working
        if timeout:
            self.now_s += timeout
        return super().select(0)

    def _working(self) -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == _THREADS} - self._hanging


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Like asyncio.run, in virtual time."""
    with asyncio.Runner(loop_factory=_VirtualTimeLoop) as runner:
        return runner.run(main)
