"""Which step marker of which core is the same step: as the host started them, else by counting.

XProf follows a step from the host's annotation over nested events and over contexts (an event that produces what
another one consumes) to the programs on the device, and numbers what it reaches. Markers that no annotation leads to
do not count then; where none is reached at all, the first marker of every core is the same step, and so on.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from tpumon.errors import SourceError
from tpumon.xspace.columns.columns import Ints, StatColumn
from tpumon.xspace.columns.intervals import parents
from tpumon.xspace.columns.timeline import Events
from tpumon.xspace.planes.core import STEP_STATS, CoreLines
from tpumon.xspace.planes.plane import Plane

CONSUMER_STATS = ("_ct", "_c", "run_id", "queue_id", "core_type")
"""Stats of markers and modules that lead to the host; XProf: GroupingEventStats, TpuModuleLineMutator."""

_ROOT, _ASYNC = "_r", "_a"
_LAUNCH_STATS = ("device_ordinal", "queue_id", "run_id")
_STREAM_STATS = ("request_id", "queue_addr")
_HOST_STATS = (_ROOT, _ASYNC, "_pt", "_p", "_ct", "_c", "core_type", *_LAUNCH_STATS, *_STREAM_STATS)

_RUN_ID_MASK = (1 << 27) - 1  # the device knows so many bits of a run's number
_LAUNCH = "DoEnqueueProgram"
_ENQUEUE = "EnqueueRequestLocked"
_DEQUEUE = ("RunProgramRequest", "HostCallbackRequest", "TransferH2DRequest", "TransferD2HRequest")
_ROOT_NAMES = {"TraceContext": 1, "ProcessBatch": 2, "BatchingSessionRun": 1}  # roots that do not say that they are
_MOST_LINKS = 64  # a context with more on both sides says nothing
_MOST_LEVELS = 64  # of roots; profilers use three

Context = tuple[object, ...]


@dataclass(slots=True)
class _Graph:
    """Events of the host that may lead somewhere; a node is an index.

    Attributes:
        roots: level and start of each root.
        children: nodes directly within a node.
        produces: contexts of a node.
        producers: nodes of a context.
        consumers: nodes of a context.
    """

    roots: dict[int, tuple[int, int]] = field(default_factory=dict)
    children: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    produces: dict[int, list[Context]] = field(default_factory=lambda: defaultdict(list))
    producers: dict[Context, list[int]] = field(default_factory=lambda: defaultdict(list))
    consumers: dict[Context, list[int]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0

    def add_line(self, events: Events, names: Mapping[int, str], named: Sequence[int]) -> None:
        """Adds the events of one thread that carry any of the stats, or are roots by name: `named` are their ids."""
        rows = [column.rows for column in events.stats.values()]
        told = np.unique(np.concatenate([*rows, np.flatnonzero(np.isin(events.metadata_id, named))]))
        if not len(told):
            return
        values = {
            name: dict(zip(c.rows.tolist(), c.values[c.rows].tolist(), strict=True)) for name, c in events.stats.items()
        }
        is_async = np.array([bool(values.get(_ASYNC, {}).get(row)) for row in told.tolist()], dtype=np.bool_)
        nested = told[~is_async]
        order = np.lexsort((-events.duration_ps[nested], events.begin_ps[nested]))
        nested = nested[order]
        first = self.count
        node_of = {row: first + i for i, row in enumerate(told.tolist())}
        self.count += len(told)
        for row, above in zip(nested.tolist(), parents(events.end_ps[nested]).tolist(), strict=True):
            if above >= 0:
                self.children[node_of[int(nested[above])]].append(node_of[row])
        for row, node in node_of.items():
            stats = {name: column[row] for name, column in values.items() if row in column}
            name = names.get(int(events.metadata_id[row]), "")
            level = stats.get(_ROOT, _ROOT_NAMES.get(name))
            if level is not None:
                self.roots[node] = (level, int(events.begin_ps[row]))
            self._link(node, name, stats)

    def _link(self, node: int, name: str, stats: Mapping[str, int]) -> None:
        made, used = _pair(stats, "_pt", "_p"), _pair(stats, "_ct", "_c")
        if name == _LAUNCH and all(stat in stats for stat in _LAUNCH_STATS):
            run_id = stats["run_id"] & _RUN_ID_MASK
            made = ("launch", stats["device_ordinal"], stats["queue_id"], run_id, stats.get("core_type", 0))
        if all(stat in stats for stat in _STREAM_STATS):
            stream = ("stream", stats["request_id"], stats["queue_addr"])
            made = stream if name == _ENQUEUE else made
            used = stream if name in _DEQUEUE else used
        if made is not None:
            self.produces[node].append(made)
            self.producers[made].append(node)
        if used is not None:
            self.consumers[used].append(node)

    def _linked(self, context: Context, extra_consumers: int) -> bool:
        consumers = len(self.consumers.get(context, ())) + extra_consumers
        return len(self.producers.get(context, ())) < _MOST_LINKS or consumers < _MOST_LINKS

    def groups(self, devices: Mapping[Context, Sequence[tuple[int, int]]]) -> dict[tuple[int, int], int]:
        """The number of each marker on a device that a root leads to.

        Args:
            devices: by context, the markers that consume it: position of the core and row of the marker.

        Raises:
            SourceError: `malformed`.
        """
        number_of: dict[int, int] = {}
        followed: set[Context] = set()
        reached: dict[tuple[int, int], int] = {}
        number = 0
        inner = self._inner_roots()
        for node in sorted(self.roots, key=lambda node: (-self.roots[node][0], self.roots[node][1])):
            if node in number_of or node in inner:
                continue
            waiting = deque([node])
            while waiting:
                here = waiting.popleft()
                if here in number_of:
                    continue
                number_of[here] = number
                waiting.extend(self.children.get(here, ()))
                for context in self.produces.get(here, ()):
                    if context in followed:
                        continue  # what it leads to has a number
                    followed.add(context)
                    markers = devices.get(context, ())
                    if self._linked(context, len(markers)):
                        waiting.extend(self.consumers.get(context, ()))
                        for marker in markers:
                            reached.setdefault(marker, number)
            number += 1
        return reached

    def _inner_roots(self) -> set[int]:
        """The roots that lie below another root of the same level.

        All roots of a level send their own name down. A node or context passes the first two that it gets on: one of
        them at least is another's. So each is visited twice at most, however deep the roots are nested.
        """
        inner: set[int] = set()
        by_level: dict[int, list[int]] = defaultdict(list)
        for node, (level, _) in self.roots.items():
            by_level[level].append(node)
        if len(by_level) > _MOST_LEVELS:
            raise SourceError("malformed", f"the trace is broken: its roots have {len(by_level)} levels")
        for roots in by_level.values():
            names: dict[object, tuple[int, ...]] = defaultdict(tuple)
            waiting = deque((below, root) for root in roots for below in self._below(root))
            while waiting:
                here, root = waiting.popleft()
                if root in names[here] or len(names[here]) == 2:
                    continue
                names[here] += (root,)
                waiting.extend((below, root) for below in self._below(here))
            inner.update(root for root in roots if any(name != root for name in names[root]))
        return inner

    def _below(self, here: object) -> Iterator[object]:
        """What lies directly below a node: nodes within and contexts; below a context: nodes."""
        if isinstance(here, int):
            yield from self.children.get(here, ())
            yield from (context for context in self.produces.get(here, ()) if self._linked(context, 0))
        else:
            yield from self.consumers.get(cast("Context", here), ())


def _pair(stats: Mapping[str, int], kind: str, number: str) -> Context | None:
    return ("told", stats[kind], stats[number]) if kind in stats and number in stats else None


def number_markers(host: Plane | None, cores: Sequence[CoreLines]) -> list[tuple[Events, Ints]]:
    """The markers of every core, numbered so that the same step has the same number; those that do not count are out.

    XProf: GroupTpuEventsOSS, CreateEventGroups, MergeHostSteps.

    Args:
        host: the plane of the host's threads.
        cores: whose markers to number.

    Raises:
        SourceError: `malformed`.
    """
    reached = _reached(host, cores)
    if not reached:
        return [(core.steps, np.arange(len(core.steps))) for core in cores]
    found = []
    for i, core in enumerate(cores):
        rows = [row for row in range(len(core.steps)) if (i, row) in reached]
        groups = np.array([reached[i, row] for row in rows], dtype=np.int64)
        found.append(_merged(core.steps, np.array(rows, dtype=np.int64), groups))
    return found


def _reached(host: Plane | None, cores: Sequence[CoreLines]) -> dict[tuple[int, int], int]:
    if host is None or not any(len(core.steps) for core in cores):
        return {}
    names = {number: host.event_name(number) for number in host.outline.event_metadata}
    if _ROOT not in host.stat_names.values() and not _ROOT_NAMES.keys() & set(names.values()):
        return {}
    devices: dict[Context, list[tuple[int, int]]] = defaultdict(list)
    for i, core in enumerate(cores):
        for context, row in _consumed(core):
            devices[context].append((i, row))
    if not devices:
        return {}
    graph = _Graph()
    named = [number for number, name in names.items() if name in _ROOT_NAMES]
    for line in host.lines():
        graph.add_line(host.read([line], _HOST_STATS), names, named)
    return graph.groups(devices)


def _consumed(core: CoreLines) -> Iterator[tuple[Context, int]]:
    """The contexts that each marker consumes, itself or by a module within it."""
    steps, modules = core.steps, core.modules
    inside = np.searchsorted(np.maximum.accumulate(steps.end_ps), modules.begin_ps, side="right")
    for events, marker in ((steps, np.arange(len(steps))), (modules, inside)):
        values = {
            name: dict(zip(c.rows.tolist(), c.values[c.rows].tolist(), strict=True)) for name, c in events.stats.items()
        }
        begins, ends = events.begin_ps.tolist(), events.end_ps.tolist()
        for row, step in enumerate(marker.tolist()):
            if step >= len(steps) or steps.begin_ps[step] > begins[row] or steps.end_ps[step] < ends[row]:
                continue
            stats = {name: column[row] for name, column in values.items() if row in column}
            context = _pair(stats, "_ct", "_c")
            if events is modules and "run_id" in stats and "queue_id" in stats:
                context = (
                    "launch",
                    core.plane.tensor_core or 0,
                    stats["queue_id"],
                    stats["run_id"],
                    stats.get("core_type", 0),
                )
            if context is not None:
                yield context, step


def _merged(steps: Events, rows: Ints, groups: Ints) -> tuple[Events, Ints]:
    """Neighbouring markers of one number as one, on the host's clock and the device's; XProf: MergeHostSteps."""
    first = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]])) if len(groups) else groups
    begin_ps, duration_ps = _merged_spans(steps.begin_ps[rows], steps.end_ps[rows], first)
    own_begin_ps, own_duration_ps = steps.device_span_ps()
    own_ends_ps = (own_begin_ps + own_duration_ps)[rows]
    stats = {}
    for name, values in zip(STEP_STATS, _merged_spans(own_begin_ps[rows], own_ends_ps, first), strict=True):
        stats[name] = StatColumn(values.view(np.uint64))
    merged = Events(metadata_id=steps.metadata_id[rows][first], begin_ps=begin_ps, duration_ps=duration_ps, stats=stats)
    return merged, groups[first]


def _merged_spans(begin_ps: Ints, end_ps: Ints, first: Ints) -> tuple[Ints, Ints]:
    """Begins and durations of runs of intervals that start at the indices `first`."""
    begins_ps = begin_ps[first]
    ends_ps = np.maximum.reduceat(end_ps, first) if len(first) else begins_ps
    return begins_ps, ends_ps - begins_ps
