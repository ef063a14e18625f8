"""Whether the process of a job computes."""

from __future__ import annotations

import os
import time

import pytest

from tpumon.collection.sources.traces import cpu_use
from tpumon.collection.sources.traces.cpu_use import CpuUse
from tpumon.discovery.host.processes import cpu_s_of


@pytest.mark.parametrize(
    ("seen", "idle"),
    [
        ([(0, 7, 50.0), (30, 7, 50.1), (60, 7, 80.0), (90, 7, 80.5)], [False, True, False, True]),
        ([(0, 7, 50.0), (30, 7, 50.1), (40, 7, 60.0), (50, 7, 60.0)], [False, True, True, False]),  # too soon to tell
        ([(0, 7, 50.0), (30, 7, 53.1)], [False, False]),  # a tenth of a core
        ([(0, 7, 50.0), (30, 8, 50.0), (60, 8, 50.0)], [False, False, True]),  # another process
        ([(0, 7, None), (30, 7, None), (60, 7, 0.0), (90, None, 0.0)], [False, False, False, False]),  # not known
    ],
)
def test_a_process_that_does_not_compute_is_idle(seen, idle, monkeypatch):
    """A while must have passed since it was looked at before."""
    now_s, cpu_s = 0.0, None
    monkeypatch.setattr(cpu_use.time, "monotonic", lambda: now_s)
    use, told = CpuUse(lambda _pid: cpu_s), []
    for now_s, pid, cpu_s in seen:  # noqa: B007 - read by the functions above
        told.append(use.is_idle(pid))
    assert told == idle


def test_the_time_of_a_process_on_the_processors_is_as_it_says_itself():
    """In steps of some milliseconds; none of a process that is not there."""
    until_s = time.process_time() + 0.05
    while time.process_time() < until_s:
        pass
    assert cpu_s_of(os.getpid()) == pytest.approx(time.process_time(), abs=0.1)
    assert cpu_s_of(1 << 30) is None
