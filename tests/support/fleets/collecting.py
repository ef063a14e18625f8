"""Fleets in which workers wait for each other: stragglers, slow cores and slices, and jobs that wait by design."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from support.fleets.courses import INTERVAL_S, Expected, Fleet, Stretch, Truth, cores_of, course, stretch, targets
from support.fleets.programs import COLLECTIVES, Among, Part, pipeline, slower, training
from support.fleets.timelines import Conditions, Core
from support.fleets.truths import shown
from support.fleets.xspaces import Look
from tpumon.model import Target

MIXES: Mapping[str, tuple[tuple[str, float], ...]] = {
    **{kind: ((kind, 1.0),) for kind in COLLECTIVES},
    "all-gather and all-reduce, 50/50": (("all-gather", 0.5), ("all-reduce", 0.5)),
    "all-gather and all-reduce, 80/20": (("all-gather", 0.8), ("all-reduce", 0.2)),
    "all-reduce and all-gather, 80/20": (("all-reduce", 0.8), ("all-gather", 0.2)),
    "FSDP": (("all-gather -start/-done", 0.4), ("reduce-scatter", 0.4), ("all-reduce", 0.2)),
    "tensor parallel": (("all-gather", 0.25), ("reduce-scatter", 0.25), ("all-gather", 0.25), ("reduce-scatter", 0.25)),
}


def fleet(
    name: str, kind: str, workers: Sequence[Target], before: Stretch, after: Stretch | None = None, *,
    change: int = 0, rounds: int = 14, seed: int = 1, inject: Mapping[str, Expected] | None = None,
    may: Sequence[str] = (), only: Mapping[str, frozenset[str]] | None = None, interval_s: float = INTERVAL_S,
) -> Fleet:  # fmt: skip
    """A fleet of one stretch or two; what follows from shares of the time is worked out."""
    names = [each.worker for each in workers]

    def truth() -> Truth:
        must, near = shown(before if after is None else after, names)
        must, allowed = {finding: each for finding, each in must.items() if finding not in may}, set(near)
        if after is not None:
            earlier, near_earlier = shown(before, names)
            allowed |= near_earlier | {finding for finding in earlier if finding not in must}
            must = {
                finding: Expected(each.workers, since_s=0.0 if finding in earlier else change * interval_s)
                for finding, each in must.items()
            }
        must |= inject or {}
        return Truth(must, frozenset(allowed.union(may) - must.keys()), only=only or {})

    seen = course(before, after, change, random.Random(seed))
    return Fleet(name, kind, tuple(workers), rounds, seen, truth, interval_s)


def _straggler(worker: int, by: float) -> Conditions:
    return Conditions(pace=lambda core, _step: by if core.worker == worker else 1.0)


def _shape(number: int) -> tuple[int, int, float]:
    """Workers, chips of each, and the step: four sizes in turn."""
    workers = (2, 4, 8, 16)[number % 4]
    return workers, (4, 2, 1, 1)[number % 4], (0.08, 0.25, 0.6, 0.15)[(number // 4) % 4]


def stragglers() -> Iterator[Fleet]:
    """One worker with more work of its own, for each kind of collective and size; and the same job without."""
    for number, (kind, mix) in enumerate(MIXES.items()):
        for size, excess in enumerate((0.8, 0.1, 0.3, 0.15)):
            workers, chips, step_s = _shape(number + size)
            program = training(step_s, mix, infeed=size == 1)
            given = dict.fromkeys(range(workers), program)
            cores, who = cores_of(workers, chips), (number * 7 + size) % workers
            markers = bool((number + size) % 3)
            taken = _Taken(_looks(markers=markers, stubs=bool(size % 2)), 2.6 if markers else 3.6)
            before = stretch(cores, given, number * 10 + size, looks=taken.looks, windows=taken.windows)
            after = stretch(
                cores, given, number * 10 + size + 5, looks=taken.looks, windows=taken.windows,
                given=_straggler(who, 1 + excess),
            )  # fmt: skip
            at_once = size == 0
            change = 0 if at_once else 8
            yield fleet(
                f"{kind}: w{who} of {workers} has {excess:.0%} more work", "straggler", targets(workers),
                after if at_once else before, None if at_once else after, change=change, seed=number,
                inject={"straggler": Expected(frozenset({f"w{who}"}), since_s=change * INTERVAL_S)},
                may=["slow-down"],
            )  # fmt: skip
            if size in {0, 2}:
                yield fleet(f"{kind}: {workers} equal workers", "equal workers", targets(workers), before, seed=number)


class _Taken(NamedTuple):
    looks: Callable[[int], Sequence[Look]]
    windows: float


def _looks(**given: bool) -> Callable[[int], Sequence[Look]]:
    look = Look(**given)  # type: ignore[arg-type]
    return lambda _worker: (look,)


def slow_parts() -> Iterator[Fleet]:
    """One core, or all cores of one slice of two."""
    for number, (kind, mix) in enumerate(MIXES.items()):
        program = training(0.2, mix)
        cores = cores_of(4, 4)
        given = Conditions(pace=lambda core, _step: 1.4 if (core.worker, core.number) == (2, 1) else 1.0)
        after = stretch(cores, dict.fromkeys(range(4), program), 700 + number, given=given)
        yield fleet(
            f"{kind}: one core of w2 is slow", "slow core", targets(4), after, seed=number,
            inject={"straggler": Expected(frozenset({"w2"}), since_s=0.0)},
        )  # fmt: skip
    for number, labelled in enumerate((True, False, True, True, False)):
        by = (1.3, 1.3, 1.15, 1.8, 1.8)[number]
        cores, program = cores_of(4, 2, slices=2), _two_levels(0.2)
        given = Conditions(pace=lambda core, _step, by=by: by if core.slice else 1.0)
        after = stretch(cores, dict.fromkeys(range(4), program), 750 + number, given=given)
        words = "labelled" if labelled else "without labels"
        yield fleet(
            f"two slices, {words}: the second has {by - 1:.0%} more work", "slow slice",
            targets(4, 2, labelled=labelled), after, seed=number,
            inject={"straggler": Expected(frozenset({"w2", "w3"}), since_s=0.0)},
        )  # fmt: skip
    for number, by in enumerate((1.2, 1.5, 1.8, 1.0)):
        ran = stretch(
            cores_of(4, 1, slices=2), dict.fromkeys(range(4), _two_levels(0.2, by_network=True)), 760 + number,
            given=Conditions(pace=lambda core, _step, by=by: by if core.slice else 1.0),
        )  # fmt: skip
        inject = {"straggler": Expected(frozenset({"w2", "w3"}), since_s=0.0)} if by > 1 else {}
        yield fleet(
            f"two slices that send and receive: the second has {by - 1:.0%} more work", "slow slice", targets(4, 2),
            ran, seed=number, inject=inject,
        )  # fmt: skip
    for number, by in enumerate((1.2, 1.5, 1.8)):
        cores, program = cores_of(8, 1, slices=2), _two_levels(0.2)
        given = Conditions(pace=lambda core, _step, by=by: by if core.worker == 5 else 1.0)
        after = stretch(cores, dict.fromkeys(range(8), program), 770 + number, given=given)
        yield fleet(
            f"two slices: w5 of the second has {by - 1:.0%} more work", "straggler of two slices", targets(8, 2),
            after, seed=number, inject={"straggler": Expected(frozenset({"w5"}), since_s=0.0)},
        )  # fmt: skip


def _two_levels(step_s: float, *, by_network: bool = False) -> list[Part]:
    """A step that collects within the slice, then between slices, or sends and receives between them."""
    inner, outer = training(step_s, (("reduce-scatter", 1.0),)), training(step_s, (("all-reduce", 1.0),), among="job")
    between = [part for part in outer if part.what == "collect"]
    if by_network:
        between = [
            Part("start", "send", 3e-6, "dcn-start.1", among="job"),
            Part("start", "recv", 3e-6, "dcn-start.2", among="job"),
            Part("done", "send-done", 1e-4, "dcn-done.1", among="job"),
            Part("done", "recv-done", 0.1 * step_s, "dcn-done.2", among="job"),
        ]
    return [*inner[:-1], *between, inner[-1]]


def by_design() -> Iterator[Fleet]:
    """Jobs whose workers are idle or wait in turns because that is how they work."""
    for number, stages in enumerate((2, 4, 8)):
        for batches in (2, 4, 8):
            programs = {stage: pipeline(0.4, stage, stages, batches=batches) for stage in range(stages)}
            ran = stretch(cores_of(stages), programs, 800 + 10 * number + batches)
            yield fleet(
                f"pipeline of {stages} stages, {batches} micro-batches", "pipeline", targets(stages), ran, seed=number
            )
    for number, stages in enumerate((4, 8)):
        programs = {stage: pipeline(0.4, stage, stages) for stage in range(stages)}
        before = stretch(cores_of(stages), programs, 850 + number)
        slow = programs | {1: slower(programs[1], 1.5)}
        after = stretch(cores_of(stages), slow, 860 + number)
        yield fleet(
            f"pipeline of {stages} stages: the second becomes 50% slower", "slow stage", targets(stages), before, after,
            change=8, seed=number, inject={"straggler": Expected(frozenset({"w1"}), since_s=80.0)}, may=["slow-down"],
        )  # fmt: skip
    for number, (workers, by) in enumerate(((4, 1.4), (8, 1.6), (8, 2.5), (16, 1.5), (2, 1.5))):
        for at_random in (False, True):
            yield _experts(number, workers, by, at_random=at_random)
    for number, among in enumerate(("job", "slice", "job")):
        yield _innocent(number, among)  # type: ignore[arg-type]


def _experts(number: int, workers: int, by: float, *, at_random: bool) -> Fleet:
    """Expert parallelism: in each step another worker has the busy expert."""
    draw = random.Random(number)
    turns = [draw.randrange(workers) if at_random else step % workers for step in range(200)]

    def pace(core: Core, step: int) -> float:
        return by if turns[step] == core.worker else 1.0

    ran = stretch(
        cores_of(workers), dict.fromkeys(range(workers), training(0.2, (("all-to-all", 0.5), ("all-to-all", 0.5)))),
        880 + number, given=Conditions(pace=pace), steps=8 * workers + 60, variants=40,
    )  # fmt: skip
    words = "at random" if at_random else "in turn"
    return fleet(
        f"{workers} experts {words}, the busy one {by}x",
        "experts",
        targets(workers),
        ran,
        rounds=30,
        may=["collective-bound", "low-mxu"],
    )


def _innocent(number: int, among: Among) -> Fleet:
    """Workers that wait half of their time for a straggler: communication itself is fast."""
    program = training(0.2, (("all-reduce", 1.0),), collecting=0.05, among=among)
    slices = 2 if among == "job" else 1
    pace = lambda core, _step: 2.4 if core.worker == 3 or (number == 2 and core.slice) else 1.0  # noqa: E731
    ran = stretch(cores_of(4, 1, slices), dict.fromkeys(range(4), program), 890 + number, given=Conditions(pace=pace))
    who = {"w2", "w3"} if number == 2 else {"w3"}
    return fleet(
        f"collectives of half the time, for {' and '.join(sorted(who))} ({number})", "innocent of communication",
        targets(4, slices), ran, inject={"straggler": Expected(frozenset(who), since_s=0.0)},
    )  # fmt: skip
