"""What the system says of processes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """The processes that a process started and that still run; none if it has ended."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended meanwhile
            found += map(int, file.read_text().split())
    return found


def is_running(pid: int) -> bool:
    """Tells that there is such a process, and that it has not ended."""
    try:
        return _stat(pid)[0] != "Z"
    except OSError:
        return False


def cpu_s(pid: int) -> float:
    """Processor time of a process, without the processes that it started."""
    return sum(map(int, _stat(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


def ended_children_cpu_s(pid: int) -> float:
    """Processor time of those of its children that have ended."""
    return sum(map(int, _stat(pid)[13:15])) / os.sysconf("SC_CLK_TCK")


def status(pid: int, name: str) -> int:
    """A number of /proc/PID/status: kB, or a count; 0 if the process is gone."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)
    return 0


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
