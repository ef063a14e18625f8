"""The tables of `tpumon report` are those of XProf 2.24.2: on a real trace, the simulator's, and ones made for it.

What differs is in docs/report.md, with the reason; each difference has its test here.
"""

from __future__ import annotations

import pytest

from support import REPOSITORY, require
from support.captures import megacore, nested, pallas, saved, section, sparse, training
from support.xprof import open_with_xprof
from tpumon.simulator.scenario import SECOND, Job
from tpumon.simulator.topology import parse_topology
from tpumon.simulator.trace import TraceOptions, build_trace

REAL = REPOSITORY.parent / "shared" / "data" / "tpu_v6e_4chip_host_offload.xplane.pb"
FULL = 1e-9
GIB = 1 << 30
BOUND = {"Compute": "compute", "Unknown": None}


def real(_directory):
    require(REAL.exists(), f"the real trace {REAL.name}")
    return [REAL]


def simulated(topology, scenario="steady"):
    def write(directory):
        job = Job(topology=parse_topology(topology), scenario=scenario, seed=4)
        files = []
        for worker in range(job.topology.hosts):
            trace = build_trace(
                job,
                worker,
                start_ns=3 * SECOND,
                stop_ns=4 * SECOND,
                epoch_unix_ns=1_700_000_000 * SECOND,
                options=TraceOptions(),
            )
            files.append(directory / f"{worker}.xplane.pb")
            files[-1].write_bytes(trace.xspace)
        return files

    return write


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
    "SparseCores": made(sparse),
    "custom calls": made(pallas),
}


@pytest.fixture(scope="module", params=TRACES)
def files(request, tmp_path_factory):
    return TRACES[request.param](tmp_path_factory.mktemp("traces"))


def hlo_rows(files):
    table = open_with_xprof(files, "hlo_stats")
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
