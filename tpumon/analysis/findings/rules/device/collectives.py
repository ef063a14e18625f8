"""collective-bound, barrier-wait: cores wait for each other.

Workers that wait for a straggler wait in collectives and at barriers, and so does a slice that waits for another one of
its job. So the share counts that all cores of the job have, the straggler's included: that is what communication itself
costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from tpumon.analysis.findings.recent import alike_s
from tpumon.analysis.findings.rule import Observation, Peer
from tpumon.analysis.findings.rules.device.shares import WITHOUT_STEPS, ShareRule, op_time_ratio

_MOST_SLICES = 100  # of unequal steps: each is compared with each


class WaitRule(ShareRule):
    """A share of which the least of a job counts, of those slices whose steps are as long."""

    compares = True
    compares_slices = True
    waits = True

    def slice_stats(self, peers: Sequence[Peer[None]]) -> Mapping[str, float]:
        """The least share of each slice, or of those that step with it if that is less."""
        shares: dict[str, float] = {}
        steps_s: dict[str, list[float]] = {}
        for peer in peers:
            seen, name = peer.seen, peer.seen.target.slice or ""
            if seen.state == "live" and (share := self.share(seen)) is not None:
                shares[name] = min(share, shares.get(name, share))
                steps_s.setdefault(name, []).extend([seen.step_s] if seen.step_s else ())
        if len(shares) < 2:
            return shares
        return _least_of_alike(shares, {name: median(steps) for name, steps in steps_s.items() if steps})


def _least_of_alike(shares: Mapping[str, float], step_s: Mapping[str, float]) -> Mapping[str, float]:
    """The least share of each slice and those whose steps are as long, also because that is not known."""
    if not step_s or max(step_s.values()) <= alike_s(min(step_s.values()), 0.0)[1]:
        return dict.fromkeys(shares, min(shares.values()))
    if len(shares) > _MOST_SLICES:
        return shares
    least = {}
    for name in shares:
        first_s, last_s = alike_s(step_s[name], 0.0) if name in step_s else (0.0, float("inf"))
        least[name] = min(share for other, share in shares.items() if first_s <= step_s.get(other, first_s) <= last_s)
    return least


class CollectiveBound(WaitRule):
    """Collectives above XProf's 30 % of the time, on the core of the job that waits least in them."""

    finding = "collective-bound"
    remedy = (
        "communicate less, or while computing: bfloat16 gradients, larger batches per chip, a sharding that fits the "
        "topology (model axis within a slice, data axis across), --xla_tpu_enable_async_collective_fusion and the "
        "latency-hiding scheduler; check the network of multislice jobs"
    )
    field, label = "collective_ratio", "collectives"
    sentence = (
        "collectives take {share} of the time even on the core that waits least in them, so communication itself is "
        "slow; it is not waiting for one worker"
    )
    limit_ratio = 0.30

    def share(self, seen: Observation) -> float | None:
        """Of the core that waits least in them."""
        of_cores = [core.collective_ratio for core in seen.figures.per_core if core.collective_ratio is not None]
        return min(of_cores) if of_cores else self.usual(seen)

    def usual(self, seen: Observation) -> float | None:
        """The mean over the worker's cores."""
        return op_time_ratio(seen, "collective")


class BarrierWait(WaitRule):
    """Waiting at barriers above XProf's 10 % of a step, on the worker of the job that waits least."""

    finding = "barrier-wait"
    remedy = (
        "look for cores with unequal work: uneven shards or experts, padding in one place, input that is late on some "
        "hosts; then at the network between them"
    )
    field, label = "barrier_ratio", "barriers"
    sentence = "cores wait at barriers {share} of each step"
    limit_ratio = 0.10
    unknown = WITHOUT_STEPS
