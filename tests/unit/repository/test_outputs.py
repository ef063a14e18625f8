"""Where samples go: JSON lines, notices, the thread between sampling and showing."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from support import samples
from support.samples import failed_sample
from support.wired import wired
from tpumon.errors import UsageError
from tpumon.model import Spread, StepTimes


def sample(worker="w", reason=None, **figures):
    if reason is not None:
        return failed_sample(worker, reason, reason, time_unix_s=5.5, **figures)
    return samples.sample(worker, **({"time_unix_s": 5.5, "source": "monitor"} | figures))


def test_a_json_line_is_the_whole_sample(tmp_path):
    """Every field of the contract is there, absent ones as null, a measured zero as 0; one line a sample."""
    output = wired("jsonl", str(tmp_path / "out.jsonl"))
    output.add(
        sample(
            idle_ratio=0.0,
            step_time_s=StepTimes(avg=0.01, min=0.009, max=0.011),
            infeed_ratio=Spread(avg=0.1, min=0.0, max=0.2),
            server_text="TEXT",
        )
    )
    output.add(sample(reason="busy"))
    output.close()
    first, second = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert list(first)[:7] == [
        "schema",
        "worker",
        "address",
        "time_unix_s",
        "window_s",
        "took_s",
        "interval_s",
    ]
    assert first["schema"] == 1
    assert first["idle_ratio"] == 0
    assert first["mxu_utilization_ratio"] is None
    assert first["step_time_s"] == {"avg": 0.01, "min": 0.009, "max": 0.011, "stddev": None, "count": None}
    assert first["infeed_ratio"] == {"avg": 0.1, "min": 0.0, "max": 0.2}
    assert "server_text" not in first
    assert second["source"] is None
    error = {"source": "trace", "reason": "busy", "message": "busy", "address": "w:8466", "detail": None}
    assert second["errors"] == [error]


def test_a_sample_is_stale_when_its_query_failed_or_its_time_is_over():
    """2.5 intervals and a window after its start it is no longer the present state."""
    fresh = samples.sample(time_unix_s=100.0, window_s=1.0, interval_s=10.0)
    assert not fresh.is_stale(125.9)
    assert fresh.is_stale(126.1)
    assert sample(reason="busy").is_stale(5.6)


def test_not_a_number_is_never_written(tmp_path):
    """JSON has no NaN; it is absent."""
    file = tmp_path / "x"
    with closing(wired("jsonl", str(file))) as output:
        output.add(sample(idle_ratio=float("nan")))
    assert json.loads(file.read_text())["idle_ratio"] is None


def test_an_unknown_output_is_a_usage_error_that_names_the_known_ones():
    """An output is found by its entry point."""
    with pytest.raises(UsageError, match="jsonl"):
        wired("carrier-pigeon", "-")
