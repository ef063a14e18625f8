"""The feed: what a run yields, what its outputs get, and how it ends."""

from __future__ import annotations

import json
import os
import socket

import pytest

from support import wait_until
from tpumon.analysis.history import state_of
from tpumon.collection.event_sources import SamplingSource
from tpumon.collection.sampler import Pace
from tpumon.discovery.selection import Selection
from tpumon.errors import NoTargetError, UsageError
from tpumon.model import Query
from tpumon.outputs import Export, OutputSettings
from tpumon.pipeline import Feed, FeedSettings
from tpumon.simulator.simulator_settings import SimulatorSettings
from tpumon.system import mailbox


def simulated(queries, *, exports=(), options=None):
    return FeedSettings(
        source=SamplingSource(
            query=Query(level=2, window_s=0.02),
            selection=Selection(simulate=SimulatorSettings(topology="v3-8")),
            pace=Pace(interval_s=0.0, max_duty_ratio=1.0, num_queries=queries),
        ),
        exports=exports,
        output_settings=options or OutputSettings(),
    )


def silent():
    """Workers that do not answer."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    return FeedSettings(
        source=SamplingSource(
            query=Query(level=2, window_s=0.02),
            selection=Selection(addresses=(address,)),
            pace=Pace(interval_s=0.0, attempts=1, num_queries=1),
        )
    )


def test_it_yields_who_the_workers_are_then_their_samples(tmp_path):
    """Outputs get every sample, too."""
    file = tmp_path / "samples.jsonl"
    with Feed(simulated(3, exports=[Export(name="jsonl", where=str(file))]), consumer="the test") as feed:
        updates = list(feed.updates())
    assert updates[0].workers is not None
    assert [update.sample is not None for update in updates] == [False, True, True, True]
    assert len(file.read_text().splitlines()) == 3


def test_it_can_be_fetched_without_waiting():
    """For a loop that waits for other things, too: it is woken, and the call after the end raises what ended it."""
    read_end, write_end = os.pipe()
    with Feed(simulated(2), consumer="the test", wake=lambda: os.write(write_end, b"\0")) as feed:
        events = []
        ended = False
        while not ended:
            os.read(read_end, 100)
            fetched, ended = feed.fetch()
            events += fetched
        assert feed.fetch() == ([], True)
    assert sum(update.sample is not None for update in events) == 2
    for end in (read_end, write_end):
        os.close(end)


def test_a_run_without_any_answer_is_an_error(said):
    """Iterating says what is wrong in a notice, then raises."""
    with (
        Feed(silent(), consumer="the test") as feed,
        pytest.raises(NoTargetError, match="never answered"),
    ):
        list(feed.updates())
    (notice,) = said
    assert "[unavailable]" in notice


def test_a_run_in_which_nothing_runs_is_no_error():
    """An idle TPU answers with an empty trace: it is not said to be gone, and the run ends well."""
    settings = FeedSettings(
        source=SamplingSource(
            query=Query(level=2, window_s=0.02),
            selection=Selection(simulate=SimulatorSettings(topology="v5e-8", scenario="idle")),
            pace=Pace(interval_s=0.0, max_duty_ratio=1.0, attempts=1, num_queries=1),
        )
    )
    with Feed(settings, consumer="the test") as feed:
        (sample,) = (update.sample for update in feed.updates() if update.sample is not None)
    assert state_of(sample) == "no-activity"


def test_a_run_without_any_answer_is_an_error_to_whoever_fetches():
    """The last fetch raises what iterating would."""
    with Feed(silent(), consumer="the test") as feed, pytest.raises(NoTargetError, match="never answered"):
        wait_until(lambda: feed.fetch() is None, 60, "the call after the end")


def test_what_the_consumer_is_too_slow_for_is_said_once_and_reaches_the_outputs(tmp_path, monkeypatch, said):
    """Samples are dropped for the consumer alone; who the workers are is not."""
    file = tmp_path / "samples.jsonl"
    settings = simulated(12, exports=[Export(name="jsonl", where=str(file))])
    with monkeypatch.context() as patched:
        patched.setattr(mailbox, "_WAITING_LIMIT", 3)
        feed = Feed(settings, consumer="the test")
    with feed:
        wait_until(lambda: feed._background._mailbox._closed, 60, "all samples are taken")
        updates = list(feed.updates())
    assert updates[0].workers is not None
    assert sum(update.sample is not None for update in updates) == 3
    drops = [line for line in said if "dropped" in line]
    assert drops == ["samples are dropped, oldest first: the test is too slow"]
    assert len(file.read_text().splitlines()) == 12


def test_an_output_that_cannot_be_opened_ends_the_run_before_it_starts(tmp_path):
    """No worker is asked; outputs that were open already are closed."""
    exports = [Export(name="jsonl", where=str(tmp_path / "x.jsonl")), Export(name="pigeon", where="x")]
    feed = Feed(simulated(1, exports=exports), consumer="the test")
    with pytest.raises(UsageError, match="pigeon"):
        feed.__enter__()
    assert not feed._background._thread.is_alive()


def test_outputs_get_the_options_of_the_run(tmp_path, monkeypatch):
    """Level, TLS and thresholds are the same for all outputs."""
    options = OutputSettings(level=1)
    opened = []
    from tpumon import pipeline as module

    original = module.open_output
    monkeypatch.setattr(module, "open_output", lambda *arguments: opened.append(arguments) or original(*arguments))
    where = str(tmp_path / "x.jsonl")
    with Feed(simulated(1, exports=[Export(name="jsonl", where=where)], options=options), consumer="the test") as feed:
        list(feed.updates())
    assert opened == [("jsonl", where, feed.context, {})]
    assert feed.context.settings == options


def test_json_lines_of_a_run_are_its_samples(tmp_path):
    """What an output writes is what is shown, and what is wrong with the worker."""
    file = tmp_path / "samples.jsonl"
    with Feed(simulated(1, exports=[Export(name="jsonl", where=str(file))]), consumer="the test") as feed:
        (sample,) = (update.sample for update in feed.updates() if update.sample is not None)
    written = json.loads(file.read_text())
    assert written["findings"] == []
    assert "hang" in written["judged"]
    assert written == sample.to_json()


def test_a_bug_in_the_analysis_ends_neither_sampling_nor_outputs(tmp_path, monkeypatch, capfd):
    """It is said once; what can be analysed goes on."""
    from tpumon.analysis import Analysis
    from tpumon.system import console

    original, calls = Analysis.add, []

    def add(self, event):
        calls.append(event)
        if len(calls) == 3:
            raise ZeroDivisionError("made up")
        return original(self, event)

    monkeypatch.setattr(Analysis, "add", add)
    file = tmp_path / "samples.jsonl"
    with Feed(simulated(4, exports=[Export(name="jsonl", where=str(file))]), consumer="the test") as feed:
        list(feed.updates())
    console.flush(5.0)
    assert len(file.read_text().splitlines()) == 3
    assert capfd.readouterr().err.count("a bug in tpumon: ZeroDivisionError: made up") == 1
