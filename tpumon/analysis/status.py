"""Status of the fleet at one time, and the update that each event makes."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from operator import itemgetter
from statistics import median, mode

from msgspec import Struct, field
from msgspec.structs import replace

from tpumon.analysis.findings import RULES
from tpumon.analysis.history import RollupSeries, WorkerHistory
from tpumon.analysis.history.slice_changes import as_one, together
from tpumon.model import (
    Cause,
    Change,
    Finding,
    FindingId,
    NotJudged,
    Process,
    Sample,
    Severity,
    State,
    Status,
    Target,
    Workers,
    mark_of,
)
from tpumon.model.figure_table import COMPARED

_LEAST_LETTERS = 3  # of a text that names states and findings


class Verdict(Struct, frozen=True, kw_only=True):
    """The assessment of one worker.

    Attributes:
        state: state of the worker.
        severity: that of its worst cause.
        causes: why it is marked, worst first.
        since_unix_s: while it is live and well, since when it is well; while it is in trouble, warning or critical,
            since when; otherwise since when it is in this state. Gaps that say nothing about a worker (another session,
            a pause, a late sample) do not count. None: it was never queried.
        since_or_earlier: True if it may have begun before: it was so at the first look, or went down unheard.
        critical_since_unix_s: since when it is critical; None: it is not.
        excess: how far its worst figure exceeds its warning limit, as a fraction of that limit; 0 if none does.
    """

    state: State
    severity: Severity
    causes: tuple[Cause, ...] = ()
    since_unix_s: float | None = None
    since_or_earlier: bool = False
    critical_since_unix_s: float | None = None
    excess: float = 0.0

    @property
    def status(self) -> Status:
        """Status of the worker: its severity while it is live, otherwise its state."""
        return self.severity if self.state == "live" else self.state

    @property
    def mark(self) -> Status:
        """Mark of the worker: its status, or the severity of its hang."""
        return mark_of(self.state, self.severity)

    @property
    def rank(self) -> int:
        """Sort key that puts the worst first; 0 is the worst."""
        return min(_RANKS[self.status], _RANKS[self.mark])

    @property
    def reasons(self) -> tuple[Cause, ...]:
        """The causes that explain its state."""
        return reasons_of(self.state, self.causes)

    @property
    def marking(self) -> list[Cause]:
        """The causes that mark the worker, worst first: all but info."""
        return [cause for cause in self.causes if cause.severity != "info"]


def reasons_of(state: State, causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """Causes that explain a state; earlier findings do not explain a worker that is paused, busy or down."""
    if state in {"live", "no-activity"}:
        return tuple(causes)
    return tuple(cause for cause in causes if cause.finding is None) or tuple(causes)


_RANKS = {
    name: rank
    for rank, name in enumerate(
        (
            *("down", "critical", "no-activity", "stale", "warning", "waiting", "busy", "continuous", "paused"),
            *("unknown", "info", "ok"),
        )
    )
}


class FigureStats(Struct, frozen=True, kw_only=True):
    """One figure over all workers that have it now; `count` is their number.

    Attributes:
        min_worker, max_worker: name of the first worker with the min, and of the first with the max.
    """

    count: int
    min: float
    avg: float
    max: float
    median: float
    min_worker: str
    max_worker: str


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """One worker at one time.

    Attributes:
        history: its last samples, and totals over all of them.
        verdict: its state and severity, and since when.
        sample: the sample whose figures are current; None: there is none. A worker that is not live may have one all
            the same, of runtime metrics.
        figures: the compared figures of that sample, by key of `tpumon.model.figure_table`.
        judged: the findings that can be judged of it, present or not.
        not_judged: the others that were looked for.
        needs_more: True if one or two more samples would tell more of it.
        judged_upstream: True if the exporter that it comes from judges it.
    """

    history: WorkerHistory
    verdict: Verdict
    sample: Sample | None
    figures: Mapping[str, float | None]
    judged: tuple[FindingId, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()
    needs_more: bool = False
    judged_upstream: bool = False

    @property
    def name(self) -> str:
        """The worker's name."""
        return self.history.target.worker

    @property
    def target(self) -> Target:
        """The worker."""
        return self.history.target

    @property
    def process(self) -> Process | None:
        """Process of the worker by its last sample; None: not known."""
        last = self.history.last
        return self.target.process if last is None else last.process or self.target.process

    @property
    def is_seen(self) -> bool:
        """False if no trace of it could show whether anything runs."""
        last = self.history.last
        return last is None or last.why_not_seen is None

    @property
    def waits(self) -> bool:
        """True if the worker runs nothing but has queued work: then it waits for a worker that stopped first."""
        return (
            self.verdict.state == "no-activity"
            and self.sample is not None
            and bool(self.sample.figures.runtime_hlo_queue_size)
        )

    def marks(self, figure: str) -> bool:
        """True if the figure with this key is one that the worker is marked for."""
        return self.sample is not None and any(cause.figure == figure for cause in self.verdict.marking)

    def matches(self, text: str) -> bool:
        """True if its name, address or slice contains this text, or its state or a finding of it begins so.

        Case does not matter. Of states and findings at least three letters count: most names have one or two of theirs.
        """
        wanted, target, verdict = text.lower(), self.target, self.verdict
        if any(wanted in (name or "").lower() for name in (target.worker, target.address, target.slice)):
            return True
        words = (verdict.state, verdict.severity, *(cause.finding or "" for cause in verdict.causes))
        return len(wanted) >= _LEAST_LETTERS and any(name.startswith(wanted.replace(" ", "-")) for name in words)

    @property
    def findings(self) -> Mapping[FindingId, Cause | None]:
        """Each finding that can be judged of it, by ID, and the finding while it is present."""
        present = {cause.finding: cause for cause in self.verdict.causes if cause.finding is not None}
        return {**{finding: present.get(finding) for finding in self.judged}, **present}


class FleetStatus(Struct, frozen=True, kw_only=True):
    """All workers at one time. Nothing in it changes any more, but for the figures over time.

    Attributes:
        time_unix_s: the time.
        workers: by name, in the order of `Workers.targets`.
        waiting: why there is no worker; None: there is one, or it is not known yet.
        finders: by name, health of each way in which workers are found.
        findings: what is wrong, the worst first.
        changes: what changed and is remembered, oldest first.
        last_past_change: number of the last change that exporters remembered when first read; 0: there is none.
        average: the average of each figure over all workers, over time; None if it is not remembered.
        exporters_missing: names of exporters that have handed on nothing yet.
        exporters_unheard: names of exporters that do not answer, and whose workers nobody knows.
    """

    time_unix_s: float
    workers: Mapping[str, WorkerStatus] = field(default_factory=dict)
    waiting: str | None = None
    finders: Mapping[str, bool] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()
    last_past_change: int = 0
    average: RollupSeries | None = None
    exporters_missing: frozenset[str] = frozenset()
    exporters_unheard: tuple[str, ...] = ()

    def all(self) -> Sequence[WorkerStatus]:
        """The status of each worker."""
        return tuple(self.workers.values())

    def counts(self) -> Counter[Status]:
        """Number of workers by mark."""
        return Counter(worker.verdict.mark for worker in self.workers.values())

    def figures(self) -> Mapping[str, FigureStats]:
        """Statistics of each compared figure that at least one worker has, by key."""
        return {name: across for name in COMPARED if (across := figure_stats(self._known(name))) is not None}

    def _known(self, name: str) -> list[tuple[float, str]]:
        return [(value, worker.name) for worker in self.workers.values() if (value := worker.figures[name]) is not None]

    def changes_after(self, number: int) -> Sequence[Change]:
        """The changes with a larger number, oldest first."""
        return self.changes[bisect_right(self.changes, number, key=lambda change: change.number) :]

    @property
    def longest_interval_s(self) -> float:
        """The longest of the workers' present intervals; 0: none is known."""
        return max((worker.history.interval_s for worker in self.workers.values()), default=0.0)

    def last_since_unix_s(self, finding: Finding) -> float | None:
        """Time since which the last of a finding's workers has it; its `since_unix_s` is that of the first."""
        verdicts = [self.workers[name].verdict for name in finding.workers if name in self.workers]
        times = [cause.since_unix_s for one in verdicts for cause in one.causes if cause.finding == finding.finding]
        if finding.finding == "down":
            times = [one.since_unix_s for one in verdicts]
        return max((time_unix_s for time_unix_s in times if time_unix_s is not None), default=None)

    def by_slice(self, changes: Iterable[Change]) -> list[Change]:
        """Some changes by time; what several workers of a slice had together is one, that of the first of them."""
        targets = {name: worker.target for name, worker in self.workers.items()}
        return [as_one(group, targets) for group in together(changes, targets)]

    def worst_first(self) -> list[WorkerStatus]:
        """Status of each worker, the worst first; among equals, workers that wait for another come last."""
        return sorted(self.all(), key=lambda worker: (worker.verdict.rank, worker.waits, -worker.verdict.excess))

    def not_judged(self, name: str | None = None) -> tuple[NotJudged, ...]:
        """Findings that cannot be judged of all workers or of one, with the reason that most of them have.

        Of those with a finding that samples speak for, the reason that most of these have.
        """
        asked = self.all() if name is None else filter(None, [self.workers.get(name)])
        reasons: dict[FindingId, list[NotJudged]] = {}
        for worker in asked:
            for one in () if worker.verdict.state in NOT_THERE else worker.not_judged:
                reasons.setdefault(one.finding, []).append(one)
        return tuple(
            replace(mode([one for one in given if one.is_suspected] or given), workers=len(given))
            for rule in RULES
            if (given := reasons.get(rule.finding))
        )


NOT_THERE: frozenset[State] = frozenset({"down", "stale", "waiting"})
"""States of a worker without current figures, where neither a pause nor another profiler keeps them away."""


class Update(Struct, frozen=True, kw_only=True):
    """One event, analysed. It never changes.

    Attributes:
        time_unix_s: the time of the event.
        workers: who the workers are from now on; None: as before.
        sample: the sample of one query, judged; None: the event is none.
        status: of its worker; None: it is not followed.
        findings: findings of its worker, the worst first.
        changes: what changed, oldest first, of other workers too.
        is_past: True if the changes happened before this process looked: an exporter remembers them.
    """

    time_unix_s: float
    workers: Workers | None = None
    sample: Sample | None = None
    status: WorkerStatus | None = None
    findings: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()
    is_past: bool = False

    def with_ops(self, most: int) -> Update:
        """The update with at most `most` top operations, and categories, of its sample."""
        kept = None if self.sample is None else self.sample.with_ops(most)
        return self if kept is self.sample else replace(self, sample=kept)


def figure_stats(figures: Sequence[tuple[float, str]]) -> FigureStats | None:
    """One figure over the workers that have it; None if none has.

    Args:
        figures: value and worker.
    """
    if not figures:
        return None
    values = sorted(value for value, _ in figures)
    count = len(values)
    return FigureStats(
        count=count,
        min=values[0],
        avg=fsum([value / count for value in values]),  # of the sum, the largest floats would overflow
        max=values[-1],
        median=median(values),
        min_worker=min(figures, key=itemgetter(0))[1],
        max_worker=max(figures, key=itemgetter(0))[1],
    )
