"""Turns at making connections: few at a time, so that a thousand new workers cost little more than a dozen.

gRPC makes connections in threads of its own, and starts more of them when they are behind. Servers that were
connected before have turns of their own, and so have servers that got no connection within their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

_AT_ONCE, _KNOWN_AT_ONCE, _LATE_AT_ONCE = 32, 16, 16
_CHECK_S = 0.02
_CHECKS = 50  # a second; more where this process is behind, or connections would pile up just then
_NEW_CHECKS = 12  # most are connected within one of them, and those that hang must not hold them up

Past = Literal["new", "known", "late"]
"""Past of a server: nothing is known, it was connected, it was not connected within its last turn."""


class ConnectTurn:
    """A turn at making one connection; ends when the connection is made, took too long, or is given up.

    Args:
        lane: the semaphore that the turn is of.
        is_connected: whether the connection is there.
        checks: how often to check that, at most.
    """

    def __init__(self, lane: asyncio.Semaphore, is_connected: Callable[[], bool], checks: int) -> None:
        self._lane = lane
        self._is_connected = is_connected
        self._most_checks = checks
        self._checks = 0
        self._is_over = False
        self._next = asyncio.get_running_loop().call_later(_CHECK_S, self._check)

    @property
    def was_late(self) -> bool:
        """True if it ended before there was a connection or a failure."""
        return self._checks >= self._most_checks

    def give_back(self) -> None:
        """Ends the turn, if it is not over yet."""
        if not self._is_over:
            self._is_over = True
            self._next.cancel()
            self._lane.release()

    def _check(self) -> None:
        self._checks += not self._is_connected()
        if self.was_late or self._is_connected():
            self.give_back()
        else:
            self._next = asyncio.get_running_loop().call_later(_CHECK_S, self._check)


class Connecting:
    """Turns that the clients of one sampler share, first come, first served."""

    def __init__(self) -> None:
        self._lanes: dict[Past, asyncio.Semaphore] = {
            "new": asyncio.Semaphore(_AT_ONCE),
            "known": asyncio.Semaphore(_KNOWN_AT_ONCE),
            "late": asyncio.Semaphore(_LATE_AT_ONCE),
        }

    async def turn(self, is_connected: Callable[[], bool], *, past: Past) -> ConnectTurn:
        """Waits for a turn: a quarter of a second for an unknown server, else a second.

        Args:
            is_connected: whether the connection is there.
            past: what is known of the server.
        """
        lane = self._lanes[past]
        await lane.acquire()
        return ConnectTurn(lane, is_connected, _NEW_CHECKS if past == "new" else _CHECKS)
