"""`tpumon report --against`: what changed between two captures, told from what chance does."""

from __future__ import annotations

import json
import random

import pytest
from msgspec.structs import replace

from support.captures import capture_of, captured, on_gpus, real_trace, saved
from support.traces import US, Op, Plane, Traced, cut
from support.trained import EXTRA, STEP_US, compared, trained
from tpumon.cli.commands.report import ReportSettings, run
from tpumon.proto.xplane_pb2 import XSpace
from tpumon.report import comparison
from tpumon.report.comparison import NEEDED, compare
from tpumon.report.profiles import Choice
from tpumon.report.render import plain_text
from tpumon.report.render.comparison_page import page, verdict
from tpumon.report.sections import report

EVAL = Op("fusion.eval", "loop fusion", flops=5)


def sure(comparison):
    """What changed more than by chance: kind, name and status."""
    return [(each.what, each.name, each.status) for each in comparison.changes if each.noise is False]


def test_one_op_slower_by_a_fifth(tmp_path):
    found = compared(trained(tmp_path / "a"), trained(tmp_path / "b", conv_us=1200))
    assert found.step_time_ratio == pytest.approx((STEP_US + 200) / STEP_US, rel=0.02)
    assert found.step_time_noise is False
    assert sorted(sure(found)) == [
        ("category", "convolution fusion", "slower"),
        ("op", "fusion.1", "slower"),
        ("part", "high_flops_compute", "slower"),
    ]
    (op,) = [each for each in found.changes if each.what == "op" and not each.noise]
    assert op.before_s == pytest.approx(1000e-6, rel=1e-3)
    assert op.per_step_s == pytest.approx(200e-6, rel=1e-2)
    assert (op.program, op.category) == ("jit_train_step", "convolution fusion")


def test_the_number_of_steps_and_of_cores_changes_nothing(tmp_path):
    """A window of two steps with long gaps, and one of many on more cores."""
    few = trained(tmp_path / "a", steps=2, gap_us=2000)
    many = trained(tmp_path / "b", steps=30, cores=4, gap_us=2000)
    found = compared(few, many)
    assert sure(found) == []
    assert all(abs(each.per_step_s) < 0.01 * (each.before_s or 0) for each in found.changes)


def test_a_recompiled_program_has_the_same_ops(tmp_path):
    found = compared(trained(tmp_path / "a"), trained(tmp_path / "b", renamed=True, conv_us=1200))
    assert [(each.name, each.status) for each in found.programs] == [("jit_train_step", "recompiled")]
    assert [each for each in sure(found) if each[0] == "op"] == [("op", "fusion.18", "slower")]
    assert not [each for each in found.changes if each.status in {"new", "gone"}]


def test_a_new_all_reduce(tmp_path):
    before, after = trained(tmp_path / "a"), trained(tmp_path / "b", extra_us=300)
    found = compared(before, after)
    assert sure(found)[:2] == [("category", "all-reduce", "slower"), ("op", "all-reduce.9", "new")]
    (new,) = [each for each in found.changes if each.status == "new"]
    assert (new.before_s, new.after_s) == (None, pytest.approx(300e-6, rel=1e-3))
    (gone,) = [each for each in compared(after, before).changes if each.status == "gone"]
    assert (gone.name, gone.after_s, gone.per_step_s) == ("all-reduce.9", None, pytest.approx(-300e-6, rel=1e-3))


def test_a_new_all_reduce_of_a_recompiled_program(tmp_path):
    """It has the shape and path of the other one, but that is there already."""
    found = compared(trained(tmp_path / "a"), trained(tmp_path / "b", extra_us=80, renamed=True))
    assert [each for each in sure(found) if each[0] == "op"] == [("op", "all-reduce.9", "new")]


def test_a_delay_of_the_input(tmp_path):
    found = compared(trained(tmp_path / "a"), trained(tmp_path / "b", infeed_us=600))
    assert sorted(sure(found)) == [
        ("category", "infeed", "slower"),
        ("op", "infeed.1", "slower"),
        ("part", "infeed", "slower"),
    ]


PERIOD_US = STEP_US + 20


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    ("window_us", "other_us"),
    [
        # The edges are in the convolution, and after it: it ran once less, or once more, than the others.
        ((300, 300 + 4.4 * PERIOD_US), (1300, 1300 + 9.1 * PERIOD_US)),
        ((1300, 1300 + 4.9 * PERIOD_US), (300, 300 + 10.95 * PERIOD_US)),
        ((100, 100 + 3.95 * PERIOD_US), (100, 100 + 12 * PERIOD_US)),
    ],
)
def test_two_windows_of_a_job_that_did_not_change(tmp_path, marked, window_us, other_us):
    before, after = (
        trained(tmp_path / name, steps=20, marked=marked, jitter_us=3, window_us=window, seed=ord(name))
        for name, window in (("a", window_us), ("b", other_us))
    )
    assert sure(compared(before, after)) == []
    assert all(abs(each.per_step_s) < 0.01 * each.before_s for each in compared(before, after).changes)


def test_an_op_and_its_part_change_alike_whatever_the_window(tmp_path):
    before = trained(tmp_path / "a", steps=20, window_us=(300, 300 + 5.4 * PERIOD_US))
    after = trained(tmp_path / "b", steps=20, conv_us=1200, window_us=(1500, 1500 + 10.1 * (PERIOD_US + 200)))
    changes = {each.name: each for each in compared(before, after).changes}
    assert set(changes) == {"fusion.1", "convolution fusion", "high_flops_compute"}
    assert [each.per_step_s for each in changes.values()] == [pytest.approx(200e-6, rel=1e-3)] * 3


def test_a_program_that_runs_now_and_then_is_neither_new_nor_gone(tmp_path):
    """An evaluation in one of the steps of the later window."""
    before, after = (trained(tmp_path / name, marked=False) for name in "ab")
    space = XSpace.FromString(after[0].read_bytes())
    for number in range(2):
        plane = Plane(space.planes[number])
        at_us = 100 + 5 * PERIOD_US + STEP_US
        plane.event("XLA Ops", EVAL, at_us, 15)
        metadata = plane.plane.event_metadata[plane.event_id(EVAL)]
        next(stat for stat in metadata.stats if stat.metadata_id == plane.stat_id("program_id")).int64_value = 77
        plane.event("XLA Modules", "jit_eval(77)", at_us, 15)
    after[0].write_bytes(space.SerializeToString())
    found = compared(before, after)
    assert [(each.name, each.noise) for each in found.changes if each.what == "op"] == [("fusion.eval", True)]
    assert [each.name for each in found.programs] == ["jit_train_step"]


def test_hundred_pairs_that_did_not_change_and_twenty_that_did(tmp_path):
    """Eight steps each; the convolution takes 2 % more or less from step to step."""
    same = [trained(tmp_path / str(i), steps=8, jitter_us=20, seed=i) for i in range(15)]
    captures = [captured(files, NEEDED) for files in same]
    pairs = [(one, other) for i, one in enumerate(captures) for other in captures[:i]]
    assert len(pairs) >= 100
    assert [found for one, other in pairs if (found := sure(compare(one, other, Choice())))] == []
    slower = [
        captured(trained(tmp_path / f"slow{i}", steps=8, jitter_us=20, conv_us=1100, seed=100 + i), NEEDED)
        for i in range(4)
    ]
    found = [sure(compare(one, other, Choice())) for one in captures[:5] for other in slower]
    assert [("op", "fusion.1", "slower") in each for each in found] == [True] * 20


def real_windows(directory, ratio=1.0):
    """Captures of several lengths, beginning and ending anywhere, of the steps of 0.784 s of a real trace.

    Args:
        ratio: how long copy-done.2 takes, of what it took.
    """
    space = XSpace.FromString(real_trace().read_bytes())
    lines = [line for plane in space.planes for line in plane.lines if line.name == "XLA Ops" and line.events]
    begin_us = min(line.timestamp_ns / 1000 + line.events[0].offset_ps / US for line in lines)
    for plane in space.planes:
        changed = {number for number, each in plane.event_metadata.items() if each.display_name == "copy-done.2"}
        clock = {number for number, each in plane.stat_metadata.items() if each.name == "device_duration_ps"}
        for event in (event for line in plane.lines for event in line.events if event.metadata_id in changed):
            event.duration_ps = round(event.duration_ps * ratio)
            for stat in event.stats:
                if stat.metadata_id in clock:
                    stat.uint64_value = round(stat.uint64_value * ratio)
    for i, (first_s, length_s) in enumerate([(14.3, 4), (19.1, 7.3), (27, 13), (41.2, 26), (68, 8.7)]):
        part = XSpace()
        part.CopyFrom(space)
        cut(part, begin_us + 1e6 * first_s, begin_us + 1e6 * (first_s + length_s))
        directory.mkdir(exist_ok=True)
        file = directory / f"{i}.xplane.pb"
        file.write_bytes(part.SerializeToString())
        yield captured([file], NEEDED)


def test_windows_of_a_real_job(tmp_path):
    captures = list(real_windows(tmp_path / "a"))
    for after in captures:
        for before in captures:
            found = compare(before, after, Choice())
            assert (found.per, sure(found), found.step_time_noise) == ("step", [], True)
    for after in real_windows(tmp_path / "b", 0.9):
        for before in captures:
            found = compare(before, after, Choice())
            assert [each for each in sure(found) if each[0] == "op"] == [("op", "copy-done.2", "faster")]


def test_what_chance_does_is_noise(tmp_path):
    """Two windows of one job whose convolution takes some 15 % more or less from step to step."""
    before, after = (trained(tmp_path / str(seed), jitter_us=150, seed=seed) for seed in (1, 2))
    found = compared(before, after)
    assert found.step_time_ratio != 1
    assert sure(found) == []
    assert any(each.noise for each in found.changes)
    assert found.exceeds(0.0) is False
    # The same difference of means is more than chance where steps hardly differ.
    slower_us = 1000 * found.step_time_ratio * STEP_US / 1000 - STEP_US
    steady = compared(trained(tmp_path / "c"), trained(tmp_path / "d", conv_us=1000 + abs(slower_us) + 40))
    assert ("op", "fusion.1", "slower") in sure(steady)


def test_steps_that_take_far_longer_are_told_however_uneven_they_are():
    """Means of 35 and 99 ms, of 140 and 48 steps; of two windows of one such job hardly one pair of 2,000 differs."""

    def taken(count, mean_s, deviation_s):
        shape = (mean_s / deviation_s) ** 2
        return [chance.gammavariate(shape, mean_s / shape) for _ in range(count)]

    chance = random.Random(5)
    told = [
        comparison._is_noise(taken(140, 0.035, 0.012), taken(48, 0.099, 0.049), comparison._SIGMAS_OF_STEPS)
        for _ in range(200)
    ]
    assert told.count(False) > 160
    same = [
        comparison._is_noise(taken(48, 0.099, 0.049), taken(48, 0.099, 0.049), comparison._SIGMAS_OF_STEPS)
        for _ in range(2000)
    ]
    assert same.count(False) <= 2


def test_what_is_below_a_percent_is_noise_however_sure(tmp_path):
    found = compared(trained(tmp_path / "a"), trained(tmp_path / "b", conv_us=1005))
    assert found.step_time_ratio == pytest.approx((STEP_US + 5) / STEP_US)
    assert found.step_time_noise is True
    assert {each.noise for each in found.changes} == {True}
    assert "op" in {each.what for each in found.changes}


def test_an_op_that_runs_only_outside_of_steps_is_gone_from_them(tmp_path):
    before, after = trained(tmp_path / "a", extra_us=50), trained(tmp_path / "b")
    space = XSpace.FromString(after[0].read_bytes())
    for core in space.planes[:2]:
        Plane(core).event("XLA Ops", EXTRA, 20_000, 40)
    after[0].write_bytes(space.SerializeToString())
    (change,) = [each for each in compared(before, after).changes if each.name == EXTRA.name]
    assert (change.status, change.after_s) == ("gone", None)


def test_a_single_step_cannot_tell(tmp_path):
    found = compared(trained(tmp_path / "a", steps=1), trained(tmp_path / "b", steps=1, conv_us=1500))
    assert found.step_time_noise is None
    assert {each.noise for each in found.changes if abs(each.per_step_s) > 1e-4} == {None}
    assert found.exceeds(0.05) is True


def test_runs_of_a_program_are_steps_without_markers(tmp_path):
    before, after = (trained(tmp_path / n, marked=False, conv_us=us) for n, us in (("a", 1000), ("b", 1300)))
    found = compared(before, after)
    assert found.per == "step"
    (op,) = [each for each in found.changes if each.what == "op" and each.noise is False]
    assert (op.name, op.before_s) == ("fusion.1", pytest.approx(1000e-6, rel=1e-2))


def test_without_steps_times_are_per_second(tmp_path):
    before, after = (trained(tmp_path / n, steps=1, marked=False, conv_us=us) for n, us in (("a", 1000), ("b", 3000)))
    found = compared(before, after)
    assert (found.per, found.step_time_ratio) == ("second", None)
    assert found.exceeds(0.05) is None
    assert "cannot be compared" in verdict(found, 0.05)
    assert next(each for each in found.changes if each.name == "fusion.1").status == "slower"


def test_a_filter_limits_the_changes(tmp_path):
    before, after = trained(tmp_path / "a"), trained(tmp_path / "b", conv_us=1200, infeed_us=300)
    names = {each.name for each in compared(before, after, words="attention").changes if each.what == "op"}
    assert names == {"fusion.1"}


def against(capsys, after, before, **more):
    status = run(ReportSettings(paths=list(map(str, after)), against=list(map(str, before)), **more))
    return status, *capsys.readouterr()


def test_a_limit_fails_a_check(tmp_path, capsys):
    before, after = trained(tmp_path / "a"), trained(tmp_path / "b", conv_us=1200)
    status, _, said = against(capsys, after, before, fail_above=0.05)
    assert status == 1
    assert "above 5%" in said
    assert against(capsys, after, before, fail_above=0.5)[0] == 0
    assert against(capsys, before, after, fail_above=0.05)[0] == 0
    assert against(capsys, after, before)[0] == 0


def test_a_check_that_cannot_tell_has_not_passed(tmp_path, capsys):
    before, after = (trained(tmp_path / n, steps=1, marked=False) for n in "ab")
    assert against(capsys, after, before, fail_above=0.05)[0] == 1


def test_the_changes_as_json(tmp_path, capsys):
    before, after = trained(tmp_path / "a"), trained(tmp_path / "b", conv_us=1200)
    _, out, _ = against(capsys, after, before, output="json")
    found = json.loads(out)
    assert found["schema"] == 1
    assert found["step_time_ratio"] > 1.1
    costs = [abs(change["per_step_s"]) for change in found["changes"]]
    assert costs == sorted(costs, reverse=True)
    assert found["changes"][0].keys() >= {"what", "name", "before_s", "after_s", "per_step_s", "status"}


def test_the_changes_as_text(golden, tmp_path):
    found = compared(trained(tmp_path / "a"), trained(tmp_path / "b", renamed=True, conv_us=1200, extra_us=80))
    golden.check("report/comparison.txt", plain_text.render([page(found, 20, "old", "new")], 80))
    same = compared(trained(tmp_path / "a"), trained(tmp_path / "c"))
    assert "nothing changed beyond noise" in plain_text.render([page(same, 20, "old", "new")], 80)


def on_cpus(directory, *periods_us, names=("vm",)):
    """The capture of jobs on CPUs, which mark their steps; of each the length of a step, and the name of its host."""
    jobs = []
    for period_us in periods_us:
        jobs.append(Traced())
        jobs[-1].space.hostnames.append(names[min(len(jobs), len(names)) - 1])
        host = jobs[-1].host()
        for i in range(12):
            host.event("python", "train", period_us * i, period_us / 3, step_num=i)
    directory.mkdir()
    return saved(directory, *jobs)


def text(comparison):
    return plain_text.render([page(comparison, 20, "old", "new")], 200)


def test_jobs_without_a_device_have_no_operations_to_compare(tmp_path):
    found = compared(on_cpus(tmp_path / "a", 1000), on_cpus(tmp_path / "b", 4000))
    assert (found.step_time_ratio, found.step_time_noise) == (pytest.approx(4), False)
    assert (found.changes, found.ops_reason, found.cautions) == ((), "no device in the trace", ())
    assert found.per == "step"
    shown = text(found)
    assert "no operations in these profiles to compare: no device in the trace" in shown
    assert "nothing changed" not in shown
    assert "Times below" not in shown


def test_gpus_have_no_operations_to_compare(tmp_path):
    gpus = saved(tmp_path, on_gpus())
    assert compared(gpus, gpus).ops_reason == "a GPU, not a TPU"


def test_nothing_changed_is_not_said_where_the_step_did(tmp_path):
    found = compared(trained(tmp_path / "a"), trained(tmp_path / "b"))
    assert found.ops_reason is None
    assert "nothing changed beyond noise" in text(found)
    for noise in (False, None):
        assert "  no operation changed beyond noise" in text(replace(found, step_time_noise=noise))


def test_another_number_of_workers_is_said(tmp_path, capsys):
    """A second job on the host makes one capture of two workers."""
    one, two = on_cpus(tmp_path / "a", 1000), on_cpus(tmp_path / "b", 1000, 2000)
    words = "the later profile is of 2 workers, the earlier of 1: a step is as long as on the slowest of them"
    assert "the later profile is of 1 worker, the earlier of 2:" in text(compared(two, one))
    for output in ("text", "markdown", "json", "html"):
        status, out, said = against(capsys, two, one, fail_above=0.05, output=output)
        assert words in out
        assert f"+100.0%, which is above 5%; this is no proof: {words}" in said
        assert status == 1
    assert json.loads(against(capsys, two, one, output="json")[1])["cautions"][0].startswith(words)
    assert "this is no proof" in against(capsys, one, two, fail_above=0.05)[2]
    assert "Caution" not in against(capsys, two, two)[1]


def test_other_hosts_are_said(tmp_path):
    before = on_cpus(tmp_path / "a", 1000, 1000, 1000, 1000, names=("a", "b", "c", "same"))
    after = on_cpus(tmp_path / "b", 1000, 1000, 1000, 1000, names=("d", "e", "\x1b[31mf", "same"))
    (words,) = compared(before, after).cautions
    assert words.startswith("the later profile is of hosts ")
    assert words.endswith("the earlier of hosts a, b and 1 more: the change may be that of the hosts or another job")
    assert "same" not in words
    assert "\x1b" not in words
    assert compared(before, before).cautions == ()
    (words,) = compared(on_cpus(tmp_path / "e", 1000), on_cpus(tmp_path / "f", 1000, names=("w",))).cautions
    assert words.startswith("the later profile is of host w, the earlier of host vm:")
    nameless = on_cpus(tmp_path / "c", 1000, names=("",))
    assert compared(nameless, on_cpus(tmp_path / "d", 1000)).cautions == ()


def test_one_step_is_not_steps(tmp_path):
    before, after = trained(tmp_path / "a", steps=1), trained(tmp_path / "b", steps=1, conv_us=1500)
    assert "1.45 ms, 1 step\n" in text(compared(before, after))
    assert " steps\n" not in text(compared(before, after))
    made = report(capture_of(before, "steps"), ("steps",), Choice())
    assert "of 1 step\n" in plain_text.render(made.pages, 200)
    found = compared(trained(tmp_path / "c"), trained(tmp_path / "d", conv_us=1005))
    hidden = replace(found, changes=found.changes[:1])
    assert "1 difference may be chance and is not shown" in text(hidden)


def test_an_earlier_profile_that_cannot_be_read(tmp_path, capsys):
    (tmp_path / "bad.xplane.pb").write_bytes(b"\xff" * 30)
    status, out, said = against(capsys, trained(tmp_path / "a"), [tmp_path / "bad.xplane.pb"])
    assert (status, out) == (1, "")
    assert "bad.xplane.pb: not a trace" in said
