"""Blocking calls beside the event loop, with a deadline."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_Result = TypeVar("_Result")


async def in_thread(function: Callable[[], _Result], *, timeout_s: float | None) -> _Result:
    """What `function` returns or raises, from a thread of its own that nobody waits for: not even the process's end.

    Raises:
        TimeoutError: it takes longer; it is left to itself.
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
        except Exception as error:  # noqa: BLE001 - raised again where it is awaited
            failed = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name="tpumon-blocking", daemon=True).start()
    async with asyncio.timeout(timeout_s):
        return await future
