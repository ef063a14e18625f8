"""The time at which a worker entered its present status; gaps that say nothing about it do not count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Self, get_args

from tpumon.model import ChangeKind, Sample, Severity, State, Status

_CAPTURES = {"busy", "continuous"}
_NOT_WELL = {"down", "no-activity"}
WELL: frozenset[Status] = frozenset({"ok", "info"})
"""Severities of a worker that is well: from one to the other is no change."""
SEVERITIES: frozenset[Status] = frozenset(get_args(Severity))
"""What a worker counts as while it is live."""


def change_between(before: Status | None, now: Status | None) -> ChangeKind | None:
    """Kind of change from one status of a worker to the next; None: no change.

    A worker that is well from the first is no change.

    Args:
        before: its severity while it was live, otherwise its state; None: nothing was noted yet.
        now: the present one.
    """
    if now == before or (now in WELL and (before is None or before in WELL)):
        return None
    if (now in _CAPTURES) != (before in _CAPTURES):
        return "capture-began" if now in _CAPTURES else "capture-ended"
    return "severity" if before in SEVERITIES and now in SEVERITIES else "state"


GAPS = frozenset({*_CAPTURES, "paused", "stale"})
"""States that say nothing about a worker."""
_SET_S = 1.0  # by less, the clocks differ all the time


_SOON_S = 2.0  # a refused connection takes less


class Moment(NamedTuple):
    """A time by the wall clock as it was set then, and by the monotonic clock if that is known."""

    time_unix_s: float
    monotonic_s: float | None = None

    @classmethod
    def of(cls, sample: Sample) -> Self:
        """Begin of a sample."""
        return cls(sample.time_unix_s, sample.taken_monotonic_s)

    @classmethod
    def shown_by(cls, sample: Sample) -> Moment:
        """Begin of what a sample shows; where a long query ended with its connection, it was there until then."""
        failure, begin = sample.failure, cls.of(sample)
        is_cut = failure is not None and failure.reason == "unavailable" and sample.took_s > _SOON_S
        return begin.earlier(-sample.took_s) if is_cut else begin

    def earlier(self, by_s: float) -> Moment:
        """The moment so many seconds before this one."""
        return Moment(self.time_unix_s - by_s, None if self.monotonic_s is None else self.monotonic_s - by_s)

    def unix_s(self, now_unix_s: float, now_monotonic_s: float) -> float:
        """The moment by the wall clock as it is set now."""
        return self.time_unix_s if self.monotonic_s is None else now_unix_s - (now_monotonic_s - self.monotonic_s)

    def as_of(self, later: Moment) -> Moment:
        """The moment by the wall clock as it is set at a later one; itself, unless the clock was set between them."""
        if later.monotonic_s is None:
            return self
        time_unix_s = self.unix_s(later.time_unix_s, later.monotonic_s)
        return self if abs(time_unix_s - self.time_unix_s) < _SET_S else Moment(time_unix_s, self.monotonic_s)


def seconds_between(begin: Moment, end: Moment) -> float:
    """Seconds from one moment to another, by the monotonic clock where both have it; at least 0."""
    if begin.monotonic_s is not None and end.monotonic_s is not None:
        return max(end.monotonic_s - begin.monotonic_s, 0.0)
    return max(end.time_unix_s - begin.time_unix_s, 0.0)


_RECENT_S, _RECENT_INTERVALS = 600.0, 10
_INTERVALS, _LEAST_S, _TIMES, _LONGEST_S = 1.5, 10.0, 2.0, 60.0
_AT_ONCE = frozenset({"critical", "down", *GAPS})


@dataclass(slots=True)
class ReportedStatus:
    """The status that changes of a worker have told.

    What it counted as a short time ago, and counts as again, is told once that lasts: for longer than a few samples,
    and than it did before, but for a minute at most. So what comes and goes is told once, and once when it ends.
    What is new, and what is critical, is told at once; so is all that follows a gap, and the first answer after an
    outage: another outage is another one.

    Attributes:
        status: as told last; None: nothing was noted yet.
        now, since: what it counts as, and since when; of one that is well, `ok`.
        counted: when it last counted as what.
        is_again: whether it counted as that a short time ago.
        waits: whether `now` is told only once it lasts.
        lasted_s: for how long it lately counted as what; as `ok` between others.
    """

    status: Status | None = None
    now: Status | None = None
    since: Moment = field(default_factory=lambda: Moment(0.0))
    counted: dict[Status, Moment] = field(default_factory=dict)
    is_again: bool = False
    waits: bool = False
    lasted_s: dict[Status, float] = field(default_factory=dict)

    def note(self, at: Moment, status: Status, interval_s: float) -> Moment | None:
        """Notes what the worker counts as at a moment; returns since when, if that is to be told now."""
        kind: Status = "ok" if status in WELL else status
        if kind != self.now:
            self._begin(at, kind, interval_s)
        self.counted[kind] = at
        if kind == ("ok" if self.status is None or self.status in WELL else self.status):
            self.status = status
            return None
        if self.waits and seconds_between(self.since, at) < self._least_s(kind, interval_s):
            return None
        self.status, self.waits = status, False
        return self.since

    def _begin(self, at: Moment, kind: Status, interval_s: float) -> None:
        if self.now is not None and (self.is_again or self.now != "ok"):
            self.lasted_s[self.now] = max(self.lasted_s.get(self.now, 0.0), seconds_between(self.since, at))
        is_first_return = self.now == "down" and not self.is_again
        last, recent_s = self.counted.get(kind), max(_RECENT_S, _RECENT_INTERVALS * interval_s)
        self.now, self.since, self.is_again = kind, at, last is not None and seconds_between(last, at) <= recent_s
        if not self.is_again:
            self.lasted_s.pop(kind, None)
        at_once = is_first_return or kind in _AT_ONCE or self.status in GAPS
        self.waits = self.is_again and not at_once

    def _least_s(self, kind: Status, interval_s: float) -> float:
        return min(max(_INTERVALS * interval_s, _LEAST_S, _TIMES * self.lasted_s.get(kind, 0.0)), _LONGEST_S)


@dataclass(slots=True)
class StatusTimeline:
    """Status of a worker, and since when.

    Attributes:
        state, severity: as noted last; None: nothing was noted yet.
        status_since: since when it counts as that.
        ok: whether it was well when last judged by its figures; None: not known.
        ok_since: since when it is well, or since when it is not.
        critical_since: since when it is critical; None: it is not.
        before_gap: what it counted as before a gap that says nothing about it, and since when; None: there is no gap.
    """

    state: State | None = None
    severity: Severity = "unknown"
    status_since: Moment | None = None
    ok: bool | None = None
    ok_since: Moment | None = None
    critical_since: Moment | None = None
    before_gap: tuple[Status | None, Moment | None] | None = None

    @property
    def status(self) -> Status | None:
        """Severity of a live worker, otherwise the state; None: nothing was noted yet."""
        return self.severity if self.state == "live" else self.state

    @property
    def since(self) -> Moment | None:
        """Begin of being well or in trouble if it is judged by its figures; otherwise begin of its state.

        Another session, a pause or a late sample says nothing about a worker, and restarts nothing. Trouble also
        outlasts a time without an answer or activity, being well does not; a restart of the job ends both.
        """
        judged = self.state == "live" and self.severity != "unknown"
        return self.ok_since if judged else self.status_since

    def note(
        self, at: Moment, state: State, severity: Severity, *, began: Moment | None = None, restarted: bool = False
    ) -> ChangeKind | None:
        """Notes what the worker counts as at a moment; returns what changed, None for nothing.

        Args:
            at: the moment.
            state: of the worker then.
            severity: of the worker then.
            began: when its trouble began, by its findings; None: then.
            restarted: whether its job was restarted before it.
        """
        before = self.status
        began = began or at
        self.state, self.severity = state, severity
        if restarted:
            self.ok, self.critical_since = None, None
            self.before_gap = None
        if self.status != before:
            if state in GAPS:
                self.before_gap = self.before_gap or (before, self.status_since)
                self.status_since = at
            else:
                known, since = self.before_gap or (None, None)
                self.status_since = since if since is not None and known == self.status else began
                self.before_gap = None
        if state == "live" and severity != "unknown":
            is_new = self.ok is not (severity in WELL)
            if is_new:
                self.ok, self.ok_since = severity in WELL, began
            first = began if is_new else at
            self.critical_since = (self.critical_since or first) if severity == "critical" else None
        elif state in _NOT_WELL and self.ok:
            self.ok = None
        return change_between(before, self.status)
