"""What the host's threads spend time on that may keep devices waiting: compiling, input, callbacks to Python."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tpumon.xspace.columns.intervals import among, covered_ps
from tpumon.xspace.columns.timeline import Events, join
from tpumon.xspace.planes.plane import Plane

# As JAX 0.6 to 0.10 and TensorFlow 2.21 name what traces, lowers and compiles a function.
_COMPILING = re.compile(
    r"backend_compile\w*|lower_sharding_computation|trace_to_jaxpr\w*|tf\.function-graph_building|"
    r"\w*Client::Compile\w*|\w*Compiler::(?:RunBackend|RunHloPasses|Compile\w*)"
)
# The ops by which programs of JAX 0.10 on a CPU call Python.
_CALLBACK = re.compile(r"(?:(?:pure|io|debug)_callback|debug_print)(?:\.\d+)?")
# A pipeline's own thread reads ahead; only what the training thread does is waiting. `Iterator::Root` is what
# IteratorGetNextOp waits for, where the latter is not recorded.
_INPUT_WAIT = re.compile(r"IteratorGetNext\w*Op::DoCompute|Iterator::Root(::.*)?", re.DOTALL)
_GET_NEXT = re.compile(r"IteratorGetNext\w*Op::DoCompute")
_EAGER_GET_NEXT = re.compile(r"IteratorGetNext\w*")  # all that level 1 shows of a loop in Python
EAGER_OP = "eager_op"
"""Stat of an op that TensorFlow runs eagerly: a reference to its kind."""
_ASKS = (b"IteratorGetNext", b"Iterator::Root")  # in names of events that show a wait for input
_MOST_NAMES = 100  # each thread is asked for all of them
_TENSORFLOW_THREAD = "tf_"  # how the names of TensorFlow's own threads begin


def may_show_input(plane: Plane) -> bool:
    """Whether any event may be one of waiting for input; decided without reading the events."""
    named = (ask in raw for raw in plane.metadata_by_id.values() for ask in _ASKS)
    return EAGER_OP in plane.stat_names.values() or any(named)


def read_compiling(plane: Plane) -> Events:
    """When the host's threads traced, lowered or compiled a function; their other events are not looked at.

    Raises:
        SourceError: `malformed`.
    """
    wanted = _numbers({number: plane.event_name(number) for number in plane.metadata_by_id}, _COMPILING)
    return plane.read_kinds(plane.lines(), wanted)


def compiling_ps(threads: Sequence[Events], names: Mapping[int, str]) -> int:
    """Time in which any thread traced, lowered or compiled a function."""
    return _spent_ps(threads, _numbers(names, _COMPILING))


def callbacks_ps(threads: Sequence[Events], names: Mapping[int, str]) -> int:
    """Time in which any thread ran an op that calls Python."""
    return _spent_ps(threads, _numbers(names, _CALLBACK))


def _spent_ps(threads: Sequence[Events], wanted: Sequence[int]) -> int:
    picked = join([_of_kind(events, wanted) for events in threads])
    return covered_ps(picked.begin_ps, picked.end_ps)


def input_waits(
    threads: Sequence[Events],
    titles: Sequence[str],
    place: int | None,
    names: Mapping[int, str],
    stat_names: Mapping[int, str],
) -> Events | None:
    """When the training thread waits for TensorFlow's input pipeline; None if no event shows that.

    A compiled loop asks for its input in threads of TensorFlow's, while the training thread waits for the loop.

    Args:
        threads: events of each, with the stat EAGER_OP.
        titles: names of the threads.
        place: position of the training thread; None if there is none.
        names: of events, by metadata id.
        stat_names: of stats, by metadata id.
    """
    waits = None
    if place is not None:
        waits = join(
            [_of_kind(threads[place], _numbers(names, _INPUT_WAIT)), _eagerly_asked(threads[place], stat_names)]
        )
    if waits is None or not len(waits):
        theirs = (title.startswith(_TENSORFLOW_THREAD) for title in titles)
        asking = _numbers(names, _GET_NEXT)
        waits = join([_of_kind(events, asking) for events, own in zip(threads, theirs, strict=True) if own])
    return waits if len(waits) else None


def _eagerly_asked(thread: Events, stat_names: Mapping[int, str]) -> Events:
    """The ops of a loop in Python that ask for input."""
    column = thread.stats.get(EAGER_OP)
    if column is None:
        return join([])
    return thread.bare().take(among(column.integers(), _numbers(stat_names, _EAGER_GET_NEXT)))


def _numbers(names: Mapping[int, str], pattern: re.Pattern[str]) -> list[int]:
    """Metadata ids of the events of such a name, as many as a host may have."""
    return [number for number, name in names.items() if pattern.fullmatch(name)][:_MOST_NAMES]


def _of_kind(events: Events, wanted: Sequence[int]) -> Events:
    return events.bare().take(among(events.metadata_id, wanted))
