"""What programs read from tpumon, byte for byte: JSON, CSV, text blocks and the page of metrics."""

from __future__ import annotations

import io
import json

import pytest

from support.sample_kinds import KINDS, NOW, fleet, with_top_ops, workers_of
from support.wired import Wired, wired
from tpumon.analysis import Analysis
from tpumon.outputs.metrics import families as table
from tpumon.outputs.text_blocks import TextOutput
from tpumon_exporters.appending import Appended
from tpumon_exporters.exposition import END, Exposition
from tpumon_exporters.fleet_summary import FleetSummary

pytestmark = pytest.mark.usefixtures("quiet")

ALL = tuple(KINDS.values())
WHOLE = KINDS["trace"].to_json()
"""The sample of which the file has all fields; those of the others have what is not empty."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_as_json(golden, kind):
    """Each has the same fields, present or null."""
    written = KINDS[kind].to_json()
    assert written.keys() - {"companions_only"} == WHOLE.keys()
    if kind != "trace":
        written = {name: value for name, value in written.items() if value is not None and value not in ([], {})}
    golden.check(f"samples/{kind}.json", json.dumps(written, indent=1, ensure_ascii=False))


def test_top_operations_as_json(golden):
    """As `--with-ops 3` writes them: the fields of the sample that it adds."""
    told = with_top_ops(KINDS["trace"], 3).to_json()
    added = {name: told[name] for name in ("ops", "op_categories")}
    golden.check("samples/top-operations.json", json.dumps(added, indent=1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_is_read_back(kind):
    """What is written as JSON is the same sample when it is read."""
    told = KINDS[kind].to_json()
    assert type(KINDS[kind]).from_json(json.dumps(told)).to_json() == told


def written_to(path, name):
    """What an output has appended to a file of all kinds of samples."""
    output = wired(name, str(path))
    output.add(workers_of(*ALL))
    for sample in ALL:
        output.add(sample)
    output.close()
    return path.read_text()


def test_samples_as_csv(golden, tmp_path):
    """Lines and header."""
    golden.check("outputs/samples.csv", written_to(tmp_path / "out", "csv"))


_JUDGED = ("findings", "judged", "job_kind")


def test_samples_as_json_lines(golden, tmp_path):
    """One line each, with the verdict on its worker; the bytes of one of them."""
    lines = written_to(tmp_path / "out", "jsonl").splitlines()
    written = [json.loads(line) for line in lines]
    verdicts = {line["worker"]: {name: line.pop(name) for name in _JUDGED} for line in written}
    plain = [json.loads(json.dumps(sample.to_json())) for sample in ALL]
    assert written == [{name: one[name] for name in one if name not in _JUDGED} for one in plain]
    golden.check("outputs/samples.jsonl", lines[list(KINDS).index("down")])
    golden.check("outputs/samples-judged.json", json.dumps(verdicts, indent=1))


@pytest.mark.parametrize(
    ("name", "level", "number_samples"), [("level-1", 1, False), ("level-2", 2, False), ("numbered", 2, True)]
)
def test_text_blocks(golden, name, level, number_samples):
    """The blocks that scripts parse, of several workers and of one."""
    stream = io.StringIO()
    for samples in (ALL, (KINDS["trace"],)):
        output = Wired(lambda _context: TextOutput(stream, level=level, number_samples=number_samples))
        output.add(workers_of(*samples), *samples)
    golden.check(f"outputs/text-{name}.txt", stream.getvalue())


@pytest.mark.parametrize(("openmetrics", "ending"), [(False, "prom"), (True, "openmetrics")])
def test_the_page_of_metrics(golden, monkeypatch, openmetrics, ending):
    """Both formats, of all kinds of workers."""
    monkeypatch.setattr(table, "__version__", "0.0.0")
    fleet = Analysis()
    for event in (workers_of(*ALL), *ALL):
        fleet.add(event)
    page = Exposition("prometheus").render(fleet.status(NOW), openmetrics=openmetrics)
    golden.check(f"outputs/metrics.{ending}", page + (END if openmetrics else ""))


def test_the_summary_of_a_fleet(golden, tmp_path):
    """A line with the figures of all and the workers that are not ok."""
    path = tmp_path / "out"
    samples = fleet(8)
    output = Wired(lambda context: FleetSummary(Appended(str(path)), context, pace=lambda: 0.0), clock=lambda: NOW)
    output.add(workers_of(*samples[-8:]), *samples)
    output.close()
    (_, last) = path.read_text().splitlines()
    golden.check("outputs/fleet-summary.json", json.dumps(json.loads(last), indent=1, ensure_ascii=False))
