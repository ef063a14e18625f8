"""Fleets that change: slower steps, noise, new programs, silence, memory, traces with holes."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from support.fleets.collecting import fleet
from support.fleets.courses import INTERVAL_S, Expected, Fleet, Truth, cores_of, stretch, targets
from support.fleets.programs import slower, training
from support.fleets.timelines import Conditions, Core
from support.fleets.xspaces import Look
from support.samples import failed_sample
from tpumon.errors import Reason
from tpumon.model import DeviceFigures, Sample

_STEP_S = 0.2
_BEFORE = 40  # rounds that show what is usual


def _all(workers: int) -> frozenset[str]:
    return frozenset(f"w{number}" for number in range(workers))


def slow_downs() -> Iterator[Fleet]:
    """Steps that take longer from a round on: all work of all workers, or of a worker that works alone."""
    for number, (workers, by, noise) in enumerate(
        (workers, by, noise) for workers in (1, 4) for by in (1.08, 1.1, 1.25, 1.6) for noise in (0.002, 0.01)
    ):
        program = training(_STEP_S)
        cores, everybody = cores_of(workers), range(workers)
        given = Conditions(noise=noise)
        before = stretch(cores, dict.fromkeys(everybody, program), 400 + number, given=given, steps=60, variants=10)
        longer = slower(program, by + (by - 1) * 0.15)  # the collective takes as long as before
        after = stretch(cores, dict.fromkeys(everybody, longer), 430 + number, given=given, steps=60, variants=10)
        yield fleet(
            f"steps of {workers} workers become {by - 1:.0%} longer, noise {noise:.1%}", "slow-down", targets(workers),
            before, after, change=_BEFORE, rounds=_BEFORE + 40, seed=number,
            inject={"slow-down": Expected(_all(workers), since_s=_BEFORE * INTERVAL_S)},
        )  # fmt: skip


def noises() -> Iterator[Fleet]:
    """Steps that vary by nature, and are as long as ever."""
    draw = random.Random(5)

    def lognormal(_core: Core, step: int) -> float:
        return common.setdefault(step, math.exp(draw.gauss(0, 0.25)))

    def periodic(_core: Core, step: int) -> float:
        return 1.0 + 0.08 * math.sin(step / 3)

    def evaluation(_core: Core, step: int) -> float:
        return 0.45 if step % 20 > 15 else 1.0

    common: dict[int, float] = {}
    shapes: tuple[tuple[str, Callable[[Core, int], float] | None, float], ...] = (
        ("1%", None, 0.01), ("3%", None, 0.03), ("5%", None, 0.05), ("10%", None, 0.10),
        ("lognormal, 25%", lognormal, 0.005), ("a wave of 8%", periodic, 0.005),
        ("shorter now and then", evaluation, 0.005),
    )  # fmt: skip
    for number, (words, pace, noise) in enumerate(shapes):
        for workers in (1, 4):
            given = Conditions(noise=noise) if pace is None else Conditions(noise=noise, pace=pace)
            ran = stretch(
                cores_of(workers), dict.fromkeys(range(workers), training(_STEP_S)), 460 + number, given=given,
                steps=160, variants=60, windows=2.6 if number % 2 else 1.4,
            )  # fmt: skip
            rates = ["memory-bound", "compute-bound", "low-mxu"]  # of a few steps they vary as these do
            yield fleet(
                f"noise of {words}, {workers} workers", "noise", targets(workers), ran, rounds=120, seed=number,
                may=rates,
            )  # fmt: skip


def _compiling(from_s: float, to_s: float, share: float) -> list[tuple[str, float, float, dict[str, object]]]:
    """Host events of JAX: each step is traced, lowered and compiled for some share of the time, then run."""
    events: list[tuple[str, float, float, dict[str, object]]] = []
    at_s = from_s
    while at_s < to_s:
        begin_s, end_s = at_s + 0.01, at_s + 0.01 + share * _STEP_S
        events += [("PjitFunction(train_step)", at_s, end_s + 0.02, {}), ("backend_compile", begin_s, end_s, {})]
        at_s += _STEP_S
    return events


def programs() -> Iterator[Fleet]:
    """Programs of several shapes: compiled ahead, in turn, once; or anew all the time."""
    for number, (workers, shapes) in enumerate((workers, shapes) for workers in (1, 4) for shapes in (2, 5, 12)):
        looks = [Look(program=5000 + shape) for shape in range(shapes)]
        ran = stretch(
            cores_of(workers), dict.fromkeys(range(workers), training(_STEP_S)), 500 + number,
            looks=lambda _worker, looks=looks: looks,
        )  # fmt: skip
        yield fleet(
            f"{shapes} shapes compiled ahead, {workers} workers", "shapes compiled ahead", targets(workers), ran,
            rounds=40, seed=number,
        )  # fmt: skip
    for number, (workers, share) in enumerate((workers, share) for workers in (1, 4) for share in (0.3, 0.6)):
        looks = [Look(program=7000 + each, markers=False, host=_compiling(0.0, 30.0, share)) for each in range(40)]
        ran = stretch(
            cores_of(workers), dict.fromkeys(range(workers), training(_STEP_S * (1 - share))), 520 + number,
            given=Conditions(pause_s=dict.fromkeys(range(workers), _STEP_S * share)),
            looks=lambda _worker, looks=looks: looks, windows=3.5,
        )  # fmt: skip
        yield fleet(
            f"each step compiles for {share:.0%} of the time, {workers} workers", "recompiling", targets(workers), ran,
            rounds=24, seed=number, interval_s=(1.0, 10.0, 60.0, 10.0)[number],
            inject={"recompiling": Expected(_all(workers), since_s=0.0)},
            may=["idle", "host-bound", "low-mxu"],
        )  # fmt: skip
    before = stretch(cores_of(4), dict.fromkeys(range(4), training(_STEP_S)), 540, looks=lambda _: (Look(program=1),))
    after = stretch(cores_of(4), dict.fromkeys(range(4), training(_STEP_S)), 541, looks=lambda _: (Look(program=2),))
    yield fleet("another program once", "shapes compiled ahead", targets(4), before, after, change=8, rounds=30)


def _empty() -> Sample:
    return failed_sample("?", "empty-trace", "the trace holds no events")


def _silent(
    name: str, kind: str, workers: int, silent: Callable[[int, int], bool], rounds: int, seed: int, *,
    must: Mapping[str, Expected] | None = None, at_most: Mapping[str, str] | None = None,
) -> Fleet:  # fmt: skip
    """A fleet whose workers are silent at times."""
    ran = stretch(cores_of(workers), dict.fromkeys(range(workers), training(_STEP_S)), seed)
    usual = fleet(name, kind, targets(workers), ran, rounds=rounds, seed=seed)

    def sample(worker: int, number: int) -> Sample | None:
        return _empty() if silent(worker, number) else usual.sample(worker, number)

    def told() -> Truth:
        known = usual.truth()
        if not must:
            return Truth(known.must, known.may, at_most or {})
        return Truth(must, known.may | known.must.keys(), at_most or {})  # nothing else is seen while nothing runs

    return Fleet(name, kind, usual.targets, rounds, sample, told)


def silences() -> Iterator[Fleet]:
    """Jobs that hang, and jobs that pause and go on."""
    warning, critical = frozenset({"warning", "critical"}), frozenset({"critical"})
    for number, (workers, minutes) in enumerate((workers, minutes) for workers in (1, 2, 4, 8) for minutes in (7, 12)):
        began = 15
        rounds = began + minutes * 6
        severe = critical if minutes > 10 else frozenset({"info"})
        yield _silent(
            f"all {workers} workers hang, seen for {minutes} min", "hang", workers,
            lambda _worker, now, began=began: now >= began, rounds, 560 + number,
            must={"hang": Expected(_all(workers), since_s=began * INTERVAL_S, severities=severe)},
        )  # fmt: skip
    for number, (workers, minutes) in enumerate((workers, minutes) for workers in (2, 4, 8) for minutes in (7, 12)):
        began = 15
        rounds = began + minutes * 6
        severe = critical if minutes > 10 else warning
        yield _silent(
            f"w1 of {workers} hangs while the others go on, seen for {minutes} min", "hang", workers,
            lambda worker, now, began=began: now >= began and worker == 1, rounds, 580 + number,
            must={"hang": Expected(frozenset({"w1"}), since_s=began * INTERVAL_S, severities=severe)},
        )  # fmt: skip
    for number, (minutes, every) in enumerate(((1, 5), (3, 15), (9, 30), (9, 60), (4, 9))):
        for workers in (1, 4):
            yield _silent(
                f"checkpoints of {minutes} min each {every} min, {workers} workers", "checkpoints", workers,
                lambda _worker, now, minutes=minutes, every=every: now % (every * 6) >= (every - minutes) * 6,
                every * 6 * 3, 600 + number, at_most={"hang": "info"},
            )  # fmt: skip
            if workers > 1:
                yield _silent(
                    f"w0 of {workers} writes checkpoints for {minutes} min each {every} min, the others wait for it",
                    "checkpoints", workers,
                    lambda _worker, now, minutes=minutes, every=every: now % (every * 6) >= (every - minutes) * 6,
                    every * 6 * 3, 620 + number, at_most={"hang": "info"},
                )  # fmt: skip


def memory() -> Iterator[Fleet]:
    """HBM that fills, is full, or goes up and down."""
    total = 32 << 30
    courses: Sequence[tuple[str, Callable[[int], float], dict[str, Expected]]] = (
        ("steady at 60%", lambda _now: 0.6, {}),
        ("steady at 85%", lambda _now: 0.85, {}),
        ("up and down by 10%", lambda now: 0.6 + 0.05 * math.sin(now / 7), {}),
        ("higher after a change", lambda now: 0.5 if now < 60 else 0.7, {}),
        ("at 94%", lambda now: 0.5 if now < 20 else 0.94, {"hbm-nearly-full": Expected(None, since_s=200.0)}),
        ("at 98%", lambda now: 0.5 if now < 20 else 0.985, {"hbm-nearly-full": Expected(None, since_s=200.0)}),
        ("a leak, full in 2 h", lambda now: 0.3 + 0.6 * now / 720, {"hbm-growing": Expected(None, since_s=0.0)}),
        ("a leak, full in 5 h", lambda now: 0.3 + 0.7 * now / 1800, {"hbm-growing": Expected(None, since_s=0.0)}),
        ("a leak, full in 60 h", lambda now: 0.3 + 0.6 * now / 21600, {}),
    )
    for number, (words, used, must) in enumerate(courses):
        for workers in (1, 4):
            ran = stretch(cores_of(workers), dict.fromkeys(range(workers), training(_STEP_S)), 650 + number)
            usual = fleet(f"HBM {words}, {workers} workers", "memory", targets(workers), ran, rounds=150, seed=number)

            def sample(worker: int, now: int, usual: Fleet = usual, used: Callable[[int], float] = used) -> Sample:
                one = usual.sample(worker, now)
                assert one is not None
                device = DeviceFigures(device="0", hbm_used_bytes=int(used(now) * total), hbm_total_bytes=total)
                figures = replace(
                    one.figures, devices=(device,), hbm_used_bytes=device.hbm_used_bytes, hbm_total_bytes=total
                )
                return replace(one, figures=figures)

            yield replaced(
                usual, sample, {finding: Expected(_all(workers), each.since_s) for finding, each in must.items()}
            )


def replaced(usual: Fleet, sample: Callable[[int, int], Sample | None], must: Mapping[str, Expected]) -> Fleet:
    """A fleet of which other samples come, and of which more is true."""

    def truth() -> Truth:
        known = usual.truth()
        return Truth({**known.must, **must}, known.may)

    return dataclasses.replace(usual, sample=sample, truth=truth)


def not_observed() -> Iterator[Fleet]:
    """Other sessions and pauses that keep tpumon away, for longer than ten minutes or not."""
    for number, (reason, minutes, workers) in enumerate(
        (reason, minutes, workers) for reason in ("busy", "paused") for minutes in (5, 20, 80) for workers in (1, 4)
    ):
        ran = stretch(cores_of(workers), dict.fromkeys(range(workers), training(_STEP_S)), 640 + number)
        rounds = 12 + minutes * 6
        usual = fleet(
            f"{reason} for {minutes} min, {workers} workers", "not observed", targets(workers), ran, rounds=rounds,
            seed=number,
        )  # fmt: skip

        def sample(worker: int, now: int, usual: Fleet = usual, reason: Reason = reason) -> Sample | None:
            return failed_sample("?", reason, reason) if now >= 12 else usual.sample(worker, now)

        severity = "warning" if minutes > 60 else "info"
        expected = Expected(_all(workers), since_s=12 * INTERVAL_S, severities=frozenset({severity}))
        yield replaced(usual, sample, {"not-observed": expected} if minutes > 10 else {})


def holes() -> Iterator[Fleet]:
    """Traces with holes, said or unsaid, and whole ones that look odd."""
    said = dict.fromkeys(range(4), 0.7)
    odd: Sequence[tuple[str, Look, bool]] = (
        ("whole, the profiler stops 0.3 s late", Look(late_s=0.3), False),
        ("whole, the profiler stops 3 s late", Look(late_s=3.0), False),
        ("whole, cut steps, no word", Look(stubs=True), False),
        ("whole, 'Dropped events = 0'", Look(notice="Dropped events = 0"), False),
        ("whole, 'gradient overflow'", Look(notice="gradient overflow detected, loss scale halved"), False),
        ("one core falls silent half way", Look(lost={1: 0.5}), True),
        ("three cores fall silent at a third", Look(lost={1: 0.35, 2: 0.35, 3: 0.35}), True),
        ("an event says so", Look(lost={0: 0.6, 1: 0.6, 2: 0.6, 3: 0.6}, mark="Trace Buffers Dropped"), True),
        ("'TPU:0 dropped 48211 events'", Look(lost=said, notice="TPU:0 dropped 48211 events"), True),
    )  # fmt: skip
    for number, (words, look, truncated) in enumerate(odd):
        for workers in (1, 4):
            ran = stretch(
                cores_of(workers, 4), dict.fromkeys(range(workers), training(0.02)), 680 + number, windows=12,
                looks=lambda _worker, look=look: (look,),
            )  # fmt: skip
            inject = {"truncated": Expected(_all(workers), since_s=0.0)} if truncated else {}
            yield fleet(f"traces: {words}, {workers} workers", "holes", targets(workers), ran, inject=inject)
