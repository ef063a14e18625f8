"""`tpumon report`: sections, choices, what is printed, and what becomes of files that cannot be read."""

from __future__ import annotations

import json
import re

import pytest

from fakes.run import tpumon
from support.captures import Choice, capture_of, megacore, nested, on_gpus, saved, section, training, with_memory
from support.traces import ALL_REDUCE, CONV, Named, Op, Plane, Traced, run_step
from tpumon.cli.commands.report import ReportSettings, run
from tpumon.cli.process import command_of
from tpumon.errors import UsageError
from tpumon.proto.hlo_pb2 import HeapEvent, HloProgram
from tpumon.proto.profiler_pb2 import ProfileOptions
from tpumon.report.render import plain_text
from tpumon.report.render.documents import html, markdown
from tpumon.report.sections import SECTIONS, report
from tpumon.xspace.ops.op_kinds import Category
from tpumon.xspace.profile.step_times import _PARTS_OF

ONE_CORE_STEP_S = 1e-6 * (300 + 500 + 30 + 100 + 60 + 65 + 70 + 200 + 40 + 20 + 10)


def printed(capsys, *paths, sections=("overview",), output="json", **choice):
    settings = ReportSettings(
        paths=[str(path) for path in paths], sections=sections, output=output, choice=Choice(**choice)
    )
    status = run(settings)
    out, errors = capsys.readouterr()
    return status, json.loads(out)["sections"] if output == "json" and out else out, errors


def test_the_overview_has_figures_steps_and_operations(tmp_path, capsys):
    status, found, errors = printed(capsys, *saved(tmp_path, training(cores=1)))

    overview = found["overview"]
    assert (status, errors) == (0, "")
    assert overview["mxu_utilization_ratio"] == 0.425
    assert overview["step_time_s"]["count"] == 4
    assert overview["step_time_s"]["min"] == pytest.approx(ONE_CORE_STEP_S)
    assert overview["percentiles"]["p99"] == overview["step_time_s"]["max"]
    assert overview["step_durations_s"][0] == pytest.approx(ONE_CORE_STEP_S)
    assert [op["name"] for op in overview["top_ops"][:2]] == ["fusion.1", "infeed.1"]
    assert len(overview["top_ops"]) <= 10
    assert overview["environment"]["device_type"] == "TPU v5"
    (finding,) = overview["findings"]
    assert (finding["finding"], finding["since_unix_s"]) == ("input-bound", None)


def test_only_what_is_chosen_is_counted(tmp_path):
    files = saved(tmp_path, nested())
    every = section(files, "ops")
    assert {row["name"] for row in every["by_program"]} == {"jit_train_step(42)", "jit_eval(77)"}

    chosen = section(files, "ops", Choice(program="jit_eval"))
    assert {op["name"] for op in chosen["ops"]} == {"dot.0", "dot.1"}
    assert chosen["chosen"] == "program jit_eval"
    # Shares stay shares of everything.
    assert chosen["total_time_s"] == every["total_time_s"]

    found = section(files, "ops", Choice(words="ATTENTION"))
    assert [op["name"] for op in found["ops"]] == ["fusion.1"]
    assert section(files, "ops", Choice(words="model.py:22"))["ops"][0]["name"] == "fusion.2"
    assert section(files, "ops", Choice(words="no such thing"))["ops"] == []


def test_no_table_is_longer_than_asked_for(tmp_path):
    ops = section(saved(tmp_path, training()), "ops", Choice(top=3))
    assert ops["count"] > 3
    assert [len(ops[name]) for name in ("ops", "by_category", "by_provenance")] == [3, 3, 3]


def test_a_fusion_says_what_it_is_made_of(tmp_path):
    ops = {op["name"]: op for op in section(saved(tmp_path, nested()), "ops")["ops"]}
    assert ops["fusion.2"]["contents"] == ["multiply.0", "multiply.1"]
    assert ops["fusion.1"]["contents"] == []


def test_the_same_op_of_two_hosts_is_one(tmp_path):
    one = section(saved(tmp_path, training(name="a")), "ops")
    two = section(saved(tmp_path, training(name="a"), training(name="b")), "ops")
    assert two["count"] == one["count"]
    assert two["ops"][0]["occurrences"] == 2 * one["ops"][0]["occurrences"]
    assert two["total_time_s"] == pytest.approx(2 * one["total_time_s"])


def test_what_does_not_say_its_bytes_has_none(tmp_path):
    traced = Traced()
    plane = traced.core(0)
    plane.event("XLA Ops", CONV, 100, 50)
    plane.event("XLA Modules", "jit_train_step(42)", 100, 60)
    for stats in (metadata.stats for metadata in traced.space.planes[0].event_metadata.values()):
        named = Plane(traced.space.planes[0])
        kept = [stat for stat in stats if stat.metadata_id != named.stat_id("memory_access_breakdown")]
        del stats[:]
        stats.extend(kept)
    (op,) = section(saved(tmp_path, traced), "ops")["ops"]
    assert (op["hbm_bytes"], op["hbm_rate"], op["hbm_utilization_ratio"]) == (None, None, None)
    assert (op["flops_rate"] > 0, op["bound_by"]) == (True, None)


def test_gpus_have_kernels_and_the_ops_that_launch_them(tmp_path):
    """FLOPs and bytes are not in such traces, and no column says so."""
    files = saved(tmp_path, on_gpus())
    ops = section(files, "ops")
    total_s = 2 * 2760e-6
    assert ops["total_time_s"] == pytest.approx(total_s)
    # Of each step of a GPU: what runs at once counts once; on one the all-reduce ends 5 µs after all else.
    busy_s = (2 * sum(300 + 10 * step + 100 + 200 + 60 for step in range(3)) + 3 * 5) * 1e-6
    assert ops["idle_s"] == pytest.approx(total_s - busy_s)
    assert [(op["name"], op["kernels"], op["occurrences"]) for op in ops["gpu_ops"]] == [
        ("dot.1", 2, 12), ("dot.3", 1, 6), ("fusion.2", 1, 6), ("all-reduce.4", 1, 6),
    ]  # fmt: skip
    assert ops["gpu_ops"][0]["time_s"] == pytest.approx(2 * (300 + 310 + 320 + 3 * 30) * 1e-6)
    assert (ops["gpu_ops"][0]["min_s"], ops["gpu_ops"][0]["max_s"]) == pytest.approx((30e-6, 320e-6))
    longest = ops["kernels"][0]
    assert (longest["name"], longest["op"], longest["program"], longest["grid"]) == (
        "gemm",
        "dot.1",
        "jit_step",
        "128,1,1",
    )
    assert longest["time_ratio"] == pytest.approx(2 * 930e-6 / total_s)
    assert section(files, "ops", Choice(words="nccl"))["gpu_ops"][0]["name"] == "all-reduce.4"
    assert section(files, "ops", Choice(program="jit_eval"))["kernels"] == []
    text = plain_text.render(report(capture_of(files), ("overview", "ops"), Choice()).pages, 160)
    assert text.count("Kernels\n") == 2
    assert "Operations of GPUs\n" in text


def test_a_kernel_whose_launch_is_not_told(tmp_path):
    traced = Traced()
    plane = traced.named("/device:GPU:0")
    plane.event("Stream #1", "bare", 100, 30, kernel_details=Named("nothing"))
    plane.event(
        "Stream #1", "odd", 200, 20, kernel_details=Named("regs:x occ_pct:. grid:1,1,1 static_shared:" + "9" * 90)
    )
    kernels = section(saved(tmp_path, traced), "ops")["kernels"]
    assert [(one["name"], one["registers"], one["occupancy_ratio"]) for one in kernels] == [
        ("bare", None, None),
        ("odd", None, None),
    ]
    assert section(saved(tmp_path, traced), "ops")["gpu_ops"] == []


def on_threads():
    """Two threads: one whose calls are nested, one that runs the same function beside it, with a pause."""
    traced = training(cores=1)
    host = Plane(traced.space.planes[-1])
    for name, begin_us, duration_us in (("train", 100, 100), ("load", 110, 50), ("read", 120, 20), ("load", 170, 10)):
        host.event("main", name, begin_us, duration_us)
    for begin_us in (100, 180):
        host.event("worker", "load", begin_us, 20)
    return traced


def test_the_host_has_rows_by_the_names_of_its_events(tmp_path):
    files = saved(tmp_path, on_threads())
    host = section(files, "ops")["host"]
    rows = [
        (op["name"], op["occurrences"], round(1e6 * op["time_s"]), round(1e6 * op["self_time_s"])) for op in host["ops"]
    ]
    assert rows == [("load", 4, 100, 80), ("train", 1, 100, 40), ("read", 1, 20, 20)]
    assert [op["time_ratio"] for op in host["ops"]] == pytest.approx([0.4, 0.2, 0.1])
    assert (host["threads"], host["reason"], host["count"]) == (2, None, 3)
    assert (host["total_time_s"], host["busy_s"]) == pytest.approx((200e-6, 140e-6))
    chosen = section(files, "ops", Choice(words="LOAD", top=1))["host"]
    assert ([op["name"] for op in chosen["ops"]], chosen["count"]) == (["load"], 1)
    two = section(saved(tmp_path, on_threads(), on_threads()), "ops")["host"]
    assert (two["threads"], two["ops"][0]["occurrences"], two["ops"][0]["time_ratio"]) == (4, 8, pytest.approx(0.4))


@pytest.mark.parametrize(
    ("traced", "choice", "reason"),
    [
        (training, Choice(), "the trace has no event of the host's threads; profiles with --host-tracer-level 1"),
        (on_threads, Choice(program="jit"), "the host's events tell no program"),
        (on_threads, Choice(words="nothing"), "no event has such a name"),
    ],
)
def test_no_rows_of_the_host_have_a_reason(traced, choice, reason, tmp_path):
    files = saved(tmp_path, traced())
    host = section(files, "ops", choice)["host"]
    assert (host["ops"], host["count"]) == ([], 0)
    assert host["reason"].startswith(reason)
    assert (host["busy_s"] is None) == (traced is training)
    text = plain_text.render(report(capture_of(files, "ops"), ("ops",), choice).pages, 160)
    assert f"Threads of the host\n  {reason}" in text


def test_events_of_the_host_that_overlap_leave_no_negative_time(tmp_path):
    traced = Traced()
    host = traced.host()
    for name, begin_us, duration_us in (("outer", 0, 10), ("a", 0, 8), ("b", 2, 8)):
        host.event("main", name, begin_us, duration_us)
    found = {op["name"]: op["self_time_s"] for op in section(saved(tmp_path, traced), "ops")["host"]["ops"]}
    assert found == {"outer": 0, "a": pytest.approx(8e-6), "b": pytest.approx(8e-6)}


def test_names_are_made_safe(tmp_path):
    traced = Traced()
    traced.core(0).event("XLA Ops", Op("\x1b[31mred\x07" + "x" * 5000, "\x1b]0;t\x07fusion"), 100, 50)
    files = saved(tmp_path, traced)
    (op,) = section(files, "ops")["ops"]
    assert op["name"].startswith("redxxx")
    assert len(op["name"]) <= 200
    assert op["category"] == "fusion"
    made = report(capture_of(files), tuple(SECTIONS), Choice())
    assert "\x1b" not in plain_text.render(made.pages, 80)


def test_a_file_that_cannot_be_read_hides_no_other(tmp_path, capsys):
    (good,) = saved(tmp_path, training(cores=1))
    bad = tmp_path / "bad.xplane.pb"
    bad.write_bytes(b"\xff" * 40)
    status, found, errors = printed(capsys, bad, good)
    assert status == 1
    assert "bad.xplane.pb: not a trace" in errors
    assert found["overview"]["step_time_s"]["count"] == 4

    assert printed(capsys, bad)[:2] == (1, "")


def test_hosts_of_one_name_stay_apart(tmp_path, capsys):
    files = saved(tmp_path, training(name="same"), training(name="same"))
    _, found, _ = printed(capsys, *files, sections=("environment",))
    assert [host["worker"] for host in found["environment"]["hosts"]] == ["same", "host-1"]


@pytest.mark.parametrize("width", [80, 160])
def test_text_fits_its_width(golden, tmp_path, width):
    made = report(capture_of(saved(tmp_path, training(name="tpu-w-0"))), tuple(SECTIONS), Choice(top=5))
    shown = plain_text.render(made.pages, width)
    golden.check(f"report/{width}.txt", shown)


def test_a_trace_without_devices_has_steps_of_the_host(tmp_path):
    traced = Traced()
    host = traced.host(None)
    for i in range(5):
        host.event("python", "train", 1000 * i, 300, step_num=i)
    files = saved(tmp_path, traced)
    overview = section(files, "overview")
    assert overview["step_source"] == "host"
    assert overview["top_ops"] == []
    steps = section(files, "steps")
    assert steps["durations_s"] == [pytest.approx(1e-3)] * 4
    assert steps["cores"] == []
    text = plain_text.render(report(capture_of(files), tuple(SECTIONS), Choice()).pages, 160)
    assert "MXU, TPU idle, Duty cycle, FLOPS utilization, HBM bandwidth" in text  # one reason, one row
    assert "Steps are                   a function that the host runs again and again" in text
    assert "Devices  none in the trace" in text
    assert not [words for words in ("Hosts, cores", "Peak of", "Time of all cores") if words in text]


@pytest.mark.parametrize("waits", [ALL_REDUCE, Op("all-gather-done.1", "all-gather-done")], ids=lambda op: op.name)
def test_the_core_that_others_wait_for_is_last(waits, tmp_path):
    """All cores' steps are equally long, because the fast ones wait in the collective."""
    traced = Traced()
    for number, work_us in enumerate((500, 900, 500)):
        plane, at_us = traced.core(number), 100.0
        for step in range(3):
            wait = {"all_reduce_unique_id": step + 1} if waits is ALL_REDUCE else {}
            at_us = run_step(plane, at_us, [(CONV, work_us), (waits, 1000 - work_us, wait)]) + 20
    steps = section(saved(tmp_path, traced), "steps")
    assert [step["last"] for step in steps["steps"]] == ["chip 1"] * 3
    assert [core["times_last"] for core in steps["cores"]] == [0, 3, 0]
    assert steps["steps"][0]["skew_s"] == pytest.approx(400e-6)
    assert steps["cores"][1]["parts_s"]["collective"] == pytest.approx(100e-6)
    assert sum(steps["cores"][0]["parts_s"].values()) == pytest.approx(steps["cores"][0]["step_time_s"])


@pytest.mark.parametrize("marked", [True, False])
def test_every_step_of_every_core_has_its_parts(tmp_path, marked):
    """One core computes longer in one step, for which the other waits; without markers steps are periods."""
    traced = Traced()
    for number in range(2):
        plane, at_us = traced.core(number), 100.0
        for step in range(4):
            work_us = 900 if (number, step) == (1, 2) else 500
            at_us = run_step(plane, at_us, [(CONV, work_us), (ALL_REDUCE, (1000 if step == 2 else 600) - work_us)]) + 20
        if not marked:
            del plane.line("Steps").events[:]
    files = saved(tmp_path, traced)
    cores = section(files, "steps")["cores"]
    shown = [
        [round(1e6 * core["step_parts_s"][name][i]) for i in range(3)]
        for core in cores
        for name in ("high_flops_compute", "collective")
    ]
    assert shown == [[500, 500, 500], [100, 100, 500], [500, 500, 900], [100, 100, 100]]
    for core in cores:
        assert [sum(parts_s) for parts_s in zip(*core["step_parts_s"].values(), strict=True)] == pytest.approx(
            core["durations_s"]
        )
    pages = report(capture_of(files, "steps"), ("steps",), Choice()).pages
    text = plain_text.render(pages, 120)
    rows = text.partition("By step and core\n")[2]
    idle = "" if marked else "  20.0 µs"
    of_page = re.sub(r"(<[^>]+>|\s)+", " ", html(pages, "t").partition("By step and core")[2])
    assert re.search(rf" 2 chip 1 1.0\d ms 900 µs 100 µs{idle.replace('  ', ' ')} ", of_page)
    assert re.search(rf"^ +2  chip 0  1.0\d ms +500 µs +500 µs{idle}$", rows, re.MULTILINE)
    assert re.search(rf"^ +2  chip 1  1.0\d ms +900 µs +100 µs{idle}$", rows, re.MULTILINE)
    assert ("Step 2, the longest, by core" in text) == marked


def test_a_list_of_every_step_of_every_core_has_an_end(tmp_path):
    files = saved(tmp_path, training(cores=2, steps=80))
    text = plain_text.render(report(capture_of(files, "steps"), ("steps",), Choice()).pages, 120)
    rows = text.partition("By step and core\n")[2].splitlines()
    assert len(rows) == 1 + 100 + 1
    assert rows[-1] == "  (100 of 160 are shown; JSON has all)"


def test_of_many_cores_the_slowest_the_median_and_the_fastest_of_each_step_are_shown(tmp_path):
    """JSON has all. On each step's slowest core the work outside of collectives takes longest."""
    traced = Traced()
    for number in range(5):
        plane, at_us = traced.core(number), 100.0
        for step in range(40):
            work_us = 500 + 10 * ((number + step) % 5)
            at_us = run_step(plane, at_us, [(CONV, work_us), (ALL_REDUCE, 1000 - work_us)]) + 20
    files = saved(tmp_path, traced)
    assert [len(core["durations_s"]) for core in section(files, "steps")["cores"]] == [40] * 5
    pages = report(capture_of(files, "steps"), ("steps",), Choice()).pages
    text = plain_text.render(pages, 120)
    rows = text.partition("By step and core\n")[2].splitlines()
    assert [row.split()[:8] for row in rows[1:4]] == [
        ["0", "slowest", "chip", "4", "1.00", "ms", "540", "µs"],
        ["0", "median", "chip", "2", "1.00", "ms", "520", "µs"],
        ["0", "fastest", "chip", "0", "1.00", "ms", "500", "µs"],
    ]
    assert rows[4].split()[:4] == ["1", "slowest", "chip", "3"]
    note = "slowest, median, fastest of 5 cores by time outside of collectives; 99 of 200 are shown; JSON has all"
    assert (len(rows), rows[-1]) == (1 + 99 + 1, f"  ({note})")
    assert note in html(pages, "t")


def test_nobody_is_last_where_all_take_equally_long(tmp_path):
    steps = section(saved(tmp_path, megacore()), "steps")
    assert {step["last"] for step in steps["steps"]} == {None}


def test_many_cores_are_shown_by_worker(tmp_path):
    """JSON has each core with each of its steps."""
    files = saved(tmp_path, *(training(cores=8, steps=2, name=f"w{i}") for i in range(9)))
    cores = section(files, "steps")["cores"]
    assert [core["worker"] for core in cores] == [f"host-{i}.xplane.pb" for i in range(9) for _ in range(8)]
    assert all(len(parts_s) == 2 for core in cores for parts_s in core["step_parts_s"].values())
    text = plain_text.render(report(capture_of(files, "steps"), ("steps",), Choice()).pages, 120)
    by_worker = text.partition("By worker\n")[2].splitlines()
    assert [row.split()[0] for row in by_worker[1:10]] == [f"host-{i}.xplane.pb" for i in range(9)]
    assert "slowest, median, fastest of 72 cores" in text


def test_what_was_live_at_the_peak_adds_up_to_it(tmp_path):
    for use in section(saved(tmp_path, with_memory()), "memory")["memories"]:
        assert sum(row["size_bytes"] * row["count"] for row in use["live"]) == use["peak_bytes"]
        assert {"what": "stack of programs", "size_bytes": 5000, "count": 1} in use["live"]
        names = {row["what"] for row in use["live"]}
        assert names == {"stack of programs", "op0 f32[8]", "op1 f32[8]", "op2 f32[8]"}


def test_what_came_before_the_window_is_named(tmp_path):
    traced = training(cores=1)
    host = Plane(traced.space.planes[-1])
    stats = {"index_on_host": 0, "bytes_allocated": 900, "bytes_available": 100, "allocation_bytes": 400, "addr": 7}
    host.event("allocator", "MemoryAllocation", 100, 1, **stats)
    (use,) = section(saved(tmp_path, traced), "memory")["memories"]
    assert use["live"] == [
        {"what": "allocated before the window", "size_bytes": 500, "count": 1},
        {"what": "allocated in the window", "size_bytes": 400, "count": 1},
    ]


def test_allocators_without_a_number_go_by_their_name(tmp_path):
    traced = training(cores=1)
    host = Plane(traced.space.planes[-1])
    for i, name in enumerate(("GPU_0_bfc", "gpu_host_bfc", "GPU_0_bfc")):
        host.event("allocator", "MemoryAllocation", 100 + i, 1, allocator_name=name, bytes_allocated=10 + i)
    memories = section(saved(tmp_path, traced), "memory")["memories"]
    assert [(use["memory"], use["events"], use["peak_bytes"]) for use in memories] == [
        ("GPU_0_bfc", 2, 12),
        ("gpu_host_bfc", 1, 11),
    ]


@pytest.mark.parametrize("size", [-5, 1 << 62])
def test_impossible_sizes_count_as_none(size, tmp_path):
    traced = training(cores=1)
    host = Plane(traced.space.planes[-1])
    for i, allocated in enumerate((100, size)):
        host.event("allocator", "MemoryAllocation", 100 + i, 1, index_on_host=0, bytes_allocated=allocated)
    (use,) = section(saved(tmp_path, traced), "memory")["memories"]
    assert use["peak_bytes"] == 100


def test_programs_whose_hlo_is_broken_are_left_out(tmp_path):
    traced = training(cores=1)
    metadata = traced.named("/host:metadata")
    good = HloProgram()
    good.buffers.allocations.add(size=1000, is_parameter=True)
    good.buffers.allocations.add(size=300).assigned.add(logical_buffer_id=1)
    good.buffers.logical_buffers.add(id=1, size=250).defined_at.instruction_id = 5
    good.module.computations.add().instructions.add(id=5, name="dot.1")
    for name, raw in (("jit_good(42)", good.SerializeToString()), ("jit_bad(43)", b"\xff\xff"), ("odd", b"")):
        number = metadata.event_id(name)
        metadata.put(metadata.plane.event_metadata[number].stats, {"Hlo Proto": raw})
    (program,) = section(saved(tmp_path, traced), "memory")["programs"]
    assert program["name"] == "jit_good"
    assert (program["arguments_bytes"], program["temporary_bytes"]) == (1000, 300)
    assert program["largest"] == [{"name": "dot.1", "path": "", "kind": "temporary", "size_bytes": 250}]


def program_with(*allocations, events=(), instructions=("a", "b", "c", "d")):
    """A program's HLO: allocations of (kind, numbers of their buffers), and the events of one simulation of HBM.

    Buffer i is made by instruction i, and has 100 * (i + 1) bytes.
    """
    hlo = HloProgram()
    computation = hlo.module.computations.add()
    for i, name in enumerate(instructions):
        computation.instructions.add(id=i, name=name)
        hlo.buffers.logical_buffers.add(id=i, size=100 * (i + 1)).defined_at.instruction_id = i
    for said, numbers in allocations:
        allocation = hlo.buffers.allocations.add(size=sum(100 * (i + 1) for i in numbers), **said)
        for i in numbers:
            allocation.assigned.add(logical_buffer_id=i)
    if events:
        simulation = hlo.buffers.simulations.add()
        for kind, number, *shared in events:
            name = instructions[number] if number < len(instructions) else ""
            event = simulation.events.add(kind=kind, logical_buffer_id=number, instruction_name=name)
            event.shared_buffer_id = shared[0] if shared else 0
    return hlo


def schedule_of(hlo, directory):
    traced = training(cores=1)
    metadata = traced.named("/host:metadata")
    number = metadata.event_id("jit_f(42)")
    metadata.put(metadata.plane.event_metadata[number].stats, {"Hlo Proto": hlo.SerializeToString()})
    (program,) = section(saved(directory, traced), "memory")["programs"]
    return program["schedule"]


ALLOCATE, RELEASE, SHARE = HeapEvent.ALLOCATE, HeapEvent.RELEASE, HeapEvent.SHARE
ARGUMENT = ({"is_parameter": True}, [0])
TEMPORARY = ({}, [1, 2, 3])


def test_memory_over_a_schedule(tmp_path):
    """Buffer 3 goes on in the memory of buffer 2, whose release frees nothing then."""
    events = [
        (ALLOCATE, 1), (ALLOCATE, 2), (RELEASE, 1), (SHARE, 3, 2), (RELEASE, 2), (ALLOCATE, 1), (RELEASE, 3),
        (RELEASE, 1),
    ]  # fmt: skip
    found = schedule_of(program_with(ARGUMENT, TEMPORARY, events=events), tmp_path)
    assert found["temporary_bytes"] == [200, 500, 300, 300, 300, 500, 200, 0]
    assert (found["lasting_bytes"], found["peak_bytes"], found["peak_at"], found["changes"]) == (100, 600, "c", 8)
    assert [(each["name"], each["kind"], each["size_bytes"]) for each in found["at_peak"]] == [
        ("c", "temporary", 300), ("b", "temporary", 200), ("a", "argument", 100),
    ]  # fmt: skip


def test_a_buffer_that_takes_over_released_memory_is_named_at_the_peak(tmp_path):
    events = [(ALLOCATE, 2), (RELEASE, 2), (SHARE, 3, 2), (ALLOCATE, 1)]
    found = schedule_of(program_with(TEMPORARY, events=events), tmp_path)
    assert found["temporary_bytes"] == [300, 0, 300, 500]
    assert {each["name"] for each in found["at_peak"]} == {"d", "b"}


def test_a_program_without_temporary_buffers_needs_no_schedule(tmp_path):
    found = schedule_of(program_with(ARGUMENT), tmp_path)
    assert (found["peak_bytes"], found["peak_at"], found["changes"], found["temporary_bytes"]) == (100, None, 0, [])


@pytest.mark.parametrize("events", [(), [(ALLOCATE, 77)], [(ALLOCATE, 0)]], ids=["none", "unknown", "on the chip"])
def test_temporary_buffers_whose_schedule_is_not_told_have_none(events, tmp_path):
    on_the_chip = ({"color": 1}, [0])
    assert schedule_of(program_with(on_the_chip, TEMPORARY, events=events), tmp_path) is None


def test_odd_schedules_have_an_end_and_never_less_than_nothing(tmp_path):
    """Buffers that share with each other and with themselves, are released too often, or are none."""
    events = [(SHARE, 1, 2), (SHARE, 2, 1), (SHARE, 3, 3), (RELEASE, 2), (SHARE, 77, 1), (ALLOCATE, 88), (RELEASE, 0)]
    events += [(RELEASE, 3)] * 3
    found = schedule_of(program_with(TEMPORARY, events=events), tmp_path)
    assert min(found["temporary_bytes"]) == 300
    assert found["temporary_bytes"][-1] == 300
    assert found["peak_bytes"] == 700


def test_a_long_schedule_is_drawn_by_its_peaks(tmp_path):
    """And is shown as a graph, in text and on the page."""
    events = [each for _ in range(1500) for each in ((ALLOCATE, 1), (RELEASE, 1))]
    events[1501:1501] = [(ALLOCATE, 3)]
    found = schedule_of(program_with(TEMPORARY, events=events), tmp_path)
    assert (found["changes"], len(found["temporary_bytes"]), max(found["temporary_bytes"])) == (3001, 1000, 600)
    pages = report(capture_of([tmp_path / "host-0.xplane.pb"]), ("memory",), Choice()).pages
    graph = plain_text.render(pages, 80).partition("Device memory over the schedule of jit_f(42)")[2]
    assert graph.partition("\n\n")[0].count("▁") > 10
    page = html(pages, "t")
    assert "Device memory over the schedule of jit_f(42)" in page
    assert "HBM" not in page
    assert "The largest buffers at the peak of a program" in page


def test_the_environment_says_how_the_profile_was_taken(tmp_path):
    traced = training(name="tpu-w-0")
    options = ProfileOptions(host_tracer_level=2, device_type=ProfileOptions.TPU)
    options.advanced_configuration["tpu_num_chips_to_profile_per_task"].int64_value = 1
    environment = traced.named("Task Environment")
    environment.put(
        environment.plane.stats,
        {
            "profile_start_time": 1_700_000_000 * 10**9,
            "profile_stop_time": 1_700_000_001 * 10**9,
            "profile_options": options.SerializeToString(),
        },
    )
    metadata = traced.named("/host:metadata")
    metadata.put(metadata.plane.stats, {"jax_version": "0.10.0"})
    (host,) = section(saved(tmp_path, traced), "environment")["hosts"]
    assert host["versions"] == {"jax_version": "0.10.0"}
    assert host["duration_s"] == 1
    assert host["options"]["device_type"] == "TPU"
    assert host["options"]["tpu_num_chips_to_profile_per_task"] == "1"


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (["x.pb", "--section", "nothing"], "--section nothing: choose one of overview, ops"),
        (["x.pb", "--output", "xml"], "--output xml: choose one of text, markdown"),
        (["x.pb", "--service-addr", "h:1"], "of files or of workers"),
        ([], "requires FILE"),
        (["x.pb", "--fail-above", "5%"], "requires --against"),
        (["x.pb", "--against", "y.pb", "--fail-above", "much"], "give a share, such as 5%"),
        (["x.pb", "--against", "y.pb", "--fail-above", "5"], "--fail-above 5: give a share, .*; for percent, write 5%"),
        (["x.pb", "--against", "y.pb", "--section", "ops"], "leave out --section"),
    ],
)
def test_what_makes_no_sense_is_refused(argument, words):
    with pytest.raises(UsageError, match=words):
        command_of(["report", *argument])


def test_markdown_shows_names_as_they_are(tmp_path):
    traced = Traced()
    traced.core(0).event("XLA Ops", Op("a|b*c*<b>`_x_", "loop|fusion"), 100, 50)
    made = report(capture_of(saved(tmp_path, traced)), ("ops",), Choice())
    shown = markdown(made.pages)
    assert "a\\|b\\*c\\*\\<b\\>\\`\\_x\\_" in shown
    tables = [line for line in shown.splitlines() if line.startswith("|")]
    bars = {len(re.findall(r"(?<!\\)\|", line)) for line in tables[:3]}
    assert len(bars) == 1


def test_markdown_is_what_it_was(golden, tmp_path):
    made = report(capture_of(saved(tmp_path, training(name="tpu-w-0"))), ("overview", "steps"), Choice(top=5))
    golden.check("report/report.md", markdown(made.pages))


def test_a_truncated_trace_says_so_in_every_section(tmp_path, capsys):
    traced = training(cores=2, steps=12)
    traced.space.warnings.append("The trace buffers are full: device events were dropped.")
    Plane(traced.space.planes[0]).event("XLA TraceMe", "Trace Buffers Dropped", 15_000, 10)
    files = saved(tmp_path, traced)
    assert capture_of(files).figures.truncated
    status, found, _ = printed(capsys, *files, sections=tuple(SECTIONS), output="text")
    assert status == 0
    assert found.count("the trace is truncated") >= len(SECTIONS)


def test_impossible_numbers_are_absent(tmp_path, capsys):
    traced = training(cores=1)
    core, host = (Plane(plane) for plane in traced.space.planes)
    for stat in core.plane.stats:
        if stat.metadata_id == core.stat_id("peak_hbm_bw_gigabytes_per_second"):
            stat.double_value = 1e300
    host.line("allocator", timestamp_ns=1 << 62)
    host.event("allocator", "MemoryAllocation", 100, 1, index_on_host=0, bytes_allocated=5, fragmentation=1e999)
    _, found, _ = printed(capsys, *saved(tmp_path, traced), sections=tuple(SECTIONS))
    assert found["memory"]["memories"][0]["peak_bytes"] == 5
    assert found["environment"]["peak_hbm_rate"] is None


def test_every_kind_of_time_is_in_one_part_of_a_step():
    """Otherwise the parts of a core's step would not add up to it."""
    every = [category for categories in _PARTS_OF.values() for category in categories]
    assert sorted(every) == sorted(Category)


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize(("output", "sections"), [("text", ("overview",)), ("html", ("ops",))])
def test_a_report_begins_with_date_verdict_and_findings(tmp_path, capsys, output, sections, dated):
    """For people; a page does so whatever its sections."""
    traced = training(cores=1)
    if dated:
        task = traced.named("Task Environment")
        task.put(
            task.plane.stats, {"profile_start_time": 1_795_545_000 * 10**9, "profile_stop_time": 1_795_545_001 * 10**9}
        )
    _, found, _ = printed(capsys, *saved(tmp_path, traced), output=output, sections=sections)
    text = re.sub(r"<[^>]*>|=+", " ", found.partition("<main>")[2] or found)
    words, date = " ".join(text.split()), "2026-11-24 18:30:00" if dated else "n/a"
    assert words.startswith(f"Verdict Profile Taken (UTC) {date} Verdict input-bound: ")
    first, _, rest = words.partition(" Findings critical input-bound: ")
    assert "Operations" not in first
    assert "To do:" in rest


def test_sections_alone_say_no_verdict(tmp_path, capsys):
    _, found, _ = printed(capsys, *saved(tmp_path, training(cores=1)), output="text", sections=("ops",))
    assert found.startswith("Operations\n")


@pytest.mark.parametrize("env", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}], ids=str)
def test_a_terminal_without_block_characters_gets_others(env, tmp_path):
    """Python writes UTF-8 in the C locale, too, although that asks for ASCII."""
    files = [str(file) for file in saved(tmp_path, training(cores=2))]
    done = tpumon("report", *files, "--section", "steps", env=env).ended(0)
    assert done.out.isascii()
    assert "us mean" in done.out
    assert "?" not in done.out
    assert "####" in done.out
