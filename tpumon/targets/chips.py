"""The TPU chips of this host, from the files of the kernel; no driver is loaded and no chip is opened."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpumon.text import one_line

_GOOGLE = "1ae0"
_ACCELERATOR_CLASS = "0x12"  # Google's network and disk controllers have the same vendor, but other classes

# PCI device, and subsystem where that decides. A new chip is "TPU (1ae0:<device>)" until it has a line here.
_NAMES: Mapping[tuple[str, str | None], str] = {
    ("0027", "004e"): "TPU v2",
    ("0027", "004f"): "TPU v3",
    ("005e", None): "TPU v4",
    ("0063", None): "TPU v5e",
    ("0062", None): "TPU v5p",
    ("006f", None): "TPU v6e",
    ("0076", None): "TPU 7x",
}
_TPUS = {device for device, _ in _NAMES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Attributes:
    pid: as this tpumon sees it.
    program: the name of its executable; empty where that cannot be read.
    """

    pid: int
    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One chip.

    Attributes:
        name: for example "TPU v6e"; one that is not known yet by its numbers, "TPU (1ae0:0099)".
        pci: its address without the function, for example "0000:00:04".
        functions: PCI functions that it consists of; 7x has two.
        nodes: its files in /dev that exist.
        missing: its files in /dev that do not, as in a container that was not given them.
        holders: processes that have it open, as far as may be seen; tpumon's own rights decide.
    """

    name: str
    pci: str
    functions: int
    nodes: tuple[str, ...]
    missing: tuple[str, ...]
    holders: tuple[Process, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chips:
    """What was found.

    Attributes:
        chips: in the order of their addresses.
        remarks: what could not be seen and why, one line each.
    """

    chips: tuple[Chip, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    """A PCI function of a TPU: its chip's address, name and file in /dev, as far as the kernel tells."""

    chip: str
    name: str
    node: str | None


def find_chips(sys: Path = Path("/sys"), dev: Path = Path("/dev"), proc: Path = Path("/proc")) -> Chips:
    """The chips of this host, as the file systems that are usually there tell.

    Never fails: what cannot be read is a remark.
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
            f"some chips have no file in {dev}: they are not given to this container or virtual machine, or the driver "
            "is not loaded"
        )
    return Chips(chips=chips, remarks=tuple(remarks))


def _functions(sys: Path, remarks: list[str]) -> list[_Function]:
    found: list[_Function] = []
    accelerators = _accelerators(sys)
    try:
        paths = sorted((sys / "bus/pci/devices").iterdir())
    except FileNotFoundError:
        remarks.append(f"no PCI devices are to be seen in {sys}/bus/pci: chips cannot be told")
        return found
    except OSError as error:
        remarks.append(f"{sys}/bus/pci/devices: {error.strerror}: chips cannot be told")
        return found
    for path in paths:
        try:
            if _read_id(path / "vendor") != _GOOGLE:
                continue
            device = _read_id(path / "device")
            is_accelerator = (path / "class").read_text("ascii").startswith(_ACCELERATOR_CLASS)
        except (OSError, ValueError) as error:
            if not isinstance(error, FileNotFoundError):  # it was unplugged, or is none
                remarks.append(f"{path}: cannot be read")
            continue
        if not is_accelerator and device not in _TPUS:
            continue
        node = accelerators.get(path.name) or _vfio_group(path)
        found.append(_Function(chip=path.name.rpartition(".")[0], name=_name(path, device), node=node))
    return found


def _read_id(path: Path) -> str:
    return path.read_text("ascii").strip().removeprefix("0x").lower()


def _name(path: Path, device: str) -> str:
    try:
        subsystem = _read_id(path / "subsystem_device")
    except (OSError, ValueError):
        subsystem = ""
    return _NAMES.get((device, None)) or _NAMES.get((device, subsystem)) or f"TPU ({_GOOGLE}:{one_line(device)})"


def _accelerators(sys: Path) -> dict[str, str]:
    """Names in /dev by PCI address, of the generations whose driver makes accelerators: v2 to v4."""
    try:
        entries = list((sys / "class/accel").iterdir())
    except OSError:
        return {}
    return {(entry / "device").resolve().name: entry.name for entry in entries}


def _vfio_group(path: Path) -> str | None:
    """The name in /dev of a function that is handed to user space; a group's number is not a chip's."""
    try:
        return f"vfio/{(path / 'iommu_group').readlink().name}"
    except OSError:
        return None


def _chip(dev: Path, parts: Sequence[_Function], holders: Mapping[str, Sequence[Process]]) -> Chip:
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


def _holders(nodes: set[str], proc: Path, remarks: list[str]) -> dict[str, list[Process]]:
    """Processes by the file in /dev that they have open, of these files."""
    found: dict[str, list[Process]] = defaultdict(list)
    hidden = 0
    for pid in _pids(proc):
        try:
            descriptors = list((proc / pid / "fd").iterdir())
        except PermissionError:
            hidden += 1
            continue
        except OSError:  # it ended
            continue
        for node in nodes & {_target(descriptor) for descriptor in descriptors}:
            found[node].append(Process(pid=int(pid), program=_program(proc, pid)))
    if hidden:
        remarks.append(f"{hidden} processes of other users hide what they have open: run as root to see all holders")
    return found


def _pids(proc: Path) -> Iterator[str]:
    try:
        yield from sorted((entry.name for entry in proc.iterdir() if entry.name.isdecimal()), key=int)
    except OSError:
        return


def _target(link: Path) -> str | None:
    try:
        return str(link.readlink())
    except OSError:  # closed meanwhile, or a container does not let us look
        return None


def _program(proc: Path, pid: str) -> str:
    target = _target(proc / pid / "exe")
    return "" if target is None else one_line(Path(target).name.removesuffix(" (deleted)"), limit=40)
