"""`tpumon simulate`: a simulated TPU as a server, until it is stopped."""

from __future__ import annotations

import asyncio

from tpumon.model import SIMULATED_MARK
from tpumon.simulator.simulated_fleet import SimulatedFleet
from tpumon.simulator.simulator_settings import SimulatorSettings
from tpumon.system.console import show
from tpumon.system.signals import STOPPING


def run(settings: SimulatorSettings) -> int:
    """Serves until SIGINT, SIGTERM or SIGHUP.

    Returns:
        0: a service ends by being stopped.

    Raises:
        UsageError: there is no such TPU or scenario.
        TpumonError: a port is taken.
    """
    return asyncio.run(_serve(SimulatedFleet(settings)))


async def _serve(fleet: SimulatedFleet) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, stopped.set)
    async with fleet:
        show("\n".join(_greeting(fleet)))
        await stopped.wait()
    return 0


def _greeting(fleet: SimulatedFleet) -> list[str]:
    """Returns one line per worker, then how to watch them."""
    job, targets, runtime = fleet.job, fleet.targets, fleet.runtime_addresses
    lines = [f"{SIMULATED_MARK}: {target.worker} profiler {target.address}" for target in targets]
    if runtime:
        lines = [f"{line} runtime metrics {address}" for line, address in zip(lines, runtime, strict=True)]
    pages = fleet.server_metrics
    if pages:
        lines = [f"{line} metrics {page}" for line, page in zip(lines, pages, strict=True)]
    addresses = ",".join(target.address for target in targets)
    watch = f"tpumon --level 2 --service-addr {addresses}"
    if runtime:
        watch += f" --runtime-addr {','.join(runtime)}"
    if pages:
        watch += " --server-metrics " + " --server-metrics ".join(
            f"{target.address}={page}" for target, page in zip(targets, pages, strict=True)
        )
    return [*lines, f"{SIMULATED_MARK}: {job.topology.name}, scenario {job.title}; watch it: {watch}"]
