"""Reads the samples of a running exporter (`tpumon serve`, `--listen`) for `--from`.

All input is checked first: the exporter may be of another version, or the server not an exporter at all.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import math
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import unquote, urlsplit

from tpumon.analysis.handover import dated, read_handover
from tpumon.errors import Reason, UsageError
from tpumon.model import SCHEMA_VERSION, Failure, Handover, Sample, Target, Workers, bounded
from tpumon.model.codec import number, text, whole_number
from tpumon.model.sample import EXPORTER
from tpumon.system.threads import in_thread
from tpumon.text import one_line, unexpected

_POLL_S = 1.0
_STEP_S = 5.0  # timeout of connecting to each address of a name, and of each read
_WHOLE_S = 10.0  # timeout of a whole exchange, from resolving the name to the last byte
_ANSWER_BYTES = 32 * 1024 * 1024
_LONGEST_SECRET = 65536
_PATIENCE = 2  # consecutive failures before the workers count as unreachable
_SAME_CLOCK_S = 0.1
_NO_ANSWER = "no answer in time; check for a firewall"
_GOOD_FORM = "give --from http://HOST:10466, or https://USER:PASSWORD@HOST:10466"


class TroubleError(Exception):
    """A request failed; the message is one line."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


class RemoteExporter:
    """Follows the workers and samples of an exporter, also through its restarts and outages.

    Args:
        url: `http://HOST:PORT` or `https://...`; `user:password@` before the host is used and never shown.
        auth_file: a file with a bearer token or USER:PASSWORD; None: there is none.
        poll_s: interval between polls.
        clock: returns the seconds since the epoch.
        monotonic_s: reads a monotonic clock.

    Raises:
        UsageError: the URL is not of this form.
    """

    def __init__(
        self,
        url: str,
        *,
        auth_file: str | None = None,
        poll_s: float = _POLL_S,
        clock: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._poll_s = poll_s
        self._clock = clock
        self._monotonic_s = monotonic_s
        self._where = _Where(url, auth_file)
        self._run: object = None
        self._after: int | None = None
        self._changed: int | None = None  # number of the last change that the exporter handed on
        self._workers: Workers | None = None
        self._failures = 0
        self._reported: str | None = None
        self._judged: object = None  # findings, and what is not judged, as sent last
        self._sent: dict[str, float] = {}  # start of each worker's last sample, by the exporter's clock

    @property
    def name(self) -> str:
        """The URL without user and password."""
        return self._where.name

    async def feed(self, send: Callable[[_Told], None]) -> None:
        """Sends the exporter's workers and samples, then polls for new ones, until it is cancelled.

        At first, and after an outage, it sends what the exporter knows of the time before, then each worker's last
        sample; later only what is new. During an outage it sends one failed sample per worker (source `exporter`) with
        the reason; if the exporter never answered, `Workers.waiting` has the reason.
        """
        while True:
            began_unix_s = self._clock()
            try:
                page = await self._where.fetch(self._after, self._changed)
                if self._after is not None and page.get("run") != self._run:
                    self._after, self._changed, self._sent = None, None, {}  # it was restarted, and counts anew
                    continue
                self._answered(page, (began_unix_s + self._clock()) / 2, send)
            except Exception as error:  # noqa: BLE001 - no answer may end the reader
                self._failed(self._where.trouble_of(error), began_unix_s, send)
            else:
                self._failures, self._reported = 0, None
            await asyncio.sleep(self._poll_s)

    def _answered(self, page: Mapping[str, Any], asked_unix_s: float, send: Callable[[_Told], None]) -> None:
        self._run, self._after = page.get("run"), whole_number(page.get("sequence"))
        workers = _workers(page)
        followed = {target.worker for target in workers.targets}
        if workers != self._workers:
            self._workers = workers
            self._sent = {worker: start for worker, start in self._sent.items() if worker in followed}
            send(workers)
        there_unix_s = number(page.get("now_unix_s"))
        shift_s = 0.0 if there_unix_s is None else asked_unix_s - there_unix_s
        shift_s = shift_s if abs(shift_s) > _SAME_CLOCK_S else 0.0
        handover = read_handover(page, shift_s)
        if handover is not None:
            self._changed = handover.number
            judged = handover.findings, handover.not_judged
            if handover.complete or handover.standings or handover.changes or judged != self._judged:
                self._judged = judged
                send(handover)
        for raw in _list(page.get("samples"), 100_000):
            sample = _sample(raw)
            if sample is not None and sample.worker in followed:
                if sample.time_unix_s <= self._sent.get(sample.worker, -math.inf):
                    sample = replace(sample, traced_s=0.0)  # sent before the outage: do not count its cost twice
                self._sent[sample.worker] = sample.time_unix_s
                shifted = sample.time_unix_s + shift_s
                now_unix_s, now_s = self._clock(), self._monotonic_s()
                # One from the future would never become stale; one from before 1970 is no time at all.
                shifted = max(min(shifted, now_unix_s), 0.0)
                send(
                    replace(
                        sample,
                        time_unix_s=shifted,
                        taken_monotonic_s=now_s - (now_unix_s - shifted),
                        findings=None if sample.findings is None else tuple(dated(sample.findings, shift_s)),
                    )
                )

    def _failed(self, trouble: TroubleError, began_unix_s: float, send: Callable[[_Told], None]) -> None:
        self._failures += 1
        message = str(trouble)
        targets = self._workers.targets if self._workers is not None else ()
        if message == self._reported or (targets and self._failures < _PATIENCE):
            return
        self._reported = message
        self._after = self._changed = None  # after the outage, ask for everything again
        if not targets:
            self._workers = Workers(waiting=message)
            send(self._workers)
        failure = Failure(source=EXPORTER, reason=trouble.reason, message=message)
        for target in targets:
            send(
                Sample(
                    worker=target.worker,
                    address=target.address,
                    job=target.job,
                    slice=target.slice,
                    time_unix_s=began_unix_s,
                    window_s=None,
                    took_s=max(0.0, self._clock() - began_unix_s),
                    interval_s=self._poll_s,
                    errors=(failure,),
                )
            )


_Told = Workers | Sample | Handover


_Read = TypeVar("_Read")


class Server:
    """The URL of a server, and the HTTP client that asks it. Follows no redirect: it could leak the password.

    Args:
        url: as the user gives it.
        auth_file: a file with a bearer token or USER:PASSWORD, read anew for each request, since tokens expire.

    Raises:
        UsageError: the URL is not of this form, or it and the file both have a password.

    Attributes:
        name: the URL without user and password.
    """

    kind: ClassVar[str] = "exporter"
    missing: ClassVar[str] = "is `tpumon serve` running there?"
    other: ClassVar[str] = f"the server is not a tpumon exporter; {_GOOD_FORM}"
    most_bytes: ClassVar[int | None] = None
    read_s: ClassVar[float] = _STEP_S  # how long it may take to the first byte, and between two
    suffixes: ClassVar[tuple[str, ...]] = ("/metrics", "/samples")  # people often copy the URL that Prometheus scrapes

    def __init__(self, url: str, auth_file: str | None = None) -> None:
        try:
            parts = urlsplit(url.strip())
            port = parts.port
        except ValueError:
            raise UsageError(f"--from: not a URL; {_GOOD_FORM}") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(f"--from: not the URL of an exporter; {_GOOD_FORM}")
        if parts.username is not None and auth_file is not None:
            raise UsageError("--from-auth: the URL has a password already; leave one of the two out")
        self._host, self._port, self._encrypted = parts.hostname, port, parts.scheme == "https"
        self._path = parts.path.rstrip("/")
        for suffix in self.suffixes:
            self._path = self._path.removesuffix(suffix)
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.name = one_line(f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}{self._path}")
        self._headers = {"Accept": "application/json", "Connection": "close"}
        if parts.username is not None:
            self._headers["Authorization"] = _basic(f"{unquote(parts.username)}:{unquote(parts.password or '')}")
        self._auth_file = auth_file

    async def ask(self, path: str, read: Callable[[int, bytes], _Read], form: str | None = None) -> _Read:
        """Gets a path, or posts a form to it; returns what `read` makes of the status and the body, in a thread.

        Raises:
            TroubleError: no answer in time, or `read` raised it, or a ValueError: not an answer of such a server.
        """
        exchange = _Exchange(self._connection(), self.most_bytes or _ANSWER_BYTES, self.read_s)
        try:
            return await in_thread(lambda: self._asked(exchange, path, form, read), timeout_s=_WHOLE_S)
        except TimeoutError:
            raise self.trouble("deadline", _NO_ANSWER) from None
        finally:
            exchange.drop()

    def _asked(self, exchange: _Exchange, path: str, form: str | None, read: Callable[[int, bytes], _Read]) -> _Read:
        try:
            return read(*exchange.ask(f"{self._path}{path}", self._with_auth(), form))
        except _AnswerTooLargeError as error:
            raise self.trouble("too-large", f"its answer is larger than {error.most_bytes >> 20} MiB") from None
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
            raise self.trouble("unavailable", f"{why}; {self.missing}") from None
        except (http.client.HTTPException, ValueError, RecursionError):
            raise self.trouble("malformed", self.other) from None

    def _with_auth(self) -> Mapping[str, str]:
        if self._auth_file is None:
            return self._headers
        try:
            with Path(self._auth_file).expanduser().open(encoding="ascii") as file:
                secret = file.read(_LONGEST_SECRET).strip()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "not a token"
            raise self.trouble("refused", f"--from-auth {one_line(self._auth_file)}: {why}") from None
        if not secret or not secret.isprintable():
            raise self.trouble("refused", f"--from-auth {one_line(self._auth_file)}: give one line in it")
        # A bearer token has no colon (RFC 6750).
        return {**self._headers, "Authorization": _basic(secret) if ":" in secret else f"Bearer {secret}"}

    def _connection(self) -> http.client.HTTPConnection:
        if self._encrypted:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=_STEP_S, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=_STEP_S)

    def refused(self, status: int) -> None:
        """Raises what a refusal means that has nothing to do with what was asked.

        Raises:
            TroubleError: it is one.
        """
        if status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            how = "give https://USER:PASSWORD@HOST:PORT, or --from-auth FILE with a token or USER:PASSWORD"
            raise self.trouble("refused", f"wrong user or password; {how}")
        if status == http.client.MISDIRECTED_REQUEST:
            raise self.trouble("refused", "it does not go by this name there; give localhost or an IP address")
        if status == http.client.SERVICE_UNAVAILABLE:
            raise self.trouble("unavailable", "it is too busy to answer")

    def trouble(self, reason: Reason, what: str) -> TroubleError:
        """An error that names the server."""
        return TroubleError(reason, one_line(f"{self.kind} {self.name}: {what}", limit=400))

    def trouble_of(self, error: Exception) -> TroubleError:
        """What an error of a refresh is told as; one that nobody foresaw is a bug, and names the server, too."""
        return error if isinstance(error, TroubleError) else self.trouble("internal", unexpected(error))


def _basic(secret: str) -> str:
    return f"Basic {base64.b64encode(secret.encode()).decode()}"


class _Where(Server):
    """An exporter's `/samples` page."""

    async def fetch(self, after: int | None, changed: int | None = None) -> dict[str, Any]:
        """Fetches `/samples`, or what is new there.

        Args:
            after: sequence of the last sample that is known; None: none is, so history is wanted, too.
            changed: number of the last change that is known.

        Raises:
            TroubleError: no answer in time, or not one of an exporter.
        """
        query = "history=1" if after is None else f"after={after}&changed={changed or 0}"
        return await self.ask(f"/samples?{query}", self._checked)

    def _checked(self, status: int, body: bytes) -> dict[str, Any]:
        self.refused(status)
        page = json.loads(body) if status == http.client.OK else None
        if not isinstance(page, dict) or "tpumon" not in page:
            raise ValueError
        if page.get("schema") != SCHEMA_VERSION:
            version = one_line(str(page["tpumon"]))
            raise self.trouble(
                "malformed",
                f"it runs tpumon {version}, whose samples this version cannot read; update the older of the two",
            )
        return page


class _AnswerTooLargeError(Exception):
    """The body is larger than this."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self.most_bytes = most_bytes


class _Exchange:
    """One request and its answer, in a thread that another thread can end.

    A socket's timeout starts again with each byte; only shutting the socket down ends an exchange that never stops.
    """

    def __init__(self, connection: http.client.HTTPConnection, most_bytes: int, read_s: float) -> None:
        self._connection = connection
        self._most_bytes = most_bytes
        self._read_s = read_s
        self._client: socket.socket | None = None
        self._dropped = False

    def drop(self) -> None:
        """Ends whatever the thread waits for, below TLS; while it connects, the socket's timeout does."""
        self._dropped = True
        if self._client is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._client, socket.SHUT_RDWR)

    def ask(self, path: str, headers: Mapping[str, str], form: str | None) -> tuple[int, bytes]:
        """Gets the path, or posts a form to it; returns the status and the body.

        Raises:
            OSError, http.client.HTTPException: no answer, or not one of HTTP.
            _AnswerTooLargeError: the body is larger than `most_bytes`.
        """
        with contextlib.closing(self._connection) as connection:
            connection.connect()
            self._client = connection.sock  # the connection forgets it before the body is read
            if self._dropped:  # before there was a socket to shut down
                raise TimeoutError
            connection.sock.settimeout(self._read_s)
            if form is None:
                connection.request("GET", path, headers=headers)
            else:
                kind = {"Content-Type": "application/x-www-form-urlencoded"}
                connection.request("POST", path, body=form, headers={**headers, **kind})
            with connection.getresponse() as answer:
                body = bytearray()
                while data := answer.read1(65536):
                    body += data
                    if len(body) > self._most_bytes:
                        raise _AnswerTooLargeError(self._most_bytes)
                if answer.length:
                    raise ConnectionError("the connection was closed early")
                return answer.status, bytes(body)


def _workers(page: Mapping[str, Any]) -> Workers:
    targets: dict[str, Target] = {}
    addresses = set()
    for raw in _list(page.get("targets"), 10_000):
        worker, address = (text(raw.get(name)) if isinstance(raw, dict) else None for name in ("worker", "address"))
        if worker and address and worker not in targets and address not in addresses:
            targets[worker] = Target(
                worker=worker,
                address=address,
                job=text(raw.get("job")),
                slice=text(raw.get("slice")),
                independent=raw.get("independent") is True,
            )
            addresses.add(address)
    return Workers(targets=tuple(targets.values()), waiting=None if targets else text(page.get("waiting")))


def _sample(raw: object) -> Sample | None:
    """Decodes a Sample object; None if it is not one. Invalid fields count as absent."""
    if not isinstance(raw, dict):
        return None
    try:
        sample = bounded(Sample.from_json(raw))
    except Exception:  # noqa: BLE001 - one that cannot be read costs no other
        return None
    return sample if sample.worker and sample.address else None


def _list(value: object, limit: int) -> list[Any]:
    return value[:limit] if isinstance(value, list) else []
