"""What there is to show at one moment: the fleet, and a row per worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tpumon.assessment import Assessment, Verdict
from tpumon.figures import MXU, STEP
from tpumon.fleet import Fleet, Thresholds
from tpumon.history import NO_FIGURES, Changes, State, WorkerHistory
from tpumon.model import Cause, Change, Finding, Handover, NotJudged, Sample, Severity, Workers
from tpumon.model.frozen import frozen
from tpumon.view.drawing.names import Labels
from tpumon.view.drawing.style import Glyphs
from tpumon.view.parts.spans import Spans
from tpumon.view.parts.trends import Trends

if TYPE_CHECKING:
    from tpumon.view.parts.peers import Peers

_SOON_S = 30.0


class Row(NamedTuple):
    """One worker.

    Attributes:
        name: as in its target; not yet safe to show.
        history: all that is known.
        verdict: what to think of it.
        sample: the present one; None where there is none, and so no figure to show. A worker that is not live may
            have one all the same, of runtime metrics.
        figures: the compared figures of that sample, by key.
        last_unix_s: start of its last sample with figures, by the wall clock as it is set now.
    """

    name: str
    history: WorkerHistory
    verdict: Verdict
    sample: Sample | None
    figures: Mapping[str, float | None]
    last_unix_s: float | None

    @property
    def since_unix_s(self) -> float | None:
        """Since when it is as it is; None: it was not queried yet."""
        return self.verdict.since_unix_s

    @property
    def exporter_failed(self) -> bool:
        """Whether the exporter behind --from does not answer, so that nothing is known about the worker itself."""
        return self.history.last is not None and self.history.last.of_exporter

    def causes(self, figure: str) -> bool:
        """Whether the figure with this key stands out."""
        return self.sample is not None and any(cause.figure == figure for cause in self.marking)

    @property
    def marking(self) -> list[Cause]:
        """Why it is marked, the worst first: without what is only worth knowing."""
        return [cause for cause in self.verdict.causes if cause.severity != "info"]


@frozen
class Scene:
    """A fleet at one moment.

    Attributes:
        time_unix_s: the moment.
        rows: all workers, in discovery order.
        assessment: the verdicts about them.
        waiting: why there are no workers.
        fresh_until_unix_s: when the first present sample becomes stale; None: there is no present sample.
        intervals_s: shortest and longest effective interval; None: not known yet.
        last_unix_s: time of the newest sample with figures.
        simulated: whether any figure is made up.
        traced_ratio: share of time that a job was traced, the highest of all jobs.
        traced_s: time that a job was traced, the longest of all jobs; shown until a share is meaningful.
        device_types: device types of the workers.
        methods: for `source`, `mxu` and `step`: how many workers use which method.
        labels: short names of the workers.
        trends: recent figures.
        failed: the last failed query of each worker that had one.
        seen: keys of the figures that any worker has had.
        spans: makes columns of graphs.
        peers: what is usual in each group of workers, as far as it was asked for.
        findings: what is wrong, the worst first.
        not_judged: tells what cannot be judged of a worker, or of all (None), and why. Not before somebody asks: it
            looks at every finding of every worker.
        changes: what changed; `last_change` is the number of the last one that is shown.
    """

    time_unix_s: float
    rows: Sequence[Row]
    assessment: Assessment
    waiting: str | None
    fresh_until_unix_s: float | None
    intervals_s: tuple[float, float] | None
    last_unix_s: float | None
    simulated: bool
    traced_ratio: float | None
    traced_s: float
    device_types: Sequence[str]
    methods: Mapping[str, Counter[str]]
    labels: Labels
    trends: Trends
    failed: Mapping[str, Sample]
    seen: frozenset[str]
    spans: Spans
    findings: Sequence[Finding]
    not_judged: Callable[[str | None], Sequence[NotJudged]]
    changes: Changes
    last_change: int
    peers: dict[tuple[str, ...], Peers] = field(default_factory=dict)

    @property
    def counts(self) -> Mapping[Severity | State, int]:
        """Number of workers by severity while they are live, otherwise by state."""
        return self.assessment.counts

    def changes_of(self, worker: str | None) -> list[Change]:
        """The changes of a worker, or of all, until this moment; oldest first."""
        return [change for change in self.changes.all(worker) if change.number <= self.last_change]

    def row(self, name: str | None) -> Row | None:
        """The worker with this name."""
        return next((row for row in self.rows if row.name == name), None)

    def snapshot(self) -> Scene:
        """A copy that later samples do not change."""
        rows = [
            row._replace(history=replace(row.history, errors=Counter(row.history.errors), steps=None))
            for row in self.rows
        ]
        not_judged = {name: self.not_judged(name) for name in (None, *(row.name for row in rows))}
        return replace(
            self,
            rows=rows,
            trends=self.trends.snapshot(self.time_unix_s),
            failed=dict(self.failed),
            not_judged=lambda name: not_judged.get(name, ()),
        )


def methods(sample: Sample) -> Mapping[str, str | None]:
    """The methods behind a sample's figures: of `source`, `mxu` and `step`."""
    return {"source": sample.source, **{figure.key: figure.method(sample.figures) for figure in (MXU, STEP)}}


def _with_figures(history: WorkerHistory) -> Sample | None:
    """A worker's last sample with figures, if only of its runtime."""
    return history.last if history.last is not None and history.last.answered else history.answer


class Watch:
    """Takes workers and samples, and makes scenes of them."""

    def __init__(self, thresholds: Thresholds, glyphs: Glyphs) -> None:
        self._fleet = Fleet(thresholds, remember=True)
        self._trends = Trends(self._fleet)
        self._failed: dict[str, Sample] = {}
        self._glyphs = glyphs
        self._labels = Labels((), glyphs)
        self._seen: frozenset[str] = frozenset()
        self._spans = Spans()

    def follow(self, workers: Workers) -> None:
        """These are the workers now."""
        self._fleet.follow(workers)
        self._trends.follow(workers)
        names = [target.worker for target in workers.targets]
        self._failed = {name: sample for name, sample in self._failed.items() if name in set(names)}
        self._labels = Labels(names, self._glyphs)

    def add(self, sample: Sample) -> None:
        """Takes one query's sample."""
        self._fleet.add(sample)
        self._trends.add(sample)
        if sample.failure is not None:
            self._failed[sample.worker] = sample

    def take_over(self, handover: Handover) -> None:
        """Takes what a running exporter knows."""
        self._fleet.take_over(handover)
        if handover.complete or handover.history:
            self._trends.restore()

    def is_due(self, event: Workers | Sample, after_s: float) -> bool:
        """As of `Fleet`: whether to call `scene` before this recorded event, so long after the last time."""
        return self._fleet.is_due(event, after_s)

    def changes_after(self, number: int) -> Sequence[Change]:
        """What changed since the change with this number."""
        return () if self._fleet.changes.last <= number else self._fleet.changes.all(after=number)

    @property
    def last_change(self) -> int:
        """Number of the last change."""
        return self._fleet.changes.last

    def scene(self, now_unix_s: float) -> Scene:
        """Judges the fleet and returns it as it is now."""
        assessment = self._fleet.assess(now_unix_s)
        self._seen |= assessment.figures.keys()
        rows = []
        tally = _Tally()
        for history in self._fleet.histories.all():
            verdict = assessment.verdicts[history.target.worker]
            sample = history.current(now_unix_s)
            last = _with_figures(history)
            last_unix_s = None if last is None else history.began_unix_s(last, now_unix_s)
            figures = NO_FIGURES if sample is None else history.figures
            rows.append(Row(history.target.worker, history, verdict, sample, figures, last_unix_s))
            tally.add(history, sample, last_unix_s, now_unix_s)
        averages = {name: across.avg for name, across in assessment.figures.items()}
        self._trends.add_fleet(now_unix_s, averages, min(tally.intervals_s, default=1.0))
        return Scene(
            time_unix_s=now_unix_s,
            rows=rows,
            assessment=assessment,
            waiting=self._fleet.histories.waiting,
            fresh_until_unix_s=tally.fresh_until_unix_s,
            intervals_s=(min(tally.intervals_s), max(tally.intervals_s)) if tally.intervals_s else None,
            last_unix_s=tally.last_unix_s,
            simulated=tally.simulated,
            traced_ratio=max(tally.traced_ratios, default=None),
            traced_s=tally.traced_s,
            device_types=tuple(tally.device_types),
            methods=tally.methods,
            labels=self._labels,
            trends=self._trends,
            failed=self._failed,
            seen=self._seen,
            spans=self._spans,
            findings=self._fleet.findings(now_unix_s),
            not_judged=partial(self._fleet.not_judged, now_unix_s),
            changes=self._fleet.changes,
            last_change=self._fleet.changes.last,
        )


class _Tally:
    """Sums up what a scene says about all workers together."""

    def __init__(self) -> None:
        self.fresh_until_unix_s: float | None = None
        self.last_unix_s: float | None = None
        self.intervals_s: set[float] = set()
        self.simulated = False
        self.traced_s = 0.0
        self.traced_ratios: list[float] = []
        self.device_types: dict[str, None] = {}
        self.methods: dict[str, Counter[str]] = {"source": Counter(), "mxu": Counter(), "step": Counter()}

    def add(self, history: WorkerHistory, sample: Sample | None, last_unix_s: float | None, now_unix_s: float) -> None:
        newest, answer = history.last, history.answer
        # A failure may not say that earlier figures were simulated, but the graphs still show them.
        if (newest is not None and newest.simulated) or (answer is not None and answer.simulated):
            self.simulated = True
        if newest is not None and newest.interval_s is not None:
            self.intervals_s.add(newest.interval_s)
        if last_unix_s is not None:
            self.last_unix_s = max(self.last_unix_s or 0.0, last_unix_s)
        last = _with_figures(history)
        if last is not None and last.device_type is not None:
            self.device_types[last.device_type] = None
        if sample is not None:
            until_unix_s = now_unix_s + history.fresh_for_s(now_unix_s)
            if self.fresh_until_unix_s is None or until_unix_s < self.fresh_until_unix_s:
                self.fresh_until_unix_s = until_unix_s
            for kind, method in methods(sample).items():
                if method is not None:
                    self.methods[kind][method] += 1
        if history.traced_s:
            self.traced_s = max(self.traced_s, history.traced_s)
            ratio = history.traced_ratio(now_unix_s)
            if ratio is not None and history.followed_for_s(now_unix_s) > _SOON_S:
                self.traced_ratios.append(ratio)
