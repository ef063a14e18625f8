"""The wire format read at once for all events of a line: bytes to arrays, without an object per field.

Nearly every event is a few varints in the order that protobuf writes them, so all events of a line are walked in step,
one field at a time. Whatever is not so simple (long tags, groups, very many fields) goes through the protobuf runtime,
event by event, so that the two cannot disagree about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tpumon.errors import SourceError
from tpumon.wire.xplane_pb2 import XEvent, XStat

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

_CHUNK_EVENTS = 1 << 15  # so many at a time that the arrays of a step stay in the processor's cache
_MOST_ROUNDS = 64  # fields of one event; beyond, the runtime reads it
_PADDING = bytes(20)  # a varint that starts at the last byte is loaded from here on

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
_ONE, _SEVEN, _FIFTY_SIX = np.uint64(1), np.uint64(7), np.uint64(56)


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


def read_events(events: Sequence[bytes], wanted_stats: Sequence[int] = ()) -> EventColumns:
    """Decodes serialized XEvents.

    Args:
        events: the field `events` of a LineOutline.
        wanted_stats: metadata ids of the stats to decode; others are skipped.

    Raises:
        SourceError: `malformed`, an event is not one.
    """
    parts = [_Chunk(events[i : i + _CHUNK_EVENTS], wanted_stats) for i in range(0, len(events), _CHUNK_EVENTS)]
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

    def __init__(self, events: Sequence[bytes], wanted_stats: Sequence[int]) -> None:
        count = len(events)
        lengths = np.fromiter(map(len, events), dtype=np.int64, count=count)
        joined = b"".join([*events, _PADDING])
        self._data: Bytes = np.frombuffer(joined, dtype=np.uint8)
        # Eight bytes from every position on, so that one load takes a whole varint.
        self._words: Words = np.ndarray((len(joined) - 7,), dtype="<u8", buffer=joined, strides=(1,))
        self._ends = np.cumsum(lengths)
        self.metadata_id = np.zeros(count, dtype=np.int64)
        self.offset_ps = np.zeros(count, dtype=np.int64)
        self.duration_ps = np.zeros(count, dtype=np.int64)
        self.stats: dict[int, tuple[Ints, Words, Mask]] = {}
        self._odd = np.zeros(count, dtype=np.bool_)
        self._stat_spans: list[tuple[Ints, Ints, Ints]] = []
        self._walk(self._ends - lengths, keep_stats=bool(wanted_stats))
        found = self._read_stats(wanted_stats) if wanted_stats else {}
        odd = np.flatnonzero(self._odd)
        extra = self._read_odd(events, odd, wanted_stats) if len(odd) else {}
        for wanted in wanted_stats:
            columns = [part[wanted] for part in (found, extra) if wanted in part]
            if columns:
                rows, values, doubles = (np.concatenate(column) for column in zip(*columns, strict=True))
                self.stats[wanted] = (rows, values, doubles)
        self._stat_spans.clear()

    def _walk(self, starts: Ints, *, keep_stats: bool) -> None:
        """Goes through all events field by field; marks those that it does not understand as odd."""
        at = starts
        rows = np.flatnonzero(at < self._ends)
        at = at[rows]
        for _ in range(_MOST_ROUNDS):
            if not len(rows):
                return
            tags = self._data[at]
            following = np.full(len(at), -1, dtype=np.int64)
            for tag in _distinct(tags):
                picked = slice(None) if (whole := (tags == tag)).all() else whole
                self._take_field(tag, rows[picked], at[picked], following, picked, keep_stats=keep_stats)
            ends = self._ends[rows]
            odd = (following < 0) | (following > ends)
            if odd.any():
                self._odd[rows[odd]] = True
            going = ~odd & (following < ends)
            rows, at = rows[going], following[going]
        self._odd[rows] = True

    def _take_field(
        self, tag: int, rows: Ints, at: Ints, following: Ints, picked: slice | Mask, *, keep_stats: bool
    ) -> None:
        """Reads one field of some events and notes where the next one begins; -1 stays where it is not understood."""
        if tag not in {_ID, _OFFSET, _DURATION, _STAT, _OCCURRENCES}:
            return
        values, after = self._varints(at + 1)
        if tag == _STAT:
            sizes = values.view(np.int64)
            # A length beyond the event is the event's end, and odd, whatever the sum would overflow to.
            fits = (sizes >= 0) & (sizes <= self._ends[rows] - after)
            following[picked] = np.where(fits, after + sizes, -1)
            if keep_stats:
                self._stat_spans.append((rows[fits], after[fits], sizes[fits]))
            return
        following[picked] = after
        if tag == _ID:
            self.metadata_id[rows] = values.view(np.int64)
        elif tag == _DURATION:
            self.duration_ps[rows] = values.view(np.int64)
        else:  # the two are one oneof: the number of occurrences takes the offset's place
            self.offset_ps[rows] = values.view(np.int64) if tag == _OFFSET else 0

    def _varints(self, at: Ints) -> tuple[Words, Ints]:
        """The varints that begin at these positions and the positions after them; -1 after one that does not end."""
        words = self._words[at]
        if not (words & _FIRST_TOP_BIT).any():
            return words & _FIRST_LOW_BITS, at + 1  # one byte each, as tags, lengths and most ids are
        ends = ~words & _TOP_BITS
        upto = ends ^ (ends - _ONE)
        values = words & upto & _LOW_BITS
        lengths = ((((ends & (~ends + _ONE)) >> _SEVEN) * _LENGTHS) >> _FIFTY_SIX).view(np.int64)
        most = int(lengths.max())
        some_are_long = int(lengths.min()) == 0
        for reach, low, high, shift in _SQUEEZE:
            if most > reach or some_are_long:
                values = (values & low) | ((values & high) >> shift)
        after = at + lengths
        if some_are_long:
            self._long_varints(np.flatnonzero(lengths == 0), at, values, after)
        return values, after

    def _long_varints(self, long: Ints, at: Ints, values: Words, after: Ints) -> None:
        """Completes those of more than eight bytes."""
        ninth, tenth = self._data[at[long] + 8], self._data[at[long] + 9]
        values[long] |= (ninth & 0x7F).astype(np.uint64) << _FIFTY_SIX
        is_ten = ninth >= 0x80
        values[long[is_ten]] |= (tenth[is_ten] & 1).astype(np.uint64) << np.uint64(63)
        after[long] = at[long] + np.where(is_ten, 10, 9)
        # A tenth byte that goes on, or holds more than one bit: let the runtime say what it makes of it.
        after[long[is_ten & (tenth > 1)]] = -1

    def _read_stats(self, wanted_stats: Sequence[int]) -> dict[int, tuple[Ints, Words, Mask]]:
        """Values of the wanted stats of all events walked so far; marks events with unusual stats as odd."""
        if not self._stat_spans:
            return {}
        rows, at, sizes = (np.concatenate(column) for column in zip(*self._stat_spans, strict=True))
        usual = (sizes >= 2) & (self._data[at] == _ID)
        # An empty stat has id 0 and no value; nobody asks for that.
        self._odd[rows[~usual & (sizes > 0)]] = True
        rows, at, ends = rows[usual], at[usual], (at + sizes)[usual]
        ids, after = self._varints(at + 1)
        wanted = np.zeros(len(ids), dtype=np.bool_)
        for number in wanted_stats:
            wanted |= ids == np.uint64(number & (1 << 64) - 1)
        self._odd[rows[(after < 0) | (after > ends)]] = True
        rows, ids, after, ends = rows[wanted], ids[wanted].view(np.int64), after[wanted], ends[wanted]
        values = np.zeros(len(rows), dtype=np.uint64)
        following = after.copy()
        kinds = np.where(after < ends, self._data[np.maximum(after, 0)], 0)
        for kind in _distinct(kinds):
            here = np.flatnonzero(kinds == kind)
            begin = after[here] + 1
            if kind == _DOUBLE:
                values[here], following[here] = self._words[np.minimum(begin, len(self._words) - 1)], begin + 8
            elif kind in {_UINT, _INT, _REF}:
                values[here], following[here] = self._varints(begin)
            elif kind in {_STRING, _BYTES}:
                length, text = self._varints(begin)
                following[here] = np.where(length < len(self._data), text + length.view(np.int64), -1)
        self._odd[rows[following != ends]] = True
        sound = ~self._odd[rows]
        rows, ids, values, doubles = rows[sound], ids[sound], values[sound], (kinds == _DOUBLE)[sound]
        found = {}
        for number in wanted_stats:
            here = np.flatnonzero(ids == number)
            if len(here):
                # Events are walked a field at a time, so a stat that is not always at the same place comes unordered.
                if (np.diff(rows[here]) < 0).any():
                    here = here[np.argsort(rows[here], kind="stable")]
                found[number] = (rows[here], values[here], doubles[here])
        return found

    def _read_odd(
        self, events: Sequence[bytes], odd: Ints, wanted_stats: Sequence[int]
    ) -> dict[int, tuple[Ints, Words, Mask]]:
        """Lets the protobuf runtime read the events that are not so simple."""
        found: dict[int, list[tuple[int, int, bool]]] = {}
        wanted = frozenset(wanted_stats)
        for row in odd.tolist():
            try:
                event = XEvent.FromString(events[row])
            except DecodeError as error:
                raise SourceError("malformed", "the trace is broken: an event does not parse") from error
            self.metadata_id[row] = event.metadata_id
            self.offset_ps[row] = event.offset_ps
            self.duration_ps[row] = event.duration_ps
            for stat in event.stats:
                if stat.metadata_id in wanted:
                    bits, is_double = stat_bits(stat)
                    found.setdefault(stat.metadata_id, []).append((row, bits, is_double))
        return {number: _columns(entries) for number, entries in found.items()}


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


def _distinct(tags: NDArray[np.uint8]) -> Iterator[int]:
    """The different values, ascending."""
    if len(tags) and (tags == tags[0]).all():
        yield int(tags[0])
        return
    yield from np.flatnonzero(np.bincount(tags, minlength=256)).tolist()
