"""Turns at making connections: few at a time, so that a thousand new workers cost little more than a dozen.

gRPC makes connections in threads of its own, and starts more of them when they are behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_AT_ONCE, _LATE_AT_ONCE = 32, 16
_LOOK_S = 0.02
_LOOKS = 50  # a second; more where this process is behind, or connections would pile up just then


class ConnectTurn:
    """A turn at making one connection. It ends when the connection is there, after about a second, or when given back.

    Args:
        lane: of which it is one.
        is_connected: whether the connection is there.
    """

    def __init__(self, lane: asyncio.Semaphore, is_connected: Callable[[], bool]) -> None:
        self._lane = lane
        self._is_connected = is_connected
        self._looks = 0
        self._is_over = False
        self._next = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    @property
    def was_late(self) -> bool:
        """Whether it ended before there was a connection or a failure."""
        return self._looks >= _LOOKS

    def give_back(self) -> None:
        """Ends the turn, if it is not over yet."""
        if not self._is_over:
            self._is_over = True
            self._next.cancel()
            self._lane.release()

    def _look(self) -> None:
        self._looks += not self._is_connected()
        if self.was_late or self._is_connected():
            self.give_back()
        else:
            self._next = asyncio.get_running_loop().call_later(_LOOK_S, self._look)


class Connecting:
    """What the clients of one sampler share: turns, first come, first served.

    Who did not get a connection within its turn waits for others like it only from then on.
    """

    def __init__(self) -> None:
        self._prompt, self._late = asyncio.Semaphore(_AT_ONCE), asyncio.Semaphore(_LATE_AT_ONCE)

    async def turn(self, is_connected: Callable[[], bool], *, late: bool) -> ConnectTurn:
        """Waits for a turn.

        Args:
            is_connected: whether the connection is there.
            late: whether it was not within the last turn.
        """
        lane = self._late if late else self._prompt
        await lane.acquire()
        return ConnectTurn(lane, is_connected)
