"""One host's trace for a report: its figures' trace, and whatever else of it the wanted sections need."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import BinaryIO, Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tpumon.xspace.planes.plane import Plane, parsed_metadata
from tpumon.xspace.planes.space import Space, read_space
from tpumon.xspace.profile.hlo import ProgramMemory, read_contents, read_programs
from tpumon.xspace.profile.host_environment import CaptureEnvironment, read_environment
from tpumon.xspace.profile.host_input import HostInput, read_host_input
from tpumon.xspace.profile.memory_use import MemoryUse, read_memory
from tpumon.xspace.profile.op_times import Op, read_ops
from tpumon.xspace.steps.functions import named_program
from tpumon.xspace.trace import Trace, trace_of
from tpumon.xspace.wire import stored

Extra = Literal["ops", "contents", "input", "memory", "buffers", "environment"]
"""What to read beyond the trace. From the programs' HLO: `contents` of fusions, and `buffers`."""

_MAYBE_PROGRAM = re.compile(rb"\(\d{1,20}\)")


class Peaks(Struct, frozen=True, kw_only=True, eq=False):
    """Peak rates of one core in bytes per second, by memory; None where the trace does not say."""

    cmem_read: float | None = None
    cmem_write: float | None = None
    vmem_read: float | None = None
    vmem_write: float | None = None


class Profile(Struct, frozen=True, kw_only=True, eq=False):
    """One host's trace.

    Attributes:
        trace: what its figures are made of.
        ops: the ops of all cores together, the longest first.
        programs: names by program, without the number.
        peaks: of the memories on the chip.
        environment: where and how it was taken.
        host_input: what the host did for input.
        memory: in use over time, by memory.
        buffers: what the programs need.
    """

    trace: Trace
    ops: tuple[Op, ...] = ()
    programs: Mapping[int, str] = field(default_factory=dict)
    peaks: Peaks = field(default_factory=Peaks)
    environment: CaptureEnvironment = field(default_factory=CaptureEnvironment)
    host_input: HostInput = field(default_factory=HostInput)
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
    trace = trace_of(space)
    ops = _ops(space, trace) if "ops" in wanted else ()
    hlo = space.metadata if {"contents", "buffers"} & set(wanted) else None
    if "contents" in wanted:
        ops = _with_contents(ops, hlo)
    return Profile(
        trace=trace,
        ops=ops,
        programs=program_names(space, trace, {op.program_id for op in ops}),
        peaks=_peaks(space),
        environment=read_environment(space) if "environment" in wanted else CaptureEnvironment(),
        host_input=read_host_input(space.host) if "input" in wanted else HostInput(),
        memory=read_memory(space.host) if "memory" in wanted else (),
        buffers=read_programs(hlo) if "buffers" in wanted else (),
    )


def _ops(space: Space, trace: Trace) -> tuple[Op, ...]:
    if not trace.cores:
        return ()
    table = trace.table
    order = np.lexsort((table.key, -table.self_ps))
    return read_ops(space.tensor_cores, [core.table for core in trace.cores], table, order)


def _with_contents(ops: tuple[Op, ...], hlo: Plane | None) -> tuple[Op, ...]:
    """Ops with what their program's HLO says they are made of; what their own metadata says is kept."""
    contents = read_contents(hlo, {(op.program_id, op.name) for op in ops if not op.contents})
    return tuple(
        replace(op, contents=held) if (held := contents.get((op.program_id, op.name))) and not op.contents else op
        for op in ops
    )


def program_names(space: Space, trace: Trace, wanted: Collection[int]) -> dict[int, str]:
    """Names of programs by their numbers; those that did not run in the window are looked for in all metadata."""
    names = {number: trace.program_names[number] for number in wanted if number in trace.program_names}
    for plane in space.tensor_cores:
        if len(names) == len(wanted):
            break
        for raw in plane.metadata_by_id.values():
            # Ops have a number in brackets at their end, too, but rarely.
            if _MAYBE_PROGRAM.search(raw) and (found := named_program(parsed_metadata(raw).name)):
                number, name = found
                if number in wanted:
                    names.setdefault(number, name)
    return names


def _peaks(space: Space) -> Peaks:
    stats = space.tpu_planes[0].stats if space.tpu_planes else {}

    def rate(name: str) -> float | None:
        value = stats.get(f"peak_{name}_bw_gigabytes_per_second")
        return float(value) * 1e9 if isinstance(value, (int, float)) and value > 0 else None

    return Peaks(
        cmem_read=rate("cmem_rd"), cmem_write=rate("cmem_wr"), vmem_read=rate("vmem_rd"), vmem_write=rate("vmem_wr")
    )
