"""Builds XSpaces such as libtpu writes, event by event, for what the simulator's jobs never do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tpumon.proto.xplane_pb2 import CoreDetails, MemoryAccessBreakdown, XEvent, XLine, XPlane, XSpace

US = 1_000_000
"""A microsecond in picoseconds: times are given in microseconds and written in picoseconds."""

PROGRAM = 42


@dataclass(frozen=True)
class Op:
    """Metadata of an op; FLOPs and bytes are of one occurrence."""

    name: str
    category: str
    flops: int = 0
    model_flops: int | None = None
    read_bytes: int = 0
    written_bytes: int = 0
    symbol: bool = True
    attributes: str = ""  # behind its HLO


CONV = Op("fusion.1", "convolution fusion", flops=8_000_000_000, read_bytes=3_000_000, written_bytes=1_000_000)
LOOP = Op("fusion.2", "loop fusion", flops=1_000_000, read_bytes=20_000_000, written_bytes=9_000_000)
INFEED = Op("infeed.1", "infeed")
OUTFEED = Op("outfeed.1", "outfeed")
ALL_REDUCE = Op("all-reduce.1", "all-reduce", flops=5_000_000, read_bytes=2_000_000, written_bytes=2_000_000)
SEND = Op("send.1", "send")
BETWEEN_SLICES = Op(
    "recv-done.7",
    "host recv-done",
    attributes=', is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime"}',
)
HOST_SEND = Op("host-send.1", "host send")
WHILE = Op("while.1", "while", flops=77, read_bytes=55)
CUSTOM = Op("custom-call.1", "custom-call", flops=1_000, read_bytes=4_000_000)
MEGACORE = Op("megacore-fusion.1", "megacore fusion")
ASYNC_DONE = Op("async-done.1", "async-done")
SPARSE_INFEED = Op("sparse-infeed.1", "sparsecorev0 infeed")
SPARSE_OUTFEED = Op("sparse-outfeed.1", "sparsecorev0 outfeed")


class Named(str):
    """Text that is kept among the names of stats, as that of events on GPUs is."""

    __slots__ = ()


class Plane:
    """One plane; stats and events by name, ids given as they come."""

    def __init__(self, plane: XPlane) -> None:
        self.plane = plane
        self._stats = {metadata.name: number for number, metadata in plane.stat_metadata.items()}
        self._events: dict[object, int] = {metadata.name: number for number, metadata in plane.event_metadata.items()}

    def stat_id(self, name: str) -> int:
        if name not in self._stats:
            number = self._stats[name] = len(self._stats) + 1
            self.plane.stat_metadata[number].id = number
            self.plane.stat_metadata[number].name = name
        return self._stats[name]

    def put(self, stats, values: Mapping[str, object]) -> None:
        for name, value in values.items():
            stat = stats.add(metadata_id=self.stat_id(name))
            if isinstance(value, float):
                stat.double_value = value
            elif isinstance(value, Named):
                stat.ref_value = self.stat_id(value)
            elif isinstance(value, str):
                stat.str_value = value
            elif isinstance(value, bytes):
                stat.bytes_value = value
            elif value < 1 << 63:
                stat.int64_value = value
            else:
                stat.uint64_value = value

    def event_id(self, what: str | Op) -> int:
        if what not in self._events:
            number = self._events[what] = len(self._events) + 1
            metadata = self.plane.event_metadata[number]
            metadata.id = number
            metadata.name = what if isinstance(what, str) else _text(what)
            if isinstance(what, Op):
                metadata.display_name = what.name
                self.put(metadata.stats, _op_stats(what, number))
        return self._events[what]

    def line(self, name: str, number: int = 0, timestamp_ns: int = 0) -> XLine:
        for line in self.plane.lines:
            if line.name == name and (not number or line.id == number):
                return line
        return self.plane.lines.add(id=number or len(self.plane.lines) + 1, name=name, timestamp_ns=timestamp_ns)

    def event(self, line: str, what: str | Op, begin_us: float, duration_us: float, **stats: object) -> XEvent:
        """Appends an event to a line."""
        event = self.line(line).events.add(
            metadata_id=self.event_id(what), offset_ps=round(begin_us * US), duration_ps=round(duration_us * US)
        )
        self.put(event.stats, stats)
        return event


def _text(op: Op) -> str:
    return f"%{op.name} = bf16[8]{{0}} {op.category}(){op.attributes}"


def _op_stats(op: Op, number: int) -> dict[str, object]:
    breakdown = MemoryAccessBreakdown()
    for operation, moved in ((1, op.read_bytes), (2, op.written_bytes)):
        if moved:
            breakdown.accesses.add(operation=operation, memory_space=1, bytes_accessed=moved)
    breakdown.accesses.add(operation=1, memory_space=3, bytes_accessed=12345)  # on the chip: does not count
    stats = {
        "hlo_category": op.category,
        "flops": op.flops,
        "model_flops": op.flops if op.model_flops is None else op.model_flops,
        "bytes_accessed": op.read_bytes + op.written_bytes,
        "memory_access_breakdown": breakdown.SerializeToString(),
    }
    return stats | ({"program_id": PROGRAM, "symbol_id": number} if op.symbol else {})


@dataclass
class Traced:
    """One host's trace in the making."""

    space: XSpace = field(default_factory=XSpace)

    def named(self, name: str, number: int | None = None) -> Plane:
        return Plane(self.space.planes.add(id=len(self.space.planes) + 1 if number is None else number, name=name))

    def core(
        self,
        number: int,
        *,
        chip: int | None = None,
        core: int = 0,
        device_type: str = "TPU v5",
        peak_tflops: float | None = 100.0,
        peak_gbps: float | None = 1000.0,
        details: bool = True,
        sparse: int | None = None,
    ) -> Plane:
        """A TensorCore's plane, or with `sparse` a SparseCore's."""
        name = f"/device:TPU:{number}" + ("" if sparse is None else f" SparseCore {sparse}")
        plane = self.named(name)
        stats: dict[str, object] = {"device_type_string": device_type}
        if details:
            stats["core_details"] = CoreDetails(
                hostname="ignored",
                device_ordinal=number,
                core_num=core,
                local_chip_id=number if chip is None else chip,
                global_chip_id=number if chip is None else chip,
                is_sparse_core=sparse is not None,
            ).SerializeToString()
        if peak_tflops is not None:
            stats["peak_teraflops_per_second"] = peak_tflops
        if peak_gbps is not None:
            stats["peak_hbm_bw_gigabytes_per_second"] = peak_gbps
        plane.put(plane.plane.stats, stats)
        return plane

    def host(self, mxu_percent: float | None = 42.5) -> Plane:
        plane = self.named("/host:CPU")
        if mxu_percent is not None:
            plane.put(plane.plane.stats, {"matrix_unit_utilization_percent": mxu_percent})
        return plane

    def bytes(self) -> bytes:
        return self.space.SerializeToString()


def cut(space: XSpace, begin_us: float, end_us: float) -> None:
    """Leaves what a profiler shows that starts and stops at these moments: the events that are whole."""
    for plane in space.planes:
        for line in plane.lines:
            from_ps, to_ps = (us * US - line.timestamp_ns * 1000 for us in (begin_us, end_us))
            whole = [
                event for event in line.events
                if from_ps <= event.offset_ps and event.offset_ps + event.duration_ps <= to_ps
            ]  # fmt: skip
            del line.events[:]
            line.events.extend(whole)


def run_ops(plane: Plane, begin_us: float, parts: Iterable[tuple]) -> float:
    """Ops one after the other, as `run_step` has them; returns the end of the last."""
    at_us = begin_us
    for op, duration_us, *stats in parts:
        ends_us = round(at_us + duration_us, 6)  # whole picoseconds: what follows must not overlap it
        if op is not None:
            plane.event("XLA Ops", op, at_us, ends_us - at_us, **(stats[0] if stats else {}))
        at_us = ends_us
    return at_us


def run_step(plane: Plane, begin_us: float, parts: Iterable[tuple], *, length_us: float | None = None) -> float:
    """A marker, a module and their ops one after the other; returns the marker's end.

    Args:
        parts: (op, duration) or (op, duration, stats of the event); None instead of an op is a pause.
        length_us: of marker and module, where longer than the ops.
    """
    at_us = run_ops(plane, begin_us, parts)
    end_us = at_us if length_us is None else begin_us + length_us
    plane.event("Steps", "train", begin_us, end_us - begin_us)
    plane.event("XLA Modules", "jit_train_step(42)", begin_us, end_us - begin_us)
    return end_us
