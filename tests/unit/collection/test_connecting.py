"""How many connections are made at a time. In virtual time, with channels that only count."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc
import pytest

from support import virtual_time
from tpumon import proto as wire
from tpumon.collection.sources import Connecting
from tpumon.collection.sources import connecting as module
from tpumon.collection.sources.rpc import Client
from tpumon.errors import SourceError
from tpumon.proto.profiler_pb2 import MonitorRequest, MonitorResponse

pytestmark = pytest.mark.virtual_time

AT_ONCE = module._AT_ONCE
ANSWER_S = 1.0
READY, CONNECTING, IDLE = (
    grpc.ChannelConnectivity.READY,
    grpc.ChannelConnectivity.CONNECTING,
    grpc.ChannelConnectivity.IDLE,
)


def now_s():
    return asyncio.get_running_loop().time()


class Network:
    """Connects each address after a time of its own, and answers a second later; counts what goes on at once."""

    def __init__(self, connects_in_s):
        self.connects_in_s = connects_in_s  # by the first letter of an address; None: never
        self.connecting = self.most = self.made = 0
        self.at_s = {}

    def channel(self, address, options):
        self.made += 1
        return Channel(self, address)


class Channel:
    def __init__(self, network, address):
        self.network, self.address, self.state = network, address, IDLE

    def get_state(self):
        return self.state

    def unary_unary(self, _path, response_deserializer):
        async def call(_request, timeout):  # noqa: ASYNC109 - as gRPC has it
            deadline_s = now_s() + timeout
            if self.state is IDLE:
                self.network.at_s[self.address] = now_s()
                await self.connect(deadline_s)
            await asyncio.sleep(ANSWER_S)
            return response_deserializer(b"")

        return call

    async def connect(self, deadline_s):
        network, takes_s = self.network, self.network.connects_in_s[self.address[0]]
        network.connecting += 1
        network.most = max(network.most, network.connecting)
        self.state = CONNECTING
        try:
            await asyncio.sleep(min(takes_s, deadline_s - now_s()) if takes_s is not None else deadline_s - now_s())
        finally:
            network.connecting -= 1
            self.state = IDLE
        if takes_s is None:
            raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, None, None)
        self.state = READY

    async def close(self):
        pass


@pytest.fixture
def network(monkeypatch):
    network = Network({"q": 0.1, "h": None})
    monkeypatch.setattr(grpc.aio, "insecure_channel", network.channel)
    monkeypatch.setattr("tpumon.collection.sources.rpc.may_connect", lambda _pending: True)
    return network


async def ask(client, timeout_s=10.0):
    """When the answer came, or the failure."""
    try:
        await client.call(wire.MONITOR, MonitorRequest(), MonitorResponse, timeout_s=timeout_s)
    except SourceError as error:
        return error
    return now_s()


def test_few_connections_are_made_at_a_time_and_all_are_made(network):
    """A thousand new workers; a turn ends when the connection is there, so a call that goes on delays no other."""

    async def main():
        shared, began_s = Connecting(), now_s()
        answers = await asyncio.gather(*(ask(Client(f"q{i}", connecting=shared)) for i in range(1000)))
        return [answer - began_s for answer in answers]

    took_s = virtual_time.run(main())
    assert network.most == AT_ONCE
    assert max(took_s) < 1000 / AT_ONCE * (0.1 + 2 * module._CHECK_S) + ANSWER_S
    assert list(network.at_s) == [f"q{i}" for i in range(1000)]  # first come, first served


async def test_who_is_connected_waits_for_nobody(network):
    """However many others want to connect."""
    shared = Connecting()
    connected = Client("q", connecting=shared)
    await ask(connected)
    others = [asyncio.create_task(ask(Client(f"h{i}", connecting=shared))) for i in range(500)]
    await asyncio.sleep(0.5)
    began_s = now_s()
    answered_s = await ask(connected) - began_s
    for task in others:
        task.cancel()
    assert answered_s == pytest.approx(ANSWER_S)


async def test_hung_servers_take_one_turn_from_the_others_and_then_none(network):
    """From then on they wait for others that hang."""
    shared = Connecting()
    hung = [Client(f"h{i}", connecting=shared) for i in range(3 * AT_ONCE)]
    waited_s = []
    for _ in range(2):
        began_s = now_s()
        asked = [asyncio.create_task(ask(client)) for client in hung]
        await asyncio.sleep(0)
        waited_s.append(await ask(Client("q", connecting=shared)) - began_s - ANSWER_S)
        errors = await asyncio.gather(*asked)
        assert {error.reason for error in errors} <= {"deadline", "unavailable"}
    first_s, second_s = waited_s
    assert 0.6 < first_s < 1
    assert second_s < 0.2


async def test_a_worker_that_was_connected_waits_for_no_new_one(network):
    """Its server restarts while hundreds of new ones hang."""
    shared = Connecting()
    known = Client("q", connecting=shared)
    await ask(known)
    others = [asyncio.create_task(ask(Client(f"h{i}", connecting=shared))) for i in range(20 * AT_ONCE)]
    await asyncio.sleep(0.1)
    known._channel.state = IDLE
    began_s = now_s()
    answered_s = await ask(known) - began_s
    for task in others:
        task.cancel()
    assert answered_s == pytest.approx(0.1 + ANSWER_S)


async def test_a_server_that_hung_once_and_connects_again_is_one_of_the_others(network):
    """Its next connection is made in time, and the one after that waits for nobody that hangs."""
    client = Client("h", connecting=Connecting())
    states = []
    for takes_s in (None, 0.1):
        network.connects_in_s["h"] = takes_s
        await ask(client)
        states.append(client._past)
    assert states == ["late", "known"]


async def test_workers_that_are_gone_before_their_turn_cost_nothing(network):
    """Names that come and go faster than connections can be made: no channel is made for those that waited."""
    shared = Connecting()
    tasks = [asyncio.create_task(ask(Client(f"h{i}", connecting=shared))) for i in range(1000)]
    await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert (await ask(Client("q", connecting=shared)) - now_s()) == pytest.approx(0.0)
    assert network.made == AT_ONCE + 1


async def test_waiting_for_a_turn_has_the_limit_of_the_call(network):
    """What is read beside a profiler may take 2 s; it is not there, then."""
    shared = Connecting()
    tasks = [asyncio.create_task(ask(Client(f"h{i}", connecting=shared))) for i in range(16 * AT_ONCE)]
    await asyncio.sleep(0)
    began_s = now_s()
    error = await ask(Client("q", connecting=shared), timeout_s=2.0)
    for task in tasks:
        task.cancel()
    took_s = now_s() - began_s
    assert error.reason == "unavailable"
    assert took_s == pytest.approx(2.0)


async def test_each_turn_is_given_back(network):
    """After calls that failed, were ended or closed, as many turns are there as before."""
    shared, ends = Connecting(), Counter()
    for i in range(3 * AT_ONCE):
        client = Client(f"h{i}", connecting=shared)
        if i % 3 == 0:
            await client.wait_for_turn()
            await client.close()
        elif i % 3 == 1:
            task = asyncio.create_task(ask(client))
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.wait([task])
        else:
            await asyncio.gather(client.wait_for_turn(), client.wait_for_turn())
            await ask(client)
        ends[shared._lanes["new"]._value] += 1
    assert set(ends) == {AT_ONCE}
