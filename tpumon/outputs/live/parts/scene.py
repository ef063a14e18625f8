"""The fleet at one time, as screens show it, and recent figures for its sparklines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import nan

from msgspec import Struct
from msgspec.structs import replace

from tpumon.analysis import Analysis, FigureStats, FleetStatus, Verdict, WorkerStatus
from tpumon.analysis.history import Point, RollupSeries, WorkerHistory
from tpumon.model import Change, Sample
from tpumon.model.figure_spec import FigureSpec
from tpumon.model.figure_table import MXU, STEP, applicable_figures, of_job
from tpumon.model.progress import Progress
from tpumon.model.server_figures import BUSY, PROGRAM
from tpumon.outputs.drawing.names import Labels
from tpumon.outputs.drawing.stable_axes import StableAxes
from tpumon.outputs.drawing.style import Glyphs

_USUAL_INTERVAL_S = 10.0
_LATE = 1.2  # queries come at most so many times later than they are due
_WEEK_S = 7 * 86_400.0
_WAITING = Verdict(state="waiting", severity="unknown")
_MEASURED = (MXU, STEP, BUSY)
"""Figures with several methods."""


class Trend:
    """The last queries until a time.

    Args:
        series: what is remembered; None: nothing is.
        interval_s: from query to query; None: not known yet.
        end_unix_s: the time that is shown: what came later is not.
    """

    def __init__(self, series: RollupSeries | None, interval_s: float | None, end_unix_s: float) -> None:
        self._series = series
        self._interval_s = _LATE * (interval_s or _USUAL_INTERVAL_S)
        newest_unix_s = None if series is None else series.newest_unix_s
        self.end_unix_s = None if newest_unix_s is None else min(newest_unix_s, end_unix_s)
        """Time of the last query, or the time that is shown; None: there was no query."""

    def last(self, key: str, most: int) -> list[float]:
        """The last values of a figure, at most `most`, oldest first; NaN: a query without it."""
        return [nan if point.median is None else point.median for point in self._points(key, most)]

    def span_s(self, most: int) -> float:
        """Seconds between the first and the last of the last `most` queries."""
        points = self._points(STEP.key, most)
        return points[-1].start_unix_s - points[0].start_unix_s if points else 0.0

    def _points(self, key: str, most: int) -> list[Point]:
        if self._series is None or self.end_unix_s is None or most <= 0:
            return []
        begin_unix_s = self.end_unix_s - min(most * self._interval_s, _WEEK_S)
        return self._series.points(key, begin_unix_s, self.end_unix_s)[-most:]


class Scene(Struct, frozen=True, kw_only=True):
    """A fleet at one time.

    Attributes:
        status: its status.
        rows: the status of each worker, in discovery order.
        figures: each figure over all workers, by key.
        fresh_until_unix_s: when the first present sample becomes stale; None: there is no present sample.
        began_unix_s: start of each worker's last sample with figures, by the wall clock as it is set now.
        labels: short names of the workers.
        applicable: the compared figures that say something of some worker's job.
        seen: keys of those that any worker has had.
        stable_axes: what outlives a scene: the axes of graphs, and the order of parts.
    """

    status: FleetStatus
    rows: Sequence[WorkerStatus]
    figures: Mapping[str, FigureStats]
    fresh_until_unix_s: float | None
    began_unix_s: Mapping[str, float]
    labels: Labels
    applicable: Sequence[FigureSpec]
    seen: frozenset[str]
    stable_axes: StableAxes

    @property
    def leading(self) -> tuple[FigureSpec, ...]:
        """The figures that are drawn first: use, and progress; of servers, if there is nothing else."""
        return leading_of(self.applicable)

    @property
    def time_unix_s(self) -> float:
        return self.status.time_unix_s

    @property
    def last_unix_s(self) -> float | None:
        """Start of the newest sample with figures."""
        return max(self.began_unix_s.values(), default=None)

    @property
    def simulated(self) -> bool:
        """True if figures are made up, those of graphs too: a failure may not say so of the samples before it."""
        histories = (row.history for row in self.rows)
        return any(sample is not None and sample.simulated for each in histories for sample in (each.last, each.answer))

    @property
    def device_types(self) -> Sequence[str]:
        lasts = (_with_figures(row.history) for row in self.rows)
        return list(
            dict.fromkeys(last.device_type for last in lasts if last is not None and last.device_type is not None)
        )

    @property
    def methods(self) -> Mapping[str, Counter[str]]:
        """For `source`, `mxu`, `step` and `busy`: number of workers by method."""
        counts = {kind: Counter[str]() for kind in ("source", *(figure.key for figure in _MEASURED))}
        for row in self.rows:
            for kind, method in {} if row.sample is None else methods(row.sample).items():
                counts[kind].update([] if method is None else [method])
        return counts

    def changes_of(self, worker: str | None) -> list[Change]:
        """The changes of a worker, or of all, until this time; oldest first."""
        return [change for change in self.status.changes if worker is None or change.worker == worker]

    def row(self, name: str | None) -> WorkerStatus | None:
        return None if name is None else self.status.workers.get(name)

    def trend_of(self, row: WorkerStatus) -> Trend:
        last = row.history.last
        return Trend(row.history.series, None if last is None else last.interval_s, self.time_unix_s)

    def trend_of_fleet(self) -> Trend:
        """Recent averages over all workers."""
        lasts = (row.history.last for row in self.rows)
        known = [last.interval_s for last in lasts if last is not None and last.interval_s is not None]
        return Trend(self.status.average, min(known, default=None), self.time_unix_s)


def methods(sample: Sample) -> Mapping[str, str | None]:
    """The methods behind a sample's figures: of `source`, `mxu`, `step` and `busy`."""
    return {"source": sample.source, **{figure.key: figure.method(sample.figures) for figure in _MEASURED}}


def exporter_failed(row: WorkerStatus) -> bool:
    """True if the exporter behind --from does not answer, so that nothing is known about the worker itself."""
    return row.history.last is not None and row.history.last.of_exporter


def _with_figures(history: WorkerHistory) -> Sample | None:
    """A worker's last sample with figures, if only of its runtime."""
    return history.last if history.last is not None and history.last.has_figures else history.answer


class SceneMaker:
    """Makes scenes from the status that the analysis gives; keeps what outlives a scene."""

    def __init__(self, analysis: Analysis, glyphs: Glyphs) -> None:
        self._analysis = analysis
        self._glyphs = glyphs
        self._labels = Labels((), glyphs)
        self._seen: frozenset[str] = frozenset()
        self._stable_axes = StableAxes()

    def scene(self, now_unix_s: float, progress: Progress | None = None) -> Scene:
        """The scene now; by `progress`, a pause is over before the next sample says so."""
        status = _of_jobs(self._analysis.status(now_unix_s))
        over = {row.name: replace(row, verdict=_WAITING) for row in status.all() if is_paused_no_more(row, progress)}
        status = replace(status, workers={**status.workers, **over}) if over else status
        names = tuple(status.workers)
        if names != self._labels.workers:
            self._labels = Labels(names, self._glyphs)
        figures = status.figures()
        self._seen |= figures.keys()
        rows = status.all()
        lasts = {row.name: _with_figures(row.history) for row in rows}
        present = [row.sample for row in rows if row.sample is not None]
        applicable = applicable_figures(present or [last for last in lasts.values() if last is not None])
        fresh_for_s = [row.history.fresh_for_s(now_unix_s) for row in rows if row.sample is not None]
        return Scene(
            status=status,
            rows=rows,
            figures=figures,
            fresh_until_unix_s=now_unix_s + min(fresh_for_s) if fresh_for_s else None,
            began_unix_s={
                row.name: row.history.began_unix_s(last, now_unix_s)
                for row in rows
                if (last := lasts[row.name]) is not None
            },
            labels=self._labels,
            applicable=applicable,
            seen=self._seen & {figure.key for figure in applicable},
            stable_axes=self._stable_axes,
        )


def leading_of(applicable: Sequence[FigureSpec]) -> tuple[FigureSpec, ...]:
    """`Scene.leading`, where these figures apply."""
    return tuple(figure for figure in (MXU, STEP) if figure in applicable) if STEP in applicable else (BUSY, PROGRAM)


def is_paused_no_more(row: WorkerStatus, progress: Progress | None) -> bool:
    """True if its last sample says that it is paused, and the sampler asks it again, or waits for its turn."""
    if progress is None or row.verdict.state != "paused":
        return False
    doing = progress.of(row.target.address)
    return doing is not None and not doing.is_held


def _of_jobs(status: FleetStatus) -> FleetStatus:
    """The status in which each worker has the figures of its kind of job only."""
    others = {
        row.name: replace(row, sample=shown)
        for row in status.all()
        if row.sample is not None and (shown := of_job(row.sample)) is not row.sample
    }
    return replace(status, workers={**status.workers, **others}) if others else status
