"""The fields of a serialized message, one by one: no object is made of any. Without NumPy."""

from __future__ import annotations

from collections.abc import Iterator

from tpumon.errors import SourceError
from tpumon.xspace.wire.stored import Stored

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5  # wire types
_LONGEST_HEAD = 20  # a tag and a varint

NOT_A_TRACE = "not a trace: the bytes do not parse as an XSpace"


def fields(raw: Stored, first: int = 0, size: int | None = None) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields of a serialized message: number, begin, begin and end of the value, and the value of a varint.

    That value is 0 for fields of another kind.

    Args:
        raw: what holds the message; positions count from its beginning.
        first: where the message begins.
        size: where it ends; where `raw` does, if not given.

    Raises:
        SourceError: `malformed`.
    """
    at, size = first, len(raw) if size is None else size
    while at < size:
        begin = at
        head = raw[at : min(at + _LONGEST_HEAD, size)]
        tag, used = _varint(head, 0)
        number, kind, value = tag >> 3, tag & 7, 0
        value_begin = begin + used
        if kind == _VARINT:
            value, used = _varint(head, used)
            at = begin + used
        elif kind == _DELIMITED:
            length, used = _varint(head, used)
            value_begin = begin + used
            at = value_begin + length
        elif kind in {_FIXED32, _FIXED64}:
            at = value_begin + (8 if kind == _FIXED64 else 4)
        else:
            raise SourceError("malformed", NOT_A_TRACE)
        if at > size or not number:
            raise SourceError("malformed", NOT_A_TRACE)
        yield number, begin, value_begin, at, value


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in raw[at : at + 10]:
        at += 1
        if byte < 0x80:
            return (value | byte << shift) & (1 << 64) - 1, at
        value |= (byte & 0x7F) << shift
        shift += 7
    raise SourceError("malformed", NOT_A_TRACE)
