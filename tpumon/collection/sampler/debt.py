"""Debt of one job: the seconds for which it was traced, beyond those that its share of time has paid since."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Debt:
    """Debt that falls with time.

    Attributes:
        ratio: the share of time for which the job may be traced.
        debt_s: of the credit, at the moment that was counted last.
        counted_s: that moment, by a monotonic clock.
        unused_s: of the share, since the others were last asked.
    """

    ratio: float
    debt_s: float
    counted_s: float
    unused_s: float = 0.0

    def at(self, now_s: float) -> float:
        """The debt that is left then."""
        return max(0.0, self.debt_s - self.ratio * (now_s - self.counted_s))

    def count(self, traced_s: float, now_s: float) -> None:
        """Counts what was traced until now. Time that was not used does not pile up; debt of a long trace may."""
        left_s = self.debt_s - self.ratio * (now_s - self.counted_s)
        self.unused_s += max(0.0, -left_s)
        self.debt_s, self.counted_s = max(0.0, max(0.0, left_s) + traced_s), now_s
