"""The time of each op in each step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from tpumon.xspace.columns.columns import Floats, Ints


class OpSteps(Struct, frozen=True, kw_only=True, eq=False):
    """Self times of ops in steps; arrays have one element per op and step in which it ran, in the order of ops.

    Attributes:
        key: of the op, see OpTable.
        step: its index.
        self_ps: durations without the ops within.
    """

    key: Ints
    step: Ints
    self_ps: Floats

    def of(self, key: int) -> OpSteps:
        """One op's."""
        rows = slice(*np.searchsorted(self.key, [key, key + 1]))
        return OpSteps(key=self.key[rows], step=self.step[rows], self_ps=self.self_ps[rows])

    def moved(self, place: Ints) -> OpSteps:
        """Steps at new places of a list; `place` has the new index of each, -1: the step is left out."""
        step = place[self.step]
        kept = step >= 0
        return OpSteps(key=self.key[kept], step=step[kept], self_ps=self.self_ps[kept])

    def picked(self, first: int, count: int) -> OpSteps:
        """A run of these steps."""
        kept = (self.step >= first) & (self.step < first + count)
        return OpSteps(key=self.key[kept], step=self.step[kept] - first, self_ps=self.self_ps[kept])


def add_up_steps(parts: Iterable[OpSteps]) -> OpSteps:
    """The sum of several, such as of a host's cores: one element per op and step."""
    parts = list(parts)
    key, step, self_ps = (np.concatenate([getattr(one, name) for one in parts]) for name in ("key", "step", "self_ps"))
    order = np.lexsort((step, key))
    key, step = key[order], step[order]
    is_first = np.ones(len(key), dtype=np.bool_)
    is_first[1:] = (key[1:] != key[:-1]) | (step[1:] != step[:-1])
    first = np.flatnonzero(is_first)
    sums_ps = np.add.reduceat(self_ps[order], first) if len(first) else self_ps
    return OpSteps(key=key[first], step=step[first], self_ps=sums_ps)
