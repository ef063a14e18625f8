"""HTTP server for scrapers, probes and browsers: one request per connection, few threads, deadlines everywhere.

A misbehaving client loses its connection; this process spends at most `_CONNECTIONS` threads on clients, and
`_CONNECTIONS_EACH` on one address, `_WAITING_EACH` of them to wait for the client.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import ipaddress
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import parse_qs, urlsplit

from prometheus_client.exposition import gzip_accepted

from tpumon.errors import UsageError
from tpumon.model import Address
from tpumon.model.frozen import frozen

_CONNECTIONS = 32
_CONNECTIONS_EACH = 8
_WAITING_EACH = 4
_CROWDED_S = 1.0  # a client that takes longer to read its answer makes room for others; a scrape takes less
_ROOM_S = 0.2
_HEAD_S = 5.0
_ANSWER_S = 30.0
_LINGER_S = 1.0
_LINGER_BYTES = 1024 * 1024
_POLL_S = 1.0
_HEAD_BYTES = 16 * 1024
_FIELDS = 100
_GZIP_LEVEL = 1  # takes 1/20 of level 9's time; the page is 1.5 times as large
_GZIP_FROM_BYTES = 1000
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)(?:%[^\]]*)?\]|(?P<name>[^\[\]:@/?#\s]+))(?::[0-9]*)?")
_HOSTS = Path("/etc/hosts")
_MISDIRECTED = (
    "This request came in on a loopback address, and its Host is not this host's. Use localhost, an IP address or this "
    "host's name, or protect the endpoint with a password (--web-config, basic_auth_users).\n"
)


@frozen
class Request:
    """A GET or HEAD request.

    Attributes:
        path: without the query, not decoded.
        query: decoded parameters, each with all its values.
        accept: the Accept header.
        hosts: for which hosts it is, as the client writes them: one, none, or by mistake several.
    """

    path: str
    query: Mapping[str, Sequence[str]]
    accept: str = ""
    hosts: Sequence[str] = ()


@frozen
class Response:
    """What to answer; compressed if the client accepts it."""

    body: str | bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


class Security(Protocol):
    """Who has access, and how connections are encrypted."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers sent with every answer."""

    @property
    def wants_password(self) -> bool:
        """Whether only those who know a password have access."""

    def context(self) -> ssl.SSLContext | None:
        """Settings for a new connection; None: no encryption."""

    def admits(self, authorization: str | None, address: str) -> bool | None:
        """Whether the Authorization header grants access to this client; None: too busy to check."""


class Open:
    """Access for everyone, without encryption."""

    @property
    def headers(self) -> Mapping[str, str]:
        """No headers."""
        return {}

    @property
    def wants_password(self) -> bool:
        """No password."""
        return False

    def context(self) -> None:
        """No encryption."""

    def admits(self, _authorization: str | None, _address: str) -> bool:
        """Always grants access."""
        return True


State = Literal["reading", "answering", "sending", "done"]


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
    """Whom an address counts for: an IPv6 network of 64 bits is usually one machine's."""
    if "." in address or ":" not in address:  # IPv4, mapped into IPv6 or not
        return address
    return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))


def is_misdirected(hosts: Sequence[str], here: str) -> bool:
    """Whether a request that came in on a loopback address is for another host: DNS rebinding, from a browser here.

    On other addresses nobody can tell: Services and NAT give names that are not known here.

    Args:
        hosts: for which it is; none is fine.
        here: the address on which it came in.
    """
    address = ipaddress.ip_address(here.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback and not all(map(_is_ours, hosts))


def _is_ours(host: str) -> bool:
    """Whether this is `localhost`, an IP address, or a name of this host, with a port or without."""
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


class _Connection:
    """One client's connection.

    Attributes:
        address: whom it counts for.
        here: the address of this machine on which it came in.
        state: "reading" until the request is complete, "answering" until there is an answer, "done" once it is sent.
    """

    def __init__(self, client: socket.socket, address: str) -> None:
        self.client = client
        self.address = address
        self.here = str(client.getsockname()[0])
        self.since_s = time.monotonic()
        self.state: State = "reading"

    @property
    def late(self) -> bool:
        return self.age_s > (_HEAD_S if self.state == "reading" else _ANSWER_S)

    @property
    def yields(self) -> bool:
        """Whether it may be dropped for another; its thread then ends at once."""
        return self.state in {"reading", "done"} or (self.state == "sending" and self.age_s > _CROWDED_S)

    @property
    def waits(self) -> bool:
        """Whether the next step is the client's."""
        return self.state != "answering"

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.since_s

    def drop(self) -> None:
        """Ends whatever its thread waits for, below TLS."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.client, socket.SHUT_RDWR)


class WebServer:
    """Answers requests until it is closed.

    Args:
        listener: from `listen`; closed with the server.
        answer: called in several threads at once.
        security: who has access, and how connections are encrypted.
        say: takes one line about a problem that is a bug.
    """

    def __init__(
        self,
        listener: socket.socket,
        answer: Callable[[Request], Response],
        security: Security,
        say: Callable[[str], None],
    ) -> None:
        self._listener = listener
        self._answer = answer
        self._security = security
        self._say = say
        self._changed = threading.Condition()
        self._connections: dict[_Connection, None] = {}  # oldest first
        self._closing = threading.Event()
        listener.settimeout(_POLL_S)
        self._thread = threading.Thread(target=self._accept, name="tpumon-http", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 1.0) -> None:
        """Accepts no more connections; gives running answers `timeout_s` seconds to complete."""
        until_s = time.monotonic() + timeout_s
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        with self._changed:
            # A request may have arrived that is not read yet.
            self._changed.wait_for(lambda: not self._under_way("reading"), _ROOM_S)
            self._drop(self._under_way("reading"))
            self._changed.wait_for(lambda: not self._under_way("answering", "sending"), until_s - time.monotonic())
            self._drop(list(self._connections))
            self._changed.wait_for(lambda: not self._connections, _ROOM_S)
        self._thread.join(_ROOM_S)
        self._listener.close()

    def _under_way(self, *states: State) -> list[_Connection]:
        return [connection for connection in self._connections if connection.state in states]

    @staticmethod
    def _drop(connections: Sequence[_Connection]) -> None:
        for connection in connections:
            connection.drop()

    def _accept(self) -> None:
        while not self._closing.is_set():
            accepted = self._next_client()
            with self._changed:
                self._drop([connection for connection in self._connections if connection.late])
            if accepted is None:
                continue
            client, address = accepted
            try:
                self._admit(client, _client_of(address))
            except Exception as error:  # noqa: BLE001 - a bug must not stop the server
                client.close()
                self._say(f"a connection could not be accepted: {type(error).__name__}: {error}")

    def _next_client(self) -> tuple[socket.socket, str] | None:
        try:
            client, (address, *_) = self._listener.accept()
            return client, address
        except TimeoutError:
            return None
        except OSError:  # closing, or out of descriptors, where retrying at once would not help
            self._closing.wait(_ROOM_S)
            return None

    def _admit(self, client: socket.socket, address: str) -> None:
        with self._changed:
            if not self._make_room(address):
                client.close()
                return
        try:
            context = self._security.context()
            if context is not None:
                client = context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
            connection = _Connection(client, address)
        except (OSError, ValueError):  # the client is gone
            client.close()
            return
        with self._changed:
            self._connections[connection] = None
        try:
            threading.Thread(target=self._serve, args=(connection,), name="tpumon-http-client", daemon=True).start()
        except RuntimeError:  # no more threads available
            self._forget(connection)

    def _make_room(self, address: str) -> bool:
        """Drops a connection if there are too many, of this client first; returns whether there is room."""
        return (
            self._below(_WAITING_EACH, lambda each: each.address == address and each.waits)
            and self._below(_CONNECTIONS_EACH, lambda each: each.address == address)
            and self._below(_CONNECTIONS, lambda _each: True)
        )

    def _below(self, limit: int, counts: Callable[[_Connection], bool]) -> bool:
        """Whether there are fewer connections that count than the limit, at the latest after dropping one.

        The oldest goes that has its answer, has not sent its request, or takes long to read its answer, in this order.
        """

        def is_so() -> bool:
            return sum(map(counts, self._connections)) < limit

        if is_so():
            return True
        yielding = [each for each in self._connections if counts(each) and each.yields]
        if not yielding:
            return False
        min(yielding, key=lambda each: (("done", "reading", "sending").index(each.state), each.since_s)).drop()
        return self._changed.wait_for(is_so, _ROOM_S)

    def _forget(self, connection: _Connection) -> None:
        connection.client.close()
        with self._changed:
            self._connections.pop(connection, None)
            self._changed.notify_all()

    def _serve(self, connection: _Connection) -> None:
        client = connection.client
        try:
            client.settimeout(_HEAD_S)
            if isinstance(client, ssl.SSLSocket):
                client.do_handshake()
            head = _read_head(client)
            if head:
                self._advance(connection, "answering")
                respond = partial(self._respond, connection)
                answer = _Exchange(head, respond, self._security.headers).answer()
                self._advance(connection, "sending")
                client.settimeout(_ANSWER_S)
                client.sendall(answer)
                self._advance(connection, "done")
                _linger(client)
        except ssl.SSLError:  # lets the client read the alert, which says why
            with contextlib.suppress(OSError):
                _linger(client)
        except OSError:  # includes timeouts; only this client is affected
            pass
        except Exception as error:  # noqa: BLE001 - a bug must cost only this answer
            self._say(f"a request could not be answered: {type(error).__name__}: {error}")
        finally:
            self._forget(connection)

    def _advance(self, connection: _Connection, state: State) -> None:
        with self._changed:
            connection.state = state
            self._changed.notify_all()

    def _respond(self, connection: _Connection, request: Request, authorization: str | None) -> Response:
        if not self._security.wants_password and is_misdirected(request.hosts, connection.here):
            return Response(status=HTTPStatus.MISDIRECTED_REQUEST, body=_MISDIRECTED)
        admitted = self._security.admits(authorization, connection.address)
        if admitted is None:
            return Response(status=HTTPStatus.SERVICE_UNAVAILABLE, body="too many passwords to check\n")
        if not admitted:
            return Response(status=HTTPStatus.UNAUTHORIZED, body="Unauthorized\n")
        return self._answer(request)


def _read_head(client: socket.socket) -> bytes:
    """The request without its body; what is longer than allowed ends early, and is then no valid request."""
    head = b""
    while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) < _HEAD_BYTES:
        data = client.recv(4096)
        if not data:
            return b""
        head += data
    return head


def _linger(client: socket.socket) -> None:
    """Lets the client read the answer; closing with unread input would discard it."""
    socket.socket.shutdown(client, socket.SHUT_WR)
    client.settimeout(_LINGER_S)
    unread = _LINGER_BYTES
    while unread > 0 and (data := socket.socket.recv(client, 65536)):
        unread -= len(data)


class _Exchange(BaseHTTPRequestHandler):
    """Parses one request and renders the answer: the standard library's handler, without its socket."""

    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"  # so that every answer has a status line
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"

    def __init__(
        self, head: bytes, respond: Callable[[Request, str | None], Response], headers: Mapping[str, str]
    ) -> None:
        self.rfile = BytesIO(head)
        self.wfile = self._written = BytesIO()
        self._too_long = len(head) >= _HEAD_BYTES
        self._respond = respond
        self._headers = headers

    def answer(self) -> bytes:
        """Returns the bytes to send."""
        self.raw_requestline = self.rfile.readline()
        self.requestline = self.request_version = self.command = ""
        if self._too_long:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self.parse_request():
            self._send(self._response())
        return self._written.getvalue()

    def _response(self) -> Response:
        if self.command not in {"GET", "HEAD"}:
            return Response(status=HTTPStatus.METHOD_NOT_ALLOWED, body="only GET and HEAD are supported\n")
        try:
            url = urlsplit(self.path)
            query = parse_qs(url.query, max_num_fields=_FIELDS)
        except ValueError:
            return Response(status=HTTPStatus.BAD_REQUEST, body="the path is malformed\n")
        request = Request(
            path=url.path,
            query=query,
            accept=", ".join(self.headers.get_all("Accept", ())),
            hosts=[url.netloc.rpartition("@")[2]] if url.netloc else self.headers.get_all("Host", ()),
        )
        return self._respond(request, self.headers.get("Authorization"))

    def _send(self, response: Response) -> None:
        body = response.body if isinstance(response.body, bytes) else response.body.encode(errors="replace")
        compress = len(body) >= _GZIP_FROM_BYTES and gzip_accepted(self.headers.get("Accept-Encoding", ""))
        if compress:
            body = gzip.compress(body, _GZIP_LEVEL, mtime=0)
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Vary", "Accept, Accept-Encoding")
        if compress:
            self.send_header("Content-Encoding", "gzip")
        if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if response.status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Basic")
        for name, value in self._headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """Reveals no version: this is sent before any password is checked."""
        return "tpumon"

    def log_message(self, *_: object) -> None:
        """Logs nothing."""
