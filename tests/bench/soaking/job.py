"""The job: simulated workers with faults, in a process of their own. Prints what each answer said, as JSON lines.

python job.py WORKERS BY_MONITOR SEED: worker i listens at `address_of(i)`. The first BY_MONITOR answer the Monitor
RPC, the others return traces. The job's clock runs 27 times too fast: it lives through a day while its monitor asks as
often as in a day.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from soaking.faults import DAMAGING, WITHOUT_SERVER, Fault, before_answer, damaged, impostor, next_fault
from tpumon.errors import TpumonError
from tpumon.proto import GET_RUNTIME_METRIC, MONITOR, PROFILE
from tpumon.proto.profiler_pb2 import MonitorResponse, MonitorResult, ProfileRequest
from tpumon.proto.runtime_metrics_pb2 import MetricResponse
from tpumon.simulator import profiler
from tpumon.simulator.expected_figures import measure, window_events
from tpumon.simulator.grpc_servers import Method, PortServer
from tpumon.simulator.profiler import ProfilerService, monitor_result
from tpumon.simulator.runtime_service import RuntimeMetricService
from tpumon.simulator.scenario import SimulatedJob, to_ns
from tpumon.simulator.topology import parse_topology
from tpumon.simulator.trace_writer import SimulatedTrace, build_trace

NETWORK = "10.64.0.0/15"
PROFILER_PORT, RUNTIME_PORT = 8466, 8431
TOPOLOGY = "v5e-256"  # 64 hosts of 4 chips
CLOCK_SPEED = 27.0
SCENARIOS = ("steady", "input-bound", "straggler", "compile-pause", "idle")
_HBM = {"tpu.runtime.hbm.memory.usage.bytes": "hbm_used", "tpu.runtime.hbm.memory.total.bytes": "hbm_total"}

_Truth = dict[str, Any]
_traced: ContextVar[list[_Truth]] = ContextVar("what the trace of this call shows")
_start_unix_s = time.time()


def address_of(worker: int) -> str:
    """The address of a worker's profiler server."""
    return f"{_host_of(worker)}:{PROFILER_PORT}"


def _host_of(worker: int) -> str:
    return f"10.64.{worker >> 8}.{worker & 255}"


def tell(**told: object) -> None:
    print(json.dumps({"at_s": time.monotonic(), **told}), flush=True)


class _Worker:
    """One worker: its servers, its faults, and what it said."""

    def __init__(self, number: int, *, monitor: bool, seed: int) -> None:
        self._host = _host_of(number)
        self._address = address_of(number)
        self._job = SimulatedJob(
            topology=parse_topology(TOPOLOGY), scenario=SCENARIOS[number % len(SCENARIOS)], seed=seed
        )
        self._index = number % self._job.topology.hosts
        self._monitor = monitor
        self._refused_writes: list[str] = []
        self._dice = random.Random(f"{seed} {number}")
        self._fault: Fault | None = None
        self._servers: tuple[PortServer, ...] = ()

    async def live(self) -> None:
        """Serves, with faults, until it is cancelled."""
        while True:
            await self._start()
            healthy_s, fault, faulty_s = next_fault(self._dice)
            await asyncio.sleep(healthy_s)
            tell(address=self._address, kind="fault", fault=fault, refused_writes=len(self._refused_writes))
            if fault in WITHOUT_SERVER:
                servers, self._servers = self._servers, ()
                await asyncio.gather(*(server.stop() for server in servers))
                async with impostor(fault, self._host, PROFILER_PORT, self._dice):
                    await asyncio.sleep(faulty_s)
            else:
                self._fault = fault
                await asyncio.sleep(faulty_s)
                self._fault = None

    async def _start(self) -> None:
        """Starts its servers anew, if they are gone, perhaps as those of another generation."""
        if self._servers:
            return
        epoch_unix_ns = to_ns(_start_unix_s)
        service = ProfilerService(
            self._job,
            self._index,
            generation=self._dice.choice(["2025", "new"]),
            monitor=self._monitor,
            clock=_job_clock,
            epoch_unix_ns=epoch_unix_ns,
            refused_writes=self._refused_writes,
        )
        runtime = RuntimeMetricService(self._job, self._index, clock=_job_clock, epoch_unix_ns=epoch_unix_ns)
        self._servers = tuple(
            PortServer(
                {path: self._faulty(path, method) for path, method in methods.items()}, host=self._host, port=port
            )
            for methods, port in ((service.methods, PROFILER_PORT), (runtime.methods, RUNTIME_PORT))
        )
        for server in self._servers:
            while not server.running:
                try:
                    await server.start()
                except TpumonError:  # what listened there before lingers
                    await asyncio.sleep(0.5)

    def _faulty(self, path: str, method: Method) -> Method:
        """The method with this worker's faults; tells what it answered."""

        async def answer(data: bytes) -> bytes:
            fault = self._fault
            await before_answer(fault, self._dice)
            if path == PROFILE:
                traced_s = ProfileRequest.FromString(data).opts.duration_ms / 1e3
                tell(address=self._address, kind="traced", traced_s=traced_s)
            _traced.set(traced := [])
            reply = await method(data)
            truth = traced[0] if traced else _truth_of(path, reply)
            if fault in DAMAGING:
                reply = damaged(reply, fault, path, self._dice)
            if truth is not None:
                tell(address=self._address, damaged=fault in DAMAGING, **truth)
            return reply

        return answer


def _job_clock() -> float:
    return _start_unix_s + (time.time() - _start_unix_s) * CLOCK_SPEED


def _truth_of(path: str, reply: bytes) -> _Truth | None:
    """What an answer says, if it has figures."""
    if path == MONITOR:
        return figures_of("monitor", MonitorResponse.FromString(reply).monitor_result)
    if path == GET_RUNTIME_METRIC:
        metric = MetricResponse.FromString(reply).metric
        if metric.name in _HBM:
            return {"kind": _HBM[metric.name], "value": sum(row.gauge.as_int for row in metric.metrics)}
    return None


def figures_of(kind: str, result: MonitorResult) -> _Truth:
    """What the ledger wants to know of an answer's figures."""
    has_idle = result.response_type >= MonitorResult.UTIL_IDLE
    has_steps = result.response_type >= MonitorResult.UTIL_IDLE_STEP
    steps_ms = (result.step_time_ms_avg, result.step_time_ms_min, result.step_time_ms_max)
    infeed = (result.infeed_percent_avg, result.infeed_percent_min, result.infeed_percent_max)
    return {
        "kind": kind,
        "mxu": result.matrix_unit_utilization_percent / 100,
        "idle": result.device_idle_time_percent / 100 if has_idle else None,
        "step_s": [step_ms / 1e3 for step_ms in steps_ms] if has_steps else None,
        "infeed": [percent / 100 for percent in infeed] if has_steps else None,
    }


def _build_trace(job: SimulatedJob, worker: int, **window: Any) -> SimulatedTrace:
    """As the simulator's, and keeps the figures of what it shows."""
    shown = measure(job, window_events(job, worker, window["start_ns"], window["stop_ns"]))
    _traced.get().append(figures_of("trace", monitor_result(shown, level=2)))
    return build_trace(job, worker, **window)


async def serve(workers: int, by_monitor: int, seed: int) -> None:
    """Serves that many workers until it is ended."""
    profiler.build_trace = _build_trace
    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            group.create_task(_Worker(number, monitor=number < by_monitor, seed=seed).live())
        tell(kind="ready")


if __name__ == "__main__":
    try:
        asyncio.run(serve(*map(int, sys.argv[1:4])))
    except KeyboardInterrupt:
        os._exit(0)  # a server of grpc.aio complains when it outlives its loop
