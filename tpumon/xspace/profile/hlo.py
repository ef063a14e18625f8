"""Compiled programs, from the HLO that a trace holds, and what their fusions are made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import chain, islice

from google.protobuf.message import DecodeError

from tpumon.proto.hlo_pb2 import HloInstruction, HloModule, HloProgram
from tpumon.untrusted_text import one_line
from tpumon.xspace.ops.op_kinds import NAME_LENGTH
from tpumon.xspace.planes.plane import Plane
from tpumon.xspace.profile.op_times import MOST_CONTENTS
from tpumon.xspace.steps.functions import named_program

_STAT = "Hlo Proto"
_MOST_PROGRAMS = 500
_MOST_BYTES = 1 << 28  # of one program


def read_contents(plane: Plane | None, wanted: Collection[tuple[int, str]]) -> dict[tuple[int, str], tuple[str, ...]]:
    """Reads the contents of fusions: names of instructions, by program and name of the fusion.

    Args:
        plane: /host:metadata; None where there is none.
        wanted: programs and names of fusions.

    Raises:
        SourceError: `malformed`.
    """
    contents: dict[tuple[int, str], tuple[str, ...]] = {}
    for number, _, program in programs_of(plane) if wanted else ():
        contents_of = _contents_of(program.module)
        for computation in program.module.computations:
            for instruction in computation.instructions:
                if instruction.opcode == "fusion" and (number, instruction.name) in wanted:
                    contents[number, instruction.name] = contents_of(instruction)
    return contents


def programs_of(plane: Plane | None) -> Iterator[tuple[int, str, HloProgram]]:
    """Number, name and HLO of the programs; what does not parse is left out.

    Args:
        plane: /host:metadata; None where there is none.

    Raises:
        SourceError: `malformed`.
    """
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
