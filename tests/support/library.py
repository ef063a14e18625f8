"""What prometheus_client makes of the same figures."""

from __future__ import annotations

import re
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from tpumon import metrics


class Library(Collector):
    """The table of metrics as its families, for its own renderers.

    Args:
        histories: the workers.
        now_unix_s: decides whose sample is still the present one.
        openmetrics: with units, which only that format has.
        judged: what is wrong with a worker.
    """

    def __init__(self, histories, now_unix_s, *, openmetrics=False, judged=lambda _worker: {}):
        self._judged = judged
        self._histories = histories
        self._now_unix_s = now_unix_s
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
            for own, value in metric.values(self._histories):
                family.add_metric(own, value)
        for history in self._histories.all():
            current, target = history.current(self._now_unix_s), history.target
            worker = (target.worker, target.job, target.slice)
            match metric:
                case metrics.SampleMetric() if current is not None:
                    self._add(family, worker, metric.values(current))
                case metrics.FindingMetric() if history.state(self._now_unix_s) not in {"down", "stale", "waiting"}:
                    values = [((name,), metric.value(cause)) for name, cause in self._judged(target.worker).items()]
                    self._add(family, worker, [(own, value) for own, value in values if value is not None])
                case metrics.TargetMetric():
                    self._add(family, worker, metric.values(history, self._now_unix_s))
                case metrics.HistogramMetric() if current is not None:
                    values = metric.value(history, current)
                    if values is not None:
                        buckets = [(floatToGoString(bound), count) for bound, count in values.buckets()]
                        family.add_metric(worker, buckets, values.total)
        for each in family.samples:
            for name in ("tpu_job", "tpu_slice"):
                if not each.labels.get(name):  # not known
                    each.labels.pop(name, None)
        return family

    @staticmethod
    def _add(family, worker, values: Iterable[metrics.Series]):
        for own, value in values:
            family.add_metric((*worker, *own), value)
