"""Signals that end a run, as an exception in the main thread. Imports nothing that takes time: it is set up first."""

from __future__ import annotations

import signal
from types import FrameType

STOPPING = tuple(
    number
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    if signal.getsignal(number) is not signal.SIG_IGN
)
"""The signals that end a run: those that this process was not started to ignore."""


class StoppedError(BaseException):
    """A signal asked this process to end; not an Exception, so that nothing on the way takes it for a failure.

    Attributes:
        exit_status: what a process ends with that the signal ended: 129, 130 or 143.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_status = 128 + signal_number


def stop_on_signals() -> None:
    """From here on SIGHUP, SIGINT and SIGTERM raise StoppedError in the main thread; ignored ones stay so (nohup)."""

    def stop(signal_number: int, _frame: FrameType | None) -> None:
        raise StoppedError(signal_number)

    for number in STOPPING:
        signal.signal(number, stop)
