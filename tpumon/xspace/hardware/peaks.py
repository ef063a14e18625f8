"""What a core can do at most: from the trace itself, otherwise from the table of chips."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from tpumon.model.chips import chip_of
from tpumon.xspace.planes.plane import Value


class Peak(Struct, frozen=True, kw_only=True, eq=False):
    """Peak rates of one TensorCore as the trace counts them; None if unknown.

    Attributes:
        flops_per_s: matrix units, bfloat16.
        hbm_bytes_per_s: reads and writes together.
        from_table: whether either is from the table of chips.
    """

    flops_per_s: float | None
    hbm_bytes_per_s: float | None
    from_table: bool = False


def peak_of(stats: Mapping[str, Value], device_type: str | None, planes_per_chip: int = 1) -> Peak:
    """Peak rates of the core of a plane.

    Args:
        stats: the plane's; XProf's only source (GetPerfEnvFromXPlane).
        device_type: to look up in the table of chips if the plane has no peaks.
        planes_per_chip: core planes that the trace has of one chip; the table gives each its share of the chip.
    """
    flops_per_s = _positive(stats.get("peak_teraflops_per_second"), 1e12)
    hbm_bytes_per_s = _positive(stats.get("peak_hbm_bw_gigabytes_per_second"), 1e9)
    chip = chip_of(device_type)
    if chip is None or (flops_per_s and hbm_bytes_per_s):
        return Peak(flops_per_s=flops_per_s, hbm_bytes_per_s=hbm_bytes_per_s)
    # The cores of a chip that could work as one may have planes of their own all the same.
    apart = planes_per_chip > chip.devices or stats.get("has_megacore") == 0
    planes = chip.cores if apart else chip.devices
    return Peak(
        flops_per_s=flops_per_s or chip.flops_per_s / planes,
        hbm_bytes_per_s=hbm_bytes_per_s or chip.hbm_bytes_per_s / planes,
        from_table=True,
    )


def _positive(value: Value | None, unit: float) -> float | None:
    return float(value) * unit if isinstance(value, (int, float)) and value > 0 else None
