"""`tpumon report`: sections, choices, what is printed, and what becomes of files that cannot be read."""

from __future__ import annotations

import json

import pytest

from support.captures import Choice, capture_of, nested, saved, section, training
from support.traces import CONV, Op, Plane, Traced
from tpumon.commands.report import ReportSettings, run
from tpumon.report.render import text
from tpumon.report.table import SECTIONS, report

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
    assert overview["findings"] == []


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
    assert op["bound_by"] == "compute"


def test_names_are_made_safe(tmp_path):
    traced = Traced()
    traced.core(0).event("XLA Ops", Op("\x1b[31mred\x07" + "x" * 5000, "\x1b]0;t\x07fusion"), 100, 50)
    files = saved(tmp_path, traced)
    (op,) = section(files, "ops")["ops"]
    assert op["name"].startswith("redxxx")
    assert len(op["name"]) <= 200
    assert op["category"] == "fusion"
    made = report(capture_of(files), tuple(SECTIONS), Choice())
    assert "\x1b" not in text.render(made.pages, 80)


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
    shown = text.render(made.pages, width)
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
    assert report(capture_of(files), tuple(SECTIONS), Choice()).pages
