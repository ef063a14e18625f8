"""The limits within which gRPC must fit: where it gets too little of a resource, it ends the process."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

_NEEDED = 100
"""Threads, and files: gRPC takes 10 to 30 of each with a server; the rest is left to the program."""

_NEEDED_MB = 4000
"""Each thread maps its stack, of 8 MB, and up to 128 MB for what it allocates."""

_PLENTY = 20_000  # threads of a user: to count those that run takes a while

_OWN_GROUPS = "/proc/self/cgroup"
_GROUPS = "/sys/fs/cgroup"


def lacking() -> str | None:
    """Words for the resource that this process lacks; None: there is enough of each."""
    for left, needed, what in (
        (_files(), _NEEDED, "more files may be opened here (ulimit -n)"),
        (_megabytes(), _NEEDED_MB, "MB more memory may be mapped here (ulimit -v)"),
        (_threads(), _NEEDED, "more threads may start here (pids.max)"),
        (_threads_of_user(), _NEEDED, "more threads may start here (ulimit -u)"),
    ):
        if left < needed:
            return f"only {left} {what}"
    return None


def _files() -> float:
    """The number of files that this process may open yet; infinity if that cannot be found out."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return float("inf")
    try:
        return max(0, most - len(os.listdir("/proc/self/fd")))
    except FileNotFoundError:  # no /proc
        return float("inf")
    except OSError:  # not even this one
        return 0


def _megabytes() -> float:
    """Memory that this process may map yet; infinity if that cannot be found out."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return float("inf")
    try:
        with open("/proc/self/statm", "rb") as file:
            mapped = int(file.read(30).split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return float("inf")
    return max(0, (most - mapped) // 1_000_000)


def _threads() -> float:
    """The number of threads that the control groups of this process allow yet; infinity if none says."""
    free = float("inf")
    for folder in _folders():
        try:
            free = min(free, _number(f"{folder}/pids.max") - _number(f"{folder}/pids.current"))
        except (OSError, ValueError):  # no limit here
            continue
    return free


def _threads_of_user() -> float:
    """The number of threads that this user may start yet; infinity if nothing says. Other containers cannot be seen."""
    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if most == resource.RLIM_INFINITY or most > _PLENTY:
        return float("inf")
    uid, running = os.getuid(), 0
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            tasks = os.stat(f"/proc/{name}/task") if name.isdigit() else None
        except OSError:  # it has ended
            continue
        if tasks is not None and tasks.st_uid == uid:
            running += tasks.st_nlink - 2  # a directory for each
    return max(0, most - running)


def _folders() -> Iterator[str]:
    """Folders of the control groups of this process, and of their parents."""
    try:
        with open(_OWN_GROUPS, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = os.fsdecode(line).split(":", 2)
        while controllers in ("", "pids"):
            yield os.path.join(_GROUPS, controllers, path.lstrip("/"))
            if path == "/":
                break
            path = os.path.dirname(path)


def _number(path: str) -> int:
    with open(path, "rb") as file:
        return int(file.read(30))
