"""Memory of compiled programs: their buffers as XLA planned them, and what is in use over the program's schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from msgspec import Struct

from tpumon.model.documents import LARGEST
from tpumon.proto.hlo_pb2 import BufferAllocation, HeapEvent, HloProgram, LogicalBuffer
from tpumon.untrusted_text import one_line
from tpumon.xspace.ops.op_kinds import NAME_LENGTH
from tpumon.xspace.planes.plane import Plane
from tpumon.xspace.profile.hlo import programs_of

BufferKind = Literal["argument", "output", "constant", "temporary"]

_MOST_BUFFERS = 20  # of a program
_MOST_POINTS = 1000  # of the graph over the schedule
_HBM = 0
_NONE = LogicalBuffer()
_MEMORIES = {0: "HBM", 1: "on the chip", 5: "host"}


class Buffer(Struct, frozen=True, kw_only=True, eq=False):
    """One buffer of a program.

    Attributes:
        name: of the instruction that makes it.
        path: the framework's path of that; "" where the trace does not say.
        kind: its use.
        size_bytes: of it.
    """

    name: str
    path: str
    kind: BufferKind
    size_bytes: int


class MemorySchedule(Struct, frozen=True, kw_only=True, eq=False):
    """HBM in use over a program's schedule, as XLA simulated it.

    Attributes:
        peak_bytes: most in use at once.
        peak_at: the instruction whose temporary buffer makes the peak; None where there is none.
        lasting_bytes: in use from beginning to end: arguments, outputs, constants.
        changes: allocations and releases of temporary buffers.
        temporary_bytes: in use after each of them; of more than 1000, the most of neighbouring ones.
        at_peak: the largest buffers in use at the peak.
    """

    peak_bytes: int
    peak_at: str | None
    lasting_bytes: int
    changes: int
    temporary_bytes: tuple[int, ...]
    at_peak: tuple[Buffer, ...]


class ProgramMemory(Struct, frozen=True, kw_only=True, eq=False):
    """Memory that a program needs in HBM.

    Attributes:
        program_id: its number.
        name: of its module.
        arguments_bytes, outputs_bytes, constants_bytes, temporary_bytes: by what the buffers are for; an output that is
            an argument, too, counts as an argument.
        elsewhere: sizes by memory, for memories other than HBM.
        largest: the largest buffers among the temporary ones and outputs.
        schedule: what is in use when; None where the trace does not say.
    """

    program_id: int
    name: str
    arguments_bytes: int
    outputs_bytes: int
    constants_bytes: int
    temporary_bytes: int
    elsewhere: Mapping[str, int]
    largest: tuple[Buffer, ...]
    schedule: MemorySchedule | None


def read_programs(plane: Plane | None) -> tuple[ProgramMemory, ...]:
    """The programs of a host with their buffers, the largest first.

    Args:
        plane: /host:metadata; None where there is none.

    Raises:
        SourceError: `malformed`.
    """
    made = [_memory(number, name, program) for number, name, program in programs_of(plane)]
    return tuple(sorted(made, key=lambda one: (-one.temporary_bytes - one.arguments_bytes, one.name)))


def _memory(number: int, name: str, program: HloProgram) -> ProgramMemory:
    sums, elsewhere = Counter[BufferKind](), Counter[str]()
    for allocation in program.buffers.allocations:
        if _is_hbm(allocation):
            sums[_kind(allocation)] += _size(allocation)
        elif allocation.color != _HBM:
            elsewhere[_MEMORIES.get(allocation.color, f"memory {allocation.color}")] += _size(allocation)
    buffers = _Buffers(program)
    return ProgramMemory(
        program_id=number,
        name=name,
        arguments_bytes=sums["argument"],
        outputs_bytes=sums["output"],
        constants_bytes=sums["constant"],
        temporary_bytes=sums["temporary"],
        elsewhere={memory: size for memory, size in elsewhere.items() if size},
        largest=buffers.largest(number for number, kind in buffers.kinds.items() if kind in {"output", "temporary"}),
        schedule=_schedule(program, buffers, sums),
    )


def _size(sized: BufferAllocation | LogicalBuffer) -> int:
    """Size in bytes; 0 if the size in the trace is impossible."""
    return sized.size if 0 <= sized.size < LARGEST else 0


def _is_hbm(allocation: BufferAllocation) -> bool:
    return allocation.color == _HBM and not allocation.is_thread_local


def _kind(allocation: BufferAllocation) -> BufferKind:
    if allocation.is_parameter:
        return "argument"
    if allocation.is_constant:
        return "constant"
    return "output" if allocation.maybe_live_out else "temporary"


class _Buffers:
    """The buffers of a program in HBM, by number.

    Attributes:
        kinds: of those that have a size.
        sizes: their bytes.
        lasting: the largest buffer of each allocation that lasts from beginning to end.
    """

    def __init__(self, program: HloProgram) -> None:
        self._program = program
        self._by_number = {buffer.id: buffer for buffer in program.buffers.logical_buffers}
        self.sizes: dict[int, int] = {}
        self.kinds: dict[int, BufferKind] = {}
        self.lasting: list[int] = []
        for allocation in program.buffers.allocations:
            if not _is_hbm(allocation):
                continue
            assigned = [each.logical_buffer_id for each in allocation.assigned]
            sizes = {number: size for number in assigned if (size := _size(self._by_number.get(number, _NONE)))}
            kind = _kind(allocation)
            self.sizes.update(sizes)
            self.kinds.update(dict.fromkeys(sizes, kind))
            if sizes and kind != "temporary":
                self.lasting.append(max(sizes, key=sizes.__getitem__))

    def largest(self, numbers: Iterable[int]) -> tuple[Buffer, ...]:
        """The largest of some, with the instructions that make them."""
        picked = nsmallest(_MOST_BUFFERS, numbers, key=lambda number: (-self.sizes[number], number))
        places = [self._by_number[number].defined_at for number in picked]
        wanted = {place.instruction_id for place in places}
        makers = {
            instruction.id: instruction
            for computation in self._program.module.computations
            for instruction in computation.instructions
            if instruction.id in wanted
        }
        made_by = [makers.get(place.instruction_id) for place in places]
        return tuple(
            Buffer(
                name=one_line(maker.name if maker else place.instruction_name, limit=NAME_LENGTH),
                path=one_line(maker.origin.op_name) if maker else "",
                kind=self.kinds[number],
                size_bytes=self.sizes[number],
            )
            for number, place, maker in zip(picked, places, made_by, strict=True)
        )


def _schedule(program: HloProgram, buffers: _Buffers, sums: Counter[BufferKind]) -> MemorySchedule | None:
    """Goes through XLA's simulation of HBM; XProf: ProcessHeapSimulatorTrace, CreatePeakUsageSnapshot."""
    simulations = [each.events for each in program.buffers.simulations]
    in_hbm = [sum(event.logical_buffer_id in buffers.kinds for event in events) for events in simulations]
    if not any(in_hbm) and sums["temporary"]:
        return None
    events = simulations[in_hbm.index(max(in_hbm))] if any(in_hbm) else []
    changes = list(_changes(events, buffers.sizes))
    in_use = list(accumulate(change.grows_bytes for change in changes))
    peak_bytes = max(in_use, default=0)
    until_peak = changes[: in_use.index(peak_bytes) + 1] if peak_bytes else []
    live: dict[int, int] = {}
    for change in until_peak:
        if change.grows_bytes > 0:
            live[change.owner] = change.user
        elif change.grows_bytes < 0:
            del live[change.owner]
    lasting_bytes = sums.total() - sums["temporary"]
    return MemorySchedule(
        peak_bytes=lasting_bytes + peak_bytes,
        peak_at=one_line(events[len(until_peak) - 1].instruction_name, limit=NAME_LENGTH) if until_peak else None,
        lasting_bytes=lasting_bytes,
        changes=len(changes),
        temporary_bytes=_points(in_use),
        at_peak=buffers.largest([*buffers.lasting, *live.values()]),
    )


def _points(in_use: Sequence[int]) -> tuple[int, ...]:
    count = len(in_use)
    edges = [i * count // _MOST_POINTS for i in range(_MOST_POINTS + 1)] if count > _MOST_POINTS else range(count + 1)
    return tuple(max(in_use[begin:end]) for begin, end in pairwise(edges))


class _Change(NamedTuple):
    """An allocation or a release of memory.

    Attributes:
        owner: the buffer whose memory it is.
        user: the buffer that uses it.
        grows_bytes: memory in use after less before; 0 while another buffer uses the same memory.
    """

    owner: int
    user: int
    grows_bytes: int


def _changes(events: Iterable[HeapEvent], sizes: Mapping[int, int]) -> Iterator[_Change]:
    """The changes of memory in use; of buffers that share memory, the first allocates and the last releases it."""
    owners: dict[int, int] = {}
    users = Counter[int]()
    for event in events:
        user = event.logical_buffer_id
        if event.kind == HeapEvent.SHARE:
            owners[user] = owners.get(event.shared_buffer_id, event.shared_buffer_id)
        owner = owners.get(user, user)
        before = users[owner]
        users[owner] = max(before - 1, 0) if event.kind == HeapEvent.RELEASE else before + 1
        grows = bool(users[owner]) - bool(before)
        yield _Change(owner, user if user in sizes else owner, sizes.get(owner, 0) * grows)
