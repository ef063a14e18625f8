"""Events on the trace's own clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from tpumon.xspace.columns.columns import EventColumns, Ints, Mask, StatColumn, join_stats
from tpumon.xspace.columns.intervals import timeline_order

PS_PER_NS = 1000
PS_PER_S = 1e12

LATEST_PS = 1 << 61  # a month; a trace that says more is absurd, and sums must not overflow
LATEST_NS = LATEST_PS // PS_PER_NS


class Events(Struct, frozen=True, kw_only=True, eq=False):
    """Events of one line, those with absurd times left out; one element per event.

    Attributes:
        metadata_id: key into the plane's event_metadata.
        begin_ps: start, on the trace's own clock.
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
        if _are_times(begins) and _are_times(durations):
            return begins, durations
        both = _is_time(begins) & _is_time(durations)
        return np.where(both, begins, self.begin_ps), np.where(both, durations, self.duration_ps)

    def within(self, span_ps: tuple[int, int]) -> Events:
        """Those that begin and end in a span, stats and all."""
        inside = (self.begin_ps >= span_ps[0]) & (self.end_ps <= span_ps[1])
        return self if inside.all() else self.take(inside)

    def take(self, picked: Ints | Mask) -> Events:
        """Some of the events, stats and all."""
        return Events(
            metadata_id=self.metadata_id[picked],
            begin_ps=self.begin_ps[picked],
            duration_ps=self.duration_ps[picked],
            stats={name: column.take(picked) for name, column in self.stats.items()},
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
        return self if order is None else self.take(order)


def _is_time(values_ps: Ints) -> Mask:
    """Which are neither negative nor absurd; compared as unsigned numbers, where negative ones are large."""
    return values_ps.view(np.uint64) < LATEST_PS


def _are_times(values_ps: Ints) -> bool:
    return bool(values_ps.view(np.uint64).max(initial=0) < LATEST_PS)


def placed(columns: EventColumns, start_ns: int, names: Mapping[int, str]) -> Events:
    """A line's events on the trace's clock; those whose times make no sense are left out.

    Args:
        columns: of the line.
        start_ns: of the line, on the trace's clock.
        names: of the stats, by metadata id.
    """
    sane: Mask | None = None
    if not -LATEST_NS < start_ns < LATEST_NS:
        start_ns, sane = 0, np.zeros(len(columns), dtype=np.bool_)
    elif not (_are_times(columns.offset_ps) and _are_times(columns.duration_ps)):
        late = (columns.offset_ps <= -LATEST_PS) | (columns.offset_ps >= LATEST_PS)
        sane = _is_time(columns.duration_ps) & ~late
    offset_ps = columns.offset_ps if sane is None else np.where(sane, columns.offset_ps, 0)
    events = Events(
        metadata_id=columns.metadata_id,
        begin_ps=offset_ps + start_ns * PS_PER_NS if start_ns else offset_ps,
        duration_ps=columns.duration_ps,
        stats={names[number]: column for number, column in columns.stats.items()},
        dropped=0 if sane is None else int(len(sane) - sane.sum()),
    )
    return events if sane is None else events.take(sane)


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
        stats=join_stats([part.stats for part in parts], [len(part) for part in parts]),
        dropped=sum(part.dropped for part in parts),
    )
