"""straggler: the worker that the others of its slice wait for.

All workers of a slice step together, so their step times are equal. The worker that the others wait for waits least
itself: it has the least idle time and the least time in collectives, and so the most work of its own. Waiting for input
is no work: a worker without input has another finding. The same holds for the slices of one job.
"""

from __future__ import annotations

from collections.abc import Mapping, Reversible, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tpumon.analysis.findings.recent import (
    FEW,
    SAMPLES,
    SIGMAS,
    RecentDifference,
    RecentMedians,
    chance,
    median_of_others,
)
from tpumon.analysis.findings.rule import SERVERS, Member, NeedsFewMoreSamples, Observation, Rule, Sibling, graded
from tpumon.analysis.findings.rules.device.shares import op_time_ratio
from tpumon.analysis.findings.slice_work import (
    COLLECTIVES_SHARE,
    FEWEST,
    IDLE_SHARE,
    BesideOthers,
    Noise,
    SliceWork,
    WorkAndWaiting,
    WorkSeen,
    beside_the_others,
    noise_of,
    slice_work,
)
from tpumon.model import CoreFigures, Evidence, FindingDetail
from tpumon.model.figure_table import IDLE

_CORE_LIMIT_RATIO = 0.03
_STILL_RATIO = 0.5  # of the least difference that counts: what the last samples must show of it
_LABELS = {COLLECTIVES_SHARE: "collectives", IDLE_SHARE: "idle"}
_NO_OTHER = "no other worker of its slice has figures of the same steps"
_NO_CORES = "of a single core; the Monitor RPC tells of all cores together"
_ALONE = "nothing says which workers work together; give each tpumon --job and --slice"
_MOST_OPEN = 2 * FEW
_VARIES = (
    "a worker or a core differs from the others, but too few samples tell how much it varies by itself: it takes "
    "{takes} at most"
)
_OTHER_STEPS = (
    "its steps are not as long as those of the other workers; if these are several jobs, give each a job (--targets)"
)
_REMEDY_OF_CORE = (
    "compare this chip's clock, temperature, errors and share of the work (sharding) with those of other chips; if it "
    "is always the same chip, replace the host"
)
_REMEDY_OF_SLICE = (
    "compare this slice's input, hosts and chips with another one's, and its share of the work (batch, "
    "data that it reads, other jobs on its hosts); if it stays slow, replace the slice"
)


class _Excess(Struct, frozen=True):
    """A difference in own work, over as many samples as show it best.

    Attributes:
        severity_ratio: relative to the limit.
        more: more own work than the others, as a fraction.
        limit: beyond which it counts.
        is_open: whether it would count, but may be chance as long as so few samples tell what varies.
    """

    severity_ratio: float
    more: float
    limit: float
    is_open: bool = False


_Slices = Mapping[str, SliceWork]
_NOBODY = SliceWork([], [], [])


class Straggler(Rule[WorkAndWaiting, _Slices]):
    """Worker, core or slice with more own work than the median of its siblings, while its siblings wait more."""

    finding = "straggler"
    info_for = SERVERS
    of_device = True
    memory_type = WorkAndWaiting
    remedy = (
        "compare this worker's input, host load, clock and temperature with another one's, and its share of the work "
        "(uneven batches, padding, checkpoints); if it stays slow, replace the host"
    )
    severities = ("warning", "critical")
    compares = True
    compares_slices = True
    names_cause = True
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
        memory.last = WorkSeen(step_s, work_s, seen.waited_ratio or 0.0, _shown(seen))
        memory.step_s.add(step_s)
        cores = [
            (waited, (core.chip or 0, core.core or 0))
            for core in seen.figures.per_core
            if (waited := _waited_by(core)) is not None
        ]
        if len(cores) >= FEWEST:
            least, place = min(cores)
            if place != memory.core:
                memory.core, memory.core_less = place, RecentDifference()
            memory.core_waited = least
            memory.core_less.add(median_of_others(sorted(waited for waited, _ in cores), least) - least)

    def slice_stats(self, siblings: Sequence[Sibling[WorkAndWaiting]]) -> _Slices:
        """Last waiting and own work of the workers that are live, by slice."""
        by_slice: dict[str, list[tuple[WorkSeen, WorkAndWaiting]]] = {}
        for sibling in siblings:
            if sibling.seen.state == "live" and sibling.memory.last is not None:
                known = by_slice.setdefault(sibling.seen.target.slice or "", [])
                known.append((sibling.memory.last, sibling.memory))
        slices = {name: slice_work(known) for name, known in by_slice.items()}
        if len(slices) < FEWEST:
            return slices
        of_slices = [noise_of([memory.slice_more for _, memory in known]) for known in by_slice.values()]
        beside = beside_the_others(slices, min(of_slices, key=lambda noise: noise.of_samples))
        return {name: replace(one, beside=beside.get(name)) for name, one in slices.items()}

    def severity_ratio(self, member: Member[WorkAndWaiting, _Slices]) -> float | str:
        """More work and less waiting than the others, each relative to its limit: the lesser counts.

        The greatest of three: of the worker, of one of its cores, of its whole slice.
        """
        ratio = self._greatest(member)
        if isinstance(ratio, str):
            return ratio
        member.memory.was_found = ratio > (self.leaves_below if member.memory.was_found else 1)
        known = _of_core(member), self._of_worker(member), self._known_of_slice(member)
        is_open = any(one is not None and one.is_open and one.severity_ratio > 0 for one in known)
        return NeedsFewMoreSamples(_VARIES, takes=_MOST_OPEN) if is_open and not member.memory.was_found else ratio

    def judged_in_part(self, seen: Observation) -> str | None:
        """Says so where nothing tells its cores apart."""
        return _NO_CORES if seen.sample.source == "monitor" else None

    def _greatest(self, member: Member[WorkAndWaiting, _Slices]) -> float | str:
        memory, others, last = member.memory, _others(member), member.memory.last
        if last is None:
            return "step time or idle time is not known"
        of_core, of_slice = _of_core(member), self._of_slice(member)
        known = None if of_core is None else of_core.severity_ratio
        if of_slice is not None:
            known = max(of_slice.severity_ratio, known or 0.0)
        if len(others.waited) < FEWEST:
            if known is None and others.beside is not None:
                return NeedsFewMoreSamples(takes=SAMPLES)
            return (_ALONE if member.seen.target.independent else _NO_OTHER) if known is None else known
        usual = others.usual(last)
        if usual is not None:
            beside = BesideOthers(
                waited=last.waited,
                work_s=last.work_s,
                others_waited=usual.waited,
                others_work_s=usual.work_s,
                shown=last.shown,
                others_shown=usual.shown,
            )
            memory.compared.append(beside)
            memory.more.add(beside.more)
            memory.less.add(usual.waited - last.waited)
        elif not others.shares_steps(memory.step_s.median):  # otherwise what is known stands
            return _OTHER_STEPS if known is None else known
        of_worker = self._of_worker(member)
        if of_worker is None and (known is None or known <= 1):
            return NeedsFewMoreSamples(takes=SAMPLES)
        return max(0.0 if of_worker is None else of_worker.severity_ratio, known or 0.0)

    def _of_worker(self, member: Member[WorkAndWaiting, _Slices]) -> _Excess | None:
        return self._of(member, member.memory.more, member.memory.less, _others(member).noise)

    def _of_slice(self, member: Member[WorkAndWaiting, _Slices]) -> _Excess | None:
        """Excess of the worker's whole slice over the other slices; None: not known, or there is no other slice."""
        memory, beside = member.memory, _others(member).beside
        if beside is None:
            return None
        memory.slice_compared.append(beside)
        memory.slice_more.add(beside.more)
        memory.slice_less.add(beside.others_waited - beside.waited)
        return self._known_of_slice(member)

    def _known_of_slice(self, member: Member[WorkAndWaiting, _Slices]) -> _Excess | None:
        beside, memory = _others(member).beside, member.memory
        return None if beside is None else self._of(member, memory.slice_more, memory.slice_less, beside.noise)

    def _of(
        self, member: Member[WorkAndWaiting, _Slices], more: RecentDifference, less: RecentMedians, noise: Noise
    ) -> _Excess | None:
        """The difference over the fewest samples that show it, if three of the last four do; None: too few."""
        least = max(self.limits.step_warn_ratio - 1, SIGMAS * noise.among, 1e-9)
        waits = max(self.limits.idle_below_ratio, 1e-9)
        passing = noise.passing_of_others(more.passing)
        of_samples = noise.of_samples if more.count > FEW else noise.of_all
        by_chance = chance(max(of_samples, more.noise), more.count, passing)
        holds = (more.last if member.is_after_gap else more.lasting) / (least * _STILL_RATIO)
        excesses = [
            _Excess(min(own / max(least, most), waited / waits, holds), own, max(least, most))
            for own, waited, most in zip(more.medians, less.medians, by_chance, strict=False)
        ]
        if not excesses:
            return None
        is_open = more.count <= _MOST_OPEN and more.medians[-1] > least and less.medians[-1] > waits
        return replace(_telling(excesses), is_open=is_open)

    def detail(self, member: Member[WorkAndWaiting, _Slices]) -> FindingDetail:
        """Describes the slow worker and how much others wait; the words begin with what is slow, as lists cut them."""
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
                return replace(whole, sentence=whole.sentence + _open_core(chip, core)) if slow_core.is_open else whole
            return replace(
                whole,
                words=f"slow core {core} of chip {chip}: {whole.words}",
                sentence=f"{whole.sentence} Its {of_core}.",
                evidence={**whole.evidence, **evidence},
                remedy=_REMEDY_OF_CORE,
            )
        return FindingDetail(
            words=f"slow core {core} of chip {chip}: the others wait for it",
            sentence=f"{{who}}, {of_core}.",
            evidence=evidence,
            remedy=_REMEDY_OF_CORE,
            confidence="medium",
            figure=IDLE.key,
        )

    def _detail_of_slice(self, member: Member[WorkAndWaiting, _Slices], excess: _Excess) -> FindingDetail:
        beside, more = _showing(member.memory.slice_compared, excess), excess.more
        detail = FindingDetail(
            words=f"slow slice: own work +{more:.0%}{_or_more(member)}, other slices wait",
            sentence=f"{{who}}, slice {member.seen.target.slice} is slow: {_work(member)} {more:.0%} longer than "
            f"in the other slices of its job, which wait for it ({_told(beside, 'theirs')}).",
            remedy=_REMEDY_OF_SLICE,
        )
        return self._graded(detail, ("slice_work_ratio", "slice_work_s"), beside, excess, member)

    def _detail_of_worker(self, member: Member[WorkAndWaiting, _Slices], excess: _Excess) -> FindingDetail:
        beside, more = _showing(member.memory.compared, excess), excess.more
        detail = FindingDetail(
            words=f"own work +{more:.0%}{_or_more(member)}, others wait for it",
            sentence=f"{{who}}, {_work(member)} {more:.0%} longer than the slice's median; the others wait for "
            f"it ({_told(beside, 'the median')}).",
        )
        return self._graded(detail, ("own_work_ratio", "own_work_s"), beside, excess, member)

    def _graded(
        self,
        detail: FindingDetail,
        names: tuple[str, str],
        beside: BesideOthers,
        excess: _Excess,
        member: Member[WorkAndWaiting, _Slices],
    ) -> FindingDetail:
        ratio, least = 1 + excess.more, 1 + excess.limit
        severity, limit = graded(ratio, {"warning": least, "critical": self.limits.step_critical_ratio})
        (wait, own, others), (work_ratio, work_s) = beside.telling(), names
        return replace(
            detail,
            severity=severity,
            confidence="high" if member.seen.figures.step_work_s is not None else "medium",
            figure=IDLE.key,
            evidence={
                wait: Evidence(value=own, reference=others),
                work_ratio: Evidence(value=ratio, threshold=max(limit, least), reference=1.0),
                work_s: Evidence(value=beside.work_s, reference=beside.others_work_s),
            },
        )


_NO_DIFFERENCE = _Excess(0.0, 0.0, 0.0)


def _open_core(chip: int, core: int) -> str:
    return f" It may be its core {core} of chip {chip} alone: to tell that takes {_MOST_OPEN} samples at most."


def _of_core(member: Member[WorkAndWaiting, _Slices]) -> _Excess | None:
    """The difference of a worker's core that waits least, unless another core of the slice waits much less than it."""
    memory, others = member.memory, _others(member)
    less = memory.core_less
    limits = [max(_CORE_LIMIT_RATIO, most) for most in chance(less.noise, less.count)]
    cores = [_Excess(more / limit, more, limit) for more, limit in zip(less.medians, limits, strict=False)]
    if not cores:
        return None
    is_over = member.is_after_gap and less.last < _CORE_LIMIT_RATIO * _STILL_RATIO
    if is_over or memory.core_waited > others.core_waited + _CORE_LIMIT_RATIO / 2:
        return _NO_DIFFERENCE
    return replace(_telling(cores), is_open=less.count <= _MOST_OPEN and less.medians[-1] > _CORE_LIMIT_RATIO)


def _telling(excesses: Sequence[_Excess]) -> _Excess:
    """The first that is beyond its limit, and so the most recent; otherwise what is nearest to it."""
    return next((one for one in excesses if one.severity_ratio > 1), max(excesses, key=lambda one: one.severity_ratio))


def _waited_by(core: CoreFigures) -> float | None:
    """Share of the time that a core waits; None: not known."""
    if core.idle_ratio is None:
        return None
    return core.idle_ratio + (core.collective_ratio or 0.0) + (core.infeed_ratio or 0.0)


def _shown(seen: Observation) -> Mapping[str, float]:
    """Known figures that show how a worker waits, by name."""
    shares = {COLLECTIVES_SHARE: op_time_ratio(seen, "collective"), IDLE_SHARE: seen.figures.idle_ratio}
    return {name: share for name, share in shares.items() if share is not None}


def _work(member: Member[WorkAndWaiting, _Slices]) -> str:
    """Words for what is compared; without traces the others' waiting in collectives counts as their work."""
    if _holds_collectives(member):
        return "own work per step (time in collectives counts as work, as no trace tells it) is at least"
    return "own work per step is"


def _or_more(member: Member[WorkAndWaiting, _Slices]) -> str:
    return " or more" if _holds_collectives(member) else ""


def _holds_collectives(member: Member[WorkAndWaiting, _Slices]) -> bool:
    """True if the own work that is known holds time in collectives."""
    figures = member.seen.figures
    return figures.step_work_s is None and "collective" not in (figures.op_time_ratios or {})


def _told(beside: BesideOthers, others: str) -> str:
    """Words for the figure that shows the waiting: "collectives 16%, the median 39%"."""
    name, own, theirs = beside.telling()
    return f"{_LABELS[name]} {own:.0%}, {others} {theirs:.0%}"


def _showing(compared: Reversible[BesideOthers], excess: _Excess) -> BesideOthers:
    """The newest comparison that shows an excess: where that is over, the last sample does not."""
    shows = (one for one in reversed(compared) if one.more >= _STILL_RATIO * excess.more)
    return next(shows, BesideOthers())


def _others(member: Member[WorkAndWaiting, _Slices]) -> SliceWork:
    return member.slice_stats.get(member.seen.target.slice or "", _NOBODY)
