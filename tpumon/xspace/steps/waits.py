"""What a core does in its steps that is no op: it waits at barriers, or prints.

XProf: xspace_to_event_time_fraction_analyzer.cc. It has the mean over the steps that have such an event, without the
first and the last; here all whole steps count.
"""

from __future__ import annotations

from msgspec import Struct

from tpumon.xspace.columns.intervals import first_overlapping
from tpumon.xspace.columns.timeline import Events
from tpumon.xspace.planes.core import STEP_STATS, CoreLines
from tpumon.xspace.planes.plane import TRACE_ME

_BARRIER, _DEBUG_PRINT = "barrier-cores", "debug_print"


class StepWaits(Struct, frozen=True, kw_only=True, eq=False):
    """Of one core, or of several together.

    Attributes:
        steps_ps: length of its steps.
        barrier_ps: time in them that it waits at barriers.
        debug_print_ps: time in them that it prints.
    """

    steps_ps: int
    barrier_ps: int
    debug_print_ps: int


def step_waits(core: CoreLines, steps: Events) -> StepWaits:
    """What a core does in its steps that is no op.

    Args:
        core: whose.
        steps: its markers, or periods between runs; disjoint, in timeline order. An event belongs to the first that it
            overlaps or touches.

    Raises:
        SourceError: `malformed`.
    """
    lines = core.plane.lines(TRACE_ME)
    names = {number: core.plane.event_name(number) for number in core.plane.kinds_on(lines)}

    def time_ps(words: str) -> int:
        kinds = [number for number, name in names.items() if words in name]
        if not kinds:  # as on nearly every core
            return 0
        said = core.plane.read_kinds(lines, kinds, STEP_STATS)
        if core.span_ps is not None:
            said = said.within(core.span_ps)
        inside = first_overlapping(said.begin_ps, said.end_ps, steps.begin_ps, steps.end_ps) >= 0
        return int(said.device_span_ps()[1][inside].sum())

    return StepWaits(
        steps_ps=int(steps.device_span_ps()[1].sum()),
        barrier_ps=time_ps(_BARRIER),
        debug_print_ps=time_ps(_DEBUG_PRINT),
    )
