"""Step times of one program in blocks of 1, 2, 4, 8 ... samples, and when the last ones are slower than those before.

Blocks are compared with earlier blocks of the same length. How much these vary is what noise and periods do at that
length, so nothing is assumed about them: longer blocks vary less by chance, and show smaller differences. A slow drift
shows little in a few short blocks, so short blocks may vary by as much as longer ones do. And outliers come several
times in a row by chance: the more frequent they are, the longer a row must be.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import sub

from msgspec import Struct

from tpumon.analysis.findings.recent import TO_SIGMA, median_of_ascending
from tpumon.analysis.history import Moment, seconds_between

LIMIT_RATIO = 0.06
STAYS_RATIO = 0.8  # of the limit: below it, the slow-down is over

_ERROR_RATIO = 0.01  # of what is measured: steps that are just 6 % longer are found
_ROW = 3  # blocks that must be slow, and one more for each that was as slow before
_QUICK_S = 10.0  # a row within it needs one more: of samples each second, three are too often in a row by chance
# Blocks before them that they are compared with. However many are odd by chance, three in a row and none in 128 before
# come less than once in two years of samples each minute. Of longer ones, which need not be told as soon, it is four
# while there are less than 32.
_MOST, _FEW, _FEWEST = 128, 32, 10
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
        row: the last ones, if they may be the begin of a slow-down, and when each began.
        usual_s: median of the blocks before these; 0 while they are too few.
        varies_s: a block is so much longer by chance at most.
    """

    blocks: array[float] = field(default_factory=lambda: array("d"))
    row: list[tuple[float, Moment]] = field(default_factory=list)
    next: _Average = field(default_factory=_Average)
    usual_s: float = 0.0
    varies_s: float = math.inf
    _wanders_s: float | None = None

    @property
    def wanders_s(self) -> float:
        """Variation like `varies_s`, of blocks that are three apart, by the median: a lasting change counts little."""
        if self._wanders_s is None:  # seldom asked for, and then again and again
            blocks_s = self.blocks.tolist()
            changes_s = sorted(map(abs, map(sub, blocks_s[_ROW:], blocks_s)))
            self._wanders_s = self._sigmas * TO_SIGMA * median_of_ascending(changes_s) / math.sqrt(2)
        return self._wanders_s

    @property
    def _sigmas(self) -> float:
        return _SIGMAS * (1 + _OF_FEW / len(self.blocks))

    def add(self, times_s: Sequence[float]) -> None:
        self.blocks.extend(times_s)
        del self.blocks[:-_MOST]
        self._wanders_s = None
        if (count := len(self.blocks)) >= _FEWEST:
            blocks_s = self.blocks.tolist()
            self.usual_s = median_of_ascending(sorted(blocks_s))
            self.varies_s = self._sigmas * math.dist(blocks_s, [self.usual_s] * count) / math.sqrt(count - 1)

    def is_slow(self, time_s: float, at: Moment, limit_s: float, fewest: int) -> bool:
        """Adds a block; True if it ends a row of slow ones that is longer than by chance."""
        self.row.append((time_s, at))
        usual = len(self.row)
        if time_s > limit_s:
            usual = next(i for i, (each_s, _) in enumerate(self.row) if each_s > limit_s)
        if usual:
            self.add([each_s for each_s, _ in self.row[:usual]])
            del self.row[:usual]
        if len(self.row) < fewest:
            return False
        fewest += seconds_between(self.row[0][1], at) < _QUICK_S
        return len(self.row) >= fewest + sum(each > limit_s for each in self.blocks)


class StepBlocks:
    """The step times of one program.

    Attributes:
        slow: the present slow-down, compared with the blocks before it as long as it lasts; None: there is none.
    """

    def __init__(self, kept: Iterable[Sequence[float]] = (), slow: Slow | None = None) -> None:
        self.slow = slow
        self._last: deque[float] = deque((slow.now_s,) * _ROW if slow is not None else (), maxlen=_ROW)
        self._levels: list[_Level] = []
        for blocks in kept:
            level = _Level()
            level.add(blocks)
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
        known = [level for level in self._levels if level.usual_s]
        least, before_s, wanders_s = math.inf, 0.0, 0.0
        for level in reversed(known):  # longer blocks limit shorter ones
            before_s, wanders_s = max(before_s, level.usual_s), max(wanders_s, level.wanders_s)
            limit_s = before_s + max(before_s * (LIMIT_RATIO - _ERROR_RATIO), level.varies_s, wanders_s)
            least = min(least, limit_s / level.usual_s - 1)
        return max(least, LIMIT_RATIO) if known else None

    @property
    def now_s(self) -> float | None:
        """Step time of the last samples; None: there was none."""
        if self.slow is not None:
            return self.slow.now_s
        level = self._levels[0] if self._levels else _Level()
        last = [*level.blocks[-_ROW:], *(time_s for time_s, _ in level.row)][-_ROW:]
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
            if (slow := self._slow(number, time_s, at)) is not None:
                self.slow = slow
                self._last.extend(each_s for each_s, _ in level.row[-_ROW:])
                for each in self._levels:
                    each.row, each.next = [], _Average()
                return
            level.next.add(time_s, steps, samples, at)
            if level.next.samples < 2 * samples:
                return
            time_s, steps, samples, at = level.next.time_s, level.next.steps, level.next.samples, level.next.began or at
            level.next = _Average()

    def _slow(self, number: int, time_s: float, at: Moment) -> Slow | None:
        """Adds a block at this level; returns the slow-down that the last blocks of the level show."""
        level = self._levels[number]
        if not level.usual_s:
            level.add((time_s,))
            return None
        # Longer blocks remember longer: going back to what was usual earlier is no slow-down.
        known = [each for each in self._levels[number:] if each.usual_s]
        before_s = max(each.usual_s for each in known)
        limit_s = before_s + max(before_s * (LIMIT_RATIO - _ERROR_RATIO), level.varies_s)
        if time_s > limit_s:  # few are
            limit_s = max(limit_s, *(before_s + each.wanders_s for each in known))
        if not level.is_slow(time_s, at, limit_s, _ROW + (number > 0 and len(level.blocks) < _FEW)):
            return None
        last_s = sorted(each_s for each_s, _ in level.row[-_ROW:])
        return Slow(number, level.row[0][1], before_s, limit_s / before_s - 1, median_of_ascending(last_s))

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
