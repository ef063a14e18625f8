"""A /proc as the kernel would write it, for processes and sockets that are not there."""

from __future__ import annotations

import ipaddress
import itertools
import os
import shutil
import sys
import time
from pathlib import Path

JAX = "/usr/lib/python3/site-packages/jaxlib/libjax_common.so"
TENSORFLOW = "/usr/lib/python3/site-packages/tensorflow/libtensorflow_framework.so.2"
NCCL = "/usr/lib/x86_64-linux-gnu/libnccl.so.2"

_HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


class FakeProc:
    """Sockets and processes in the files of a directory.

    Attributes:
        root: to be read instead of /proc.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "net").mkdir(parents=True)
        self._inodes = itertools.count(1001)
        self._sockets: list[tuple[str, int, int, str]] = []
        self._ticks = 100
        self._write()

    def process(
        self,
        pid: int,
        *libraries: str,
        program: str = "python3.11",
        cmdline: str = "train.py",
        parent: int = 1,
        environ: str = "",
    ) -> None:
        """A process with these libraries loaded; what it was before is replaced."""
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        (folder / "exe").unlink(missing_ok=True)
        (folder / "exe").symlink_to(f"/usr/bin/{program}")
        (folder / "stat").write_text(f"{pid} (name) S {parent} " + "0 " * 17 + f"{self._ticks} 0\n")
        (folder / "cmdline").write_bytes(cmdline.replace(" ", "\0").encode() + b"\0")
        (folder / "environ").write_bytes(environ.replace(" ", "\0").encode())
        (folder / "root").unlink(missing_ok=True)
        (folder / "root").symlink_to("/")
        lines = [f"7f00{number:04x}0000-7f00{number:04x}1000 r-xp 00000000 fe:00 12 {path}\n"
                 for number, path in enumerate(libraries)]  # fmt: skip
        (folder / "maps").write_text("".join(lines))

    def began(self, unix_s: float) -> None:
        """The moment at which all processes began, and those to come."""
        booted_unix_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        before, self._ticks = self._ticks, round((unix_s - booted_unix_s) * os.sysconf("SC_CLK_TCK"))
        for file in self.root.glob("*/stat"):
            file.write_text(file.read_text().replace(f" {before} 0\n", f" {self._ticks} 0\n"))

    def opens(self, pid: int, path: str) -> None:
        """A process opens a file, or has a socket."""
        folder = self.root / str(pid) / "fd"
        (folder / str(3 + len(list(folder.iterdir())))).symlink_to(path)

    def listen(self, port: int, *pids: int, ip: str = "127.0.0.1") -> int:
        """Processes listen; none given: one whose files may not be read. Returns the socket's inode."""
        inode = next(self._inodes)
        for pid in pids:
            self.opens(pid, f"socket:[{inode}]")
        self._sockets.append((ip, port, inode, "0A"))
        self._write()
        return inode

    def connected(self, port: int, count: int = 1) -> None:
        """Connections from a port to elsewhere."""
        self._sockets += [("127.0.0.1", port, next(self._inodes), "01") for _ in range(count)]
        self._write()

    def close(self, port: int) -> None:
        """Nobody listens there any more."""
        self._sockets = [row for row in self._sockets if row[1] != port]
        self._write()

    @property
    def count(self) -> int:
        """How many ports something listens to."""
        return len({port for _, port, _, state in self._sockets if state == "0A"})

    def forbid(self) -> None:
        """Nobody may read what listens."""
        shutil.rmtree(self.root / "net")

    def _write(self) -> None:
        for name, version in (("tcp", 4), ("tcp6", 6)):
            rows = [row for row in self._sockets if ipaddress.ip_address(row[0]).version == version]
            rows.sort(key=lambda row: row[3] != "0A")
            lines = [_line(number, *row) for number, row in enumerate(rows)]
            new = self.root / "net" / f"{name}.new"
            new.write_text(_HEADER + "".join(lines))
            new.replace(self.root / "net" / name)


def _line(number: int, ip: str, port: int, inode: int, state: str) -> str:
    packed = ipaddress.ip_address(ip).packed
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    address = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    nowhere = "0" * len(address)
    return (
        f"{number:4}: {address}:{port:04X} {nowhere}:0000 {state} 00000000:00000000 00:00000000 00000000"
        f"     0        0 {inode} 1 0000000094905c55 100 0 0 10 0\n"
    )
