"""The thread between sampling and showing."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tpumon.errors import UsageError
from tpumon.system.background import Background


def test_events_come_in_order_and_the_end_is_the_end():
    """What the thread sends arrives in order; then the iteration ends."""

    async def main(send):
        for number in range(100):
            send(number)
            await asyncio.sleep(0)

    with Background(main) as background:
        assert list(background.events()) == list(range(100))


def test_an_exception_in_the_thread_is_raised_where_events_are_read():
    """An error over there is an error here, after what was sent before it."""

    async def main(send):
        send("last words")
        raise UsageError("no")

    got = []
    with Background(main) as background, pytest.raises(UsageError, match="no"):
        got.extend(background.events())
    assert got == ["last words"]


def test_leaving_ends_the_coroutine_and_its_thread():
    """Cancellation reaches the coroutine, which cleans up before the context is left."""
    cleaned = threading.Event()

    async def main(send):
        try:
            send("started")
            await asyncio.sleep(3600)
        finally:
            cleaned.set()

    with Background(main) as background:
        assert next(background.events()) == "started"
    assert cleaned.is_set()
    assert not any(thread.name == "tpumon-background" for thread in threading.enumerate())


def test_a_reader_that_stands_still_costs_events_not_the_sampler(monkeypatch):
    """Sending never blocks: the oldest are dropped, and counted."""
    monkeypatch.setattr("tpumon.system.mailbox._WAITING_LIMIT", 10)
    sent = threading.Event()

    async def main(send):
        for number in range(25):
            send(number)
        sent.set()

    with Background(main) as background:
        assert sent.wait(60)
        assert list(background.events()) == list(range(15, 25))
        assert background.dropped == 15


def test_waiting_for_events_can_be_interrupted_to_do_something_else():
    """With a timeout, nothing sent for so long is None."""

    async def main(send):
        await asyncio.sleep(3600)

    with Background(main) as background:
        assert next(background.events(timeout_s=0.01)) is None
