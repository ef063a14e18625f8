"""Finds the straggler among workers of several exporters: one that follows a single worker cannot compare it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple

from tpumon.figures import IDLE, STEP, values
from tpumon.findings import Account, Member, Seen, Straggler, Thresholds, group_of
from tpumon.findings.base import Peer
from tpumon.history import state_of
from tpumon.model import Cause, Figures, Sample, StepTimes, Target
from tpumon.prometheus import queries
from tpumon.prometheus.wire import Series
from tpumon.prometheus.workers import Key, Known, key_of

_LEAVES_AFTER = 2
_RECENT_POINTS = 10
MOST_DATED = 20
"""Of how many stragglers it is asked since when they are."""


class Compared(NamedTuple):
    """What a worker is compared by.

    Attributes:
        target: the worker.
        sample: a sample of it.
        time_unix_s: when that was taken, by the server's clock.
        collective_ratio: share of its time in collectives; None: not known.
    """

    target: Target
    sample: Sample
    time_unix_s: float
    collective_ratio: float | None


@dataclass(slots=True)
class _One:
    memory: Any
    taken_unix_s: float = -1.0
    below: int = 0
    is_judged: bool = False
    seen: Seen | None = None
    account: Account | None = None
    since_unix_s: float | None = None


@dataclass(slots=True)
class Stragglers:
    """Compares the workers of each slice with tpumon's own rule.

    Attributes:
        limits: limits that users can set.
    """

    limits: Thresholds
    _of: dict[Key, _One] = field(default_factory=dict)

    def judge(self, samples: Mapping[Key, Compared], time_unix_s: float) -> None:
        """Judges the samples that are new; the others are what their workers are compared with."""
        rule = Straggler(self.limits)
        self._of = {key: self._of.get(key) or _One(rule.memory()) for key in samples}
        seen: dict[Key, Seen] = {}
        new: set[Key] = set()
        for key, compared in samples.items():
            one = self._of[key]
            if one.seen is None or compared.time_unix_s > one.taken_unix_s:
                new.add(key)
                one.taken_unix_s = compared.time_unix_s
                sample = _comparable(compared.sample, compared.collective_ratio)
                one.seen = Seen(
                    target=compared.target, sample=sample, state=state_of(sample), values=values(sample.figures)
                )
                rule.take(one.memory, one.seen)
            elif one.seen.target != compared.target:
                one.seen = replace(one.seen, target=compared.target)
            seen[key] = one.seen
        if not new:
            return

        def job_of(key: Key) -> tuple[str, ...]:
            return group_of(seen[key].target)[::2]  # its slices are compared, too

        for _, group in groupby(sorted(seen, key=job_of), key=job_of):
            keys = list(group)
            across = rule.across([Peer(seen[key], self._of[key].memory) for key in keys])
            for key in keys:
                if key in new and rule.judges(seen[key].state):
                    self._note(rule, self._of[key], Member(seen[key], self._of[key].memory, across), time_unix_s)

    def _note(self, rule: Straggler, one: _One, member: Member[Any, Any], time_unix_s: float) -> None:
        strength = rule.strength(member)
        one.is_judged = not isinstance(strength, str)
        if isinstance(strength, str):
            return
        one.below = one.below + 1 if strength < rule.leaves_below else 0
        if strength > 1 or (one.account is not None and strength >= rule.leaves_below):
            one.account = rule.account(member)
            one.since_unix_s = one.since_unix_s or time_unix_s
        elif one.below >= _LEAVES_AFTER:
            one.account, one.since_unix_s = None, None

    def cause(self, key: Key, shift_s: float) -> Cause | None:
        """Why a worker is the straggler, its time by a clock that much ahead; None: it is not, or it is not known."""
        one = self._of.get(key)
        if one is None or one.account is None:
            return None
        account = one.account
        return Cause(
            words=account.words,
            finding="straggler",
            severity=account.severity,
            since_unix_s=None if one.since_unix_s is None else one.since_unix_s + shift_s,
            figure=account.figure,
        )

    def is_judged(self, key: Key) -> bool:
        """Whether there was enough to compare a worker."""
        one = self._of.get(key)
        return one is not None and one.is_judged

    def found(self) -> list[Key]:
        """The stragglers."""
        return [key for key, one in self._of.items() if one.account is not None]

    def date(self, since_unix_s: Mapping[Key, float]) -> None:
        """Takes since when they are."""
        for key, time_unix_s in since_unix_s.items():
            self._of[key].since_unix_s = time_unix_s


def _comparable(sample: Sample, collective_ratio: float | None) -> Sample:
    """The sample as the rule needs it: with the collectives, which say what a worker waits for the others."""
    if collective_ratio is None:
        return sample
    return replace(sample, figures=replace(sample.figures, op_time_ratios={"collective": collective_ratio}))


def before(series: Iterable[Series], known: Mapping[Key, Known], identity: Sequence[str]) -> list[dict[Key, Compared]]:
    """What was sampled before, one round after the other; what did not change in between is the same sample."""
    of_workers: dict[Key, dict[str, dict[float, float]]] = {}
    for labels, points in series:
        key = key_of(labels, identity)
        if key in known:
            of_workers.setdefault(key, {})[queries.name_of(labels)] = dict(points)
    rounds: dict[float, dict[Key, Compared]] = {}
    for key, its in of_workers.items():
        target, last = known[key].target, None
        idle, step, collective = (
            its.get(name, {}) for name in (str(IDLE.metric), str(STEP.metric), queries.COLLECTIVE)
        )
        for time_unix_s in sorted({*idle, *step, *collective}):
            numbers = idle.get(time_unix_s), step.get(time_unix_s), collective.get(time_unix_s)
            if last is None or last[0] != numbers:
                last = numbers, Compared(target, _past(target, time_unix_s, *numbers), time_unix_s, None)
            rounds.setdefault(time_unix_s, {})[key] = last[1]
    return [rounds[time_unix_s] for time_unix_s in sorted(rounds)]


def _past(
    target: Target, time_unix_s: float, idle_ratio: float | None, step_s: float | None, collective_ratio: float | None
) -> Sample:
    figures = Figures(
        idle_ratio=idle_ratio,
        step_time_s=None if step_s is None else StepTimes(avg=step_s, min=step_s, max=step_s),
        op_time_ratios=None if collective_ratio is None else {"collective": collective_ratio},
    )
    return Sample(
        worker=target.worker, address=target.address, time_unix_s=time_unix_s, window_s=None, took_s=0.0,
        source="prometheus", figures=figures,
    )  # fmt: skip


def waits_of(keys: Sequence[Key], identity: Sequence[str]) -> str:
    """Label matchers that pick these workers, and a few more if names clash."""
    parts = []
    for place, name in enumerate(identity):
        values = "|".join(sorted({re.escape(key[place]) for key in keys}))
        escaped = values.replace("\\", "\\\\").replace('"', '\\"')
        parts.append(f'{name}=~"{escaped}"')
    return ",".join(parts)


def since_of(
    series: Iterable[Series], keys: Iterable[Key], identity: Sequence[str], step_s: float, limits: Thresholds
) -> dict[Key, float]:
    """Since when each of these workers waits less than the others of its slice: up to now, without a pause.

    Args:
        series: how much less each one waited, over time.
        keys: the workers.
        identity: labels that tell them apart.
        step_s: time between two points.
        limits: how much less counts.
    """
    wanted = set(keys)
    since: dict[Key, float] = {}
    for one in series:
        key = key_of(one.labels, identity)
        if key not in wanted:
            continue
        smooth = [
            (at, median(value for _, value in one.points[max(place - 1, 0) : place + 2]))
            for place, (at, _) in enumerate(one.points)
        ]
        now = median(value for _, value in one.points[-_RECENT_POINTS:])
        limit = max(limits.idle_below_ratio, now / 2)
        later: float | None = None
        for time_unix_s, less in reversed(smooth):
            if less < limit or (later is not None and later - time_unix_s > 10 * step_s):
                break
            since[key] = later = time_unix_s
    return since
