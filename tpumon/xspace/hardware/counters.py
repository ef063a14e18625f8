"""Matrix unit utilization from hardware counters, where a trace carries them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from tpumon.xspace.columns.columns import StatColumn
from tpumon.xspace.columns.timeline import Events
from tpumon.xspace.planes.plane import Plane
from tpumon.xspace.wire.lines import Line

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
            for number, value in _told(events, column):
                if number in levels:
                    cycles[levels[number]] += value
                    seen.add(levels[number])
    none, one, both = cycles
    if 0 not in seen:  # without the cycles of neither there is nothing to divide by
        return 0.0, 0.0
    return one / 2 + both, none + one + both


def _told(events: Events, column: StatColumn) -> list[tuple[int, float]]:
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


def _totals_of(plane: Plane, line: Line) -> tuple[float, float]:
    events = plane.read([line], (_VALUE, _NUMBER))
    if _VALUE not in events.stats:
        return 0.0, 0.0
    column = events.stats[_VALUE]
    rows, values = column.rows, column.numbers().tolist()
    numbers = (events.stats[_NUMBER].integers() if _NUMBER in events.stats else events.metadata_id).tolist()
    by_number = {numbers[row]: values[row] for row in rows.tolist()}
    by_name: dict[str, float] = defaultdict(float)
    for number, value in dict(_told(events, column)).items():
        by_name[plane.event_name(number).lower()] = value
    busy = cycles = 0.0
    for all_cycles, one, both in _NUMBERED:
        if by_number.get(all_cycles, 0) > 0 and (one in by_number or both in by_number):
            busy += 0.5 * by_number.get(one, 0) + by_number.get(both, 0)
            cycles += by_number[all_cycles]
    if not cycles and by_name.get(_CYCLES, 0) > 0 and _MATMULS in by_name:
        busy, cycles = by_name[_MATMULS] * _CYCLES_PER_MATMUL, by_name[_CYCLES]
    return busy, cycles
