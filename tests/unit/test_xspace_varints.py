"""Varints decoded many at once are what one gets byte by byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpumon.xspace.columns.varints import decode, differing_bits

WORDS = st.one_of(
    st.integers(0, (1 << 64) - 1),
    st.builds(int.from_bytes, st.binary(min_size=8, max_size=8).map(lambda raw: bytes(b | 0x80 for b in raw))),
    # Of few lengths, so that all may have the same.
    st.builds(lambda length, rest: rest << 8 * length | (1 << 8 * (length - 1)), st.integers(1, 4), st.integers(0, 99)),
)


def one_by_one(word):
    """The varint at the lowest byte of a word, and its length; 0 where it does not end."""
    value = 0
    for i, byte in enumerate(word.to_bytes(8, "little")):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, i + 1
    return value, 0


def check(words, *, told):
    """Compares; returns whether one number says the length of all."""
    array = np.array(words, dtype=np.uint64)
    values, lengths, most = decode(array, differing_bits(array) if told else None)
    expected = [one_by_one(word) for word in words]
    assert values.tolist() == [value for value, _ in expected]
    assert np.broadcast_to(lengths, len(words)).tolist() == [length for _, length in expected]
    assert most == max(length or 8 for _, length in expected)
    assert most < 8 or np.shape(lengths) == (len(words),)
    return np.shape(lengths) == ()


@given(st.lists(WORDS, min_size=1, max_size=12), st.booleans())
def test_varints_are_what_one_gets_byte_by_byte(words, told):
    check(words, told=told)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("length", range(1, 9))
def test_varints_of_one_length_are_read_at_once(length, told):
    """What follows them may be anything; a longer or shorter neighbour is read as it is."""
    low = int.from_bytes((b"\x80" * (length - 1) + b"\x01\x81").ljust(8, b"\0")[:8], "little")
    usual = [low | i << 56 if length < 8 else low for i in range(9)]
    assert check(usual, told=told) is (length < 8)
    for other in (low & ~0xFF | 0x7F, low | 0x80 << 8 * (length - 1)):
        for place in (0, 4, 9):
            words = [*usual[:place], other, *usual[place:]]
            same = one_by_one(other)[1] == length < 8
            assert check(words, told=told) is same
