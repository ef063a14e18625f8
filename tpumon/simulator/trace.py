"""Writes a window of the simulated job as XSpace bytes, as a TPU's profiler does; XProf reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpumon.model import SIMULATED_MARK
from tpumon.simulator.figures import CoreStep, measure, window_events
from tpumon.simulator.scenario import HLO_CATEGORIES, OPS, Category, Job, op_bytes, op_flops
from tpumon.wire import xplane_pb2

PS_PER_NS = 1000
PROGRAM_ID = 7_310_467_204_561_120_160
MODULE = f"jit_train_step({PROGRAM_ID})"

_READ, _WRITE, _HBM = 1, 2, 1  # operation types and memory space of memory_access_breakdown
_CONTEXT = 12  # _pt and _ct: the kind of link; any number that is equal on both sides

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
_STAT = {name: i for i, name in enumerate(_STATS, start=1)}

_STEP_EVENT, _MODULE_EVENT, _FIRST_OP = 1, 2, 3  # metadata ids


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """What to record: tracer levels as in ProfileOptions."""

    host_tracer_level: int = 0
    device_tracer_level: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
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
    host = space.planes.add(id=100, name="/host:CPU")
    if options.device_tracer_level:
        host.stat_metadata[1].id = 1
        host.stat_metadata[1].name = "matrix_unit_utilization_percent"
        host.stats.add(metadata_id=1, double_value=100 * measure(job, events).mxu_ratio)
    if options.host_tracer_level:
        _add_host_events(host, job, options.host_tracer_level, start_ns, stop_ns)
    _add_environment(space.planes.add(id=101), epoch_unix_ns + start_ns, epoch_unix_ns + stop_ns)
    space.hostnames.append(hostname)
    space.warnings.append(f"{SIMULATED_MARK}: scenario {job.scenario}, {job.topology.name}, seed {job.seed}")
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
    space.warnings.append(f"{SIMULATED_MARK}: scenario {job.scenario}, {job.topology.name}, seed {job.seed}")
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
    _add_event_metadata(plane, job)
    steps = plane.lines.add(id=1, name="Steps")
    modules = plane.lines.add(id=2, name="XLA Modules")
    ops = plane.lines.add(id=3, name="XLA Ops")
    all_reduce = len(OPS) - 2
    for one in core:
        at_ps = (one.step.start_ns - start_ns) * PS_PER_NS
        if one.partial is None:
            length_ps = one.parts.marker * PS_PER_NS
            steps.events.add(metadata_id=_STEP_EVENT, offset_ps=at_ps, duration_ps=length_ps)
            module = modules.events.add(metadata_id=_MODULE_EVENT, offset_ps=at_ps, duration_ps=length_ps)
            module.stats.add(metadata_id=_STAT["_ct"], int64_value=_CONTEXT)
            module.stats.add(metadata_id=_STAT["_c"], int64_value=one.step.number)
        for op, offset_ns, duration_ns in one.slots:
            event = ops.events.add(
                metadata_id=_FIRST_OP + op,
                offset_ps=at_ps + offset_ns * PS_PER_NS,
                duration_ps=duration_ns * PS_PER_NS,
            )
            if op == all_reduce:
                event.stats.add(metadata_id=_STAT["all_reduce_unique_id"], uint64_value=one.step.number + 1)


def _add_device_stats(plane: xplane_pb2.XPlane, job: Job, worker: int, device: int) -> None:
    for name, i in _STAT.items():
        plane.stat_metadata[i].id = i
        plane.stat_metadata[i].name = name
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


def _add_event_metadata(plane: xplane_pb2.XPlane, job: Job) -> None:
    plane.event_metadata[_STEP_EVENT].id = _STEP_EVENT
    plane.event_metadata[_STEP_EVENT].name = "train"
    plane.event_metadata[_MODULE_EVENT].id = _MODULE_EVENT
    plane.event_metadata[_MODULE_EVENT].name = MODULE
    peak, bandwidth = job.topology.device_peak_flops, job.topology.device_hbm_bandwidth_bytes_per_s
    for i, (name, category) in enumerate(OPS):
        metadata = plane.event_metadata[_FIRST_OP + i]
        metadata.id = _FIRST_OP + i
        metadata.name = f"%{name} = bf16[8192,8192]{{1,0}} {HLO_CATEGORIES[category].split()[-1]}()"
        metadata.display_name = name
        flops = op_flops(job.scenario, peak) if category is Category.CONVOLUTION else 0
        moved = op_bytes(job.scenario, category, bandwidth)
        breakdown = _accessed(_READ, moved - moved // 3) + _accessed(_WRITE, moved // 3) if moved else b""
        add = metadata.stats.add
        add(metadata_id=_STAT["hlo_category"], str_value=HLO_CATEGORIES[category])
        add(metadata_id=_STAT["program_id"], uint64_value=PROGRAM_ID)
        add(metadata_id=_STAT["symbol_id"], uint64_value=i + 1)
        add(metadata_id=_STAT["flops"], int64_value=flops)
        add(metadata_id=_STAT["model_flops"], int64_value=flops)
        add(metadata_id=_STAT["bytes_accessed"], int64_value=moved)
        add(metadata_id=_STAT["raw_bytes_accessed"], int64_value=moved)
        add(metadata_id=_STAT["memory_access_breakdown"], bytes_value=breakdown)


_HOST_STATS = {"step_num": 2, "_r": 3, "_pt": 4, "_p": 5}
_HOST_EVENTS = {"train": 1, "PjitFunction(train_step)": 2, "TpuExecute": 3, "DevicePut": 4}


def _add_host_events(plane: xplane_pb2.XPlane, job: Job, level: int, start_ns: int, stop_ns: int) -> None:
    """Adds the events of the job's Python thread: step annotations from level 1, runtime calls from level 2."""
    for name, i in _HOST_STATS.items():
        plane.stat_metadata[i].id = i
        plane.stat_metadata[i].name = name
    for name, i in _HOST_EVENTS.items():
        plane.event_metadata[i].id = i
        plane.event_metadata[i].name = name
    line = plane.lines.add(id=1, name="python")
    for step in job.steps(start_ns, stop_ns):
        begin_ns, length_ns = step.start_ns - start_ns, step.period_ns - 5_000
        if begin_ns < 0 or begin_ns + length_ns > stop_ns - start_ns:
            continue

        def add(name: str, lead_ns: int, for_ns: int, *, begin_ns: int = begin_ns) -> xplane_pb2.XEvent:
            return line.events.add(
                metadata_id=_HOST_EVENTS[name],
                offset_ps=(begin_ns + lead_ns) * PS_PER_NS,
                duration_ps=for_ns * PS_PER_NS,
            )

        annotation = add("train", 0, length_ns)
        annotation.stats.add(metadata_id=_HOST_STATS["step_num"], int64_value=step.number)
        annotation.stats.add(metadata_id=_HOST_STATS["_r"], int64_value=1)
        execute = add("PjitFunction(train_step)", 2_000, 400_000)
        execute.stats.add(metadata_id=_HOST_STATS["_pt"], int64_value=_CONTEXT)
        execute.stats.add(metadata_id=_HOST_STATS["_p"], int64_value=step.number)
        if level >= 2:
            add("TpuExecute", 50_000, 200_000)
            add("DevicePut", 500_000, 150_000)


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
