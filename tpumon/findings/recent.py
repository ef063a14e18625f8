"""The last few numbers of a worker, medians that one odd sample does not move, and what they say of workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SAMPLES = 3
_FOR_SPREAD = 6

_SAME_STEP_RATIO = 0.1  # steps of one job are equally long; samples of it are not of the same steps

_TO_SIGMA = 1.4826  # of a normal distribution: its deviation over its median absolute deviation


class Recent:
    """The last numbers of a worker.

    Attributes:
        median: that of the last three; None while they are too few.
    """

    __slots__ = ("_spread", "_values", "median")

    def __init__(self) -> None:
        self._values: list[float] = []
        self.median: float | None = None
        self._spread: float | None = 0.0

    def add(self, value: float) -> None:
        """Adds the number of a sample."""
        self._values.append(value)
        if len(self._values) > _FOR_SPREAD:
            del self._values[0]
        last = sorted(self._values[-SAMPLES:])
        self.median = last[SAMPLES // 2] if len(last) == SAMPLES else None
        self._spread = None

    @property
    def spread(self) -> float:
        """How much they vary from sample to sample."""
        if self._spread is None:
            self._spread = spread(self._values)
        return self._spread


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


def may_step_together(one_s: float | None, other_s: float | None, *, varies_ratio: float = 0.0) -> bool:
    """Whether two step times are as equal as in one job; also if one of them is not known.

    Args:
        one_s: a step time.
        other_s: another one.
        varies_ratio: by how much step times vary anyway.
    """
    return not one_s or not other_s or abs(one_s / other_s - 1) <= max(_SAME_STEP_RATIO, varies_ratio)
