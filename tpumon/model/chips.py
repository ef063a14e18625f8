"""The one table of TPU chips."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipKind:
    """One kind of TPU chip.

    Attributes:
        name: for example "v5e".
        pci_device, pci_subsystem: its PCI numbers; the subsystem only where it decides.
        flops_per_s: peak of the matrix units, bfloat16, of the whole chip.
        hbm_bytes_per_s: peak of reads and writes together, of the whole chip.
        devices: device planes of one chip in a trace: two cores that work as one (megacore) are one.
    """

    name: str
    pci_device: str
    pci_subsystem: str | None = None
    flops_per_s: float
    hbm_bytes_per_s: float
    devices: int


# Google's documentation of each generation; JAX's own table says 140 TFLOP/s and 825 GB/s of v3, 2460 GB/s of v5p.
CHIPS: Mapping[str, ChipKind] = {
    chip.name: chip
    for chip in (
        ChipKind(name="v2", pci_device="0027", pci_subsystem="004e", flops_per_s=46e12, hbm_bytes_per_s=716e9,
                 devices=2),
        ChipKind(name="v3", pci_device="0027", pci_subsystem="004f", flops_per_s=123e12, hbm_bytes_per_s=900e9,
                 devices=2),
        ChipKind(name="v4", pci_device="005e", flops_per_s=275e12, hbm_bytes_per_s=1228e9, devices=1),
        ChipKind(name="v5e", pci_device="0063", flops_per_s=197e12, hbm_bytes_per_s=819e9, devices=1),
        ChipKind(name="v5p", pci_device="0062", flops_per_s=459e12, hbm_bytes_per_s=2765e9, devices=1),
        ChipKind(name="v6e", pci_device="006f", flops_per_s=918e12, hbm_bytes_per_s=1640e9, devices=1),
        ChipKind(name="7x", pci_device="0076", flops_per_s=2307e12, hbm_bytes_per_s=7380e9, devices=2),
    )
}  # fmt: skip
"""By name."""

_GENERATION = re.compile(r"\bTPU\s*v?([2-7])\s*(lite|e|p)?", re.IGNORECASE)
_NAMES = {"5": "v5p", "5p": "v5p", "5lite": "v5e", "6": "v6e", "6lite": "v6e", "7": "7x"}


def chip_of(device_type: str | None) -> ChipKind | None:
    """The kind of chip that a profiler names, for example "TPU v5 Lite"; None for an unknown one."""
    match = _GENERATION.search(device_type or "")
    if match is None:
        return None
    name = "".join(part.lower() for part in match.groups() if part)
    return CHIPS.get(_NAMES.get(name, f"v{name}"))
