"""Events as columns: one array for each field and stat, with one element for each event; as read, and on a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from tpumon.xspace.columns.intervals import timeline_order

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

PS_PER_NS = 1000
PS_PER_S = 1e12

LATEST_PS = 1 << 61  # a month; a trace that says more is absurd, and sums must not overflow
LATEST_NS = LATEST_PS // PS_PER_NS


class Packed(Struct, frozen=True, kw_only=True, eq=False):
    """Serialized events in one piece.

    Attributes:
        data: the events and whatever lies between them; at least lines.PADDING's length follows the last one.
        begin: position of each event's first byte.
        end: position after its last byte.
    """

    data: memoryview
    begin: Ints
    end: Ints

    def event(self, row: int) -> bytes:
        """One event, serialized."""
        return bytes(self.data[int(self.begin[row]) : int(self.end[row])])


class StatColumn(Struct, frozen=True, eq=False):
    """One stat of a line's events; all arrays have one element per event.

    Attributes:
        values: the number's 64 bits, a double's included; 0 for text and bytes, and where there is none. If an event
            has the stat twice, its last one.
        present: which events have it.
        doubles: which bits are a double's.
    """

    values: Words
    present: Mask
    doubles: Mask

    @classmethod
    def empty(cls, count: int) -> StatColumn:
        """A stat that none of so many events has."""
        return cls(np.zeros(count, dtype=np.uint64), np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_))

    @classmethod
    def of(cls, values: Ints) -> StatColumn:
        """A stat that all events have, as integers."""
        return cls(values.view(np.uint64), np.ones(len(values), dtype=np.bool_), np.zeros(len(values), dtype=np.bool_))

    def put(self, rows: Ints | slice, values: Words, *, is_double: bool) -> None:
        """Sets the stat of some events."""
        self.values[rows], self.present[rows], self.doubles[rows] = values, True, is_double

    def forget(self, rows: Ints) -> None:
        """Takes the stat from some events."""
        self.values[rows], self.present[rows] = 0, False

    @property
    def rows(self) -> Ints:
        """Indices of the events that have it, ascending."""
        return np.flatnonzero(self.present)

    def integers(self, default: int = 0) -> Ints:
        """The stat as integers, `default` where there is none."""
        return np.where(self.present, self.values.view(np.int64), default)

    def numbers(self, default: float = 0.0) -> Floats:
        """The stat as floating point numbers, `default` where there is none."""
        integers = self.values.view(np.int64).astype(np.float64)
        return np.where(self.present, np.where(self.doubles, self.values.view(np.float64), integers), default)

    def select(self, picked: Ints | Mask) -> StatColumn:
        """The column of some of the events."""
        return StatColumn(self.values[picked], self.present[picked], self.doubles[picked])


def _join_stats(parts: Sequence[Events]) -> dict[str, StatColumn]:
    """The stats of several lines, one after the other."""
    joined = {}
    for name in {name for part in parts for name in part.stats}:
        columns = [part.stats.get(name) or StatColumn.empty(len(part)) for part in parts]
        joined[name] = StatColumn(
            np.concatenate([column.values for column in columns]),
            np.concatenate([column.present for column in columns]),
            np.concatenate([column.doubles for column in columns]),
        )
    return joined


class EventColumns(Struct, frozen=True, kw_only=True, eq=False):
    """The events of a line as read, in the line's order; all arrays have one element per event.

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


class Events(Struct, frozen=True, kw_only=True, eq=False):
    """Events on the trace's own clock, those with absurd times left out; one element per event.

    Attributes:
        metadata_id: key into the plane's event_metadata.
        begin_ps: start.
        duration_ps: not negative.
        stats: the wanted stats that were found, by name.
        dropped: how many events had absurd times.
    """

    metadata_id: Ints
    begin_ps: Ints
    duration_ps: Ints
    stats: Mapping[str, StatColumn] = field(default_factory=dict)
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.metadata_id)

    @property
    def end_ps(self) -> Ints:
        return self.begin_ps + self.duration_ps

    def device_span_ps(self) -> tuple[Ints, Ints]:
        """Begins and durations on the device's own clock where an event tells them, else its own.

        XProf: GetDeviceEventTimespan; both stats must be there.
        """
        offset, duration = self.stats.get("device_offset_ps"), self.stats.get("device_duration_ps")
        if offset is None or duration is None:
            return self.begin_ps, self.duration_ps
        begins, durations = offset.integers(-1), duration.integers(-1)
        both = _is_time(begins) & _is_time(durations)
        return np.where(both, begins, self.begin_ps), np.where(both, durations, self.duration_ps)

    def within(self, span_ps: tuple[int, int] | None) -> Events:
        """Events that lie entirely within a span, stats and all; all of them where there is no span."""
        if span_ps is None:
            return self
        return self.select((self.begin_ps >= span_ps[0]) & (self.end_ps <= span_ps[1]))

    def select(self, picked: Ints | Mask) -> Events:
        """Some of the events, stats and all."""
        return Events(
            metadata_id=self.metadata_id[picked],
            begin_ps=self.begin_ps[picked],
            duration_ps=self.duration_ps[picked],
            stats={name: column.select(picked) for name, column in self.stats.items()},
            dropped=self.dropped,
        )

    def bare(self) -> Events:
        """The events without their stats."""
        return Events(
            metadata_id=self.metadata_id,
            begin_ps=self.begin_ps,
            duration_ps=self.duration_ps,
            dropped=self.dropped,
        )

    def sorted(self, *, by_device: bool = False) -> Events:
        """The events in timeline order, stats and all; on the device's clock if so asked."""
        order = timeline_order(*(self.device_span_ps() if by_device else (self.begin_ps, self.duration_ps)))
        return self if order is None else self.select(order)


def _is_time(values_ps: Ints) -> Mask:
    """True for times neither negative nor absurd; compared as unsigned numbers, where negative ones are large."""
    return values_ps.view(np.uint64) < LATEST_PS


def placed(columns: EventColumns, start_ns: int, names: Mapping[int, str]) -> Events:
    """A line's events on the trace's clock; those whose times make no sense are left out.

    Args:
        columns: of the line.
        start_ns: of the line, on the trace's clock.
        names: of the stats, by metadata id.
    """
    sane = _is_time(columns.duration_ps) & (columns.offset_ps > -LATEST_PS) & (columns.offset_ps < LATEST_PS)
    if not -LATEST_NS < start_ns < LATEST_NS:
        start_ns, sane = 0, np.zeros(len(columns), dtype=np.bool_)
    events = Events(
        metadata_id=columns.metadata_id,
        begin_ps=columns.offset_ps + start_ns * PS_PER_NS,
        duration_ps=columns.duration_ps,
        stats={names[number]: column for number, column in columns.stats.items()},
        dropped=int(len(sane) - sane.sum()),
    )
    return events if sane.all() else events.select(sane)


def join(parts: Sequence[Events]) -> Events:
    """The events of several lines, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        nothing = np.zeros(0, dtype=np.int64)
        return Events(metadata_id=nothing, begin_ps=nothing, duration_ps=nothing)
    return Events(
        metadata_id=np.concatenate([part.metadata_id for part in parts]),
        begin_ps=np.concatenate([part.begin_ps for part in parts]),
        duration_ps=np.concatenate([part.duration_ps for part in parts]),
        stats=_join_stats(parts),
        dropped=sum(part.dropped for part in parts),
    )
