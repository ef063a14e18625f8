"""The last few numbers of a worker, medians that one odd sample does not move, and what they may vary by."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from operator import sub

SAMPLES = 3
SIGMAS = 4.0
"""A difference of so many deviations is beyond what varies anyway, from worker to worker or from sample to sample."""

_FOR_SPREAD = 6

_SAME_STEP_RATIO = 0.1  # steps of one job are equally long; samples of it are not of the same steps

_SPANS = (3, 6, 12, 24, 48)
_NOISE_SIGMAS = 7.0  # that chance does not reach in a month of many workers
_OF_FEW = 18.0  # more of them while few samples tell what varies
_JUMPS = 2
_FOR_A_JUMP = 4
FEW = _JUMPS * _FOR_A_JUMP
"""So many samples of one worker tell little of what varies."""

LASTING = SAMPLES + 1
"""Of so many samples, all but one must show a difference."""

_LONG = 24  # samples, in which nothing is there by chance most of the time
_PASSING = 2.0
_TO_MEDIAN = 1.25  # the error of a median over that of a mean

TO_SIGMA = 1.4826
"""Of a normal distribution: its deviation over its median absolute deviation."""


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

    def forget(self) -> None:
        """Forgets the numbers so far: they are old."""
        self._values.clear()
        self.median, self.spread = None, 0.0


class RecentMedians:
    """The medians of the last numbers of a worker.

    Attributes:
        medians: of the last 3, 6, 12, 24 and 48 samples, as far as there are so many.
        count: number of samples that they come from.
    """

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_SPANS[-1])
        self.medians: tuple[float, ...] = ()
        self.count = 0

    def add(self, value: float) -> None:
        """Adds the number of a sample."""
        self._values.append(value)
        self.count = len(self._values)
        values = list(self._values)
        self.medians = tuple([median_of_ascending(sorted(values[-span:])) for span in _SPANS if span <= self.count])

    @property
    def last(self) -> float:
        """The number of the last sample; 0 while there is none."""
        return self._values[-1] if self._values else 0.0


class RecentDifference(RecentMedians):
    """Difference between a worker and the others in its last samples: how much more it has of something.

    Samples of two workers hold different steps, so the difference in one sample may be off by as much as steps vary.
    More samples reduce that error: a small difference is seen in many samples, a large one in three.

    Attributes:
        noise: deviation of one sample, by the differences of successive ones. The greatest of four is left out, two of
            eight and more: a change of level, there and back, is no noise. Of fewer each counts: two of three numbers
            are often nearly equal by chance.
        lasting: what the last three samples show at least, or three of the last four.
        passing: the two greatest differences that were in one sample and not in the next.
    """

    def __init__(self) -> None:
        super().__init__()
        self.noise = 0.0
        self.lasting = 0.0
        self.passing: tuple[float, ...] = ()

    def add(self, value: float) -> None:
        """Adds the difference of a sample."""
        super().add(value)
        last = sorted(islice(self._values, max(self.count - LASTING, 0), None))
        self.lasting = last[max(len(last) - SAMPLES, 0)]
        if self.count > 1:
            steps = sorted(map(abs, map(sub, self._values, islice(self._values, 1, None))))
            steps = steps[: len(steps) - min(_JUMPS, len(steps) // _FOR_A_JUMP)]
            self.noise = math.hypot(*steps) / math.sqrt(2 * len(steps))
            falls = sorted(before - max(after, 0.0) for before, after in pairwise(self._values))
            self.passing = tuple(falls[-_JUMPS:])


def chance(noise: float, count: int, passing: float = 0.0) -> tuple[float, ...]:
    """The most that chance makes of the medians of a `RecentDifference`.

    Args:
        noise: deviation of one sample.
        count: number of samples that it comes from.
        passing: what came and went in others: what moves about may stay for a few samples.
    """
    sigmas = _NOISE_SIGMAS * (1 + _OF_FEW / max(count, 1))
    by_noise = (sigmas * _TO_MEDIAN * noise / math.sqrt(span) for span in _SPANS)
    return tuple(
        max(most, _PASSING * passing) if span < _LONG else most for span, most in zip(_SPANS, by_noise, strict=True)
    )


def median_of_ascending(ordered: Sequence[float]) -> float:
    """The median of at least one number, ascending. That of `statistics` would sort them again."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def spread(values: Iterable[float]) -> float:
    """The deviation of most of the numbers, by their median absolute deviation; outliers do not count."""
    ordered = sorted(values)
    middle = median_of_ascending(ordered)
    return TO_SIGMA * median_of_ascending(sorted([abs(value - middle) for value in ordered]))


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
    """Least and greatest step time that may belong to the same job as `step_s`: workers of one job step together.

    Args:
        step_s: a step time.
        varies_ratio: how much step times vary from sample to sample.
    """
    ratio = min(max(_SAME_STEP_RATIO, SIGMAS * varies_ratio), 1.0)
    return step_s * (1 - ratio), step_s / (1 - ratio) if ratio < 1 else math.inf
