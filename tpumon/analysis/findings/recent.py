"""The last few numbers of a worker, medians that one odd sample does not move, and what they may vary by."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence

SAMPLES = 3
SIGMAS = 4.0
"""A difference of so many deviations is beyond what varies anyway, from worker to worker or from sample to sample."""

_FOR_SPREAD = 6

_SAME_STEP_RATIO = 0.1  # steps of one job are equally long; samples of it are not of the same steps

_TO_SIGMA = 1.4826  # of a normal distribution: its deviation over its median absolute deviation


class Recent:
    """The last numbers of a worker.

    Attributes:
        median: that of the last three; None while they are too few.
        spread: deviation from sample to sample; 0 while there is none.
    """

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_FOR_SPREAD)
        self.median: float | None = None
        self.spread = 0.0

    def add(self, value: float) -> None:
        """Adds the number of a sample."""
        self._values.append(value)
        if len(self._values) >= SAMPLES:  # here, once: each worker is compared with many others
            self.median = sorted(list(self._values)[-SAMPLES:])[SAMPLES // 2]
        self.spread = spread(self._values)


def median_of_ascending(ordered: Sequence[float]) -> float:
    """The median of at least one number, ascending. That of `statistics` would sort them again."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def spread(values: Iterable[float]) -> float:
    """The deviation of most of the numbers, by their median absolute deviation; outliers do not count."""
    ordered = sorted(values)
    middle = median_of_ascending(ordered)
    return _TO_SIGMA * median_of_ascending(sorted([abs(value - middle) for value in ordered]))


def median_of_others(ordered: Sequence[float], own: float) -> float:
    """The median of numbers without one of them.

    Args:
        ordered: at least two, ascending.
        own: one of them; if it is none, because it is no longer current, all of them count.
    """
    if len(ordered) > 2 * SAMPLES:
        return median_of_ascending(ordered)
    others = list(ordered)
    if own in others:
        others.remove(own)
    return median_of_ascending(others)


def alike_s(step_s: float, varies_ratio: float) -> tuple[float, float]:
    """The least and the greatest step time that may be of the same job as this one: its workers step together.

    Args:
        step_s: a step time.
        varies_ratio: how much step times vary from sample to sample.
    """
    ratio = min(max(_SAME_STEP_RATIO, SIGMAS * varies_ratio), 1.0)
    return step_s * (1 - ratio), step_s / (1 - ratio) if ratio < 1 else math.inf
