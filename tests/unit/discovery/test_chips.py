"""Chips as the kernel's files show them, in directories that stand for /sys, /dev and /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fakes.proc import JAX, FakeProc
from tpumon.discovery.host.pci_chips import ChipHolder, find_chips
from tpumon.model.chips import CHIPS
from tpumon.simulator.topology import GENERATIONS
from tpumon.xspace.hardware import peak_of

ACCELERATOR, NETWORK = "0x120000", "0x020000"


class Machine:
    """A host with PCI devices."""

    def __init__(self, root: Path):
        self.sys, self.dev = root / "sys", root / "dev"
        self.proc = FakeProc(root / "proc")
        self._devices = self.sys / "bus/pci/devices"
        self._devices.mkdir(parents=True)
        (self.dev / "vfio").mkdir(parents=True)

    def device(self, address, device, *, vendor="0x1ae0", kind=ACCELERATOR, subsystem="0x0001"):
        folder = self._devices / address
        folder.mkdir()
        told = {"vendor": vendor, "device": device, "class": kind, "subsystem_device": subsystem}
        for name, text in told.items():
            (folder / name).write_text(f"{text}\n")
        return folder

    def accelerator(self, number, folder, *, node=True):
        entry = self.sys / "class/accel" / f"accel{number}"
        entry.mkdir(parents=True)
        (entry / "device").symlink_to(folder)
        if node:
            (self.dev / f"accel{number}").touch()

    def group(self, number, folder, *, node=True):
        (folder / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{number}")
        if node:
            (self.dev / "vfio" / str(number)).touch()

    def find(self):
        return find_chips(self.sys, self.dev, self.proc.root)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("device", "subsystem", "name"),
    [
        ("0x0027", "0x004e", "TPU v2"),
        ("0x0027", "0x004f", "TPU v3"),
        ("0x005e", "0x0001", "TPU v4"),
        ("0x0063", "0x0001", "TPU v5e"),
        ("0x0062", "0x0001", "TPU v5p"),
        ("0x006f", "0x0001", "TPU v6e"),
        ("0x0076", "0x0001", "TPU 7x"),
        ("0x0099", "0x0001", "TPU (1ae0:0099)"),
        ("0x0027", "0x0050", "TPU (1ae0:0027)"),
    ],
)
def test_a_chip_is_named_by_its_numbers(machine, device, subsystem, name):
    """One that has no name yet is shown all the same."""
    machine.device("0000:00:04.0", device, subsystem=subsystem)

    assert [chip.name for chip in machine.find().chips] == [name]


def test_only_tpus_are_chips(machine):
    """Google's network cards have its vendor number too; other accelerators have another."""
    machine.device("0000:00:03.0", "0x0042", kind=NETWORK)
    machine.device("0000:00:04.0", "0x006f", vendor="0x10de")
    machine.device("0000:00:05.0", "0x0027", subsystem="0x004f", kind="0x088000")

    assert [chip.name for chip in machine.find().chips] == ["TPU v3"]


def test_v4_chips_are_accelerators(machine):
    """/dev/accelN, where N is the kernel's number and not the order of the addresses."""
    for number, address in ((1, "0000:00:04.0"), (0, "0000:00:05.0")):
        machine.accelerator(number, machine.device(address, "0x005e"))

    assert [chip.nodes for chip in machine.find().chips] == [(f"{machine.dev}/accel1",), (f"{machine.dev}/accel0",)]


def test_later_chips_are_iommu_groups(machine):
    """/dev/vfio/GROUP; group 10 is no tenth chip."""
    for address, group in (("0000:00:04.0", 10), ("0000:00:05.0", 9)):
        machine.group(group, machine.device(address, "0x006f"))

    assert [chip.nodes for chip in machine.find().chips] == [(f"{machine.dev}/vfio/10",), (f"{machine.dev}/vfio/9",)]


def test_the_two_functions_of_7x_are_one_chip(machine):
    """With both its files."""
    for group, address in enumerate(("0000:00:04.0", "0000:00:04.1", "0000:00:05.0", "0000:00:05.1")):
        machine.group(group, machine.device(address, "0x0076"))
    found = machine.find().chips

    assert [(chip.pci, chip.functions) for chip in found] == [("0000:00:04", 2), ("0000:00:05", 2)]
    assert found[1].nodes == (f"{machine.dev}/vfio/2", f"{machine.dev}/vfio/3")


def test_who_holds_a_chip(machine):
    """Each process once, whichever of the chip's files it has open; nobody is nobody."""
    for group, address in enumerate(("0000:00:04.0", "0000:00:04.1", "0000:00:05.0")):
        machine.group(group, machine.device(address, "0x0076"))
    machine.proc.process(4711, JAX)
    machine.proc.process(12, program="bash")
    for path in (f"{machine.dev}/vfio/0", f"{machine.dev}/vfio/1", f"{machine.dev}/vfio/vfio", "/dev/null"):
        machine.proc.opens(4711, path)
    machine.proc.opens(12, "/dev/null")
    held, free = machine.find().chips

    assert held.holders == (ChipHolder(pid=4711, program="python3.11"),)
    assert free.holders == ()


def test_chips_without_their_files_have_a_reason(machine):
    """As in a container that was not given them."""
    machine.group(0, machine.device("0000:00:04.0", "0x006f"), node=False)
    found = machine.find()

    assert found.chips[0].nodes == ()
    assert found.chips[0].missing == (f"{machine.dev}/vfio/0",)
    assert "was not given them" in found.remarks[0]


def test_no_pci_at_all_has_a_reason(tmp_path):
    """Neither does an empty machine fail."""
    found = find_chips(tmp_path / "sys", tmp_path / "dev", tmp_path / "proc")

    assert found.chips == ()
    assert "no PCI devices in" in found.remarks[0]


def test_what_may_not_be_read_is_a_remark(machine, monkeypatch):
    """Other users' processes hide what they have open; a device may be hidden, too."""
    machine.group(0, machine.device("0000:00:04.0", "0x006f"))
    hidden = machine.device("0000:00:05.0", "0x006f")
    for pid in (7, 8):
        machine.proc.process(pid)
    locked = {str(machine.proc.root / "7" / "fd"), str(machine.proc.root / "8" / "fd"), str(hidden / "vendor")}

    def forbid(function):
        def guarded(path, *args, **options):
            if str(path) in locked:
                raise PermissionError(13, "Permission denied", str(path))
            return function(path, *args, **options)

        return guarded

    # Tests may run as root, who may read everything.
    for name in ("iterdir", "read_text"):
        monkeypatch.setattr(Path, name, forbid(getattr(Path, name)))
    monkeypatch.setattr(os, "scandir", forbid(os.scandir))
    found = machine.find()

    assert len(found.chips) == 1
    assert any(remark.startswith("2 processes of other users") for remark in found.remarks)
    assert any(str(hidden) in remark for remark in found.remarks)


def test_nothing_but_numbers_is_taken_from_a_device(machine):
    """What stands there is shown on a terminal."""
    machine.device("0000:00:04.0", "0x00\x1b[31m99")

    assert machine.find().chips[0].name == "TPU (1ae0:0099)"


def test_this_machine_can_be_looked_at():
    """Whatever it has; nothing is opened, and nobody's rights are needed."""
    found = find_chips()

    assert all(chip.pci for chip in found.chips)
    assert all(isinstance(remark, str) and os.linesep not in remark for remark in found.remarks)


def test_every_chip_with_a_name_can_be_simulated_and_has_peaks():
    """One table says what each kind of chip can do at most."""
    names = set(CHIPS)

    assert names == set(GENERATIONS)
    for generation in GENERATIONS.values():
        peak = peak_of({}, generation.device_type)
        assert peak.from_table
        assert peak.flops_per_s == generation.chip.flops_per_s / generation.chip.devices
        assert peak.hbm_bytes_per_s == generation.chip.hbm_bytes_per_s / generation.chip.devices
