"""`tpumon simulate`: the simulator as a server of its own, until it is stopped."""

from __future__ import annotations

import asyncio

from tpumon.model import SIMULATED_MARK
from tpumon.simulator.server import SimulatedFleet
from tpumon.simulator.settings import SimulatorSettings
from tpumon.system.signals import STOPPING


def run(settings: SimulatorSettings) -> int:
    """Serves until SIGINT, SIGTERM or SIGHUP.

    Returns:
        0: being stopped is how a service ends.

    Raises:
        UsageError: no such TPU or scenario.
        TpumonError: a port is taken.
    """
    return asyncio.run(_serve(SimulatedFleet(settings)))


async def _serve(fleet: SimulatedFleet) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, stopped.set)
    async with fleet:
        print("\n".join(_greeting(fleet)), flush=True)
        await stopped.wait()
    return 0


def _greeting(fleet: SimulatedFleet) -> list[str]:
    """One line per worker, then how to watch them."""
    job, targets, runtime = fleet.job, fleet.targets, fleet.runtime_addresses
    told = [f"{SIMULATED_MARK}: {target.worker} profiler {target.address}" for target in targets]
    if runtime:
        told = [f"{line} runtime metrics {address}" for line, address in zip(told, runtime, strict=True)]
    addresses = ",".join(target.address for target in targets)
    watch = f"tpumon --level 2 --service-addr {addresses}"
    return [*told, f"{SIMULATED_MARK}: {job.topology.name}, scenario {job.scenario}; watch it: {watch}"]
