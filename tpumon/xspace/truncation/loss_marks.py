"""Statements of a trace itself about events that the profiler dropped."""

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
from tpumon.xspace.columns.lines import TraceLine
from tpumon.xspace.planes.plane import Plane, Value, named
from tpumon.xspace.planes.space import PlaneIndex
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


def find_marks(space: PlaneIndex) -> list[Mark]:
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


def _marks_on(plane: Plane, line: TraceLine, ids: frozenset[int], wanted: Mapping[int, str]) -> Iterator[Mark]:
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


def _line_counts(line: TraceLine, stats: Mapping[int, str], wanted: Mapping[int, str]) -> bool:
    """True if a line has the stat: lines have none in the published format, so any field that reads as one counts."""
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
    """True if the stat is there and not nothing, whatever its kind."""
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


def _these(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PLACES = "tpu gpu cpu core sparsecore tensorcore chip device host worker line thread plane process node replica rank"
_WHO = frozenset(f"{place}{end}" for place in _PLACES.split() for end in ("", "s"))
_OTHERS = "pid task step stream queue buffer chunk slice channel part id number"
_KIND = "|".join([*_PLACES.split(), *_OTHERS.split()])
# With their numbers: "TPU:0", "core 1", "cores 0 and 1", "host 10.0.0.1"; "12:30:05", "2026-01-31".
_NAME = re.compile(
    rf"\b(?P<kind>(?:{_KIND})s?)(?: \d+(?:(?:, ?| and | to |-)\d+)+\b(?! [a-z])|(?::|[\s#-]{{1,3}})\d[\d.]*(?:-\d+)?\b)"
)
_CLOCK = re.compile(r"\b\d{4}-\d\d-\d\d\b|\b\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?\b")
_BETWEEN = re.compile(r"[;\n()]|,(?!\d{3}\b)|\.(?!\d)|\b(?:and|but|while|whereas|when|because)\b")
_TOKEN = re.compile(r"[a-z][a-z0-9]*(?:'t)?|\d[\d,.]*|/")

_LOSING = re.compile(
    r"drop|drops|dropped|dropping|los[et]|loses|losing|loss|discard(?:s|ed|ing)?|evict(?:s|ed|ing)?|overr[au]ns?"
    r"|truncat\w+|overflow\w*|overwrit\w+|overwrote|incomplete"
)
_LOSING_ALONE = re.compile(r"truncat\w+|overflow\w*|overwr\w+|incomplete")  # of a device; one that is "lost" is gone
_FULL = re.compile(r"\bbuffers? (?:(?:is|are|was|were|got|ran|became|has been|have been) )?(?:not )?(?:full|filled)\b")
_WHAT = re.compile(
    r"(?:event|trace|entry|entrie|buffer|chunk|record|span|data|op|timeline|profile|capture|xplane|xspace|byte)s?"
)
_SOME = _these("some they these those others rest many most several all more")  # of what was named before
_NOT = _these("no none nothing not never without zero neither nor cannot")
_UNRELATED = _these(
    "connection connections gradient gradients integer int32 int64 uint32 numeric rate throughput avoid prevent"
)
_IF = re.compile(r"\b(?:if|unless)\b[^.;\n]*")
# What stands before a number that is no count, and after one.
_LIMIT = _these(
    "/ of to at in on across from for after before within over than limit size capacity maximum max minimum min "
    "every per by until since during exceeded exceeds exceeding beyond version last first"
)
_TIME = _these("ns us ms s sec secs second seconds min mins minute minutes h hours")


def says_lost(notice: str) -> bool:
    """True if a notice of a profiler says that events of the trace were lost. The wording is its own and not promised.

    A notice is read clause by clause. A clause speaks of a loss if it has a word of losing and names what is lost, or
    the device that lost it. Its numbers are counts, but for those that name a device, a time or a limit; counts of 0
    mean that nothing was lost, and so does a negation where there is no count.
    """
    text = _IF.sub(" ", _CLOCK.sub(" ", notice.lower().replace("_", " ")))
    named = lost = False
    for clause in _BETWEEN.split(_NAME.sub(r" \g<kind> ", text)):
        tokens = _TOKEN.findall(clause)
        words = frozenset(tokens)
        if not tokens or words & _UNRELATED or "dropped out" in clause:
            continue
        counts, is_full = list(_lost_counts(tokens)), _FULL.search(clause) is not None
        what = any(map(_WHAT.fullmatch, tokens))
        if is_full or any(map(_LOSING.fullmatch, tokens)):
            alone = any(map(_LOSING_ALONE.fullmatch, tokens)) and bool(words & _WHO)
            counted = bool(counts) and (named or bool(words & _WHO) or len(tokens) == 2)
            lost = what or alone or counted or (named and (bool(words & _SOME) or len(tokens) == 1))
            if lost and (any(counts) if counts and not is_full else not words & _NOT and "n't" not in clause):
                return True
        elif lost and any(counts) and all(map(_belongs, words)):  # "0 on TPU:0, 500 on TPU:1"
            return True
        named |= what
    return False


def _belongs(word: str) -> bool:
    """True if a clause of such words only goes on counting what the one before has named."""
    return word[0].isdigit() or word in _WHO or word in _LIMIT or _WHAT.fullmatch(word) is not None


def _lost_counts(tokens: list[str]) -> Iterator[float]:
    """The numbers of a clause that count what was lost."""
    for before, number, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        if number[0].isdigit() and before not in _LIMIT and after not in _TIME and after not in _WHO:
            try:
                yield float(number.rstrip(".,").replace(",", ""))
            except ValueError:  # an address, a version
                continue
        elif number == "zero":
            yield 0.0
