"""Chooses the one trace per process of a job that is to tell why its device is idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpumon.model import IDLE_LIMIT_RATIO

if TYPE_CHECKING:
    from tpumon.xspace.trace_figures import TraceFigures


class Explaining:
    """Remembers whether idle time is unexplained, and of which processes a trace was to explain it.

    Such a trace holds far more events, which the server collects for seconds, so its window is short.
    """

    host_level = 2  # shows that Keras' `fit` waits for input

    def __init__(self) -> None:
        self._unexplained_on: int | None = None  # the connection on which the last trace left idle time unexplained
        self._explained: set[int | None] = set()  # the process, once a trace was to tell; None: not seen

    def note_trace(self, trace: TraceFigures, connection: int, *, was_silent: bool) -> None:
        """Notes a trace; one that only was to tell if anything runs again calls for no explanation."""
        self._unexplained_on = connection if _is_unexplained(trace) and not was_silent else None

    def note_gone(self) -> None:
        """Notes that the process has ended: whoever listens there next is another one."""
        self._explained.clear()

    def begins(self, connection: int, process: int | None) -> bool:
        """True if the next trace is to explain the last one, once per process: it is taken to do so from now on."""
        if self._unexplained_on != connection or process in self._explained:
            return False
        self._explained = {process}
        return True


def _is_unexplained(trace: TraceFigures) -> bool:
    """True if the device is idle, or there is none, and no figure tells whether the job waits for input.

    Not before a window was long enough for steps: the next one is to be, and each costs its share of time.
    """
    figures = trace.figures
    if figures.step_time_s is None and not trace.stepless:
        return False
    if trace.truncated or figures.infeed_ratio is not None or figures.input_wait_ratio is not None:
        return False  # what overflows is not made larger
    return not trace.core_count if figures.idle_ratio is None else figures.idle_ratio > IDLE_LIMIT_RATIO
