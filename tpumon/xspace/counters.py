"""Matrix unit utilisation from hardware counters, where a trace carries them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tpumon.xspace.planes import Plane

_VALUE, _NUMBER = "counter_value", "performance_counter_id"

# XProf shows these counters as "Avg MXU Busy": cycles in which one or both matrix units work, over all cycles.
# By number, as its tables tpu_counter_ids_v6e.h and tpu_counter_ids_v7x.h list them: (cycles, one busy, both busy).
_NUMBERED = (
    (3257466888, 3257467408, 3257467416),  # v6e
    (2847490056, 2791875024, 2791875032),  # 7x, first core
    (3384360968, 3328745936, 3328745944),  # 7x, second core
)
_CYCLES, _MATMULS = "count_cycles", "count_matmul"
_CYCLES_PER_MATMUL = 8


def mxu_busy_ratio(planes: Sequence[Plane]) -> float | None:
    """Share of cycles that matrix units worked, over all cores and samples; None where no trace line tells.

    XProf: ComputeTpuGenericTcUnitUtilization; for chips with a counter of instructions, docs/utilization_viewer.md:
    one takes the matrix unit 8 cycles.

    Raises:
        SourceError: `malformed`.
    """
    busy = cycles = 0.0
    for plane in planes:
        if _VALUE not in plane.stat_names().values():
            continue
        for line in plane.lines():
            events = plane.read([line], (_VALUE, _NUMBER))
            if _VALUE not in events.stats:
                continue
            column = events.stats[_VALUE]
            values = np.where(column.is_double, column.values.view(np.float64), column.values)
            told = _NUMBER in events.stats
            numbers = events.stats[_NUMBER].integers(len(events)) if told else events.metadata_id
            by_number = dict(zip(numbers[column.rows].tolist(), values.tolist(), strict=True))
            by_name: dict[str, float] = defaultdict(float)
            for number, value in zip(events.metadata_id[column.rows].tolist(), values.tolist(), strict=True):
                by_name[plane.event_name(number).lower()] = value
            line_busy, line_cycles = _sample(by_number, by_name)
            busy, cycles = busy + line_busy, cycles + line_cycles
    # A counter that ran over, or is not what it seems, is no figure.
    return busy / cycles if cycles > 0 and 0 <= busy <= cycles else None


def _sample(by_number: dict[int, float], by_name: dict[str, float]) -> tuple[float, float]:
    """Busy cycles and all cycles of one sample of one chip."""
    busy = cycles = 0.0
    for all_cycles, one, both in _NUMBERED:
        if by_number.get(all_cycles, 0) > 0 and (one in by_number or both in by_number):
            busy += 0.5 * by_number.get(one, 0) + by_number.get(both, 0)
            cycles += by_number[all_cycles]
    if not cycles and by_name.get(_CYCLES, 0) > 0 and _MATMULS in by_name:
        busy, cycles = by_name[_MATMULS] * _CYCLES_PER_MATMUL, by_name[_CYCLES]
    return busy, cycles
