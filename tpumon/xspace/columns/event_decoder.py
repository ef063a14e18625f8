"""The wire format read at once for all events of a line: bytes to arrays, without an object per field.

Nearly every event is a few varints in the order that protobuf writes them, so all events of a line are walked in step,
one field at a time, in groups of the same field. Whatever is not so simple (long tags, groups, very many fields) goes
through the protobuf runtime, event by event, so that the two cannot disagree about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpumon.proto.xplane_pb2 import XEvent, XStat
from tpumon.xspace.columns.columns import Bytes, EventColumns, Ints, Packed, StatColumn, Words
from tpumon.xspace.columns.intervals import among
from tpumon.xspace.wire import parsed

_MOST_ROUNDS = 64  # fields of one event; beyond, the runtime reads it

_ID, _OFFSET, _DURATION, _STAT, _OCCURRENCES = 0x08, 0x10, 0x18, 0x22, 0x28  # tag bytes of XEvent
_DOUBLE, _UINT, _INT, _STRING, _BYTES, _REF = 0x11, 0x18, 0x20, 0x2A, 0x32, 0x38  # of XStat, after its metadata_id
_VARINTS = frozenset({_UINT, _INT, _REF})
_KINDS = {"double_value": _DOUBLE, "uint64_value": _UINT, "int64_value": _INT, "ref_value": _REF}

# Bytes of an event from a stat on, lowest first: tag, length below 128, tag of metadata_id, id below 128, value's tag.
_SHORT_STAT_MASK, _SHORT_STAT = 0x80FF80FF, 0x00080022
_TAG, _STAT_HEAD = 0xFF, 0xFFFFFF80FF  # what tells fields apart, and stats
_VALUE_AT = 5

UNKNOWN = -1 << 63
"""Stands for a metadata id that is not the first field of its event."""
_NOWHERE = 1 << 62  # a position beyond all: where a field ends that is not understood

_LOW_SEVEN = np.uint64(0x7F)
_TOP_BITS, _LOW_BITS = np.uint64(0x8080808080808080), np.uint64(0x7F7F7F7F7F7F7F7F)
_LENGTHS = np.uint64(0x0102030405060708)  # a byte per position of a varint's last byte: its length
_ONE, _SEVEN, _EIGHT, _TWENTY_FOUR, _FIFTY_SIX, _SIXTY_THREE = (np.uint64(n) for n in (1, 7, 8, 24, 56, 63))
# How groups of seven bits move together; needed from varints of more bytes than the first number on.
_SQUEEZE = tuple(
    (reach, np.uint64(high), np.uint64(shift))
    for reach, high, shift in (
        (1, 0x7F007F007F007F00, 1),
        (2, 0x3FFF00003FFF0000, 2),
        (4, 0x0FFFFFFF00000000, 4),
    )
)


def decode_varints(words: Words) -> tuple[Words, Ints]:
    """Varints at the begin of each word of eight bytes, and their lengths; 0: the varint is longer than the word."""
    ends = ~words
    ends &= _TOP_BITS
    last = ends & -ends  # the top bit of a varint's last byte
    lengths = last >> _SEVEN
    lengths *= _LENGTHS
    lengths >>= _FIFTY_SIX
    values = last - _ONE
    values &= words
    values &= _LOW_BITS
    longest = 8 if not lengths.all() else lengths.max(initial=0)
    for reach, high, shift in _SQUEEZE:
        if longest > reach:
            moving = values & high
            values ^= moving
            moving >>= shift
            values |= moving
    return values, lengths.view(np.int64)


def read_events(events: Packed, wanted_stats: Sequence[int] = ()) -> EventColumns:
    """Decodes serialized XEvents.

    Args:
        events: of one line, serialized.
        wanted_stats: metadata ids of the stats to decode; others are skipped.

    Raises:
        SourceError: `malformed`, an event is not one.
    """
    return _Decoder(events, wanted_stats).read()


def first_ids(events: Packed) -> Ints:
    """Metadata id of each event that begins with that field; UNKNOWN: the event begins with another field.

    Args:
        events: of one line, serialized; at least one.
    """
    words = _words(events.data)[events.begin]
    ids, lengths = decode_varints(words >> _EIGHT)
    return np.where(((words & np.uint64(_TAG)) == _ID) & (lengths % 8 > 0), ids.view(np.int64), UNKNOWN)


def of_kinds(events: Packed, kinds: Sequence[int]) -> Packed:
    """Events that may have one of these metadata ids, by the field that they begin with.

    Args:
        events: of one line, serialized; at least one.
        kinds: metadata ids.
    """
    picked = among(first_ids(events), (*kinds, UNKNOWN))
    return Packed(data=events.data, begin=events.begin[picked], end=events.end[picked])


def parsed_event(raw: bytes) -> XEvent:
    """A serialized event, as the runtime reads it.

    Raises:
        SourceError: `malformed`.
    """
    return parsed(XEvent, raw, "the trace is broken: an event does not parse")


def stat_bits(stat: XStat) -> tuple[int, bool]:
    """A stat's number as 64 unsigned bits, and whether they are a double's; 0 for text and bytes."""
    name = stat.WhichOneof("value")
    if name not in _KINDS:
        return 0, False
    value = getattr(stat, name)
    if name == "double_value":
        return int(np.float64(value).view(np.uint64)), True
    return value & (1 << 64) - 1, False


class _Decoder:
    """Reads the events of a portion of a line.

    Args:
        events: the portion.
        wanted: metadata ids of the stats to decode.
    """

    def __init__(self, events: Packed, wanted: Sequence[int]) -> None:
        self._packed, self._count, self._wanted = events, len(events.begin), wanted
        self._numbers = {tag: np.zeros(self._count, dtype=np.int64) for tag in (_ID, _OFFSET, _DURATION)}
        self._stats: dict[int, StatColumn] = {}
        self._data: Bytes = np.frombuffer(events.data, dtype=np.uint8)
        self._words = _words(events.data)
        self._is_wanted = np.zeros(256, dtype=np.bool_)  # an id of one byte, which is below 128
        self._is_wanted[[number for number in wanted if 0 <= number < 128]] = True
        self._odd: list[Ints] = []

    def read(self) -> EventColumns:
        """Reads all of them."""
        self._walk()
        if self._odd:
            self._read_odd(np.unique(np.concatenate(self._odd)))
        return EventColumns(
            metadata_id=self._numbers[_ID],
            offset_ps=self._numbers[_OFFSET],
            duration_ps=self._numbers[_DURATION],
            stats={number: column for number, column in self._stats.items() if column.present.any()},
        )

    def _walk(self) -> None:
        """Goes through all events field by field; notes unreadable events as odd."""
        rows, at, ends = np.arange(self._count), self._packed.begin, self._packed.end
        for _ in range(_MOST_ROUNDS):
            going = at < ends
            if not going.all():
                rows, at, ends = rows[going], at[going], ends[going]
            if not len(rows):
                return
            words = self._words[at]
            following = np.full(len(at), _NOWHERE)
            for head, here in self._fields(words):
                read = self._read_stat if head & _TAG == _STAT else self._read_number
                following[here] = read(head, rows[here], at[here], words[here], ends[here])
            odd = following > ends
            if odd.any():
                self._odd.append(rows[odd])
                following = np.where(odd, ends, following)
            at = following
        self._odd.append(rows[at < ends])

    def _fields(self, words: Words) -> list[tuple[int, slice | Ints]]:
        """The fields that some events have next, by their tags, and which events have each; nearly always all.

        A stat is recognised by its first bytes without the length; if events differ, only wanted stats are.
        """
        first, differing = int(words[0]), int(np.bitwise_or.reduce(words ^ words[0]))
        telling = _STAT_HEAD if first & _TAG == _STAT else _TAG
        if not differing & telling:
            return [(first & telling, slice(None))]
        tags = words & np.uint64(_TAG)
        wanted = (tags == _STAT) & self._is_wanted[(words >> _TWENTY_FOUR).astype(np.uint8)]
        return _by_value(np.where(wanted, words & np.uint64(_STAT_HEAD), tags))

    def _read_number(self, tag: int, rows: Ints, at: Ints, words: Words, _ends: Ints) -> Ints:
        """Reads a varint field of some events; returns where the next field begins, _NOWHERE if that is unclear."""
        column = self._numbers.get(tag)
        if column is None and tag != _OCCURRENCES:
            return np.full(len(at), _NOWHERE)
        values, lengths = decode_varints(words >> _EIGHT)  # seven bytes of the word follow the tag
        after = at + 1 + lengths
        is_short = (lengths & 7) > 0  # the eighth is a zero that the shift brought
        if not is_short.all():
            long = np.flatnonzero(~is_short)
            values[long], after[long] = self._varints(at[long] + 1)
        if column is None:
            self._numbers[_OFFSET][rows] = 0  # one oneof: the number of occurrences takes the offset's place
        else:
            column[rows] = values.view(np.int64)
        return after

    def _read_stat(self, head: int, rows: Ints, at: Ints, words: Words, ends: Ints) -> Ints:
        """Reads a stat of some events; returns where the next field begins, _NOWHERE if that is unclear.

        Args:
            head: what its first bytes have in common; the tag alone if they differ, and it is not wanted.
            rows: the events.
            at: where the stat begins.
            words: what is there.
            ends: where the events end.
        """
        after = at + 2 + ((words >> _EIGHT) & _LOW_SEVEN).view(np.int64)
        if head & _SHORT_STAT_MASK == _SHORT_STAT:  # as nearly all begin
            if self._is_wanted[number := head >> 24 & 0xFF]:
                self._keep(number, head >> 32, rows, at + _VALUE_AT, after)
            return after
        unusual = np.flatnonzero((words & np.uint64(_SHORT_STAT_MASK)) != _SHORT_STAT)
        if len(unusual):
            after[unusual] = self._read_unusual_stat(rows[unusual], at[unusual], ends[unusual])
        return after

    def _read_unusual_stat(self, rows: Ints, at: Ints, ends: Ints) -> Ints:
        """Reads a stat with a long id or length; returns as `_read_stat`."""
        lengths, begins = self._varints(at + 1)
        sizes = lengths.view(np.int64)
        # Compared so that no sum can overflow.
        fits = (sizes >= 0) & (sizes <= ends - begins)
        after = np.where(fits, begins + sizes, _NOWHERE)
        if not len(self._wanted):
            return after
        begins = np.where(fits, begins, 0)
        ids, values_at = self._varints(begins + 1)
        has_id = fits & (sizes > 2) & (self._data[begins] == _ID) & (values_at < after)
        # An empty stat has id 0 and no value; nobody asks for that. The rest is the runtime's to read.
        after[fits & ~has_id & (sizes > 0)] = _NOWHERE
        for number in self._wanted:
            kept = np.flatnonzero(has_id & (ids.view(np.int64) == number))
            for kind, here in _by_value(self._data[values_at[kept]]):
                own = kept[here]
                self._keep(number, kind, rows[own], values_at[own] + 1, after[own])
        return after

    def _keep(self, number: int, kind: int, rows: Ints, begins: Ints, ends: Ints) -> None:
        """Decodes the values of a stat; notes events with a value that does not end with its stat as odd.

        Args:
            number: id of the stat.
            kind: tag of the values.
            rows: events.
            begins: where their values begin, after the tag.
            ends: where the stats end.
        """
        values, after = np.zeros(len(begins), dtype=np.uint64), np.full(len(begins), _NOWHERE)
        if kind == _DOUBLE:
            values, after = self._words[np.minimum(begins, len(self._words) - 1)], begins + 8
        elif kind in _VARINTS:
            values, after = self._varints(begins)
        elif kind in {_STRING, _BYTES}:
            lengths, text = self._varints(begins)
            after = np.where(lengths < len(self._data), text + lengths.view(np.int64), _NOWHERE)
        bad = after != ends
        if bad.any():
            self._odd.append(rows[bad])
        self._put(number, rows, values, is_double=kind == _DOUBLE)

    def _put(self, number: int, rows: Ints, values: Words, *, is_double: bool) -> None:
        if number not in self._stats:
            self._stats[number] = StatColumn.empty(self._count)
        self._stats[number].put(rows, values, is_double=is_double)

    def _varints(self, at: Ints) -> tuple[Words, Ints]:
        """Varints at these positions, and their ends; _NOWHERE: the varint has no end."""
        values, lengths = decode_varints(self._words[at])
        after = at + lengths
        if not lengths.all():
            long = np.flatnonzero(lengths == 0)
            ninth, tenth = self._data[at[long] + 8], self._data[at[long] + 9]
            values[long] |= (ninth & 0x7F).astype(np.uint64) << _FIFTY_SIX
            is_ten = ninth >= 0x80
            values[long[is_ten]] |= (tenth[is_ten] & 1).astype(np.uint64) << _SIXTY_THREE
            after[long] = at[long] + np.where(is_ten, 10, 9)
            # A tenth byte that goes on, or holds more than one bit: let the runtime say what it makes of it.
            after[long[is_ten & (tenth > 1)]] = _NOWHERE
        return values, after

    def _read_odd(self, rows: Ints) -> None:
        """Lets the protobuf runtime read the events that are not so simple; what was read of them does not count."""
        events = [(row, parsed_event(self._packed.event(row))) for row in rows.tolist()]
        for column in self._stats.values():
            column.forget(rows)
        stats: dict[tuple[int, bool], dict[int, int]] = {}
        for row, event in events:
            self._numbers[_ID][row] = event.metadata_id
            self._numbers[_OFFSET][row] = event.offset_ps
            self._numbers[_DURATION][row] = event.duration_ps
            for stat in event.stats:
                if (number := stat.metadata_id) in self._wanted:
                    bits, is_double = stat_bits(stat)
                    stats.setdefault((number, not is_double), {}).pop(row, None)
                    stats.setdefault((number, is_double), {})[row] = bits
        for (number, is_double), values in stats.items():
            with_it = np.fromiter(values, dtype=np.int64, count=len(values))
            self._put(number, with_it, np.array(list(values.values()), dtype=np.uint64), is_double=is_double)


def _words(data: memoryview) -> Words:
    """Eight bytes from every position on, so that one load takes a whole varint."""
    return np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))


def _by_value(values: NDArray[Any]) -> list[tuple[int, slice | Ints]]:
    """The different values, ascending, and where each is."""
    if len(values) and (values == values[0]).all():
        return [(int(values[0]), slice(None))]
    return [(int(value), np.flatnonzero(values == value)) for value in np.unique(values)]
