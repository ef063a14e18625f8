"""The samples of a running exporter (`tpumon serve`, `--listen`), as if they had been taken here.

What comes from there is checked before anything sees it: an exporter may be of another version, or none at all.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import math
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

from tpumon.errors import Reason, UsageError
from tpumon.model import SCHEMA_VERSION, Failure, Sample, Target, Workers
from tpumon.model.codec import number, text, whole_number
from tpumon.system.threads import in_thread
from tpumon.text import one_line

_POLL_S = 1.0
_STEP_S = 5.0  # for connecting, and for each read
_WHOLE_S = 10.0
_ANSWER_BYTES = 32 * 1024 * 1024
_PATIENCE = 2  # failures in a row before workers are called unreachable
_SAME_CLOCK_S = 0.1
_GOOD_FORM = "give --from http://HOST:10466, or https://USER:PASSWORD@HOST:10466"


class _TroubleError(Exception):
    """One poll failed; the message is one line."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


class RemoteExporter:
    """Follows an exporter: its workers and their samples, through its restarts and outages.

    Args:
        url: `http://HOST:PORT` or `https://...`; `user:password@` before the host is used and never shown.
        poll_s: how often to ask.
        clock: seconds since the epoch.

    Raises:
        UsageError: it is no such URL.
    """

    def __init__(self, url: str, *, poll_s: float = _POLL_S, clock: Callable[[], float] = time.time) -> None:
        self._poll_s = poll_s
        self._clock = clock
        self._where = _Where(url)
        self._run: object = None
        self._after: int | None = None
        self._found: Workers | None = None
        self._failures = 0
        self._told: str | None = None
        self._sent: dict[str, float] = {}  # start of each worker's last sample, by the exporter's clock

    @property
    def name(self) -> str:
        """The URL without what is secret in it."""
        return self._where.name

    async def feed(self, send: Callable[[Workers | Sample], None]) -> None:
        """Sends what the exporter has, and what is new about once a second, until it is cancelled.

        While the exporter cannot be reached, every worker's sample is a failed one (source `exporter`) that says why;
        where it never could, `Workers.waiting` does. Afterwards each worker's last sample comes again.
        """
        while True:
            began_unix_s = self._clock()
            try:
                told = await in_thread(lambda: self._where.fetch(self._after), timeout_s=None)
            except _TroubleError as trouble:
                self._failed(trouble, began_unix_s, send)
            else:
                if self._after is not None and told.get("run") != self._run:
                    self._after, self._sent = None, {}  # it has been restarted, and counts anew
                    continue
                self._answered(told, (began_unix_s + self._clock()) / 2, send)
            await asyncio.sleep(self._poll_s)

    def _answered(self, told: Mapping[str, Any], asked_unix_s: float, send: Callable[[Workers | Sample], None]) -> None:
        self._failures, self._told = 0, None
        self._run, self._after = told.get("run"), whole_number(told.get("sequence"))
        found = _found(told)
        if found != self._found:
            self._found = found
            send(found)
        there_unix_s = number(told.get("now_unix_s"))
        shift_s = 0.0 if there_unix_s is None else asked_unix_s - there_unix_s
        followed = {target.worker for target in found.targets}
        for raw in _list(told.get("samples"), 100_000):
            sample = _sample(raw)
            if sample is not None and sample.worker in followed:
                if sample.time_unix_s <= self._sent.get(sample.worker, -math.inf):
                    sample = replace(sample, traced_s=0.0)  # seen before the outage: it costs the job nothing more
                self._sent[sample.worker] = sample.time_unix_s
                shifted = sample.time_unix_s + (shift_s if abs(shift_s) > _SAME_CLOCK_S else 0.0)
                # One from the future would never become stale.
                send(replace(sample, time_unix_s=min(shifted, self._clock())))

    def _failed(self, trouble: _TroubleError, began_unix_s: float, send: Callable[[Workers | Sample], None]) -> None:
        self._failures += 1
        message = str(trouble)
        targets = self._found.targets if self._found is not None else ()
        if message == self._told or (targets and self._failures < _PATIENCE):
            return
        self._told = message
        self._after = None  # afterwards everybody's last sample is wanted again
        if not targets:
            self._found = Workers(waiting=message)
            send(self._found)
        failure = Failure(source="exporter", reason=trouble.reason, message=message)
        for target in targets:
            send(
                Sample(
                    worker=target.worker,
                    address=target.address,
                    slice=target.slice,
                    time_unix_s=began_unix_s,
                    window_s=None,
                    took_s=max(0.0, self._clock() - began_unix_s),
                    interval_s=self._poll_s,
                    errors=(failure,),
                )
            )


class _Where:
    """An exporter's address, and how to ask it."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url.strip())
            port = parts.port
        except ValueError:
            raise UsageError(f"--from: that is no URL; {_GOOD_FORM}") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(f"--from: that is no address of an exporter; {_GOOD_FORM}")
        self._host, self._port, self._encrypted = parts.hostname, port, parts.scheme == "https"
        # What people have at hand is often the page that Prometheus reads.
        self._path = parts.path.rstrip("/").removesuffix("/metrics").removesuffix("/samples")
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.name = one_line(f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}{self._path}")
        self._headers = {"Accept": "application/json", "Connection": "close"}
        if parts.username is not None:
            secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(secret).decode()}"

    def fetch(self, after: int | None) -> dict[str, Any]:
        """One answer of `/samples`. No redirect is followed: it could take the password elsewhere.

        Raises:
            _TroubleError: there is none, or not an exporter's.
        """
        try:
            return self._checked(*self._get("/samples" if after is None else f"/samples?after={after}"))
        except ssl.SSLCertVerificationError as error:
            raise self._trouble(
                "refused", f"its certificate is not trusted ({error.verify_message}); SSL_CERT_FILE may name its CA's"
            ) from None
        except socket.gaierror:
            raise self._trouble("resolve", "its host is not known; check the name") from None
        except TimeoutError:
            raise self._trouble("deadline", "it does not answer in time; is a firewall between?") from None
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            raise self._trouble("unavailable", f"{why}; is `tpumon serve` running there?") from None
        except (http.client.HTTPException, ValueError, RecursionError):
            raise self._trouble("malformed", f"what answers there is no tpumon exporter; {_GOOD_FORM}") from None

    def _get(self, path: str) -> tuple[int, bytes]:
        until_s = time.monotonic() + _WHOLE_S
        connection = (
            http.client.HTTPSConnection(self._host, self._port, timeout=_STEP_S, context=ssl.create_default_context())
            if self._encrypted
            else http.client.HTTPConnection(self._host, self._port, timeout=_STEP_S)
        )
        try:
            connection.request("GET", f"{self._path}{path}", headers=self._headers)
            with connection.getresponse() as answer:
                body = bytearray()
                while data := answer.read1(65536):
                    body += data
                    if time.monotonic() > until_s:
                        raise TimeoutError
                    if len(body) > _ANSWER_BYTES:
                        raise self._trouble("too-large", f"it answers with more than {_ANSWER_BYTES >> 20} MiB")
                if answer.length:
                    raise ConnectionError("it broke off")
                return answer.status, bytes(body)
        finally:
            connection.close()

    def _checked(self, status: int, body: bytes) -> dict[str, Any]:
        if status == http.client.UNAUTHORIZED:
            raise self._trouble("refused", "it wants another user or password; give https://USER:PASSWORD@HOST:PORT")
        if status == http.client.SERVICE_UNAVAILABLE:
            raise self._trouble("unavailable", "it is too busy to answer")
        told = json.loads(body) if status == http.client.OK else None
        if not isinstance(told, dict) or "tpumon" not in told:
            raise ValueError
        if told.get("schema") != SCHEMA_VERSION:
            raise self._trouble("malformed", f"tpumon {one_line(str(told['tpumon']))} there writes samples that "
                                "this version cannot read; update the older of the two")  # fmt: skip
        return told

    def _trouble(self, reason: Reason, what: str) -> _TroubleError:
        return _TroubleError(reason, one_line(f"exporter {self.name}: {what}", limit=400))


def _found(told: Mapping[str, Any]) -> Workers:
    targets: dict[str, Target] = {}
    addresses = set()
    for raw in _list(told.get("targets"), 10_000):
        worker, address = (text(raw.get(name)) if isinstance(raw, dict) else None for name in ("worker", "address"))
        if worker and address and worker not in targets and address not in addresses:
            targets[worker] = Target(worker=worker, address=address, slice=text(raw.get("slice")))
            addresses.add(address)
    return Workers(targets=tuple(targets.values()), waiting=None if targets else text(told.get("waiting")))


def _sample(raw: object) -> Sample | None:
    """None if it is not one. What is wrong in it counts as absent."""
    if not isinstance(raw, dict):
        return None
    try:
        sample = Sample.from_json(raw)
    except ValueError:
        return None
    return sample if sample.worker and sample.address else None


def _list(value: object, limit: int) -> list[Any]:
    return value[:limit] if isinstance(value, list) else []
