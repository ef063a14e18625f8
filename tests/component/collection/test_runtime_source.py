"""libtpu's runtime metric service, over real gRPC on a port."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from msgspec.structs import astuple

from fakes.runtime_node import (
    BANDWIDTH,
    DUTY,
    GIB,
    IDLE,
    MEGASCALE,
    QUEUE,
    SLICE,
    TOTAL,
    UPTIME,
    USED,
    Hang,
    Refuse,
    RuntimeNode,
    attribute,
    between_slices,
    counter,
    detected,
    metrics_of,
    queue,
    row,
    supported,
)
from fakes.tpu_node import TpuNode, WrongServer, closed_port
from support.samples import sample
from support.simulated import fleet_of
from tpumon.collection.sources import Client
from tpumon.collection.sources import runtime_metrics as runtime
from tpumon.collection.sources.runtime_metrics import RuntimeMetrics
from tpumon.errors import SourceError
from tpumon.model import RUNTIME_COUNTS, RuntimeFigures, Target
from tpumon.outputs import metrics


def lines(reading):
    return tuple(warning.message for warning in reading.warnings)


def source(*addresses):
    target = Target(worker="w", address="w:9999", runtime_addresses=addresses)
    return RuntimeMetrics(target, Client)


def read(*addresses, times=1):
    """The last of several looks."""

    async def main():
        service = source(*addresses)
        try:
            for _ in range(times - 1):
                await service.read()
            return await service.read()
        finally:
            await service.close()

    return asyncio.run(main())


def reading_of(metrics_told):
    with RuntimeNode(metrics_told) as node:
        return read(node.address)


def column(reading, key):
    return {device.device: getattr(device, key) for device in reading.figures.devices}


def refused(*addresses):
    with pytest.raises(SourceError) as failed:
        read(*addresses)
    return failed.value


def test_a_worker_is_read_as_its_runtime_tells():
    """Bytes as sent, percent as ratios, seconds, queue sizes and uptime, by the ids of the whole slice."""
    reading = reading_of(metrics_of("v6e", chips=(8, 9, 12, 13)))

    assert column(reading, "hbm_used_bytes") == {
        "8": 3 * GIB, "9": 3 * GIB + (1 << 20), "12": 3 * GIB + (2 << 20), "13": 3 * GIB + (3 << 20)
    }  # fmt: skip
    assert column(reading, "runtime_duty_cycle_ratio") == {"8": 0.505, "9": 0.5275, "12": 0.55, "13": 0.5725}
    assert column(reading, "runtime_hbm_bandwidth_utilization_ratio")["9"] == pytest.approx(0.215)
    assert column(reading, "runtime_tensorcore_idle_s") == {"8": 0.0, "9": 0.5, "12": 1.0, "13": 1.5}
    assert reading.figures.hbm_total_bytes == 4 * 33_550_229_504
    assert reading.figures.hbm_used_bytes == 12 * GIB + (6 << 20)
    assert reading.figures.runtime == RuntimeFigures(uptime_s=3600.0)
    assert (lines(reading), reading.failures, reading.simulated) == ((), (), False)


@pytest.mark.parametrize("generation", ["v2", "v3"])
@pytest.mark.parametrize("chips", [(0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 4, 5), (0,)])
def test_on_v2_and_v3_both_devices_of_a_chip_have_its_duty_cycle(generation, chips):
    """There the duty cycle has a row a chip, memory one a device."""
    duty = column(reading_of(metrics_of(generation, chips=chips)), "runtime_duty_cycle_ratio")

    assert duty == {str(2 * chip + i): (50.5 + 2.25 * at) / 100 for at, chip in enumerate(chips) for i in (0, 1)}


@pytest.mark.parametrize("generation", ["v4", "v5e", "v5p", "v6e", "7x"])
def test_later_generations_have_a_duty_cycle_a_device(generation):
    """Half of the rows missing does not make chips of 7x's devices."""
    told = metrics_of(generation)
    told[DUTY] = told[DUTY][: len(told[DUTY]) // 2]
    duty = column(reading_of(told), "runtime_duty_cycle_ratio")

    half = len(duty) // 2
    assert [duty[str(i)] for i in range(2 * half)] == [(50.5 + 2.25 * i) / 100 for i in range(half)] + [None] * half


def test_7x_is_known_by_its_memory_where_no_bandwidth_is_told():
    """An older libtpu does not tell it on any generation."""
    told = metrics_of("7x")
    told[DUTY] = told[DUTY][:4]
    del told[BANDWIDTH]

    assert list(column(reading_of(told), "runtime_duty_cycle_ratio").values())[4:] == [None] * 4


def test_chips_numbered_in_another_way_go_by_order():
    """As Google's own tool has it, as long as none is missing."""
    told = metrics_of("v3")
    told[DUTY] = [row(chip, 10.0 * (i + 1)) for i, chip in enumerate((0, 2, 8, 10))]

    duty = column(reading_of(told), "runtime_duty_cycle_ratio")
    assert list(duty.values()) == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4])


@pytest.mark.parametrize(("chips", "devices"), [(3, 8), (4, 6), (1, 6)])
def test_duty_cycles_of_nobody_knows_whom_are_left_out(chips, devices):
    """Three rows for eight devices of 16 GiB may be three chips of v3 or three devices of v5e."""
    told = metrics_of("v3")
    told[DUTY] = told[DUTY][:chips]
    for name in (USED, TOTAL, IDLE):
        told[name] = told[name][:devices]
    reading = reading_of(told)

    assert set(column(reading, "runtime_duty_cycle_ratio").values()) == {None}
    assert lines(reading) == (f"{chips} duty cycles for {devices} devices, unclear which is whose: ignored",)


@pytest.mark.parametrize("failing", [{USED}, {TOTAL}, {USED, TOTAL}])
def test_chips_are_told_from_devices_by_what_is_there(failing):
    """Memory that is not told makes no devices of v3's chips."""
    reading = reading_of(metrics_of("v3") | dict.fromkeys(failing, Refuse()))

    duty = column(reading, "runtime_duty_cycle_ratio")
    assert list(duty) == [str(i) for i in range(8)]
    assert duty["0"] == duty["1"] == 0.505
    assert duty["7"] == 0.5725


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("devices", [(0, 1, 2, 3), (8, 9, 12, 13), (0, 1, 4, 5)])
def test_queues_are_found_by_id_or_by_place(devices, as_text):
    """A queue's ordinal is the place among the worker's devices; as a number from old versions, as text from new."""
    sizes = column(reading_of(metrics_of("v4", chips=devices, as_text=as_text)), "runtime_hlo_queue_size")

    assert list(sizes) == [str(device) for device in devices]
    assert list(sizes.values()) == [0, 1, 2, 3]


def test_queues_of_global_ids_and_of_two_cores():
    """The queues of a chip's TensorCores add up; SparseCores have queues of their own."""
    told = metrics_of("v4", chips=(8, 9))
    told[QUEUE] = [queue("8", 1), queue("8", 2), queue("9", 0), queue("9", 7, core="SPARSE_CORE")]

    assert column(reading_of(told), "runtime_hlo_queue_size") == {"8": 3, "9": 0}


def test_a_missing_row_is_absent_and_no_zero():
    """Neither does it make a sum of what is left."""
    told = metrics_of("v5e")
    told[USED] = told[USED][1:]
    reading = reading_of(told)

    assert column(reading, "hbm_used_bytes")["0"] is None
    assert reading.figures.hbm_used_bytes is None
    assert reading.figures.hbm_total_bytes == 4 * 16 * GIB


@pytest.mark.parametrize("name", [TOTAL, USED, DUTY, BANDWIDTH, IDLE, QUEUE, UPTIME])
def test_one_failing_metric_never_blanks_another(name):
    """It is named with its reason; everything else stays."""
    whole = reading_of(metrics_of("v6e"))
    reading = reading_of(metrics_of("v6e") | {name: Refuse()})

    assert [(failure.source, failure.reason) for failure in reading.failures] == [("runtime-metrics", "internal")]
    assert name in reading.failures[0].message
    for before, after in zip(whole.figures.devices, reading.figures.devices, strict=True):
        different = [pair for pair in zip(astuple(before), astuple(after), strict=True) if pair[0] != pair[1]]
        assert len(different) == (0 if name == UPTIME else 1)
    assert reading.figures.runtime == RuntimeFigures(uptime_s=None if name == UPTIME else 3600.0)


@pytest.mark.parametrize("name", [USED, DUTY])
def test_a_metric_that_hangs_costs_itself_only(name, monkeypatch):
    """The deadline is for all together."""
    monkeypatch.setattr(runtime, "_ANSWER_S", 0.5)
    with RuntimeNode(metrics_of("v6e")) as node:

        async def main():
            service = source(node.address)
            await service.read()
            node.metrics[name] = Hang()
            try:
                return await service.read()
            finally:
                await service.close()

        reading = asyncio.run(main())
    assert [failure.reason for failure in reading.failures] == ["deadline"]
    assert len(reading.figures.devices) == 4


@pytest.mark.parametrize("broken", [b"\x0a\xff\xff\xff\x7f not a message", [row(i, 1) for i in range(5000)]])
def test_nonsense_is_a_failure_of_that_metric(broken):
    """Bytes that are no message, and more devices than any host has."""
    reading = reading_of(metrics_of("v6e") | {USED: broken})

    assert [failure.reason for failure in reading.failures] == ["malformed"]
    assert column(reading, "hbm_used_bytes") == {"0": None, "1": None, "2": None, "3": None}


@pytest.mark.parametrize("value", [120.0, -0.1, float("nan"), float("inf"), "busy"])
def test_a_value_that_cannot_be_is_left_out_with_a_warning(value):
    """Neither cut to what is possible, nor passed on."""
    told = metrics_of("v6e")
    told[DUTY] = [row(0, value), *told[DUTY][1:]]
    reading = reading_of(told)

    assert column(reading, "runtime_duty_cycle_ratio")["0"] is None
    assert column(reading, "runtime_duty_cycle_ratio")["1"] == 0.5275
    assert len(lines(reading)) == 1
    assert DUTY in lines(reading)[0]
    assert "device 0" in lines(reading)[0]


@pytest.mark.parametrize("name", [USED, TOTAL, IDLE, QUEUE])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_neither_memory_nor_time_is_negative_or_endless(name, value):
    """Neither is it added to a sum."""
    told = metrics_of("v5e")
    told[name] = [row(0, value), *told[name][1:]]
    reading = reading_of(told)

    assert [list(astuple(device)).count(None) for device in reading.figures.devices] == [1, 0, 0, 0]
    assert name in lines(reading)[0]


def test_counters_and_whole_numbers_are_read_too():
    """A percentage may come as a whole number, a gauge as a counter."""
    from fakes.protobuf import field

    told = metrics_of("v5e", chips=(0,))
    told[DUTY] = [row(0, 50)]
    told[UPTIME] = [field(1, attribute("info", {})) + counter(77)]
    reading = reading_of(told)

    assert column(reading, "runtime_duty_cycle_ratio") == {"0": 0.5}
    assert reading.figures.runtime == RuntimeFigures(uptime_s=77.0)


def test_a_row_of_no_device_is_left_out():
    """An id that is missing, or too long to be one, is nobody's."""
    from fakes.runtime_node import gauge

    told = metrics_of("v5e", chips=(0,))
    told[IDLE] = [gauge(1.0), row("x" * 100, 2.0)]
    reading = reading_of(told)

    assert column(reading, "runtime_tensorcore_idle_s") == {"0": None}
    assert IDLE in lines(reading)[0]


def test_ids_count_through_the_largest_slice_and_no_further():
    told = metrics_of("v5e", chips=(0,))
    told[IDLE] = [row(1_048_575, 1.0), row(1_048_576, 2.0)]
    assert column(reading_of(told), "runtime_tensorcore_idle_s") == {"0": None, "1048575": 1.0}


def test_hangs_and_failed_slices_are_told_with_their_text():
    """1 and the runtime's own words, safe for a terminal; 0 while all is well."""
    told = metrics_of("v4") | {
        MEGASCALE: [detected(1, error_type="HANG_DETECTED", error_message="slice 1 \x1b[31mstopped")],
        SLICE: [detected(0, type="v4-8")],
    }
    reading = reading_of(told)

    assert reading.figures.runtime == RuntimeFigures(uptime_s=3600.0, megascale_error=1.0, slice_error=0.0)
    assert len(lines(reading)) == 1
    assert "HANG_DETECTED: slice 1 stopped" in lines(reading)[0]


def test_a_worker_with_an_address_of_its_own_has_its_own_devices():
    """Several workers of a host would else each claim all; with several addresses a worker stands for its host."""
    neighbours = {name: rows for name, rows in metrics_of("v5e", chips=(4, 5)).items() if name in {TOTAL, USED}}
    with RuntimeNode(metrics_of("v5e", chips=(0, 1)), neighbours=neighbours) as node:
        own, whole = read(node.address), read(node.address, f"127.0.0.1:{closed_port()}")

    assert [device.device for device in own.figures.devices] == ["0", "1"]
    assert [device.device for device in whole.figures.devices] == ["0", "1", "4", "5"]


def test_nobody_there_is_no_error(tmp_path):
    """No job, no service; whether by port or by socket, and however many addresses there are."""
    nowhere = [f"127.0.0.1:{closed_port()}", f"unix:{tmp_path}/none.sock", f"127.0.0.1:{closed_port()}"]

    assert read(*nowhere) is None
    assert read() is None


def test_the_first_address_that_answers_is_remembered(tmp_path):
    """A socket of the file system is an address like another."""
    with (
        RuntimeNode(metrics_of("v4", chips=(0,)), bind=f"unix:{tmp_path}/tpu.sock") as first,
        RuntimeNode(metrics_of("v4", chips=(1,))) as second,
    ):

        async def main():
            service = source(f"127.0.0.1:{closed_port()}", first.address, second.address)
            one = await service.read()
            asked = len(first.calls), len(second.calls)
            first.stop()
            other = await service.read()
            with RuntimeNode(metrics_of("v4", chips=(2,)), bind=first.address) as back:
                await service.read()
                asked = *asked, len(back.calls)
            remembered = service.address
            await service.close()
            return one, asked, other, remembered

        one, asked, other, remembered = asyncio.run(main())
    assert [device.device for device in one.figures.devices] == ["0"]
    assert asked[0] > 0
    assert asked[1:] == (0, 0)
    assert [device.device for device in other.figures.devices] == ["1"]
    assert remembered == second.address


async def test_the_job_ends_and_another_begins():
    """Between them there is nobody; the new one is read anew, at the same port."""
    with RuntimeNode(metrics_of("v3")) as node:
        service = source(node.address)
        await service.read()
    nobody = await service.read()
    with RuntimeNode(metrics_of("v4"), bind=node.address) as again:
        reading = await service.read()
        await service.close()
        asked = again.asked()
    assert nobody is None
    assert len(reading.figures.devices) == 4
    assert BANDWIDTH in asked  # which the one before did not have


def test_metrics_that_a_server_does_not_have_are_asked_for_now_and_then(monkeypatch):
    """Once at first, and again after five minutes; the others every time."""
    now_s = itertools.count(1000, 0.001)
    skip_s = [0.0]
    monkeypatch.setattr(runtime.time, "monotonic", lambda: next(now_s) + skip_s[0])
    with RuntimeNode(metrics_of("v3")) as node:

        async def main():
            service = source(node.address)
            seen = []
            for pause_s in (0, 10, 200, 200):
                skip_s[0] += pause_s
                node.calls.clear()
                await service.read()
                seen.append(sorted(node.asked()))
            await service.close()
            return seen

        seen = asyncio.run(main())
    absent = {BANDWIDTH, MEGASCALE, SLICE}
    assert absent < set(seen[0])
    assert [absent & set(asked) for asked in seen] == [absent, set(), set(), absent]
    assert all({USED, TOTAL, DUTY, UPTIME} <= set(asked) for asked in seen)


def test_a_runtime_that_only_starts_is_asked_again_for_everything():
    """Before it has devices it says NOT_FOUND of what it will have in a moment."""
    with RuntimeNode({}) as node:

        async def main():
            service = source(node.address)
            before = await service.read()
            node.metrics.update(metrics_of("v6e"))
            after = await service.read()
            await service.close()
            return before, after

        before, after = asyncio.run(main())
    assert (before.figures.devices, before.figures.hbm_used_bytes, before.failures) == ((), None, ())
    assert after.figures.devices[0].runtime_duty_cycle_ratio == 0.505


@pytest.mark.parametrize(
    ("kind", "reason", "words"),
    [("HTTP", "not-a-profiler", "not a runtime metric service"), ("silent", "deadline", "no runtime metrics within")],
)
def test_something_else_on_the_port_is_told_from_nobody(kind, reason, words, monkeypatch):
    """In words of this service, and within the deadline."""
    monkeypatch.setattr(runtime, "_ANSWER_S", 0.5)
    with WrongServer(kind) as server:
        error = refused(server.address)

    assert error.reason == reason
    assert words in str(error)
    assert str(error).startswith(server.address)


def test_another_grpc_server_does_not_offer_it():
    """It gets one call, not one a metric."""
    with TpuNode() as node:
        error = refused(node.address)

    assert error.reason == "unimplemented"
    assert "8431" in str(error)


def test_a_server_that_fails_throughout_is_an_error():
    """There is nothing to show; the reason is that of its first metric."""
    with RuntimeNode(dict.fromkeys(metrics_of("v6e"), Refuse()) | dict.fromkeys((MEGASCALE, SLICE), Refuse())) as node:
        assert refused(node.address).reason == "internal"


def test_a_wrong_server_does_not_hide_a_right_one():
    """The addresses after it are tried."""
    with WrongServer("HTTP") as wrong, RuntimeNode(metrics_of("v6e")) as node:
        assert len(read(wrong.address, node.address).figures.devices) == 4


def test_every_call_has_a_deadline_of_two_seconds_at_most():
    """Sampling waits for it."""
    with RuntimeNode(metrics_of("v6e")) as node:
        read(node.address, times=2)
        left = [call.time_remaining for call in node.calls]

    assert all(0 < time_s <= 2.2 for time_s in left)


def test_a_sample_takes_over_what_was_read():
    """Every key of a reading is one that the table of metrics knows."""
    told = metrics_of("v6e") | {MEGASCALE: [detected(0)], SLICE: [detected(0)]} | between_slices()
    reading = reading_of(told)
    taken = sample(figures=reading.figures)

    shown = {metric.name: list(metric.values(taken)) for metric in metrics.SAMPLE_METRICS}
    assert all(len(shown[name]) == 4 for name in shown if name.startswith("tpu_hbm_used"))
    runtime_names = {name for name in shown if name.startswith(("tpu_runtime_", "tpu_hbm_used", "tpu_hbm_total"))}
    assert {name for name in runtime_names if not shown[name]} == set()
    assert len(runtime_names) == 9 + len(RUNTIME_COUNTS)
    assert all(metric.value(None, taken) for metric in metrics.HISTOGRAMS if metric.name.startswith("tpu_runtime_"))


def test_what_is_offered_is_listed():
    """With kind and unit where libtpu says them, and whether tpumon reads it."""

    async def main(address):
        service = source(address)
        try:
            return await service.offered()
        finally:
            await service.close()

    listed = [supported(DUTY), supported("megascale.new.count", "1", 2), supported("odd\x1b[0m", "By", 99)]
    with RuntimeNode({}, listed=listed) as node:
        offered = asyncio.run(main(node.address))
    assert [(metric.name, metric.kind, metric.unit, metric.shown) for metric in offered] == [
        ("megascale.new.count", "counter", "1", False),
        ("odd", "", "By", False),
        (DUTY, "", "", True),
    ]
    assert asyncio.run(main(f"127.0.0.1:{closed_port()}")) is None


async def test_the_simulator_is_read_and_recognised():
    """Its figures carry its mark."""
    async with fleet_of("v3-8") as fleet:
        service = source(*fleet.runtime_addresses)
        reading = await service.read()
        await service.close()
    assert reading.simulated
    assert len(reading.figures.devices) == 8
    assert None not in column(reading, "runtime_duty_cycle_ratio").values()


def test_a_refusal_for_lack_of_permission_says_what_to_do():
    """A socket of another user's."""
    error = runtime._in_words_of_the_service(_forbidden(), "unix:/run/tpu.sock")

    assert runtime._is_forbidden(_forbidden())
    assert error.reason == "refused"
    assert "run tpumon as the job's user" in str(error)


def _forbidden():
    """As gRPC words it; a test that runs as root cannot meet it."""
    details = "failed to connect to all addresses; last error: UNKNOWN: unix:/run/tpu.sock: Permission denied"
    return SourceError("unavailable", details, address="unix:/run/tpu.sock", status="UNAVAILABLE", status_text=details)
