"""Recorded events, analysed by the clock of the recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from operator import itemgetter
from typing import NamedTuple, Protocol

from tpumon.analysis.analysis import Analysis
from tpumon.analysis.findings import Thresholds
from tpumon.analysis.history.changes import MOST_CHANGES
from tpumon.analysis.history.slice_changes import as_one, together
from tpumon.analysis.recorded_clock import RecordedClock
from tpumon.analysis.status import FleetStatus, Update
from tpumon.model import Change, Sample, Workers
from tpumon.moments import time_of_day

LOOK_BACK_S = 3600.0
"""Time before a moment that is read to show it: states and since are known from there on."""

UNSETTLED_S = 600.0
"""After the time from which on a recording is read: changes in it are what was so before."""

_ENOUGH = 24  # samples before a moment, and after it, in which most that begins then is found
_TICK_S = 5.0
_MOST_TICKS = 30  # after that all workers are stale that become so


class Recorded(Protocol):
    """One recorded event."""

    @property
    def time_unix_s(self) -> float:
        """The time at which it was known."""

    @property
    def event(self) -> Workers | Sample:
        """The workers from then on, or a sample."""


class RecordingLike(Protocol):
    """A recording, from wherever it is read."""

    def span_unix_s(self) -> tuple[float, float]:
        """The times of its first and last moment."""

    def moments(self, begin_unix_s: float = ...) -> Iterator[Recorded]:
        """Yields what was recorded from a time on."""


def played(analysis: Analysis, moments: Iterable[Recorded]) -> Iterator[Update]:
    """Updates of recorded events, with those of the time between them, in which workers may become stale."""
    before_unix_s: float | None = None
    for moment in moments:
        if before_unix_s is not None:
            yield from between(analysis, before_unix_s, moment.time_unix_s)
        before_unix_s = moment.time_unix_s
        yield analysis.add(moment.event)


def between(analysis: Analysis, begin_unix_s: float, end_unix_s: float) -> Iterator[Update]:
    """Updates of a time in which no event was recorded."""
    ticks = min(int((end_unix_s - begin_unix_s) // _TICK_S), _MOST_TICKS)
    times = [begin_unix_s + number * _TICK_S for number in range(1, ticks + 1)]
    times += [end_unix_s] if int(begin_unix_s) < int(end_unix_s) else []  # each second, as a feed does
    for time_unix_s in times:
        update = analysis.tick(time_unix_s)
        if update is not None:
            yield update


class Playback:
    """Part of a recording, read from a time on and judged by its clock.

    Args:
        recording: the recording.
        begin_unix_s: the time; -inf: its begin.
        analysis: makes of it what follows, by the recording's clock.

    Attributes:
        analysis: the same.
        next: the next moment to read; None: there is none.
        until_unix_s: the time up to which it was read.
        changes: those that it shows, each with the moment at which it showed.
    """

    def __init__(self, recording: RecordingLike, begin_unix_s: float, analysis: Analysis) -> None:
        self._moments = recording.moments(begin_unix_s)
        self.next = next(self._moments, None)
        first_unix_s = begin_unix_s if self.next is None else self.next.time_unix_s
        self.until_unix_s = first_unix_s if begin_unix_s == -inf else min(begin_unix_s, first_unix_s)
        self.changes: list[tuple[float, Change]] = []
        self.analysis = analysis

    def read_to(self, at_unix_s: float) -> Iterator[Update]:
        """Reads up to a moment."""
        while self.next is not None and self.next.time_unix_s <= at_unix_s:
            yield from self.read_next()
        if at_unix_s > self.until_unix_s:
            yield from self._noted(between(self.analysis, self.until_unix_s, at_unix_s), at_unix_s)

    def read_next(self) -> Iterator[Update]:
        """Reads the next moment."""
        moment = self.next
        if moment is not None:
            at_unix_s = max(self.until_unix_s, moment.time_unix_s)
            yield from self._noted(between(self.analysis, self.until_unix_s, moment.time_unix_s), at_unix_s)
            yield from self._noted([self.analysis.add(moment.event)], at_unix_s)
            self.next = next(self._moments, None)

    def _noted(self, updates: Iterable[Update], until_unix_s: float) -> Iterator[Update]:
        """Updates up to a moment; their changes showed then, or with a look before it."""
        for update in updates:
            showed_unix_s = until_unix_s if update.sample is not None else min(update.time_unix_s, until_unix_s)
            self.changes += [(max(showed_unix_s, self.until_unix_s), change) for change in update.changes]
            yield update
        self.until_unix_s = until_unix_s
        del self.changes[:-MOST_CHANGES]

    @property
    def last_number(self) -> int:
        """Number of the last change; 0: there was none."""
        return self.changes[-1][1].number if self.changes else 0

    def stops(self) -> Sequence[tuple[float, Change]]:
        """The moments at which changes showed, and the first of each; a slice's are one, of those that had it by then.

        They are the same whoever reads on or back.
        """
        showed_at = {change.number: at_unix_s for at_unix_s, change in self.changes}
        targets = {worker.name: worker.target for worker in self.analysis.status(self.until_unix_s).all()}
        stops: dict[float, Change] = {}
        for group in together((change for _, change in self.changes), targets):
            first_unix_s = min(showed_at[change.number] for change in group)
            by_then = [change for change in group if showed_at[change.number] == first_unix_s]
            stops.setdefault(first_unix_s, as_one(by_then, targets))
        return sorted(stops.items(), key=itemgetter(0))


class BeganThen(NamedTuple):
    """Changes that had begun by a moment, and were known later.

    Attributes:
        shown_unix_s: the moment, or the later one in its second at which more of it was known.
        words: for what had begun, with the time from which it was known; or that nothing was recorded; empty: nothing.
    """

    shown_unix_s: float
    words: str


def began_then(recording: RecordingLike, analysis: Analysis, at_unix_s: float, thresholds: Thresholds) -> BeganThen:
    """Looks beyond a moment for what had begun by then: events name when a change began, samples show it later.

    Args:
        recording: the recording.
        analysis: what follows from it up to that moment.
        at_unix_s: the moment.
        thresholds: limits beyond which a worker is marked.
    """
    shown = analysis.status(at_unix_s)
    span_s = min(max(UNSETTLED_S, _ENOUGH * shown.longest_interval_s), LOOK_BACK_S)
    begin_unix_s, end_unix_s = recording.span_unix_s()
    from_unix_s = -inf if at_unix_s - span_s <= begin_unix_s else at_unix_s - span_s
    ahead = Playback(recording, from_unix_s, Analysis(thresholds, recorded=RecordedClock()))
    for _ in ahead.read_to(min(at_unix_s + span_s, end_unix_s)):
        pass
    began = [
        (showed_unix_s, change)
        for showed_unix_s, change in ahead.changes
        if showed_unix_s > at_unix_s and int(change.time_unix_s) <= int(at_unix_s)
        if change.what == "restart" or not change.since_or_earlier
        if not _is_shown(change, shown)
    ]
    soon = [showed_unix_s for showed_unix_s, _ in began if int(showed_unix_s) == int(at_unix_s)]
    later = min((each for each in began if each[0] > max(soon, default=at_unix_s)), key=itemgetter(0), default=None)
    words = _not_recorded(recording, shown) or ("" if later is None else _known_later(*later))
    return BeganThen(max(soon, default=at_unix_s), words)


def _is_shown(change: Change, status: FleetStatus) -> bool:
    """True if a status shows already that a worker is stale: that it has changed is told only once that lasts."""
    worker = status.workers.get(change.worker)
    return change.state == "stale" and worker is not None and worker.verdict.state == "stale"


def _not_recorded(recording: RecordingLike, status: FleetStatus) -> str:
    """Words for a moment between two samples at which no worker has figures; empty: some has."""
    workers, at_unix_s = status.all(), status.time_unix_s
    last = [one.time_unix_s + one.took_s for worker in workers if (one := worker.history.last) is not None]
    after = (moment.time_unix_s for moment in recording.moments(at_unix_s) if moment.time_unix_s > at_unix_s)
    if not last or any(worker.verdict.state != "stale" for worker in workers) or (end := next(after, None)) is None:
        return ""
    return f"nothing was recorded from {time_of_day(max(last))} to {time_of_day(end)}"


def _known_later(showed_unix_s: float, change: Change) -> str:
    began, known = time_of_day(change.time_unix_s), time_of_day(showed_unix_s)
    return f"began at {began}, known from {known} on: {change.worker}: {change.sentence}"
