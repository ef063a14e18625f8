"""Tells the tpumon of this host about the profiler server of this process, in a file.

The file is /tmp/tpumon-run-UID/BOOT-NAMESPACE-PID and holds `START PORT FRAMEWORK`: the start of the process in clock
ticks since the machine was started, the port, and the framework's name; then, a line each, NAME=VALUE of the variables
of its environment that name its job. tpumon/discovery/host/announced.py reads it.
Containers, or machines, may share the directory: BOOT and NAMESPACE say where PID is the number of this process.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

_MOST_OTHERS = 1000
_TURN_S = 2.0
_LOOK_S = 0.01

_LONGEST_VALUE = 200
_NAMING = (
    *("TPUMON_JOB", "TPUMON_SLICE", "HOSTNAME", "JOB_COMPLETION_INDEX", "JOBSET_NAME", "REPLICATED_JOB_NAME"),
    *("LWS_LEADER_ADDRESS", "RAY_CLUSTER_NAME", "TPU_NAME", "TPU_WORKER_HOSTNAMES", "MEGASCALE_SLICE_ID"),
    *("TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS", "MEGASCALE_NUM_SLICES", "TPUMON_LISTED_WORKERS"),
)  # as in tpumon/discovery/identity.py

_announced: tuple[str, int] | None = None  # the file, and the process that wrote it
_turn: int | None = None  # the descriptor that holds the lock


def announce(port: int, framework: str) -> None:
    """Says that this process is attached, and where its profiler server listens; replaces what it said before.

    Raises:
        OSError: the file cannot be written.
    """
    global _announced
    folder = _folder()
    before = _before_number()
    path = os.path.join(folder, f"{before}{os.getpid()}")
    new = os.path.join(folder, f".{before}{os.getpid()}")
    with suppress(FileNotFoundError):
        os.unlink(new)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o644)  # whatever the umask: a tpumon of another user may read it
            file.write(f"{_start_ticks(os.getpid())} {port} {framework}\n{_job_variables()}")
    except OSError as error:  # a full disk
        os.unlink(new)
        raise OSError(error.errno, error.strerror, new) from error
    os.replace(new, path)
    if _announced is None:
        atexit.register(withdraw)
        _remove_old(folder, before)
    _announced = path, os.getpid()


def _job_variables() -> str:
    """The variables that name the job of this process, a line each."""
    known = dict(os.environ)
    listed = known.get("TPU_PROCESS_ADDRESSES") or known.get("TPU_WORKER_HOSTNAMES")
    if listed:
        known["TPUMON_LISTED_WORKERS"] = str(listed.count(",") + 1)
    given = ((name, "".join(filter(str.isprintable, known.get(name, "")))[:_LONGEST_VALUE]) for name in _NAMING)
    return "".join(f"{name}={value}\n" for name, value in given if value)


def withdraw() -> None:
    """Removes the file of this process."""
    if _announced is not None and _announced[1] == os.getpid():  # a forked child ends, too
        with suppress(OSError):
            os.unlink(_announced[0])


@contextmanager
def turn() -> Iterator[None]:
    """Waits until no other process of this user chooses a port, but not for long: they would meet at the first one."""
    global _turn
    try:
        _turn = descriptor = os.open(_folder(), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        end_s = time.monotonic() + _TURN_S
        while time.monotonic() < end_s:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(_LOOK_S)
            else:
                break
        yield
    finally:
        _turn = None  # first: a child that is forked between would close what else gets the number
        os.close(descriptor)


def leave_turn() -> None:
    """In a forked child: lets go of the parent's turn. The child would keep it for as long as it lives."""
    global _turn
    descriptor, _turn = _turn, None
    if descriptor is not None:
        os.close(descriptor)


def _folder() -> str:
    """The directory of this user, to which no other user may write."""
    home = os.environ.get("TPUMON_ATTACH_DIR") or "/tmp"  # noqa: S108 - one place for all users, whatever their TMPDIR
    folder = os.path.join(home, f"tpumon-run-{os.geteuid()}")
    with suppress(FileExistsError):
        os.mkdir(folder, 0o755)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(1, "it belongs to somebody else", folder)
    if stat.S_IMODE(status.st_mode) != 0o755:
        os.chmod(folder, 0o755)  # noqa: S103 - others may read
    return folder


def _before_number() -> str:
    """The part before the process's number in names of files: the boot and the namespace in which it counts.

    Raises:
        OSError: /proc does not show this namespace, so nothing about other processes can be found out.
    """
    if os.readlink("/proc/self") != str(os.getpid()):
        raise OSError(errno.ENOTSUP, "it shows another namespace of processes", "/proc")
    boot, namespace = "0", "0"  # a system without the one or the other
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", "rb") as file:
        boot = file.read().strip().decode()
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return f"{boot}-{namespace}-"


def _remove_old(folder: str, before: str) -> None:
    """Removes the files of processes that were killed."""
    names = (name for name in os.listdir(folder) if name.startswith(before))
    for name in islice(names, _MOST_OTHERS):
        path = os.path.join(folder, name)
        with suppress(OSError, ValueError, IndexError):
            with open(path, "rb") as file:
                said = int(file.read(200).split()[0])
            try:
                lives = _start_ticks(int(name[len(before) :])) == said
            except FileNotFoundError:
                lives = False
            if not lives:
                os.unlink(path)


def _start_ticks(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name stands in parentheses and may contain anything.
        return int(file.read().rpartition(b")")[2].split()[19])
