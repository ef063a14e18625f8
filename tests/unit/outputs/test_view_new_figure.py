"""A compared figure that is added to the table appears in the view, with no edit there."""

from __future__ import annotations

import pytest

from support.shown import NOW, answered, display_of, fleet, lines, name_of, press, screen
from tpumon.model.figure_spec import FigureSpec
from tpumon.model.figure_table import COMPARED, SORT_KEYS

SPREAD = FigureSpec(
    key="spread",
    fields=("flops_utilization_ratio",),
    label="Step spread",
    title="SPREAD",
    about="Difference between the longest and the shortest step.",
    origin="steps",
    value=lambda figures: None if figures.step_time_s is None else figures.step_time_s.max - figures.step_time_s.min,
    range=lambda _: (0.001, 0.002),
    method=lambda _: "hand",
    unit="seconds",
    compared=True,
)


@pytest.fixture(autouse=True)
def spread(monkeypatch):
    """Adds a row to the table."""
    monkeypatch.setitem(COMPARED, SPREAD.key, SPREAD)


def test_a_new_figure_is_a_column_and_in_the_summary():
    """If there is room, and once a worker has had it."""
    display = display_of(*fleet(40))
    texts = lines(display, 120, 40)
    titles = next(line for line in texts if "WORKER " in line)
    assert titles.split()[2:8] == ["MXU", "IDLE", "STEP", "ms", "INFEED", "HBM"]
    assert "SPREAD" in titles
    row = next(line for line in texts if f" {name_of(7)} " in line)
    assert "1.40" in row
    assert sum("SPREAD" in line for line in texts) == 2
    assert "SPREAD min-max" in screen(display, 200, 40)
    assert "SPREAD" not in screen(display, 40, 12)


def test_a_new_figure_is_on_the_worker_page_with_a_chart():
    """Its value, range and method, and its values over time."""
    display = display_of(*(answered("w", NOW - 3 + i) for i in range(3)))
    for key in ("g", "enter"):
        press(display, key)
        shown = screen(display, 100, 60)
        assert "Step spread" in shown
        assert "1.40ms" in shown
        assert "1.00 – 2.00ms, by hand" in shown
        assert "Step spread  1.40 – 1.40 ms, last 1m" in shown


def test_every_compared_figure_can_be_sorted_by():
    """Those of the table as it is."""
    assert [key for key in COMPARED if key not in {SPREAD.key, *SORT_KEYS}] == []
