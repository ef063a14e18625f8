"""The queue between two threads."""

from __future__ import annotations

import pytest

from tpumon.system import mailbox
from tpumon.system.mailbox import Mailbox


def test_what_lasts_is_never_dropped_and_only_the_newest_counts(monkeypatch):
    """Who the workers are outlives a reader that stands still, however often it changes."""
    monkeypatch.setattr(mailbox, "_WAITING_LIMIT", 3)
    box = Mailbox[object](is_lasting=lambda item: isinstance(item, str))
    for item in ["who", 1, 2, "who else", 3, 4, 5]:
        box.send(item)
    assert box.fetch() == (["who else", 3, 4, 5], False)
    assert box.dropped == 2
    assert box.fetch() == ([], False)


def test_one_wakes_for_the_first_of_many_and_for_the_end():
    """Many workers that answer together cost one wake-up."""
    woken = []
    box = Mailbox[int](wake=lambda: woken.append(True))
    box.send(1)
    box.send(2)
    assert len(woken) == 1
    box.fetch()
    box.send(3)
    box.close()
    assert len(woken) == 3
    assert list(box.batches()) == [([3], True)]


@pytest.mark.parametrize("timeout_s", [0.0, 0.01])
def test_waiting_ends_without_items_when_it_is_to(timeout_s):
    """A tick is due although nothing came."""
    assert next(Mailbox[int]().batches(lambda: timeout_s)) == ([], False)
