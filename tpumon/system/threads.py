"""Runs blocking calls outside the event loop, with a timeout."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_Result = TypeVar("_Result")


async def in_thread(function: Callable[[], _Result], *, timeout_s: float | None) -> _Result:
    """Runs `function` in a daemon thread of its own; returns or raises what it does.

    Args:
        function: the blocking call; it is never interrupted.
        timeout_s: None for no timeout.

    Raises:
        TimeoutError: it took longer. The thread continues; the process can still exit.
    """
    future: Future[_Result] = Future()
    future.set_running_or_notify_cancel()  # whoever stops waiting does not cancel it
    threading.Thread(target=_call, args=(function, future), name="tpumon-blocking", daemon=True).start()
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.wrap_future(future)
    finally:
        del future  # an error in it holds this frame, and with it all that `function` had


def _call(function: Callable[[], _Result], future: Future[_Result]) -> None:
    try:
        future.set_result(function())
    except Exception as error:  # noqa: BLE001 - the awaiting coroutine raises it
        future.set_exception(error)
    finally:
        del function, future
