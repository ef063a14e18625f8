"""The table of TPU chips."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct


class ChipKind(Struct, frozen=True, kw_only=True):
    """One kind of TPU chip.

    Attributes:
        name: for example "v5e".
        pci_device, pci_subsystem: its PCI IDs; the subsystem only if the device ID is ambiguous.
        flops_per_s: bfloat16 peak of the matrix units of one chip.
        hbm_bytes_per_s: peak bandwidth of one chip, reads and writes together.
        devices: device planes per chip in a trace; two cores that act as one (megacore) have one plane.
        cores: its TensorCores.
        mxu_width: rows and columns of a matrix unit; of 7x as of v6e.
    """

    name: str
    pci_device: str
    pci_subsystem: str | None = None
    flops_per_s: float
    hbm_bytes_per_s: float
    devices: int
    cores: int
    mxu_width: int = 128


# From Google's documentation. JAX's own table differs: 140 TFLOP/s and 825 GB/s for v3, 2460 GB/s for v5p.
CHIPS: Mapping[str, ChipKind] = {
    chip.name: chip
    for chip in (
        ChipKind(name="v2", pci_device="0027", pci_subsystem="004e", flops_per_s=46e12, hbm_bytes_per_s=716e9,
                 devices=2, cores=2),
        ChipKind(name="v3", pci_device="0027", pci_subsystem="004f", flops_per_s=123e12, hbm_bytes_per_s=900e9,
                 devices=2, cores=2),
        ChipKind(name="v4", pci_device="005e", flops_per_s=275e12, hbm_bytes_per_s=1228e9, devices=1, cores=2),
        ChipKind(name="v5e", pci_device="0063", flops_per_s=197e12, hbm_bytes_per_s=819e9, devices=1, cores=1),
        ChipKind(name="v5p", pci_device="0062", flops_per_s=459e12, hbm_bytes_per_s=2765e9, devices=1, cores=2),
        ChipKind(name="v6e", pci_device="006f", flops_per_s=918e12, hbm_bytes_per_s=1640e9, devices=1, cores=1,
                 mxu_width=256),
        ChipKind(name="7x", pci_device="0076", flops_per_s=2307e12, hbm_bytes_per_s=7380e9, devices=2, cores=2,
                 mxu_width=256),
    )
}  # fmt: skip
"""All chips, by name."""

_GENERATION = re.compile(r"\bTPU\s*v?([2-7])\s*(lite|e|p)?", re.IGNORECASE)
_NAMES = {"5": "v5p", "5p": "v5p", "5lite": "v5e", "6": "v6e", "6lite": "v6e", "7": "7x"}


def chip_of(device_type: str | None) -> ChipKind | None:
    """Returns the chip for a profiler's device type, such as "TPU v5 Lite"; None if it is unknown."""
    match = _GENERATION.search(device_type or "")
    if match is None:
        return None
    name = "".join(part.lower() for part in match.groups() if part)
    return CHIPS.get(_NAMES.get(name, f"v{name}"))


_USUAL = {"7x": "Ironwood"}


def spoken_name(device_type: str) -> str:
    """The official name with the usual one in brackets, "TPU v6 Lite (v6e)"; the official one where they agree."""
    chip = chip_of(device_type)
    if chip is None:
        return device_type
    usual = _USUAL.get(chip.name, chip.name)
    return device_type if usual in device_type else f"{device_type} ({usual})"
