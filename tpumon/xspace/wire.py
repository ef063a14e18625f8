"""Where things are in a serialized XSpace: planes, lines and events as positions, so that nothing is copied or opened.

The protobuf runtime would make an object of every event of every line, most of which nobody asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tpumon.errors import SourceError
from tpumon.wire.xplane_pb2 import LineOutline
from tpumon.xspace.fields import NOT_A_TRACE, fields

Ints = NDArray[np.int64]

__all__ = ["NOT_A_TRACE", "PADDING", "Line", "Packed", "fields", "pack", "read_line"]

PADDING = bytes(20)
"""What a varint that starts at the last byte is loaded from, eight bytes at a time."""

_EVENT, _METADATA_ID, _OFFSET = 0x22, 0x08, 0x10  # tags: XLine.events; XEvent.metadata_id, offset_ps
_BLOCK_BYTES = 1 << 17  # what is looked at in one go stays in the processor's cache
_LINE_NAME, _LINE_TIMESTAMP, _LINE_EVENTS = 2, 3, 4  # field numbers
_AFTER_EVENTS = frozenset({9, 10, 11})  # fields of a line that tell nothing that is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Serialized events in one piece.

    Attributes:
        data: the events and whatever lies between them, PADDING at the end.
        begin: position of each event's first byte.
        end: position after its last byte.
    """

    data: bytes
    begin: Ints
    end: Ints


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a plane, its events not read yet.

    Attributes:
        name: as the trace says.
        timestamp_ns: what its events' offsets count from.
        has_events: whether there are any.
        raw: the serialized line.
        first: position of the first event in `raw`.
    """

    name: str
    timestamp_ns: int
    has_events: bool
    raw: memoryview
    first: int

    def events(self) -> Packed:
        """Where the line's events are.

        Raises:
            SourceError: `malformed`.
        """
        return _split(self.raw, self.first) or pack(_outline(self.raw).events)


def pack(events: Sequence[bytes]) -> Packed:
    """Serialized events, put together."""
    events = list(events)
    lengths = np.fromiter(map(len, events), dtype=np.int64, count=len(events))
    end = np.cumsum(lengths)
    return Packed(data=b"".join([*events, PADDING]), begin=end - lengths, end=end)


def read_line(raw: memoryview) -> Line:
    """What a serialized line says before its first event; nearly all say all of it there.

    Raises:
        SourceError: `malformed`.
    """
    name, timestamp_ns = None, 0
    for number, begin, value_begin, end, value in fields(raw):
        if number == _LINE_EVENTS:
            if name is None:
                break
            return Line(name, timestamp_ns, has_events=True, raw=raw, first=begin)
        if number == _LINE_NAME:
            name = bytes(raw[value_begin:end]).decode(errors="replace")
        elif number == _LINE_TIMESTAMP:
            timestamp_ns = value - (1 << 64) if value >= 1 << 63 else value
    else:
        return Line(name or "", timestamp_ns, has_events=False, raw=raw, first=len(raw))
    line = _outline(raw)
    return Line(line.name, line.timestamp_ns, has_events=bool(len(line.events)), raw=raw, first=0)


def _outline(raw: memoryview) -> LineOutline:
    try:
        return LineOutline.FromString(bytes(raw))
    except DecodeError as error:
        raise SourceError("malformed", "the trace is broken: a line does not parse") from error


def _split(raw: memoryview, first: int) -> Packed | None:
    """Finds all events at once; None where they are not as nearly all are, so that the runtime must find them.

    An event begins with its tag, a length of one byte, metadata_id and offset_ps. Bytes that look like that may also
    lie within an event; but then the positions do not fit together, each event's end being the next one's begin.
    """
    padded = bytes(raw) + PADDING
    data = np.frombuffer(padded, dtype=np.uint8)

    found = []
    for start in range(first, len(raw), _BLOCK_BYTES):
        block = data[start : min(start + _BLOCK_BYTES, len(raw)) + 5]
        offset_next = (block[4:-1] == _OFFSET) | (block[5:] == _OFFSET)
        found.append(np.flatnonzero((block[:-5] == _EVENT) & (block[2:-3] == _METADATA_ID) & offset_next) + start)
    at = np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
    short = data[at + 3] < 0x80  # a metadata_id of one byte, else of two
    begins = np.where(short, data[at + 4] == _OFFSET, (data[at + 4] < 0x80) & (data[at + 5] == _OFFSET))
    at = at[begins & (data[at + 1] < 0x80)]
    if not len(at) or at[0] != first:
        return None
    end = at + 2 + data[at + 1]
    # What begins before an earlier one ends lies within it.
    outer = np.concatenate([[True], at[1:] >= np.maximum.accumulate(end)[:-1]])
    at, end = at[outer], end[outer]
    if (at[1:] != end[:-1]).any() or end[-1] > len(raw):
        return None
    if any(number not in _AFTER_EVENTS for number, *_ in fields(raw[int(end[-1]) :])):
        return None
    return Packed(data=padded, begin=at + 2, end=end)
