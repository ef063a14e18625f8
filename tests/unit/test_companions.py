"""A companion as docs/architecture.md says to add one: a class and an entry in the table."""

from __future__ import annotations

import asyncio
import json

import pytest

from fakes.tpu_node import Answer, TpuNode
from fakes.tpu_node import Figures as NodeFigures
from tpumon import sources
from tpumon.commands import doctor
from tpumon.errors import SourceError
from tpumon.model import Caution, Figures, Query, Target
from tpumon.sampler import Pace, Sampler
from tpumon.sources import Companion, Reading
from tpumon.sources.examination import About
from tpumon.targets.base import Fixed
from tpumon.targets.selection import Selection


class BoardMemory(Companion):
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
            warnings=(Caution("runtime-error", "the board is hot"),),
        )


@pytest.fixture(autouse=True)
def table(monkeypatch):
    monkeypatch.setattr(sources, "COMPANIONS", (*sources.COMPANIONS, BoardMemory))


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
    assert [caution.message for caution in sample.warnings] == ["the board is hot"]


def test_one_that_is_not_there_is_no_error_and_one_that_fails_is(node):
    """Either leaves the profiler's figures as they are."""
    assert sample_of("without", node.address).errors == ()
    broken = sample_of("broken", node.address)
    assert [(error.source, error.reason, error.line) for error in broken.errors] == [
        ("board", "malformed", f"{node.address}: odd bytes")
    ]
    assert broken.failure is None


def test_doctor_shows_it(node, capsys, monkeypatch, tmp_path):
    """In a section of its own, in what tpumon would use, and as a list of its own in JSON."""
    monkeypatch.setenv("TPUMON_PAUSE_DIR", str(tmp_path))
    for output in ("text", "json"):
        where = Selection(addresses=(node.address,))
        assert doctor.run(doctor.DoctorSettings(where=where, output=output)) == 0
    text, _, plain = capsys.readouterr().out.rpartition("\n{")

    assert f"\nBoard\n  {node.address}    mxu_utilization_ratio, hbm_used_bytes\n" in text
    assert "  1 board: HBM; free for the job\n" in text
    assert "the board is hot" in text
    (report,) = json.loads("{" + plain)["boards"]
    assert (report["state"], report["warnings"]) == ("ok", ["the board is hot"])
