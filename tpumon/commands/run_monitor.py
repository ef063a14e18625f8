"""`tpumon run --monitor`: a tpumon beside the program, which ends with it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from typing import NoReturn

from tpumon.targets.announced import attached_processes
from tpumon.targets.listening import read_listeners
from tpumon.targets.processes import ancestors_of

_LOOK_S = 1.0
_STDERR = 2
_DUTY_RATIO = "0.02"  # of an attached job


def monitor_beside(file: str | None) -> None:
    """Starts a process that monitors this one, whatever program it becomes; not a child that the program would see.

    Args:
        file: where the figures go; None: stderr.

    Raises:
        OSError: the file cannot be opened.
    """
    job = os.getpid()
    output = _STDERR if file is None else os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        if file is not None:
            os.close(output)
        return
    try:
        os.setsid()  # Ctrl-C is the program's
        if not os.fork():
            _monitor(job, output)
    finally:
        os._exit(0)


def _monitor(job: int, output: int) -> NoReturn:
    """Waits until the job is announced, then monitors it until it ends."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)  # what the program reads is not kept open
    os.dup2(nothing, 1)
    end = os.pidfd_open(job)
    addresses: list[str] = []
    while not addresses:
        if select.select([end], [], [], _LOOK_S)[0]:
            os._exit(0)
        addresses = _addresses(job)
    options = ("--output", "text", "--max-duty", _DUTY_RATIO, "--service-addr", ",".join(addresses))
    monitor = subprocess.Popen([sys.executable, "-m", "tpumon", *options], stdin=nothing, stdout=output)
    select.select([end], [], [])
    monitor.terminate()
    monitor.wait()
    os._exit(0)


def _addresses(job: int) -> list[str]:
    """Those of the processes that the job is or has started."""
    listeners = {listener.port: listener for listener in read_listeners()}
    attached = attached_processes(listeners.values())
    return [listeners[port].address for port, pid in attached.items() if job in (pid, *ancestors_of(pid))]
