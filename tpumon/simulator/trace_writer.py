"""Writes a window of the simulated job as XSpace bytes, as a TPU's profiler does; XProf reads them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tpumon.model import SIMULATED_MARK
from tpumon.proto import xplane_pb2
from tpumon.simulator.expected_figures import CoreStep, measure, window_events
from tpumon.simulator.scenario import HLO_CATEGORIES, OPS, Job, Part, Program
from tpumon.simulator.trace_host import CONTEXT, PS_PER_NS, add_host_events

_READ, _WRITE, _HBM = 1, 2, 1  # operation types and memory space of memory_access_breakdown

_STATS = (
    "device_type_string",
    "core_details",
    "peak_teraflops_per_second",
    "peak_hbm_bw_gigabytes_per_second",
    "has_megacore",
    "has_merged_vmem",
    "hlo_category",
    "program_id",
    "symbol_id",
    "flops",
    "model_flops",
    "bytes_accessed",
    "raw_bytes_accessed",
    "memory_access_breakdown",
    "all_reduce_unique_id",
    "_ct",
    "_c",
)
_ORIGIN_STATS = ("tf_op", "source")  # only of programs whose ops have them
_STAT = {name: i for i, name in enumerate((*_STATS, *_ORIGIN_STATS), start=1)}

_STEP_EVENT, _MODULE_EVENT, _FIRST_OP = 1, 2, 3  # metadata ids; each further program has its own, so much later:
_NEXT_PROGRAM = 100
_WAITS = {Part.BARRIER: ("barrier-cores", 90), Part.DEBUG_PRINT: ("debug_print", 91)}  # names and metadata ids
_WITHOUT_SPARSE_CORES = frozenset({"v2", "v3", "v5e"})


class TraceOptions(Struct, frozen=True, kw_only=True):
    """What to record: tracer levels as in ProfileOptions."""

    host_tracer_level: int = 0
    device_tracer_level: int = 1


class Trace(Struct, frozen=True, kw_only=True):
    """An XSpace as bytes; `empty` if no line of any plane has an event."""

    xspace: bytes
    empty: bool


def build_trace(
    job: Job,
    worker: int,
    *,
    start_ns: int,
    stop_ns: int,
    epoch_unix_ns: int,
    options: TraceOptions,
    full_ns: int | None = None,
) -> Trace:
    """Returns the trace that a profiler records of one worker in a window.

    Args:
        job: the simulated job.
        worker: index of the worker.
        start_ns: start of the window, in nanoseconds since the job's start.
        stop_ns: end of the window.
        epoch_unix_ns: wall clock time of the job's start.
        options: what to record.
        full_ns: when the buffers of the devices are full, so that later events are dropped; None: they are not.
    """
    space = xplane_pb2.XSpace()
    hostname = job.topology.worker_name(worker)
    events: Sequence[Sequence[CoreStep]] = ()
    if options.device_tracer_level:
        events = window_events(job, worker, start_ns, stop_ns if full_ns is None else full_ns)
        for device, core in enumerate(events):
            plane = space.planes.add(id=2 + device, name=f"/device:TPU:{device}")
            _add_device_stats(plane, job, worker, device)
            _add_device_events(plane, job, core, start_ns)
            _add_sparse_core(space, job, device, core, start_ns)
    host = space.planes.add(id=100, name="/host:CPU")
    if options.device_tracer_level:
        host.stat_metadata[1].id = 1
        host.stat_metadata[1].name = "matrix_unit_utilization_percent"
        host.stats.add(metadata_id=1, double_value=100 * measure(job, events).mxu_ratio)
    if options.host_tracer_level:
        add_host_events(host, job, worker, level=options.host_tracer_level, start_ns=start_ns, stop_ns=stop_ns)
    _add_environment(space.planes.add(id=101), epoch_unix_ns + start_ns, epoch_unix_ns + stop_ns)
    space.hostnames.append(hostname)
    space.warnings.append(f"{SIMULATED_MARK}: scenario {job.title}, {job.topology.name}, seed {job.seed}")
    if full_ns is not None:
        space.warnings.append("The trace buffers are full: device events were dropped.")
    empty = not any(line.events for plane in space.planes for line in plane.lines)
    return Trace(xspace=space.SerializeToString(), empty=empty)


def empty_trace(job: Job, worker: int, *, start_unix_ns: int) -> Trace:
    """Returns the trace of a request without a window."""
    space = xplane_pb2.XSpace()
    space.planes.add(id=100, name="/host:CPU")
    _add_environment(space.planes.add(id=101), start_unix_ns, start_unix_ns)
    space.hostnames.append(job.topology.worker_name(worker))
    space.warnings.append(f"{SIMULATED_MARK}: scenario {job.title}, {job.topology.name}, seed {job.seed}")
    return Trace(xspace=space.SerializeToString(), empty=True)


def _add_environment(plane: xplane_pb2.XPlane, start_unix_ns: int, stop_unix_ns: int) -> None:
    plane.name = "Task Environment"
    for i, (name, value) in enumerate(
        (("profile_start_time", start_unix_ns), ("profile_stop_time", stop_unix_ns)), start=1
    ):
        plane.stat_metadata[i].id = i
        plane.stat_metadata[i].name = name
        plane.stats.add(metadata_id=i, uint64_value=value)


def _add_device_events(plane: xplane_pb2.XPlane, job: Job, core: Sequence[CoreStep], start_ns: int) -> None:
    if not core:
        return
    offsets = _add_event_metadata(plane, job, core)
    lines = {
        name: plane.lines.add(id=i, name=name)
        for i, name in enumerate(("Steps", "XLA Modules", "XLA Ops"), start=1)
        if name != "Steps" or not all(one.step.work.program.jax for one in core)
    }
    for one in core:
        at_ps = (one.step.start_ns - start_ns) * PS_PER_NS
        program = one.step.work.program
        if one.partial is None:
            length_ps = one.parts.marker * PS_PER_NS
            if not program.jax:
                lines["Steps"].events.add(metadata_id=_STEP_EVENT, offset_ps=at_ps, duration_ps=length_ps)
            module = lines["XLA Modules"].events.add(
                metadata_id=_MODULE_EVENT + offsets[program], offset_ps=at_ps, duration_ps=length_ps
            )
            module.stats.add(metadata_id=_STAT["_ct"], int64_value=CONTEXT)
            module.stats.add(metadata_id=_STAT["_c"], int64_value=one.step.number)
            _add_waits(plane, lines, one, at_ps)
        for op, offset_ns, duration_ns in one.slots:
            event = lines["XLA Ops"].events.add(
                metadata_id=_FIRST_OP + op + offsets[program],
                offset_ps=at_ps + offset_ns * PS_PER_NS,
                duration_ps=duration_ns * PS_PER_NS,
            )
            if OPS[op].part is Part.ALL_REDUCE:
                event.stats.add(metadata_id=_STAT["all_reduce_unique_id"], uint64_value=one.step.number + 1)


def _add_waits(plane: xplane_pb2.XPlane, lines: dict[str, xplane_pb2.XLine], one: CoreStep, at_ps: int) -> None:
    """Adds what a core does without an op, just before the all-reduce: it waits at a barrier, or prints."""
    end_ns = one.parts.marker - one.parts.outfeed - one.parts.all_reduce
    for part, length_ns in ((Part.BARRIER, one.parts.barrier), (Part.DEBUG_PRINT, one.parts.debug_print)):
        if not length_ns:
            continue
        if "XLA TraceMe" not in lines:
            lines["XLA TraceMe"] = plane.lines.add(id=4, name="XLA TraceMe")
        name, number = _WAITS[part]
        plane.event_metadata[number].id = number
        plane.event_metadata[number].name = name
        end_ns -= length_ns
        lines["XLA TraceMe"].events.add(
            metadata_id=number, offset_ps=at_ps + end_ns * PS_PER_NS, duration_ps=length_ns * PS_PER_NS
        )


def _add_sparse_core(space: xplane_pb2.XSpace, job: Job, device: int, core: Sequence[CoreStep], start_ns: int) -> None:
    """Adds the SparseCore of a device that the TensorCore waits for, where the generation has SparseCores."""
    waited = [one for one in core if one.partial is None and one.parts.sparse_wait]
    if not waited or job.topology.generation.name in _WITHOUT_SPARSE_CORES:
        return
    plane = space.planes.add(id=200 + device, name=f"/device:TPU:{device} SparseCore 0")
    for number, name in enumerate(("embedding_lookup", "jit_embedding_lookup(1)"), start=1):
        plane.event_metadata[number].id = number
        plane.event_metadata[number].name = name
    modules = plane.lines.add(id=1, name="Sparse Core Modules")
    ops = plane.lines.add(id=2, name="Sparse Core Ops")
    for one in waited:
        at_ps = (one.step.start_ns - start_ns) * PS_PER_NS
        end_ns = one.parts.marker - one.parts.outfeed - one.parts.all_reduce
        for line, number in ((ops, 1), (modules, 2)):
            line.events.add(metadata_id=number, offset_ps=at_ps, duration_ps=end_ns * PS_PER_NS)


def _add_device_stats(plane: xplane_pb2.XPlane, job: Job, worker: int, device: int) -> None:
    _add_stat_names(plane, _STATS)
    topology = job.topology
    generation = topology.generation
    chip, core = divmod(device, generation.devices_per_chip)
    global_chip = worker * topology.chips_per_host + chip
    details = b"".join(
        (
            _bytes_field(1, topology.worker_name(worker).encode()),
            _int_field(2, device),
            _int_field(3, core),
            _int_field(4, chip),
            _int_field(5, global_chip),
            _int_field(6, worker * topology.devices_per_host + device),
        )
    )
    add = plane.stats.add
    add(metadata_id=_STAT["core_details"], bytes_value=details)
    add(metadata_id=_STAT["device_type_string"], str_value=generation.device_type)
    add(metadata_id=_STAT["peak_teraflops_per_second"], double_value=topology.device_peak_flops / 1e12)
    add(
        metadata_id=_STAT["peak_hbm_bw_gigabytes_per_second"],
        double_value=topology.device_hbm_bandwidth_bytes_per_s / 1e9,
    )
    add(metadata_id=_STAT["has_megacore"], int64_value=int(generation.megacore))
    add(metadata_id=_STAT["has_merged_vmem"], int64_value=1)


def _add_stat_names(plane: xplane_pb2.XPlane, names: Sequence[str]) -> None:
    for name in names:
        plane.stat_metadata[_STAT[name]].id = _STAT[name]
        plane.stat_metadata[_STAT[name]].name = name


def _add_event_metadata(plane: xplane_pb2.XPlane, job: Job, core: Sequence[CoreStep]) -> dict[Program, int]:
    """Adds the names of steps, modules and ops; returns by how much the ids of each program's are moved."""
    if not all(one.step.work.program.jax for one in core):
        plane.event_metadata[_STEP_EVENT].id = _STEP_EVENT
        plane.event_metadata[_STEP_EVENT].name = "train"
    parts: dict[Program, set[Part]] = {}
    for one in core:
        present = parts.setdefault(one.step.work.program, set())
        present.update(part for part in Part if one.step.work.ms[part])
    offsets = {program: i * _NEXT_PROGRAM for i, program in enumerate(parts)}
    for program, offset in offsets.items():
        module = plane.event_metadata[_MODULE_EVENT + offset]
        module.id = _MODULE_EVENT + offset
        module.name = program.module
        for op, (_, part, _, _) in enumerate(OPS):
            if part in parts[program]:
                if program.tf_op(op):
                    _add_stat_names(plane, _ORIGIN_STATS)
                _add_op(plane.event_metadata[_FIRST_OP + offset + op], _FIRST_OP + offset + op, job, program, op)
    return offsets


def _add_op(metadata: xplane_pb2.XEventMetadata, number: int, job: Job, program: Program, op: int) -> None:
    name, part, code, _ = OPS[op]
    metadata.id = number
    metadata.name = f"%{name} = {program.shape} {code}()"
    metadata.display_name = name
    flops = program.flops(op, job.topology.device_peak_flops)
    moved = program.bytes(op, job.topology.device_hbm_bandwidth_bytes_per_s)
    breakdown = _accessed(_READ, moved - moved // 3) + _accessed(_WRITE, moved // 3) if moved else b""
    add = metadata.stats.add
    add(metadata_id=_STAT["hlo_category"], str_value=HLO_CATEGORIES[part])
    add(metadata_id=_STAT["program_id"], uint64_value=program.number)
    add(metadata_id=_STAT["symbol_id"], uint64_value=op + 1)
    add(metadata_id=_STAT["flops"], int64_value=flops)
    add(metadata_id=_STAT["model_flops"], int64_value=flops)
    add(metadata_id=_STAT["bytes_accessed"], int64_value=moved)
    add(metadata_id=_STAT["raw_bytes_accessed"], int64_value=moved)
    add(metadata_id=_STAT["memory_access_breakdown"], bytes_value=breakdown)
    if tf_op := program.tf_op(op):
        add(metadata_id=_STAT["tf_op"], str_value=tf_op)
        add(metadata_id=_STAT["source"], str_value=f"train.py:{100 + op}")


def _accessed(operation: int, moved: int) -> bytes:
    return _bytes_field(1, _int_field(1, operation) + _int_field(2, _HBM) + _int_field(3, moved))


def _int_field(number: int, value: int) -> bytes:
    """Encodes a protobuf varint field. The two small messages inside stats are encoded by hand, without a .proto."""
    out = bytearray([number << 3])
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes_field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _int_field(0, len(value))[1:] + value
