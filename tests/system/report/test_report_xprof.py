"""The tables of `tpumon report` are those of XProf 2.24.2: on a real trace, the simulator's, and ones made for it.

What differs is in docs/report.md, with the reason; each difference has its test here.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from support.captures import (
    BETWEEN_SLICES_US,
    SHARDED,
    capture_of,
    megacore,
    nested,
    on_gpus,
    pallas,
    real_trace,
    saved,
    section,
    sharded,
    simulated_session,
    sparse,
    training,
    with_input,
    with_memory,
)
from support.xprof import host_events, open_tools, open_with_xprof, rows_of, same_schedules
from tpumon.simulator.scenario import SECOND, SimulatedJob
from tpumon.simulator.topology import parse_topology
from tpumon.xspace.profile.step_times import step_table

FULL = 1e-9
GIB = 1 << 30
BOUND = {"Compute": "compute", "Unknown": None}


def real(_directory):
    return [real_trace()]


def simulated(topology, scenario="steady"):
    job = SimulatedJob(topology=parse_topology(topology), scenario=scenario, seed=4)
    return lambda directory: simulated_session(directory, job, start_ns=3 * SECOND)


def made(*builders):
    return lambda directory: saved(directory, *(build() for build in builders))


TRACES = {
    "real v6e": real,
    "simulated": simulated("v5e-8"),
    "simulated, two hosts": simulated("v4-16", "straggler"),
    "training": made(training),
    "loops, fusions and two programs": made(nested),
    "megacore": made(megacore),
    "two hosts": made(lambda: training(name="a"), lambda: training(name="b", slower=1.5)),
    "collectives of every kind": made(sharded),
    "SparseCores": made(sparse),
    "custom calls": made(pallas),
}


@pytest.fixture(scope="module", params=TRACES)
def files(request, tmp_path_factory):
    return TRACES[request.param](tmp_path_factory.mktemp("traces"))


TOOLS = ("hlo_stats", "roofline_model", "pod_viewer", "input_pipeline_analyzer")


@cache
def all_in_xprof(files):
    return dict(zip(TOOLS, open_tools(files, TOOLS), strict=True))


def in_xprof(files, tool):
    """What it shows there, by one process of each trace."""
    return all_in_xprof(tuple(files))[tool]


def hlo_rows(files):
    table = in_xprof(files, "hlo_stats")
    names = [column["id"] for column in table["cols"]]
    return [{name: cell.get("v") for name, cell in zip(names, row["c"], strict=True)} for row in table["rows"]]


def claims(op):
    """Whether FLOPs and bytes of an op are told by its events alone, which XProf 2.24.2 leaves out."""
    return op["category"] == "custom-call"


def test_ops_are_those_of_hlo_stats(files):
    """Every op with all of its numbers."""
    ours = section(files, "ops")
    theirs = hlo_rows(files)
    assert len(theirs) == len(ours["ops"]) == ours["count"] > 3
    found = {(row["name"], row["program"].rpartition("(")[2].rstrip(")")): row for row in ours["ops"]}
    for row in theirs:
        op = found[row["hlo_op_name"], row["program_id"]]
        assert op["category"] == row["category"]
        assert op["occurrences"] == row["occurrences"]
        assert 1e6 * op["time_s"] == pytest.approx(row["total_time"], rel=FULL)
        assert 1e6 * op["self_time_s"] == pytest.approx(row["total_self_time"], rel=FULL, abs=1e-9)
        assert 100 * op["time_ratio"] == pytest.approx(row["total_self_time_percent"], rel=FULL, abs=1e-12)
        assert op["provenance"] == row["tf_op_name"].removesuffix(":")
        assert op["source"] in row["source_info"]
        if claims(op):
            continue
        assert op["flops_rate"] / 1e9 == pytest.approx(row["normalized_flop_rate"], rel=FULL)
        assert op["model_flops"] / op["time_s"] / 1e9 == pytest.approx(row["model_flop_rate"], rel=FULL)
        assert op["bytes_accessed"] / op["time_s"] / GIB == pytest.approx(row["measured_memory_bw"], rel=FULL)
        assert op["operational_intensity"] == pytest.approx(row["operational_intensity"], rel=FULL)
        if op["hbm_bytes"] or not op["bytes_accessed"]:
            assert op["hbm_rate"] / GIB == pytest.approx(row["hbm_bw"], rel=FULL)
            assert op["bound_by"] == BOUND.get(row["bound_by"], row["bound_by"])
        else:
            # None of the bytes are of HBM, says the trace; XProf's table takes all of them to be.
            assert (op["hbm_rate"], op["bound_by"], row["bound_by"]) == (0, None, "HBM")


def test_rooflines_are_those_of_the_roofline_model(files):
    """XProf says 0 where nothing is known, and thousands of percent of a copy that is only started."""
    peaks, *_ = in_xprof(files, "roofline_model")
    names = [column["id"] for column in peaks["cols"]]
    rows = [{name: cell.get("v") for name, cell in zip(names, row["c"], strict=True)} for row in peaks["rows"]]
    found = {
        (row["operation"], row["hlo_module_id"]): row
        for row in rows
        if (row["step"], row["include_infeed_outfeed"]) == ("Total", True) and row["category"] != "Program"
    }
    ours = section(files, "ops")["ops"]
    assert len(found) == len(ours)
    for op in ours:
        row = found[op["name"], op["program"].rpartition("(")[2].rstrip(")")]
        if claims(op) or (op["bytes_accessed"] and not op["hbm_bytes"]):
            continue  # as in the table of operations
        assert (op["optimal_flops_rate"] or 0) / 1e9 == pytest.approx(row["optimal_flop_rate"], rel=1e-6)
        assert (op["efficiency_ratio"] or 0) == pytest.approx(min(row["roofline_efficiency"], 1), rel=1e-6)


def test_kernels_and_ops_of_gpus_are_those_of_kernel_stats(tmp_path):
    """Of one host; XProf lists those of several one after the other."""
    files = saved(tmp_path, on_gpus())
    table = open_with_xprof(files, "kernel_stats")
    names = [column["id"] for column in table["cols"]]
    rows = [{name: cell.get("v") for name, cell in zip(names, row["c"], strict=True)} for row in table["rows"]]
    ours = {(kernel["name"], kernel["provenance"]): kernel for kernel in section(files, "ops")["kernels"]}
    assert len(rows) == len(ours) == 5
    for row in rows:
        kernel = ours[row["kernel_name"], row["op_name"]]
        assert kernel["registers"] == row["registers_per_thread"]
        assert kernel["shared_bytes"] == row["shmem_bytes"]
        assert (kernel["block"], kernel["grid"]) == (row["block_dim"], row["grid_dim"])
        assert 100 * kernel["occupancy_ratio"] == row["occupancy_pct"]
        assert kernel["occurrences"] == row["occurrences"]
        for ours_s, theirs in (("time_s", "total"), ("avg_s", "avg"), ("min_s", "min"), ("max_s", "max")):
            assert 1e6 * kernel[ours_s] == pytest.approx(row[f"{theirs}_duration_us"], rel=1e-6)
    ops = {op["provenance"]: op for op in section(files, "ops")["gpu_ops"]}
    assert ops.keys() == {row["op_name"] for row in rows}
    for name, op in ops.items():
        its = [row for row in rows if row["op_name"] == name]
        assert (op["kernels"], op["occurrences"]) == (len(its), sum(row["occurrences"] for row in its))
        assert 1e6 * op["time_s"] == pytest.approx(sum(row["total_duration_us"] for row in its), rel=1e-6)


def test_rows_of_the_host_are_those_of_framework_op_stats(tmp_path):
    """XProf's are those events alone whose names are a framework op's, "name:type", and of idle time."""
    files = saved(tmp_path, with_input(marked=False))
    table, _ = open_with_xprof(files, "framework_op_stats")
    names = [column["id"] for column in table["cols"]]
    rows = [{name: cell.get("v") for name, cell in zip(names, row["c"], strict=True)} for row in table["rows"]]
    theirs = {row["operation"]: row for row in rows if row["host_or_device"] == "Host"}
    idle = theirs.pop("IDLE")
    host = section(files, "ops")["host"]
    ours = {op["name"] if "::" in op["name"] else op["name"].partition(":")[0]: op for op in host["ops"]}
    assert ours.keys() == theirs.keys()
    assert len(ours) == host["count"] == 6
    for name, row in theirs.items():
        op = ours[name]
        assert op["occurrences"] == row["occurrences"]
        assert 1e6 * op["time_s"] == pytest.approx(row["total_time"], rel=FULL)
        assert 1e6 * op["self_time_s"] == pytest.approx(row["total_self_time"], rel=FULL)
        assert op["time_ratio"] == pytest.approx(row["host_total_self_time_percent"], rel=FULL)
    assert 1e6 * (host["total_time_s"] - host["busy_s"]) == pytest.approx(idle["total_self_time"], rel=FULL)


def test_rows_of_the_host_are_the_events_of_the_trace_viewer():
    """All of them, each thread's events nested as a stack holds them."""
    self_us, times_us, count = Counter(), Counter(), Counter()
    threads = {}
    for event in host_events(real_trace()):
        threads.setdefault(event["tid"], []).append(
            (event["ts"], -event.get("dur", 0), " ".join(event["name"].split()))
        )
    for events in threads.values():
        stack = []
        for begin_us, minus_us, name in sorted(events):
            while stack and stack[-1][1] < begin_us - minus_us - 1e-4:
                stack.pop()
            if stack:
                self_us[stack[-1][0]] += minus_us
            stack.append((name, begin_us - minus_us))
            self_us[name] -= minus_us
            times_us[name] -= minus_us
            count[name] += 1
    rows = section([real_trace()], "ops")["host"]["ops"]
    ours = {op["name"]: op for op in rows if not op["name"].startswith("Memory")}
    assert {name: op["occurrences"] for name, op in ours.items()} == count
    for name, op in ours.items():
        assert 1e6 * op["time_s"] == pytest.approx(times_us[name], abs=1e-2), name
        assert 1e6 * op["self_time_s"] == pytest.approx(self_us[name], abs=1e-2), name


def nodes(files, group_by):
    tree = open_with_xprof(files, "op_profile", options={"group_by": group_by})
    return tree[f"by{group_by.capitalize()}"]


def same_work(ours, theirs, root):
    """The numbers of a node of the op profile; its utilization is stored times its share of the time."""
    metrics = theirs["metrics"]
    assert ours["self_time_s"] * 1e12 == pytest.approx(metrics["rawTime"], rel=FULL)
    assert ours["flops"] == pytest.approx(metrics["bf16Flops"], rel=FULL)
    share = metrics["rawTime"] / root["metrics"]["rawTime"]
    assert ours["time_ratio"] == pytest.approx(share, rel=FULL)
    assert ours["flops_utilization_ratio"] * share == pytest.approx(metrics["flops"], rel=1e-6, abs=1e-15)
    assert (ours["hbm_utilization_ratio"] or 0) == pytest.approx(metrics["bandwidthUtils"][0], rel=1e-6, abs=1e-15)


def has_loops(files):
    return any(op["time_s"] > op["self_time_s"] for op in section(files, "ops")["ops"])


def has_claims(files):
    return any(claims(op) and op["flops"] for op in section(files, "ops")["ops"])


def test_programs_are_those_of_the_op_profile(files):
    ours = section(files, "ops")
    root = nodes(files, "program")
    theirs = [node for node in root["children"] if node["name"] != "IDLE"]
    assert len(theirs) == len(ours["by_program"])
    assert ours["total_time_s"] * 1e12 == pytest.approx(root["metrics"]["rawTime"], rel=FULL)
    idle = [node for node in root["children"] if node["name"] == "IDLE"]
    assert ours["idle_s"] * 1e12 == pytest.approx(sum(node["metrics"]["rawTime"] for node in idle), rel=FULL, abs=1)
    if has_claims(files):
        return
    for own in ours["by_program"]:
        # XProf knows names of programs from HLO protos only, and calls those without one "main".
        node = next(
            node
            for node in theirs
            if node["name"] == own["name"] or node["metrics"]["rawTime"] == round(own["self_time_s"] * 1e12)
        )
        assert node["name"] in {own["name"], "main"}
        same_work(own, node, root)


def test_categories_are_those_of_the_op_profile(files):
    """XProf leaves ops that others ran in out of its categories; their own time is here in theirs."""
    ours = {row["name"]: row for row in section(files, "ops")["by_category"]}
    root = nodes(files, "category")
    theirs = {node["name"]: node for node in root["children"] if node["name"] != "IDLE"}
    loops = {op["category"] for op in section(files, "ops")["ops"] if op["time_s"] > op["self_time_s"]}
    assert theirs.keys() == ours.keys() - loops
    for name, node in theirs.items():
        if name != "custom-call":
            same_work(ours[name], node, root)
            assert ours[name]["occurrences"] == node["metrics"]["occurrences"]


def test_duplicates_are_those_of_the_op_profile(files):
    """XProf lists ten operations of a category at most."""
    ours = {f"{group['name']} and its duplicate(s)": group for group in section(files, "ops")["groups"]}
    root = nodes(files, "program")
    theirs = {
        node["name"]: node
        for program in root["children"]
        for category in program.get("children", [])
        for node in category.get("children", [])
        if node["name"].endswith("duplicate(s)")
    }
    assert theirs.keys() == ours.keys()
    for name, node in theirs.items():
        same_work(ours[name], node, root)


def test_paths_are_those_of_the_op_profile(files):
    """XProf makes a tree for each program; here one is shown for all of them."""
    ours = {node["path"]: node for node in section(files, "ops")["by_provenance"]}
    root = nodes(files, "provenance")
    times_ps: dict[str, float] = {}

    def walk(node, path):
        for child in node.get("children", []):
            here = f"{path}/{child['name']}".removeprefix("/")
            if here in ours:
                times_ps[here] = times_ps.get(here, 0) + child["metrics"]["rawTime"]
                walk(child, here)

    for program in root["children"]:
        walk(program, "")
    assert times_ps.keys() == ours.keys() - {"(not in the trace)"}
    for path, time_ps in times_ps.items():
        assert ours[path]["self_time_s"] * 1e12 == pytest.approx(time_ps, rel=FULL)


def test_claims_of_custom_calls_are_those_of_their_events(tmp_path):
    """XProf 2.24.2 shows no FLOPs where 2.23.1 adds up what the events say, and so does the report."""
    (op,) = [op for op in section(saved(tmp_path, pallas()), "ops")["ops"] if claims(op)]
    assert op["flops"] == 3 * 5_000_000_000
    assert op["model_flops"] == 3 * 4_000_000_000
    assert op["hbm_bytes"] == 0


def test_steps_are_those_of_the_pod_viewer(files):
    """Each core's step and its parts.

    XProf takes each core's step to be as long as the longest on its host, the difference being idle; counts what is
    sent to the host as output, what is received as input, also on the way from another slice; async-done as device to
    device; and of the collectives all but all-reduce, all-to-all, send and receive as compute.
    """
    pods = in_xprof(files, "pod_viewer")["podStatsSequence"]["podStatsMap"]
    table = step_table([host.profile.trace for host in capture_of(files, "steps").hosts], ())
    if table.source != "steps":
        assert not pods
        return
    assert len(pods) == len(table.durations_s)
    shown = section(files, "steps")["cores"]
    assert [core["step_parts_s"] for core in shown] == [
        {name: list(times_s) for name, times_s in core.parts_s.items()} for core in table.cores
    ]
    categories = categories_of(files)
    waited_us = 30 if "async-done" in categories else -sum(SHARDED.values()) if "all-gather" in categories else 0
    between_us = between_slices_us(categories)
    for i, pod in enumerate(pods):
        longest_s = [
            max(core.durations_s[i] for core in table.cores if core.host == host) for host in range(len(files))
        ]
        theirs = sorted(record_of(record) for record in pod["podStatsPerCore"].values())
        ours = sorted(record_of_ours(core, i, longest_s[core.host]) for core in table.cores)
        assert len(ours) == len(theirs)
        for own, record in zip(ours, theirs, strict=True):
            assert own[0] == pytest.approx(record[0], rel=1e-6, abs=1e-6)
            assert own[1] + between_us == pytest.approx(record[1], rel=1e-6, abs=1e-6)
            assert own[2] == pytest.approx(record[2], rel=1e-6, abs=1e-6)
            assert own[3] + waited_us - between_us == pytest.approx(record[3], rel=1e-6, abs=1e-6)
            assert own[4] - waited_us == pytest.approx(record[4], rel=1e-6, abs=1e-6)


def categories_of(files):
    return {op["category"] for op in section(files, "ops")["ops"]}


def between_slices_us(categories):
    """Time of a step that is a transfer from the host in XProf, and in ours a collective."""
    return BETWEEN_SLICES_US if "all-gather" in categories else 0


def record_of_ours(core, step, longest_s):
    us = {name: 1e6 * times_s[step] for name, times_s in core.parts_s.items()}
    return (
        1e6 * longest_s,
        us["infeed"] + us["outfeed"] + us["host_transfer"],
        us["idle"] + 1e6 * (longest_s - core.durations_s[step]),
        us["collective"] + us["other_wait"],
        us["high_flops_compute"] + us["low_flops_compute"] + us["async_wait"],
    )


def record_of(record):
    """Of XProf's nine kinds: length, input and output, idle, device to device and collectives, compute."""
    us = record["stepBreakdownUs"]
    return (record["totalDurationUs"], us["6"] + us["7"], us["9"], us["3"] + us["2"], us["1"])


def test_input_by_step_is_that_of_the_analyzer(files):
    ours = section(files, "input")
    rows = rows_of(in_xprof(files, "input_pipeline_analyzer"))
    if not ours["steps"]:
        assert not rows
        return
    assert len(rows) == len(ours["steps"])
    between_ms = between_slices_us(categories_of(files)) / 1000
    less = {"compute_s": between_ms, "idle_s": -between_ms, "host_transfer_s": -between_ms}
    for row, step in zip(rows, ours["steps"], strict=True):
        for name, column in (
            ("compute_s", "tcComputeTimeMs"),
            ("infeed_s", "tcInfeedTimeMs"),
            ("outfeed_s", "tcOutfeedTimeMs"),
            ("idle_s", "tcIdleTimeMs"),
            ("host_transfer_s", "hostTransferTimeMs"),
        ):
            assert 1e3 * step[name] - less.get(name, 0) == pytest.approx(row[column], rel=1e-6, abs=1e-6), name
        for name, column in (("avg", "Average"), ("min", "Min"), ("max", "Max")):
            assert 100 * step["infeed_ratio"][name] == pytest.approx(row[f"infeedPercent{column}"], rel=1e-6, abs=1e-6)


def properties(files):
    parts = in_xprof(files, "input_pipeline_analyzer")
    return {name: value for part in parts for name, value in (part.get("p") or {}).items()}


def test_the_verdict_is_that_of_the_analyzer(files):
    ours = section(files, "input")
    sentence = properties(files)["input_conclusion"]
    if ours["verdict"] is None:
        assert sentence.startswith("No step time measured")
        return
    assert f"{ours['verdict'].upper()} input-bound" in sentence
    assert f"{100 * ours['waiting_ratio']:.1f}%" in sentence


def test_the_hosts_side_is_that_of_the_analyzer(tmp_path):
    """Categories as XProf scales them, and each stage."""
    files = saved(tmp_path, with_input())
    ours, shown = section(files, "input"), properties(files)
    for name, time_s in ours["categories_s"].items():
        theirs = shown["unclassified_nonequeue_us" if name == "unclassified" else f"{name}_us"]
        assert 1e6 * time_s == pytest.approx(float(theirs), abs=1e-3), name
    assert ours["categories_s"]["preprocessing"] > 0
    parts = in_xprof(files, "input_pipeline_analyzer")
    table = next(part for part in parts if any(column["id"] == "opName" for column in part["cols"]))
    rows = {row["c"][0]["v"]: [cell["v"] for cell in row["c"]] for row in table["rows"]}
    assert rows.keys() == {stage["name"] for stage in ours["stages"]}
    for stage in ours["stages"]:
        _, count, time_ms, time_ratio, self_ms, self_ratio, category = rows[stage["name"]]
        assert stage["count"] == count
        assert 1e3 * stage["time_s"] == pytest.approx(time_ms, rel=FULL)
        assert stage["time_ratio"] == pytest.approx(time_ratio, rel=FULL)
        assert 1e3 * stage["self_time_s"] == pytest.approx(self_ms, rel=FULL)
        assert stage["self_time_ratio"] == pytest.approx(self_ratio, rel=FULL)
        assert category.lower().replace(" ", "_") == stage["category"]


@pytest.mark.parametrize("trace", [real, made(with_memory)], ids=["real v6e", "two memories"])
def test_memory_is_that_of_the_memory_profile(trace, tmp_path):
    files = trace(tmp_path)
    ours = {use["memory"]: use for use in section(files, "memory")["memories"]}
    theirs = open_with_xprof(files, "memory_profile")["memoryProfilePerAllocator"]
    assert theirs.keys() == ours.keys()
    for memory, use in ours.items():
        summary, points = theirs[memory]["profileSummary"], theirs[memory]["sampledTimelineSnapshots"]
        peak = summary["peakStats"]
        assert use["peak_bytes"] == int(peak["peakBytesInUse"])
        assert use["peak_stack_bytes"] == int(peak["stackReservedBytes"])
        assert use["peak_heap_bytes"] == int(peak["heapAllocatedBytes"])
        assert use["peak_fragmentation"] == pytest.approx(peak["fragmentation"])
        assert use["capacity_bytes"] == int(summary["memoryCapacity"])
        assert use["lifetime_peak_bytes"] == int(summary["peakBytesUsageLifetime"])
        assert use["events"] == len(points) == len(use["times_s"])
        first_ps = int(points[0]["timeOffsetPs"]) - round(1e12 * use["times_s"][0])
        for i, point in enumerate(points):
            stats = point["aggregationStats"]
            assert use["stack_bytes"][i] == int(stats["stackReservedBytes"])
            assert use["heap_bytes"][i] == int(stats["heapAllocatedBytes"])
            assert use["fragmentation"][i] == pytest.approx(stats["fragmentation"])
            assert 1e12 * use["times_s"][i] + first_ps == pytest.approx(int(point["timeOffsetPs"]), rel=1e-9)


def test_memory_over_the_schedule_is_that_of_the_memory_viewer():
    assert same_schedules(real_trace()) == [12, 0, 0, 0]


def test_what_a_fusion_is_made_of_is_that_of_the_op_profile():
    """From the program's HLO."""
    ours = {op["name"]: op["contents"] for op in section([real_trace()], "ops")["ops"]}
    found = {}

    def walk(node):
        for child in node.get("children", []):
            if "_fusion" in child["name"] and not child["name"].endswith("duplicate(s)"):
                found[child["name"]] = sorted(each["name"] for each in child.get("children", []))
            walk(child)

    walk(nodes([real_trace()], "program"))
    assert found == {name: sorted(held) for name, held in ours.items() if "fusion" in name}
    assert found["broadcast_add_fusion"] == ["add.3", "broadcast.7", "constant.8"]


def test_parts_of_periods_add_up_though_ops_run_on_into_the_next():
    """Runs of the real trace overlap the ends of periods: what an op takes of the next one is not idle there."""
    table = step_table([host.profile.trace for host in capture_of([real_trace()], "steps").hosts], ())
    assert len(table.cores) == 4
    for core in table.cores:
        parts_s = sum(sum(times_s) for times_s in core.parts_s.values())
        assert parts_s == pytest.approx(sum(core.durations_s), rel=0.005)
        assert min(core.parts_s["idle"]) >= 0
