"""Limits of this process's memory, and giving memory back."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")


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
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "memory"}:
            group = root / controllers / path.lstrip("/")
            for place in (group, *(above for above in group.parents if above.is_relative_to(root / controllers))):
                limits += [limit for name in _LIMITS if (limit := _number(place / name))]
    return limits


def _number(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # "max"
        return 0


def give_back_memory() -> None:
    """Returns freed memory to the system: what receiving a large trace takes would stay with this process."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
