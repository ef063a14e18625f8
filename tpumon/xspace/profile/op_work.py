"""Work of ops in numbers to show: of the tables of a report, and of the top operations of a sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from tpumon.xspace.core_totals import CoreTotals
    from tpumon.xspace.profile.op_times import Op

NO_PROGRAM = "program"
"""What a program is called whose name the trace does not tell."""

_PS_PER_S = 1e12  # that of `columns.timeline` comes with NumPy, which a report is built without


class Capacity(Struct, frozen=True, kw_only=True):
    """Time and peak rates of cores, which the work of ops is relative to.

    Attributes:
        time_s: of all cores, idle time included.
        flops_rate: peak of one core, in FLOPs per second; None where it is not known.
        hbm_rate: peak of one core, in bytes per second; None where it is not known.
    """

    time_s: float
    flops_rate: float | None
    hbm_rate: float | None


class OpWork(Struct, frozen=True, kw_only=True):
    """Time, FLOPs and bytes of one op or several, on all cores.

    Attributes:
        self_time_s: time in them, without the ops within.
        time_ratio: the same as a share of the time of all cores, idle time included.
        occurrences: how often they ran.
        flops: as executed; of groups, of those without ops within.
        flops_rate: FLOPs per second of their time.
        flops_utilization_ratio: FLOPs relative to the peak in that time at the chip's nominal clock.
        hbm_bytes: read and written; None where the trace does not say.
        hbm_rate: the same per second.
        hbm_utilization_ratio: the same relative to the peak.
    """

    self_time_s: float
    time_ratio: float
    occurrences: int
    flops: float
    flops_rate: float
    flops_utilization_ratio: float | None
    hbm_bytes: float | None
    hbm_rate: float | None
    hbm_utilization_ratio: float | None


def op_work(
    capacity: Capacity,
    *,
    time_s: float,
    self_time_s: float,
    normalized_s: float,
    occurrences: float,
    flops: float,
    hbm_bytes: float | None,
) -> OpWork:
    """The work of ops, from their sums.

    Args:
        capacity: what it is relative to.
        time_s: durations, ops within counted in.
        self_time_s: durations without the ops within.
        normalized_s: durations at the chip's nominal clock; 0 where the trace does not say.
        occurrences: how often they ran.
        flops: as executed.
        hbm_bytes: read and written; None where the trace does not say.
    """
    hbm_rate = None if hbm_bytes is None else per(hbm_bytes, time_s)
    return OpWork(
        self_time_s=self_time_s,
        time_ratio=per(self_time_s, capacity.time_s),
        occurrences=round(occurrences),
        flops=flops,
        flops_rate=per(flops, time_s),
        flops_utilization_ratio=_share(per(flops, normalized_s or time_s), capacity.flops_rate),
        hbm_bytes=hbm_bytes,
        hbm_rate=hbm_rate,
        hbm_utilization_ratio=None if hbm_rate is None else _share(hbm_rate, capacity.hbm_rate),
    )


def work_of_op(capacity: Capacity, op: Op) -> OpWork:
    """The work of one op; what ran within it counts as its own, as in XProf's table of HLO ops."""
    return op_work(
        capacity,
        time_s=op.time_s,
        self_time_s=op.self_time_s,
        normalized_s=op.normalized_s,
        occurrences=op.occurrences,
        flops=op.flops,
        hbm_bytes=op.traffic.hbm,
    )


def cores_time_s(cores: Iterable[CoreTotals]) -> float:
    """The time of all cores, from first to last of ops and steps each."""
    return sum(core.total_ps for core in cores) / _PS_PER_S


def program_name(names: Mapping[int, str], number: int) -> str:
    """The name of a program, with its number: "jit_step(42)"."""
    return f"{names.get(number, NO_PROGRAM)}({number})"


def per(amount: float, whole: float) -> float:
    """An amount per unit of the whole; 0 of nothing."""
    return amount / whole if whole > 0 else 0.0


def _share(rate: float, peak: float | None) -> float | None:
    return None if not peak else min(rate / peak, 1.0)
