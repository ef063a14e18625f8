"""When chips worked: their cores together, chip by chip."""

from __future__ import annotations

import numpy as np

from support.traces import CONV, Traced, run_step
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.planes.core import CoreDuty, CorePlace, chip_times_ps

SOMEWHERE = CorePlace(chip=None, global_chip=None, core=0)


def on(chip):
    return CorePlace(chip=chip, global_chip=chip, core=0)


def busy(*spans):
    begins, ends = (np.array(side, dtype=np.int64) for side in zip(*spans, strict=True))
    return CoreDuty(begin_ps=begins, end_ps=ends, span_ps=(int(begins[0]), int(ends[-1])))


def test_cores_of_one_chip_count_as_one():
    places = [on(0), on(1), SOMEWHERE, on(0), SOMEWHERE]
    worked = [busy((0, 4), (6, 8)), busy((0, 5)), busy((10, 12)), busy((3, 7)), busy((10, 13))]
    assert chip_times_ps(zip(places, worked, strict=True)) == (8 + 5 + 2 + 3, 8 + 5 + 2 + 3)


def test_a_chip_that_did_nothing_counts_nothing():
    nothing = np.zeros(0, dtype=np.int64)
    idle = CoreDuty(begin_ps=nothing, end_ps=nothing, span_ps=None)
    assert chip_times_ps([(on(0), idle)] * 2) == (0, 0)


def with_sparse_cores():
    """Two chips with a TensorCore, of which the second has SparseCores, as has a third; and cores of no known chip."""
    traced = Traced()
    for chip in (0, 1):
        run_step(traced.core(chip), 0, [(CONV, 10)])
    run_step(traced.core(7, details=False), 0, [(CONV, 10)])
    for chip in (1, 2):
        for number, begin_us in enumerate((5, 8)):
            traced.core(chip, sparse=number).event("Sparse Core Ops", CONV, begin_us, 10)
    traced.core(7, sparse=0, details=False).event("Sparse Core Ops", CONV, 1, 4)
    return traced.bytes()


def test_sparse_cores_count_with_their_chip_or_alone():
    """Whether or not a TensorCore of their chip is in the trace."""
    assert read_host_totals(with_sparse_cores()).duty_ps == ((10 + 18 + 13 + 10 + 4) * 10**6,) * 2
