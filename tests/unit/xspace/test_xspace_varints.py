"""Varints decoded many at once are what one gets byte by byte."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tpumon.xspace.columns.event_decoder import decode_varints

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


@given(st.lists(WORDS, min_size=1, max_size=12))
def test_varints_are_what_one_gets_byte_by_byte(words):
    values, lengths = decode_varints(np.array(words, dtype=np.uint64))
    expected = [one_by_one(word) for word in words]
    assert values.tolist() == [value for value, _ in expected]
    assert lengths.tolist() == [length for _, length in expected]
