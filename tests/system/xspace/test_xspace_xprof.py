"""tpumon's figures are those of XProf 2.24.2: on a real trace, the simulator's, and ones made for each definition.

The overview page rounds: shares to 0.1 %, times to 0.01 ms. What it rounds is compared within that rounding; what
XProf shows in full (the op profile, the table of steps) within 1e-6.
"""

from __future__ import annotations

from collections import Counter

import pytest

from support.captures import real_trace, saved, simulated_session
from support.traces import (
    ALL_REDUCE,
    ASYNC_DONE,
    CONV,
    CUSTOM,
    HOST_SEND,
    INFEED,
    LOOP,
    MEGACORE,
    OUTFEED,
    SEND,
    SPARSE_INFEED,
    SPARSE_OUTFEED,
    US,
    WHILE,
    Op,
    Plane,
    Traced,
    run_step,
)
from support.xprof import open_tools, open_with_xprof, overview, page_of, ratio, rows_of, step_rows
from tpumon.simulator.scenario import SECOND, SimulatedJob
from tpumon.simulator.topology import parse_topology
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts

FULL = 1e-6
PARTS = {"infeed": "tcInfeedTimeMs", "outfeed": "tcOutfeedTimeMs", "idle": "tcIdleTimeMs"}


def found_in(files):
    return figures_of_hosts([read_host_totals(file.read_bytes()) for file in files])


def mean(rows, name):
    return sum(row[name] for row in rows) / len(rows)


def check(files, *, mxu=True, flops=True):
    """Everything that XProf shows of these hosts.

    Args:
        mxu: whether the counter says something, so that the two go by the same method.
        flops: whether the two count the same FLOPs.
    """
    tools = ("overview_page", "op_profile", "hlo_stats", "input_pipeline_analyzer")
    (overview_page, op_profile, table, analyzer), ours = open_tools(files, tools), found_in(files)
    page = page_of(overview_page)
    assert ours.device_type == page["device_type"]
    assert ours.core_count == int(page["device_core_count"])
    assert ours.figures.idle_ratio == pytest.approx(ratio(page, "device_idle_time_percent"), abs=5.1e-4)
    assert ours.figures.duty_cycle_ratio == pytest.approx(ratio(page, "device_duty_cycle_percent"), abs=5.1e-4)
    if mxu:
        assert ours.figures.mxu_method == "counter"
        assert ours.figures.mxu_utilization_ratio == pytest.approx(ratio(page, "mxu_utilization_percent"), abs=5.1e-4)
    root = op_profile["byProgram"]["metrics"]
    if flops:
        assert ours.figures.flops_utilization_ratio == pytest.approx(root["flops"], rel=FULL)
    assert ours.figures.hbm_bandwidth_utilization_ratio == pytest.approx(root["bandwidthUtils"][0], rel=FULL)
    check_kinds(table, ours.figures)
    rows = rows_of(analyzer)
    if not rows:
        assert ours.figures.step_source != "steps"
        return ours
    times, infeed = ours.figures.step_time_s, ours.figures.infeed_ratio
    assert ours.figures.step_source == "steps"
    assert times.count == len(rows) == len(ours.figures.step_durations_s)
    for name, time_s in (
        ("average", times.avg),
        ("minimum", times.min),
        ("maximum", times.max),
        ("standard_deviation", times.stddev),
    ):
        assert 1e3 * time_s == pytest.approx(float(page[f"steptime_ms_{name}"]), abs=5.1e-3)
    if infeed is None:
        assert max(row["infeedPercentMax"] for row in rows) < FULL  # the least positive number stands for none
    else:
        for value, expected in (
            (infeed.avg, mean(rows, "infeedPercentMax")),
            (infeed.min, min(row["infeedPercentMax"] for row in rows)),
            (infeed.max, max(row["infeedPercentMax"] for row in rows)),
        ):
            assert value == pytest.approx(expected / 100, rel=FULL, abs=1e-9)
    for part, column in PARTS.items():
        assert 1e3 * ours.figures.step_parts_s[part] == pytest.approx(mean(rows, column), rel=FULL, abs=1e-6)
    assert 1e3 * ours.figures.step_parts_s["host_transfer"] == pytest.approx(mean(rows, "hostTransferTimeMs"), rel=FULL)
    return ours


# XProf's names of what is no compute, by the kinds that we count it as.
CATEGORIES = {
    "collective": {"all-reduce", "all-gather", "collective-permute", "send", "megacore fusion"},
    "infeed": {"infeed"},
    "outfeed": {"outfeed"},
    "host_transfer": {"host send", "host recv-done"},
    "async_wait": {"copy-done", "async-done"},
    "data_shuffle": {"broadcast", "data formatting", "copy"},
    "sparsecore": {"sparsecorev0 infeed", "sparsecorev0 outfeed", "sparsecorev0 infeed wait"},
}


def check_kinds(table, figures):
    """The time of each kind of op is that of its categories in XProf's table of ops, of which idle time is a part."""
    names = [column["id"] for column in table["cols"]]
    category, share = names.index("category"), names.index("total_self_time_percent")
    shares = Counter()
    for row in table["rows"]:
        shares[row["c"][category]["v"]] += row["c"][share]["v"] / 100
    for kind, categories in CATEGORIES.items():
        expected = sum(shares[name] for name in categories)
        assert figures.op_time_ratios[kind] == pytest.approx(expected, rel=FULL, abs=1e-9), kind


def training(
    cores=3,
    *,
    factors=(5,),
    infeeds=None,
    gap_us=20,
    start_us=100,
    steps=5,
    skew_us=0,
    mxu=42.5,
    step_stats=None,
    **core,
):
    """A host that trains: infeed, convolution, a pause, an all-reduce that waits, and so on.

    Args:
        factors: how long the convolution is, by step and core in turn.
        infeeds: microseconds of infeed, by core and then by step in turn.
        skew_us: how much later each core starts than the one before.
        core: as for Traced.core.
    """
    traced = Traced()
    for number in range(cores):
        plane = traced.core(number, **core)
        at_us = start_us + number * skew_us
        for step in range(steps):
            waits = infeeds[number] if infeeds else (300,)
            parts = [
                (INFEED, waits[step % len(waits)]),
                (CONV, 500 * factors[(step + number) % len(factors)]),
                (None, 30),
                (ALL_REDUCE, 100 + 50 * ((number + step) % 3), {"all_reduce_unique_id": 1000 + step}),
                (LOOP, 200),
                (OUTFEED, 40 + number),
                (HOST_SEND, 20),
                (SEND, 10),
            ]
            at_us = run_step(plane, at_us, parts) + gap_us
    traced.host(mxu)
    return traced


def test_a_real_trace():
    ours = check([real_trace()])
    # Four digits more than the page shows, from the op profile's times of the same trace.
    assert ours.figures.idle_ratio == pytest.approx(1 - 315117903706250 / 363729698768750, rel=1e-9)
    # XProf knows no step time without a Steps line.
    assert ours.figures.step_source == "modules"
    # The program has no matrix operation: nearly all of its time it waits for copies to and from the host.
    assert ours.figures.step_parts_s["async_wait"] > 0.95 * sum(ours.figures.step_parts_s.values())
    assert ours.figures.infeed_ratio is None
    assert ours.figures.absent == {
        "infeed_ratio": "no infeed ops",
        "matmul_padding_ratio": "no matrix operation whose shapes the trace tells",
        "input_wait_ratio": "no event of an input pipeline",
        "callback_ratio": "no op of the host's names its program",
    }


@pytest.mark.parametrize("host_level", [0, 2])
@pytest.mark.parametrize(
    ("topology", "scenario"),
    [("v3-8", "input-bound"), ("v5e-8", "straggler"), ("v4-16", "steady"), ("v6e-8", "steady"), ("v4-16", "straggler")],
)
def test_the_simulators_traces(topology, scenario, host_level, tmp_path):
    job = SimulatedJob(topology=parse_topology(topology), scenario=scenario, seed=4)
    start_ns = 3 * SECOND + 17_123_456
    assert check(simulated_session(tmp_path, job, start_ns=start_ns, host_level=host_level)).simulated


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"factors": (5, 7, 4, 9)}, id="uneven steps"),
        pytest.param({"infeeds": [(100, 200), (300, 50), (0.5, 700)]}, id="infeed differs by core"),
        pytest.param({"skew_us": 111}, id="cores start apart"),
        pytest.param({"gap_us": 0}, id="touching steps"),
        pytest.param({"cores": 2, "details": False}, id="no core details"),
        pytest.param({"cores": 1, "steps": 1}, id="a single step"),
        pytest.param({"cores": 2, "infeeds": [(0,), (0,)]}, id="infeed that never waits"),
    ],
)
def test_what_definitions_turn_on(options, tmp_path):
    check(saved(tmp_path, training(**options)))


@pytest.mark.parametrize("counter", [None, 0.0])
def test_without_a_counter_the_flops_tell(counter, tmp_path):
    files = saved(tmp_path, training(mxu=counter))
    ours = check(files, mxu=False)
    assert ratio(overview(files), "mxu_utilization_percent") == 0
    assert ours.figures.mxu_method == "flops"
    done = 3 * 5 * 8e9  # the convolutions': an all-reduce's additions are no matrix work
    assert ours.figures.mxu_utilization_ratio == pytest.approx(done / (ours.window_s * 100e12 * 3), rel=FULL)


def test_without_markers_the_module_tells(tmp_path):
    traced = training(cores=2, gap_us=25)
    for plane in traced.space.planes:
        for line in plane.lines:
            if line.name == "Steps":
                del line.events[:]
    files = saved(tmp_path, traced)
    ours = check(files)
    assert float(overview(files)["steptime_ms_average"]) == 0
    assert ours.figures.step_source == "modules"
    # From start to start: 300 + 2500 + 30 + the longest mean of all-reduces + 200 + 41 + 20 + 10 + 25
    assert ours.figures.step_time_s.avg == pytest.approx(1e-6 * (3126 + (100 + 150 + 200 + 100) / 4 + 0), abs=2e-5)
    assert ours.figures.infeed_ratio.avg == pytest.approx(300e-6 / ours.figures.step_time_s.avg, rel=0.02)


def stub(traced, at_us, length_us, parts=((INFEED, 300),)):
    """On every core a marker that the window cut, with what ran of its ops."""
    for plane in traced.space.planes:
        if plane.name.startswith("/device:TPU"):
            core = Plane(plane)
            core.event("Steps", "train", at_us, length_us)
            core.event("XLA Modules", "jit_train_step(42)", at_us, sum(op_us for _, op_us in parts))
            begin_us = at_us
            for op, op_us in parts:
                core.event("XLA Ops", op, begin_us, op_us)
                begin_us += op_us
    return traced


@pytest.mark.parametrize("length_us", [0, 300], ids=["no length", "cut"])
def test_a_stub_at_the_windows_end_is_no_step(length_us, tmp_path):
    """XProf counts it, which pulls the mean down and the least to 0 or to what was left of the step."""
    ours = check(saved(tmp_path, training()))
    files = saved(tmp_path, stub(training(), 16_700, length_us))
    page, found = overview(files), found_in(files)
    assert len(step_rows(files)) == ours.figures.step_time_s.count + 1
    assert float(page["steptime_ms_minimum"]) == pytest.approx(length_us / 1000, abs=5.1e-3)
    mean_s = (ours.figures.step_time_s.avg * 5 + length_us * 1e-6) / 6
    assert float(page["steptime_ms_average"]) == pytest.approx(1e3 * mean_s, abs=5.1e-3)
    assert found.figures.step_time_s == ours.figures.step_time_s
    assert found.figures.step_parts_s == ours.figures.step_parts_s
    assert found.figures.infeed_ratio == ours.figures.infeed_ratio


def test_a_stub_at_the_windows_begin_is_no_step(tmp_path):
    """As at its end."""
    ours = check(saved(tmp_path, training(start_us=1000)))
    files = saved(tmp_path, stub(training(start_us=1000), 900, 60, [(HOST_SEND, 20), (SEND, 10)]))
    assert float(overview(files)["steptime_ms_minimum"]) == pytest.approx(0.06, abs=5.1e-3)
    assert found_in(files).figures.step_time_s == ours.figures.step_time_s


def test_two_cores_a_chip(tmp_path):
    """The chip works while either core does; infeed from a SparseCore V0 is split as XProf splits it."""
    traced = Traced()
    for number in range(4):
        plane = traced.core(number, chip=number // 2, core=number % 2)
        at_us = 100 + (number % 2) * 700
        for _ in range(4):
            parts = [
                (CONV, 500),
                (None, 100),
                (MEGACORE, 50),
                (ASYNC_DONE, 30),
                (SPARSE_INFEED, 80),
                (SPARSE_OUTFEED, 60),
            ]
            at_us = run_step(plane, at_us, parts, length_us=900) + 300
    traced.host()
    ours = check(saved(tmp_path, traced))
    assert [(core.chip, core.core) for core in ours.figures.per_core] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert ours.figures.duty_cycle_ratio > 1 - ours.figures.idle_ratio


def test_sparse_cores_count_towards_the_duty_cycle_only(tmp_path):
    traced = training(cores=2)
    without = found_in(saved(tmp_path, traced))
    for number in range(2):
        plane = traced.core(number, sparse=0)
        for step in range(5):
            plane.event("Sparse Core Ops", Op("gather.1", "sparse gather"), 100 + 3600 * step + 3200, 150)
            plane.event("Sparse Core Modules", "sparse", 100 + 3600 * step, 3400)
            plane.event("Sparse Core Steps", "train", 100 + 3600 * step, 3400)
    ours = check(saved(tmp_path, traced))
    assert ours.core_count == 2
    assert ours.figures.duty_cycle_ratio != without.figures.duty_cycle_ratio
    assert (ours.figures.idle_ratio, ours.figures.step_time_s) == (
        without.figures.idle_ratio,
        without.figures.step_time_s,
    )


@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param([{"factors": (5, 6)}, {"factors": (6, 7, 5), "mxu": 10.0}], id="one is slower"),
        pytest.param([{"steps": 8}, {"steps": 6, "start_us": 100 + 2 * 3300}], id="one starts later"),
        pytest.param([{"steps": 8}, {"steps": 5, "start_us": 3400}, {"steps": 7, "mxu": 0.1}], id="three"),
    ],
)
def test_several_hosts(hosts, tmp_path):
    check(saved(tmp_path, *(training(**options) for options in hosts)))


def test_ops_within_ops(tmp_path):
    """A loop's time is its body's, a slowed clock's time is scaled, an op without a symbol does not count."""
    traced = Traced()
    for number in range(2):
        plane = traced.core(number)
        for at_us in range(50, 5250, 1300):
            plane.event("XLA Ops", WHILE, at_us, 1000)
            for i in range(3):
                scale = {"Time Scale Multiplier": 0.5} if i == 1 else {}
                plane.event("XLA Ops", CONV, at_us + 10 + 300 * i, 250, **scale)
            plane.event("XLA Ops", Op("nameless", "convolution", flops=10**12, symbol=False), at_us + 1120, 50)
            plane.event("XLA Ops", Op("region.1", "loop fusion", flops=10**12), at_us + 1172, 20)
            plane.event("Steps", "train", at_us, 1200)
            plane.event("XLA Modules", "jit_train_step(42)", at_us, 1200)
    traced.host()
    check(saved(tmp_path, traced))


def test_flops_of_custom_calls_come_with_their_events(tmp_path):
    """XProf 2.23.1, and its source since, adds up what the events say; 2.24.2 leaves that out."""
    traced = Traced()
    plane = traced.core(0)
    for at_us in range(50, 5250, 1300):
        plane.event("XLA Ops", CUSTOM, at_us, 400, flops=6_000_000_000, model_flops=3_000_000_000)
        plane.event("XLA Ops", CONV, at_us + 500, 600)
        plane.event("Steps", "train", at_us, 1200)
    traced.host()
    files = saved(tmp_path, traced)
    ours = check(files, flops=False)
    time_s = 4 * 1000e-6
    assert ours.figures.flops_utilization_ratio == pytest.approx(4 * (8e9 + 1000 + 6e9) / time_s / 100e12, rel=FULL)
    shown = open_with_xprof(files, "op_profile")["byProgram"]["metrics"]["flops"]
    assert shown == pytest.approx(4 * (8e9 + 1000) / time_s / 100e12, rel=FULL)
    older = open_with_xprof(files, "op_profile", older=True)["byProgram"]["metrics"]["flops"]
    assert older == pytest.approx(ours.figures.flops_utilization_ratio, rel=FULL)


def test_waiting_within_a_loop_is_off_duty(tmp_path):
    """As in 2.24.2; 2.23.1 counts all of a loop's time as work."""
    traced = Traced()
    plane = traced.core(0)
    for at_us in range(100, 3100, 1000):
        plane.event("XLA Ops", WHILE, at_us, 900)
        plane.event("XLA Ops", INFEED, at_us + 50, 100)
        plane.event("XLA Ops", Op("while.2", "while"), at_us + 200, 400)
        plane.event("XLA Ops", OUTFEED, at_us + 250, 77)
        plane.event("XLA Ops", CONV, at_us + 400, 100)
        plane.event("XLA Ops", MEGACORE, at_us + 620, 100)
        plane.event("XLA Ops", CONV, at_us + 640, 50)
        plane.event("Steps", "train", at_us, 950)
    traced.host()
    files = saved(tmp_path, traced)
    ours = check(files)
    assert ours.figures.duty_cycle_ratio == pytest.approx(3 * (900 - 100 - 77 - 50) / 2900, rel=FULL)
    assert ratio(overview(files, older=True), "device_duty_cycle_percent") == pytest.approx(3 * 900 / 2900, abs=5.1e-4)


def test_events_that_overlap_without_nesting(tmp_path):
    traced = Traced()
    plane = traced.core(0)
    for at_us in range(100, 3100, 1000):
        plane.event("XLA Ops", LOOP, at_us - 50, 300)  # begins before its step
        plane.event("XLA Ops", CONV, at_us + 200, 300)
        plane.event("XLA Ops", INFEED, at_us + 250, 100)
        plane.event("XLA Ops", OUTFEED, at_us + 700, 200)  # ends after it
        plane.event("Steps", "train", at_us, 800)
    traced.host()
    check(saved(tmp_path, traced))


def test_the_devices_clock(tmp_path):
    traced = Traced()
    for number in range(2):
        plane = traced.core(number)
        at_us = 100
        for _ in range(4):
            begin_us = at_us
            for op, duration_us in ((INFEED, 100), (CONV, 400), (LOOP, 300)):
                own = {"device_offset_ps": (at_us - 3) * US, "device_duration_ps": (duration_us - 2) * US}
                plane.event("XLA Ops", op, at_us, duration_us, **own)
                at_us += duration_us + 5
            own = {"device_offset_ps": (begin_us - 5) * US, "device_duration_ps": (at_us - begin_us + 7) * US}
            plane.event("Steps", "train", begin_us, at_us - begin_us + 10, **own)
            plane.event("XLA Modules", "jit_train_step(42)", begin_us, at_us - begin_us)
            at_us += 50
    traced.host()
    check(saved(tmp_path, traced))


@pytest.mark.parametrize("lost", [slice(2, 3), slice(None)], ids=["a marker", "all markers"])
def test_a_core_that_lost_markers(lost, tmp_path):
    traced = training()
    for line in traced.space.planes[1].lines:
        if line.name == "Steps":
            del line.events[lost]
    check(saved(tmp_path, traced))


@pytest.mark.parametrize("chip", [0, 1, 3])
def test_a_chip_without_events_leaves_the_others_steps(chip, tmp_path):
    traced = training(4, factors=(5, 6, 7))
    del traced.space.planes[chip].lines[:]
    files = saved(tmp_path, traced)
    ours, page = found_in(files), overview(files)
    assert ours.truncated
    assert ours.figures.step_time_s.count == len(step_rows(files))
    assert 1e3 * ours.figures.step_time_s.avg == pytest.approx(float(page["steptime_ms_average"]), abs=5.1e-3)


def linked(*, launch=False, hosts_first=0, programs=1):
    """A job whose host's annotations lead to the programs on the device.

    Args:
        launch: link as libtpu does, by the run's number, and not by stats of the module.
        hosts_first: annotations missing at the beginning, as where the host's tracer starts later.
        programs: runs of the module per annotation; each has a marker of its own.
    """
    traced = Traced()
    planes = [traced.core(number) for number in range(2)]
    host = traced.host()
    run = 0
    for step in range(6):
        at_us = 1000 + 2000 * step
        seen = step >= hosts_first
        if seen:
            host.event("python", "train", at_us - 300, 500 * programs, _r=1, step_num=70 + step)
        for program in range(programs):
            run += 1
            if seen and not launch:
                host.event("python", "PjitFunction(train_step)", at_us - 250 + 400 * program, 100, _pt=12, _p=run)
            elif seen:
                for number in range(2):
                    host.event(
                        "python",
                        "DoEnqueueProgram",
                        at_us - 250 + 400 * program + 50 * number,
                        20,
                        run_id=run + (1 << 27),
                        queue_id=0,
                        device_ordinal=number,
                    )
            for number, plane in enumerate(planes):
                begin_us = at_us + 800 * program + 7 * number
                plane.event("XLA Ops", INFEED, begin_us + 5, 60 + 10 * step)
                plane.event("XLA Ops", CONV, begin_us + 200, 400 + 10 * step)
                plane.event("Steps", "train", begin_us, 700)
                consumed = {"run_id": run, "queue_id": 0} if launch else {"_ct": 12, "_c": run}
                plane.event("XLA Modules", "jit_train_step(42)", begin_us, 690, **consumed)
    return traced


@pytest.mark.parametrize("launch", [False, True], ids=["contexts", "run ids"])
@pytest.mark.parametrize("hosts_first", [0, 2])
@pytest.mark.parametrize("programs", [1, 2])
def test_steps_as_the_host_annotated_them(launch, hosts_first, programs, tmp_path):
    ours = check(saved(tmp_path, linked(launch=launch, hosts_first=hosts_first, programs=programs)))
    assert ours.figures.step_time_s.count == 6 - hosts_first


def test_hardware_counters(tmp_path):
    """XProf's utilization viewer shows the share as "Avg MXU Busy" of each core."""
    traced = Traced()
    for number in range(2):
        plane = traced.core(number, device_type="TPU v6 Lite")
        plane.put(plane.plane.stats, {"device_id": number})
        plane.event("XLA Ops", LOOP, 10, 100)
        for name, counter, value in (
            ("count_cycles", 3257466888, 1_000_000),
            ("count_mxu_busy_1", 3257467408, 200_000 + 1000 * number),
            ("count_mxu_busy_2", 3257467416, 300_000),
        ):
            plane.event("_counters_", name, 10, 0, performance_counter_id=counter, counter_value=value)
    traced.host(None)
    (file,) = saved(tmp_path, traced)
    table = open_with_xprof([file], "utilization_viewer")
    columns = [column["id"] for column in table["cols"]]
    rows = [dict(zip(columns, (cell["v"] for cell in row["c"]), strict=True)) for row in table["rows"]]
    busy = [row["achieved"] / row["peak"] for row in rows if row["name"] == "Avg MXU Busy"]
    ours = found_in([file])
    assert len(busy) == 2
    assert (ours.figures.mxu_utilization_ratio, ours.figures.mxu_method) == (
        pytest.approx(sum(busy) / 2, rel=FULL),
        "perf-counters",
    )


def test_a_job_of_the_cpu(tmp_path):
    """XProf takes an annotation's own length for a CPU's step; ours is from start to start, as with all programs."""
    traced = Traced()
    host = traced.named("/host:CPU")
    for step in range(8):
        host.event("python", "train", 100 + 1000 * step, 400, _r=1, step_num=step)
        host.event("python", "MatMul:MatMul", 150 + 1000 * step, 300)
    files = saved(tmp_path, traced)
    ours, page = found_in(files), overview(files)
    assert page["hardware_type"] == "CPU_ONLY"
    assert float(page["steptime_ms_average"]) == pytest.approx(0.4, abs=5.1e-3)
    assert (ours.figures.step_source, ours.figures.step_time_s.avg) == ("host", pytest.approx(1e-3))
    assert ours.figures.mxu_utilization_ratio is ours.figures.idle_ratio is ours.figures.infeed_ratio is None


def test_waiting_at_barriers_is_what_its_suggestion_says(tmp_path):
    """XProf reads the device's own times of such events, and leaves out the first step and the last one."""
    traced = Traced()
    for number in range(2):
        plane, at_us = traced.core(number), 100
        for _ in range(6):
            plane.event("XLA TraceMe", "barrier-cores", at_us + 1000, 200 + 50 * number)
            at_us = run_step(plane, at_us, [(CONV, 1000), (None, 300), (LOOP, 200)]) + 20
        for name in ("Steps", "XLA TraceMe"):
            for event in plane.line(name).events:
                own = {"device_offset_ps": event.offset_ps, "device_duration_ps": event.duration_ps}
                for stat, value in own.items():
                    event.stats.add(metadata_id=plane.stat_id(stat), uint64_value=value)
    traced.host()
    files = saved(tmp_path, traced)
    (suggestion,) = open_with_xprof(files, "smart_suggestion")["suggestions"]
    assert suggestion["ruleName"] == "BarrierCoresRule"
    assert found_in(files).figures.barrier_ratio == pytest.approx(225 / 1500)
    assert "an average of 15.0% of each step time" in suggestion["suggestionText"]
