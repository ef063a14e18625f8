"""One plane of a trace: which lines it has, and what its stats say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial

from msgspec import Struct

from tpumon.errors import SourceError
from tpumon.proto.xplane_pb2 import PlaneEventMetadata, PlaneOutline, XEvent, XEventMetadata, XStat
from tpumon.xspace.columns.event_columns import kinds_of, of_kinds, read_events
from tpumon.xspace.columns.intervals import among
from tpumon.xspace.columns.timeline import Events, join, placed
from tpumon.xspace.wire.fields import fields
from tpumon.xspace.wire.lines import Line, read_line
from tpumon.xspace.wire.parsed import parsed
from tpumon.xspace.wire.stored import Stored

Value = int | float | str | bytes
_Spans = tuple[tuple[int, int], ...]

TENSOR_CORE_STEPS = "Steps"
TENSOR_CORE_MODULES, SPARSE_CORE_MODULES = "XLA Modules", "Sparse Core Modules"
TENSOR_CORE_OPS, SPARSE_CORE_OPS = "XLA Ops", "Sparse Core Ops"
TRACE_ME = "XLA TraceMe"

TPU_PREFIX, HOST_THREADS = "/device:TPU:", "/host:CPU"
_TENSOR_CORE = re.compile(r"/device:TPU:(\d{1,9})")
_SPARSE_CORE = re.compile(r"/device:TPU:(\d{1,9}) SparseCore(?: \w+)? (\d{1,9})")

MOST_LINES = 10_000  # a thread is a line
_MOST_IDS = 1_000_000  # of a plane's events and stats; a program has some thousand ops
_MOST_SPANS = 1000  # that are remembered of a plane; nearly all have two
_LINES = 3  # field number of XPlane


class Outline(Struct, frozen=True, kw_only=True, eq=False):
    """What the wire says of a plane, its events not read yet.

    Attributes:
        name: the plane's.
        stat_names: metadata id of each stat: its name.
        stats: the plane's own.
        lines: in the trace's order; MOST_LINES of them and one more, where there are more.
        stored: what holds the rest of the plane.
        rest: where in it.
        says_dropped: whether the word "dropped" occurs there, in capital letters or small ones.
    """

    name: str
    stat_names: Mapping[int, str]
    stats: Mapping[str, Value]
    lines: tuple[Line, ...]
    stored: Stored
    rest: _Spans
    says_dropped: bool


def read_outline(stored: Stored, begin: int, end: int) -> Outline:
    """Reads a plane but for its events, and what they have in common.

    Args:
        stored: what holds the plane.
        begin: where in it.
        end: where in it.

    Raises:
        SourceError: `malformed`; `too-large`, it has more than a million ids of stats.
    """
    lines, rest = _parted(stored, begin, end, to_the_end=False)
    raw = _joined(stored, rest)
    message = parsed(PlaneOutline, raw)
    if message.lines:  # some come after the rest, as nobody writes them
        lines, rest = _parted(stored, begin, end, to_the_end=True)
        raw = _joined(stored, rest)
        message = parsed(PlaneOutline, raw)
    _check_ids(len(message.stat_metadata))
    names = {number: each.name for number, each in message.stat_metadata.items()}
    few = len(rest) <= _MOST_SPANS
    return Outline(
        name=message.name,
        stat_names=names,
        stats=named(message.stats, names, names),
        lines=tuple(read_line(stored, *span) for span in lines[: MOST_LINES + 1]),
        stored=stored if few else memoryview(raw),
        rest=rest if few else ((0, len(raw)),),
        says_dropped=b"dropped" in raw.lower(),
    )


def _parted(stored: Stored, begin: int, end: int, *, to_the_end: bool) -> tuple[_Spans, _Spans]:
    """Where a plane's lines are, and where the rest is; as a rule, no line comes after that."""
    lines, rest = [], []
    for number, at, value_begin, value_end, _ in fields(stored, begin, end):
        if number == _LINES:
            lines.append((value_begin, value_end))
            if begin < at:
                rest.append((begin, at))
            begin = value_end
        elif number > _LINES and not to_the_end:
            break
    if begin < end:
        rest.append((begin, end))
    return tuple(lines), tuple(rest)


def _joined(stored: Stored, spans: _Spans) -> bytes:
    return b"".join([stored[begin:end] for begin, end in spans])


def _check_ids(count: int) -> None:
    if count > _MOST_IDS:  # without the others, FLOPs would be missing
        raise SourceError("too-large", f"a plane of the trace has more than {_MOST_IDS:,} ids of events and stats")


class Plane:
    """One plane of a trace, its events not read yet.

    Attributes:
        all_lines: the lines, in the trace's order.
        says_dropped: whether its metadata or its own stats hold the word "dropped".
        base_ns: what all timestamps of the trace count from.
        name: as the trace says.
        stat_names: metadata id of each stat: its name.
        stats: the plane's own.
    """

    def __init__(self, parts: Outline, base_ns: int) -> None:
        self.all_lines, self.base_ns = parts.lines[:MOST_LINES], base_ns
        self.says_dropped = parts.says_dropped
        self.name, self.stat_names, self.stats = parts.name, parts.stat_names, parts.stats
        self._stored, self._rest = parts.stored, parts.rest
        self._stat_numbers: dict[str, list[int]] = {}
        for number, name in self.stat_names.items():
            self._stat_numbers.setdefault(name, []).append(number)
        match = _TENSOR_CORE.fullmatch(self.name)
        self.tensor_core = int(match[1]) if match else None
        """Number of the TensorCore that this plane is of, if it is; XProf: GetTensorCoreId."""

    @property
    def is_sparse_core(self) -> bool:
        """XProf: GetSparseCoreId."""
        return _SPARSE_CORE.fullmatch(self.name) is not None

    @cached_property
    def metadata_by_id(self) -> Mapping[int, bytes]:
        """Metadata id of each kind of event: what they have in common, serialized. Of a SparseCore, few ask for it.

        Raises:
            SourceError: `malformed`; `too-large`, with those of stats there are more than a million.
        """
        found = parsed(PlaneEventMetadata, _joined(self._stored, self._rest)).event_metadata
        _check_ids(len(found) + len(self.stat_names))
        return found

    def numbers_of(self, names: Iterable[str]) -> dict[int, str]:
        """Metadata ids of the stats of these names."""
        return {number: name for name in names for number in self._stat_numbers.get(name, ())}

    def metadata(self, numbers: Iterable[int]) -> list[bytes]:
        """What events with these metadata ids have in common, serialized; nothing where the trace does not say."""
        get = self.metadata_by_id.get
        return [get(number, b"") for number in numbers]

    def event_metadata(self, number: int) -> XEventMetadata:
        """What events with this metadata id have in common; empty where the trace does not say.

        Raises:
            SourceError: `malformed`.
        """
        return parsed_metadata(*self.metadata([number]))

    def event_name(self, number: int) -> str:
        """Name of the events with this metadata id."""
        return self.event_metadata(number).name

    def lines(self, name: str | None = None) -> list[Line]:
        """The lines that have events; those of a name, if one is given."""
        return [line for line in self.all_lines if line.has_events and name in {None, line.name}]

    def read(self, lines: Sequence[Line], wanted: Sequence[str] = ()) -> Events:
        """The events of some lines, one after the other.

        Args:
            lines: of this plane.
            wanted: names of the stats to decode.

        Raises:
            SourceError: `malformed`.
        """
        names = self.numbers_of(wanted)
        return join([self._read_line(line, names) for line in lines])

    def kinds_on(self, lines: Sequence[Line]) -> list[int]:
        """The metadata ids of the events of some lines, ascending, with next to nothing else decoded.

        Raises:
            SourceError: `malformed`.
        """
        found: set[int] = set()
        for line in lines:
            found.update(*map(kinds_of, line.portions()))
        return sorted(found)

    def read_kinds(self, lines: Sequence[Line], kinds: Sequence[int], wanted: Sequence[str] = ()) -> Events:
        """The events with these metadata ids; of the others, next to nothing is decoded.

        Args:
            lines: of this plane.
            kinds: metadata ids.
            wanted: names of the stats to decode.

        Raises:
            SourceError: `malformed`.
        """
        names = self.numbers_of(wanted)
        # An event begins with its number. Lines without such bytes, nearly all, need no decoding.
        beginnings = [XEvent(metadata_id=number).SerializeToString() for number in kinds]
        holding = [line for line in lines if _holds(bytes(line.raw), beginnings)] if kinds else ()
        parts = [self._read_line(line, names, kinds) for line in holding]
        events = join([part for part in parts if len(part)])
        return events.take(among(events.metadata_id, kinds))

    def _read_line(self, line: Line, names: Mapping[int, str], kinds: Sequence[int] | None = None) -> Events:
        portions = line.portions()
        if kinds is not None:
            portions = map(partial(of_kinds, kinds=kinds), portions)
        start_ns, wanted = line.timestamp_ns - self.base_ns, tuple(names)
        return join([placed(read_events(portion, wanted), start_ns, names) for portion in portions])


def _holds(raw: bytes, any_of: Sequence[bytes]) -> bool:
    return any(each in raw for each in any_of)


def parsed_metadata(raw: bytes) -> XEventMetadata:
    """Serialized metadata of events.

    Raises:
        SourceError: `malformed`.
    """
    return parsed(XEventMetadata, raw, "the trace is broken: an event's metadata does not parse")


def named(stats: Iterable[XStat], names: Mapping[int, str], wanted: Mapping[int, str]) -> dict[str, Value]:
    """Stats by name, references followed; those without a value are left out.

    Args:
        stats: of a plane, or of an event's metadata.
        names: all of the plane's, by metadata id.
        wanted: those of them that are asked for.
    """
    return told(stats, names, wanted)[0]


def told(stats: Iterable[XStat], names: Mapping[int, str], wanted: Mapping[int, str]) -> tuple[dict[str, Value], bool]:
    """The same, and whether any of those asked for is a reference."""
    out: dict[str, Value] = {}
    refers = False
    for stat in stats:
        name = wanted.get(stat.metadata_id)
        kind = stat.WhichOneof("value") if name is not None else None
        if name is None or kind is None:
            continue
        value = getattr(stat, kind)
        if kind == "ref_value":
            refers = True
            if value not in names:
                continue
            value = names[value]
        out[name] = value
    return out, refers
