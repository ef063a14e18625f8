"""The runtime metric service of one simulated worker, as libtpu provides it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from google.protobuf.message import DecodeError

from tpumon.model import RUNTIME_COUNTS, RUNTIME_LATENCIES, SIMULATED_MARK
from tpumon.proto import GET_RUNTIME_METRIC, LIST_SUPPORTED_METRICS, runtime_metrics_pb2
from tpumon.proto.runtime_metrics_pb2 import Metric
from tpumon.simulator.expected_figures import figures
from tpumon.simulator.grpc_servers import Abort, Code, Method
from tpumon.simulator.scenario import SECOND, USABLE_HBM_RATIO, SimulatedJob, to_ns

_PERIOD_NS = SECOND  # averaging period of duty cycle and HBM utilization


class RuntimeMetricService:
    """The methods of one worker's runtime metric service. Device IDs are numbered across the slice."""

    def __init__(self, job: SimulatedJob, worker: int, *, clock: Callable[[], float], epoch_unix_ns: int) -> None:
        self._job = job
        self._worker = worker
        self._clock = clock
        self._epoch_unix_ns = epoch_unix_ns
        self.methods: dict[str, Method] = {GET_RUNTIME_METRIC: self._get, LIST_SUPPORTED_METRICS: self._list}
        # Of each metric its description, and its rows at a moment.
        self._metrics: dict[str, tuple[str, Callable[[int], Iterable[Metric]]]] = {
            "tpu.runtime.hbm.memory.total.bytes": ("HBM of each device, in bytes", self._hbm_total),
            "tpu.runtime.hbm.memory.usage.bytes": ("HBM in use on each device, in bytes", self._hbm_used),
            "tpu.runtime.tensorcore.dutycycle.percent": (
                "share of the last second in which the TensorCore was busy, in percent",
                self._duty_cycle,
            ),
            "tpu.runtime.tensorcore.idle_duration.seconds": (
                "time since the TensorCore was last busy, in seconds",
                self._idle_duration,
            ),
            "hlo.queue.size.gauge": ("programs that wait or run on each device", self._queue_size),
            "tpu.runtime.uptime.seconds.gauge": ("time since the runtime started, in seconds", self._uptime),
        }
        if not job.topology.generation.answers_monitor:  # v4 and later
            self._metrics["tpu.runtime.hbm.utilization.percent"] = (
                "HBM bandwidth used in the last second, in percent",
                self._hbm_utilization,
            )
        if job.topology.hosts > 1:  # as of one slice of several; libtpu has these for no other job
            for make, table in ((_times, RUNTIME_LATENCIES), (_count, RUNTIME_COUNTS)):
                for key, row in table.items():
                    self._metrics[row.name] = ("of the network between slices", partial(self._network, make, key))

    async def _get(self, data: bytes) -> bytes:
        request = runtime_metrics_pb2.MetricRequest()
        try:
            request.ParseFromString(data)
        except DecodeError:
            raise Abort(Code.INTERNAL, "") from None
        if request.metric_name not in self._metrics:
            raise Abort(Code.NOT_FOUND, f"Metric {request.metric_name} is not found")
        description, rows = self._metrics[request.metric_name]
        response = runtime_metrics_pb2.MetricResponse()
        response.metric.name = request.metric_name
        response.metric.description = f"{SIMULATED_MARK}: {description}"
        response.metric.metrics.extend(rows(to_ns(self._clock()) - self._epoch_unix_ns))
        return response.SerializeToString()

    async def _list(self, data: bytes) -> bytes:
        request = runtime_metrics_pb2.ListSupportedMetricsRequest()
        response = runtime_metrics_pb2.ListSupportedMetricsResponse()
        try:
            request.ParseFromString(data)
            wanted = re.compile(request.filter)
        except DecodeError:
            raise Abort(Code.INTERNAL, "") from None
        except re.error as error:
            raise Abort(Code.INVALID_ARGUMENT, f"filter {request.filter!r}: {error}") from None
        for name in filter(wanted.search, self._metrics):
            response.supported_metric.add(metric_name=name)
        return response.SerializeToString()

    def _per_device(self, value: Callable[[int], float]) -> Iterator[Metric]:
        count = self._job.topology.devices_per_host
        for device in range(count):
            yield _of_device(self._worker * count + device, value(device))

    def _hbm_total(self, _now_ns: int) -> Iterator[Metric]:
        return self._per_device(lambda _: int(self._job.topology.device_hbm_bytes * USABLE_HBM_RATIO))

    def _hbm_used(self, now_ns: int) -> Iterator[Metric]:
        return self._per_device(lambda device: self._job.hbm_used_bytes(self._worker, device, now_ns))

    def _duty_cycle(self, now_ns: int) -> Iterator[Metric]:
        busy = figures(self._job, self._worker, now_ns - _PERIOD_NS, now_ns).busy
        topology = self._job.topology
        if not topology.generation.answers_monitor:
            yield from self._per_device(lambda device: 100 * busy[device])
            return
        # v2 and v3 report one row per chip, for its two devices together.
        per_chip = topology.generation.chip.devices
        for chip in range(topology.chips_per_host):
            share = max(busy[chip * per_chip : (chip + 1) * per_chip])
            yield _of_device(self._worker * topology.chips_per_host + chip, 100 * share)

    def _hbm_utilization(self, now_ns: int) -> Iterator[Metric]:
        ratio = figures(self._job, self._worker, now_ns - _PERIOD_NS, now_ns).hbm_ratio or 0.0
        return self._per_device(lambda _: 100 * ratio)

    def _idle_duration(self, now_ns: int) -> Iterator[Metric]:
        idle_s = (now_ns - self._job.last_busy_ns(self._worker, now_ns)) / 1e9
        return self._per_device(lambda _: idle_s)

    def _queue_size(self, now_ns: int) -> Iterator[Metric]:
        size = self._job.queue_size(self._worker, now_ns)
        for device in range(self._job.topology.devices_per_host):
            row = _gauge(size)
            row.attribute.key = "core"
            pairs = row.attribute.value.kvlist_attr.attributes
            pairs.add(key="device_ordinal").value.int_attr = device
            pairs.add(key="core_type").value.string_attr = "TENSOR_CORE"
            yield row

    def _uptime(self, now_ns: int) -> Iterator[Metric]:
        row = _gauge(self._uptime_ns(now_ns) // SECOND)
        row.attribute.key = "ml_framework"
        row.attribute.value.kvlist_attr.attributes.add(key="ml_framework_name").value.string_attr = "JAX"
        yield row

    def _network(self, make: Callable[[str, int], Metric], key: str, now_ns: int) -> Iterator[Metric]:
        yield make(key, self._uptime_ns(now_ns))

    def _uptime_ns(self, now_ns: int) -> int:
        return now_ns - (self._job.up_since_ns(self._worker, now_ns) or 0)


def _gauge(value: float) -> Metric:
    row = Metric()
    if isinstance(value, int):
        row.gauge.as_int = value
    else:
        row.gauge.as_double = value
    return row


def _of_device(device: int, value: float) -> Metric:
    row = _gauge(value)
    row.attribute.key = "device-id"
    row.attribute.value.int_attr = device
    return row


_TYPICAL_US = {"tcp_min_rtt": 400, "host_compute": 900, "host_to_device_transfer": 1500}
_SHARES = (0.15, 0.6, 0.2, 0.04, 0.01)  # of values up to the typical time, and up to each of its doubles


def _times(key: str, uptime_ns: int) -> Metric:
    """Ten values a second since the job started, in buckets of libtpu's kind: 2^i us."""
    typical_us = _TYPICAL_US.get(key, 6000)
    made = Metric()
    pairs = made.attribute.value.kvlist_attr.attributes
    pairs.add(key="buffer_size").value.string_attr = "4MB"
    options = made.distribution.bucket_options.exponential_buckets
    options.num_finite_buckets, options.growth_factor, options.scale = 26, 2.0, 1.0
    counts = [0] * (options.num_finite_buckets + 2)
    values = uptime_ns // (SECOND // 10)
    for place, share in enumerate(_SHARES):
        counts[typical_us.bit_length() + place] = int(values * share)
    made.distribution.bucket_counts.extend(counts)
    made.distribution.count = sum(counts)
    made.distribution.mean = 1.2 * typical_us
    return made


def _count(key: str, uptime_ns: int) -> Metric:
    """A gigabyte a second, one packet of 1500 bytes in 2,000 sent again."""
    sent_bytes = uptime_ns  # a byte a nanosecond
    kind, _, unit = key.removeprefix("tcp_").partition("_")
    made = Metric()
    made.counter.as_int = sent_bytes // (1500 if unit == "packets" else 1) // (2000 if kind == "retransmitted" else 1)
    return made
