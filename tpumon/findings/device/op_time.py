"""What the devices do instead of computing: a kind of op takes too large a share of the time.

outfeed-bound, host-transfer-bound, async-wait, data-shuffle, sparsecore-bound. The limits are XProf's.
"""

from __future__ import annotations

from typing import ClassVar

from tpumon.findings.base import Account, Member, Rule, Seen
from tpumon.model import Evidence, Grade

MOST_RATIO = 0.5
"""A share of the time above this costs more than all the rest: a warning."""

ONLY_FROM_TRACES = "time by kind of op is not known: only traces show it"


def grade(share: float, warns_above: float = MOST_RATIO) -> Grade:
    """How bad it is that something takes a share of the time."""
    return "warning" if share > warns_above else "info"


def op_time_ratio(seen: Seen, kind: str) -> float | None:
    """Share of the window that a kind of op takes, one of `tpumon.figures.OP_KINDS`; None: not known."""
    ratios = seen.figures.op_time_ratios
    return None if ratios is None else ratios.get(kind)


class OpTimeRule(Rule[None, None]):
    """A kind of op above its share of the time.

    Attributes:
        kind: which, one of `tpumon.figures.OP_KINDS`.
        label: the same, for a row in a table.
        doing: what the device does in this time, as a part of a sentence.
        limit_ratio: the share above which it counts.
        warns_above: the share above which it is a warning.
    """

    kind: ClassVar[str]
    label: ClassVar[str]
    doing: ClassVar[str]
    limit_ratio: ClassVar[float]
    warns_above: ClassVar[float] = MOST_RATIO

    def strength(self, member: Member[None, None]) -> float | str:
        """Its share of the time relative to the limit."""
        share = op_time_ratio(member.seen, self.kind)
        return ONLY_FROM_TRACES if share is None else share / self.limit_ratio

    def account(self, member: Member[None, None]) -> Account:
        """Names the share."""
        share = op_time_ratio(member.seen, self.kind) or 0.0
        return Account(
            words=f"{self.label} {share:.0%}",
            sentence=f"{{who}}, the TPU {self.doing} {share:.0%} of the time.",
            evidence={f"op_time_ratios.{self.kind}": Evidence(value=share, threshold=self.limit_ratio)},
            severity=grade(share, self.warns_above),
        )


class OutfeedBound(OpTimeRule):
    """Outfeed above XProf's 5 % of the time; a warning above its 20 %."""

    finding = "outfeed-bound"
    remedy = (
        "send less to the host and more rarely: fetch losses and metrics every N steps (steps_per_execution, "
        "iterations_per_loop), reduce them on the device first, drop host calls and summaries from the step"
    )
    kind, label, doing = "outfeed", "outfeed", "waits to write outfeed"
    limit_ratio, warns_above = 0.05, 0.20


class HostTransferBound(OpTimeRule):
    """Sending to and receiving from the host in a step above 10 % of the time."""

    finding = "host-transfer-bound"
    remedy = (
        "take transfers out of the step: jax.pure_callback, io_callback and host_call make each step wait for the "
        "host; pass data as arguments with jax.device_put ahead of time, keep state on the device"
    )
    kind, label, doing = "host_transfer", "host transfer", "waits for data from or to its host within a program"
    limit_ratio = 0.10


class AsyncWait(OpTimeRule):
    """Waiting for copies that are under way above XProf's 10 % of the time."""

    finding = "async-wait"
    remedy = (
        "start copies earlier or copy less: offload fewer arrays to the host (rematerialize with jax.checkpoint "
        "instead), keep parameters in HBM, let the latency-hiding scheduler work "
        "(--xla_tpu_enable_latency_hiding_scheduler), larger steps to hide them behind"
    )
    kind, label, doing = "async_wait", "copies", "waits for copies that are under way (copy-done, async-done)"
    limit_ratio = 0.10


class DataShuffle(OpTimeRule):
    """Moving data within the device above XProf's 30 % of the time."""

    finding = "data-shuffle"
    remedy = (
        "avoid moving data: transposes, reshapes, gathers and slices that change the layout; dimensions that are "
        "multiples of 128 (last) and 8 (second last), batches and features in one order throughout"
    )
    kind, label, doing = "data_shuffle", "data shuffle", "moves data (copy, transpose, slice, gather, sort)"
    limit_ratio = 0.30


class SparseCoreBound(OpTimeRule):
    """TensorCores that wait for SparseCores above XProf's 10 % of the time."""

    finding = "sparsecore-bound"
    remedy = (
        "make lookups cheaper or overlap them: smaller or quantized embedding tables, limits of ids per partition "
        "that fit the data, tables spread evenly over the cores, pipelining of embeddings with the dense step"
    )
    kind, label, doing = "sparsecore", "SparseCore", "waits for its SparseCores"
    limit_ratio = 0.10
