"""libtpu's runtime metric service: memory, duty cycle and errors, as the runtime itself counts them.

The job serves it: no job, no service. Plain gRPC; libtpu is not needed here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

from msgspec.structs import replace

from tpumon import proto as wire
from tpumon.collection.sources.doctor_reports import About, ExtraSourceReport, Offered
from tpumon.collection.sources.extra_source import ExtraSource, OpenClient, Reading
from tpumon.collection.sources.rpc import Client
from tpumon.collection.sources.runtime_rows import METRICS, reading_of
from tpumon.errors import SourceError
from tpumon.model import Failure, Target
from tpumon.proto.runtime_metrics_pb2 import (
    ListSupportedMetricsRequest,
    ListSupportedMetricsResponse,
    MetricRequest,
    MetricResponse,
    SupportedMetric,
    TpuMetric,
)
from tpumon.untrusted_text import one_line

if TYPE_CHECKING:
    from tpumon.collection.sources.base import SourceOptions

__all__ = ["METRICS", "PORTS", "RuntimeMetrics"]

PORTS = range(8431, 8439)
"""Ports at which libtpu serves it unless the job says otherwise: one per process."""

_ANSWER_S = 2.0
# For metrics that a server does not have; it may get them when its job first talks to other slices.
_ASK_AGAIN_S = 300.0
_GIB = 1 << 30
_MOST_ROWS = 4096  # a host has 16 devices at most

_ABOUT_ONE_METRIC = frozenset({"internal", "malformed", "refused", "too-large"})
"""Reasons that say nothing about the other metrics of the same server; NOT_FOUND is `internal`."""


_Answer = TypeVar("_Answer")


class RuntimeReport(ExtraSourceReport, frozen=True, kw_only=True):
    """Report about a runtime metric service, for `doctor`; `duty_cycle_ratio` is the average over its devices."""

    devices: int = 0
    hbm_used_bytes: int | None = None
    hbm_total_bytes: int | None = None
    duty_cycle_ratio: float | None = None

    @property
    def line(self) -> str:
        """The number of devices, and the figures that are there."""
        parts = [self.words]
        if self.hbm_used_bytes is not None and self.hbm_total_bytes is not None:
            parts.append(f"HBM {self.hbm_used_bytes / _GIB:.1f} of {self.hbm_total_bytes / _GIB:.1f} GiB")
        if self.duty_cycle_ratio is not None:
            parts.append(f"duty cycle {100 * self.duty_cycle_ratio:.0f} %")
        return ", ".join(parts)


class RuntimeMetrics(ExtraSource):
    """One worker's runtime metric service.

    Source: /tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric, one call a metric, all at once.

    A worker is a process. A single address is the worker's own: only the devices of that process are asked for
    (`skip_node_aggregation`), or each of several workers on a host would claim all of the host's devices. With several
    addresses it is unknown which process is the worker's: the worker stands for the host, and any of them is asked for
    libtpu's view of all processes of the host. Usually one process drives all chips, and the two are the same.

    Args:
        target: its `runtime_addresses`, `host:port` or `unix:PATH`, are tried in this order until one answers; that
            one is asked first from then on.
        open_client: makes a channel.
    """

    name = "runtime-metrics"
    alone = "runtime"
    title = "runtime metrics"
    about = About(
        title="Runtime metrics (libtpu)",
        key="runtimes",
        gives="service of runtime metrics: HBM, duty cycle; free for the job",
        several="services of runtime metrics: HBM, duty cycle; free for the job",
        nowhere=f"none: nothing listens on ports {PORTS[0]}-{PORTS[-1]}, as usual without a TPU job",
        absent="no runtime metrics: HBM in use and the runtime's duty cycle are unavailable",
        absent_remedy=f"libtpu serves them on port {PORTS[0]} while a job runs, unless TPU_RUNTIME_METRICS_PORTS or "
        "_ADDRESS in the job's environment says otherwise",
        failed_remedy="check that the job is alive; only memory and duty cycle are missing",
        shows_job=True,
    )
    usual_interval_s = 5.0  # libtpu averages over seconds itself, and each read is several calls

    @classmethod
    def open(cls, target: Target, open_client: OpenClient, options: SourceOptions) -> Self | None:
        """The service of one worker; None if it has no address or is not to be read."""
        return cls(target, open_client) if options.runtime_metrics and target.runtime_addresses else None

    @classmethod
    def places(cls, targets: Sequence[Target]) -> Sequence[Target]:
        """One target per address of such a service."""
        addresses = dict.fromkeys(address for target in targets for address in target.runtime_addresses)
        return [Target(worker=address, address=address, runtime_addresses=(address,)) for address in addresses]

    def __init__(self, target: Target, open_client: OpenClient) -> None:
        super().__init__(target, open_client)
        self._addresses = target.runtime_addresses
        self._client: Client | None = None
        self._connection = 0
        self._missing: dict[str, float] = {}
        self._unreached: SourceError | None = None

    @property
    def address(self) -> str | None:
        """The address that answered last."""
        return None if self._client is None else self._client.address

    async def read(self) -> Reading | None:
        """Reads it once, within 2 s.

        Returns:
            None if nothing listens: no runtime, as usual while no job runs.

        Raises:
            SourceError: something is there, but it does not answer as this service does.
        """
        return await self._first_that_answers(self._read_at)

    async def offered(self) -> tuple[Offered, ...] | None:
        """Metrics that this libtpu lists, by name; None if nothing listens. Takes at most 2 s.

        Raises:
            SourceError: as `read`; `unimplemented` also if the service is too old to list anything.
        """
        return await self._first_that_answers(_list)

    async def examine(self) -> ExtraSourceReport:
        """Finds out for `doctor` what it gives and what it lists.

        Raises:
            SourceError: as `read`; `unavailable` if its host cannot be reached, where nobody knows what listens.
        """
        reading = await self.read()
        address = self.address or self._addresses[0]
        if reading is None:
            if self._unreached is not None:
                raise self._unreached
            words = "nothing listens there: no runtime, as usual without a TPU job"
            return RuntimeReport(address=address, state="absent", words=words)
        devices = reading.figures.devices
        try:
            offered = await self.offered()
        except SourceError:
            offered = None
        return RuntimeReport(
            address=address,
            state="ok",
            words=f"{len(devices)} device{'s' if len(devices) != 1 else ''}",
            devices=len(devices),
            hbm_used_bytes=reading.figures.hbm_used_bytes,
            hbm_total_bytes=reading.figures.hbm_total_bytes,
            duty_cycle_ratio=reading.figures.runtime_duty_cycle_ratio,
            simulated=reading.simulated,
            offered=offered,
            warnings=reading.lines,
        )

    async def close(self) -> None:
        """Closes the connection, if any."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _first_that_answers(self, ask: Callable[[Client, float], Awaitable[_Answer]]) -> _Answer | None:
        """The answer of the first address that answers, within 2 s for all of them."""
        ends_s = time.monotonic() + _ANSWER_S
        remembered = self.address
        addresses = sorted(self._addresses, key=lambda address: address != remembered)  # stable
        trouble: list[SourceError] = []
        self._unreached = None
        for index, address in enumerate(addresses):
            if address != self.address:
                await self.close()
                self._client = self.open_client(address)
            client = self._client
            assert client is not None
            try:
                left_s = ends_s - time.monotonic()
                return await ask(client, left_s if address == remembered else left_s / (len(addresses) - index))
            except SourceError as error:
                if error.reason != "unavailable" or _is_forbidden(error):
                    trouble.append(_in_words_of_the_service(error, address))
                elif error.detail == "no-route":
                    self._unreached = error
        await self.close()
        if trouble:
            raise trouble[0]
        return None

    async def _read_at(self, client: Client, timeout_s: float) -> Reading:
        ends_s = time.monotonic() + timeout_s
        if client.connection != self._connection or not client.connected:
            self._missing.clear()  # what comes back at the same address may be another version
        names = [name for name in METRICS if self._missing.get(name, 0.0) <= time.monotonic()]
        answers: dict[str, TpuMetric | SourceError] = {}
        if not client.connected:
            # Alone: if nothing is there, one call fails instead of ten.
            first, *names = names
            answers[first] = answer = await self._get(client, first, ends_s)
            if isinstance(answer, SourceError) and answer.reason not in _ABOUT_ONE_METRIC:
                raise answer
        replies = await asyncio.gather(*(self._get(client, name, ends_s) for name in names))
        answers.update(zip(names, replies, strict=True))
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
            message = f"{len(reply.metric.metrics)} rows, more than any host has"
            return SourceError("malformed", message, address=client.address)
        return reply.metric

    def _reading(self, answers: Mapping[str, TpuMetric | SourceError]) -> Reading:
        metrics = {name: answer for name, answer in answers.items() if not isinstance(answer, SourceError)}
        errors = {name: answer for name, answer in answers.items() if isinstance(answer, SourceError)}
        missing = {name for name, error in errors.items() if error.status in {"NOT_FOUND", "UNIMPLEMENTED"}}
        failed = {name: error for name, error in errors.items() if name not in missing}
        if failed and not metrics:
            raise next(iter(failed.values()))
        reading = reading_of(metrics)
        if reading.figures.devices:  # if there are none, the runtime is only starting
            again_s = time.monotonic() + _ASK_AGAIN_S
            self._missing.update(dict.fromkeys(missing - {METRICS[0]}, again_s))
        return replace(reading, failures=tuple(self._failure(name, error) for name, error in failed.items()))

    def _failure(self, name: str, error: SourceError) -> Failure:
        return replace(Failure.of(self.name, error), message=one_line(f"{name}: {error.message}"))


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


def _is_forbidden(error: SourceError) -> bool:
    return "Permission denied" in error.status_text  # UNAVAILABLE, as for a socket where nothing listens


def _in_words_of_the_service(error: SourceError, address: str) -> SourceError:
    """An error of the wire, which speaks of profiler servers, in this service's words."""
    if _is_forbidden(error):
        return SourceError("refused", "no permission for this socket; run tpumon as the job's user", address=address)
    if error.status == "UNIMPLEMENTED":
        message = (
            "a gRPC server, but not libtpu's runtime metric service; its port is 8431 unless the job says otherwise"
        )
        return SourceError("unimplemented", message, address=address)
    if error.reason == "deadline":
        message = f"no runtime metrics within {_ANSWER_S:.0f} s; check that its host is alive"
        return SourceError("deadline", message, address=address)
    if error.reason == "not-a-profiler":
        return SourceError("not-a-profiler", "what listens there is not a runtime metric service", address=address)
    return error
