"""Varints, decoded many at once from words of eight bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

_TOP_BITS, _LOW_BITS = 0x8080808080808080, 0x7F7F7F7F7F7F7F7F
_LENGTHS = np.uint64(0x0102030405060708)  # a byte per position of a varint's last byte: its length
# How groups of seven bits move together; needed from varints of more bytes than the first number on.
_SQUEEZE = tuple(
    (reach, np.uint64(high), np.uint64(shift))
    for reach, high, shift in (
        (1, 0x7F007F007F007F00, 1),
        (2, 0x3FFF00003FFF0000, 2),
        (4, 0x0FFFFFFF00000000, 4),
    )
)
_ONE, _SEVEN, _FIFTY_SIX = np.uint64(1), np.uint64(7), np.uint64(56)


def decode(words: Words, differing: int | None = None) -> tuple[Words, Ints | np.int64, int]:
    """The varints that begin at the lowest byte of each word.

    Args:
        words: one at least.
        differing: bits that are not the same in all words, if the caller knows them.

    Returns:
        The varints, their lengths (0 for one that does not end in its word; one number where all have the same, below
        8), and the greatest length; 8 where any does not end.
    """
    if differing is None:
        differing = differing_bits(words)
    first_ends = ~int(words[0]) & _TOP_BITS
    first_last = first_ends & -first_ends  # the top bit of a varint's last byte
    lengths: Ints | np.int64
    if first_last and not differing & _TOP_BITS & (2 * first_last - 1):  # all are as long, as times that follow are
        most = first_last.bit_length() // 8
        values = words & np.uint64((2 * first_last - 1) & _LOW_BITS)
        lengths = np.int64(most) if most < 8 else np.full(len(words), most)
    else:
        ends = ~words & np.uint64(_TOP_BITS)
        last = ends & -ends
        values = words & (last ^ (last - _ONE)) & np.uint64(_LOW_BITS)
        lengths = ((last >> _SEVEN) * _LENGTHS >> _FIFTY_SIX).view(np.int64)
        most = int(lengths.max()) if lengths.all() else 8
    for reach, high, shift in _SQUEEZE:
        if most > reach:
            moving = values & high
            values ^= moving
            moving >>= shift
            values |= moving
    return values, lengths, most


def differing_bits(words: Words) -> int:
    """The bits that are not the same in all words, of which there is at least one."""
    return int(np.bitwise_or.reduce(words ^ words[0]))
