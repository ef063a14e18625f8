"""Settings of a simulated fleet; imports nothing slow."""

from __future__ import annotations

from msgspec import Struct

SERVERS: tuple[str, ...] = ("old", "2025", "new")
"""Generations of profiler servers: without `emit_xspace`, with it, with it and GetSnapshot."""

DEFAULT_PORT = 8466
"""Default of `tpumon simulate --port`: the port of TPU nodes."""


class SimulatorSettings(Struct, frozen=True, kw_only=True):
    """Settings of one simulated TPU.

    Attributes:
        topology: TPU name, for example "v5e-8".
        scenario: what the job does, as `tpumon.simulator.scenario.faults` describes.
        seed: the same seed makes the same job.
        monitor: whether the Monitor RPC answers; None: as on real TPUs (v2 and v3 only).
        server: one of `SERVERS`.
        host: address to bind.
        port: port of worker 0; worker i listens on port + i, and the ports of the runtime metric services follow.
            0 for any free ports.
        runtime_metrics: whether each worker has a runtime metric service.
    """

    topology: str
    scenario: str = "steady"
    seed: int = 0
    monitor: bool | None = None
    server: str = "new"
    host: str = "127.0.0.1"
    port: int = 0
    runtime_metrics: bool = True
