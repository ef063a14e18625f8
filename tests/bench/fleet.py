"""One process following a fleet: how old its newest samples are, CPU share and RSS.

1,000 workers by Monitor every 10 s, then 256 by traces of 2.6 MB every 30 s, of which one worker's are 50 MB. The
workers are served by processes of their own. Targets: 95th percentile of age under 1.5 intervals; by Monitor 30 % of a
core and 200 MB; by traces 400 MB.
CPU and RSS are of the process that follows; those of the processes that read traces for it stand beside.
Last, as many usual traces as one core takes, the process that reads them on the same core: target 60 a second.

python tests/bench/fleet.py [monitor|traces|core]
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.processes import children, cpu_s, ended_children_cpu_s, status

FIRST_PORT = 21000
BIG_TRACE_EVENTS, TRACE_EVENTS, PROBE_EVENTS = 950_000, 37_735, 188


@contextmanager
def process(*command: str, stdout: int = subprocess.PIPE) -> Iterator[subprocess.Popen[str]]:
    """A process while the block runs; interrupted at its end."""
    with subprocess.Popen([sys.executable, *command], stdout=stdout, text=True) as started:
        try:
            yield started
        finally:
            started.send_signal(signal.SIGINT)
            started.wait(20)


def cpu_of_children_s(pid: int) -> float:
    """Processor time of the processes that a process started, those that have ended included."""
    return ended_children_cpu_s(pid) + sum(cpu_s(child) for child in children(pid))


class Ages:
    """Reads a monitor's JSON lines, and knows how old the newest sample of each worker is."""

    def __init__(self, monitor: subprocess.Popen[str]) -> None:
        self._monitor = monitor
        self._newest: dict[str, float] = {}
        self.interval_s = 0.0
        self.answered = self.failed = self.with_hbm = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._monitor.stdout is not None
        for line in self._monitor.stdout:
            sample = json.loads(line)
            if sample["source"] is None:
                self.failed += 1
            else:
                self.answered += 1
                self._newest[sample["worker"]] = sample["time_unix_s"]
                self.interval_s = sample["interval_s"]
                self.with_hbm += sample["hbm_used_bytes"] is not None

    def now(self) -> list[float]:
        """Ages in seconds, by no order."""
        now = time.time()
        return [now - then for then in self._newest.copy().values()]


def follow(name: str, workers: int, interval_s: float, settle_s: float, span_s: float, *command: str) -> None:
    """Follows workers by that command and prints what it took."""
    with process(*command) as monitor:
        ages = Ages(monitor)
        time.sleep(settle_s)
        before_s, readers_before_s = cpu_s(monitor.pid), cpu_of_children_s(monitor.pid)
        started_s = time.monotonic()
        seen: list[float] = []
        while time.monotonic() < started_s + span_s:
            time.sleep(1)
            seen += ages.now()
        took_s = time.monotonic() - started_s
        ratio = (cpu_s(monitor.pid) - before_s) / took_s
        readers_ratio = (cpu_of_children_s(monitor.pid) - readers_before_s) / took_s
        heard = len(ages.now())
        p95_s = quantiles(seen, n=20)[-1]
        peak_mb, size_mb = status(monitor.pid, "VmHWM") / 1000, status(monitor.pid, "VmRSS") / 1000
        readers_mb = sum(status(child, "VmHWM") for child in children(monitor.pid)) / 1000
        print(
            f"{name}: {heard} of {workers} workers heard, {ages.failed} failed queries, {ages.with_hbm} with HBM; "
            f"effective interval {ages.interval_s:.0f} s, age p95 {p95_s:.1f} s, {p95_s / interval_s:.2f} of the "
            f"interval asked for (target 1.50); {ratio:.1%} of a core and {readers_ratio:.1%} in "
            f"readers; RSS {size_mb:.0f} MB, at most {peak_mb:.0f} MB, readers at most {readers_mb:.0f} MB",
            flush=True,
        )


def tpumon_on(file: Path, targets: list[str], interval_s: float, *options: str) -> tuple[str, ...]:
    """The command that follows the targets."""
    file.write_text(json.dumps([{"targets": targets, "labels": {"slice": "bench"}}]))
    command = ("-m", "tpumon", "--level", "2", "--interval", str(interval_s), "--targets", str(file))
    return (*command, "--output", "jsonl", *options)


def on_one_core() -> None:
    """Follows workers with usual traces, more than one core can take; prints how many a second of CPU."""
    cores = sorted(os.sched_getaffinity(0))
    assert len(cores) > 1, "this takes two cores: one for the monitor, others for the workers"
    with tempfile.TemporaryDirectory() as directory, process(__file__, "serve", "256", "usual") as server:
        assert server.stdout is not None
        os.sched_setaffinity(server.pid, cores[1:])
        targets = server.stdout.readline().strip().split(",")
        with process(*tpumon_on(Path(directory, "targets.json"), targets, 3, "--max-duty", "0.9")) as monitor:
            os.sched_setaffinity(monitor.pid, cores[:1])
            ages = Ages(monitor)
            time.sleep(40)
            rates = []
            for _ in range(9):
                answered, before_s = ages.answered, cpu_s(monitor.pid) + cpu_of_children_s(monitor.pid)
                time.sleep(10)
                after_s = cpu_s(monitor.pid) + cpu_of_children_s(monitor.pid)
                rates.append((ages.answered - answered) / (after_s - before_s))
    print(
        f"256 by traces of 2.6 MB on one core: {median(rates):.0f} a second of CPU "
        f"({min(rates):.0f} to {max(rates):.0f}, target 60); {ages.failed} failed queries",
        flush=True,
    )


def by_monitor() -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        targets: list[str] = []
        runtime: list[str] = []
        for number in range(4):
            port = str(FIRST_PORT + 1000 * number)
            simulator = stack.enter_context(process("-m", "tpumon", "simulate", "v3-2048", "--port", port))
            assert simulator.stdout is not None
            while "watch it:" not in (line := simulator.stdout.readline()):
                assert line, "the simulator did not start"
                targets.append(line.split()[-4])
                runtime.append(line.split()[-1])
        command = tpumon_on(directory / "targets.json", targets[:1000], 10)
        follow("1,000 by Monitor every 10 s", 1000, 10, 25, 60, *command)
        # On one machine nobody can tell which runtime metrics are whose, so this one is told.
        told = directory / "runtime.json"
        told.write_text(json.dumps(list(zip(targets, runtime, strict=True))[:1000]))
        follow("the same with runtime metrics", 1000, 10, 25, 60, __file__, "sample", str(told))


def by_traces() -> None:
    with tempfile.TemporaryDirectory() as directory, process(__file__, "serve", "256", "big") as server:
        assert server.stdout is not None
        targets = server.stdout.readline().strip().split(",")
        # The pace is what is measured, not the share of time that such a job may be traced for.
        command = tpumon_on(Path(directory, "targets.json"), targets, 30, "--max-duty", "0.2")
        follow("256 by traces of 2.6 MB every 30 s", 256, 30, 65, 90, *command)


async def sample(addresses: list[tuple[str, str]]) -> None:
    """Follows workers whose profiler and runtime metric service are given; prints JSON lines."""
    from tpumon.collection.sampler import Pace, Sampler
    from tpumon.collection.sources import SourceOptions
    from tpumon.discovery.finder import Fixed
    from tpumon.model import Query, Target

    sampler = Sampler(
        Fixed([Target(worker=a, address=a, runtime_addresses=(runtime,)) for a, runtime in addresses]),
        Query(level=2),
        Pace(interval_s=10),
        on_sample=lambda sample: print(json.dumps(sample.to_json()), flush=True),
        options=SourceOptions(runtime_metrics=True),
    )
    await sampler.run()


def traces() -> dict[str, bytes]:
    """Encoded answers of three sizes."""
    sys.path.insert(0, str(Path(__file__).parent))
    from decode import write_trace

    from tpumon.proto.profiler_pb2 import ProfileResponse

    answers = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, events in (("probe", PROBE_EVENTS), ("usual", TRACE_EVENTS), ("big", BIG_TRACE_EVENTS)):
            write_trace(Path(directory, name), events)
            answers[name] = ProfileResponse(xspace=Path(directory, name).read_bytes()).SerializeToString()
    return answers


async def serve(count: int, first: str, answers: dict[str, bytes]) -> None:
    """Profiler servers without Monitor, on a port each, that all return the usual trace, but for the first one."""
    import grpc

    from tpumon import proto as wire
    from tpumon.proto.profiler_pb2 import ProfileRequest

    async def monitor(_request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unimplemented.")
        raise AssertionError

    def profile(usual: str) -> grpc.RpcMethodHandler:
        async def answer(request: bytes, _context: grpc.aio.ServicerContext) -> bytes:
            duration_ms = ProfileRequest.FromString(request).opts.duration_ms
            await asyncio.sleep(duration_ms / 1000)
            return answers["probe" if duration_ms <= 1 else usual]

        return grpc.unary_unary_rpc_method_handler(answer)

    addresses = []
    servers = []
    for usual, ports in ((first, 1), ("usual", count - 1)):
        server = grpc.aio.server()
        handlers = {wire.MONITOR: grpc.unary_unary_rpc_method_handler(monitor), wire.PROFILE: profile(usual)}

        class Methods(grpc.GenericRpcHandler):
            def __init__(self, methods: dict[str, grpc.RpcMethodHandler]) -> None:
                self._methods = methods

            def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
                return self._methods.get(call.method)

        server.add_generic_rpc_handlers((Methods(handlers),))
        addresses += [f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}" for _ in range(ports)]
        await server.start()
        servers.append(server)
    print(",".join(addresses), flush=True)
    await asyncio.gather(*(server.wait_for_termination() for server in servers))


def main() -> None:
    if sys.argv[1:2] in (["serve"], ["sample"]):
        try:
            if sys.argv[1] == "serve":
                asyncio.run(serve(int(sys.argv[2]), sys.argv[3], traces()))
            asyncio.run(sample(json.loads(Path(sys.argv[2]).read_text())))
        except KeyboardInterrupt:
            os._exit(0)  # a server of grpc.aio complains when it outlives its loop
    for name, measure in (("monitor", by_monitor), ("traces", by_traces), ("core", on_one_core)):
        if sys.argv[1:2] in ([], [name]):
            measure()


if __name__ == "__main__":
    main()
