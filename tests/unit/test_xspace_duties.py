"""When chips worked: their cores together, chip by chip, so that little of it is in memory at a time."""

from __future__ import annotations

import weakref

import numpy as np

from support.traces import CONV, Traced, run_step
from tpumon.xspace import trace
from tpumon.xspace.planes.core import ChipDuties, CorePlace, Duty
from tpumon.xspace.trace import read_trace

SOMEWHERE = CorePlace(chip=None, global_chip=None, core=0)


def on(chip):
    return CorePlace(chip=chip, global_chip=chip, core=0)


def busy(*spans):
    begins, ends = (np.array(side, dtype=np.int64) for side in zip(*spans, strict=True))
    return Duty(
        busy_ps=int((ends - begins).sum()), begin_ps=begins, end_ps=ends, span_ps=(int(begins[0]), int(ends[-1]))
    )


def test_cores_of_one_chip_count_as_one():
    places = [on(0), on(1), SOMEWHERE, on(0), SOMEWHERE]
    duties = ChipDuties(places)
    assert [duties.is_shared(place) for place in places] == [True, False, False, True, False]
    worked = [busy((0, 4), (6, 8)), busy((0, 5)), busy((10, 12)), busy((3, 7)), busy((10, 13))]
    for place, duty in zip(places, worked, strict=True):
        duties.add(place, duty)
    assert (duties.busy_ps, duties.total_ps) == (8 + 5 + 2 + 3, 8 + 5 + 2 + 3)


def test_a_chip_that_did_nothing_counts_nothing():
    duties = ChipDuties([on(0), on(0)])
    nothing = np.zeros(0, dtype=np.int64)
    for _ in range(2):
        duties.add(on(0), Duty(busy_ps=0, begin_ps=nothing, end_ps=nothing, span_ps=None))
    assert (duties.busy_ps, duties.total_ps) == (0, 0)


def test_what_cores_did_is_let_go_with_the_last_one_of_their_chip():
    duties = ChipDuties([on(0), on(1), on(0), on(1)])
    kept = []
    for chip in (0, 1):
        duty = busy((0, 4))
        kept.append(weakref.ref(duty.begin_ps))
        duties.add(on(chip), duty)
        del duty
    assert all(each() is not None for each in kept)
    duties.add(on(0), busy((2, 6)))
    assert [each() is None for each in kept] == [True, False]


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
    assert read_trace(with_sparse_cores()).duty_ps == ((10 + 18 + 13 + 10 + 4) * 10**6,) * 2


def test_sparse_cores_are_read_right_after_the_core_of_their_chip(monkeypatch):
    read = []

    def noted(name):
        original = getattr(trace, name)

        def note(plane, *args, **more):
            read.append(plane.name.removeprefix("/device:TPU:"))
            return original(plane, *args, **more)

        monkeypatch.setattr(trace, name, note)

    noted("core_ops")
    noted("read_sparse_core")
    read_trace(with_sparse_cores())
    beside = ["0", "1", "1 SparseCore 0", "1 SparseCore 1", "7", "7 SparseCore 0"]
    assert read == [*beside, "2 SparseCore 0", "2 SparseCore 1"]
