"""Steps of a program as its host shows them: for jobs without a device plane, and for devices without steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tpumon.xspace.device import extent, sorted_events
from tpumon.xspace.intervals import covered_ps, parents
from tpumon.xspace.planes import PS_PER_S, Events, Plane
from tpumon.xspace.reader import Ints

_STEP_NUMBER, _FUNCTION_CALL = "step_num", "tf_function_call"
_PJIT = re.compile(r"PjitFunction\(.*\)", re.DOTALL)
# A pipeline's own thread reads ahead; only what the training thread does is waiting. `Iterator::Root` is what
# IteratorGetNextOp waits for, where the latter is not recorded.
_INPUT_WAIT = re.compile(r"IteratorGetNext\w*Op::DoCompute|Iterator::Root(::.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostActivity:
    """What the host's threads tell.

    Attributes:
        periods_s: from each step's start to the next one's; none where no step was found.
        input_wait_s: mean time per step that the training thread waited for TensorFlow's input pipeline; None where
            the trace does not show that.
        window_ps: first and last moment of all events; None where there are none.
    """

    periods_s: tuple[float, ...]
    input_wait_s: float | None
    window_ps: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Events that may be steps.

    Attributes:
        thread: all events of the thread that they are on.
        begin_ps: starts, ascending.
        total_ps: how much time they cover; the greatest wins.
    """

    thread: Events
    begin_ps: Ints
    total_ps: int


def read_host(plane: Plane) -> HostActivity:
    """Finds the steps on the host's threads.

    Events with a step number; else calls of TensorFlow functions; else the outermost calls of jitted JAX functions.
    Of several by one rule, those that take the most time. A step lasts from its start to the next one's: dispatch is
    asynchronous, so the event itself may be far shorter than the step.

    Raises:
        SourceError: `malformed`.
    """
    names = {number: plane.event_name(number) for number in plane.outline.event_metadata}
    threads = [plane.read([line], (_STEP_NUMBER, _FUNCTION_CALL)) for line in plane.lines()]
    window_ps = extent(*((events.begin_ps, events.end_ps) for events in threads))
    rules = (_with_stat(threads, _STEP_NUMBER), _with_stat(threads, _FUNCTION_CALL), _jitted(threads, names))
    longest = (max(candidates, key=lambda candidate: candidate.total_ps, default=None) for candidates in rules)
    best = next((candidate for candidate in longest if candidate is not None and len(candidate.begin_ps) > 1), None)
    if best is None:
        return HostActivity(periods_s=(), input_wait_s=None, window_ps=window_ps)
    periods_s = tuple((np.diff(best.begin_ps) / PS_PER_S).tolist())
    wait_ps = _input_wait_ps(names, best)
    return HostActivity(
        periods_s=periods_s,
        input_wait_s=None if wait_ps is None else wait_ps / PS_PER_S / len(periods_s),
        window_ps=window_ps,
    )


def _with_stat(threads: Sequence[Events], stat: str) -> Iterator[_Candidate]:
    """The events that have a stat, by thread and name."""
    for events in threads:
        if stat in events.stats:
            yield from _by_name(events, events.take(np.unique(events.stats[stat].rows)))


def _jitted(threads: Sequence[Events], names: Mapping[int, str]) -> Iterator[_Candidate]:
    """The outermost calls of jitted functions, by thread and name: JAX records each call twice, one in the other."""
    wanted = [number for number, name in names.items() if _PJIT.fullmatch(name)]
    for events in threads if wanted else ():
        calls = sorted_events(events.take(np.isin(events.metadata_id, wanted)))
        if len(calls):
            yield from _by_name(events, calls.take(parents(calls.end_ps) < 0))


def _by_name(thread: Events, steps: Events) -> Iterator[_Candidate]:
    for number in np.unique(steps.metadata_id).tolist():
        here = steps.metadata_id == number
        begin_ps, end_ps = steps.begin_ps[here], steps.end_ps[here]
        yield _Candidate(thread, np.unique(begin_ps), covered_ps(begin_ps, end_ps))


def _input_wait_ps(names: Mapping[int, str], steps: _Candidate) -> int | None:
    """Time that the training thread waited for input between the first and the last step's start."""
    wanted = [number for number, name in names.items() if _INPUT_WAIT.fullmatch(name)]
    waits = steps.thread.take(np.isin(steps.thread.metadata_id, wanted))
    if not len(waits):
        return None
    first, last = steps.begin_ps[0], steps.begin_ps[-1]
    return covered_ps(np.clip(waits.begin_ps, first, last), np.clip(waits.end_ps, first, last))


def gpu_busy_ps(planes: Sequence[Plane]) -> tuple[int, int]:
    """Time that GPUs ran anything, and time from the first to the last event, each summed over GPUs.

    Raises:
        SourceError: `malformed`.
    """
    busy_ps = total_ps = 0
    for plane in planes:
        events = plane.read(plane.lines())
        if span := extent((events.begin_ps, events.end_ps)):
            busy_ps += covered_ps(events.begin_ps, events.end_ps)
            total_ps += span[1] - span[0]
    return busy_ps, total_ps
