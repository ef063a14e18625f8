"""Asks a Prometheus-compatible server by its HTTP API, version 1, and checks what it answers."""

from __future__ import annotations

import asyncio
import http.client
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from tpumon.model.frozen import frozen
from tpumon.prometheus.table import MOST_LABELS, Table, rows_of
from tpumon.remote import Server, TroubleError
from tpumon.text import one_line

__all__ = ["Answer", "PrometheusServer", "Series", "Table", "TroubleError"]

_MOST_SERIES = 250_000
_MOST_POINTS = 5_000_000
_LATEST_UNIX_S = 1e11  # the year 5138: later times are nobody's, and calendars end
_LONGEST = 200  # characters of a label's name and of its value
_MOST_CLEANED = 65536
_MOST_AT_ONCE = 5  # more would take longer each, at worst longer than they may
_TIMEOUT_S = 8  # told to the server, which ends the query then; shorter than the deadline of the whole exchange


_Read = TypeVar("_Read")


class Series(NamedTuple):
    """One series of an answer; a tuple, since an answer has tens of thousands.

    Attributes:
        labels: names and values, each one safe line.
        points: times by the server's clock, in seconds since the epoch, and finite values.
    """

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@frozen
class Answer:
    """The result of one query.

    Attributes:
        series: at most 250,000, with 5 million points.
        warnings: what the server says is missing; empty if the data is complete.
    """

    series: Sequence[Series]
    warnings: Sequence[str] = ()


class PrometheusServer(Server):
    """A Prometheus-compatible server: Prometheus, Thanos, Mimir, Google's. Counts the queries that it is asked."""

    kind = "Prometheus"
    missing = "is the server running there?"
    other = "the server is neither a tpumon exporter nor Prometheus; give --from http://HOST:PORT"
    most_bytes = 64 * 1024 * 1024
    read_s = _TIMEOUT_S + 1.0  # it sends nothing before a query is done
    suffixes = ("/graph", "/query", "/api/v1")

    queries = 0

    def __init__(self, url: str, auth_file: str | None = None) -> None:
        super().__init__(url, auth_file)
        self._at_once = asyncio.Semaphore(_MOST_AT_ONCE)

    async def is_there(self) -> bool:
        """Whether a Prometheus-compatible server answers at this URL, even if only that it wants a password."""
        try:
            await self.query("vector(1)")
        except TroubleError as trouble:
            return trouble.reason != "malformed"
        return True

    async def query(self, expression: str) -> Answer:
        """The values of an expression now.

        Raises:
            TroubleError: no answer in time, none of Prometheus, or the query is refused.
        """
        return await self._post("query", {"query": expression}, self.read)

    async def table(self, expression: str) -> Table:
        """Likewise, for an answer of many series.

        Raises:
            TroubleError: as `query`.
        """
        return await self._post("query", {"query": expression}, self.read_table)

    async def query_range(self, expression: str, begin_unix_s: float, end_unix_s: float, step_s: float) -> Answer:
        """The values of an expression over a time by the server's clock.

        Raises:
            TroubleError: as `query`.
        """
        span = {"start": f"{begin_unix_s:.3f}", "end": f"{end_unix_s:.3f}", "step": f"{step_s:.3f}"}
        return await self._post("query_range", {"query": expression, **span}, self.read)

    async def _post(self, path: str, parameters: Mapping[str, str], read: Callable[[int, bytes], _Read]) -> _Read:
        form = urlencode({**parameters, "timeout": f"{_TIMEOUT_S}s"})
        async with self._at_once:
            self.queries += 1
            return await self.ask(f"/api/v1/{path}", read, form)

    def read(self, status: int, body: bytes) -> Answer:
        """Checks an answer.

        Raises:
            TroubleError: the query is refused.
            ValueError: it is not one of Prometheus.
        """
        if status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            self.refused(status)
        try:
            told = json.loads(body)
        except ValueError:
            self.refused(status)
            raise
        kind = told.get("status") if isinstance(told, dict) else None
        if kind == "error" and isinstance(told.get("error"), str):
            late = told.get("errorType") == "timeout"
            raise self.trouble("deadline" if late else "refused", f"query failed: {one_line(told['error'], limit=250)}")
        data = told.get("data") if kind == "success" else None
        if not isinstance(data, dict) or not isinstance(data.get("result"), list):
            raise ValueError  # noqa: TRY004 - as JSON that cannot be read
        warnings = told.get("warnings")
        lines = [one_line(line) for line in warnings[:5] if isinstance(line, str)] if isinstance(warnings, list) else []
        return Answer(series=_series(data), warnings=lines)

    def read_table(self, status: int, body: bytes) -> Table:
        """Likewise.

        Raises:
            TroubleError, ValueError: as `read`.
        """
        found = None
        if status == http.client.OK:
            _make_room()
            found = rows_of(body.decode(), _MOST_SERIES, _CLEANED.__getitem__)
        if found is not None:
            table, rest = found
            return replace(table, warnings=self.read(status, rest.encode()).warnings)
        answer = self.read(status, body)
        names = {name for one in answer.series for name in one.labels}
        columns = {name: [one.labels.get(name, "") for one in answer.series] for name in names}
        return Table(columns, [one.points[-1][1] for one in answer.series], answer.warnings)


def _make_room() -> None:
    if len(_CLEANED) > _MOST_CLEANED:
        _CLEANED.clear()


def _series(data: Mapping[str, Any]) -> Sequence[Series]:
    raws = data["result"][:_MOST_SERIES]
    with suppress(AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return _usual(raws)
    found: list[Series] = []
    left = _MOST_POINTS
    for raw in raws:
        one = _other(raw, left)
        if one is not None:
            left -= len(one.points)
            found.append(one)
    return found


def _usual(raws: Sequence[Any]) -> Sequence[Series]:
    """All series in few steps, since an answer has tens of thousands.

    Raises:
        AttributeError, KeyError, OverflowError, TypeError, ValueError: not each has one finite value and usual labels.
    """
    points = [(float(at), float(text)) for at, text in [raw["value"] for raw in raws]]
    metrics = [raw["metric"] for raw in raws]
    times = [at for at, _ in points]
    if not (0 <= min(times, default=0) <= max(times, default=0) < _LATEST_UNIX_S):
        raise ValueError
    if not math.isfinite(sum(map(sum, points))) or max(map(len, metrics), default=0) > MOST_LABELS:
        raise ValueError
    _make_room()
    labels = [{_CLEANED[name]: _CLEANED[label] for name, label in metric.items()} for metric in metrics]
    return list(map(Series, labels, zip(points)))


def _other(raw: object, most: int) -> Series | None:
    """A series of several points, or with anything odd."""
    metric = raw.get("metric") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(metric, dict):
        return None
    points = _points([raw["value"]] if "value" in raw else raw.get("values"), most)
    return Series(_labels(metric), points) if points else None


def _points(raw: object, most: int) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for pair in raw[:most] if isinstance(raw, list) else ():
        try:
            at, text = pair
            time_unix_s, value = float(at), float(text)
        except (TypeError, ValueError, OverflowError):
            continue
        if -math.inf < value < math.inf and 0 <= time_unix_s < _LATEST_UNIX_S:
            points.append((time_unix_s, value))
    return points


def _labels(raw: Mapping[str, Any]) -> Mapping[str, str]:
    pairs = raw.items() if len(raw) <= MOST_LABELS else list(raw.items())[:MOST_LABELS]
    return {_CLEANED[name]: _CLEANED[value] for name, value in pairs if isinstance(value, str)}


class _Cleaned(dict[str, str]):
    """Texts made safe: every series of a worker has the same few, and looking one up costs less than a call."""

    def __missing__(self, text: str) -> str:
        if not isinstance(text, str):
            raise TypeError
        line = self[text] = one_line(text, limit=_LONGEST)
        return line


_CLEANED = _Cleaned()
