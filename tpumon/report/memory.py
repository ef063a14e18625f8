"""The section memory (XProf: memory profile and viewer): what was in use when, and what programs need."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from tpumon.report.blocks import Block, Cell, Column, Graph, Lines, Series, Table
from tpumon.report.capture import Capture, Choice
from tpumon.report.words import count_cell, percent_cell, size_cell, size_word, time_cell
from tpumon.xspace.profile.hlo import ProgramMemory
from tpumon.xspace.profile.memory_use import MemoryUse

_MOST_MEMORIES = 16  # with a graph and a table of their own
_MOST_BUFFERS = 5  # of a program


class Use(MemoryUse, frozen=True, kw_only=True):
    """One memory of one host."""

    worker: str


class Memory(Struct, frozen=True, kw_only=True):
    """Memory in use, and what programs need.

    Attributes:
        memories: by host and memory; none where the trace has no event of an allocator.
        programs: as XLA planned their buffers, of the first host that says so; none where the trace has no HLO.
    """

    memories: tuple[Use, ...]
    programs: tuple[ProgramMemory, ...]


def build(capture: Capture, choice: Choice) -> Memory:
    """The memories of all hosts."""
    programs = next((host.profile.buffers for host in capture.hosts if host.profile.buffers), ())
    if choice.program is not None:
        programs = tuple(one for one in programs if choice.program in f"{one.name}({one.program_id})")
    return Memory(
        memories=tuple(Use(worker=host.name, **asdict(use)) for host in capture.hosts for use in host.profile.memory),
        programs=programs[: choice.top],
    )


def blocks(memory: Memory) -> tuple[Block, ...]:
    """The section as tables and graphs."""
    made: list[Block] = []
    if memory.memories:
        made.append(_summary(memory.memories))
        made += [_graph(each) for each in memory.memories[:_MOST_MEMORIES] if len(each.times_s) > 1]
        fullest = max(memory.memories, key=lambda each: each.peak_bytes)
        made.append(_live(fullest))
    else:
        made.append(Lines(title="In use", lines=("the trace has no event of a memory allocator",)))
    if memory.programs:
        made += [_programs(memory.programs), _buffers(memory.programs)]
    else:
        made.append(Lines(title="Programs", lines=("the trace has no HLO; a profile of level 0 does",)))
    return tuple(made)


def _summary(memories: Sequence[Use]) -> Table:
    return Table(
        title="In use at the peak of the window",
        columns=(
            Column("worker", text=True, wide=True, rank=1),
            Column("memory", text=True, wide=True),
            Column("peak"),
            Column("of"),
            Column("full"),
            Column("stack"),
            Column("heap"),
            Column("fragmented", rank=2),
            Column("at", rank=3),
            Column("heap ever", rank=4),
        ),
        rows=tuple(
            (
                Cell(each.worker),
                Cell(each.memory),
                size_cell(each.peak_bytes),
                size_cell(each.capacity_bytes),
                percent_cell(each.peak_bytes / each.capacity_bytes if each.capacity_bytes else None),
                size_cell(each.peak_stack_bytes),
                size_cell(each.peak_heap_bytes),
                percent_cell(each.peak_fragmentation),
                time_cell(each.peak_at_s),
                size_cell(each.lifetime_peak_bytes),
            )
            for each in memories
        ),
    )


def _graph(each: Use) -> Graph:
    return Graph(
        title=f"Memory {each.memory} of {each.worker}",
        unit="bytes",
        places="allocation",
        series=(Series("stack", each.stack_bytes), Series("heap", each.heap_bytes)),
    )


def _live(each: Use) -> Table:
    return Table(
        title=f"Live at the peak of memory {each.memory} of {each.worker}",
        columns=(Column("what", text=True, wide=True), Column("size"), Column("times"), Column("together")),
        rows=tuple(
            (Cell(row.what), size_cell(row.size_bytes), count_cell(row.count), size_cell(row.size_bytes * row.count))
            for row in each.live
        ),
    )


def _programs(programs: Sequence[ProgramMemory]) -> Table:
    return Table(
        title="Programs: HBM that XLA planned",
        columns=(
            Column("program", text=True, wide=True),
            *map(Column, ("arguments", "outputs", "temporary")),
            Column("constants", rank=1),
            Column("elsewhere", text=True, wide=True),
        ),
        rows=tuple(
            (
                Cell(f"{one.name}({one.program_id})"),
                *map(size_cell, (one.arguments_bytes, one.outputs_bytes, one.temporary_bytes, one.constants_bytes)),
                Cell(", ".join(f"{memory} {size_word(size)}" for memory, size in one.elsewhere.items()) or "-"),
            )
            for one in programs
        ),
        note="an output that is an argument, too, counts as an argument; temporary buffers share their space",
    )


def _buffers(programs: Sequence[ProgramMemory]) -> Table:
    return Table(
        title="The largest outputs and temporary buffers",
        columns=(
            Column("program", text=True, wide=True),
            Column("made by", text=True, wide=True),
            Column("path", text=True, wide=True, tail=True, rank=1),
            Column("size"),
        ),
        rows=tuple(
            (Cell(one.name), Cell(buffer.name), Cell(buffer.path or "-"), size_cell(buffer.size_bytes))
            for one in programs
            for buffer in one.largest[:_MOST_BUFFERS]
        ),
    )
