"""The times of steps: a pure function of the faults, the seed and the time.

Time is divided into chapters of 8 s. A chapter holds a whole number of steps whose lengths come from a hash of seed and
chapter, so that the same seed gives the same job, whatever was asked before. The lengths of the steps model jitter,
their number per chapter the slow drift of the fault `jitter`. Only the numbers of steps depend on the chapters before.

Where faults begin or end, a chapter has several pieces. A fault begins at a border between steps, at most half a step
away from its moment. Around a time without steps, steps keep their length, and what is left over is silence.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby, pairwise
from typing import NamedTuple

from tpumon.simulator.scenario.basics import SECOND, chance, hashed
from tpumon.simulator.scenario.fault_table import KINDS, ActiveFault
from tpumon.simulator.scenario.faults import Fault
from tpumon.simulator.scenario.step_work import Draft, StepWork, Stop

CHAPTER_NS = 8 * SECOND

_DRIFT = 0.03  # of the step time, up and down
_DRIFT_CHAPTERS = 23  # about three minutes
_JITTER = 0.015
_WORST_STOP_LAST: tuple[Stop | None, ...] = (None, "quiet", "checkpoint", "compile", "stuck", "hang", "away", "idle")


class Step(NamedTuple):
    """One step of the whole job.

    Attributes:
        number: counts from the job's start.
        start_ns: since the job's start.
        period_ns: until the next step.
        work: of the job.
        missing: the worker that never begins it; the others wait for it in the collective. None: the step is whole.
    """

    number: int
    start_ns: int
    period_ns: int
    work: StepWork
    missing: int | None = None


class Interval(NamedTuple):
    """A part of a chapter in which the same faults hold; times since the job's start."""

    begin_ns: int
    end_ns: int
    work: StepWork


class _Run(NamedTuple):
    """Pieces in a row with steps, and the number of steps of each."""

    pieces: Sequence[Interval]
    counts: Sequence[int]


@dataclass(slots=True, eq=False)
class Clock:
    """The steps of a job.

    Attributes:
        faults: with their workers and cores.
        seed: of the job.
    """

    faults: tuple[Fault, ...]
    seed: int
    _steps_before: list[int] = field(default_factory=lambda: [0])  # by chapter; grows

    def steps(self, start_ns: int, stop_ns: int) -> Iterator[Step]:
        """Yields every step that overlaps [start_ns, stop_ns)."""
        first = max(start_ns, 0) // CHAPTER_NS
        if first and any(fault.row.stop is not None for fault in self.faults):
            first -= 1  # a step that is never finished may reach into the next chapter
        for chapter in range(first, max(stop_ns, 0) // CHAPTER_NS + 1):
            for step in _chapter(self, chapter):
                if step.start_ns >= stop_ns:
                    return
                if step.start_ns + step.period_ns > start_ns:
                    yield step

    def last_step(self, time_ns: int, *, other_than_missing: int) -> Step | None:
        """The last step that began before a moment and that a worker took part in."""
        chapter = max(time_ns, 0) // CHAPTER_NS
        while chapter >= 0:
            for step in reversed(_chapter(self, chapter)):
                if step.start_ns < time_ns and step.missing != other_than_missing:
                    return step
            chapter = bisect_left(self._steps_before, self._first_number(chapter)) - 1
        return None

    def silences(self, start_ns: int, stop_ns: int) -> Iterator[Interval]:
        """Yields the pieces without steps that overlap [start_ns, stop_ns)."""
        for chapter in range(max(start_ns, 0) // CHAPTER_NS, max(stop_ns, 0) // CHAPTER_NS + 1):
            for piece in self._pieces(chapter):
                if piece.work.stop is not None and piece.begin_ns < stop_ns and piece.end_ns > start_ns:
                    yield piece

    def work(self, time_ns: int) -> StepWork:
        """The work of the job at a moment."""
        return _work(tuple(active for fault in self.faults if (active := fault.at(time_ns)) is not None))

    def _pieces(self, chapter: int) -> list[Interval]:
        begin_ns, end_ns = chapter * CHAPTER_NS, (chapter + 1) * CHAPTER_NS
        edges = {edge for fault in self.faults for edge in fault.edges_ns(begin_ns, end_ns)}
        times = [begin_ns, *sorted(edges), end_ns]
        return [Interval(begin, end, self.work(begin)) for begin, end in pairwise(times)]

    def _nominal_ns(self, work: StepWork, chapter: int) -> float:
        """Length of a step without jitter."""
        if not work.noise:
            return work.period_ns
        drift = 1 + _DRIFT * math.sin(2 * math.pi * (chapter % _DRIFT_CHAPTERS) / _DRIFT_CHAPTERS + phase(self.seed))
        return work.period_ns * drift

    def _runs(self, chapter: int) -> Iterator[_Run | Interval]:
        """The chapter as runs of steps, and pieces without steps."""
        for stopped, group in groupby(self._pieces(chapter), key=lambda piece: piece.work.stop is not None):
            pieces = list(group)
            if stopped:
                yield from pieces
                continue
            whole = pieces[-1].end_ns - pieces[0].begin_ns == CHAPTER_NS
            exact = [(p.end_ns - p.begin_ns) / self._nominal_ns(p.work, chapter) for p in pieces]
            counts = [round(count) if whole else int(count / (1 + _JITTER)) for count in exact]
            yield _Run(pieces, counts)

    def _unfinished(self, piece: Interval) -> bool:
        """True if a step begins here that a worker does not take part in."""
        return piece.work.missing is not None and any(
            fault.row.stop == piece.work.stop and fault.since_ns(piece.begin_ns) == piece.begin_ns
            for fault in self.faults
        )

    def _count(self, chapter: int) -> int:
        """Number of steps of a chapter."""
        return sum(sum(run.counts) if isinstance(run, _Run) else self._unfinished(run) for run in self._runs(chapter))

    def _first_number(self, chapter: int) -> int:
        sums = self._steps_before
        while len(sums) <= chapter:
            sums.append(sums[-1] + self._count(len(sums) - 1))
        return sums[chapter]

    def chapter(self, chapter: int) -> tuple[Step, ...]:
        number, index = self._first_number(chapter), 0
        steps: list[Step] = []
        for run in self._runs(chapter):
            if isinstance(run, Interval):
                if self._unfinished(run):
                    start_ns = steps[-1].start_ns + steps[-1].period_ns if steps else run.begin_ns
                    period_ns = int(self._nominal_ns(run.work, chapter))
                    steps.append(Step(number, start_ns, period_ns, run.work, run.work.missing))
                    number += 1
                continue
            for step in self._run_steps(run, chapter, index):
                steps.append(step._replace(number=number))
                number, index = number + 1, index + 1
        return tuple(steps)

    def _run_steps(self, run: _Run, chapter: int, index: int) -> list[Step]:
        """The steps of a run, not numbered yet; `index` is that of its first step in the chapter."""
        works = [piece.work for piece, count in zip(run.pieces, run.counts, strict=True) for _ in range(count)]
        if not works:
            return []
        longest_ns = works[0].period_ns
        weights = [
            (1 + _JITTER * (2 * chance(self.seed, 7, chapter, index + i) - 1)) * (work.period_ns / longest_ns)
            for i, work in enumerate(works)
        ]
        begin_ns, end_ns = run.pieces[0].begin_ns, run.pieces[-1].end_ns
        if end_ns - begin_ns < CHAPTER_NS:
            length_ns = int(sum(weights) * self._nominal_ns(works[0], chapter))
            if begin_ns > chapter * CHAPTER_NS and end_ns == (chapter + 1) * CHAPTER_NS:
                begin_ns = end_ns - length_ns
            end_ns = begin_ns + length_ns
        scale = (end_ns - begin_ns) / sum(weights)
        steps: list[Step] = []
        done = 0.0
        for i, (work, weight) in enumerate(zip(works, weights, strict=True)):
            start_ns = int(done)
            done += weight * scale
            stop_ns = end_ns - begin_ns if i == len(works) - 1 else int(done)
            steps.append(Step(0, begin_ns + start_ns, stop_ns - start_ns, work))
        return steps


def phase(seed: int) -> float:
    """Phase of the slow waves of a job."""
    return 2 * math.pi * hashed(seed, 5, 0, 0) / (1 << 64)


@lru_cache(maxsize=64)
def clock_of(faults: tuple[Fault, ...], seed: int) -> Clock:
    """The clock of all jobs with these faults and this seed."""
    return Clock(faults, seed)


@lru_cache(maxsize=256)
def _chapter(clock: Clock, chapter: int) -> tuple[Step, ...]:
    return clock.chapter(chapter)


@lru_cache(maxsize=4096)
def _work(actives: tuple[ActiveFault, ...]) -> StepWork:
    draft = Draft()
    for active in actives:
        kind = KINDS[active.kind]
        stop: Stop | None = {"on": kind.stop, "after": "compile", "between": None}[active.phase]
        if _WORST_STOP_LAST.index(stop) > _WORST_STOP_LAST.index(draft.stop):
            draft.stop, draft.missing = stop, active.worker if active.phase == "on" else None
        if kind.change is not None and active.phase != "after":
            kind.change(draft, active)
    return draft.finish()
