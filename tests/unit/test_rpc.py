"""The one file that makes channels and calls."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from fakes.tpu_node import TpuNode
from tpumon import wire
from tpumon.errors import SourceError
from tpumon.sources.rpc import Client, _explain, channel_options
from tpumon.wire.profiler_pb2 import MonitorRequest, MonitorResponse


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
    found, words = _explain(getattr(grpc.StatusCode, code), details, 30.0)
    assert found == reason
    assert words
    assert words.isprintable()


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
