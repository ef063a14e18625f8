"""Step times of one program in blocks of 1, 2, 4, 8 ... samples, and when the last ones are slower than those before.

Blocks are compared with earlier blocks of the same length. How much these vary is what noise, drift and periods do at
that length, so nothing is assumed about them: longer blocks vary less by chance, and show smaller differences.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from tpumon.analysis.findings.recent import median_of_ascending
from tpumon.analysis.history import Moment

LIMIT_RATIO = 0.06
STAYS_RATIO = 0.8  # of the limit: below it, the slow-down is over

_ERROR_RATIO = 0.01  # of what is measured: steps that are just 6 % longer are found
_ROW = 3  # blocks that must be slow
_MOST, _FEWEST = 48, 10  # blocks before them that they are compared with
_SIGMAS, _OF_FEW = 5.0, 6.0  # deviations beyond what varies; more while few blocks tell how much that is
_MOST_LEVELS = 13  # blocks of 4,096 samples: 11 hours at intervals of 10 s
_MOST_KEPT = 16
_DIGITS = 5


class Slow(Struct, frozen=True):
    """A slow-down.

    Attributes:
        level: of the blocks that showed it: they have 2 ** level samples.
        since: begin of the first of them.
        before_s: step time before.
        limit_ratio: by which steps must be longer to count.
        now_s: step time now: the median of the last three.
    """

    level: int
    since: Moment
    before_s: float
    limit_ratio: float
    now_s: float

    @property
    def severity_ratio(self) -> float:
        """Excess of the step time, relative to the limit."""
        return (self.now_s / self.before_s - 1) / self.limit_ratio

    def as_of(self, last_s: Iterable[float]) -> Slow:
        """The slow-down after some more blocks."""
        return Slow(self.level, self.since, self.before_s, self.limit_ratio, median_of_ascending(sorted(last_s)))


@dataclass(slots=True)
class _Average:
    """An average over samples, each weighted by the number of its steps."""

    began: Moment | None = None
    samples: int = 0
    steps: int = 0
    total_s: float = 0.0

    def add(self, time_s: float, steps: int, samples: int, at: Moment) -> None:
        self.began = self.began or at
        self.samples += samples
        self.steps += steps
        self.total_s += time_s * steps

    @property
    def time_s(self) -> float:
        return self.total_s / self.steps


@dataclass(slots=True)
class _Level:
    """The last blocks of one length, oldest first, and the next one.

    Attributes:
        usual_s: median of the blocks but the last three; 0 while they are too few.
        limit_s: more than any block has by chance.
        began: begin of the last three; None: before tpumon was restarted.
    """

    blocks: array[float] = field(default_factory=lambda: array("d"))
    began: deque[Moment | None] = field(default_factory=lambda: deque(maxlen=_ROW))
    next: _Average = field(default_factory=_Average)
    usual_s: float = 0.0
    limit_s: float = math.inf

    def add(self, time_s: float, began: Moment | None) -> None:
        self.blocks.append(time_s)
        self.began.append(began)
        del self.blocks[: -_MOST - _ROW]
        if len(self.blocks) >= _FEWEST + _ROW:
            before = sorted(self.blocks[:-_ROW])
            self.usual_s = median_of_ascending(before)
            sigma_s = math.dist(before, [self.usual_s] * len(before)) / math.sqrt(len(before) - 1)
            self.limit_s = self.usual_s + _SIGMAS * (1 + _OF_FEW / len(before)) * sigma_s


class StepBlocks:
    """The step times of one program.

    Attributes:
        slow: the present slow-down; None: there is none. Blocks before it stay what the present ones are compared with.
    """

    def __init__(self, kept: Iterable[Sequence[float]] = (), slow: Slow | None = None) -> None:
        self.slow = slow
        self._last: deque[float] = deque((slow.now_s,) * _ROW if slow is not None else (), maxlen=_ROW)
        self._levels: list[_Level] = []
        for blocks in kept:
            level = _Level()
            for each in blocks:
                level.add(each, None)
            self._levels.append(level)
        while slow is not None and len(self._levels) <= slow.level:
            self._levels.append(_Level())

    @property
    def kept(self) -> tuple[tuple[float, ...], ...]:
        """The last blocks of each length, as the constructor takes them."""
        return tuple(
            tuple(float(f"{each:.{_DIGITS}g}") for each in level.blocks[-_MOST_KEPT:]) for level in self._levels
        )

    @property
    def limit_ratio(self) -> float | None:
        """By how much steps must be longer to count, in blocks of the length that shows most; None: too few samples."""
        known = [level.limit_s / level.usual_s - 1 for level in self._levels if level.usual_s]
        return max(min(known), LIMIT_RATIO) if known else None

    @property
    def now_s(self) -> float | None:
        """Step time of the last samples; None: there was none."""
        if self.slow is not None:
            return self.slow.now_s
        last = self._levels[0].blocks[-_ROW:] if self._levels else ()
        return median_of_ascending(sorted(last)) if last else None

    def add(self, time_s: float, steps: int, at: Moment) -> None:
        """Adds a sample: the average of some steps."""
        if self.slow is not None:
            self._add_slow(self.slow, time_s, steps, at)
            return
        samples = 1
        for number in range(_MOST_LEVELS):
            if number == len(self._levels):
                self._levels.append(_Level())
            level = self._levels[number]
            level.add(time_s, at)
            if (slow := self._slow(number, level)) is not None:
                self.slow = slow
                self._last.extend(level.blocks[-_ROW:])
                for each in self._levels:
                    each.next = _Average()
                return
            level.next.add(time_s, steps, samples, at)
            if level.next.samples < 2 * samples:
                return
            time_s, steps, samples, at = level.next.time_s, level.next.steps, level.next.samples, level.next.began or at
            level.next = _Average()

    def _slow(self, number: int, level: _Level) -> Slow | None:
        """The slow-down that the last blocks of this length show."""
        if not level.usual_s:
            return None
        last = level.blocks[-_ROW:]
        # Longer blocks remember longer: going back to what was usual earlier is no slow-down.
        before_s = max(each.usual_s for each in self._levels[number:])
        limit_s = max(level.limit_s, before_s * (1 + LIMIT_RATIO - _ERROR_RATIO))
        if min(last) <= limit_s:
            return None
        since = next(began for began in level.began if began is not None)
        return Slow(number, since, before_s, limit_s / before_s - 1, median_of_ascending(sorted(last)))

    def _add_slow(self, slow: Slow, time_s: float, steps: int, at: Moment) -> None:
        """Notes whether steps are still slow: most of the last blocks of the length that showed it."""
        level = self._levels[slow.level]
        level.next.add(time_s, steps, 1, at)
        if level.next.samples < 2**slow.level:
            return
        self._last.append(level.next.time_s)
        level.next = _Average()
        self.slow = slow.as_of(self._last)
        if self.slow.severity_ratio < STAYS_RATIO:
            self.slow = None
            del level.blocks[-_ROW:]
