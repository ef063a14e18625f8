"""What a terminal is drawn with: UTF-8 if both stdout and the locale say so."""

from __future__ import annotations

import io
import sys

import pytest

from tpumon.system.console import terminal_is_utf_8


@pytest.mark.parametrize(
    ("locale", "stdout", "utf_8"),
    [
        ({"LC_ALL": "C"}, "utf-8", False),
        ({"LC_ALL": "POSIX", "LANG": "en_US.UTF-8"}, "utf-8", False),
        ({"LC_ALL": "C.UTF-8"}, "ascii", False),
        ({"LC_ALL": "C.UTF-8"}, "utf-8", True),
        ({"LC_CTYPE": "en_US.utf8", "LANG": "C"}, "utf-8", True),
        ({"LC_ALL": "xx_YY.utf8"}, "utf-8", True),  # not installed, as is usual over ssh
    ],
    ids=str,
)
def test_utf_8_is_asked_of_no_terminal_that_does_not_say_so(monkeypatch, locale, stdout, utf_8):
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.setenv(name, locale.get(name, ""))
    monkeypatch.setattr("locale.getencoding", lambda: "ascii")  # that of the C library is set once for a process
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=stdout))
    assert terminal_is_utf_8() == utf_8
