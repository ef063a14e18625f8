"""The fields of a serialized message, one by one: no object is made of any. Without NumPy."""

from __future__ import annotations

from collections.abc import Iterator

from tpumon.errors import SourceError

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5  # wire types

NOT_A_TRACE = "not a trace: the bytes do not parse as an XSpace"


def fields(raw: memoryview) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields of a serialized message: number, begin, begin and end of the value, and the value of a varint.

    That value is 0 for fields of another kind.

    Raises:
        SourceError: `malformed`.
    """
    at, size = 0, len(raw)
    while at < size:
        begin = at
        tag, at = _varint(raw, at)
        number, kind, value = tag >> 3, tag & 7, 0
        value_begin = at
        if kind == _VARINT:
            value, at = _varint(raw, at)
        elif kind == _DELIMITED:
            length, value_begin = _varint(raw, at)
            at = value_begin + length
        elif kind in {_FIXED32, _FIXED64}:
            at += 8 if kind == _FIXED64 else 4
        else:
            raise SourceError("malformed", NOT_A_TRACE)
        if at > size or not number:
            raise SourceError("malformed", NOT_A_TRACE)
        yield number, begin, value_begin, at, value


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in raw[at : at + 10]:
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise SourceError("malformed", NOT_A_TRACE)
