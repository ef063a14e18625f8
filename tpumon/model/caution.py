"""Warnings that qualify figures."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

SIMULATED_MARK = "Simulated by tpumon"
"""Start of the line that marks every text, trace and metric of the simulator."""

CautionCode = Literal[
    "truncated",
    "lighter",
    "impossible-times",
    "impossible-values",
    "peaks-from-table",
    "custom-call-flops",
    "hbm-incomplete",
    "missing-cores",
    "pauses",
    "long-steps",
    "gpu",
    "unclear-device",
    "runtime-error",
    "profiler",
    "capped",
]
"""Kind of a caution. `profiler`: the message comes from the profiler itself; `capped`: there is too much of something,
and the rest is left out."""


class Caution(Struct, frozen=True):
    """A warning about the figures of a sample; `message` is one line."""

    code: CautionCode
    message: str
