"""collective-bound, barrier-wait: cores wait for each other.

Workers that wait for a straggler wait in collectives and at barriers. So of a slice the share counts that all of its
cores have, the straggler included: that is what communication itself costs.
"""

from __future__ import annotations

from tpumon.findings.base import Seen
from tpumon.findings.device.shares import WITHOUT_STEPS, ShareRule, op_time_ratio


class CollectiveBound(ShareRule):
    """Collectives above XProf's 30 % of the time, on the core of the slice that waits least in them."""

    finding = "collective-bound"
    remedy = (
        "communicate less, or while computing: bfloat16 gradients, larger batches per chip, a sharding that fits the "
        "topology (model axis within a slice, data axis across), --xla_tpu_enable_async_collective_fusion and the "
        "latency-hiding scheduler; check the network of multislice jobs"
    )
    compares = True
    needs = frozenset()  # cores may tell it, too
    field, label = "collective_ratio", "collectives"
    sentence = (
        "collectives take {share} of the time even on the core that waits least in them, so communication itself is "
        "slow; it is not waiting for one worker"
    )
    limit_ratio = 0.30

    def share(self, seen: Seen) -> float | None:
        """Of the core that waits least in them."""
        of_cores = [core.collective_ratio for core in seen.figures.per_core if core.collective_ratio is not None]
        return min(of_cores) if of_cores else self.usual(seen)

    def usual(self, seen: Seen) -> float | None:
        """The mean over the worker's cores."""
        return op_time_ratio(seen, "collective")


class BarrierWait(ShareRule):
    """Waiting at barriers above XProf's 10 % of a step, on the worker of the slice that waits least."""

    finding = "barrier-wait"
    remedy = (
        "look for cores with unequal work: uneven shards or experts, padding in one place, input that is late on some "
        "hosts; then at the network between them"
    )
    compares = True
    needs = frozenset({"barrier_ratio"})
    field, label = "barrier_ratio", "barriers"
    sentence = "cores wait at barriers {share} of each step"
    limit_ratio = 0.10
    unknown = WITHOUT_STEPS
