"""The one file that makes channels and calls. Every call has a deadline; every failure becomes a SourceError."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from collections.abc import Mapping
from typing import Self, TypeVar

# gRPC's core writes to stderr by itself; what matters arrives as a status. Read once, when grpc is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
import grpc.aio
from google.protobuf.message import Message

from tpumon import __version__
from tpumon import proto as wire
from tpumon.collection.sources.answers import COMPRESSED, parse
from tpumon.collection.sources.connecting import Connecting, ConnectTurn, Past
from tpumon.errors import Detail, Reason, SourceError
from tpumon.system.limits import may_connect
from tpumon.untrusted_text import one_line

_log = logging.getLogger(__name__)

MAX_TRACE_MB = 64
"""Largest answer accepted unless the user says otherwise, in MB. gRPC's default of 4 MB refuses ordinary traces."""

_SMALL_ANSWER_BYTES = 4 << 20
_ON_ITS_WAY_BYTES = 4 << 20  # of an answer, unacknowledged: a usual trace takes one round trip, however far it comes
_SMALL_ANSWERS = (wire.MONITOR, wire.TERMINATE, wire.GET_RUNTIME_METRIC, wire.LIST_SUPPORTED_METRICS)

ANSWER_GRACE_S = 30.0
"""Seconds for which a call may run beyond its window: a server collects and sends for seconds after the window."""

FIRST_ANSWER_S = 10.0
"""Grace of the first call of a method: a server that takes calls and never answers is soon named."""

# Servers count pings that come sooner than 5 minutes apart without data as abuse and close the connection, which
# would end a long Profile. So no sooner than that; a peer that died silently is found by the call's deadline.
_KEEPALIVE_MS = 6 * 60 * 1000

_Reply = TypeVar("_Reply", bound=Message)

BUSY_TEXT = "Another profiling session active."
_MONITOR_MISSING_TEXT = "unimplemented."
_NO_DESCRIPTORS = "tpumon has no file descriptors left; raise its limit (ulimit -n)"
_MANY_CONNECTIONS = "not asked yet: tpumon is making many other connections"
_LARGER = re.compile(r"larger than max(?:.* vs\. (\d+))?")


def channel_options(*, use_proxy: bool, max_bytes: int) -> list[tuple[str, int | str]]:
    """Channel arguments of gRPC for a worker's profiler server, which may answer with `max_bytes` at most."""
    return [
        ("grpc.max_receive_message_length", max_bytes),
        ("grpc.service_config", _service_config()),
        # A compressed answer of half a megabyte may hold a gigabyte. None is asked for, and none is opened.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        ("grpc.per_message_decompression", 0),
        # gRPC keeps buffers for the next answer to be as large as the last: 2 MB a worker, for traces. 64 KiB will do.
        ("grpc.experimental.tcp_max_read_buffer_size", 64 << 10),
        # How much may be on its way is otherwise found by a ping after each answer: a quarter of a small call's cost.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _ON_ITS_WAY_BYTES),
        ("grpc.enable_http_proxy", int(use_proxy)),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", 20_000),
        # See a worker that comes back soon: gRPC would wait up to two minutes between connection attempts.
        ("grpc.initial_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.primary_user_agent", f"tpumon/{__version__}"),
    ]


def _service_config() -> str:
    """Limits of single methods for gRPC: how large their answers may be."""
    methods = [dict(zip(("service", "method"), path[1:].split("/"), strict=True)) for path in _SMALL_ANSWERS]
    return json.dumps({"methodConfig": [{"name": methods, "maxResponseMessageBytes": _SMALL_ANSWER_BYTES}]})


class Client:
    """A channel to one worker. An async context manager; closing ends its calls.

    Args:
        address: `host:port`, already validated.
        use_proxy: obey `http_proxy`; gRPC would do so even for loopback.
        max_bytes: the largest answer to accept; those that hold no trace are smaller.
        connecting: shared with other clients, which then make few connections at a time; None: with nobody.
    """

    _connecting = 0  # calls of all clients that may be making a connection

    def __init__(
        self,
        address: str,
        *,
        use_proxy: bool = False,
        max_bytes: int = 1_000_000 * MAX_TRACE_MB,
        connecting: Connecting | None = None,
    ) -> None:
        self.address = address
        self.connection = 0
        """Number of connections so far: what was learned about a server holds for one of them."""
        self._methods: dict[str, grpc.aio.UnaryUnaryMultiCallable] = {}  # that were called
        self._options = channel_options(use_proxy=use_proxy, max_bytes=max_bytes)
        self._channel: grpc.aio.Channel | None = None  # it costs memory: made for the first call
        self._connecting_with = connecting or Connecting()
        self._turn: ConnectTurn | None = None
        self._past: Past = "new"

    async def wait_for_turn(self) -> None:
        """Waits until the next call may make a connection, if there is none; a call waits by itself if this did not."""
        if not self.connected and self._turn is None:
            turn = await self._connecting_with.turn(lambda: self.connected, past=self._past)
            if self._turn is None:
                self._turn = turn
            else:
                turn.give_back()

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.give_back()
            if self.connected:
                self._past = "known"
            elif turn.was_late:
                self._past = "late"
            elif self._past == "late":  # it refused at once
                self._past = "new"

    async def call(self, path: str, request: Message, reply_type: type[_Reply], *, timeout_s: float) -> _Reply:
        """One unary call.

        Args:
            path: method path, from `tpumon.proto`.
            request: message to send.
            reply_type: message to read the answer as.
            timeout_s: deadline of the whole call, in seconds.

        Raises:
            SourceError: the call failed, or the answer is not such a message.
        """
        begun_s = time.monotonic()
        answer = await self._answer(path, request, timeout_s)
        if path != wire.GET_RUNTIME_METRIC:  # of which there are many
            took_s = time.monotonic() - begun_s
            _log.debug("%s: %s: %d bytes in %.3f s", self.address, _method_name(path), len(answer), took_s)
        try:
            return await parse(answer, reply_type, _method_name(path))
        except SourceError as error:
            raise SourceError(error.reason, error.message, address=self.address) from error

    async def _answer(self, path: str, request: Message, timeout_s: float) -> bytes:
        connecting = not self.connected
        if connecting:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.wait_for_turn()
            except TimeoutError:
                raise SourceError("unavailable", _MANY_CONNECTIONS, address=self.address) from None
            connecting = not self.connected
        if connecting:
            if not may_connect(Client._connecting):
                self._end_turn()
                raise SourceError("internal", _NO_DESCRIPTORS, address=self.address)
            self.connection += 1
        method = self._method(path)
        Client._connecting += connecting
        try:
            answer: _Answer = await method(request.SerializeToString(), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _source_error(self.address, error, timeout_s=timeout_s) from error
        finally:
            Client._connecting -= connecting
            self._end_turn()
        return answer.pop()

    def _method(self, path: str) -> grpc.aio.UnaryUnaryMultiCallable:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self.address, options=self._options)
        if path not in self._methods:  # a bad answer is ours to report
            self._methods[path] = self._channel.unary_unary(path, response_deserializer=_Answer)
        return self._methods[path]

    def grace_s(self, path: str) -> float:
        """Seconds that the next call of a method may run beyond its window; few until the first one was answered."""
        return ANSWER_GRACE_S if path in self._methods else FIRST_ANSWER_S

    @property
    def connected(self) -> bool:
        """True if the connection of the last call is still up; False before the first call."""
        return self._channel is not None and self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def close(self) -> None:
        """Ends calls in flight and closes the connection. Another call makes one anew, at once even after a failure."""
        self._end_turn()
        channel, self._channel = self._channel, None
        self._methods.clear()
        if channel is not None:
            await channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _method_name(path: str) -> str:
    return path.rpartition("/")[2]


class _Answer:
    """The bytes of an answer until they are popped: gRPC itself keeps them until garbage is collected."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pop(self) -> bytes:
        data, self._data = self._data, b""
        return data


def _source_error(address: str, error: grpc.aio.AioRpcError, *, timeout_s: float) -> SourceError:
    details = error.details() or ""
    reason, words = _reason_and_words(error.code(), details, timeout_s)
    marked = (detail for mark, detail in _DETAILS.items() if mark in details)
    detail = next(marked, None) if reason == "unavailable" else None
    return SourceError(reason, words, address=address, detail=detail, status=error.code().name, status_text=details)


def _reason_and_words(code: grpc.StatusCode, details: str, timeout_s: float) -> tuple[Reason, str]:
    """Reason and message for a status of a profiler server."""
    said = one_line(details)
    if BUSY_TEXT in details:
        return "busy", "another profiling session is active; standing back"
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            return _why_unavailable(details)
        case grpc.StatusCode.UNKNOWN if "Stream removed" in details:
            return "unavailable", "the connection broke"
        case grpc.StatusCode.CANCELLED:
            return "unavailable", "the server ended the call"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return "deadline", f"no answer within {timeout_s:.0f} s; is it a profiler server, and is its host alive?"
        case grpc.StatusCode.UNIMPLEMENTED if details == _MONITOR_MISSING_TEXT:
            return "unimplemented", "this profiler server does not offer that RPC (UNIMPLEMENTED)"
        case grpc.StatusCode.UNIMPLEMENTED:
            return "not-a-profiler", "a gRPC server, but not a profiler's; give the port of the job's profiler server"
        case grpc.StatusCode.RESOURCE_EXHAUSTED if larger := _LARGER.search(details):
            limit = f"{int(larger[1]) / (1 << 20):.3g} MiB" if larger[1] else "allowed"
            return "too-large", f"the answer is larger than {limit}; ask for a shorter window, or raise --max-trace-mb"
        case grpc.StatusCode.INTERNAL if "Compression algorithm" in details:
            return "refused", COMPRESSED
        case (
            grpc.StatusCode.INVALID_ARGUMENT
            | grpc.StatusCode.PERMISSION_DENIED
            | grpc.StatusCode.UNAUTHENTICATED
            | grpc.StatusCode.FAILED_PRECONDITION
            | grpc.StatusCode.RESOURCE_EXHAUSTED
        ):
            return "refused", f"the server refused ({code.name}): {said}"
        case grpc.StatusCode.INTERNAL if "TF_DISABLE_PROFILING" in details:
            return "refused", "profiling is switched off in the job (TF_DISABLE_PROFILING)"
    return "internal", f"the server failed ({code.name}){': ' + said if said else ''}"


_REFUSED, _NO_ROUTE, _NO_NETWORK = "Connection refused", "No route to host", "Network is unreachable"
_DETAILS: Mapping[str, Detail] = {_REFUSED: "connection-refused", _NO_ROUTE: "no-route", _NO_NETWORK: "no-route"}
_UNREACHED = "this host cannot be reached"
_SAYS_NOTHING = "what listens there takes the call and says nothing: no gRPC server, or its process is stopped or hangs"


def _why_unavailable(details: str) -> tuple[Reason, str]:
    known: list[tuple[str, Reason, str]] = [
        ("Too many open files", "internal", _NO_DESCRIPTORS),
        ("errors resolving", "resolve", "this name has no IP address"),
        ("DNS resolution failed", "resolve", "this name has no IP address"),
        ("Failed parsing HTTP/2", "not-a-profiler", "what listens there does not speak gRPC; check the port"),
        ("before receiving SETTINGS", "not-a-profiler", _SAYS_NOTHING),
        (_REFUSED, "unavailable", "connection refused; no profiler server is listening there"),
        (_NO_ROUTE, "unavailable", f"{_UNREACHED}: no route to host"),
        (_NO_NETWORK, "unavailable", f"{_UNREACHED}: network unreachable"),
        ("Connection reset", "unavailable", "the connection was closed by the other side"),
        ("Socket closed", "unavailable", "the connection was closed by the other side"),
        ("Cancelling all calls", "unavailable", "the server is shutting down"),
    ]
    for mark, reason, words in known:
        if mark in details:
            return reason, words
    return "unavailable", one_line(details) or "no connection"
