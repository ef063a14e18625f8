"""Whom to watch and what to ask."""

from __future__ import annotations

from dataclasses import dataclass

SIMULATED_MARK = "Simulated by tpumon"
"""Starts the line that marks every text, trace and metric of the simulator as simulated."""

LONGEST_WINDOW_S = 10.0
"""The longest trace that tpumon samples by its own choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One worker's profiler server.

    Attributes:
        worker: unique display name: the host's name where known, otherwise the address.
        address: `host:port` to connect to; IPv6 in brackets.
        slice: the slice that this worker steps together with, where known; medians are computed per slice.
        independent: True if the worker is not known to work together with others; it is then compared with none.
        runtime_addresses: candidates for its runtime metric service, tried in this order.
    """

    worker: str
    address: str
    slice: str | None = None
    independent: bool = False
    runtime_addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The workers to follow from now on: all of them, not only new ones.

    Attributes:
        targets: unique in both name and address; a worker that stays keeps its name.
        waiting: if there are none, one line that says where tpumon looked and what to do.
    """

    targets: tuple[Target, ...] = ()
    waiting: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What one query asks of every worker.

    Attributes:
        level: 1 (type, MXU) or 2 (also idle, steps, infeed).
        window_s: how long the server watches; None lets the source choose.
        interval_s: the effective interval, recorded in the sample.
    """

    level: int
    window_s: float | None = None
    interval_s: float | None = None
