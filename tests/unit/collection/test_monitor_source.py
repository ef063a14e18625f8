"""The Monitor RPC's answer as a Sample."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpumon.collection.sources import SourceOptions
from tpumon.collection.sources.monitor_rpc import MonitorSource
from tpumon.errors import SourceError
from tpumon.model import Query, Spread, StepTimes, Target
from tpumon.model.figure_table import TRACE_FIELDS
from tpumon.proto.profiler_pb2 import MonitorResponse, MonitorResult

OLD_TEXT = """\
Timestamp: 20:47:16
TPU type: TPU v2
Number of TPU cores: 8 (Replica count = 8, num cores per replica = 1)
Per-core batch size: 32
TPU idle time (lower is better): 36.9%
Utilization of TPU Matrix Units (higher is better): 10.1%
Step time: 90.8ms (avg), 89.8ms (min), 92.2ms (max)
Infeed percentage: 87.5% (avg), 87.2% (min), 87.8% (max)
"""
OLDER_TEXT = """\
TPU type: TPU v3
Number of TPU Cores: 4
Utilization of TPU Matrix Units is (higher is better): 10.7%
Step time: 1.95 kms (avg), 1.90kms (min), 2.00 kms (max)
"""


class OneAnswer:
    address = "w:1"

    def __init__(self, reply):
        self.reply = reply

    def grace_s(self, path):
        return 30.0

    async def wait_for_turn(self):
        pass

    async def call(self, path, request, reply_type, *, timeout_s):
        self.request, self.timeout_s = request, timeout_s
        return self.reply


def ask(reply, level=2):
    client = OneAnswer(reply)
    query = Query(level=level, window_s=0.5, interval_s=2.0)
    source = MonitorSource(client, Target(worker="w", address="w:1"), SourceOptions())
    sample = asyncio.run(source.fetch(query))
    return sample, client


def result(**figures):
    return MonitorResponse(monitor_result=MonitorResult(**figures))


ONLY_FROM_TRACES = dict.fromkeys(TRACE_FIELDS, "only traces show it")


def test_all_figures_come_from_the_result():
    """Percentages become ratios and milliseconds seconds; a measured zero is 0."""
    sample, client = ask(
        MonitorResponse(
            data=OLD_TEXT,
            monitor_result=MonitorResult(
                response_type=3, device_idle_time_percent=0, matrix_unit_utilization_percent=42.5, step_time_ms_avg=10,
                step_time_ms_min=9, step_time_ms_max=11,
                infeed_percent_avg=15, infeed_percent_min=14, infeed_percent_max=16,
            ),
        )
    )  # fmt: skip
    assert (sample.source, sample.figures.mxu_method, sample.figures.step_source) == ("monitor", "server", "server")
    assert (sample.device_type, sample.cores) == ("TPU v2", 8)
    assert sample.figures.mxu_utilization_ratio == 0.425
    assert sample.figures.idle_ratio == 0
    assert sample.figures.step_time_s == StepTimes(avg=0.01, min=0.009, max=0.011)
    assert sample.figures.infeed_ratio == Spread(avg=0.15, min=0.14, max=0.16)
    assert sample.figures.absent == ONLY_FROM_TRACES
    assert (sample.window_s, sample.interval_s) == (0.5, 2.0)
    assert (client.request.duration_ms, client.request.monitoring_level, client.request.timestamp) == (500, 2, True)
    assert client.timeout_s >= 30.5


@pytest.mark.parametrize(
    ("response_type", "there"),
    [(1, {"mxu_utilization_ratio"}), (2, {"mxu_utilization_ratio", "idle_ratio"})],
)
def test_a_figure_is_there_only_if_the_response_type_says_so(response_type, there):
    """Fields beyond the response type are zeros on the wire and absent for us, with a reason."""
    sample, _ = ask(result(response_type=response_type, matrix_unit_utilization_percent=5, device_idle_time_percent=7))
    asked = {"mxu_utilization_ratio", "idle_ratio", "step_time_s", "infeed_ratio"}
    assert {name for name in asked if getattr(sample.figures, name) is not None} == there
    assert set(sample.figures.absent) == (asked - there) | set(ONLY_FROM_TRACES)
    assert sample.figures.step_source is None


def test_level_1_is_about_matrix_units_only():
    """At level 1 nothing else is shown, or missed."""
    sample, client = ask(result(response_type=3, matrix_unit_utilization_percent=5, step_time_ms_avg=3), level=1)
    assert sample.figures.mxu_utilization_ratio == 0.05
    assert (
        sample.figures.idle_ratio,
        sample.figures.step_time_s,
        sample.figures.infeed_ratio,
        sample.figures.absent,
    ) == (None, None, None, {})
    assert client.request.monitoring_level == 1


def test_a_text_without_a_result_is_read():
    """Servers that send only text are read from it."""
    sample, _ = ask(MonitorResponse(data=OLD_TEXT))
    assert sample.figures.mxu_utilization_ratio == pytest.approx(0.101)
    assert sample.figures.idle_ratio == pytest.approx(0.369)
    assert sample.figures.step_time_s == StepTimes(
        avg=pytest.approx(0.0908), min=pytest.approx(0.0898), max=pytest.approx(0.0922)
    )
    assert sample.figures.infeed_ratio == Spread(avg=0.875, min=pytest.approx(0.872), max=pytest.approx(0.878))


def test_the_spellings_of_older_documentation_are_read():
    """`Units is`, `TPU Cores` and `1.95 kms` mean the same."""
    sample, _ = ask(MonitorResponse(data=OLDER_TEXT))
    assert (sample.device_type, sample.cores) == ("TPU v3", 4)
    assert sample.figures.mxu_utilization_ratio == pytest.approx(0.107)
    assert sample.figures.step_time_s == StepTimes(
        avg=pytest.approx(1.95), min=pytest.approx(1.9), max=pytest.approx(2.0)
    )
    assert set(sample.figures.absent) == {"idle_ratio", "infeed_ratio", *ONLY_FROM_TRACES}


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 101.0, 1e300])
def test_impossible_values_are_absent(value):
    """What no measurement can give is not passed on as one."""
    sample, _ = ask(result(response_type=2, matrix_unit_utilization_percent=value, device_idle_time_percent=12))
    assert sample.figures.mxu_utilization_ratio is None
    assert sample.figures.mxu_method is None
    assert "impossible" in sample.figures.absent["mxu_utilization_ratio"]
    assert sample.figures.idle_ratio == 0.12


@pytest.mark.parametrize("reply", [MonitorResponse(), MonitorResponse(data="  \n"), result(response_type=0)])
def test_an_answer_without_anything_is_a_failure(reply):
    """Neither text nor figures is no sample."""
    with pytest.raises(SourceError) as caught:
        ask(reply)
    assert caught.value.reason == "empty-trace"


def test_the_servers_text_is_kept_but_cannot_drive_a_terminal():
    """The text is for printing as it came, less what would move a cursor."""
    sample, _ = ask(MonitorResponse(data="\x1b[2JTPU type: TPU v2\x07\n"))
    assert sample.server_text == "TPU type: TPU v2"
    assert sample.device_type == "TPU v2"


def test_simulated_answers_are_marked():
    """The simulator's line marks the sample."""
    assert ask(MonitorResponse(data=OLD_TEXT + "Simulated by tpumon: scenario steady\n"))[0].simulated
    assert not ask(MonitorResponse(data=OLD_TEXT))[0].simulated


@given(st.text(max_size=400))
def test_any_text_is_read_or_refused(text):
    """No text breaks the reading, and no figure that comes of it is impossible."""
    try:
        sample, _ = ask(MonitorResponse(data=text.encode("utf-8", "ignore").decode()))
    except SourceError:
        return
    for ratio in (sample.figures.mxu_utilization_ratio, sample.figures.idle_ratio):
        assert ratio is None or 0 <= ratio <= 1


@pytest.mark.parametrize("response_type", [0, 4, 7])
def test_a_result_of_no_known_type_tells_nothing_and_the_text_is_read(response_type):
    """An empty or unknown result is not taken for measured zeros."""
    reply = MonitorResponse(data=OLD_TEXT, monitor_result=MonitorResult(response_type=response_type))
    assert ask(reply)[0].figures.mxu_utilization_ratio == pytest.approx(0.101)
    if response_type:
        with pytest.raises(SourceError):
            ask(MonitorResponse(monitor_result=MonitorResult(response_type=response_type)))
