"""Quantities as short words, and as cells of tables."""

from __future__ import annotations

import math

from tpumon.model.figure_table import STEP_PARTS
from tpumon.outputs.text_blocks import three_digits
from tpumon.report.blocks import Cell, Column

NOT_KNOWN = "n/a"
_ABOVE = ">peak"
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_COUNTS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def part_word(name: str) -> str:
    """The label of a part of a step."""
    return STEP_PARTS.get(name) or name.replace("_", " ").capitalize()


_PART_TITLES = {
    "high_flops_compute": ("high FLOPS", 0),
    "low_flops_compute": ("other ops", 0),
    "async_wait": ("copies", 2),
    "infeed": ("infeed", 1),
    "outfeed": ("outfeed", 5),
    "collective": ("collectives", 0),
    "host_transfer": ("host", 4),
    "other_wait": ("other waits", 3),
    "idle": ("idle", 0),
}


def part_column(name: str) -> Column:
    """The column of a part of a step."""
    title, rank = _PART_TITLES.get(name, (part_word(name), 1))
    return Column(title, rank=rank)


def time_word(time_s: float | None) -> str:
    """1.23 s, 45.6 ms, 789 µs; zero is 0 s."""
    if time_s is None or not math.isfinite(time_s):
        return NOT_KNOWN
    if time_s < 0:
        return f"-{time_word(-time_s)}"
    for unit_s, unit in _TIMES:
        if time_s >= 0.9995 * unit_s:
            return f"{three_digits(time_s / unit_s)} {unit}"
    return "0 s" if not time_s else "<1 ns"


def percent_word(ratio: float | None) -> str:
    """12.3%; a tiny share is <0.1%."""
    if ratio is None or not math.isfinite(ratio):
        return NOT_KNOWN
    return "<0.1%" if 0 < ratio < 0.0005 else f"{100 * ratio:.1f}%"


def change_word(ratio: float | None) -> str:
    """+12.3%, -4.0%."""
    return NOT_KNOWN if ratio is None or not math.isfinite(ratio) else f"{100 * ratio:+.1f}%"


def size_word(size_bytes: float | None) -> str:
    """1.50 GiB, 12 B."""
    if size_bytes is None or not math.isfinite(size_bytes):
        return NOT_KNOWN
    for unit, name in _SIZES:
        if abs(size_bytes) >= unit:
            return f"{'-' if size_bytes < 0 else ''}{three_digits(abs(size_bytes) / unit)} {name}"
    return f"{size_bytes:.0f} B"


def count_word(amount: float | None) -> str:
    """12, 3456, 1.23 M."""
    if amount is None or not math.isfinite(amount):
        return NOT_KNOWN
    if abs(amount) < 1e5 and amount == int(amount):
        return str(int(amount))
    for unit, name in _COUNTS:
        if abs(amount) >= unit:
            return f"{three_digits(amount / unit)} {name}"
    return three_digits(amount)


def flop_rate_word(flops_per_s: float | None) -> str:
    """164 GFLOP/s."""
    if flops_per_s is None or not math.isfinite(flops_per_s):
        return NOT_KNOWN
    if not flops_per_s:
        return "0"
    for unit, name in (*_COUNTS[:4], (1.0, "")):
        if flops_per_s >= unit:
            return f"{three_digits(flops_per_s / unit)} {name}FLOP/s"
    return "<1 FLOP/s"


def rate_word(bytes_per_s: float | None) -> str:
    """1.23 GiB/s."""
    word = size_word(bytes_per_s)
    return word if word == NOT_KNOWN else f"{word}/s" if bytes_per_s else "0"


def time_cell(time_s: float | None) -> Cell:
    """A time as a cell."""
    return Cell(time_word(time_s), time_s)


def percent_cell(ratio: float | None) -> Cell:
    """A share as a cell."""
    return Cell(percent_word(ratio), ratio)


def count_cell(amount: float | None) -> Cell:
    """A number as a cell."""
    return Cell(count_word(amount), amount)


def size_cell(size_bytes: float | None) -> Cell:
    """A size as a cell."""
    return Cell(size_word(size_bytes), size_bytes)


def flop_rate_cell(flops_per_s: float | None, share: float | None) -> Cell:
    """FLOPs per second as a cell; what no chip does is only said to be above its peak."""
    return Cell(_ABOVE if share == 1 else flop_rate_word(flops_per_s), flops_per_s)


def rate_cell(bytes_per_s: float | None, share: float | None) -> Cell:
    """Bytes per second as a cell; what no chip does is only said to be above its peak."""
    return Cell(_ABOVE if share == 1 else rate_word(bytes_per_s), bytes_per_s)
