"""The time of one request of a server in a trace: in programs, compiling, between programs, and in the queue."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import BinaryIO, Literal

import numpy as np
from msgspec import Struct

from tpumon.errors import SourceError
from tpumon.xspace.columns.columns import LATEST_PS, PS_PER_NS, PS_PER_S, Ints
from tpumon.xspace.columns.event_decoder import of_kinds, parsed_event
from tpumon.xspace.columns.intervals import covered_ps
from tpumon.xspace.columns.lines import TraceLine
from tpumon.xspace.host_totals import host_totals_of
from tpumon.xspace.planes.plane import TENSOR_CORE_MODULES, TENSOR_CORE_OPS, Plane, named
from tpumon.xspace.planes.space import read_space
from tpumon.xspace.served_programs import tokens_of_batches
from tpumon.xspace.steps.functions import Function
from tpumon.xspace.steps.host_threads import read_compiling
from tpumon.xspace.trace_figures import figures_of_hosts
from tpumon.xspace.wire import stored

_ID = re.compile(r"request_id\d{1,6}")
_MOST_BATCHES, _MOST_IDS = 100_000, 10_000
_Spans = tuple[Ints, Ints]
_Batch = tuple[int, int, bool]

ProgramsSeen = Literal["device", "host", "calls"]
"""What shows when programs ran: a device, ops on the host's own processors, or only the calls."""


class RequestTimes(Struct, frozen=True, kw_only=True):
    """Parts of the time of a request on one host; the four add up to `span_s`.

    A turn lasts from the begin of a batch to the begin of the next one.

    Attributes:
        host: name of the trace's host.
        span_s: from the begin of the first batch that has the request to the end of the last.
        device_s: programs ran, in turns of its batches.
        compile_s: the host traced or compiled, in turns of its batches; not while a device ran programs.
        host_gap_s: neither, in turns of its batches.
        queue_s: turns of batches without it.
        batches: that have the request.
        other_batches: of the span, without it.
        programs: what shows when programs ran; time in calls holds what the host does for them.
        cut: the first or the last batch of the trace has it, so that it may have begun before or gone on after.
        truncated: what the trace lost; programs may then be missing, and gaps too long. None for a whole trace.
    """

    host: str
    span_s: float
    device_s: float
    compile_s: float
    host_gap_s: float
    queue_s: float
    batches: int
    other_batches: int
    programs: ProgramsSeen
    cut: bool
    truncated: str | None


def read_request(xspace: BinaryIO | bytes, request: str, host: str) -> tuple[RequestTimes | None, set[str]]:
    """The time of a request in a trace, None if no batch has it; and the ids that batches have, 10,000 at most.

    Args:
        xspace: the trace, serialized, or a regular file of it.
        request: its id, as the annotations have it.
        host: its name, if the trace does not say.

    Raises:
        SourceError: `malformed`; `empty-trace`, it holds no event, or no program; `too-large`.
    """
    space = read_space(stored(xspace))
    ids: set[str] = set()
    threads = [] if space.host is None else list(_threads(space.host, request, ids))
    batches = max(threads, key=lambda thread: sum(has for *_, has in thread), default=[])
    if space.host is None or not any(has for *_, has in batches):
        return None, ids
    trace = host_totals_of(space)
    runs, programs = _on_cores(space.tensor_cores)
    if not len(runs[0]):
        runs, programs = _of_functions(trace.steps.functions)
    if not len(runs[0]):
        raise SourceError("empty-trace", "the trace shows no program, so not where the time went")
    compiling = read_compiling(space.host)
    with_it = [row for row, (*_, has) in enumerate(batches) if has]
    of_span = batches[with_it[0] : with_it[-1] + 1]
    parts_ps = _parts(of_span, runs, (compiling.begin_ps, compiling.end_ps), on_device=programs == "device")
    return RequestTimes(
        host=next(iter(space.hostnames), host),
        **{f"{part}_s": ps / PS_PER_S for part, ps in parts_ps.items()},
        batches=len(with_it),
        other_batches=len(of_span) - len(with_it),
        programs=programs,
        cut=batches[0][2] or batches[-1][2],
        truncated=figures_of_hosts([trace]).truncated,
    ), ids


def _threads(host: Plane, request: str, ids: set[str]) -> Iterator[list[_Batch]]:
    """Begin and end of each thread's batches, ascending, and whether they have the request; adds to the ids."""
    kinds = tokens_of_batches(host).keys()
    for line in host.lines() if kinds else ():
        batches = sorted(_batches(host, line, kinds, request, ids))
        if batches:
            yield batches


def _batches(host: Plane, line: TraceLine, kinds: Collection[int], request: str, ids: set[str]) -> Iterator[_Batch]:
    numbers = {number: name for number, name in host.stat_names.items() if _ID.fullmatch(name)}
    start_ps, count = (line.timestamp_ns - host.base_ns) * PS_PER_NS, 0
    for packed in (of_kinds(portion, list(kinds)) for portion in line.portions()):
        for event in (parsed_event(packed.event(row)) for row in range(len(packed.begin))):
            begin_ps = start_ps + event.offset_ps
            if event.metadata_id not in kinds or abs(begin_ps) >= LATEST_PS or not 0 <= event.duration_ps < LATEST_PS:
                continue
            if (count := count + 1) > _MOST_BATCHES:
                raise SourceError("too-large", f"a thread of the trace has more than {_MOST_BATCHES:,} batches")
            # An id of digits alone is a number in the trace.
            mine = {str(value) for value in named(event.stats, host.stat_names, numbers).values()}
            if len(ids) < _MOST_IDS:
                ids |= mine
            yield begin_ps, begin_ps + event.duration_ps, request in mine


def _on_cores(cores: Sequence[Plane]) -> tuple[_Spans, ProgramsSeen]:
    """Intervals in which any TensorCore ran a program; of one that the window cuts, only ops are there."""
    lines = [(core, core.lines(name)) for core in cores for name in (TENSOR_CORE_MODULES, TENSOR_CORE_OPS)]
    events = (core.read(mine) for core, mine in lines)
    return _together([(each.begin_ps, each.end_ps) for each in events]), "device"


def _of_functions(functions: Sequence[Function]) -> tuple[_Spans, ProgramsSeen]:
    """Intervals in which the host's processors ran programs or, where not all are known, calls of these."""
    runs = [runs for function in functions for runs in function.places.values()]
    spans = _together([(each.begin_ps, each.begin_ps + each.duration_ps) for each in runs])
    return spans, "host" if all(each.on_device for each in functions) else "calls"


def _together(spans: Sequence[_Spans]) -> _Spans:
    nothing = np.zeros(0, dtype=np.int64)
    begins, ends = zip((nothing, nothing), *spans, strict=True)
    return np.concatenate(begins), np.concatenate(ends)


def _parts(of_span: Sequence[_Batch], runs: _Spans, compiling: _Spans, *, on_device: bool) -> dict[str, int]:
    """The request's time and its parts, in picoseconds; each moment is in one part.

    Args:
        of_span: the batches of a thread from the first one that has the request to the last.
        runs: when programs ran.
        compiling: when the host compiled.
        on_device: whether a device ran them, so that compiling did not stop them; a call holds its own compiling.
    """
    end_ps = max(end for _, end, has in of_span if has)
    begins = np.array([begin for begin, *_ in of_span], dtype=np.int64)
    has = np.array([each[2] for each in of_span], dtype=np.bool_)
    mine = (begins[has], np.append(begins[1:], end_ps)[has])
    span_ps, mine_ps = end_ps - int(begins[0]), covered_ps(*mine)
    runs_ps, compiling_ps = _common_ps(runs, mine), _common_ps(compiling, mine)
    either_ps = _common_ps(_together([runs, compiling]), mine)
    return {
        "span": span_ps,
        "device": runs_ps if on_device else either_ps - compiling_ps,
        "compile": either_ps - runs_ps if on_device else compiling_ps,
        "host_gap": mine_ps - either_ps,
        "queue": span_ps - mine_ps,
    }


def _common_ps(some: _Spans, others: _Spans) -> int:
    """Time that both cover."""
    return covered_ps(*some) + covered_ps(*others) - covered_ps(*_together([some, others]))
