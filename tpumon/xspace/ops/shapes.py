"""Share of the work of matrix units that is padding, by the shapes of ops."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

WIDTHS = (128, 256)
"""Rows and columns of the matrix units of TPUs: of chips up to v5, and from v6e on."""

_SUBLANES = 8  # rows that a vector register holds
_MOST_CHARS = 4000  # of the text: results come first
_ARRAY = re.compile(r"[a-z]\w*\[([\d,]{1,100})\](?:\{([\d,]{1,50}))?")
_OPCODE = re.compile(r"\s[a-z][\w-]*\(")
_LARGEST = 1 << 50  # elements; more is a mistake


def paddings(text: str, flops: int) -> tuple[float, float] | None:
    """The share of a matrix operation's work that is padding, for each of WIDTHS; None if its shapes do not say.

    The largest array of the result has M rows of N columns, by its layout; its further dimensions need no padding. K,
    over which products are summed, follows from the FLOPs: 2 for each element of the result and of K. N and K are
    padded to the width of the matrix unit, M to 8.

    Args:
        text: its HLO, "%dot.1 = f32[8,100]{1,0:T(8,128)} dot(...)".
        flops: of one occurrence; 0 if the trace does not tell: then nothing is said of K.
    """
    found = [array for array in map(_array, _results(text)) if array is not None]
    if not found:
        return None
    elements, rows, columns = max(found)
    depth = flops / (2 * elements)
    useful = rows * columns * max(depth, 1)
    return tuple(  # type: ignore[return-value]  # as many as WIDTHS
        1 - useful / (_up(rows, _SUBLANES) * _up(columns, width) * (_up(depth, width) if depth >= 1 else 1))
        for width in WIDTHS
    )


def _results(text: str) -> Iterable[tuple[str, str]]:
    """Sizes and layout of each array that an op makes, as in its HLO."""
    begin = text.find(" = ") + 3
    if begin < 3:
        return ()
    if text[begin : begin + 1] != "(":
        only = _ARRAY.match(text, begin)
        return () if only is None else (only.groups(""),)  # type: ignore[return-value]  # it has two groups
    opcode = _OPCODE.search(text, begin, begin + _MOST_CHARS)
    return _ARRAY.findall(text, begin, opcode.start() if opcode else begin + _MOST_CHARS)


def _array(array: tuple[str, str]) -> tuple[int, int, int] | None:
    """Elements, rows and columns of an array; None if it has less than two dimensions, or no such layout."""
    sizes = [int(size) for size in array[0].split(",") if size]
    order = [int(place) for place in array[1].split(",") if place] or [*reversed(range(len(sizes)))]
    elements = math.prod(sizes)
    if len(sizes) < 2 or not 0 < elements < _LARGEST or sorted(order) != [*range(len(sizes))]:
        return None
    return elements, sizes[order[1]], sizes[order[0]]


def _up(size: float, to: int) -> int:
    return math.ceil(size / to) * to
