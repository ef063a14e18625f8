"""What kind of op an op is: read from its metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum

from google.protobuf.message import DecodeError
from msgspec import Struct, field

from tpumon.proto.xplane_pb2 import MemoryAccessBreakdown, XEventMetadata
from tpumon.untrusted_text import one_line
from tpumon.xspace.catalogue.shapes import paddings
from tpumon.xspace.catalogue.time_kinds import TimeKind, time_kind
from tpumon.xspace.planes.plane import Plane, Value, named, parsed_metadata, told

_CUSTOM_CALL = "custom-call"
_MATRIX_CATEGORIES = frozenset(
    {
        _CUSTOM_CALL,
        "convolution",
        "convolution base-dilated",
        "convolution window-dilated",
        "convolution fusion",
        "output fusion",
        "custom fusion",
        "megacore fusion",
        "dot",
    }
)
"""Categories whose ops use the matrix units, or may: what a custom call does is its own business."""
_NOT_LAID_OUT = frozenset({_CUSTOM_CALL, "megacore fusion"})
"""Whose shapes say nothing of the matrix units' work: a kernel pads as it likes, a megacore fusion holds ops."""
_MATRIX_CODE = re.compile(r"\s(?:convolution|dot|ragged-dot|custom-call)\(|kind=kOutput\b")
_DEEPEST = 4  # fusions within fusions
NAME_LENGTH = 200  # characters that are kept of an op's name, and of its category's
ABSURD = 1 << 60  # FLOPs or bytes of one op: no chip does that in a day, so the number is a mistake
_HBM, _MOVES = 1, frozenset({1, 2})  # memory space, and reading and writing, of memory_access_breakdown

METADATA_STATS = frozenset(
    {"hlo_category", "program_id", "symbol_id", "flops", "model_flops", "memory_access_breakdown"}
)
"""Stats of an op's metadata that its kind depends on."""


class Category(IntEnum):
    """What kind of time an op's time is; XProf: xla_op_utils.h, profile_time_breakdown.h."""

    OTHER = 0
    HIGH_FLOPS = 1
    INFEED = 2
    OUTFEED = 3
    HOST_TRANSFER = 4
    ALL_REDUCE = 5
    SEND_RECV = 6
    SPARSE_INFEED = 7
    SPARSE_INFEED_WAIT = 8
    SPARSE_OUTFEED = 9
    MEGACORE_FUSION = 10
    ASYNC_DONE = 11
    ASYNC_WAIT = 12


_CATEGORIES = {
    "convolution": Category.HIGH_FLOPS,
    "convolution base-dilated": Category.HIGH_FLOPS,
    "convolution window-dilated": Category.HIGH_FLOPS,
    "convolution fusion": Category.HIGH_FLOPS,
    "output fusion": Category.HIGH_FLOPS,
    "infeed": Category.INFEED,
    "outfeed": Category.OUTFEED,
    "host send": Category.HOST_TRANSFER,
    "host send-done": Category.HOST_TRANSFER,
    "host recv": Category.HOST_TRANSFER,
    "host recv-done": Category.HOST_TRANSFER,
    "all-reduce": Category.ALL_REDUCE,
    "all-reduce fusion": Category.ALL_REDUCE,
    "all-to-all": Category.ALL_REDUCE,
    "send": Category.SEND_RECV,
    "send-done": Category.SEND_RECV,
    "recv": Category.SEND_RECV,
    "recv-done": Category.SEND_RECV,
    "sparsecorev0 infeed": Category.SPARSE_INFEED,
    "sparsecorev0 infeed wait": Category.SPARSE_INFEED_WAIT,
    "sparsecorev0 outfeed": Category.SPARSE_OUTFEED,
    "megacore fusion": Category.MEGACORE_FUSION,
    "async-done": Category.ASYNC_DONE,
}
_WAITS = "-done"  # copy-done, slice-done, all-gather-done: the core waits until data that is on its way has arrived

OFF_DUTY = (
    Category.INFEED,
    Category.OUTFEED,
    Category.HOST_TRANSFER,
    Category.ASYNC_DONE,
    Category.MEGACORE_FUSION,
)
"""What does not count towards the duty cycle; XProf: IsOffDutyOp."""

INFEED = (Category.INFEED, Category.SPARSE_INFEED)
"""What makes a program one that uses infeed; XProf: IsHostOrSparseCoreV0Infeed."""


class OpKind(Struct, frozen=True, kw_only=True, eq=False):
    """What all events of one op have in common: its metadata.

    Attributes:
        key: program and name, by which XProf takes ops of several cores to be the same.
        shown: whether XProf's op profile shows it.
        category: see Category.
        category_name: what XLA calls it, see `category_name`.
        matrix: whether it uses the matrix units, or is a fusion that holds an op that does.
        counted: whether XProf adds it up at all: it has a program and a symbol.
        flops: of one occurrence.
        model_flops: of one occurrence.
        hbm_bytes: read and written by one occurrence; None where the trace does not say.
        custom: a custom call, whose FLOPs come with its events.
        time_kind: see TimeKind.
        paddings: share of its work on the matrix units that is padding, for each of WIDTHS; None where the trace does
            not say, or it is no matrix operation that the compiler laid out.
        stands_alone: whether its metadata says all by itself: no ops within, no reference to a name of the plane's.
    """

    key: tuple[int, str]
    shown: bool
    category: Category
    category_name: str
    counted: bool
    matrix: bool
    flops: int
    model_flops: int
    hbm_bytes: int | None
    custom: bool
    time_kind: TimeKind
    paddings: tuple[float, float] | None
    stands_alone: bool


class Known(Struct, frozen=True, kw_only=True, eq=False):
    """What has been read for a plane's ops, so that nothing is read twice; goes on growing.

    Attributes:
        matrix: whether an op within ops uses the matrix units, by metadata id and depth: so that lists of ops within
            ops cost their length only.
        categories: what follows from hlo_category alone.
        hbm_bytes: by what memory_access_breakdown says; the layers of a model say the same.
    """

    matrix: dict[tuple[int, int], bool] = field(default_factory=dict)
    categories: dict[Value | None, tuple[Category, str]] = field(default_factory=dict)
    hbm_bytes: dict[Value | None, int | None] = field(default_factory=dict)


def op_kind(plane: Plane, raw: bytes, wanted: Mapping[int, str], known: Known) -> OpKind:
    """Reads the metadata of an op; XProf: SetOpMetadataFromHloEventMetadata, GetOpKeyFromXEvent.

    Args:
        plane: where it is from.
        raw: the metadata, serialized.
        wanted: the plane's ids of METADATA_STATS.
        known: of the plane's other ops.

    Raises:
        SourceError: `malformed`.
    """
    metadata = parsed_metadata(raw)
    stats, refers = told(metadata.stats, plane.stat_names, wanted)
    category, symbol = stats.get("hlo_category"), stats.get("symbol_id")
    if category not in known.categories:
        known.categories[category] = _category(category), category_name(category)
    breakdown = stats.get("memory_access_breakdown")
    if breakdown not in known.hbm_bytes:
        known.hbm_bytes[breakdown] = _hbm_bytes(breakdown)
    text = metadata.name
    name = metadata.display_name or text
    matrix = _uses_matrix_units(plane, metadata, category, _DEEPEST, known)
    flops = _whole(stats.get("flops"))
    return OpKind(
        key=(_whole(stats.get("program_id")), name),
        shown=not name.startswith("region"),
        category=known.categories[category][0],
        category_name=known.categories[category][1],
        counted="program_id" in stats and isinstance(symbol, int) and symbol != 0,
        matrix=matrix,
        flops=flops,
        model_flops=_whole(stats.get("model_flops")),
        hbm_bytes=known.hbm_bytes[breakdown],
        custom=category == _CUSTOM_CALL,
        time_kind=time_kind(category, name, text),
        paddings=paddings(text, flops) if matrix and category not in _NOT_LAID_OUT else None,
        stands_alone=not metadata.child_id and not refers,
    )


def _uses_matrix_units(
    plane: Plane, metadata: XEventMetadata, category: Value | None, depth: int, known: Known
) -> bool:
    """Whether an op is a convolution, a dot product or a custom call, or a fusion that holds one.

    What a fusion holds is in its category, in its HLO text, or in the ops that its metadata lists as within it.
    """
    if category in _MATRIX_CATEGORIES or _MATRIX_CODE.search(metadata.name):
        return True
    # A loop holds its body, whose ops have events of their own.
    if not depth or not isinstance(category, str) or not category.endswith("fusion"):
        return False
    return any(_child_does(plane, number, depth - 1, known) for number in metadata.child_id)


def _child_does(plane: Plane, number: int, depth: int, known: Known) -> bool:
    if (number, depth) not in known.matrix:
        child = plane.event_metadata(number)
        category = named(child.stats, plane.stat_names, plane.numbers_of(("hlo_category",))).get("hlo_category")
        known.matrix[number, depth] = _uses_matrix_units(plane, child, category, depth, known)
    return known.matrix[number, depth]


def category_name(value: Value | None) -> str:
    """What XLA calls an op's category, made safe to show, such as "convolution fusion"."""
    return (one_line(value, limit=NAME_LENGTH) if isinstance(value, str) else "") or "unknown"


def _category(name: Value | None) -> Category:
    if not isinstance(name, str):
        return Category.OTHER
    known = _CATEGORIES.get(name)
    if known is None:
        return Category.ASYNC_WAIT if name.endswith(_WAITS) else Category.OTHER
    return known


def _whole(value: Value | None) -> int:
    return value if isinstance(value, int) and 0 < value < ABSURD else 0


def _hbm_bytes(breakdown: Value | None) -> int | None:
    """Bytes moved to and from HBM; None for an op without a breakdown, an empty one is 0."""
    if not isinstance(breakdown, bytes):
        return None
    message = MemoryAccessBreakdown()
    try:
        message.ParseFromString(breakdown)
    except DecodeError:
        return None
    moved = 0
    for access in message.accesses:
        if access.memory_space == _HBM and access.operation in _MOVES:
            moved += _whole(access.bytes_accessed)
    return moved
