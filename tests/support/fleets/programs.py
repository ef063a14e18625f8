"""Programs of a slice: what its cores do in a step, one op after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Among = Literal["job", "slice", "ring", "chips"]
"""Who takes part in a collective: all cores of the job or slice, a core and its neighbours, the cores of a worker."""


_LAYERS = 4


@dataclass(frozen=True)
class Part:
    """One op of a step, or a pause.

    Attributes:
        what: `work` takes its own time; `collect` ends on all who take part at the same time; `start` and `done` are
            the two ends of one that goes on meanwhile; `send` and `recv` pass something to another worker; `input`
            waits until the host has prepared a batch; `pause` is time of the host, without an op.
        category: hlo_category, as XProf has it.
        seconds: the work, or the transfer of a collective once all have arrived.
        name: of the op, unique in the step.
        among: who takes part.
        peer: the other worker of a send or receive.
        mxu, hbm: share of the chip's peak that it uses while it runs at its usual pace.
        varies: whether a slow core takes longer for it.
    """

    what: Literal["work", "collect", "start", "done", "send", "recv", "input", "pause"]
    category: str = ""
    seconds: float = 0.0
    name: str = ""
    among: Among = "slice"
    peer: int = 0
    mxu: float = 0.0
    hbm: float = 0.0
    varies: bool = True


def work(category: str, seconds: float, name: str, *, mxu: float = 0.0, hbm: float = 0.3, varies: bool = True) -> Part:
    """An op that takes its own time."""
    return Part("work", category, seconds, name, mxu=mxu, hbm=hbm, varies=varies)


def collect(category: str, seconds: float, name: str, among: Among = "slice") -> Part:
    """A collective."""
    return Part("collect", category, seconds, name, among=among, hbm=0.1)


COLLECTIVES: dict[str, tuple[str, ...]] = {
    "all-reduce": ("all-reduce",),
    "all-gather": ("all-gather",),
    "reduce-scatter": ("reduce-scatter",),
    "all-to-all": ("all-to-all",),
    "collective-permute": ("collective-permute",),
    "all-reduce fusion": ("all-reduce fusion",),
    "all-gather fusion": ("all-gather fusion",),
    "all-reduce-scatter fusion": ("all-reduce-scatter fusion",),
    "all-gather -start/-done": ("all-gather-start", "all-gather-done"),
    "all-reduce -start/-done": ("all-reduce-start", "all-reduce-done"),
    "collective-permute -start/-done": ("collective-permute-start", "collective-permute-done"),
    "send and recv": ("send", "recv"),
}
"""Categories of the ops of each kind of collective."""


def collective(kind: str, seconds: float, name: str, among: Among = "slice") -> tuple[list[Part], list[Part]]:
    """What begins a collective of a kind, and what ends it; work may be done in between where both are there."""
    categories = COLLECTIVES[kind]
    if "permute" in kind and among == "slice":
        among = "ring"
    if kind == "send and recv":  # each with its neighbour
        return [], [Part("send", "send", 2e-6, f"send.{name}", peer=1), Part("recv", "recv", seconds, name, peer=-1)]
    if len(categories) == 1:
        return [], [collect(categories[0], seconds, f"{categories[0].replace(' ', '_')}.{name}", among)]
    start, done = categories
    return (
        [Part("start", start, 3e-6, f"{start}.{name}", among=among)],
        [Part("done", done, seconds, f"{done}.{name}", among=among)],
    )


def training(
    step_s: float, kinds: Sequence[tuple[str, float]] = (("all-reduce", 1.0),), *, collecting: float = 0.15,
    among: Among = "slice", mxu: float = 0.55, infeed: bool = False,
) -> list[Part]:  # fmt: skip
    """A training step: some layers, each with a collective, then the update.

    Args:
        step_s: of its work.
        kinds: collectives, and the share of work and of `collecting` that each takes.
        collecting: transfers relative to the work.
        among: who takes part in the collectives.
        mxu: share of the peak that its matrix products reach.
        infeed: whether it takes its batch by infeed.
    """
    layers = max(_LAYERS, len(kinds))
    parts = [Part("input", "infeed", 0.0, "infeed.1")] if infeed else []
    for layer in range(layers):
        kind, share = kinds[layer % len(kinds)]
        share /= len(range(layer % len(kinds), layers, len(kinds)))  # layers that collect in this way
        each_s = 0.9 * step_s * share
        begin, end = collective(kind, collecting * share * step_s, str(layer), among)
        parts += [
            *begin,
            work("convolution fusion", 0.35 * each_s, f"fusion.{layer}", mxu=mxu / 0.7, hbm=0.35),
            work("convolution fusion", 0.35 * each_s, f"fusion.{layer + 20}", mxu=mxu / 0.7, hbm=0.35),
            work("loop fusion", 0.3 * each_s, f"fusion.{layer + 40}", hbm=0.45),
            *end,
        ]
    return [*parts, work("loop fusion", 0.1 * step_s, "fusion.99", hbm=0.5)]


def pipeline(step_s: float, stage: int, stages: int, *, batches: int = 4) -> list[Part]:
    """The step of one stage: all micro-batches forwards, then backwards; it is idle by design meanwhile."""
    each, parts = step_s / (3 * batches), []
    for batch in range(batches):
        if stage:
            parts.append(Part("recv", "recv", 1e-5, f"f.{stage}.{batch}", peer=-1))
        parts.append(work("convolution fusion", each, f"fusion.{batch}", mxu=0.7))
        if stage < stages - 1:
            parts.append(Part("send", "send", 2e-6, f"f.{stage + 1}.{batch}", peer=1))
    for batch in range(batches):
        if stage < stages - 1:
            parts.append(Part("recv", "recv", 1e-5, f"b.{stage}.{batch}", peer=1))
        parts.append(work("convolution fusion", 2 * each, f"fusion.{batch + 50}", mxu=0.7))
        if stage:
            parts.append(Part("send", "send", 2e-6, f"b.{stage - 1}.{batch}", peer=-1))
    return [*parts, work("loop fusion", 0.05 * step_s, "fusion.99", hbm=0.5)]


def slower(parts: Sequence[Part], by: float) -> list[Part]:
    """The same with longer work."""
    return [replace(part, seconds=part.seconds * by) if part.what == "work" else part for part in parts]
