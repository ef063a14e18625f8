"""What the monitor writes to stdout, through an output that ticks and reports problems."""

from __future__ import annotations

import logging
import sys
import time
from importlib.metadata import EntryPoint, EntryPoints
from typing import ClassVar

import pytest
from msgspec.structs import replace

from support.given_feed import GivenFeed
from support.samples import sample
from tpumon.cli.commands import monitor
from tpumon.collection.event_sources import ExportersSource
from tpumon.errors import NoTargetError, UsageError
from tpumon.model import Target, Workers
from tpumon.outputs import Export, Output
from tpumon.outputs import output as outputs
from tpumon.outputs.live.view_settings import DisplaySettings
from tpumon.pipeline import FeedSettings

TARGETS = (Target(worker="w0", address="w0:1"),)


class Ticker(Output):
    """Notes what it is asked to do; `broken` makes ticks fail."""

    opened: ClassVar[list[Ticker]] = []
    broken = False

    def __init__(self, where):
        self.where, self.tick_s, self.calls = where, 0.01, []
        Ticker.opened.append(self)

    def on_update(self, update):
        self.calls.append("workers" if update.sample is None else "sample")

    def tick(self, now_unix_s):
        assert abs(now_unix_s - time.time()) < 5
        self.calls.append("tick")
        logging.getLogger("tpumon_exporters.ticker").warning("a problem")
        if self.broken:
            raise OSError(28, "No space left on device")

    def close(self):
        self.calls.append("close")


def open_ticker(where, _context):
    return Ticker(where)


def made():
    """One sample, after which nothing happens for a while."""
    yield Workers(targets=TARGETS)
    yield sample()
    for _ in range(5):
        time.sleep(0.01)
        yield None


@pytest.fixture
def ticker(monkeypatch):
    points = EntryPoints([EntryPoint(name="ticker", value=f"{__name__}:open_ticker", group="tpumon.exporters")])
    monkeypatch.setattr(outputs, "entry_points", points.select)
    monkeypatch.setattr(monitor, "open_feed", lambda given, **more: GivenFeed(given, made, **more))
    monkeypatch.setattr(Ticker, "opened", [])
    return monitor.MonitorSettings(
        feed=FeedSettings(source=ExportersSource("http://h:1")),
        display=DisplaySettings(),
        output=Export(name="ticker", where="-"),
    )


def test_an_output_on_stdout_ticks_while_no_sample_arrives(ticker, capsys):
    """And its problems are lines on stderr."""
    assert monitor.run(ticker) == 0
    (opened,) = Ticker.opened
    assert opened.where == "-"
    assert opened.calls[:2] == ["workers", "sample"]
    assert opened.calls.count("tick") >= 4
    assert opened.calls[-1] == "close"
    assert "tpumon: a problem" in capsys.readouterr().err


def test_a_filter_holds_for_every_output_on_stdout(ticker):
    """Not only for the live view; one that fits no worker is said."""
    found = replace(ticker, display=DisplaySettings(filter="W0"))
    assert monitor.run(found) == 0
    with pytest.raises(NoTargetError, match="--filter z: no worker has this name, state or finding: w0"):
        monitor.run(replace(ticker, display=DisplaySettings(filter="z")))
    assert monitor.run(replace(ticker, display=DisplaySettings(filter="live"))) == 0, "as in the live view"
    assert ["sample" in opened.calls for opened in Ticker.opened] == [True, False, True]


def test_a_filter_that_fits_no_worker_is_said_while_it_runs(ticker, capsys, monkeypatch):
    """Once, when one is seen again: by then all were asked. A run may never end."""
    monkeypatch.setattr(
        sys.modules[__name__], "made", lambda: [Workers(targets=TARGETS), *(sample() for _ in range(4))]
    )
    with pytest.raises(NoTargetError):
        monitor.run(replace(ticker, display=DisplaySettings(filter="z")))
    assert capsys.readouterr().err.count("state or finding: w0; waiting for one") == 1
    monitor.run(replace(ticker, display=DisplaySettings(filter="W0")))
    assert "--filter" not in capsys.readouterr().err


def test_a_tick_that_fails_is_said_once_and_in_the_exit_status(ticker, capsys, monkeypatch):
    """The run goes on."""
    monkeypatch.setattr(Ticker, "broken", True)
    assert monitor.run(ticker) == 1
    (opened,) = Ticker.opened
    assert opened.calls.count("tick") >= 4
    assert capsys.readouterr().err.count("cannot write samples: No space left on device; trying again") == 1


def test_wrong_options_of_an_output_on_stdout_name_the_option(ticker):
    """As `--output`, which is what was typed."""
    wrong = replace(ticker, output=Export(name="ticker", where="-", options={"a": "1"}))
    with pytest.raises(UsageError, match="--output ticker: this output has no options"):
        monitor.run(wrong)
