"""`tpumon run`: becomes the program, with what attaches it in its environment."""

from __future__ import annotations

import errno
import os
import signal
from types import SimpleNamespace

TYPE_CHECKING = False  # to import it takes longer than all this to run, as do dataclasses
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

_HOOK = __file__.removesuffix("commands/run.py") + "attach/pythonpath"
_YES = ("1", "true", "t", "yes", "y", "on")
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as shells say it
_MESSAGES_S = 2.0
_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""What Python ignores for itself; a program would inherit that."""


class RunSettings(SimpleNamespace):
    """What to run.

    Args:
        program: name or path, and arguments.
        port: the first port to try for the profiler server; None: the usual one.
        monitor: print the job's figures on stderr.
        monitor_file: write them into this file instead; None: into none.
    """

    program: Sequence[str]
    port: int | None
    monitor: bool
    monitor_file: str | None

    def __init__(
        self,
        *,
        program: Sequence[str],
        port: int | None = None,
        monitor: bool = False,
        monitor_file: str | None = None,
    ) -> None:
        super().__init__(program=program, port=port, monitor=monitor, monitor_file=monitor_file)


def parse(words: Sequence[str]) -> RunSettings | None:
    """Reads the command line behind `run`; None where there is a page or a message of the parser to show.

    Not the parser of all other commands: to import that takes longer than a program may be held up.
    """
    rest = list(words)
    port = os.environ.get("TPUMON_PORT") or None
    if port is not None and port.startswith("tcp://"):  # Kubernetes sets it if a service is called tpumon
        port = None
    given = RunSettings(
        program=(),
        monitor=os.environ.get("TPUMON_MONITOR", "").lower() in _YES,
        monitor_file=os.environ.get("TPUMON_MONITOR_FILE") or None,
    )
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        if word == "--monitor":
            given.monitor = True
            continue
        name, equals, value = word.partition("=")
        if name not in {"--port", "--monitor-file"} or not (equals or rest):
            return None
        text = value if equals else rest.pop(0)
        if name == "--monitor-file":
            given.monitor_file = text
        else:
            port = text
    given.program = rest
    if port is not None:
        if not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535):
            return None
        given.port = int(port)
    return given if rest else None


def become_at_once(words: Sequence[str]) -> None:
    """Becomes the program of a command line behind `run`; returns if there is anything else to do or to say."""
    settings = parse(words)
    path = None if settings is None else _path(settings.program[0])
    if settings is None or path is None or settings.monitor or settings.monitor_file is not None:
        return
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C before the program runs prints no traceback
    try:
        _become(path, settings.program, attached(_given(), settings.port))
    except OSError:
        return


def run(settings: RunSettings) -> int:
    """Becomes the program. Returns only if it cannot be started: 127 if it is not found, otherwise 126.

    Raises:
        UsageError: no program is named.
        OSError: the file for figures cannot be opened.
    """
    from tpumon.errors import UsageError
    from tpumon.system.console import flush, say

    if not settings.program:
        raise UsageError("name the program to run, such as: tpumon run python train.py")
    environment = attached(_given(), settings.port)
    name = settings.program[0]
    path = _path(name)
    if path is None:
        say(f"cannot run {name}: no such program")
        return _NOT_FOUND
    if settings.monitor or settings.monitor_file is not None:
        from tpumon.commands.run_monitor import monitor_beside

        monitor_beside(settings.monitor_file)
    flush(_MESSAGES_S)
    try:
        _become(path, settings.program, environment)
    except OSError as error:
        say(f"cannot run {name}: {error.strerror}")
        return _NOT_EXECUTABLE


def _path(name: str) -> str | None:
    """The program of this name; None: there is none."""
    path = name if "/" in name else _search(name)
    return path if path is not None and os.path.lexists(path) else None


def _search(name: str) -> str | None:
    """Where PATH finds a program. `shutil.which` would do the same, and takes longer to import than all this to run."""
    for directory in os.get_exec_path():
        path = os.path.join(directory, name)  # noqa: PTH118 - pathlib takes its time, too
        if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113
            return path
    return None


def _given() -> dict[str, str]:
    """The environment that this process was given: in the C locale, Python sets LC_CTYPE for itself."""
    environment = dict(os.environ)
    if "LC_CTYPE" not in environment:
        return environment
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            lines = file.read().split(b"\0")
    except OSError:
        return environment
    del environment["LC_CTYPE"]
    for line in lines:
        if line.startswith(b"LC_CTYPE="):
            environment["LC_CTYPE"] = os.fsdecode(line).partition("=")[2]
    return environment


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
    for number in _BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(path, [*program], environment)  # noqa: S606
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    os.execve("/bin/sh", ["sh", path, *program[1:]], environment)  # noqa: S606
