"""What each core of a job does when, by the order of its program and by whom it has to wait for."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from support.fleets.programs import Part

_SOON_S = 2e-6  # what an op takes that waits for nothing
_AHEAD = 2  # batches that the host prepares


@dataclass(frozen=True)
class Core:
    """A TensorCore; each is a chip."""

    worker: int
    number: int
    slice: int = 0


@dataclass(frozen=True)
class Ran:
    """An op that ran."""

    part: Part
    begin_s: float
    end_s: float


@dataclass
class Step:
    """One run of the program on one core."""

    number: int
    begin_s: float
    end_s: float = 0.0
    ops: list[Ran] = field(default_factory=list)


def _usual(_core: Core, _step: int) -> float:
    return 1.0


@dataclass(frozen=True)
class Conditions:
    """What makes cores differ.

    Attributes:
        pace: how much longer than usual the work of a core takes in a step.
        batch_s: what the host of a worker takes to prepare a batch.
        pause_s: between the steps of a worker, for its host.
        noise: coefficient of variation of each core's work.
    """

    pace: Callable[[Core, int], float] = _usual
    batch_s: Mapping[int, float] = field(default_factory=dict)
    pause_s: Mapping[int, float] = field(default_factory=dict)
    noise: float = 0.004


Programs = Mapping[int, Sequence[Part]]
"""The program of each worker."""


def run(
    cores: Sequence[Core], programs: Programs, steps: int, given: Conditions, draw: random.Random
) -> Mapping[Core, list[Step]]:
    """Lets a job run from time 0. No core goes on before those have arrived whom it waits for."""
    meeting = _Meeting(cores)
    done: dict[Core, list[Step]] = {core: [] for core in cores}
    going = {core: _course(core, programs[core.worker], steps, given, meeting, draw, done[core]) for core in cores}
    waiting = {core: next(course, None) for core, course in going.items()}
    while any(key is not None for key in waiting.values()):
        moved = False
        for core, key in waiting.items():
            if key is not None and meeting.complete(key):
                waiting[core], moved = next(going[core], None), True
        assert moved, f"nobody can go on: {waiting}"
    return done


Key = tuple[tuple[Core, ...], int, str]


class _Meeting:
    """When who arrived where."""

    def __init__(self, cores: Sequence[Core]) -> None:
        self.cores = cores
        self._arrived: dict[tuple[int, str], dict[Core, float]] = {}
        self._groups: dict[tuple[Core, str], tuple[Core, ...]] = {}

    def group(self, core: Core, among: str) -> tuple[Core, ...]:
        if (core, among) not in self._groups:
            self._groups[core, among] = tuple(self._find(core, among))
        return self._groups[core, among]

    def _find(self, core: Core, among: str) -> list[Core]:
        mine = [other for other in self.cores if other.slice == core.slice]
        if among == "ring":
            place = mine.index(core)
            return [mine[(place + offset) % len(mine)] for offset in (-1, 0)]
        if among == "chips":
            return [other for other in mine if other.worker == core.worker]
        return mine if among == "slice" else list(self.cores)

    def peer(self, core: Core, offset: int) -> Core:
        """The core with its number of another worker; the last one's next is the first."""
        workers = sorted({other.worker for other in self.cores if other.slice == core.slice})
        wanted = workers[(workers.index(core.worker) + offset) % len(workers)]
        return next(other for other in self.cores if (other.worker, other.number) == (wanted, core.number))

    def arrive(self, core: Core, step: int, name: str, at_s: float) -> None:
        self._arrived.setdefault((step, name), {})[core] = at_s

    def complete(self, key: Key) -> bool:
        arrived = self._arrived.get(key[1:], {})
        return all(core in arrived for core in key[0])

    def last_s(self, key: Key) -> float:
        return max(self._arrived[key[1:]][core] for core in key[0])


def _course(
    core: Core, program: Sequence[Part], steps: int, given: Conditions, meeting: _Meeting, draw: random.Random,
    done: list[Step],
) -> Generator[Key, None, None]:  # fmt: skip
    now_s, ready_s, taken = draw.uniform(0, 1e-5), 0.0, [0.0] * _AHEAD
    for number in range(steps):
        step = Step(number, now_s)
        pace = given.pace(core, number) * max(0.05, draw.gauss(1, given.noise))
        for part in program:
            begin_s = now_s
            if part.what == "work":
                now_s += part.seconds * (pace if part.varies else 1.0)
            elif part.what == "pause":
                now_s += part.seconds
                continue
            elif part.what == "input":
                ready_s = max(ready_s, taken[-_AHEAD]) + given.batch_s.get(core.worker, 0.0)
                now_s = max(now_s + _SOON_S, ready_s)
                taken.append(now_s)
            elif part.what in {"start", "send"}:
                meeting.arrive(core, number, part.name.replace("-start", "").removeprefix("send."), now_s)
                now_s += part.seconds
            else:
                if part.what == "collect":
                    meeting.arrive(core, number, part.name, now_s)
                key = _awaited(core, number, part, meeting)
                yield key
                now_s = max(now_s + _SOON_S, meeting.last_s(key) + part.seconds)
            step.ops.append(Ran(part, begin_s, now_s))
        step.end_s = now_s
        done.append(step)
        now_s += given.pause_s.get(core.worker, 0.0) + draw.uniform(2e-6, 6e-6)


def _awaited(core: Core, step: int, part: Part, meeting: _Meeting) -> Key:
    if part.what == "recv":
        return ((meeting.peer(core, part.peer),), step, part.name)
    return (meeting.group(core, part.among), step, part.name.replace("-done", ""))
