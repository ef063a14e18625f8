"""hang: nothing runs any more, although the job lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpumon.findings.base import Account, Member, Peer, Rule, Seen, seconds_between
from tpumon.history import Moment
from tpumon.model import Evidence, Grade

_WARNING_S, _CRITICAL_S = 300.0, 600.0
_PAUSES = 2.0  # a pause that is this much longer than all before it is none of them
_FEW = 5


@dataclass(slots=True)
class _Memory:
    """When the worker last did something, for how many samples it does nothing, and its longest pause so far."""

    active: Moment | None = None
    silent: int = 0
    silent_s: float = 0.0
    longest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Slice:
    """Who stopped first, and who does not answer.

    Attributes:
        first: workers that do nothing and have no work in their queue while others have.
        away: workers that do not answer.
    """

    first: tuple[str, ...]
    away: tuple[str, ...]


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

    def across(self, peers: Sequence[Peer[_Memory]]) -> _Slice:
        """Compares the queues of programs that wait for the devices."""
        stopped = [peer.seen for peer in peers if peer.seen.state == "no-activity" and peer.memory.silent]
        queues = {seen.target.worker: size for seen in stopped if (size := _queue(seen)) is not None}
        empty = tuple(worker for worker, size in queues.items() if size == 0)
        return _Slice(
            first=empty if 0 < len(empty) < len(queues) else (),
            away=tuple(peer.seen.target.worker for peer in peers if peer.seen.state in {"down", "stale"}),
        )

    def strength(self, member: Member[_Memory, _Slice]) -> float | str:
        """Samples without activity in a row, relative to how many must agree; more for who stopped first."""
        if member.memory.active is None:
            return "it has run nothing yet"
        if not member.memory.silent:
            return 0.0
        strength = 2.0 * member.memory.silent / max(self.limits.sustained, 1) - 0.5
        return strength + 1 if strength > 1 and member.seen.target.worker in member.across.first else strength

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
        if member.across.away:
            grade = "info"
            sentence += f" These do not answer, and the others may wait for them: {_named(member.across.away)}."
        elif member.across.first:
            sentence += (
                f" Stopped first: {_named(member.across.first)}, which has no work in its queue while others have."
            )
            if member.seen.target.worker in member.across.first:
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


def _queue(seen: Seen) -> int | None:
    sizes = [device.runtime_hlo_queue_size for device in seen.figures.devices]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _named(workers: Sequence[str]) -> str:
    more = len(workers) - _FEW
    return ", ".join(workers[:_FEW]) + (f" and {more} more" if more > 0 else "")
