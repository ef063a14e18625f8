"""What a simulated fleet is made from; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

SERVERS: tuple[str, ...] = ("old", "2025", "new")
"""Generations of profiler servers: without `emit_xspace`; with it; with it and GetSnapshot."""

DEFAULT_PORT = 8466
"""First port of `tpumon simulate`: where TPU nodes listen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorSettings:
    """One simulated TPU.

    Attributes:
        topology: TPU name, for example "v5e-8".
        scenario: one of `tpumon.simulator.scenario.SCENARIOS`.
        seed: the same seed makes the same job.
        monitor: whether the Monitor RPC answers; None: as the generation does in life (v2 and v3 do).
        server: one of `SERVERS`.
        host: address to bind.
        port: 0: any free ports; else worker i listens on port + i; the runtime metric services follow after the
            last worker.
        runtime_metrics: whether the runtime metric service runs beside each worker.
    """

    topology: str
    scenario: str = "steady"
    seed: int = 0
    monitor: bool | None = None
    server: str = "new"
    host: str = "127.0.0.1"
    port: int = 0
    runtime_metrics: bool = True
