"""Healthy jobs of twelve kinds, for as long as is wanted, in virtual time: each sample is one of a few of its phase."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from support.fleets.courses import BEGIN_S, Stretch, cores_of, stretch, targets
from support.fleets.programs import pipeline, training
from support.fleets.timelines import Conditions, Core
from support.fleets.xspaces import Look
from support.samples import failed_sample
from tpumon.analysis import Analysis
from tpumon.model import SEVERITY_LEVELS, Figures, Sample, Target, Workers

_MINUTE_S = 60.0
_HOUR_S = 3600.0

Phases = Callable[[float], Stretch | None]
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
    """What is said of a job that is well: each finding of a worker once for each time that it appears."""
    now_s = [BEGIN_S]
    analysis = Analysis(monotonic_s=lambda: now_s[0])
    analysis.take(Workers(targets=tuple(job.targets)))
    said: list[Complaint] = []
    present: dict[str, frozenset[str]] = {}
    for sample in _samples(job, hours, random.Random(seed)):
        now_s[0] = sample.time_unix_s + sample.took_s
        status = analysis.take(sample).status
        assert status is not None
        found = {
            cause.finding: cause for cause in status.verdict.causes
            if cause.finding is not None and SEVERITY_LEVELS[cause.severity] > SEVERITY_LEVELS["info"]
        }  # fmt: skip
        for finding, cause in found.items():
            if finding not in present.get(sample.worker, ()):
                at_s = sample.time_unix_s - BEGIN_S
                said.append(Complaint(job.kind, sample.worker, finding, cause.severity, at_s, cause.words))
        present[sample.worker] = frozenset(found)
    return said


def _samples(job: Job, hours: float, draw: random.Random) -> Iterator[Sample]:
    for number in range(int(hours * _HOUR_S / job.interval_s)):
        for place, target in enumerate(job.targets):
            at_s = job.interval_s * (number + place / len(job.targets) + draw.uniform(0, 0.1))
            ran = job.phases(at_s)
            if ran is None:
                one = failed_sample("?", "empty-trace", "the trace holds no events")
            else:
                one = _longer(draw.choice(ran.of_worker(place)), _wander(at_s) * draw.gauss(1, 0.002))
            yield replace(
                one, worker=target.worker, address=target.address, time_unix_s=BEGIN_S + at_s, job=target.job,
                taken_monotonic_s=BEGIN_S + at_s, slice=target.slice, interval_s=job.interval_s,
            )  # fmt: skip


def _wander(at_s: float) -> float:
    """Steps are not as long by day as by night, by a little."""
    return 1 + 0.008 * math.sin(2 * math.pi * at_s / 86_400) + 0.004 * math.sin(2 * math.pi * at_s / 7_000)


def _longer(sample: Sample, by: float) -> Sample:
    """The same with all steps longer."""
    figures, times = sample.figures, sample.figures.step_time_s
    longer: dict[str, Any] = {
        name: value * by
        for name in Figures.__struct_fields__
        if name.startswith("step_") and isinstance(value := getattr(figures, name), float)
    }
    if times is not None:
        longer["step_time_s"] = replace(times, avg=times.avg * by, min=times.min * by, max=times.max * by)
    longer["step_durations_s"] = tuple(each * by for each in figures.step_durations_s)
    return replace(sample, figures=replace(figures, **longer))


def _training(
    workers: int, seed: int, *, step_s: float = 0.2, noise: float = 0.01, variants: int = 12,
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
        2, seed, step_s=0.06, looks=[look], windows=10.0 if seed % 2 else 3.5, steps=120, variants=20,
        pace=lambda _core, step: 0.25 if step % 8 == 7 else 1.0,
    )  # fmt: skip
    return Job("accumulation", targets(2), lambda _at: ran, 60.0)


def _evaluation(seed: int) -> Job:
    ran = _training(2, seed, kinds=(("all-gather", 0.5), ("reduce-scatter", 0.5)))
    evaluates = _training(2, seed + 1, step_s=0.08, looks=[Look(function="jit_eval_step", program=77)])
    return Job("evaluation in turn", targets(2), lambda at: evaluates if at % 1800 > 1600 else ran, 60.0)


def _checkpoints(seed: int) -> Job:
    ran = _training(4, seed, step_s=0.4)
    return Job("checkpoints of 9 minutes", targets(4), lambda at: None if at % _HOUR_S > 51 * _MINUTE_S else ran, 60.0)


def _two_phases(seed: int) -> Job:
    """Reinforcement learning: rollouts, then learning from them."""
    learns = _training(2, seed, step_s=0.5, looks=[Look(function="jit_update_policy", program=5)])
    rolls = _training(
        2, seed + 1, step_s=0.03, noise=0.05, looks=[Look(function="jit_decode", program=6, markers=False)], idle=0.08,
        windows=4.5,
    )  # fmt: skip
    return Job("two phases", targets(2), lambda at: rolls if at % 360 < 240 else learns, 30.0)


def _lengths(seed: int) -> Job:
    """Sequences of any length, in eight buckets, each a program compiled ahead."""
    draw = random.Random(seed)
    buckets = [draw.choice((0.35, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.5)) for _ in range(64)]
    numbers = {length: 100 + place for place, length in enumerate(sorted(set(buckets)))}
    look = Look(turns=[("jit_train_step", numbers[length]) for length in buckets], markers=bool(seed % 2))
    ran = _training(
        4, seed, pace=lambda _core, step: buckets[step % 64], looks=[look], variants=40, steps=128,
        windows=2.6 if seed % 2 else 3.6,
    )  # fmt: skip
    return Job("variable lengths", targets(4), lambda _at: ran, 60.0)


def _lognormal(seed: int) -> Job:
    """Sequences of any length in one program."""
    draw = random.Random(seed)
    lengths = [math.exp(draw.gauss(0, 0.25)) for _ in range(256)]
    ran = _training(1, seed, pace=lambda _core, step: lengths[step % 256], variants=60, steps=250)
    return Job("lengths in one program", targets(1), lambda _at: ran, 60.0)


def _pipeline(seed: int) -> Job:
    programs = {stage: pipeline(0.4, stage, 4, batches=6) for stage in range(4)}
    ran = stretch(cores_of(4), programs, seed, given=Conditions(noise=0.01), variants=12, steps=40)
    return Job("pipeline", targets(4), lambda _at: ran, 60.0)


def _experts(seed: int) -> Job:
    draw = random.Random(seed)
    busy = [draw.randrange(4) for _ in range(256)]
    ran = _training(
        4, seed, pace=lambda core, step: 1.5 if busy[step % 256] == core.worker else 1.0, variants=24, steps=120,
        kinds=(("all-to-all", 0.5), ("all-to-all", 0.5)),
    )  # fmt: skip
    return Job("expert parallel", targets(4), lambda _at: ran, 60.0)


def _inference(seed: int) -> Job:
    """A busy server: decode steps of one program, prefills of several between them."""
    draw = random.Random(seed)
    turns = [("jit_decode", 300)] * 5 + [("jit_prefill", 301 + draw.randrange(6))] + [("jit_decode", 300)] * 4
    ran = _training(
        1, seed, step_s=0.02, noise=0.06, looks=[Look(markers=False, turns=turns)], variants=30, windows=12.0,
        steps=200,         pace=lambda _core, step: 3.0 if step % 10 == 5 else 1.0, idle=0.06,
    )  # fmt: skip
    return Job("inference", targets(1), lambda _at: ran, 30.0)


def _notebook(seed: int) -> Job:
    """Cells that run for some minutes, and a person who thinks between them."""
    draw = random.Random(seed)
    runs = [
        _training(1, seed + cell, step_s=draw.uniform(0.02, 0.4), looks=[Look(function=f"jit_{cell}", program=cell)])
        for cell in range(4)
    ]  # fmt: skip
    edges, at_s = [], 0.0
    while at_s < 40 * 86_400:
        edges.append((at_s, draw.choice(runs)))
        at_s += draw.uniform(60, 900)
        edges.append((at_s, None))  # type: ignore[arg-type]
        at_s += draw.choice((20, 60, 200, 540))
    place = [0]

    def phases(at: float) -> Stretch | None:
        while place[0] + 1 < len(edges) and edges[place[0] + 1][0] <= at:
            place[0] += 1
        return edges[place[0]][1]

    return Job("notebook", targets(1), phases, 60.0)


def _fed(seed: int) -> Job:
    ran = _training(4, seed, infeed=True, noise=0.02)
    return Job("training by infeed", targets(4), lambda _at: ran, 60.0)


def _plain(seed: int) -> Job:
    kinds = (("all-gather -start/-done", 0.4), ("reduce-scatter", 0.4), ("all-reduce", 0.2))
    ran = _training(8 if seed % 3 == 0 else 2, seed, kinds=kinds, noise=0.03 if seed % 2 else 0.01)
    return Job("training", targets(8 if seed % 3 == 0 else 2), lambda _at: ran, 60.0)


JOBS: Mapping[str, Callable[[int], Job]] = {
    "training": _plain, "training by infeed": _fed, "accumulation": _accumulation, "evaluation in turn": _evaluation,
    "checkpoints of 9 minutes": _checkpoints, "two phases": _two_phases, "variable lengths": _lengths,
    "lengths in one program": _lognormal, "pipeline": _pipeline, "expert parallel": _experts, "inference": _inference,
    "notebook": _notebook,
}  # fmt: skip
"""What makes a job of a kind, by a seed."""
