"""How much memory this process may use, and giving it back."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
_M_MMAP_THRESHOLD = -3  # of malloc.h
_LARGE_BLOCK_BYTES = 256 << 10


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


def return_large_blocks() -> None:
    """From now on, blocks of 256 KiB and more go back when they are freed.

    Otherwise glibc soon keeps blocks of some MB for later, and traces of 256 workers leave a megabyte each.
    """
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


def give_back_memory() -> None:
    """Returns freed memory: that of one large trace would stay with this process and the next would come on top."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
