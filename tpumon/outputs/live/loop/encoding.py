"""Encoding of the terminal."""

from __future__ import annotations

import codecs
import locale
import os
import re
import sys


def terminal_is_utf_8() -> bool:
    """True if both stdout and the locale say UTF-8."""
    return _is_utf_8(sys.stdout.encoding) and _is_utf_8(_locale_encoding())


def _locale_encoding() -> str:
    """The encoding that the locale promises.

    Python uses UTF-8 in the C locale, too, although LC_ALL=C asks for ASCII. A locale that is not installed here, as
    is usual over ssh, acts like the C locale, but its name still names the encoding.
    """
    named = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    return "utf-8" if re.search(r"\.utf-?8\b", named, re.IGNORECASE) else locale.getencoding()


def _is_utf_8(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name == "utf-8"
    except LookupError:
        return False
