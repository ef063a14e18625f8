"""The table of findings: one rule a row, the most telling first."""

from __future__ import annotations

from collections.abc import Mapping

from tpumon.analysis.findings.rule import AnyRule
from tpumon.analysis.findings.rules.device.collectives import BarrierWait, CollectiveBound
from tpumon.analysis.findings.rules.device.rates import ComputeBound, LowMxu, MemoryBound
from tpumon.analysis.findings.rules.device.shares import (
    AsyncWait,
    DataShuffle,
    DebugPrint,
    HostTransferBound,
    OutfeedBound,
    SparseCoreBound,
)
from tpumon.analysis.findings.rules.hang import Hang
from tpumon.analysis.findings.rules.hbm import HbmGrowing, HbmNearlyFull
from tpumon.analysis.findings.rules.idle import HostBound, Idle
from tpumon.analysis.findings.rules.input_bound import InputBound
from tpumon.analysis.findings.rules.not_observed import NotObserved
from tpumon.analysis.findings.rules.recompiling import Recompiling
from tpumon.analysis.findings.rules.servers.batch_underfilled import BatchUnderfilled
from tpumon.analysis.findings.rules.servers.compiling import CompilingWhileServing
from tpumon.analysis.findings.rules.servers.host_gap import HostGap
from tpumon.analysis.findings.rules.servers.kv_pressure import KvPressure
from tpumon.analysis.findings.rules.servers.replica_imbalance import ReplicaImbalance
from tpumon.analysis.findings.rules.servers.stuck import Stuck
from tpumon.analysis.findings.rules.slow_down import SlowDown
from tpumon.analysis.findings.rules.straggler import Straggler
from tpumon.analysis.findings.rules.truncated import Truncated
from tpumon.model import FindingId, StateId

RULES: tuple[type[AnyRule], ...] = (
    Hang,
    Stuck,
    Straggler,
    InputBound,
    Recompiling,
    CompilingWhileServing,
    SlowDown,
    HbmGrowing,
    HbmNearlyFull,
    HostBound,
    Idle,
    HostGap,
    KvPressure,
    ReplicaImbalance,
    BatchUnderfilled,
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

RULE_INDEXES: Mapping[FindingId | StateId, int] = {rule.finding: index for index, rule in enumerate(RULES)}
NEED_WHOLE_JOB: frozenset[FindingId] = frozenset(rule.finding for rule in RULES if rule.compares_slices)
"""Findings that need the whole job to be judged."""
BLAMING: frozenset[FindingId] = frozenset(rule.finding for rule in RULES if rule.names_cause)
"""Findings that name the worker for which the others wait."""
