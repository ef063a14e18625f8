"""collective-bound, barrier-wait, debug-print: cores wait for each other, or print.

Workers that wait for a straggler wait in collectives and at barriers. So of a slice the share counts that all of its
cores have, the straggler included: that is what communication itself costs.
"""

from __future__ import annotations

from collections.abc import Sequence

from tpumon.findings.base import Account, Member, Peer, Rule, Seen
from tpumon.findings.device.op_time import ONLY_FROM_TRACES, grade, op_time_ratio
from tpumon.model import Evidence

_COLLECTIVE_RATIO = 0.30
_BARRIER_RATIO = 0.10
_DEBUG_PRINT_RATIO = 0.05
_WITHOUT_STEPS = "no steps in a trace, of which it would be a share"


def _in_collectives(seen: Seen) -> float | None:
    """Share of the time in collectives, of the core that waits least in them."""
    of_cores = [core.collective_ratio for core in seen.figures.per_core if core.collective_ratio is not None]
    return min(of_cores) if of_cores else op_time_ratio(seen, "collective")


class CollectiveBound(Rule[None, float | None]):
    """Collectives above XProf's 30 % of the time, on the core of the slice that waits least in them."""

    finding = "collective-bound"
    remedy = (
        "communicate less, or while computing: bfloat16 gradients, larger batches per chip, a sharding that fits the "
        "topology (model axis within a slice, data axis across), --xla_tpu_enable_async_collective_fusion and the "
        "latency-hiding scheduler; check the network of multislice jobs"
    )
    compares = True

    def across(self, peers: Sequence[Peer[None]]) -> float | None:
        """The least share of the slice."""
        return _least([_in_collectives(peer.seen) for peer in peers if peer.seen.state == "live"])

    def strength(self, member: Member[None, float | None]) -> float | str:
        """The least share of the slice relative to the limit."""
        own = _in_collectives(member.seen)
        return ONLY_FROM_TRACES if own is None else (_least([own, member.across]) or 0.0) / _COLLECTIVE_RATIO

    def account(self, member: Member[None, float | None]) -> Account:
        """Names the least share, and the worker's own."""
        least = _least([_in_collectives(member.seen), member.across]) or 0.0
        mean = op_time_ratio(member.seen, "collective")
        return Account(
            words=f"collectives {least:.0%}",
            sentence=f"{{who}}, collectives take {least:.0%} of the time even on the core that waits least in them: "
            "communication itself is slow, not one worker.",
            evidence={
                "collective_ratio": Evidence(value=least, threshold=_COLLECTIVE_RATIO, reference=mean),
            },
            severity=grade(least),
        )


def _least(shares: Sequence[float | None]) -> float | None:
    return min((share for share in shares if share is not None), default=None)


class BarrierWait(Rule[None, float | None]):
    """Waiting at barriers above XProf's 10 % of a step, on the worker of the slice that waits least."""

    finding = "barrier-wait"
    remedy = (
        "look for cores with unequal work: uneven shards or experts, padding in one place, input that is late on some "
        "hosts; then at the network between them"
    )
    compares = True

    def across(self, peers: Sequence[Peer[None]]) -> float | None:
        """The least share of the slice."""
        return _least([peer.seen.figures.barrier_ratio for peer in peers if peer.seen.state == "live"])

    def strength(self, member: Member[None, float | None]) -> float | str:
        """The least share of the slice relative to the limit."""
        own = member.seen.figures.barrier_ratio
        return _WITHOUT_STEPS if own is None else (_least([own, member.across]) or 0.0) / _BARRIER_RATIO

    def account(self, member: Member[None, float | None]) -> Account:
        """Names the share."""
        share = _least([member.seen.figures.barrier_ratio, member.across]) or 0.0
        return Account(
            words=f"barriers {share:.0%}",
            sentence=f"{{who}}, cores wait at barriers {share:.0%} of each step.",
            evidence={"barrier_ratio": Evidence(value=share, threshold=_BARRIER_RATIO)},
            severity=grade(share),
        )


class DebugPrint(Rule[None, None]):
    """Printing from the device above XProf's 5 % of a step."""

    finding = "debug-print"
    remedy = "remove jax.debug.print (jax.debug.callback, tf.print) from the compiled step, or print every N steps only"

    def strength(self, member: Member[None, None]) -> float | str:
        """Its share of a step relative to the limit."""
        share = member.seen.figures.debug_print_ratio
        return _WITHOUT_STEPS if share is None else share / _DEBUG_PRINT_RATIO

    def account(self, member: Member[None, None]) -> Account:
        """Names the share."""
        share = member.seen.figures.debug_print_ratio or 0.0
        return Account(
            words=f"debug print {share:.0%}",
            sentence=f"{{who}}, the TPU prints {share:.0%} of each step.",
            evidence={"debug_print_ratio": Evidence(value=share, threshold=_DEBUG_PRINT_RATIO)},
            severity=grade(share),
        )
