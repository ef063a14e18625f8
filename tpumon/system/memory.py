"""How much memory this process may use, giving it back, and sharing it with another process."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import BinaryIO

_CGROUPS = Path("/sys/fs/cgroup")
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # of malloc.h
_MFD_CLOEXEC, _MFD_NOEXEC_SEAL = 1, 8  # of sys/mman.h
_LARGE_BLOCK_BYTES, _MOST_KEPT_BYTES = 8_000_000, 16_000_000
_GIVE_BACK_S = 10.0

_giving_back, _wanted = threading.Lock(), threading.Event()


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
    """From now on, blocks below 8 MB are kept when they are freed, for the next trace; larger ones go back.

    All threads that start later share one store of memory. glibc's own way is a store for each thread: each then keeps
    what the largest trace took, or takes a page fault for every page of the next one.

    Small blocks that stay keep what is freed below them, until `give_back_memory`.
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


def give_back_memory_soon() -> None:
    """Returns in 10 s what is free then, once for all that ask meanwhile: to return and take it again costs time."""
    _wanted.set()
    if not _giving_back.acquire(blocking=False):
        return
    _wanted.clear()
    timer = threading.Timer(_GIVE_BACK_S, _give_back)
    timer.daemon = True
    try:
        timer.start()
    except RuntimeError:  # there can be no more threads now; the next trace asks again
        _giving_back.release()


def _give_back() -> None:
    give_back_memory()
    _giving_back.release()
    if _wanted.is_set():  # what they freed may have been in use until now
        give_back_memory_soon()


def file_in_memory() -> BinaryIO:
    """Makes a file without a name in memory, for another process to read.

    Where the kernel or the C library cannot do so, it is a temporary file on disk.

    Raises:
        OSError: there is no descriptor left, or no directory for the temporary file.
    """
    import ctypes

    with contextlib.suppress(AttributeError):  # not os.memfd_create: Pythons that were built on old systems lack it
        create = ctypes.CDLL(None).memfd_create
        for flags in (_MFD_CLOEXEC | _MFD_NOEXEC_SEAL, _MFD_CLOEXEC):  # kernels before 6.3 know the second only
            if (file := create(b"tpumon", flags)) >= 0:
                return os.fdopen(file, "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
