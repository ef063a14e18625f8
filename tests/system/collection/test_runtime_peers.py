"""Google's tpu-info and tpumon read the same runtime metric service and agree."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest

from fakes.runtime_node import DUTY, QUEUE, RuntimeNode, metrics_of
from support import require
from support.simulated import fleet_of
from tpumon.collection.sources import Client
from tpumon.collection.sources.runtime_metrics import RuntimeMetrics
from tpumon.model import Target
from tpumon.proto import runtime_metrics_pb2

# tpu-info calls without a deadline.
pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]

GENERATIONS = ("v2", "v3", "v4", "v5e", "v5p", "v6e", "7x")


@pytest.fixture(scope="module")
def tpu_info():
    """tpu-info's own modules; what its command finds by PCI is handed to them."""
    require(importlib.util.find_spec("tpu_info"), "tpu-info beside pytest")
    from tpu_info import device, metrics

    class TpuInfo:
        def __init__(self):
            self.chips = {chip.value.name: chip for chip in device.TpuChip}

        def usage(self, generation, address):
            # As its command chooses between the two.
            new = generation == "7x"
            ask = metrics.get_chip_usage_new if new else metrics.get_chip_usage
            return {
                str(usage.device_id): (
                    usage.memory_usage,
                    usage.total_memory,
                    pytest.approx(usage.duty_cycle_pct / 100),
                )
                for usage in ask(self.chips[generation], addr=address)
            }

        def bandwidth(self, address):
            return {str(number): pytest.approx(share / 100)
                    for number, share in metrics.get_runtime_hbm_utilization(addr=address)}  # fmt: skip

        def idle_s(self, address):
            return {str(number): idle_s for number, idle_s in metrics.get_tensorcore_idle_duration(addr=address)}

        def queues(self, generation, address):
            found = metrics.get_hlo_queue_size(self.chips[generation], addr=address)
            return {str(queue.device_id): queue.queue_size for queue in found}

    return TpuInfo()


async def read(address):
    target = Target(worker="w", address="w:9999", runtime_addresses=(address,))
    service = RuntimeMetrics(target, Client)
    try:
        return await service.read()
    finally:
        await service.close()


def usage(reading):
    keys = ("hbm_used_bytes", "hbm_total_bytes", "runtime_duty_cycle_ratio")
    return {device.device: tuple(getattr(device, key) for key in keys) for device in reading.figures.devices}


def column(reading, key):
    return {device.device: getattr(device, key) for device in reading.figures.devices}


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("chips", [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 12, 13)], ids=str)
def test_memory_and_duty_cycle_are_those_of_tpu_info(tpu_info, generation, chips):
    """For each device of every generation, on a first and on a later host of a slice."""
    with RuntimeNode(metrics_of(generation, chips=chips)) as node:
        theirs = tpu_info.usage(generation, node.address)
        ours = asyncio.run(read(node.address))

    assert len(theirs) == len(chips) * tpu_info.chips[generation].value.devices_per_chip
    assert usage(ours) == theirs
    assert ours.figures.hbm_used_bytes == sum(used for used, _, _ in theirs.values())


@pytest.mark.parametrize("generation", ["v4", "v5e", "v6e", "7x"])
@pytest.mark.parametrize("as_text", [False, True])
def test_bandwidth_idle_time_and_queues_are_those_of_tpu_info(tpu_info, generation, as_text):
    """Queues by number, as an older libtpu tells them, and by text, as a newer one does."""
    told = metrics_of(generation)
    told[QUEUE] = metrics_of(generation, as_text=as_text)[QUEUE]
    with RuntimeNode(told) as node:
        ours = asyncio.run(read(node.address))

        assert column(ours, "runtime_hbm_bandwidth_utilization_ratio") == tpu_info.bandwidth(node.address)
        assert column(ours, "runtime_tensorcore_idle_s") == tpu_info.idle_s(node.address)
        assert column(ours, "runtime_hlo_queue_size") == tpu_info.queues(generation, node.address)


def test_where_tpu_info_gives_up_we_show_what_is_there(tpu_info):
    """It needs as many duty cycles as devices; one row less, and it shows nothing."""
    told = metrics_of("v6e")
    told[DUTY] = told[DUTY][:3]
    with RuntimeNode(told) as node:
        with pytest.raises(AssertionError, match="Metrics not found for all chips"):
            tpu_info.usage("v6e", node.address)
        ours = asyncio.run(read(node.address))

    assert [duty is None for *_, duty in usage(ours).values()] == [False, False, False, True]


@pytest.mark.parametrize("topology", ["v2-8", "v4-8", "v5e-4", "v6e-8", "7x-8"])
async def test_tpu_info_reads_the_simulator(tpu_info, topology):
    """Of an idle job, whose figures stand still; its numbers of devices are those of the generation."""
    async with fleet_of(topology, scenario="idle") as fleet:
        address = fleet.runtime_addresses[0]
        theirs = await asyncio.to_thread(tpu_info.usage, topology.partition("-")[0], address)
        ours = await read(address)
    assert usage(ours) == theirs


def test_our_messages_are_those_of_tpu_info(tpu_info):
    """Every field that we know and they know has the same number, type and kind."""
    from tpu_info.proto import tpu_metric_service_pb2 as theirs

    names = {"TpuMetric": "TPUMetric"}
    compared = 0
    for name, ours in runtime_metrics_pb2.DESCRIPTOR.message_types_by_name.items():
        there = theirs.DESCRIPTOR.message_types_by_name[names.get(name, name)].fields_by_name
        for field in ours.fields:
            if field.name in there:
                other = there[field.name]
                assert (field.number, field.type, field.is_repeated) == (other.number, other.type, other.is_repeated)
                compared += 1
    assert compared > 20
