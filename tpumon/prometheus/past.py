"""Since when workers are as they are, and what changed: from range queries, then from each refresh."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from tpumon.findings import Thresholds
from tpumon.history import Changes, Course, Moment
from tpumon.model import Cause, Change, Figures, FindingId, Severity, Standing, State
from tpumon.model.frozen import frozen
from tpumon.prometheus import queries
from tpumon.prometheus.rebuild import cause_of, state_metric, worst_first
from tpumon.prometheus.wire import PrometheusServer, Series
from tpumon.prometheus.workers import Key, key_of

_STATES: Mapping[str, State] = {
    queries.PAUSED: "paused",
    queries.BUSY: "busy",
    queries.UP: "down",
    queries.ACTIVE: "no-activity",
}
_SEVERITY: Mapping[str, Severity] = {"critical": "critical", "warning": "warn", "info": "ok"}

_IDS = frozenset(get_args(FindingId))

SPANS = ((3600.0, 60.0), (86400.0, 600.0), (7 * 86400.0, 3600.0))
"""How far back is asked, and by which steps, in seconds."""

Mark = tuple[str, str]
"""What a series of `Queries.troubles` says: the metric's name, and the finding or nothing."""


@frozen(kw_only=False)
class Span:
    """The troubles of one time.

    Attributes:
        begin_unix_s, step_s, steps: the times at which they were asked for.
        series: at which of these times each worker had which mark.
    """

    begin_unix_s: float
    step_s: float
    steps: int
    series: Sequence[Series]

    @property
    def times_unix_s(self) -> list[float]:
        """All times, oldest first."""
        return [self.begin_unix_s + place * self.step_s for place in range(self.steps)]

    def began_before(self) -> frozenset[Mark]:
        """The marks that are there from the first time on, so that they may be older."""
        return frozenset(
            _mark(one) for one in self.series if abs(one.points[0][0] - self.begin_unix_s) < self.step_s / 2
        )


@frozen(kw_only=False)
class Before:
    """What Prometheus says of the time before the first picture.

    Attributes:
        spans: the troubles, the oldest time first; spans do not overlap.
        known_unix_s: since when each worker is known.
    """

    spans: Sequence[Span] = ()
    known_unix_s: Mapping[Key, float] = field(default_factory=dict)


async def asked(server: PrometheusServer, ask: queries.Queries, identity: Sequence[str], now_unix_s: float) -> Before:
    """Asks for the time before the first picture, in at most five queries: further back only what is older.

    Raises:
        TroubleError: no answer.
    """
    known, spans = await asyncio.gather(_known(server, ask, identity, now_unix_s), _troubles(server, ask, now_unix_s))
    return Before(spans, known)


async def _known(
    server: PrometheusServer, ask: queries.Queries, identity: Sequence[str], now_unix_s: float
) -> dict[Key, float]:
    length_s, step_s = SPANS[0]
    begin_unix_s = now_unix_s - length_s + 2 * step_s
    answer = await server.query(ask.known("1h", "1m"))
    known = {key_of(one.labels, identity): one.points[-1][1] for one in answer.series}
    if any(at < begin_unix_s for at in known.values()):
        older = await server.query(ask.known("7d", "1h"))
        for one in older.series:
            key = key_of(one.labels, identity)
            if known.get(key, 0.0) < begin_unix_s:
                known[key] = one.points[-1][1]
    return known


async def _troubles(server: PrometheusServer, ask: queries.Queries, now_unix_s: float) -> list[Span]:
    spans: list[Span] = []
    end_unix_s, older = now_unix_s, None
    for length_s, step_s in SPANS:
        steps = int((end_unix_s - (now_unix_s - length_s)) / step_s)
        begin_unix_s = end_unix_s - steps * step_s
        answer = await server.query_range(ask.troubles(older), begin_unix_s, end_unix_s, step_s)
        known = [one for one in answer.series if one.labels.get("finding", "") in _IDS or "finding" not in one.labels]
        spans.insert(0, Span(begin_unix_s, step_s, steps + 1, known))
        older = spans[0].began_before()
        if not older:
            break
        end_unix_s = begin_unix_s - step_s
    return spans


def _mark(series: Series) -> Mark:
    return queries.name_of(series.labels), series.labels.get("finding", "")


@dataclass(slots=True)
class Past:
    """What is known of the time before now.

    Attributes:
        limits: when a figure makes a worker critical.
        courses: what each worker counts as, and since when.
        since: since when each worker has each finding, by the server's clock.
        changes: what changed.
        changed: workers whose course changed since `standings` was called.
    """

    limits: Thresholds
    courses: dict[Key, Course] = field(default_factory=dict)
    since: dict[Key, dict[FindingId, float]] = field(default_factory=dict)
    changes: Changes = field(default_factory=Changes)
    changed: set[Key] = field(default_factory=set)

    def load(self, before: Before, names: Mapping[Key, str], identity: Sequence[str]) -> None:
        """Goes through the time before the first picture.

        Args:
            before: what Prometheus says of it.
            names: of the workers.
            identity: labels that tell workers apart.
        """
        spans = before.spans
        grid = sorted({time_unix_s for span in spans for time_unix_s in span.times_unix_s})
        marks: dict[Key, dict[int, set[Mark]]] = {}
        for span in spans:
            for series in span.series:
                key = key_of(series.labels, identity)
                if key not in names:
                    continue
                mark = _mark(series)
                at = marks.setdefault(key, {})
                for time_unix_s, _ in series.points:
                    place = bisect_left(grid, time_unix_s - span.step_s / 10)
                    at.setdefault(min(place, len(grid) - 1), set()).add(mark)
        events: list[tuple[float, Key, frozenset[Mark]]] = []
        for key in names:
            begin_unix_s = before.known_unix_s.get(key, grid[-1] if grid else 0.0)
            events += ((time_unix_s, key, held) for time_unix_s, held in _turns(grid, marks.get(key, {}), begin_unix_s))
        for time_unix_s, key, held in sorted(events, key=lambda event: event[0]):
            self._pass(key, names[key], time_unix_s, held)

    def _pass(self, key: Key, name: str, time_unix_s: float, held: frozenset[Mark]) -> None:
        state = _state({metric for metric, _ in held})
        found: list[FindingId] = [finding for metric, finding in held if metric == queries.FINDING]  # type: ignore[misc]
        judged = state == "live"
        if judged:
            self._since(key, found, time_unix_s)
        causes = worst_first(
            cause_of(finding, Figures(), self.limits, self.since[key].get(finding) if key in self.since else None)
            for finding in found
        )
        self.note(key, name, time_unix_s, state, causes if judged else ())

    def found(self, key: Key, findings: Iterable[FindingId], time_unix_s: float) -> Mapping[FindingId, float]:
        """Since when a worker has the findings that it has at a time."""
        return self._since(key, findings, time_unix_s)

    def _since(self, key: Key, findings: Iterable[FindingId], time_unix_s: float) -> Mapping[FindingId, float]:
        before = self.since.pop(key, {})
        now = {finding: before.get(finding, time_unix_s) for finding in findings}
        if now:
            self.since[key] = now
        return now

    def note(
        self, key: Key, name: str, time_unix_s: float, state: State, causes: Sequence[Cause], why: str = ""
    ) -> None:
        """Notes what a worker counts as at a time, and the change if it is one."""
        course = self.courses.setdefault(key, Course())
        severity: Severity = _SEVERITY[causes[0].severity] if causes else "ok"
        if state != "live":
            severity = "unknown"
        before, since = course.mark, course.since
        what = course.note(Moment(time_unix_s), state, severity)
        if course.mark != before or course.since != since:
            self.changed.add(key)
        if what is None:
            return
        self.changes.add(
            Change(
                number=self.changes.last + 1,
                time_unix_s=time_unix_s,
                worker=name,
                what=what,
                state=state,
                severity=severity,
                before=before,
                words="; ".join(cause.words for cause in causes) or why,
            )
        )

    def forget(self, names: Mapping[Key, str]) -> None:
        """Forgets workers that are not among these."""
        self.courses = {key: course for key, course in self.courses.items() if key in names}
        self.since = {key: since for key, since in self.since.items() if key in names}
        self.changed &= names.keys()

    def standings(self, names: Mapping[Key, str], shift_s: float) -> list[Standing]:
        """What is known of the workers whose course changed since the last call, by this machine's clock."""
        changed, self.changed = self.changed, set()
        return [_standing(names[key], self.courses[key], shift_s) for key in changed if key in names]


def _state(metrics: Iterable[str]) -> State:
    name = state_metric(metrics)
    return "live" if name is None else _STATES[name]


def _turns(
    grid: Sequence[float], marks: Mapping[int, set[Mark]], begin_unix_s: float
) -> Iterable[tuple[float, frozenset[Mark]]]:
    """When the marks of a worker became others, and which it has then."""
    first = bisect_left(grid, begin_unix_s - 1.0)
    before: frozenset[Mark] = frozenset(marks.get(first, ()))
    yield begin_unix_s, before
    last = first
    for place in sorted(marks):
        if place <= first:
            continue
        if place > last + 1 and before:
            before = frozenset()
            yield grid[last + 1], before
        held = frozenset(marks[place])
        if held != before:
            before = held
            yield grid[place], held
        last = place
    if before and last < len(grid) - 1:
        yield grid[last + 1], frozenset()


def _standing(name: str, course: Course, shift_s: float) -> Standing:
    def by_our_clock(moment: Moment | None) -> float | None:
        return None if moment is None else moment.time_unix_s + shift_s

    return Standing(
        worker=name,
        state=course.state or "waiting",
        severity=course.severity,
        mark_since_unix_s=by_our_clock(course.mark_since),
        ok=course.ok,
        ok_since_unix_s=by_our_clock(course.ok_since),
        critical_since_unix_s=by_our_clock(course.critical_since),
    )
