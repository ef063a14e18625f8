"""Numbers for the step markers of all cores, the same for the same step: as the host started them, else by counting.

XProf follows a step from the host's annotation over nested events and over contexts (an event that produces what
another one consumes) to the programs on the device, and numbers what it reaches. Markers that no annotation leads to
do not count then; where none is reached at all, the first marker of every core is the same step, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from tpumon.xspace.columns.columns import Events, Ints, Mask, StatColumn, Words
from tpumon.xspace.columns.intervals import among, first_of_equal, parents, timeline_order
from tpumon.xspace.planes.core import ROUNDING_PS, CoreLines
from tpumon.xspace.planes.plane import STEP_NUMBER, STEP_STATS, Plane
from tpumon.xspace.steps.graph import HostGraph, Links

CONSUMER_STATS = ("_ct", "_c", "run_id", "queue_id", "core_type")
"""Stats of markers and modules that lead to the host; XProf: GroupingEventStats, TpuModuleLineMutator."""

_ROOT, _ASYNC = "_r", "_a"
_LAUNCH_STATS = ("device_ordinal", "queue_id", "run_id")
_STREAM_STATS = ("request_id", "queue_addr")
_HOST_STATS = (_ROOT, STEP_NUMBER, _ASYNC, "_pt", "_p", "_ct", "_c", "core_type", *_LAUNCH_STATS, *_STREAM_STATS)

_NUMBER = re.compile(r"[0-9]{1,18}")
_MOST_ROOTS = 1_000_000
_RUN_ID_MASK = np.uint64((1 << 27) - 1)  # the device knows so many bits of a run's number
_LAUNCH = "DoEnqueueProgram"
_ENQUEUE = "EnqueueRequestLocked"
_DEQUEUE = ("RunProgramRequest", "HostCallbackRequest", "TransferH2DRequest", "TransferD2HRequest")
_ROOT_NAMES = {"TraceContext": 1, "ProcessBatch": 2, "BatchingSessionRun": 1}  # roots that do not say that they are
_NUMBERED_CONTEXT, _LAUNCH_CONTEXT, _STREAM_CONTEXT = range(3)


class Numbered(NamedTuple):
    """The markers of all cores.

    Attributes:
        markers: of every core, those that count, and the number of each.
        step_of: by these numbers the program's own number of the step; empty where the host does not say.
        capped: what there was too much of, if so; the markers are then numbered by counting.
    """

    markers: list[tuple[Events, Ints]]
    step_of: Mapping[int, int] = MappingProxyType({})
    capped: str | None = None


class _CappedError(Exception):
    """There is too much of something; the words say of what."""


def number_markers(host: Plane | None, cores: Sequence[CoreLines]) -> Numbered:
    """The markers of every core, numbered so that equal steps have equal numbers; without markers that do not count.

    XProf: GroupTpuEventsOSS, CreateEventGroups, MergeHostSteps.

    Args:
        host: the plane of the host's threads.
        cores: whose markers to number.

    Raises:
        SourceError: `malformed`.
    """
    capped = None
    try:
        numbering = _numbers(host, cores)
    except _CappedError as error:
        numbering, capped = None, str(error)
    if numbering is None:
        counted = [(core.steps, np.arange(len(core.steps))) for core in cores]
        return Numbered(counted, _own_numbers(cores, counted), capped)
    numbers, step_of = numbering
    ends = np.cumsum([len(core.steps) for core in cores])
    own = np.split(numbers, ends[:-1])
    markers = [_merged(core.steps, np.flatnonzero(n >= 0), n[n >= 0]) for core, n in zip(cores, own, strict=True)]
    return Numbered(markers, step_of or _own_numbers(cores, markers))


def _own_numbers(cores: Sequence[CoreLines], markers: Sequence[tuple[Events, Ints]]) -> dict[int, int]:
    """The program's own numbers, if all markers are named by one; none if they may count from the window's begin."""
    steps: dict[int, int] = {}
    for core, (events, groups) in zip(cores, markers, strict=True):
        for group, kind in zip(groups.tolist(), events.metadata_id.tolist(), strict=True):
            name = core.plane.event_name(kind)
            if not _NUMBER.fullmatch(name) or steps.setdefault(group, int(name)) != int(name):
                return {}
    if min(steps.values(), default=0) <= 1 or any(_lacks_first(core) for core in cores):
        return {}
    return steps if len(set(steps.values())) == len(steps) else {}


def _lacks_first(core: CoreLines) -> bool:
    """True if the first markers of a core are cut away, and count from the window's begin."""
    if core.span_ps is None:
        return False
    return any(core.plane.event_name(number) in {"0", "1"} for number in core.plane.metadata_by_id)


def _numbers(host: Plane | None, cores: Sequence[CoreLines]) -> tuple[Ints, Mapping[int, int]] | None:
    """The number of each marker of all cores, one core after the other, -1 where none; None where none has one.

    Also the program's own numbers of the steps, by these.
    """
    if host is None or not any(len(core.steps) for core in cores):
        return None
    names = {number: host.event_name(number) for number in host.metadata_by_id}
    if _ROOT not in host.stat_names.values() and not _ROOT_NAMES.keys() & set(names.values()):
        return None
    devices, first = Links(), 0
    for core in cores:
        _add_consumed(devices, core, first)
        first += len(core.steps)
    if not len(devices):
        return None
    threads = _Threads(names)
    for line in host.lines():
        threads.add(host.read([line], _HOST_STATS))
        if threads.roots > _MOST_ROOTS:
            words = (
                f"the trace has more than {_MOST_ROOTS:,} roots of steps: step markers are matched by counting instead"
            )
            raise _CappedError(words)
    graph = threads.graph()
    del threads  # what it holds is in the graph now, and need not be there twice
    numbers, steps = graph.numbers(devices, first)
    return (numbers, steps) if (numbers >= 0).any() else None


def _add_consumed(devices: Links, core: CoreLines, first: int) -> None:
    """Adds the contexts that each marker consumes, itself or by a module within it; `first` is the core's first one."""
    steps, modules = core.steps, core.modules
    if not len(steps):
        return
    inside = np.searchsorted(np.maximum.accumulate(steps.end_ps), modules.begin_ps, side="right")
    for events, marker in ((steps, np.arange(len(steps))), (modules, inside)):
        is_within = marker < len(steps)
        step = np.where(is_within, marker, 0)
        is_within &= (steps.begin_ps[step] <= events.begin_ps) & (steps.end_ps[step] + ROUNDING_PS >= events.end_ps)
        numbered = is_within & _has(events, "_ct", "_c")
        if events is modules:
            launched = is_within & _has(events, "run_id", "queue_id")
            numbered &= ~launched
            number = np.full(len(events), core.plane.tensor_core or 0, dtype=np.uint64)
            launch = [number, *_stats(events, "queue_id", "run_id", "core_type")]
            devices.add(step + first, launched, _LAUNCH_CONTEXT, launch)
        devices.add(step + first, numbered, _NUMBERED_CONTEXT, _stats(events, "_ct", "_c"))


def _has(events: Events, *names: str) -> Mask:
    """True for events that have all of these stats."""
    columns = [events.stats.get(name) for name in names]
    have_all = np.ones(len(events), dtype=np.bool_)
    for column in columns:
        have_all &= False if column is None else column.present
    return have_all


def _stat(events: Events, name: str) -> Words:
    """A stat of all events, 0 where there is none."""
    column = events.stats.get(name)
    return np.zeros(len(events), dtype=np.uint64) if column is None else column.values


def _stats(events: Events, *names: str) -> list[Words]:
    """Some stats of all events."""
    return [_stat(events, name) for name in names]


class _Threads:
    """Events of the host that may lead somewhere.

    Args:
        names: of events, by metadata id.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._ids: dict[str, list[int]] = {}
        for number, name in names.items():
            self._ids.setdefault(name, []).append(number)
        nothing = np.zeros(0, dtype=np.int64)
        self._parts: list[tuple[Ints, Ints, Ints, Words, Ints, Ints]] = [
            (nothing, nothing, nothing, nothing.astype(np.uint64), nothing, nothing)
        ]
        self._made, self._used = Links(), Links()
        self._count = 0
        self.roots = 0
        """How many of them are roots."""

    def add(self, events: Events) -> None:
        """Adds the events of one thread that carry any of the stats, or are roots by name."""
        masks = [column.present for column in events.stats.values()]
        events = events.select(np.logical_or.reduce([self._named(events, *_ROOT_NAMES), *masks]))
        if not len(events):
            return
        within, around = _nested(events)
        is_root, level = _has(events, _ROOT), _stat(events, _ROOT)
        for name, own in _ROOT_NAMES.items():
            others = self._named(events, name) & ~is_root
            if others.any():
                is_root, level = is_root | others, np.where(others, np.uint64(own), level)
        roots = np.flatnonzero(is_root)
        self.roots += len(roots)
        first = self._count
        numbered = events.stats.get(STEP_NUMBER)
        step = np.full(len(roots), -1) if numbered is None else numbered.integers(-1)[roots]
        self._parts.append((within + first, around + first, roots + first, level[roots], events.begin_ps[roots], step))
        self._link(events, np.arange(len(events)) + self._count)
        self._count += len(events)

    def _named(self, events: Events, *names: str) -> Mask:
        wanted = [number for name in names for number in self._ids.get(name, ())]
        return among(events.metadata_id, wanted)

    def _link(self, events: Events, nodes: Ints) -> None:
        launches = self._named(events, _LAUNCH) & _has(events, *_LAUNCH_STATS)
        streams = _has(events, *_STREAM_STATS)
        enqueues, dequeues = streams & self._named(events, _ENQUEUE), streams & self._named(events, *_DEQUEUE)
        if streams.any():
            stream = _stats(events, *_STREAM_STATS)
            self._made.add(nodes, enqueues, _STREAM_CONTEXT, stream)
            self._used.add(nodes, dequeues, _STREAM_CONTEXT, stream)
        if launches.any():
            ordinal, queue, run, core_type = _stats(events, *_LAUNCH_STATS, "core_type")
            launch = [ordinal, queue, run & _RUN_ID_MASK, core_type]
            self._made.add(nodes, launches & ~enqueues, _LAUNCH_CONTEXT, launch)
        made, used = _has(events, "_pt", "_p") & ~launches & ~enqueues, _has(events, "_ct", "_c") & ~dequeues
        self._made.add(nodes, made, _NUMBERED_CONTEXT, _stats(events, "_pt", "_p"))
        self._used.add(nodes, used, _NUMBERED_CONTEXT, _stats(events, "_ct", "_c"))

    def graph(self) -> HostGraph:
        """The graph of all threads added."""
        within, around, roots, levels, begins_ps, steps = map(np.concatenate, zip(*self._parts, strict=True))
        return HostGraph(
            size=self._count,
            within=within,
            around=around,
            roots=roots,
            levels=levels,
            begins_ps=begins_ps,
            steps=steps,
            made=self._made,
            used=self._used,
        )


def _nested(events: Events) -> tuple[Ints, Ints]:
    """Events directly within others, and these others; asynchronous ones hold none and are in none."""
    nested = np.flatnonzero(_stat(events, _ASYNC) == 0)
    begin_ps, duration_ps = events.begin_ps[nested], events.duration_ps[nested]
    if (order := timeline_order(begin_ps, duration_ps)) is not None:
        nested, begin_ps, duration_ps = nested[order], begin_ps[order], duration_ps[order]
    above = parents(begin_ps + duration_ps)
    within = np.flatnonzero(above >= 0)
    return nested[within], nested[above[within]]


def _merged(steps: Events, rows: Ints, groups: Ints) -> tuple[Events, Ints]:
    """Neighbouring markers of one number as one, on the host's clock and the device's; XProf: MergeHostSteps."""
    first = first_of_equal(groups)
    begin_ps, duration_ps = _merged_spans(steps.begin_ps[rows], steps.end_ps[rows], first)
    own_begin_ps, own_duration_ps = steps.device_span_ps()
    own_ends_ps = (own_begin_ps + own_duration_ps)[rows]
    stats = {}
    for name, values in zip(STEP_STATS, _merged_spans(own_begin_ps[rows], own_ends_ps, first), strict=True):
        stats[name] = StatColumn.of(values)
    merged = Events(metadata_id=steps.metadata_id[rows][first], begin_ps=begin_ps, duration_ps=duration_ps, stats=stats)
    return merged, groups[first]


def _merged_spans(begin_ps: Ints, end_ps: Ints, first: Ints) -> tuple[Ints, Ints]:
    """Begins and durations of runs of intervals that start at the indices `first`."""
    begins_ps = begin_ps[first]
    ends_ps = np.maximum.reduceat(end_ps, first) if len(first) else begins_ps
    return begins_ps, ends_ps - begins_ps
