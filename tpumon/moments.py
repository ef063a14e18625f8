"""Moments as people write them: `03:12`, `-20m`, `2026-01-31 03:12`."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

from tpumon.quantities import Quantity

EXAMPLES = "03:12, -20m or 2026-01-31T03:12"

_TIME_OF_DAY = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_BEFORE_END = Quantity("time", "20m", unit="s")
_LONGEST = 40
_NEAR_S = 60.0  # the minute that was typed may have begun before


def moment_of(text: str, begin_unix_s: float, end_unix_s: float) -> float:
    """The moment that a text means, in a span of time.

    Args:
        text: a local time of day, whose last occurrence counts; a duration before the end, such as `-20m`; or a date
            and time as of ISO 8601, local unless it names its zone.
        begin_unix_s: begin of the span.
        end_unix_s: its end.

    Raises:
        ValueError: it is none of these, or not in the span; the message says so.
    """
    try:
        at_unix_s = _parsed(text.strip()[:_LONGEST], end_unix_s)
    except (ValueError, OverflowError, OSError):
        at_unix_s = None
    if at_unix_s is None:
        raise ValueError(f"give a time such as {EXAMPLES}")
    if not begin_unix_s - _NEAR_S <= at_unix_s <= end_unix_s + _NEAR_S:
        raise ValueError(f"samples are from {date_and_time(begin_unix_s)} to {date_and_time(end_unix_s)}")
    return min(max(at_unix_s, begin_unix_s), end_unix_s)


def _parsed(text: str, end_unix_s: float) -> float | None:
    if text.startswith("-"):
        return end_unix_s - _BEFORE_END.read(text[1:])
    match = _TIME_OF_DAY.fullmatch(text)
    if match is None:
        return datetime.fromisoformat(text).timestamp()
    day = datetime.fromtimestamp(end_unix_s)  # noqa: DTZ006 - local time, as it is typed
    at = day.replace(hour=int(match[1]), minute=int(match[2]), second=int(match[3] or 0), microsecond=0)
    # When clocks go back, a time of day comes twice.
    times = ((at - timedelta(days=days)).replace(fold=fold).timestamp() for days in (0, 1) for fold in (1, 0))
    return next((each for each in times if each <= end_unix_s), None)


def date_and_time(time_unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_unix_s))


def time_of_day(time_unix_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time_unix_s))


def local_time(time_unix_s: float) -> str:
    """Local time; with the date where that is not today's."""
    is_today = time.localtime(time_unix_s)[:3] == time.localtime()[:3]
    return time_of_day(time_unix_s) if is_today else date_and_time(time_unix_s)
