"""hang: nothing runs any more, although the job lives."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median_low

from msgspec import Struct
from msgspec.structs import replace

from tpumon.analysis.findings.base import Account, Member, Peer, Rule, Seen, seconds_between
from tpumon.analysis.findings.recent import Recent, alike_s
from tpumon.analysis.history import Moment
from tpumon.model import Evidence, Grade, KeptActivity, KeptWorker

_WARNING_S, _CRITICAL_S = 300.0, 600.0
_PAUSES = 2.0  # a pause that is this much longer than all before it is none of them
_FEW = 5
_SAME_S = 2.0


@dataclass(slots=True)
class _Memory:
    """When the worker last did something, for how many samples it does nothing, its longest pause so far, its steps."""

    active: Moment | None = None
    silent: int = 0
    silent_s: float = 0.0
    longest_s: float = 0.0
    step_s: Recent = field(default_factory=Recent)


class _Some:
    """Some workers of a slice by their step times.

    Args:
        peers: the workers.
        varies_ratio: how much step times of the slice vary from sample to sample.
    """

    def __init__(self, peers: Iterable[Peer[_Memory]], varies_ratio: float) -> None:
        self._varies_ratio = varies_ratio
        steps = [(peer.seen.target.worker, peer.memory.step_s.median) for peer in peers]
        self._all = tuple(worker for worker, _ in steps)
        self._places = {worker: place for place, worker in enumerate(self._all)}
        self._unknown = tuple(worker for worker, step_s in steps if not step_s)
        known = sorted((step_s, worker) for worker, step_s in steps if step_s)
        self._step_s = [step_s for step_s, _ in known]
        self._known = [worker for _, worker in known]
        self._beside: dict[tuple[int, int], tuple[str, ...]] = {}

    def __contains__(self, worker: str) -> bool:
        return worker in self._places

    def beside(self, own_s: float | None) -> tuple[str, ...]:
        """Those that may step together with a worker of this step time, also because that is not known."""
        if not own_s:
            return self._all
        least_s, greatest_s = alike_s(own_s, self._varies_ratio)
        between = bisect_left(self._step_s, least_s), bisect_right(self._step_s, greatest_s)
        if between not in self._beside:  # the same for nearly all who ask
            workers = (*self._known[slice(*between)], *self._unknown)
            self._beside[between] = tuple(sorted(workers, key=self._places.__getitem__))
        return self._beside[between]


class _Slice(Struct, frozen=True):
    """Who has stopped, and who does not answer.

    Attributes:
        empty: workers that do nothing and have no work in their queue.
        waiting: the others that do nothing, and have some.
        away: workers that do not answer.
    """

    empty: _Some
    waiting: _Some
    away: _Some

    def stopped_first(self, own_s: float | None) -> tuple[str, ...]:
        """Of the workers that may step together with this one, those without work while others have some."""
        return self.empty.beside(own_s) if self.waiting.beside(own_s) else ()


class Hang(Rule[_Memory, _Slice]):
    """No step and no op for several samples in a row, after the job had run steps.

    A checkpoint, an evaluation on the host and a compilation look the same for a while. So the first minutes are
    `info`; a pause twice as long as any that ended by itself is a warning after 5 minutes, critical after 10.
    """

    finding = "hang"
    remedy = (
        "look at the log of the worker named here, or of all; print every thread's stack (py-spy dump, faulthandler) "
        "before you restart the job; if one worker stopped first, replace its host if it happens again"
    )
    severities = ("info", "warning", "critical")
    compares = True
    states = frozenset({"no-activity"})
    samples = 1
    hidden_by = frozenset()

    def memory(self) -> _Memory:
        """It has not run anything yet."""
        return _Memory()

    def take(self, memory: _Memory, seen: Seen) -> None:
        """Counts samples without activity in a row."""
        if seen.state == "no-activity":
            memory.active = memory.active or _last_activity(seen)
            memory.silent += 1
            if memory.active is not None:
                memory.silent_s = seconds_between(memory.active, seen.at)
        elif seen.state == "live" and not seen.sample.companions_only:
            if memory.silent:
                memory.longest_s = max(memory.longest_s, memory.silent_s)
            memory.active, memory.silent, memory.silent_s = seen.at, 0, 0.0
            if seen.step_s:
                memory.step_s.add(seen.step_s)

    def resume(self, memory: _Memory, kept: KeptWorker) -> None:
        """Takes when it last did something, and its longest pause."""
        activity = kept.activity
        if activity.active_unix_s is not None:
            memory.active = Moment(activity.active_unix_s)
            memory.silent, memory.longest_s = activity.silent, activity.longest_s

    def kept(self, memory: _Memory, kept: KeptWorker, unix_s: Callable[[Moment], float]) -> KeptWorker:
        """Adds when it last did something, and its longest pause."""
        active = None if memory.active is None else unix_s(memory.active)
        activity = KeptActivity(active_unix_s=active, silent=memory.silent, longest_s=memory.longest_s)
        return replace(kept, activity=activity)

    def across(self, peers: Sequence[Peer[_Memory]]) -> _Slice:
        """Compares the queues of programs that wait for the devices."""
        stopped = [peer for peer in peers if peer.seen.state == "no-activity" and peer.memory.silent]
        sizes = [(peer, size) for peer in stopped if (size := _queue(peer.seen)) is not None]
        away = [peer for peer in peers if peer.seen.state in {"down", "stale"}]
        steps = [peer.memory.step_s for peer in peers] if stopped or away else []
        varies = [step_s.spread / step_s.median for step_s in steps if step_s.median]
        some = partial(_Some, varies_ratio=median_low(varies) if varies else 0.0)
        return _Slice(
            empty=some(peer for peer, size in sizes if not size),
            waiting=some(peer for peer, size in sizes if size),
            away=some(away),
        )

    def strength(self, member: Member[_Memory, _Slice]) -> float | str:
        """Samples without activity in a row, relative to how many must agree; more for who stopped first."""
        if member.memory.active is None:
            return "it has run nothing yet, or is silent since before tpumon: older than tpumon"
        if not member.memory.silent:
            return 0.0
        strength = 2.0 * member.memory.silent / max(self.limits.sustained, 1) - 0.5
        own_s, across = member.memory.step_s.median, member.across
        is_first = member.seen.target.worker in across.empty and across.waiting.beside(own_s)
        return strength + 1 if strength > 1 and is_first else strength

    def account(self, member: Member[_Memory, _Slice]) -> Account:
        """Names who stopped first or does not answer, where that is known."""
        memory = member.memory
        usual_s = _PAUSES * memory.longest_s
        grade: Grade = "info"
        if memory.silent_s > max(_WARNING_S, usual_s):
            grade = "critical" if memory.silent_s > max(_CRITICAL_S, usual_s) else "warning"
        evidence = {
            "no_activity_s": Evidence(
                value=memory.silent_s, threshold=max(_WARNING_S, usual_s), reference=memory.longest_s or None
            )
        }
        sentence = f"{{who}}, no step and no op has run for {memory.silent_s:.0f} s."
        words = f"nothing runs for {memory.silent_s:.0f} s"
        size = _queue(member.seen)
        if size is not None:
            evidence["queue_size"] = Evidence(value=size)
        step_s = memory.step_s.median
        if missing := member.across.away.beside(step_s):
            grade = "info"
            sentence += f" These do not answer, and the others may wait for them: {_named(missing)}."
        elif first := member.across.stopped_first(step_s):
            sentence += f" Stopped first: {_named(first)}, which has no work in its queue while others have."
            if member.seen.target.worker in first:
                words += ", stopped first"
        elif grade == "info":
            sentence += " A checkpoint or a compilation looks the same."
        return Account(
            words=words,
            sentence=sentence,
            evidence=evidence,
            severity=grade,
            confidence="low" if grade == "info" else "high",
        )


def _last_activity(seen: Seen) -> Moment | None:
    """When its devices last ran something, as the runtime says; None: never since it started, or it does not say."""
    idle_s = [device.runtime_tensorcore_idle_s for device in seen.figures.devices]
    known = [each for each in idle_s if each is not None]
    uptime_s = seen.figures.runtime.uptime_s
    if not known or uptime_s is None or min(known) >= uptime_s - _SAME_S:
        return None
    at, silent_s = seen.at, min(known)
    return Moment(at.time_unix_s - silent_s, None if at.monotonic_s is None else at.monotonic_s - silent_s)


def _queue(seen: Seen) -> int | None:
    sizes = [device.runtime_hlo_queue_size for device in seen.figures.devices]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _named(workers: Sequence[str]) -> str:
    more = len(workers) - _FEW
    return ", ".join(workers[:_FEW]) + (f" and {more} more" if more > 0 else "")
