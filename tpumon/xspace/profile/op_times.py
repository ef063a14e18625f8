"""Ops of a host by name: what their metadata says, and what they did in the window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
from google.protobuf.message import DecodeError
from msgspec import Struct

from tpumon.proto.xplane_pb2 import MemoryAccessBreakdown, XEventMetadata
from tpumon.untrusted_text import one_line
from tpumon.xspace.columns.columns import PS_PER_S, Ints
from tpumon.xspace.ops.op_kinds import ABSURD, NAME_LENGTH, category_name
from tpumon.xspace.ops.op_tables import OpTable
from tpumon.xspace.planes.plane import Plane, Value, named

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
_CMEM, _VMEM = 2, 3  # memory spaces there; XProf: MemorySpace, PerformanceInfo


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
        key: tells it apart, see OpTable.
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
        normalized_s: durations at the chip's nominal clock.
        flops: as executed.
        model_flops: as the model needs them.
        bytes_accessed: in all memories; None where the trace does not say.
        traffic: the same by memory.
    """

    key: int
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
    normalized_s: float
    flops: float
    model_flops: float
    bytes_accessed: float | None
    traffic: Traffic

    @property
    def is_leaf(self) -> bool:
        """True if no other op ran in it: only such ops' FLOPs and bytes are added up. XProf: ChildrenTimePs."""
        return self.time_s == self.self_time_s


def read_ops(planes: Sequence[Plane], tables: Sequence[OpTable], table: OpTable, rows: Ints) -> tuple[Op, ...]:
    """Some of the ops of a host, in the order of the rows.

    Args:
        planes: of its cores.
        tables: what the ops of each core did.
        table: the same of all cores together.
        rows: of it: the ops.

    Raises:
        SourceError: `malformed`.
    """
    keys, core_of = table.key[rows], np.zeros(len(rows), dtype=np.int64)
    for i in reversed(range(len(tables))):  # the first core that ran an op says what it is
        core_of[np.isin(keys, tables[i].key)] = i
    contents = [cache(partial(_content, plane)) for plane in planes]  # any number of ops may hold the same one
    return tuple(
        _op(planes[core], contents[core], table, row) for core, row in zip(core_of.tolist(), rows.tolist(), strict=True)
    )


def _op(plane: Plane, content: Callable[[int], str], table: OpTable, row: int) -> Op:
    metadata = plane.event_metadata(int(table.number[row]))
    stats = named(metadata.stats, plane.stat_names, plane.numbers_of(_STATS))
    name = _op_name(metadata)
    program_id, moved = stats.get("program_id"), stats.get("bytes_accessed")
    count = float(table.occurrences[row])
    return Op(
        key=int(table.key[row]),
        program_id=program_id if isinstance(program_id, int) else 0,
        name=name,
        category=category_name(stats.get("hlo_category")),
        expression=one_line(metadata.name, limit=_HLO),
        provenance=_stat_text(stats.get("tf_op"), _PATH).rstrip(":"),
        source=_stat_text(stats.get("source"), _PATH),
        group=_stat_text(stats.get("deduplicated_name"), NAME_LENGTH) or name,
        contents=tuple(map(content, metadata.child_id[:MOST_CONTENTS])),
        shown=bool(table.shown[row]),
        occurrences=count,
        time_s=float(table.time_ps[row]) / PS_PER_S,
        self_time_s=float(table.self_ps[row]) / PS_PER_S,
        normalized_s=float(table.normalized_ps[row]) / PS_PER_S,
        flops=float(table.flops[row]),
        model_flops=float(table.model_flops[row]),
        bytes_accessed=moved * count if isinstance(moved, int) and 0 <= moved < ABSURD else None,
        traffic=_traffic(
            stats.get("memory_access_breakdown"),
            count,
            # As the figures count it: only where the trace says so, and what no chip moves left out.
            hbm=float(table.hbm_bytes[row]) if table.has_bytes[row] else None,
        ),
    )


def _content(plane: Plane, number: int) -> str:
    return _op_name(plane.event_metadata(number))


def _op_name(metadata: XEventMetadata) -> str:
    return one_line(metadata.display_name or metadata.name, limit=NAME_LENGTH)


def _stat_text(value: Value | None, limit: int) -> str:
    return one_line(value, limit=limit) if isinstance(value, str) else ""


def _traffic(breakdown: Value | None, count: float, hbm: float | None) -> Traffic:
    """Bytes that so many occurrences moved; those of HBM are known already."""
    if not isinstance(breakdown, bytes):
        return Traffic(hbm=hbm)
    try:
        message = MemoryAccessBreakdown.FromString(breakdown)
    except DecodeError:
        return Traffic(hbm=hbm)
    sums = Counter[tuple[int, bool]]()
    for access in message.accesses:
        if 0 <= access.bytes_accessed < ABSURD:
            sums[access.memory_space, access.operation == _WRITE] += access.bytes_accessed
    return Traffic(
        hbm=hbm,
        cmem_read=sums[_CMEM, False] * count,
        cmem_write=sums[_CMEM, True] * count,
        vmem_read=sums[_VMEM, False] * count,
        vmem_write=sums[_VMEM, True] * count,
    )
