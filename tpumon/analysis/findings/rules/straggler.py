"""straggler: the worker that the others of its slice wait for.

All workers of a slice step together, so their step times are equal. The one that they wait for is the one that waits
least itself: it has the least idle time and the least time in collectives, and so the most work of its own. Waiting for
input is no work: a worker that starves has its own finding. The same holds of the slices of one job.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from operator import attrgetter
from statistics import fmean, median, median_low
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from tpumon.analysis.findings.recent import (
    FEW,
    SAMPLES,
    SIGMAS,
    Recent,
    RecentDifference,
    RecentMedians,
    alike_s,
    chance,
    median_of_ascending,
    median_of_others,
    spread,
)
from tpumon.analysis.findings.rule import SERVERS, Member, Observation, Peer, Rule, TooFew
from tpumon.analysis.findings.rules.device.shares import op_time_ratio
from tpumon.model import CoreFigures, Evidence, FindingDetail
from tpumon.model.figure_table import IDLE

_FEWEST_FOR_SPREAD = 5
_CORE_LIMIT_RATIO = 0.03
_FEWEST = 2
_STILL_RATIO = 0.5  # of the least difference that counts: what the last samples must show of it
_COLLECTIVE, _IDLE = "op_time_ratios.collective", "idle_ratio"
_LABELS = {_COLLECTIVE: "collectives", _IDLE: "idle"}
_STEP_S = attrgetter("step_s")
_NOTHING: Mapping[str, float] = MappingProxyType({})
_OTHER_STEPS = (
    "its steps are not as long as those of the other workers; if these are several jobs, give each a job (--targets)"
)


class _Seen(Struct, frozen=True):
    """What a sample shows of a worker.

    Attributes:
        step_s, work_s: a step, and the own work in it.
        waited: share of the time.
        shown: the figures that show the waiting.
    """

    step_s: float = 0.0
    work_s: float = 0.0
    waited: float = 0.0
    shown: Mapping[str, float] = _NOTHING


@dataclass(slots=True)
class WorkAndWaiting:
    """Waiting, own work and steps of a worker, and how they differ from those of others.

    Attributes:
        last: its last sample; None: that tells nothing.
        step_s: step times of its last samples.
        compared: what was compared last: a sample of it, and what is usual in the others.
        less: how much less than the others it waited.
        more: how much more than the others it worked, as a fraction.
        slice_less, slice_more: the same of its slice, compared with the other slices of its job.
        core: chip and number of the core that waits least.
        core_waited: how much that core waited in the last sample.
        core_less: how much less than the others of this worker, while it was the same.
    """

    last: _Seen | None = None
    step_s: Recent = field(default_factory=Recent)
    compared: tuple[_Seen, _Seen] = (_Seen(), _Seen())
    less: RecentMedians = field(default_factory=RecentMedians)
    more: RecentDifference = field(default_factory=RecentDifference)
    slice_less: RecentMedians = field(default_factory=RecentMedians)
    slice_more: RecentDifference = field(default_factory=RecentDifference)
    core: tuple[int, int] | None = None
    core_waited: float = 0.0
    core_less: RecentDifference = field(default_factory=RecentDifference)


_REMEDY_OF_CORE = (
    "compare this chip's clock, temperature, errors and share of the work (sharding) with those of other chips; if it "
    "is always the same chip, replace the host"
)


_REMEDY_OF_SLICE = (
    "compare this slice's input, hosts and chips with another one's, and its share of the work (batch, "
    "data that it reads, other jobs on its hosts); if it stays slow, replace the slice"
)


class _Noise(Struct, frozen=True):
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
        """The second greatest of others than the worker of which it is known: that one of them is mended is not it."""
        others = list(self.passing)
        for each in own:
            if each in others:
                others.remove(each)
        return others[1] if len(others) > 1 else 0.0


_QUIET = _Noise()


class _Found(Struct, frozen=True):
    """A difference in own work, over as many samples as show it best.

    Attributes:
        severity_ratio: relative to the limit.
        more: more own work than the others, as a fraction.
        limit: beyond which it counts.
    """

    severity_ratio: float
    more: float
    limit: float


class _Comparison(Struct, frozen=True):
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
    noise: _Noise = _QUIET
    shown: Mapping[str, float] = _NOTHING
    others_shown: Mapping[str, float] = _NOTHING

    def telling(self) -> tuple[str, float, float]:
        """The figure in which the others wait most: its name, its value here and there."""
        common = self.shown.keys() & self.others_shown.keys()
        name = max(sorted(common), key=lambda name: self.others_shown[name] - self.shown[name], default=_IDLE)
        return name, self.shown.get(name, 0.0), self.others_shown.get(name, 0.0)


class _SliceWork(Struct, frozen=True):
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
    last: Sequence[_Seen] = ()
    noise: _Noise = _QUIET
    step_spread_ratio: float = 0.0
    core_waited: float = 0.0
    shown: Mapping[str, float] = _NOTHING
    beside: _Comparison | None = None

    def usual(self, own: _Seen) -> _Seen | None:
        """What others show of steps as long as in this sample; other phases are other work. None: they show none."""
        least_s, greatest_s = alike_s(own.step_s, 0.0)
        first, end = bisect_left(self.last, least_s, key=_STEP_S), bisect_right(self.last, greatest_s, key=_STEP_S)
        if end - first < _FEWEST:
            return None
        waited, work_s, shown = self.waited, self.work_s, self.shown
        if end - first < len(self.last):
            alike = self.last[first:end]
            waited, work_s = sorted(each.waited for each in alike), sorted(each.work_s for each in alike)
            shown = _medians([each.shown for each in alike])
        return _Seen(own.step_s, median_of_others(work_s, own.work_s), median_of_others(waited, own.waited), shown)

    def shares_steps(self, own_s: float | None) -> bool:
        """True if a worker's steps are as long as those of the others, as they are in one job, or not known."""
        if own_s is None or len(self.step_s) < _FEWEST:
            return True
        least_s, greatest_s = alike_s(median_of_others(self.step_s, own_s), self.step_spread_ratio)
        return least_s <= own_s <= greatest_s


_Slices = Mapping[str, _SliceWork]
_NOBODY = _SliceWork([], [], [])


class Straggler(Rule[WorkAndWaiting, _Slices]):
    """Own work above the slice's median while the others wait more; or one such core of a worker, or a whole slice."""

    finding = "straggler"
    info_for = SERVERS
    memory_type = WorkAndWaiting
    remedy = (
        "compare this worker's input, host load, clock and temperature with another one's, and its share of the work "
        "(uneven batches, padding, checkpoints); if it stays slow, replace the host"
    )
    severities = ("warning", "critical")
    compares = True
    compares_slices = True
    samples = 1  # its numbers come from three and more
    shown_by = SAMPLES
    leaves_below = 0.7

    def remember(self, memory: WorkAndWaiting, seen: Observation) -> None:
        """Remembers waiting and own work of the sample."""
        work_s = seen.own_work_s if seen.state == "live" else None
        if work_s is None:
            memory.last = None
            return
        step_s = seen.step_s or 0.0
        memory.last = _Seen(step_s, work_s, seen.waited_ratio or 0.0, _shown(seen))
        memory.step_s.add(step_s)
        cores = [
            (waited, (core.chip or 0, core.core or 0))
            for core in seen.figures.per_core
            if (waited := _waited_by(core)) is not None
        ]
        if len(cores) >= _FEWEST:
            least, place = min(cores)
            if place != memory.core:
                memory.core, memory.core_less = place, RecentDifference()
            memory.core_waited = least
            memory.core_less.add(median_of_others(sorted(waited for waited, _ in cores), least) - least)

    def slice_stats(self, peers: Sequence[Peer[WorkAndWaiting]]) -> _Slices:
        """Last waiting and own work of the workers that are live, by slice."""
        by_slice: dict[str, list[tuple[_Seen, WorkAndWaiting]]] = {}
        for peer in peers:
            if peer.seen.state == "live" and peer.memory.last is not None:
                known = by_slice.setdefault(peer.seen.target.slice or "", [])
                known.append((peer.memory.last, peer.memory))
        slices = {name: _slice(known) for name, known in by_slice.items()}
        if len(slices) < _FEWEST:
            return slices
        of_slices = [_noise([memory.slice_more for _, memory in known]) for known in by_slice.values()]
        beside = _all_beside(slices, min(of_slices, key=lambda noise: noise.of_samples))
        return {name: replace(one, beside=beside.get(name)) for name, one in slices.items()}

    def severity_ratio(self, member: Member[WorkAndWaiting, _Slices]) -> float | str:
        """More work and less waiting than the others, each relative to its limit: the lesser counts.

        Of a core, or of the whole slice, if that is more.
        """
        memory, others, last = member.memory, _others(member), member.memory.last
        if last is None:
            return "step time or idle time is not known"
        of_core, of_slice = _of_core(member), self._of_slice(member)
        known = None if of_core is None else of_core.severity_ratio
        if of_slice is not None:
            known = max(of_slice.severity_ratio, known or 0.0)
        if len(others.waited) < _FEWEST:
            if known is None and others.beside is not None:
                return _too_few()
            return "no other worker of its slice has figures of the same steps" if known is None else known
        usual = others.usual(last)
        if usual is not None:
            memory.compared = last, usual
            memory.more.add(last.work_s / usual.work_s - 1 if usual.work_s else 0.0)
            memory.less.add(usual.waited - last.waited)
        elif not others.shares_steps(memory.step_s.median):  # otherwise what is known stands
            return _OTHER_STEPS if known is None else known
        of_worker = self._of_worker(member)
        if of_worker is None and (known is None or known <= 1):
            return _too_few()
        return max(0.0 if of_worker is None else of_worker.severity_ratio, known or 0.0)

    def _of_worker(self, member: Member[WorkAndWaiting, _Slices]) -> _Found | None:
        return self._of(member.memory.more, member.memory.less, _others(member).noise)

    def _of_slice(self, member: Member[WorkAndWaiting, _Slices]) -> _Found | None:
        """The difference of the worker's whole slice; None: not known, or there is no other slice."""
        memory, beside = member.memory, _others(member).beside
        if beside is None:
            return None
        memory.slice_more.add(beside.work_s / beside.others_work_s - 1 if beside.others_work_s else 0.0)
        memory.slice_less.add(beside.others_waited - beside.waited)
        return self._known_of_slice(member)

    def _known_of_slice(self, member: Member[WorkAndWaiting, _Slices]) -> _Found | None:
        beside, memory = _others(member).beside, member.memory
        return None if beside is None else self._of(memory.slice_more, memory.slice_less, beside.noise)

    def _of(self, more: RecentDifference, less: RecentMedians, noise: _Noise) -> _Found | None:
        """The difference over the fewest samples that show it, if three of the last four do; None: too few."""
        least = max(self.limits.step_warn_ratio - 1, SIGMAS * noise.among, 1e-9)
        waits = max(self.limits.idle_below_ratio, 1e-9)
        passing = noise.passing_of_others(more.passing)
        of_samples = noise.of_samples if more.count > FEW else noise.of_all
        by_chance = chance(max(of_samples, more.noise), more.count, passing)
        holds = more.lasting / (least * _STILL_RATIO)
        found = [
            _Found(min(own / max(least, most), waited / waits, holds), own, max(least, most))
            for own, waited, most in zip(more.medians, less.medians, by_chance, strict=False)
        ]
        return _telling(found) if found else None

    def detail(self, member: Member[WorkAndWaiting, _Slices]) -> FindingDetail:
        """Says who waits for whom, and by how much; the words begin with what is slow, because a list cuts them."""
        memory, slow_core = member.memory, _of_core(member) or _NO_DIFFERENCE
        less, (chip, core) = slow_core.more, memory.core or (0, 0)
        of_core = (
            f"core {core} of chip {chip} is slow: idle, collectives and infeed take {100 * less:.0f} points less of "
            "its time than of the others'"
        )
        evidence = {"core_wait_below_ratio": Evidence(value=less, threshold=slow_core.limit)}
        of_worker = self._of_worker(member) or _NO_DIFFERENCE
        of_slice = self._known_of_slice(member) or _NO_DIFFERENCE
        if of_slice.severity_ratio > max(self.leaves_below, of_worker.severity_ratio, slow_core.severity_ratio):
            return self._detail_of_slice(member, of_slice)
        if of_worker.severity_ratio > self.leaves_below:
            whole = self._detail_of_worker(member, of_worker)
            if slow_core.severity_ratio <= 1:
                return whole
            sentence = f"{whole.sentence} Its {of_core}."
            return replace(whole, sentence=sentence, evidence={**whole.evidence, **evidence}, remedy=_REMEDY_OF_CORE)
        return FindingDetail(
            words=f"slow core {core} of chip {chip}: the others wait for it",
            sentence=f"{{who}}, {of_core}.",
            evidence=evidence,
            remedy=_REMEDY_OF_CORE,
            confidence="medium",
            figure=IDLE.key,
        )

    def _detail_of_slice(self, member: Member[WorkAndWaiting, _Slices], found: _Found) -> FindingDetail:
        beside, more = _others(member).beside or _Comparison(), found.more
        detail = FindingDetail(
            words=f"slow slice: own work +{more:.0%}, other slices wait",
            sentence=f"{{who}}, slice {member.seen.target.slice} is slow: own work per step is {more:.0%} longer than "
            f"in the other slices of its job, which wait for it ({_told(beside, 'theirs')}).",
            evidence=_evidence(("slice_work_ratio", "slice_work_s"), beside, found),
            remedy=_REMEDY_OF_SLICE,
        )
        return self._graded(detail, more, member)

    def _detail_of_worker(self, member: Member[WorkAndWaiting, _Slices], found: _Found) -> FindingDetail:
        more, (last, usual) = found.more, member.memory.compared
        beside = _Comparison(
            waited=last.waited,
            work_s=last.work_s,
            others_waited=usual.waited,
            others_work_s=usual.work_s,
            shown=last.shown,
            others_shown=usual.shown,
        )
        detail = FindingDetail(
            words=f"own work +{more:.0%}, others wait for it",
            sentence=f"{{who}}, own work per step is {more:.0%} longer than the slice's median; the others wait for "
            f"it ({_told(beside, 'the median')}).",
            evidence=_evidence(("own_work_ratio", "own_work_s"), beside, found),
        )
        return self._graded(detail, more, member)

    def _graded(self, detail: FindingDetail, more: float, member: Member[WorkAndWaiting, _Slices]) -> FindingDetail:
        return replace(
            detail,
            severity="critical" if 1 + more > self.limits.step_critical_ratio else "warning",
            confidence="high" if member.seen.figures.step_work_s is not None else "medium",
            figure=IDLE.key,
        )


_NO_DIFFERENCE = _Found(0.0, 0.0, 0.0)


def _evidence(names: tuple[str, str], beside: _Comparison, found: _Found) -> Mapping[str, Evidence]:
    (wait, own, others), (work_ratio, work_s) = beside.telling(), names
    return {
        wait: Evidence(value=own, reference=others),
        work_ratio: Evidence(value=1 + found.more, threshold=1 + found.limit, reference=1.0),
        work_s: Evidence(value=beside.work_s, reference=beside.others_work_s),
    }


def _of_core(member: Member[WorkAndWaiting, _Slices]) -> _Found | None:
    """The difference of a worker's core that waits least, unless another core of the slice waits much less than it."""
    memory, others = member.memory, _others(member)
    less = memory.core_less
    limits = [max(_CORE_LIMIT_RATIO, most) for most in chance(less.noise, less.count)]
    found = [_Found(more / limit, more, limit) for more, limit in zip(less.medians, limits, strict=False)]
    if not found:
        return None
    return _NO_DIFFERENCE if memory.core_waited > others.core_waited + _CORE_LIMIT_RATIO / 2 else _telling(found)


def _telling(found: Sequence[_Found]) -> _Found:
    """The first that is beyond its limit, and so the most recent; otherwise what is nearest to it."""
    return next((one for one in found if one.severity_ratio > 1), max(found, key=lambda one: one.severity_ratio))


def _noise(differences: Sequence[RecentDifference]) -> _Noise:
    squares = sorted(one.noise**2 for one in differences if one.count > 1)
    if len(squares) > _FEWEST:
        del squares[-1]  # one that was compared with others than usual tells nothing of the rest
    among = sorted(one.medians[0] for one in differences if one.medians)
    return _Noise(
        among=spread(among) if len(among) >= _FEWEST_FOR_SPREAD else 0.0,
        # The lower of two: one that changes must not hide itself.
        of_samples=median_low(one.noise for one in differences) if differences else 0.0,
        of_all=math.sqrt(fmean(squares)) if squares else 0.0,
        passing=nlargest(4, (each for one in differences for each in one.passing)),
    )


def _waited_by(core: CoreFigures) -> float | None:
    """Share of the time that a core waits; None: not known."""
    if core.idle_ratio is None:
        return None
    return core.idle_ratio + (core.collective_ratio or 0.0) + (core.infeed_ratio or 0.0)


def _shown(seen: Observation) -> Mapping[str, float]:
    """The figures that show how a worker waits, by name; only those that are known."""
    shares = {_COLLECTIVE: op_time_ratio(seen, "collective"), _IDLE: seen.figures.idle_ratio}
    return {name: share for name, share in shares.items() if share is not None}


def _medians(shown: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """The medians of figures, of those that have them."""
    return {name: median(values) for name in _LABELS if (values := [one[name] for one in shown if name in one])}


def _told(beside: _Comparison, others: str) -> str:
    """Words for the figure that shows who waits: "collectives 16%, the median 39%"."""
    name, own, theirs = beside.telling()
    return f"{_LABELS[name]} {own:.0%}, {others} {theirs:.0%}"


def _others(member: Member[WorkAndWaiting, _Slices]) -> _SliceWork:
    return member.slice_stats.get(member.seen.target.slice or "", _NOBODY)


def _too_few() -> TooFew:
    return TooFew(f"it takes {SAMPLES} samples")


def _slice(known: Sequence[tuple[_Seen, WorkAndWaiting]]) -> _SliceWork:
    steps = [(middle_s, memory) for _, memory in known if (middle_s := memory.step_s.median)]
    return _SliceWork(
        waited=sorted(last.waited for last, _ in known),
        work_s=sorted(last.work_s for last, _ in known),
        step_s=sorted(middle_s for middle_s, _ in steps),
        last=sorted((last for last, _ in known), key=_STEP_S),
        shown=_medians([last.shown for last, _ in known]),
        noise=_noise([memory.more for _, memory in known]),
        core_waited=min((memory.core_waited for _, memory in known if memory.core is not None), default=0.0),
        step_spread_ratio=median_low(memory.step_s.spread / middle_s for middle_s, memory in steps) if steps else 0.0,
    )


def _all_beside(slices: _Slices, noise: _Noise) -> Mapping[str, _Comparison]:
    """Each slice beside the others, if their steps are as long as its own."""
    waited = sorted(median_of_ascending(one.waited) for one in slices.values())
    work_s = sorted(median_of_ascending(one.work_s) for one in slices.values())
    step_s = sorted(median_of_ascending(one.step_s) for one in slices.values() if one.step_s)
    shown = {figure: sorted(one.shown[figure] for one in slices.values() if figure in one.shown) for figure in _LABELS}
    varies_ratio = median(one.step_spread_ratio for one in slices.values())
    beside = {}
    for name, one in slices.items():
        own_s = median_of_ascending(one.step_s) if one.step_s else None
        if own_s is not None and len(step_s) >= _FEWEST:
            least_s, greatest_s = alike_s(median_of_others(step_s, own_s), varies_ratio)
            if not least_s <= own_s <= greatest_s:
                continue
        aside = (len(one.waited) - 1) // 4  # a quarter may stand out among its own
        beside[name] = _Comparison(
            waited=one.waited[-1 - aside],
            work_s=one.work_s[aside],
            others_waited=median_of_others(waited, median_of_ascending(one.waited)),
            others_work_s=median_of_others(work_s, median_of_ascending(one.work_s)),
            noise=replace(noise, among=max(noise.among, one.noise.among), passing=_QUIET.passing),
            shown=one.shown,
            others_shown={
                figure: median_of_others(shares, one.shown[figure])
                for figure, shares in shown.items()
                if figure in one.shown and len(shares) >= _FEWEST
            },
        )
    return beside
