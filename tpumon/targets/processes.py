"""Processes of this host and the files that they have open, as /proc shows them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tpumon.text import one_line

PROC = Path("/proc")
_MOST_ANCESTORS = 64


def open_files(proc: Path = PROC) -> Iterator[tuple[int, list[str] | None]]:
    """Every process, by number, with what its descriptors point to; None if they may not be read.

    Source: /proc/PID/fd. A process that has ended since is left out.
    """
    try:
        pids = sorted(int(entry.name) for entry in os.scandir(proc) if entry.name.isdecimal())
    except OSError:
        return
    for pid in pids:
        try:
            entries = list(os.scandir(proc / str(pid) / "fd"))
        except PermissionError:
            yield pid, None
        except OSError:
            continue
        else:
            yield pid, list(_links(entries))


def program_of(pid: int, proc: Path = PROC) -> str | None:
    """The name of a process's executable, safe to print; None if it may not be read."""
    try:
        name = (proc / str(pid) / "exe").readlink().name
    except OSError:
        return None
    return one_line(name.removesuffix(" (deleted)"), limit=40) or None


def start_ticks_of(pid: int, proc: Path = PROC) -> int | None:
    """When a process started, in clock ticks since this machine was; None if that may not be read.

    Source: /proc/PID/stat.
    """
    try:
        return int(_after_name(pid, proc)[19])
    except (OSError, ValueError, IndexError):
        return None


def is_running(pid: int, start_ticks: int, proc: Path = PROC) -> bool:
    """Whether a process that started at this moment has not ended; an ended one may wait for its parent to notice.

    Source: /proc/PID/stat.
    """
    try:
        fields = _after_name(pid, proc)
        return int(fields[19]) == start_ticks and fields[0] not in {b"Z", b"X"}
    except (OSError, ValueError, IndexError):
        return False


def ancestors_of(pid: int, proc: Path = PROC) -> tuple[int, ...]:
    """The parent of a process, the parent of that, and so on, as far as they may be read.

    Source: /proc/PID/stat.
    """
    ancestors: list[int] = []
    while len(ancestors) < _MOST_ANCESTORS:
        try:
            pid = int(_after_name(pid, proc)[1])
        except (OSError, ValueError, IndexError):
            break
        if pid <= 1 or pid in ancestors:
            break
        ancestors.append(pid)
    return tuple(ancestors)


def _after_name(pid: int, proc: Path) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; the name before it may contain anything."""
    return (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()


def _links(entries: list[os.DirEntry[str]]) -> Iterator[str]:
    for entry in entries:
        try:
            yield os.readlink(entry.path)  # noqa: PTH115 - a Path for each of many thousands takes its time
        except OSError:  # closed meanwhile, or a container does not let us look
            continue
