"""One plane of a trace: which lines it has, and what its stats say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from tpumon.errors import SourceError
from tpumon.proto.xplane_pb2 import PlaneEventMetadata, PlaneOutline, XEvent, XEventMetadata, XStat
from tpumon.xspace.columns.columns import Events, join, placed
from tpumon.xspace.columns.event_decoder import UNKNOWN, first_ids, of_kinds, read_events
from tpumon.xspace.columns.intervals import among
from tpumon.xspace.columns.lines import TraceLine, read_line
from tpumon.xspace.wire import Stored, fields, parsed

Value = int | float | str | bytes
_Spans = list[tuple[int, int]]

TENSOR_CORE_STEPS = "Steps"
TENSOR_CORE_MODULES, SPARSE_CORE_MODULES = "XLA Modules", "Sparse Core Modules"
TENSOR_CORE_OPS, SPARSE_CORE_OPS = "XLA Ops", "Sparse Core Ops"
TRACE_ME = "XLA TraceMe"
STEP_NUMBER = "step_num"
STEP_STATS = ("device_offset_ps", "device_duration_ps")

TPU_PREFIX, HOST_THREADS = "/device:TPU:", "/host:CPU"
METADATA, ENVIRONMENT = "/host:metadata", "Task Environment"
_TENSOR_CORE = re.compile(r"/device:TPU:(\d{1,9})")
_SPARSE_CORE = re.compile(r"/device:TPU:(\d{1,9}) SparseCore(?: \w+)? (\d{1,9})")

MOST_LINES = 10_000  # a thread is a line
_MOST_IDS = 1_000_000  # of a plane's events and stats; a program has some thousand ops
_MOST_SPANS = 1000  # that are remembered of a plane; nearly all have two
_LINES = 3  # field number of XPlane


class Plane:
    """One plane of a trace, its events not read yet.

    Attributes:
        name: as the trace says.
        all_lines: in the trace's order; MOST_LINES at most.
        has_more_lines: whether there are more, which are left out.
        stat_names: metadata id of each stat: its name.
        stats: the plane's own.
        tensor_core: number of the TensorCore that this plane is of, if it is; XProf: GetTensorCoreId.
        says_dropped: whether its metadata or its own stats hold the word "dropped", in capital letters or small ones.
        base_ns: what all timestamps of the trace count from; set once all planes are known.

    Args:
        stored: what holds the serialized plane.
        begin: where in it.
        end: where in it.

    Raises:
        SourceError: `malformed`; `too-large`, it has more than a million ids of stats.
    """

    def __init__(self, stored: Stored, begin: int, end: int) -> None:
        whole = stored
        lines, rest = _split(stored, begin, end, to_the_end=False)
        raw = _joined(stored, rest)
        message = parsed(PlaneOutline, raw)
        if message.lines:  # some come after the rest, as nobody writes them
            lines, rest = _split(stored, begin, end, to_the_end=True)
            raw = _joined(stored, rest)
            message = parsed(PlaneOutline, raw)
        if len(rest) > _MOST_SPANS:
            stored, rest = memoryview(raw), [(0, len(raw))]
        self._stored, self._rest = stored, rest
        _check_ids(len(message.stat_metadata))
        self.name, self.base_ns = message.name, 0
        self.all_lines = tuple(read_line(whole, *span) for span in lines[:MOST_LINES])
        self.has_more_lines = len(lines) > MOST_LINES
        self.stat_names: Mapping[int, str] = {number: each.name for number, each in message.stat_metadata.items()}
        self.stats = named(message.stats, self.stat_names, self.stat_names)
        self._stat_numbers: dict[str, list[int]] = {}
        for number, name in self.stat_names.items():
            self._stat_numbers.setdefault(name, []).append(number)
        match = _TENSOR_CORE.fullmatch(self.name)
        self.tensor_core = int(match[1]) if match else None
        self.says_dropped = b"dropped" in raw.lower()

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
        metadata = parsed(PlaneEventMetadata, _joined(self._stored, self._rest)).event_metadata
        _check_ids(len(metadata) + len(self.stat_names))
        return metadata

    def numbers_of(self, names: Iterable[str]) -> dict[int, str]:
        """Metadata ids of the stats of these names."""
        return {number: name for name in names for number in self._stat_numbers.get(name, ())}

    def metadata(self, numbers: Iterable[int]) -> list[bytes]:
        """Serialized metadata of the events with these ids; nothing where the trace does not say."""
        get = self.metadata_by_id.get
        return [get(number, b"") for number in numbers]

    def event_metadata(self, number: int) -> XEventMetadata:
        """Metadata of the events with this id; empty where the trace does not say.

        Raises:
            SourceError: `malformed`.
        """
        return parsed_metadata(*self.metadata([number]))

    def event_name(self, number: int) -> str:
        """Name of the events with this metadata id."""
        return self.event_metadata(number).name

    def lines(self, name: str | None = None) -> list[TraceLine]:
        """The lines that have events; those of a name, if one is given."""
        return [line for line in self.all_lines if line.has_events and name in {None, line.name}]

    def read(self, lines: Sequence[TraceLine], wanted: Sequence[str] = ()) -> Events:
        """The events of some lines, one after the other.

        Args:
            lines: of this plane.
            wanted: names of the stats to decode.

        Raises:
            SourceError: `malformed`.
        """
        names = self.numbers_of(wanted)
        return join([self._read_line(line, names) for line in lines])

    def kinds_on(self, lines: Sequence[TraceLine]) -> list[int]:
        """The metadata ids that the events of some lines have, ascending; next to nothing else is decoded.

        Raises:
            SourceError: `malformed`.
        """
        ids = {
            number for line in lines for portion in line.portions() for number in np.unique(first_ids(portion)).tolist()
        }
        return sorted(ids) if UNKNOWN not in ids else np.unique(self.read(lines).metadata_id).tolist()

    def read_kinds(self, lines: Sequence[TraceLine], kinds: Sequence[int], wanted: Sequence[str] = ()) -> Events:
        """The events with these metadata ids.

        Args:
            lines: of this plane.
            kinds: metadata ids.
            wanted: names of the stats to decode.

        Raises:
            SourceError: `malformed`.
        """
        # An event begins with its number. Lines without such bytes, nearly all, need no decoding.
        beginnings = [XEvent(metadata_id=number).SerializeToString() for number in kinds]
        holding = [line for line in lines if _holds(bytes(line.raw), beginnings)] if kinds else []
        names = self.numbers_of(wanted)
        events = join([self._read_line(line, names, kinds) for line in holding])
        return events.select(among(events.metadata_id, kinds))

    def _read_line(self, line: TraceLine, names: Mapping[int, str], kinds: Sequence[int] | None = None) -> Events:
        portions = line.portions()
        if kinds is not None:  # of the other events, nothing more is decoded
            portions = (of_kinds(portion, kinds) for portion in portions)
        start_ns, wanted = line.timestamp_ns - self.base_ns, tuple(names)
        return join([placed(read_events(portion, wanted), start_ns, names) for portion in portions])


def _split(stored: Stored, begin: int, end: int, *, to_the_end: bool) -> tuple[_Spans, _Spans]:
    """The spans of a plane's lines, and those of the rest; as a rule, no line comes after that."""
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
    return lines, rest


def _joined(stored: Stored, spans: _Spans) -> bytes:
    return b"".join([stored[begin:end] for begin, end in spans])


def _check_ids(count: int) -> None:
    if count > _MOST_IDS:  # without the others, FLOPs would be missing
        raise SourceError("too-large", f"a plane of the trace has more than {_MOST_IDS:,} ids of events and stats")


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
    out: dict[str, Value] = {}
    for stat in stats:
        name = wanted.get(stat.metadata_id)
        kind = stat.WhichOneof("value") if name is not None else None
        if name is None or kind is None:
            continue
        value = getattr(stat, kind)
        if kind == "ref_value":
            if value not in names:
                continue
            value = names[value]
        out[name] = value
    return out
