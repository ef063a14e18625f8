"""Positions of a line and its events in a serialized XSpace; nothing is copied or opened.

The protobuf runtime would make an object of every event of every line, most of which nobody asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from tpumon.errors import SourceError
from tpumon.proto.xplane_pb2 import LineOutline
from tpumon.xspace.columns.columns import Bytes, Ints, Mask, Packed
from tpumon.xspace.wire import Stored, fields, parsed

PADDING = bytes(24)
"""What follows the last byte: a varint that starts there is loaded eight bytes at a time, and so is a stat's value."""

_EVENT, _METADATA_ID, _OFFSET = 0x22, 0x08, 0x10  # tags: XLine.events; XEvent.metadata_id, offset_ps
_PORTION_BYTES = 1 << 19  # of a line that are in memory at a time
_LINE_NAME, _LINE_TIMESTAMP, _LINE_EVENTS = 2, 3, 4  # field numbers
_AFTER_EVENTS = frozenset({9, 10, 11})  # fields of a line that tell nothing that is asked for
MOST_EVENTS = 10_000_000  # of a line; a trace of 64 MB has 2,000,000 ordinary ones


class TraceLine(Struct, frozen=True, eq=False):
    """One line of a plane, its events not read yet.

    Attributes:
        name: as the trace says.
        timestamp_ns: what its events' offsets count from.
        has_events: whether there are any.
        stored: what holds the serialized line.
        begin: where in it.
        end: where in it.
        first: position of the first event in the line.
    """

    name: str
    timestamp_ns: int
    has_events: bool
    stored: Stored
    begin: int
    end: int
    first: int

    @property
    def raw(self) -> memoryview:
        """The serialized line."""
        return self.stored[self.begin : self.end]

    def portions(self, most_bytes: int | None = None) -> Iterator[Packed]:
        """The line's events, portion by portion, so that of a long line little is in memory; none is empty.

        Args:
            most_bytes: of a portion; _PORTION_BYTES if not given.

        Raises:
            SourceError: `malformed`; `too-large`, there are more than MOST_EVENTS.
        """
        at, count = self.begin + self.first, 0
        while at < self.end:
            packed, at = self._portion(at, most_bytes or _PORTION_BYTES)
            count += len(packed.begin)
            if count > MOST_EVENTS:  # without the others, its device would look idle
                raise SourceError("too-large", f"a line of the trace has more than {MOST_EVENTS:,} events")
            if len(packed.begin):
                yield packed

    def _portion(self, at: int, most_bytes: int) -> tuple[Packed, int]:
        """The events from a position on, and where the next portion begins."""
        size = min(most_bytes, self.end - at)
        padded = self.stored[at : at + size + len(PADDING)]
        if len(padded) < size + len(PADDING):
            padded = memoryview(bytes(padded[:size]) + PADDING)
        spans = _split(padded, size)
        if spans is not None:
            at += int(spans[1][-1])
            return Packed(data=padded, begin=spans[0], end=spans[1]), at
        if padded[0] != _EVENT and all(n in _AFTER_EVENTS for n, *_ in fields(self.stored, at, self.end)):
            return pack([]), self.end
        return pack(_outline(self.stored[at : self.end]).events), self.end


def pack(events: Sequence[bytes]) -> Packed:
    """Serialized events, put together."""
    events = list(events)
    lengths = np.fromiter(map(len, events), dtype=np.int64, count=len(events))
    end = np.cumsum(lengths)
    return Packed(data=memoryview(b"".join([*events, PADDING])), begin=end - lengths, end=end)


def read_line(stored: Stored, begin: int = 0, end: int | None = None) -> TraceLine:
    """Reads a serialized line up to its first event; nearly all say there all that is asked for.

    Args:
        stored: what holds the line.
        begin: where in it.
        end: where in it; its own end, if not given.

    Raises:
        SourceError: `malformed`.
    """
    end = len(stored) if end is None else end
    name, timestamp_ns = None, 0
    for number, at, value_begin, value_end, value in fields(stored, begin, end):
        if number == _LINE_EVENTS:
            if name is None:
                break
            return TraceLine(name, timestamp_ns, True, stored, begin, end, at - begin)
        if number == _LINE_NAME:
            name = bytes(stored[value_begin:value_end]).decode(errors="replace")
        elif number == _LINE_TIMESTAMP:
            timestamp_ns = value - (1 << 64) if value >= 1 << 63 else value
    else:
        return TraceLine(name or "", timestamp_ns, False, stored, begin, end, end - begin)
    line = _outline(stored[begin:end])
    return TraceLine(line.name, line.timestamp_ns, bool(len(line.events)), stored, begin, end, 0)


def _outline(raw: memoryview) -> LineOutline:
    return parsed(LineOutline, bytes(raw), "the trace is broken: a line does not parse")


def _split(padded: memoryview, size: int) -> tuple[Ints, Ints] | None:
    """Finds all events at once; None where they are not as nearly all are, so that the runtime must find them.

    An event begins with its tag, a length of one byte, metadata_id and offset_ps. Bytes that look like that may also
    lie within an event; but then the positions do not fit together, each event's end being the next one's begin.

    Args:
        padded: a portion of a line, which begins with an event, and PADDING's length more.
        size: the portion's.

    Returns:
        Begins and ends of the events that lie in the portion as a whole, of which there is at least one.
    """
    data: Bytes = np.frombuffer(padded, dtype=np.uint8)
    at = _beginnings(data[: size + 5])
    if not len(at) or at[0]:
        return None
    end = at + 2 + data.take(at + 1)
    is_odd = bool(np.count_nonzero(at[1:] != end[:-1]))
    if is_odd:
        kept = _begins(data, at)
        at, end = at[kept], end[kept]
        # What begins before an earlier one ends lies within it.
        outer = np.concatenate([[True], at[1:] >= np.maximum.accumulate(end)[:-1]])[: len(at)]
        at, end = at[outer], end[outer]
    if len(at) and end[-1] > size:
        at, end = at[:-1], end[:-1]
    begin = at + 2
    if not len(at) or at[0] or (is_odd and np.count_nonzero(at[1:] != end[:-1])) or (end - begin).max() >= 0x80:
        return None
    return begin, end


def _begins(data: Bytes, at: Ints) -> Mask:
    """True for positions at which an event with a metadata_id of one byte or two, and an offset, begins."""
    short = data[at + 3] < 0x80
    begins: Mask = np.where(short, data[at + 4] == _OFFSET, (data[at + 4] < 0x80) & (data[at + 5] == _OFFSET))
    begins &= data[at + 1] < 0x80
    return begins


def _beginnings(block: Bytes) -> Ints:
    """Positions in all of a block but its last five bytes where an event may begin."""
    offsets = block[4:] == _OFFSET
    tags = offsets[:-1] | offsets[1:]
    tags &= block[:-5] == _EVENT
    tags &= block[2:-3] == _METADATA_ID
    beginnings: Ints = tags.nonzero()[0]
    return beginnings
