"""Chooses the one trace per process of a job that is to tell why its device is idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpumon.model import IDLE_LIMIT_RATIO

if TYPE_CHECKING:
    from tpumon.xspace.trace_figures import TraceFigures


class IdleCheck:
    """Remembers whether the device is idle for no known reason, and which process was traced to find one.

    Such a trace holds far more events, which the server collects for seconds, so its window is short.
    """

    host_level = 2  # shows that Keras' `fit` waits for input

    def __init__(self) -> None:
        self._unexplained_on: int | None = None  # the connection on which the last trace left idle time unexplained
        self._tried: set[int | None] = set()  # the process that was traced for this; None: not seen

    def note_figures(self, trace_figures: TraceFigures, connection: int, *, was_silent: bool) -> None:
        """Notes the figures of a trace; one that only was to tell if anything runs again calls for no check."""
        self._unexplained_on = connection if _is_unexplained(trace_figures) and not was_silent else None

    def is_due(self, connection: int, process: int | None) -> bool:
        """True if the last trace left idle time unexplained, and this process was not traced for that yet."""
        return self._unexplained_on == connection and process not in self._tried

    def note_tried(self, process: int | None) -> None:
        """Notes that this process is traced for it, or cannot be: nothing of this kind is tried again.

        To be called before the request is sent: whatever becomes of it, the job may have been traced.
        """
        self._tried = {process}

    def forget_tried(self) -> None:
        """Notes that the process was not traced after all, or has ended: whoever listens there next is another one."""
        self._tried.clear()


def _is_unexplained(trace_figures: TraceFigures) -> bool:
    """True if the device is idle, or there is none, and no figure tells whether the job waits for input.

    Not before a window was long enough for steps: the next one is to be, and each costs its share of time.
    """
    figures = trace_figures.figures
    if figures.step_time_s is None and not trace_figures.stepless:
        return False
    if trace_figures.truncated or figures.infeed_ratio is not None or figures.input_wait_ratio is not None:
        return False  # what overflows is not made larger
    return not trace_figures.core_count if figures.idle_ratio is None else figures.idle_ratio > IDLE_LIMIT_RATIO
