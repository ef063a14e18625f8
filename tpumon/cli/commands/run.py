"""`tpumon run`: becomes the program, with what attaches it in its environment; and a monitor beside it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from tpumon.discovery.host.announced import attached_processes
from tpumon.discovery.host.listening import read_listeners
from tpumon.discovery.host.processes import ancestors_of, is_running, start_ticks_of
from tpumon.errors import TpumonError
from tpumon.system import own_python
from tpumon.system.console import flush

_log = logging.getLogger(__name__)

_HOOK = str(Path(__file__).parents[2] / "attach" / "pythonpath")
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as shells say it
_MESSAGES_S = 2.0
_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""What Python ignores for itself; a program would inherit that."""
_LOOK_S = 0.5
_END_S = 10.0
_KEPT = {"TPUMON_DEBUG", "PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}


def run(
    *, program: Sequence[str], port: int | None = None, monitor: bool = False, monitor_file: str | None = None
) -> int:
    """Becomes the program. Returns only if it cannot be started: 127 if it is not found, otherwise 126.

    Args:
        program: name or path, and arguments.
        port: the first port to try for the profiler server; None: the usual one.
        monitor: print the job's figures on stderr.
        monitor_file: write them into this file instead; None: into none.

    Raises:
        TpumonError: the file for figures cannot be opened.
    """
    environment = attached(_given(), port)
    name = program[0]
    path = name if "/" in name else shutil.which(name)
    if path is None or not os.path.lexists(path):
        _log.warning("cannot run %s: no such program%s", name, _hint_for_script(name))
        return _NOT_FOUND
    if monitor or monitor_file is not None:
        monitor_beside(monitor_file)
    flush(_MESSAGES_S)
    try:
        _become(path, program, environment)
    except OSError as error:
        _log.warning("cannot run %s: %s%s", name, error.strerror, _hint_for_script(name))
        return _NOT_EXECUTABLE


def _hint_for_script(name: str) -> str:
    """A command line that works, if a script was given without its interpreter."""
    interpreter = {".py": "python", ".sh": "bash"}.get(os.path.splitext(name)[1])  # noqa: PTH122 - as below
    is_script = interpreter and os.path.isfile(name)  # noqa: PTH113 - Path's own raises for odd names
    return f"; to run the script: tpumon run {interpreter} {name}" if is_script else ""


def _given() -> dict[str, str]:
    """The environment that this process was given, without what Python and `tpumon.cli` changed for us."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(os.environ)
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if entry)
    return {name: value for name, _, value in pairs}


def attached(environment: Mapping[str, str], port: int | None) -> dict[str, str]:
    """The environment in which every Python attaches itself; unchanged with TPUMON_ATTACH=0."""
    if environment.get("TPUMON_ATTACH") == "0":
        return dict(environment)
    before = environment.get("PYTHONPATH")
    changed = {"PYTHONPATH": f"{_HOOK}:{before}" if before else _HOOK}
    if port is not None:
        changed["TPUMON_ATTACH_PORT"] = str(port)
    return {**environment, **changed}


def _become(path: str, program: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replaces this process; a script without an interpreter's name is the shell's, as for any other launcher."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in _BY_PYTHON}
    try:
        try:
            os.execve(path, [*program], environment)  # noqa: S606
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
        os.execve("/bin/sh", ["sh", path, *program[1:]], environment)  # noqa: S606
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class MonitoredProcess(NamedTuple):
    """The process to monitor."""

    pid: int
    start_ticks: int


def monitor_beside(file: str | None) -> None:
    """Starts a process that monitors this one, whatever program it becomes; not a child that the program would see.

    Unless the program is the first process of its namespace: that is the parent of every process that has lost its own.

    Where the system does not let it, a line says so.

    Args:
        file: where the figures go; None: stderr.

    Raises:
        TpumonError: the file cannot be opened.
    """
    try:
        output = _opened(file)
    except OSError as error:
        given = "--monitor" if file is None else f"--monitor-file {file}"
        raise TpumonError(f"{given}: {error.strerror}; give a file that can be written") from None
    try:
        _start(output)
    except OSError as error:
        _say_why(error)
    finally:
        os.close(output)


def _start(output: int) -> None:
    started = start_ticks_of(os.getpid())
    if started is None:
        raise OSError("its process is not in /proc")
    job = MonitoredProcess(os.getpid(), started)
    child = os.fork()
    if not child:
        _detach(job, output)
    with contextlib.suppress(ChildProcessError):  # where SIGCHLD is ignored
        os.waitpid(child, 0)


def _opened(file: str | None) -> int:
    """The file for figures, or stderr; not at a number of a standard stream, which may be closed."""
    if file is None:
        return fcntl.fcntl(sys.stderr.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)
    # A pipe without a reader, or a terminal, is not to hold up or own the program.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
    opened = os.open(file, flags, 0o644)
    try:
        os.set_blocking(opened, True)
        return fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(opened)


def _detach(job: MonitoredProcess, output: int) -> None:
    """Monitors from a process whose parent has ended; does not return."""
    try:
        os.setsid()  # Ctrl-C is the program's
        if not os.fork():
            _monitor(job, output)
    except OSError as error:
        _say_why(error)
        flush(_MESSAGES_S)
    finally:
        os._exit(0)


def _monitor(job: MonitoredProcess, output: int) -> None:
    """Waits until the job is announced, then monitors it until it ends."""
    _give_back(output)
    addresses: list[str] = []
    while not addresses:
        time.sleep(_LOOK_S)
        if not is_running(*job):
            return
        addresses = _addresses(job)
    options = ["tpumon", "--output", "text", "--service-addr", ",".join(addresses)]
    monitor = own_python.start(options, _environment(), stdin=subprocess.DEVNULL, stdout=output)
    try:
        while is_running(*job):
            time.sleep(_LOOK_S)
    finally:
        monitor.terminate()
        try:
            monitor.wait(_END_S)
        except subprocess.TimeoutExpired:
            monitor.kill()


def _give_back(output: int) -> None:
    """Closes all files but the one for figures and stderr: their other ends would wait for this process, too."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, file in ((2, sys.stderr.fileno()), (0, nothing), (1, nothing)):
        os.dup2(file, number)
    for path in list(Path("/proc/self/fd").iterdir()):
        number = int(path.name)
        if number > 2 and number != output:
            with contextlib.suppress(OSError):
                os.close(number)


def _environment() -> dict[str, str]:
    """Environment of this process without options, which are for other tpumons, and what is for the job's Python.

    Directories in which the tpumons of a host meet are the same for all.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TPUMON_", "PYTHON")) or name in _KEPT or name.endswith("_DIR")
    }
    return {**kept, "TPUMON_ATTACH": "0", "TPUMON_CONFIG": ""}


def _addresses(job: MonitoredProcess) -> list[str]:
    """Addresses of the job's process and of its descendants."""
    listeners = {listener.port: listener for listener in read_listeners()}
    attached = attached_processes(listeners.values())
    return [listeners[port].address for port, pid in attached.items() if job.pid in (pid, *ancestors_of(pid))]


def _say_why(error: OSError) -> None:
    _log.warning("cannot monitor the program: %s", error.strerror or error)
