"""Raises the signals that end a run as an exception in the main thread. Imports nothing slow: it is set up first."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from threading import Timer

_AGAIN_S = 0.05

STOPPING = tuple(
    number
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    if signal.getsignal(number) is not signal.SIG_IGN
)
"""The signals that end a run, without those that were ignored when the process started (nohup)."""


class StoppedError(BaseException):
    """A signal asked this process to end. Not an Exception, so that no `except Exception` handles it as a failure.

    Attributes:
        signal_number: the signal.
        exit_status: 128 plus the signal's number: 129, 130 or 143.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number
        self.exit_status = 128 + signal_number


def stop_on_signals() -> None:
    """Makes STOPPING raise StoppedError in the main thread; ignored signals stay ignored."""

    def stop(signal_number: int, _frame: FrameType | None) -> None:
        raise StoppedError(signal_number)

    for number in STOPPING:
        signal.signal(number, stop)
    usual = sys.unraisablehook

    def send_again(unraisable: UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, StoppedError):
            send_soon(unraisable.exc_value.signal_number, _AGAIN_S)
        else:
            usual(unraisable)

    # Python drops what is raised while a destructor or a weak reference's callback runs.
    sys.unraisablehook = send_again


def send_soon(signal_number: int, after_s: float) -> Timer:
    """Sends a signal to this process after some seconds, unless the timer that it returns is cancelled."""
    import threading

    timer = threading.Timer(after_s, os.kill, (os.getpid(), signal_number))
    timer.daemon = True
    timer.start()
    return timer
