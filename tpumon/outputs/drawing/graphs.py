"""Bars, sparklines, charts. NaN stands for a missing figure and leaves a gap; a zero does not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tpumon.outputs.drawing.style import Glyphs

Axis = tuple[float, float]
"""The values at the bottom and the top."""

RATIO: Axis = (0.0, 1.0)

Band = tuple[float, float, float]
"""The least, the median and the greatest value of a column; nan: it has none."""

_TINIEST, _LARGEST = 1e-12, 1e15


def bar(ratio: float | None, width: int, glyphs: Glyphs) -> tuple[str, str]:
    """The filled and the empty part of a bar, `width` cells together; an absent figure has no bar."""
    if ratio is None or not math.isfinite(ratio) or width <= 0:
        return "", ""
    steps = len(glyphs.parts) - 1
    filled = round(min(max(ratio, 0.0), 1.0) * width * steps)
    whole, part = divmod(filled, steps)
    text = glyphs.parts[-1] * whole + (glyphs.parts[part] if part else "")
    return text, glyphs.track * (width - len(text))


def level(value: float, axis: Axis, levels: str) -> str:
    """One value as the fill of one cell; a value at the bottom still shows."""
    if not math.isfinite(value):
        return levels[0]
    low, high = axis
    share = (value - low) / (high - low) if high > low else 0.0
    steps = len(levels) - 1
    return levels[1 + min(max(int(share * steps), 0), steps - 1)]


def spark(values: Sequence[float], axis: Axis, width: int, glyphs: Glyphs) -> str:
    """The last values as a sparkline, one cell each, the newest at the right."""
    low, high = axis
    gap, levels = glyphs.levels[0], glyphs.levels[1:]
    most = len(levels) - 1
    scale = len(levels) / (high - low) if high > low else 0.0
    # As `level` for each value, inlined because it is most of a picture's cost. NaN - NaN and inf - inf are not 0.
    return "".join(
        [
            gap if value - value != 0 else levels[min(max(int((value - low) * scale), 0), most)]
            for value in (values[-width:] if width > 0 else ())
        ]
    ).rjust(width)


def chart(bands: Sequence[Band], axis: Axis, height: int, glyphs: Glyphs) -> list[str]:
    """A chart of `height` lines, from the top; one column per band.

    A column is filled up to the median. Whole cells between the least value and the median, and between the median and
    the greatest value, look different.
    """
    low, high = axis
    steps = len(glyphs.levels) - 1
    whole = height * steps

    def fill(value: float) -> int:
        share = (value - low) / (high - low) if high > low else 0.0
        return max(1, min(round(share * whole), whole))

    # An infinite value or nan minus itself is not 0.
    fills = [tuple(map(fill, band)) if band[0] - band[0] == band[2] - band[2] == 0 else None for band in bands]
    levels = glyphs.levels
    return [
        "".join(
            [
                " "
                if each is None
                else levels[min(max(each[1] - below, 0), steps)]
                if each[0] == each[2]
                else _cell(each, below, steps, glyphs)
                for each in fills
            ]
        )
        for below in range((height - 1) * steps, -1, -steps)
    ]


def _cell(fills: tuple[int, ...], below: int, steps: int, glyphs: Glyphs) -> str:
    """One cell of a column; `below` is how many steps are below it."""
    least, middle, greatest = fills
    if middle >= below + steps:
        return glyphs.to_median if least <= below else glyphs.levels[steps]
    if middle > below:
        return glyphs.levels[middle - below]
    return glyphs.to_greatest if greatest >= below + steps else " "


def soft_axis(values: Iterable[float], *, least_share: float = 0.25) -> Axis:
    """An axis around positive values, no narrower than a share of their middle, so that jitter looks like jitter.

    Its ends are round numbers, so that it rarely moves.
    """
    known = _drawable(values)
    if not known:
        return RATIO
    low, high = min(known), max(known)
    middle = (low + high) / 2
    span = max(high - low, least_share * abs(middle)) or 1.0
    grid = 10.0 ** math.floor(math.log10(span))
    grid *= next(factor for factor in (0.1, 0.2, 0.5, 1.0) if span / (factor * grid) <= 12)
    return _rounded(middle, span, grid)


def soft_ratio_axis(values: Iterable[float]) -> Axis:
    """An axis around ratios, no narrower than twenty points."""
    known = _drawable(values)
    if not known:
        return RATIO
    low, high = min(known), max(known)
    low, high = _rounded((low + high) / 2, max(high - low, 0.2), 0.05)
    return min(low, 0.8), max(min(high, 1.0), 0.2)


def _drawable(values: Iterable[float]) -> list[float]:
    """Values that an axis can cover; what is beyond any figure is drawn at its ends."""
    return [value if abs(value) > _TINIEST else 0.0 for value in values if -_LARGEST < value < _LARGEST]


def _rounded(middle: float, span: float, grid: float) -> Axis:
    return (
        max(math.floor((middle - span / 2) / grid + 1e-9) * grid, 0.0),
        math.ceil((middle + span / 2) / grid - 1e-9) * grid,
    )
