"""The section memory (XProf: memory profile and viewer): memory in use over time, and the buffers of programs."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict

from tpumon.report.blocks import Block, Lines, ReportColumn, StackedGraph, StackedPart, Table
from tpumon.report.formats import count_text, percent_text, size_text, time_text
from tpumon.report.profiles import Capture, Choice
from tpumon.xspace.profile.memory_use import MemoryUse
from tpumon.xspace.profile.program_memory import MemorySchedule, ProgramMemory

_MOST_MEMORIES = 16  # with a graph and a table of their own
_MOST_BUFFERS = 5  # of a program
_MOST_SCHEDULES = 4  # with a graph


class HostMemory(MemoryUse, frozen=True, kw_only=True):
    """One memory of one host."""

    worker: str


class Memory(Struct, frozen=True, kw_only=True):
    """Memory in use, and the needs of programs.

    Attributes:
        memories: by host and memory; none where the trace has no event of an allocator.
        programs: as XLA planned their buffers, of the first host that says so; none where the trace has no HLO.
    """

    memories: tuple[HostMemory, ...]
    programs: tuple[ProgramMemory, ...]


def build(capture: Capture, choice: Choice) -> Memory:
    programs = next((host.profile.buffers for host in capture.hosts if host.profile.buffers), ())
    if choice.program is not None:
        programs = tuple(program for program in programs if choice.program in _program(program))
    return Memory(
        memories=tuple(
            HostMemory(worker=host.name, **asdict(use)) for host in capture.hosts for use in host.profile.memory
        ),
        programs=programs[: choice.top],
    )


def _program(program: ProgramMemory) -> str:
    return f"{program.name}({program.program_id})"


def blocks(memory: Memory) -> list[Block]:
    """The section as tables and graphs."""
    made: list[Block] = []
    if memory.memories:
        made.append(Table(title="In use at the peak of the window", columns=_MEMORY_COLUMNS, items=memory.memories))
        made += [_graph(each) for each in memory.memories[:_MOST_MEMORIES] if len(each.times_s) > 1]
        fullest = max(memory.memories, key=lambda each: each.peak_bytes)
        title = f"Live at the peak of memory {fullest.memory} of {fullest.worker}"
        made.append(Table(title=title, columns=_LIVE_COLUMNS, items=fullest.live))
    else:
        made.append(Lines(title="In use", lines=("the trace has no event of a memory allocator",)))
    if not memory.programs:
        return [*made, Lines(title="Programs", lines=("the trace has no HLO; that of a real job by level 0 does",))]
    note = "an output that is an argument, too, counts as an argument; temporary buffers share their space"
    made.append(
        Table(
            title="Programs: device memory that XLA planned", columns=_PROGRAM_COLUMNS, items=memory.programs, note=note
        )
    )
    scheduled = [(program, program.schedule) for program in memory.programs if program.schedule is not None]
    made += [_schedule_graph(*each) for each in scheduled[:_MOST_SCHEDULES] if each[1].changes]
    at_peak = [(program, buffer) for program, schedule in scheduled for buffer in schedule.at_peak[:_MOST_BUFFERS]]
    others = [program for program in memory.programs if program.schedule is None]
    largest = [(program, buffer) for program in others for buffer in program.largest[:_MOST_BUFFERS]]
    for title, rows in (
        ("The largest buffers at the peak of a program", at_peak),
        ("The largest outputs and temporary buffers, where the trace has no schedule", largest),
    ):
        if rows:
            made.append(Table(title=title, columns=_BUFFER_COLUMNS, items=rows))
    return made


def _schedule_graph(program: ProgramMemory, schedule: MemorySchedule) -> StackedGraph:
    lasting = [schedule.lasting_bytes] * len(schedule.temporary_bytes)
    return StackedGraph(
        title=f"Device memory over the schedule of {_program(program)}",
        number=size_text,
        places="change",
        parts=(StackedPart("lasting", lasting), StackedPart("temporary", schedule.temporary_bytes)),
    )


def _graph(each: HostMemory) -> StackedGraph:
    return StackedGraph(
        title=f"Memory {each.memory} of {each.worker}",
        number=size_text,
        places="allocation",
        parts=(StackedPart("stack", each.stack_bytes), StackedPart("heap", each.heap_bytes)),
    )


def _full_ratio(memory: MemoryUse) -> float | None:
    return memory.peak_bytes / memory.capacity_bytes if memory.capacity_bytes else None


def _elsewhere(program: ProgramMemory) -> str:
    return ", ".join(f"{memory} {size_text(size)}" for memory, size in program.elsewhere.items()) or "-"


_MEMORY_COLUMNS = (
    ReportColumn("worker", lambda each: each.worker, wide=True, rank=1),
    ReportColumn("memory", lambda each: each.memory, wide=True),
    ReportColumn("peak", lambda each: each.peak_bytes, size_text),
    ReportColumn("of", lambda each: each.capacity_bytes, size_text),
    ReportColumn("full", _full_ratio, percent_text),
    ReportColumn("stack", lambda each: each.peak_stack_bytes, size_text),
    ReportColumn("heap", lambda each: each.peak_heap_bytes, size_text),
    ReportColumn("fragmented", lambda each: each.peak_fragmentation, percent_text, rank=2),
    ReportColumn("at", lambda each: each.peak_at_s, time_text, rank=3),
    ReportColumn("heap ever", lambda each: each.lifetime_peak_bytes, size_text, rank=4),
)
_LIVE_COLUMNS = (
    ReportColumn("what", lambda live: live.what, wide=True),
    ReportColumn("size", lambda live: live.size_bytes, size_text),
    ReportColumn("times", lambda live: live.count, count_text),
    ReportColumn("together", lambda live: live.size_bytes * live.count, size_text),
)
_PROGRAM_COLUMNS = (
    ReportColumn("program", _program, wide=True),
    ReportColumn("arguments", lambda program: program.arguments_bytes, size_text),
    ReportColumn("outputs", lambda program: program.outputs_bytes, size_text),
    ReportColumn("temporary", lambda program: program.temporary_bytes, size_text),
    ReportColumn("constants", lambda program: program.constants_bytes, size_text, rank=1),
    ReportColumn("elsewhere", _elsewhere, wide=True),
    ReportColumn("peak", lambda program: program.schedule and program.schedule.peak_bytes, size_text),
    ReportColumn(
        "reached by", lambda program: (program.schedule and program.schedule.peak_at) or "-", wide=True, rank=2
    ),
)
_BUFFER_COLUMNS = (
    ReportColumn("program", lambda row: row[0].name, wide=True),
    ReportColumn("made by", lambda row: row[1].name, wide=True),
    ReportColumn("kind", lambda row: row[1].kind),
    ReportColumn("path", lambda row: row[1].path or "-", wide=True, tail=True, rank=1),
    ReportColumn("size", lambda row: row[1].size_bytes, size_text),
)
