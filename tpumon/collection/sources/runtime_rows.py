"""Reads the runtime metric service's answers: one row per device. Makes no calls.

Everything that differs between TPU generations and versions of libtpu is here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tpumon.collection.sources.extra_source import Reading
from tpumon.collection.sources.monitor_rpc import ratio_of_percent
from tpumon.collection.sources.runtime_distributions import distribution_of
from tpumon.model import (
    RUNTIME_COUNTS,
    RUNTIME_LATENCIES,
    SIMULATED_MARK,
    DeviceFigures,
    Distribution,
    Figures,
    FigureWarning,
    RuntimeFigures,
)
from tpumon.model.documents import LARGEST
from tpumon.proto.runtime_metrics_pb2 import AttrValue, Metric, TpuMetric
from tpumon.untrusted_text import one_line

Number = float | int

HBM_USED = "tpu.runtime.hbm.memory.usage.bytes"
HBM_TOTAL = "tpu.runtime.hbm.memory.total.bytes"
DUTY_CYCLE = "tpu.runtime.tensorcore.dutycycle.percent"
HBM_BANDWIDTH = "tpu.runtime.hbm.utilization.percent"
IDLE_DURATION = "tpu.runtime.tensorcore.idle_duration.seconds"
QUEUE_SIZE = "hlo.queue.size.gauge"
UPTIME = "tpu.runtime.uptime.seconds.gauge"
MEGASCALE_ERROR = "megascale.error.detected.gauge"
SLICE_ERROR = "slice.error.detected.gauge"

# Attributes that name the device of a row whose attributes are a list of key-value pairs.
_DEVICE_KEYS = ("device_ordinal", "device-id", "device_id")
_LONGEST_ID = 40
_HIGHEST_ID = 1 << 20  # ids count through a slice, of ten thousand chips at most
_MOST_DEVICES = 64  # a host has 16
_MOST_WARNINGS = 20

_LARGEST_OF_TWO_BYTES = 20e9  # a device of v2 or v3 has 8 or 16 GiB; of 7x, the other with two a chip, 96


class _MetricRow(NamedTuple):
    """One row of a metric.

    Attributes:
        value: the number as sent; None if it is none.
        about: attributes by key.
        device: the device that they name, if any.
    """

    value: Number | None
    about: Mapping[str, str]
    device: str | None


@dataclass(slots=True)
class _Tables:
    """The values of each metric by device, and warnings about what is missing."""

    by_key: dict[str, dict[str, Number]] = field(default_factory=dict)
    warnings: list[FigureWarning] = field(default_factory=list)

    def of(self, key: str) -> dict[str, Number]:
        """The values under a key; empty if there are none."""
        return self.by_key.get(key, {})

    def devices(self) -> list[str]:
        """The devices named by metrics whose rows are always per device, in order."""
        keys = ("hbm_used_bytes", "hbm_total_bytes", "runtime_tensorcore_idle_s")
        return sorted({device for key in keys for device in self.of(key)}, key=_in_order)


def _bytes(value: Number) -> int | None:
    return int(value) if 0 <= value < LARGEST else None


def _not_negative(value: Number) -> float | None:
    return float(value) if 0 <= value < LARGEST else None


_PER_DEVICE: dict[str, tuple[str, Callable[[Number], Number | None]]] = {
    HBM_USED: ("hbm_used_bytes", _bytes),
    HBM_TOTAL: ("hbm_total_bytes", _bytes),
    DUTY_CYCLE: ("runtime_duty_cycle_ratio", ratio_of_percent),
    HBM_BANDWIDTH: ("runtime_hbm_bandwidth_utilization_ratio", ratio_of_percent),
    IDLE_DURATION: ("runtime_tensorcore_idle_s", _not_negative),
    QUEUE_SIZE: ("runtime_hlo_queue_size", _bytes),
}
_OF_WORKER: dict[str, str] = {UPTIME: "uptime_s", MEGASCALE_ERROR: "megascale_error", SLICE_ERROR: "slice_error"}

_LATENCIES = {row.name: key for key, row in RUNTIME_LATENCIES.items()}
_COUNTS = {row.name: key for key, row in RUNTIME_COUNTS.items()}

METRICS: tuple[str, ...] = (*_PER_DEVICE, *_OF_WORKER, *_LATENCIES, *_COUNTS)
"""The metrics to ask for; every version has the first one."""


def reading_of(answers: Mapping[str, TpuMetric]) -> Reading:
    """The figures in these answers, by name of the metric; a missing one makes absent values and nothing more."""
    tables = _Tables()
    for name, (key, convert) in _PER_DEVICE.items():
        if name in answers:
            tables.by_key[key] = _by_device(name, _rows(answers[name]), convert, tables.warnings)
    _place_queues(tables)
    _place_duty_cycles(tables)
    runtime: dict[str, float] = {}
    for name, key in _OF_WORKER.items():
        if name in answers:
            rows = _rows(answers[name])
            if values := [float(row.value) for row in rows if row.value is not None and 0 <= row.value < LARGEST]:
                runtime[key] = max(values) if name == UPTIME else float(any(values))
            if name != UPTIME:
                tables.warnings.extend(dict.fromkeys(_error(name, row.about) for row in rows if row.value))
    devices = _first_devices(tables)
    figures = tuple(_device(device, tables) for device in devices)
    return Reading(
        figures=Figures(
            devices=figures,
            runtime=RuntimeFigures(**runtime),
            runtime_latencies=_latencies(answers, tables.warnings),
            runtime_counts=_counts(answers),
            hbm_used_bytes=_sum([device.hbm_used_bytes for device in figures]),
            hbm_total_bytes=_sum([device.hbm_total_bytes for device in figures]),
        ),
        warnings=_first_warnings(tables.warnings),
        simulated=any(SIMULATED_MARK in answer.description for answer in answers.values()),
    )


def _latencies(answers: Mapping[str, TpuMetric], warnings: list[FigureWarning]) -> Mapping[str, Distribution]:
    made = {key: distribution_of(answers[name]) for name, key in _LATENCIES.items() if name in answers}
    if unknown := [key for key, one in made.items() if one is None and answers[RUNTIME_LATENCIES[key].name].metrics]:
        name = RUNTIME_LATENCIES[unknown[0]].name
        words = f"the runtime metric service reports buckets that make no histogram ({name}): ignored"
        warnings.append(FigureWarning("impossible-values", words))
    return {key: one for key, one in made.items() if one is not None}


def _counts(answers: Mapping[str, TpuMetric]) -> Mapping[str, float]:
    """The sum of all rows of each counter."""
    values = {key: [row.value for row in _rows(answers[name])] for name, key in _COUNTS.items() if name in answers}
    return {
        key: float(sum(value for value in row if value is not None))
        for key, row in values.items()
        if row and all(value is not None and 0 <= value < LARGEST for value in row)
    }


def _first_devices(tables: _Tables) -> list[str]:
    """All devices of any metric, in order; if they are too many, the first ones."""
    devices = sorted({device for table in tables.by_key.values() for device in table}, key=_in_order)
    if len(devices) > _MOST_DEVICES:
        words = f"the runtime metric service reports {len(devices)} devices: all but {_MOST_DEVICES} are left out"
        tables.warnings.insert(0, FigureWarning("capped", words))
    return devices[:_MOST_DEVICES]


def _first_warnings(warnings: Sequence[FigureWarning]) -> tuple[FigureWarning, ...]:
    if len(warnings) <= _MOST_WARNINGS:
        return tuple(warnings)
    words = f"{len(warnings) - _MOST_WARNINGS + 1} more warnings of the runtime metric service are left out"
    return (*warnings[: _MOST_WARNINGS - 1], FigureWarning("capped", words))


def _device(device: str, tables: _Tables) -> DeviceFigures:
    values: dict[str, Any] = {key: tables.of(key).get(device) for key, _ in _PER_DEVICE.values()}
    return DeviceFigures(device=device, **values)


def _sum(values: Sequence[int | None]) -> int | None:
    """The sum over all devices; None unless every device reports a value."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _rows(metric: TpuMetric) -> list[_MetricRow]:
    return [_row(row) for row in metric.metrics]


def _row(row: Metric) -> _MetricRow:
    attribute = row.attribute
    if attribute.value.WhichOneof("attr") == "kvlist_attr":
        about = {pair.key: _attr_text(pair.value) for pair in attribute.value.kvlist_attr.attributes}
        device = next((about[key] for key in _DEVICE_KEYS if key in about), "")
    else:
        about = {attribute.key: _attr_text(attribute.value)}
        device = about[attribute.key]
    return _MetricRow(value=_number(row), about=about, device=device or None)


def _attr_text(value: AttrValue) -> str:
    """An attribute's value, empty if there is none; old versions send numbers, new ones text."""
    kind = value.WhichOneof("attr")
    if kind in {"string_attr", "int_attr", "bool_attr", "double_attr"}:
        return one_line(str(getattr(value, kind)))
    return ""


def _number(row: Metric) -> Number | None:
    measure = row.WhichOneof("measure")
    if measure not in {"gauge", "counter"}:
        return None
    message = getattr(row, measure)
    kind = message.WhichOneof("value")
    value = getattr(message, kind) if kind in {"as_double", "as_int", "as_bool"} else None
    return value if value is not None and math.isfinite(value) else None


def _by_device(
    name: str, rows: Iterable[_MetricRow], convert: Callable[[Number], Number | None], warnings: list[FigureWarning]
) -> dict[str, Number]:
    """A metric's values by device. Impossible ones are ignored, with a warning."""
    table: dict[str, Number] = {}
    strange: list[str] = []
    for row in rows:
        if row.device is None or not _may_be_id(row.device):
            strange.append("a row of no device")
        elif name == QUEUE_SIZE and "SPARSE" in row.about.get("core_type", "").upper():
            continue  # another core, with a queue of its own
        elif row.value is None or (value := convert(row.value)) is None:
            strange.append(f"{row.value} for device {row.device}")
        elif name == QUEUE_SIZE:  # one row per core
            table[row.device] = table.get(row.device, 0) + value
        else:
            table[row.device] = value
    if strange:
        words = f"the runtime metric service reports {strange[0]} ({name}): ignored"
        warnings.append(FigureWarning("impossible-values", words))
    return table


def _place_duty_cycles(tables: _Tables) -> None:
    """Gives both devices of a v2 or v3 chip the chip's duty cycle.

    There the duty cycle has a row per chip, all other metrics a row per device, two per chip; both ids count through
    the slice. On all other generations, 7x with its two devices per chip among them, each device has its own row.
    """
    key = _PER_DEVICE[DUTY_CYCLE][0]
    chips, devices, totals = tables.of(key), tables.devices(), tables.of("hbm_total_bytes")
    later = tables.of(_PER_DEVICE[HBM_BANDWIDTH][0]) or any(total > _LARGEST_OF_TWO_BYTES for total in totals.values())
    if not chips or not devices or later or set(chips) == set(devices):
        return
    if 2 * len(chips) != len(devices) or not _all_numbers([*chips, *devices]):
        # Rows of chips or of devices are missing: a v5e device has as much HBM as one of v3.
        tables.by_key[key] = {}
        words = f"{len(chips)} duty cycles for {len(devices)} devices, unclear which is whose: ignored"
        tables.warnings.append(FigureWarning("unclear-device", words))
        return
    pairs = [(str(2 * int(chip)), str(2 * int(chip) + 1)) for chip in chips]
    if not {device for pair in pairs for device in pair} <= set(devices):
        # Numbered differently, but none is missing: Google's tpu-info then goes by order alone.
        chips = dict(sorted(chips.items(), key=lambda item: _in_order(item[0])))
        pairs = list(zip(devices[::2], devices[1::2], strict=True))
    tables.by_key[key] = {device: duty for pair, duty in zip(pairs, chips.values(), strict=True) for device in pair}


def _place_queues(tables: _Tables) -> None:
    """Moves queues to their devices: they are numbered by place on this worker while ids may be the slice's."""
    key = _PER_DEVICE[QUEUE_SIZE][0]
    queues, devices = tables.of(key), tables.devices()
    places = {str(place): device for place, device in enumerate(devices)}
    if not set(queues) <= set(devices) and set(queues) <= set(places):
        tables.by_key[key] = {places[place]: size for place, size in queues.items()}


def _error(name: str, about: Mapping[str, str]) -> FigureWarning:
    what = "a failed slice" if name == SLICE_ERROR else "a hang or error between slices"
    details = ": ".join(about[key] for key in ("error_type", "error_message") if about.get(key))
    words = f"the runtime detects {what}{': ' + details if details else ''} ({name})"
    return FigureWarning("runtime-error", one_line(words, limit=300))


def _may_be_id(device: str) -> bool:
    if len(device) > _LONGEST_ID or not device.isascii():
        return False
    return int(device) < _HIGHEST_ID if device.isdigit() else not device.startswith("-")


def _all_numbers(ids: Iterable[str]) -> bool:
    return all(device.isascii() and device.isdigit() for device in ids)


def _in_order(device: str) -> tuple[int, str]:
    """Sort key: numbers by size, before other names."""
    return (int(device), "") if _all_numbers([device]) else (1 << 64, device)
