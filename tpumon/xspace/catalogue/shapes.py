"""How much of the work of matrix units is padding, by the shapes of ops."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

WIDTHS = (128, 256)
"""Rows and columns of the matrix units of TPUs: of chips up to v5, and from v6e on."""

_SUBLANES = 8  # rows that a vector register holds
_MOST_CHARS = 4000  # of the text: results come first
_OPCODE = re.compile(r"\s[a-z][\w-]*\(")
_ARRAY = re.compile(r"\b[a-z]\w*\[([\d,]{1,100})\](?:\{([\d,]{1,50}))?")
_LARGEST = 1 << 50  # elements; more is a mistake


def paddings(text: str, flops: int) -> tuple[float, float] | None:
    """The share of a matrix operation's work that is padding, for each of WIDTHS; None if its shapes do not say.

    The largest array of the result has M rows of N columns, by its layout; its further dimensions need no padding. K,
    over which products are summed, follows from the FLOPs: 2 for each element of the result and of K. N and K are
    padded to the width of the matrix unit, M to 8.

    Args:
        text: its HLO, "%dot.1 = f32[8,100]{1,0:T(8,128)} dot(...)", or the shape alone.
        flops: of one occurrence; 0 if the trace does not tell: then nothing is said of K.
    """
    _, equals, result = text[:_MOST_CHARS].partition(" = ")
    result = result if equals else text[:_MOST_CHARS]
    opcode = _OPCODE.search(result)
    arrays = list(_arrays(result[: opcode.start()] if opcode else result))
    if not arrays:
        return None
    elements, rows, columns = max(arrays)
    depth = flops / (2 * elements)
    useful = rows * columns * max(depth, 1)
    return tuple(  # type: ignore[return-value]  # as many as WIDTHS
        1 - useful / (_up(rows, _SUBLANES) * _up(columns, width) * (_up(depth, width) if depth >= 1 else 1))
        for width in WIDTHS
    )


def _arrays(result: str) -> Iterator[tuple[int, int, int]]:
    """Elements, rows and columns of each array of two dimensions or more."""
    for match in _ARRAY.finditer(result):
        sizes = [int(size) for size in match[1].split(",") if size]
        order = [int(place) for place in (match[2] or "").split(",") if place] or [*reversed(range(len(sizes)))]
        elements = math.prod(sizes)
        if len(sizes) > 1 and 0 < elements < _LARGEST and sorted(order) == [*range(len(sizes))]:
            yield elements, sizes[order[1]], sizes[order[0]]


def _up(size: float, to: int) -> int:
    return math.ceil(size / to) * to
