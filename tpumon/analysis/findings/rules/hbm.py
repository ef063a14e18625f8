"""hbm-nearly-full and hbm-growing: memory of the devices."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from statistics import median
from typing import NamedTuple

from tpumon.analysis.findings.rule import SERVERS, Member, Observation, Rule, graded
from tpumon.analysis.history import Moment, seconds_between
from tpumon.model import Evidence, FindingDetail
from tpumon.model.figure_table import HBM

_NOT_KNOWN = "no runtime metrics tell the HBM in use"
_OF_SERVERS = (
    "nothing, as long as it stays: a server gives its cache of keys and values what is left of HBM at the start; if "
    "larger requests end in out of memory, give the cache less (--gpu-memory-utilization, --mem-fraction-static)"
)
_BLOCKS = 5
_LONG_S, _LEAST_RISE_RATIO = 180.0, 0.02  # from the first block to the last; activity makes waves of about 1 %
_SHORTER_S, _FAST_RISE_RATIO = (120.0, 60.0), 0.05  # what fills within half an hour
_EVEN_RATIO = 0.3  # of the mean rise from block to block: a leak rises evenly, loading and warming up do not
_STEADY_RATIO, _STEADY_RISE_RATIO = 0.7, 0.015  # so even a rise is certain where it is small
_FULL_RATIO = 0.99
_LONGEST_S = 6 * 3600.0  # until it is full
_SOON_S, _CRITICAL_S = 3600.0, 900.0
_FASTER = 1.02  # times the rise before: it grows faster and faster
_ABOUT = 1.2  # times that no more than one number is told


class HbmNearlyFull(Rule[None, None]):
    """HBM in use above 90 % of the fullest device; critical above 97 %.

    A server gives nearly all of it to its cache at the start: that is no news.
    """

    finding = "hbm-nearly-full"
    of_device = True
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


class _Block(NamedTuple):
    """HBM in use for a while."""

    began: Moment
    usual: float
    peak: float

    def pace(self, later: _Block) -> float:
        """Rise up to a later block, per second."""
        return (later.usual - self.usual) / max(seconds_between(self.began, later.began), 1.0)


class _Left(NamedTuple):
    """Seconds until the device is full."""

    least_s: float
    most_s: float

    @property
    def words(self) -> str:
        """One number where both are nearly the same: `in 8 to 12 min`."""
        if round(self.least_s / 60) < 1:
            return f"within {max(round(self.most_s / 60), 1)} min"
        unit, unit_s = ("h", 3600.0) if self.least_s >= _SOON_S else ("min", 60.0)
        least, most = (f"{each / unit_s:.{1 if unit == 'h' else 0}f}" for each in self)
        if self.most_s > _ABOUT * self.least_s and least != most:
            return f"in {least} to {most} {unit}"
        return f"in {least} {unit}"


@dataclass(slots=True)
class _Blocks:
    """HBM in use: blocks of one length, and the values of the present block.

    Attributes:
        block_s: their length.
        rise_ratio: the least rise from the first to the last that counts.
        steady_ratio: the same where all rise alike, as nothing but a slope does.
        highest: the highest of the blocks before these.
        rises_from: begin of the first of the blocks that rose one after the other.
    """

    block_s: float
    rise_ratio: float
    steady_ratio: float = _LEAST_RISE_RATIO
    highest: float = 0.0
    rises_from: Moment | None = None
    began: Moment | None = None
    values: list[float] = field(default_factory=list)
    blocks: deque[_Block] = field(default_factory=lambda: deque(maxlen=_BLOCKS))

    def add(self, used: float, at: Moment) -> None:
        self.began = self.began or at
        if seconds_between(self.began, at) >= self.block_s and self.values:
            value = median(self.values)
            if not self.blocks or value <= self.blocks[-1].usual:
                self.rises_from = self.began
            if len(self.blocks) == _BLOCKS:
                self.highest = max(self.highest, self.blocks[0].usual)
            self.blocks.append(_Block(self.began, value, max(self.values)))
            self.began, self.values = at, []
        if len(self.values) < 2 * self.block_s:  # a sample a second at most
            self.values.append(used)

    def left(self, used: float, at: Moment) -> _Left | None:
        """Time until a device with this share in use is full; None: use does not grow.

        The peaks reach the limit first: they rise at the mean pace, at the pace of the last blocks, or faster and
        faster. A return to an earlier level is no growth.
        """
        values = [block.usual for block in self.blocks]
        if len(values) < _BLOCKS:
            return None
        rise, rises = values[-1] - values[0], [later - value for value, later in pairwise(values)]
        is_steady = min(rises) >= _STEADY_RATIO * rise / (_BLOCKS - 1)
        least = self.steady_ratio if is_steady else self.rise_ratio
        if values[-1] - max(values[0], self.highest) < least or min(rises) < _EVEN_RATIO * rise / (_BLOCKS - 1):
            return None
        first, middle, last = self.blocks[0], self.blocks[_BLOCKS // 2], self.blocks[-1]
        before, lately, mean = first.pace(middle), middle.pace(last), first.pace(last)
        since_s = 0.0 if self.began is None else seconds_between(self.began, at)
        free = max(1 - max(used, last.peak + lately * since_s, *self.values), 0.0)
        least_s = free / max(lately, mean)
        half_s = seconds_between(middle.began, last.began)
        gains = (lately - before) / half_s
        had_pause = seconds_between(first.began, middle.began) > _ABOUT * half_s  # its pace seems lower than it was
        if gains > 0 and not had_pause and min(rises[_BLOCKS // 2 :]) > _FASTER * max(rises[: _BLOCKS // 2]):
            now = lately + gains * half_s
            least_s = (sqrt(now**2 + 2 * gains * free) - now) / gains
        return _Left(least_s, free / min(lately, mean))


@dataclass(slots=True)
class HbmBlocks:
    """HBM in use, in blocks of three minutes and in shorter ones while the job runs."""

    long: _Blocks = field(default_factory=lambda: _Blocks(_LONG_S, _LEAST_RISE_RATIO))
    shorter: tuple[_Blocks, ...] = field(
        default_factory=lambda: tuple(_Blocks(each_s, _FAST_RISE_RATIO, _STEADY_RISE_RATIO) for each_s in _SHORTER_S)
    )

    def growing(self, seen: Observation) -> tuple[_Blocks, _Left] | None:
        """Longest blocks that show growth, and the shortest time until HBM is full by any blocks; None: no growth."""
        used = seen.values[HBM.key] or 0.0
        known = [(one, left) for one in (self.long, *self.shorter) if (left := one.left(used, seen.at)) is not None]
        return (known[0][0], min(left for _, left in known)) if known else None


class HbmGrowing(Rule[HbmBlocks, None]):
    """HBM in use rose from each of five blocks to the next, and will be full within 6 hours."""

    finding = "hbm-growing"
    of_device = True
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
            for blocks in memory.shorter:
                blocks.add(used, seen.at)

    def severity_ratio(self, member: Member[HbmBlocks, None]) -> float | str:
        """6 hours relative to the time until it is full; 0 if it does not rise all the time."""
        used, memory = member.seen.values[HBM.key], member.memory
        if used is None:
            return _NOT_KNOWN
        if (growing := memory.growing(member.seen)) is not None:
            return _LONGEST_S / max(growing[1].most_s, 1.0)
        if len(memory.long.blocks) < _BLOCKS:
            return f"it takes {_BLOCKS * _LONG_S / 60:.0f} minutes of samples, unless it grows steadily"
        return 0.0

    def began(self, member: Member[HbmBlocks, None]) -> Moment | None:
        """With the first block from which it rose."""
        growing = member.memory.growing(member.seen)
        return None if growing is None else growing[0].rises_from

    def detail(self, member: Member[HbmBlocks, None]) -> FindingDetail:
        """Says when it is full at this pace."""
        used = member.seen.values[HBM.key] or 0.0
        growing = member.memory.growing(member.seen)
        blocks, left = growing or (member.memory.long, _Left(_LONGEST_S, _LONGEST_S))
        before = blocks.blocks[0].usual if blocks.blocks else used
        is_soon = left.least_s < _CRITICAL_S
        grows = f"without a pause ({before:.1%} to {used:.1%})"
        is_full = used >= _FULL_RATIO
        return FindingDetail(
            words="HBM has filled up" if is_full else f"HBM grows, full {left.words}",
            sentence=f"{{who}}, HBM in use grew {grows}: the device is full."
            if is_full
            else f"{{who}}, HBM in use grows {grows}; at this pace the device is full {left.words}.",
            evidence={
                "hbm_used_ratio": Evidence(value=used, reference=before),
                "hbm_full_in_s": Evidence(value=left.least_s, threshold=_CRITICAL_S if is_soon else _LONGEST_S),
            },
            severity="critical" if is_soon else "warning",
            confidence="medium",
            figure=HBM.key,
        )
