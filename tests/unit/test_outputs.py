"""Where samples go: JSON lines, and outputs by their names."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from support.samples import bare_sample
from tpumon.errors import UsageError
from tpumon.model import Failure, Spread, StepTimes
from tpumon.outputs import OutputOptions, open_output
from tpumon_exporters.jsonl import open_jsonl


def sample(worker="w", reason=None, **figures):
    failure = Failure(source="monitor", reason=reason, message=reason, address=f"{worker}:1") if reason else None
    answer = {"errors": (failure,)} if failure else {"source": "monitor"}
    return bare_sample(worker=worker, address=f"{worker}:1", time_unix_s=5.5, window_s=1, took_s=2, **answer, **figures)


def test_a_json_line_is_the_whole_sample(tmp_path):
    """Every field of the contract is there, absent ones as null, a measured zero as 0; one line a sample."""
    output = open_jsonl(str(tmp_path / "out.jsonl"), OutputOptions())
    output.write(
        sample(
            idle_ratio=0.0,
            step_time_s=StepTimes(avg=0.01, min=0.009, max=0.011),
            infeed_ratio=Spread(avg=0.1, min=0.0, max=0.2),
            server_text="TEXT",
        )
    )
    output.write(sample(reason="busy"))
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
    assert second["errors"] == [{"source": "monitor", "reason": "busy", "message": "busy", "address": "w:1"}]


def test_a_sample_is_stale_when_its_query_failed_or_its_time_is_over():
    """2.5 intervals and a window after its start it is no longer the present state."""
    fresh = bare_sample(
        worker="w", address="w:1", time_unix_s=100.0, window_s=1.0, took_s=1.0, interval_s=10.0, source="trace"
    )  # fmt: skip
    assert not fresh.is_stale(125.9)
    assert fresh.is_stale(126.1)
    assert sample(reason="busy").is_stale(5.6)


def test_not_a_number_is_never_written(tmp_path):
    """JSON has no NaN; letting one through would be a lie that breaks readers."""
    not_json = pytest.raises(ValueError, match="not JSON compliant")
    with closing(open_jsonl(str(tmp_path / "x"), OutputOptions())) as output, not_json:
        output.write(sample(idle_ratio=float("nan")))


def test_an_unknown_output_is_a_usage_error_that_names_the_known_ones():
    """An output is found by its entry point."""
    with pytest.raises(UsageError, match="jsonl"):
        open_output("carrier-pigeon", "-", OutputOptions())
