"""Threads that this process may start yet."""

from __future__ import annotations

import os
from collections.abc import Iterator

NEEDED = 100
"""gRPC starts 10 to 30 with a server, and ends the process where it gets too few; the rest is left to the program."""

_OWN_GROUPS = "/proc/self/cgroup"
_GROUPS = "/sys/fs/cgroup"


def room() -> float:
    """How many the control groups of this process allow; infinity if none says.

    The limit of a user (`ulimit -u`) is not looked at: to know how much of it is used, all processes would be read.
    """
    free = float("inf")
    for folder in _folders():
        try:
            free = min(free, _number(f"{folder}/pids.max") - _number(f"{folder}/pids.current"))
        except (OSError, ValueError):  # no limit here
            continue
    return free


def _folders() -> Iterator[str]:
    """Those of the groups, and of the groups above."""
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
