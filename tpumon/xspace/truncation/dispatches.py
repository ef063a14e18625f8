"""Dispatches of the host, and those of them that never ran on the devices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from tpumon.xspace.columns.columns import Ints
from tpumon.xspace.columns.intervals import by_id
from tpumon.xspace.planes.plane import Plane
from tpumon.xspace.steps.functions import named_function
from tpumon.xspace.steps.host_threads import outermost_calls
from tpumon.xspace.truncation.runs import CoreRuns, function_times_ps

_LEAST = 3
"""Fewer dispatches say nothing: a call may have failed, or only been traced."""

_RATIO = 0.5  # of the usual rate
_LEAST_MISSING_RATIO = 0.05
_HEAVY_RATIO = 0.1  # of the time of all functions
_MOST_AHEAD = 40  # JAX lets a host be 32 runs ahead of a TPU
_DISPATCH = re.compile(r"PjitFunction\(.*\)|\w*(?:Execute|Enqueue)\w*(?:\W.*)?", re.DOTALL)
_NO_NAME = re.compile(r"[^\w.-]")  # what JAX replaces in names of modules


class Dispatches:
    """Starts of what launches programs on the host's threads; read when first asked for."""

    def __init__(self, host: Plane | None) -> None:
        self._host = host if host is not None and host.lines() else None

    @property
    def recorded(self) -> bool:
        """True if the host's threads have any event; samples have none as a rule."""
        return self._host is not None

    @cached_property
    def starts(self) -> list[Ints]:
        """Of each name, ascending."""
        host = self._host
        if host is None:
            return []
        kinds = [n for n in host.metadata_by_id if _DISPATCH.fullmatch(host.event_name(n))]
        events = host.read_kinds(host.lines(), kinds)
        return [np.sort(events.begin_ps[rows]) for _, rows in by_id(events.metadata_id)]

    @cached_property
    def calls(self) -> Mapping[str, Ints]:
        """Starts of the calls of JAX functions, ascending, by the name that their programs have on devices."""
        parts: dict[str, list[Ints]] = {}
        for name, begin_ps in outermost_calls(self._host) if self._host is not None else ():
            parts.setdefault(f"jit_{_NO_NAME.sub('_', named_function(name))}", []).append(begin_ps)
        return {name: np.sort(np.concatenate(each)) for name, each in parts.items()}

    def any_after(self, at_ps: int) -> bool:
        """True if any event of the host starts later, so that it was still being traced."""
        host = self._host
        lines = host.lines() if host is not None else ()
        return any((host.read([line]).begin_ps > at_ps).any() for line in lines if host is not None)


class Launched(Struct, frozen=True, kw_only=True, eq=False):
    """One function, as the host called it and as it ran.

    Attributes:
        function: its name on devices.
        calls: how many calls began before the devices fell silent.
        missing: how many of these have no run.
    """

    function: str
    calls: int
    missing: int

    @property
    def all_ran(self) -> bool:
        """True if all calls ran, give or take a few."""
        return self.missing < max(_LEAST, _LEAST_MISSING_RATIO * self.calls)

    @property
    def never_ran(self) -> bool:
        """True if more of them are missing than can have been on their way."""
        return not self.all_ran and self.missing > _MOST_AHEAD


def launched(
    dispatches: Dispatches, cores: Sequence[CoreRuns], span_ps: tuple[int, int], *, together: bool
) -> Iterator[Launched]:
    """The functions that take a good part of the devices' time and whose calls the host's events show.

    Runs at the begin, whose calls may be older than the trace, hide as many that are missing.

    Args:
        dispatches: of the host.
        cores: all that work.
        span_ps: from the first to the last activity of any of them.
        together: whether one call runs on all of them.
    """
    totals = function_times_ps(cores)
    whole_ps = sum(totals.values())
    for function, time_ps in totals.items():
        starts = dispatches.calls.get(function)
        if starts is None or time_ps < _HEAVY_RATIO * whole_ps:
            continue
        runs = [len(core.begins_of(function)) for core in cores]
        lengths = np.concatenate([core.ends_of(function) - core.begins_of(function) for core in cores])
        starts = starts[starts < span_ps[1]]
        ran = max(runs) if together else sum(runs)
        if 2 * len(starts) < ran:
            continue  # most calls are not recorded
        # The devices may not have been traced from the first call on.
        early = int((starts < span_ps[0]).sum())
        if early:
            early = min(early, int((span_ps[0] - int(starts[0])) / max(float(np.median(lengths)), 1.0)))
        yield Launched(function=function, calls=len(starts), missing=len(starts) - ran - early)


def goes_on(starts: Ints, hole_ps: tuple[int, int], active_ps: tuple[int, int]) -> bool:
    """True if dispatching goes on in a silence of the devices about as it does outside, until beyond its middle."""
    inside = starts[(starts > hole_ps[0]) & (starts < hole_ps[1])]
    outside = int(((starts >= active_ps[0]) & (starts < active_ps[1])).sum()) - len(inside)
    hole, active = hole_ps[1] - hole_ps[0], active_ps[1] - active_ps[0]
    if active_ps[0] <= hole_ps[0] and hole_ps[1] <= active_ps[1]:
        active -= hole
    else:
        outside += len(inside)
    if len(inside) < _LEAST or active <= 0 or 2 * (int(inside[-1]) - hole_ps[0]) < hole:
        return False
    if outside < _LEAST:
        return True  # too few to compare with
    return len(inside) / hole >= _RATIO * outside / active
