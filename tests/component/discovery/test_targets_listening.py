"""What listens here, and whose it is, read from files as the kernel writes them."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from fakes.proc import JAX, NCCL, TENSORFLOW, FakeProc
from tpumon.discovery.host.listening import find_owners, read_listeners


@pytest.fixture
def proc(tmp_path):
    return FakeProc(tmp_path / "proc")


def addresses(proc):
    return {listener.port: listener.address for listener in read_listeners(proc.root)}


@pytest.mark.parametrize(
    ("bound", "host"),
    [
        (["127.0.0.1"], "127.0.0.1"),
        (["0.0.0.0"], "127.0.0.1"),
        (["::"], "127.0.0.1"),
        (["::1"], "[::1]"),
        (["10.0.0.7"], "10.0.0.7"),
        (["fd00::7"], "[fd00::7]"),
        (["::ffff:10.0.0.7"], "10.0.0.7"),
        (["10.0.0.7", "127.0.0.1"], "127.0.0.1"),
        (["::1", "127.0.0.1"], "127.0.0.1"),
        (["fd00::7", "10.0.0.7"], "10.0.0.7"),
        (["fe80::7", "fd00::7"], "[fd00::7]"),
    ],
)
def test_a_port_is_reached_by_the_nearest_way(proc, bound, host):
    """Loopback where it listens there too, however many addresses one port has; one listener a port."""
    for ip in bound:
        proc.listen(9999, ip=ip)
    assert addresses(proc) == {9999: f"{host}:9999"}


def test_a_link_local_address_alone_cannot_be_dialled(proc):
    """It would need the name of an interface."""
    proc.listen(9999, ip="fe80::7")
    assert addresses(proc) == {}


def test_connections_are_no_listeners(proc):
    """However many of them there are, only what listens is found."""
    proc.listen(9999)
    proc.connected(9999, 5)
    proc.connected(4444, 5000)
    assert addresses(proc) == {9999: "127.0.0.1:9999"}


def test_connections_are_not_all_read(proc):
    """The kernel lists listeners first; a server with a hundred thousand connections is not read through."""
    proc.connected(4444, 5000)
    with (proc.root / "net" / "tcp").open("a") as file:
        file.write("   0: 0100007F:270F 00000000:0000 0A 0:0 00:0 0 0 0 77 1 0 100 0 0 10 0\n")
    assert addresses(proc) == {}


def test_sockets_of_one_port_are_one_listener(proc):
    """A gRPC server may have several with one port."""
    inodes = {proc.listen(9999, ip="::"), proc.listen(9999, ip="::"), proc.listen(9999, ip="0.0.0.0")}
    (listener,) = read_listeners(proc.root)
    assert listener.inodes == inodes


def test_odd_lines_are_passed_over(proc):
    """Whatever else stands in the file."""
    proc.listen(9999)
    with (proc.root / "net" / "tcp").open("a") as file:
        file.write("\n   1: nonsense 0 0A 0 0 0 0 0 x\n   1: 0100007F:ZZZZ 0 0A 0 0 0 0 0 7\n\xff\xfe\n   2:")
    assert addresses(proc) == {9999: "127.0.0.1:9999"}


def test_one_file_of_the_two_is_enough(proc):
    """A kernel without IPv6 has only the one; with neither, that is an error for the caller."""
    proc.listen(9999)
    (proc.root / "net" / "tcp6").unlink()
    assert addresses(proc) == {9999: "127.0.0.1:9999"}
    proc.forbid()
    with pytest.raises(OSError):
        read_listeners(proc.root)


def owner(proc, inode):
    return find_owners({inode}, proc.root).get(inode)


@pytest.mark.parametrize(
    ("libraries", "device", "runs_xla"),
    [
        ([JAX], None, True),
        ([TENSORFLOW], None, True),
        (["/opt/v/site-packages/torch_xla/lib/libptxla.so"], None, True),
        (["/opt/v/site-packages/_XLAC.cpython-310-x86_64-linux-gnu.so"], None, True),
        (["/lib/libtpu.so"], None, True),
        (["/lib/x86_64-linux-gnu/libc.so.6", "/home/jaxlib-fan/x.so"], None, False),
        ([], "/dev/accel0", True),
        ([], "/dev/vfio/17", True),
        ([], "/dev/vfio/vfio", False),
        ([], "/dev/null", False),
    ],
)
def test_what_can_have_a_profiler_server(proc, libraries, device, runs_xla):
    """A process with XLA in it, or one that holds a TPU."""
    proc.process(42, *libraries)
    if device:
        proc.opens(42, device)
    assert owner(proc, proc.listen(9999, 42)).runs_xla is runs_xla


def test_an_owner_is_told_by_number_and_program(proc):
    """Its number and its executable's name, as far as they may be read; never its arguments, which may hold secrets."""
    proc.process(42, NCCL, program="python3.11 (deleted)", cmdline="train.py --token=secret")
    found = owner(proc, proc.listen(9999, 42))
    assert (found.pid, found.program, found.runs_nccl) == (42, "python3.11", True)
    assert "secret" not in repr(found)
    (proc.root / "42" / "exe").unlink()
    (proc.root / "42" / "maps").unlink()
    (proc.root / "42" / "cmdline").unlink()
    found = owner(proc, proc.listen(9998, 42))
    assert (found.pid, found.program, found.runs_xla) == (42, "?", False)


def test_a_programs_name_cannot_drive_a_terminal(proc):
    """It is shown; files may be named anything."""
    proc.process(42, program="evil\x1b]0;owned\x07\x1b[31m\nname" + "e" * 100)
    program = owner(proc, proc.listen(9999, 42)).program
    assert program.startswith("evil name")
    assert len(program) == 40
    proc.process(42, program="\x1b[31m")
    assert owner(proc, proc.listen(9998, 42)).program == "?"


def test_a_socket_that_children_inherited_is_their_parents(proc):
    """The first process that has it."""
    for pid in (43, 42, 44):
        proc.process(pid)
    assert owner(proc, proc.listen(9999, 44, 42, 43)).pid == 42


@pytest.mark.parametrize(
    ("cmdline", "is_tpumon"),
    [
        ("/usr/bin/python3 /opt/v/bin/tpumon serve", True),
        ("python3 -m tpumon --simulate v5e-8", True),
        ("python3 -m tpumon simulate v5e-8 --port 9999", False),
        ("python3 train.py", False),
        ("python3 train.py --run-name of tpumon", False),
    ],
)
def test_tpumon_knows_its_own(proc, cmdline, is_tpumon):
    """Other tpumons are no jobs; `tpumon simulate` plays one."""
    proc.process(42, cmdline=cmdline)
    assert owner(proc, proc.listen(9999, 42)).is_tpumon is is_tpumon


def test_nobody_who_may_not_be_read_is_an_owner(proc):
    """No process, or one that hides its files: no owner, and no error."""
    inode = proc.listen(9999)
    (proc.root / "42").mkdir()
    (proc.root / "43").write_text("a file where a process should be")
    assert owner(proc, inode) is None
    assert find_owners({inode}, proc.root / "nowhere") == {}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads this machine's /proc")
def test_this_machines_own_sockets():
    """The kernel's files say what these tests' own sockets are, on IPv4 and IPv6."""
    with (
        socket.create_server(("127.0.0.1", 0)) as four,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
    ):
        ports = [server.getsockname()[1] for server in (four, six)]
        found = {listener.port: listener for listener in read_listeners() if listener.port in ports}
        assert [found[port].address for port in ports] == [f"127.0.0.1:{ports[0]}", f"[::1]:{ports[1]}"]
        (inode,) = found[ports[0]].inodes
        mine = find_owners({inode})[inode]
        assert (mine.pid, mine.is_tpumon) == (os.getpid(), True)
        assert mine.program.startswith("python")
