"""The metrics: what a Prometheus scrape shows and where each value comes from, and `collect`, which reads it.

`docs/metrics.md` is generated from it. Ratios are 0-1, times seconds, sizes bytes. An absent value has no series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from math import isfinite

from tpumon.history import Histories, State, WorkerHistory
from tpumon.metrics.kinds import (
    ExporterMetric,
    FindingMetric,
    HistogramMetric,
    Metric,
    SampleMetric,
    Series,
    TargetMetric,
)
from tpumon.metrics.table import EXPORTER_METRICS, FINDING_METRICS, HISTOGRAMS, SAMPLE_METRICS, TARGET_METRICS
from tpumon.model import Cause, Distribution, FindingId, Sample
from tpumon.model.frozen import frozen

__all__ = [
    "EXPORTER_METRICS",
    "FINDING_METRICS",
    "HISTOGRAMS",
    "METRICS",
    "SAMPLE_METRICS",
    "TARGET_METRICS",
    "ExporterMetric",
    "Family",
    "FindingMetric",
    "HistogramMetric",
    "Judged",
    "Metric",
    "SampleMetric",
    "Series",
    "TargetMetric",
    "collect",
]

METRICS: tuple[Metric, ...] = (*SAMPLE_METRICS, *HISTOGRAMS, *FINDING_METRICS, *TARGET_METRICS, *EXPORTER_METRICS)
"""All metrics, in the order of the page."""


@frozen(kw_only=False)
class Family:
    """A metric and its values at one time.

    Attributes:
        metric: the metric.
        series: a worker's name and its series; None for series of the exporter itself.
        histograms: a worker's name and its histogram; only for a HistogramMetric.
    """

    metric: Metric
    series: Sequence[tuple[str | None, Sequence[Series]]] = ()
    histograms: Sequence[tuple[str, Distribution]] = ()


Judged = Callable[[str], Mapping[FindingId, Cause | None]]
"""Each finding that can be judged of a worker, by the worker's name, with its cause while it is present."""

_NOT_KNOWN: AbstractSet[State] = frozenset({"down", "stale", "waiting"})


def collect(
    histories: Histories,
    now_unix_s: float,
    on_error: Callable[[Metric, Exception], None],
    *,
    judged: Judged | None = None,
    workers: Sequence[WorkerHistory] | None = None,
    names: AbstractSet[str] | None = None,
) -> Iterator[Family]:
    """Reads every metric, in the order of the table; also those without values.

    Values are finite, and no two series have the same labels. A metric that raises for a worker has no value there.

    Args:
        histories: the workers.
        now_unix_s: the time, which decides whose sample is current.
        on_error: called with each metric that raises, for each worker.
        judged: what is wrong with a worker; None: nobody judges.
        workers: the workers to read; None: all.
        names: read only metrics with a series of one of these names; None: all.
    """
    followed = [(h.target.worker, h) for h in (histories.all() if workers is None else workers)]
    current = [(worker, h, sample) for worker, h in followed if (sample := h.current(now_unix_s)) is not None]
    # Also of a worker whose figures somebody keeps away: it is as judged last.
    known = [] if judged is None else [worker for worker, h in followed if h.state(now_unix_s) not in _NOT_KNOWN]
    found = cache(judged or (lambda _worker: {}))
    for metric in METRICS:
        if names is not None and names.isdisjoint(metric.series_names):
            continue
        reads: Iterable[_Read]
        match metric:
            case SampleMetric(values=of_sample):
                reads = ((worker, of_sample, (sample,)) for worker, _, sample in current)
            case FindingMetric(value=of_cause):
                reads = ((worker, _findings, (of_cause, found, worker)) for worker in known)
            case TargetMetric(values=of_target):
                reads = ((worker, of_target, (history, now_unix_s)) for worker, history in followed)
            case ExporterMetric(values=of_all):
                reads = ((None, of_all, (histories,)),)
            case HistogramMetric():
                yield Family(metric, histograms=_histograms(metric, current, on_error))
                continue
        yield Family(metric, _series(metric, reads, on_error))


def _findings(of_cause: Callable[[Cause | None], float | None], found: Judged, worker: str) -> Iterable[Series]:
    values = ((finding, of_cause(cause)) for finding, cause in found(worker).items())
    return [((finding,), value) for finding, value in values if value is not None]


_Read = tuple[str | None, Callable[..., Iterable[Series]], tuple[object, ...]]
"""A worker's name, and the function that reads its series, with its arguments."""


def _series(
    metric: Metric, reads: Iterable[_Read], on_error: Callable[[Metric, Exception], None]
) -> list[tuple[str | None, Sequence[Series]]]:
    labelled = bool(metric.labels)
    rows: list[tuple[str | None, Sequence[Series]]] = []
    for worker, read, arguments in reads:
        try:
            series = read(*arguments)
            if labelled:  # of two series with the same labels, which no scraper would take, the last
                series = dict(series).items()
            finite = [each for each in series if isfinite(each[1])]
        except Exception as error:  # noqa: BLE001 - one metric's bug must not cost the others
            on_error(metric, error)
            continue
        if finite:
            rows.append((worker, finite))
    return rows


def _histograms(
    metric: HistogramMetric,
    current: Iterable[tuple[str, WorkerHistory, Sample]],
    on_error: Callable[[Metric, Exception], None],
) -> list[tuple[str, Distribution]]:
    rows: list[tuple[str, Distribution]] = []
    for worker, history, sample in current:
        try:
            values = metric.value(history, sample)
            if values is not None and isfinite(values.total):
                rows.append((worker, values))
        except Exception as error:  # noqa: BLE001 - one metric's bug must not cost the others
            on_error(metric, error)
    return rows
