"""Limits of this process: memory, which is given back, and open files, some of which are kept in reserve."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from functools import cache
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
_MOST_KEPT_BACK = 48


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

    with suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def raise_descriptor_limit() -> None:
    """Allows this process as many open files as it may have.

    1,000 workers take 2,000 connections; the usual limit is 1,024, which a process may raise itself.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def may_connect(pending: int) -> bool:
    """Tells if another connection to a worker leaves enough descriptors for scrapes, files and processes.

    Args:
        pending: connections that are being made and may not have their descriptor yet.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return True
    kept_back = min(_MOST_KEPT_BACK, limit // 3)
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd")) + pending < limit - kept_back  # noqa: PTH208 - only their number is asked for
    return True
