"""Own work and waiting of a slice's workers side by side: what is usual, and how much it varies by nature."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import nlargest
from operator import attrgetter
from statistics import fmean, median, median_low
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from tpumon.analysis.findings.recent import (
    LASTING,
    Recent,
    RecentDifference,
    RecentMedians,
    alike_s,
    median_of_ascending,
    median_of_others,
    spread,
)

FEWEST = 2
_FEWEST_FOR_SPREAD = 5
COLLECTIVES_SHARE, IDLE_SHARE = "op_time_ratios.collective", "idle_ratio"
_SHOW_WAITING = (COLLECTIVES_SHARE, IDLE_SHARE)
_STEP_S = attrgetter("step_s")
_NOTHING: Mapping[str, float] = MappingProxyType({})


class WorkSeen(Struct, frozen=True):
    """Own work and waiting that a sample shows of a worker.

    Attributes:
        step_s, work_s: a step, and the own work in it.
        waited: share of the time.
        shown: the figures that show the waiting.
    """

    step_s: float = 0.0
    work_s: float = 0.0
    waited: float = 0.0
    shown: Mapping[str, float] = _NOTHING


class Noise(Struct, frozen=True):
    """Differences of own work that are there by nature, as fractions.

    Attributes:
        among: from worker to worker.
        of_samples: of a worker from one sample to the next; the median of the workers.
        of_all: the same over all workers, which counts while each has few samples: those of one may be equal by chance.
        passing: what workers had in one sample and not in the next: the greatest, two more than concern one worker.
    """

    among: float = 0.0
    of_samples: float = 0.0
    of_all: float = 0.0
    passing: Sequence[float] = ()

    def passing_of_others(self, own: Sequence[float]) -> float:
        """Second greatest passing difference of all workers but the one with these; one recovery is no noise."""
        others = list(self.passing)
        for each in own:
            if each in others:
                others.remove(each)
        return others[1] if len(others) > 1 else 0.0


_QUIET = Noise()


class BesideOthers(Struct, frozen=True):
    """A slice beside the others of its job, or a worker beside those of its slice.

    Attributes:
        waited, work_s: share of the time waited, own work of a step; of nearly all of a slice's workers at most, and at
            least.
        others_waited, others_work_s: what is usual in the others.
        noise: how much the difference of work varies.
        shown: the figures that show the waiting.
        others_shown: what is usual in the others.
    """

    waited: float = 0.0
    work_s: float = 0.0
    others_waited: float = 0.0
    others_work_s: float = 0.0
    noise: Noise = _QUIET
    shown: Mapping[str, float] = _NOTHING
    others_shown: Mapping[str, float] = _NOTHING

    @property
    def more(self) -> float:
        """Own work beyond that of the others, as a fraction."""
        return self.work_s / self.others_work_s - 1 if self.others_work_s else 0.0

    def telling(self) -> tuple[str, float, float]:
        """The figure in which the others wait most: its name, its value here and there."""
        common = self.shown.keys() & self.others_shown.keys()
        name = max(sorted(common), key=lambda name: self.others_shown[name] - self.shown[name], default=IDLE_SHARE)
        return name, self.shown.get(name, 0.0), self.others_shown.get(name, 0.0)


@dataclass(slots=True)
class WorkAndWaiting:
    """Waiting, own work and steps of a worker, and how they differ from those of others.

    Attributes:
        last: its last sample; None: that tells nothing.
        step_s: step times of its last samples.
        compared: its last samples beside what was usual in the others, the newest last.
        less: how much less than the others it waited.
        more: how much more than the others it worked, as a fraction.
        slice_compared, slice_less, slice_more: the same of its slice, beside the other slices of its job.
        core: chip and number of the core that waits least.
        core_waited: how much that core waited in the last sample.
        core_less: how much less than the others of this worker, while it was the same.
        was_found: whether it, a core of it or its slice was found to be slow by the last sample.
    """

    last: WorkSeen | None = None
    step_s: Recent = field(default_factory=Recent)
    compared: deque[BesideOthers] = field(default_factory=partial(deque[BesideOthers], maxlen=LASTING))
    less: RecentMedians = field(default_factory=RecentMedians)
    more: RecentDifference = field(default_factory=RecentDifference)
    slice_compared: deque[BesideOthers] = field(default_factory=partial(deque[BesideOthers], maxlen=LASTING))
    slice_less: RecentMedians = field(default_factory=RecentMedians)
    slice_more: RecentDifference = field(default_factory=RecentDifference)
    core: tuple[int, int] | None = None
    core_waited: float = 0.0
    core_less: RecentDifference = field(default_factory=RecentDifference)
    was_found: bool = False


class SliceWork(Struct, frozen=True):
    """Waiting, own work and step times of a slice's workers, ascending; how much steps vary, as a fraction.

    Attributes:
        noise: how much work varies.
        core_waited: the least that any of its cores waits.
        shown: the figures that show the waiting, their medians.
        beside: the slice beside the others of its job.
        last: what was seen of each, the shortest steps first.
    """

    waited: list[float]
    work_s: list[float]
    step_s: list[float]
    last: Sequence[WorkSeen] = ()
    noise: Noise = _QUIET
    step_spread_ratio: float = 0.0
    core_waited: float = 0.0
    shown: Mapping[str, float] = _NOTHING
    beside: BesideOthers | None = None

    def usual(self, own: WorkSeen) -> WorkSeen | None:
        """Figures of others for steps as long as in this sample; other phases are other work. None: they have none."""
        least_s, greatest_s = alike_s(own.step_s, 0.0)
        first, end = bisect_left(self.last, least_s, key=_STEP_S), bisect_right(self.last, greatest_s, key=_STEP_S)
        if end - first < FEWEST:
            return None
        waited, work_s, shown = self.waited, self.work_s, self.shown
        if end - first < len(self.last):
            alike = self.last[first:end]
            waited, work_s = sorted(each.waited for each in alike), sorted(each.work_s for each in alike)
            shown = _medians([each.shown for each in alike])
        return WorkSeen(own.step_s, median_of_others(work_s, own.work_s), median_of_others(waited, own.waited), shown)

    def shares_steps(self, own_s: float | None) -> bool:
        """True if a worker's steps are as long as those of the others, as they are in one job, or not known."""
        if own_s is None or len(self.step_s) < FEWEST:
            return True
        least_s, greatest_s = alike_s(median_of_others(self.step_s, own_s), self.step_spread_ratio)
        return least_s <= own_s <= greatest_s


def slice_work(known: Sequence[tuple[WorkSeen, WorkAndWaiting]]) -> SliceWork:
    steps = [(middle_s, memory) for _, memory in known if (middle_s := memory.step_s.median)]
    return SliceWork(
        waited=sorted(last.waited for last, _ in known),
        work_s=sorted(last.work_s for last, _ in known),
        step_s=sorted(middle_s for middle_s, _ in steps),
        last=sorted((last for last, _ in known), key=_STEP_S),
        shown=_medians([last.shown for last, _ in known]),
        noise=noise_of([memory.more for _, memory in known]),
        core_waited=min((memory.core_waited for _, memory in known if memory.core is not None), default=0.0),
        step_spread_ratio=median_low(memory.step_s.spread / middle_s for middle_s, memory in steps) if steps else 0.0,
    )


def beside_the_others(slices: Mapping[str, SliceWork], noise: Noise) -> Mapping[str, BesideOthers]:
    """Each slice beside the others, if their steps are as long as its own."""
    waited = sorted(median_of_ascending(one.waited) for one in slices.values())
    work_s = sorted(median_of_ascending(one.work_s) for one in slices.values())
    step_s = sorted(median_of_ascending(one.step_s) for one in slices.values() if one.step_s)
    shown = {
        figure: sorted(one.shown[figure] for one in slices.values() if figure in one.shown) for figure in _SHOW_WAITING
    }
    varies_ratio = median(one.step_spread_ratio for one in slices.values())
    beside = {}
    for name, one in slices.items():
        own_s = median_of_ascending(one.step_s) if one.step_s else None
        if own_s is not None and len(step_s) >= FEWEST:
            least_s, greatest_s = alike_s(median_of_others(step_s, own_s), varies_ratio)
            if not least_s <= own_s <= greatest_s:
                continue
        aside = (len(one.waited) - 1) // 4  # a quarter may stand out among its own
        beside[name] = BesideOthers(
            waited=one.waited[-1 - aside],
            work_s=one.work_s[aside],
            others_waited=median_of_others(waited, median_of_ascending(one.waited)),
            others_work_s=median_of_others(work_s, median_of_ascending(one.work_s)),
            noise=replace(noise, among=max(noise.among, one.noise.among), passing=_QUIET.passing),
            shown=one.shown,
            others_shown={
                figure: median_of_others(shares, one.shown[figure])
                for figure, shares in shown.items()
                if figure in one.shown and len(shares) >= FEWEST
            },
        )
    return beside


def noise_of(differences: Sequence[RecentDifference]) -> Noise:
    squares = sorted(one.noise**2 for one in differences if one.count > 1)
    if len(squares) > FEWEST:
        del squares[-1]  # one that was compared with others than usual tells nothing of the rest
    among = sorted(one.medians[0] for one in differences if one.medians)
    return Noise(
        among=spread(among) if len(among) >= _FEWEST_FOR_SPREAD else 0.0,
        # The lower of two: one that changes must not hide itself.
        of_samples=median_low(one.noise for one in differences) if differences else 0.0,
        of_all=math.sqrt(fmean(squares)) if squares else 0.0,
        passing=nlargest(4, (each for one in differences for each in one.passing)),
    )


def _medians(shown: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """Median of each figure over the workers that have it."""
    return {name: median(values) for name in _SHOW_WAITING if (values := [one[name] for one in shown if name in one])}
