"""The metrics: what a Prometheus scrape shows and where each value comes from, and `collect`, which reads it.

`docs/metrics.md` is generated from it. Ratios are 0-1, times seconds, sizes bytes. An absent value has no series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import isfinite

from msgspec import Struct

from tpumon.analysis import FleetStatus, WorkerStatus
from tpumon.analysis.status import NOT_THERE
from tpumon.model import Cause, Distribution, FindingId, Sample
from tpumon.outputs.metrics.families import (
    EXPORTER_METRICS,
    FINDING_METRICS,
    HISTOGRAMS,
    SAMPLE_METRICS,
    TARGET_METRICS,
)
from tpumon.outputs.metrics.metric_types import (
    ExporterMetric,
    FindingMetric,
    HistogramMetric,
    Metric,
    SampleMetric,
    Series,
    TargetMetric,
)

__all__ = [
    "EXPORTER_METRICS",
    "FINDING_METRICS",
    "HISTOGRAMS",
    "METRICS",
    "SAMPLE_METRICS",
    "TARGET_METRICS",
    "ExporterMetric",
    "ExposedFamily",
    "FindingMetric",
    "HistogramMetric",
    "Metric",
    "SampleMetric",
    "Series",
    "TargetMetric",
    "collect",
]

METRICS: tuple[Metric, ...] = (*SAMPLE_METRICS, *HISTOGRAMS, *FINDING_METRICS, *TARGET_METRICS, *EXPORTER_METRICS)
"""All metrics, in the order of the page."""


class ExposedFamily(Struct, frozen=True):
    """A metric and its values at one time.

    Attributes:
        metric: the metric.
        series: a worker's name and its series; None for series of the exporter itself.
        histograms: a worker's name and its histogram; only for a HistogramMetric.
        since: since when the counts of a worker count, by its name, where that is known.
    """

    metric: Metric
    series: Sequence[tuple[str | None, Sequence[Series]]] = ()
    histograms: Sequence[tuple[str, Distribution]] = ()
    since: Mapping[str | None, float] = {}


def collect(
    status: FleetStatus,
    on_error: Callable[[Metric, Exception], None],
    *,
    workers: Sequence[WorkerStatus] | None = None,
    names: AbstractSet[str] | None = None,
    whole: bool = False,
) -> Iterator[ExposedFamily]:
    """Reads every metric, in the order of the table; also those without values.

    Values are finite, and no two series have the same labels. A metric that raises for a worker has no value there.

    Args:
        status: of all workers.
        on_error: called with each metric that raises, for each worker.
        workers: the workers to read; None: all.
        names: read only metrics with a series of one of these names; None: all.
        whole: whether to read all metrics of workers that come from exporters, too, but for stale ones; else only
            their findings.
    """
    asked = status.all() if workers is None else workers
    followed = [each for each in asked if each.target.exporter is None or (whole and each.verdict.state != "stale")]
    current = [(each, each.sample) for each in followed if each.sample is not None]
    # Also of a worker whose figures are kept away: its status is the last judgement.
    judged = [(each.name, each.findings) for each in asked if each.verdict.state not in NOT_THERE]
    for metric in METRICS:
        if names is not None and names.isdisjoint(metric.series_names):
            continue
        since = _since(metric, followed)
        reads: Iterable[_Read]
        match metric:
            case SampleMetric(values=of_sample):
                reads = ((each.name, of_sample, (sample,)) for each, sample in current)
            case FindingMetric(value=of_cause):
                reads = ((name, _findings, (of_cause, findings)) for name, findings in judged)
            case TargetMetric(values=of_target):
                reads = ((each.name, of_target, (each.history, status.time_unix_s)) for each in followed)
            case ExporterMetric(values=of_all):
                reads = ((None, of_all, (status,)),)
            case HistogramMetric():
                yield ExposedFamily(metric, histograms=_histograms(metric, current, on_error), since=since)
                continue
        yield ExposedFamily(metric, _series(metric, reads, on_error), since=since)


def _since(metric: Metric, followed: Iterable[WorkerStatus]) -> Mapping[str | None, float]:
    if metric.since is None:
        return {}
    since = ((each.name, metric.since(each.history)) for each in followed)
    return {name: since_unix_s for name, since_unix_s in since if since_unix_s is not None}


def _findings(
    of_cause: Callable[[Cause | None], float | None], findings: Mapping[FindingId, Cause | None]
) -> Iterable[Series]:
    values = ((finding, of_cause(cause)) for finding, cause in findings.items())
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
    current: Iterable[tuple[WorkerStatus, Sample]],
    on_error: Callable[[Metric, Exception], None],
) -> list[tuple[str, Distribution]]:
    rows: list[tuple[str, Distribution]] = []
    for worker, sample in current:
        try:
            values = metric.value(worker.history, sample)
            if values is not None and isfinite(values.total):
                rows.append((worker.name, values))
        except Exception as error:  # noqa: BLE001 - one metric's bug must not cost the others
            on_error(metric, error)
    return rows
