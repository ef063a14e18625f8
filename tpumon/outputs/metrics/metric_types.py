"""Kinds of metrics. An absent value has no series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, ParamSpec, TypeVar

from msgspec import Struct

from tpumon.analysis import FleetStatus
from tpumon.analysis.history import WorkerHistory
from tpumon.model import Cause, Distribution, Sample

RowT = TypeVar("RowT")
AboutP = ParamSpec("AboutP")

Kind = Literal["gauge", "counter", "histogram"]
Series = tuple[tuple[str, ...], float]
"""Values of a metric's own labels, in order, and its value."""

SampleValues = Callable[[Sample], Iterable[Series]]


def followed_since(history: WorkerHistory) -> float | None:
    """Begin of the worker's first query."""
    return None if history.first is None else history.first.time_unix_s


class Metric(Struct, frozen=True, kw_only=True):
    """Base of all metrics.

    Attributes:
        name: as exposed; a counter's ends in `_total`.
        help: one line: what is measured, and by which RPC, proto field or XProf function.
        kind: its Prometheus type.
        labels: its own labels, in addition to `worker`, `tpu_job` and `tpu_slice`, which every metric about a worker
            has; the last two where they are known.
        since: since when a worker's counts count, in seconds since the epoch, the same for as long as they do. None of
            gauges, and of what is there as 0 from the start: it costs a series each.
    """

    name: str
    help: str
    kind: Kind = "gauge"
    labels: tuple[str, ...] = ()
    since: Callable[[WorkerHistory], float | None] | None = None

    @property
    def series_names(self) -> tuple[str, ...]:
        """Names of its series on a Prometheus page."""
        if self.kind == "histogram":
            return tuple(f"{self.name}{suffix}" for suffix in ("_bucket", "_count", "_sum"))
        return (self.name,)


class SampleMetric(Metric, frozen=True, kw_only=True):
    """A figure of a worker's current sample; absent once the sample is stale.

    Attributes:
        values: the series of one sample.
    """

    values: SampleValues


class TargetMetric(Metric, frozen=True, kw_only=True):
    """Describes how a worker is watched; present as long as the worker is followed.

    Attributes:
        values: the series of one worker at a time, in seconds since the epoch.
    """

    values: Callable[[WorkerHistory, float], Iterable[Series]]


class HistogramMetric(Metric, frozen=True, kw_only=True):
    """Durations in buckets; absent once the worker's sample is stale.

    Attributes:
        value: the histogram of one worker and its current sample; None if nothing was counted.
        native: its buckets are those of a native histogram: schema, and the place of the first bound there.
    """

    value: Callable[[WorkerHistory, Sample], Distribution | None]
    native: tuple[int, int] | None = None

    @property
    def series_names(self) -> tuple[str, ...]:
        """Also its own, which a native histogram has."""
        return (*super().series_names, *(() if self.native is None else (self.name,)))


class FindingMetric(Metric, frozen=True, kw_only=True):
    """A figure of each finding that can be judged of a worker; absent while the worker is down or stale.

    Attributes:
        value: the figure of one finding, by its cause, which is None while the finding is absent.
    """

    labels: tuple[str, ...] = ("finding",)
    value: Callable[[Cause | None], float | None]


class ExporterMetric(Metric, frozen=True, kw_only=True):
    """Describes the exporter itself; has no `worker` label.

    Attributes:
        values: the series, from everything that is followed.
    """

    values: Callable[[FleetStatus], Iterable[Series]]


def single(get: Callable[AboutP, float | None]) -> Callable[AboutP, Iterable[Series]]:
    """One series without labels, or none if the value is absent."""

    def values(*about: AboutP.args, **more: AboutP.kwargs) -> Iterable[Series]:
        value = get(*about, **more)
        return () if value is None else (((), float(value)),)

    return values


def of_each(rows: Callable[[Sample], Iterable[RowT]], label: Callable[[RowT], str], key: str) -> SampleValues:
    """One series per row, such as a core or a device, that has the value `key`."""

    def values(sample: Sample) -> Iterator[Series]:
        for row in rows(sample):
            value = getattr(row, key)
            if value is not None:
                yield (label(row),), float(value)

    return values
