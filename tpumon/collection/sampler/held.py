"""Reasons to send a worker no query, seen without one: a pause, or a signal that has stopped the job."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from tpumon.collection.sampler.host_traces import stopped
from tpumon.model import Failure, ProcessState, Target
from tpumon.system.pausing import Pause

_Why = Literal["", "paused", "stopped"]
_SAME_S = 1.0  # ends of a pause so near to each other are one


class Held:
    """Tells of one worker whether it is held.

    Args:
        pause: gets the pause in effect, if any.
        state_of: the state of a process of this host.

    Attributes:
        pause: gets the pause in effect, if any.
        why: the reason that was reported last; empty: it is not held.
    """

    def __init__(
        self,
        pause: Callable[[], Awaitable[Pause | None]],
        state_of: Callable[[int], ProcessState],
    ) -> None:
        self.why: _Why = ""
        self.pause = pause
        self._state_of = state_of
        self._seen: tuple[_Why, int | None] = "", None
        self._until_unix_s = 0.0  # the end of the pause, as it was told

    @property
    def left_s(self) -> float:
        """Seconds until the pause that holds it ends; infinity: not known, or none does."""
        return max(self._until_unix_s - time.time(), 0.0) if self.why == "paused" else math.inf

    def see_pause(self, pause: Pause) -> bool:
        """Notes a pause of this host; returns True if it must be reported: it is new, or its end has moved."""
        is_moved = self.why == "paused" and abs(pause.until_unix_s - self._until_unix_s) >= _SAME_S
        return self.see("paused") or is_moved

    def see(self, why: _Why, switches: int | None = None) -> bool:
        """Notes what was seen; returns True if it must be reported, because it is new.

        A job that is stopped counts as that from the second time on, if it has not run in between: some programs slow
        others down by stopping them again and again.

        Args:
            why: it is held.
            switches: how often a process that is stopped has left a processor; None: not known.
        """
        before, self._seen = self._seen, (why, switches)
        if why == self.why or (why == "stopped" and before != self._seen):
            return False
        self.why = why
        return True

    async def failure(self, target: Target, source: str, hung_by: str) -> Failure | None:
        """The failure of a query that is not made; None: the worker may be asked.

        Args:
            target: the worker.
            source: that would be asked.
            hung_by: words for a trace of the host that has hung the job; empty: none has.
        """
        pause = await self.pause()
        if pause is not None:
            self.why, self._until_unix_s = "paused", pause.until_unix_s
            words = "; ".join(filter(None, (str(pause), hung_by)))  # known without a query
            return Failure(source="pause", reason="paused", message=words, address=target.address)
        if self.why == "stopped" and target.process is not None and self._is_still_stopped(target.process.pid):
            words = stopped(target.process.pid)
            return Failure(source=source, reason="deadline", message=words, address=target.address, detail="stopped")
        self.why = ""
        return None

    def _is_still_stopped(self, pid: int) -> bool:
        try:
            return self._state_of(pid) == "stopped"
        except Exception:  # noqa: BLE001 - the sampler says so
            return False
