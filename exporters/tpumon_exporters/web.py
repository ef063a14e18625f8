"""HTTP server for scrapers, probes and browsers: aiohttp, one request per connection, with limits and deadlines.

aiohttp bounds the size of a request, and neither the number of connections nor their time. So each is a task here: the
client has `_HEAD_S` to complete its request and `_ANSWER_S` to read the answer, and where there are too many, the
oldest that does not wait for its answer goes. Answers are made in threads, one for each connection at most. (cheroot
and prometheus_client give a thread to each client that sends nothing: 200 idle connections a second shut scrapes out.)
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gzip
import ipaddress
import logging
import math
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from aiohttp import web
from msgspec import Struct
from prometheus_client.exposition import gzip_accepted

from tpumon.discovery.host.listening import user_at
from tpumon.errors import UsageError
from tpumon.model import Address
from tpumon.system.background import Background
from tpumon.system.threads import in_thread
from tpumon.untrusted_text import unexpected
from tpumon_exporters.webconfig import WebConfig

_log = logging.getLogger(__name__)

_CONNECTIONS = 32
_CONNECTIONS_EACH = 8  # of one address
_CROWDED_S = 1.0  # a client that takes longer to read its answer makes room for others; a scrape takes less
_HEAD_S = 5.0
_ANSWER_S = 30.0
_CLOSE_S = 1.0
_ROOM_S = 0.2
_HEAD_LINES, _HEAD_LINE_BYTES = 100, 8190
_GZIP_LEVEL = 1  # takes 1/20 of level 9's time; the page is 1.5 times as large
_GZIP_FROM_BYTES = 1000
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)(?:%[^\]]*)?\]|(?P<name>[^\[\]:@/?#\s]+))(?::[0-9]*)?")
_HOSTS = Path("/etc/hosts")
_MISDIRECTED = (
    "This request came in on a loopback address, and its Host is not this host's. Use localhost, an IP address or this "
    "host's name, or protect the endpoint with a password (--web-config, basic_auth_users).\n"
)


class Request(Struct, frozen=True, kw_only=True):
    """A GET or HEAD request.

    Attributes:
        path: without the query, not decoded.
        query: decoded parameters, each with all its values.
        accept: the Accept header.
    """

    path: str
    query: Mapping[str, Sequence[str]]
    accept: str = ""


class Response(Struct, frozen=True, kw_only=True):
    """An answer; compressed if the client accepts it."""

    body: str | bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


def listen(host: str, port: int) -> socket.socket:
    """Opens a listening socket.

    Args:
        host: a name, or an address without brackets; empty for all interfaces.
        port: 0 for any free port.

    Raises:
        UsageError: the address is in use or unavailable; the message says what to do.
    """
    try:
        if host in {"", "::"}:
            if socket.has_dualstack_ipv6():
                return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
            return socket.create_server(("0.0.0.0", port))
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family)
    except OSError as error:
        raise UsageError(f"cannot listen on {Address(host, port)}: {_cause(error, port)}") from None


def _cause(error: OSError, port: int) -> str:
    if isinstance(error, socket.gaierror):
        return "unknown host; give an address of this machine, for example 127.0.0.1:10466"
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} is in use; stop the program that listens there, or give another port"
        case errno.EACCES:
            return "permission denied; give a port of 1024 or above"
        case errno.EADDRNOTAVAIL:
            return "this machine does not have that address; give 127.0.0.1:PORT, or :PORT for all interfaces"
    return os.strerror(error.errno) if error.errno else str(error)


def _client_of(address: str) -> str:
    """The client that an address counts for: an IPv6 network of 64 bits is usually one machine's."""
    if "." in address or ":" not in address:  # IPv4, mapped into IPv6 or not
        return address
    return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))


def is_misdirected(hosts: Sequence[str], here: str) -> bool:
    """True if a request that came in on a loopback address is for another host: DNS rebinding, from a browser here.

    On other addresses any name is accepted: Services and NAT give names that are not known here.

    Args:
        hosts: for which it is; none is fine.
        here: the address on which it came in.
    """
    address = ipaddress.ip_address(here.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback and not all(map(_is_ours, hosts))


def _is_ours(host: str) -> bool:
    """True for `localhost`, an IP address, or a name of this host, with a port or without."""
    form = _HOST.fullmatch(host.strip().lower())
    if form is None:
        return False
    name = (form["v6"] or form["name"]).removesuffix(".")
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    own = socket.gethostname().lower()
    return name in {"localhost", own, own.partition(".")[0]} or name in _names_in_file()


def _names_in_file() -> Iterator[str]:
    """Names that this host's own file gives to addresses, which no server of names can give to others."""
    with contextlib.suppress(OSError):
        for line in _HOSTS.read_text(encoding="utf-8", errors="replace").lower().splitlines():
            yield from line.partition("#")[0].split()[1:]


class _Connection(web.RequestHandler):
    """One client's connection: aiohttp's, which reads the request and writes the answer.

    Attributes:
        client: the client for whose limit the connection counts.
        there, here: the addresses of the client and of this machine.
        answering: held while the answer is made.
        spared_s: time of the loop from which the connection may be dropped in favour of others.
        lost: set once it is closed.
        deadline: of what it is about to do.
    """

    deadline: asyncio.Timeout

    def __init__(self, manager: web.Server, accepted: socket.socket, address: str) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            max_line_size=_HEAD_LINE_BYTES,
            max_field_size=_HEAD_LINE_BYTES,
            max_headers=_HEAD_LINES,
            auto_decompress=False,
        )
        self.client = _client_of(address)
        self.there, self.here = (Address(*end()[:2]) for end in (accepted.getpeername, accepted.getsockname))
        self.answering = asyncio.Lock()
        self.spared_s = -math.inf
        self.lost = asyncio.Event()

    @property
    def is_own(self) -> bool:
        """True if a process of this user or of root on this host made it."""
        uid = user_at(self.there, self.here)
        return uid is not None and uid in {0, os.getuid()}

    @property
    def yields(self) -> bool:
        """True if it may be dropped for another."""
        return not self.answering.locked() and self._loop.time() >= self.spared_s

    def within(self, duration_s: float | None) -> None:
        """Sets the deadline of what comes next; None: none."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self.deadline.reschedule(None if duration_s is None else self._loop.time() + duration_s)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keeps a connection that the client has closed for sending: it may wait for the answer. TLS cannot."""
        return self.ssl_context is None

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is closed."""
        super().connection_lost(exc)
        self.lost.set()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it may contain what the client sent
    ) -> web.Response:
        """Answers what is no request, and after a bug."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.log_exception("", exc_info=exc)
        known = HTTPStatus(status)
        return _sent(Response(body=f"{known} {known.phrase}\n", status=known))

    def log_exception(self, *_: object, exc_info: BaseException | None = None, **__: object) -> None:
        """Says that there is a bug."""
        error = exc_info if isinstance(exc_info, Exception) else TimeoutError()
        _log.warning("prometheus: a request could not be answered: %s", unexpected(error))


class WebServer:
    """Answers requests until it is closed.

    Args:
        listener: from `listen`; closed with the server.
        answer: called in several threads at once.
        config: who has access, and how connections are encrypted.
        is_private: whether only processes of this user and of root on this host get an answer.
    """

    def __init__(
        self,
        listener: socket.socket,
        answer: Callable[[Request], Response],
        config: WebConfig,
        *,
        is_private: bool = False,
    ) -> None:
        self._is_private = is_private
        self._listener = listener
        self._answer = answer
        self._config = config
        self._connections: dict[_Connection, asyncio.Task[None]] = {}  # oldest first
        listener.setblocking(False)
        self._running = contextlib.ExitStack()
        self._running.enter_context(Background(self._run))

    def close(self) -> None:
        """Accepts no more connections; gives running answers 1 s to complete."""
        self._running.close()

    async def _run(self, _send: object) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, bug: _log.warning("prometheus: a bug: %s", bug))
        self._server = web.Server(self._respond)
        self._watch()
        try:
            await loop.create_future()
        finally:
            loop.remove_reader(self._listener)
            self._listener.close()
            under_way = [task for connection, task in self._connections.items() if not connection.yields]
            if under_way:
                await asyncio.wait(under_way, timeout=_CLOSE_S)
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            if rest:
                await asyncio.wait(rest, timeout=_ROOM_S)

    def _watch(self) -> None:
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            accepted, (address, *_) = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # out of descriptors, where retrying at once would not help
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listener)
            loop.call_later(_ROOM_S, self._watch)
            return
        try:
            connection = _Connection(self._server, accepted, address)
        except (OSError, ValueError):  # the client is gone
            accepted.close()
            return
        if not self._make_room(connection.client):
            accepted.close()
            return
        self._connections[connection] = task = asyncio.create_task(self._serve(connection, accepted))

        def forget(_task: object) -> None:
            accepted.close()
            self._connections.pop(connection, None)

        task.add_done_callback(forget)

    def _make_room(self, client: str) -> bool:
        """Drops a connection if there are too many, of this client first; returns whether there is room."""
        for limit, whose in ((_CONNECTIONS_EACH, {client}), (_CONNECTIONS, None)):
            counted = [each for each in self._connections if whose is None or each.client in whose]
            if len(counted) >= limit:
                oldest = next((each for each in counted if each.yields), None)
                if oldest is None:
                    return False
                self._connections.pop(oldest).cancel()
        return True

    async def _serve(self, connection: _Connection, accepted: socket.socket) -> None:
        transport: asyncio.BaseTransport | None = None
        try:
            async with asyncio.timeout(_HEAD_S) as connection.deadline:
                transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection, accepted, ssl=self._config.context()
                )
                await connection.lost.wait()
        except (OSError, ValueError):  # includes timeouts and TLS; only this client is affected
            pass
        except Exception as error:  # noqa: BLE001 - a bug must cost only this connection
            _log.warning("prometheus: a connection could not be accepted: %s", unexpected(error))
        finally:
            if isinstance(transport, asyncio.Transport):
                transport.abort()
            async with connection.answering:  # a thread that goes on counts, although its client is gone
                pass

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        connection = request.protocol
        assert isinstance(connection, _Connection)
        if request.transport is not None and not request.can_read_body:
            request.transport.pause_reading()  # more requests would fill the memory, and get no answer
        async with connection.answering:
            connection.within(None)
            answer = await in_thread(partial(self._answered, request, connection), timeout_s=None)
        connection.spared_s = asyncio.get_running_loop().time() + _CROWDED_S
        connection.within(_ANSWER_S)
        return answer

    def _answered(self, request: web.BaseRequest, connection: _Connection) -> web.Response:
        if request.method not in {"GET", "HEAD"}:
            body = "only GET and HEAD are supported\n"
            return _sent(Response(status=HTTPStatus.METHOD_NOT_ALLOWED, body=body), Allow="GET, HEAD")
        url = urlsplit(request.raw_path)
        hosts = [url.netloc.rpartition("@")[2]] if url.netloc else request.headers.getall("Host", ())
        if not self._config.wants_password and is_misdirected(hosts, connection.here.host):
            return _sent(Response(status=HTTPStatus.MISDIRECTED_REQUEST, body=_MISDIRECTED))
        if self._is_private and not connection.is_own:
            return _sent(Response(status=HTTPStatus.FORBIDDEN, body="This page is its user's own.\n"))
        headers = self._config.headers
        admitted = self._config.admits(request.headers.get("Authorization"), connection.client)
        if admitted is None:
            body = "too many passwords to check\n"
            return _sent(Response(status=HTTPStatus.SERVICE_UNAVAILABLE, body=body), **headers)
        if not admitted:
            refusal = Response(status=HTTPStatus.UNAUTHORIZED, body="Unauthorized\n")
            return _sent(refusal, **headers, **{"WWW-Authenticate": "Basic"})
        accept = ", ".join(request.headers.getall("Accept", ()))
        answer = self._answer(Request(path=url.path, query=parse_qs(url.query), accept=accept))
        return _sent(answer, request.headers.get("Accept-Encoding", ""), **headers)


def _sent(response: Response, accept_encoding: str = "", **headers: str) -> web.Response:
    """The response as it is sent. Reveals no version of the server: no password may have been checked."""
    body = response.body if isinstance(response.body, bytes) else response.body.encode(errors="replace")
    headers |= {"Content-Type": response.content_type, "Vary": "Accept, Accept-Encoding", "Server": "tpumon"}
    if len(body) >= _GZIP_FROM_BYTES and gzip_accepted(accept_encoding):
        body = gzip.compress(body, _GZIP_LEVEL, mtime=0)
        headers["Content-Encoding"] = "gzip"
    answer = web.Response(body=body, status=response.status, headers=headers)
    answer.force_close()
    return answer
