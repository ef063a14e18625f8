"""Tells the tpumon of this host about a profiler server, in a file.

The file is /tmp/tpumon-run-UID/PORT and holds `PID START FRAMEWORK`: process, its start in clock ticks since the
machine was started, and the framework's name. tpumon/targets/announced.py reads it.
"""

from __future__ import annotations

import atexit
import os
import stat
from contextlib import suppress

_announced: tuple[str, int] | None = None  # the file, and the process that wrote it


def announce(port: int, framework: str) -> None:
    """Says that this process is attached, and where its profiler server listens; replaces what it said before.

    Raises:
        OSError: the file cannot be written.
    """
    global _announced
    folder = _folder()
    path = os.path.join(folder, str(port))
    new = os.path.join(folder, f".{port}-{os.getpid()}")
    with suppress(FileNotFoundError):
        os.unlink(new)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    os.fchmod(descriptor, 0o644)  # whatever the umask: a tpumon of another user may read it
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {_start_ticks()} {framework}\n")
    os.replace(new, path)
    before, _announced = _announced, (path, os.getpid())
    if before is None:
        atexit.register(_withdraw)
    elif before[0] != path:
        _remove(*before)


def _withdraw() -> None:
    """Removes the file; that of a process that was killed does no harm, as its reader checks it."""
    if _announced is not None:
        _remove(*_announced)


def _remove(path: str, pid: int) -> None:
    if pid == os.getpid():  # a forked child ends, too
        with suppress(OSError):
            os.unlink(path)


def _folder() -> str:
    """The directory of this user. Nobody else may write to it: another's file could hide the server."""
    home = os.environ.get("TPUMON_RUN_DIR") or "/tmp"  # noqa: S108 - one place for all users, whatever their TMPDIR
    folder = os.path.join(home, f"tpumon-run-{os.geteuid()}")
    with suppress(FileExistsError):
        os.mkdir(folder, 0o755)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(1, "it belongs to somebody else", folder)
    if stat.S_IMODE(found.st_mode) != 0o755:
        os.chmod(folder, 0o755)
    return folder


def _start_ticks() -> int:
    with open("/proc/self/stat", "rb") as file:
        # The name stands in parentheses and may contain anything.
        return int(file.read().rpartition(b")")[2].split()[19])
