"""Outputs that run beside each other: what one of them waits for holds up nothing else."""

from __future__ import annotations

import threading

import pytest

from support import samples, wait_until
from tpumon import outputs
from tpumon.model import Target, Workers
from tpumon.outputs import QueuedOutput

FOUND = Workers(targets=(Target(worker="w", address="w:1"),))


def sample(number):
    return samples.sample(time_unix_s=number)


class Slow:
    """An output that does nothing until it may; then notes everything. Fails on the samples named."""

    def __init__(self, *failing):
        self.failing = failing
        self.may = threading.Event()
        self.got = []
        self.threads = set()

    def follow(self, found):
        self._note(found)

    def write(self, sample):
        self._note(sample.time_unix_s)
        if sample.time_unix_s in self.failing:
            raise OSError(28, "No space left on device")

    def close(self):
        self._note("closed")

    def _note(self, what):
        self.may.wait(10)
        self.threads.add(threading.current_thread().name)
        self.got.append(what)


@pytest.fixture
def said():
    return []


def test_an_output_that_hangs_holds_up_nobody(said):
    """Whoever hands over samples goes on at once; what waits is written when the output can."""
    slow = Slow()
    output = QueuedOutput(slow, "csv", said.append)
    output.follow(FOUND)
    for number in range(100):
        output.write(sample(number))
    assert slow.got == []
    slow.may.set()
    output.close()
    assert slow.got == [FOUND, *range(100), "closed"]
    assert slow.threads == {"tpumon-csv"}
    assert said == []


def test_what_is_too_much_is_dropped_oldest_first_and_said(said, monkeypatch):
    """Memory stays bounded; who the workers are is never dropped."""
    monkeypatch.setattr(outputs, "_WAITING_LIMIT", 5)
    slow = Slow()
    output = QueuedOutput(slow, "csv", said.append)
    output.follow(FOUND)
    wait_until(lambda: output._found is None, 5, "the thread waits in follow")
    for number in range(12):
        output.write(sample(number))
    slow.may.set()
    output.close()
    assert slow.got == [FOUND, 7, 8, 9, 10, 11, "closed"]
    assert said == ["csv: samples are dropped, oldest first: it is too slow"]


def test_an_output_that_fails_is_said_once_and_tried_on(said):
    """A full disk is one line, not one a sample; when it is over, a new one is told again."""
    slow = Slow(1, 2, 4)
    slow.may.set()
    output = QueuedOutput(slow, "csv", said.append)
    for number in range(6):
        output.write(sample(number))
    output.close()
    assert slow.got == [0, 1, 2, 3, 4, 5, "closed"]
    assert said == ["csv: cannot write samples: No space left on device; trying again with each sample"] * 2


def test_leaving_does_not_wait_for_an_output_that_hangs(said, monkeypatch):
    """The way out is bounded."""
    monkeypatch.setattr(outputs, "_CLOSE_S", 0.05)
    slow = Slow()
    output = QueuedOutput(slow, "csv", said.append)
    output.write(sample(1))
    output.close()
    assert slow.got == []
    slow.may.set()
