"""Medians of a worker's slice: of figures and of the parts of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct, field

from tpumon.analysis import WorkerStatus
from tpumon.analysis.findings import slice_key_of
from tpumon.model.figure_table import COMPARED
from tpumon.outputs.live.parts.scene import Scene


class SliceMedians(Struct, frozen=True):
    """Medians over a slice's workers with present figures, the worker itself included.

    Attributes:
        word: what the workers are together: `slice`, or `fleet` where no slice is known.
        figures: by key of `figure_table.COMPARED`; only figures that some worker has.
        parts_s: parts of a step by key of `figure_table.STEP_PARTS`, in seconds; a part that a worker does not have
            counts as 0.
    """

    word: str = "slice"
    figures: Mapping[str, float] = field(default_factory=dict)
    parts_s: Mapping[str, float] = field(default_factory=dict)


ALONE = SliceMedians()
"""Medians of a worker without others to compare with."""


def medians_of(scene: Scene, row: WorkerStatus) -> SliceMedians:
    """The medians of the worker's slice; of all workers if no slice is known; `ALONE` if it has no medians."""
    group = slice_key_of(row.target)
    present = [each for each in scene.rows if each.sample is not None and not each.target.ambiguous]
    rows = [each for each in present if slice_key_of(each.target) == group]
    if len(rows) < 2 or row.target.ambiguous:
        return ALONE
    known = {key: [value for each in rows if (value := each.figures[key]) is not None] for key in COMPARED}
    figures = {key: median(numbers) for key, numbers in known.items() if len(numbers) > 1}
    return SliceMedians("fleet" if row.target.slice is None else "slice", figures, _parts_s(rows))


def _parts_s(rows: Sequence[WorkerStatus]) -> Mapping[str, float]:
    parts = [row.sample.figures.step_parts_s for row in rows if row.sample is not None]
    known = [each for each in parts if each]
    names = dict.fromkeys(name for each in known for name in each)
    return {name: median([each.get(name, 0.0) for each in known]) for name in names} if len(known) > 1 else {}
