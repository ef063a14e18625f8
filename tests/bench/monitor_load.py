"""Processor time and RSS of following 256 workers by Monitor once a second, beside gRPC's own calls.

Followers take turns on one core, the servers have another: `tpumon serve`, `tpumon --output jsonl`, and loops that only
make the same calls and parse the answers: with gRPC's asyncio, all at once or each worker at a moment of its own (twice
as much, because each answer wakes the process), and with gRPC's futures. Targets: processor time for a query at most
1.6 times that of the loop that asks all at once; 90 MB.

python tests/bench/monitor_load.py [--workers 256] [--rounds 3] [--span 60] [FOLLOWER ...]
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from queue import SimpleQueue
from statistics import median

import grpc
import grpc.aio

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.processes import cpu_s, status
from tpumon import proto as wire
from tpumon.proto.profiler_pb2 import MonitorRequest, MonitorResponse

INTERVAL_S, WINDOW_MS, SETTLE_S = 1.0, 200, 8.0
LARGEST_RATIO, MOST_MB = 1.6, 90.0
ANSWERS = 60  # different ones, in turn
AT_ONCE, SPREAD = "grpc-at-once", "grpc-spread"


def answers() -> list[bytes]:
    """What a simulated worker answers, second by second."""
    from tpumon.simulator.expected_figures import figures
    from tpumon.simulator.monitor_text import monitor_text
    from tpumon.simulator.profiler import monitor_result
    from tpumon.simulator.scenario import SECOND, SimulatedJob
    from tpumon.simulator.topology import parse_topology

    job = SimulatedJob(topology=parse_topology("v3-2048"), scenario="steady", seed=0)
    windows = [figures(job, 0, at * SECOND, (at + 1) * SECOND) for at in range(10, 10 + ANSWERS)]
    return [
        MonitorResponse(
            data=monitor_text(job, window, level=2, unix_s=0.0), monitor_result=monitor_result(window, level=2)
        ).SerializeToString()
        for window in windows
    ]


def serve(workers: int, core: int, addresses: SimpleQueue[list[str]], answered: Synchronized[int]) -> None:
    """Answers Monitor at a port for each worker, and counts."""
    os.sched_setaffinity(0, {core})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepared = answers()

    async def monitor(request: bytes, _context: object) -> bytes:
        await asyncio.sleep(MonitorRequest.FromString(request).duration_ms / 1000)
        answered.value += 1
        return prepared[answered.value % ANSWERS]

    class Methods(grpc.GenericRpcHandler):
        def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
            return grpc.unary_unary_rpc_method_handler(monitor) if call.method == wire.MONITOR else None

    async def run() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Methods(),))
        found = [f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}" for _ in range(workers)]
        await server.start()
        addresses.put(found)
        await server.wait_for_termination()

    asyncio.run(run())


def request() -> bytes:
    return MonitorRequest(duration_ms=WINDOW_MS, monitoring_level=2, timestamp=True).SerializeToString()


async def at_once(addresses: list[str]) -> None:
    """Asks all workers at the same moment: the least that asyncio and gRPC can do."""
    methods = [grpc.aio.insecure_channel(address).unary_unary(wire.MONITOR) for address in addresses]
    while True:
        begun_s = time.monotonic()
        for answer in await asyncio.gather(*(method(request(), timeout=30.0) for method in methods)):
            MonitorResponse.FromString(answer)
        await asyncio.sleep(INTERVAL_S - (time.monotonic() - begun_s))


async def spread(addresses: list[str]) -> None:
    """Asks each worker at a moment of its own, as a monitor does that sends no bursts."""

    async def follow(address: str) -> None:
        clock_s = asyncio.get_running_loop().time
        method = grpc.aio.insecure_channel(address).unary_unary(wire.MONITOR)
        due_s = clock_s() + random.random() * INTERVAL_S
        while True:
            await asyncio.sleep(due_s - clock_s())
            MonitorResponse.FromString(await method(request(), timeout=30.0))
            due_s += INTERVAL_S

    await asyncio.gather(*map(follow, addresses))


def by_futures(addresses: list[str]) -> None:
    """The same with gRPC's own threads and futures."""
    order = count()
    methods = [grpc.insecure_channel(address).unary_unary(wire.MONITOR) for address in addresses]
    due = [(time.monotonic() + random.random() * INTERVAL_S, next(order), method) for method in methods]
    heapq.heapify(due)
    while True:
        due_s, _, method = heapq.heappop(due)
        time.sleep(max(0.0, due_s - time.monotonic()))
        call = method.future(request(), timeout=30.0)
        call.add_done_callback(lambda call: MonitorResponse.FromString(call.result()))
        heapq.heappush(due, (due_s + INTERVAL_S, next(order), method))


def command(follower: str, addresses: list[str]) -> list[str]:
    """The command of a follower."""
    if follower not in TPUMON:
        return [__file__, "follow", follower, ",".join(addresses)]
    pace = ["--level", "2", "--interval", str(INTERVAL_S), "--duration-ms", str(WINDOW_MS)]
    return ["-m", "tpumon", *TPUMON[follower], *pace, "--service-addr", ",".join(addresses)]


TPUMON = {"serve": ["serve", "--listen", "127.0.0.1:0"], "jsonl": ["--output", "jsonl"]}
FOLLOWERS = [AT_ONCE, SPREAD, "grpc-futures", *TPUMON]


@contextmanager
def running(arguments: list[str], core: int) -> Iterator[int]:
    """A process on that core while the block runs."""
    null = subprocess.DEVNULL
    with subprocess.Popen(
        ["taskset", "-c", str(core), sys.executable, *arguments], stdout=null, stderr=null
    ) as started:
        try:
            yield started.pid
        finally:
            started.terminate()  # a shell's background ignores SIGINT
            started.wait(20)


def main() -> None:
    if sys.argv[1:2] == ["follow"]:
        addresses = sys.argv[3].split(",")
        if sys.argv[2] in (AT_ONCE, SPREAD):
            asyncio.run((at_once if sys.argv[2] == AT_ONCE else spread)(addresses))
        by_futures(addresses)
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--span", type=float, default=60.0)
    parser.add_argument("followers", nargs="*", default=FOLLOWERS)
    settings = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    assert len(cores) > 1, "this takes two cores: one for the follower, another for the servers"
    spawn = multiprocessing.get_context("spawn")
    told, answered = spawn.SimpleQueue(), spawn.Value("Q", 0)
    server = spawn.Process(target=serve, args=(settings.workers, cores[-1], told, answered), daemon=True)
    server.start()
    addresses = told.get()
    ms: dict[str, list[float]] = {}
    for _ in range(settings.rounds):
        for follower in settings.followers:
            with running(command(follower, addresses), cores[0]) as pid:
                time.sleep(SETTLE_S)
                before, before_s, begun_s = answered.value, cpu_s(pid), time.monotonic()
                time.sleep(settings.span)
                queries, used_s, took_s = answered.value - before, cpu_s(pid) - before_s, time.monotonic() - begun_s
                size_mb = status(pid, "VmRSS") / 1000
            ms.setdefault(follower, []).append(1000 * used_s / queries)
            print(
                f"{follower:12} {used_s / took_s:6.1%} of a core, {queries / took_s:.0f} queries a second, "
                f"{1000 * used_s / queries:.3f} ms each; RSS {size_mb:.0f} MB",
                flush=True,
            )
    for follower, each in ms.items():
        ratios = [f"{median(each) / median(ms[bare]):.2f} times {bare}" for bare in (AT_ONCE, SPREAD) if bare in ms]
        span = f"{min(each):.3f} to {max(each):.3f}"
        print(f"{follower:12} median {median(each):.3f} ms a query ({span}), {', '.join(ratios)}")
    print(f"targets: {LARGEST_RATIO} times, {MOST_MB:.0f} MB")


if __name__ == "__main__":
    main()
