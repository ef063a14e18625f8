"""Figures, times and ages as short words."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from tpumon.model import Evidence
from tpumon.model.figure_spec import Unit
from tpumon.outputs.text_blocks import milliseconds, three_digits

NOT_KNOWN = "n/a"
_GIB = 1 << 30
_LONG_STEP_S = 99.9995
"""From this time on a column of milliseconds shows larger units, with the unit."""


def percent(ratio: float | None) -> str:
    """58.3%: zero is 0.0%, a tiny ratio is <0.1%; six cells at most below 1000 %."""
    if ratio is None or not math.isfinite(ratio):
        return NOT_KNOWN
    return "<0.1%" if 0 < ratio < 0.0005 else f"{100 * ratio:.1f}%"


def percent_short(ratio: float | None) -> str:
    """58%: four cells at most below 1000 %."""
    if ratio is None or not math.isfinite(ratio):
        return NOT_KNOWN
    return "<1%" if 0 < ratio < 0.005 else f"{100 * ratio:.0f}%"


def step_cell(time_s: float | None) -> str:
    """A step time for a column of milliseconds: 62.7, 1950; long ones with a larger unit: 2.1m."""
    if time_s is None or not math.isfinite(time_s):
        return NOT_KNOWN
    if 0 < time_s < 1e-6:
        return "<0.001"
    return three_digits(time_s * 1000) if time_s < _LONG_STEP_S else short_time(time_s)


def step_short(time_s: float | None) -> str:
    """A step time in four cells: 62.7, 1950, 12s."""
    if time_s is None or not math.isfinite(time_s):
        return NOT_KNOWN
    if time_s < 1e-3:
        return "<.01" if 0 < time_s < 5e-6 else f"{time_s * 1000:.2f}"
    return three_digits(time_s * 1000) if time_s < 9.9995 else short_time(time_s)


def step_word(time_s: float | None) -> str:
    """A step time with its unit: 62.7ms, 2.1m."""
    if time_s is None or not math.isfinite(time_s):
        return NOT_KNOWN
    return milliseconds(time_s) if time_s < _LONG_STEP_S else short_time(time_s)


def number(value: float | None) -> str:
    """A count, or a rate per second: 0, 3, 2.5, 812, 12340, 123k; five cells at most below a billion."""
    if value is None or not math.isfinite(value):
        return NOT_KNOWN
    if value < 99999.5:
        return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}".removesuffix(".0")
    return f"{value / 1e3:.0f}k" if value < 9999.5e3 else f"{value / 1e6:.0f}M"


def number_short(value: float | None) -> str:
    """A count or rate in four cells: 812, 12k, 1.2M."""
    if value is None or not math.isfinite(value) or value < 9999.5:
        return number(value)
    return f"{value / 1e3:.0f}k" if value < 999.5e3 else f"{value / 1e6:.0f}M"


class Format(Struct, frozen=True, kw_only=True):
    """The forms in which figures of one unit are written.

    Attributes:
        cell: for a column, whose title names the unit if need be.
        width: cells that this takes at most.
        short: in four cells at most.
        word: with its unit.
        unit: what follows numbers of `cell` outside of such a column.
    """

    cell: Callable[[float | None], str]
    width: int
    short: Callable[[float | None], str]
    word: Callable[[float | None], str]
    unit: str


FORMATS: Mapping[Unit, Format] = {
    "ratio": Format(cell=percent, width=6, short=percent_short, word=percent, unit=""),
    "seconds": Format(cell=step_cell, width=7, short=step_short, word=step_word, unit=" ms"),
    "count": Format(cell=number, width=5, short=number_short, word=number, unit=""),
    "rate": Format(cell=number, width=5, short=number_short, word=number, unit=""),
}
"""Formats by the unit of `tpumon.model.figure_spec.FigureSpec`."""


def gib(size_bytes: float | None) -> str:
    """Bytes as GiB: 95.7."""
    return NOT_KNOWN if size_bytes is None else three_digits(size_bytes / _GIB)


def short_time(time_s: float) -> str:
    """A duration in four cells at most: 0.5s, 10s, 2.5m, 12h, 12d, >2y."""
    for most_s, unit_s, unit in (
        (99.5, 1, "s"),
        (5970, 60, "m"),
        (999.5 * 3600, 3600, "h"),
        (999.5 * 86400, 86400, "d"),
    ):
        if time_s < most_s:
            return _two_digits(time_s / unit_s) + unit
    return ">2y"


def _two_digits(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if value < 9.95 else f"{value:.0f}"


def age(time_s: float) -> str:
    """An age, coarser the older it is: 7s, 37s, 12m, 2h05m, 3d4h."""
    minutes = int(max(time_s, 0.0) // 60)
    if minutes < 1:
        return f"{int(max(time_s, 0.0))}s"
    if minutes < 60:
        return f"{minutes}m"
    return f"{minutes // 60}h{minutes % 60:02}m" if minutes < 1440 else f"{minutes // 1440}d{minutes % 1440 // 60}h"


def age_changes_in_s(time_s: float) -> float:
    """Seconds until the text of `age` changes."""
    time_s = max(time_s, 0.0)
    step_s = 1 if time_s < 60 else 60 if time_s < 86400 else 3600
    return step_s - time_s % step_s


def clock(time_unix_s: float | None, now_unix_s: float, *, or_earlier: bool = False) -> str:
    """Local time of day; on another day, with the date. Of what was so when it was first looked at: `or earlier`."""
    if time_unix_s is None:
        return "--:--:--"
    then, now = time.localtime(time_unix_s), time.localtime(now_unix_s)
    form = "%H:%M:%S" if then[:3] == now[:3] else "%m-%d %H:%M"
    return time.strftime(form, then) + (" or earlier" if or_earlier else "")


def last_words(shown: Callable[[float], str], first_unix_s: float, last_unix_s: float | None) -> str:
    """Words for the time since which the last of several workers has what the first has had longer; empty: the same."""
    last = shown(first_unix_s if last_unix_s is None else last_unix_s)
    return "" if last == shown(first_unix_s) else f"; the last since {last}"


def evidence_words(evidence: Mapping[str, Evidence]) -> str:
    """Figures with their limits: `infeed 35.2%, limit 5.0%; queue size 3`."""
    return "; ".join(_evidence(*item) for item in evidence.items())


def _evidence(name: str, evidence: Evidence) -> str:
    name = re.sub(r"_ratios\.(\w+)", r"_\1_ratio", name)
    base, unit = next(((name.removesuffix(end), end) for end in _UNITS if name.endswith(end)), (name, ""))
    write = _UNITS.get(unit, "{:g}".format)
    text = f"{base.replace('_', ' ')} {write(evidence.value)}"
    if evidence.threshold is not None:
        text += f", limit {write(evidence.threshold)}"
    return text if evidence.reference is None else f"{text}, compared with {write(evidence.reference)}"


def _seconds(value: float) -> str:
    return step_word(value) if 0 < value < 1 else short_time(value)


_UNITS = {"_ratio": percent, "_per_s": "{:.3g}/s".format, "_s": _seconds}
"""Forms of figures, by the end of their names, the first that fits."""
