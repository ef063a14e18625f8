"""Servers that never answered, beside workers that do: at the start, after a reload, after restarts. In virtual time.

The channels are made up; what is asked, and when, is as it is.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import pairwise

import grpc
import pytest

from support import virtual_time
from support.odd_reading import VirtualReaderPool
from support.traces import CONV, Traced, run_step
from tpumon import proto as wire
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sources import Client, Connecting, SourceOptions
from tpumon.collection.sources.traces import readers
from tpumon.model import Query, Target, Workers
from tpumon.proto.profiler_pb2 import ProfileRequest, ProfileResponse
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts

INTERVAL_S, WINDOW_S, ANSWER_S, READ_S = 2.0, 0.1, 0.02, 0.005
PROBE_MS = 1
HEALTHY = [f"healthy-{i}" for i in range(4)]
READY, IDLE = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.IDLE


def good_trace():
    traced = Traced()
    run_step(traced.core(0), 0, [(CONV, 50)] * 3)
    return traced.bytes()


GOOD = good_trace()


class Server:
    """One worker: it answers at once, or hangs at the "connect", the "probe" or the "trace"."""

    def __init__(self, address):
        self.hangs_at = address.partition("-")[0]
        self.state = IDLE
        self.ended = asyncio.Event()

    def restart(self):
        self.ended.set()
        self.state, self.hangs_at, self.ended = IDLE, None, asyncio.Event()

    async def hang(self):
        await self.ended.wait()
        raise failed(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    def get_state(self):
        return self.state

    def unary_unary(self, path, response_deserializer):
        async def call(request, timeout):  # noqa: ASYNC109 - as gRPC has it
            try:
                async with asyncio.timeout(timeout):
                    return response_deserializer(await self.answer(path, request))
            except TimeoutError:
                raise failed(grpc.StatusCode.DEADLINE_EXCEEDED) from None

        return call

    async def answer(self, path, request):
        if self.hangs_at == "connect":
            await self.hang()
        self.state = READY
        await asyncio.sleep(ANSWER_S)
        if path != wire.PROFILE:
            raise failed(grpc.StatusCode.UNIMPLEMENTED, "unimplemented.")
        window_ms = ProfileRequest.FromString(request).duration_ms
        if self.hangs_at == ("probe" if window_ms == PROBE_MS else "trace"):
            await self.hang()
        await asyncio.sleep(window_ms / 1000)
        return ProfileResponse(xspace=GOOD).SerializeToString()

    async def close(self):
        pass


def failed(code, details=""):
    return grpc.aio.AioRpcError(code, None, None, details=details)


class Listed:
    """Workers that become others."""

    def __init__(self):
        self.changes = asyncio.Queue()

    def now(self, *addresses):
        targets = tuple(Target(worker=address, address=address) for address in addresses)
        self.changes.put_nowait(Workers(targets=targets))

    async def watch(self, _all_gone):
        while True:
            yield await self.changes.get()


class Run:
    """A sampler and its servers; knows when each worker answered with figures."""

    def __init__(self):
        self.servers = {}
        self.listed = Listed()
        self.came_s = defaultdict(list)
        connecting = Connecting()
        self.sampler = Sampler(
            self.listed,
            Query(level=2, window_s=WINDOW_S),
            Pace(interval_s=INTERVAL_S, max_duty_ratio=1.0),
            on_sample=self.add,
            options=SourceOptions(),
            open_client=lambda address: Client(address, connecting=connecting),
            extra_sources=(),
            pause=no_pause,
        )

    def channel(self, address, options):
        return self.servers.setdefault(address, Server(address))

    def add(self, sample):
        if sample.has_figures:
            self.came_s[sample.worker].append(now_s())

    def gaps_s(self, since_s=0.0):
        """From one answer of a healthy worker to the next; the second one is scattered."""
        times = [[at_s for at_s in self.came_s[worker][1:] if at_s >= since_s] for worker in HEALTHY]
        return [later - earlier for each in times for earlier, later in pairwise(each)]


def now_s():
    return asyncio.get_running_loop().time()


async def no_pause():
    return None


async def at_once(function, *args, **kwargs):
    """What a thread would do, without letting time pass."""
    return function(*args, **kwargs)


@pytest.fixture
def play(monkeypatch):
    """Plays a scene with a running sampler."""
    result = figures_of_hosts([read_host_totals(GOOD)])

    monkeypatch.setattr(readers, "QUICK", VirtualReaderPool(2, lambda _xspace: READ_S, result))
    monkeypatch.setattr(asyncio, "to_thread", at_once)
    monkeypatch.setattr("tpumon.collection.sources.rpc.may_connect", lambda _pending: True)

    def play(scene):
        async def main():
            run = Run()
            monkeypatch.setattr(grpc.aio, "insecure_channel", run.channel)
            running = asyncio.create_task(run.sampler.run())
            try:
                return await scene(run)
            finally:
                running.cancel()
                await asyncio.wait([running])

        return virtual_time.run(main())

    return play


def hung(kind, count):
    return [f"{kind}-{i}" for i in range(count)]


KINDS = pytest.mark.parametrize("kind", ["connect", "probe", "trace"])


@KINDS
@pytest.mark.parametrize("count", [2, 24, 100, 300])
def test_workers_that_answer_do_not_queue_behind_those_that_hang(kind, count, play):
    """At the start nothing is known of anyone; the hung ones are asked first."""

    async def scene(run):
        began_s = now_s()
        run.listed.now(*hung(kind, count), *HEALTHY)
        await asyncio.sleep(90)
        firsts_s = [run.came_s[worker][:2] for worker in HEALTHY]
        return [at_s - began_s for at_s, _ in firsts_s], [then_s - at_s for at_s, then_s in firsts_s], run.gaps_s()

    first_s, scattered_s, gaps_s = play(scene)
    assert max(gaps_s) < 1.3 * INTERVAL_S
    assert max(scattered_s) < 2.3 * INTERVAL_S  # from the first to the second, so that workers stay out of step
    assert max(first_s) < (15 if (kind, count) == ("trace", 300) else 5)  # there is no memory for 300 traces


@KINDS
def test_a_reload_that_adds_hung_servers_costs_no_worker_a_sample(kind, play):
    """A hundred of them."""

    async def scene(run):
        run.listed.now(*HEALTHY)
        await asyncio.sleep(20)
        run.listed.now(*hung(kind, 100), *HEALTHY)
        await asyncio.sleep(90)
        return run.gaps_s()

    gaps_s = play(scene)
    assert max(gaps_s) < 1.3 * INTERVAL_S


@KINDS
@pytest.mark.parametrize("also_new", [False, True])
def test_a_worker_that_restarts_has_figures_at_once(kind, also_new, play):
    """While a hundred others hang, that were there before or come at the same moment."""

    async def scene(run):
        run.listed.now(*HEALTHY, *([] if also_new else hung(kind, 100)))
        await asyncio.sleep(60)
        restarted_s = now_s()
        for worker in HEALTHY:
            run.servers[worker].restart()
        if also_new:
            run.listed.now(*hung(kind, 100), *HEALTHY)
        await asyncio.sleep(60)
        return run.gaps_s(restarted_s - INTERVAL_S)

    gaps_s = play(scene)
    assert max(gaps_s) < (2 if also_new else 1.3) * INTERVAL_S


@KINDS
def test_a_server_that_hung_and_restarts_is_one_of_the_others(kind, play):
    """It waits no longer among those that hang, once its next query has come."""

    async def scene(run):
        workers = hung(kind, 100)
        run.listed.now(*workers)
        await asyncio.sleep(120)
        restarted_s = now_s()
        for worker in workers[:4]:
            run.servers[worker].restart()
        await asyncio.sleep(90)
        return [run.came_s[worker][0] - restarted_s for worker in workers[:4]]

    after_s = play(scene)
    assert max(after_s) < 25
