"""The last few numbers of a worker, and medians that one odd sample does not move."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

SAMPLES = 3
_FOR_SPREAD = 6

_TO_SIGMA = 1.4826  # of a normal distribution: its deviation over its median absolute deviation


class Recent:
    """The last numbers of a worker.

    Attributes:
        median: that of the last three; None while they are too few.
        spread: how much they vary from sample to sample.
    """

    __slots__ = ("_values", "median", "spread")

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_FOR_SPREAD)
        self.median: float | None = None
        self.spread = 0.0

    def add(self, value: float) -> None:
        """Adds the number of a sample."""
        self._values.append(value)
        last = list(self._values)
        self.median = median(last[-SAMPLES:]) if len(last) >= SAMPLES else None
        self.spread = spread(last)


def spread(values: Sequence[float]) -> float:
    """The deviation of most of the numbers, by their median absolute deviation; outliers do not count."""
    middle = median(values)
    return _TO_SIGMA * median(abs(value - middle) for value in values)


def median_of_others(ordered: Sequence[float], own: float) -> float:
    """The median of numbers without one of them.

    Args:
        ordered: at least two, ascending.
        own: one of them.
    """
    if len(ordered) > 2 * SAMPLES:
        return median(ordered)
    others = list(ordered)
    others.remove(own)
    return median(others)
