"""Every exception that tpumon raises on purpose.

    TpumonError                 exit status 1
    ├── UsageError              2   the command line cannot be obeyed; says what would be
    ├── NoTargetError           3   no target ever answered
    └── SourceError             1   one query of one target failed; carries one of REASONS

A message names the target, what happened and what to do, in one line. Only `tpumon.__main__` prints it.
"""

from __future__ import annotations

from typing import Literal, get_args

Reason = Literal[
    "unavailable",
    "deadline",
    "busy",
    "unimplemented",
    "not-a-profiler",
    "empty-trace",
    "malformed",
    "too-large",
    "refused",
    "resolve",
    "paused",
    "internal",
]
REASONS: tuple[Reason, ...] = get_args(Reason)

UNREACHED: frozenset[Reason] = frozenset({"unavailable", "deadline", "resolve", "not-a-profiler"})
"""Reasons that mean that no profiler server was there to answer."""


class TpumonError(Exception):
    """Something that tpumon expected might happen; `exit_status` is what the process ends with."""

    exit_status = 1


class UsageError(TpumonError):
    """The command line cannot be obeyed."""

    exit_status = 2


class NoTargetError(TpumonError):
    """No target ever answered."""

    exit_status = 3


class SourceError(TpumonError):
    """One query of one target failed.

    Attributes:
        reason: one of REASONS, for labels and programs.
        traced_s: how long the job was traced all the same.
    """

    def __init__(self, reason: Reason, message: str, *, traced_s: float = 0.0) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.traced_s = traced_s
