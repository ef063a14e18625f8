"""Runs blocking calls outside the event loop, with a timeout; looks up names of hosts so."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

_Result = TypeVar("_Result")
_ANSWER_S = 5.0


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


Resolve = Callable[[str], Awaitable[Sequence[str]]]


async def resolve_host(host: str) -> Sequence[str]:
    """Looks up all addresses of a name with this machine's resolver.

    Raises:
        OSError: it has none, or there was no answer within 5 s.
    """
    infos = await in_thread(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM), timeout_s=_ANSWER_S)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in infos))
