"""Chips of a trace: their peak rates, hardware counters of the matrix units, and GPUs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tpumon.model.chips import chip_of
from tpumon.untrusted_text import one_line
from tpumon.xspace.columns.columns import Events, StatColumn
from tpumon.xspace.columns.intervals import covered_ps, extent
from tpumon.xspace.columns.lines import TraceLine
from tpumon.xspace.planes.plane import Plane, Value


class Peak(Struct, frozen=True, kw_only=True, eq=False):
    """Peak rates of one TensorCore as the trace counts them; None if unknown.

    Attributes:
        flops_per_s: matrix units, bfloat16.
        hbm_bytes_per_s: reads and writes together.
        cmem_read, cmem_write, vmem_read, vmem_write: bytes per second of the memories on the chip.
        from_table: whether either of the first two is from the table of chips.
    """

    flops_per_s: float | None
    hbm_bytes_per_s: float | None
    cmem_read: float | None = None
    cmem_write: float | None = None
    vmem_read: float | None = None
    vmem_write: float | None = None
    from_table: bool = False


def peak_of(stats: Mapping[str, Value], device_type: str | None, planes_per_chip: int = 1) -> Peak:
    """Peak rates of the core of a plane.

    Args:
        stats: the plane's; XProf's only source (GetPerfEnvFromXPlane).
        device_type: to look up in the table of chips if the plane has no peaks.
        planes_per_chip: core planes that the trace has of one chip; the table gives each its share of the chip.
    """

    def bandwidth(memory: str) -> float | None:
        return _positive(stats.get(f"peak_{memory}_bw_gigabytes_per_second"), 1e9)

    traced = Peak(
        flops_per_s=_positive(stats.get("peak_teraflops_per_second"), 1e12),
        hbm_bytes_per_s=bandwidth("hbm"),
        cmem_read=bandwidth("cmem_rd"),
        cmem_write=bandwidth("cmem_wr"),
        vmem_read=bandwidth("vmem_rd"),
        vmem_write=bandwidth("vmem_wr"),
    )
    chip = chip_of(device_type)
    if chip is None or (traced.flops_per_s and traced.hbm_bytes_per_s):
        return traced
    # The cores of a chip that could work as one may have planes of their own all the same.
    apart = planes_per_chip > chip.devices or stats.get("has_megacore") == 0
    planes = chip.cores if apart else chip.devices
    return replace(
        traced,
        flops_per_s=traced.flops_per_s or chip.flops_per_s / planes,
        hbm_bytes_per_s=traced.hbm_bytes_per_s or chip.hbm_bytes_per_s / planes,
        from_table=True,
    )


def _positive(value: Value | None, unit: float) -> float | None:
    return float(value) * unit if isinstance(value, (int, float)) and value > 0 else None


_VALUE, _NUMBER = "counter_value", "performance_counter_id"

# Periodic sampling (7x): cycles since the sample before in which no matrix unit, one, or both were busy.
_SAMPLES = "_counters_"
_BUSY = re.compile(r"(?:.*_)?COUNT_MXU_BUSY_([012])", re.IGNORECASE)
# The line also holds estimates that the compiler derived from instrumented code, under names such as MXU and the unit
# "% util": they say nothing of what the hardware did.
_NO_VALUES = frozenset({"% util", _NUMBER, "device_offset_ps", "device_duration_ps"})

# Totals of the session. XProf shows these as "Avg MXU Busy": cycles in which one or both matrix units work, over all
# cycles. By number, as its tables tpu_counter_ids_v6e.h and tpu_counter_ids_v7x.h list them: (cycles, one, both).
_NUMBERED = (
    (3257466888, 3257467408, 3257467416),  # v6e
    (2847490056, 2791875024, 2791875032),  # 7x, first core
    (3384360968, 3328745936, 3328745944),  # 7x, second core
)
_CYCLES, _MATMULS = "count_cycles", "count_matmul"
_CYCLES_PER_MATMUL = 8


def mxu_busy_ratio(planes: Sequence[Plane]) -> float | None:
    """Share of cycles that matrix units worked, over all cores; None where the trace has no such counter.

    From periodic samples where there are any; otherwise from totals of the session.

    Raises:
        SourceError: `malformed`.
    """
    for read in (_sampled, _totals):
        busy, cycles = read(planes)
        # A counter that ran over, or is not what it seems, is no figure.
        if cycles > 0 and 0 <= busy <= cycles:
            return busy / cycles
    return None


def _sampled(planes: Sequence[Plane]) -> tuple[float, float]:
    """Busy cycles and all cycles of all samples; a cycle with one of the two units busy is half a busy one."""
    cycles, seen = [0.0, 0.0, 0.0], set()
    for plane in planes:
        lines = plane.lines(_SAMPLES)
        levels = {
            number: int(match[1])
            for number in (plane.metadata_by_id if lines else ())
            if (match := _BUSY.fullmatch(plane.event_name(number)))
        }
        for line in lines if levels else ():
            events = plane.read([line], tuple(set(plane.stat_names.values()) - _NO_VALUES))
            column = events.stats.get(_VALUE) or next(iter(events.stats.values()), None)
            if column is None:
                continue
            for number, value in _values(events, column):
                if number in levels:
                    cycles[levels[number]] += value
                    seen.add(levels[number])
    none, one, both = cycles
    if 0 not in seen:  # without the cycles of neither there is nothing to divide by
        return 0.0, 0.0
    return one / 2 + both, none + one + both


def _values(events: Events, column: StatColumn) -> list[tuple[int, float]]:
    """Metadata id and value of each event that has the stat."""
    rows = column.rows
    return list(zip(events.metadata_id[rows].tolist(), column.numbers()[rows].tolist(), strict=True))


def _totals(planes: Sequence[Plane]) -> tuple[float, float]:
    """Busy cycles and all cycles of the session.

    XProf: ComputeTpuGenericTcUnitUtilization; for chips with a counter of instructions, docs/utilization_viewer.md:
    one takes the matrix unit 8 cycles.
    """
    busy = cycles = 0.0
    for plane in planes:
        for line in plane.lines() if _VALUE in plane.stat_names.values() else ():
            line_busy, line_cycles = _totals_of(plane, line)
            busy, cycles = busy + line_busy, cycles + line_cycles
    return busy, cycles


def _totals_of(plane: Plane, line: TraceLine) -> tuple[float, float]:
    events = plane.read([line], (_VALUE, _NUMBER))
    if _VALUE not in events.stats:
        return 0.0, 0.0
    column = events.stats[_VALUE]
    rows, values = column.rows, column.numbers().tolist()
    numbers = (events.stats[_NUMBER].integers() if _NUMBER in events.stats else events.metadata_id).tolist()
    by_number = {numbers[row]: values[row] for row in rows.tolist()}
    by_name: dict[str, float] = defaultdict(float)
    for number, value in dict(_values(events, column)).items():
        by_name[plane.event_name(number).lower()] = value
    busy = cycles = 0.0
    for all_cycles, one, both in _NUMBERED:
        if by_number.get(all_cycles, 0) > 0 and (one in by_number or both in by_number):
            busy += 0.5 * by_number.get(one, 0) + by_number.get(both, 0)
            cycles += by_number[all_cycles]
    if not cycles and by_name.get(_CYCLES, 0) > 0 and _MATMULS in by_name:
        busy, cycles = by_name[_MATMULS] * _CYCLES_PER_MATMUL, by_name[_CYCLES]
    return busy, cycles


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
    """Activity of the GPUs of a host.

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
        events = plane.read(streams(plane))
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


def streams(plane: Plane) -> list[TraceLine]:
    """The lines of a GPU that hold what it did, without what the profiler made of it."""
    lines = plane.lines()
    return [line for line in lines if line.name.startswith(_STREAM)] or [
        line for line in lines if line.name not in _DERIVED
    ]


def gpu_name(stats: Mapping[str, Value]) -> str:
    """Name of a GPU: its own; AMD's by their architecture, as XProf prints them (GpuModelName)."""
    own = text_of(stats.get("gpu_device_name"))
    if stats.get("device_vendor") != _AMD:
        return text_of(stats.get("device_type_string")) or own or "GPU"
    if own and own.startswith("gfx"):
        return f"AMD GPU - {own.partition(':')[0]}"
    major, minor = stats.get("compute_cap_major"), stats.get("compute_cap_minor")
    if not isinstance(major, int):
        return "AMD GPU"
    chip = _AMD_CHIPS.get((major, minor)) if isinstance(minor, int) else None
    name = chip or _AMD_SERIES.get(major)
    return f"AMD GPU - {name}" if name else "AMD GPU"


def text_of(value: Value | None) -> str | None:
    return one_line(value) or None if isinstance(value, str) else None
