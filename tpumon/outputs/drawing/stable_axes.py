"""Axes of graphs, and coarse sizes to sort by, that stay while figures jitter."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Sequence

from msgspec import Struct

from tpumon.outputs.drawing.graphs import Axis

_TOO_LONG = 2.0  # an axis is, when it is longer by this factor than needed
_SHRINKS_AFTER_S = 300.0
_MOST = 512  # axes or sizes that are remembered
_STEP = math.log(1.2)


class _Kept(Struct):
    """An axis, how much of it was needed lately, and since when."""

    axis: Axis
    needed: Axis
    since_unix_s: float


class StableAxes:
    """Remembers axes and sizes by name."""

    def __init__(self) -> None:
        self._axes: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._sizes: OrderedDict[Hashable, int] = OrderedDict()

    def axis(self, name: Hashable, values: Sequence[float], wanted: Axis, now_unix_s: float) -> Axis:
        """The axis of a graph: it grows at once, and shrinks when it has been twice too long for five minutes.

        Args:
            name: of the graph.
            values: what it shows, at least one of them finite.
            wanted: the axis of these values alone.
            now_unix_s: the time that is shown.
        """
        kept = self._axes.setdefault(name, _Kept(wanted, wanted, now_unix_s))
        _touch(self._axes, name)
        if not all(kept.axis[0] <= value <= kept.axis[1] for value in values if math.isfinite(value)):
            kept.axis = _both(kept.axis, wanted)
        kept.needed = _both(kept.needed, wanted)
        if _length(kept.axis) < _TOO_LONG * _length(kept.needed):
            kept.needed, kept.since_unix_s = wanted, now_unix_s
        elif now_unix_s - kept.since_unix_s >= _SHRINKS_AFTER_S:
            kept.axis, kept.since_unix_s = kept.needed, now_unix_s
        return kept.axis

    def size(self, name: Hashable, value: float, least: float) -> int:
        """The size of a value in steps of a fifth, which noise does not cross; 0: it is no more than `least`."""
        # The quotient of the two may be no finite number.
        exact = (math.log(value) - math.log(least)) / _STEP if 0 < least < value < math.inf else 0.0
        step = self._sizes.get(name)
        if step is None or abs(exact - step) > 1:
            step = self._sizes[name] = round(exact)
        _touch(self._sizes, name)
        return step


def _both(one: Axis, other: Axis) -> Axis:
    return min(one[0], other[0]), max(one[1], other[1])


def _length(axis: Axis) -> float:
    return axis[1] - axis[0]


def _touch(kept: OrderedDict[Hashable, _Kept] | OrderedDict[Hashable, int], name: Hashable) -> None:
    """Keeps what was asked for last."""
    kept.move_to_end(name)
    while len(kept) > _MOST:
        kept.popitem(last=False)
