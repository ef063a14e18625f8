"""Raises the signals that end a run as an exception in the main thread. Imports nothing slow: it is set up first."""

from __future__ import annotations

import signal
from types import FrameType

STOPPING = tuple(
    number
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    if signal.getsignal(number) is not signal.SIG_IGN
)
"""The signals that end a run, without those that were ignored when the process started (nohup)."""


class StoppedError(BaseException):
    """A signal asked this process to end. Not an Exception, so that no `except Exception` handles it as a failure.

    Attributes:
        exit_status: 128 plus the signal's number: 129, 130 or 143.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_status = 128 + signal_number


def stop_on_signals() -> None:
    """Makes STOPPING raise StoppedError in the main thread; ignored signals stay ignored."""

    def stop(signal_number: int, _frame: FrameType | None) -> None:
        raise StoppedError(signal_number)

    for number in STOPPING:
        signal.signal(number, stop)
