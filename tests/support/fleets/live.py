"""Real jobs of JAX and TensorFlow on a CPU in which causes are put: their traces, as courses of samples."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from support.fleets.courses import INTERVAL_S, Expected, Fleet, Truth, read, targets
from support.jobs import Job
from support.profiler import Profiler
from tpumon.model import Sample

_TRACES = 8  # of each state of a job
_BEFORE = 40
_W0 = frozenset({"w0"})


@dataclass(frozen=True)
class _Cause:
    """What is done to a job, and what must be said of it then.

    Attributes:
        options: of the job, as in jobs/options.py.
        finding: that must be there; empty: nothing.
        level: host tracer level.
        changes: whether the job ran as usual before.
        may: findings that are neither required nor wrong.
        window_ms: of its traces, as long as the product makes it where steps are long.
        seldom: whether chance decides which of its traces show it: the first one that does may come late.
    """

    name: str
    options: Sequence[str]
    finding: str = ""
    level: int = 1
    changes: bool = False
    may: frozenset[str] = frozenset()
    window_ms: int = 400
    seldom: bool = False


_NEAR = frozenset({"input-bound"})  # 4 % of such short steps go into taking the batch
_JAX = (
    _Cause("steps of 8 ms", []),
    _Cause("marked steps of 8 ms", ["--annotate"]),
    _Cause("steps of 60 ms", ["--step-ms", "60"]),
    _Cause("two shapes in turn", ["--program", "shapes"]),
    _Cause("operation by operation", ["--program", "eager"]),
    _Cause("ever new shapes", ["--program", "new-shapes"], "recompiling", window_ms=2000),
    _Cause(
        "a new shape every 40 steps", ["--program", "new-shapes", "--shape-every", "40"], "recompiling", seldom=True
    ),
    _Cause("callbacks of 20 ms", ["--program", "callback"], "host-bound"),
    _Cause("an input of 30 ms, which leaves no events", ["--input-delay-ms", "30"]),
    _Cause("marked steps become longer by half", ["--annotate", "--step-ms", "12"], "slow-down", changes=True),
    _Cause("steps become longer by half", ["--step-ms", "12"], "slow-down", changes=True),
)
_TENSORFLOW = (
    _Cause("steps of 8 ms", [], level=2, may=_NEAR),
    _Cause("marked steps of 8 ms", ["--annotate"], may=_NEAR),
    _Cause("an input of 30 ms", ["--input-delay-ms", "30"], "input-bound", level=2),
    _Cause("an input of 1 ms", ["--input-delay-ms", "1", "--step-ms", "40"], level=2),
    _Cause("steps become longer by half", ["--annotate", "--step-ms", "12"], "slow-down", changes=True, may=_NEAR),
)


def jax(job: Job) -> Iterator[Fleet]:
    """Fleets of one worker, a JAX job."""
    return _fleets("JAX", job, _JAX)


def tensorflow(job: Job) -> Iterator[Fleet]:
    """Fleets of one worker, a TensorFlow job."""
    return _fleets("TensorFlow", job, _TENSORFLOW)


def _fleets(framework: str, job: Job, causes: Sequence[_Cause]) -> Iterator[Fleet]:
    for seed, cause in enumerate(causes):
        usual = [option for option in cause.options if option == "--annotate"]
        before = _taken(job, usual, cause) if cause.changes else []
        after = _taken(job, cause.options, cause)
        onset = _BEFORE if cause.changes else 0
        since_s = None if cause.seldom else onset * INTERVAL_S
        must = {cause.finding: Expected(_W0, since_s=since_s)} if cause.finding else {}
        seen = _course(before, after, onset, random.Random(seed))
        truth = Truth(must, cause.may)
        yield Fleet(f"{framework}, {cause.name}", "live job", targets(1), onset + 40, seen, lambda truth=truth: truth)


def _taken(job: Job, options: Sequence[str], cause: _Cause) -> list[Sample]:
    """Traces of a job while it trains with these options."""
    with job.trained_with(*options), Profiler(job.address) as profiler:
        job.wait_for_more_steps(3)
        answers = [
            profiler.profile(cause.window_ms, session_id=f"table-{number}", host_level=cause.level).result()
            for number in range(_TRACES)
        ]
    return [read(answer.xspace) for answer in answers]


def _course(
    before: Sequence[Sample], after: Sequence[Sample], change: int, draw: random.Random
) -> Callable[[int, int], Sample]:
    return lambda _worker, number: draw.choice(before if number < change else after)
