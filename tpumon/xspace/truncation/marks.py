"""What a trace itself says of events that the profiler dropped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
from google.protobuf.message import DecodeError
from msgspec import Struct

from tpumon.model import SIMULATED_MARK
from tpumon.proto.xplane_pb2 import XStat
from tpumon.xspace.columns.columns import PS_PER_NS
from tpumon.xspace.columns.event_decoder import parsed_event, read_events
from tpumon.xspace.columns.intervals import among
from tpumon.xspace.columns.lines import Line
from tpumon.xspace.planes.plane import Plane, Value, named
from tpumon.xspace.planes.space import Space
from tpumon.xspace.truncation.notices import says_lost
from tpumon.xspace.wire import fields

# The TPU profiler's event is "Trace Buffers Dropped"; XProf's documentation speaks of "dropped trace entries".
_EVENT = re.compile(
    r"\s*(?:trace[ _](?:buffers?|entries|events?)[ _]dropped|dropped[ _]trace(?:s|[ _](?:buffers?|entries|events?)))\b"
    r".{0,80}",
    re.IGNORECASE | re.DOTALL,
)
_IN_METADATA = re.compile(rb"dropped", re.IGNORECASE)
_STAT = "dropped_traces"
_NOTHING = frozenset({"", "0", "false", "no", "none", "null"})
_LINE_FIELDS = frozenset({1, 2, 3, 4, 9, 10, 11})  # of an XLine as published: none of them is a stat
_MOST_EVENTS = 1000


class Mark(Struct, frozen=True, eq=False):
    """One place where the trace says that events were dropped.

    Attributes:
        words: what it says, in words for people.
        plane: name of the plane that says it; None where the trace as a whole does.
        span_ps: when, where an event says it; None where it is not known.
    """

    words: str
    plane: str | None = None
    span_ps: tuple[int, int] | None = None


def find_marks(space: Space) -> list[Mark]:
    """All marks: words of the profiler, events by name, and the stat `dropped_traces` of planes, lines and events.

    Raises:
        SourceError: `malformed`.
    """
    marks = [
        Mark(f"the profiler says: {words}")
        for words in space.remarks
        if SIMULATED_MARK not in words and says_lost(words)
    ]
    devices = (*space.tpu_planes, *space.gpus)
    for plane in devices or ([space.host] if space.host else []):
        marks += _marks_of(plane)
    return marks


def _marks_of(plane: Plane) -> Iterator[Mark]:
    if not plane.says_dropped:
        return
    ids = frozenset(
        number for number, raw in plane.metadata_by_id.items() if _IN_METADATA.search(raw) and _is_mark(plane, number)
    )
    stats = plane.stat_names
    wanted = {number: _STAT for number, stat in stats.items() if stat.lower() == _STAT}
    if not ids and not wanted:
        return
    if any(_counts({name.lower(): value}) for name, value in plane.stats.items()):
        yield Mark(f"{_short(plane)} reports dropped traces", plane.name)
    for line in plane.all_lines:
        if wanted and _line_counts(line, stats, wanted):
            yield Mark(f"line {line.name} of {_short(plane)} reports dropped traces", plane.name)
        if line.has_events:
            yield from islice(_marks_on(plane, line, ids, wanted), _MOST_EVENTS)


def _short(plane: Plane) -> str:
    return plane.name.removeprefix("/device:")


def _is_mark(plane: Plane, number: int) -> bool:
    metadata = plane.event_metadata(number)
    return any(_EVENT.fullmatch(text) and says_lost(text) for text in (metadata.name, metadata.display_name))


def _marks_on(plane: Plane, line: Line, ids: frozenset[int], wanted: Mapping[int, str]) -> Iterator[Mark]:
    """Marks among the events of a line."""
    for packed in line.portions():
        columns = read_events(packed, tuple(wanted))
        kinds = set(columns.metadata_id.tolist()) if wanted else set()
        marks = among(columns.metadata_id, ids | {number for number in kinds if _in_metadata(plane, number, wanted)})
        for row in {row for column in columns.stats.values() for row in column.rows.tolist()}:
            marks[row] |= _counts(named(parsed_event(packed.event(row)).stats, plane.stat_names, wanted))
        for row in np.flatnonzero(marks).tolist():
            begin_ps = int(columns.offset_ps[row]) + (line.timestamp_ns - plane.base_ns) * PS_PER_NS
            span_ps = (begin_ps, begin_ps + max(int(columns.duration_ps[row]), 0))
            yield Mark(f"{_short(plane)} reports dropped trace buffers", plane.name, span_ps)


def _in_metadata(plane: Plane, number: int, wanted: Mapping[int, str]) -> bool:
    return _counts(named(plane.event_metadata(number).stats, plane.stat_names, wanted))


def _line_counts(line: Line, stats: Mapping[int, str], wanted: Mapping[int, str]) -> bool:
    """Whether a line has the stat: lines have none in the published format, so any field that reads as one counts."""
    for number, _, begin, end, _ in fields(line.raw):
        if number in _LINE_FIELDS:
            continue
        try:
            stat = XStat.FromString(bytes(line.raw[begin:end]))
        except DecodeError:
            continue
        if _counts(named([stat], stats, wanted)):
            return True
    return False


def _counts(stats: Mapping[str, Value]) -> bool:
    """Whether the stat is there and not nothing, whatever its kind."""
    value = stats.get(_STAT)
    if value is None:
        return False
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        text = value.strip().lower()
        try:
            return float(text) != 0
        except ValueError:
            return text not in _NOTHING
    return value != 0
