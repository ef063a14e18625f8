"""Text from elsewhere, made safe."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpumon.untrusted_text import one_line, safe


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("TPU type: TPU v2\n", "TPU type: TPU v2\n"),
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://evil\x1b\\link", "link"),
        ("\x1bPq#0\x1b\\y", "y"),
        ("\x1bcz", "z"),
        ("over\rwritten\r\nnext", "overwritten\nnext"),
        ("bell\x07 back\x08 del\x7f csi\x9b31m", "bell back del csi31m"),
        ("abc\u202edcba", "abcdcba"),
        ("50 µs – ok", "50 µs – ok"),
    ],
)
def test_nothing_that_drives_a_terminal_gets_through(sent, shown):
    """Escape sequences go as a whole, control and reordering characters go, everything else stays."""
    assert safe(sent) == shown


@given(st.text())
def test_safe_text_is_printable_and_stays_the_same(text):
    """Whatever comes in, no control character but newline and tab comes out, and doing it twice changes nothing."""
    shown = safe(text)
    assert all(char in "\n\t" or unicodedata.category(char) not in {"Cc", "Cf", "Cs"} for char in shown)
    assert safe(shown) == shown


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_one_line_is_one_short_line(text, limit):
    """A message is one line of bounded length."""
    line = one_line(text, limit=limit)
    assert len(line) <= limit
    assert "\n" not in line
