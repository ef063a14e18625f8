"""Listeners of this host and their processes, from /proc. Only reads; connects to nothing."""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from tpumon.discovery.host.kind_signs import kind_signs_of
from tpumon.discovery.host.processes import (
    PROC,
    ancestors_of,
    command_of,
    open_files,
    process_of,
    program_and_arguments,
    program_of,
)
from tpumon.discovery.host.server_pages import page_port_of
from tpumon.model import Address, Framework, JobSigns, KindSign, Process

_LISTEN, _SYN_RECEIVED, _ESTABLISHED = "0A", "03", "01"
_OTHERS_IN_A_ROW = 1000  # Linux lists those that listen first: connections, of which there may be many, are not read
_MOST_CONNECTIONS = 200_000  # of a host; reading so many takes some tenths of a second
_TPU = re.compile(r"/dev/(accel\d+|vfio/\d+)")
_GPU = re.compile(r"/dev/(nvidia\d+|nvidiactl|nvidia-uvm|kfd)")
# What only a job that uses a GPU loads. PyPI's PyTorch loads libcupti, libcudart and libnccl without one.
_GPU_LIBRARY = re.compile(rb"/xla_cuda_plugin\w*\.so|/libcuda\.so")
_JAX, _TENSORFLOW, _TORCH_XLA = rb"/jaxlib/|/libjax\w*\.so", rb"/libtensorflow_framework\.so", rb"/_XLAC"
_XLA = re.compile(rb"/(jaxlib|tensorflow|torch_xla)/|/lib(tpu|tensorflow|jax)\w*\.so|/_XLAC|/xla_extension")
_NCCL = b"/libnccl.so"


class Owner(Struct, frozen=True, kw_only=True):
    """A process that listens, as far as its files can be read.

    Attributes:
        program: the name of its executable.
        is_tpumon: whether it is tpumon, this process included; `tpumon simulate` is not, as it plays a job.
        runs_xla: whether a library with a profiler server is loaded in it, or it holds a TPU.
        runs_nccl: whether NCCL, which listens on ports of its own, is loaded in it.
        signs: what else its files show.
        ancestors: its parent, the parent of that, and so on.
        process: what is shown of it.
        kind_signs: what it and those show of the kind of its job.
        page_port: where it has a page of metrics if it listens there, by its command; None: it is no server with one.
    """

    pid: int
    program: str
    is_tpumon: bool = False
    runs_xla: bool = False
    runs_nccl: bool = False
    signs: JobSigns = field(default_factory=JobSigns)
    ancestors: tuple[int, ...] = ()
    process: Process | None = None
    kind_signs: tuple[KindSign, ...] = ()
    page_port: int | None = None

    @property
    def command(self) -> str:
        """Program and script or module of the process, as far as known."""
        return self.process.command if self.process is not None and self.process.command else self.program

    def is_kin_of(self, other: Owner) -> bool:
        """True if both are one process, or one descends from the other: they are of one job."""
        return self.pid == other.pid or self.pid in other.ancestors or other.pid in self.ancestors


class Listener(Struct, frozen=True, kw_only=True):
    """A port that something listens to.

    Attributes:
        address: `host:port` to reach it from here.
        inodes: of its sockets; they change when something else listens there.
        uid: of the user who opened it; -1: several users did, each on another address.
    """

    port: int
    address: str
    inodes: frozenset[int]
    uid: int = -1


def read_listeners(proc: Path = PROC) -> list[Listener]:
    """Every TCP port with a listener in this network namespace, in order.

    Source: /proc/net/tcp, tcp6.

    Raises:
        OSError: neither can be read.
    """
    sockets: list[tuple[int, _Ip, int, int]] = []
    errors = []
    for name in ("tcp", "tcp6"):
        try:
            with (proc / "net" / name).open(encoding="ascii", errors="replace") as lines:
                sockets.extend(_listening(lines))
        except OSError as error:
            errors.append(error)
    if len(errors) == 2:
        raise errors[0]
    ports: dict[int, list[tuple[_Ip, int, int]]] = {}
    for port, ip, inode, uid in sockets:
        ports.setdefault(port, []).append((ip, inode, uid))
    return [
        Listener(
            port=port,
            address=str(Address(host, port)),
            inodes=frozenset(inode for _, inode, _ in here),
            uid=here[0][2] if len({uid for _, _, uid in here}) == 1 else -1,
        )
        for port, here in sorted(ports.items())
        if (host := _host_to_dial([ip for ip, _, _ in here])) is not None
    ]


def user_at(end: Address, other: Address, proc: Path = PROC) -> int | None:
    """User who owns this end of a connection within this host; None: no process has accepted it, or not known.

    A connection that nobody has accepted yet has no inode, and is listed as root's by some kernels.

    Source: /proc/net/tcp, tcp6.
    """
    ends = [(ipaddress.ip_address(one.host), one.port) for one in (end, other)]
    ports = tuple(f":{port:04X}" for _, port in ends)
    for name in ("tcp", "tcp6"):
        with suppress(OSError), (proc / "net" / name).open(encoding="ascii", errors="replace") as lines:
            for line in islice(lines, _MOST_CONNECTIONS):
                fields = line.split()
                if len(fields) < 10 or not (fields[1].endswith(ports[0]) and fields[2].endswith(ports[1])):
                    continue
                listed = [(_ip(field.partition(":")[0]), int(field[-4:], 16)) for field in fields[1:3]]
                if fields[3] == _ESTABLISHED and listed == ends and fields[9] != "0":
                    return int(fields[7])
    return None


def find_owners(inodes: Collection[int], proc: Path = PROC) -> dict[int, Owner]:
    """The processes that hold these sockets, by inode, as far as their files can be read.

    Source: /proc/PID/fd, exe, cmdline, maps. Takes milliseconds to a second, depending on the number of open files.
    """
    owners: dict[int, Owner] = {}
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for pid, files in open_files(proc):
        # The first process is the parent of those that inherited a socket.
        sockets = [wanted[file] for file in files or () if file in wanted and wanted[file] not in owners]
        if sockets:
            owner = _owner(pid, proc, files or ())
            owners |= dict.fromkeys(sockets, owner)
        if len(owners) == len(wanted):
            break
    return owners


def signs_at(address: str, proc: Path = PROC) -> JobSigns | None:
    """Signs of the job that listens at `host:port`; None if it is not on this host, or hidden."""
    place = Address.parse(address)
    if not place.is_this_host:
        return None
    try:
        inodes = {inode for one in read_listeners(proc) if one.port == place.port for inode in one.inodes}
    except OSError:
        return None
    owners = find_owners(inodes, proc).values()
    owner = min(owners, key=lambda owner: owner.pid, default=None)
    return None if owner is None else replace(owner.signs, pid=owner.pid)


def page_of(owner: Owner, listeners: Iterable[Listener], owners: Mapping[int, Owner]) -> str | None:
    """The URL of the page of metrics that a process of a job's tree has on loopback; None if there is none.

    Args:
        owner: a process of the job; what it descends from and what descends from it belongs to the job.
        listeners: what listens on this host.
        owners: the process that listens, by port.
    """
    for listener in listeners:
        one = owners.get(listener.port)
        if one is None or one.page_port != listener.port or not Address.parse(listener.address).is_this_host:
            continue
        if one.is_kin_of(owner):
            return f"http://{listener.address}/metrics"
    return None


def signs_of(pid: int, files: Iterable[str]) -> JobSigns:
    """Signs of a process that has these files open."""
    return _signs(_read(PROC / str(pid) / "maps"), files)


def owner_at(pid: int, files: Iterable[str], proc: Path = PROC) -> tuple[Owner, str]:
    """A process that has these files open, and the name of the program or script that it runs."""
    words, _ = program_and_arguments(_read(proc / str(pid) / "cmdline").split(b"\0"))
    script = b"" if words[-1] == b"-c" else words[-1]
    return _owner(pid, proc, files), script.decode(errors="replace")


_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def _listening(lines: Iterator[str]) -> Iterator[tuple[int, _Ip, int, int]]:
    """Port, address, inode and user of each socket that listens."""
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
            yield int(port, 16), _ip(host), int(fields[9]), int(fields[7])
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


def _owner(pid: int, proc: Path, files: Iterable[str]) -> Owner:
    folder = proc / str(pid)
    maps = _read(folder / "maps")
    words, arguments = program_and_arguments(_read(folder / "cmdline").split(b"\0"))
    is_tpumon = words[-1] == b"tpumon"
    plays_job = is_tpumon and b"simulate" in arguments  # the command, not the option `--simulate`
    signs, ancestors = _signs(maps, files), ancestors_of(pid, proc)
    return Owner(
        pid=pid,
        program=program_of(pid, proc) or "?",
        is_tpumon=pid == os.getpid() or (is_tpumon and not plays_job),
        runs_xla=signs.holds_tpu or _XLA.search(maps) is not None,
        runs_nccl=_NCCL in maps,
        signs=signs,
        ancestors=ancestors,
        process=process_of(pid, proc),
        kind_signs=kind_signs_of(command_of(one, proc) for one in (pid, *ancestors)),
        page_port=page_port_of(words, arguments),
    )


def _signs(maps: bytes, files: Iterable[str]) -> JobSigns:
    holds_tpu = holds_gpu = False
    for file in files:
        holds_tpu = holds_tpu or _TPU.fullmatch(file) is not None
        holds_gpu = holds_gpu or _GPU.fullmatch(file) is not None
    jax, tensorflow, torch_xla = (re.search(mark, maps) is not None for mark in (_JAX, _TENSORFLOW, _TORCH_XLA))
    # A PyTorch/XLA job may import JAX for its kernels, a JAX job TensorFlow for its input.
    frameworks: list[tuple[bool, Framework]] = [(torch_xla, "PyTorch/XLA"), (jax, "JAX"), (tensorflow, "TensorFlow")]
    return JobSigns(
        framework=next((name for loaded, name in frameworks if loaded), None),
        holds_tpu=holds_tpu,
        holds_gpu=holds_gpu,
        may_use_gpu=holds_gpu or _GPU_LIBRARY.search(maps) is not None,
        # What deadlocks is jaxlib's failed import of TensorFlow: with TensorFlow there it does not fail, and
        # PyTorch/XLA has no such import.
        host_events_safe=tensorflow or (torch_xla and not jax),
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
