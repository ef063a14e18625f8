"""What happens to a fleet over time, and the samples of its workers: traces read by the product's own decoder."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from msgspec.structs import replace

from support.fleets.timelines import Conditions, Core, Programs, Step, run
from support.fleets.xspaces import EPOCH_NS, Look, trace
from support.samples import failed_sample
from tpumon.errors import SourceError
from tpumon.model import JobKindName, Sample, Target
from tpumon.xspace.trace_figures import read_figures

BEGIN_S = EPOCH_NS / 1e9
INTERVAL_S = 10.0
_VARIANTS = 4  # windows that are cut of one stretch of a worker


@dataclass
class Stretch:
    """A time in which the conditions of a fleet stay the same.

    Attributes:
        run: tells what the cores do.
        windows: the window of each trace of a worker, in steps.
        looks: how the traces of a worker are taken, one after the other; by default whole ones of one program.
    """

    run: Callable[[], Mapping[Core, list[Step]]]
    windows: float
    looks: Callable[[int], Sequence[Look]]
    draw: random.Random
    variants: int
    _read: dict[int, list[Sample]] = field(default_factory=dict)

    @cached_property
    def cores(self) -> Mapping[Core, list[Step]]:
        """What they do; made when it is asked for."""
        return self.run()

    @property
    def step_s(self) -> float:
        """From start to start of the steps, on average."""
        steps = next(iter(self.cores.values()))
        return (steps[-1].begin_s - steps[0].begin_s) / (len(steps) - 1)

    def of_worker(self, worker: int) -> list[Sample]:
        """What is seen of a worker: the same few windows again and again."""
        if worker not in self._read:
            looks = self.looks(worker)
            self._read[worker] = [
                self._sample(worker, looks[number % len(looks)]) for number in range(max(self.variants, len(looks)))
            ]
        return self._read[worker]

    def _sample(self, worker: int, look: Look) -> Sample:
        mine = {core: steps for core, steps in self.cores.items() if core.worker == worker}
        steps = next(iter(mine.values()))
        window_s = max(0.1, self.windows * self.step_s)
        begin_s = self.draw.uniform(steps[0].begin_s, max(steps[-1].begin_s - window_s, steps[0].begin_s))
        return read(trace(mine, begin_s, begin_s + window_s, look))


def read(xspace: bytes) -> Sample:
    """What the product makes of a trace; a worker, a time and a place are still to be given."""
    try:
        found = read_figures(xspace, 0)
    except SourceError as error:
        return failed_sample("?", error.reason, error.message)
    return Sample(
        worker="?", address="?", time_unix_s=0.0, window_s=found.window_s, took_s=found.window_s + 0.05,
        traced_s=found.window_s + 0.05, interval_s=INTERVAL_S, source="trace", device_type=found.device_type,
        cores=found.core_count, figures=found.figures, truncated=found.truncated, warnings=found.warnings,
    )  # fmt: skip


def stretch(
    cores: Sequence[Core], programs: Programs, seed: int, *, given: Conditions | None = None, steps: int = 24,
    looks: Callable[[int], Sequence[Look]] = lambda _worker: (Look(),), windows: float = 2.6,
    variants: int = _VARIANTS,
) -> Stretch:  # fmt: skip
    """Lets the job run for some steps under these conditions."""
    draw = random.Random(seed)
    settles = 3 + len(cores) // 4  # until who waits for a neighbour's neighbour does

    def ran() -> Mapping[Core, list[Step]]:
        done = run(cores, programs, steps + settles, given or Conditions(), draw)
        return {core: done[core][settles:] for core in cores}

    return Stretch(ran, windows, looks, draw, variants)


@dataclass(frozen=True)
class Expected:
    """A finding that must be there at the end.

    Attributes:
        workers: who it must name, all of them and no other; None: it is of the whole job, and names anybody.
        since_s: since when, from the begin of the course; None: not looked at.
        severities: those that are true.
    """

    workers: frozenset[str] | None = None
    since_s: float | None = None
    severities: frozenset[str] = frozenset({"info", "warning", "critical"})


@dataclass(frozen=True)
class Truth:
    """What is true of a fleet.

    Attributes:
        must: findings that must be there at the end.
        may: findings that are neither required nor wrong, since the figures are near a limit or definitions leave room.
        at_most: the worst severity that a finding may have.
        only: workers whom a finding may name that is not required.
    """

    must: Mapping[str, Expected] = field(default_factory=dict)
    may: frozenset[str] = frozenset()
    at_most: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Fleet:
    """A course of samples, and what is true of it.

    Attributes:
        name: unique.
        kind: what it is about.
        targets: its workers.
        rounds: how many samples of each.
        sample: what is seen of a worker in a round; None: no sample comes.
        truth: tells what is true of it.
    """

    name: str
    kind: str
    targets: tuple[Target, ...]
    rounds: int
    sample: Callable[[int, int], Sample | None]
    truth: Callable[[], Truth]
    interval_s: float = INTERVAL_S

    def samples(self, number: int) -> list[Sample]:
        """Those of a round, in order of time."""
        taken = []
        for place, target in enumerate(self.targets):
            one = self.sample(place, number)
            if one is not None:
                at_s = BEGIN_S + self.interval_s * (number + place / len(self.targets))
                taken.append(
                    replace(
                        one, worker=target.worker, address=target.address, time_unix_s=at_s, taken_monotonic_s=at_s,
                        job=target.job, slice=target.slice, interval_s=self.interval_s,
                    )
                )  # fmt: skip
        return taken


def targets(
    workers: int, slices: int = 1, *, labelled: bool = True, job_kind: JobKindName = "training"
) -> tuple[Target, ...]:
    """The workers of a job, slice after slice."""
    each = workers // slices
    return tuple(
        Target(
            worker=f"w{number}", address=f"w{number}:8466", job="j", job_kind=job_kind,
            slice=f"s{number // each}" if labelled else None,
            slice_workers=each if labelled else workers, job_slices=slices if labelled else 1,
        )
        for number in range(workers)
    )  # fmt: skip


def cores_of(workers: int, chips: int = 1, slices: int = 1) -> list[Core]:
    """The cores of a job, worker after worker."""
    each = workers // slices
    return [Core(worker, number, worker // each) for worker in range(workers) for number in range(chips)]


def course(before: Stretch, after: Stretch | None, change: int, draw: random.Random) -> Callable[[int, int], Sample]:
    """One stretch, and from a round on another one."""

    def sample(worker: int, number: int) -> Sample:
        now = before if after is None or number < change else after
        seen = now.of_worker(worker)
        return draw.choice(seen)

    return sample
