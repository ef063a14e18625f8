"""collective-bound, barrier-wait: cores wait for each other.

Workers that wait for a straggler wait in collectives and at barriers, and so does a slice that waits for another one of
its job. So the share counts that all cores of the job have, the straggler's included: that is what communication itself
costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from tpumon.analysis.findings.recent import alike_s
from tpumon.analysis.findings.rule import Observation, Sibling
from tpumon.analysis.findings.rules.device.shares import WITHOUT_STEPS, LeastShares, ShareRule, op_time_ratio, step_of

_MOST_STEPS = 100  # of unequal length: each is compared with each
_Step = tuple[str, str]  # a slice, and what it steps by


class WaitRule(ShareRule):
    """Rule about a share of waiting: the least share counts among workers of a job with steps of equal length."""

    compares = True
    compares_slices = True
    waits = True

    def slice_stats(self, siblings: Sequence[Sibling[None]]) -> LeastShares:
        """Least share by slice and program, over all that may step together with them."""
        shares: dict[_Step, float] = {}
        steps_s: dict[_Step, list[float]] = {}
        is_whole = True
        for sibling in siblings:
            seen, step = sibling.seen, step_of(sibling.seen)
            share = self.share(seen) if seen.state == "live" else None
            if share is not None:
                shares[step] = min(share, shares.get(step, share))
                steps_s.setdefault(step, []).extend([seen.step_s] if seen.step_s else ())
            elif seen.state in {"live", "no-activity"}:
                is_whole = False
        if len(shares) > 1:
            shares = _least_of_alike(shares, {step: median(times_s) for step, times_s in steps_s.items() if times_s})
        return LeastShares(shares, is_whole)


def _least_of_alike(shares: dict[_Step, float], step_s: Mapping[_Step, float]) -> dict[_Step, float]:
    """Least share by step, over all steps of similar or unknown length."""
    if not step_s or max(step_s.values()) <= alike_s(min(step_s.values()), 0.0)[1]:
        return dict.fromkeys(shares, min(shares.values()))
    if len(shares) > _MOST_STEPS:
        return shares
    least = {}
    for one in shares:
        first_s, last_s = alike_s(step_s[one], 0.0) if one in step_s else (0.0, float("inf"))
        least[one] = min(share for other, share in shares.items() if first_s <= step_s.get(other, first_s) <= last_s)
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
