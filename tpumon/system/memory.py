"""How much memory this process may use, giving it back, and sharing it with another process."""

from __future__ import annotations

import contextlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import BinaryIO

_CGROUPS = Path("/sys/fs/cgroup")
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of malloc.h
_MFD_CLOEXEC = 1  # of sys/mman.h
_LARGE_BLOCK_BYTES, _MOST_KEPT_BYTES = 8 << 20, 16 << 20


@cache
def memory_limit_bytes() -> int:
    """The memory of this machine, or less if a control group (a container, a systemd unit) allows less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(Path("/proc/self/cgroup"), _CGROUPS)])


def _limits(memberships: Path, root: Path) -> list[int]:
    """The limits of the groups that a process is in, those of the groups above included."""
    try:
        lines = memberships.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "memory"}:
            group = root / controllers / path.lstrip("/")
            for place in (group, *(above for above in group.parents if above.is_relative_to(root / controllers))):
                found += [limit for name in _LIMITS if (limit := _number(place / name))]
    return found


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # "max"
        return 0


def reuse_memory() -> None:
    """From now on, all threads take their memory from the same store, which keeps what was freed for the next trace.

    As glibc has it, each thread has a store of its own. Blocks of 2 MB, as traces are, would fill each of them, or cost
    a fault for every page each time. Blocks of 8 MB and more still go back when they are freed.
    """
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # only glibc has it
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT_BYTES)
        mallopt(_M_ARENA_MAX, 1)


def give_back_memory() -> None:
    """Returns freed memory: that of one large trace would stay with this process and the next would come on top."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def file_in_memory() -> BinaryIO:
    """A file without a name, for another process to read; in a directory only if this system has no other."""
    import ctypes

    with contextlib.suppress(AttributeError):  # a Python made for old systems lacks it, the system's library does not
        file = ctypes.CDLL(None).memfd_create(b"tpumon", _MFD_CLOEXEC)
        if file >= 0:
            return os.fdopen(file, "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
