"""Varints, decoded many at once from words of eight bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

_TOP_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_FIRST_TOP_BIT, _FIRST_LOW_BITS = np.uint64(0x80), np.uint64(0x7F)
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


def decode(words: Words) -> tuple[Words, Ints, int]:
    """The varints that begin at the lowest byte of each word.

    Args:
        words: one at least.

    Returns:
        The varints, their lengths (0 for one that does not end in its word), and the greatest length; 8 where any
        does not end.
    """
    if not words[0] & _FIRST_TOP_BIT and not (words & _FIRST_TOP_BIT).any():
        return words & _FIRST_LOW_BITS, np.ones(len(words), dtype=np.int64), 1  # as tags and most ids are
    ends = ~words & _TOP_BITS
    below = ends - _ONE
    last = ends & ~below  # the top bit of a varint's last byte
    if last[0] == last[-1] and last[0] and (last == last[0]).all():  # as times are that follow each other
        most = int(last[0]).bit_length() // 8
        values = words & np.uint64((1 << 8 * most) - 1 & int(_LOW_BITS))
        lengths: Ints = np.broadcast_to(np.int64(most), len(words))
    else:
        values = words & (ends ^ below) & _LOW_BITS
        lengths = ((last >> _SEVEN) * _LENGTHS >> _FIFTY_SIX).view(np.int64)
        most = int(lengths.max()) if lengths.all() else 8
    for reach, high, shift in _SQUEEZE:
        if most > reach:
            moving = values & high
            values ^= moving
            moving >>= shift
            values |= moving
    return values, lengths, most
