"""Findings about devices that spend too large a share of their time on something else than computing.

outfeed-bound, host-transfer-bound, async-wait, data-shuffle, sparsecore-bound, debug-print. The limits are XProf's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from msgspec import Struct

from tpumon.analysis.findings.rule import Member, Observation, Rule, Sibling, graded
from tpumon.model import Evidence, FindingDetail


class LeastShares(Struct, frozen=True):
    """Least shares over the workers that step together.

    Attributes:
        by_step: the shares, by slice and what it steps by; none where workers are not compared.
        is_whole: whether all workers have a share: the others may wait for a worker without one.
    """

    by_step: Mapping[tuple[str, str], float] = MappingProxyType({})
    is_whole: bool = True


def step_of(seen: Observation) -> tuple[str, str]:
    """The slice of a worker, and what it steps by."""
    return seen.target.slice or "", seen.figures.step_name or ""


_ALONE = LeastShares()
WITHOUT_STEPS = "no steps in a trace, of which it would be a share"


class ShareRule(Rule[None, LeastShares]):
    """Something above its share of the time. Where workers are compared, the least share counts.

    Attributes:
        field: name of the share. A field of `tpumon.model.Figures`, where `share` is not overridden; of
            `op_time_ratios` with the kind of op behind a dot.
        label: the same, for a row in a table.
        sentence: what the device does, with `{share}`.
        limit_ratio: the share above which it counts.
        warns_above: the share above which it is a warning.
        unknown: why it cannot be judged without the share.
    """

    field: ClassVar[str]
    label: ClassVar[str]
    sentence: ClassVar[str]
    limit_ratio: ClassVar[float]
    warns_above: ClassVar[float] = 0.5  # more than all the rest takes
    severities = ("info", "warning")
    of_device = True
    unknown: ClassVar[str] = "time by kind of op is not known: only traces show it"

    def share(self, seen: Observation) -> float | None:
        """Share of the time that a query showed; None: not known."""
        name, _, kind = self.field.partition(".")
        return op_time_ratio(seen, kind) if kind else getattr(seen.figures, name)

    def usual(self, _seen: Observation) -> float | None:
        """A share to compare it with; None: nothing but its limit."""
        return None

    def slice_stats(self, _peers: Sequence[Sibling[None]]) -> LeastShares:
        """Nothing where workers are not compared."""
        return _ALONE

    def severity_ratio(self, member: Member[None, LeastShares]) -> float | str:
        """The share relative to its limit."""
        share = self._counted(member)
        return self.unknown if share is None else share / self.limit_ratio

    def detail(self, member: Member[None, LeastShares]) -> FindingDetail:
        """Names the share."""
        share = self._counted(member) or 0.0
        warns_above = self.warns_above if member.slice_stats.is_whole else math.inf
        severity, limit = graded(share, {"info": self.limit_ratio, "warning": warns_above})
        evidence = Evidence(value=share, threshold=limit, reference=self.usual(member.seen))
        return FindingDetail(
            words=f"{self.label} {share:.0%}",
            sentence=f"{{who}}, {self.sentence.format(share=f'{share:.0%}')}.",
            evidence={self.field: evidence},
            severity=severity,
        )

    def _counted(self, member: Member[None, LeastShares]) -> float | None:
        own, least = self.share(member.seen), member.slice_stats.by_step.get(step_of(member.seen))
        return own if own is None or least is None else min(own, least)


def op_time_ratio(seen: Observation, kind: str) -> float | None:
    """Share of the window that a kind of op takes, one of `tpumon.model.figure_table.OP_KINDS`; None: not known."""
    ratios = seen.figures.op_time_ratios
    return None if ratios is None else ratios.get(kind)


class OutfeedBound(ShareRule):
    """Outfeed above XProf's 5 % of the time; a warning above its 20 %."""

    finding = "outfeed-bound"
    remedy = (
        "send less to the host and more rarely: fetch losses and metrics every N steps (steps_per_execution, "
        "iterations_per_loop), reduce them on the device first, drop host calls and summaries from the step"
    )
    field, label = "op_time_ratios.outfeed", "outfeed"
    sentence = "the TPU waits to write outfeed {share} of the time"
    limit_ratio = 0.05
    warns_above = 0.20


class HostTransferBound(ShareRule):
    """Sending to and receiving from the host in a step above 10 % of the time."""

    finding = "host-transfer-bound"
    remedy = (
        "take transfers out of the step: jax.pure_callback, io_callback and host_call make each step wait for the "
        "host; pass data as arguments with jax.device_put ahead of time, keep state on the device"
    )
    field, label = "op_time_ratios.host_transfer", "host transfer"
    sentence = "the TPU waits for data from or to its host within a program {share} of the time"
    limit_ratio = 0.10


class AsyncWait(ShareRule):
    """Waiting for copies that are under way above XProf's 10 % of the time."""

    finding = "async-wait"
    remedy = (
        "start copies earlier or copy less: offload fewer arrays to the host (rematerialize with jax.checkpoint "
        "instead), keep parameters in HBM, let the latency-hiding scheduler work "
        "(--xla_tpu_enable_latency_hiding_scheduler), larger steps to hide them behind"
    )
    field, label = "op_time_ratios.async_wait", "copies"
    sentence = "the TPU waits for copies that are under way (copy-done, async-done) {share} of the time"
    limit_ratio = 0.10


class DataShuffle(ShareRule):
    """Moving data within the device above XProf's 30 % of the time."""

    finding = "data-shuffle"
    remedy = (
        "avoid moving data: transposes, reshapes, gathers and slices that change the layout; dimensions that are "
        "multiples of 128 (last) and 8 (second last), batches and features in one order throughout"
    )
    field, label = "op_time_ratios.data_shuffle", "data shuffle"
    sentence = "the TPU moves data (copy, transpose, slice, gather, sort) {share} of the time"
    limit_ratio = 0.30


class SparseCoreBound(ShareRule):
    """TensorCores that wait for SparseCores above XProf's 10 % of the time."""

    finding = "sparsecore-bound"
    remedy = (
        "make lookups cheaper or overlap them: smaller or quantized embedding tables, limits of ids per partition "
        "that fit the data, tables spread evenly over the cores, pipelining of embeddings with the dense step"
    )
    field, label = "op_time_ratios.sparsecore", "SparseCore"
    sentence = "the TPU waits for its SparseCores {share} of the time"
    limit_ratio = 0.10


class DebugPrint(ShareRule):
    """Printing from the device above XProf's 5 % of a step."""

    finding = "debug-print"
    remedy = "remove jax.debug.print (jax.debug.callback, tf.print) from the compiled step, or print every N steps only"
    field, label = "debug_print_ratio", "debug print"
    sentence = "the TPU prints {share} of each step"
    limit_ratio = 0.05
    unknown = WITHOUT_STEPS
