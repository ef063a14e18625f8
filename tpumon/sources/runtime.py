"""libtpu's runtime metric service: memory, duty cycle and errors, as the runtime itself counts them.

It lives in the job: no job, no service. Plain gRPC; no libtpu here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tpumon import wire
from tpumon.errors import SourceError
from tpumon.model import Caution, DeviceFigures, Failure, RuntimeFigures, Target
from tpumon.sources.rpc import Client, is_missing_method, is_not_found, server_words
from tpumon.sources.runtime_rows import METRICS, told_by
from tpumon.text import one_line
from tpumon.wire.runtime_metrics_pb2 import (
    ListSupportedMetricsRequest,
    ListSupportedMetricsResponse,
    MetricRequest,
    MetricResponse,
    SupportedMetric,
    TpuMetric,
)

__all__ = ["METRICS", "NAME", "Offered", "RuntimeMetrics", "RuntimeReading"]

NAME = "runtime-metrics"
"""As in `Failure.source`."""

_ANSWER_S = 2.0
_ASK_AGAIN_S = (
    300.0  # for metrics that a server does not have; it may get them when its job first talks to other slices
)
_MOST_ROWS = 4096  # a host has 16 devices at most

_ABOUT_ONE_METRIC = frozenset({"internal", "malformed", "refused", "too-large"})
"""Reasons that say nothing about the other metrics of the same server; NOT_FOUND is `internal`."""


_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeReading:
    """What one look at the service gave.

    Attributes:
        devices: a row for each device.
        runtime: of the worker as a whole.
        hbm_used_bytes, hbm_total_bytes: of all devices; None unless every device tells.
        warnings: errors that the runtime detects, and values that cannot be; one line each.
        failures: metrics that failed though the service is there.
        simulated: whether tpumon's simulator said it.
    """

    devices: tuple[DeviceFigures, ...]
    runtime: RuntimeFigures
    hbm_used_bytes: int | None
    hbm_total_bytes: int | None
    warnings: tuple[Caution, ...]
    failures: tuple[Failure, ...]
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A metric that a service lists.

    Attributes:
        name: on the wire.
        kind: for example "gauge"; empty where an older libtpu does not say, like the unit.
        unit: as libtpu writes it.
        shown: whether tpumon reads it.
    """

    name: str
    kind: str
    unit: str
    shown: bool


class RuntimeMetrics:
    """One worker's runtime metric service.

    Source: /tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric, one call a metric, all at once.

    A worker is a process. With a single address, which is then its own, only the devices of that process are asked for
    (`skip_node_aggregation`): of several workers of a host each would else claim all of the host's. With several
    addresses nobody knows which process is the worker's: it stands for the host, and libtpu's view of all processes of
    the host is asked for, whichever answers. Where one process drives all chips, which is usual, the two are the same.

    Args:
        target: its `runtime_addresses`, `host:port` or `unix:PATH`, are tried in this order until one answers; that
            one is asked first from then on.
        open_client: makes a channel.
    """

    def __init__(self, target: Target, open_client: Callable[[str], Client]) -> None:
        self._addresses = target.runtime_addresses
        self._open_client = open_client
        self._client: Client | None = None
        self._connection = 0
        self._missing: dict[str, float] = {}

    @property
    def address(self) -> str | None:
        """Where it answered last."""
        return None if self._client is None else self._client.address

    async def read(self) -> RuntimeReading | None:
        """One look, which takes 2 s at most.

        Returns:
            None where nobody listens: no runtime, as usual while no job runs.

        Raises:
            SourceError: something is there, but does not answer as this service does.
        """
        return await self._first_that_answers(self._look)

    async def offered(self) -> tuple[Offered, ...] | None:
        """What this libtpu lists, by name; None where nobody listens. 2 s at most.

        Raises:
            SourceError: as `read`; `unimplemented` also where the service is there, but too old to list anything.
        """
        return await self._first_that_answers(_list)

    async def close(self) -> None:
        """Closes the connection, if any."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _first_that_answers(self, ask: Callable[[Client, float], Awaitable[_Answer]]) -> _Answer | None:
        """What the first address that answers says, within 2 s for all of them."""
        ends_s = time.monotonic() + _ANSWER_S
        remembered = self.address
        addresses = sorted(self._addresses, key=lambda address: address != remembered)  # stable: else in their order
        trouble: list[SourceError] = []
        for index, address in enumerate(addresses):
            if address != self.address:
                await self.close()
                self._client = self._open_client(address)
            client = self._client
            assert client is not None
            try:
                left_s = ends_s - time.monotonic()
                return await ask(client, left_s if address == remembered else left_s / (len(addresses) - index))
            except SourceError as error:
                if not _is_nobody(error):
                    trouble.append(_in_words_of_the_service(error, address))
        await self.close()
        if trouble:
            raise trouble[0]
        return None

    async def _look(self, client: Client, timeout_s: float) -> RuntimeReading:
        ends_s = time.monotonic() + timeout_s
        if client.connection != self._connection or not client.connected:
            self._missing.clear()  # what comes back at the same address may be another version
        names = [name for name in METRICS if self._missing.get(name, 0.0) <= time.monotonic()]
        answers: dict[str, TpuMetric | SourceError] = {}
        if not client.connected:
            # Alone: where nobody is, one call fails and not ten.
            first, *names = names
            answers[first] = answer = await self._get(client, first, ends_s)
            if isinstance(answer, SourceError) and answer.reason not in _ABOUT_ONE_METRIC:
                raise answer
        told = await asyncio.gather(*(self._get(client, name, ends_s) for name in names))
        answers.update(zip(names, told, strict=True))
        self._connection = client.connection
        return self._reading(answers)

    async def _get(self, client: Client, name: str, ends_s: float) -> TpuMetric | SourceError:
        request = MetricRequest(metric_name=name, skip_node_aggregation=len(self._addresses) == 1)
        timeout_s = max(0.0, ends_s - time.monotonic())
        try:
            reply = await client.call(wire.GET_RUNTIME_METRIC, request, MetricResponse, timeout_s=timeout_s)
        except SourceError as error:
            return error
        if len(reply.metric.metrics) > _MOST_ROWS:
            return SourceError("malformed", f"{client.address}: {len(reply.metric.metrics)} rows; no host has as many")
        return reply.metric

    def _reading(self, answers: Mapping[str, TpuMetric | SourceError]) -> RuntimeReading:
        found = {name: answer for name, answer in answers.items() if not isinstance(answer, SourceError)}
        errors = {name: answer for name, answer in answers.items() if isinstance(answer, SourceError)}
        missing = {name for name, error in errors.items() if is_not_found(error) or is_missing_method(error)}
        failed = {name: error for name, error in errors.items() if name not in missing}
        if len(failed) == len(answers):
            raise next(iter(failed.values()))
        told = told_by(found)
        if told.devices:  # else the runtime is only starting
            again_s = time.monotonic() + _ASK_AGAIN_S
            self._missing.update(dict.fromkeys(missing - {METRICS[0]}, again_s))
        return RuntimeReading(
            devices=told.devices,
            runtime=told.runtime,
            hbm_used_bytes=_sum([device.hbm_used_bytes for device in told.devices]),
            hbm_total_bytes=_sum([device.hbm_total_bytes for device in told.devices]),
            warnings=told.warnings,
            failures=tuple(
                Failure(source=NAME, reason=error.reason, message=one_line(f"{name}: {error}"))
                for name, error in failed.items()
            ),
            simulated=told.simulated,
        )


async def _list(client: Client, timeout_s: float) -> tuple[Offered, ...]:
    request = ListSupportedMetricsRequest()
    path = wire.LIST_SUPPORTED_METRICS
    reply = await client.call(path, request, ListSupportedMetricsResponse, timeout_s=timeout_s)
    listed = reply.supported_metric[:_MOST_ROWS]
    return tuple(sorted((_offered(metric) for metric in listed), key=lambda metric: metric.name))


def _offered(metric: SupportedMetric) -> Offered:
    kinds = SupportedMetric.Kind
    known = metric.metric_kind in kinds.values() and metric.metric_kind != kinds.KIND_UNKNOWN
    return Offered(
        name=one_line(metric.metric_name),
        kind=kinds.Name(metric.metric_kind).lower() if known else "",
        unit=one_line(metric.unit, limit=20),
        shown=metric.metric_name in METRICS,
    )


def _sum(values: Sequence[int | None]) -> int | None:
    """The sum over all devices; None unless every device reports a value."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _is_nobody(error: SourceError) -> bool:
    return error.reason == "unavailable" and not _is_forbidden(error)


def _is_forbidden(error: SourceError) -> bool:
    return "Permission denied" in server_words(error)


def _in_words_of_the_service(error: SourceError, address: str) -> SourceError:
    """An error of the wire, told of this service; the wire speaks of profiler servers."""
    if _is_forbidden(error):
        return SourceError("refused", f"{address}: no permission for this socket; run tpumon as the job's user")
    if is_missing_method(error):
        words = "a gRPC server, but without libtpu's runtime metric service; its port is 8431 unless the job says else"
        return SourceError("unimplemented", f"{address}: {words}")
    if error.reason == "deadline":
        return SourceError("deadline", f"{address}: no runtime metrics within {_ANSWER_S:.0f} s; is its host alive?")
    if error.reason == "not-a-profiler":
        return SourceError("not-a-profiler", f"{address}: something listens there that is no runtime metric service")
    return error
