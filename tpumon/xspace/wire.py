"""The wire format of a serialized XSpace: its bytes, in memory or in a file, and its fields one by one; no NumPy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from tpumon.errors import SourceError

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5  # wire types
_LONGEST_HEAD = 20  # a tag and a varint
_WINDOW_BYTES = 4096  # the heads of neighbouring fields come with one read

NOT_A_TRACE = "not a trace: the bytes do not parse as an XSpace"

_Message = TypeVar("_Message", bound=Message)


class Stored(Protocol):
    """Bytes that are read by slices, as those of a memoryview are."""

    def __len__(self) -> int: ...

    def __getitem__(self, these: slice, /) -> memoryview: ...


class FileBytes:
    """The bytes of a file, read when they are asked for, so that a large one is never in memory as a whole.

    They are not mapped: a file that somebody truncates meanwhile would end the process.

    Args:
        file: a regular file, open while this is used. Its own errors (OSError) are passed on.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._window, self._window_begin = memoryview(b""), 0

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, these: slice, /) -> memoryview:
        begin, end, _ = these.indices(self._size)
        if end - begin >= _WINDOW_BYTES // 2:
            return self._read(begin, end)
        first = begin - self._window_begin
        if first < 0 or end > self._window_begin + len(self._window):
            self._window, self._window_begin = self._read(begin, min(begin + _WINDOW_BYTES, self._size)), begin
            first = 0
        return self._window[first : first + max(end - begin, 0)]

    def _read(self, begin: int, end: int) -> memoryview:
        data = os.pread(self._file.fileno(), end - begin, begin)
        if len(data) < end - begin:
            raise SourceError("malformed", "the file became shorter while it was read")
        return memoryview(data)


def stored(xspace: bytes | memoryview | BinaryIO) -> Stored:
    """The bytes, or those of a regular file, to be read by slices."""
    return memoryview(xspace) if isinstance(xspace, (bytes, memoryview)) else FileBytes(xspace)


def parsed(kind: type[_Message], raw: bytes, broken: str = NOT_A_TRACE) -> _Message:
    """A serialized message, as the protobuf runtime reads it.

    Args:
        kind: of message.
        raw: its bytes.
        broken: what to say if it does not parse.

    Raises:
        SourceError: `malformed`.
    """
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        raise SourceError("malformed", broken) from error


def fields(raw: Stored, begin: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields of a serialized message: number, begin, begin and end of the value, and the value of a varint.

    That value is 0 for fields of another kind.

    Args:
        raw: what holds the message; positions count from its beginning.
        begin: where the message begins.
        end: where it ends; where `raw` does, if not given.

    Raises:
        SourceError: `malformed`.
    """
    at, end = begin, len(raw) if end is None else end
    while at < end:
        begin = at
        head = raw[at : min(at + _LONGEST_HEAD, end)]
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
        if at > end or not number:
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
