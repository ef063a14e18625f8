"""`tpumon events`: what changed, and when, in words and as JSON."""

from __future__ import annotations

import json
import re
import time

import pytest
from msgspec.structs import replace

from support import free_port
from support.exporter import sample, serving
from support.given_feed import GivenFeed
from tpumon.cli.commands import events
from tpumon.collection.event_sources import ExportersSource, SamplingSource
from tpumon.collection.sampler import Pace
from tpumon.discovery.selection import Selection
from tpumon.errors import NoTargetError, UsageError
from tpumon.model import Change, Query, Target, Workers
from tpumon.pipeline import FeedSettings
from tpumon.simulator.simulator_settings import SimulatorSettings
from tpumon_exporters.web import Request


def of(exporter, **more):
    return {"feed": FeedSettings(source=ExportersSource(f"http://{exporter.address}")), **more}


@pytest.fixture
def exporter():
    """One that saw a worker go and another one being profiled."""
    now = time.time()
    with serving("a", "b") as output:
        for worker, ago_s, reason in (("b", 80, None), ("a", 64, None), ("a", 60, "unavailable"), ("b", 50, "busy")):
            output.add(sample(worker, reason=reason, time_unix_s=now - ago_s))
        output.add(sample("b", time_unix_s=now - 35))
        yield output


def test_what_an_exporter_remembers_is_printed(exporter, capsys):
    """A line each, oldest first; then it ends."""
    assert events.run(**of(exporter)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", "", line) for line in lines] == [
        "a  down: unavailable",
        "b  capture began: busy",
        "b  capture ended, ok: after about 15 s",
    ]


def test_what_happened_to_a_slice_is_one_line(capsys):
    """As JSON it is one object of each worker."""
    now = time.time()
    with serving("a", "b", "c") as output:
        for ago_s, reason in ((24, None), (20, "unavailable")):
            for worker in "abc":
                output.add(sample(worker, reason=reason, time_unix_s=now - ago_s))
        assert events.run(**of(output)) == 0
        (line,) = capsys.readouterr().out.splitlines()[-1:]
        assert line.endswith("  all 3 workers  down: unavailable")
        assert events.run(**of(output, output="jsonl")) == 0
    assert [json.loads(one)["worker"] for one in capsys.readouterr().out.splitlines()] == ["a", "b", "c"]


def test_what_happens_to_a_slice_while_somebody_watches_is_one_line_too(capsys, monkeypatch):
    """It is held for a few seconds, for its workers are not asked at the same moment; JSON lines come at once."""
    targets = tuple(Target(worker=name, address=f"{name}:1", slice="s") for name in "abc")
    now = time.time()
    sampled = [
        Workers(targets=targets),
        *(sample(worker, time_unix_s=now - 30) for worker in "abc"),
        *(sample(worker, reason="unavailable", time_unix_s=now - 20 + place) for place, worker in enumerate("abc")),
    ]
    for output, count in (("text", 1), ("jsonl", 3)):
        monkeypatch.setattr(events, "open_feed", lambda settings, **_: GivenFeed(settings, lambda: sampled))
        assert events.run(feed=FeedSettings(source=SamplingSource(query=Query(level=2))), output=output) == 0
        assert len(capsys.readouterr().out.splitlines()) == count


def test_that_an_exporter_was_away_is_two_lines(capsys):
    """Not one for each worker, whose own state nobody knows meanwhile; also for who reads it through another one."""
    gone = Change(
        number=0, time_unix_s=time.time() - 50, worker="exporter h:1", what="exporter", state="stale",
        severity="unknown", words="its 2 workers are not seen",
    )  # fmt: skip
    back = replace(gone, time_unix_s=time.time() - 10, state="live", severity="ok", words="it was away for 40 s")
    with serving("a", "b") as output:
        for event in (sample("a"), sample("b"), gone, back):
            output.add(event)
        assert events.run(**of(output)) == 0
        assert [line[21:] for line in capsys.readouterr().out.splitlines()[-2:]] == [
            "exporter h:1  does not answer: its 2 workers are not seen",
            "exporter h:1  answers again: it was away for 40 s",
        ]


def test_that_nothing_changed_is_said(capsys):
    """On stderr: a reader of stdout gets changes only."""
    with serving("a") as output:
        output.add(sample("a", time_unix_s=time.time() - 5))
        capsys.readouterr()  # where it listens
        assert events.run(**of(output)) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "tpumon: no change since the exporter began to follow its workers\n")


def test_as_json_every_field_has_a_name(exporter, capsys):
    assert events.run(**of(exporter, output="jsonl")) == 0
    first, *_, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first.items() >= {
        "schema": 1, "worker": "a", "what": "state", "state": "down", "severity": "critical", "before": "ok",
        "words": "unavailable",
    }.items()  # fmt: skip
    assert first["time_unix_s"] == pytest.approx(time.time() - 60, abs=30)
    assert (last["what"], last["state"], last["severity"], last["before"]) == ("capture-ended", "live", "ok", "busy")
    assert first["number"] < last["number"]


def test_an_exporter_that_does_not_answer_is_an_error():
    """With its reason; nobody waits for it."""
    feed = FeedSettings(source=ExportersSource(f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(NoTargetError, match="Connection refused"):
        events.run(feed=feed)


def test_an_exporter_of_an_earlier_version_remembers_nothing(exporter, monkeypatch):
    """It hands on samples only; that is said."""
    monkeypatch.setattr(
        exporter._server, "_answer", lambda request: exporter._pages.answer(Request(path=request.path, query={}))
    )
    with pytest.raises(UsageError, match="remembers no changes"):
        events.run(**of(exporter))


def test_workers_can_be_watched_for_changes(capsys):
    """Samples of this process: what changes is printed as it comes."""
    sampling = SamplingSource(
        query=Query(level=2, window_s=0.02),
        selection=Selection(simulate=SimulatorSettings(topology="v5e-8", scenario="idle")),
        pace=Pace(interval_s=0.0, max_duty_ratio=1.0, attempts=1, num_queries=2),
    )
    assert events.run(feed=FeedSettings(source=sampling)) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "  sim-v5e-8-w0  no-activity since then or earlier: the trace holds no event" in line
