"""Answers that are too large, too many, compressed or nonsense cost nobody else a moment."""

from __future__ import annotations

import asyncio
import gzip
import resource
import time

import grpc
import pytest

from fakes.answering import Answering
from fakes.protobuf import field
from tpumon import proto as wire
from tpumon.collection.sources import Client
from tpumon.collection.sources.traces.profile_rpc import HostEvents, Profiler
from tpumon.errors import SourceError
from tpumon.proto.profiler_pb2 import MonitorRequest, MonitorResponse
from tpumon.proto.runtime_metrics_pb2 import MetricRequest, MetricResponse

MB = 1_000_000
HOST_EVENTS = HostEvents(level=0, safe_level=1, beside_devices=False)

ROWS = field(1, b"\x1a\x00" * (MB * 3 // 2))  # 1.5 million rows without anything, 3 MB
KEYS = field(1, field(3, field(1, field(2, field(6, b"\x0a\x00" * (MB * 3 // 2))))))  # one row of as many attributes
TEXT = field(1, "x" * 20 * MB)
PLANES = field(8, b"\x0a\x00" * (4 * MB))
LINES = field(8, field(1, b"\x1a\x00" * (3 * MB)))
PARTS = b"\x32\x00" * (3 * MB)  # tool data


def hostile(answer: bytes, *, compressed: bool = False):
    """A server that answers every call with these bytes, compressed if so asked."""

    def serve(_request, context):
        if compressed:
            context.set_compression(grpc.Compression.Gzip)
        return answer

    return Answering(serve, monitor=serve, threads=2)


async def longest_hold(work):
    """For how long the loop computed without a pause at most while `work` ran, in seconds, and what that raised.

    Processor time of the loop's own thread: what else runs on this machine does not count.
    """
    holds, done = [0.0], asyncio.Event()

    async def watch():
        while not done.is_set():
            before = time.thread_time()
            await asyncio.sleep(0.005)
            holds.append(time.thread_time() - before)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.02)
    error = None
    try:
        await work
    except SourceError as raised:
        error = raised
    done.set()
    await watching
    return max(holds), error


async def monitor(client):
    await client.call(wire.MONITOR, MonitorRequest(), MonitorResponse, timeout_s=30)


async def runtime(client):
    await client.call(wire.GET_RUNTIME_METRIC, MetricRequest(), MetricResponse, timeout_s=30)


async def probe(client):
    await Profiler(client, HOST_EVENTS).approach()


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("ask", "answer"),
    [(monitor, TEXT), (runtime, ROWS), (runtime, KEYS), (probe, PLANES), (probe, LINES), (probe, PARTS)],
    ids=["text", "rows", "keys", "planes", "lines", "parts"],
)
def test_a_hostile_answer_holds_nobody_up(ask, answer, compressed):
    """Whatever comes back is refused in words, and the loop goes on meanwhile."""

    async def main():
        async with Client(server.address) as client:
            await longest_hold(monitor(client))  # connecting and first use take their time
            return await longest_hold(ask(client))

    with hostile(answer, compressed=compressed) as server:
        hold_s, error = asyncio.run(main())
    assert error is not None
    assert error.reason in {"malformed", "too-large", "refused"}
    assert hold_s < 0.5  # some ms; unbounded: 1 to 10 s


def test_a_bomb_is_not_opened():
    """A gigabyte in half a megabyte takes no memory: no compressed answer is opened, and the words say so."""
    bomb = gzip.compress(bytes(MB), mtime=0) * 1000

    async def main():
        async with Client(server.address) as client:
            for ask in (monitor, runtime, probe):
                with pytest.raises(SourceError, match="compress") as refused:
                    await ask(client)
                assert refused.value.reason == "refused"

    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with hostile(bomb) as server:
        asyncio.run(main())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 100_000


@pytest.mark.parametrize(("megabytes", "reason"), [(3, None), (5, "too-large")])
def test_each_method_has_a_limit_of_its_own(megabytes, reason):
    """Monitor's text and runtime metrics are small; only traces may be large."""

    async def main():
        async with Client(server.address) as client:
            _, error = await longest_hold(monitor(client))
            return None if error is None else error.reason

    with hostile(field(1, "x" * megabytes * MB)) as server:
        assert asyncio.run(main()) == reason
