"""Bounds of figures. A value beyond them is absent, with a reason.

Values that no TPU has (1.7e308 bytes, steps of 5e-324 s, idle for twice the time, an average above the maximum) are a
server's fault or malice. Left in, they would overflow sums, divide by zero, or stretch the axis that all workers share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from operator import is_
from typing import Any

from msgspec import Struct
from msgspec.structs import fields, replace

from tpumon.model.figures import Figures, Spread, StepTimes
from tpumon.model.sample import Sample

BYTES_BELOW = 1 << 60
LONGEST_STEP_S = 1e6
SHORTEST_STEP_S = 1e-9
_LARGEST_RATIO = 1000.0  # a wrong peak may put a utilization above 1; beyond this it says nothing
_ROUNDING = 1e-6  # relative: how far a share may pass 1, and an average its minimum and maximum
_LARGEST = 1e15

_WHY = "impossible value"
_SAMPLE_FIELDS = ("window_s", "interval_s", "cores", "took_s", "traced_s")
_FIGURES = tuple(item.name for item in fields(Figures) if item.name != "absent")
_STEPS = {"step_time_s", "step_durations_s", "avg", "min", "max"}


def bounded(sample: Sample) -> Sample:
    """The sample without impossible values; the sample itself, if it has none."""
    changes: dict[str, Any] = {name: 0.0 if name in {"took_s", "traced_s"} else None
                               for name in _SAMPLE_FIELDS if _is_off(name, getattr(sample, name))}  # fmt: skip
    figures = _changes(sample.figures, _FIGURES)
    if figures:
        absent = {name: _WHY for name, value in figures.items() if value is None}
        changes["figures"] = replace(sample.figures, **figures, absent={**sample.figures.absent, **absent})
    return replace(sample, **changes) if changes else sample


def _changes(value: Any, names: Iterable[str]) -> dict[str, Any]:
    """New values of the fields that hold anything impossible; nothing, 0 and empty ones are possible."""
    return {name: left for name in names if (item := getattr(value, name)) and (left := _left(name, item)) is not item}


def _left(name: str, value: Any) -> Any:
    """A value without what is impossible; the value itself, if it has nothing of that; None if nothing is left."""
    if value is None or isinstance(value, (float, int, str)):  # first: nearly all are
        return None if _is_off(name, value) else value
    if isinstance(value, tuple):
        items = [_left(name, item) for item in value]
        return value if all(map(is_, items, value)) else tuple(item for item in items if item is not None)
    if isinstance(value, Mapping):
        off = {key for key, item in value.items() if _is_off(name, item)}
        return {key: item for key, item in value.items() if key not in off} if off else value
    if isinstance(value, Spread):
        ends = (value.avg, value.min, value.max)
        return None if _is_disordered(value) or any(_is_off(name, end) for end in ends) else value
    is_required = _fields(value.__class__)
    changes = _changes(value, is_required)
    if isinstance(value, StepTimes):
        return None if _is_disordered(value) or changes else value
    if any(left is None and is_required[changed] for changed, left in changes.items()):
        return None  # an operation without its time says nothing
    return replace(value, **changes) if changes else value


@cache
def _fields(kind: type) -> Mapping[str, bool]:
    """The fields of a value, and whether each is required; of another type, none."""
    return {item.name: item.required for item in fields(kind)} if issubclass(kind, Struct) else {}


def _is_disordered(value: Spread | StepTimes) -> bool:
    low, high = value.min * (1 - _ROUNDING), value.max * (1 + _ROUNDING)
    return not low <= value.avg <= high


def _is_off(name: str, value: object) -> bool:
    """True if no worker can have this value: the unit at the end of its name says what is possible."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return not 0 <= value <= _most(name) or (0 < value < SHORTEST_STEP_S and name in _STEPS)


@cache
def _most(name: str) -> float:
    """The largest value that is possible."""
    if name.endswith(("_bytes", "_rate")):
        return BYTES_BELOW - 1
    if name.endswith(("_ratio", "_ratios")):
        is_of_peak = "utilization" in name and not name.startswith("runtime_")
        return _LARGEST_RATIO if is_of_peak else 1 + _ROUNDING
    return LONGEST_STEP_S if name in _STEPS else _LARGEST
