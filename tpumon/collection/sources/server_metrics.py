"""A server's own metrics: its requests and tokens, from the page that it has for Prometheus."""

from __future__ import annotations

import asyncio
import http.client
import math
import socket
import ssl
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from msgspec.structs import asdict

from tpumon.collection.http_get import AddressCache, AnswerTooLargeError, Endpoint, decoded, get
from tpumon.collection.sources.doctor_reports import About, ExtraSourceReport
from tpumon.collection.sources.extra_source import ExtraSource, OpenClient, Reading
from tpumon.collection.sources.server_page import ServerPage, figures_of, page_of
from tpumon.errors import Reason, SourceError
from tpumon.model import Figures, Target
from tpumon.untrusted_text import one_line

if TYPE_CHECKING:
    from tpumon.collection.sources.base import SourceOptions

_ANSWER_S = 2.0
_MOST_BYTES = 4 << 20  # of 64 engines it is 3 MiB
_SHORTEST_S = 1.0  # between two readings of which rates are computed
_LONGEST_S = 120.0
_ASK_AGAIN_S = 60.0  # where a server has no such page: each question is a line in its log

_MOVED = {http.client.TEMPORARY_REDIRECT, http.client.PERMANENT_REDIRECT}
_FORBIDDEN = {http.client.UNAUTHORIZED, http.client.FORBIDDEN}


class ServerMetrics(ExtraSource):
    """One worker's server, as it counts its requests itself.

    Source: GET of the page, on a connection of its own, within 2 s. No redirect is followed.

    Args:
        target: its `server_metrics` is the URL of the page.
        open_client: not used: it is no gRPC.
    """

    name = "server-metrics"
    title = "metrics of the server"
    about = About(
        title="The server's own metrics",
        key="server_metrics",
        gives="server's own metrics: requests, tokens; one line in its access log per question",
        several="servers' own metrics: requests, tokens; one line in their access logs per question",
        nowhere="none: no vLLM or JetStream listens here; --server-metrics URL names one",
        failed_remedy="check the URL of --server-metrics and the server's log; only requests and tokens are missing",
    )
    shows_life = False  # it is often another process than the one that uses the TPU
    usual_interval_s = 5.0

    @classmethod
    def open(cls, target: Target, open_client: OpenClient, options: SourceOptions) -> Self | None:  # noqa: ARG003
        """The server of one worker; None if it has no page."""
        return cls(target, open_client) if target.server_metrics is not None else None

    @classmethod
    def places(cls, targets: Sequence[Target]) -> Sequence[Target]:
        """One target per page."""
        pages = dict.fromkeys(target.server_metrics for target in targets if target.server_metrics is not None)
        return [Target(worker=page, address=page, server_metrics=page) for page in pages]

    def __init__(self, target: Target, open_client: OpenClient) -> None:
        super().__init__(target, open_client)
        self._url = target.server_metrics or ""
        parts = urlsplit(self._url)
        self._place = Endpoint.of(parts)
        self._headers, self._path = {"Host": parts.netloc, "Accept": "text/plain"}, parts.path or "/metrics"
        self._names = AddressCache()
        self._pages: list[tuple[float, ServerPage]] = []  # the last one, and that before
        self._again_s = -math.inf

    @property
    def address(self) -> str | None:
        """The URL of the page."""
        return self._url

    async def read(self) -> Reading | None:
        """Looks once, within 2 s.

        Returns:
            None if nothing listens: the server may not be up yet.

        Raises:
            SourceError: something is there, but it does not answer as a server's page does.
        """
        if time.monotonic() < self._again_s:
            return Reading(figures=figures_of(ServerPage(), None, 0.0))
        asked_s = time.monotonic()
        try:
            page = await self._page()
        except (SourceError, ConnectionRefusedError) as error:
            self._pages.clear()
            if isinstance(error, SourceError):
                raise
            return None
        now_s = (asked_s + time.monotonic()) / 2
        if page.names is None:
            self._again_s = now_s + _ASK_AGAIN_S
        return Reading(figures=self._figures(now_s, page))

    async def examine(self) -> ExtraSourceReport:
        """Finds out for `doctor` whose page it is, and which figures it has."""
        reading = await self.read()
        if reading is None:
            return ExtraSourceReport(address=self._url, state="absent", words="nothing listens there")
        server = reading.figures.server
        if server is None:
            return ExtraSourceReport(address=self._url, state="absent", words="no metrics of a server's requests")
        title = next((page.names.title for _, page in self._pages if page.names is not None), "")
        figures = [name for name, value in asdict(server).items() if isinstance(value, (int, float))]
        return ExtraSourceReport(
            address=self._url, state="ok", words=f"{title}: {', '.join(figures) or 'no figure now'}"
        )

    def _figures(self, now_s: float, page: ServerPage) -> Figures:
        """The figures of this page and the one before; of that one's before if it was read just now."""
        if self._pages and now_s - self._pages[-1][0] < _SHORTEST_S:
            before = self._pages[0] if len(self._pages) > 1 else None
        else:
            before = self._pages[-1] if self._pages else None
            self._pages = [*self._pages[-1:], (now_s, page)]
        if before is None or now_s - before[0] > _LONGEST_S or before[1].names is not page.names:
            return figures_of(page, None, 0.0)
        return figures_of(page, before[1], now_s - before[0])

    async def _page(self) -> ServerPage:
        try:
            async with asyncio.timeout(_ANSWER_S):
                status, body = await self._get(self._path)
                if status in _MOVED and not self._path.endswith("/"):  # early vLLM 0.5
                    status, body = await self._get(f"{self._path}/")
        except AnswerTooLargeError:
            raise self._error("too-large", f"its answer is larger than {_MOST_BYTES >> 20} MiB") from None
        except ssl.SSLError as error:
            raise self._error("refused", f"TLS: {one_line(str(error.reason), limit=100)}") from None
        except socket.gaierror:
            raise self._error("resolve", "unknown host") from None
        except TimeoutError:
            raise self._error("deadline", f"no answer within {_ANSWER_S:.0f} s") from None
        except ConnectionRefusedError:
            raise
        except ConnectionError:
            raise self._error("malformed", "the connection was closed early") from None
        except OSError as error:
            raise self._error("unavailable", error.strerror or "it cannot be reached") from None
        except (http.client.HTTPException, ValueError):
            raise self._error("malformed", "not an HTTP server") from None
        return await self._read(status, body)

    async def _get(self, path: str) -> tuple[int, bytes]:
        place, names = self._place, self._names
        return await get(place, path, self._headers, names, read_s=_ANSWER_S, most_bytes=_MOST_BYTES, is_large=_no_turn)

    async def _read(self, status: int, body: bytes) -> ServerPage:
        if status == http.client.NOT_FOUND:
            return ServerPage()
        if status in _FORBIDDEN:
            raise self._error("refused", f"HTTP {status}: it wants a password, which tpumon does not send")
        if status != http.client.OK:
            raise self._error("malformed", f"HTTP {status} in place of metrics")
        try:
            return await decoded(body, page_of)
        except ValueError as error:
            raise self._error("malformed", f"no page of metrics: {error}") from None

    def _error(self, reason: Reason, message: str) -> SourceError:
        return SourceError(reason, f"metrics of the server: {message}", address=self._place_name)

    @property
    def _place_name(self) -> str:
        return one_line(f"{self._place.host}:{self._place.port}", limit=100)


async def _no_turn() -> None:
    """Lets an answer of more than 1 MiB be read at once: few servers have one."""
