"""What prometheus_client makes of the same figures."""

from __future__ import annotations

import re
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from tpumon.outputs import metrics


class Library(Collector):
    """The table of metrics as its families, for its own renderers.

    Args:
        status: of the workers.
        openmetrics: with units and since when counts count, which only that format has.
    """

    def __init__(self, status, *, openmetrics=False):
        self._status = status
        self._openmetrics = openmetrics

    def collect(self):
        for metric in metrics.METRICS:
            yield self._family(metric)

    def _family(self, metric):
        kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
        labels = () if isinstance(metric, metrics.ExporterMetric) else ("worker", "tpu_job", "tpu_slice")
        unit = re.search(r"_(seconds|bytes|ratio)(_total)?$", metric.name)
        family = kinds[metric.kind](
            metric.name, metric.help, labels=(*labels, *metric.labels),
            unit=unit[1] if unit and self._openmetrics else "",
        )  # fmt: skip
        if isinstance(metric, metrics.ExporterMetric):
            for own, value in metric.values(self._status):
                family.add_metric(own, value)
        for each in self._status.all():
            current, target = each.sample, each.target
            worker = (target.worker, target.job, target.slice)
            since = metric.since(each.history) if metric.since and self._openmetrics else None
            match metric:
                case metrics.SampleMetric() if current is not None:
                    self._add(family, worker, metric.values(current), since)
                case metrics.FindingMetric() if each.verdict.state not in {"down", "stale", "waiting"}:
                    values = [((name,), metric.value(cause)) for name, cause in each.findings.items()]
                    self._add(family, worker, [(own, value) for own, value in values if value is not None])
                case metrics.TargetMetric():
                    self._add(family, worker, metric.values(each.history, self._status.time_unix_s), since)
                case metrics.HistogramMetric() if current is not None:
                    values = metric.value(each.history, current)
                    if values is not None:
                        buckets = [(floatToGoString(bound), count) for bound, count in values.buckets()]
                        family.add_metric(worker, buckets, values.total)
                        if since is not None:
                            family.add_sample(f"{metric.name}_created", dict(zip(labels, worker, strict=True)), since)
        for each in family.samples:
            for name in ("tpu_job", "tpu_slice"):
                if not each.labels.get(name):  # not known
                    each.labels.pop(name, None)
        return family

    @staticmethod
    def _add(family, worker, values: Iterable[metrics.Series], since=None):
        for own, value in values:
            created = () if since is None else (since,)
            family.add_metric((*worker, *own), value, *created)
