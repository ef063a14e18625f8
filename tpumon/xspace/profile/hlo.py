"""Compiled programs, from the HLO that a trace holds: their buffers, and what their fusions are made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from itertools import chain, islice

from google.protobuf.message import DecodeError
from msgspec import Struct

from tpumon.proto.hlo_pb2 import BufferAllocation, HloInstruction, HloModule, HloProgram
from tpumon.untrusted_text import one_line
from tpumon.xspace.ops.op_kinds import NAME_LENGTH
from tpumon.xspace.planes.plane import Plane
from tpumon.xspace.profile.op_times import MOST_CONTENTS
from tpumon.xspace.steps.functions import named_program

_STAT = "Hlo Proto"
_MOST_PROGRAMS = 500
_MOST_BUFFERS = 20  # of a program
_MOST_BYTES = 1 << 28  # of one program
_LARGEST = 1 << 60
_HBM = 0
_MEMORIES = {0: "HBM", 1: "on the chip", 5: "host"}


class Buffer(Struct, frozen=True, kw_only=True, eq=False):
    """One buffer of a program.

    Attributes:
        name: of the instruction that makes it.
        path: the framework's path of that; "" where the trace does not say.
        size_bytes: of it.
    """

    name: str
    path: str
    size_bytes: int


class ProgramMemory(Struct, frozen=True, kw_only=True, eq=False):
    """Memory that a program needs in HBM.

    Attributes:
        program_id: its number.
        name: of its module.
        arguments_bytes, outputs_bytes, constants_bytes, temporary_bytes: by what the buffers are for; an output that is
            an argument, too, counts as an argument.
        elsewhere: sizes by memory, for memories other than HBM.
        largest: the largest buffers among the temporary ones and outputs.
    """

    program_id: int
    name: str
    arguments_bytes: int
    outputs_bytes: int
    constants_bytes: int
    temporary_bytes: int
    elsewhere: Mapping[str, int]
    largest: tuple[Buffer, ...]


def read_programs(plane: Plane | None) -> tuple[ProgramMemory, ...]:
    """The programs of a host with their buffers, the largest first.

    Args:
        plane: /host:metadata; None where there is none.

    Raises:
        SourceError: `malformed`.
    """
    made = [_memory(number, name, program) for number, name, program in _programs(plane)]
    return tuple(sorted(made, key=lambda one: (-one.temporary_bytes - one.arguments_bytes, one.name)))


def read_contents(plane: Plane | None, wanted: Collection[tuple[int, str]]) -> dict[tuple[int, str], tuple[str, ...]]:
    """Reads the contents of fusions: names of instructions, by program and name of the fusion.

    Args:
        plane: /host:metadata; None where there is none.
        wanted: programs and names of fusions.

    Raises:
        SourceError: `malformed`.
    """
    contents: dict[tuple[int, str], tuple[str, ...]] = {}
    for number, _, program in _programs(plane) if wanted else ():
        held = _contents_of(program.module)
        for computation in program.module.computations:
            for instruction in computation.instructions:
                if instruction.opcode == "fusion" and (number, instruction.name) in wanted:
                    contents[number, instruction.name] = held(instruction)
    return contents


def _programs(plane: Plane | None) -> Iterator[tuple[int, str, HloProgram]]:
    """Number, name and HLO of the programs; what does not parse is left out."""
    if plane is None:
        return
    wanted = plane.numbers_of((_STAT,))
    for number in list(plane.metadata_by_id)[:_MOST_PROGRAMS]:
        metadata = plane.event_metadata(number)
        named = named_program(metadata.name)
        raw = next((stat.bytes_value for stat in metadata.stats if stat.metadata_id in wanted), b"")
        if named is None or not raw or len(raw) > _MOST_BYTES:
            continue
        try:
            program = HloProgram.FromString(raw)
        except DecodeError:
            continue
        yield *named, program


def _contents_of(module: HloModule) -> Callable[[HloInstruction], tuple[str, ...]]:
    """Names of the instructions in the computations that an instruction calls, parameters left out, the first few.

    Any number of instructions may call the same computation any number of times: each is read once.
    """
    computations = {computation.id: computation for computation in module.computations}

    @cache
    def instructions(number: int) -> tuple[str, ...]:
        every = computations[number].instructions if number in computations else ()
        names = (one.name for one in every if one.opcode != "parameter")
        return tuple(one_line(name, limit=NAME_LENGTH) for name in islice(names, MOST_CONTENTS))

    def contents(instruction: HloInstruction) -> tuple[str, ...]:
        called = map(instructions, instruction.called_computation_ids)
        return tuple(islice(chain.from_iterable(called), MOST_CONTENTS))

    return contents


def _memory(number: int, name: str, program: HloProgram) -> ProgramMemory:
    sums = dict.fromkeys(("arguments", "outputs", "constants", "temporary"), 0)
    elsewhere: dict[str, int] = {}
    listed: set[int] = set()
    for allocation in program.buffers.allocations:
        size = allocation.size if 0 <= allocation.size < _LARGEST else 0
        if allocation.color != _HBM:
            memory = _MEMORIES.get(allocation.color, f"memory {allocation.color}")
            elsewhere[memory] = elsewhere.get(memory, 0) + size
        elif not allocation.is_thread_local:
            kind = _kind(allocation)
            sums[kind] += size
            if kind in {"outputs", "temporary"}:
                listed.update(assigned.logical_buffer_id for assigned in allocation.assigned)
    return ProgramMemory(
        program_id=number,
        name=name,
        arguments_bytes=sums["arguments"],
        outputs_bytes=sums["outputs"],
        constants_bytes=sums["constants"],
        temporary_bytes=sums["temporary"],
        elsewhere={memory: size for memory, size in elsewhere.items() if size},
        largest=_largest(program, listed),
    )


def _kind(allocation: BufferAllocation) -> str:
    if allocation.is_parameter:
        return "arguments"
    if allocation.is_constant:
        return "constants"
    return "outputs" if allocation.maybe_live_out else "temporary"


def _largest(program: HloProgram, listed: set[int]) -> tuple[Buffer, ...]:
    buffers = [
        buffer for buffer in program.buffers.logical_buffers if buffer.id in listed and 0 < buffer.size < _LARGEST
    ]
    buffers = sorted(buffers, key=lambda buffer: (-buffer.size, buffer.id))[:_MOST_BUFFERS]
    wanted = {buffer.defined_at.instruction_id for buffer in buffers}
    made_by = {
        instruction.id: instruction
        for computation in program.module.computations
        for instruction in computation.instructions
        if instruction.id in wanted
    }
    return tuple(
        Buffer(
            name=one_line(maker.name if maker else buffer.defined_at.instruction_name, limit=NAME_LENGTH),
            path=one_line(maker.origin.op_name) if maker else "",
            size_bytes=buffer.size,
        )
        for buffer in buffers
        for maker in (made_by.get(buffer.defined_at.instruction_id),)
    )
