"""Quantities as short text: 45.6 ms, 12.3%, 1.50 GiB, 164 GFLOP/s; what is absent or infinite is n/a."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import wraps

from tpumon.model.figure_table import STEP_PARTS
from tpumon.outputs.text_blocks import three_digits

NOT_KNOWN = "n/a"

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_COUNTS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

Format = Callable[[float | None], str]


def _or_unknown(text: Callable[[float], str]) -> Format:
    @wraps(text)
    def checked(value: float | None) -> str:
        return NOT_KNOWN if value is None or not math.isfinite(value) else text(value)

    return checked


def _scaled(value: float, units: Sequence[tuple[float, str]], *, slack: float = 1.0) -> str | None:
    """The value in the largest unit that fits; None if it is less than one of the smallest."""
    for size, unit in units:
        if abs(value) >= slack * size:
            return f"{'-' if value < 0 else ''}{three_digits(abs(value) / size)} {unit}"
    return None


@_or_unknown
def time_text(time_s: float) -> str:
    """1.23 s, 45.6 ms, 789 µs; zero is 0 s."""
    return (_scaled(time_s, _TIMES, slack=0.9995) or "<1 ns") if time_s else "0 s"


@_or_unknown
def percent_text(ratio: float) -> str:
    """12.3%; a tiny share is <0.1%."""
    return "<0.1%" if 0 < ratio < 0.0005 else f"{100 * ratio:.1f}%"


@_or_unknown
def change_text(ratio: float) -> str:
    """+12.3%, -4.0%."""
    return f"{100 * ratio:+.1f}%"


@_or_unknown
def size_text(size_bytes: float) -> str:
    """1.50 GiB, 12 B."""
    return _scaled(size_bytes, _SIZES) or f"{size_bytes:.0f} B"


@_or_unknown
def count_text(count: float) -> str:
    """12, 3456, 1.23 M."""
    if abs(count) < 1e5 and count == int(count):
        return str(int(count))
    return _scaled(count, _COUNTS) or three_digits(count)


@_or_unknown
def flop_rate_text(flops_per_s: float) -> str:
    """164 GFLOP/s."""
    if not flops_per_s:
        return "0"
    scaled = _scaled(flops_per_s, (*_COUNTS[:4], (1.0, "")))
    return "<1 FLOP/s" if scaled is None else f"{scaled}FLOP/s"


@_or_unknown
def byte_rate_text(bytes_per_s: float) -> str:
    """1.23 GiB/s."""
    return f"{size_text(bytes_per_s)}/s" if bytes_per_s else "0"


def counted(count: int | None, one: str) -> str:
    """1 step, 2 steps, n/a steps."""
    return f"{NOT_KNOWN if count is None else count} {one}{'' if count == 1 else 's'}"


def share_text(part: float, whole: float) -> str:
    """A part in percent of the whole; n/a of nothing."""
    return percent_text(part / whole if whole > 0 else None)


def part_label(name: str) -> str:
    """The label of a part of a step."""
    return STEP_PARTS.get(name) or name.replace("_", " ").capitalize()


def utc_text(time_unix_s: float | None) -> str:
    """2026-11-24 18:30:00."""
    if time_unix_s is None:
        return NOT_KNOWN
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time_unix_s))
    except (OverflowError, ValueError, OSError):
        return NOT_KNOWN
