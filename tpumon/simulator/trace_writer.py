"""A window of the simulated job as XSpace bytes, as a TPU's profiler writes them; XProf reads them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tpumon.model import SIMULATED_MARK
from tpumon.proto import xplane_pb2
from tpumon.simulator.expected_figures import StepInWindow, measure, window_events
from tpumon.simulator.plane_writer import PlaneWriter
from tpumon.simulator.scenario import HLO_CATEGORIES, OPS, SimulatedJob, StepPart, StepProgram
from tpumon.simulator.trace_host import CONTEXT, add_host_events

_READ, _WRITE, _HBM = 1, 2, 1  # operation types and memory space of memory_access_breakdown
_WITHOUT_SPARSE_CORES = frozenset({"v2", "v3", "v5e"})


class TraceOptions(Struct, frozen=True, kw_only=True):
    """Tracer levels as in ProfileOptions."""

    host_tracer_level: int = 0
    device_tracer_level: int = 1


class SimulatedTrace(Struct, frozen=True, kw_only=True):
    """An XSpace as bytes; `empty` if no line of any plane has an event."""

    xspace: bytes
    empty: bool


def build_trace(
    job: SimulatedJob,
    worker: int,
    *,
    start_ns: int,
    stop_ns: int,
    epoch_unix_ns: int,
    options: TraceOptions,
    full_ns: int | None = None,
) -> SimulatedTrace:
    """Returns the trace that a profiler records of one worker in a window.

    Args:
        job: the simulated job.
        worker: index of the worker.
        start_ns: start of the window, in nanoseconds since the job's start.
        stop_ns: end of the window.
        epoch_unix_ns: wall clock time of the job's start.
        options: tracer levels.
        full_ns: when the buffers of the devices are full, so that later events are dropped; None: they are not.
    """
    space = xplane_pb2.XSpace()
    events: Sequence[Sequence[StepInWindow]] = ()
    if options.device_tracer_level:
        events = window_events(job, worker, start_ns, stop_ns if full_ns is None else full_ns)
        for device, core in enumerate(events):
            _add_device(space, job, worker, device, core, start_ns)
            _add_sparse_core(space, job, device, core, start_ns)
    host = PlaneWriter(space, 100, "/host:CPU")
    if options.device_tracer_level:
        host.add_stats(matrix_unit_utilization_percent=100 * measure(job, events).mxu_ratio)
    if options.host_tracer_level:
        add_host_events(host, job, worker, level=options.host_tracer_level, start_ns=start_ns, stop_ns=stop_ns)
    PlaneWriter(space, 101, "Task Environment").add_stats(
        profile_start_time=epoch_unix_ns + start_ns, profile_stop_time=epoch_unix_ns + stop_ns
    )
    space.hostnames.append(job.topology.worker_name(worker))
    space.warnings.append(f"{SIMULATED_MARK}: scenario {job.title}, {job.topology.name}, seed {job.seed}")
    if full_ns is not None:
        space.warnings.append("The trace buffers are full: device events were dropped.")
    empty = not any(line.events for plane in space.planes for line in plane.lines)
    return SimulatedTrace(xspace=space.SerializeToString(), empty=empty)


def _add_device(
    space: xplane_pb2.XSpace, job: SimulatedJob, worker: int, device: int, core: Sequence[StepInWindow], start_ns: int
) -> None:
    """Adds the plane of a device: its peaks, steps, programs, ops and waits."""
    plane = PlaneWriter(space, 2 + device, f"/device:TPU:{device}")
    plane.add_stats(
        core_details=_core_details(job, worker, device),
        device_type_string=job.topology.generation.device_type,
        peak_teraflops_per_second=job.topology.device_peak_flops / 1e12,
        peak_hbm_bw_gigabytes_per_second=job.topology.device_hbm_bandwidth_bytes_per_s / 1e9,
        has_megacore=int(job.topology.generation.megacore),
        has_merged_vmem=1,
    )
    steps = () if all(core_step.step.work.program.jax for core_step in core) else ("Steps",)
    for name in (*steps, "XLA Modules", "XLA Ops") if core else ():
        plane.add_line(name)
    for core_step in core:
        program, parts, number = core_step.step.work.program, core_step.parts, core_step.step.number
        begin_ns = core_step.step.start_ns - start_ns
        if core_step.partial is None:
            if not program.jax:
                plane.add_event("Steps", "train", begin_ns, parts.marker)
            plane.add_event("XLA Modules", program.module, begin_ns, parts.marker, _ct=CONTEXT, _c=number)
            wait_ns = begin_ns + parts.marker - parts.outfeed - parts.all_reduce
            for name, length_ns in (("barrier-cores", parts.barrier), ("debug_print", parts.debug_print)):
                if length_ns:
                    wait_ns -= length_ns
                    plane.add_event("XLA TraceMe", name, wait_ns, length_ns)
        for op, offset_ns, duration_ns in core_step.slots:
            if not plane.knows((program, op)):
                _describe_op(plane, job, program, op)
            stats = {"all_reduce_unique_id": number + 1} if OPS[op].part is StepPart.ALL_REDUCE else {}
            plane.add_event("XLA Ops", (program, op), begin_ns + offset_ns, duration_ns, **stats)


def _describe_op(plane: PlaneWriter, job: SimulatedJob, program: StepProgram, op: int) -> None:
    flops = program.flops(op, job.topology.device_peak_flops)
    moved = program.bytes(op, job.topology.device_hbm_bandwidth_bytes_per_s)
    breakdown = _accessed(_READ, moved - moved // 3) + _accessed(_WRITE, moved // 3) if moved else b""
    tf_op = program.tf_op(op)
    provenance = {"tf_op": tf_op, "source": f"train.py:{100 + op}"} if tf_op else {}
    plane.describe(
        (program, op),
        f"%{OPS[op].name} = {program.shape} {OPS[op].code}()",
        OPS[op].name,
        hlo_category=HLO_CATEGORIES[OPS[op].part],
        program_id=program.number,
        symbol_id=op + 1,
        flops=flops,
        model_flops=flops,
        bytes_accessed=moved,
        raw_bytes_accessed=moved,
        memory_access_breakdown=breakdown,
        **provenance,
    )


def _add_sparse_core(
    space: xplane_pb2.XSpace, job: SimulatedJob, device: int, core: Sequence[StepInWindow], start_ns: int
) -> None:
    """Adds the SparseCore of a device that the TensorCore waits for, where the generation has SparseCores."""
    waited = [core_step for core_step in core if core_step.partial is None and core_step.parts.sparse_wait]
    if not waited or job.topology.generation.name in _WITHOUT_SPARSE_CORES:
        return
    plane = PlaneWriter(space, 200 + device, f"/device:TPU:{device} SparseCore 0")
    for core_step in waited:
        length_ns = core_step.parts.marker - core_step.parts.outfeed - core_step.parts.all_reduce
        plane.add_event("Sparse Core Modules", "jit_embedding_lookup(1)", core_step.step.start_ns - start_ns, length_ns)
        plane.add_event("Sparse Core Ops", "embedding_lookup", core_step.step.start_ns - start_ns, length_ns)


def _core_details(job: SimulatedJob, worker: int, device: int) -> bytes:
    topology = job.topology
    chip, core = divmod(device, topology.generation.chip.devices)
    numbers = (
        device,
        core,
        chip,
        worker * topology.chips_per_host + chip,
        worker * topology.devices_per_host + device,
    )
    name = _bytes_field(1, topology.worker_name(worker).encode())
    return name + b"".join(_int_field(2 + i, number) for i, number in enumerate(numbers))


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
