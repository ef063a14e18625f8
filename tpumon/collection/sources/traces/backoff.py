"""Backs off from a server although a sample is due: a trace would disturb the job's owner, or show nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpumon.errors import NOT_SEEN, Detail, Reason, SourceError

if TYPE_CHECKING:
    from tpumon.collection.sources.rpc import Client

CONTINUOUS_S = 300.0
"""A session that is active at every call for so long is taken for a continuous one: profiles are shorter."""

_PAUSES_S = 60.0, 3600.0  # at first, and at last: each further one for the same reason is twice as long
_LONGEST_YIELD_S = 300.0  # each call that meets a continuous session leaves a line in the job's log
_LONGEST_TOO_LARGE_S = 300.0
_MOST_EMPTY, _MOST_TOO_LARGE = 4, 8  # traces in a row


@dataclass(slots=True)
class _Stop:
    """Reason for which the server is not called, and until when.

    Attributes:
        repeats: how often in a row it was found to hold again.
        until_s: when to call again, by the clock.
    """

    reason: Reason
    why: str
    detail: Detail | None
    repeats: int
    until_s: float


class Backoff:
    """Backing off from one server, for as long as the connection to it lasts.

    Args:
        client: the channel to it.
        clock_s: a monotonic clock.
    """

    def __init__(self, client: Client, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock_s = clock_s
        self._connection = client.connection
        self._stop: _Stop | None = None
        self._refused_since_s: float | None = None
        self._in_vain = 0  # traces in a row that showed nothing

    def check(self) -> None:
        """Returns if the server may be called.

        Raises:
            SourceError: it may not: `continuous`, `empty-trace` or `too-large`, as was said before.
        """
        if not self._client.connected or self._client.connection != self._connection:
            self._forget()
        if self._stop is not None and self._clock_s() < self._stop.until_s:
            raise self._error(self._stop)

    def note_trace(self) -> None:
        """Notes a trace that holds something, or may do so another time."""
        self._forget()

    def note_busy(self, error: SourceError) -> None:
        """Notes that another session is active.

        Raises:
            SourceError: `continuous`, once it has been active for a while.
        """
        now_s = self._clock_s()
        self._connection, self._in_vain = self._client.connection, 0
        if self._refused_since_s is None:
            self._refused_since_s = now_s
        busy_s = now_s - self._refused_since_s
        if busy_s < CONTINUOUS_S and error.reason != "continuous":
            return
        why = error.message
        if error.reason != "continuous":
            why = (
                f"another profiling session has been active for {busy_s / 60:.0f} minutes, probably a continuous one "
                "of the job's owner; standing back"
            )
        raise self._error(self._stopped("continuous", why, _LONGEST_YIELD_S)) from error

    def note_empty(self, why: str) -> SourceError | None:
        """Notes a trace without events or devices, of a server that can show nothing else.

        Args:
            why: what is missing and what to do, for the message.

        Returns:
            What to raise once there were a few; None before.
        """
        if self._count_in_vain() < _MOST_EMPTY:
            return None
        words = f"{NOT_SEEN}: {why}; traces are taken rarely now"
        return self._error(self._stopped("empty-trace", words, None, "not-seen"))

    def note_too_large(self, error: SourceError) -> None:
        """Notes a trace that was too large to receive or to read; the next ones are lighter.

        Raises:
            SourceError: `too-large`, after a few in a row.
        """
        if self._count_in_vain() >= _MOST_TOO_LARGE:
            stop = self._error(self._stopped("too-large", error.message, _LONGEST_TOO_LARGE_S))
            stop.traced_s = error.traced_s
            raise stop from error

    def _count_in_vain(self) -> int:
        """Counts a trace that showed nothing; returns how many there were in a row."""
        self._connection, self._refused_since_s = self._client.connection, None
        self._in_vain += 1
        return self._in_vain

    def _forget(self) -> None:
        self._stop, self._refused_since_s, self._in_vain = None, None, 0

    def _stopped(self, reason: Reason, why: str, longest_s: float | None, detail: Detail | None = None) -> _Stop:
        repeats = self._stop.repeats + 1 if self._stop is not None and self._stop.reason == reason else 0
        first_s, last_s = _PAUSES_S
        pause_s = min(longest_s or last_s, first_s * 2 ** min(repeats, 16))
        self._stop = _Stop(reason, why, detail, repeats, self._clock_s() + pause_s)
        return self._stop

    def _error(self, stop: _Stop) -> SourceError:
        left_s = max(0.0, stop.until_s - self._clock_s())
        when = f"{left_s / 60:.0f} min" if left_s >= 90 else f"{left_s:.0f} s"
        words = f"{stop.why}; looking again in {when}"
        return SourceError(stop.reason, words, address=self._client.address, detail=stop.detail)
