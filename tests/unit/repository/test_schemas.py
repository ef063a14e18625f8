"""docs/schemas/: what is printed, and the golden files, are as the schemas say."""

from __future__ import annotations

import json
import re
import runpy
import tomllib

import pytest
from jsonschema import Draft202012Validator, ValidationError

from support import REPOSITORY
from support.captures import nested, saved, training, with_input, with_memory
from support.made_up import healthy
from support.sample_kinds import KINDS
from support.samples import failed_sample
from support.traces import CONV, Named, Traced, run_step
from tpumon.cli import process
from tpumon.system import console

MADE = runpy.run_path(str(REPOSITORY / "scripts" / "schemas.py"))
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in MADE["FOLDER"].glob("*.json")}
GOLDEN = REPOSITORY / "tests" / "golden"
START = 1_700_000_000.0


def check(name, document):
    Draft202012Validator(SCHEMAS[name]).validate(document)


def test_the_schemas_are_current():
    """Who changes a type or an option runs the script."""
    files = {path: path.read_text() for path in MADE["FOLDER"].iterdir()}
    assert files == MADE["files"](), "run .venv/bin/python scripts/schemas.py"
    for each in SCHEMAS.values():
        Draft202012Validator.check_schema(each)


@pytest.mark.parametrize("kind", KINDS)
def test_samples(kind):
    """Of every kind."""
    check("sample", KINDS[kind].to_json())


def test_golden_samples():
    """Those of each kind, and those in other files; more fields are welcome, other types are not."""
    samples = [json.loads(path.read_text()) for path in (GOLDEN / "samples").glob("[!t]*.json")]
    samples += map(json.loads, (GOLDEN / "outputs" / "samples.jsonl").read_text().splitlines())
    summary = json.loads((GOLDEN / "outputs" / "fleet-summary.json").read_text())
    samples += (worker["sample"] for worker in summary["workers"] if worker["sample"] is not None)
    assert len(samples) > 12
    for sample in samples:
        check("sample", sample)
    operations = json.loads((GOLDEN / "samples" / "top-operations.json").read_text())
    check("sample", samples[0] | {"new": 1} | operations)
    with pytest.raises(ValidationError):
        check("sample", samples[0] | {"idle_ratio": "0.5"})


@pytest.fixture
def printed(capfd):
    """Runs a command; returns what it prints."""

    def run(*arguments):
        process._run([str(one) for one in arguments])
        assert console.flush(10)
        return capfd.readouterr().out

    return run


@pytest.fixture
def recording(tmp_path):
    """Eight workers, of which one fails for a while."""
    lines = []
    for at in range(40):
        samples = [healthy(number, START + 10 * at, interval_s=10) for number in range(8)]
        if at % 20 > 12:
            samples[3] = failed_sample("w3", time_unix_s=START + 10 * at)
        lines += [json.dumps(one.to_json()) for one in samples]
    path = tmp_path / "day.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize("name", ["once", "why"])
def test_verdicts(name, recording, printed):
    """With findings and without."""
    document = json.loads(printed(name, "--from", recording, "--output", "json"))
    check(name, document)
    assert document["findings" if name == "why" else "workers"]


def test_requests(tmp_path, printed):
    """The time of a request."""
    traced = Traced()
    run_step(traced.core(0), 2, [(CONV, 5)])
    traced.host().event("python", "execute_model: 1 reqs, 4 toks", 0, 10, request_id1=Named("r-7"))
    document = json.loads(printed("why", "--request", "r-7", *saved(tmp_path, traced), "--output", "json"))
    check("why-request", document)
    assert document["hosts"][0]["batches"] == 1


def test_lines(recording, printed):
    """Samples with verdicts, and events."""
    samples = printed("--from", recording, "--output", "jsonl").splitlines()
    events = printed("events", "--from", recording, "--output", "jsonl").splitlines()
    assert len(samples) == 320
    assert events
    for name, lines in (("sample", samples), ("event", events)):
        for line in lines:
            check(name, json.loads(line))


def test_profiles(tmp_path, printed):
    """All sections of a report, a comparison, and the samples of `analyze`."""
    files = saved(tmp_path, training(name="a"), nested(), with_input(), with_memory())
    check("report", json.loads(printed("report", *files, "--section", "all", "--output", "json")))
    against = printed("report", files[0], "--against", files[1], "--output", "json")
    check("report-against", json.loads(against))
    found = json.loads(printed("analyze", *files, "--output", "json"))
    for sample in (*found["hosts"], found["combined"]):
        check("sample", sample)


def test_the_configuration(printed):
    """The example of the docs, and what `tpumon config` prints; a wrong name or type is none."""
    docs = (REPOSITORY / "docs" / "configuration.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", docs, re.DOTALL)
    check("configuration", tomllib.loads(example))
    check("configuration", tomllib.loads(printed("config")))
    for wrong in ("intervall = 30", "level = 'high'", "[serve]\ntop = 3"):
        with pytest.raises(ValidationError):
            check("configuration", tomllib.loads(wrong))
