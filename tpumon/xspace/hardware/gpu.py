"""GPUs of a trace: when they worked, and what XProf calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tpumon.untrusted_text import one_line
from tpumon.xspace.columns.intervals import covered_ps, extent
from tpumon.xspace.planes.plane import Plane, Value
from tpumon.xspace.wire.lines import Line

_STREAM = "Stream"
# Written into the trace by the profiler itself: a name scope, for one, covers the pauses between its kernels.
_DERIVED = frozenset(
    {
        "Steps",
        "XLA Modules",
        "XLA Ops",
        "TensorFlow Ops",
        "TensorFlow Name Scope",
        "Framework Ops",
        "Framework Name Scope",
        "Source code",
        "Launch Stats",
    }
)
_AMD = "AMD"
_AMD_SERIES = {9: "gfx-9XX series", 10: "gfx-10XX series", 11: "gfx-11XX series"}
_AMD_CHIPS = {(9, 4): "gfx942", (9, 5): "gfx950"}


class GpuActivity(Struct, frozen=True, kw_only=True, eq=False):
    """What the GPUs of a host did.

    Attributes:
        devices: GPUs of the host.
        working: those with any event on a stream.
        busy_ps: time with anything on any stream, summed over the working GPUs.
        total_ps: time from the first to the last event on a stream, summed over the working GPUs.
        window_ps: first and last moment of all of them; None where there is none.
    """

    devices: int = 0
    working: int = 0
    busy_ps: int = 0
    total_ps: int = 0
    window_ps: tuple[int, int] | None = None


def read_gpus(planes: Sequence[Plane]) -> GpuActivity:
    """Adds up the streams of the GPUs.

    Raises:
        SourceError: `malformed`.
    """
    busy_ps = 0
    spans: list[tuple[int, int]] = []
    for plane in planes:
        events = plane.read(_streams(plane))
        if span := extent((events.begin_ps, events.end_ps)):
            busy_ps += covered_ps(events.begin_ps, events.end_ps)
            spans.append(span)
    return GpuActivity(
        devices=len(planes),
        working=len(spans),
        busy_ps=busy_ps,
        total_ps=sum(end - begin for begin, end in spans),
        window_ps=(min(begin for begin, _ in spans), max(end for _, end in spans)) if spans else None,
    )


def _streams(plane: Plane) -> list[Line]:
    lines = plane.lines()
    return [line for line in lines if line.name.startswith(_STREAM)] or [
        line for line in lines if line.name not in _DERIVED
    ]


def gpu_name(stats: Mapping[str, Value]) -> str:
    """What to call a GPU: its own name; AMD's by their architecture, as XProf prints them (GpuModelName)."""
    own = _text(stats.get("gpu_device_name"))
    if stats.get("device_vendor") != _AMD:
        return _text(stats.get("device_type_string")) or own or "GPU"
    if own and own.startswith("gfx"):
        return f"AMD GPU - {own.partition(':')[0]}"
    major, minor = stats.get("compute_cap_major"), stats.get("compute_cap_minor")
    if not isinstance(major, int):
        return "AMD GPU"
    chip = _AMD_CHIPS.get((major, minor)) if isinstance(minor, int) else None
    name = chip or _AMD_SERIES.get(major)
    return f"AMD GPU - {name}" if name else "AMD GPU"


def _text(value: Value | None) -> str | None:
    return one_line(value) or None if isinstance(value, str) else None
