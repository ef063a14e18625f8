"""What a core could do at most: from the trace itself, else from a table of chips."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tpumon.xspace.planes import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Peak rates of one TensorCore as the trace counts them; None where nobody tells.

    Attributes:
        flops_per_s: matrix units, bfloat16.
        hbm_bytes_per_s: reads and writes together.
        from_table: whether either is from the table of chips.
    """

    flops_per_s: float | None
    hbm_bytes_per_s: float | None
    from_table: bool = False


@dataclass(frozen=True, slots=True)
class _Chip:
    tera_flops_per_s: float
    hbm_giga_bytes_per_s: float
    devices: int  # planes of one chip: two cores as one (megacore) are one


# Not shared with the simulator, whose figures would then be checked against themselves; a test compares the two tables.
# Google's documentation of each generation; JAX's own table says 140 TFLOP/s and 825 GB/s of v3, 2460 GB/s of v5p.
_CHIPS = {
    "v2": _Chip(46, 716, 2),
    "v3": _Chip(123, 900, 2),
    "v4": _Chip(275, 1228, 1),
    "v5e": _Chip(197, 819, 1),
    "v5p": _Chip(459, 2765, 1),
    "v6e": _Chip(918, 1640, 1),
    "7x": _Chip(2307, 7380, 2),
}

_GENERATION = re.compile(r"\bTPU\s*v?([2-7])\s*(lite|e|p)?", re.IGNORECASE)
_NAMES = {"5": "v5p", "5p": "v5p", "5lite": "v5e", "6": "v6e", "6lite": "v6e", "7": "7x"}


def peak_of(stats: Mapping[str, Value], device_type: str | None) -> Peak:
    """Peak rates of the cores of a plane.

    Args:
        stats: the plane's; XProf's only source (GetPerfEnvFromXPlane).
        device_type: for the table, where the plane does not say.
    """
    flops_per_s = _positive(stats.get("peak_teraflops_per_second"), 1e12)
    hbm_bytes_per_s = _positive(stats.get("peak_hbm_bw_gigabytes_per_second"), 1e9)
    chip = _chip(device_type)
    if chip is None or (flops_per_s and hbm_bytes_per_s):
        return Peak(flops_per_s=flops_per_s, hbm_bytes_per_s=hbm_bytes_per_s)
    return Peak(
        flops_per_s=flops_per_s or chip.tera_flops_per_s * 1e12 / chip.devices,
        hbm_bytes_per_s=hbm_bytes_per_s or chip.hbm_giga_bytes_per_s * 1e9 / chip.devices,
        from_table=True,
    )


def _positive(value: Value | None, unit: float) -> float | None:
    return float(value) * unit if isinstance(value, (int, float)) and value > 0 else None


def _chip(device_type: str | None) -> _Chip | None:
    match = _GENERATION.search(device_type or "")
    if match is None:
        return None
    name = "".join(part.lower() for part in match.groups() if part)
    return _CHIPS.get(_NAMES.get(name, f"v{name}"))
