"""The wire format read at once for all events of a line: bytes to arrays, without an object per field.

Nearly every event is a few varints in the order that protobuf writes them, so all events of a line are walked in step,
one field at a time: in the usual way as long as all have the same field next, in groups of the same field from there
on. Whatever is not so simple (long tags, groups, very many fields) goes through the protobuf runtime, event by event,
so that the two cannot disagree about it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tpumon.proto.xplane_pb2 import XEvent, XStat
from tpumon.xspace.columns.columns import EventColumns, Ints, Mask, StatBuilder, Words
from tpumon.xspace.columns.intervals import among, distinct
from tpumon.xspace.columns.varints import decode, differing_bits
from tpumon.xspace.wire.lines import Packed
from tpumon.xspace.wire.parsed import parsed

Bytes = NDArray[np.uint8]

_MOST_ROUNDS = 64  # fields of one event; beyond, the runtime reads it

_ID, _OFFSET, _DURATION, _STAT, _OCCURRENCES = 0x08, 0x10, 0x18, 0x22, 0x28  # tag bytes of XEvent
_DOUBLE, _UINT, _INT, _STRING, _BYTES, _REF = 0x11, 0x18, 0x20, 0x2A, 0x32, 0x38  # of XStat, after its metadata_id
_VARINTS = frozenset({_UINT, _INT, _REF})
_KINDS = {"double_value": _DOUBLE, "uint64_value": _UINT, "int64_value": _INT, "ref_value": _REF}

_FIRST_BYTE, _FIRST_LOW_BITS = np.uint64(0xFF), np.uint64(0x7F)
_EIGHT, _TWENTY_FOUR, _THIRTY_TWO, _FIFTY_SIX = (np.uint64(n) for n in (8, 24, 32, 56))

# Bytes of an event from a stat on, lowest first: tag, length below 128, tag of metadata_id, id below 128, value's tag.
_SHORT_STAT_MASK, _SHORT_STAT, _SAME_STAT = 0x80FF80FF, 0x00080022, 0xFFFFFF80FF
_VALUE_AT = 5

_NOWHERE = 1 << 62  # a position beyond all: where a field ends that is not understood


def read_events(events: Packed, wanted_stats: Sequence[int] = ()) -> EventColumns:
    """Decodes serialized XEvents.

    Args:
        events: of one line, serialized.
        wanted_stats: metadata ids of the stats to decode; others are skipped.

    Raises:
        SourceError: `malformed`, an event is not one.
    """
    return _Reader(events, wanted_stats).read()


def of_kinds(events: Packed, kinds: Sequence[int]) -> Packed:
    """Those of a line's events that may have one of these metadata ids, by the field that they begin with.

    Events that begin with another field are among them; of an event that says two ids, as nobody writes it, the first
    one counts.

    Args:
        events: of one line, serialized.
        kinds: metadata ids.
    """
    if not len(events.begin):
        return events
    ids, known = _first_ids(events)
    picked = ~known | among(ids, kinds)
    return Packed(data=events.data, begin=events.begin[picked], end=events.end[picked])


def kinds_of(events: Packed) -> list[int]:
    """The metadata ids of a line's events, ascending; of an event that says two, as nobody writes it, one counts.

    Raises:
        SourceError: `malformed`, an event is not one.
    """
    if not len(events.begin):
        return []
    ids, known = _first_ids(events)
    return distinct(ids if known.all() else read_events(events).metadata_id)


def _first_ids(events: Packed) -> tuple[Ints, Mask]:
    """What events say first if that is their metadata id, and which of them do."""
    words: Words = np.ndarray((len(events.data) - 7,), dtype="<u8", buffer=events.data, strides=(1,))[events.begin]
    ids, lengths, _ = decode(words >> _EIGHT)
    known: Mask = ((words & _FIRST_BYTE) == _ID) & (lengths % 8 > 0) & (events.end > events.begin)
    return ids.view(np.int64), known


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


class _Reader:
    """Reads the events of a portion of a line.

    Args:
        events: the portion.
        wanted: metadata ids of the stats to decode.
    """

    def __init__(self, events: Packed, wanted: Sequence[int]) -> None:
        self._packed, self._count = events, len(events.begin)
        self._numbers = {tag: np.zeros(self._count, dtype=np.int64) for tag in (_ID, _OFFSET, _DURATION)}
        self._stats: dict[int, StatBuilder] = {}
        self._data: Bytes = np.frombuffer(events.data, dtype=np.uint8)
        # Eight bytes from every position on, so that one load takes a whole varint.
        self._words: Words = np.ndarray((len(events.data) - 7,), dtype="<u8", buffer=events.data, strides=(1,))
        self._wanted = wanted
        self._is_wanted = np.zeros(128, dtype=np.bool_)
        self._is_wanted[[number for number in self._wanted if 0 <= number < 128]] = True
        self._odd: list[Ints] = []

    def read(self) -> EventColumns:
        """Reads all of them."""
        rest = self._read_in_step() if self._count else None
        if rest is not None:
            self._walk(*rest)
            if self._odd:
                self._read_odd(np.concatenate(self._odd))
        stats = {number: self._stats[number].column() for number in self._wanted if number in self._stats}
        return EventColumns(
            metadata_id=self._numbers[_ID],
            offset_ps=self._numbers[_OFFSET],
            duration_ps=self._numbers[_DURATION],
            stats={number: column for number, column in stats.items() if column is not None},
        )

    def _put(self, number: int, rows: Ints | slice, values: Words, *, is_double: bool) -> None:
        if number not in self._stats:
            self._stats[number] = StatBuilder(self._count)
        self._stats[number].put(rows, values, is_double=is_double)

    def _read_in_step(self) -> tuple[Ints, Ints, Ints] | None:
        """Reads fields as long as all events that have not ended have the same one next.

        Returns:
            The events that are left, where they go on, and where they end; None where none is left.
        """
        at, ends = self._packed.begin, self._packed.end
        rows: Ints | slice = slice(0, len(at))
        for _ in range(_MOST_ROUNDS if (at < ends).all() else 0):
            tag, following = int(self._data[at[0]]), None
            if tag == _STAT and not self._asks_for(int(at[0])):
                following = self._skip_stat(at)
            elif tag == _STAT or tag in self._numbers:
                words = self._words[at]
                differing = differing_bits(words)
                if tag == _STAT:
                    following = self._read_same_stat(rows, at, words, differing)
                elif not differing & 0xFF:
                    following = self._read_number(tag, rows, at, words, differing)
            if following is None:
                break
            left = ends - following
            least = left.min()
            if least < 0:
                break
            at = following
            if not least:
                if not left.max():
                    return None
                going = np.flatnonzero(left)
                rows, at, ends = going if isinstance(rows, slice) else rows[going], at[going], ends[going]
        return np.arange(len(at)) if isinstance(rows, slice) else rows, at, ends

    def _asks_for(self, at: int) -> bool:
        """Whether the stat that begins at a position may be one of those wanted; an empty one never is."""
        if not self._wanted:
            return False
        is_short = self._data[at + 2] == _ID and self._data[at + 3] < 0x80
        return not is_short or bool(self._is_wanted[self._data[at + 3]])

    def _skip_stat(self, at: Ints) -> Ints | None:
        """Where a stat ends that all events have here and nobody asks for; None if that is not so, or one is long."""
        alike = (0, 2, 3) if self._wanted else (0,)  # of its bytes: its tag, and its number after a tag
        sizes = self._data.take(at + 1)
        if sizes.max() >= 0x80 or any(
            np.count_nonzero(self._data.take(at + i) != self._data[at[0] + i]) for i in alike
        ):
            return None
        return at + 2 + sizes

    def _read_same_stat(self, rows: Ints | slice, at: Ints, words: Words, differing: int) -> Ints | None:
        """Reads a stat that all events have here, its value of the same kind; None if that is not so.

        Args:
            rows: the events.
            at: where they have it.
            words: what they have there.
            differing: bits that are not the same in all words.
        """
        first = int(words[0])
        if (first & _SHORT_STAT_MASK) != _SHORT_STAT or differing & _SAME_STAT:
            return None
        if differing & 0xFF00:
            after = at + (((words >> _EIGHT) & _FIRST_LOW_BITS).view(np.int64) + 2)
        else:
            after = at + ((first >> 8 & 0x7F) + 2)
        number, kind = first >> 24 & 0x7F, first >> 32 & 0xFF
        if kind in _VARINTS:
            values, ends = self._varints(at + _VALUE_AT)
        elif kind == _DOUBLE:
            values, ends = self._words[at + _VALUE_AT], at + (_VALUE_AT + 8)
        else:
            return None
        if np.count_nonzero(ends != after):
            return None
        self._put(number, rows, values, is_double=kind == _DOUBLE)
        return after

    def _walk(self, rows: Ints, at: Ints, ends: Ints) -> None:
        """Goes through the rest of events field by field; notes those that it cannot read as odd."""
        for _ in range(_MOST_ROUNDS):
            going = at < ends
            if not going.all():
                rows, at, ends = rows[going], at[going], ends[going]
            if not len(rows):
                return
            words = self._words[at]
            tags = words.astype(np.uint8)
            following = np.full(len(at), _NOWHERE)
            for tag in distinct(tags):
                picked = slice(None) if (whole := (tags == tag)).all() else whole
                if tag == _STAT:
                    following[picked] = self._read_stat(rows[picked], at[picked], words[picked], ends[picked])
                else:
                    following[picked] = self._read_number(tag, rows[picked], at[picked], words[picked])
            odd = following > ends
            if odd.any():
                self._odd.append(rows[odd])
                following = np.where(odd, ends, following)
            at = following
        self._odd.append(rows[at < ends])

    def _read_number(self, tag: int, rows: Ints | slice, at: Ints, words: Words, differing: int | None = None) -> Ints:
        """Reads a varint field of some events; returns where the next field begins, _NOWHERE if that is unclear."""
        column = self._numbers.get(tag)
        if column is None and tag != _OCCURRENCES:
            return np.full(len(at), _NOWHERE)
        # Seven bytes of the word follow the tag.
        values, lengths, most = decode(words >> _EIGHT, None if differing is None else differing >> 8)
        after = at + 1 + lengths
        if most == 8:
            long = np.flatnonzero((lengths == 0) | (lengths == 8))  # the eighth is a zero that the shift brought
            values[long], after[long] = self._varints(at[long] + 1)
        if column is None:
            self._numbers[_OFFSET][rows] = 0  # one oneof: the number of occurrences takes the offset's place
        else:
            column[rows] = values.view(np.int64)
        return after

    def _read_stat(self, rows: Ints, at: Ints, words: Words, ends: Ints) -> Ints:
        """Reads a stat of some events; returns where the next field begins, _NOWHERE if that is unclear."""
        sizes = ((words >> _EIGHT) & _FIRST_LOW_BITS).view(np.int64)
        # As nearly all begin: a length and an id of one byte each, then the value's tag.
        usual = ((words & np.uint64(_SHORT_STAT_MASK)) == np.uint64(_SHORT_STAT)) & (sizes > 2)
        if usual.all():
            after = at + 2 + sizes
            if len(self._wanted):
                ids = ((words >> _TWENTY_FOUR) & _FIRST_LOW_BITS).view(np.int64)
                wanted = self._is_wanted[ids]
                if wanted.any():
                    kinds = (words >> _THIRTY_TWO).astype(np.uint8)
                    picked = slice(None) if wanted.all() else wanted
                    self._keep(rows[picked], ids[picked], kinds[picked], at[picked] + _VALUE_AT, after[picked])
            return after
        after = np.empty(len(at), dtype=np.int64)
        if usual.any():
            after[usual] = self._read_stat(rows[usual], at[usual], words[usual], ends[usual])
        after[~usual] = self._read_unusual_stat(rows[~usual], at[~usual], ends[~usual])
        return after

    def _read_unusual_stat(self, rows: Ints, at: Ints, ends: Ints) -> Ints:
        """The same for stats with long ids or lengths."""
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
        kept = has_id & among(ids.view(np.int64), self._wanted)
        if kept.any():
            kinds = self._data[values_at[kept]]
            self._keep(rows[kept], ids[kept].view(np.int64), kinds, values_at[kept] + 1, after[kept])
        return after

    def _keep(self, rows: Ints, ids: Ints, kinds: Bytes, at: Ints, ends: Ints) -> None:
        """Decodes the values of some stats; notes events with a value that does not end with its stat as odd."""
        for kind in distinct(kinds):
            here = slice(None) if (whole := (kinds == kind)).all() else whole
            begins = at[here]
            if kind == _DOUBLE:
                values, after = self._words[np.minimum(begins, len(self._words) - 1)], begins + 8
            elif kind in _VARINTS:
                values, after = self._varints(begins)
            elif kind in {_STRING, _BYTES}:
                lengths, text = self._varints(begins)
                after = np.where(lengths < len(self._data), text + lengths.view(np.int64), _NOWHERE)
                values = np.zeros(len(begins), dtype=np.uint64)
            else:
                values, after = np.zeros(len(begins), dtype=np.uint64), np.full(len(begins), _NOWHERE)
            kind_rows, kind_ids = rows[here], ids[here]
            bad = after != ends[here]
            if bad.any():
                self._odd.append(kind_rows[bad])
            for number in distinct(kind_ids):
                own = slice(None) if (mine := (kind_ids == number)).all() else mine
                self._put(number, kind_rows[own], values[own], is_double=kind == _DOUBLE)

    def _varints(self, at: Ints) -> tuple[Words, Ints]:
        """The varints that begin at these positions, and where they end; _NOWHERE for one that does not."""
        values, lengths, most = decode(self._words[at])
        after = at + lengths
        if most == 8:
            long = np.flatnonzero(lengths == 0)
            ninth, tenth = self._data[at[long] + 8], self._data[at[long] + 9]
            values[long] |= (ninth & 0x7F).astype(np.uint64) << _FIFTY_SIX
            is_ten = ninth >= 0x80
            values[long[is_ten]] |= (tenth[is_ten] & 1).astype(np.uint64) << np.uint64(63)
            after[long] = at[long] + np.where(is_ten, 10, 9)
            # A tenth byte that goes on, or holds more than one bit: let the runtime say what it makes of it.
            after[long[is_ten & (tenth > 1)]] = _NOWHERE
        return values, after

    def _read_odd(self, odd: Ints) -> None:
        """Lets the protobuf runtime read the events that are not so simple; what was read of them does not count."""
        packed, rows = self._packed, distinct(odd)
        events = [(row, parsed_event(bytes(packed.data[packed.begin[row] : packed.end[row]]))) for row in rows]
        for builder in self._stats.values():
            builder.forget(odd)
        for row, event in events:
            self._numbers[_ID][row] = event.metadata_id
            self._numbers[_OFFSET][row] = event.offset_ps
            self._numbers[_DURATION][row] = event.duration_ps
        found: dict[tuple[int, bool], dict[int, int]] = {}
        for row, event in events:
            for stat in event.stats:
                if (number := stat.metadata_id) in self._wanted:
                    bits, is_double = stat_bits(stat)
                    found.setdefault((number, not is_double), {}).pop(row, None)
                    found.setdefault((number, is_double), {})[row] = bits
        for (number, is_double), values in found.items():
            with_it = np.fromiter(values, dtype=np.int64, count=len(values))
            self._put(number, with_it, np.array(list(values.values()), dtype=np.uint64), is_double=is_double)
