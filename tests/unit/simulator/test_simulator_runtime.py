"""The simulated runtime metric service over real gRPC."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from tpumon import proto as wire
from tpumon.model import SIMULATED_MARK
from tpumon.proto import runtime_metrics_pb2
from tpumon.simulator.simulated_fleet import SimulatedFleet
from tpumon.simulator.simulator_settings import SimulatorSettings

TOTAL = "tpu.runtime.hbm.memory.total.bytes"
USED = "tpu.runtime.hbm.memory.usage.bytes"
DUTY = "tpu.runtime.tensorcore.dutycycle.percent"
BANDWIDTH = "tpu.runtime.hbm.utilization.percent"
IDLE = "tpu.runtime.tensorcore.idle_duration.seconds"
QUEUE = "hlo.queue.size.gauge"
UPTIME = "tpu.runtime.uptime.seconds.gauge"


async def get(channel, name):
    request = runtime_metrics_pb2.MetricRequest(metric_name=name).SerializeToString()
    answer = await channel.unary_unary(wire.GET_RUNTIME_METRIC)(request, timeout=20)
    return runtime_metrics_pb2.MetricResponse.FromString(answer).metric


async def supported(channel, pattern=""):
    request = runtime_metrics_pb2.ListSupportedMetricsRequest(filter=pattern).SerializeToString()
    answer = await channel.unary_unary(wire.LIST_SUPPORTED_METRICS)(request, timeout=20)
    listed = runtime_metrics_pb2.ListSupportedMetricsResponse.FromString(answer)
    return [metric.metric_name for metric in listed.supported_metric]


def asked(topology, *questions, worker=0, after_s=10.0, **settings):
    """Answers of one worker's service, some time after its job started."""
    now = [1_700_000_000.0]

    async def scenario():
        fleet = SimulatedFleet(SimulatorSettings(topology=topology, **settings), clock=lambda: now[0])
        async with fleet, grpc.aio.insecure_channel(fleet.runtime_addresses[worker]) as channel:
            now[0] += after_s
            return [await question(channel) for question in questions]

    return asyncio.run(scenario())


def metric(name):
    return lambda channel: get(channel, name)


def values(found):
    return {row.attribute.value.int_attr: getattr(row.gauge, row.gauge.WhichOneof("value")) for row in found.metrics}


def test_memory_is_per_device_and_devices_count_through_the_slice():
    total, used = asked("v6e-16", metric(TOTAL), metric(USED), worker=2)
    assert values(total) == dict.fromkeys(range(8, 12), int(31.25 * (1 << 30)))
    assert all(0 < values(used)[device] < values(total)[device] for device in range(8, 12))
    assert total.description.startswith(SIMULATED_MARK)
    assert total.name == TOTAL


@pytest.mark.parametrize(
    ("topology", "rows", "devices"), [("v3-8", 4, 8), ("v4-8", 4, 4), ("v5e-8", 8, 8), ("7x-8", 8, 8)]
)
def test_duty_cycle_is_per_chip_on_v2_and_v3_and_per_device_later(topology, rows, devices):
    duty, total = asked(topology, metric(DUTY), metric(TOTAL))
    assert len(duty.metrics) == rows
    assert len(total.metrics) == devices
    assert all(80 < share < 100 for share in values(duty).values())


def test_hbm_utilization_exists_from_v4_on():
    (listed, found) = asked("v4-8", supported, metric(BANDWIDTH))
    assert BANDWIDTH in listed
    assert all(10 < share < 60 for share in values(found).values())
    (listed,) = asked("v3-8", supported)
    assert BANDWIDTH not in listed


def test_an_unknown_metric_is_not_found():
    async def unknown(channel):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await get(channel, BANDWIDTH)
        return failed.value.code()

    assert asked("v2-8", unknown) == [grpc.StatusCode.NOT_FOUND]


def test_the_list_obeys_its_filter_and_refuses_a_broken_one():
    async def broken(channel):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await supported(channel, "(")
        return failed.value.code()

    everything, hbm, refused = asked("v5e-8", supported, lambda channel: supported(channel, "memory"), broken)
    assert set(everything) == {TOTAL, USED, DUTY, BANDWIDTH, IDLE, QUEUE, UPTIME}
    assert set(hbm) == {TOTAL, USED}
    assert refused == grpc.StatusCode.INVALID_ARGUMENT


def test_an_idle_tpu_has_been_idle_since_it_started():
    idle, duty, uptime = asked("v5e-8", metric(IDLE), metric(DUTY), metric(UPTIME), scenario="idle", after_s=33.0)
    assert set(values(idle).values()) == {33.0}
    assert set(values(duty).values()) == {0.0}
    assert [row.gauge.as_int for row in uptime.metrics] == [33]


def test_a_busy_tpu_is_not_idle():
    (idle,) = asked("v5e-8", metric(IDLE))
    assert set(values(idle).values()) == {0.0}


@pytest.mark.parametrize(("worker", "queued"), [(0, 1), (1, 1), (2, 0), (3, 1)])
def test_a_job_that_hangs_is_alive_and_does_nothing(worker, queued):
    """Programs wait on the workers that wait for another one; on that one nothing waits."""
    duty, idle, queue, uptime = asked(
        "v4-32", metric(DUTY), metric(IDLE), metric(QUEUE), metric(UPTIME), scenario="hang@10:worker=2", worker=worker,
        after_s=90.0,
    )  # fmt: skip
    assert set(values(duty).values()) == {0.0}
    assert all(79.9 < idle_s < 80.2 for idle_s in values(idle).values())
    rows = [{pair.key: pair.value for pair in row.attribute.value.kvlist_attr.attributes} for row in queue.metrics]
    assert [row["device_ordinal"].int_attr for row in rows] == [0, 1, 2, 3]
    assert [row.gauge.as_int for row in queue.metrics] == [queued] * 4
    assert [row.gauge.as_int for row in uptime.metrics] == [90]


def test_uptime_starts_anew_after_a_crash():
    (uptime,) = asked("v5e-8", metric(UPTIME), scenario="crash-and-return", after_s=39.0)
    assert 4 <= uptime.metrics[0].gauge.as_int <= 8
