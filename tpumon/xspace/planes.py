"""Which plane and which line is what, and what their stats say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from google.protobuf.message import DecodeError, Message

from tpumon.errors import SourceError
from tpumon.text import one_line
from tpumon.wire.xplane_pb2 import PlaneOutline, TraceOutline, XEventMetadata, XStat
from tpumon.xspace.reader import EventColumns, Ints, Mask, StatColumn, read_events
from tpumon.xspace.wire import NOT_A_TRACE, Line, fields, read_line

Value = int | float | str | bytes

PS_PER_NS = 1000
PS_PER_S = 1e12

TENSOR_CORE_STEPS = "Steps"
TENSOR_CORE_MODULES, SPARSE_CORE_MODULES = "XLA Modules", "Sparse Core Modules"
TENSOR_CORE_OPS, SPARSE_CORE_OPS = "XLA Ops", "Sparse Core Ops"

TPU_PREFIX, HOST_THREADS = "/device:TPU:", "/host:CPU"
_ENVIRONMENT = "Task Environment"
_TENSOR_CORE = re.compile(r"/device:TPU:(\d{1,9})")
_SPARSE_CORE = re.compile(r"/device:TPU:(\d{1,9}) SparseCore(?: \w+)? (\d{1,9})")
_GPU = re.compile(r"/device:GPU:(\d{1,9})")

_LATEST_PS = 1 << 61  # a month; a trace that says more is absurd, and sums must not overflow
_LATEST_NS = _LATEST_PS // PS_PER_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Events of one line, those with absurd times left out; one element per event.

    Attributes:
        metadata_id: key into the plane's event_metadata.
        begin_ps: start, on the trace's own clock.
        duration_ps: not negative.
        stats: the wanted stats that were found, by name; their rows index these arrays.
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
        begins, durations = offset.integers(len(self), -1), duration.integers(len(self), -1)
        both = (begins >= 0) & (durations >= 0) & (begins < _LATEST_PS) & (durations < _LATEST_PS)
        return np.where(both, begins, self.begin_ps), np.where(both, durations, self.duration_ps)

    def within(self, span_ps: tuple[int, int]) -> Events:
        """Those that begin and end in a span, stats and all."""
        inside = (self.begin_ps >= span_ps[0]) & (self.end_ps <= span_ps[1])
        if inside.all():
            return self
        new_row = np.cumsum(inside) - 1
        return Events(
            metadata_id=self.metadata_id[inside],
            begin_ps=self.begin_ps[inside],
            duration_ps=self.duration_ps[inside],
            stats={name: _kept(column, inside, new_row) for name, column in self.stats.items()},
            dropped=self.dropped,
        )

    def take(self, picked: Ints | Mask) -> Events:
        """Some of the events, without their stats."""
        return Events(
            metadata_id=self.metadata_id[picked], begin_ps=self.begin_ps[picked], duration_ps=self.duration_ps[picked]
        )


@dataclass(frozen=True, slots=True)
class Plane:
    """One plane of a trace, its events not read yet.

    Attributes:
        outline: what the wire says, but for the lines.
        all_lines: the lines, in the trace's order.
        base_ns: what all timestamps of the trace count from.
        stat_numbers: metadata ids of each stat, by name.
    """

    outline: PlaneOutline
    all_lines: tuple[Line, ...]
    base_ns: int
    stat_numbers: Mapping[str, Sequence[int]] = field(repr=False)

    @property
    def name(self) -> str:
        return self.outline.name

    @property
    def tensor_core(self) -> int | None:
        """Number of the TensorCore that this plane is of, if it is; XProf: GetTensorCoreId."""
        match = _TENSOR_CORE.fullmatch(self.name)
        return int(match[1]) if match else None

    @property
    def is_sparse_core(self) -> bool:
        """XProf: GetSparseCoreId."""
        return _SPARSE_CORE.fullmatch(self.name) is not None

    def stat_names(self) -> dict[int, str]:
        """Metadata id of each stat: its name."""
        return {number: metadata.name for number, metadata in self.outline.stat_metadata.items()}

    def stats(self) -> dict[str, Value]:
        """The plane's own stats."""
        names = self.stat_names()
        return named(self.outline.stats, names, names)

    def event_metadata(self, number: int) -> XEventMetadata:
        """What events with this metadata id have in common; empty where the trace does not say.

        Raises:
            SourceError: `malformed`.
        """
        known = self.outline.event_metadata
        try:
            return XEventMetadata.FromString(known[number] if number in known else b"")  # noqa: SIM401 - a protobuf map
        except DecodeError as error:
            raise SourceError("malformed", "the trace is broken: an event's metadata does not parse") from error

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
        ids = {number: name for name in wanted for number in self.stat_numbers.get(name, ())}
        return _join([self._read_line(line, ids) for line in lines])

    def _read_line(self, line: Line, ids: Mapping[int, str]) -> Events:
        columns = read_events(line.events(), tuple(ids))
        start_ns = line.timestamp_ns - self.base_ns
        if not -_LATEST_NS < start_ns < _LATEST_NS:
            return _sane(columns, 0, ids, np.zeros(len(columns), dtype=np.bool_))
        offset_ps, duration_ps = columns.offset_ps, columns.duration_ps
        sane = (duration_ps >= 0) & (duration_ps < _LATEST_PS) & (offset_ps > -_LATEST_PS) & (offset_ps < _LATEST_PS)
        return _sane(columns, start_ns * PS_PER_NS, ids, sane)


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


def _sane(columns: EventColumns, start_ps: int, ids: Mapping[int, str], sane: Mask) -> Events:
    """The events whose times make sense."""
    stats = {ids[number]: column for number, column in columns.stats.items()}
    if sane.all():
        return Events(
            metadata_id=columns.metadata_id,
            begin_ps=columns.offset_ps + start_ps,
            duration_ps=columns.duration_ps,
            stats=stats,
        )
    new_row = np.cumsum(sane) - 1
    return Events(
        metadata_id=columns.metadata_id[sane],
        begin_ps=columns.offset_ps[sane] + start_ps,
        duration_ps=columns.duration_ps[sane],
        stats={name: _kept(column, sane, new_row) for name, column in stats.items()},
        dropped=int(len(sane) - sane.sum()),
    )


def _kept(column: StatColumn, kept: Mask, new_row: Ints) -> StatColumn:
    here = kept[column.rows]
    return StatColumn(rows=new_row[column.rows[here]], values=column.values[here], is_double=column.is_double[here])


def _join(parts: Sequence[Events]) -> Events:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        nothing = np.zeros(0, dtype=np.int64)
        return Events(metadata_id=nothing, begin_ps=nothing, duration_ps=nothing)
    first = np.cumsum([0, *(len(part) for part in parts[:-1])])
    stats = {}
    for name in {name for part in parts for name in part.stats}:
        found = [(start, part.stats[name]) for start, part in zip(first, parts, strict=True) if name in part.stats]
        stats[name] = StatColumn(
            rows=np.concatenate([column.rows + start for start, column in found]),
            values=np.concatenate([column.values for _, column in found]),
            is_double=np.concatenate([column.is_double for _, column in found]),
        )
    return Events(
        metadata_id=np.concatenate([part.metadata_id for part in parts]),
        begin_ps=np.concatenate([part.begin_ps for part in parts]),
        duration_ps=np.concatenate([part.duration_ps for part in parts]),
        stats=stats,
        dropped=sum(part.dropped for part in parts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A trace, its events not read yet.

    Attributes:
        tensor_cores: planes of TensorCores.
        sparse_cores: planes of SparseCores.
        tpu_planes: all planes of TPUs, in the trace's order; XProf takes the peaks from the first.
        gpus: planes of GPUs.
        host: the plane of the host's threads.
        start_unix_s: when the window began, by the host's clock; None where the trace does not say.
        stop_ps: when it ended, on the trace's own clock; None where the trace does not say.
        hostnames: as the trace says.
        remarks: the profiler's own errors and warnings, one line each, each once.
        capped: what there was too much of, so that some of it is left out; one line each.
    """

    tensor_cores: tuple[Plane, ...]
    sparse_cores: tuple[Plane, ...]
    tpu_planes: tuple[Plane, ...]
    gpus: tuple[Plane, ...]
    host: Plane | None
    start_unix_s: float | None
    stop_ps: int | None
    hostnames: tuple[str, ...]
    remarks: tuple[str, ...]
    capped: tuple[str, ...]


_MOST_REMARKS = 20
_MOST_PLANES, _MOST_LINES, _MOST_CORES = 1000, 10_000, 64  # a host has 16 cores at most, and a thread is a line
_PLANES, _LINES = 1, 3  # field numbers of XSpace and XPlane
_LATEST_START_NS = 1 << 62


def read_space(xspace: bytes) -> Space:
    """Sorts the planes of a serialized XSpace.

    Raises:
        SourceError: `malformed`, the bytes are not an XSpace; `empty-trace`, no line has an event.
    """
    trace, parts = TraceOutline(), []
    head, raw_planes = _apart(memoryview(xspace), _PLANES)
    _parse(trace, head)
    capped = _too_many(raw_planes, _MOST_PLANES, "planes")
    for raw in raw_planes[:_MOST_PLANES]:
        outline = PlaneOutline()
        head, raw_lines = _apart(raw, _LINES)
        capped += _too_many(raw_lines, _MOST_LINES, "lines in one plane")
        raw_lines = raw_lines[:_MOST_LINES]
        _parse(outline, head)
        parts.append((outline, tuple(read_line(line) for line in raw_lines)))
    stamps = [line.timestamp_ns for _, lines in parts for line in lines if line.has_events]
    if not stamps:
        raise SourceError("empty-trace", "the trace holds no event; was the program idle, or the profiler stopped?")
    # Times may count from 1970, which in picoseconds is more than 64 bits hold.
    base_ns = 0 if max(stamps) < _LATEST_NS else min(stamps, key=lambda stamp: (stamp <= 0, stamp))
    planes = [Plane(outline, lines, base_ns, _stat_numbers(outline)) for outline, lines in parts]
    tpu_planes = tuple(plane for plane in planes if plane.name.startswith(TPU_PREFIX))
    cores = [plane for plane in tpu_planes if plane.tensor_core is not None]
    capped += _too_many(cores, _MOST_CORES, "cores")
    remarks = [one_line(text) for text in dict.fromkeys((*trace.errors, *trace.warnings))]
    return Space(
        tensor_cores=tuple(cores[:_MOST_CORES]),
        sparse_cores=tuple(plane for plane in tpu_planes if plane.is_sparse_core),
        tpu_planes=tpu_planes,
        gpus=tuple(plane for plane in planes if _GPU.fullmatch(plane.name)),
        host=next((plane for plane in planes if plane.name == HOST_THREADS), None),
        start_unix_s=_start_unix_s(planes),
        stop_ps=_stop_ps(planes, base_ns),
        hostnames=tuple(one_line(name) for name in trace.hostnames),
        remarks=tuple(remarks[:_MOST_REMARKS]),
        capped=tuple(dict.fromkeys(capped)),
    )


def _too_many(parts: Sequence[object], most: int, what: str) -> list[str]:
    """The line to say if some of these are left out."""
    return [f"the trace has more than {most} {what}: the others are left out"] if len(parts) > most else []


def _stat_numbers(outline: PlaneOutline) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for number, metadata in outline.stat_metadata.items():
        numbers.setdefault(metadata.name, []).append(number)
    return numbers


def _apart(raw: memoryview, number: int) -> tuple[bytes, list[memoryview]]:
    """A serialized message without one of its fields, and that field's values."""
    values: list[memoryview] = []
    rest: list[memoryview] = []
    for found, begin, value_begin, end, _ in fields(raw):
        if found == number:
            values.append(raw[value_begin:end])
        else:
            rest.append(raw[begin:end])
    return b"".join(rest), values


def _parse(message: Message, raw: bytes) -> None:
    try:
        message.ParseFromString(raw)
    except DecodeError as error:
        raise SourceError("malformed", NOT_A_TRACE) from error


def _start_unix_s(planes: Sequence[Plane]) -> float | None:
    start_ns = _environment_ns(planes, "profile_start_time")
    return None if start_ns is None else start_ns / 1e9


def _stop_ps(planes: Sequence[Plane], base_ns: int) -> int | None:
    """Times count from 1970 or from the start of the window."""
    stop_ns = _environment_ns(planes, "profile_stop_time")
    from_ns = base_ns or _environment_ns(planes, "profile_start_time")
    if stop_ns is None or from_ns is None or not 0 < stop_ns - from_ns < _LATEST_NS:
        return None
    return (stop_ns - from_ns) * PS_PER_NS


def _environment_ns(planes: Sequence[Plane], stat: str) -> int | None:
    environment = next((plane for plane in planes if plane.name == _ENVIRONMENT), None)
    time_ns = environment.stats().get(stat) if environment else None
    return time_ns if isinstance(time_ns, int) and 0 < time_ns < _LATEST_START_NS else None
