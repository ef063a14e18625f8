"""The history of each worker, and the one place that decides its state.

The caller passes the wall-clock time. Ages are measured on the monotonic clock where a sample knows its time there:
setting the wall clock makes no sample younger or older.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from tpumon.analysis.history.series import RollupSeries
from tpumon.analysis.history.states import began_before, listens, restart_unix_s, restarted, state_of
from tpumon.analysis.history.timeline import Moment, seconds_between
from tpumon.errors import MEANING, Detail, Reason
from tpumon.model import Distribution, JobKindName, KeptWorker, Process, Sample, State, Target, Workers
from tpumon.model.figure_table import COMPARED, of_job, values

_FULL_WORKERS = 256  # with more of them a week is coarser: the figures of all take 120 MB at most
_ON_TIME, _LATE = 0.8, 1.5  # of an interval, which is jittered
_FEW_S = 5.0
_TRACED_S = 600.0
_TRACED_STEPS = 5
_TRACED_STEP_S = _TRACED_S / _TRACED_STEPS
STEP_SCHEMA = 2
"""Prometheus' name for buckets of which four make a power of two."""
FIRST_STEP_BUCKET = -10 << STEP_SCHEMA
_LAST_STEP_BUCKET = 27
STEP_BUCKETS_S = tuple(
    float(f"{2 ** (place / (1 << STEP_SCHEMA)):.4g}") for place in range(FIRST_STEP_BUCKET, _LAST_STEP_BUCKET + 1)
)
"""Upper bounds of the step histogram's buckets, 1 ms to 108 s, 19 % apart; one more bucket holds longer steps. They are
those of a native histogram, rounded to be read."""


def _with_steps(known: Distribution | None, durations_s: Iterable[float]) -> Distribution:
    """A histogram of steps with some more in it."""
    counts, total_s = ([0] * (len(STEP_BUCKETS_S) + 1), 0.0) if known is None else (list(known.counts), known.total)
    for duration_s in durations_s:
        counts[bisect_left(STEP_BUCKETS_S, duration_s)] += 1
        total_s += duration_s
    return Distribution(bounds=STEP_BUCKETS_S, counts=tuple(counts), total=total_s)


def _is_of(restart: Sample | None, sample: Sample) -> bool:
    """True if a sample shows a restart that is known already: the runtime started no later than that restart."""
    uptime_s = sample.figures.runtime.uptime_s
    if restart is None or uptime_s is None:
        return False
    return sample.time_unix_s - uptime_s <= restart.time_unix_s + restart.took_s


def _figures_of(sample: Sample) -> Mapping[str, float | None]:
    """Compared figures that belong to the kind of job, by key."""
    return values(of_job(sample).figures)


NO_FIGURES: Mapping[str, float | None] = dict.fromkeys(COMPARED)
"""The compared figures of a worker that has none."""


class WorkerHistory(Struct):
    """One worker's last samples, and totals over all of them, as of its last query. Treat it as immutable.

    Attributes:
        target: the worker.
        queries: number of queries, answered or not.
        last: the sample of its last query, answered or not.
        figures: the compared figures of that sample, by key; computed once, for all who need them.
        last_state: the worker's state after that query.
        gap_s: the time between the last two queries in a row that were answered; None: there were none.
        answer: the last sample that its profiler answered.
        heard: end of the last query at which a profiler listened; None: at none yet.
        samples: number of queries that its profiler answered.
        truncated: how many of them were answered with a truncated trace.
        errors: number of failed queries, by reason.
        traced_s: total time for which its job was traced.
        traced: the same of the last minutes, by step: its begin on the wall and the monotonic clock, and for how long.
        first: the sample of its first query.
        steps: histogram of the steps of its traces; None before the first one.
        failed: the sample of its last failed query; None: none failed.
        series: its figures over time, up to now; None if they are not remembered.
        restarted: the first sample of its present job; None if no restart was seen.
        restart_unix_s: begin of its present job, as far as it is known; None if no restart was seen.
        restart_or_earlier: whether it may have begun before: nothing tells when, and the worker was not heard shortly
            before.
        job_began_unix_s: when the runtime of its present job started, the same for all its samples; None: not known.
        monotonic_s: reads the monotonic clock of `Sample.taken_monotonic_s`.
    """

    target: Target
    queries: int = 0
    last: Sample | None = None
    figures: Mapping[str, float | None] = field(default_factory=lambda: NO_FIGURES)
    last_state: State = "waiting"
    gap_s: float | None = None
    answer: Sample | None = None
    heard: Moment | None = None
    samples: int = 0
    truncated: int = 0
    errors: Counter[Reason] = field(default_factory=Counter)
    traced_s: float = 0.0
    traced: tuple[tuple[float, float | None, float], ...] = ()
    first: Sample | None = None
    steps: Distribution | None = None
    failed: Sample | None = None
    series: RollupSeries | None = None
    restarted: Sample | None = None
    restart_unix_s: float | None = None
    restart_or_earlier: bool = False
    job_began_unix_s: float | None = None
    _uptime_s: float | None = None
    _process: Process | None = None
    _found: Process | None = None  # with which the worker was found, or that its first sample names
    _listened_unix_s: float = -math.inf
    _was_closed: bool = False
    monotonic_s: Callable[[], float] = time.monotonic

    def kept_interval_s(self, now_unix_s: float, next_unix_s: float | None = None) -> float | None:
        """The interval as it is kept now: samples say the one in the long run, and the first come sooner or later.

        Args:
            now_unix_s: the present time.
            next_unix_s: when the next query is planned, or began; None: not known.

        Returns:
            The interval; as long as the present wait, if that is longer by more than chance. None: not known yet.
        """
        interval_s = None if self.last is None else self.last.interval_s
        if self.last is None or interval_s is None or self.gap_s is None:
            return None
        planned_s = 0.0 if next_unix_s is None else next_unix_s - self.last.time_unix_s
        waits_s = max(now_unix_s - self.last.time_unix_s, planned_s)
        is_sooner = 0 < self.gap_s < _ON_TIME * interval_s and waits_s < _LATE * self.gap_s
        kept_s = self.gap_s if is_sooner else interval_s
        return planned_s if planned_s > _LATE * kept_s else kept_s

    @property
    def interval_s(self) -> float:
        """The interval that the last sample says; 0: it is not known."""
        return 0.0 if self.last is None else self.last.interval_s or 0.0

    @property
    def job_signs(self) -> tuple[Process | None, float | None]:
        """The process of its job and the uptime of its runtime, as known last; others are a restart."""
        return self._process, self._uptime_s

    def resumed(self, kept: KeptWorker) -> WorkerHistory:
        """The history of a worker whose job was known before tpumon was restarted."""
        active_unix_s = kept.activity.active_unix_s
        return replace(
            self,
            _process=kept.process,
            _uptime_s=kept.uptime_s,
            _listened_unix_s=-math.inf if active_unix_s is None else active_unix_s,
        )

    def with_sample(self, sample: Sample) -> WorkerHistory:
        """The history after one more query. Figures over time are shared with the one before."""
        history = replace(self)
        WorkerHistory._add(history, sample)
        return history

    def with_last(self, sample: Sample) -> WorkerHistory:
        """The history with the last sample in another form, for example judged."""
        history = replace(self, last=sample)
        if sample.figures.server is not None:  # its kind may be known only now
            history.figures = _figures_of(sample)
        history.answer = sample if self.answer is self.last else self.answer
        history.failed = sample if self.failed is self.last else self.failed
        history.restarted = sample if self.restarted is self.last else self.restarted
        return history

    def _add(self, sample: Sample) -> None:
        self.queries += 1
        if self.restarted is not None:
            self.restarted = self.restarted.with_ops(0)
        self._found = self._found or sample.process  # recordings, and other exporters, do not say of whom they are
        if self._process is None and began_before(self._found, sample.process):
            self._process = self._found  # of which there was no sample
        is_restart = restarted(
            sample,
            process=self._process,
            uptime_s=self._uptime_s,
            was_closed=self._was_closed,
            listened_unix_s=self._listened_unix_s,
        )
        if sample.process is not None and listens(sample):
            self._process = sample.process
        if is_restart and not _is_of(self.restarted, sample):
            self.restarted, self.restart_unix_s = sample, restart_unix_s(sample, self._listened_unix_s)
            self.restart_or_earlier = self.restart_unix_s > self._listened_unix_s + _FEW_S and (
                self.restart_unix_s == sample.time_unix_s
            )
            self._uptime_s = self.job_began_unix_s = None  # of the job before it; the new one's may become known later
            if sample.process is None:
                self._process = self._found = None
        if listens(sample):
            self._listened_unix_s = sample.time_unix_s
            self.heard = Moment.of(sample).earlier(-sample.took_s)
        uptime_s = sample.figures.runtime.uptime_s
        if uptime_s is not None and self.job_began_unix_s is None:
            self.job_began_unix_s = sample.time_unix_s - uptime_s
        self._uptime_s = self._uptime_s if uptime_s is None else uptime_s
        kind = sample.job_kind if sample.job_kind is not None or self.last is None else self.last.job_kind
        self.figures = _figures_of(replace(sample, job_kind=kind))
        if self.last is not None and self.last.failure is sample.failure is None:
            self.gap_s = sample.time_unix_s - self.last.time_unix_s
        self.last, self.last_state = sample, state_of(sample)
        failure = sample.failure
        self._was_closed = failure is not None and failure.port_closed and self.answer is not None
        of_exporter = failure is not None and sample.of_exporter  # not a query of this worker
        if failure is None:
            self.answer = sample
            self.samples += 1
            self.truncated += sample.truncated is not None
        elif not of_exporter:
            self.errors = self.errors + Counter([failure.reason])
        if failure is not None:
            self.failed = sample
        if sample.figures.step_durations_s:
            self.steps = _with_steps(self.steps, sample.figures.step_durations_s)
        if self.series is not None and not of_exporter:
            self.series.add(
                sample.time_unix_s, self.last_state, self.figures.values(), taken_monotonic_s=sample.taken_monotonic_s
            )
        if sample.traced_s:
            self._add_traced(sample)
        if self.first is None:
            self.first = sample.with_ops(0)  # those of the last trace are enough

    def _add_traced(self, sample: Sample) -> None:
        self.traced_s += sample.traced_s
        if self.traced and 0 <= sample.time_unix_s - self.traced[-1][0] < _TRACED_STEP_S:
            *before, (begin_unix_s, begin_s, traced_s) = self.traced
            self.traced = (*before, (begin_unix_s, begin_s, traced_s + sample.traced_s))
        else:
            begun = sample.time_unix_s, sample.taken_monotonic_s, sample.traced_s
            self.traced = (*self.traced[-_TRACED_STEPS:], begun)

    @property
    def kind(self) -> JobKindName | None:
        """The kind of its job, as its last sample says; None: not known."""
        return None if self.last is None else self.last.kind

    @property
    def failure_words(self) -> str:
        """The message of the failure of its last query, without the address; empty: it did not fail."""
        return "" if self.last is None or self.last.failure is None else self.last.failure.message

    @property
    def failure_detail(self) -> Detail | None:
        """The detail of the failure of its last query; None: it has none, or it did not fail."""
        return None if self.last is None or self.last.failure is None else self.last.failure.detail

    @property
    def is_unheard(self) -> bool:
        """True if its last query came a while after it was heard last: more than a few seconds, and an interval."""
        if self.heard is None or self.last is None:
            return True
        return seconds_between(self.heard, Moment.of(self.last)) > max(_FEW_S, _LATE * (self.gap_s or 0.0))

    def had_figures(self) -> bool:
        """True if its profiler ever answered: a sample here, or in the history that an exporter handed on."""
        if self.answer is not None or self.series is None:
            return self.answer is not None
        begin_unix_s, end_unix_s = self.series.oldest_unix_s, self.series.newest_unix_s
        if begin_unix_s is None or end_unix_s is None:
            return False
        points = self.series.points(next(iter(COMPARED)), begin_unix_s, end_unix_s)
        return any("live" in point.states for point in points)

    def state(self, now_unix_s: float) -> State:
        """The worker's state now."""
        state = self.last_state
        return "stale" if state in {"live", "no-activity"} and self.fresh_for_s(now_unix_s) < 0 else state

    def current(self, now_unix_s: float) -> Sample | None:
        """The sample whose figures may be shown as current; None if there is none."""
        return None if self.last is None or self.last.is_stale(now_unix_s, self.monotonic_s()) else self.last

    def fresh_for_s(self, now_unix_s: float) -> float:
        """Seconds until its last sample is stale by its age; negative if it is."""
        return 0.0 if self.last is None else self.last.fresh_for_s - self.last.age_s(now_unix_s, self.monotonic_s())

    def began_unix_s(self, sample: Sample, now_unix_s: float) -> float:
        """Begin of one of its samples, by the wall clock as it is set now: ages are differences to that."""
        return now_unix_s - sample.age_s(now_unix_s, self.monotonic_s())

    def is_up(self, now_unix_s: float) -> bool | None:
        """True if the worker responds, even without figures; None if it is paused, not queried yet, or not known."""
        if self.last is None or self.last.of_exporter or self.state(now_unix_s) == "paused":
            return None
        if self.last.is_conclusive:
            return not self.last.is_stale(now_unix_s, self.monotonic_s())
        return self.last.failure is None or not MEANING[self.last.failure.reason].unreached

    def traced_ratio(self, now_unix_s: float) -> float | None:
        """Share of the last 10 minutes for which its job was traced, as far as is known here; None: it never was.

        The share is of 10 minutes also if the worker was followed for less: the first traces come at once, and are few.
        """
        now_s = self.monotonic_s()
        shares = (
            traced_s * min(max((_TRACED_S - age_s) / _TRACED_STEP_S + 1, 0.0), 1.0)
            for begin_unix_s, begin_s, traced_s in self.traced
            for age_s in (now_unix_s - begin_unix_s if begin_s is None else now_s - begin_s,)
        )
        return sum(shares) / _TRACED_S if self.traced_s else None


class Histories:
    """The histories of all workers that are followed, in the order of `Workers.targets`.

    Only the last samples and totals, unless `remember` is called before the first worker.

    Args:
        monotonic_s: reads the monotonic clock of `Sample.taken_monotonic_s`.
    """

    def __init__(self, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._remembers = False
        self._factor = 1  # of the length of rows that are remembered
        self._monotonic_s = monotonic_s
        self._workers: dict[str, WorkerHistory] = {}
        self.waiting: str | None = None
        """Why there is no worker to follow; None if there is one, or before the first call of `follow`."""
        self.finders: Mapping[str, bool] = {}
        """Whether the workers can be found, as `Workers.finders`."""
        self.unheard: tuple[str, ...] = ()
        """Exporters that do not answer and whose workers are not known, as in `Workers.unheard`."""

    def remember(self) -> None:
        """Keeps the figures of a week, too."""
        self._remembers = True

    def follow(self, workers: Workers) -> None:
        """Replaces the workers; a worker that stays keeps its history."""
        known = self._workers
        self._workers = {}
        self._factor = max(self._factor, -(-len(workers.targets) // _FULL_WORKERS))
        for target in workers.targets:
            history = known.get(target.worker)
            same = history is not None and history.target == target
            if history is None or not same:
                history = self._new(target) if history is None else replace(history, target=target)
            self._workers[target.worker] = history
        self.waiting = workers.waiting
        self.finders = workers.finders
        self.unheard = workers.unheard

    def _new(self, target: Target) -> WorkerHistory:
        series = RollupSeries(tuple(COMPARED)) if self._remembers else None
        found = target.process_before or target.process
        return WorkerHistory(target, series=series, _found=found, monotonic_s=self._monotonic_s)

    def add(self, sample: Sample) -> WorkerHistory | None:
        """Adds a sample; returns its history. Returns None and drops the sample if its worker is no longer followed."""
        history = self._workers.get(sample.worker)
        if history is not None:
            if history.series is not None and history.series.factor < self._factor:
                history.series.coarsen(self._factor)
            history = self._workers[sample.worker] = history.with_sample(sample)
        return history

    def put(self, history: WorkerHistory) -> None:
        """Replaces the history of a worker that is followed."""
        self._workers[history.target.worker] = history

    def get(self, worker: str) -> WorkerHistory | None:
        """The history of the worker with this name; None if it is not followed."""
        return self._workers.get(worker)

    def all(self) -> list[WorkerHistory]:
        """All histories."""
        return list(self._workers.values())
