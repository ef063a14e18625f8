"""Processes of this host and the files that they have open, as /proc shows them."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from tpumon.model import Process, ProcessState
from tpumon.system.host_files import since_boot_s
from tpumon.untrusted_text import one_line

PROC = Path("/proc")
_MOST_ANCESTORS = 64
_MOST_ARGUMENTS_BYTES = 64 * 1024
LISTS = ("TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES")
"""Variables that list the workers of a slice; tpumon/attach/pythonpath/tpumon_attach/announcement.py has the same."""

STOPPED = "is stopped by a signal (SIGSTOP)"
"""Words for a process that does nothing until it is let go on."""

_MOST_ENVIRONMENT_BYTES = 512 * 1024
_LONGEST_COMMAND = 80
_LONGEST_VALUE = 200
_EXITING = 0x4  # PF_EXITING
_ENDED = frozenset({b"Z", b"X"})
_STOPPED: Mapping[bytes, ProcessState] = {b"T": "stopped", b"t": "debugged"}
_SWITCHES = re.compile(rb"^(?:non)?voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)
_INTERPRETER = re.compile(rb"(python|pypy)[\d.]*")


def open_files(proc: Path = PROC) -> Iterator[tuple[int, list[str] | None]]:
    """Every process, by number, with what its descriptors point to; None if they may not be read.

    Source: /proc/PID/fd. A process that has ended since is left out.
    """
    try:
        pids = sorted(int(entry.name) for entry in os.scandir(proc) if entry.name.isdecimal())
    except OSError:
        return
    for pid in pids:
        try:
            entries = list(os.scandir(proc / str(pid) / "fd"))
        except PermissionError:
            yield pid, None
        except OSError:
            continue
        else:
            yield pid, list(_links(entries))


def program_of(pid: int, proc: Path = PROC) -> str | None:
    """The name of a process's executable, safe to print; None if it may not be read."""
    try:
        name = (proc / str(pid) / "exe").readlink().name
    except OSError:
        return None
    return one_line(name.removesuffix(" (deleted)"), limit=40) or None


def start_ticks_of(pid: int, proc: Path = PROC) -> int | None:
    """The start of a process, in clock ticks since this machine was started; None if it may not be read.

    Source: /proc/PID/stat.
    """
    try:
        return int(_after_name(pid, proc)[19])
    except (OSError, ValueError, IndexError):
        return None


def state_of(pid: int, proc: Path = PROC) -> ProcessState:
    """The state of a process; one that gives back its memory, which may take seconds, has ended.

    Its first thread may have ended while others go on.

    Source: /proc/PID/stat, task/TID/stat.
    """
    try:
        state = _state_of_thread(pid, proc)
    except (FileNotFoundError, ProcessLookupError):
        return "ended"
    except (OSError, ValueError, IndexError):
        return "runs"
    return state if state != "ended" else next(_states_of_threads(pid, proc), "ended")


def _state_of_thread(thread: int, proc: Path) -> ProcessState:
    """The state of a thread, or of a process by its first thread."""
    letter, *fields = _after_name(thread, proc)
    is_over = letter in _ENDED or int(fields[5]) & _EXITING
    return "ended" if is_over else _STOPPED.get(letter, "runs")


def _states_of_threads(pid: int, proc: Path) -> Iterator[ProcessState]:
    """The states of those threads of a process that have not ended."""
    task = proc / str(pid) / "task"
    try:
        threads = [int(entry.name) for entry in os.scandir(task)]
    except (OSError, ValueError):
        return
    for thread in threads:
        with suppress(OSError, ValueError, IndexError):
            if (state := _state_of_thread(thread, task)) != "ended":
                yield state


def cpu_s_of(pid: int, proc: Path = PROC) -> float | None:
    """Seconds that a process, with all its threads, has spent on the processors; None: not known.

    Source: /proc/PID/stat.
    """
    try:
        fields = _after_name(pid, proc)
        return s_of_ticks(int(fields[11]) + int(fields[12]))
    except (OSError, ValueError, IndexError):
        return None


def context_switches_of(pid: int, proc: Path = PROC) -> int | None:
    """Number of times that the first thread of a process has left a processor: what is stopped all the time does not.

    None: it may not be read, or the kernel does not tell.

    Source: /proc/PID/status.
    """
    try:
        counts = _SWITCHES.findall((proc / str(pid) / "status").read_bytes())
    except OSError:
        return None
    return sum(map(int, counts)) if counts else None


def is_stopped(pid: int, proc: Path = PROC) -> bool:
    """True if a signal has stopped a process, or a debugger."""
    return state_of(pid, proc) in {"stopped", "debugged"}


def threads_of(pid: int, proc: Path = PROC) -> int:
    """Number of threads of a process; 0: it may not be read. Source: /proc/PID/stat."""
    try:
        return int(_after_name(pid, proc)[17])
    except (OSError, ValueError, IndexError):
        return 0


def going_on(pid: int) -> str:
    """The words how a stopped process goes on."""
    return f"`kill -CONT {pid}` lets it go on"


def process_of(pid: int, proc: Path = PROC) -> Process:
    """The process with a number: its user, command and start, as far as they may be read.

    Of its arguments only the script or module that an interpreter runs is looked at.

    Source: /proc/PID, stat, cmdline.
    """
    ticks = start_ticks_of(pid, proc)
    return Process(
        pid=pid,
        user=_user_of(pid, proc),
        command=command_of(pid, proc),
        started_unix_s=None if ticks is None else _started_unix_s(pid, ticks),
    )


def program_and_arguments(line: Sequence[bytes]) -> tuple[tuple[bytes, ...], Sequence[bytes]]:
    """The program that a command line runs, and its arguments; behind an interpreter also its script or module."""
    program, at = _file_name(line[0]), 1
    if not _INTERPRETER.fullmatch(program):
        return (program,), line[1:]
    while at < len(line) and line[at].startswith(b"-") and line[at] not in {b"-m", b"-c"}:
        at += 2 if line[at] in {b"-W", b"-X"} else 1
    if line[at : at + 1] == [b"-c"]:
        return (program, b"-c"), ()
    if line[at : at + 1] == [b"-m"]:
        return (program, b"-m", *line[at + 1 : at + 2]), line[at + 2 :]
    return (program, *map(_file_name, line[at : at + 1])), line[at + 1 :]


def environment_of(
    pid: int, names: Collection[str], proc: Path = PROC, counted: str = "", longest: int = _LONGEST_VALUE
) -> dict[str, str]:
    """Variables with which a process was started; none if its environment may not be read.

    Source: /proc/PID/environ.

    Args:
        pid: the process.
        names: of the variables.
        proc: where /proc is.
        counted: name of one that stands for how many workers the first of `LISTS` that is set lists.
        longest: characters of a value; more are cut.
    """
    try:
        with (proc / str(pid) / "environ").open("rb") as file:
            pairs = file.read(_MOST_ENVIRONMENT_BYTES + 1).split(b"\0")
            if file.tell() > _MOST_ENVIRONMENT_BYTES:
                del pairs[-1]  # it may be cut
    except OSError:
        return {}
    texts = [pair.decode(errors="replace") for pair in pairs]
    lists = {name: value for name, _, value in (text.partition("=") for text in texts) if name in LISTS and value}
    count = next((f"{counted}={lists[name].count(',') + 1}" for name in LISTS if name in lists), "")
    return variables((*texts, count), names, longest)


def variables(pairs: Iterable[str], names: Collection[str], longest: int = _LONGEST_VALUE) -> dict[str, str]:
    """The variables among some NAME=VALUE that have these names, safe to show; long ones are cut."""
    split = (pair.partition("=") for pair in pairs)
    return {name: one_line(value, limit=longest) for name, _, value in split if name in names and value}


def is_running(pid: int, start_ticks: int, proc: Path = PROC) -> bool:
    """Tells if a process that started at this moment still runs; one that has ended may wait for its parent to notice.

    Source: /proc/PID/stat.
    """
    try:
        fields = _after_name(pid, proc)
        return int(fields[19]) == start_ticks and fields[0] not in _ENDED
    except (OSError, ValueError, IndexError):
        return False


def ancestors_of(pid: int, proc: Path = PROC) -> tuple[int, ...]:
    """The parent of a process, the parent of that, and so on, as far as they may be read.

    Source: /proc/PID/stat.
    """
    ancestors: list[int] = []
    while len(ancestors) < _MOST_ANCESTORS:
        try:
            pid = int(_after_name(pid, proc)[1])
        except (OSError, ValueError, IndexError):
            break
        if pid <= 1 or pid in ancestors:
            break
        ancestors.append(pid)
    return tuple(ancestors)


def command_of(pid: int, proc: Path = PROC) -> str | None:
    """The program of a process and its script or module, safe to show; None if they may not be read.

    Source: /proc/PID/cmdline.
    """
    try:
        with (proc / str(pid) / "cmdline").open("rb") as file:
            words, _ = program_and_arguments(file.read(_MOST_ARGUMENTS_BYTES).split(b"\0"))
    except OSError:
        return None
    return one_line(b" ".join(words).decode(errors="replace"), limit=_LONGEST_COMMAND) or program_of(pid, proc)


def _file_name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def _user_of(pid: int, proc: Path) -> str | None:
    try:
        uid = (proc / str(pid)).stat().st_uid
    except OSError:
        return None
    return user_named(uid)


@lru_cache(maxsize=1024)
def user_named(uid: int) -> str:
    """The name of a user, or the number where there is none; safe to print."""
    try:
        return one_line(pwd.getpwuid(uid).pw_name, limit=40) or str(uid)
    except (KeyError, OSError):
        return str(uid)


def tpumon_named(pid: int | None, uid: int) -> str:
    """Words for a tpumon of this host: its process, where it says that, and its user."""
    return f"tpumon{f' {pid}' if pid else ''} of {user_named(uid)}"


def s_of_ticks(ticks: int) -> float:
    """The seconds of a number of clock ticks, in which starts of processes are told."""
    return ticks / os.sysconf("SC_CLK_TCK")


@lru_cache(maxsize=1024)
def _started_unix_s(pid: int, ticks: int) -> float:  # noqa: ARG001 - one moment per process
    """The start of a process by the wall clock, as it was set at the first look: it stays the same when that is set.

    Both times are since the boot of the reader's time namespace; btime of /proc/stat is cut to seconds, and a
    container's own.
    """
    return time.time() - since_boot_s() + s_of_ticks(ticks)


def _after_name(pid: int, proc: Path) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; the name before it may contain anything."""
    return (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()


def _links(entries: list[os.DirEntry[str]]) -> Iterator[str]:
    for entry in entries:
        try:
            yield os.readlink(entry.path)  # noqa: PTH115 - a Path for each of many thousands takes its time
        except OSError:  # closed meanwhile, or a container does not let us look
            continue
