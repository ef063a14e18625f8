"""The TPU chips of this host, from files of the kernel; loads no driver and opens no chip."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from tpumon.discovery.host.processes import PROC, open_files, program_of
from tpumon.model.chips import CHIPS
from tpumon.untrusted_text import one_line

_GOOGLE = "1ae0"
_ACCELERATOR_CLASS = "0x12"  # Google's network and disk controllers have the same vendor, but other classes

_TPUS = {chip.pci_device for chip in CHIPS.values()}


class ChipHolder(Struct, frozen=True, kw_only=True):
    """A process that holds a chip.

    Attributes:
        pid: as this tpumon sees it.
        program: the name of its executable; empty if unknown.
    """

    pid: int
    program: str


class Chip(Struct, frozen=True, kw_only=True):
    """One chip.

    Attributes:
        name: for example "TPU v6e"; a new one goes by its PCI numbers: "TPU (1ae0:0099)".
        pci: its address without the function, for example "0000:00:04".
        functions: number of its PCI functions; 7x has two.
        nodes: its files in /dev that exist.
        missing: its files in /dev that do not, as in a container without them.
        holders: processes that have it open, as far as tpumon may see them.
    """

    name: str
    pci: str
    functions: int
    nodes: tuple[str, ...]
    missing: tuple[str, ...]
    holders: tuple[ChipHolder, ...]


class Chips(Struct, frozen=True, kw_only=True):
    """The chips of a host.

    Attributes:
        chips: in the order of their addresses.
        remarks: what could not be read and why, one line each.
    """

    chips: tuple[Chip, ...]
    remarks: tuple[str, ...]


class _Function(Struct, frozen=True, kw_only=True):
    """A PCI function of a TPU: its chip's address, its name and its file in /dev, if any."""

    chip: str
    name: str
    node: str | None


def find_chips(sys: Path = Path("/sys"), dev: Path = Path("/dev"), proc: Path = PROC) -> Chips:
    """Finds the chips of this host. Never fails: what cannot be read is a remark.

    Source: /sys/bus/pci, /sys/class/accel, /dev, /proc/PID/fd.
    """
    remarks: list[str] = []
    functions = _functions(sys, remarks)
    nodes = {str(dev / function.node) for function in functions if function.node is not None}
    holders = _holders(nodes, proc, remarks) if nodes else {}
    by_chip: dict[str, list[_Function]] = defaultdict(list)
    for function in functions:
        by_chip[function.chip].append(function)
    chips = tuple(_chip(dev, parts, holders) for _, parts in sorted(by_chip.items()))
    if any(chip.missing for chip in chips):
        remarks.append(
            f"some chips have no file in {dev}: this container or virtual machine was not given them, or the driver is "
            "not loaded"
        )
    return Chips(chips=chips, remarks=tuple(remarks))


def _functions(sys: Path, remarks: list[str]) -> list[_Function]:
    functions: list[_Function] = []
    accelerators = _accelerators(sys)
    try:
        paths = sorted((sys / "bus/pci/devices").iterdir())
    except FileNotFoundError:
        remarks.append(f"no PCI devices in {sys}/bus/pci: the chips are unknown")
        return functions
    except OSError as error:
        remarks.append(f"{sys}/bus/pci/devices: {error.strerror}: the chips are unknown")
        return functions
    for path in paths:
        try:
            if _read_id(path / "vendor") != _GOOGLE:
                continue
            device = _read_id(path / "device")
            is_accelerator = (path / "class").read_text("ascii").startswith(_ACCELERATOR_CLASS)
        except (OSError, ValueError) as error:
            if not isinstance(error, FileNotFoundError):  # unplugged, or not a device
                remarks.append(f"{path}: cannot be read")
            continue
        if not is_accelerator and device not in _TPUS:
            continue
        node = accelerators.get(path.name) or _vfio_group(path)
        functions.append(_Function(chip=path.name.rpartition(".")[0], name=_chip_name(path, device), node=node))
    return functions


def _read_id(path: Path) -> str:
    return path.read_text("ascii").strip().removeprefix("0x").lower()


def _chip_name(path: Path, device: str) -> str:
    try:
        subsystem = _read_id(path / "subsystem_device")
    except (OSError, ValueError):
        subsystem = ""
    for chip in CHIPS.values():
        if chip.pci_device == device and chip.pci_subsystem in {None, subsystem}:
            return f"TPU {chip.name}"
    return f"TPU ({_GOOGLE}:{one_line(device)})"


def _accelerators(sys: Path) -> dict[str, str]:
    """Names in /dev by PCI address, for generations whose driver makes accelerators: v2 to v4."""
    try:
        entries = list((sys / "class/accel").iterdir())
    except OSError:
        return {}
    return {(entry / "device").resolve().name: entry.name for entry in entries}


def _vfio_group(path: Path) -> str | None:
    """The name in /dev of a function handed to user space; the number is the group's, not the chip's."""
    try:
        return f"vfio/{(path / 'iommu_group').readlink().name}"
    except OSError:
        return None


def _chip(dev: Path, parts: Sequence[_Function], holders: Mapping[str, Sequence[ChipHolder]]) -> Chip:
    nodes = sorted({str(dev / part.node) for part in parts if part.node is not None})
    there = tuple(node for node in nodes if os.path.lexists(node))
    return Chip(
        name=parts[0].name,
        pci=parts[0].chip,
        functions=len(parts),
        nodes=there,
        missing=tuple(node for node in nodes if node not in there),
        holders=tuple(sorted({holder for node in nodes for holder in holders.get(node, ())}, key=lambda one: one.pid)),
    )


def _holders(nodes: set[str], proc: Path, remarks: list[str]) -> dict[str, list[ChipHolder]]:
    """Processes by the file in /dev that they have open, of these files."""
    holders: dict[str, list[ChipHolder]] = defaultdict(list)
    hidden = 0
    for pid, files in open_files(proc):
        if files is None:
            hidden += 1
            continue
        for node in nodes.intersection(files):
            holders[node].append(ChipHolder(pid=pid, program=program_of(pid, proc) or ""))
    if hidden:
        remarks.append(f"{hidden} processes of other users hide their open files: run as root to see all holders")
    return holders
