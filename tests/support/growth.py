"""What reading a trace takes, counted instead of timed."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.ops.catalogue import CATALOGUE
from tpumon.xspace.trace_figures import figures_of_hosts


def _figures(xspace: bytes) -> object:
    return figures_of_hosts([read_host_totals(xspace)])


def cost(xspace: bytes, read: Callable[[bytes], object] = _figures) -> tuple[int, int]:
    """Lines of Python run, within comprehensions instructions, and functions of C called; and the peak of memory.

    Args:
        xspace: a trace.
        read: what is done with it.
    """
    steps = 0
    CATALOGUE.clear()  # what is known of earlier traces costs nothing

    def count_line(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = frame.f_code.co_name.endswith("comp>")  # which is one line, however long it takes
        steps += event in {"line", "opcode"}
        return count_line

    def count_call(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal steps
        steps += event == "c_call"

    previous = sys.gettrace(), sys.getprofile()
    tracemalloc.start()
    sys.settrace(count_line)
    sys.setprofile(count_call)
    try:
        read(xspace)
    finally:
        sys.settrace(previous[0])
        sys.setprofile(previous[1])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return steps, peak
