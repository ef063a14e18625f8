"""A fleet that is sampled while somebody asks: one sampler, from the first question until nobody asks."""

from __future__ import annotations

import threading
import time

import pytest

from support import wait_until
from support.given_feed import GivenFeed
from support.samples import sample
from tpumon.cli import enough_samples, watching
from tpumon.cli.enough_samples import Needs
from tpumon.cli.watching import Watch
from tpumon.collection.event_sources import ExportersSource
from tpumon.errors import NoTargetError, UsageError
from tpumon.model import StepTimes, Target, Workers
from tpumon.pipeline import FeedSettings

STEP = StepTimes(avg=0.1, min=0.1, max=0.1, count=5)


@pytest.fixture
def feed(monkeypatch):
    """Feeds that were opened, each with the events that a test gives it."""

    class Feeds:
        def __init__(self):
            self.opened, self.ended, self.events, self.error, self.more = 0, 0, [], None, threading.Event()

    feeds = Feeds()

    def ended():
        feeds.ended += 1

    def events():
        yield Workers(targets=(Target(worker="a", address="a:1"),))
        if feeds.error is not None:
            raise feeds.error
        yield from (event() for event in feeds.events)
        while True:
            feeds.more.wait(0.01)
            yield None

    def opened(given, **more):
        feeds.opened += 1
        return GivenFeed(given, events, on_exit=ended, **more)

    monkeypatch.setattr(enough_samples, "open_feed", opened)
    monkeypatch.setattr(watching, "LOOK_S", 0.01)
    return feeds


def settings():
    return FeedSettings(source=ExportersSource("http://h:1"))


def taken():
    return sample("a", time_unix_s=time.time(), idle_ratio=0.1, step_time_s=STEP)


def samples_of(status):
    return status.workers["a"].history.samples


def test_the_first_question_starts_sampling_and_the_next_finds_what_is_known(feed):
    """Nothing is sampled before; there is one feed for all questions, whichever thread asks."""
    feed.events = [taken] * 3
    watch = Watch(settings(), Needs(samples=3))
    assert feed.opened == 0
    got = []
    asking = [threading.Thread(target=lambda: got.append(samples_of(watch.ask()))) for _ in range(4)]
    for one in asking:
        one.start()
    for one in asking:
        one.join(30)
    assert (got, feed.opened) == ([3] * 4, 1)
    watch.close()
    assert feed.ended == 1


def test_an_answer_does_not_wait_for_ever(feed):
    """What is known then is judged, and says that it is too little."""
    feed.events = [taken]
    watch = Watch(settings(), Needs(samples=3), patience_s=0.05)
    assert samples_of(watch.ask()) in {0, 1}
    watch.close()


def test_sampling_ends_when_nobody_asks_and_begins_anew(feed):
    """An agent that is done costs the job nothing."""
    feed.events = [taken] * 3
    watch = Watch(settings(), Needs(samples=3), idle_s=0.05)
    watch.ask()
    wait_until(lambda: feed.ended == 1 and watch._thread is None, 30, "nobody asks, and it goes on sampling")
    assert samples_of(watch.ask()) == 3
    assert feed.opened == 2
    watch.close()


def test_what_went_wrong_is_raised_where_somebody_asks(feed):
    """And tried again with the next question."""
    feed.error = UsageError("cannot listen there")
    watch = Watch(settings(), Needs(samples=3))
    for _ in range(2):
        with pytest.raises(UsageError, match="cannot listen there"):
            watch.ask()
    feed.error, feed.events = None, [taken] * 3
    assert samples_of(watch.ask()) == 3
    watch.close()


def test_no_worker_is_an_answer(feed):
    """With the reason."""
    feed.events = [lambda: Workers(waiting="no job here")]
    watch = Watch(settings(), Needs(samples=3))
    with pytest.raises(NoTargetError, match="no job here"):
        watch.ask()
    watch.close()
