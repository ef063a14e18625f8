"""What there is to show at one moment: the fleet, and a row per worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from tpumon.analysis import Across, Analysis, FleetStatus, Verdict
from tpumon.analysis.history import WorkerHistory
from tpumon.model import Cause, Change, Finding, Mark, NotJudged, Sample
from tpumon.model.figure_table import MXU, STEP
from tpumon.outputs.live.drawing.names import Labels
from tpumon.outputs.live.drawing.style import Glyphs
from tpumon.outputs.live.parts.trends import Trend

if TYPE_CHECKING:
    from tpumon.outputs.live.parts.peers import Peers

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


class Scene(Struct, frozen=True, kw_only=True):
    """A fleet at one moment.

    Attributes:
        time_unix_s: the moment.
        status: the fleet's status.
        rows: all workers, in discovery order.
        figures: each figure over all workers, by key.
        counts: number of workers by severity; those that are not live, by state.
        fresh_until_unix_s: when the first present sample becomes stale; None: there is no present sample.
        intervals_s: shortest and longest effective interval; None: not known yet.
        last_unix_s: time of the newest sample with figures.
        simulated: whether any figure is made up.
        traced_ratio: share of time that a job was traced, the highest of all jobs.
        traced_s: time that a job was traced, the longest of all jobs; shown until a share is meaningful.
        device_types: device types of the workers.
        methods: for `source`, `mxu` and `step`: how many workers use which method.
        labels: short names of the workers.
        seen: keys of the figures that any worker has had.
        peers: what is usual in each group of workers, as far as it was asked for.
    """

    time_unix_s: float
    status: FleetStatus
    rows: Sequence[Row]
    figures: Mapping[str, Across]
    counts: Mapping[Mark, int]
    fresh_until_unix_s: float | None
    intervals_s: tuple[float, float] | None
    last_unix_s: float | None
    simulated: bool
    traced_ratio: float | None
    traced_s: float
    device_types: Sequence[str]
    methods: Mapping[str, Counter[str]]
    labels: Labels
    seen: frozenset[str]
    peers: dict[tuple[str, ...], Peers] = field(default_factory=dict)

    @property
    def waiting(self) -> str | None:
        """Why there are no workers."""
        return self.status.waiting

    @property
    def findings(self) -> Sequence[Finding]:
        """Findings, the worst first."""
        return self.status.findings

    def not_judged(self, worker: str | None) -> Sequence[NotJudged]:
        """Findings that cannot be judged of a worker, or of all (None), and why."""
        return self.status.not_judged(worker)

    def changes_of(self, worker: str | None) -> list[Change]:
        """The changes of a worker, or of all, until this moment; oldest first."""
        return [change for change in self.status.changes if worker is None or change.worker == worker]

    def row(self, name: str | None) -> Row | None:
        """The worker with this name."""
        return next((row for row in self.rows if row.name == name), None)

    def trend_of(self, row: Row) -> Trend:
        """Recent figures of a worker."""
        last = row.history.last
        return Trend(row.history.series, None if last is None else last.interval_s, self.time_unix_s)

    def trend_of_fleet(self) -> Trend:
        """Recent averages over all workers."""
        interval_s = None if self.intervals_s is None else self.intervals_s[0]
        return Trend(self.status.average, interval_s, self.time_unix_s)


def methods(sample: Sample) -> Mapping[str, str | None]:
    """The methods behind a sample's figures: of `source`, `mxu` and `step`."""
    return {"source": sample.source, **{figure.key: figure.method(sample.figures) for figure in (MXU, STEP)}}


def _with_figures(history: WorkerHistory) -> Sample | None:
    """A worker's last sample with figures, if only of its runtime."""
    return history.last if history.last is not None and history.last.answered else history.answer


class Scenes:
    """Makes scenes of what the analysis knows.

    Args:
        fleet: the analysis.
        glyphs: characters for names that are cut.
    """

    def __init__(self, fleet: Analysis, glyphs: Glyphs) -> None:
        self._fleet = fleet
        self._glyphs = glyphs
        self._names: tuple[str, ...] = ()
        self._labels = Labels((), glyphs)
        self._seen: frozenset[str] = frozenset()

    def scene(self, now_unix_s: float) -> Scene:
        """The fleet as it is now."""
        status = self._fleet.status(now_unix_s)
        names = tuple(status.workers)
        if names != self._names:
            self._names, self._labels = names, Labels(names, self._glyphs)
        figures = status.figures()
        self._seen |= figures.keys()
        rows = []
        tally = _Tally()
        for worker in status.all():
            history, last = worker.history, _with_figures(worker.history)
            last_unix_s = None if last is None else history.began_unix_s(last, now_unix_s)
            rows.append(Row(worker.name, history, worker.verdict, worker.sample, worker.figures, last_unix_s))
            tally.add(history, worker.sample, last_unix_s, now_unix_s)
        return Scene(
            time_unix_s=now_unix_s,
            status=status,
            rows=rows,
            figures=figures,
            counts=status.counts(),
            fresh_until_unix_s=tally.fresh_until_unix_s,
            intervals_s=(min(tally.intervals_s), max(tally.intervals_s)) if tally.intervals_s else None,
            last_unix_s=tally.last_unix_s,
            simulated=tally.simulated,
            traced_ratio=max(tally.traced_ratios, default=None),
            traced_s=tally.traced_s,
            device_types=tuple(tally.device_types),
            methods=tally.methods,
            labels=self._labels,
            seen=self._seen,
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
