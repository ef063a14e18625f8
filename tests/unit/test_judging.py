"""Samples judged as they come: which findings a line, a block and a metric have, and when."""

from __future__ import annotations

import io
import json

import pytest

from support.exporter import found
from support.samples import failed_sample, sample
from tpumon.fleet import Fleet, Thresholds
from tpumon.judging import Judging
from tpumon.metrics import collect
from tpumon.model import Evidence, Finding, Handover, Spread, Target, Workers
from tpumon.outputs import OutputOptions, open_output
from tpumon.view.explained import ExplainedText
from tpumon.view.text import TextOutput

NOW = 1_769_000_000.0
HIGH = Spread(avg=0.3, min=0.3, max=0.3)


def workers(*names):
    return Workers(targets=tuple(Target(worker=name, address=f"{name}:1", slice="s") for name in names))


def at(worker, number, **given):
    return sample(worker, time_unix_s=NOW + 10 * number, **({"infeed_ratio": HIGH, "idle_ratio": 0.1} | given))


def judging(*names):
    one = Judging(Thresholds())
    one.follow(workers(*names))
    return one


def ids(sample):
    return [cause.finding for cause in sample.findings]


def test_a_sample_has_the_findings_that_it_completes():
    """Not the next one; what can be judged of the worker is said beside them."""
    one = judging("a", "b")
    got = [judged for number in range(4) for judged in one.add(at("a", number))]
    assert [ids(judged) for judged in got] == [[], [], ["input-bound"], ["input-bound"]]
    assert "input-bound" not in got[1].judged, "two of three samples in a row agree: not known yet"
    assert {"input-bound", "idle"} <= set(got[2].judged)
    assert not {"hbm-growing", "straggler"} & set(got[2].judged)


def test_one_sample_below_the_limit_is_an_all_clear():
    """Three in a row cannot agree any more."""
    (judged,) = judging("a").add(at("a", 0, infeed_ratio=Spread(avg=0.0, min=0.0, max=0.0)))
    assert (ids(judged), "input-bound" in judged.judged) == ([], True)


def test_a_sample_that_was_judged_keeps_its_findings():
    """Those of the exporter that it comes from."""
    one = judging("a")
    told = at("a", 0, findings=(), judged=("hang",))
    assert [list(one.add(told)) for _ in range(5)] == [[told]] * 5


def test_a_large_fleet_is_judged_a_part_at_a_time_and_nothing_is_lost():
    """Samples wait for 1/32 of the workers, for the next sample of the same worker, or for the rest."""
    names = [f"w{number}" for number in range(96)]
    one = judging(*names)
    assert [len(one.add(at(name, 0))) for name in names[:6]] == [0, 0, 3, 0, 0, 3]
    assert [judged.worker for judged in (*one.add(at("w7", 0)), *one.add(at("w7", 1)))] == ["w7"]
    assert [judged.worker for judged in one.follow(workers("w7"))] == ["w7"]
    assert one.rest() == []


def test_json_lines_have_findings_and_what_was_judged(tmp_path):
    """Each line those of its own time; what waits at the end is written."""
    path = tmp_path / "out.jsonl"
    output = open_output("jsonl", str(path), OutputOptions())
    names = [f"w{number}" for number in range(64)]
    output.follow(workers(*names))
    for number in range(3):
        output.write(at("w0", number))
    assert len(path.read_text().splitlines()) == 2
    output.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [[one["finding"] for one in line["findings"]] for line in lines] == [[], [], ["input-bound"]]
    assert lines[2]["findings"][0]["since_unix_s"] == NOW
    assert "input-bound" in lines[2]["judged"]


@pytest.mark.parametrize("told", [False, True])
def test_the_metric_is_1_0_or_absent(told):
    """1 what is shown; 0 what was judged and is not shown; no series where nothing can be judged, or is stale."""
    fleet = Fleet()
    fleet.follow(found("a", "b", "c"))
    one = judging("a", "b", "c")
    for number in range(3):
        for name in ("a", "b"):
            (judged,) = one.add(at(name, number, infeed_ratio=HIGH if name == "a" else None))
            fleet.add(judged if told else at(name, number, infeed_ratio=HIGH if name == "a" else None))
    fleet.add(failed_sample("c", time_unix_s=NOW))
    fleet.assess(NOW + 20)
    families = collect(fleet.histories, NOW + 20, pytest.fail, judged=fleet.judged, names={"tpumon_finding"})
    series = dict(next(iter(families)).series)
    a, b = (dict(series[name]) for name in ("a", "b"))
    assert (a["input-bound",], a["idle",], a.get(("hbm-growing",))) == (1.0, 0.0, None)
    assert (b.get(("input-bound",)), b["idle",]) == (None, 0.0)
    assert "c" not in series
    families = collect(fleet.histories, NOW + 999, pytest.fail, judged=fleet.judged, names={"tpumon_finding"})
    assert next(iter(families)).series == []


def test_what_another_finding_explains_is_0():
    """Waiting for input explains idle time, so that it is not the host."""
    fleet = Fleet()
    fleet.follow(workers("a"))
    for number in range(4):
        fleet.add(at("a", number, idle_ratio=0.9))
    fleet.assess(NOW + 30)
    assert fleet.judged("a")["input-bound"] is True
    assert fleet.judged("a")["host-bound"] is False


def explained(*events, **options):
    stream = io.StringIO()
    output = ExplainedText(TextOutput(stream, level=2, number_samples=False), Thresholds(**options))
    for event in events:
        if isinstance(event, Workers):
            output.follow(event)
        elif isinstance(event, Handover):
            output.take_over(event)
        else:
            output.write(event)
    output.close()
    return [block.splitlines() for block in stream.getvalue().split("\n\n") if block.strip()]


def test_a_block_ends_with_its_findings_and_what_is_not_judged_comes_once():
    """Below the third sample of the first worker; blocks without a finding are as ever."""
    blocks = explained(workers("a"), *(at("a", number) for number in range(4)))
    findings = [[line for line in block if line.startswith("Finding")] for block in blocks]
    assert [len(lines) for lines in findings] == [0, 0, 1, 0, 1]
    assert findings[2][0].startswith(
        "Finding (critical): input-bound. On a, 30% of the step is spent waiting for infeed. To do: make input faster"
    )
    assert "Not judged: straggler (no other worker of its slice has figures)" in blocks[3]
    assert blocks[0][-1].startswith("Infeed percentage: 30.0%")


def test_a_short_run_says_at_its_end_what_is_not_judged():
    """Silence is no all-clear."""
    blocks = explained(workers("a"), at("a", 0))
    assert "Not judged: input-bound (3 samples in a row must agree)" in blocks[1]


def test_findings_of_a_worker_that_runs_nothing_have_no_block():
    """A hang is said although there are no figures."""
    quiet = [failed_sample("a", "empty-trace", time_unix_s=NOW + 10 * number) for number in range(2, 6)]
    blocks = explained(workers("a", "b"), at("a", 0), at("a", 1), *quiet)
    assert any(block[0] == "Worker: a" and block[1].startswith("Finding (info): hang.") for block in blocks)


def test_an_exporters_sentence_stands_for_its_finding():
    """Its samples have only a few words."""
    finding = Finding(
        finding="input-bound", severity="critical", workers=("b", "a"), slice="s", sentence="On 2 of 2 workers, X.",
        remedy="do Y; then Z", evidence={"x": Evidence(value=1.0)},
    )  # fmt: skip
    one = judging("a")
    (cause,) = [judged for number in range(3) for judged in one.add(at("a", number))][2].findings
    told = at("a", 3, slice="s", findings=(cause,), judged=("input-bound",))
    handover = Handover(complete=True, findings=(finding,))
    (block, *_) = explained(workers("a", "b"), handover, told)
    assert block[-1] == "Finding (critical): input-bound. On 2 of 2 workers, X. To do: do Y"
