"""The walk over workers and metrics that every exporter of metrics shares."""

from __future__ import annotations

import math
import time
from contextlib import closing

import pytest
from msgspec.structs import replace

from support.exporter import found, sample
from support.wired import wired
from tpumon.analysis import Analysis
from tpumon.model import Cause, Target, Workers
from tpumon.outputs import OutputSettings, metrics
from tpumon.outputs.metrics import METRICS, SampleMetric, collect
from tpumon_exporters.exposition import Exposition

pytestmark = pytest.mark.usefixtures("quiet")

NOW = 1_769_000_000.0


def followed(*samples):
    fleet = Analysis()
    fleet.add(found("a", "b"))
    for each in samples:
        fleet.add(each)
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


def of_exporters():
    """One worker sampled here, and of exporters one with two names, one that is stale, one that is down."""
    fleet = Analysis()
    fleet.add(Workers(targets=(
        Target(worker="own", address="own:1"),
        Target(worker="j/0/w", name="w", job="j", slice="0", address="w:1", exporter="a"),
        Target(worker="old", address="old:1", exporter="b"),
        Target(worker="down", address="down:1", exporter="c"),
    )))  # fmt: skip
    judged = {"findings": (Cause(words="x", finding="idle", severity="warning", since_unix_s=NOW),),
              "judged": ("idle", "hang")}  # fmt: skip
    for worker, age_s in (("own", 0), ("j/0/w", 0), ("old", 1000)):
        fleet.add(replace(sample(worker, time_unix_s=NOW - age_s), **({} if worker == "own" else judged)))
    fleet.add(sample("down", reason="unavailable", time_unix_s=NOW))
    return fleet.status(NOW + 1)


@pytest.mark.parametrize("expose", ["findings", "all"])
def test_of_workers_of_exporters_findings_alone(expose):
    """Two series of one worker break joins; all only on demand, of stale ones none."""
    text = Exposition("prometheus", expose).render(of_exporters())
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert any(line.startswith('tpu_mxu_utilization_ratio{worker="own"') for line in lines)
    assert any(line.startswith("tpumon_build_info") for line in lines)
    assert "tpumon_waiting 0.0" in lines
    assert not any('"old"' in line for line in lines)
    labels = 'worker="w",tpu_job="j",tpu_slice="0"'
    findings = [line for line in lines if labels in line and line.startswith("tpumon_finding")]
    assert f'tpumon_finding_severity{{{labels},finding="idle"}} 2.0' in findings
    assert f'tpumon_finding_severity{{{labels},finding="hang"}} 0.0' in findings
    assert f'tpumon_finding_active_severity{{{labels},finding="idle"}} 2.0' in findings
    assert any(line.startswith("tpumon_finding_since_timestamp_seconds") for line in findings)
    others = [line for line in lines if ('"down"' in line or labels in line) and line not in findings]
    assert bool(others) is (expose == "all")
    assert ('tpumon_target_up{worker="down"} 0.0' in lines) is (expose == "all")


def test_the_textfile_has_the_same(tmp_path, said):
    for expose in ("findings", "all"):
        events = [Workers(targets=(Target(worker="w", address="w:1", exporter="a"),)), sample("w")]
        with closing(wired("textfile", str(tmp_path / "a.prom"), settings=OutputSettings(expose=expose))) as output:
            output.add(*events)
            output.tick(time.time())
            assert ("tpu_mxu_utilization_ratio{" in (tmp_path / "a.prom").read_text()) is (expose == "all")
    assert [line.endswith("node_exporter would go on exposing it") for line in said] == [True, True]
    said.clear()


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
