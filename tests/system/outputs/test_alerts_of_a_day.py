"""A day of a fleet, minute by minute, as promtool evaluates the rules: what is normal pages nobody, incidents once.

Each of them by itself is in test_alerts.py.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest

from support.alerting import firing

pytestmark = [pytest.mark.real, pytest.mark.nightly]

DAY = 24 * 60
QUIET_AT = (300, 3)
"""Prometheus itself restarts: nothing is scraped for three minutes."""

FINDINGS = {
    "hang": ("TpuHang", "critical"),
    "straggler": ("TpuStraggler", "warning"),
    "slow-down": ("TpuSlowDown", "critical"),
    "input-bound": ("TpuInputBound", "warning"),
    "recompiling": ("TpuRecompiling", "warning"),
    "idle": ("TpuIdle", "warning"),
    "hbm-nearly-full": ("TpuHbmNearlyFull", "warning"),
}


def values_of_day(usual, *changes):
    """A series' values: the usual one, and from a minute on, for some minutes, another; None is no value."""
    values = [usual] * DAY
    for start, length, value in (*changes, (*QUIET_AT, None)):
        values[start : start + length] = [value] * min(length, DAY - start)
    runs = [(value, len(list(run))) for value, run in groupby(values)]
    return " ".join(f"stale _x{length - 1}" if value is None else f"{value}x{length - 1}" for value, length in runs)


def worker(slice_name, name, *, up=(), gone=(), paused=(), figures=True, found=None):
    """The series of one worker of a job with one tpumon per slice; what is found is a severity."""
    labels = (
        f'job="tpumon", instance="{slice_name}", tpu_job="ml/t", tpu_slice="{slice_name}", worker="{slice_name}-{name}"'
    )
    away = [(start, length, None) for start, length in gone]
    silent = [(start, length, None) for start, length in paused]
    series = {
        f"tpumon_target_info{{{labels}}}": values_of_day(1, *away),
        f"tpumon_target_independent{{{labels}}}": values_of_day(0, *away),
        f"tpumon_target_up{{{labels}}}": values_of_day(1, *up, *silent, *away),
        f"tpumon_target_paused{{{labels}}}": values_of_day(0, *((*span, 1) for span in paused), *away),
        f"tpumon_target_busy{{{labels}}}": values_of_day(0, *away),
        f"tpumon_target_active{{{labels}}}": values_of_day(1, *silent, *away),
        f"tpumon_sample_interval_seconds{{{labels}}}": values_of_day(60, *away),
        f"tpumon_target_last_success_timestamp_seconds{{{labels}}}": f"0+60x{gone[0][0] if gone else DAY}",
    }
    down = [(start, length, None) for start, length, _ in up]
    if figures:
        series[f'tpu_worker_info{{{labels}, source="trace"}}'] = values_of_day(1, *down, *silent, *away)
        for finding, told in (found or {}).items():
            of_finding = f'{labels}, finding="{finding}"'
            series[f"tpumon_finding_severity{{{of_finding}}}"] = values_of_day(0, *told, *down, *silent, *away)
            since = [(start, length, value and 60 * start) for start, length, value in told]
            series[f"tpumon_finding_since_timestamp_seconds{{{of_finding}}}"] = values_of_day(None, *since)
    return series


def exporter(name, *changes):
    labels = f'job="tpumon", instance="{name}"'
    return {
        f"up{{{labels}}}": values_of_day(1, *changes),
        f'tpumon_build_info{{{labels}, version="1"}}': values_of_day(
            1, *((start, length, None) for start, length, _ in changes)
        ),
    }


def fired(tmp_path, series):
    """How often each alert began to fire on each slice, seen every four minutes."""
    begun, before = Counter(), set()
    for alerts in firing(tmp_path, series, range(0, DAY, 4)).values():
        now = {(one["alertname"], one["severity"], one.get("tpu_slice", "")) for one in alerts}
        begun.update(now - before)
        before = now
    return dict(begun)


@pytest.mark.timeout(300)
def test_a_normal_day_pages_nobody(tmp_path):
    """Ends of jobs, images being pulled, pauses, short trouble, checkpoints, gaps. An end is told, as a warning."""
    checkpoints = {"hang": [(minute, 9, 1) for minute in range(60, 1380, 60)]}
    blips = checkpoints | {
        finding: [(minute, 3, 2) for minute in range(100, 1300, 200)] for finding in FINDINGS if finding != "hang"
    }
    series = exporter("steady") | exporter("ends") | exporter("vanishes") | exporter("starts") | exporter("paused")
    for name in ("a", "b"):
        series |= worker("steady", name, up=[(500, 3, 0), (700, 2, 0)], found=blips)
        series |= worker("ends", name, up=[(600, DAY, 0)])
        series |= worker("vanishes", name, gone=[(800, DAY)])
        series |= worker("starts", name, up=[(0, 25, 0)])
        series |= worker("paused", name, paused=[(400, 90)])

    assert fired(tmp_path, series) == {("TpuJobGone", "warning", "ends"): 1, ("TpuJobGone", "warning", "vanishes"): 1}


@pytest.mark.timeout(300)
def test_twelve_incidents_are_told_once_each(tmp_path):
    """Per slice, by the right name and severity, each for an hour, through one failed query in ten."""
    series, expected = {}, {}
    for place, (finding, (alert, severity)) in enumerate(FINDINGS.items()):
        start = 120 + 90 * place
        gaps = [(minute, 1, None) for minute in range(start + 9, start + 60, 10)]
        number = 3 if severity == "critical" else 2
        for name in ("a", "b"):
            series |= worker(finding, name, found={finding: [(start, 60, number), *gaps]})
        series |= exporter(finding)
        expected[alert, severity, finding] = 1

    series |= worker("down", "a") | worker("down", "b", up=[(400, 60, 0)]) | exporter("down")
    expected["TpuWorkerDown", "critical", "down"] = 1
    series |= worker("missing", "a") | worker("missing", "b", gone=[(900, DAY)]) | exporter("missing")
    expected["TpuWorkersMissing", "critical", "missing"] = 1
    series |= exporter("blind", (700, 40, 0))
    expected["TpumonExporterDown", "critical", ""] = 1

    grows = {"hbm-growing": [(220, 45, 2), (265, 15, 3)]}
    series |= worker("grows", "a", found=grows) | worker("grows", "b", found=grows) | exporter("grows")
    expected |= {("TpuHbmGrowing", severity, "grows"): 1 for severity in ("warning", "critical")}

    series |= worker("fails", "a") | worker("fails", "b") | exporter("fails")
    for name in ("a", "b"):
        labels = f'job="tpumon", instance="fails", tpu_job="ml/t", tpu_slice="fails", worker="fails-{name}"'
        series[f"tpu_runtime_slice_error{{{labels}}}"] = values_of_day(0, (1000, 30, 1))
    expected["TpuRuntimeError", "critical", "fails"] = 1

    assert len(expected) == 13  # HBM that grows is told again when it becomes a page
    assert fired(tmp_path, series) == expected
