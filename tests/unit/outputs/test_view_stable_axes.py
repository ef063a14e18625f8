"""Graphs keep their scale, and lines the order of their parts, while figures only jitter."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.shown import NOW, answered, display_of, lines, name_of, press, screen
from tpumon.model import StepTimes
from tpumon.outputs.drawing.graphs import soft_axis, soft_ratio_axis
from tpumon.outputs.drawing.stable_axes import StableAxes

JITTER = st.lists(st.floats(0.96, 1.04), min_size=2, max_size=40)
PARTS = {"high_flops_compute": 0.03, "low_flops_compute": 0.01, "collective": 0.0098, "idle": 0.0102, "infeed": 0.0027}


@given(st.floats(1e-4, 100.0), JITTER)
def test_an_axis_stays_while_values_only_jitter(value, jitter):
    """By four percent, for however long."""
    axes = StableAxes()
    seen = [
        axes.axis("step", (value * factor,), soft_axis([value * factor]), 1000.0 * number)
        for number, factor in enumerate(jitter)
    ]
    assert len(set(seen)) == 1


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
def test_an_axis_holds_all_values(values):
    """It grows at once."""
    axes = StableAxes()
    for number, value in enumerate(values):
        low, high = axes.axis("mxu", (value,), soft_ratio_axis([value]), number)
        assert low <= value <= high


def test_an_axis_shrinks_once_it_was_too_long_for_five_minutes():
    """Not before, and not if it was needed in between."""
    axes = StableAxes()

    def axis(value, at_s):
        return axes.axis("step", (value,), soft_axis([value]), at_s)

    first = axis(1.0, 0.0)
    long = axis(10.0, 1.0)
    assert (long[0], long[1] > 10.0) == (first[0], True)
    for at_s in range(2, 1000, 100):  # it is needed now and then
        assert axis(1.0, at_s) == axis(10.0, at_s + 50) == long
    assert axis(1.0, 1000.0) == axis(1.0, 1240.0) == long
    assert axis(1.0, 1300.0) == first


def test_a_size_changes_only_if_a_value_clearly_does():
    """Noise around the border of two sizes does not make it one, then the other."""
    axes = StableAxes()
    assert len({axes.size("part", value, 0.01) for value in (0.109, 0.111, 0.1, 0.12, 0.109)}) == 1
    assert axes.size("tiny", 1e300, 5e-324) > 0
    assert axes.size("part", 0.2, 0.01) > axes.size("other", 0.1, 0.01) > axes.size("none", 0.0, 0.01) == 0


def jittering(query, number, **more):
    """A worker's sample in which nothing changes but by chance."""
    by = 1 + 0.03 * ((7 * query + 5 * number) % 11 - 5) / 5
    step = StepTimes(avg=0.0627 * by, min=0.062 * by, max=0.0634 * by, count=8)
    parts = {name: value * (1 + (by - 1) * (-1) ** place) for place, (name, value) in enumerate(PARTS.items())}
    usual = {"mxu_utilization_ratio": 0.3495 * by, "step_time_s": step, "step_parts_s": parts}
    return answered(name_of(number), NOW + 10.0 * query, **usual | more)


@pytest.mark.parametrize(("workers", "keys"), [(1, ()), (8, ()), (40, ()), (8, ("enter",)), (3, ())])
def test_graphs_do_not_rescale_and_parts_do_not_move_when_nothing_changes(workers, keys):
    """Whatever stands at the axes and titles, and the order of the parts of a step, is the same in each picture."""
    display = display_of(*(jittering(0, number) for number in range(workers)))
    press(display, *keys) if keys else None
    seen = set()
    for query in range(1, 40):
        display.add(*(jittering(query, number) for number in range(workers)))
        now = NOW + 10.0 * query + 1
        display.refresh(now)
        text = "\n".join(lines(display, 120, 40, now))
        parts = [re.sub(r"[\d.]+\w*%?", "", line) for line in text.splitlines() if line.startswith("  A step:")]
        scales = re.findall(r"(?:MXU|STEP|IDLE) [\d.]+-[\d.]+(?: ms|%)|[\d.]+%?┤", text)
        seen.add((*scales, *parts))
        assert scales
    assert len(seen) == 1


def test_a_part_that_differs_from_the_slice_comes_first():
    """By more than chance."""
    slow = dict(PARTS, infeed=0.012)
    display = display_of(*(jittering(0, number) for number in range(7)), jittering(0, 7, step_parts_s=slow))
    press(display, *["down"] * 8, "enter")
    (line,) = [line for line in lines(display, 120, 30) if line.startswith("  A step:")]
    assert line.split(":")[1].split()[0] == "infeed"


def test_the_header_tells_the_order_by_worst_from_that_by_name():
    """Without colours: an arrow before all, or behind the title."""
    display = display_of(*(answered(name_of(number)) for number in range(3)))

    def titles(width=100):
        return next(line for line in lines(display, width) if "WORKER" in line)

    assert titles().startswith(" ↓ WORKER  ")
    press(display, "s")
    assert titles().startswith("   WORKER↓ ")
    press(display, "S")
    assert titles().startswith("   WORKER↑ ")
    assert titles(30).startswith(" WORKER↑")
    assert (
        titles(30).index("MXU") + len("MXU")
        == next(line for line in lines(display, 30) if "45%" in line).index("45%") + 3
    )
    assert "sort:name" in screen(display)


def test_what_is_remembered_is_bounded():
    axes = StableAxes()
    for number in range(2000):
        axes.axis(number, [1.0], (0.0, 1.0), 0.0)
        axes.size(number, 2.0, 1.0)
    assert len(axes._axes) == len(axes._sizes) == 512
