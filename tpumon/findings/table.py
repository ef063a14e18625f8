"""The table of findings: one rule a row, the most telling first."""

from __future__ import annotations

from tpumon.findings.base import AnyRule
from tpumon.findings.hang import Hang
from tpumon.findings.hbm import HbmGrowing, HbmNearlyFull
from tpumon.findings.idle import HostBound, Idle
from tpumon.findings.input_bound import InputBound
from tpumon.findings.not_observed import NotObserved
from tpumon.findings.slow_down import SlowDown
from tpumon.findings.straggler import Straggler

RULES: tuple[type[AnyRule], ...] = (
    Hang,
    Straggler,
    InputBound,
    SlowDown,
    HbmGrowing,
    HbmNearlyFull,
    HostBound,
    Idle,
    NotObserved,
)
"""Every rule. Of findings that are equally bad, the first in the table is named first."""
