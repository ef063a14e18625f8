"""Times, shares and sizes: what is read, and what an error suggests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpumon.quantities import Quantity

TIME = Quantity("time", "10s", most="7d", unit="s")
SHARE = Quantity("share", "1%", least="0.01%", most="100%")
SIZE = Quantity("size", "500M", unit="M")
FACTOR = Quantity("factor", "1.03,1.25", least="1")


@pytest.mark.parametrize(
    ("quantity", "text", "value"),
    [
        *((TIME, text, 5400.0) for text in ("5400", "5400s", "90m", "90min", "1.5h", "1h30m", "1h 30m", " 1 h 30 m ")),
        (TIME, "0", 0.0),
        (TIME, ".5", 0.5),
        (TIME, "500ms", 0.5),
        (TIME, "7d", 604800.0),
        (Quantity("time", "1m"), "0", 0.0),
        (SHARE, "1%", 0.01),
        (SHARE, "0.01", 0.01),
        (SHARE, "0.99", 0.99),
        (SHARE, "100 %", 1.0),
        *((SIZE, text, 5e8) for text in ("500", "500M", "500MB", "500 mb", "0.5G", "500000k", "500000K")),
        (SIZE, "1GiB", 2.0**30),
        (FACTOR, "103%", 1.03),
    ],
)
def test_one_grammar(quantity, text, value):
    """Units with or without a space; a number alone where a unit is understood."""
    assert quantity.read(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("quantity", "text", "message"),
    [
        (TIME, "soon", "soon: give a time of at most 7d, such as 10s"),
        *(
            (TIME, text, "give a time")
            for text in ("", "10x", "-1", "nan", "inf", "1e3", "30m1h", "1h1h", "1h30", "8d", "٣s")
        ),
        (Quantity("time", "7d"), "7", "7: give a time, such as 7d"),
        (SHARE, "97", "97: give a share of at least 0.01% and at most 100%, such as 1%; for percent, write 97%"),
        *((SHARE, text, "give a share") for text in ("0", "101%", "1%%", "x%", "nan")),
        *(
            (quantity, text, "; for percent, write 1%; for all of it, 100%$")
            for quantity in (SHARE, Quantity("share", "5%"))
            for text in ("1", "1.0", " 1 ", "01.")
        ),
        *((SIZE, text, "give a size, such as 500M") for text in ("M", "5x", "-5M", "1e9", "10s", "5m")),
        (FACTOR, "0.5", "give a factor of at least 1"),
    ],
)
def test_errors_suggest_what_fits(quantity, text, message):
    """With the example of that very option."""
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        quantity.read(text)


def test_pairs():
    """The smaller first; in percent or not."""
    assert SHARE.read_pair("5%, 0.2") == (0.05, 0.2)
    for text in ("97", "0.2,0.1", "0.1,0.2,0.3", ",", "0.9,97", "x,0.2"):
        with pytest.raises(ValueError, match=r"give two shares, the smaller first, each at least 0.01%.* such as 1%"):
            SHARE.read_pair(text)
    for text, advised in (("90,97", "90%,97%"), ("0.9, 97", "97%"), ("90%,1", "1%; for all of it, 100%")):
        with pytest.raises(ValueError, match=f"for percent, write {advised}$"):
            SHARE.read_pair(text)


@given(st.lists(st.integers(0, 99), min_size=4, max_size=4).filter(any))
def test_parts_of_a_time_add_up(parts):
    """Each unit once, the largest first."""
    text = "".join(f"{number}{unit}" for number, unit in zip(parts, "dhms", strict=True))
    seconds = sum(number * scale for number, scale in zip(parts, (86400, 3600, 60, 1), strict=True))
    assert Quantity("time", "1m").read(text) == seconds


@given(st.text(max_size=30))
def test_any_text_is_a_quantity_or_a_wrong_one(text):
    """No other error."""
    for quantity in (TIME, SHARE, SIZE, FACTOR):
        if quantity.holds(text):
            assert quantity.read(text) >= 0
        else:
            with pytest.raises(ValueError, match="give a"):
                quantity.read(text)
