"""Ops of all hosts of a capture, and what some of them did together, as XProf adds them up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tpumon.report.capture import Capture, Choice
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

if TYPE_CHECKING:
    from tpumon.xspace.hardware import Peak
    from tpumon.xspace.profile.op_times import Op, Traffic


class Rates(Struct, frozen=True, kw_only=True):
    """Peak rates of one core, in FLOPs or bytes per second; None where they are not known."""

    flops: float | None
    hbm: float | None
    peaks: Peak


class Ledger(Struct, frozen=True, kw_only=True):
    """The ops of a capture, and what their numbers are relative to.

    Attributes:
        ops: of all hosts, the longest first.
        programs: names by number, such as "jit_step".
        total_s: time of all cores, from first to last of ops and steps each.
        op_time_s: self time of the ops.
        rates: of one core.
    """

    ops: tuple[Op, ...]
    programs: dict[int, str]
    total_s: float
    op_time_s: float
    rates: Rates

    @property
    def capacity(self) -> Capacity:
        """What the work of ops is relative to."""
        return Capacity(time_s=self.total_s, flops_rate=self.rates.flops, hbm_rate=self.rates.hbm)

    def function(self, op: Op) -> str:
        """The name of an op's program without its number."""
        return self.programs.get(op.program_id, NO_PROGRAM)

    def program(self, op: Op) -> str:
        """The name of an op's program, with its number: "jit_step(42)"."""
        return program_name(self.programs, op.program_id)

    def chosen(self, choice: Choice) -> tuple[Op, ...]:
        """The ops that are asked for."""
        ops: Iterable[Op] = (op for op in self.ops if op.shown)
        if choice.program is not None:
            ops = (op for op in ops if choice.program in self.program(op))
        if choice.words is not None:
            words = choice.words.casefold()
            ops = (op for op in ops if words in f"{op.name}\n{op.category}\n{op.provenance}\n{op.source}".casefold())
        return tuple(ops)


def ledger(capture: Capture) -> Ledger:
    """Adds up the hosts; the same op of the same program is one. XProf: OpMetricsDbCombiner."""
    profiles = [host.profile for host in capture.hosts]
    merged: dict[tuple[int, str], Op] = {}
    for op in (op for profile in profiles for op in profile.ops):
        key = (op.program_id, op.name)
        merged[key] = op if key not in merged else _together(merged[key], op)
    cores = [core for profile in profiles for core in profile.trace.cores]
    last = profiles[-1]  # XProf takes the last host's peaks
    return Ledger(
        ops=tuple(sorted(merged.values(), key=lambda op: (-op.self_time_s, op.name))),
        programs={number: name for profile in profiles for number, name in profile.programs.items()},
        total_s=cores_time_s(cores),
        op_time_s=sum(core.op_time_ps for core in cores) / 1e12,
        rates=Rates(flops=last.trace.peak.flops_per_s, hbm=last.trace.peak.hbm_bytes_per_s, peaks=last.trace.peak),
    )


_SUMS = ("occurrences", "time_s", "self_time_s", "self_time_s2", "normalized_s", "flops", "model_flops")
_MEMORIES = ("hbm", "cmem_read", "cmem_write", "vmem_read", "vmem_write")


def _together(one: Op, other: Op) -> Op:
    sums = {name: getattr(one, name) + getattr(other, name) for name in _SUMS}
    moved = {name: plus(getattr(one.traffic, name), getattr(other.traffic, name)) for name in _MEMORIES}
    return replace(
        one,
        **sums,
        bytes_accessed=plus(one.bytes_accessed, other.bytes_accessed),
        traffic=replace(one.traffic, **moved),
    )


def plus(one: float | None, other: float | None) -> float | None:
    """The sum of what is known; None of nothing."""
    return one if other is None else other if one is None else one + other


def work_of(ops: Sequence[Op], book: Ledger) -> OpWork:
    """What some ops did together: times of all, FLOPs and bytes of those without ops within.

    XProf: UpdateNodeMetrics, PopulateOpMetricsNode.
    """
    leaves = [op for op in ops if op.is_leaf]
    time_s = sum(op.self_time_s for op in ops)
    return op_work(
        book.capacity,
        time_s=time_s,
        self_time_s=time_s,
        normalized_s=sum(op.normalized_s for op in ops),
        occurrences=sum(op.occurrences for op in ops),
        flops=sum(op.flops for op in leaves),
        hbm_bytes=_known_sum(op.traffic.hbm for op in leaves),
    )


def work_of_one(op: Op, book: Ledger) -> OpWork:
    """What one op did; what ran within it counts as its own, as in XProf's table of HLO ops."""
    return work_of_op(book.capacity, op)


def _known_sum(amounts: Iterable[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def intensity(op: Op) -> float | None:
    """FLOPs per byte moved, in all memories; None where the trace does not say what is moved."""
    return None if op.bytes_accessed is None else per(op.flops, op.bytes_accessed)


def bound_by(op: Op, rates: Rates) -> str | None:
    """The resource that an op uses the largest share of, which bounds it; None where nothing is known.

    XProf: SetRooflineMetrics.
    """
    resources = (
        ("compute", op.flops, rates.flops),
        ("HBM", op.traffic.hbm, rates.hbm),
        ("CMEM read", op.traffic.cmem_read, rates.peaks.cmem_read),
        ("CMEM write", op.traffic.cmem_write, rates.peaks.cmem_write),
        ("VMEM read", op.traffic.vmem_read, rates.peaks.vmem_read),
        ("VMEM write", op.traffic.vmem_write, rates.peaks.vmem_write),
    )
    shares = [(amount / peak, name) for name, amount, peak in resources if amount and peak]
    return max(shares, key=lambda each: each[0])[1] if shares else None


def moved(traffic: Traffic) -> dict[str, float]:
    """Bytes by memory on the chip, those that are not 0."""
    return {name: amount for name in _MEMORIES[1:] if (amount := getattr(traffic, name))}
