"""Announcements of attached jobs of this host, checked against their processes.

tpumon/attach/pythonpath/tpumon_attach/announcement.py writes it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from tpumon.discovery.host.listening import Listener
from tpumon.discovery.host.processes import PROC, is_running, variables
from tpumon.discovery.identity import VARIABLES
from tpumon.system.host_files import read_anyones

_HOME = Path("/tmp")  # noqa: S108 - one place for all users, whatever their TMPDIR; what others put there is checked
_MOST_LISTED = 100_000  # containers that were killed may have left some
_MOST_OF_ONE_USER = 1000
_MOST_BYTES = 4096


def attached_processes(listeners: Iterable[Listener], proc: Path = PROC) -> dict[int, int]:
    """The attached processes, by the port of their profiler servers.

    A file counts only if it is a regular one of a user who listens on the port that it names, and if its name is that
    of a process of this user, boot and namespace that has run since the moment it says. At most 1,000 files of a user
    are read.
    """
    by_user: dict[int, set[int]] = {}
    for listener in listeners:
        by_user.setdefault(listener.uid, set()).add(listener.port)
    attached: dict[int, int] = {}
    before = _before_number(proc)
    for uid, ports in by_user.items():
        folder = _folder_of(uid)
        for pid in _announcing(folder, uid, before):
            port = _port(folder / f"{before}{pid}", pid, uid, proc)
            if port in ports:
                attached[port] = pid
    return attached


def announced_environment(pid: int, proc: Path = PROC) -> dict[str, str]:
    """The environment that an attached process announces, as far as it names its job."""
    try:
        uid = (proc / str(pid)).stat().st_uid
    except OSError:
        return {}
    path = _folder_of(uid) / f"{_before_number(proc)}{pid}"
    _, *lines = (_text_of_process(path, pid, uid, proc) or "").split("\n")
    return variables(lines, VARIABLES)


def _folder_of(uid: int) -> Path:
    return Path(os.environ.get("TPUMON_ATTACH_DIR") or _HOME) / f"tpumon-run-{uid}"


def _before_number(proc: Path) -> str:
    """The beginning of file names, before the process's number: the boot and the namespace in which it counts."""
    boot, namespace = "0", "0"
    with suppress(OSError, ValueError):
        boot = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    with suppress(OSError):
        namespace = str((proc / "self/ns/pid").readlink()).strip("pid:[]")
    return f"{boot}-{namespace}-"


def _announcing(folder: Path, uid: int, before: str) -> list[int]:
    """The processes that the files in a user's directory are named after."""
    try:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid:
            return []
        with os.scandir(folder) as entries:
            names = (entry.name for entry in islice(entries, _MOST_LISTED) if entry.name.startswith(before))
            numbers = (name.removeprefix(before) for name in names)
            return [int(number) for number in islice(numbers, _MOST_OF_ONE_USER) if number.isdecimal()]
    except (OSError, ValueError):
        return []


def _port(path: Path, pid: int, uid: int, proc: Path) -> int | None:
    try:
        return int((_text_of_process(path, pid, uid, proc) or "").split(maxsplit=2)[1])
    except (ValueError, IndexError):
        return None


def _text_of_process(path: Path, pid: int, uid: int, proc: Path) -> str | None:
    """The text of a file if it is of the process that it names; any user may put anything there."""
    text, owner = read_anyones(path, _MOST_BYTES) or ("", None)
    if owner != uid:
        return None
    try:
        start_ticks = int(text.split(maxsplit=1)[0])
        lives = (proc / str(pid)).stat().st_uid == uid and is_running(pid, start_ticks, proc)
    except (OSError, ValueError, IndexError):
        return None
    return text if lives else None
