"""Fleets whose findings follow from shares of the time: input, host, idle, transfers, rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from support.fleets.collecting import fleet
from support.fleets.courses import Expected, Fleet, cores_of, stretch, targets
from support.fleets.programs import Part, training, work
from support.fleets.timelines import Conditions
from support.fleets.xspaces import Look

_STEP_S = 0.15


def inputs() -> Iterator[Fleet]:
    """Infeed that waits: of all workers, and of one for which the others wait."""
    for number, (workers, share) in enumerate(
        (workers, share) for workers in (1, 4, 8) for share in (0.0, 0.02, 0.1, 0.15, 0.3, 0.6)
    ):
        program = training(_STEP_S, infeed=True)
        busy_s = _STEP_S * 1.15
        given = Conditions(batch_s=dict.fromkeys(range(workers), busy_s / (1 - share) if share else 0.01))
        ran = stretch(cores_of(workers, 2), dict.fromkeys(range(workers), program), 100 + number, given=given)
        yield fleet(f"{workers} workers wait {share:.0%} for input", "input", targets(workers), ran, seed=number)
    for number, (workers, share) in enumerate((workers, share) for workers in (2, 4, 8) for share in (0.12, 0.3, 0.6)):
        program = training(_STEP_S, (("all-reduce", 1.0),) if number % 2 else (("all-gather", 1.0),), infeed=True)
        given = Conditions(batch_s={1: _STEP_S * 1.15 / (1 - share)})
        ran = stretch(cores_of(workers), dict.fromkeys(range(workers), program), 130 + number, given=given)
        yield fleet(
            f"w1 of {workers} waits {share:.0%} for input, the others for it", "starved worker", targets(workers), ran,
            seed=number,
        )  # fmt: skip


def hosts() -> Iterator[Fleet]:
    """Hosts that are late with work: with infeed that does not wait, and without."""
    for number, (infeed, share) in enumerate(
        (infeed, share) for infeed in (False, True) for share in (0.05, 0.1, 0.3, 0.4, 0.6)
    ):
        for workers in (1, 4):
            program = training(_STEP_S, infeed=infeed)
            pause_s = _STEP_S * 1.15 * share / (1 - share)
            given = Conditions(pause_s=dict.fromkeys(range(workers), pause_s))
            cores = cores_of(workers, 2)
            looks = Look(markers=False)
            ran = stretch(
                cores, dict.fromkeys(range(workers), program), 160 + number, given=given,
                looks=lambda _worker, look=looks: (look,), windows=3.5,
            )  # fmt: skip
            words = "with infeed" if infeed else "without infeed"
            yield fleet(f"{workers} workers {words} idle for {share:.0%}", "idle", targets(workers), ran, seed=number)


def late_hosts() -> Iterator[Fleet]:
    """One host that is late with each step, for which the others wait in their collectives: its device is idle."""
    for number, (workers, share) in enumerate((workers, share) for workers in (2, 4, 8) for share in (0.1, 0.35)):
        given = Conditions(pause_s={1: _STEP_S * 1.15 * share / (1 - share)})
        program = training(_STEP_S, (("all-gather", 0.5), ("reduce-scatter", 0.5)) if number % 2 else _ALL_REDUCE)
        looks = (Look(markers=False),)
        ran = stretch(
            cores_of(workers), dict.fromkeys(range(workers), program), 190 + number, given=given,
            looks=lambda _worker, looks=looks: looks, windows=3.6,
        )  # fmt: skip
        yield fleet(
            f"the host of w1 of {workers} is late by {share:.0%} of each step", "late host", targets(workers), ran,
            seed=number, only={"straggler": frozenset({"w1"})},
        )  # fmt: skip


_ALL_REDUCE = (("all-reduce", 1.0),)
_BETWEEN: Sequence[tuple[str, str, tuple[float, ...]]] = (
    ("outfeed", "outfeed", (0.02, 0.1, 0.3)),
    ("host send", "host-transfer", (0.04, 0.2, 0.6)),
    ("host recv-done", "host-transfer", (0.2,)),
    ("copy-done", "async-wait", (0.04, 0.2, 0.6)),
    ("async-done", "async-wait", (0.2,)),
    ("slice-done", "async-wait", (0.2,)),
    ("copy", "data-shuffle", (0.1, 0.45, 0.6)),
    ("transpose", "data-shuffle", (0.45,)),
    ("gather", "data-shuffle", (0.45,)),
    ("dynamic-update-slice", "data-shuffle", (0.45,)),
    ("sort", "data-shuffle", (0.45,)),
    ("sparsecorev0 infeed", "sparsecore", (0.05, 0.2, 0.6)),
    ("sparsecorev0 outfeed", "sparsecore", (0.2,)),
)


def transfers() -> Iterator[Fleet]:
    """Steps in which one category of ops takes some share of the time."""
    number = 0
    for category, about, shares in _BETWEEN:
        for share in shares:
            number += 1
            workers = (1, 4)[number % 2]
            extra = work(category, _STEP_S * 1.15 * share / (1 - share), f"{category.replace(' ', '-')}.1", hbm=0.3)
            program = [*training(_STEP_S), replace(extra, varies=False)]
            ran = stretch(cores_of(workers), dict.fromkeys(range(workers), program), 200 + number)
            yield fleet(f"{category} takes {share:.0%} of {workers} workers", about, targets(workers), ran, seed=number)


def rates() -> Iterator[Fleet]:
    """Matrix units and memory, busy or not."""
    number = 0
    for mxu in (0.05, 0.35, 0.9):
        for hbm in (0.2, 0.85):
            for workers in (1, 4):
                number += 1
                program = [
                    work("convolution fusion", 0.93 * _STEP_S, "fusion.1", mxu=mxu, hbm=hbm),
                    Part("collect", "all-reduce", 0.07 * _STEP_S, "all-reduce.1", hbm=0.1),
                ]
                ran = stretch(cores_of(workers), dict.fromkeys(range(workers), program), 250 + number)
                yield fleet(
                    f"matrix units {mxu:.0%}, HBM {hbm:.0%}, {workers} workers", "rates", targets(workers), ran,
                    seed=number,
                )  # fmt: skip


def communication() -> Iterator[Fleet]:
    """Collectives that take much time on all workers, because that is how long they take."""
    number = 0
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "all-reduce fusion", "collective-permute"):
        for share in (0.15, 0.45, 0.65):
            number += 1
            workers = (2, 4, 8)[number % 3]
            program = training(_STEP_S, ((kind, 1.0),), collecting=share / (1 - share))
            ran = stretch(cores_of(workers), dict.fromkeys(range(workers), program), 280 + number)
            yield fleet(f"{kind} takes {share:.0%} of {workers} workers", "communication", targets(workers), ran)


def scopes() -> Iterator[Fleet]:
    """Barriers and printing, as events of their own line."""
    for number, (name, finding, share) in enumerate((
        ("barrier-cores", "barrier-wait", 0.05), ("barrier-cores", "barrier-wait", 0.2),
        ("barrier-cores", "barrier-wait", 0.6), ("debug_print", "debug-print", 0.02),
        ("debug_print", "debug-print", 0.15), ("debug_print", "debug-print", 0.6),
    )):  # fmt: skip
        look = Look(scopes=((name, 0.1, 0.1 + share),))
        ran = stretch(
            cores_of(4),
            dict.fromkeys(range(4), training(_STEP_S)),
            310 + number,
            looks=lambda _worker, look=look: (look,),
        )
        limit = 0.1 if finding == "barrier-wait" else 0.05
        everybody = None if finding == "barrier-wait" else frozenset({"w0", "w1", "w2", "w3"})
        inject = {finding: Expected(everybody, since_s=0.0)} if share > limit else {}
        yield fleet(f"{name} takes {share:.0%} of a step", finding, targets(4), ran, inject=inject)
