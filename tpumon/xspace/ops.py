"""What the ops of a core did: time, FLOPs and bytes, as XProf's OpMetricsDb adds them up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tpumon.wire.xplane_pb2 import MemoryAccessBreakdown, XEventMetadata
from tpumon.xspace.planes import PS_PER_S, Events, Plane, Value, named
from tpumon.xspace.reader import Ints, Mask

Number = TypeVar("Number", bound=np.generic)

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
_MATRIX_CODE = re.compile(r"\s(?:convolution|dot|ragged-dot|custom-call)\(|kind=kOutput\b")
_DEEPEST = 4  # fusions within fusions
_ABSURD = 1 << 60  # FLOPs or bytes of one op: no chip does that in a day, so the number is a mistake
_HBM, _READ, _WRITE = 1, 1, 2  # memory space and operations of memory_access_breakdown

OP_STATS = (
    "device_offset_ps",
    "device_duration_ps",
    "Time Scale Multiplier",
    "all_reduce_unique_id",
    "flops",
    "model_flops",
)
"""Stats of op events that figures need."""


_METADATA_STATS = (
    "hlo_category",
    "program_id",
    "symbol_id",
    "flops",
    "model_flops",
    "memory_access_breakdown",
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OpKind:
    """What all events of one op have in common: its metadata.

    Attributes:
        key: program and name, by which XProf takes ops of several cores to be the same.
        category: see Category.
        matrix: whether it uses the matrix units, or is a fusion that holds an op that does.
        counted: whether XProf adds it up at all: it has a program and a symbol.
        flops: of one occurrence.
        model_flops: of one occurrence.
        hbm_bytes: read and written by one occurrence; None where the trace does not say.
        custom: a custom call, whose FLOPs come with its events.
    """

    key: tuple[int, str]
    category: Category
    counted: bool
    matrix: bool
    flops: int
    model_flops: int
    hbm_bytes: int | None
    custom: bool


def op_kinds(plane: Plane, numbers: Iterable[int]) -> list[OpKind]:
    """Reads the metadata of ops; XProf: SetOpMetadataFromHloEventMetadata, GetOpKeyFromXEvent.

    Raises:
        SourceError: `malformed`.
    """
    names = plane.stat_names()
    wanted = {number: name for number, name in names.items() if name in _METADATA_STATS}
    kinds = []
    for number in numbers:
        metadata = plane.event_metadata(number)
        stats = named(metadata.stats, names, wanted)
        matrix = _uses_matrix_units(plane, metadata, stats.get("hlo_category"), _DEEPEST)
        kinds.append(_op_kind(metadata.display_name or metadata.name, stats, matrix=matrix))
    return kinds


def _uses_matrix_units(plane: Plane, metadata: XEventMetadata, category: Value | None, depth: int) -> bool:
    """Whether an op is a convolution, a dot product or a custom call, or a fusion that holds one.

    What a fusion holds is in its category, in its HLO text, or in the ops that its metadata lists as within it.
    """
    if category in _MATRIX_CATEGORIES or _MATRIX_CODE.search(metadata.name):
        return True
    if not depth or not metadata.child_id:
        return False
    names = plane.stat_names()
    wanted = {number: name for number, name in names.items() if name == "hlo_category"}
    for number in metadata.child_id:
        child = plane.event_metadata(number)
        child_category = named(child.stats, names, wanted).get("hlo_category")
        # A loop holds its body, whose ops have events of their own.
        if _uses_matrix_units(plane, child, child_category, depth - 1):
            return isinstance(category, str) and category.endswith("fusion")
    return False


def _category(name: Value | None) -> Category:
    if not isinstance(name, str):
        return Category.OTHER
    known = _CATEGORIES.get(name)
    if known is None:
        return Category.ASYNC_WAIT if name.endswith(_WAITS) else Category.OTHER
    return known


def _op_kind(name: str, stats: Mapping[str, Value], *, matrix: bool) -> OpKind:
    category = stats.get("hlo_category")
    symbol = stats.get("symbol_id")
    return OpKind(
        key=(_whole(stats.get("program_id")), name),
        category=_category(category),
        counted="program_id" in stats and isinstance(symbol, int) and symbol != 0,
        matrix=matrix,
        flops=_whole(stats.get("flops")),
        model_flops=_whole(stats.get("model_flops")),
        hbm_bytes=_hbm_bytes(stats.get("memory_access_breakdown")),
        custom=category == _CUSTOM_CALL,
    )


def _whole(value: Value | None) -> int:
    return value if isinstance(value, int) and 0 < value < _ABSURD else 0


def _hbm_bytes(breakdown: Value | None) -> int | None:
    """Bytes moved to and from HBM; None for an op without a breakdown, an empty one is 0."""
    if not isinstance(breakdown, bytes):
        return None
    message = MemoryAccessBreakdown()
    try:
        message.ParseFromString(breakdown)
    except DecodeError:
        return None
    return sum(
        _whole(access.bytes_accessed)
        for access in message.accesses
        if access.memory_space == _HBM and access.operation in {_READ, _WRITE}
    )


@dataclass(slots=True, kw_only=True)
class OpTotals:
    """Sums over the occurrences of one op, or of several.

    Attributes:
        time_ps: durations, ops within counted in.
        self_ps: durations without the ops within.
        normalized_ps: durations at the chip's nominal clock: times the event's Time Scale Multiplier, if it has one.
        flops: as executed.
        model_flops: as the model needs them, where the trace tells, else as executed.
        hbm_bytes: read and written, of the ops that say so.
        has_bytes: whether any says so.
        matrix: whether any uses the matrix units.
        custom: whether any is a custom call.
    """

    time_ps: float = 0.0
    self_ps: float = 0.0
    normalized_ps: float = 0.0
    flops: float = 0.0
    model_flops: float = 0.0
    hbm_bytes: float = 0.0
    has_bytes: bool = False
    matrix: bool = False
    custom: bool = False

    def add(self, other: OpTotals) -> None:
        """Adds another's sums to these."""
        self.time_ps += other.time_ps
        self.self_ps += other.self_ps
        self.normalized_ps += other.normalized_ps
        self.flops += other.flops
        self.model_flops += other.model_flops
        self.hbm_bytes += other.hbm_bytes
        self.has_bytes |= other.has_bytes
        self.matrix |= other.matrix
        self.custom |= other.custom

    @property
    def has_ops_within(self) -> bool:
        """Whether other ops ran inside; theirs are the FLOPs and bytes then. XProf: ChildrenTimePs."""
        return self.time_ps != self.self_ps


OpTable = dict[tuple[int, str], OpTotals]


def merge_tables(tables: Iterable[Mapping[tuple[int, str], OpTotals]]) -> OpTable:
    """Ops of several cores or hosts as one; XProf: OpMetricsDbCombiner."""
    merged: OpTable = {}
    for table in tables:
        for key, totals in table.items():
            merged.setdefault(key, OpTotals()).add(totals)
    return merged


def root_totals(table: Mapping[tuple[int, str], OpTotals]) -> OpTotals:
    """All ops as one; XProf: UpdateNodeMetrics, for the root of the op profile.

    Times add up over all, FLOPs and bytes over those without ops inside.
    """
    root = OpTotals()
    for totals in _shown(table):
        root.self_ps += totals.self_ps
        root.normalized_ps += totals.normalized_ps
        if not totals.has_ops_within:
            root.flops += totals.flops
            root.model_flops += totals.model_flops
            root.hbm_bytes += totals.hbm_bytes
            root.has_bytes |= totals.has_bytes
    root.time_ps = root.self_ps
    return root


def _shown(table: Mapping[tuple[int, str], OpTotals]) -> Iterable[OpTotals]:
    """The ops that XProf's op profile shows."""
    return (totals for (_, name), totals in table.items() if not name.startswith("region"))


def matrix_flops(table: Mapping[tuple[int, str], OpTotals], peak_flops_per_s: float) -> float:
    """Model FLOPs of the matrix operations, each op's at most what the peak allows in its time.

    XProf caps the ops of its op profile alike: what a custom call claims may be more than the chip can do.
    """
    per_ps = peak_flops_per_s / PS_PER_S
    return sum(
        min(totals.model_flops, totals.time_ps * per_ps)
        for totals in _shown(table)
        if totals.matrix and not totals.has_ops_within
    )


def custom_call_ratio(table: Mapping[tuple[int, str], OpTotals]) -> float:
    """Share of all FLOPs that custom calls claim, 0 where no op has any."""
    leaves = [totals for totals in _shown(table) if not totals.has_ops_within]
    flops = sum(totals.flops for totals in leaves)
    return sum(totals.flops for totals in leaves if totals.custom) / flops if flops else 0.0


def unknown_bytes_ratio(table: Mapping[tuple[int, str], OpTotals]) -> float:
    """Share of the ops' time that is of ops that do not report the bytes they move; those that only wait count not."""
    leaves = [totals for totals in _shown(table) if not totals.has_ops_within]
    time_ps = sum(totals.self_ps for totals in leaves)
    return sum(totals.self_ps for totals in leaves if not totals.has_bytes) / time_ps if time_ps else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreOps:
    """The ops of one core's op line in timeline order; arrays have one element per event.

    Attributes:
        events: on the host's clock, without their stats.
        device_begin_ps: on the device's clock, where the trace tells.
        device_duration_ps: on the device's clock.
        category: of each event, values of Category.
        counted: whether XProf adds the event's op up.
        all_reduce_id: which all-reduce the event is part of; -1 where it does not say.
    """

    events: Events
    device_begin_ps: Ints
    device_duration_ps: Ints
    category: NDArray[np.uint8]
    counted: Mask
    all_reduce_id: Ints


class OpIndex:
    """The kinds of ops that a line's events are of.

    Args:
        plane: the line's.
        metadata_id: of all events.
    """

    def __init__(self, plane: Plane, metadata_id: Ints) -> None:
        self.numbers, self.of_event = _distinct(metadata_id)
        self.kinds = op_kinds(plane, self.numbers.tolist())

    def spread(self, per_kind: NDArray[Number]) -> NDArray[Number]:
        """One value per kind to one per event."""
        return per_kind[self.of_event]

    def totals(self, events: Events, durations_ps: Ints, self_ps: Ints) -> OpTable:
        """Sums per op; XProf: XEventsOpMetricsDbBuilder."""
        scale = events.stats.get("Time Scale Multiplier")
        times = self._sums(durations_ps)
        normalized = times if scale is None else self._sums(durations_ps * scale.numbers(len(events), 1.0))
        selfs = self._sums(self_ps)
        counts = np.bincount(self.of_event, minlength=len(self.kinds))
        told = {
            name: self._sums(_sane(events.stats[name].integers(len(events))))
            for name in ("flops", "model_flops")
            if name in events.stats and any(kind.custom for kind in self.kinds)
        }
        table: OpTable = {}
        for i, kind in enumerate(self.kinds):
            if not kind.counted:
                continue
            count = int(counts[i])
            flops: float = count * kind.flops
            model_flops: float = count * (kind.model_flops or kind.flops)
            if kind.custom:
                flops += told["flops"][i] if "flops" in told else 0
                model_flops = count * kind.model_flops + (told["model_flops"][i] if "model_flops" in told else 0)
            table.setdefault(kind.key, OpTotals()).add(
                OpTotals(
                    time_ps=float(times[i]),
                    self_ps=float(selfs[i]),
                    normalized_ps=float(normalized[i]),
                    flops=float(flops),
                    model_flops=float(model_flops),
                    hbm_bytes=float(count) * (kind.hbm_bytes or 0),
                    has_bytes=kind.hbm_bytes is not None,
                    matrix=kind.matrix,
                    custom=kind.custom,
                )
            )
        return table

    def _sums(self, values: NDArray[np.float64] | Ints) -> NDArray[np.float64]:
        sums = np.bincount(self.of_event, weights=values, minlength=len(self.kinds))
        return sums.astype(np.float64, copy=False)


def _sane(values: Ints) -> Ints:
    """The values; 0 for those that are absurd."""
    return np.where((values > 0) & (values < _ABSURD), values, 0)


_DENSE_LIMIT = 1 << 20


def _distinct(numbers: Ints) -> tuple[Ints, Ints]:
    """The different numbers, ascending, and for each element the index of its own among them."""
    if not len(numbers):
        return numbers, numbers
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= _DENSE_LIMIT:
        found, index = np.unique(numbers, return_inverse=True)
        return found, index.astype(np.int64)
    present = np.zeros(high + 1, dtype=np.bool_)
    present[numbers] = True
    found = np.flatnonzero(present)
    position = np.zeros(high + 1, dtype=np.int64)
    position[found] = np.arange(len(found))
    return found, position[numbers]
