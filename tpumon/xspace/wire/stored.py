"""Where a trace's bytes are: in memory, or in a file of which only what is needed is in memory."""

from __future__ import annotations

import os
from typing import BinaryIO, Protocol

from tpumon.errors import SourceError

_WINDOW_BYTES = 4096  # the heads of neighbouring fields come with one read
_BECAME_SHORTER = "the file became shorter while it was read"
_SMALL_BYTES = 4 << 20  # a file that is read at once: its lines are many, and short


class Stored(Protocol):
    """Bytes that are read by slices, as those of a memoryview are."""

    def __len__(self) -> int: ...

    def __getitem__(self, these: slice, /) -> memoryview: ...


class FileBytes:
    """The bytes of a file, read when they are asked for.

    They are not mapped: a file that somebody truncates meanwhile would end the process.

    Args:
        file: a regular file, open while this is used. Its own errors (OSError) are passed on.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._window, self._window_begin = self._read(0, self._size if self._size <= _SMALL_BYTES else 0), 0

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, these: slice, /) -> memoryview:
        begin, end, _ = these.indices(self._size)
        first = begin - self._window_begin
        if first < 0 or end > self._window_begin + len(self._window):
            if end - begin >= _WINDOW_BYTES // 2:
                return self._read(begin, end)
            self._window, self._window_begin = self._read(begin, min(begin + _WINDOW_BYTES, self._size)), begin
            first = 0
        return self._window[first : first + max(end - begin, 0)]

    def _read(self, begin: int, end: int) -> memoryview:
        data = os.pread(self._file.fileno(), end - begin, begin)
        if len(data) < end - begin:
            raise SourceError("malformed", _BECAME_SHORTER)
        return memoryview(data)
