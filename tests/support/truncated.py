"""Whole traces of several kinds, and ways to lose events from them: what the profiler did before a person sees it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from support.traces import ALL_REDUCE, CONV, INFEED, LOOP, US, Op, Plane, Traced
from tpumon.proto.xplane_pb2 import XEvent, XLine, XPlane, XSpace

OP_LINES = ("XLA Ops",)
TPU = "/device:TPU:"


@dataclass(frozen=True)
class Whole:
    """A whole trace and what it was made of.

    Attributes:
        space: the trace.
        step_us: from start to start of its steps.
        begin_us: of the first step.
        end_us: of the last step.
        idle_ratio: share of a step in which nothing ran.
        steps: how many.
    """

    space: XSpace
    step_us: float
    begin_us: float
    end_us: float
    steps: int


def whole(draw: random.Random, *, dispatches: bool) -> Whole:
    """A training job of one to four cores: a few to a few dozen steps of ops one after the other.

    Args:
        draw: what is left to chance.
        dispatches: whether the host's thread shows that it launches each step; steps are long where it does not.
    """
    slow = 1 if dispatches else 100
    traced = Traced()
    cores, steps = draw.choice((1, 2, 4)), draw.randint(6, 30)
    parts: list[tuple[Op | None, float]] = [(INFEED, slow * draw.uniform(50, 400))]
    for _ in range(draw.randint(1, 3)):
        parts += [
            (CONV, slow * draw.uniform(300, 2000)),
            (None, draw.uniform(1, 40)),
            (LOOP, slow * draw.uniform(60, 500)),
        ]
    parts += [(ALL_REDUCE, slow * draw.uniform(50, 300)), (None, draw.uniform(0, 20))]
    length_us, pause_us = sum(duration for _, duration in parts), slow * draw.uniform(5, 200)
    chips = draw.choice((1, 2)) if cores > 1 else 1
    markers = draw.random() < 0.5
    begin_us = draw.uniform(100, 3000)
    for number in range(cores):
        plane, at_us = traced.core(number, chip=number // chips, core=number % chips), begin_us + 3 * number
        for _ in range(steps):
            _step(plane, at_us, parts, length_us, markers=markers)
            at_us += length_us + pause_us
    step_us = length_us + pause_us
    end_us = begin_us + steps * step_us - pause_us
    host = traced.host(draw.choice((None, 42.5)))
    for step in range(steps if dispatches else 0):
        host.event("python", "PjitFunction(train_step)", begin_us + step * step_us - 90, 80)
    _environment(traced, end_us + draw.uniform(0, 0.9) * step_us)
    return Whole(traced.space, step_us, begin_us, end_us, steps)


def _step(
    plane: Plane, at_us: float, parts: Sequence[tuple[Op | None, float]], length_us: float, *, markers: bool
) -> None:
    plane.event("XLA Modules", "jit_train_step(42)", at_us, length_us)
    if markers:
        plane.event("Steps", "train", at_us, length_us)
    for op, duration_us in parts:
        if op is not None:
            plane.event("XLA Ops", op, at_us, duration_us)
        at_us += duration_us


def _environment(traced: Traced, stop_us: float) -> None:
    plane = traced.named("Task Environment")
    start_ns = 1_700_000_000 * 10**9
    plane.put(
        plane.plane.stats, {"profile_start_time": start_ns, "profile_stop_time": start_ns + round(stop_us * 1000)}
    )


def cores_of(space: XSpace) -> list[XPlane]:
    """The planes of its TensorCores."""
    return [plane for plane in space.planes if plane.name.startswith(TPU)]


def drop(line: XLine, begin_us: float, end_us: float) -> int:
    """Takes away the events of a line that end in a span; returns how many."""
    kept = [e for e in line.events if not begin_us * US < e.offset_ps + e.duration_ps <= end_us * US]
    lost = len(line.events) - len(kept)
    del line.events[:]
    line.events.extend(kept)
    return lost


def drop_from(planes: Sequence[XPlane], names: Sequence[str] | None, begin_us: float, end_us: float) -> int:
    """The same for lines of planes, all lines where no names are given."""
    lines = [line for plane in planes for line in plane.lines if names is None or line.name in names]
    return sum(drop(line, begin_us, end_us) for line in lines)


def window_of(trace: Whole, begin_us: float, end_us: float, *, clipped: bool) -> XSpace:
    """What a shorter window of the same job holds; it may begin and end within a step.

    Args:
        trace: a whole one.
        begin_us: of the window.
        end_us: of the window.
        clipped: whether events at its ends are cut off there; otherwise they are not in it.
    """
    space = XSpace()
    space.CopyFrom(trace.space)
    for plane in space.planes:
        for line in plane.lines:
            kept = [event for event in line.events if _fits(event, begin_us * US, end_us * US, clipped=clipped)]
            del line.events[:]
            line.events.extend(kept)
        if plane.name == "Task Environment":
            start_ns, stop = plane.stats[0].int64_value, plane.stats[1]
            stop.int64_value = start_ns + round(end_us * 1000)
    return space


def _fits(event: XEvent, begin_ps: float, end_ps: float, *, clipped: bool) -> bool:
    first, last = event.offset_ps, event.offset_ps + event.duration_ps
    if not clipped:
        return begin_ps <= first and last <= end_ps
    first, last = max(first, round(begin_ps)), min(last, round(end_ps))
    event.offset_ps, event.duration_ps = first, max(last - first, 0)
    return last > first


FOREVER_US = 1e12
Damage = Callable[[random.Random, Whole], int]


def _place(draw: random.Random, trace: Whole, *, left_steps: float = 0.0) -> float:
    """A moment of the trace, so long before its end that some steps are lost."""
    return draw.uniform(trace.begin_us, trace.end_us - left_steps * trace.step_us)


def _mark(draw: random.Random, trace: Whole, at_us: float | None) -> None:
    """Says that events were dropped, in one of the ways in which traces say so."""
    plane = Plane(draw.choice(cores_of(trace.space)))
    ways = ["plane", "words", "event", "line event"]
    match draw.choice(ways):
        case "plane":
            value = draw.choice((7, "7", 7.0, b"7"))
            plane.put(plane.plane.stats, {"dropped_traces": value})
        case "words":
            draw.choice((trace.space.errors, trace.space.warnings)).append(
                "XLA trace buffer is full: events were dropped"
            )
        case "event":
            plane.event("XLA TraceMe", "Trace Buffers Dropped", trace.end_us if at_us is None else at_us, 0)
        case "line event":
            plane.event("XLA TraceMe", "barrier-cores", trace.end_us, 1, dropped_traces=draw.choice((3, "3")))


def marked_cut(draw: random.Random, trace: Whole) -> int:
    at_us = _place(draw, trace)
    lost = drop_from(cores_of(trace.space), None, at_us, FOREVER_US)
    _mark(draw, trace, at_us)
    return lost


def marked_ops(draw: random.Random, trace: Whole) -> int:
    """Ops here and there, with a mark that says no place."""
    lost = 0
    for plane in cores_of(trace.space):
        for line in plane.lines:
            if line.name in OP_LINES:
                kept = [event for event in line.events if draw.random() > 0.1]
                lost += len(line.events) - len(kept)
                del line.events[:]
                line.events.extend(kept)
    _mark(draw, trace, None)
    return lost


def marked_only(draw: random.Random, trace: Whole) -> int:
    """A mark, and nothing else to be seen."""
    _mark(draw, trace, None)
    return 1


def cut_ops(draw: random.Random, trace: Whole) -> int:
    """The line of ops ends early on every core, that of programs goes on."""
    return drop_from(cores_of(trace.space), OP_LINES, _place(draw, trace), FOREVER_US)


def cut_ops_of_one_core(draw: random.Random, trace: Whole) -> int:
    return drop_from([draw.choice(cores_of(trace.space))], OP_LINES, _place(draw, trace), FOREVER_US)


def late_ops(draw: random.Random, trace: Whole) -> int:
    """A buffer that keeps the newest: the line of ops begins late."""
    return drop_from(cores_of(trace.space), OP_LINES, 0, _place(draw, trace))


def cut_end(draw: random.Random, trace: Whole) -> int:
    """Everything of all devices ends early, four steps or more before the window does, while the host dispatches."""
    return drop_from(cores_of(trace.space), None, _place(draw, trace, left_steps=4.0), FOREVER_US)


def cut_one_core(draw: random.Random, trace: Whole) -> int:
    """Everything of one core ends early, two steps or more before the others."""
    return drop_from([draw.choice(cores_of(trace.space))], None, _place(draw, trace, left_steps=2.2), FOREVER_US)


def late_one_core(draw: random.Random, trace: Whole) -> int:
    at_us = draw.uniform(trace.begin_us + 2.2 * trace.step_us, trace.end_us)
    return drop_from([draw.choice(cores_of(trace.space))], None, 0, at_us)


def cut_one_chip(draw: random.Random, trace: Whole) -> int:
    """Everything of half of the cores ends early."""
    planes = cores_of(trace.space)
    return drop_from(planes[len(planes) // 2 :], None, _place(draw, trace, left_steps=2.2), FOREVER_US)


def lost_core(draw: random.Random, trace: Whole) -> int:
    """One core has no event at all, or no line."""
    plane = draw.choice(cores_of(trace.space))
    lost = drop_from([plane], None, 0, FOREVER_US)
    if draw.random() < 0.5:
        del plane.lines[:]
    return lost


def hole_in_ops(draw: random.Random, trace: Whole) -> int:
    """The line of ops has a hole on one core or all, a step long or longer."""
    planes = cores_of(trace.space)
    at_us = _place(draw, trace, left_steps=1.0)
    length_us = draw.uniform(1.0, max(1.0, trace.steps / 2)) * trace.step_us
    return drop_from(draw.choice((planes, [draw.choice(planes)])), OP_LINES, at_us, at_us + length_us)


def hole_on_one_core(draw: random.Random, trace: Whole) -> int:
    """Everything of one core has a hole of two and a half steps or more."""
    length_us = draw.uniform(2.5, max(2.6, trace.steps / 2)) * trace.step_us
    at_us = draw.uniform(trace.begin_us, max(trace.begin_us, trace.end_us - length_us))
    return drop_from([draw.choice(cores_of(trace.space))], None, at_us, at_us + length_us)


def hole_on_all_cores(draw: random.Random, trace: Whole) -> int:
    """Everything of all cores has a hole of seven steps or more, while the host goes on dispatching."""
    length_us = 7.0 * trace.step_us
    at_us = draw.uniform(trace.begin_us + 1.5 * trace.step_us, trace.end_us - length_us - 1.5 * trace.step_us)
    return drop_from(cores_of(trace.space), None, at_us, at_us + length_us)


def no_ops(_draw: random.Random, trace: Whole) -> int:
    """Programs and no op at all."""
    return drop_from(cores_of(trace.space), OP_LINES, 0, FOREVER_US)


@dataclass(frozen=True)
class Kind:
    """One kind of truncation.

    Attributes:
        name: what is lost.
        damage: makes a trace one.
        several: whether it needs more than one core.
        least_steps: how many steps it needs.
        needs_host: whether only the host's events tell it from a pause.
    """

    name: str
    damage: Damage
    several: bool = False
    least_steps: int = 6
    needs_host: bool = False


KINDS = (
    Kind("marked, cut at a random place", marked_cut),
    Kind("marked, ops lost here and there", marked_ops),
    Kind("marked, nothing else to see", marked_only),
    Kind("line of ops cut, all cores", cut_ops),
    Kind("line of ops cut, one core", cut_ops_of_one_core, several=True),
    Kind("line of ops begins late", late_ops),
    Kind("all lines cut, all cores, the host dispatches", cut_end, needs_host=True),
    Kind("all lines cut, one core (by 2 steps or more)", cut_one_core, several=True),
    Kind("all lines begin late, one core", late_one_core, several=True),
    Kind("all lines cut, one chip", cut_one_chip, several=True),
    Kind("a core without an event", lost_core, several=True),
    Kind("hole in the line of ops", hole_in_ops),
    Kind("hole on one core", hole_on_one_core, several=True),
    Kind("hole on all cores, the host dispatches", hole_on_all_cores, least_steps=12, needs_host=True),
    Kind("programs without any op", no_ops),
)


def truncated(kind: Kind, seed: int) -> tuple[Whole, Whole]:
    """A whole trace and the same one truncated; some events are lost for certain, or a mark says so."""
    draw = random.Random(seed)
    while True:
        trace = whole(draw, dispatches=kind.needs_host or draw.random() < 0.5)
        planes = cores_of(trace.space)
        if trace.steps < kind.least_steps or (kind.several and len(planes) < 2):
            continue
        damaged = XSpace()
        damaged.CopyFrom(trace.space)
        other = Whole(damaged, trace.step_us, trace.begin_us, trace.end_us, trace.steps)
        if kind.damage(draw, other):
            return trace, other
