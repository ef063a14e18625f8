"""What is usual in a worker's slice: medians of figures and of the parts of a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from tpumon.figures import values
from tpumon.fleet import group_of
from tpumon.view.parts.scene import Row, Scene


@dataclass(frozen=True, slots=True)
class Peers:
    """Medians over a slice's workers with present figures, the worker itself included.

    Attributes:
        word: what the workers are together: `slice`, or `fleet` where no slice is known.
        figures: by key of `tpumon.figures.COMPARED`; only figures that some worker has.
        parts_s: parts of a step by key of `tpumon.figures.STEP_PARTS`, in seconds; a part that a worker does not have
            counts as 0.
    """

    word: str = "slice"
    figures: Mapping[str, float] = field(default_factory=dict)
    parts_s: Mapping[str, float] = field(default_factory=dict)


ALONE = Peers()
"""There is nobody to compare with."""


def peers_of(scene: Scene, row: Row) -> Peers:
    """The medians of the worker's slice; of all workers where no slice is known; `ALONE` without others."""
    target = row.history.target
    group = group_of(target)
    samples = [
        other.sample for other in scene.rows if other.sample is not None and group_of(other.history.target) == group
    ]
    if len(samples) < 2:
        return ALONE
    parts = [sample.figures.step_parts_s for sample in samples if sample.figures.step_parts_s]
    names = dict.fromkeys(name for each in parts for name in each)
    return Peers(
        "fleet" if target.slice is None else "slice",
        _medians(values(sample.figures) for sample in samples),
        {name: median(each.get(name, 0.0) for each in parts) for name in names} if len(parts) > 1 else {},
    )


def _medians(rows: Iterable[Mapping[str, float | None]]) -> Mapping[str, float]:
    """The median of each key over the rows that have it, if there are several."""
    known: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                known.setdefault(name, []).append(value)
    return {name: median(numbers) for name, numbers in known.items() if len(numbers) > 1}
