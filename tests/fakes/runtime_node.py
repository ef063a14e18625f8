"""libtpu's runtime metric service, as a job on a TPU VM serves it, said in bytes written by hand.

with RuntimeNode(metrics_of("v6e")) as node:
    ...  # node.address, node.calls
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any, Self

import grpc

from fakes.protobuf import BYTES, FIXED64, VARINT, decode, varint
from fakes.protobuf import field as encode

GIB = 1 << 30
SERVICE = "tpu.monitoring.runtime.RuntimeMetricService"

TOTAL = "tpu.runtime.hbm.memory.total.bytes"
USED = "tpu.runtime.hbm.memory.usage.bytes"
DUTY = "tpu.runtime.tensorcore.dutycycle.percent"
BANDWIDTH = "tpu.runtime.hbm.utilization.percent"
IDLE = "tpu.runtime.tensorcore.idle_duration.seconds"
QUEUE = "hlo.queue.size.gauge"
UPTIME = "tpu.runtime.uptime.seconds.gauge"
MEGASCALE = "megascale.error.detected.gauge"
SLICE = "slice.error.detected.gauge"


@dataclass(frozen=True)
class Generation:
    """What differs: devices a chip, whether the duty cycle is a chip's, whether HBM bandwidth is reported."""

    devices: int
    hbm_bytes: int  # of a device
    duty_by_chip: bool = False
    bandwidth: bool = True


GENERATIONS = {
    "v2": Generation(2, 8 * GIB, duty_by_chip=True, bandwidth=False),
    "v3": Generation(2, 16 * GIB, duty_by_chip=True, bandwidth=False),
    "v4": Generation(1, 32 * GIB),
    "v5e": Generation(1, 16 * GIB),
    "v5p": Generation(1, 95 * GIB),
    "v6e": Generation(1, 33_550_229_504),
    "7x": Generation(2, 96 * GIB),
}


@dataclass(frozen=True, kw_only=True)
class Refuse:
    """A metric that is answered with a status."""

    code: grpc.StatusCode = grpc.StatusCode.INTERNAL
    details: str = "the driver is gone"


@dataclass(frozen=True)
class Hang:
    """A metric that is never answered."""


Answer = Sequence[bytes] | Refuse | Hang | bytes
"""Rows, or what comes instead of them; bytes are the whole answer, whatever they mean."""


def present(number: int, value: float | str | bytes) -> bytes:
    """A field that is sent even if zero, as those of a oneof are."""
    if isinstance(value, float):
        return varint(number << 3 | FIXED64) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value & (1 << 64) - 1)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def attribute(key: str, value: str | int | Mapping[str, str | int]) -> bytes:
    """An Attribute: text, a number, or a list of pairs of these."""
    if isinstance(value, Mapping):
        pairs = b"".join(encode(1, attribute(*pair)) for pair in value.items())
        return encode(1, key) + encode(2, present(6, pairs))
    return encode(1, key) + encode(2, present(3 if isinstance(value, int) else 1, value))


def gauge(value: float | bool | str) -> bytes:
    """A Gauge as it stands in a Metric."""
    number = {bool: 4, int: 2, float: 1, str: 3}[type(value)]
    return encode(3, present(number, value))


def counter(value: float) -> bytes:
    """A Counter as it stands in a Metric."""
    return encode(4, present(2 if isinstance(value, int) else 1, value))


def row(device: int | str, value: float | str) -> bytes:
    """A Metric of one device; a recent libtpu sends its time, too."""
    return encode(1, attribute("device-id", device)) + encode(2, encode(1, 1_769_000_000)) + gauge(value)


def queue(ordinal: int | str, size: int, core: str = "TENSOR_CORE") -> bytes:
    """A row of the queue sizes; old versions send the ordinal as a number, new ones as text."""
    return encode(1, attribute("core", {"device_ordinal": ordinal, "core_type": core})) + gauge(size)


def detected(value: int, **about: str) -> bytes:
    """A row of the detectors of hangs and failed slices, or of the uptime."""
    return encode(1, attribute("info", about)) + gauge(value)


def distribution(
    counts: Sequence[int], *, bounds: Sequence[float] | None = None, mean: float = 0.0, growth: float = 2.0,
    scale: float = 1.0, finite: int | None = None, **about: str
) -> bytes:  # fmt: skip
    """A row of a distribution: with these bounds, else with exponential ones, as libtpu has them."""
    if bounds is not None:
        options = encode(3, encode(1, b"".join(struct.pack("<d", bound) for bound in bounds)))
    else:
        options = encode(2, encode(1, len(counts) - 2 if finite is None else finite)
                         + present(2, growth) + present(3, scale))  # fmt: skip
    told = encode(1, sum(counts)) + present(2, mean) + encode(6, options)
    return encode(1, attribute("info", about)) + encode(5, told + encode(7, b"".join(map(varint, counts))))


LATENCIES = [
    f"megascale.{what}.microsecond.cumulative.distribution"
    for what in ("dcn_transfer_latencies", "dcn_inbound_transfer_latencies", "collective_end_to_end_latencies",
                 "host_to_device_transfer_latencies", "device_to_host_transfer_latencies", "mxla_compute_latencies",
                 "grpc_tcp_min_rtt")
]  # fmt: skip
COUNTS = [
    f"megascale.grpc_tcp_{what}.cumulative.count"
    for what in ("packets_sent", "packets_retransmitted", "bytes_sent", "bytes_retransmitted")
]


def between_slices() -> dict[str, Answer]:
    """What a job of several slices has beside the rest."""
    times = [distribution([0, 0, 5, 3, 0, 1, 0], mean=10.0, buffer_size="4MB"),
             distribution([0, 1, 0, 0, 0, 0, 0], mean=1.5, **{"buffer-size": "1MB"})]  # fmt: skip
    return dict.fromkeys(LATENCIES, times) | {
        name: [encode(1, attribute("peer", str(peer))) + counter(1000 * peer) for peer in (1, 2)] for name in COUNTS
    }


def metrics_of(generation: str, *, chips: Sequence[int] = (0, 1, 2, 3), as_text: bool = False) -> dict[str, Answer]:
    """What a job that drives these chips says; `chips` count through the slice. No two devices have the same values."""
    kind = GENERATIONS[generation]
    devices = [chip * kind.devices + i for chip in chips for i in range(kind.devices)]

    def rows(ids: Sequence[int], first: float, step: float) -> list[bytes]:
        return [row(str(number) if as_text else number, first + step * i) for i, number in enumerate(ids)]

    metrics: dict[str, Answer] = {
        TOTAL: rows(devices, kind.hbm_bytes, 0),
        USED: rows(devices, 3 * GIB, 1 << 20),
        DUTY: rows(chips if kind.duty_by_chip else devices, 50.5, 2.25),
        IDLE: rows(devices, 0.0, 0.5),
        QUEUE: [queue(str(i) if as_text else i, i) for i in range(len(devices))],
        UPTIME: [detected(3600, ml_framework_name="JAX")],
    }
    if kind.bandwidth:
        metrics[BANDWIDTH] = rows(devices, 20.0, 1.5)
    return metrics


def supported(name: str, unit: str = "", kind: int = 0) -> bytes:
    """A SupportedMetric; without unit and kind as older versions send it."""
    return encode(1, name) + encode(2, unit) + encode(3, kind)


@dataclass(frozen=True)
class Call:
    """One RPC as the server saw it."""

    method: str
    metric: str
    skip_node_aggregation: bool
    time_remaining: float | None


@dataclass
class RuntimeNode:
    """The service on a port of its own, or on a socket of the file system (`unix:PATH`).

    Attributes:
        metrics: by name; may be changed while it runs. What is not there is NOT_FOUND.
        neighbours: rows of other processes of the host, added where a caller does not skip them.
        listed: SupportedMetrics, and no list at all where None.
        description: of every metric.
        calls: every RPC so far.
    """

    metrics: dict[str, Answer]
    neighbours: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    listed: Sequence[bytes] | None = None
    description: str = ""
    bind: str = "127.0.0.1:0"
    calls: list[Call] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._closing = threading.Event()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(16), handlers=[_Handler(self)], options=[("grpc.so_reuseport", 0)]
        )
        port = self._server.add_insecure_port(self.bind)
        self.address = self.bind if self.bind.startswith("unix:") else f"{self.bind.rpartition(':')[0]}:{port}"
        self._server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """The job ended: nobody listens any more."""
        self._closing.set()
        self._server.stop(None).wait()

    def asked(self) -> list[str]:
        """The metrics that were asked for so far, each as often as it was."""
        return [call.metric for call in self.calls if call.method == "GetRuntimeMetric"]

    def serve(self, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Answers one RPC."""
        fields: dict[int, list[Any]] = decode(request)
        call = Call(method, bytes(fields.get(1, [b""])[-1]).decode(), bool(fields.get(2, [0])[-1]),
                    context.time_remaining())  # fmt: skip
        self.calls.append(call)
        if method == "ListSupportedMetrics":
            if self.listed is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
            return b"".join(encode(1, metric) for metric in self.listed or ())
        answer = self.metrics.get(call.metric)
        match answer:
            case None:
                context.abort(grpc.StatusCode.NOT_FOUND, f"Metric {call.metric} is not found")
            case Refuse(code=code, details=details):
                context.abort(code, details)
            case Hang():
                while context.is_active() and not self._closing.wait(0.02):
                    pass
                return b""
            case bytes():
                return answer
        rows = [*answer, *([] if call.skip_node_aggregation else self.neighbours.get(call.metric, []))]
        body = encode(1, call.metric) + encode(2, self.description) + b"".join(encode(3, one) for one in rows)
        return encode(1, body) + encode(3, 1)  # metric_type LIBTPU


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, node: RuntimeNode) -> None:
        self._node = node

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        service, _, method = details.method.removeprefix("/").partition("/")
        if service != SERVICE or method not in {"GetRuntimeMetric", "ListSupportedMetrics"}:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, context: self._node.serve(method, request, context))
