"""Names, figures and ages in few cells."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from support.shown import display_of, fleet, lines
from tpumon.outputs.drawing.cells import (
    age,
    age_changes_in_s,
    clock,
    percent,
    percent_short,
    short_time,
    step_cell,
    step_short,
)
from tpumon.outputs.drawing.line import Line, cut, tame, wrapped
from tpumon.outputs.drawing.names import Labels, natural
from tpumon.outputs.drawing.style import ASCII, UNICODE


@pytest.mark.parametrize(
    ("ratio", "text", "short"),
    [
        (None, "n/a", "n/a"),
        (0.0, "0.0%", "0%"),
        (0.0001, "<0.1%", "<1%"),
        (0.453, "45.3%", "45%"),
        (1, "100.0%", "100%"),
    ],
)
def test_percentages(ratio, text, short):
    """A zero is a zero, next to nothing is not, what is absent is n/a."""
    assert (percent(ratio), percent_short(ratio)) == (text, short)
    assert percent(float("nan")) == "n/a"


@pytest.mark.parametrize(
    ("time_s", "text", "short"),
    [
        (None, "n/a", "n/a"),
        (0.0, "0.000", "0.00"),
        (1e-9, "<0.001", "<.01"),
        (0.0627, "62.7", "62.7"),
        (1.95, "1950", "1950"),
        (12.5, "12500", "12s"),
        (125.0, "2.1m", "2.1m"),
        (9000.0, "2.5h", "2.5h"),
        (36_000.0, "10h", "10h"),
    ],
)
def test_step_times(time_s, text, short):
    """Milliseconds; long ones in larger units, which are named."""
    assert (step_cell(time_s), step_short(time_s)) == (text, short)


@given(st.floats(0, 30 * 86400))
def test_words_for_times_are_short(time_s):
    """They fit their columns."""
    assert len(short_time(time_s)) <= 4
    assert len(step_short(time_s)) <= 4
    assert len(step_cell(time_s)) <= 7
    assert len(age(time_s)) <= 7


@given(st.floats(0, 59.99))
def test_below_a_minute_an_age_is_true_to_a_second(time_s):
    """It stands beside countdowns and times of day, which are."""
    assert time_s - 1 < float(age(time_s).removesuffix("s")) <= time_s


@given(st.integers(0, 30 * 86400 * 4).map(lambda quarters: quarters / 4))
def test_an_age_changes_exactly_when_it_is_said_to(time_s):
    """Not before, so that nothing is drawn for nothing; not later, so that nothing wrong is shown."""
    after_s = age_changes_in_s(time_s)
    assert age(time_s) == age(time_s + after_s * 0.99)
    assert age(time_s) != age(time_s + after_s + 0.01)


def test_another_day_is_said():
    """A time of day alone would pass for today's."""
    now = 1_767_268_800.0
    assert len(clock(now - 60, now)) == 8
    assert "-" in clock(now - 3 * 86400, now)


NAMES = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40), min_size=1, max_size=30, unique=True)


@given(NAMES, st.integers(3, 30), st.booleans())
def test_labels_fit_and_are_safe(names, width, ascii_only):
    """Whatever the names are."""
    labels = Labels(names, ASCII if ascii_only else UNICODE).at(width)
    assert set(labels) == set(names)
    for label in labels.values():
        assert cell_len(label) <= width
        assert label.isprintable()
        assert not ascii_only or label.isascii()


@pytest.mark.parametrize(
    "pattern",
    [
        "tpu-{}.us-central1-a.c.project.internal",
        "a-very-long-prefix-of-a-job-{}",
        "{}-tail",
        "host:{}",
        "x{}x" + "y" * 40,
    ],
)
@pytest.mark.parametrize("width", [4, 6, 10, 20])
def test_shortened_names_stay_apart(pattern, width):
    """What all names share goes first; no two labels are the same."""
    names = [pattern.format(i) for i in range(200)]
    labels = Labels(names, UNICODE).at(width)
    assert len(set(labels.values())) == len(names)


def test_numbers_in_names_count():
    """w2 comes before w10, in upper or lower case."""
    assert sorted(["w10", "W2", "w1", "x"], key=natural) == ["w1", "W2", "w10", "x"]


@pytest.mark.parametrize("text", ["\x1b[2J", "a\u0301", "zero\u200bwidth", "\u202e", "tab\t", "line\nline", "\ufe0f"])
def test_text_from_elsewhere_is_tamed(text):
    """Every character that is left has a width of its own and can be printed."""
    tamed = tame(text, ascii_only=False)
    assert tamed.isprintable()
    assert cell_len(tamed) == len(tamed)
    assert tame(text, ascii_only=True).isascii()


@given(st.text(max_size=80), st.integers(1, 30))
def test_wrapped_lines_fit(text, width):
    """By cells, not by characters."""
    assert all(cell_len(line) <= max(width, 2) for line in wrapped(tame(text, ascii_only=False), width, indent=2))


@given(st.text(max_size=40), st.integers(0, 30))
def test_a_line_is_never_wider_than_it_may_be(text, width):
    """Whatever is added to it, at the left or the right."""
    text = tame(text, ascii_only=False)
    line = Line(width).add(text).fill(3).right("12").add(text)
    assert sum(cell_len(part.text) for part in line.segments()) <= width
    assert cell_len(cut(text, width, "…")) <= width


def test_in_ascii_parts_of_a_line_are_told_from_their_own_commas():
    """`compute, high FLOPS 40.0ms, fleet 40.0 | idle 10.0ms, fleet 10.0`."""
    (line,) = (one for one in lines(display_of(*fleet(3), ascii=True), 120, 40) if "A step:" in one)
    assert line.isascii()
    assert re.search(r"ms, fleet \S+ \| ", line)
