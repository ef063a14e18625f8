"""The metrics page in Prometheus' binary format, which alone has native histograms.

A series is put together from parts that are encoded once: made as messages, a fleet's page takes several times as long.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise

from prometheus_client.registry import Collector

from tpumon.model import Distribution
from tpumon.outputs.metrics import ExposedFamily, HistogramMetric, Metric
from tpumon.outputs.metrics.metric_types import Kind
from tpumon.proto.metric_family_pb2 import (
    Bucket,
    ExposedCounter,
    Histogram,
    LabelledMetric,
    LabelPair,
    MetricFamily,
    MetricType,
    Timestamp,
)

CONTENT_TYPE = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"

_METRIC, _GAUGE, _COUNTER = b"\x22", b"\x12", b"\x1a"  # in a family; in a metric
_VALUE = b"\x09"  # in a gauge and a counter: 8 bytes follow
_pack = struct.Struct("<d").pack
_TYPES = {"gauge": MetricType.GAUGE, "counter": MetricType.COUNTER, "histogram": MetricType.HISTOGRAM}


def wanted(accept: str) -> bool:
    """True if an Accept header names the format first, as Prometheus does where it takes native histograms."""
    first = re.sub(r"[\s\"]", "", accept.partition(",")[0]).split(";")
    return set(CONTENT_TYPE.replace(" ", "").split(";")) <= set(first)


def labels(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Labels, as a part of a metric."""
    label_pairs = [LabelPair(name=name, value=value.encode(errors="replace").decode()) for name, value in pairs]
    return LabelledMetric(label=label_pairs).SerializeToString()


def encoded(family: ExposedFamily, workers: Mapping[str | None, bytes]) -> bytes:
    """A family with its length before it.

    Args:
        family: the family.
        workers: labels of each worker.
    """
    metric = family.metric
    parts = [MetricFamily(name=metric.name, help=metric.help, type=_TYPES[metric.kind]).SerializeToString()]
    for worker, series in family.series:
        known, head = workers.get(worker, b""), _head(metric.kind, family.since.get(worker))
        for own, value in series:
            named = known + _own_labels(metric.labels, own) if own else known
            parts.append(b"".join((_METRIC, _varint(len(named) + len(head) + 8), named, head, _pack(value))))
    for worker, values in family.histograms:
        native = metric.native if isinstance(metric, HistogramMetric) else None
        histogram = _histogram(values, native, family.since.get(worker))
        body = workers[worker] + LabelledMetric(histogram=histogram).SerializeToString()
        parts.append(b"".join((_METRIC, _varint(len(body)), body)))
    body = b"".join(parts)
    return _varint(len(body)) + body


def of_registry(registry: Collector) -> bytes:
    """The gauges and counters of prometheus_client's registry, without labels: those of this process."""
    families: list[bytes] = []
    for each in registry.collect():
        kind: Kind = "counter" if each.type == "counter" else "gauge"
        series = [((), sample.value) for sample in each.samples]
        name = f"{each.name}_total" if kind == "counter" else each.name
        families.append(
            encoded(ExposedFamily(Metric(name=name, help=each.documentation, kind=kind), [(None, series)]), {})
        )
    return b"".join(families)


def _histogram(values: Distribution, native: tuple[int, int] | None, since_unix_s: float | None) -> Histogram:
    """Histogram with classic buckets, and with equal native buckets if `native` says which; Prometheus chooses."""
    buckets = values.buckets()
    made = Histogram(
        sample_count=buckets[-1][1],
        sample_sum=values.total,
        bucket=[Bucket(cumulative_count=count, upper_bound=bound) for bound, count in buckets[:-1]],
        created_timestamp=_timestamp(since_unix_s),
    )
    if native is None:
        return made
    # What is shorter than the first bound is zero; what is longer than the last one is in the bucket after it.
    made.schema, first = native
    made.zero_threshold, made.zero_count = 2.0 ** (first / 2**made.schema), values.counts[0]
    used = [place for place, count in enumerate(values.counts) if count and place]
    if used:
        low, high = used[0], used[-1]
        made.positive_span.add(offset=first + low, length=high - low + 1)
        made.positive_delta.extend(after - before for before, after in pairwise((0, *values.counts[low : high + 1])))
    return made


@lru_cache(maxsize=4096)
def _head(kind: str, since_unix_s: float | None) -> bytes:
    """Bytes that precede the 8 of a value."""
    if kind == "gauge":
        return _GAUGE + _varint(9) + _VALUE
    created = ExposedCounter(created_timestamp=_timestamp(since_unix_s)).SerializeToString()
    return _COUNTER + _varint(len(created) + 9) + created + _VALUE


def _timestamp(unix_s: float | None) -> Timestamp | None:
    if unix_s is None:
        return None
    seconds, rest = divmod(unix_s, 1)
    return Timestamp(seconds=int(seconds), nanos=int(rest * 1e9))


@lru_cache(maxsize=4096)
def _own_labels(names: tuple[str, ...], values: tuple[str, ...]) -> bytes:
    return labels(zip(names, values, strict=True))


@lru_cache(maxsize=4096)
def _varint(value: int) -> bytes:
    """A number as protobuf writes lengths: seven bits a byte, the lowest first."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
