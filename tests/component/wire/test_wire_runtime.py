"""Whatever a runtime metric service answers becomes a reading that every output can show."""

from __future__ import annotations

import json
import math
import random
import string

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields

from support.samples import sample
from tpumon.collection.sampler.extra_sources import ExtraReading, merged
from tpumon.collection.sampler.warnings import WarningLimit
from tpumon.collection.sources import RuntimeMetrics
from tpumon.collection.sources.runtime_rows import MEGASCALE_ERROR, METRICS, SLICE_ERROR, reading_of
from tpumon.model import DeviceFigures, FigureWarning
from tpumon.outputs.text_blocks import render_block
from tpumon.proto.runtime_metrics_pb2 import Metric, TpuMetric

NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([1.7e308, 5e-324, -0.0, 1 << 62, 100, 0]),
)
IDS = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 70), st.text(max_size=60))


@st.composite
def rows(draw):
    """One row: any attribute of any kind, any number or none."""
    row = Metric()
    name, number = draw(IDS), draw(NUMBERS)
    row.attribute.key = draw(st.sampled_from(["device-id", "device_ordinal", "error_message", "\x1b[2J"]))
    if isinstance(name, int):
        row.attribute.value.int_attr = name
    else:
        row.attribute.value.string_attr = name.encode(errors="replace").decode()
    if isinstance(number, float):
        row.gauge.as_double = number
    else:
        row.gauge.as_int = number
    if draw(st.integers(0, 9)) == 0:
        row.ClearField("gauge")
    return row


ANSWERS = st.dictionaries(st.sampled_from(METRICS), st.lists(rows(), max_size=8).map(lambda r: TpuMetric(metrics=r)))


@given(ANSWERS)
def test_any_answer_makes_a_sample_that_can_be_shown(answers):
    """No exception, finite numbers, bounded rows and warnings, JSON and text."""
    reading = reading_of(answers)
    shown = merged(sample(), [ExtraReading(RuntimeMetrics, reading)])
    json.dumps(shown.to_json(), allow_nan=False)
    assert render_block(shown, level=2)
    assert len(reading.warnings) <= 20
    assert len(reading.figures.devices) <= 64
    for device in reading.figures.devices:
        for figure in fields(DeviceFigures):
            value = getattr(device, figure.name)
            assert not isinstance(value, (int, float)) or (math.isfinite(value) and 0 <= value < 1 << 60)
        assert len(device.device) <= 40
        assert device.device.isascii()
        assert not device.device.isdigit() or int(device.device) < 1 << 20


def errors(count, *, seed):
    """That many rows of an error, each with a text of its own."""
    letters = random.Random(seed)
    metric = TpuMetric()
    for _ in range(count):
        row = metric.metrics.add()
        row.gauge.as_int = 1
        row.attribute.key = "error_message"
        row.attribute.value.string_attr = "".join(letters.choices(string.ascii_letters, k=30))
    return metric


def test_made_up_errors_make_few_lines():
    """4,096 rows with random text, look after look for an hour: few lines in memory, few shown."""
    limit, kinds = WarningLimit(), set()
    for look in range(120):
        answers = {MEGASCALE_ERROR: errors(200, seed=look), SLICE_ERROR: errors(200, seed=-look - 1)}
        reading = reading_of(answers)
        assert len(reading.warnings) <= 20
        passed = limit.pass_on(reading.warnings, 30.0 * look)
        assert len(passed) <= 21
        kinds |= {warning.message for warning in passed if warning.code != "capped"}
        assert len(limit._known) <= 64
    assert len(kinds) <= 20 + 60  # at once, then one a minute


def test_a_warning_that_stays_is_always_passed_on():
    """Rows and JSON show what holds now; only new kinds are counted."""
    limit, lasting = WarningLimit(), FigureWarning("gpu", "a GPU")
    for look in range(200):
        noise = [FigureWarning("runtime-error", "".join(random.choices(string.ascii_letters, k=30))) for _ in range(30)]
        assert lasting in limit.pass_on([lasting, *noise], 5.0 * look)


def test_more_devices_than_a_host_has_are_left_out_and_said():
    """Thousands of ids are no thousands of series."""
    metric = TpuMetric()
    for number in range(4096):
        row = metric.metrics.add()
        row.gauge.as_int = 1
        row.attribute.key = "device-id"
        row.attribute.value.int_attr = number
    reading = reading_of({METRICS[0]: metric})
    assert [device.device for device in reading.figures.devices] == [str(number) for number in range(64)]
    assert [warning.code for warning in reading.warnings] == ["capped"]
