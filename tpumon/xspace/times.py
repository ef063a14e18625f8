"""Where the time of devices and hosts went: by kind of op, in waits of steps, in compiling and waiting for input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from tpumon.model import Figures
from tpumon.model.chips import chip_of
from tpumon.xspace.catalogue.shapes import WIDTHS
from tpumon.xspace.catalogue.time_kinds import TimeKind
from tpumon.xspace.catalogue.totals import times_by_kind_ps
from tpumon.xspace.trace import CoreTotals, Trace

_NO_HOST_EVENTS = "no host events in the trace"
_MOST_PROGRAMS = 32


def op_time_ratios(cores: Sequence[CoreTotals], total_ps: float) -> dict[str, float] | None:
    """Shares of the cores' time by kind of op; with the idle share they add up to 1. None of no time."""
    if total_ps <= 0:
        return None
    times_ps = np.sum([times_by_kind_ps(core.table) for core in cores], axis=0)
    return {kind.name.lower(): min(float(times_ps[kind]) / total_ps, 1.0) for kind in TimeKind}


def wait_ratios(cores: Sequence[CoreTotals]) -> tuple[float | None, float | None]:
    """Shares of the steps in which cores wait at barriers, and print; None without steps."""
    waits = [core.waits for core in cores if core.waits is not None]
    steps_ps = sum(each.steps_ps for each in waits)
    if not steps_ps:
        return None, None
    spent_ps = (sum(each.barrier_ps for each in waits), sum(each.debug_print_ps for each in waits))
    return min(spent_ps[0] / steps_ps, 1.0), min(spent_ps[1] / steps_ps, 1.0)


def mxu_width(traces: Sequence[Trace]) -> int:
    """Width of the matrix units of the last host's chips; the usual one where they are unknown."""
    chip = chip_of(traces[-1].device_type)
    return WIDTHS[0] if chip is None else chip.mxu_width


def host_times(traces: Sequence[Trace]) -> tuple[Figures, Mapping[str, str]]:
    """Compiling, input and callbacks, of the host with most of it; which programs ran; why what is absent."""
    compiling = [trace.compile_ratio for trace in traces if trace.compile_ratio is not None]
    waiting = [trace.input_wait_ratio for trace in traces if trace.input_wait_ratio is not None]
    calling = [trace.callback_ratio for trace in traces if trace.callback_ratio is not None]
    times_ps = Counter[str]()
    for trace in traces:
        times_ps.update(trace.programs_ps)
    absent = {}
    if not compiling:
        absent["compile_ratio"] = _NO_HOST_EVENTS
    if not waiting:
        absent["input_wait_ratio"] = "no event of an input pipeline" if compiling else _NO_HOST_EVENTS
    if not calling:
        absent["callback_ratio"] = "no op of the host's names its program" if compiling else _NO_HOST_EVENTS
    figures = Figures(
        compile_ratio=max(compiling, default=None),
        input_wait_ratio=max(waiting, default=None),
        callback_ratio=max(calling, default=None),
        programs=tuple(program for program, _ in times_ps.most_common(_MOST_PROGRAMS)),
    )
    return figures, absent
