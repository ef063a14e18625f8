"""The wire format read at once for all events of a line: bytes to arrays, without an object per field.

Nearly every event is a few varints in the order that protobuf writes them, so all events of a line are walked in step,
one field at a time. Whatever is not so simple (long tags, groups, very many fields) goes through the protobuf runtime,
event by event, so that the two cannot disagree about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tpumon.errors import SourceError
from tpumon.wire.xplane_pb2 import XEvent, XStat
from tpumon.xspace.wire import Packed

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

_CHUNK_EVENTS = 1 << 14  # so many at a time that the arrays of a step stay in the processor's cache
_MOST_ROUNDS = 64  # fields of one event; beyond, the runtime reads it

_ID, _OFFSET, _DURATION, _STAT, _OCCURRENCES = 0x08, 0x10, 0x18, 0x22, 0x28  # tag bytes of XEvent
_DOUBLE, _UINT, _INT, _STRING, _BYTES, _REF = 0x11, 0x18, 0x20, 0x2A, 0x32, 0x38  # of XStat, after its metadata_id
_KINDS = {"double_value": _DOUBLE, "uint64_value": _UINT, "int64_value": _INT, "ref_value": _REF}

_TOP_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_FIRST_TOP_BIT, _FIRST_LOW_BITS = np.uint64(0x80), np.uint64(0x7F)
_LENGTHS = np.uint64(0x0102030405060708)  # a byte per position of a varint's last byte: its length
# How groups of seven bits move together; needed from varints of more bytes than the first number on.
_SQUEEZE = tuple(
    (reach, np.uint64(low), np.uint64(high), np.uint64(shift))
    for reach, low, high, shift in (
        (1, 0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (2, 0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (4, 0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
_ONE, _SEVEN, _EIGHT, _TWENTY_FOUR, _THIRTY_TWO, _FIFTY_SIX = (np.uint64(n) for n in (1, 7, 8, 24, 32, 56))

# Bytes of an event from a stat on, lowest first: tag, length below 128, tag of metadata_id, id below 128.
_SHORT_STAT_MASK, _SHORT_STAT = np.uint64(0x80FF80FF), np.uint64(0x00080022)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatColumn:
    """One stat of a line's events, for those that have it.

    Attributes:
        rows: indices of these events, ascending unless the runtime had to read some.
        values: shape as `rows`; the number's 64 bits, a double's included; 0 for text and bytes.
        is_double: shape as `rows`; whether the bits are a double's.
    """

    rows: Ints
    values: Words
    is_double: Mask

    def integers(self, count: int, default: int = 0) -> Ints:
        """The stat of all `count` events as integers, `default` where there is none."""
        out = np.full(count, default, dtype=np.int64)
        out[self.rows] = self.values.view(np.int64)
        return out

    def numbers(self, count: int, default: float) -> NDArray[np.float64]:
        """The stat of all `count` events as floating point numbers, `default` where there is none."""
        out = np.full(count, default)
        out[self.rows] = np.where(self.is_double, self.values.view(np.float64), self.values.view(np.int64))
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class EventColumns:
    """The events of a line, in the line's order; all arrays have one element per event.

    Attributes:
        metadata_id: key into the plane's event_metadata.
        offset_ps: start, from the line's timestamp on.
        duration_ps: may be negative where the trace is absurd.
        stats: by metadata id of the stat, those that were asked for and found.
    """

    metadata_id: Ints
    offset_ps: Ints
    duration_ps: Ints
    stats: Mapping[int, StatColumn] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.metadata_id)


def read_events(events: Packed, wanted_stats: Sequence[int] = ()) -> EventColumns:
    """Decodes serialized XEvents.

    Args:
        events: of one line, serialized.
        wanted_stats: metadata ids of the stats to decode; others are skipped.

    Raises:
        SourceError: `malformed`, an event is not one.
    """
    count = len(events.begin)
    parts = [_Chunk(events, slice(i, i + _CHUNK_EVENTS), wanted_stats) for i in range(0, count, _CHUNK_EVENTS)]
    if not parts:
        nothing = np.zeros(0, dtype=np.int64)
        return EventColumns(metadata_id=nothing, offset_ps=nothing, duration_ps=nothing)
    stats = {}
    for wanted in wanted_stats:
        found = [(i * _CHUNK_EVENTS, part.stats[wanted]) for i, part in enumerate(parts) if wanted in part.stats]
        if found:
            stats[wanted] = StatColumn(
                rows=np.concatenate([rows + first for first, (rows, _, _) in found]),
                values=np.concatenate([values for _, (_, values, _) in found]),
                is_double=np.concatenate([doubles for _, (_, _, doubles) in found]),
            )
    return EventColumns(
        metadata_id=np.concatenate([part.metadata_id for part in parts]),
        offset_ps=np.concatenate([part.offset_ps for part in parts]),
        duration_ps=np.concatenate([part.duration_ps for part in parts]),
        stats=stats,
    )


class _Chunk:
    """The decoded columns of a few ten thousand events."""

    def __init__(self, events: Packed, these: slice, wanted_stats: Sequence[int]) -> None:
        begins, self._ends = events.begin[these], events.end[these]
        count = len(begins)
        self._data: Bytes = np.frombuffer(events.data, dtype=np.uint8)
        # Eight bytes from every position on, so that one load takes a whole varint.
        self._words: Words = np.ndarray((len(events.data) - 7,), dtype="<u8", buffer=events.data, strides=(1,))
        self.metadata_id = np.zeros(count, dtype=np.int64)
        self.offset_ps = np.zeros(count, dtype=np.int64)
        self.duration_ps = np.zeros(count, dtype=np.int64)
        self.stats: dict[int, tuple[Ints, Words, Mask]] = {}
        self._odd = np.zeros(count, dtype=np.bool_)
        self._wanted = wanted_stats
        self._is_wanted = np.isin(np.arange(128), np.array(wanted_stats, dtype=np.int64))
        self._found: dict[int, list[tuple[Ints, Words, Mask]]] = {}
        self._walk(begins)
        odd = np.flatnonzero(self._odd)
        if len(odd):
            # What was read of them so far does not count.
            for parts in self._found.values():
                parts[:] = [tuple(column[~self._odd[part[0]]] for column in part) for part in parts]  # type: ignore[misc]
            self._read_odd([events.data[begins[row] : self._ends[row]] for row in odd], odd)
        for number, parts in self._found.items():
            rows, values, doubles = (np.concatenate(column) for column in zip(*parts, strict=True))
            # Events are walked a field at a time, so a stat that is not always at the same place comes unordered.
            if (rows[1:] < rows[:-1]).any():
                order = np.argsort(rows, kind="stable")
                rows, values, doubles = rows[order], values[order], doubles[order]
            if len(rows):
                self.stats[number] = (rows, values, doubles)

    def _walk(self, at: Ints) -> None:
        """Goes through all events field by field, `at` being their starts; marks those that it cannot read as odd."""
        rows = np.arange(len(at))
        ends = self._ends
        for _ in range(_MOST_ROUNDS):
            going = at < ends
            if not going.all():
                rows, at, ends = rows[going], at[going], ends[going]
            if not len(rows):
                return
            words = self._words[at]
            tags = words.astype(np.uint8)
            following = np.full(len(at), -1, dtype=np.int64)
            for tag in _distinct(tags):
                picked = slice(None) if (whole := (tags == tag)).all() else whole
                read = self._read_stat if tag == _STAT else self._read_number
                following[picked] = read(tag, rows[picked], at[picked], words[picked])
            odd = (following < 0) | (following > ends)
            if odd.any():
                self._odd[rows[odd]] = True
                following = np.where(odd, ends, following)
            at = following
        self._odd[rows[at < ends]] = True

    def _read_number(self, tag: int, rows: Ints, at: Ints, words: Words) -> Ints:
        """Reads a varint field of some events; returns where the next field begins, -1 where it is not understood."""
        column = {_ID: self.metadata_id, _OFFSET: self.offset_ps, _DURATION: self.duration_ps}.get(tag)
        if column is None and tag != _OCCURRENCES:
            return np.full(len(at), -1, dtype=np.int64)
        # Seven bytes of the word follow the tag.
        values, lengths = _decode(words >> _EIGHT)
        after = at + 1 + lengths
        long = np.flatnonzero((lengths == 0) | (lengths == 8))  # the eighth is a zero that the shift brought
        if len(long):
            values[long], after[long] = self._varints(at[long] + 1)
        if column is None:
            self.offset_ps[rows] = 0  # the two are one oneof: the number of occurrences takes the offset's place
        else:
            column[rows] = values.view(np.int64)
        return after

    def _read_stat(self, _tag: int, rows: Ints, at: Ints, words: Words) -> Ints:
        """Reads a stat of some events; returns where the next field begins, -1 where it is not understood."""
        sizes = ((words >> _EIGHT) & _FIRST_LOW_BITS).view(np.int64)
        # As nearly all begin: a length and an id of one byte each, then the value's tag.
        usual = ((words & _SHORT_STAT_MASK) == _SHORT_STAT) & (sizes > 2)
        if usual.all():
            after = at + 2 + sizes
            if len(self._wanted):
                ids = ((words >> _TWENTY_FOUR) & _FIRST_LOW_BITS).view(np.int64)
                wanted = self._is_wanted[ids]
                if wanted.any():
                    kinds = (words >> _THIRTY_TWO).astype(np.uint8)
                    picked = slice(None) if wanted.all() else wanted
                    self._keep(rows[picked], ids[picked], kinds[picked], at[picked] + 5, after[picked])
            return after
        after = np.empty(len(at), dtype=np.int64)
        if usual.any():
            after[usual] = self._read_stat(_tag, rows[usual], at[usual], words[usual])
        after[~usual] = self._read_unusual_stat(rows[~usual], at[~usual])
        return after

    def _read_unusual_stat(self, rows: Ints, at: Ints) -> Ints:
        """The same for stats with long ids or lengths."""
        lengths, begins = self._varints(at + 1)
        sizes = lengths.view(np.int64)
        # Compared so that no sum can overflow.
        fits = (begins >= 0) & (sizes >= 0) & (sizes <= self._ends[rows] - begins)
        after = np.where(fits, begins + sizes, -1)
        if not len(self._wanted):
            return after
        begins = np.where(fits, begins, 0)
        ids, values_at = self._varints(begins + 1)
        has_id = fits & (sizes > 2) & (self._data[begins] == _ID) & (values_at >= 0) & (values_at < after)
        # An empty stat has id 0 and no value; nobody asks for that. The rest is the runtime's to read.
        after[fits & ~has_id & (sizes > 0)] = -1
        kept = has_id & np.isin(ids.view(np.int64), self._wanted)
        if kept.any():
            kinds = self._data[values_at[kept]]
            self._keep(rows[kept], ids[kept].view(np.int64), kinds, values_at[kept] + 1, after[kept])
        return after

    def _keep(self, rows: Ints, ids: Ints, kinds: Bytes, at: Ints, ends: Ints) -> None:
        """Decodes the values of some stats; marks events with a value that does not end with its stat as odd."""
        for kind in _distinct(kinds):
            here = slice(None) if (whole := (kinds == kind)).all() else whole
            begins = at[here]
            if kind == _DOUBLE:
                values, after = self._words[np.minimum(begins, len(self._words) - 1)], begins + 8
            elif kind in {_UINT, _INT, _REF}:
                values, after = self._varints(begins)
            elif kind in {_STRING, _BYTES}:
                lengths, text = self._varints(begins)
                after = np.where(lengths < len(self._data), text + lengths.view(np.int64), -1)
                values = np.zeros(len(begins), dtype=np.uint64)
            else:
                values, after = np.zeros(len(begins), dtype=np.uint64), np.full(len(begins), -1)
            kind_rows, kind_ids = rows[here], ids[here]
            bad = after != ends[here]
            if bad.any():
                self._odd[kind_rows[bad]] = True
            doubles = np.full(len(kind_rows), kind == _DOUBLE)
            for number in _distinct(kind_ids):
                own = slice(None) if (mine := (kind_ids == number)).all() else mine
                self._found.setdefault(number, []).append((kind_rows[own], values[own], doubles[own]))

    def _varints(self, at: Ints) -> tuple[Words, Ints]:
        """The varints that begin at these positions and the positions after them; -1 after one that does not end."""
        values, lengths = _decode(self._words[at])
        after = at + lengths
        long = np.flatnonzero(lengths == 0)
        if len(long):
            ninth, tenth = self._data[at[long] + 8], self._data[at[long] + 9]
            values[long] |= (ninth & 0x7F).astype(np.uint64) << _FIFTY_SIX
            is_ten = ninth >= 0x80
            values[long[is_ten]] |= (tenth[is_ten] & 1).astype(np.uint64) << np.uint64(63)
            after[long] = at[long] + np.where(is_ten, 10, 9)
            # A tenth byte that goes on, or holds more than one bit: let the runtime say what it makes of it.
            after[long[is_ten & (tenth > 1)]] = -1
        return values, after

    def _read_odd(self, events: Sequence[bytes], odd: Ints) -> None:
        """Lets the protobuf runtime read the events that are not so simple."""
        found: dict[int, list[tuple[int, int, bool]]] = {}
        wanted = frozenset(self._wanted)
        for row, raw in zip(odd.tolist(), events, strict=True):
            try:
                event = XEvent.FromString(raw)
            except DecodeError as error:
                raise SourceError("malformed", "the trace is broken: an event does not parse") from error
            self.metadata_id[row] = event.metadata_id
            self.offset_ps[row] = event.offset_ps
            self.duration_ps[row] = event.duration_ps
            for stat in event.stats:
                if stat.metadata_id in wanted:
                    bits, is_double = stat_bits(stat)
                    found.setdefault(stat.metadata_id, []).append((row, bits, is_double))
        for number, entries in found.items():
            self._found.setdefault(number, []).append(_columns(entries))


def _decode(words: Words) -> tuple[Words, Ints]:
    """The varints that begin at the lowest byte of each word and their lengths; 0 for one that does not end in it."""
    if not (words & _FIRST_TOP_BIT).any():
        return words & _FIRST_LOW_BITS, np.ones(len(words), dtype=np.int64)  # as tags, lengths and most ids are
    ends = ~words & _TOP_BITS
    values = words & (ends ^ (ends - _ONE)) & _LOW_BITS
    lengths = ((((ends & (~ends + _ONE)) >> _SEVEN) * _LENGTHS) >> _FIFTY_SIX).view(np.int64)
    most = 8 if int(lengths.min()) == 0 else int(lengths.max())
    for reach, low, high, shift in _SQUEEZE:
        if most > reach:
            values = (values & low) | ((values & high) >> shift)
    return values, lengths


def stat_bits(stat: XStat) -> tuple[int, bool]:
    """A stat's number as 64 unsigned bits, and whether they are a double's; 0 for text and bytes."""
    name = stat.WhichOneof("value")
    if name not in _KINDS:
        return 0, False
    value = getattr(stat, name)
    if name == "double_value":
        return int(np.float64(value).view(np.uint64)), True
    return value & (1 << 64) - 1, False


def _columns(entries: Sequence[tuple[int, int, bool]]) -> tuple[Ints, Words, Mask]:
    rows, values, doubles = zip(*entries, strict=True)
    return np.array(rows, dtype=np.int64), np.array(values, dtype=np.uint64), np.array(doubles, dtype=np.bool_)


def _distinct(values: Bytes | Ints) -> list[int]:
    """The different values, ascending."""
    if not len(values):
        return []
    if (values == values[0]).all():
        return [int(values[0])]
    return [int(value) for value in np.unique(values)]
