"""straggler: the worker that the others of its slice wait for.

All workers of a slice step together, so their step times are equal. The one that they wait for is the one that waits
least itself: it has the least idle time and the least time in collectives, and so the most work of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low

from tpumon.figures import IDLE
from tpumon.findings.base import Account, Member, Peer, Rule, Seen, TooFew
from tpumon.findings.recent import SAMPLES, SIGMAS, Recent, alike_s, median_of_ascending, median_of_others, spread
from tpumon.model import Evidence
from tpumon.model.frozen import frozen

_FEWEST_FOR_SPREAD = 5
_MOST_FOR_SPREAD = 100
_CORE_LIMIT_RATIO = 0.03
_FEWEST = 2
_OTHER_STEPS = (
    "its steps are not as long as those of the other workers; if these are several jobs, give each a slice (--targets)"
)


@dataclass(slots=True)
class _Memory:
    """What is known of a worker.

    Attributes:
        waited, work_s: of its last sample: share of the time waited, and own work per step.
        step_s: step times of its last samples.
        less: how much less than the others it waited, in each of its last samples.
        more: how much more than the others it worked, as a fraction.
        core: chip and number of the core that waits least.
        core_less: how much less that core waited than the others of this worker, while it was the same.
    """

    waited: float | None = None
    work_s: float = 0.0
    step_s: Recent = field(default_factory=Recent)
    less: Recent = field(default_factory=Recent)
    more: Recent = field(default_factory=Recent)
    core: tuple[int, int] | None = None
    core_less: Recent = field(default_factory=Recent)


_REMEDY_OF_CORE = (
    "compare this chip's clock, temperature, errors and share of the work (sharding) with those of other chips; if it "
    "is always the same chip, replace the host"
)


@frozen(kw_only=False)
class _Slice:
    """Waiting, own work and step times of a slice's workers, ascending; how much work and steps vary, as fractions."""

    waited: list[float]
    work_s: list[float]
    step_s: list[float]
    spread_ratio: float
    step_spread_ratio: float

    def shares_steps(self, own_s: float | None) -> bool:
        """Whether a worker's steps are as long as those of the others, as they are in one job; true if not known."""
        if own_s is None or len(self.step_s) < _FEWEST:
            return True
        least_s, greatest_s = alike_s(median_of_others(self.step_s, own_s), self.step_spread_ratio)
        return least_s <= own_s <= greatest_s


class Straggler(Rule[_Memory, _Slice]):
    """Own work above the slice's median while the others wait more; or one such core of a worker."""

    finding = "straggler"
    remedy = (
        "compare this worker's input, host load, clock and temperature with another one's, and its share of the work "
        "(uneven batches, padding, checkpoints); if it stays slow, replace the host"
    )
    compares = True
    samples = 1  # medians of three
    leaves_below = 0.7

    def memory(self) -> _Memory:
        """Nothing is known yet."""
        return _Memory()

    def take(self, memory: _Memory, seen: Seen) -> None:
        """Remembers waiting and own work of the sample."""
        work_s = seen.own_work_s if seen.state == "live" else None
        memory.waited = None if work_s is None else seen.waited_ratio
        if work_s is None:
            return
        memory.work_s = work_s
        memory.step_s.add(seen.step_s or 0.0)
        cores = [
            (core.idle_ratio + (core.collective_ratio or 0.0), (core.chip or 0, core.core or 0))
            for core in seen.figures.per_core
            if core.idle_ratio is not None
        ]
        if len(cores) >= _FEWEST:
            least, place = min(cores)
            if place != memory.core:
                memory.core, memory.core_less = place, Recent()
            memory.core_less.add(median_of_others(sorted(waited for waited, _ in cores), least) - least)

    def across(self, peers: Sequence[Peer[_Memory]]) -> _Slice:
        """What the workers that are live waited and worked last."""
        known = [
            (peer.memory.waited, peer.memory)
            for peer in peers
            if peer.seen.state == "live" and peer.memory.waited is not None
        ]
        steps = [(middle_s, memory) for _, memory in known if (middle_s := memory.step_s.median)]
        among = sorted(one for _, memory in known if (one := memory.more.median) is not None)
        return _Slice(
            waited=sorted(waited for waited, _ in known),
            work_s=sorted(memory.work_s for _, memory in known),
            step_s=sorted(middle_s for middle_s, _ in steps),
            spread_ratio=max(
                spread(among) if len(among) >= _FEWEST_FOR_SPREAD else 0.0,
                # The lower of two: one that changes must not hide itself.
                median_low(memory.more.spread for _, memory in _some(known)) if known else 0.0,
            ),
            step_spread_ratio=median_low(memory.step_s.spread / middle_s for middle_s, memory in _some(steps))
            if steps
            else 0.0,
        )

    def strength(self, member: Member[_Memory, _Slice]) -> float | str:
        """More work and less waiting than the others, each relative to its limit: the lesser counts; or of a core."""
        memory, others = member.memory, member.across
        if memory.waited is None:
            return "step time or idle time is not known"
        of_core = memory.core_less.median
        if len(others.waited) < _FEWEST:
            return "no other worker of its slice has figures" if of_core is None else of_core / _CORE_LIMIT_RATIO
        if not others.shares_steps(memory.step_s.median):
            memory.more, memory.less = Recent(), Recent()
            return _OTHER_STEPS if of_core is None else of_core / _CORE_LIMIT_RATIO
        usual = median_of_others(others.work_s, memory.work_s)
        memory.more.add(memory.work_s / usual - 1 if usual else 0.0)
        memory.less.add(median_of_others(others.waited, memory.waited) - memory.waited)
        of_worker = self._of_worker(member)
        if of_worker is None and of_core is None:
            return TooFew(f"it takes {SAMPLES} samples")
        return max(of_worker or 0.0, (of_core or 0.0) / _CORE_LIMIT_RATIO)

    def _of_worker(self, member: Member[_Memory, _Slice]) -> float | None:
        more, less = member.memory.more.median, member.memory.less.median
        if more is None or less is None:
            return None
        return min(more / self._limit_ratio(member), less / max(self.limits.idle_below_ratio, 1e-9))

    def _limit_ratio(self, member: Member[_Memory, _Slice]) -> float:
        return max(self.limits.step_warn_ratio - 1, SIGMAS * member.across.spread_ratio, 1e-9)

    def account(self, member: Member[_Memory, _Slice]) -> Account:
        """Says who waits for whom, and by how much; the words begin with what is slow, because a list cuts them."""
        memory = member.memory
        less, (chip, core) = memory.core_less.median or 0.0, memory.core or (0, 0)
        of_core = (
            f"core {core} of chip {chip} is slow: it waits {100 * less:.0f} points less of the time than the others"
        )
        evidence = {"core_wait_below_ratio": Evidence(value=less, threshold=_CORE_LIMIT_RATIO)}
        has_slow_core = less > _CORE_LIMIT_RATIO
        if (self._of_worker(member) or 0.0) > self.leaves_below:
            whole = self._account_of_worker(member)
            if not has_slow_core:
                return whole
            sentence = f"{whole.sentence} Its {of_core}."
            return replace(whole, sentence=sentence, evidence={**whole.evidence, **evidence}, remedy=_REMEDY_OF_CORE)
        return Account(
            words=f"slow core {core} of chip {chip}: waits {100 * less:.0f} points less",
            sentence=f"{{who}}, {of_core}.",
            evidence=evidence,
            remedy=_REMEDY_OF_CORE,
            confidence="medium",
            figure=IDLE.key,
        )

    def _account_of_worker(self, member: Member[_Memory, _Slice]) -> Account:
        memory = member.memory
        waited, more = memory.waited or 0.0, memory.more.median or 0.0
        others = median_of_ascending(member.across.waited)
        evidence = {
            "wait_ratio": Evidence(value=waited, reference=others),
            "own_work_ratio": Evidence(value=1 + more, threshold=1 + self._limit_ratio(member), reference=1.0),
            "own_work_s": Evidence(value=memory.work_s, reference=median_of_ascending(member.across.work_s)),
        }
        return Account(
            words=f"own work +{more:.0%}, others wait for it",
            sentence=f"{{who}}, own work per step is {more:.0%} longer than the slice's median; the others wait for "
            f"it (it waits {waited:.0%} of the time, the median is {others:.0%}).",
            evidence=evidence,
            severity="critical" if 1 + more > self.limits.step_critical_ratio else "warning",
            confidence="high" if member.seen.figures.step_work_s is not None else "medium",
            figure=IDLE.key,
        )


def _some(known: Sequence[tuple[float, _Memory]]) -> Sequence[tuple[float, _Memory]]:
    """At most `_MOST_FOR_SPREAD` of the workers: the median of how much they vary hardly depends on the others."""
    return known[:: math.ceil(len(known) / _MOST_FOR_SPREAD)] if known else known
