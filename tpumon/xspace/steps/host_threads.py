"""Activity of the host's threads: its steps and functions, and compiling, input and callbacks to Python."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tpumon.xspace.columns.columns import PS_PER_S, Events, Ints, Mask, join
from tpumon.xspace.columns.intervals import among, by_id, covered_ps, extent, parents
from tpumon.xspace.planes.plane import STEP_NUMBER, Plane
from tpumon.xspace.steps.functions import (
    TOO_FEW,
    Function,
    Runs,
    as_run,
    choose_step,
    gather,
    named_function,
    with_device_time,
)
from tpumon.xspace.steps.host_runs import DEVICE, HLO_MODULE, PROGRAM, RUN, module_runs, module_times_ps

_FUNCTION_CALL = "tf_function_call"
_STEP_MARKER = "StepMarker"  # PyTorch/XLA writes one a step, at host tracer level 2
_PJIT = re.compile(r"PjitFunction\(.*\)", re.DOTALL)
# As JAX 0.6 to 0.10 and TensorFlow 2.21 name what traces, lowers and compiles a function.
_COMPILING = re.compile(
    r"backend_compile\w*|lower_sharding_computation|trace_to_jaxpr\w*|tf\.function-graph_building|"
    r"\w*Client::Compile\w*|\w*Compiler::(?:RunBackend|RunHloPasses|Compile\w*)|"
    r"TaskDispatcher::dispatch"  # of LLVM, for a CPU: often all that a trace within a compilation has
)
# The ops by which programs of JAX 0.10 on a CPU call Python.
_CALLBACK = re.compile(r"(?:(?:pure|io|debug)_callback|debug_print)(?:\.\d+)?")
# A pipeline's own thread reads ahead; only what the training thread does is waiting. `Iterator::Root` is what
# IteratorGetNextOp waits for, where the latter is not recorded.
_INPUT_WAIT = re.compile(r"IteratorGetNext\w*Op::DoCompute|Iterator::Root(::.*)?", re.DOTALL)
_GET_NEXT = re.compile(r"IteratorGetNext\w*Op::DoCompute")
_EAGER_GET_NEXT = re.compile(r"IteratorGetNext\w*")  # all that level 1 shows of a loop in Python
_EAGER_OP = "eager_op"
"""Stat of an op that TensorFlow runs eagerly: a reference to its kind."""
_ASKS = (b"IteratorGetNext", b"Iterator::Root")  # in names of events that show a wait for input
_LEAST_COVERED_RATIO = 0.25  # of the window, by its steps: two starts in it, if regular, cover a third
_MOST_NAMES = 100  # each thread is asked for all of them
_TENSORFLOW_THREAD = "tf_"  # how the names of TensorFlow's own threads begin


class HostActivity(Struct, frozen=True, kw_only=True, eq=False):
    """Steps, functions and waits that the host's threads show.

    Attributes:
        periods_s: from each step's start to the next one's; empty if no step was recognized.
        step_name: the annotation or function taken as the step; None if there is none.
        annotated: number of steps that the program itself marks; 0 if it marks none.
        reason: why there are no steps.
        pauses_s: pauses between steps that were left out.
        functions: compiled functions that the program called.
        input_wait_s: mean time per step that the training thread waited for TensorFlow's input pipeline; None if the
            trace does not show that.
        input_wait_ps: the same of the whole window.
        input_wait_ratio: the same, as a share of the time from the first step's start to the last one's: a wait that
            the window's border cuts is not recorded, so a share of the window would be too low.
        compile_ps: time in which any thread traced or compiled a function.
        callback_ps: time in which an op of a compiled program called Python; None if no op names its program.
        programs_ps: time in ops of each program, by its id; empty if the ops do not tell.
        window_ps: first and last moment of all events; None if there are none.
    """

    periods_s: tuple[float, ...] = ()
    step_name: str | None = None
    annotated: int = 0
    reason: str = TOO_FEW
    pauses_s: tuple[float, ...] = ()
    functions: tuple[Function, ...] = ()
    input_wait_s: float | None = None
    input_wait_ps: int | None = None
    input_wait_ratio: float | None = None
    compile_ps: int = 0
    callback_ps: int | None = None
    programs_ps: Mapping[str, int] = field(default_factory=dict)
    window_ps: tuple[int, int] | None = None


class _Steps(Struct, frozen=True, eq=False):
    """Events that are steps.

    Attributes:
        name: of the annotation or function.
        place: position of the thread.
        runs: their starts and durations.
        total_ps: time that they cover; of several annotations the longest is taken.
    """

    name: str
    place: int
    runs: Runs
    total_ps: int


def annotates_steps(plane: Plane) -> bool:
    """True if any event may have a step number; decided without reading the events."""
    return STEP_NUMBER in plane.stat_names.values()


def read_host(plane: Plane, gpus: Sequence[Plane] = ()) -> HostActivity:
    """Finds the steps on the host's threads.

    Steps are events with a step number; if there are none, PyTorch/XLA's step markers; otherwise the calls of a
    TensorFlow function or a jitted JAX function that `choose_step` accepts. A step lasts from its start to the next
    one's: dispatch is asynchronous, so the event itself may be far shorter than the step.

    Args:
        plane: /host:CPU.
        gpus: planes of the host's GPUs, whose ops name their modules; if there is none, the host's own ops may.

    Raises:
        SourceError: `malformed`.
    """
    names = {number: plane.event_name(number) for number in plane.metadata_by_id}
    lines = plane.lines()
    wanted = (STEP_NUMBER, _FUNCTION_CALL, HLO_MODULE, RUN, DEVICE, PROGRAM, _EAGER_OP)
    threads = [plane.read([line], wanted) for line in lines]
    window_ps = extent(*((events.begin_ps, events.end_ps) for events in threads))
    device_ps = gpu_times_ps(gpus) if gpus else module_times_ps(plane.stat_names, threads)
    called = with_device_time(gather(_calls(threads, names), on_device=False), device_ps)
    functions = called if gpus else as_run(called, module_runs(plane.stat_names, threads))
    marked = _longest(_numbered(threads, names)) or _longest(_markers(threads, names))
    choice = choose_step(functions) if marked is None else None
    function = None if choice is None else choice.function
    steps = marked if function is None else _called(function)
    place = steps.place if marked and steps is not None else _calling_thread(called, function)
    waits = _input_waits(threads, [line.name for line in lines], place, names, plane.stat_names)
    programs_ps = _programs_ps(threads)
    common = HostActivity(
        functions=functions,
        window_ps=window_ps,
        input_wait_ps=None if waits is None else covered_ps(waits.begin_ps, waits.end_ps),
        compile_ps=_spent_ps(threads, names, _COMPILING),
        callback_ps=_spent_ps(threads, names, _CALLBACK) if programs_ps else None,
        programs_ps=programs_ps,
    )
    if steps is None:
        return replace(common, reason=TOO_FEW if choice is None else choice.reason)
    kept = np.ones(len(steps.runs) - 1, dtype=np.bool_) if marked else steps.runs.steps()
    period_ps = steps.runs.period_ps
    if window_ps is not None and period_ps[kept].sum() < _LEAST_COVERED_RATIO * (window_ps[1] - window_ps[0]):
        return replace(common, reason=f"{steps.name} is called far ahead of its runs, or pauses most of the time")
    wait_ps = None if waits is None else _within_steps_ps(waits, steps.runs, kept)
    return replace(
        common,
        periods_s=tuple((period_ps[kept] / PS_PER_S).tolist()),
        step_name=steps.name,
        annotated=len(steps.runs) if marked else 0,
        pauses_s=tuple((period_ps[~kept] / PS_PER_S).tolist()),
        input_wait_s=None if wait_ps is None else wait_ps / PS_PER_S / int(kept.sum()),
        input_wait_ratio=None if waits is None else _share_of_cycles(waits, steps.runs),
    )


def _calls(threads: Sequence[Events], names: Mapping[int, str]) -> Iterator[tuple[str, int, Ints, Ints]]:
    """The outermost calls of compiled functions, by thread and name: JAX records each call twice, one in the other."""
    jitted = [number for number, name in names.items() if _PJIT.fullmatch(name)]
    for place, events in enumerate(threads):
        picked = among(events.metadata_id, jitted)
        if _FUNCTION_CALL in events.stats:
            picked[events.stats[_FUNCTION_CALL].rows] = True
        calls = events.bare().select(picked).sorted()
        calls = calls.select(parents(calls.end_ps) < 0)
        for number, here in by_id(calls.metadata_id):
            yield names.get(number, ""), place, calls.begin_ps[here], calls.duration_ps[here]


def outermost_calls(plane: Plane) -> Iterator[tuple[str, Ints]]:
    """Name and starts of the outermost calls of jitted JAX functions, by thread and name; of the rest nothing is read.

    Args:
        plane: /host:CPU.

    Raises:
        SourceError: `malformed`.
    """
    names = {number: plane.event_name(number) for number in plane.metadata_by_id}
    jitted = [number for number, name in names.items() if _PJIT.fullmatch(name)]
    threads = [plane.read_kinds([line], jitted) for line in (plane.lines() if jitted else ())]
    for name, _, begin_ps, _ in _calls(threads, names):
        yield name, begin_ps


def _numbered(threads: Sequence[Events], names: Mapping[int, str]) -> Iterator[_Steps]:
    """The events that have a step number, by thread and name."""
    for place, events in enumerate(threads):
        if STEP_NUMBER in events.stats:
            yield from _by_name(events.bare().select(events.stats[STEP_NUMBER].rows), place, names)


def _markers(threads: Sequence[Events], names: Mapping[int, str]) -> Iterator[_Steps]:
    wanted = [number for number, name in names.items() if name == _STEP_MARKER]
    for place, events in enumerate(threads if wanted else ()):
        yield from _by_name(events.bare().select(among(events.metadata_id, wanted)), place, names)


def _by_name(steps: Events, place: int, names: Mapping[int, str]) -> Iterator[_Steps]:
    for number, here in by_id(steps.metadata_id):
        begin_ps, first = np.unique(steps.begin_ps[here], return_index=True)
        if len(begin_ps) > 1:
            runs = Runs(begin_ps=begin_ps, duration_ps=steps.duration_ps[here][first])
            total_ps = covered_ps(steps.begin_ps[here], steps.end_ps[here])
            yield _Steps(named_function(names.get(number, "")), place, runs, total_ps)


def _longest(candidates: Iterator[_Steps]) -> _Steps | None:
    return max(candidates, key=lambda steps: steps.total_ps, default=None)


def _called(function: Function) -> _Steps:
    """A function's calls on the thread that called it most often."""
    place = max(function.places, key=lambda place: len(function.places[place]))
    return _Steps(function.name, place, function.places[place], function.weight_ps)


def _calling_thread(functions: Sequence[Function], step: Function | None) -> int | None:
    """The thread that called the step most often; without a step the one whose calls took longest."""
    times_ps = Counter[int]()
    for function in functions:
        for place, runs in function.places.items():
            if step is None:
                times_ps[place] += int(runs.duration_ps.sum())
            elif step.name == function.name:
                times_ps[place] = len(runs)
    return max(times_ps, key=lambda place: times_ps[place], default=None)


def _programs_ps(threads: Sequence[Events]) -> dict[str, int]:
    """Time in ops by the id of their program."""
    times_ps = Counter[str]()
    for events in threads:
        if (column := events.stats.get(PROGRAM)) is not None:
            rows = column.rows
            for number, here in by_id(column.integers()[rows]):
                times_ps[str(number)] += int(events.duration_ps[rows[here]].sum())
    return times_ps


def _within_steps_ps(waits: Events, runs: Runs, kept: Mask) -> int:
    """Time of waiting during steps."""
    spans = zip(*_spans(runs.begin_ps, kept), strict=True)
    return sum(_within_ps(waits, *span) for span in spans)


def _share_of_cycles(waits: Events, runs: Runs) -> float:
    """Share of waiting from the first step's start to the last one's, pauses included."""
    first, last = int(runs.begin_ps[0]), int(runs.begin_ps[-1])
    return _within_ps(waits, first, last) / max(last - first, 1)


def _within_ps(waits: Events, begin_ps: int, end_ps: int) -> int:
    """Time of waiting between two moments."""
    return covered_ps(np.clip(waits.begin_ps, begin_ps, end_ps), np.clip(waits.end_ps, begin_ps, end_ps))


def _spans(begin_ps: Ints, kept: Mask) -> tuple[list[int], list[int]]:
    """Begins and ends of the stretches of steps without a pause between."""
    edges = np.diff(np.concatenate([[0], kept.astype(np.int64), [0]]))
    return begin_ps[np.flatnonzero(edges > 0)].tolist(), begin_ps[np.flatnonzero(edges < 0)].tolist()


def gpu_times_ps(planes: Sequence[Plane]) -> dict[str, int]:
    """Time in ops by module, summed over the streams of all GPUs.

    Raises:
        SourceError: `malformed`.
    """
    times_ps: dict[str, int] = {}
    for plane in planes:
        lines = (plane.read([line], (HLO_MODULE,)) for line in plane.lines())
        for name, time_ps in module_times_ps(plane.stat_names, lines).items():
            times_ps[name] = times_ps.get(name, 0) + time_ps
    return times_ps


def may_show_input(plane: Plane) -> bool:
    """True if any event may be one of waiting for input; decided without reading the events."""
    named = (ask in raw for raw in plane.metadata_by_id.values() for ask in _ASKS)
    return _EAGER_OP in plane.stat_names.values() or any(named)


def read_compiling(plane: Plane) -> Events:
    """Reads the events of tracing, lowering or compiling a function; other events are not looked at.

    Raises:
        SourceError: `malformed`.
    """
    wanted = _ids({number: plane.event_name(number) for number in plane.metadata_by_id}, _COMPILING)
    return plane.read_kinds(plane.lines(), wanted)


def _spent_ps(threads: Sequence[Events], names: Mapping[int, str], pattern: re.Pattern[str]) -> int:
    """Time in which any thread was in an event of such a name."""
    wanted = _ids(names, pattern)
    picked = join([_of_kind(events, wanted) for events in threads])
    return covered_ps(picked.begin_ps, picked.end_ps)


def _input_waits(
    threads: Sequence[Events],
    titles: Sequence[str],
    place: int | None,
    names: Mapping[int, str],
    stat_names: Mapping[int, str],
) -> Events | None:
    """Waits of the training thread for TensorFlow's input pipeline; None if no event shows any.

    A compiled loop asks for its input in threads of TensorFlow's, while the training thread waits for the loop.

    Args:
        threads: events of each, with the stat _EAGER_OP.
        titles: names of the threads.
        place: position of the training thread; None if there is none.
        names: of events, by metadata id.
        stat_names: of stats, by metadata id.
    """
    waits = None
    if place is not None:
        waits = join([_of_kind(threads[place], _ids(names, _INPUT_WAIT)), _eagerly_asked(threads[place], stat_names)])
    if waits is None or not len(waits):
        theirs = (title.startswith(_TENSORFLOW_THREAD) for title in titles)
        asking = _ids(names, _GET_NEXT)
        waits = join([_of_kind(events, asking) for events, own in zip(threads, theirs, strict=True) if own])
    return waits if len(waits) else None


def _eagerly_asked(thread: Events, stat_names: Mapping[int, str]) -> Events:
    """The ops of a loop in Python that ask for input."""
    column = thread.stats.get(_EAGER_OP)
    if column is None:
        return join([])
    return thread.bare().select(among(column.integers(), _ids(stat_names, _EAGER_GET_NEXT)))


def _ids(names: Mapping[int, str], pattern: re.Pattern[str]) -> list[int]:
    """Metadata ids of the events of such a name, as many as a host may have."""
    return [number for number, name in names.items() if pattern.fullmatch(name)][:_MOST_NAMES]


def _of_kind(events: Events, wanted: Sequence[int]) -> Events:
    return events.bare().select(among(events.metadata_id, wanted))
