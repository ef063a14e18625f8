"""The ops of a host by name: what their metadata says, and what they did in the window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np
from google.protobuf.message import DecodeError
from msgspec import Struct, field

from tpumon.proto.xplane_pb2 import MemoryAccessBreakdown
from tpumon.untrusted_text import one_line
from tpumon.xspace.columns.columns import PS_PER_S
from tpumon.xspace.ops.op_kinds import ABSURD, NAME_LENGTH, category_name
from tpumon.xspace.ops.op_tables import OpTable, merge_tables
from tpumon.xspace.planes.plane import Plane, Value, named, parsed_metadata

_PATH, _HLO = 400, 2000  # characters
MOST_CONTENTS = 64  # instructions of a fusion
_STATS = (
    "hlo_category",
    "program_id",
    "tf_op",
    "source",
    "deduplicated_name",
    "bytes_accessed",
    "memory_access_breakdown",
)
_WRITE = 2  # operation of memory_access_breakdown
_HBM, _CMEM, _VMEM = 1, 2, 3  # memory spaces there; XProf: MemorySpace, PerformanceInfo


class Traffic(Struct, frozen=True, kw_only=True, eq=False):
    """Bytes moved, by memory; None where the trace does not say."""

    hbm: float | None = None
    cmem_read: float | None = None
    cmem_write: float | None = None
    vmem_read: float | None = None
    vmem_write: float | None = None


class Op(Struct, frozen=True, kw_only=True, eq=False):
    """One op of a program, on all cores of a host together.

    Attributes:
        program_id: of the program it is part of.
        name: in the program.
        category: of XLA, such as "convolution fusion".
        expression: its HLO text, shortened.
        provenance: the framework's path of it (`tf_op`); "" where the trace does not say.
        source: file and line; "" where the trace does not say.
        group: the name that it shares with its duplicates.
        contents: names of the instructions that it is made of, where the trace says.
        shown: whether XProf's op profile shows it.
        occurrences: how often it ran.
        time_s: durations, ops within counted in.
        self_time_s: durations without the ops within.
        self_time_s2: the squares of these, added up.
        normalized_s: durations at the chip's nominal clock.
        flops: as executed.
        model_flops: as the model needs them.
        bytes_accessed: in all memories; None where the trace does not say.
        traffic: the same by memory.
    """

    program_id: int
    name: str
    category: str
    expression: str
    provenance: str
    source: str
    group: str
    contents: tuple[str, ...]
    shown: bool
    occurrences: float
    time_s: float
    self_time_s: float
    self_time_s2: float
    normalized_s: float
    flops: float
    model_flops: float
    bytes_accessed: float | None
    traffic: Traffic

    @property
    def is_leaf(self) -> bool:
        """Whether no other op ran in it: only such ops' FLOPs and bytes are added up. XProf: ChildrenTimePs."""
        return self.time_s == self.self_time_s


def read_ops(planes: Sequence[Plane], tables: Sequence[OpTable]) -> tuple[Op, ...]:
    """The ops of a host, the longest first.

    Args:
        planes: of its cores.
        tables: what the ops of each core did.

    Raises:
        SourceError: `malformed`.
    """
    if not tables:
        return ()
    table = merge_tables(tables)
    found: dict[int, _Words] = {}
    for plane, own in zip(planes, tables, strict=True):
        wanted = plane.numbers_of(_STATS)
        content = cache(partial(_content, plane))  # any number of ops may hold the same one
        for key, number in zip(own.key.tolist(), own.number.tolist(), strict=True):
            if key not in found:
                found[key] = _words(plane, number, wanted, content)
    order = np.lexsort((table.key, -table.self_ps)).tolist()
    return tuple(_op(found[int(table.key[row])], table, row) for row in order)


class _Words(Struct, frozen=True, kw_only=True, eq=False):
    """What an op's metadata says; bytes are of one occurrence."""

    program_id: int
    name: str
    category: str
    expression: str
    provenance: str
    source: str
    group: str
    contents: tuple[str, ...]
    bytes_accessed: int | None
    traffic: Traffic = field(default_factory=Traffic)


def _words(plane: Plane, number: int, wanted: Mapping[int, str], content: Callable[[int], str]) -> _Words:
    metadata = plane.event_metadata(number)
    stats = named(metadata.stats, plane.stat_names, wanted)
    name = one_line(metadata.display_name or metadata.name, limit=NAME_LENGTH)
    moved = stats.get("bytes_accessed")
    return _Words(
        program_id=value if isinstance(value := stats.get("program_id"), int) else 0,
        name=name,
        category=category_name(stats.get("hlo_category")),
        expression=one_line(metadata.name, limit=_HLO),
        provenance=_text(stats.get("tf_op"), _PATH).rstrip(":"),
        source=_text(stats.get("source"), _PATH),
        group=_text(stats.get("deduplicated_name"), NAME_LENGTH) or name,
        contents=tuple(map(content, metadata.child_id[:MOST_CONTENTS])),
        bytes_accessed=moved if isinstance(moved, int) and 0 <= moved < ABSURD else None,
        traffic=_traffic(stats.get("memory_access_breakdown")),
    )


def _content(plane: Plane, number: int) -> str:
    raw = plane.metadata([number])
    metadata = parsed_metadata(*raw)
    return one_line(metadata.display_name or metadata.name, limit=NAME_LENGTH)


def _text(value: Value | None, limit: int) -> str:
    return one_line(value, limit=limit) if isinstance(value, str) else ""


def _traffic(breakdown: Value | None) -> Traffic:
    if not isinstance(breakdown, bytes):
        return Traffic()
    message = MemoryAccessBreakdown()
    try:
        message.ParseFromString(breakdown)
    except DecodeError:
        return Traffic()
    sums: dict[tuple[int, bool], int] = {}
    for access in message.accesses:
        if 0 <= access.bytes_accessed < ABSURD:
            place = (access.memory_space, access.operation == _WRITE)
            sums[place] = sums.get(place, 0) + access.bytes_accessed
    return Traffic(
        hbm=sums.get((_HBM, False), 0) + sums.get((_HBM, True), 0),
        cmem_read=sums.get((_CMEM, False), 0),
        cmem_write=sums.get((_CMEM, True), 0),
        vmem_read=sums.get((_VMEM, False), 0),
        vmem_write=sums.get((_VMEM, True), 0),
    )


def _op(words: _Words, table: OpTable, row: int) -> Op:
    count = float(table.occurrences[row])

    def times(amount: float | None) -> float | None:
        return None if amount is None else amount * count

    traffic = words.traffic
    return Op(
        program_id=words.program_id,
        name=words.name,
        category=words.category,
        expression=words.expression,
        provenance=words.provenance,
        source=words.source,
        group=words.group,
        contents=words.contents,
        shown=bool(table.shown[row]),
        occurrences=count,
        time_s=float(table.time_ps[row]) / PS_PER_S,
        self_time_s=float(table.self_ps[row]) / PS_PER_S,
        self_time_s2=float(table.self_ps2[row]) / PS_PER_S**2,
        normalized_s=float(table.normalized_ps[row]) / PS_PER_S,
        flops=float(table.flops[row]),
        model_flops=float(table.model_flops[row]),
        bytes_accessed=times(words.bytes_accessed),
        traffic=Traffic(
            # As the figures count it: only where the trace says so, and what no chip moves left out.
            hbm=float(table.hbm_bytes[row]) if table.has_bytes[row] else None,
            cmem_read=times(traffic.cmem_read),
            cmem_write=times(traffic.cmem_write),
            vmem_read=times(traffic.vmem_read),
            vmem_write=times(traffic.vmem_write),
        ),
    )
