"""What the host's threads do while the simulated job runs, as events of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tpumon.proto import xplane_pb2
from tpumon.simulator.scenario import MS, Job, Part, Piece, Step, Stop

PS_PER_NS = 1000
CONTEXT = 12  # _pt and _ct: the kind of link; any number that is equal on both sides

_STATS = {"step_num": 2, "_r": 3, "_pt": 4, "_p": 5}
_NAMES = ("train", "PjitFunction(train_step)", "TpuExecute", "DevicePut")
_PYTHON, _INPUT = "python", "tf_data_iterator_get_next"
_DURING: dict[Stop, str] = {"compile": "backend_compile", "checkpoint": "save_checkpoint"}
_ONE_OF_MANY_NS = 250 * MS  # a long task consists of short ones, or a short window would not show it


class _Event(NamedTuple):
    """An event of a thread; times in nanoseconds since the job's start.

    Attributes:
        level: the host tracer level from which on it is recorded.
        step: the number of the step that it annotates, or None.
        launches: the number of the step whose program it starts, or None.
    """

    name: str
    begin_ns: int
    length_ns: int
    level: int = 1
    thread: str = _PYTHON
    step: int | None = None
    launches: int | None = None


def add_host_events(
    plane: xplane_pb2.XPlane, job: Job, worker: int, *, level: int, start_ns: int, stop_ns: int
) -> None:
    """Adds what the threads of a worker's host do in a window: annotations from level 1, the runtime's from level 2."""
    for name, i in _STATS.items():
        plane.stat_metadata[i].id = i
        plane.stat_metadata[i].name = name
    ids: dict[str, int] = {}
    for name in _NAMES:
        _add_name(plane, ids, name)
    lines = {_PYTHON: plane.lines.add(id=1, name=_PYTHON)}
    for event in _events(job, worker, start_ns, stop_ns):
        if event.level > level:
            continue
        if event.thread not in lines:
            lines[event.thread] = plane.lines.add(id=1 + len(lines), name=event.thread)
        added = lines[event.thread].events.add(
            metadata_id=_add_name(plane, ids, event.name),
            offset_ps=(event.begin_ns - start_ns) * PS_PER_NS,
            duration_ps=event.length_ns * PS_PER_NS,
        )
        if event.step is not None:
            added.stats.add(metadata_id=_STATS["step_num"], int64_value=event.step)
            added.stats.add(metadata_id=_STATS["_r"], int64_value=1)
        if event.launches is not None:
            added.stats.add(metadata_id=_STATS["_pt"], int64_value=CONTEXT)
            added.stats.add(metadata_id=_STATS["_p"], int64_value=event.launches)


def _add_name(plane: xplane_pb2.XPlane, ids: dict[str, int], name: str) -> int:
    if name not in ids:
        ids[name] = number = len(ids) + 1
        plane.event_metadata[number].id = number
        plane.event_metadata[number].name = name
    return ids[name]


def _events(job: Job, worker: int, start_ns: int, stop_ns: int) -> Iterator[_Event]:
    """The events of whole steps, and of times without steps, that lie in the window."""
    for step in job.steps(start_ns, stop_ns):
        if step.missing is None and step.start_ns >= start_ns and step.start_ns + step.period_ns - 5_000 <= stop_ns:
            yield from _of_step(job, worker, step)
    for piece in job.silences(start_ns, stop_ns):
        for event in _of_silence(piece):
            if event.begin_ns >= start_ns and event.begin_ns + event.length_ns <= stop_ns:
                yield event


def _of_step(job: Job, worker: int, step: Step) -> Iterator[_Event]:
    program, begin_ns = step.work.program, step.start_ns
    if not program.jax:
        yield _Event(program.function.removesuffix("_step"), begin_ns, step.period_ns - 5_000, step=step.number)
    yield _Event(f"PjitFunction({program.function})", begin_ns + 2_000, 400_000, launches=step.number)
    yield _Event("TpuExecute", begin_ns + 50_000, 200_000, level=2)
    yield _Event("DevicePut", begin_ns + 500_000, 150_000, level=2)
    parts = job.parts(step, worker, 0)
    ms = step.work.ms
    gaps_ms = ms[Part.INPUT_GAP] + ms[Part.HOST_GAP]
    input_gap_ns = int(parts.gap * ms[Part.INPUT_GAP] / gaps_ms) if gaps_ms else 0
    host_gap_ns = parts.gap - input_gap_ns
    gap_begin_ns = begin_ns + parts.marker + 5_000
    if step.work.waits_for_input:
        wait_begin_ns, wait_ns = (gap_begin_ns, input_gap_ns) if program.jax else (begin_ns + 700_000, parts.infeed)
        wait_ns = max(wait_ns - 800_000, 0)
        yield _Event("next_batch", wait_begin_ns, wait_ns)
        yield _Event("IteratorGetNextOp::DoCompute", wait_begin_ns + 10_000, wait_ns - 20_000, level=2)
        yield _Event("Iterator::Root", wait_begin_ns + 20_000, wait_ns - 40_000, level=2, thread=_INPUT)
    if ms[Part.HOST_GAP]:
        at_ns = gap_begin_ns + input_gap_ns
        yield _Event("log_metrics", at_ns, host_gap_ns // 2)
        yield _Event("np.asarray(jax.Array)", at_ns + host_gap_ns // 2, host_gap_ns * 2 // 5, level=2)


def _of_silence(piece: Piece) -> Iterator[_Event]:
    assert piece.work.stop is not None
    name = _DURING.get(piece.work.stop)
    if name is not None:
        for begin_ns in range(piece.begin_ns, piece.end_ns - _ONE_OF_MANY_NS + 1, _ONE_OF_MANY_NS):
            yield _Event(name, begin_ns, _ONE_OF_MANY_NS - 1 * MS)
