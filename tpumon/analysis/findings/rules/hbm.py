"""hbm-nearly-full and hbm-growing: memory of the devices."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from tpumon.analysis.findings.rule import Member, Observation, Rule, seconds_between
from tpumon.analysis.history import Moment
from tpumon.model import Evidence, FindingDetail
from tpumon.model.figure_table import HBM

_NOT_KNOWN = "no runtime metrics tell the HBM in use"
_BLOCK_S = 180.0
_BLOCKS = 5
_LEAST_RISE_RATIO = 0.02  # from the first block to the last; activity makes waves of about 1 %
_LONGEST_S = 6 * 3600.0  # until it is full
_SOON_S = 3600.0


class HbmNearlyFull(Rule[None, None]):
    """HBM in use above 90 % of the fullest device; critical above 97 %."""

    finding = "hbm-nearly-full"
    remedy = (
        "reduce what is live at once: a smaller batch, rematerialization (jax.checkpoint), bfloat16, donated buffers, "
        "sharding over more chips; `tpumon report --section memory` shows what fills it"
    )
    severities = ("warning", "critical")
    states = frozenset({"no-activity"})
    samples = 1  # it does not jump
    leaves_below = 0.985
    hidden_by = frozenset()

    def severity_ratio(self, member: Member[None, None]) -> float | str:
        """Relative to the warning limit."""
        used = member.seen.values[HBM.key]
        return _NOT_KNOWN if used is None else used / self.limits.hbm_warn_ratio if self.limits.hbm_warn_ratio else 2.0

    def detail(self, member: Member[None, None]) -> FindingDetail:
        """Of the fullest device."""
        used = member.seen.values[HBM.key] or 0.0
        return FindingDetail(
            words=f"HBM {used:.0%} full",
            sentence=f"{{who}}, {used:.0%} of the fullest device's HBM is in use.",
            evidence={"hbm_used_ratio": Evidence(value=used, threshold=self.limits.hbm_warn_ratio)},
            severity="critical" if used > self.limits.hbm_critical_ratio else "warning",
            figure=HBM.key,
        )


@dataclass(slots=True)
class HbmBlocks:
    """HBM in use: medians of three minutes each, and the values of the present three."""

    began: Moment | None = None
    values: list[float] = field(default_factory=list)
    blocks: deque[tuple[Moment, float]] = field(default_factory=lambda: deque(maxlen=_BLOCKS))


class HbmGrowing(Rule[HbmBlocks, None]):
    """HBM in use rose in each of the last 12 minutes' blocks of three, and will be full within 6 hours."""

    finding = "hbm-growing"
    memory_type = HbmBlocks
    remedy = (
        "look for arrays that are kept from step to step (lists of losses, metrics not fetched, caches of compiled "
        "programs); jax.live_arrays() lists them; save a checkpoint before it is full"
    )
    severities = ("warning", "critical")
    states = frozenset({"no-activity"})
    samples = 1
    leaves_below = 0.5
    hidden_by = frozenset()

    def remember(self, memory: HbmBlocks, seen: Observation) -> None:
        """Adds the sample to its block."""
        used = seen.values[HBM.key]
        if used is None:
            return
        memory.began = memory.began or seen.at
        if seconds_between(memory.began, seen.at) >= _BLOCK_S and memory.values:
            memory.blocks.append((memory.began, median(memory.values)))
            memory.began, memory.values = seen.at, []
        if len(memory.values) < 2 * _BLOCK_S:  # a sample a second at most
            memory.values.append(used)

    def severity_ratio(self, member: Member[HbmBlocks, None]) -> float | str:
        """6 hours relative to the time until it is full; 0 if it does not rise all the time."""
        used = member.seen.values[HBM.key]
        if used is None:
            return _NOT_KNOWN
        if len(member.memory.blocks) < _BLOCKS:
            return f"it takes {_BLOCKS * _BLOCK_S / 60:.0f} minutes of samples"
        left_s = _left_s(member.memory, used)
        return 0.0 if left_s is None else _LONGEST_S / max(left_s, 1.0)

    def began(self, member: Member[HbmBlocks, None]) -> Moment | None:
        """At the begin of the first block."""
        return member.memory.blocks[0][0]

    def detail(self, member: Member[HbmBlocks, None]) -> FindingDetail:
        """Says when it is full at this pace."""
        used = member.seen.values[HBM.key] or 0.0
        left_s = _left_s(member.memory, used) or _LONGEST_S
        _, before = member.memory.blocks[0]
        left = f"{left_s / 3600:.1f} h" if left_s >= _SOON_S else f"{left_s / 60:.0f} min"
        return FindingDetail(
            words=f"HBM grows, full in {left}",
            sentence=f"{{who}}, HBM in use grows without a pause ({before:.1%} to {used:.1%}); at this pace the device "
            f"is full in {left}.",
            evidence={
                "hbm_used_ratio": Evidence(value=used, reference=before),
                "hbm_full_in_s": Evidence(value=left_s, threshold=_LONGEST_S),
            },
            severity="critical" if left_s < _SOON_S / 4 else "warning",
            confidence="medium",
            figure=HBM.key,
        )


def _left_s(memory: HbmBlocks, used: float) -> float | None:
    """Seconds until the device, of which so much is used, is full at the present pace; None if it does not grow."""
    values = [value for _, value in memory.blocks]
    if values != sorted(values) or values[-1] - values[0] < _LEAST_RISE_RATIO:
        return None
    elapsed_s = seconds_between(memory.blocks[0][0], memory.blocks[-1][0])
    return (1 - used) * elapsed_s / (values[-1] - values[0]) if elapsed_s else None
