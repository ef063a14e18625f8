"""What listens on this host and whose it is, from /proc. Only reads; connects to nothing."""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpumon.model import Address
from tpumon.targets.processes import PROC, open_files, program_of

_LISTEN, _SYN_RECEIVED = "0A", "03"
_OTHERS_IN_A_ROW = 1000  # Linux lists those that listen first: connections, of which there may be many, are not read
_DEVICE = re.compile(r"/dev/(accel\d+|vfio/\d+)")
_XLA = re.compile(rb"/(jaxlib|tensorflow|torch_xla)/|/lib(tpu|tensorflow|jax)\w*\.so|/_XLAC|/xla_extension")
_NCCL = b"/libnccl.so"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process that listens, as far as its files can be read.

    Attributes:
        program: the name of its executable.
        is_tpumon: whether it is tpumon, this process included; `tpumon simulate` is not, as it plays a job.
        runs_xla: whether a library with a profiler server is loaded in it, or it holds a TPU.
        runs_nccl: whether NCCL, which listens on ports of its own, is loaded in it.
    """

    pid: int
    program: str
    is_tpumon: bool = False
    runs_xla: bool = False
    runs_nccl: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A port that something listens to.

    Attributes:
        address: `host:port` to reach it from here.
        inodes: of its sockets; they change when something else listens there.
    """

    port: int
    address: str
    inodes: frozenset[int]


def read_listeners(proc: Path = PROC) -> list[Listener]:
    """Every TCP port with a listener in this network namespace, in order.

    Source: /proc/net/tcp, tcp6.

    Raises:
        OSError: neither can be read.
    """
    sockets: list[tuple[int, _Ip, int]] = []
    errors = []
    for name in ("tcp", "tcp6"):
        try:
            with (proc / "net" / name).open(encoding="ascii", errors="replace") as lines:
                sockets.extend(_listening(lines))
        except OSError as error:
            errors.append(error)
    if len(errors) == 2:
        raise errors[0]
    ports: dict[int, list[tuple[_Ip, int]]] = {}
    for port, ip, inode in sockets:
        ports.setdefault(port, []).append((ip, inode))
    return [
        Listener(port=port, address=str(Address(host, port)), inodes=frozenset(inode for _, inode in here))
        for port, here in sorted(ports.items())
        if (host := _host_to_dial([ip for ip, _ in here])) is not None
    ]


def find_owners(inodes: Collection[int], proc: Path = PROC) -> dict[int, Owner]:
    """Which process holds each of these sockets, by inode, for processes whose files can be read.

    Source: /proc/PID/fd, exe, cmdline, maps. Takes milliseconds to a second, depending on the number of open files.
    """
    owners: dict[int, Owner] = {}
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for pid, files in open_files(proc):
        # The first process is the parent of those that inherited a socket.
        held = [wanted[file] for file in files or () if file in wanted and wanted[file] not in owners]
        if held:
            owner = _owner(pid, proc, has_device=any(_DEVICE.fullmatch(file) for file in files or ()))
            owners |= dict.fromkeys(held, owner)
        if len(owners) == len(wanted):
            break
    return owners


_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def _listening(lines: Iterator[str]) -> Iterator[tuple[int, _Ip, int]]:
    """Port, address and inode of each socket that listens."""
    others = 0
    next(lines, None)
    for line in lines:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            others += len(fields) < 10 or fields[3] != _SYN_RECEIVED
            if others > _OTHERS_IN_A_ROW:
                return
            continue
        others = 0
        try:
            host, _, port = fields[1].partition(":")
            yield int(port, 16), _ip(host), int(fields[9])
        except ValueError:
            continue


def _ip(text: str) -> _Ip:
    """An address as the kernel prints it: 32-bit words of this machine's byte order."""
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    ip = ipaddress.ip_address(b"".join(words))
    return ip.ipv4_mapped or ip if isinstance(ip, ipaddress.IPv6Address) else ip


def _host_to_dial(ips: Sequence[_Ip]) -> str | None:
    """The nearest way to a port: loopback if it listens there; None if only a link-local address does."""
    if any(ip.is_unspecified for ip in ips):
        return "127.0.0.1"
    usable = [ip for ip in ips if not ip.is_link_local]
    best = min(usable, key=lambda ip: (not ip.is_loopback, ip.version, int(ip)), default=None)
    return None if best is None else str(best)


def _owner(pid: int, proc: Path, *, has_device: bool) -> Owner:
    folder = proc / str(pid)
    maps = _read(folder / "maps")
    args = _read(folder / "cmdline").split(b"\0")
    is_tpumon = any(arg.rpartition(b"/")[2] == b"tpumon" for arg in args[:4])
    plays_job = is_tpumon and b"simulate" in args  # the command, not the option `--simulate`
    return Owner(
        pid=pid,
        program=program_of(pid, proc) or "?",
        is_tpumon=pid == os.getpid() or (is_tpumon and not plays_job),
        runs_xla=has_device or _XLA.search(maps) is not None,
        runs_nccl=_NCCL in maps,
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
