"""Healthy jobs of twelve kinds, for as long as is wanted, in virtual time: each sample is one of a few of its phase."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from msgspec.structs import replace

from support.fleets.courses import BEGIN_S, Stretch, cores_of, stretch, targets
from support.fleets.programs import pipeline, training
from support.fleets.timelines import Conditions, Core
from support.fleets.xspaces import Look
from support.samples import failed_sample
from tpumon.analysis import Analysis
from tpumon.model import SEVERITY_LEVELS, FindingSeverity, Sample, StepTimes, Target, Workers

_MINUTE_S = 60.0
_HOUR_S = 3600.0

Factors = Callable[[random.Random, int], Sequence[float]]
"""How much longer than usual the work of each of so many workers takes in a step."""


def _alike(_draw: random.Random, workers: int) -> Sequence[float]:
    return [1.0] * workers


@dataclass(frozen=True)
class Phase:
    """What a job does at a time.

    Attributes:
        ran: steps of usual length, of which a few traces are read.
        factors: makes each step another one; no two samples are then the same.
    """

    ran: Stretch
    factors: Factors = _alike


Phases = Callable[[float], Phase | None]
"""What a job does so many seconds after its begin; None: nothing runs."""


@dataclass(frozen=True)
class Job:
    """A healthy job.

    Attributes:
        interval_s: from sample to sample, as the default duty leaves it.
    """

    kind: str
    targets: Sequence[Target]
    phases: Phases
    interval_s: float


@dataclass(frozen=True)
class Complaint:
    """A finding above info of a healthy job."""

    kind: str
    worker: str
    finding: str
    severity: str
    at_s: float
    words: str


def complaints(job: Job, hours: float, seed: int) -> list[Complaint]:
    """What is said of a job that is well."""
    return said_of(job.kind, job.targets, _samples(job, hours, random.Random(seed)))


def said_of(
    kind: str, targets: Sequence[Target], samples: Iterable[Sample], *, above: FindingSeverity | None = "info"
) -> list[Complaint]:
    """What is said of a job: each finding of a worker above a severity, once for each time that it appears."""
    now_s = [BEGIN_S]
    analysis = Analysis(monotonic_s=lambda: now_s[0])
    analysis.add(Workers(targets=tuple(targets)))
    least = 0 if above is None else SEVERITY_LEVELS[above]
    said: list[Complaint] = []
    present: dict[str, frozenset[str]] = {}
    for sample in samples:
        now_s[0] = sample.time_unix_s + sample.took_s
        status = analysis.add(sample).status
        assert status is not None
        found = {
            cause.finding: cause for cause in status.verdict.causes
            if cause.finding is not None and SEVERITY_LEVELS[cause.severity] > least
        }  # fmt: skip
        for finding, cause in found.items():
            if finding not in present.get(sample.worker, ()):
                at_s = sample.time_unix_s - BEGIN_S
                said.append(Complaint(kind, sample.worker, finding, cause.severity, at_s, cause.words))
        present[sample.worker] = frozenset(found)
    return said


def _samples(job: Job, hours: float, draw: random.Random) -> Iterator[Sample]:
    for number in range(int(hours * _HOUR_S / job.interval_s)):
        for place, target in enumerate(job.targets):
            at_s = job.interval_s * (number + place / len(job.targets) + draw.uniform(0, 0.1))
            phase = job.phases(at_s)
            if phase is None:
                one = failed_sample("?", "empty-trace", "the trace holds no events")
            else:
                one = _varied(phase, draw.choice(phase.ran.of_worker(place)), place, len(job.targets), at_s, draw)
            yield replace(
                one, worker=target.worker, address=target.address, time_unix_s=BEGIN_S + at_s, job=target.job,
                taken_monotonic_s=BEGIN_S + at_s, slice=target.slice, interval_s=job.interval_s,
            )  # fmt: skip


def _wander(at_s: float) -> float:
    """Steps are not as long by day as by night, by a little."""
    return 1 + 0.008 * math.sin(2 * math.pi * at_s / 86_400) + 0.004 * math.sin(2 * math.pi * at_s / 7_000)


def _varied(phase: Phase, sample: Sample, place: int, workers: int, at_s: float, draw: random.Random) -> Sample:
    """The same window of other steps: whoever has less work in a step waits in its collectives for who has most."""
    figures, times = sample.figures, sample.figures.step_time_s
    if times is None or figures.step_work_s is None or times.count is None:
        return sample
    works = [phase.factors(draw, workers) for _ in range(times.count)]
    pace, usual_s = _wander(at_s), figures.step_work_s
    durations = tuple((times.avg + (max(each) - 1) * usual_s) * pace for each in works)
    step_s, mine = fmean(durations), fmean(each[place] for each in works) * pace
    ratios, cores = figures.op_time_ratios, figures.per_core
    if ratios is not None and figures.idle_ratio is not None:
        shorter = times.avg / step_s
        others = {kind: ratio * shorter * mine for kind, ratio in ratios.items() if kind != "collective"}
        waits = max(0.0, 1 - figures.idle_ratio * shorter - sum(others.values()))
        more = waits - ratios.get("collective", 0.0)
        ratios = others | {"collective": waits}
        cores = tuple(
            replace(core, step_time_s=step_s, collective_ratio=max(0.0, (core.collective_ratio or 0.0) + more))
            for core in cores
        )
    return replace(
        sample,
        figures=replace(
            figures, op_time_ratios=ratios, per_core=cores, step_work_s=usual_s * mine, step_durations_s=durations,
            step_time_s=StepTimes(
                avg=step_s, min=min(durations), max=max(durations), count=times.count,
                stddev=stdev(durations) if len(durations) > 1 else 0.0,
            ),
        ),
    )  # fmt: skip


def _noise(by: float) -> Factors:
    """Each worker's work in each step by itself."""
    return lambda draw, workers: [max(0.2, draw.gauss(1, by)) for _ in range(workers)]


def _training(
    workers: int, seed: int, *, step_s: float = 0.2, noise: float = 0.003, variants: int = 5,
    pace: Callable[[Core, int], float] | None = None, looks: Sequence[Look] = (Look(),), infeed: bool = False,
    windows: float = 2.6, kinds: Sequence[tuple[str, float]] = (("all-reduce", 1.0),), steps: int = 60,
    idle: float = 0.0,
) -> Stretch:  # fmt: skip
    given = Conditions(noise=noise, pause_s=dict.fromkeys(range(workers), idle * step_s))
    if pace is not None:
        given = dataclasses.replace(given, pace=pace)
    if infeed:
        given = dataclasses.replace(given, batch_s=dict.fromkeys(range(workers), 0.5 * step_s))
    program = training(step_s, kinds, infeed=infeed)
    return stretch(
        cores_of(workers), dict.fromkeys(range(workers), program), seed, given=given, looks=lambda _worker: looks,
        variants=variants, windows=windows, steps=steps,
    )  # fmt: skip


def _accumulation(seed: int) -> Job:
    """Seven micro-steps, then an update: two programs."""
    turns = [("jit_micro_step", 11)] * 7 + [("jit_update", 12)]
    look = Look(markers=False, turns=turns)
    ran = _training(
        2, seed, step_s=0.06, looks=[look], windows=10.0 if seed % 2 else 3.5, steps=120, variants=50,
        noise=0.01,
        pace=lambda _core, step: 0.25 if step % 8 == 7 else 1.0,
    )  # fmt: skip
    return Job("accumulation", targets(2), lambda _at: Phase(ran), 60.0)


def _evaluation(seed: int) -> Job:
    trains = Phase(_training(2, seed, kinds=(("all-gather", 0.5), ("reduce-scatter", 0.5))), _noise(0.01))
    look = Look(function="jit_eval_step", program=77)
    evaluates = Phase(_training(2, seed + 1, step_s=0.08, looks=[look]), _noise(0.02))
    return Job("evaluation in turn", targets(2), lambda at: evaluates if at % 1800 > 1600 else trains, 60.0)


def _checkpoints(seed: int) -> Job:
    trains = Phase(_training(4, seed, step_s=0.4), _noise(0.005))
    return Job(
        "checkpoints of 9 minutes", targets(4), lambda at: None if at % _HOUR_S > 51 * _MINUTE_S else trains, 60.0
    )


def _two_phases(seed: int) -> Job:
    """Reinforcement learning: rollouts, then learning from them."""
    learns = Phase(_training(2, seed, step_s=0.5, looks=[Look(function="jit_update_policy", program=5)]), _noise(0.01))
    look = Look(function="jit_decode", program=6, markers=False)
    rolls = Phase(_training(2, seed + 1, step_s=0.03, looks=[look], idle=0.08, windows=4.5), _noise(0.05))
    return Job("two phases", targets(2), lambda at: rolls if at % 360 < 240 else learns, 30.0)


def _lengths(seed: int) -> Job:
    """Sequences of any length, in eight buckets, each a program compiled ahead."""
    draw = random.Random(seed)
    buckets = [draw.choice((0.35, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.5)) for _ in range(64)]
    numbers = {length: 100 + place for place, length in enumerate(sorted(set(buckets)))}
    look = Look(turns=[("jit_train_step", numbers[length]) for length in buckets], markers=bool(seed % 2))
    ran = _training(
        4, seed, pace=lambda _core, step: buckets[step % 64], looks=[look], variants=60, steps=128,
        windows=2.6 if seed % 2 else 3.6,
    )  # fmt: skip
    return Job("variable lengths", targets(4), lambda _at: Phase(ran), 60.0)


def _lognormal(seed: int) -> Job:
    """Sequences of any length in one program: each step is as long on all workers."""
    workers = 1 + 3 * (seed % 2)
    phase = Phase(_training(workers, seed), lambda draw, workers: [math.exp(draw.gauss(0, 0.25))] * workers)
    return Job("lengths in one program", targets(workers), lambda _at: phase, 60.0)


def _pipeline(seed: int) -> Job:
    programs = {stage: pipeline(0.4, stage, 4, batches=6) for stage in range(4)}
    ran = stretch(cores_of(4), programs, seed, given=Conditions(noise=0.01), variants=40, steps=100)
    return Job("pipeline", targets(4), lambda _at: Phase(ran), 60.0)


def _experts(seed: int) -> Job:
    """In each step another worker has the busy expert."""

    def factors(draw: random.Random, workers: int) -> Sequence[float]:
        busy = draw.randrange(workers)
        return [(1.5 if place == busy else 1.0) * draw.gauss(1, 0.005) for place in range(workers)]

    phase = Phase(_training(4, seed, kinds=(("all-to-all", 0.5), ("all-to-all", 0.5))), factors)
    return Job("expert parallel", targets(4), lambda _at: phase, 60.0)


def _inference(seed: int) -> Job:
    """A busy server: decode steps of one program, prefills of several between them."""
    draw = random.Random(seed)
    turns = [("jit_decode", 300)] * 5 + [("jit_prefill", 301 + draw.randrange(6))] + [("jit_decode", 300)] * 4
    ran = _training(
        1, seed, step_s=0.02, noise=0.06, looks=[Look(markers=False, turns=turns)], variants=60, windows=12.0,
        steps=200, pace=lambda _core, step: 3.0 if step % 10 == 5 else 1.0, idle=0.06,
    )  # fmt: skip
    return Job("inference", targets(1, job_kind="serving"), lambda _at: Phase(ran), 30.0)


def _notebook(seed: int) -> Job:
    """Cells that run for some minutes, and a person who thinks between them."""
    draw = random.Random(seed)
    runs = [
        Phase(_training(1, seed + cell, step_s=draw.uniform(0.02, 0.4), looks=[Look(program=cell)]), _noise(0.02))
        for cell in range(4)
    ]  # fmt: skip
    edges: list[tuple[float, Phase | None]] = []
    at_s = 0.0
    while at_s < 40 * 86_400:
        edges.append((at_s, draw.choice(runs)))
        at_s += draw.uniform(60, 900)
        edges.append((at_s, None))
        at_s += draw.choice((20, 60, 200, 540))
    place = [0]

    def phases(at: float) -> Phase | None:
        while place[0] + 1 < len(edges) and edges[place[0] + 1][0] <= at:
            place[0] += 1
        return edges[place[0]][1]

    return Job("notebook", targets(1, job_kind="interactive"), phases, 60.0)


def _fed(seed: int) -> Job:
    phase = Phase(_training(4, seed, infeed=True), _noise(0.02))
    return Job("training by infeed", targets(4), lambda _at: phase, 60.0)


def _plain(seed: int) -> Job:
    kinds = (("all-gather -start/-done", 0.4), ("reduce-scatter", 0.4), ("all-reduce", 0.2))
    workers = 8 if seed % 3 == 0 else 2
    phase = Phase(_training(workers, seed, kinds=kinds), _noise(0.03 if seed % 2 else 0.01))
    return Job("training", targets(workers), lambda _at: phase, 60.0)


JOBS: Mapping[str, Callable[[int], Job]] = {
    "training": _plain, "training by infeed": _fed, "accumulation": _accumulation, "evaluation in turn": _evaluation,
    "checkpoints of 9 minutes": _checkpoints, "two phases": _two_phases, "variable lengths": _lengths,
    "lengths in one program": _lognormal, "pipeline": _pipeline, "expert parallel": _experts, "inference": _inference,
    "notebook": _notebook,
}  # fmt: skip
"""What makes a job of a kind, by a seed."""
