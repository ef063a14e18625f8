"""Limits of findings that users can set; a rule has its other ones itself."""

from __future__ import annotations

from msgspec import Struct


class Thresholds(Struct, frozen=True, kw_only=True):
    """Limits beyond which a worker is marked. The defaults for infeed are XProf's.

    Attributes:
        infeed_warn_ratio, infeed_critical_ratio: share of a step spent waiting for input.
        hbm_warn_ratio, hbm_critical_ratio: HBM used relative to its total, on the fullest device.
        step_warn_ratio, step_critical_ratio: a worker's own work in a step relative to the median of its slice.
        idle_below_ratio: how far a worker's waiting must be below the slice's median to count as the straggler, as a
            share of the time.
        sustained: number of consecutive samples that must agree before a finding appears.
    """

    infeed_warn_ratio: float = 0.05
    infeed_critical_ratio: float = 0.20
    hbm_warn_ratio: float = 0.90
    hbm_critical_ratio: float = 0.97
    step_warn_ratio: float = 1.03
    step_critical_ratio: float = 1.25
    idle_below_ratio: float = 0.015
    sustained: int = 3
