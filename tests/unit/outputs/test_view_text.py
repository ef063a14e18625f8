"""The text block."""

from __future__ import annotations

import io
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.samples import failed_sample, sample
from support.wired import Wired
from tpumon.model import Spread, StepTimes, Target, Workers
from tpumon.outputs.text_blocks import TextOutput, milliseconds, render_block, three_digits

FIGURES = {
    "worker": "w",
    "time_unix_s": 1_769_000_000.0,
    "source": "monitor",
    "device_type": "TPU v2",
    "cores": 8,
    "mxu_utilization_ratio": 0.1072,
    "mxu_method": "server",
    "idle_ratio": 0.00091,
    "step_time_s": StepTimes(avg=0.0908, min=0.0898, max=0.0922),
    "step_source": "server",
    "infeed_ratio": Spread(avg=0.875, min=0.872, max=0.878),
}


def block(level=2, **changes):
    return render_block(sample(**(FIGURES | changes)), level=level).splitlines()


def test_a_level_2_block_is_the_old_tools():
    """The labels, order and digits that scripts parse."""
    assert block() == [
        f"Timestamp: {time.strftime('%H:%M:%S', time.localtime(1_769_000_000))}",
        "TPU type: TPU v2",
        "Number of TPU cores: 8",
        "TPU idle time (lower is better): 0.091%",
        "Utilization of TPU Matrix Units (higher is better): 10.7%",
        "Step time: 90.8ms (avg), 89.8ms (min), 92.2ms (max)",
        "Infeed percentage: 87.5% (avg), 87.2% (min), 87.8% (max)",
    ]


def test_a_level_1_block_has_three_lines():
    """Level 1 shows time, type and matrix units."""
    assert [line.partition(":")[0] for line in block(level=1)] == [
        "Timestamp",
        "TPU type",
        "Utilization of TPU Matrix Units (higher is better)",
    ]


def test_absent_figures_say_why_and_are_never_zero():
    """What is not to be had prints as n/a with the reason in brackets at the end of the line; a measured zero is 0."""
    lines = block(infeed_ratio=None, idle_ratio=0.0, cores=None, absent={"infeed_ratio": "no infeed ops"})
    assert "Infeed percentage: n/a (no infeed ops)" in lines
    assert "TPU idle time (lower is better): 0.000%" in lines
    assert "Number of TPU cores: n/a (not reported)" in lines


def test_the_method_of_a_figure_travels_with_it():
    """A method other than the server's or the counter stands at the end of the line."""
    lines = block(mxu_method="flops", step_source="modules")
    assert lines[4].endswith("10.7% (flops)")
    assert lines[5].endswith("(max) (modules)")


def test_simulated_figures_say_so():
    """Simulated data has a line of its own."""
    assert "Simulated by tpumon" in block(simulated=True)
    assert not any("Simulated" in line for line in block())


def test_the_servers_own_text_is_printed_as_it_came():
    """Where the server laid out the block, nothing is added or changed."""
    assert block(server_text="TPU type: X\nStep time: 1.95 kms") == ["TPU type: X", "Step time: 1.95 kms"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.000"), (0.5, "0.500"), (0.9996, "1.000"), (0.00091, "0.00091"), (0.091, "0.091"),
        (0.0912345, "0.0912"), (1.0, "1.00"), (9.994, "9.99"), (9.999, "10.0"),
        (87.46, "87.5"), (100.0, "100"), (999.4, "999"), (999.6, "1000"), (1950.4, "1950"), (1e-7, "0.0000001"),
    ],
)  # fmt: skip
def test_three_significant_digits(value, shown):
    """Three significant digits, no exponent, whole numbers from 1000 on."""
    assert three_digits(value) == shown


@given(st.floats(min_value=0, max_value=1e9))
def test_numbers_keep_their_value(value):
    """What is printed is a plain decimal within half a percent of the value."""
    shown = three_digits(value)
    assert re.fullmatch(r"\d+(\.\d+)?", shown)
    assert float(shown) == pytest.approx(value, rel=0.006, abs=1e-9)


def test_times_are_milliseconds_always():
    """1.95 s is 1950ms, not 1.95 s and not 1.95 kms."""
    assert milliseconds(1.95) == "1950ms"
    assert milliseconds(0.0000015) == "0.0015ms"


def test_an_unanswered_query_prints_nothing_but_counts():
    """The header's number is that of the query, answered or not."""
    stream = io.StringIO()
    output = Wired(lambda _: TextOutput(stream, level=1, number_samples=True))
    output.add(Workers(targets=(Target(worker="w", address="w:1"), Target(worker="v", address="v:1"))))
    output.add(failed_sample("w", "busy"))
    assert stream.getvalue() == ""
    output.add(sample(**(FIGURES | {"server_text": "TEXT"})))
    assert stream.getvalue() == "Cloud TPU Monitoring Results (Sample 1):\n\nWorker: w\nTEXT\n\n"
