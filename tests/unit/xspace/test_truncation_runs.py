"""Which run an op lies in, and when a core was active, against going through them one by one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tpumon.xspace.columns.columns import Events
from tpumon.xspace.truncation.runs import CoreRuns

OPS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=25)
RUNS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), max_size=8)


def events(spans):
    begin_ps, duration_ps = (np.array([span[i] for span in spans], dtype=np.int64) for i in (0, 1))
    return Events(metadata_id=np.ones(len(spans), dtype=np.int64), begin_ps=begin_ps, duration_ps=duration_ps)


def by_middle(op):
    return op[0] + op[1] // 2


def run_of(op, runs):
    """The last run that has begun by the op's middle, unless it has ended before."""
    middle = by_middle(op)
    begun = [i for i, run in enumerate(runs) if run[0] <= middle]
    return begun[-1] if begun and middle <= sum(runs[begun[-1]]) else None


def covered(spans):
    return {moment for begin, duration in spans for moment in range(begin, begin + duration)}


IN_ORDER = OPS.map(lambda ops: sorted(ops, key=by_middle))
IN_NO_ORDER = OPS.filter(lambda ops: sorted(ops, key=by_middle) != ops)
"""As a rule, ops come in the order of their middles, so that those of a run are neighbours; those in a loop do not."""


@given(IN_ORDER | IN_NO_ORDER, RUNS.map(sorted))
@example(ops=[(3, 2), (0, 9), (1, 1)], runs=[(0, 8)])
def test_ops_belong_to_the_run_that_their_middle_lies_in(ops, runs):
    lines = SimpleNamespace(steps=events(runs), modules=None, name="TPU:0", plane=None)
    core = CoreRuns(lines, events(ops), by_markers=True)
    places = [run_of(op, runs) for op in ops]
    assert core.ops_of.tolist() == [places.count(i) for i in range(len(runs))]
    within = [
        place is not None and runs[place][0] <= op[0] and sum(op) <= sum(runs[place])
        for op, place in zip(ops, places, strict=True)
    ]
    begins, ends = core.activity
    found = [(begin, end - begin) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    assert covered(found) == covered([*runs, *(op for op, inside in zip(ops, within, strict=True) if not inside)])
    assert (begins[1:] > ends[:-1]).all()
