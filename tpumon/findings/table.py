"""The table of findings: one rule a row, the most telling first."""

from __future__ import annotations

from tpumon.findings.base import AnyRule
from tpumon.findings.device.collectives import BarrierWait, CollectiveBound
from tpumon.findings.device.rates import ComputeBound, LowMxu, MemoryBound
from tpumon.findings.device.shares import (
    AsyncWait,
    DataShuffle,
    DebugPrint,
    HostTransferBound,
    OutfeedBound,
    SparseCoreBound,
)
from tpumon.findings.hang import Hang
from tpumon.findings.hbm import HbmGrowing, HbmNearlyFull
from tpumon.findings.idle import HostBound, Idle
from tpumon.findings.input_bound import InputBound
from tpumon.findings.not_observed import NotObserved
from tpumon.findings.recompiling import Recompiling
from tpumon.findings.slow_down import SlowDown
from tpumon.findings.straggler import Straggler
from tpumon.findings.truncated import Truncated

RULES: tuple[type[AnyRule], ...] = (
    Hang,
    Straggler,
    InputBound,
    Recompiling,
    SlowDown,
    HbmGrowing,
    HbmNearlyFull,
    HostBound,
    Idle,
    CollectiveBound,
    BarrierWait,
    SparseCoreBound,
    HostTransferBound,
    OutfeedBound,
    AsyncWait,
    DataShuffle,
    DebugPrint,
    MemoryBound,
    LowMxu,
    ComputeBound,
    Truncated,
    NotObserved,
)
"""Every rule. Of findings that are equally bad, the first in the table is named first."""
