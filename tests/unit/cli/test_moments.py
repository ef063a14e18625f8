"""Moments as people type them."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpumon.moments import moment_of

HOUR_S = 3600.0


def at(*local):
    """The moment of a local date and time."""
    return datetime(*local).timestamp()  # noqa: DTZ001 - as it is typed


BEGIN, END = at(2026, 1, 30, 2, 0), at(2026, 1, 31, 9, 0)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("03:12", at(2026, 1, 31, 3, 12)),
        (" 3:12:30 ", at(2026, 1, 31, 3, 12, 30)),
        ("09:00", END),
        ("09:01", at(2026, 1, 30, 9, 1)),
        ("23:59", at(2026, 1, 30, 23, 59)),
        ("-20m", END - 1200),
        ("-1.5h", END - 1.5 * HOUR_S),
        ("-0s", END),
        ("2026-01-30T03:12", at(2026, 1, 30, 3, 12)),
        ("2026-01-30 03:12:05", at(2026, 1, 30, 3, 12, 5)),
        ("2026-01-31", at(2026, 1, 31)),
    ],
)
def test_what_people_type_is_a_moment(text, moment):
    """A time of day is its last one; without a zone it is local."""
    assert moment_of(text, BEGIN, END) == moment


def test_a_time_may_name_its_zone():
    """Then it is the same everywhere."""
    assert moment_of("2026-01-31T00:00:00Z", 0, 2e9) == 1769817600
    assert moment_of("2026-01-31T01:00:00+01:00", 0, 2e9) == 1769817600


@pytest.mark.parametrize("text", ["", "now", "25:00", "3:1", "20m", "-", "-x", "2026-13-01", "٣:١٢", "9" * 1000])
def test_what_is_none_is_refused(text):
    """With what to type instead."""
    with pytest.raises(ValueError, match=r"03:12, -20m or 2026-01-31T03:12"):
        moment_of(text, BEGIN, END)


@pytest.mark.parametrize("text", ["-3d", "2026-01-29T12:00", "2027-01-01", "0001-01-01", "9999-12-31", "1:58"])
def test_what_lies_outside_is_refused(text):
    """The message says which time there is."""
    begin = at(2026, 1, 31, 2, 0)
    with pytest.raises(ValueError, match=r"from 2026-01-31 02:00:00 to 2026-01-31 09:00:00|give a time"):
        moment_of(text, begin, END)


def test_the_minute_in_which_it_begins_or_ends_is_its_begin_or_end():
    """Seconds are rarely typed."""
    assert moment_of("2026-01-31T08:59", END - 30, END) == END - 30
    assert moment_of("2026-01-31T09:01", BEGIN, END + 15) == END + 15


def test_a_time_that_came_twice_is_the_later_one(monkeypatch):
    """When clocks went back; of the one that was last within the span."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        second = datetime.fromisoformat("2025-10-26T02:30:00+01:00").timestamp()
        assert moment_of("02:30", second - 5 * HOUR_S, second + HOUR_S) == second
        assert moment_of("02:30", second - 5 * HOUR_S, second - 60) == second - HOUR_S
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.text(max_size=60), st.floats(0, 4e9), st.floats(0, 1e7))
def test_whatever_is_typed_is_a_moment_of_the_span_or_refused(text, begin, length):
    """Nothing else is raised."""
    try:
        moment = moment_of(text, begin, begin + length)
    except ValueError:
        return
    assert begin <= moment <= begin + length
