"""An extra source as CONTRIBUTING.md says to add one: a class and an entry in the table."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from fakes.tpu_node import Answer, TpuNode, closed_port
from fakes.tpu_node import Figures as NodeFigures
from support.shown import answered, display_of, name_of, press, screen
from tpumon.cli.commands.doctor import command as doctor
from tpumon.collection import sources
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sources import ExtraSource, ProfilerSource, Reading
from tpumon.collection.sources.doctor_reports import About
from tpumon.discovery.finder import Fixed
from tpumon.discovery.selection import Selection
from tpumon.errors import SourceError
from tpumon.model import Figures, FigureWarning, Query, Sample, Target
from tpumon.model.documents import encoded


class BoardMemory(ExtraSource):
    """Memory as a board management controller might report it; the second target of a test has none."""

    name = "board"
    about = About(title="Board", key="boards", gives="board: HBM; free for the job", absent_remedy="plug it in")

    async def read(self) -> Reading | None:
        if self.target.worker == "without":
            return None
        if self.target.worker == "broken":
            raise SourceError("malformed", "odd bytes", address=self.target.address)
        return Reading(
            figures=Figures(hbm_used_bytes=3 << 30, mxu_utilization_ratio=0.99),
            warnings=(FigureWarning("runtime-error", "the board is hot"),),
        )


@pytest.fixture(autouse=True)
def table(monkeypatch):
    monkeypatch.setattr(sources, "EXTRA_SOURCES", (*sources.EXTRA_SOURCES, BoardMemory))


@pytest.fixture
def node():
    with TpuNode(Answer(figures=NodeFigures(mxu=25.0))) as node:
        yield node


def sample_of(worker, address):
    samples = []
    target = Target(worker=worker, address=address)
    query, pace = Query(level=2, window_s=0.1), Pace(num_queries=1, attempts=1)
    asyncio.run(Sampler(Fixed([target]), query, pace, on_sample=samples.append).run())
    (sample,) = samples
    return sample


def test_its_figures_are_merged_into_the_profilers_sample(node):
    """What the profiler measured stays; what it left absent is filled in."""
    sample = sample_of("w0", node.address)

    assert sample.source == "monitor"
    assert sample.figures.hbm_used_bytes == 3 << 30
    assert sample.figures.mxu_utilization_ratio == 0.25
    assert [warning.message for warning in sample.warnings] == ["the board is hot"]


def test_one_that_is_not_there_is_no_error_and_one_that_fails_is(node):
    """Either leaves the profiler's figures as they are."""
    assert sample_of("without", node.address).errors == ()
    broken = sample_of("broken", node.address)
    assert [(error.source, error.reason, error.line) for error in broken.errors] == [
        ("board", "malformed", f"{node.address}: odd bytes")
    ]
    assert broken.failure is None


class Counters(ProfilerSource):
    """A profiler as it may be added."""

    name = "counters"
    title = "the chip's counters"

    async def fetch(self, query):
        raise NotImplementedError


def odd(**parts):
    """An extra source with odd parts."""
    about = About(title="Odd", key="odd", gives="odd: nothing")
    return type("Odd", (BoardMemory,), {"name": "odd", "about": about, **parts})


def odd_method(outcome):
    """A method that returns this, or raises it."""

    async def method(self):
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return method


def fails_to_open(*_args):
    raise ZeroDivisionError("a bug")


ODD = {
    "open raises": {"open": fails_to_open},
    "open returns something odd": {"open": lambda *_: "text"},
    "read raises": {"read": odd_method(KeyError("a bug"))},
    "read is no coroutine": {"read": lambda _self: Reading()},
}


@pytest.mark.parametrize("parts", ODD.values(), ids=ODD)
def test_a_bug_in_one_costs_neither_the_profilers_figures_nor_those_of_others(node, monkeypatch, parts):
    """It is a failure of its own, while sampling and in what doctor reports."""
    monkeypatch.setattr(sources, "EXTRA_SOURCES", (odd(**parts), BoardMemory))
    sample = sample_of("w0", node.address)
    assert (sample.source, sample.figures.hbm_used_bytes) == ("monitor", 3 << 30)
    ((source, reason, message),) = [(error.source, error.reason, error.message) for error in sample.errors]
    assert (source, reason) == ("odd", "internal")
    assert message.startswith("a bug in tpumon: ")


@pytest.mark.parametrize(
    "parts",
    [
        *ODD.values(),
        {"examine": odd_method(OSError("a bug"))},
        {"places": fails_to_open},
    ],
    ids=[*ODD, "examine raises", "places raises"],
)
def test_a_bug_in_one_costs_nothing_else_in_what_doctor_reports(node, capsys, monkeypatch, tmp_path, parts):
    """Its own row says so."""
    monkeypatch.setenv("TPUMON_PAUSE_DIR", str(tmp_path))
    monkeypatch.setattr(sources, "EXTRA_SOURCES", (odd(**parts), BoardMemory))
    doctor.run(where=Selection(addresses=(node.address,)), output="json")
    shown = json.loads(capsys.readouterr().out)
    (report,) = shown["odd"]
    assert report["state"] == "failed"
    assert report["words"].startswith("a bug in tpumon: ")
    assert [each["state"] for each in shown["boards"]] == ["ok"]


def test_titles_of_sources_are_shown(monkeypatch):
    """That of a profiler on the worker's page, and all in the help."""
    monkeypatch.setattr(sources, "EXTRA_SOURCES", (*sources.EXTRA_SOURCES, odd(title="the board"), BoardMemory))
    monkeypatch.setattr(sources, "PROFILERS", (*sources.PROFILERS, Counters))
    display = display_of(answered(name_of(0), source="counters"))
    press(display, "enter")
    assert "from the chip's counters" in screen(display, 120)
    press(display, "h")
    shown = screen(display, 100, 120)
    for name, title in (("counters", "the chip's counters"), ("odd", "the board"), ("board", "board")):
        assert re.search(f"{name} +{title}", shown)


def test_one_that_cannot_be_closed_ends_no_run(node, capsys, monkeypatch, tmp_path):
    """What it read stays."""
    monkeypatch.setenv("TPUMON_PAUSE_DIR", str(tmp_path))
    monkeypatch.setattr(sources, "EXTRA_SOURCES", (odd(close=odd_method(OSError("a bug"))),))
    assert sample_of("w0", node.address).figures.hbm_used_bytes == 3 << 30
    doctor.run(where=Selection(addresses=(node.address,)), output="json")
    assert [report["state"] for report in json.loads(capsys.readouterr().out)["odd"]] == ["ok"]


def test_one_that_answers_alone_is_named_and_the_profilers_failure_stays():
    """Whatever it is called; also after a detour through JSON."""
    sample = sample_of("w0", f"127.0.0.1:{closed_port()}")
    assert (sample.source, sample.companions_only, sample.figures.hbm_used_bytes) == ("board", True, 3 << 30)
    assert sample.failure is not None
    assert sample.failure.source == "monitor"
    assert Sample.from_json(encoded(sample.document())).failure == sample.failure


def test_doctor_shows_it(node, capsys, monkeypatch, tmp_path):
    """In a section of its own, in what tpumon would use, and as a list of its own in JSON."""
    monkeypatch.setenv("TPUMON_PAUSE_DIR", str(tmp_path))
    for output in ("text", "json"):
        where = Selection(addresses=(node.address,))
        assert doctor.run(where=where, output=output) == 0
    text, _, plain = capsys.readouterr().out.rpartition("\n{")

    assert f"\nBoard\n  {node.address}    mxu_utilization_ratio, hbm_used_bytes\n" in text
    assert "  1 board: HBM; free for the job\n" in text
    assert "the board is hot" in text
    (report,) = json.loads("{" + plain)["boards"]
    assert (report["state"], report["warnings"]) == ("ok", ["the board is hot"])
