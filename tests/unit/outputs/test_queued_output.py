"""Outputs in threads of their own: a slow one delays nothing else, and those with a tick get it."""

from __future__ import annotations

import threading
import time

import pytest

from support import samples, wait_until
from tpumon.analysis import Update
from tpumon.model import Target, Workers
from tpumon.outputs import GuardedOutput, Output, QueuedOutput
from tpumon.outputs import output as outputs
from tpumon.system import mailbox

WORKERS = Workers(targets=(Target(worker="w", address="w:1"),))


def sample(number):
    return Update(time_unix_s=number, sample=samples.sample(time_unix_s=number))


class Slow(Output):
    """An output that does nothing until it may; then notes everything. Fails on the samples named."""

    def __init__(self, *failing):
        self.failing = failing
        self.may = threading.Event()
        self.got = []
        self.threads = set()

    def on_update(self, update):
        self._note(update.workers or update.time_unix_s)
        if update.time_unix_s in self.failing:
            raise OSError(28, "No space left on device")

    def close(self):
        self._note("closed")

    def _note(self, what):
        self.may.wait(10)
        self.threads.add(threading.current_thread().name)
        self.got.append(what)


def test_an_output_that_hangs_holds_up_nobody(said):
    """Whoever hands over samples goes on at once; what waits is written when the output can."""
    slow = Slow()
    output = QueuedOutput(slow, "csv")
    output.on_update(Update(time_unix_s=-1, workers=WORKERS))
    for number in range(100):
        output.on_update(sample(number))
    assert slow.got == []
    slow.may.set()
    output.close()
    assert slow.got == [WORKERS, *range(100), "closed"]
    assert slow.threads == {"tpumon-csv"}
    assert said == []


def test_what_is_too_much_is_dropped_oldest_first_and_said(said, monkeypatch):
    """Memory stays bounded; who the workers are is never dropped."""
    monkeypatch.setattr(mailbox, "_WAITING_LIMIT", 5)
    slow = Slow()
    output = QueuedOutput(slow, "csv")
    output.on_update(Update(time_unix_s=-1, workers=WORKERS))
    wait_until(lambda: output._mailbox._lasting is None, 60, "the thread waits in the first update")
    for number in range(12):
        output.on_update(sample(number))
    slow.may.set()
    output.close()
    assert slow.got == [WORKERS, 7, 8, 9, 10, 11, "closed"]
    assert said == ["csv: too slow; dropping samples, oldest first"]


def test_an_output_that_fails_is_said_once_and_tried_on(said):
    """A full disk is one line, not one a sample; when it is over, a new one is reported again."""
    slow = Slow(1, 2, 4)
    slow.may.set()
    output = QueuedOutput(slow, "csv")
    for number in range(6):
        output.on_update(sample(number))
    output.close()
    assert slow.got == [0, 1, 2, 3, 4, 5, "closed"]
    assert said == ["csv: cannot write samples: No space left on device; trying again with each sample"] * 2


def test_leaving_does_not_wait_for_an_output_that_hangs(said, monkeypatch):
    """The way out is bounded."""
    monkeypatch.setattr(outputs, "_CLOSE_S", 0.05)
    slow = Slow()
    output = QueuedOutput(slow, "csv")
    output.on_update(sample(1))
    output.close()
    assert slow.got == []
    slow.may.set()


class Clock(Slow):
    """An output that ticks every hundredth of a second; fails with each tick when it is to."""

    tick_s = 0.01

    def __init__(self, *, fails=False):
        super().__init__()
        self.may.set()
        self.fails = fails
        self.ticks = []

    def tick(self, now_unix_s):
        self.threads.add(threading.current_thread().name)
        self.ticks.append(now_unix_s)
        if self.fails:
            raise OSError(28, "No space left on device")


def test_an_output_ticks_without_samples_and_among_them(said):
    """In the thread of all its other calls, with the time; no longer once it is closed."""
    clock = Clock()
    output = QueuedOutput(clock, "textfile")
    began = time.time()
    wait_until(lambda: len(clock.ticks) >= 3, 60, "ticks without a sample")
    before = len(clock.ticks)
    for number in range(1000):
        output.on_update(sample(number))
        time.sleep(0.0001)
    wait_until(lambda: len(clock.ticks) > before, 60, "ticks among samples")
    output.close()
    after = len(clock.ticks)
    time.sleep(0.05)
    assert len(clock.ticks) == after
    assert clock.threads == {"tpumon-textfile"}
    assert clock.got == [*range(1000), "closed"]
    assert all(began - 1 < tick < time.time() + 1 for tick in clock.ticks)
    assert said == []


def test_ticks_that_fail_are_reported_once_while_samples_are_written(said):
    """Writing that works in between is no sign that ticks do."""
    clock = Clock(fails=True)
    output = QueuedOutput(clock, "textfile")
    for number in range(5):
        output.on_update(sample(number))
        wait_until(lambda: len(clock.ticks) > number, 60, "the next tick")  # noqa: B023
    output.close()
    assert said == ["textfile: cannot write samples: No space left on device; trying again"]


def test_a_reader_of_stdout_that_goes_away_ends_the_run(said):
    """Unlike that of a further output."""

    class Gone(Output):
        def on_update(self, _update):
            raise BrokenPipeError(32, "Broken pipe")

    GuardedOutput(Gone(), "csv").on_update(sample(1))
    assert said == ["csv: cannot write samples: Broken pipe; trying again with each sample"]
    with pytest.raises(BrokenPipeError):
        GuardedOutput(Gone()).on_update(sample(1))


def test_who_writes_to_stdout_knows_whether_the_last_sample_was_written(said):
    """For the exit status."""
    slow = Slow(1)
    slow.may.set()
    writer = GuardedOutput(slow)
    writer.on_update(sample(1))
    assert writer.failing
    assert said == ["cannot write samples: No space left on device; trying again with each sample"]
    writer.on_update(sample(2))
    assert not writer.failing
