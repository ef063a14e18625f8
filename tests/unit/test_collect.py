"""The walk over workers and metrics that every exporter of metrics shares."""

from __future__ import annotations

import math

import pytest

from support.exporter import found, sample
from tpumon import metrics
from tpumon.analysis import Analysis
from tpumon.metrics import METRICS, SampleMetric, collect

NOW = 1_769_000_000.0


def followed(*samples):
    fleet = Analysis()
    fleet.take(found("a", "b"))
    for each in samples:
        fleet.take(each)
    return fleet.status(NOW)


def unexpected(metric, error):
    pytest.fail(f"{metric.name}: {error}")


def families(status, **options):
    return {family.metric.name: family for family in collect(status, unexpected, **options)}


def test_every_metric_comes_in_the_order_of_the_table_with_its_workers():
    """Those without values, too; figures only of workers whose sample is current."""
    status = followed(
        sample("a", time_unix_s=NOW, step_durations_s=(0.01,)), sample("b", time_unix_s=NOW - 1000, idle_ratio=0.1)
    )
    got = families(status)
    assert list(got) == [metric.name for metric in METRICS]
    assert got["tpu_mxu_utilization_ratio"].series == [("a", [((), 0.425)])]
    assert got["tpu_idle_ratio"].series == []
    assert [worker for worker, _ in got["tpumon_target_up"].series] == ["a", "b"]
    assert [(worker, steps.total) for worker, steps in got["tpu_step_duration_seconds"].histograms] == [("a", 0.01)]
    assert got["tpumon_waiting"].series == [(None, [((), 0.0)])]


def test_only_the_workers_and_metrics_that_were_asked_for():
    """Metrics by the names of their series."""
    status = followed(sample("a", time_unix_s=NOW), sample("b", time_unix_s=NOW))
    names = {"tpumon_samples_total", "tpu_step_duration_seconds_bucket"}
    got = families(status, workers=[status.workers["b"]], names=names)
    assert list(got) == ["tpu_step_duration_seconds", "tpumon_samples_total"]
    assert got["tpumon_samples_total"].series == [("b", [((), 1.0)])]


def test_values_are_finite_and_their_labels_unique(monkeypatch):
    """Of two series with the same labels the last; a worker with no value left has no entry."""
    values = {"a": [(("x",), 1.0), (("x",), 2.0), (("y",), math.inf)], "b": [(("x",), math.nan)]}
    odd = SampleMetric(name="tpu_odd", help="Odd.", labels=("which",), values=lambda each: values[each.worker])
    monkeypatch.setattr(metrics, "METRICS", (odd,))
    (family,) = families(followed(sample("a", time_unix_s=NOW), sample("b", time_unix_s=NOW))).values()
    assert family.series == [("a", [(("x",), 2.0)])]


def test_a_metric_that_raises_is_reported_and_costs_only_itself(monkeypatch):
    """For each worker."""

    def values(_sample):
        yield (), 1.0
        raise KeyError("boom")

    broken = SampleMetric(name="tpu_broken", help="Broken.", values=values)
    monkeypatch.setattr(metrics, "METRICS", (broken, *METRICS))
    errors = []
    status = followed(sample("a", time_unix_s=NOW), sample("b", time_unix_s=NOW))
    got = list(collect(status, lambda metric, error: errors.append((metric.name, str(error)))))
    assert got[0].series == []
    assert len(got) == 1 + len(METRICS)
    assert errors == [("tpu_broken", "'boom'")] * 2
