"""One host's trace for a report: its figures' trace, and whatever else of it the wanted sections need."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import BinaryIO, Literal

import numpy as np
from google.protobuf.message import DecodeError
from msgspec import Struct, field
from msgspec.structs import replace

from tpumon.proto.profiler_pb2 import ProfileOptions
from tpumon.untrusted_text import one_line
from tpumon.xspace.host_totals import HostTotals, host_totals_of
from tpumon.xspace.planes.plane import Plane, Value, parsed_metadata
from tpumon.xspace.planes.space import PlaneIndex, read_space, time_ns
from tpumon.xspace.profile.hlo import read_contents
from tpumon.xspace.profile.host_input import HostInput, read_host_input
from tpumon.xspace.profile.host_ops import HostThreads, read_host_threads
from tpumon.xspace.profile.kernels import Kernel, read_kernels
from tpumon.xspace.profile.memory_use import MemoryUse, read_memory
from tpumon.xspace.profile.op_times import Op, read_ops
from tpumon.xspace.profile.program_memory import ProgramMemory, read_programs
from tpumon.xspace.steps.functions import named_program
from tpumon.xspace.wire import stored

Extra = Literal["ops", "op_steps", "contents", "host_threads", "input", "memory", "buffers", "environment"]
"""What to read beyond the trace. `op_steps`: the time of each op in each step. From the programs' HLO: `contents` of
fusions, and `buffers`."""

_MAYBE_PROGRAM = re.compile(rb"\(\d{1,20}\)")


_VERSIONS = ("jax_version", "jaxlib_version", "tpu_version", "libtpu_version", "tensorflow_version")
_OPTIONS = (
    "host_tracer_level",
    "device_tracer_level",
    "python_tracer_level",
    "enable_hlo_proto",
    "include_dataset_ops",
    "duration_ms",
)
_DEVICES = {0: "all", 1: "CPU", 2: "GPU", 3: "TPU", 4: "pluggable"}
_MOST_OPTIONS = 50


class CaptureEnvironment(Struct, frozen=True, kw_only=True, eq=False):
    """Time, software and profiler options of a capture, as its trace says.

    Attributes:
        start_unix_s: when the window began; None where the trace does not say.
        duration_s: of the window, as the profiler says.
        versions: of software, by name.
        options: of the profiler, by name, as text.
    """

    start_unix_s: float | None = None
    duration_s: float | None = None
    versions: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()


class Profile(Struct, frozen=True, kw_only=True, eq=False):
    """One host's trace.

    Attributes:
        trace: what its figures are made of.
        ops: the ops of all cores together, the longest first.
        kernels: of its GPUs, the longest first.
        programs: names by program, without the number.
        environment: where and how it was taken.
        host_input: what the host did for input.
        host_threads: what they did.
        memory: in use over time, by memory.
        buffers: what the programs need.
    """

    trace: HostTotals
    ops: tuple[Op, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    programs: Mapping[int, str] = field(default_factory=dict)
    environment: CaptureEnvironment = field(default_factory=CaptureEnvironment)
    host_input: HostInput = field(default_factory=HostInput)
    host_threads: HostThreads = field(default_factory=HostThreads)
    memory: tuple[MemoryUse, ...] = ()
    buffers: tuple[ProgramMemory, ...] = ()


def read_profile(xspace: bytes | BinaryIO, wanted: Collection[Extra]) -> Profile:
    """Reads a serialized XSpace of one host.

    Args:
        xspace: its bytes, or a regular file of them.
        wanted: what to read beyond the trace.

    Raises:
        SourceError: `malformed`, the bytes are not a trace; `empty-trace`, it holds no event.
    """
    space = read_space(stored(xspace))
    trace = host_totals_of(space, by_op="op_steps" in wanted)
    ops = _ops(space, trace) if "ops" in wanted else ()
    hlo = space.metadata if {"contents", "buffers"} & set(wanted) else None
    if "contents" in wanted:
        ops = _with_contents(ops, hlo)
    return Profile(
        trace=trace,
        ops=ops,
        kernels=read_kernels(space.gpus) if "ops" in wanted else (),
        programs=program_names(space, trace, {op.program_id for op in ops}),
        environment=_environment(space) if "environment" in wanted else CaptureEnvironment(),
        host_input=read_host_input(space.host) if "input" in wanted else HostInput(),
        host_threads=read_host_threads(space.host) if "host_threads" in wanted else HostThreads(),
        memory=read_memory(space.host) if "memory" in wanted else (),
        buffers=read_programs(hlo) if "buffers" in wanted else (),
    )


def _ops(space: PlaneIndex, trace: HostTotals) -> tuple[Op, ...]:
    if not trace.cores:
        return ()
    table = trace.table
    order = np.lexsort((table.key, -table.self_ps))
    return read_ops(space.tensor_cores, [core.table for core in trace.cores], table, order)


def _with_contents(ops: tuple[Op, ...], hlo: Plane | None) -> tuple[Op, ...]:
    """Ops with what their program's HLO says they are made of; what their own metadata says is kept."""
    contents = read_contents(hlo, {(op.program_id, op.name) for op in ops if not op.contents})
    return tuple(
        replace(op, contents=found) if (found := contents.get((op.program_id, op.name))) and not op.contents else op
        for op in ops
    )


def program_names(space: PlaneIndex, trace: HostTotals, wanted: Collection[int]) -> dict[int, str]:
    """Names of programs by number; a program that did not run in the window is looked up in all metadata."""
    names = {number: trace.program_names[number] for number in wanted if number in trace.program_names}
    for plane in space.tensor_cores:
        if len(names) == len(wanted):
            break
        for raw in plane.metadata_by_id.values():
            # Ops have a number in brackets at their end, too, but rarely.
            if _MAYBE_PROGRAM.search(raw) and (program := named_program(parsed_metadata(raw).name)):
                number, name = program
                if number in wanted:
                    names.setdefault(number, name)
    return names


def _environment(space: PlaneIndex) -> CaptureEnvironment:
    """Reads the planes that say it."""
    stats = space.environment
    start_ns, stop_ns = (time_ns(stats, f"profile_{end}_time") for end in ("start", "stop"))
    named = {**(space.metadata.stats if space.metadata else {}), **stats}
    return CaptureEnvironment(
        start_unix_s=None if start_ns is None else start_ns / 1e9,
        duration_s=(stop_ns - start_ns) / 1e9 if start_ns and stop_ns and stop_ns >= start_ns else None,
        versions=tuple((name, one_line(str(named[name]))) for name in _VERSIONS if isinstance(named.get(name), str)),
        options=_options(stats.get("profile_options")),
    )


def _options(raw: Value | None) -> tuple[tuple[str, str], ...]:
    if not isinstance(raw, bytes):
        return ()
    try:
        message = ProfileOptions.FromString(raw)
    except DecodeError:
        return ()
    shown = [(name, str(getattr(message, name)).lower()) for name in _OPTIONS]
    shown.append(("device_type", _DEVICES.get(message.device_type, str(message.device_type))))
    for name, value in list(message.advanced_configuration.items())[:_MOST_OPTIONS]:
        kind = value.WhichOneof("value")
        if kind is not None:
            shown.append((one_line(name), one_line(str(getattr(value, kind)))))
    return tuple(shown)
