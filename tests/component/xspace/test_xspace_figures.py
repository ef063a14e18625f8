"""Figures of traces made by hand, what is absent and why, and traces that nobody should have written."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from fakes.protobuf import field
from fakes.run import environment
from support.traces import ALL_REDUCE, ASYNC_DONE, CONV, INFEED, LOOP, Op, Plane, Traced, run_step
from tpumon.errors import SourceError
from tpumon.model.chips import spoken_name
from tpumon.model.figure_table import FIGURES
from tpumon.proto.xplane_pb2 import XEvent, XLine, XPlane, XSpace, XStat
from tpumon.xspace.hardware import gpu_name, peak_of
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.ops.op_kinds import Category
from tpumon.xspace.ops.op_tables import custom_call_ratio, unknown_bytes_ratio
from tpumon.xspace.planes.space import read_space
from tpumon.xspace.steps.tpu_steps import HostSteps, align_hosts
from tpumon.xspace.trace_figures import TraceFigures, figures_of_hosts

OF_TRACES = tuple(figure.fields[0] for figure in FIGURES if figure.origin != "runtime" and "." not in figure.fields[0])


def codes(trace):
    return {warning.code for warning in trace.warnings}


def of(*traced):
    return figures_of_hosts([read_host_totals(one.bytes()) for one in traced])


def training(*, cores=2, steps=4, mxu=40.0, **core):
    traced = Traced()
    for number in range(cores):
        plane, at_us = traced.core(number, **core), 100.0
        for _ in range(steps):
            at_us = run_step(plane, at_us, [(INFEED, 100), (CONV, 700), (None, 50), (LOOP, 100)]) + 50
    traced.host(mxu)
    return traced


def test_a_training_job():
    found = of(training())
    assert (found.device_type, found.core_count, found.simulated) == ("TPU v5", 2, False)
    assert (found.figures.mxu_utilization_ratio, found.figures.mxu_method) == (0.4, "counter")
    assert found.window_s == pytest.approx(3950e-6)
    assert found.figures.step_time_s.avg == pytest.approx(950e-6)
    assert (found.figures.step_time_s.count, found.figures.step_time_s.stddev, found.figures.step_source) == (
        4,
        0.0,
        "steps",
    )
    assert found.figures.step_durations_s == pytest.approx([950e-6] * 4)
    assert found.figures.infeed_ratio.avg == found.figures.infeed_ratio.max == pytest.approx(100 / 950)
    assert found.figures.idle_ratio == pytest.approx(1 - 3600 / 3950)
    assert found.figures.duty_cycle_ratio == pytest.approx(3200 / 3950)
    parts = {name: round(1e6 * time_s, 6) for name, time_s in found.figures.step_parts_s.items()}
    assert parts == {
        "high_flops_compute": 700,
        "low_flops_compute": 100,
        "async_wait": 0,
        "infeed": 100,
        "outfeed": 0,
        "collective": 0,
        "host_transfer": 0,
        "idle": 50,
    }
    assert [core.infeed_ratio for core in found.figures.per_core] == pytest.approx([100 / 950] * 2)
    assert dict(found.figures.absent) == {
        "matmul_padding_ratio": "no matrix operation whose shapes the trace tells",
        "compile_ratio": "the host is not in the trace",
        "input_wait_ratio": "the host is not in the trace",
        "callback_ratio": "the host is not in the trace",
    }


def test_every_figure_that_is_absent_says_why():
    for traced in (training(), training(mxu=None), lazy(), host_only(), gpu()):
        found = of(traced)
        missing = {name for name in OF_TRACES if getattr(found.figures, name) is None}
        assert missing == set(found.figures.absent)
        assert all(found.figures.absent.values())


def lazy():
    """A device that did nothing while the host did something."""
    traced = training(steps=0, mxu=0.0)
    Plane(traced.space.planes[-1]).event("python", "sleep", 0, 10)
    return traced


def test_an_idle_device_has_no_figures_but_the_counter():
    found = of(lazy())
    assert (found.figures.mxu_utilization_ratio, found.figures.mxu_method) == (0.0, "counter")
    assert (
        found.figures.idle_ratio
        is found.figures.duty_cycle_ratio
        is found.figures.flops_utilization_ratio
        is found.figures.step_time_s
        is None
    )


def test_peaks_that_the_trace_does_not_tell_are_from_the_table():
    found = of(training(peak_tflops=None, peak_gbps=None, device_type="TPU v6 Lite"))
    told = of(training(peak_tflops=918.0, peak_gbps=1640.0))
    assert found.figures.flops_utilization_ratio == pytest.approx(told.figures.flops_utilization_ratio)
    assert found.figures.hbm_bandwidth_utilization_ratio == pytest.approx(told.figures.hbm_bandwidth_utilization_ratio)
    assert "peaks-from-table" in codes(found)
    unknown = of(training(peak_tflops=None, peak_gbps=None, device_type="TPU v99"))
    assert unknown.figures.flops_utilization_ratio is None
    assert unknown.figures.absent["flops_utilization_ratio"] == "no peak known for this chip"


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("TPU v2", 23),
        ("TPU v3", 61.5),
        ("TPU v4", 275),
        ("TPU v5", 459),
        ("TPU v5p", 459),
        ("TPU v5 Lite", 197),
        ("TPU v5e", 197),
        ("TPU v6 Lite", 918),
        ("TPU v6e", 918),
        ("TPU7x", 1153.5),
        ("TPU v7x", 1153.5),
        ("TPU 8i", None),
        ("NVIDIA V100", None),
        (None, None),
    ],
)
def test_the_table_knows_the_chips_by_all_their_names(name, tflops):
    found = peak_of({}, name).flops_per_s
    assert found is None if tflops is None else found == pytest.approx(1e12 * tflops)


def test_dropped_events_are_told_from_idle_time():
    traced = training()
    traced.space.warnings.append("XLA trace buffer is full, events were dropped")
    warnings = of(traced).warnings
    assert warnings[0].message == "XLA trace buffer is full, events were dropped"
    assert warnings[-1].code == "truncated"


def test_a_core_that_falls_silent_is_pointed_out():
    traced = training(cores=2)
    for line in traced.space.planes[1].lines:
        del line.events[2:]
    found = of(traced)
    assert "TPU:1" in found.truncated
    assert "truncated" in codes(found)


def test_hosts_without_a_device_take_no_part_where_others_have_one():
    assert of(training(), host_only()) == of(training())


def test_cores_of_several_hosts_are_numbered_within_the_slice():
    second = Traced()
    for number in range(2):
        run_step(second.core(number, chip=2 + number), 100, [(CONV, 700)])
    assert [core.chip for core in of(training(), second).figures.per_core] == [0, 1, 2, 3]


def test_hosts_by_different_methods_are_combined_by_one_that_all_have():
    found = of(training(mxu=40.0), training(mxu=None))
    assert found.figures.mxu_method == "flops"
    assert found.figures.mxu_utilization_ratio == pytest.approx(of(training(mxu=None)).figures.mxu_utilization_ratio)


def host_only(*, name="train", steps=6, inner="", **stats):
    traced = Traced()
    host = traced.named("/host:CPU")
    for step in range(steps):
        begin_us = 100 + 1000 * step + step % 2
        host.event("python", name, begin_us, 300, **({"step_num": step} if stats == {"annotated": True} else stats))
        host.event(
            "python", inner or name, begin_us + 10, 200, **({} if inner else stats if "step_num" not in stats else {})
        )
    return traced


@pytest.mark.parametrize(
    ("name", "stats"),
    [
        ("train", {"annotated": True}),
        ("step", {"tf_function_call": "notTraced-nonXla"}),
        ("PjitFunction(train_step)", {}),
    ],
)
def test_steps_of_a_job_without_a_device(name, stats):
    found = of(host_only(name=name, inner="PjitFunction(train_step)" if not stats else "matmul", **stats))
    assert (found.device_type, found.figures.step_source, found.figures.step_time_s.count) == ("CPU", "host", 5)
    assert found.figures.step_time_s.avg == pytest.approx(1e-3, rel=1e-3)
    reasons = {"no device in the trace", "no steps of a TPU", "no event of an input pipeline"}
    reasons.add("no op of the host's names its program")
    assert set(found.figures.absent.values()) == reasons


def test_annotations_come_before_functions_and_the_one_that_takes_longest_counts():
    traced = host_only(name="train", inner="PjitFunction(f)", annotated=True)
    host = Plane(traced.space.planes[0])
    host.event("python", "PjitFunction(g)", 7000, 9000)
    for i in range(50):
        event = host.event("logger", "log", 100 * i, 5)
        event.stats.add(metadata_id=1, int64_value=i)
    assert host.plane.stat_metadata[1].name == "step_num"
    assert of(traced).figures.step_time_s.count == 5


def test_input_wait_of_a_tensorflow_job():
    traced = Traced()
    host = traced.named("/host:CPU")
    for step in range(5):
        host.event("python", "train", 1000 * step, 900, step_num=step)
        host.event("python", "IteratorGetNextOp::DoCompute", 1000 * step + 100, 300)
        host.event("tf_data", "Iterator::Root", 1000 * step, 900)
    found = of(traced)
    assert found.figures.step_parts_s == {"input_wait": pytest.approx(300e-6)}
    assert found.figures.input_wait_ratio == pytest.approx(300 / 1000)
    assert found.figures.infeed_ratio is None


def gpu():
    traced = Traced()
    plane = traced.named("/device:GPU:0")
    plane.put(plane.plane.stats, {"device_type_string": "NVIDIA H200"})
    for step in range(4):
        plane.event("Stream #1", "gemm", 1000 * step, 400)
        plane.event("Stream #2", "copy", 1000 * step + 300, 200)
    host = traced.named("/host:CPU")
    for step in range(4):
        host.event("python", "train", 1000 * step, 100, step_num=step)
    return traced


def test_a_gpu_has_step_time_and_idle_and_is_called_one():
    found = of(gpu())
    assert (found.device_type, found.core_count) == ("NVIDIA H200", 1)
    assert found.figures.idle_ratio == pytest.approx(1 - 2000 / 3500)
    assert found.figures.step_time_s.avg == pytest.approx(1e-3)
    assert found.figures.absent["mxu_utilization_ratio"] == "a GPU, not a TPU"
    assert "gpu" in codes(found)


def refused(content):
    with pytest.raises(SourceError) as error:
        read_host_totals(content)
    assert "\n" not in str(error.value)
    return error.value.reason


def test_no_trace_and_an_empty_one_are_refused():
    assert refused(b"no trace at all") == "malformed"
    assert refused(b"") == "empty-trace"
    assert refused(XSpace(hostnames=["a"]).SerializeToString()) == "empty-trace"
    assert refused(training(cores=0).bytes()) == "empty-trace"


@given(st.data())
def test_a_damaged_trace_has_figures_or_is_refused(data):
    content = bytearray(training(cores=1, steps=2).bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    try:
        found = figures_of_hosts([read_host_totals(bytes(content))])
    except SourceError:
        return
    check_sane(found)


def check_sane(found):
    """Ratios are ratios, times are not negative, and all of it can be written as JSON."""
    assert isinstance(found, TraceFigures)
    for name in OF_TRACES:
        value = getattr(found.figures, name)
        assert not isinstance(value, float) or 0 <= value <= 1, name
    if found.figures.step_time_s is not None:
        assert 0 <= found.figures.step_time_s.min <= found.figures.step_time_s.avg * (1 + 1e-9)
        assert found.figures.step_time_s.avg <= found.figures.step_time_s.max * (1 + 1e-9)
    json.dumps([to_builtins(core) for core in found.figures.per_core], allow_nan=False)


INT64 = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from([0, 1, -1, 1 << 62, -(1 << 63)]))


@given(st.lists(st.tuples(INT64, INT64, INT64), min_size=1, max_size=12), INT64)
def test_absurd_times_are_left_out(times, timestamp_ns):
    traced = training(cores=1, steps=2)
    plane = traced.space.planes[0]
    for line in plane.lines:
        for number, offset_ps, duration_ps in times:
            line.events.add(metadata_id=number, offset_ps=offset_ps, duration_ps=duration_ps)
    plane.lines[-1].timestamp_ns = timestamp_ns
    check_sane(of(traced))


COPY_DONE = Op("copy-done.1", "copy-done")


def test_waiting_for_copies_is_no_compute():
    traced = Traced()
    plane, at_us = traced.core(0), 100.0
    for _ in range(3):
        at_us = run_step(plane, at_us, [(CONV, 100), (COPY_DONE, 600), (LOOP, 50), (ASYNC_DONE, 40)]) + 10
    parts = of(traced).figures.step_parts_s
    assert 1e6 * parts["async_wait"] == pytest.approx(640)
    assert 1e6 * parts["low_flops_compute"] == pytest.approx(50)
    assert sum(parts.values()) == pytest.approx(790e-6)


def with_ops(*parts, mxu=0.0, steps=4, **core):
    traced = Traced()
    plane, at_us = traced.core(0, **core), 100.0
    for _ in range(steps):
        at_us = run_step(plane, at_us, parts) + 10
    traced.host(mxu)
    return traced


def test_a_counter_of_zero_is_believed_only_without_a_matrix_operation():
    assert (of(with_ops((LOOP, 100), (ALL_REDUCE, 50))).figures.mxu_utilization_ratio) == 0.0
    found = of(with_ops((LOOP, 100), (CONV, 700))).figures
    assert found.mxu_method == "flops"
    # Additions are no matrix work: 8 GFLOP in each of four steps, and 3 pauses of 10 us.
    assert found.mxu_utilization_ratio == pytest.approx(4 * 8e9 / (3230e-6 * 100e12))
    silent = of(with_ops((Op("call.1", "custom-call"), 100))).figures
    assert silent.mxu_utilization_ratio is None
    assert "counter is 0" in silent.absent["mxu_utilization_ratio"]


def test_fusions_count_that_hold_a_matrix_operation():
    traced = with_ops((LOOP, 100), (Op("fusion.7", "loop fusion", flops=4_000_000_000), 300), mxu=None)
    assert of(traced).figures.mxu_utilization_ratio is None
    plane = Plane(traced.space.planes[0])
    fused = plane.event_id(Op("convolution.9", "convolution"))
    next(meta for meta in plane.plane.event_metadata.values() if meta.display_name == "fusion.7").child_id.append(fused)
    assert of(traced).figures.mxu_utilization_ratio == pytest.approx(4 * 4e9 / (1630e-6 * 100e12))


def test_no_op_does_more_than_the_peak():
    claim = {"flops": 653_000_000_000, "model_flops": 653_000_000_000}
    found = of(with_ops((Op("call.1", "custom-call"), 500, claim), (LOOP, 490), mxu=None))
    assert found.figures.mxu_utilization_ratio == pytest.approx(4 * 500 / 3990)
    assert "custom-call-flops" in codes(found)
    assert any("100%" in warning.message for warning in found.warnings)


def test_shares_of_nothing_are_absent():
    silent = with_ops((Op("call.1", "custom-call"), 500), (Op("copy.1", "copy"), 490))
    assert custom_call_ratio(read_host_totals(silent.bytes()).table) is None
    assert "custom-call-flops" not in codes(of(silent))
    assert custom_call_ratio(read_host_totals(with_ops((CONV, 500)).bytes()).table) == 0.0
    assert unknown_bytes_ratio(read_host_totals(lazy().bytes()).table) is None


def test_estimates_from_instrumented_code_are_no_counters():
    traced = with_ops((LOOP, 100), mxu=None)
    plane = Plane(traced.space.planes[0])
    for at_us in range(0, 400, 50):
        plane.event("_counters_", "MXU", at_us, 50, **{"% util": 73.5})
    assert of(traced).figures.mxu_utilization_ratio is None


def test_periodic_samples_of_the_matrix_units():
    traced = with_ops((CONV, 100), mxu=None)
    plane = Plane(traced.space.planes[0])
    for at_us, busy in ((50, (100, 300, 600)), (100, (700, 200, 100))):
        for level, value in enumerate(busy):
            plane.event("_counters_", f"COUNT_MXU_BUSY_{level}", at_us, 0, counter_value=value)
    for number, (name, value) in enumerate((("CYCLES", 10**6), ("X_COUNT_MXU_BUSY_1", 10**6))):
        plane.event("counters_0", name, 0, 0, performance_counter_id=2847490056 + number, counter_value=value)
    found = of(traced).figures
    assert found.mxu_method == "perf-counters"
    assert found.mxu_utilization_ratio == pytest.approx((500 / 2 + 700) / 2000)


def test_two_core_planes_a_chip_share_its_peak():
    flops = 8e9 / 700e-6
    for places, expected in (([0, 1], 459e12), ([0, 0], 459e12 / 2)):
        traced = Traced()
        for number, chip in enumerate(places):
            plane = traced.core(number, chip=chip, core=number, peak_tflops=None, peak_gbps=None)
            run_step(plane, 100, [(CONV, 700)])
        assert of(traced).figures.flops_utilization_ratio == pytest.approx(flops / expected)
    assert peak_of({"has_megacore": 0}, "TPU v5").flops_per_s == pytest.approx(459e12 / 2)


def test_bandwidth_that_no_op_reports_is_absent():
    traced = with_ops((CONV, 100), (LOOP, 100))
    for metadata in traced.space.planes[0].event_metadata.values():
        number = next((n for n, s in traced.space.planes[0].stat_metadata.items() if "breakdown" in s.name), 0)
        kept = [stat for stat in metadata.stats if stat.metadata_id != number]
        del metadata.stats[:]
        metadata.stats.extend(kept)
        if metadata.display_name == LOOP.name:
            break
    found = of(traced)
    assert found.figures.hbm_bandwidth_utilization_ratio is None
    assert found.figures.absent["hbm_bandwidth_utilization_ratio"] == "no op reports the bytes it moves"
    plane = Plane(traced.space.planes[0])
    plane.event("XLA Ops", ALL_REDUCE, 2000, 100)
    found = of(traced)
    assert found.figures.hbm_bandwidth_utilization_ratio > 0
    assert "hbm-incomplete" in codes(found)


def test_only_streams_make_a_gpu_busy():
    traced = gpu()
    plane = Plane(traced.space.planes[0])
    plane.event("TensorFlow Name Scope", "scope", 0, 5000)
    for number in (1, 2):
        traced.named(f"/device:GPU:{number}")
    found = of(traced)
    assert found.figures.idle_ratio == pytest.approx(1 - 2000 / 3500)
    assert found.window_s == pytest.approx(3500e-6)
    assert "of 1 of 3 GPUs" in found.warnings[0].message


@pytest.mark.parametrize(
    ("stats", "name"),
    [
        ({"compute_cap_major": 9, "compute_cap_minor": 4}, "AMD GPU - gfx942"),
        ({"compute_cap_major": 9, "compute_cap_minor": 5}, "AMD GPU - gfx950"),
        ({"compute_cap_major": 9, "compute_cap_minor": 0}, "AMD GPU - gfx-9XX series"),
        ({"compute_cap_major": 12, "compute_cap_minor": 0}, "AMD GPU"),
        ({"gpu_device_name": "gfx942:sramecc+:xnack-"}, "AMD GPU - gfx942"),
    ],
)
def test_amds_gpus_are_called_as_xprof_calls_them(stats, name):
    assert gpu_name({"device_vendor": "AMD", **stats}) == name


@pytest.mark.parametrize(
    ("official", "spoken"),
    [
        ("TPU v6 Lite", "TPU v6 Lite (v6e)"),
        ("TPU v5 Lite", "TPU v5 Lite (v5e)"),
        ("TPU v5", "TPU v5 (v5p)"),
        ("TPU v5p", "TPU v5p"),
        ("TPU v4", "TPU v4"),
        ("TPU7x", "TPU7x (Ironwood)"),
        ("TPU v7x", "TPU v7x (Ironwood)"),
        ("AMD GPU - gfx942", "AMD GPU - gfx942"),
    ],
)
def test_devices_are_called_as_people_call_them_too(official, spoken):
    assert spoken_name(official) == spoken


def test_times_that_count_from_1970():
    traced = training()
    for plane in traced.space.planes:
        for line in plane.lines:
            line.timestamp_ns = 1_700_000_000_000_000_000
    expected = of(training())
    assert of(traced) == expected


def test_thousands_of_planes_and_unknown_stats_are_ignored():
    traced = training()
    expected = of(traced)
    for i in range(3000):
        plane = traced.named(f"/device:CUSTOM:{i}")
        plane.event("counters", "power", i, 1, watts=3)
    core = traced.space.planes[0]
    core.stats.add(metadata_id=999, int64_value=3)
    core.stats.add(metadata_id=1)
    core.event_metadata[5].stats.add(metadata_id=998, ref_value=(1 << 64) - 1)
    core.lines.add(name="Overlay").events.add(metadata_id=77)
    found = of(traced)
    assert found.figures.step_time_s == expected.figures.step_time_s
    assert found.figures.idle_ratio == expected.figures.idle_ratio


def test_core_details_and_breakdowns_that_do_not_parse_are_ignored():
    traced = Traced()
    plane = traced.named("/device:TPU:0")
    plane.put(plane.plane.stats, {"core_details": b"\xff\xff", "device_type_string": "TPU v4"})
    plane.event("XLA Ops", Op("a", "loop fusion"), 0, 10)
    number = plane.event_id(Op("a", "loop fusion"))
    plane.put(plane.plane.event_metadata[number].stats, {"memory_access_breakdown": b"\xff"})
    found = of(traced)
    assert found.figures.hbm_bandwidth_utilization_ratio is None
    assert found.figures.per_core[0].chip == 0


def test_broken_metadata_is_refused():
    broken = XPlane(name="/device:TPU:0")
    broken.lines.add(name="XLA Ops").events.add(metadata_id=1, duration_ps=5)
    # event_metadata {key: 1, value: two bytes that are no message}
    entry = b"\x08\x01\x12\x02\xff\xff"
    assert refused(field(1, broken.SerializeToString() + field(4, entry))) == "malformed"


def test_a_broken_event_that_says_that_others_were_dropped_is_refused():
    event = XEvent(metadata_id=1, stats=[XStat(metadata_id=7, int64_value=3)]).SerializeToString()
    without_number = b"\x22\x01\x08"  # a stat
    line = XLine(name="XLA TraceMe").SerializeToString() + field(4, event + without_number)
    plane = XPlane(name="/device:TPU:0")
    plane.stat_metadata[7].name = "dropped_traces"
    assert refused(field(1, field(3, line) + plane.SerializeToString())) == "malformed"


@pytest.mark.parametrize("count", [1, 999, 1000, 1001, 5000])
def test_what_lies_between_many_lines_is_read_and_remembered_in_few_pieces(count):
    plane = XPlane(name="/device:TPU:0")
    plane.event_metadata[1].name = "a"
    event = XLine(events=[XEvent(metadata_id=1, duration_ps=5)]).SerializeToString()
    number = XPlane(id=3).SerializeToString()
    raw = field(1, (number + field(3, event)) * count + plane.SerializeToString())
    (found,) = read_space(memoryview(raw)).tpu_planes
    assert (found.name, len(found.lines()), found.event_name(1)) == ("/device:TPU:0", count, "a")
    assert len(found._rest) <= 1000


def host(begins, length=10):
    steps = np.array(begins, dtype=np.int64)
    return HostSteps(
        begin_ps=steps,
        duration_ps=np.full(len(steps), length),
        own_ps=np.full((1, len(steps)), length),
        by_category_ps=np.zeros((1, len(steps), len(Category))),
        all_reduce_ps=np.zeros(len(steps)),
        cores=(0,),
    )


@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 8))
def test_hosts_are_put_where_their_steps_overlap(skip_first, skip_second, common):
    """Two hosts see the same steps, one from its third on, say, the other until later."""
    steps = [100 * i for i in range(20)]
    first = steps[skip_first : skip_first + common + 5]
    second = steps[skip_second : skip_second + common]
    aligned = align_hosts([host(first), host([begin + 3 for begin in second])])
    both = sorted(set(first) & set(second))
    assert aligned[0].begin_ps.tolist() == (both or aligned[0].begin_ps.tolist())
    assert len(aligned[0]) == len(aligned[1])


def test_a_host_without_steps_leaves_none_in_common():
    assert [len(steps) for steps in align_hosts([host([1, 20]), host([])])] == [0, 0]


def test_numpy_is_not_imported_before_a_trace_is_read(tmp_path):
    code = "import sys, tpumon.xspace, tpumon.xspace.outline; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment(tmp_path), check=False).returncode == 0
