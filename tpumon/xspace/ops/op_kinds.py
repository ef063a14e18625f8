"""Kinds of ops: what all occurrences of an op have in common, read from its metadata."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from enum import IntEnum

import numpy as np
from google.protobuf.message import DecodeError

from tpumon.proto.xplane_pb2 import MemoryAccessBreakdown, XEventMetadata
from tpumon.untrusted_text import one_line
from tpumon.xspace.planes.plane import Plane, Value, named, parsed_metadata

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

WIDTHS = (128, 256)
"""Rows and columns of the matrix units of TPUs: of chips up to v5, and from v6e on."""

_SUBLANES = 8  # rows that a vector register holds
_MOST_CHARS = 4000  # of the text: results come first
_ARRAY = re.compile(r"[a-z]\w*\[([\d,]{1,100})\](?:\{([\d,]{1,50}))?")
_OPCODE = re.compile(r"\s[a-z][\w-]*\(")
_LARGEST = 1 << 50  # elements; more is a mistake

METADATA_STATS = frozenset(
    {"hlo_category", "program_id", "symbol_id", "flops", "model_flops", "memory_access_breakdown"}
)
"""Stats of an op's metadata that its kind depends on."""


class Category(IntEnum):
    """Kinds of ops by XProf's step breakdown (xla_op_utils.h, profile_time_breakdown.h), and all collectives as one."""

    OTHER = 0
    HIGH_FLOPS = 1
    INFEED = 2
    OUTFEED = 3
    HOST_TRANSFER = 4
    COLLECTIVE = 5
    SPARSE_INFEED = 6
    SPARSE_INFEED_WAIT = 7
    SPARSE_OUTFEED = 8
    ASYNC_WAIT = 9


_HOST_TRANSFERS = ("host send", "host send-done", "host recv", "host recv-done")
_CATEGORIES = {
    "convolution": Category.HIGH_FLOPS,
    "convolution base-dilated": Category.HIGH_FLOPS,
    "convolution window-dilated": Category.HIGH_FLOPS,
    "convolution fusion": Category.HIGH_FLOPS,
    "output fusion": Category.HIGH_FLOPS,
    "infeed": Category.INFEED,
    "outfeed": Category.OUTFEED,
    **dict.fromkeys(_HOST_TRANSFERS, Category.HOST_TRANSFER),
    "sparsecorev0 infeed": Category.SPARSE_INFEED,
    "sparsecorev0 infeed wait": Category.SPARSE_INFEED_WAIT,
    "sparsecorev0 outfeed": Category.SPARSE_OUTFEED,
}
_WAITS = "-done"  # copy-done, slice-done, call-done: the core waits until data that is on its way has arrived

_OFF_DUTY = frozenset({"infeed", "outfeed", *_HOST_TRANSFERS, "async-done", "megacore fusion"})
"""What does not count towards the duty cycle; XProf: IsOffDutyOp."""

INFEED = (Category.INFEED, Category.SPARSE_INFEED)
"""What makes a program one that uses infeed; XProf: IsHostOrSparseCoreV0Infeed."""

NOT_OWN_WORK = (Category.COLLECTIVE, Category.INFEED)
"""Time in which a core waits for other cores, or may, and for input."""


class TimeKind(IntEnum):
    """Kinds of an op's own time; small letters are the keys of `Figures.op_time_ratios`."""

    COMPUTE = 0
    COLLECTIVE = 1
    INFEED = 2
    OUTFEED = 3
    HOST_TRANSFER = 4
    ASYNC_WAIT = 5
    DATA_SHUFFLE = 6
    SPARSECORE = 7


_WHOLE = {
    "infeed": TimeKind.INFEED,
    "outfeed": TimeKind.OUTFEED,
    # What a core does between the ops within one is waiting for the other core of its chip; XProf: IsCollective.
    "megacore fusion": TimeKind.COLLECTIVE,
    **dict.fromkeys(_HOST_TRANSFERS, TimeKind.HOST_TRANSFER),
    **dict.fromkeys(("send", "send-done", "recv", "recv-done"), TimeKind.COLLECTIVE),
    # XProf: IsDataShuffle, and what the compiler calls "data formatting" where it does not.
    **dict.fromkeys(
        (
            *("broadcast", "concatenate", "data formatting", "dynamic-slice", "dynamic-update-slice", "gather", "pad"),
            *("reverse", "scatter", "select", "select-and-scatter", "shuffle", "slice", "sort"),
            *("copy", "reshape", "transpose"),
        ),
        TimeKind.DATA_SHUFFLE,
    ),
}
_COLLECTIVE = re.compile(r"all-(?:reduce|gather|to-all)|reduce-scatter|collective")
_PARTNER = re.compile(r"(?:send|recv)\b")
_ASYNC = re.compile(r"async-\w+|.*-(?:start|update|done)")
_BETWEEN_SLICES = "xla_megascale_runtime"  # its host handles them, so that they are called transfers to and from it
_ON_SPARSE_CORE = re.compile(r"sparse_?core", re.IGNORECASE)


def time_kind(category: object, name: str, text: str) -> TimeKind:
    """The kind of an op's own time.

    An op that runs beside others (async-start, copy-done) is a collective if it is named after one; so is a transfer to
    or from the host on the way between slices. A wait whose HLO names the SparseCore is a wait for it.

    Args:
        category: its hlo_category, if the trace tells it.
        name: for example all-gather-done.3.
        text: its HLO.
    """
    if not isinstance(category, str):
        return TimeKind.COMPUTE
    if category in _HOST_TRANSFERS and _BETWEEN_SLICES in text:
        return TimeKind.COLLECTIVE
    if category in _WHOLE:
        return _WHOLE[category]
    if category.startswith("sparsecore"):
        return TimeKind.SPARSECORE
    if _COLLECTIVE.search(category):
        return TimeKind.COLLECTIVE
    if not _ASYNC.fullmatch(category):
        return TimeKind.COMPUTE
    if _COLLECTIVE.search(name) or _PARTNER.match(name):
        return TimeKind.COLLECTIVE
    if not category.endswith("-done"):
        return TimeKind.COMPUTE
    return TimeKind.SPARSECORE if _ON_SPARSE_CORE.search(text) else TimeKind.ASYNC_WAIT


KIND = np.dtype(
    [
        ("key", "<i8"),
        ("shown", "?"),
        ("category", "u1"),
        ("on_duty", "?"),
        ("category_key", "<i8"),
        ("counted", "?"),
        ("matrix", "?"),
        ("custom", "?"),
        ("flops", "<f8"),
        ("model_flops", "<f8"),
        ("has_bytes", "?"),
        ("hbm_bytes", "<f8"),
        ("time_kind", "u1"),
        ("padding_128", "<f8"),
        ("padding_256", "<f8"),
    ]
)
"""One kind of op, as a row of an array.

    key: tells ops apart by program and name, by which XProf takes ops of several cores to be the same.
    shown: whether XProf's op profile shows it.
    category: values of Category.
    on_duty: whether it counts towards the duty cycle.
    category_key: tells names of categories apart, see `category_name`.
    counted: whether XProf adds it up at all: it has a program and a symbol.
    matrix: whether it uses the matrix units, or is a fusion that holds an op that does.
    custom: whether it is a custom call, whose FLOPs come with its events.
    flops: of one occurrence, as executed.
    model_flops: of one occurrence, as the model needs them, where the trace says, else as executed.
    has_bytes: whether the trace says how many bytes it moves.
    hbm_bytes: read and written by one occurrence.
    time_kind: values of TimeKind.
    padding_128, padding_256: share of its work on matrix units of that width that is padding; -1 where the trace does
        not say, or it is no matrix operation that the compiler laid out.
"""


def op_kind(
    plane: Plane, raw: bytes, wanted: Mapping[int, str], matrix_ops: dict[tuple[int, int], bool]
) -> tuple[tuple[object, ...], bool]:
    """Reads the metadata of an op; XProf: SetOpMetadataFromHloEventMetadata, GetOpKeyFromXEvent.

    Args:
        plane: where it is from.
        raw: the metadata, serialized.
        wanted: the plane's ids of METADATA_STATS.
        matrix_ops: whether an op within ops uses the matrix units, by metadata id and depth; goes on growing, so that
            lists of ops within ops cost their length only.

    Returns:
        A row of KIND; whether the metadata says all by itself: no ops within, no reference to a name of the plane's.

    Raises:
        SourceError: `malformed`.
    """
    metadata = parsed_metadata(raw)
    stats = named(metadata.stats, plane.stat_names, wanted)
    refers = any(stat.WhichOneof("value") == "ref_value" for stat in metadata.stats if stat.metadata_id in wanted)
    category, symbol = stats.get("hlo_category"), stats.get("symbol_id")
    text = metadata.name
    name = metadata.display_name or text
    matrix = _uses_matrix_units(plane, metadata, category, _DEEPEST, matrix_ops)
    custom = category == _CUSTOM_CALL
    flops, hbm_bytes = _whole(stats.get("flops")), _hbm_bytes(stats.get("memory_access_breakdown"))
    kind = time_kind(category, name, text)
    padding = paddings(text, flops) if matrix and category not in _NOT_LAID_OUT else None
    row = (
        hash((_whole(stats.get("program_id")), name)),  # that two of 100,000 share it has a chance of 1 in 3 billion
        not name.startswith("region"),
        _category(category, kind),
        category not in _OFF_DUTY,
        hash(category_name(category)),
        "program_id" in stats and isinstance(symbol, int) and symbol != 0,
        matrix,
        custom,
        flops,
        _whole(stats.get("model_flops")) or (0 if custom else flops),
        hbm_bytes is not None,
        hbm_bytes or 0,
        kind,
        *(padding or (-1.0, -1.0)),
    )
    return row, not metadata.child_id and not refers


def _uses_matrix_units(
    plane: Plane, metadata: XEventMetadata, category: Value | None, depth: int, known: dict[tuple[int, int], bool]
) -> bool:
    """True for a convolution, a dot product or a custom call, or a fusion that holds one.

    What a fusion holds is in its category, in its HLO text, or in the ops that its metadata lists as within it.
    """
    if category in _MATRIX_CATEGORIES or _MATRIX_CODE.search(metadata.name):
        return True
    # A loop holds its body, whose ops have events of their own.
    if not depth or not isinstance(category, str) or not category.endswith("fusion"):
        return False
    for number in metadata.child_id:
        key = (number, depth - 1)
        if key not in known:
            child = plane.event_metadata(number)
            own = named(child.stats, plane.stat_names, plane.numbers_of(("hlo_category",))).get("hlo_category")
            known[key] = _uses_matrix_units(plane, child, own, depth - 1, known)
        if known[key]:
            return True
    return False


def category_name(value: Value | None) -> str:
    """XLA's name of an op's category, made safe to show, such as "convolution fusion"."""
    return (one_line(value, limit=NAME_LENGTH) if isinstance(value, str) else "") or "unknown"


def _category(name: Value | None, kind: TimeKind) -> Category:
    if kind is TimeKind.COLLECTIVE:
        return Category.COLLECTIVE
    if not isinstance(name, str):
        return Category.OTHER
    return _CATEGORIES.get(name, Category.ASYNC_WAIT if name.endswith(_WAITS) else Category.OTHER)


def _whole(value: Value | None) -> int:
    return value if isinstance(value, int) and 0 < value < ABSURD else 0


def _hbm_bytes(breakdown: Value | None) -> int | None:
    """Bytes moved to and from HBM; None for an op without a breakdown, an empty one is 0."""
    if not isinstance(breakdown, bytes):
        return None
    try:
        accesses = MemoryAccessBreakdown.FromString(breakdown).accesses
    except DecodeError:
        return None
    return sum(
        _whole(access.bytes_accessed)
        for access in accesses
        if access.memory_space == _HBM and access.operation in _MOVES
    )


def paddings(text: str, flops: int) -> tuple[float, float] | None:
    """The share of a matrix operation's work that is padding, for each of WIDTHS; None if its shapes do not say.

    The largest array of the result has M rows of N columns, by its layout; its further dimensions need no padding. K,
    over which products are summed, follows from the FLOPs: 2 for each element of the result and of K. N and K are
    padded to the width of the matrix unit, M to 8.

    Args:
        text: its HLO, "%dot.1 = f32[8,100]{1,0:T(8,128)} dot(...)".
        flops: of one occurrence; 0 if the trace does not tell: then nothing is said of K.
    """
    arrays = [array for array in map(_array, _results(text)) if array is not None]
    if not arrays:
        return None
    elements, rows, columns = max(arrays)
    depth = flops / (2 * elements)
    useful = rows * columns * max(depth, 1)
    return tuple(  # type: ignore[return-value]  # as many as WIDTHS
        1 - useful / (_up(rows, _SUBLANES) * _up(columns, width) * (_up(depth, width) if depth >= 1 else 1))
        for width in WIDTHS
    )


def _results(text: str) -> Iterable[tuple[str, str]]:
    """Sizes and layout of each array that an op makes, as in its HLO."""
    begin = text.find(" = ") + 3
    if begin < 3:
        return ()
    if text[begin : begin + 1] != "(":
        only = _ARRAY.match(text, begin)
        return () if only is None else (only.groups(""),)  # type: ignore[return-value]  # it has two groups
    opcode = _OPCODE.search(text, begin, begin + _MOST_CHARS)
    return _ARRAY.findall(text, begin, opcode.start() if opcode else begin + _MOST_CHARS)


def _array(array: tuple[str, str]) -> tuple[int, int, int] | None:
    """Elements, rows and columns of an array; None if it has less than two dimensions, or no such layout."""
    sizes = [int(size) for size in array[0].split(",") if size]
    order = [int(place) for place in array[1].split(",") if place] or [*reversed(range(len(sizes)))]
    elements = math.prod(sizes)
    if len(sizes) < 2 or not 0 < elements < _LARGEST or sorted(order) != [*range(len(sizes))]:
        return None
    return elements, sizes[order[1]], sizes[order[0]]


def _up(size: float, to: int) -> int:
    return math.ceil(size / to) * to
