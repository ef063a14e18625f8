"""`tpumon run`: becomes the program, with what attaches it in its environment."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tpumon.system.console import flush

_log = logging.getLogger(__name__)

_HOOK = str(Path(__file__).parents[2] / "attach" / "pythonpath")
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as shells say it
_MESSAGES_S = 2.0
_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""What Python ignores for itself; a program would inherit that."""


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
        OSError: the file for figures cannot be opened.
    """
    environment = attached(_given(), port)
    name = program[0]
    path = name if "/" in name else shutil.which(name)
    if path is None or not os.path.lexists(path):
        _log.warning("cannot run %s: no such program%s", name, _hint_for_script(name))
        return _NOT_FOUND
    if monitor or monitor_file is not None:
        from tpumon.cli.commands.run_monitor import monitor_beside

        monitor_beside(monitor_file)
    flush(_MESSAGES_S)
    try:
        _become(path, program, environment)
    except OSError as error:
        _log.warning("cannot run %s: %s%s", name, error.strerror, _hint_for_script(name))
        return _NOT_EXECUTABLE


def _hint_for_script(name: str) -> str:
    """A command line that works, if a script was given without its interpreter."""
    is_script = name.endswith(".py") and os.path.isfile(name)  # noqa: PTH113 - Path's own raises for odd names
    return f"; to run the script: tpumon run python {name}" if is_script else ""


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
