"""Runs a simulated TPU on real ports: the servers of each worker."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tpumon.errors import TpumonError, UsageError
from tpumon.model import Target
from tpumon.simulator.grpc_servers import PortServer
from tpumon.simulator.profiler import ProfilerService
from tpumon.simulator.runtime_service import RuntimeMetricService
from tpumon.simulator.scenario import SimulatedJob, to_ns
from tpumon.simulator.simulator_settings import SERVERS, SimulatorSettings
from tpumon.simulator.topology import parse_topology

if TYPE_CHECKING:
    from tpumon.simulator.serving_page import ServerMetricsPage

__all__ = ["SimulatedFleet", "SimulatorSettings"]

_CHECK_EVERY_S = 0.05  # maximum delay of a crash or return


class SimulatedFleet:
    """The servers of all workers of a simulated TPU. An async context manager; the job starts when it is entered.

    Args:
        settings: what to simulate.
        clock: returns the seconds since the epoch; decides which moment of the job a call sees. Windows still last
            their real time.

    Raises:
        UsageError: no such TPU, scenario or server generation, or ports beyond 65535.
    """

    def __init__(self, settings: SimulatorSettings, *, clock: Callable[[], float] = time.time) -> None:
        self.job = SimulatedJob(
            topology=parse_topology(settings.topology), scenario=settings.scenario, seed=settings.seed
        )
        self.refused_writes: list[str] = []
        """Names of workers that were asked to write into their working directory, one entry per request."""
        if settings.server not in SERVERS:
            raise UsageError(f"unknown server generation {settings.server!r}; choose one of {', '.join(SERVERS)}")
        hosts = self.job.topology.hosts
        services = 1 + settings.runtime_metrics + self.job.serves
        last_port = settings.port + hosts * services - 1
        if not 0 <= settings.port <= 65535 or (settings.port and last_port > 65535):
            raise UsageError(
                f"{self.job.topology.name} needs {last_port - settings.port + 1} ports starting at --port "
                f"{settings.port}; all must be in 1-65535 (0: any free ports)"
            )
        self._settings = settings
        self._clock = clock
        self._workers: list[_WorkerServers] = []
        self._life: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        epoch_unix_ns = to_ns(self._clock())
        self._workers = [self._worker(i, epoch_unix_ns) for i in range(self.job.topology.hosts)]
        try:
            for worker in self._workers:
                await worker.start()
        except BaseException:
            await self._stop()
            raise
        if self.job.goes_down:
            self._life = asyncio.create_task(self._live(epoch_unix_ns), name="simulated crashes")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._life is not None:
            self._life.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._life
        await self._stop()

    @property
    def targets(self) -> tuple[Target, ...]:
        """The workers' profiler servers, in order; known only inside the context manager."""
        names = (self.job.topology.worker_name(i) for i in range(len(self._workers)))
        return tuple(
            Target(worker=name, address=worker.profiler.address)
            for name, worker in zip(names, self._workers, strict=True)
        )

    @property
    def runtime_addresses(self) -> tuple[str, ...]:
        """Addresses of the workers' runtime metric servers, in order; empty without `runtime_metrics`."""
        return tuple(worker.runtime.address for worker in self._workers if worker.runtime is not None)

    @property
    def server_metrics(self) -> tuple[str, ...]:
        """URLs of the metrics pages of a server of models, in the order of the workers; empty for other jobs."""
        return tuple(worker.page.url for worker in self._workers if worker.page is not None)

    def _worker(self, index: int, epoch_unix_ns: int) -> _WorkerServers:
        settings, job = self._settings, self.job
        monitor = job.topology.generation.answers_monitor if settings.monitor is None else settings.monitor
        service = ProfilerService(
            job,
            index,
            generation=settings.server,
            monitor=monitor,
            clock=self._clock,
            epoch_unix_ns=epoch_unix_ns,
            refused_writes=self.refused_writes,
        )
        port, hosts = settings.port and settings.port + index, job.topology.hosts
        profiler = PortServer(service.methods, host=settings.host, port=port)
        runtime = page = None
        if settings.runtime_metrics:
            metrics = RuntimeMetricService(job, index, clock=self._clock, epoch_unix_ns=epoch_unix_ns)
            runtime = PortServer(metrics.methods, host=settings.host, port=port and port + hosts)
        if job.serves:
            from tpumon.simulator.serving_page import ServerMetricsPage  # here: aiohttp takes long to import

            at = port and port + hosts * (2 if settings.runtime_metrics else 1)
            page = ServerMetricsPage(job, host=settings.host, port=at, clock=self._clock, epoch_unix_ns=epoch_unix_ns)
        return _WorkerServers(service, profiler, runtime, page)

    async def _live(self, epoch_unix_ns: int) -> None:
        """Stops and starts workers as the scenario says."""
        while True:
            now_ns = to_ns(self._clock()) - epoch_unix_ns
            for index, worker in enumerate(self._workers):
                up = self.job.up_since_ns(index, now_ns) is not None
                if worker.running and not up:
                    await worker.stop()
                elif up and not worker.running:
                    # Another process may have taken the port meanwhile; then the next check tries again.
                    with contextlib.suppress(TpumonError):
                        await worker.start()
            await asyncio.sleep(_CHECK_EVERY_S)

    async def _stop(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self._workers))


@dataclass
class _WorkerServers:
    """The servers of one worker, which start and stop together: its profiler, and what else there is."""

    service: ProfilerService
    profiler: PortServer
    runtime: PortServer | None
    page: ServerMetricsPage | None

    @property
    def running(self) -> bool:
        return self.profiler.running

    @property
    def _servers(self) -> list[PortServer | ServerMetricsPage]:
        return [server for server in (self.profiler, self.runtime, self.page) if server is not None]

    async def start(self) -> None:
        self.service.restart()
        try:
            for server in self._servers:
                await server.start()
        except TpumonError:
            await self.stop()
            raise

    async def stop(self) -> None:
        for server in self._servers:
            await server.stop()
