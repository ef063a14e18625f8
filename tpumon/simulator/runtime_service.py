"""The runtime metric service of one simulated worker, as libtpu provides it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from google.protobuf.message import DecodeError

from tpumon.model import RUNTIME_COUNTS, RUNTIME_LATENCIES, SIMULATED_MARK
from tpumon.proto import GET_RUNTIME_METRIC, LIST_SUPPORTED_METRICS, runtime_metrics_pb2
from tpumon.proto.runtime_metrics_pb2 import Metric
from tpumon.simulator.expected_figures import figures
from tpumon.simulator.rpc import Abort, Code, Method
from tpumon.simulator.scenario import SECOND, USABLE_HBM_RATIO, Job, to_ns

_PERIOD_NS = SECOND  # averaging period of duty cycle and HBM utilization


class _Value(NamedTuple):
    """One row of a metric; `device` is None for a metric of the whole host."""

    device: int | None
    value: int | float


class RuntimeMetrics:
    """The methods of one worker's runtime metric service. Device IDs are numbered across the slice.

    Args:
        job: the simulated job.
        worker: index of the worker.
        clock: returns the seconds since the epoch.
        epoch_unix_ns: when the job started.
    """

    def __init__(self, job: Job, worker: int, *, clock: Callable[[], float], epoch_unix_ns: int) -> None:
        self._job = job
        self._worker = worker
        self._clock = clock
        self._epoch_unix_ns = epoch_unix_ns
        self._metrics: dict[str, tuple[str, Callable[[int], Iterator[_Value]]]] = {
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
        self._between_slices: dict[str, Callable[[int], Metric]] = {}
        if job.topology.hosts > 1:  # as of one slice of several; libtpu has these for no other job
            self._between_slices = {row.name: partial(_times, key) for key, row in RUNTIME_LATENCIES.items()}
            self._between_slices |= {row.name: partial(_count, key) for key, row in RUNTIME_COUNTS.items()}
        self.methods: dict[str, Method] = {GET_RUNTIME_METRIC: self._get, LIST_SUPPORTED_METRICS: self._list}

    async def _get(self, data: bytes) -> bytes:
        request = runtime_metrics_pb2.MetricRequest()
        try:
            request.ParseFromString(data)
        except DecodeError:
            raise Abort(Code.INTERNAL, "") from None
        name = request.metric_name
        if name in self._between_slices:
            response = runtime_metrics_pb2.MetricResponse()
            response.metric.name = name
            response.metric.description = f"{SIMULATED_MARK}: of the network between slices"
            uptime_ns = self._uptime_ns(to_ns(self._clock()) - self._epoch_unix_ns)
            response.metric.metrics.append(self._between_slices[name](uptime_ns))
            return response.SerializeToString()
        if name not in self._metrics:
            raise Abort(Code.NOT_FOUND, f"Metric {name} is not found")
        description, values = self._metrics[name]
        response = runtime_metrics_pb2.MetricResponse()
        response.metric.name = name
        response.metric.description = f"{SIMULATED_MARK}: {description}"
        for row in values(to_ns(self._clock()) - self._epoch_unix_ns):
            metric = response.metric.metrics.add()
            if name == "hlo.queue.size.gauge" and row.device is not None:
                metric.attribute.key = "core"
                pairs = metric.attribute.value.kvlist_attr.attributes
                pairs.add(key="device_ordinal").value.int_attr = row.device
                pairs.add(key="core_type").value.string_attr = "TENSOR_CORE"
            elif row.device is None:
                metric.attribute.key = "ml_framework"
                framework = metric.attribute.value.kvlist_attr.attributes.add(key="ml_framework_name")
                framework.value.string_attr = "JAX"
            else:
                metric.attribute.key = "device-id"
                metric.attribute.value.int_attr = row.device
            if isinstance(row.value, int):
                metric.gauge.as_int = row.value
            else:
                metric.gauge.as_double = row.value
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
        for name in (*self._metrics, *self._between_slices):
            if wanted.search(name):
                response.supported_metric.add(metric_name=name)
        return response.SerializeToString()

    def _devices(self) -> Iterator[tuple[int, int]]:
        """Number of each device on its host and in the slice."""
        count = self._job.topology.devices_per_host
        for device in range(count):
            yield device, self._worker * count + device

    def _hbm_total(self, _now_ns: int) -> Iterator[_Value]:
        for _, device in self._devices():
            yield _Value(device, int(self._job.topology.device_hbm_bytes * USABLE_HBM_RATIO))

    def _hbm_used(self, now_ns: int) -> Iterator[_Value]:
        for local, device in self._devices():
            yield _Value(device, self._job.hbm_used_bytes(self._worker, local, now_ns))

    def _duty_cycle(self, now_ns: int) -> Iterator[_Value]:
        busy = figures(self._job, self._worker, now_ns - _PERIOD_NS, now_ns).busy
        topology = self._job.topology
        if not topology.generation.answers_monitor:
            for local, device in self._devices():
                yield _Value(device, 100 * busy[local])
            return
        # v2 and v3 report one row per chip, for its two devices together.
        per_chip = topology.generation.chip.devices
        for chip in range(topology.chips_per_host):
            share = max(busy[chip * per_chip : (chip + 1) * per_chip])
            yield _Value(self._worker * topology.chips_per_host + chip, 100 * share)

    def _hbm_utilization(self, now_ns: int) -> Iterator[_Value]:
        ratio = figures(self._job, self._worker, now_ns - _PERIOD_NS, now_ns).hbm_ratio or 0.0
        for _, device in self._devices():
            yield _Value(device, 100 * ratio)

    def _idle_duration(self, now_ns: int) -> Iterator[_Value]:
        idle_ns = now_ns - self._job.last_busy_ns(self._worker, now_ns)
        for _, device in self._devices():
            yield _Value(device, idle_ns / 1e9)

    def _queue_size(self, now_ns: int) -> Iterator[_Value]:
        size = self._job.queue_size(self._worker, now_ns)
        for local, _ in self._devices():
            yield _Value(local, size)

    def _uptime(self, now_ns: int) -> Iterator[_Value]:
        yield _Value(None, self._uptime_ns(now_ns) // SECOND)

    def _uptime_ns(self, now_ns: int) -> int:
        return now_ns - (self._job.up_since_ns(self._worker, now_ns) or 0)


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
