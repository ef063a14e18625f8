"""Events of the host's threads in a trace of the simulated job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from tpumon.simulator.plane_writer import PlaneWriter
from tpumon.simulator.scenario import BATCH, MS, Interval, SimulatedJob, Step, StepPart, Stop

CONTEXT = 12  # _pt and _ct: the kind of link; any number that is equal on both sides

_PYTHON, _INPUT = "python", "tf_data_iterator_get_next"
_DURING: dict[Stop, str] = {"compile": "backend_compile", "checkpoint": "save_checkpoint"}
_ONE_OF_MANY_NS = 250 * MS  # a long task consists of short ones, or a short window would not show it


class _ThreadEvent(NamedTuple):
    """An event of a thread; times in nanoseconds since the job's start; recorded from a host tracer level on."""

    name: str
    begin_ns: int
    length_ns: int
    level: int = 1
    thread: str = _PYTHON
    stats: Mapping[str, int] = MappingProxyType({})


def add_host_events(
    plane: PlaneWriter, job: SimulatedJob, worker: int, *, level: int, start_ns: int, stop_ns: int
) -> None:
    """Adds the threads of a worker's host in a window: annotations from level 1, the runtime's events from level 2."""
    for event in _events(job, worker, start_ns, stop_ns):
        if event.level <= level:
            plane.add_event(event.thread, event.name, event.begin_ns - start_ns, event.length_ns, **event.stats)


def _events(job: SimulatedJob, worker: int, start_ns: int, stop_ns: int) -> Iterator[_ThreadEvent]:
    """The events of whole steps, and of times without steps, that lie in the window."""
    for step in job.steps(start_ns, stop_ns):
        if step.missing is None and step.start_ns >= start_ns and step.start_ns + step.period_ns - 5_000 <= stop_ns:
            yield from _of_step(job, worker, step)
    for piece in job.silences(start_ns, stop_ns):
        for event in _of_silence(piece):
            if event.begin_ns >= start_ns and event.begin_ns + event.length_ns <= stop_ns:
                yield event


def _of_step(job: SimulatedJob, worker: int, step: Step) -> Iterator[_ThreadEvent]:
    program, begin_ns = step.work.program, step.start_ns
    if not program.jax:
        annotates = {"step_num": step.number, "_r": 1}
        yield _ThreadEvent(program.function.removesuffix("_step"), begin_ns, step.period_ns - 5_000, stats=annotates)
    elif job.serves:
        batch = f"execute_model: {BATCH} reqs, {BATCH} toks"
        yield _ThreadEvent(batch, begin_ns + 1_000, step.period_ns - 6_000)
    launches = {"_pt": CONTEXT, "_p": step.number}
    yield _ThreadEvent(f"PjitFunction({program.function})", begin_ns + 2_000, 400_000, stats=launches)
    yield _ThreadEvent("TpuExecute", begin_ns + 50_000, 200_000, level=2)
    yield _ThreadEvent("DevicePut", begin_ns + 500_000, 150_000, level=2)
    parts = job.parts(step, worker, 0)
    ms = step.work.ms
    gaps_ms = ms[StepPart.INPUT_GAP] + ms[StepPart.HOST_GAP]
    input_gap_ns = int(parts.gap * ms[StepPart.INPUT_GAP] / gaps_ms) if gaps_ms else 0
    host_gap_ns = parts.gap - input_gap_ns
    gap_begin_ns = begin_ns + parts.marker + 5_000
    if step.work.waits_for_input:
        wait_begin_ns, wait_ns = (gap_begin_ns, input_gap_ns) if program.jax else (begin_ns + 700_000, parts.infeed)
        wait_ns = max(wait_ns - 800_000, 0)
        yield _ThreadEvent("next_batch", wait_begin_ns, wait_ns)
        yield _ThreadEvent("IteratorGetNextOp::DoCompute", wait_begin_ns + 10_000, wait_ns - 20_000, level=2)
        yield _ThreadEvent("Iterator::Root", wait_begin_ns + 20_000, wait_ns - 40_000, level=2, thread=_INPUT)
    if ms[StepPart.HOST_GAP]:
        at_ns = gap_begin_ns + input_gap_ns
        yield _ThreadEvent("log_metrics", at_ns, host_gap_ns // 2)
        yield _ThreadEvent("np.asarray(jax.Array)", at_ns + host_gap_ns // 2, host_gap_ns * 2 // 5, level=2)


def _of_silence(piece: Interval) -> Iterator[_ThreadEvent]:
    assert piece.work.stop is not None
    name = _DURING.get(piece.work.stop)
    if name is not None:
        for begin_ns in range(piece.begin_ns, piece.end_ns - _ONE_OF_MANY_NS + 1, _ONE_OF_MANY_NS):
            yield _ThreadEvent(name, begin_ns, _ONE_OF_MANY_NS - 1 * MS)
