"""Work of a host's threads: their events by name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np
from msgspec import Struct

from tpumon.untrusted_text import one_line
from tpumon.xspace.columns.columns import PS_PER_S
from tpumon.xspace.columns.intervals import covered_ps, self_times_ps
from tpumon.xspace.ops.op_kinds import NAME_LENGTH
from tpumon.xspace.planes.plane import Plane
from tpumon.xspace.profile.host_input import per_id


class HostOp(Struct, frozen=True, kw_only=True, eq=False):
    """The events of one name, on all threads together.

    Attributes:
        name: as the trace has it.
        occurrences: how many.
        time_s: durations; threads run beside each other.
        self_time_s: durations without the events within on the same thread.
    """

    name: str
    occurrences: int
    time_s: float
    self_time_s: float


class HostThreads(Struct, frozen=True, kw_only=True, eq=False):
    """Work of a host's threads.

    Attributes:
        threads: those that have events.
        total_s: from the first to the last event of each, added up.
        busy_s: the part of that in which an event ran.
        ops: the longest first.
    """

    threads: int = 0
    total_s: float = 0.0
    busy_s: float = 0.0
    ops: tuple[HostOp, ...] = ()


def read_host_threads(plane: Plane | None) -> HostThreads:
    """Adds up the events of a host's threads; XProf, of ops only: ConvertHostThreadsXPlaneToOpMetricsDb.

    Args:
        plane: /host:CPU; None where there is none.

    Raises:
        SourceError: `malformed`.
    """
    if plane is None:
        return HostThreads()
    lines = plane.lines()
    name = cache(plane.event_name)  # any number of threads may have events of the same one
    ops: list[HostOp] = []
    total_ps = busy_ps = 0
    for line in lines:
        events = plane.read([line]).sorted()
        if not len(events):
            continue
        total_ps += int(events.end_ps.max() - events.begin_ps.min())
        busy_ps += covered_ps(events.begin_ps, events.end_ps)
        # Events that overlap within another one would leave less than nothing of it.
        own_ps = np.maximum(self_times_ps(events.begin_ps, events.duration_ps), 0)
        ops += [
            HostOp(
                name=one_line(name(number), limit=NAME_LENGTH),
                occurrences=count,
                time_s=time_ps / PS_PER_S,
                self_time_s=self_ps / PS_PER_S,
            )
            for number, count, time_ps, self_ps in per_id(events.metadata_id, events.duration_ps, own_ps)
        ]
    return HostThreads(
        threads=len(lines), total_s=total_ps / PS_PER_S, busy_s=busy_ps / PS_PER_S, ops=merged_host_ops(ops)
    )


def merged_host_ops(ops: Iterable[HostOp]) -> tuple[HostOp, ...]:
    """Ops added up by name, the longest first."""
    merged: dict[str, HostOp] = {}
    for op in ops:
        same = merged.get(op.name)
        merged[op.name] = op if same is None else _added(same, op)
    return tuple(sorted(merged.values(), key=lambda op: (-op.self_time_s, op.name)))


def _added(one: HostOp, other: HostOp) -> HostOp:
    return HostOp(
        name=one.name,
        occurrences=one.occurrences + other.occurrences,
        time_s=one.time_s + other.time_s,
        self_time_s=one.self_time_s + other.self_time_s,
    )
