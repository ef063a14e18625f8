"""Shows other threads whether an event loop still runs."""

from __future__ import annotations

import asyncio
import time

_BEAT_S = 1.0


class Heartbeat:
    """The time at which an event loop last ran."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()

    def start(self) -> None:
        """Beats every second for as long as the running event loop does."""
        self._last_s = time.monotonic()
        asyncio.get_running_loop().call_later(_BEAT_S, self.start)

    def age_s(self) -> float:
        """Returns the seconds since the last beat, or since this was made."""
        return time.monotonic() - self._last_s
