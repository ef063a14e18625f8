"""The one file that makes channels and calls."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

import grpc
import pytest

from fakes.tpu_node import Answer, Fail, TpuNode
from support import free_port
from tpumon import proto as wire
from tpumon.collection.sources.rpc import Client, _reason_and_words, channel_options
from tpumon.errors import SourceError
from tpumon.proto.profiler_pb2 import MonitorRequest, MonitorResponse

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _SETTINGS, _PING, _ACK, _INITIAL_WINDOW_SIZE = 1, 4, 6, 1, 4  # of RFC 9113


def test_a_long_profile_is_not_pinged_to_death():
    """Servers close connections that are pinged more often than every 5 minutes without data."""
    options = dict(channel_options(use_proxy=False, max_bytes=64_000_000))
    assert options["grpc.keepalive_time_ms"] > 5 * 60 * 1000
    assert options["grpc.max_receive_message_length"] == 64_000_000
    assert options["grpc.enable_http_proxy"] == 0
    assert dict(channel_options(use_proxy=True, max_bytes=1))["grpc.enable_http_proxy"] == 1


@pytest.mark.parametrize(
    ("code", "details", "reason"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses; last error: Connection refused", "unavailable"),
        ("UNAVAILABLE", "errors resolving no-such-host.invalid:8466: [Domain name not found]", "resolve"),
        ("UNAVAILABLE", "Failed parsing HTTP/2 (Expected SETTINGS frame)", "not-a-profiler"),
        ("UNAVAILABLE", "connection attempt timed out before receiving SETTINGS frame", "not-a-profiler"),
        ("UNKNOWN", "Stream removed (Socket closed)", "unavailable"),
        ("CANCELLED", "", "unavailable"),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", "deadline"),
        ("UNIMPLEMENTED", "unimplemented.", "unimplemented"),
        ("UNIMPLEMENTED", "", "not-a-profiler"),
        ("UNIMPLEMENTED", "Method not found!", "not-a-profiler"),
        ("INTERNAL", "Another profiling session active.", "busy"),
        ("ALREADY_EXISTS", "Another profiling session active.", "busy"),
        ("INTERNAL", "permanently disabled by env var TF_DISABLE_PROFILING.", "refused"),
        ("RESOURCE_EXHAUSTED", "Received message larger than max (23414219 vs. 4194304)", "too-large"),
        ("PERMISSION_DENIED", "no", "refused"),
        ("INTERNAL", "", "internal"),
        ("DATA_LOSS", "odd\x1b[31m", "internal"),
    ],
)
def test_a_status_becomes_a_reason_and_plain_words(code, details, reason):
    """Every status has one of the closed set of reasons, and one line that a terminal can show."""
    found, words = _reason_and_words(getattr(grpc.StatusCode, code), details, 30.0)
    assert found == reason
    assert words
    assert words.isprintable()


def test_a_port_where_nothing_listens_is_told_by_a_detail():
    """Not by the words alone; a job that is there may be away for another reason, too."""

    async def failure_at(address):
        async with Client(address) as client:
            with pytest.raises(SourceError) as failed:
                await client.call(wire.MONITOR, MonitorRequest(), MonitorResponse, timeout_s=10)
        return failed.value.reason, failed.value.detail

    assert asyncio.run(failure_at(f"127.0.0.1:{free_port()}")) == ("unavailable", "connection-refused")
    with TpuNode(monitor=Fail(code=grpc.StatusCode.UNAVAILABLE, details="Cancelling all calls")) as node:
        assert asyncio.run(failure_at(node.address)) == ("unavailable", None)


def test_a_server_that_ends_is_said_to_shut_down():
    """gRPC's own words for it say what it does to calls."""
    for said, words in (
        ("Cancelling all calls", "the server is shutting down"),
        (
            "FAILED_PRECONDITION: ipv4:10.0.0.1:1: Network is unreachable",
            "this host cannot be reached: network unreachable",
        ),
        ("FAILED_PRECONDITION: ipv4:10.0.0.1:1: No route to host", "this host cannot be reached: no route to host"),
    ):
        assert _reason_and_words(grpc.StatusCode.UNAVAILABLE, said, 30.0) == ("unavailable", words)


def test_connections_are_counted():
    """What was learned of a server is good for one connection; calls over the same one do not count anew."""

    async def main():
        with TpuNode() as node:
            async with Client(node.address) as client:
                seen = [client.connection]
                for _ in range(2):
                    with pytest.raises(SourceError):
                        await client.call(wire.MONITOR, MonitorRequest(), MonitorResponse, timeout_s=30)
                    seen.append(client.connection)
                return seen

    assert asyncio.run(main()) == [0, 1, 1]


async def test_a_closed_client_connects_anew_at_once():
    """gRPC itself waits for seconds after some refused calls, although a server listens there by then."""

    async def reason():
        with pytest.raises(SourceError) as caught:
            await client.call(wire.MONITOR, MonitorRequest(), MonitorResponse, timeout_s=5)
        return caught.value.reason

    with TpuNode() as node:
        address = node.address
    async with Client(address) as client:
        for _ in range(3):
            assert await reason() == "unavailable"
            await asyncio.sleep(0.6)
        with TpuNode(port=int(address.rpartition(":")[2])):
            await client.close()
            assert await reason() == "unimplemented"


def test_calls_are_not_followed_by_pings_and_a_usual_trace_needs_no_round_trips():
    """gRPC would ping after each answer to find out how much it may ask for at once."""

    frames = []

    async def relay(reader, writer):
        node_reader, node_writer = await asyncio.open_connection(*node.address.split(":"))
        back = asyncio.create_task(copy(node_reader, writer))
        node_writer.write(await reader.readexactly(len(_PREFACE)))
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3]))
                frames.append((head[3], head[4], payload))
                node_writer.write(head + payload)
        back.cancel()
        for each in (node_writer, writer):
            each.close()
            await each.wait_closed()
        closed.set()

    async def copy(reader, writer):
        while data := await reader.read(1 << 16):
            writer.write(data)

    async def main():
        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            async with Client(f"127.0.0.1:{port}") as client:
                for _ in range(5):
                    await client.call(wire.MONITOR, MonitorRequest(), MonitorResponse, timeout_s=30)
            await asyncio.wait_for(closed.wait(), 30)

    closed = asyncio.Event()
    with TpuNode(monitor=Answer()) as node:
        asyncio.run(main())
    assert [kind for kind, _, _ in frames].count(_HEADERS) == 5
    assert [payload for kind, flags, payload in frames if kind == _PING and not flags & _ACK] == []
    settings = next(payload for kind, _, payload in frames if kind == _SETTINGS)
    window = dict(struct.iter_unpack(">HI", settings)).get(_INITIAL_WINDOW_SIZE, 65_535)
    assert window >= 2_600_000
