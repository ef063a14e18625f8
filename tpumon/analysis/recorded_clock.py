"""Time that passes in a recording, for its samples know no monotonic clock."""

from __future__ import annotations

from msgspec.structs import replace

from tpumon.model import Sample

OVERLAP_S = 60.0
"""The longest that a query may take: so much earlier than others a sample may begin, or come."""


class RecordedClock:
    """The monotonic clock of a recording, by the wall clock that it was written with.

    Attributes:
        unix_s: the wall clock as the recording had it last; 0 before its begin.
    """

    def __init__(self) -> None:
        self.unix_s = self._passed_s = 0.0

    def __call__(self) -> float:
        """Seconds; they are as many more as passed in the recording, as far as it was played."""
        return self._passed_s

    def move(self, time_unix_s: float) -> None:
        """Moves the clock to a time of the recording; a much earlier time means that the wall clock was set back."""
        if time_unix_s > self.unix_s:
            self._passed_s += time_unix_s - self.unix_s
            self.unix_s = time_unix_s
        elif time_unix_s < self.unix_s - OVERLAP_S:
            self.unix_s = time_unix_s

    def dated(self, sample: Sample) -> Sample:
        """A sample that was recorded, with its time on this clock."""
        self.move(sample.time_unix_s + min(sample.took_s, OVERLAP_S))
        return replace(sample, taken_monotonic_s=self._passed_s - (self.unix_s - sample.time_unix_s))
