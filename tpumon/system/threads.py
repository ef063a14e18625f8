"""Runs blocking calls outside the event loop, with a timeout."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
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
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def settle(result: _Result | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failed = None, None
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - the awaiting coroutine raises it
            failed = error
        with suppress(RuntimeError):  # the loop is closed: the result is no longer needed
            loop.call_soon_threadsafe(settle, result, failed)
        del failed  # its traceback holds this frame, and with it all that `function` had

    threading.Thread(target=run, name="tpumon-blocking", daemon=True).start()
    async with asyncio.timeout(timeout_s):
        return await future
