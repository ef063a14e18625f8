"""Durations as people write them: `30`, `30s`, `1.5h`."""

from __future__ import annotations

import re

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]*)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 24 * 3600.0, "w": 7 * 24 * 3600.0}


def seconds_of(text: str) -> float | None:
    """A time such as 30, 30s or 1.5h, in seconds; None: it is none."""
    match = _QUANTITY.fullmatch(text.strip())
    return float(match[1]) * _SECONDS[match[2]] if match is not None and match[2] in _SECONDS else None
