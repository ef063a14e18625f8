"""Input pipeline of a host, as tf.data's events and enqueueing show it."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from msgspec import Struct

from tpumon.untrusted_text import one_line
from tpumon.xspace.columns.columns import PS_PER_S, Ints
from tpumon.xspace.columns.intervals import self_times_ps
from tpumon.xspace.planes.plane import Plane

InputCategory = Literal["enqueue", "demanded_file_read", "advanced_file_read", "preprocessing"]

_DATASET = "Iterator::"
_READS = ("::TFRecord", "::TextLine", "::FixedLengthRecord", "::SSTable", "::RecordIO")
_AHEAD = ("::MemoryReader", "::MemoryWriter", "::Interleave", "::Prefetch", "::ParallelMap")
_ENQUEUE = re.compile(r"(?:\S+:)?(?:InfeedEnqueue\w*|MEMCPYHtoD|MemcpyHToD)")
_INFEED_ENQUEUE = re.compile(r"(?:\S+:)?InfeedEnqueue\w*")
_TF_OP = re.compile(r"[A-Za-z0-9.][\w.\\/>-]*:[A-Za-z][\w.]*")
_MOST_STAGES = 500


class Stage(Struct, frozen=True, kw_only=True, eq=False):
    """One stage of the input pipeline on a host's threads.

    Attributes:
        name: as the trace has it.
        category: what it does.
        count: how often it ran.
        time_s: durations.
        self_time_s: durations without the ops within.
    """

    name: str
    category: InputCategory
    count: int
    time_s: float
    self_time_s: float


class HostInput(Struct, frozen=True, kw_only=True, eq=False):
    """Work of a host's threads for input.

    Attributes:
        stages: longest first.
        enqueued_s: time in enqueues of infeed, but for each thread's last.
        between_s: from the first to the last of them; XProf scales the other categories by the ratio of the two.
    """

    stages: tuple[Stage, ...] = ()
    enqueued_s: float = 0.0
    between_s: float = 0.0


def read_host_input(plane: Plane | None) -> HostInput:
    """Adds up the input pipeline's events.

    Args:
        plane: /host:CPU; None where there is none.

    Raises:
        SourceError: `malformed`.
    """
    if plane is None:
        return HostInput()
    names = {number: plane.event_name(number) for number in plane.metadata_by_id}
    stages = {number: category for number, name in names.items() if (category := _category(name))}
    if not stages:
        return HostInput()
    ops = [number for number, name in names.items() if number in stages or _TF_OP.fullmatch(name)]
    infeed = [number for number, name in names.items() if _INFEED_ENQUEUE.fullmatch(name)]
    sums: dict[int, list[float]] = {}
    enqueued_ps = between_ps = 0
    for line in plane.lines():
        events = plane.read([line])
        events = events.select(np.isin(events.metadata_id, ops)).sorted()
        own_ps = self_times_ps(events.begin_ps, events.duration_ps)
        for number, count, time_ps, self_ps in per_id(events.metadata_id, events.duration_ps, own_ps):
            if number in stages:
                total = sums.setdefault(number, [0, 0, 0])
                for i, amount in enumerate((count, time_ps, self_ps)):
                    total[i] += amount
        enqueues = events.select(np.isin(events.metadata_id, infeed))
        if len(enqueues) > 1:
            enqueued_ps += int(enqueues.duration_ps[:-1].sum())
            between_ps += int(enqueues.begin_ps[-1] - enqueues.begin_ps[0])
    made = [
        Stage(
            name=one_line(names[number].rpartition(":")[2] if _TF_OP.fullmatch(names[number]) else names[number]),
            category=stages[number],
            count=int(count),
            time_s=time_ps / PS_PER_S,
            self_time_s=self_ps / PS_PER_S,
        )
        for number, (count, time_ps, self_ps) in sums.items()
    ]
    made.sort(key=lambda stage: (-stage.self_time_s, stage.name))
    return HostInput(
        stages=tuple(made[:_MOST_STAGES]), enqueued_s=enqueued_ps / PS_PER_S, between_s=between_ps / PS_PER_S
    )


def per_id(ids: Ints, duration_ps: Ints, self_ps: Ints) -> list[tuple[int, int, int, int]]:
    """Count, time and self time of each id."""
    different, of_event = np.unique(ids, return_inverse=True)
    columns = [np.bincount(of_event, minlength=len(different))]
    columns += [np.bincount(of_event, weights=amount, minlength=len(different)) for amount in (duration_ps, self_ps)]
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in zip(different, *columns, strict=True)]


def _category(name: str) -> InputCategory | None:
    """XProf: CategorizeInputOp; None for what is no stage of an input pipeline."""
    if _ENQUEUE.fullmatch(name):
        return "enqueue"
    if not name.startswith(_DATASET):
        return None
    if not name.endswith(_READS):
        return "preprocessing"
    return "advanced_file_read" if any(part in name for part in _AHEAD) else "demanded_file_read"
