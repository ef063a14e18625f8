"""hang: nothing runs any more, although the job lives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tpumon.findings.base import Account, Member, Peer, Rule, Seen, seconds_between
from tpumon.findings.recent import Recent, may_step_together
from tpumon.history import Moment
from tpumon.model import Evidence, Grade
from tpumon.model.frozen import frozen

_WARNING_S, _CRITICAL_S = 300.0, 600.0
_PAUSES = 2.0  # a pause that is this much longer than all before it is none of them
_FEW = 5


@dataclass(slots=True)
class _Memory:
    """When the worker last did something, for how many samples it does nothing, its longest pause so far, its steps."""

    active: Moment | None = None
    silent: int = 0
    silent_s: float = 0.0
    longest_s: float = 0.0
    step_s: Recent = field(default_factory=Recent)


@frozen(kw_only=False)
class _Slice:
    """Who has stopped, and who does not answer; by their step times, if these are known.

    Attributes:
        empty: workers that do nothing and have no work in their queue.
        waiting: step times of the others that do nothing, and have some.
        away: workers that do not answer.
    """

    empty: Mapping[str, float | None]
    waiting: Sequence[float | None]
    away: Mapping[str, float | None]

    def stopped_first(self, own_s: float | None) -> list[str]:
        """Of the workers that may step together with this one, those without work while others have some."""
        if not any(may_step_together(own_s, step_s) for step_s in self.waiting):
            return []
        return [worker for worker, step_s in self.empty.items() if may_step_together(own_s, step_s)]

    def missing(self, own_s: float | None) -> list[str]:
        """Of the workers that may step together with this one, those that do not answer."""
        return [worker for worker, step_s in self.away.items() if may_step_together(own_s, step_s)]


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
            memory.silent += 1
            if memory.active is not None:
                memory.silent_s = seconds_between(memory.active, seen.at)
        elif seen.state == "live" and not seen.sample.companions_only:
            if memory.silent:
                memory.longest_s = max(memory.longest_s, memory.silent_s)
            memory.active, memory.silent, memory.silent_s = seen.at, 0, 0.0
            if seen.step_s:
                memory.step_s.add(seen.step_s)

    def across(self, peers: Sequence[Peer[_Memory]]) -> _Slice:
        """Compares the queues of programs that wait for the devices."""
        stopped = [peer for peer in peers if peer.seen.state == "no-activity" and peer.memory.silent]
        sizes = [(peer, size) for peer in stopped if (size := _queue(peer.seen)) is not None]
        return _Slice(
            empty=_step_times_s(peer for peer, size in sizes if not size),
            waiting=[peer.memory.step_s.median for peer, size in sizes if size],
            away=_step_times_s(peer for peer in peers if peer.seen.state in {"down", "stale"}),
        )

    def strength(self, member: Member[_Memory, _Slice]) -> float | str:
        """Samples without activity in a row, relative to how many must agree; more for who stopped first."""
        if member.memory.active is None:
            return "it has run nothing yet"
        if not member.memory.silent:
            return 0.0
        strength = 2.0 * member.memory.silent / max(self.limits.sustained, 1) - 0.5
        is_first = member.seen.target.worker in member.across.empty and member.across.stopped_first(
            member.memory.step_s.median
        )
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
        if missing := member.across.missing(step_s):
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


def _step_times_s(peers: Iterable[Peer[_Memory]]) -> dict[str, float | None]:
    return {peer.seen.target.worker: peer.memory.step_s.median for peer in peers}


def _queue(seen: Seen) -> int | None:
    sizes = [device.runtime_hlo_queue_size for device in seen.figures.devices]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _named(workers: Sequence[str]) -> str:
    more = len(workers) - _FEW
    return ", ".join(workers[:_FEW]) + (f" and {more} more" if more > 0 else "")
