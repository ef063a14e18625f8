"""Ops of all hosts of a capture, and sums over some of them, as XProf adds them up."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tpumon.report.profiles import Capture, Choice
from tpumon.xspace.hardware import Peak
from tpumon.xspace.profile.op_times import Op, Traffic
from tpumon.xspace.profile.op_work import (
    NO_PROGRAM,
    Capacity,
    OpWork,
    cores_time_s,
    op_work,
    per,
    program_name,
    work_of_op,
)

_ItemT = TypeVar("_ItemT")
_KeyT = TypeVar("_KeyT", bound=Hashable)


class OpTotals(Struct, frozen=True, kw_only=True):
    """The ops of a capture, and the times and peaks that their shares are of.

    Attributes:
        ops: of all hosts, the longest first.
        programs: names by number, such as "jit_step".
        total_s: time of all cores, from first to last of ops and steps each.
        op_time_s: self time of the ops.
        peak: of one core and its memories.
    """

    ops: tuple[Op, ...]
    programs: dict[int, str]
    total_s: float
    op_time_s: float
    peak: Peak

    def function(self, op: Op) -> str:
        """The name of an op's program without its number."""
        return self.programs.get(op.program_id, NO_PROGRAM)

    def program(self, op: Op) -> str:
        """The name of an op's program, with its number: "jit_step(42)"."""
        return program_name(self.programs, op.program_id)

    def chosen(self, choice: Choice) -> list[Op]:
        """The ops that are asked for."""
        return [
            op
            for op in self.ops
            if op.shown and choice.picks(self.program(op), op.name, op.category, op.provenance, op.source)
        ]

    def work(self, ops: Sequence[Op]) -> OpWork:
        """The work of some ops together: times of all, FLOPs and bytes of those without ops within.

        XProf: UpdateNodeMetrics, PopulateOpMetricsNode.
        """
        leaves = [op for op in ops if op.is_leaf]
        time_s = sum(op.self_time_s for op in ops)
        moved_bytes = [op.traffic.hbm for op in leaves if op.traffic.hbm is not None]
        return op_work(
            self._capacity,
            time_s=time_s,
            self_time_s=time_s,
            normalized_s=sum(op.normalized_s for op in ops),
            occurrences=sum(op.occurrences for op in ops),
            flops=sum(op.flops for op in leaves),
            hbm_bytes=sum(moved_bytes) if moved_bytes else None,
        )

    def work_of_one(self, op: Op) -> OpWork:
        """The work of one op; that of the ops within it counts as its own, as in XProf's table of HLO ops."""
        return work_of_op(self._capacity, op)

    @property
    def _capacity(self) -> Capacity:
        return Capacity(time_s=self.total_s, flops_rate=self.peak.flops_per_s, hbm_rate=self.peak.hbm_bytes_per_s)


def op_totals(capture: Capture) -> OpTotals:
    """Adds up the hosts; the same op of the same program is one. XProf: OpMetricsDbCombiner."""
    profiles = [host.profile for host in capture.hosts]
    merged: dict[tuple[int, str], Op] = {}
    for op in (op for profile in profiles for op in profile.ops):
        key = (op.program_id, op.name)
        merged[key] = _added(merged[key], op) if key in merged else op
    cores = [core for profile in profiles for core in profile.trace.cores]
    last = profiles[-1]  # XProf takes the last host's peaks
    return OpTotals(
        ops=tuple(sorted(merged.values(), key=lambda op: (-op.self_time_s, op.name))),
        programs={number: name for profile in profiles for number, name in profile.programs.items()},
        total_s=cores_time_s(cores),
        op_time_s=sum(core.op_time_ps for core in cores) / 1e12,
        peak=last.trace.peak,
    )


_SUMS = ("occurrences", "time_s", "self_time_s", "normalized_s", "flops", "model_flops")
_CHIP_MEMORIES = ("cmem_read", "cmem_write", "vmem_read", "vmem_write")


def _added(one: Op, other: Op) -> Op:
    sums = {name: getattr(one, name) + getattr(other, name) for name in _SUMS}
    moved = {name: _plus(getattr(one.traffic, name), getattr(other.traffic, name)) for name in ("hbm", *_CHIP_MEMORIES)}
    return replace(
        one,
        **sums,
        bytes_accessed=_plus(one.bytes_accessed, other.bytes_accessed),
        traffic=replace(one.traffic, **moved),
    )


def _plus(one: float | None, other: float | None) -> float | None:
    """The sum of the known ones; None of nothing."""
    return one if other is None else other if one is None else one + other


def grouped(items: Iterable[_ItemT], key_of: Callable[[_ItemT], _KeyT]) -> dict[_KeyT, list[_ItemT]]:
    """Items by what they have in common."""
    groups: dict[_KeyT, list[_ItemT]] = {}
    for item in items:
        groups.setdefault(key_of(item), []).append(item)
    return groups


def intensity(op: Op) -> float | None:
    """FLOPs per byte moved, in all memories; None where the trace has no bytes."""
    return None if op.bytes_accessed is None else per(op.flops, op.bytes_accessed)


class Roofline(Struct, frozen=True, kw_only=True):
    """The best that a chip can do for an op, with the FLOPs and bytes that it has; None where that is not known.

    Attributes:
        bound_by: the resource that it uses the largest share of.
        optimal_flops_rate: FLOPs per second if it used all of that.
        efficiency_ratio: the share that it uses, at most 1.
    """

    bound_by: str | None = None
    optimal_flops_rate: float | None = None
    efficiency_ratio: float | None = None


def roofline(op: Op, totals: OpTotals) -> Roofline:
    """The roofline of an op; of one whose HBM traffic is not known, nothing is. XProf: SetRooflineMetrics."""
    resources = [
        ("compute", op.flops, totals.peak.flops_per_s),
        ("HBM", op.traffic.hbm, totals.peak.hbm_bytes_per_s),
    ]
    for name in _CHIP_MEMORIES:
        memory, way = name.split("_")
        resources.append((f"{memory.upper()} {way}", getattr(op.traffic, name), getattr(totals.peak, name)))
    least_s = [(amount / peak, name) for name, amount, peak in resources if amount and peak]
    if op.traffic.hbm is None or not least_s:
        return Roofline()
    optimal_s, bound_by = max(least_s, key=lambda each: each[0])
    return Roofline(
        bound_by=bound_by,
        optimal_flops_rate=op.flops / optimal_s,
        efficiency_ratio=min(per(optimal_s, op.time_s), 1.0),
    )


def moved(traffic: Traffic) -> dict[str, float]:
    """Bytes by memory on the chip, those that are not 0."""
    return {name: amount for name in _CHIP_MEMORIES if (amount := getattr(traffic, name))}
