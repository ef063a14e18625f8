"""Keeps traces that a program takes of itself apart from samples: a process has one profiling session at a time.

While the program traces, its server refuses samples as busy, so only the beginning needs care: JAX and PyTorch/XLA make
a session that fails when it is ended, and the process could not trace itself any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from tpumon_attach.harmless import harmless
from tpumon_attach.messages import say

PATIENCE_S = 20.0
"""How long a trace waits for a sample to end: windows last 10 s at most, and the answer is collected after that."""

LOOK_S = 0.001

_NO_PATIENCE_S = 0.5  # after one has waited in vain: a session without end is there
_REFUSED = "Another profiling session active"
_APART = "its traces are not kept apart from samples"


class Sessions:
    """Begins profiling sessions of the program while no other one is active.

    Args:
        begin: makes a session; while another session is active, a session that fails when it is ended.
        is_tracing: whether any session of this process traces the host.

    Raises:
        Exception: whatever `is_tracing` raises, now and not when the program traces.
    """

    def __init__(self, begin: Callable[..., Any], is_tracing: Callable[[], bool]) -> None:
        is_tracing()
        self._begin = begin
        self._is_tracing = harmless(f"{_APART}: other sessions are not seen", instead=False)(is_tracing)
        self._patience_s = PATIENCE_S

    def begin(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a session as soon as one can begin; after 20 s, one that will fail."""
        end_s = time.monotonic() + self._patience_s
        while True:
            if not self._is_tracing():
                session = self._begin(*args, **kwargs)
                # A session that does not trace the host shows only at its end whether it had begun.
                traces = self._is_tracing()
                if traces or _had_begun(session):
                    self._patience_s = PATIENCE_S
                    return session if traces else self._begin(*args, **kwargs)
            if time.monotonic() > end_s:
                say("another profiling session does not end: the trace that this program begins now will be lost")
                self._patience_s = _NO_PATIENCE_S
                return self._begin(*args, **kwargs)
            time.sleep(LOOK_S)


@harmless(f"{_APART}: a session cannot be ended", instead=True)
def _had_begun(session: Any) -> bool:
    """Ends a session; whether it had been one."""
    try:
        session.stop()
    except RuntimeError as error:
        if _REFUSED not in str(error):
            raise
        return False
    return True


def healing(stop: Callable[..., Any], heal: Callable[..., None]) -> Callable[..., Any]:
    """Wraps a function that ends a trace: if the trace was lost, the next one can begin.

    Args:
        stop: the framework's function.
        heal: makes the framework forget the session; called with what `stop` was called with.
    """
    heal = harmless("after a lost trace the next one cannot begin")(heal)

    @wraps(stop)
    def stop_and_heal(*args: Any, **kwargs: Any) -> Any:
        try:
            return stop(*args, **kwargs)
        except RuntimeError as error:
            if _REFUSED not in str(error):
                raise
            heal(*args, **kwargs)
            with_reason = _with_reason(error)
            if with_reason is None:
                raise
            raise with_reason from error

    return stop_and_heal


@harmless("an error is not explained")
def _with_reason(error: RuntimeError) -> RuntimeError | None:
    why = "this trace is lost: somebody profiled the process when it began; the next one can begin (tpumon)"
    return type(error)(f"{error} {why}")
