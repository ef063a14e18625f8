"""Rows of whole numbers, appended at one end and forgotten at the other; all but the newest are compressed."""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

LARGEST = 0xFFFF
"""The largest number that a row can hold."""

_NEW_ROWS, _NEW_ROWS_IF_RARE = 128, 32
"""How many rows wait to be compressed."""

_BLOCK_ROWS = 128
_HEAD = struct.Struct("<qqHI")  # of a packed block: first and last place, rows, bytes
_LATEST = 1 << 50
_LEVEL, _QUICK_LEVEL = 6, 1


class _Head(NamedTuple):
    """What a block says of the rows that it holds.

    A block is one object of bytes, because a worker has many: the head, then the rows, compressed. These are gaps
    between places, the least number of each column, and each column above that, the lower bytes first.
    """

    first: int
    last: int
    rows: int
    size: int


def _head(block: bytes, at: int = 0) -> _Head:
    return _Head(*_HEAD.unpack_from(block, at))


class Rows:
    """Rows of `width` whole numbers (0 to 65535) each, at whole places that never go back.

    Args:
        width: numbers of a row.
        rare: whether rows come so seldom that each block may be compressed several times, which takes less memory.
    """

    __slots__ = ("_blocks", "_count", "_most_new", "_numbers", "_places", "_width")

    def __init__(self, width: int, *, rare: bool = False) -> None:
        self._width = width
        self._most_new = _NEW_ROWS_IF_RARE if rare else _NEW_ROWS
        self._blocks: list[bytes] = []
        self._places = array("q")
        self._numbers = array("H")
        self._count = 0

    @property
    def first(self) -> int | None:
        """Place of the oldest row; None: there is none."""
        if self._blocks:
            return _head(self._blocks[0]).first
        return self._places[0] if self._places else None

    @property
    def last(self) -> int | None:
        """Place of the newest row; None: there is none."""
        if self._places:
            return self._places[-1]
        return _head(self._blocks[-1]).last if self._blocks else None

    def extend(self, places: Sequence[int], numbers: Sequence[int]) -> None:
        """Adds rows; their numbers come one row after the other."""
        at = 0
        while at < len(places):
            until = min(at + self._most_new - len(self._places), len(places))
            self._places.extend(places[at:until])
            self._numbers.extend(numbers[at * self._width : until * self._width])
            self._count += until - at
            at = until
            if len(self._places) >= self._most_new:
                self._seal()

    def _seal(self) -> None:
        """Compresses the new rows."""
        if self._blocks and _head(self._blocks[-1]).rows + self._most_new <= _BLOCK_ROWS:
            self._reopen(self._blocks.pop())
        self._blocks.append(self._sealed(self._places, self._numbers))
        self._places, self._numbers = array("q"), array("H")

    def trim(self, oldest: int, most_rows: int) -> bool:
        """Forgets blocks of rows that all lie before `oldest`, or blocks and halves that are too many.

        Returns:
            Whether it did.
        """
        before, gone = self._count, 0
        for block in self._blocks:
            head = _head(block)
            if head.last >= oldest and self._count - head.rows < most_rows:
                if head.rows == _BLOCK_ROWS and self._count - _BLOCK_ROWS // 2 >= most_rows:
                    self._halve(gone)
                break
            self._count -= head.rows
            gone += 1
        del self._blocks[:gone]
        return self._count < before

    def _halve(self, at: int) -> None:
        """Forgets the older half of a block; all of a damaged one."""
        places, numbers = self._plain(self._blocks[at])
        half = len(places) // 2
        self._count -= _head(self._blocks[at]).rows - (len(places) - half)
        self._blocks[at : at + 1] = (
            [self._sealed(places[half:], numbers[half * self._width :], again=False)] if half else []
        )

    def read(self, columns: Sequence[int], first: int, last: float) -> Iterator[tuple[int, ...]]:
        """The rows from `first` to before `last`: the place of each, and its numbers in these columns."""
        for block in self._blocks:
            head = _head(block)
            if head.last >= first and head.first < last:
                places, read = self._opened(block, columns)
                for row in zip(places, *read, strict=True):
                    if first <= row[0] < last:
                        yield row
        for at, place in enumerate(self._places):
            if first <= place < last:
                yield place, *(self._numbers[at * self._width + column] for column in columns)

    def packed(self, most_bytes: int) -> tuple[bytes, bool]:
        """The newest rows in at most so many bytes, for `unpacked`; and whether that is all of them."""
        blocks = [*self._blocks, *([self._sealed(self._places, self._numbers)] if self._places else [])]
        parts: list[bytes] = []
        for block in reversed(blocks):
            most_bytes -= len(block)
            if most_bytes < 0:
                return b"".join(reversed(parts)), False
            parts.append(block)
        return b"".join(reversed(parts)), True

    @classmethod
    def unpacked(cls, plain: bytes, width: int, most_rows: int, *, rare: bool = False) -> Rows:
        """Reverses `packed`. Blocks are checked when they are read: a damaged one has no rows.

        Raises:
            ValueError: it is not what `packed` returned.
        """
        rows, at = cls(width, rare=rare), 0
        while at < len(plain):
            try:
                first, last, count, size = _head(plain, at)
            except struct.error:
                raise ValueError("history ends early") from None
            block = plain[at : at + _HEAD.size + size]
            at += _HEAD.size + size
            before = _head(rows._blocks[-1]).last if rows._blocks else 0
            if not (before <= first <= last < _LATEST and 0 < count <= _BLOCK_ROWS and len(block) == _HEAD.size + size):
                raise ValueError("history is damaged")
            rows._blocks.append(block)
            rows._count += count
        rows.trim(-1, most_rows)
        return rows

    def all(self) -> Iterator[tuple[int, list[int]]]:
        """All rows with their places, oldest first."""
        for block in self._blocks:
            places, columns = self._opened(block, range(self._width))
            for place, *row in zip(places, *columns, strict=True):
                yield place, row
        for at, place in enumerate(self._places):
            yield place, list(self._numbers[at * self._width : (at + 1) * self._width])

    def _reopen(self, block: bytes) -> None:
        """Puts the rows of the newest block before the new ones; those of a damaged block are lost."""
        places, numbers = self._plain(block)
        self._count += len(places) - _head(block).rows
        self._places, self._numbers = places + self._places, numbers + self._numbers

    def _plain(self, block: bytes) -> tuple[array[int], array[int]]:
        """Places and numbers of a block's rows; none of a damaged one."""
        places, columns = self._opened(block, range(self._width))
        numbers = array("H", bytes(2 * self._width * len(places)))
        for column, read in enumerate(columns):
            numbers[column :: self._width] = read
        return array("q", places), numbers

    def _sealed(self, places: array[int], numbers: array[int], *, again: bool = True) -> bytes:
        """A block of rows; one that is not full is soon compressed again, so that is done quickly."""
        gaps = array("I", (min(later - earlier, 0xFFFFFFFF) for earlier, later in pairwise(places)))
        columns = [numbers[column :: self._width] for column in range(self._width)]
        whole = not again or len(places) >= _BLOCK_ROWS
        least = array("H", map(min, columns) if whole else bytes(2 * self._width))
        parts = [little(gaps), little(least)]
        for column, low in zip(columns, least, strict=True):
            plain = little(array("H", [number - low for number in column]) if low else column)
            parts += (plain[::2], plain[1::2])
        data = zlib.compress(b"".join(parts), _LEVEL if whole else _QUICK_LEVEL)
        return _HEAD.pack(places[0], places[-1], len(places), len(data)) + data

    def _opened(self, block: bytes, columns: Sequence[int]) -> tuple[list[int], list[array[int]]]:
        first, last, rows, _ = _head(block)
        none: tuple[list[int], list[array[int]]] = [], [array("H") for _ in columns]
        gaps = 4 * (rows - 1)
        start = gaps + 2 * self._width
        size = start + 2 * rows * self._width
        try:
            plain = zlib.decompressobj().decompress(memoryview(block)[_HEAD.size :], size + 1)
        except zlib.error:
            plain = b""
        if len(plain) != size:  # it came from elsewhere, and is damaged
            return none
        places = [first]
        for gap in from_little("I", plain[:gaps]):
            places.append(places[-1] + gap)
        if places[-1] > last:  # so are those that follow: rows would no longer be in order
            return none
        least = from_little("H", plain[gaps:start])
        read = []
        for column in columns:
            at = start + 2 * rows * column
            both = bytearray(2 * rows)
            both[::2], both[1::2] = plain[at : at + rows], plain[at + rows : at + 2 * rows]
            numbers, low = from_little("H", bytes(both)), least[column]
            read.append(array("H", [low + number & LARGEST for number in numbers]) if low else numbers)
        return places, read


def little(numbers: array[int]) -> bytes:
    """The numbers as bytes, the same on every machine."""
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers.tobytes()


def from_little(code: str, plain: bytes) -> array[int]:
    """Reverses `little`; `code` is the type of the array.

    Raises:
        ValueError: there are not as many bytes as whole numbers take.
    """
    numbers = array(code)
    numbers.frombytes(plain)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
