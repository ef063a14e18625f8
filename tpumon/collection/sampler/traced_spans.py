"""Spans of time in which a job was traced lately, by whichever tpumon of this host."""

from __future__ import annotations

import os
import time

from tpumon.model.progress import TRACED_S, Traced
from tpumon.system.host_files import since_boot_s

_ONE_S = 1.0  # traces of so many seconds are remembered as one: of one process, as one takes longer to begin


class TracedSpans:
    """The spans, as begin and end since boot, and for how many seconds it was traced in between."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float, float]] = []

    def note(self, traced_s: float, begin_s: float | None = None, end_s: float | None = None) -> None:
        """Notes tracing of anybody; without a time, it was just now."""
        if not traced_s:
            return
        boot_s = since_boot_s()
        self._spans = [span for span in self._spans if span[1] > boot_s - TRACED_S]
        if begin_s is not None and end_s is not None:
            self._spans.append((begin_s, end_s, traced_s))
        elif self._spans and boot_s - self._spans[-1][0] < _ONE_S:
            self._spans[-1] = self._spans[-1][0], boot_s, self._spans[-1][2] + traced_s
        else:
            self._spans.append((boot_s - max(traced_s, 0.0), boot_s, traced_s))

    def traced(self, process: int | None, since_s: float = 0.0) -> Traced:
        """For how long it was traced, by the wall clock as it is set now.

        Args:
            process: its start, in clock ticks since this machine was started; None: not known.
            since_s: when a trace began that has not ended; 0: there is none.
        """
        booted_unix_s = time.time() - since_boot_s()
        begun_unix_s = 0.0 if process is None else booted_unix_s + process / os.sysconf("SC_CLK_TCK")
        spans = ((booted_unix_s + begin_s, booted_unix_s + end_s, traced_s) for begin_s, end_s, traced_s in self._spans)
        return Traced(begun_unix_s, tuple(spans), booted_unix_s + since_s if since_s else 0.0)
