"""What listens on this machine, and whose it is, as /proc tells. Only reads; nothing is connected to."""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpumon.text import one_line

PROC = Path("/proc")

_LISTEN, _SYN_RECEIVED = "0A", "03"
_OTHERS_IN_A_ROW = 1000  # Linux lists those that listen first: connections, of which there may be many, are not read
_DEVICE = re.compile(r"/dev/(accel\d+|vfio/\d+)")
_XLA = re.compile(rb"/(jaxlib|tensorflow|torch_xla)/|/lib(tpu|tensorflow|jax)\w*\.so|/_XLAC|/xla_extension")
_NCCL = b"/libnccl.so"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process that listens, as far as its files may be read.

    Attributes:
        program: the name of its executable.
        is_tpumon: whether it is this program, this process included; not where it is `tpumon simulate`.
        runs_xla: whether a library with a profiler server is loaded in it, or it holds a TPU.
        runs_nccl: whether NCCL is loaded in it, which listens on ports of its own.
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
        inodes: its sockets: others listen there when they are others.
    """

    port: int
    address: str
    inodes: frozenset[int]


def read_listeners(proc: Path = PROC) -> list[Listener]:
    """Every TCP port that is listened to in this network namespace, by number.

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
        Listener(port=port, address=f"{host}:{port}", inodes=frozenset(inode for _, inode in found))
        for port, found in sorted(ports.items())
        if (host := _host_to_dial([ip for ip, _ in found])) is not None
    ]


def find_owners(inodes: Collection[int], proc: Path = PROC) -> dict[int, Owner]:
    """Who holds these sockets, by inode; only processes whose files may be read are found.

    Source: /proc/PID/fd, exe, cmdline, maps. Takes milliseconds to a second, by the number of open files.
    """
    owners: dict[int, Owner] = {}
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    try:
        pids = sorted(int(entry.name) for entry in os.scandir(proc) if entry.name.isdigit())
    except OSError:
        return owners
    for pid in pids:
        if len(owners) == len(wanted):
            break
        links = list(_links(proc / str(pid) / "fd"))
        # The first process is the parent of those that inherited a socket.
        held = [wanted[link] for link in links if link in wanted and wanted[link] not in owners]
        if held:
            owner = _owner(pid, proc, has_device=any(_DEVICE.fullmatch(link) for link in links))
            owners |= dict.fromkeys(held, owner)
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
    """The nearest way to a port: loopback where it listens there too; None where there is only a link-local one."""
    if any(ip.is_unspecified for ip in ips):
        return "127.0.0.1"
    usable = [ip for ip in ips if not ip.is_link_local]
    best = min(usable, key=lambda ip: (not ip.is_loopback, ip.version, int(ip)), default=None)
    return None if best is None else f"[{best}]" if best.version == 6 else str(best)


def _links(folder: Path) -> Iterator[str]:
    """Where the links of a folder lead, as far as one may know."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            yield os.readlink(entry.path)  # noqa: PTH115 - a Path for each of many thousands takes its time
        except OSError:
            continue


def _owner(pid: int, proc: Path, *, has_device: bool) -> Owner:
    folder = proc / str(pid)
    try:
        program = one_line((folder / "exe").readlink().name.removesuffix(" (deleted)"), limit=40) or "?"
    except OSError:
        program = "?"
    maps = _read(folder / "maps")
    args = _read(folder / "cmdline").split(b"\0")
    is_tpumon = any(arg.rpartition(b"/")[2] == b"tpumon" for arg in args[:4])
    plays_job = is_tpumon and b"simulate" in args  # the command; `--simulate` is of a monitor that has its own
    return Owner(
        pid=pid,
        program=program,
        is_tpumon=pid == os.getpid() or (is_tpumon and not plays_job),
        runs_xla=has_device or _XLA.search(maps) is not None,
        runs_nccl=_NCCL in maps,
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
