"""Figures as floats of 16 bits, taken as whole numbers: these grow with the figure.

From 0.0001 on they are exact to 0.05 %, below that to 3e-8. NaN stands for an absent figure.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence

ABSENT = 0x7E00
_HIGHEST = 0x7BFF  # of a figure: infinity, NaN and all negative numbers come after it
_LARGEST = 65504.0
_PER_OCTAVE = 1024
_TIME_BYTES = 8
_HALF, _WHOLE = struct.Struct("=e"), struct.Struct("=H")


def coded(value: float) -> int:
    """A figure as a whole number of 16 bits; the largest one for all that are too large."""
    code: int = _WHOLE.unpack(_HALF.pack(min(value, _LARGEST)))[0]
    return code


def value_of(code: int) -> float | None:
    """Reverses `coded`; None: the figure is absent."""
    if code > _HIGHEST:
        return None
    value: float = _HALF.unpack(_WHOLE.pack(code))[0]
    return value


class Packing:
    """Packs queries one after the other: the time of each, its state and so many figures."""

    __slots__ = ("_pack", "_split", "size")

    def __init__(self, figures: int) -> None:
        query = struct.Struct(f"=dH{figures}e")
        self._pack = query.pack
        self._split = struct.Struct(f"=d{query.size - _TIME_BYTES}s").iter_unpack
        self.size = query.size
        """Bytes of a query."""

    def pack(self, at_s: float, state: int, figures: Sequence[float]) -> bytes:
        """A query: the state's bits, and the figures, of which NaN is an absent one."""
        try:
            return self._pack(at_s, state, *figures)
        except OverflowError:
            return self._pack(at_s, state, *[max(min(figure, _LARGEST), -1.0) for figure in figures])

    def unpack(self, queries: bytearray) -> tuple[list[float], array[int]]:
        """The times of the queries, and of each its state and the codes of its figures, one after the other."""
        times_s: list[float] = []
        codes = array("H")
        for at_s, rest in self._split(queries):
            times_s.append(at_s)
            codes.frombytes(rest)
        return times_s, codes


def present(codes: Sequence[int]) -> list[int]:
    """The codes of those figures that are not absent, sorted."""
    found = sorted(codes)
    return found if found[-1] <= _HIGHEST else [code for code in found if code <= _HIGHEST]


def middle(codes: Sequence[int]) -> int:
    """The code of the median of some figures, whose codes are sorted."""
    half = len(codes) // 2
    upper = codes[half]
    if len(codes) % 2 or (lower := codes[half - 1]) == upper:
        return upper
    if lower // _PER_OCTAVE == upper // _PER_OCTAVE:  # between two powers of two, they are evenly spaced
        return (lower + upper + 1) // 2
    return coded(((value_of(lower) or 0.0) + (value_of(upper) or 0.0)) / 2)


def lowest(code: int, below: int) -> int:
    """The code of the min, so far below the median; whatever comes from elsewhere, it is that of a figure."""
    return max(code - below, 0) if code <= _HIGHEST else code


def highest(code: int, above: int) -> int:
    """The code of the max, so far above the median; whatever comes from elsewhere, it is that of a figure."""
    return min(code + above, _HIGHEST) if code <= _HIGHEST else code
