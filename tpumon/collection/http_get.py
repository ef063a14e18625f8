"""One GET by HTTP and its answer, on a connection of its own, with deadlines and limits for whatever answers.

Our own, since of the libraries none keeps both promises: after the deadline aiohttp leaves a silent server's TLS
connection open for 30 s more, httpx takes 2.5 times the time of the processor, urllib3 a thread for each exchange.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import os
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from io import BytesIO
from ipaddress import ip_address
from typing import Self, TypeVar
from urllib.parse import SplitResult

from msgspec import Struct

from tpumon.system.threads import Resolve, in_thread, resolve_host

_log = logging.getLogger(__name__)

_Read = TypeVar("_Read")

STEP_S = 5.0  # timeout of connecting to each address of a name
WHOLE_S = 10.0  # timeout of a whole exchange, from resolving the name to the last byte
LARGE_BYTES = 1 << 20
"""Answers beyond this wait for each other, so that many of them do not fill the memory."""

_PIECE_BYTES = 65536
_RESOLVED_S = 30.0
_MOST_NAMES = 10_000
_TRUSTED_S = 300.0
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)


class AnswerTooLargeError(Exception):
    """The answer is larger than may be."""


class AddressCache:
    """The addresses of hosts, each asked for twice a minute at most, by all exchanges together.

    Args:
        resolve: looks up all addresses of a name; raises OSError without an answer.
    """

    def __init__(self, resolve: Resolve = resolve_host) -> None:
        self._resolve = resolve
        self._known: dict[str, tuple[float, Sequence[str]]] = {}

    async def addresses(self, host: str) -> Sequence[str]:
        """All addresses of a host.

        Raises:
            OSError: it has none, or nobody says.
        """
        try:
            return [str(ip_address(host))]
        except ValueError:
            asked_s, known = self._known.get(host, (-_RESOLVED_S, ()))
        if time.monotonic() - asked_s >= _RESOLVED_S:
            known = await self._resolve(host)
            if len(self._known) >= _MOST_NAMES:
                self._known.clear()
            self._known[host] = time.monotonic(), known
        return known

    def forget(self, host: str) -> None:
        """Drops the addresses of a host: no server answers there."""
        self._known.pop(host, None)


class Endpoint(Struct, frozen=True, kw_only=True):
    """The place where a server listens.

    Attributes:
        host: a name or an IP address, IPv6 without brackets.
        port: TCP port.
        encrypted: whether by TLS.
    """

    host: str
    port: int
    encrypted: bool = False

    @classmethod
    def of(cls, url: SplitResult) -> Self:
        """The place of an http or https URL."""
        encrypted = url.scheme == "https"
        return cls(host=url.hostname or "", port=url.port or (443 if encrypted else 80), encrypted=encrypted)


async def get(
    place: Endpoint,
    path: str,
    headers: Mapping[str, str],
    names: AddressCache,
    *,
    read_s: float,
    most_bytes: int,
    is_large: Callable[[], Awaitable[object]],
    check: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None,
) -> tuple[int, bytes]:
    """Gets a path, and closes the connection; returns the status and the body of the answer.

    Args:
        place: the server.
        path: the path, quoted.
        headers: headers of the request; ASCII.
        names: resolves the host.
        read_s: how long it may take to the first byte, and between two.
        most_bytes: of the body.
        is_large: waits until an answer of more than 1 MiB may be read.
        check: refuses whoever has the other end by an OSError, before anything is sent; None: anyone may.

    Raises:
        OSError, http.client.HTTPException: no answer, or not one of HTTP.
        AnswerTooLargeError: the body is larger than `most_bytes`.
    """
    begun_s = time.monotonic()
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "Connection: close"]
    request = ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
    async with asyncio.timeout(WHOLE_S):
        reader, writer = await _connect(place, names)
        try:
            if check is not None:
                await check(writer)
            writer.write(request)
            data = bytearray()
            while True:
                async with asyncio.timeout(read_s):
                    piece = await reader.read(_PIECE_BYTES)
                data += piece
                if not piece or _is_whole(data):
                    break
                if len(data) > most_bytes + _PIECE_BYTES:
                    raise AnswerTooLargeError
                if len(data) > LARGE_BYTES >= len(data) - len(piece):
                    await is_large()
        finally:
            writer.transport.abort()  # closing would wait for the other side
    _log.debug("%s:%d: %d bytes in %.3f s", place.host, place.port, len(data), time.monotonic() - begun_s)
    return _parsed(bytes(data), most_bytes)


async def decoded(body: bytes, read: Callable[[bytes], _Read]) -> _Read:
    """Result of reading a body; a large one is read in a thread, so that nothing waits for it."""
    return read(body) if len(body) <= LARGE_BYTES else await in_thread(lambda: read(body), timeout_s=None)


class _Protocol(asyncio.StreamReaderProtocol):
    """Knows its transport while the connection is being made."""

    made: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made = transport
        super().connection_made(transport)


async def _opened(
    ip: str, place: Endpoint, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connection as of `asyncio.open_connection`; one that is given up after its handshake is closed by TLS in 30 s."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = _Protocol(reader)
    name = place.host if context is not None else None
    try:
        transport, _ = await loop.create_connection(lambda: protocol, ip, place.port, ssl=context, server_hostname=name)
    except BaseException:
        if isinstance(protocol.made, asyncio.Transport):
            protocol.made.abort()
        raise
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _connect(place: Endpoint, names: AddressCache) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = _trusted() if place.encrypted else None
    why = OSError("it has no address")
    for ip in await names.addresses(place.host):
        try:
            async with asyncio.timeout(STEP_S):
                return await _opened(ip, place, context)
        except ssl.SSLError:
            raise
        except OSError as error:  # TimeoutError is one
            why = error if error.errno is None else OSError(error.errno, os.strerror(error.errno))
    names.forget(place.host)
    raise why


_contexts: dict[tuple[object, ...], ssl.SSLContext] = {}


def _trusted() -> ssl.SSLContext:
    """The settings of TLS; whose certificates count is read again every 5 min, which takes some 20 ms."""
    now = (os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"), time.monotonic() // _TRUSTED_S)
    if now not in _contexts:
        _contexts.clear()
        _contexts[now] = ssl.create_default_context()
    return _contexts[now]


def _is_whole(data: bytearray) -> bool:
    """Tells that the answer has ended, or is none, although the connection is still open."""
    if not data.startswith(b"HTTP/"[: len(data)]):
        return True
    end = data.find(b"\r\n\r\n", 0, _PIECE_BYTES)
    if end < 0:
        return False
    head = data[: end + 2]
    if _CHUNKED.search(head):
        return data.endswith(b"\r\n0\r\n\r\n")
    length = _LENGTH.search(head)
    return length is not None and len(data) >= end + 4 + int(length[1])


class _Received:
    """Bytes that the standard library's reader of answers takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: object) -> BytesIO:
        return BytesIO(self._data)


def _parsed(data: bytes, most_bytes: int) -> tuple[int, bytes]:
    with http.client.HTTPResponse(_Received(data)) as answer:  # type: ignore[arg-type]
        answer.begin()
        if answer.length is not None and answer.length > most_bytes:
            raise AnswerTooLargeError
        try:
            body = answer.read()
        except http.client.IncompleteRead:
            raise ConnectionError("the connection was closed early") from None
        if len(body) > most_bytes:
            raise AnswerTooLargeError
        return answer.status, body
