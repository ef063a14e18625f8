"""Traces of windows of a timeline, as libtpu writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from support.fleets.programs import Part
from support.fleets.timelines import Core, Step
from support.traces import Plane, Traced
from tpumon.proto.xplane_pb2 import MemoryAccessBreakdown, XLine

PS = 1_000_000_000_000
EPOCH_NS = 1_790_000_000 * 1_000_000_000
PEAK_TFLOPS, PEAK_GBPS = 918.0, 1637.99
_START_NS = 1_000_000  # the profiler begins before the window


@dataclass(frozen=True)
class Look:
    """How a trace is taken.

    Attributes:
        markers: whether the devices mark steps (a line `Steps`).
        stubs: whether steps that the window cuts are there, as long as they were seen.
        program: its number; a program of another shape has another one.
        function: what it is compiled from.
        turns: functions and programs that run in turn, instead of the one.
        lost: marks and events are dropped from a share of the window on, by core number; none: a whole trace.
        notice: a line in the trace's `warnings`.
        mark: an event on a device that says that events were dropped.
        host: events of the host's main thread: name, begin and end in seconds of the timeline, stats.
        late_s: after the last device event the profiler needs so long to stop.
        scopes: events of the line XLA TraceMe, as shares of each step: name, from, to.
    """

    markers: bool = True
    stubs: bool = False
    program: int = 12190760917235803885
    function: str = "jit_train_step"
    turns: Sequence[tuple[str, int]] = ()
    lost: Mapping[int, float] | None = None
    notice: str = ""
    mark: str = ""
    host: Sequence[tuple[str, float, float, Mapping[str, object]]] = ()
    late_s: float = 0.02
    scopes: Sequence[tuple[str, float, float]] = ()

    def ran(self, step: int) -> tuple[str, int]:
        """Function and program of a step."""
        return self.turns[step % len(self.turns)] if self.turns else (self.function, self.program)


def trace(cores: Mapping[Core, Sequence[Step]], begin_s: float, end_s: float, look: Look) -> bytes:
    """The XSpace of one worker: what its cores began and ended within the window."""
    traced = Traced()
    for core, steps in cores.items():
        until_s = end_s
        if look.lost and core.number in look.lost:
            until_s = begin_s + look.lost[core.number] * (end_s - begin_s)
        plane = traced.core(core.number, device_type="TPU v6 Lite", peak_tflops=PEAK_TFLOPS, peak_gbps=PEAK_GBPS)
        _Written(plane, begin_s, look).write(steps, until_s, end_s)
    if look.host:
        _host(traced, begin_s, end_s, look)
    task = traced.named("Task Environment")
    times = {
        "profile_start_time": EPOCH_NS + round(begin_s * 1e9) - _START_NS,
        "profile_stop_time": EPOCH_NS + round((end_s + look.late_s) * 1e9),
    }
    task.put(task.plane.stats, times)
    if look.notice:
        traced.space.warnings.append(look.notice)
    return traced.bytes()


def _host(traced: Traced, begin_s: float, end_s: float, look: Look) -> None:
    host = traced.host(mxu_percent=None)
    line = host.line("python", timestamp_ns=EPOCH_NS + round(begin_s * 1e9))
    for name, from_s, to_s, stats in look.host:
        if begin_s <= from_s and to_s <= end_s:
            event = line.events.add(metadata_id=host.event_id(name), **_span(from_s, to_s, begin_s))
            host.put(event.stats, stats)


def _span(from_s: float, to_s: float, begin_s: float) -> dict[str, int]:
    return {"offset_ps": round((from_s - begin_s) * PS), "duration_ps": round(max(to_s - from_s, 0.0) * PS)}


class _Written:
    """The plane of a core in the making."""

    def __init__(self, plane: Plane, begin_s: float, look: Look) -> None:
        self._plane, self._begin_s, self._look = plane, begin_s, look
        self._ids: dict[tuple[str, int], int] = {}
        self._offset, self._duration = plane.stat_id("device_offset_ps"), plane.stat_id("device_duration_ps")

    def write(self, steps: Sequence[Step], until_s: float, end_s: float) -> None:
        """Writes what was recorded until the buffers were full."""
        at_ns, look = EPOCH_NS + round(self._begin_s * 1e9), self._look
        markers = self._plane.line("Steps", timestamp_ns=at_ns) if look.markers else None
        modules, ops = (self._plane.line(name, timestamp_ns=at_ns) for name in ("XLA Modules", "XLA Ops"))
        scopes = self._plane.line("XLA TraceMe", timestamp_ns=at_ns) if look.scopes or look.mark else None
        for step in steps:
            if step.end_s <= self._begin_s or step.begin_s >= until_s:
                continue
            function, program = look.ran(step.number)
            whole = step.begin_s >= self._begin_s and step.end_s <= until_s
            if whole:
                module_id = self._plane.event_id(f"{function}({program})")
                event = modules.events.add(metadata_id=module_id, **_span(step.begin_s, step.end_s, self._begin_s))
                self._plane.put(event.stats, {"run_id": step.number, "queue_id": 0, "core_type": 0})
            if markers is not None and (whole or look.stubs):
                cut = max(step.begin_s, self._begin_s), min(step.end_s, until_s)
                event = markers.events.add(
                    metadata_id=self._plane.event_id(str(step.number)), **_span(*cut, self._begin_s)
                )
                self._times(event, *cut)
            for ran in step.ops:
                if ran.begin_s >= self._begin_s and ran.end_s <= until_s:
                    self._op(ops, self._op_id(ran.part, program), ran.begin_s, ran.end_s)
            if scopes is not None and whole:
                length_s = step.end_s - step.begin_s
                for name, begin, end in look.scopes:
                    span = _span(step.begin_s + begin * length_s, step.begin_s + end * length_s, self._begin_s)
                    scopes.events.add(metadata_id=self._plane.event_id(name), **span)
        if look.mark and scopes is not None:
            span = _span(until_s, end_s, self._begin_s)
            scopes.events.add(metadata_id=self._plane.event_id(look.mark), **span)

    def _times(self, event: object, from_s: float, to_s: float) -> None:
        span = _span(from_s, to_s, self._begin_s)
        event.stats.add(metadata_id=self._offset, uint64_value=span["offset_ps"])  # type: ignore[attr-defined]
        event.stats.add(metadata_id=self._duration, uint64_value=span["duration_ps"])  # type: ignore[attr-defined]

    def _op(self, line: XLine, op_id: int, from_s: float, to_s: float) -> None:
        event = line.events.add(metadata_id=op_id, **_span(from_s, to_s, self._begin_s))
        self._times(event, from_s, to_s)

    def _op_id(self, part: Part, program: int) -> int:
        if (number := self._ids.get((part.name, program))) is None:
            text = f"%{part.name} = bf16[8,128]{{1,0}} {part.category}()"
            number = self._plane.event_id(text if not self._look.turns else f"{text}, program={program}")
            self._ids[part.name, program] = number
            metadata = self._plane.plane.event_metadata[number]
            metadata.display_name = part.name
            moved = round(part.hbm * PEAK_GBPS * 2**30 * part.seconds)
            flops = round(part.mxu * PEAK_TFLOPS * 1e12 * part.seconds)
            breakdown = MemoryAccessBreakdown()
            breakdown.accesses.add(operation=1, memory_space=1, bytes_accessed=moved)
            self._plane.put(
                metadata.stats,
                {
                    "hlo_category": part.category, "program_id": program, "symbol_id": number,
                    "flops": flops, "model_flops": flops, "bytes_accessed": moved, "raw_bytes_accessed": moved,
                    "memory_access_breakdown": breakdown.SerializeToString(),
                },
            )  # fmt: skip
        return number
