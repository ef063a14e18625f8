"""Account of the seconds for which the calls of a query trace the job."""

from __future__ import annotations

import time

PROBE_S = 0.02
"""What a probe is taken to cost if it has no answer."""

_COLLECTING_S = 0.1  # before an answer has shown it


class CallCost:
    """Cost to the job of the calls of the present query, or of the last one.

    Attributes:
        collecting_s: how long after its window a trace is answered; as the last one was.
    """

    def __init__(self) -> None:
        self.collecting_s = _COLLECTING_S
        self._over_s = 0.0  # by the calls that are over
        self._call: tuple[float, float] | None = None  # the one under way: since when, and what it is likely to cost

    def begin_query(self) -> None:
        """Begins anew."""
        self._over_s, self._call = 0.0, None

    def begin_call(self, likely_s: float) -> None:
        """Counts a call from now on."""
        self._call = time.monotonic(), likely_s

    def end_call(self, stopped_s: float = 0.0) -> float:
        """Counts the call under way, which was answered, but for the time for which the job was stopped; returns it."""
        if self._call is None:
            return 0.0
        took_s = max(0.0, time.monotonic() - self._call[0] - stopped_s)
        self._over_s, self._call = self._over_s + took_s, None
        return took_s

    @property
    def traced_s(self) -> float:
        """Seconds so far; a call without an answer counts for as long as is likely.

        Its server may be dead, or trace when it wakes up.
        """
        if self._call is None:
            return self._over_s
        since_s, likely_s = self._call
        return self._over_s + min(time.monotonic() - since_s, likely_s)

    def of_trace_s(self, window_s: float) -> float:
        """Likely cost of a trace with this window."""
        return window_s + self.collecting_s
