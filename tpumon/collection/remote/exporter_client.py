"""HTTP client of one exporter: its URL, the credentials, and the words for each failure."""

from __future__ import annotations

import asyncio
import base64
import http.client
import math
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

from tpumon.collection.http_get import AddressCache, AnswerTooLargeError, Endpoint, decoded, get
from tpumon.errors import Reason, UsageError
from tpumon.system.threads import in_thread
from tpumon.untrusted_text import one_line, unexpected

READ_S = 5.0  # how long it may take to the first byte, and between two
ANSWER_BYTES = 32 * 1024 * 1024

GOOD_FORM = "give --from http://HOST:10466, or https://USER:PASSWORD@HOST:10466"

_LONGEST_SECRET = 65536
_SECRET_S = 2.0
_SUFFIXES = ("/metrics", "/samples")  # people often copy the URL that Prometheus scrapes
_NO_ANSWER = "no answer in time; check for a firewall"
_IN_PATHS = "/%:@!$&'()*+,;=~"

_Read = TypeVar("_Read")


class ExchangeError(Exception):
    """A request failed; the message is one line."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


class Secret:
    """The file of `--from-auth`, with a bearer token or USER:PASSWORD: read again and again, since tokens expire.

    Args:
        path: of the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._read_s = -math.inf
        self._header = ""
        self._reading: asyncio.Task[str] | None = None  # one for all who ask, so that at most one thread hangs

    async def header(self) -> str:
        """The value of the header Authorization.

        Raises:
            ValueError: there is none; the message says why.
        """
        if time.monotonic() - self._read_s >= _SECRET_S:
            self._reading = reading = self._reading or asyncio.create_task(in_thread(self._read, timeout_s=None))
            await asyncio.wait([reading], timeout=READ_S)
            if not reading.done():
                raise ValueError(f"{one_line(self._path)}: it cannot be read in time")
            self._reading = None
            try:
                self._header = reading.result()
            except OSError as error:
                raise ValueError(f"{one_line(self._path)}: {error.strerror}") from None
            self._read_s = time.monotonic()
        return self._header

    def _read(self) -> str:
        try:
            with Path(self._path).expanduser().open(encoding="ascii") as file:
                secret = file.read(_LONGEST_SECRET).strip()
        except ValueError:
            raise ValueError(f"{one_line(self._path)}: not a token") from None
        if not secret or not secret.isprintable():
            raise ValueError(f"{one_line(self._path)}: give one line in it")
        return _basic(secret) if ":" in secret else f"Bearer {secret}"  # a bearer token has no colon (RFC 6750)


class ExporterClient:
    """The URL of a server, and the HTTP client that asks it. Follows no redirect: it could leak the password.

    Args:
        url: as the user gives it.
        auth: a file with a bearer token or USER:PASSWORD; None: there is none.
        names: resolves its host; None: one of its own.
        large: turns of answers beyond 1 MiB; None: they need none.

    Raises:
        UsageError: the URL is not of this form, or it and the file both have a password.

    Attributes:
        name: the URL without user and password.
        read_s: how long it may take to the first byte of an answer, and between two; None: `READ_S`.
    """

    read_s: float | None = None

    def __init__(
        self,
        url: str,
        auth: str | Secret | None = None,
        *,
        names: AddressCache | None = None,
        large: asyncio.Semaphore | None = None,
    ) -> None:
        try:
            parts = urlsplit(url.strip())
            port = parts.port
        except ValueError:
            raise UsageError(f"--from: its host or port is none; {GOOD_FORM}") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(f"--from: not the URL of an exporter; {GOOD_FORM}")
        if parts.username is not None and auth is not None:
            raise UsageError("--from-auth: the URL has a password already; leave one of the two out")
        path = parts.path.rstrip("/")
        for suffix in _SUFFIXES:
            path = path.removesuffix(suffix)
        shown = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.name = one_line(f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}{path}")
        self._place = Endpoint.of(parts)
        self._path = quote(path, safe=_IN_PATHS)
        self._headers = {"Host": _host(shown, port), "Accept": "application/json"}
        if parts.username is not None:
            self._headers["Authorization"] = _basic(f"{unquote(parts.username)}:{unquote(parts.password or '')}")
        self._secret = Secret(auth) if isinstance(auth, str) else auth
        self._names = names or AddressCache()
        self._large = large

    async def ask(self, path: str, read: Callable[[int, bytes], _Read], *, patience: int = 1) -> _Read:
        """Gets a path; returns what `read` makes of the status and the body.

        The answer may take `patience` times as long as usual to begin.

        Raises:
            ExchangeError: no answer in time, or `read` raised it, or a ValueError: not an answer of such a server.
        """
        async with AsyncExitStack() as stack:
            headers = {**self._headers, **await self._auth()}
            try:
                status, body = await get(
                    self._place,
                    f"{self._path}{path}",
                    headers,
                    self._names,
                    read_s=patience * (self.read_s or READ_S),
                    most_bytes=ANSWER_BYTES,
                    is_large=lambda: self._wait_for_turn(stack),
                    check=self.check,
                )
                return await decoded(body, partial(read, status))
            except AnswerTooLargeError:
                raise self.trouble("too-large", f"its answer is larger than {ANSWER_BYTES >> 20} MiB") from None
            except ssl.SSLCertVerificationError as error:
                raise self.trouble(
                    "refused",
                    f"its certificate is not trusted ({error.verify_message}); set SSL_CERT_FILE to its CA certificate",
                ) from None
            except socket.gaierror:
                raise self.trouble("resolve", "unknown host; check the name") from None
            except TimeoutError:
                raise self.trouble("deadline", _NO_ANSWER) from None
            except OSError as error:
                why = error.strerror or str(error) or type(error).__name__
                raise self.trouble("unavailable", f"{why}; is `tpumon serve` running there?") from None
            except (http.client.HTTPException, ValueError, RecursionError):
                raise self.trouble("malformed", f"the server is not a tpumon exporter; {GOOD_FORM}") from None

    async def check(self, _connection: asyncio.StreamWriter) -> None:
        """Refuses whoever has the other end by an OSError, before anything is sent; here anyone is welcome."""

    async def _wait_for_turn(self, stack: AsyncExitStack) -> None:
        if self._large is not None:
            await stack.enter_async_context(self._large)

    async def _auth(self) -> Mapping[str, str]:
        try:
            return {} if self._secret is None else {"Authorization": await self._secret.header()}
        except ValueError as error:
            raise self.trouble("refused", f"--from-auth {error}") from None

    def refused(self, status: int) -> None:
        """Raises what a refusal means that has nothing to do with what was asked.

        Raises:
            ExchangeError: it is one.
        """
        if status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            how = "give https://USER:PASSWORD@HOST:PORT, or --from-auth FILE with a token or USER:PASSWORD"
            raise self.trouble("refused", f"wrong user or password; {how}")
        if status == http.client.MISDIRECTED_REQUEST:
            raise self.trouble("refused", "it does not go by this name there; give localhost or an IP address")
        if status == http.client.SERVICE_UNAVAILABLE:
            raise self.trouble("unavailable", "it is too busy to answer")

    def trouble(self, reason: Reason, what: str) -> ExchangeError:
        """An error that names the server."""
        return ExchangeError(reason, one_line(f"exporter {self.name}: {what}", limit=400))

    def trouble_of(self, error: Exception) -> ExchangeError:
        """The failure of a refresh as an `ExchangeError`; an unexpected error is a bug, and names the server, too."""
        return error if isinstance(error, ExchangeError) else self.trouble("internal", unexpected(error))


def _host(host: str, port: int | None) -> str:
    try:
        host = host.encode("ascii" if host.isascii() else "idna").decode()
    except UnicodeError:
        raise UsageError(f"--from: not the name of a host; {GOOD_FORM}") from None
    return host if port is None else f"{host}:{port}"


def _basic(secret: str) -> str:
    return f"Basic {base64.b64encode(secret.encode()).decode()}"
