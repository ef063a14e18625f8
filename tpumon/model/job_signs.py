"""Signs of a job in the files of its process, where tpumon runs on the same host."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Framework = Literal["JAX", "TensorFlow", "PyTorch/XLA"]


class JobSigns(Struct, frozen=True, kw_only=True):
    """Signs of what a job uses, and of what it can stand. The default says nothing, and so allows nothing.

    Attributes:
        framework: the one whose profiler server it has; None if unknown.
        holds_tpu: whether it has a TPU open.
        holds_gpu: whether it has a GPU open.
        may_use_gpu: whether it has one open, or a library loaded that would use one.
        host_events_safe: whether host tracing cannot deadlock it, however old its server.
    """

    framework: Framework | None = None
    holds_tpu: bool = False
    holds_gpu: bool = False
    may_use_gpu: bool = False
    host_events_safe: bool = False
