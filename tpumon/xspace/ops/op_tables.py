"""Sums of what the ops of a core did: time, FLOPs and bytes, as XProf's OpMetricsDb adds them up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tpumon.xspace.columns.columns import PS_PER_S, Events, Floats, Ints, Mask
from tpumon.xspace.columns.intervals import first_of_equal
from tpumon.xspace.ops.op_kinds import ABSURD, WIDTHS, TimeKind

OP_STATS = (
    "device_offset_ps",
    "device_duration_ps",
    "Time Scale Multiplier",
    "all_reduce_unique_id",
    "flops",
    "model_flops",
)
"""Stats of op events that figures need."""

_SUMS = ("occurrences", "time_ps", "self_ps", "normalized_ps", "flops", "model_flops", "hbm_bytes")
_FLAGS = ("shown", "matrix", "custom", "has_bytes")
_OF_KIND = ("time_kind", "padding_128", "padding_256", "category_key")
_SAME = (*_OF_KIND, "number")  # the same of one op wherever it runs


class OpTable(Struct, frozen=True, kw_only=True, eq=False):
    """Sums over the occurrences of each op; all arrays have one element per op.

    Attributes:
        key: tells the ops apart, ascending.
        occurrences: how often each ran.
        time_ps: durations, ops within counted in.
        self_ps: durations without the ops within.
        normalized_ps: durations at the chip's nominal clock: times the event's Time Scale Multiplier, if it has one.
        flops: as executed.
        model_flops: as the model needs them, where the trace tells, else as executed.
        hbm_bytes: read and written, where the op says so.
        has_bytes: whether it says so.
        matrix: whether it uses the matrix units.
        custom: whether it is a custom call.
        shown: whether XProf's op profile shows it.
        time_kind: what kind of time its own time is, values of TimeKind.
        padding_128: share of its matrix units' work that is padding, if they are 128 wide; -1 where unknown.
        padding_256: the same of those that are 256 wide.
        category_key: tells the names of categories apart.
        number: its metadata id in the core's plane; of tables merged, in that of the first core that ran it.
    """

    key: Ints
    occurrences: Floats
    time_ps: Floats
    self_ps: Floats
    normalized_ps: Floats
    flops: Floats
    model_flops: Floats
    hbm_bytes: Floats
    has_bytes: Mask
    matrix: Mask
    custom: Mask
    shown: Mask
    time_kind: NDArray[np.uint8]
    padding_128: Floats
    padding_256: Floats
    category_key: Ints
    number: Ints

    def __len__(self) -> int:
        return len(self.key)

    @property
    def leaves(self) -> Mask:
        """The ops shown that no other ops ran in; theirs are the FLOPs and bytes. XProf: ChildrenTimePs."""
        leaves: Mask = self.shown & (self.time_ps == self.self_ps)
        return leaves


def merge_tables(tables: Sequence[OpTable]) -> OpTable:
    """Ops of several cores or hosts as one; XProf: OpMetricsDbCombiner."""
    columns = {name: np.concatenate([getattr(table, name) for table in tables]) for name in (*_SUMS, *_FLAGS, *_SAME)}
    key = np.concatenate([table.key for table in tables])
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = first_of_equal(key)
    kept = order[first]
    each_once = len(first) == len(key)  # as nearly always in a single table
    columns = {
        name: column[kept]
        if each_once or name in _SAME
        else (np.add if name in _SUMS else np.logical_or).reduceat(column[order], first)
        for name, column in columns.items()
    }
    return OpTable(key=key[first], **columns)


class RootTotals(Struct, frozen=True, kw_only=True, eq=False):
    """All ops as one.

    Attributes:
        time_ps: self time.
        normalized_ps: durations at the chip's nominal clock.
        flops: as executed.
        hbm_bytes: read and written, of the ops that say so.
        has_bytes: whether any says so.
    """

    time_ps: float
    normalized_ps: float
    flops: float
    hbm_bytes: float
    has_bytes: bool


def root_totals(table: OpTable) -> RootTotals:
    """All ops as one; XProf: UpdateNodeMetrics, for the root of the op profile.

    Times add up over all, FLOPs and bytes over those without ops inside.
    """
    leaves = table.leaves
    return RootTotals(
        time_ps=float(table.self_ps[table.shown].sum()),
        normalized_ps=float(table.normalized_ps[table.shown].sum()),
        flops=float(table.flops[leaves].sum()),
        hbm_bytes=float(table.hbm_bytes[leaves].sum()),
        has_bytes=bool(table.has_bytes[leaves].any()),
    )


def matrix_flops(table: OpTable, peak_flops_per_s: float) -> float:
    """Model FLOPs of the matrix operations, each op's at most what the peak allows in its time.

    XProf caps the ops of its op profile alike: what a custom call claims may be more than the chip can do.
    """
    picked = table.leaves & table.matrix
    most = table.time_ps[picked] * (peak_flops_per_s / PS_PER_S)
    return float(np.minimum(table.model_flops[picked], most).sum())


def custom_call_ratio(table: OpTable) -> float | None:
    """Share of all FLOPs that custom calls claim; None where no op has any."""
    return _share(table.flops, table.leaves, table.custom)


def unknown_bytes_ratio(table: OpTable) -> float | None:
    """Share of the ops' time that is of ops that do not report the bytes they move; None where no op took any."""
    return _share(table.self_ps, table.leaves, ~table.has_bytes)


def _share(amounts: Floats, of: Mask, picked: Mask) -> float | None:
    """Share of picked ops in the amounts of some ops; None: the amounts are 0."""
    whole = float(amounts[of].sum())
    return float(amounts[of & picked].sum()) / whole if whole else None


def times_by_kind_ps(table: OpTable) -> Floats:
    """Own time of the ops of each TimeKind; together it is all that ops took."""
    times_ps = np.bincount(table.time_kind, weights=table.self_ps, minlength=len(TimeKind))
    return np.maximum(times_ps, 0.0)


def padding_ratio(table: OpTable, width: int) -> float | None:
    """Share of the matrix operations' work that is padding, weighted by their own time; None where no shape says it.

    Args:
        table: ops of cores of one kind.
        width: of their matrix units, 128 or 256.
    """
    padding = table.padding_256 if width > WIDTHS[0] else table.padding_128
    known = (padding >= 0) & (table.self_ps > 0)
    return float(np.average(padding[known], weights=table.self_ps[known])) if known.any() else None


def add_up(
    events: Events, durations_ps: Ints, self_ps: Ints, *, numbers: Ints, of_event: Ints, kinds: NDArray[np.void]
) -> OpTable:
    """Adds up the ops of a core; XProf: XEventsOpMetricsDbBuilder.

    Args:
        events: its ops, with OP_STATS.
        durations_ps: of the events, on the device's clock.
        self_ps: the same without the ops within.
        numbers: metadata ids of the different ops.
        of_event: of each event, which of them it is of.
        kinds: of the different ops, rows of KIND.
    """

    def sums(values: Floats | Ints) -> Floats:
        return np.bincount(of_event, weights=values, minlength=len(kinds)).astype(np.float64, copy=False)

    def event_sums(stat: str) -> Floats | int:
        """Sums of what the events themselves say; 0 for what is absurd."""
        if stat not in events.stats:
            return 0
        values = events.stats[stat].integers()
        return sums(np.where((values > 0) & (values < ABSURD), values, 0))

    scale, custom = events.stats.get("Time Scale Multiplier"), kinds["custom"]
    counts = np.bincount(of_event, minlength=len(kinds)).astype(np.float64)
    columns = {
        "number": numbers,
        "occurrences": counts,
        "time_ps": sums(durations_ps),
        "self_ps": sums(self_ps),
        "normalized_ps": sums(durations_ps if scale is None else durations_ps * scale.numbers(1.0)),
        # Those of custom calls come with their events.
        "flops": counts * kinds["flops"] + custom * event_sums("flops"),
        "model_flops": counts * kinds["model_flops"] + custom * event_sums("model_flops"),
        "hbm_bytes": counts * kinds["hbm_bytes"],
        **{name: kinds[name] for name in ("key", *_FLAGS, *_OF_KIND)},
    }
    counted = kinds["counted"]
    table = OpTable(**{name: column[counted] for name, column in columns.items()})
    return merge_tables([table])
