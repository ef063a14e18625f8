"""What is true of a stretch by docs/findings.md: limits there, applied to the whole timeline instead of to traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from support.fleets.courses import Expected, Stretch
from support.fleets.timelines import Step

_NEAR = 0.25  # within so much of a limit, a short window may show it or not
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "send", "recv")
_SHUFFLE = {"copy", "transpose", "slice", "dynamic-slice", "gather", "sort", "data formatting", "dynamic-update-slice"}
_WAITS = {"copy-done", "async-done", "slice-done"}
_HOST = {"host send", "host recv", "host send-done", "host recv-done"}


def kind_of(category: str) -> str:
    """The kind of time of an op."""
    if category in _HOST:
        return "host transfer"
    if category.startswith(_COLLECTIVES):
        return "collective"
    if category in _WAITS:
        return "async wait"
    if category.startswith("sparsecorev0"):
        return "sparsecore"
    if category in _SHUFFLE:
        return "shuffle"
    return category if category in {"infeed", "outfeed"} else "compute"


def shares(steps: Sequence[Step]) -> Mapping[str, float]:
    """Shares of the time of a core, its matrix units' and memory's use among them."""
    whole_s = steps[-1].begin_s - steps[0].begin_s
    found: dict[str, float] = {}
    for step in steps[:-1]:
        for ran in step.ops:
            kind = kind_of(ran.part.category)
            found[kind] = found.get(kind, 0.0) + (ran.end_s - ran.begin_s) / whole_s
            found["mxu"] = found.get("mxu", 0.0) + ran.part.mxu * ran.part.seconds / whole_s
            found["hbm"] = found.get("hbm", 0.0) + ran.part.hbm * ran.part.seconds / whole_s
    ran_s = sum(found.get(kind, 0.0) for kind in found if kind not in {"mxu", "hbm"})
    return found | {"idle": max(0.0, 1 - ran_s)}


def shown(stretch: Stretch, names: Sequence[str]) -> tuple[dict[str, Expected], frozenset[str]]:
    """Findings that follow from shares alone, and those near a limit, of a job in one stretch."""
    by_core = {core: shares(steps) for core, steps in stretch.cores.items()}
    workers = sorted({core.worker for core in by_core})
    has_infeed = any("infeed" in each for each in by_core.values())
    must: dict[str, set[str]] = {}
    near: set[str] = set()

    def note(finding: str, worker: int, value: float, limit: float) -> None:
        if value > limit * (1 + _NEAR):
            must.setdefault(finding, set()).add(names[worker])
        elif value > limit * (1 - _NEAR):
            near.add(finding)

    for worker in workers:
        mine = [each for core, each in by_core.items() if core.worker == worker]
        found = {kind: mean(each.get(kind, 0.0) for each in mine) for kind in set().union(*mine)}
        infeed = max(each.get("infeed", 0.0) for each in mine)
        note("input-bound", worker, infeed, 0.05)
        idle = found["idle"]
        if not has_infeed:
            note("idle", worker, idle, 0.2)
        elif infeed < 0.05 * (1 - _NEAR):
            note("host-bound", worker, idle, 0.2)
        elif idle > 0.2 * (1 - _NEAR):
            near |= {"host-bound", "idle"}
        for finding, kind, limit in (
            ("outfeed-bound", "outfeed", 0.05), ("host-transfer-bound", "host transfer", 0.1),
            ("async-wait", "async wait", 0.1), ("data-shuffle", "shuffle", 0.3),
            ("sparsecore-bound", "sparsecore", 0.1),
        ):  # fmt: skip
            note(finding, worker, found.get(kind, 0.0), limit)
        _note_rates(found, names[worker], must, near)
    least = min(each.get("collective", 0.0) for each in by_core.values())
    if least > 0.3 * (1 + _NEAR):
        must["collective-bound"] = set()
    elif least > 0.3 * (1 - _NEAR):
        near.add("collective-bound")
    expected = {
        finding: Expected(frozenset(who) or None, since_s=0.0) for finding, who in must.items() if finding not in near
    }
    return expected, frozenset(near)


def _note_rates(found: Mapping[str, float], name: str, must: dict[str, set[str]], near: set[str]) -> None:
    mxu, hbm, compute = found.get("mxu", 0.0), found.get("hbm", 0.0), found.get("compute", 0.0)
    for finding, margins in (
        ("memory-bound", (hbm / 0.7, 0.5 / max(mxu, 1e-9))),
        ("compute-bound", (mxu / 0.7, 0.5 / max(hbm, 1e-9))),
        ("low-mxu", (compute / 0.6, 0.2 / max(mxu, 1e-9), 0.5 / max(hbm, 1e-9))),
    ):
        if min(margins) > 1 + _NEAR / 2:
            must.setdefault(finding, set()).add(name)
        elif min(margins) > 1 - _NEAR / 2:
            near.add(finding)
