"""hbm-nearly-full and hbm-growing: memory of the devices."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from tpumon.analysis.findings.rule import SERVERS, Member, Observation, Rule, graded, seconds_between
from tpumon.analysis.history import Moment
from tpumon.model import Evidence, FindingDetail
from tpumon.model.figure_table import HBM

_NOT_KNOWN = "no runtime metrics tell the HBM in use"
_OF_SERVERS = (
    "nothing, as long as it stays: a server gives its cache of keys and values what is left of HBM at the start; if "
    "larger requests end in out of memory, give the cache less (--gpu-memory-utilization, --mem-fraction-static)"
)
_BLOCKS = 5
_LONG_S, _LEAST_RISE_RATIO = 180.0, 0.02  # from the first block to the last; activity makes waves of about 1 %
_SHORT_S, _FAST_RISE_RATIO = 60.0, 0.05  # what fills within half an hour
_EVEN_RATIO = 0.3  # of the mean rise from block to block: a leak rises evenly, loading and warming up do not
_LONGEST_S = 6 * 3600.0  # until it is full
_SOON_S = 3600.0


class HbmNearlyFull(Rule[None, None]):
    """HBM in use above 90 % of the fullest device; critical above 97 %.

    A server gives nearly all of it to its cache at the start: that is no news.
    """

    finding = "hbm-nearly-full"
    info_for = SERVERS
    remedy = (
        "reduce what is live at once: a smaller batch, rematerialization (jax.checkpoint), bfloat16, donated buffers, "
        "sharding over more chips; `tpumon report --service-addr HOST:PORT --section memory` shows what fills it"
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
        limits = self.limits
        severity, limit = graded(used, {"warning": limits.hbm_warn_ratio, "critical": limits.hbm_critical_ratio})
        return FindingDetail(
            words=f"HBM {used:.0%} full",
            sentence=f"{{who}}, {used:.0%} of the fullest device's HBM is in use.",
            evidence={"hbm_used_ratio": Evidence(value=used, threshold=limit)},
            severity=severity,
            figure=HBM.key,
            remedy=_OF_SERVERS if member.seen.job_kind in SERVERS else "",
        )


@dataclass(slots=True)
class _Blocks:
    """HBM in use: medians of blocks of one length, and the values of the present block.

    Attributes:
        block_s: their length.
        rise_ratio: the least rise from the first to the last that counts.
        highest: the highest of the blocks before these.
        rises_from: begin of the first of the blocks that rose one after the other.
    """

    block_s: float
    rise_ratio: float
    highest: float = 0.0
    rises_from: Moment | None = None
    began: Moment | None = None
    values: list[float] = field(default_factory=list)
    blocks: deque[tuple[Moment, float]] = field(default_factory=lambda: deque(maxlen=_BLOCKS))

    def add(self, used: float, at: Moment) -> None:
        self.began = self.began or at
        if seconds_between(self.began, at) >= self.block_s and self.values:
            value = median(self.values)
            if not self.blocks or value <= self.blocks[-1][1]:
                self.rises_from = self.began
            if len(self.blocks) == _BLOCKS:
                self.highest = max(self.highest, self.blocks[0][1])
            self.blocks.append((self.began, value))
            self.began, self.values = at, []
        if len(self.values) < 2 * self.block_s:  # a sample a second at most
            self.values.append(used)

    def left_s(self, used: float) -> float | None:
        """Seconds until the device, of which so much is used, is full at the present pace; None: it does not grow.

        To come back to where it was before is no growth.
        """
        values = [value for _, value in self.blocks]
        if len(values) < _BLOCKS or values[-1] - max(values[0], self.highest) < self.rise_ratio:
            return None
        rise = values[-1] - values[0]
        if min(later - value for value, later in pairwise(values)) < _EVEN_RATIO * rise / (_BLOCKS - 1):
            return None
        elapsed_s = seconds_between(self.blocks[0][0], self.blocks[-1][0])
        return (1 - used) * elapsed_s / rise if elapsed_s else None


@dataclass(slots=True)
class HbmBlocks:
    """HBM in use, in blocks of three minutes and in short ones while the job runs."""

    long: _Blocks = field(default_factory=lambda: _Blocks(_LONG_S, _LEAST_RISE_RATIO))
    short: _Blocks = field(default_factory=lambda: _Blocks(_SHORT_S, _FAST_RISE_RATIO))

    def growing(self, used: float) -> tuple[_Blocks, float] | None:
        """The blocks that show it to grow, and seconds until it is full; None: none do."""
        for blocks in (self.long, self.short):
            if (left_s := blocks.left_s(used)) is not None:
                return blocks, left_s
        return None


class HbmGrowing(Rule[HbmBlocks, None]):
    """HBM in use rose from each of five blocks to the next, and will be full within 6 hours."""

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
        """Adds the sample to its blocks."""
        used = seen.values[HBM.key]
        if used is None:
            return
        memory.long.add(used, seen.at)
        if seen.state == "live":
            memory.short.add(used, seen.at)

    def severity_ratio(self, member: Member[HbmBlocks, None]) -> float | str:
        """6 hours relative to the time until it is full; 0 if it does not rise all the time."""
        used, memory = member.seen.values[HBM.key], member.memory
        if used is None:
            return _NOT_KNOWN
        if (growing := memory.growing(used)) is not None:
            return _LONGEST_S / max(growing[1], 1.0)
        if len(memory.long.blocks) < _BLOCKS:
            return f"it takes {_BLOCKS * _LONG_S / 60:.0f} minutes of samples, unless it fills fast"
        return 0.0

    def began(self, member: Member[HbmBlocks, None]) -> Moment | None:
        """With the first block from which it rose."""
        growing = member.memory.growing(member.seen.values[HBM.key] or 0.0)
        return None if growing is None else growing[0].rises_from

    def detail(self, member: Member[HbmBlocks, None]) -> FindingDetail:
        """Says when it is full at this pace."""
        used = member.seen.values[HBM.key] or 0.0
        growing = member.memory.growing(used)
        blocks, left_s = growing or (member.memory.long, _LONGEST_S)
        before = blocks.blocks[0][1] if blocks.blocks else used
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
