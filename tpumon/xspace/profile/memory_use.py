"""Memory in use over the window, from the events of allocators on the host's threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from google.protobuf.message import DecodeError
from msgspec import Struct

from tpumon.model.documents import LARGEST
from tpumon.proto.xplane_pb2 import XEvent
from tpumon.untrusted_text import one_line
from tpumon.xspace.columns.columns import (
    LATEST_NS,
    LATEST_PS,
    PS_PER_NS,
    PS_PER_S,
    EventColumns,
    Floats,
    Ints,
    Mask,
    Packed,
)
from tpumon.xspace.columns.event_decoder import read_events
from tpumon.xspace.planes.plane import Plane

_ALLOCATION, _DEALLOCATION = "MemoryAllocation", "MemoryDeallocation"
_NUMBERS = (
    "index_on_host",
    "device_ordinal",
    "bytes_reserved",
    "bytes_allocated",
    "bytes_available",
    "fragmentation",
    "peak_bytes_in_use",
    "requested_bytes",
    "allocation_bytes",
    "addr",
)
_MOST_POINTS = 1000  # of the graph, as in XProf
_MOST_LIVE = 50  # rows of what was live at the peak
_MOST_MEMORIES = 128  # a host has 16 devices at most


class Live(Struct, frozen=True, kw_only=True, eq=False):
    """Allocations of one size and op that were live at the peak.

    Attributes:
        what: the op, and the shape, as far as the trace says; "stack" for the reserved part.
        size_bytes: of one.
        count: how many.
    """

    what: str
    size_bytes: int
    count: int


class MemoryUse(Struct, frozen=True, kw_only=True, eq=False):
    """One memory; `times_s`, `stack_bytes`, `heap_bytes` and `fragmentation` have one element per point of the graph.

    Attributes:
        memory: number of the device on its host, or name of the allocator.
        events: allocations and deallocations.
        capacity_bytes: of the memory, at the peak.
        peak_bytes: most in use in the window, stack and heap together.
        peak_at_s: when, since the first event of any memory.
        peak_stack_bytes, peak_heap_bytes: its parts.
        peak_fragmentation: then.
        lifetime_peak_bytes: most of the heap in use since the program started, as the allocator says.
        times_s: since the first event of any memory.
        stack_bytes: reserved for programs.
        heap_bytes: allocated.
        fragmentation: of the free memory, as the allocator says.
        live: what was live at the peak, largest first; what was allocated before the window is one row.
    """

    memory: str
    events: int
    capacity_bytes: int
    peak_bytes: int
    peak_at_s: float
    peak_stack_bytes: int
    peak_heap_bytes: int
    peak_fragmentation: float
    lifetime_peak_bytes: int
    times_s: tuple[float, ...]
    stack_bytes: tuple[int, ...]
    heap_bytes: tuple[int, ...]
    fragmentation: tuple[float, ...]
    live: tuple[Live, ...]


def read_memory(plane: Plane | None) -> tuple[MemoryUse, ...]:
    """The memories that a host's threads allocate, by number or name.

    Args:
        plane: /host:CPU; None where there is none.

    Raises:
        SourceError: `malformed`.
    """
    if plane is None:
        return ()
    kinds = {
        number: name
        for number in plane.metadata_by_id
        if (name := plane.event_name(number)) in {_ALLOCATION, _DEALLOCATION}
    }
    if not kinds:
        return ()
    parts: dict[str, list[_LineMemory]] = {}
    for line in plane.lines():
        start_ns = line.timestamp_ns - plane.base_ns
        start_ps = start_ns * PS_PER_NS if -LATEST_NS < start_ns < LATEST_NS else 0
        for packed in line.portions():
            columns = read_events(packed, tuple(plane.numbers_of(_NUMBERS)))
            rows = np.flatnonzero(np.isin(columns.metadata_id, list(kinds)))
            for memory, own in _by_memory(plane, columns, packed, rows):
                if memory in parts or len(parts) < _MOST_MEMORIES:
                    parts.setdefault(memory, []).append(_line_memory(plane, columns, packed, own, start_ps, kinds))
    first_ps = min((int(part.time_ps.min()) for own in parts.values() for part in own), default=0)
    return tuple(_use(plane, memory, parts[memory], first_ps) for memory in sorted(parts, key=_order))


def _order(memory: str) -> tuple[int, int, str]:
    return (0, int(memory), "") if memory.isascii() and memory.isdigit() else (1, 0, memory)


class _LineMemory(Struct, frozen=True, kw_only=True, eq=False):
    """Allocations of one memory on one line, in portions; arrays have one element per event.

    Attributes:
        time_ps: of the event.
        is_allocation: true of an allocation, false of a deallocation.
        numbers: by the name of the stat.
        fragmentation: of the free memory.
        packed: the events.
        rows: of them.
    """

    time_ps: Ints
    is_allocation: Mask
    numbers: Mapping[str, Ints]
    fragmentation: Floats
    packed: Packed
    rows: Ints


def _by_memory(plane: Plane, columns: EventColumns, packed: Packed, rows: Ints) -> Iterator[tuple[str, Ints]]:
    """The rows of each memory: by its number, otherwise by the name of its allocator."""
    left = rows
    for stat in ("index_on_host", "device_ordinal"):
        for number in plane.numbers_of((stat,)):
            column = columns.stats.get(number)
            if column is None or not len(left):
                continue
            numbered = left[column.present[left]]
            values = column.integers()[numbered]
            for value in np.unique(values)[:_MOST_MEMORIES].tolist():
                yield str(value), numbered[values == value]
            left = np.setdiff1d(left, numbered, assume_unique=True)
    names: dict[str, list[int]] = {}
    for row in left.tolist():
        names.setdefault(_stat_text(plane, packed, row, "allocator_name") or "unknown", []).append(row)
    for name, own in names.items():
        yield name, np.array(own, dtype=np.int64)


def _line_memory(
    plane: Plane, columns: EventColumns, packed: Packed, rows: Ints, start_ps: int, kinds: Mapping[int, str]
) -> _LineMemory:
    numbers = {name: np.zeros(len(rows), dtype=np.int64) for name in _NUMBERS}
    fragmentation = np.zeros(len(rows))
    for number, name in plane.numbers_of(_NUMBERS).items():
        column = columns.stats.get(number)
        if column is None:
            continue
        values = column.integers()[rows]
        numbers[name] = values if name == "addr" else np.where((values >= 0) & (values < LARGEST), values, 0)
        if name == "fragmentation":
            fragmentation = column.numbers()[rows]
    offset_ps, ids = columns.offset_ps[rows], columns.metadata_id[rows]
    return _LineMemory(
        time_ps=np.where((offset_ps >= 0) & (offset_ps < LATEST_PS), offset_ps, 0) + start_ps,
        is_allocation=np.isin(ids, [number for number, name in kinds.items() if name == _ALLOCATION]),
        numbers=numbers,
        fragmentation=np.where(np.isfinite(fragmentation), fragmentation, 0.0),
        packed=packed,
        rows=rows,
    )


def _use(plane: Plane, memory: str, parts: Sequence[_LineMemory], first_ps: int) -> MemoryUse:
    time_ps = np.concatenate([part.time_ps for part in parts])
    order = np.argsort(time_ps, kind="stable")
    numbers = {name: np.concatenate([part.numbers[name] for part in parts])[order] for name in _NUMBERS}
    fragmentation = np.concatenate([part.fragmentation for part in parts])[order]
    time_ps = time_ps[order]
    stack, heap = numbers["bytes_reserved"], numbers["bytes_allocated"]
    in_use = stack + heap
    peak = int(np.flatnonzero(in_use == in_use.max())[-1])
    points = _points(in_use)
    part_of = np.concatenate([np.full(len(part.rows), i) for i, part in enumerate(parts)])[order]
    row_of = np.concatenate([part.rows for part in parts])[order]
    is_allocation = np.concatenate([part.is_allocation for part in parts])[order]
    live = _live(numbers, is_allocation, peak)

    def what(event: int) -> str:
        packed, row = parts[int(part_of[event])].packed, int(row_of[event])
        words = [_stat_text(plane, packed, row, stat) for stat in ("tf_op", "shape", "tensor_shapes")]
        return " ".join(one_line(each) for each in words if each) or "allocated in the window"

    return MemoryUse(
        memory=one_line(memory),
        events=len(order),
        capacity_bytes=int(in_use[peak] + numbers["bytes_available"][peak]),
        peak_bytes=int(in_use[peak]),
        peak_at_s=float(time_ps[peak] - first_ps) / PS_PER_S,
        peak_stack_bytes=int(stack[peak]),
        peak_heap_bytes=int(heap[peak]),
        peak_fragmentation=float(fragmentation[peak]),
        lifetime_peak_bytes=int(numbers["peak_bytes_in_use"][-1]),
        times_s=tuple(((time_ps[points] - first_ps) / PS_PER_S).tolist()),
        stack_bytes=tuple(stack[points].tolist()),
        heap_bytes=tuple(heap[points].tolist()),
        fragmentation=tuple(fragmentation[points].tolist()),
        live=_rows(live, numbers["allocation_bytes"], int(stack[peak]), int(heap[peak]), what),
    )


def _points(in_use: Ints) -> Ints:
    """The events to draw: all, or of neighbouring ones that with most in use. XProf: SampleMemoryProfileTimeline."""
    count = len(in_use)
    if count <= _MOST_POINTS:
        return np.arange(count)
    edges = np.linspace(0, count, _MOST_POINTS + 1).astype(np.int64)
    return np.array([a + int(in_use[a:b].argmax()) for a, b in pairwise(edges.tolist())])


def _live(numbers: Mapping[str, Ints], is_allocation: Mask, peak: int) -> list[int]:
    """The allocations of the window that were live at the peak, as positions of their events."""
    live: dict[int, int] = {}
    for event, (address, allocates) in enumerate(
        zip(numbers["addr"][: peak + 1].tolist(), is_allocation[: peak + 1].tolist(), strict=True)
    ):
        if allocates:
            live[address] = event
        else:
            live.pop(address, None)
    return list(live.values())


def _rows(live: Sequence[int], sizes: Ints, stack: int, heap: int, what: Callable[[int], str]) -> tuple[Live, ...]:
    """The largest of what was live; equal ones as one row, what came before the window as one."""
    largest = sorted(live, key=lambda event: -int(sizes[event]))[: 4 * _MOST_LIVE]
    counts: dict[tuple[str, int], int] = {}
    for event in largest:
        key = (what(event), int(sizes[event]))
        counts[key] = counts.get(key, 0) + 1
    rows = [Live(what=words, size_bytes=size, count=count) for (words, size), count in counts.items()]
    known = sum(int(sizes[event]) for event in live)
    listed = sum(row.size_bytes * row.count for row in rows)
    for words, size in (
        ("stack of programs", stack),
        ("allocated before the window", heap - known),
        ("smaller ones, together", known - listed),
    ):
        if size > 0:
            rows.append(Live(what=words, size_bytes=size, count=1))
    return tuple(sorted(rows, key=lambda row: (-row.size_bytes * row.count, row.what))[:_MOST_LIVE])


def _stat_text(plane: Plane, packed: Packed, row: int, stat_name: str) -> str:
    """A stat of an event that is text; "" where it has none."""
    wanted = plane.numbers_of((stat_name,))
    if not wanted:
        return ""
    try:
        event = XEvent.FromString(packed.event(row))
    except DecodeError:
        return ""
    for stat in event.stats:
        if stat.metadata_id in wanted:
            kind = stat.WhichOneof("value")
            return plane.stat_names.get(stat.ref_value, "") if kind == "ref_value" else stat.str_value
    return ""
