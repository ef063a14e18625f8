"""`tpumon report --against`: the time from the start of a step to that of the next, which holds the gaps between."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from support.captures import captured, saved, training
from support.trained import STEP_US, compared, trained
from tpumon.cli.commands.report import ReportSettings, run
from tpumon.report import comparison
from tpumon.report.comparison import NEEDED, PERIOD, compare
from tpumon.report.profiles import Choice
from tpumon.report.render import comparison_page, plain_text
from tpumon.report.render.comparison_page import page, verdict
from tpumon.xspace.profile import step_times

CHECKPOINT_US = 40_000


def text(found):
    return plain_text.render([page(found, 20, "old", "new")], 200)


def changed(found):
    """The times that changed more than by chance."""
    return [name for name, _, noise in found.times_changed() if noise is False]


@pytest.mark.parametrize(("steps", "others"), [(30, 8), (8, 30), (4, 4)])
def test_a_job_at_a_fifth_of_its_rate_whose_steps_are_as_long(tmp_path, steps, others):
    before = trained(tmp_path / "a", steps=steps, jitter_us=3)
    found = compared(before, trained(tmp_path / "b", steps=others, gap_us=4 * STEP_US, jitter_us=3, seed=2))
    assert found.step_time_noise is True
    assert changed(found) == [PERIOD]
    assert found.period.before_s == pytest.approx((STEP_US + 20) / 1e6, rel=0.01)
    assert found.period.ratio == pytest.approx(5, rel=0.02)
    assert found.period.before_steps_per_s == pytest.approx(1e6 / (STEP_US + 20), rel=0.01)
    assert found.exceeds(0.05) is True
    assert "the time from start to start changed by +39" in verdict(found, 0.05)
    assert "nothing changed" not in text(found)
    words = "step time did not change beyond noise, but the time from start to start did: 1.47 ms before, 7.2"
    assert words in text(found)


def test_the_way_back_is_no_failure(tmp_path):
    found = compared(trained(tmp_path / "a", gap_us=4 * STEP_US), trained(tmp_path / "b"))
    assert changed(found) == [PERIOD]
    assert found.exceeds(0.05) is False


def test_longer_steps_in_place_of_gaps(tmp_path):
    """The host that was waited for takes as long as before."""
    found = compared(trained(tmp_path / "a", gap_us=300), trained(tmp_path / "b", conv_us=1200, gap_us=100))
    assert changed(found) == ["step time"]
    words = "the time from start to start did not change beyond noise, but step time did: 1.45 ms before, 1.65 ms after"
    assert words in text(found)


def test_both_are_told_where_both_changed(tmp_path):
    found = compared(trained(tmp_path / "a"), trained(tmp_path / "b", conv_us=1200, gap_us=300))
    assert changed(found) == ["step time", PERIOD]
    assert found.period.ratio > found.step_time_ratio > 1.1
    assert "did not change" not in text(found)
    said = verdict(found, 0.05)
    assert said == "step time changed by +13.8%, the time from start to start changed by +32.7%, which is above 5%"


@pytest.mark.parametrize("steps", [8, 30])
@pytest.mark.parametrize("others", [8, 30])
def test_a_pause_for_a_checkpoint_changes_nothing_and_hides_nothing(tmp_path, steps, others):
    gaps_us = [20.0] * 4 + [CHECKPOINT_US] + [20.0] * (others - 5)
    paused = trained(tmp_path / "b", steps=others, gap_us=gaps_us, jitter_us=3, seed=2)
    before = trained(tmp_path / "a", steps=steps, jitter_us=3)
    for found in (compared(before, paused), compared(paused, before)):
        assert changed(found) == []
        assert found.period.ratio == pytest.approx(1, rel=0.01)
        assert found.exceeds(0.05) is False
        assert "steps a second before" in verdict(found, 0.05)
        assert "with pauses between steps" in text(found)
    slow = trained(tmp_path / "c", steps=steps, gap_us=400, jitter_us=3, seed=3)
    assert changed(compared(paused, slow)) == [PERIOD]
    assert "with pauses" not in text(compared(paused, slow))


def test_more_pauses_than_one_hide_nothing_either():
    paused_s = [(12.0 if i in {9, 20} else 1.0) + 0.01 * (i % 3) for i in range(30)]
    assert comparison._period(paused_s, [5.0 + 0.01 * (i % 3) for i in range(8)]).noise is False


def test_uneven_times_are_no_pauses():
    """The rates differ as much as the medians, which may be chance."""
    period = comparison._period([1.0, 1.2, 0.9], [1.3, 1.0, 1.6])
    assert (period.noise, comparison_page._pauses(period)) == (True, "")


def test_of_few_times_a_longer_one_may_be_as_usual_as_the_others():
    every_second_s = [1.0, 2.5] * 7 + [1.0]
    assert comparison._period([1.0, 2.5, 1.0], every_second_s[1:]).noise is True


def uneven(dice, steps):
    """Gaps as a host makes them: mostly short, every second one longer, now and then a long one."""
    return [
        20 + dice.expovariate(1 / 60) + (200 if i % 2 else 0) + (3 * STEP_US if dice.random() < 0.05 else 0)
        for i in range(steps)
    ]


def test_hundred_pairs_of_other_lengths_that_did_not_change(tmp_path):
    dice = random.Random(7)
    lengths = [4, 5, 6, 7, 8, 9, 11, 12, 15, 20, 24, 31, 40, 60, 90]
    captures = [
        captured(
            trained(tmp_path / str(steps), steps=steps, cores=1, gap_us=uneven(dice, steps), jitter_us=20, seed=steps),
            NEEDED,
        )
        for steps in lengths
    ]
    pairs = [(one, other) for i, one in enumerate(captures) for other in captures[:i]]
    assert len(pairs) >= 100
    found = [compare(one, other, Choice()) for one, other in pairs]
    assert [each.period for each in found if changed(each)] == []
    assert [each.period for each in found if each.exceeds(0.01)] == []


def test_one_step_shows_no_start_of_a_next_one(tmp_path, capsys):
    """The job may have become five times slower: a check that cannot tell has not passed."""
    before, after = trained(tmp_path / "a"), trained(tmp_path / "b", steps=1)
    found = compared(before, after)
    assert (found.period, found.exceeds(0.05)) == (None, None)
    assert "n/a (a capture has a single step)" in text(found)
    assert "nothing changed" not in text(found)
    settings = ReportSettings(paths=[str(after[0])], against=[str(before[0])], fail_above=0.05, output="json")
    assert run(settings) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["period_reason"] == "a capture has a single step"
    assert "the time from start to start cannot be compared: a capture has a single step; longer profiles" in told.err


def test_two_steps_have_one_time_from_start_to_start(tmp_path):
    found = compared(trained(tmp_path / "a"), trained(tmp_path / "b", steps=2, gap_us=4 * STEP_US))
    assert found.period.noise is None
    assert found.exceeds(0.05) is True
    assert "did not change" not in text(found)


def test_runs_of_a_program_are_from_start_to_start_already(tmp_path):
    before, after = (trained(tmp_path / name, marked=False, gap_us=us) for name, us in (("a", 20), ("b", 900)))
    found = compared(before, after)
    assert (found.period, found.period_reason) == (None, None)
    assert found.step_time_ratio == pytest.approx((STEP_US + 900) / (STEP_US + 20), rel=0.01)
    assert "start to start" not in text(found)
    assert "start to start" not in verdict(found, 0.05)


def test_markers_on_one_side_alone(tmp_path):
    """The step time of the other side is from start to start."""
    before, after = (trained(tmp_path / name, marked=name == "a", gap_us=900) for name in "ab")
    found = compared(before, after)
    assert found.period.ratio == pytest.approx(1, rel=0.01)
    assert found.period.noise is True


def test_of_hosts_that_of_the_one_that_takes_longest_whatever_their_clocks(tmp_path):
    def periods_s(name, *hosts):
        (tmp_path / name).mkdir()
        return captured(saved(tmp_path / name, *hosts), NEEDED).step_table().periods_s

    alone_s = periods_s("one", training(first_us=100))
    assert periods_s("two", training(first_us=100), training(first_us=800, name="b")) == alone_s
    slow_s = periods_s("slow", training(first_us=100), training(first_us=100, slower=1.5, name="b"))
    assert slow_s == periods_s("slow alone", training(first_us=100, slower=1.5))[: len(slow_s)]


def test_starts_that_are_not_in_order():
    assert step_times._periods_ps(np.array([5, 3, 3, 9])).tolist() == [2, 4]
    assert step_times._periods_ps(np.array([5])).tolist() == []
