"""Limits of findings: limits that users can set, and limits for servers of models."""

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
        compile_ratio: share of the time in which the host compiles.
        warm_up_s: time for which a server may compile after it began.
        stuck_s: time without a program and a token while requests run; more where steps are long.
        host_gap_ratio, host_gap_warn_ratio: share of the time with requests in which no program runs.
        kv_full_ratio: share of a server's cache in use while requests wait.
        padding_ratio: share of what a server computes that is padding, while requests wait.
        imbalance_ratio: requests of a replica relative to the others'.
        imbalance_busy_ratio: difference of its busy share from theirs.
    """

    infeed_warn_ratio: float = 0.05
    infeed_critical_ratio: float = 0.20
    hbm_warn_ratio: float = 0.90
    hbm_critical_ratio: float = 0.97
    step_warn_ratio: float = 1.03
    step_critical_ratio: float = 1.25
    idle_below_ratio: float = 0.015
    sustained: int = 3
    compile_ratio: float = 0.10
    warm_up_s: float = 1800.0
    stuck_s: float = 60.0
    host_gap_ratio: float = 0.30
    host_gap_warn_ratio: float = 0.50
    kv_full_ratio: float = 0.95
    padding_ratio: float = 0.50
    imbalance_ratio: float = 2.0
    imbalance_busy_ratio: float = 0.30
