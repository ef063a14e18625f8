"""Starts a module in a process of its own, in this Python and with this tpumon."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def start(words: Sequence[str], environment: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
    """Starts a process that imports from where this one does, but nothing from the working directory.

    Args:
        words: the module and its arguments.
        environment: for the process; PYTHONPATH is replaced.
        options: as `subprocess.Popen` takes them.

    Raises:
        OSError: it cannot be started.
    """
    command = [sys.executable, "-P", "-m", *words]
    return subprocess.Popen(command, env={**environment, "PYTHONPATH": _python_path()}, **options)


def _python_path() -> str:
    """The path from which this process imports, with what PYTHONPATH, a working directory or a launcher added to it.

    The working directory counts if this package is there. An empty entry of PYTHONPATH means it even with -P.
    """
    package = str(Path(__file__).parents[2])
    try:
        here = os.getcwd()  # noqa: PTH109 - as in sys.path
    except OSError:  # it was removed
        here = ""
    places = [*(place or here for place in sys.path), package]
    wanted = (place for place in places if place == package or (place.startswith("/") and place != here))
    return os.pathsep.join(dict.fromkeys(wanted))
