"""Runs of programs on the cores of a host, and those of them that have lost ops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from tpumon.xspace.columns.columns import Events, Ints, Mask
from tpumon.xspace.columns.intervals import by_id, indexed, parents, union
from tpumon.xspace.planes.core import CoreLines

_PROGRAM_ID = re.compile(r"\(\d+\)$")
_STEP = "step"
_STUB_RATIO = 0.9  # of the usual length: a run that the window's end cut short is no shorter for lost events
_HEAVY_RATIO = 0.05  # of all time of programs: less, and a program may well have no op
_CONSTANT_RATIO = 0.6  # of a program's runs with the very same number of ops: the others ought to have it too
_MOST_REFERENCES = 100
_MOST_PROGRAMS = 500
_PAIR = 2
_VOUCHED_RATIO = 0.5  # of a program's runs, where the trace says that events were dropped
_SURE = 4  # runs that all have the same number of ops: if the last one has fewer, the line of ops was cut there
_SILENCE_FACTOR, _SILENCE_PS = 1.02, 1_000_000
_NO_RUN = np.zeros(0, dtype=np.int64)


class CoreRuns:
    """The runs of programs on one core, how many ops each has, and when the core was active.

    Attributes:
        name: what messages call the core.
        plane: the core's.
        begin_ps: starts of the runs, ascending.
        end_ps: their ends.
        programs: names of programs.
        functions: the function that each program was compiled from: its name without the program's number.
        runs_of: of each program: its runs, ascending.
        has_ops: whether there is any op.
        ops_of: how many ops each run has: those whose middle lies in it.
        activity: when a program or an op ran: disjoint intervals, ascending.

    Args:
        lines: the core's.
        ops: the core's.
        by_markers: whether step markers stand for runs.
    """

    def __init__(self, lines: CoreLines, ops: Events, *, by_markers: bool) -> None:
        runs = lines.steps if by_markers else lines.modules
        self._lines = lines
        self.name, self.plane = lines.name, lines.plane
        self.begin_ps, self.end_ps = runs.begin_ps, runs.end_ps
        numbers, program = indexed(runs.metadata_id)
        self.programs = [_STEP if by_markers else lines.plane.event_name(number) for number in numbers.tolist()]
        self.functions = [_PROGRAM_ID.sub("", name) for name in self.programs]
        self.runs_of = [rows for _, rows in by_id(program)]
        self.has_ops = len(ops) > 0
        middle_ps = ops.begin_ps + (ops.duration_ps >> 1)
        run = np.searchsorted(self.begin_ps, middle_ps, side="right") - 1
        outside = run < 0
        if len(self):
            outside |= middle_ps > self.end_ps[run]
            self.ops_of = np.bincount(run[~outside], minlength=len(self))
            outside |= (ops.begin_ps < self.begin_ps[run]) | (ops.end_ps > self.end_ps[run])
        else:
            self.ops_of = _NO_RUN
        # Ops within their run add nothing to its activity.
        begins, ends = ops.begin_ps[outside], ops.end_ps[outside]
        self.activity = union(np.concatenate([self.begin_ps, begins]), np.concatenate([self.end_ps, ends]))

    def __len__(self) -> int:
        return len(self.begin_ps)

    @cached_property
    def _innermost(self) -> tuple[Ints, Ints]:
        """Times of ops that hold no others: a loop's own event covers whatever its body lost.

        The ops are read again for this: few traces need it, and keeping all ops takes memory in every one.
        """
        ops = self._lines.read_ops().sorted()
        parent = parents(ops.end_ps)
        holders = np.unique(ops.metadata_id[parent[parent >= 0]])
        inner = ~np.isin(ops.metadata_id, holders)
        return union(ops.begin_ps[inner], ops.end_ps[inner])

    def silence_ps(self, run: int) -> int:
        """The longest time within a run without an innermost op."""
        begins, ends = self._innermost
        begin_ps, end_ps = int(self.begin_ps[run]), int(self.end_ps[run])
        first = int(np.searchsorted(ends, begin_ps, side="right"))
        last = int(np.searchsorted(begins, end_ps, side="left"))
        edges = np.concatenate([[begin_ps], np.stack([begins[first:last], ends[first:last]], axis=1).ravel(), [end_ps]])
        return int((edges[1::2] - edges[::2]).max())

    def tail_ps(self, run: int) -> int:
        """The time from the last innermost op of a run to the run's end."""
        begins, ends = self._innermost
        last = int(np.searchsorted(begins, self.end_ps[run], side="left")) - 1
        end_ps = max(int(ends[last]), int(self.begin_ps[run])) if last >= 0 else int(self.begin_ps[run])
        return max(int(self.end_ps[run]) - end_ps, 0)

    @cached_property
    def last_with_ops(self) -> int:
        """The last run that has ops; -1 if none has."""
        return int(np.flatnonzero(self.ops_of)[-1]) if self.ops_of.any() else -1

    def begins_of(self, function: str) -> Ints:
        """Starts of the runs of a function."""
        return self.begin_ps[self._of.get(function, _NO_RUN)]

    def ends_of(self, function: str) -> Ints:
        """Ends of the runs of a function."""
        return self.end_ps[self._of.get(function, _NO_RUN)]

    @cached_property
    def _of(self) -> dict[str, Ints]:
        """Runs of each function, ascending."""
        parts: dict[str, list[Ints]] = {}
        for function, runs in zip(self.functions, self.runs_of, strict=True):
            parts.setdefault(function, []).append(runs)
        return {name: runs[0] if len(runs) == 1 else np.sort(np.concatenate(runs)) for name, runs in parts.items()}

    @cached_property
    def program_ps(self) -> list[int]:
        """Time of each program."""
        length_ps = self.end_ps - self.begin_ps
        return [int(length_ps[runs].sum()) for runs in self.runs_of]


def function_times_ps(cores: Sequence[CoreRuns]) -> Counter[str]:
    """Time of each function on all cores together."""
    times_ps = Counter[str]()
    for core in cores:
        for function, time_ps in zip(core.functions, core.program_ps, strict=True):
            times_ps[function] += time_ps
    return times_ps


def heaviest_function(cores: Sequence[CoreRuns]) -> str | None:
    """The function that takes the most time on all cores together; None where nothing ran."""
    times_ps = function_times_ps(cores)
    return max(times_ps, key=lambda name: times_ps[name], default=None)


class ProgramRuns(Struct, frozen=True, eq=False):
    """All runs of one program on all cores.

    Attributes:
        core: of each run: position of its core.
        run: of each run: its index on its core.
        ops: how many ops each has.
        length_ps: how long each took.
        at_edge: whether it is the first or last run of its core.
    """

    core: Ints
    run: Ints
    ops: Ints
    length_ps: Ints
    at_edge: Mask


def programs_of(cores: Sequence[CoreRuns]) -> list[ProgramRuns]:
    """The programs that take the most time; of more than that no trace is made."""
    total_ps = Counter[str]()
    for core in cores:
        for name, time_ps in zip(core.programs, core.program_ps, strict=True):
            total_ps[name] += time_ps
    kept = {name for name, _ in total_ps.most_common(_MOST_PROGRAMS)}
    runs: dict[str, list[tuple[int, Ints]]] = {}
    for position, core in enumerate(cores):
        for name, rows in zip(core.programs, core.runs_of, strict=True):
            if name in kept:
                runs.setdefault(name, []).append((position, rows))
    return [
        ProgramRuns(
            core=np.concatenate([np.full(len(rows), position) for position, rows in parts]),
            run=np.concatenate([rows for _, rows in parts]),
            ops=np.concatenate([cores[position].ops_of[rows] for position, rows in parts]),
            length_ps=np.concatenate([(cores[p].end_ps - cores[p].begin_ps)[rows] for p, rows in parts]),
            at_edge=np.concatenate([(rows == 0) | (rows == len(cores[p]) - 1) for p, rows in parts]),
        )
        for parts in runs.values()
    ]


def runs_without_ops(cores: Sequence[CoreRuns], programs: Sequence[ProgramRuns]) -> list[Mask]:
    """For each core, which of its runs have no op although they ought to have.

    A program whose other runs have ops ought to; one that never has any ought to if it takes a good part of the time.
    A run that the window cut short, the first or last of its core, may have none.
    """
    lost = [np.zeros(len(core), dtype=np.bool_) for core in cores]
    whole_ps = sum(int(program.length_ps.sum()) for program in programs)
    for program in programs:
        some = program.ops > 0
        if not some.any() and program.length_ps.sum() <= _HEAVY_RATIO * whole_ps:
            continue
        usual_ps = float(np.median(program.length_ps[some])) if some.any() else 0.0
        stub = program.at_edge & (program.length_ps < _STUB_RATIO * usual_ps)
        gone = ~some & (program.length_ps > 0) & ~stub
        for position, runs in by_id(program.core[gone]):
            lost[position][program.run[gone][runs]] = True
    return lost


def runs_with_fewer_ops(cores: Sequence[CoreRuns], programs: Sequence[ProgramRuns], *, strict: bool) -> list[Mask]:
    """For each core, which of its runs have fewer ops than the program's others, and silence in their place.

    Args:
        cores: of one host.
        programs: theirs.
        strict: whether fewer ops alone are enough, because the trace says that events were dropped.
    """
    lost = [np.zeros(len(core), dtype=np.bool_) for core in cores]
    for program in programs:
        some = program.ops > 0
        if some.sum() < _PAIR:
            continue
        by_median = not strict and some.sum() > _PAIR
        usual = int(np.median(program.ops[some])) if by_median else int(program.ops.max())
        same = float((program.ops[some] == usual).mean())
        if strict and same < _VOUCHED_RATIO:
            usual += 1  # too few runs agree for any of them to vouch for the others
        elif by_median and same < _CONSTANT_RATIO:
            continue
        fewer = np.flatnonzero(some & (program.ops < usual))
        if not len(fewer):
            continue
        full = np.flatnonzero(program.ops >= usual)[:_MOST_REFERENCES]
        quiet_ps = max((cores[program.core[i]].silence_ps(int(program.run[i])) for i in full), default=0)
        usual_ps = float(np.median(program.length_ps[full])) if len(full) else 0.0
        for i in fewer.tolist():
            position, run = int(program.core[i]), int(program.run[i])
            if program.at_edge[i] and program.length_ps[i] < _STUB_RATIO * usual_ps:
                continue
            silent = cores[position].silence_ps(run) > _SILENCE_FACTOR * quiet_ps + _SILENCE_PS
            lost[position][run] = strict or silent or _is_cut(cores, program, full, i)
    return lost


def _is_cut(cores: Sequence[CoreRuns], program: ProgramRuns, full: Ints, i: int) -> bool:
    """True if the line of ops ends within a core's last run: too early, though the run is as long as others.

    A run that the window's end cut short is shorter, and its ops go on to its end.
    """
    position, run = int(program.core[i]), int(program.run[i])
    if len(full) < _SURE or run < cores[position].last_with_ops or program.length_ps[i] < program.length_ps[full].min():
        return False
    tail_ps = max(cores[program.core[j]].tail_ps(int(program.run[j])) for j in full)
    return bool(cores[position].tail_ps(run) > _SILENCE_FACTOR * tail_ps + _SILENCE_PS)


def runs_beside(cores: Sequence[CoreRuns], programs: Sequence[ProgramRuns], lost: Sequence[Mask]) -> list[Mask]:
    """The neighbours of lost runs that no other run vouches for: their ops may have been cut as well.

    Args:
        cores: of one host.
        programs: theirs.
        lost: for each core, which of its runs have no op at all.
    """
    beside = []
    for core, gone in zip(cores, lost, strict=True):
        after_one = np.concatenate([[False], gone[:-1]]) if len(gone) else gone
        before_one = np.concatenate([gone[1:], [False]]) if len(gone) else gone
        beside.append((after_one | before_one) & (core.ops_of > 0) & ~gone)
    for program in programs:
        is_near = np.zeros(len(program.run), dtype=np.bool_)
        for position, here in by_id(program.core):
            is_near[here] = beside[position][program.run[here]]
        others = program.ops[~is_near]
        vouched = is_near & (program.ops >= others.max(initial=0)) if others.any() else np.zeros_like(is_near)
        for i in np.flatnonzero(vouched).tolist():
            beside[program.core[i]][program.run[i]] = False
    return beside
