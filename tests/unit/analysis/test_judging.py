"""Samples judged as they come: which findings a line, a block and a metric have, and when."""

from __future__ import annotations

import io
import json

import pytest

from support.exporter import found
from support.samples import failed_sample, sample
from support.wired import Judged, Wired, wired
from tpumon.analysis import Analysis
from tpumon.analysis.findings import Thresholds
from tpumon.analysis.findings.rules.input_bound import InputBound
from tpumon.analysis.fleet_verdict import verdict_on
from tpumon.model import Evidence, ExporterSnapshot, Finding, Spread, StepTimes, Target, Workers
from tpumon.outputs import OutputSettings
from tpumon.outputs.explained_text import ExplainedText
from tpumon.outputs.metrics import collect
from tpumon.outputs.text_blocks import TextOutput

NOW = 1_769_000_000.0
STEP = StepTimes(avg=0.1, min=0.1, max=0.1, count=5)
HIGH = Spread(avg=0.3, min=0.3, max=0.3)


def workers(*names):
    return Workers(targets=tuple(Target(worker=name, address=f"{name}:1", slice="s") for name in names))


def at(worker, number, **given):
    usual = {"time_unix_s": NOW + 10 * number, "infeed_ratio": HIGH, "idle_ratio": 0.1, "step_time_s": STEP}
    return sample(worker, **usual | given)


def judging(*names):
    return Judged(workers(*names))


def ids(sample):
    return [cause.finding for cause in sample.findings]


def test_a_sample_has_the_findings_that_it_completes():
    """Not the next one; what can be judged of the worker is said beside them."""
    one = judging("a", "b")
    got = [one.judged(at("a", number)) for number in range(4)]
    assert [ids(judged) for judged in got] == [[], [], ["input-bound"], ["input-bound"]]
    assert "input-bound" not in got[1].judged, "two of three samples in a row agree: not known yet"
    assert {"input-bound", "idle"} <= set(got[2].judged)
    assert not {"hbm-growing", "straggler"} & set(got[2].judged)


def test_one_sample_below_the_limit_is_an_all_clear():
    """Three in a row cannot agree any more."""
    judged = judging("a").judged(at("a", 0, infeed_ratio=Spread(avg=0.0, min=0.0, max=0.0)))
    assert (ids(judged), "input-bound" in judged.judged) == ([], True)


def test_one_sample_without_figures_leaves_the_all_clear():
    """Three of them in a row take it away."""
    one = judging("a")
    low = Spread(avg=0.0, min=0.0, max=0.0)
    got = [one.judged(at("a", number, infeed_ratio=low if number == 0 else None)) for number in range(4)]
    assert ["input-bound" in judged.judged for judged in got] == [True, True, True, False]


@pytest.mark.parametrize(("gap_s", "ends_with"), [(0, 2), (100, 1)])
def test_after_a_gap_one_sample_below_the_limit_ends_a_finding(gap_s, ends_with):
    """Otherwise two in a row do: nobody looked meanwhile, so what was found before is old."""
    one = judging("a")
    low = Spread(avg=0.0, min=0.0, max=0.0)
    for number in range(4):
        before = one.judged(at("a", number, interval_s=10.0))
    later = [
        one.judged(at("a", number, interval_s=10.0, time_unix_s=NOW + 10 * number + gap_s, infeed_ratio=low))
        for number in (4, 5)
    ]
    assert ids(before) == ["input-bound"]
    assert ["input-bound" in ids(judged) for judged in later].index(False) == ends_with - 1


def test_after_a_gap_a_finding_stays_while_samples_show_it():
    """With its begin."""
    one = judging("a")
    for number in (0, 1, 2, 3, 14):
        judged = one.judged(at("a", number, interval_s=10.0))
    assert [(cause.finding, cause.since_unix_s) for cause in judged.findings] == [("input-bound", NOW)]


def test_a_finding_that_was_kept_over_a_restart_is_ended_by_one_sample_below_the_limit():
    """As after any gap."""
    before, after = Analysis(), Analysis()
    for number in range(4):
        for event in ([workers("a")] if number == 0 else []) + [at("a", number)]:
            before.add(event)
    after.resume(before.kept(NOW + 31), NOW + 40)
    after.add(workers("a"))
    judged = after.add(at("a", 5, infeed_ratio=Spread(avg=0.0, min=0.0, max=0.0))).sample
    assert "input-bound" not in ids(judged)


def test_what_the_first_samples_show_may_have_begun_earlier():
    """What comes later began with its first sample; a straggler takes three samples to see, and is dated back."""
    one, later = judging("a"), judging("a")
    low = Spread(avg=0.0, min=0.0, max=0.0)
    for number in range(5):
        (finding,) = one.update(at("a", number))[1] or [None]
        (after,) = later.update(at("a", number, infeed_ratio=low if number < 2 else HIGH))[1] or [None]
    assert (finding.since_unix_s, finding.since_or_earlier) == (NOW, True)
    assert (after.since_unix_s, after.since_or_earlier) == (NOW + 20, False)


@pytest.mark.parametrize(
    ("took_s", "reason", "since_s", "or_earlier"),
    [(30.0, "unavailable", 30.0, False), (0.1, "unavailable", 0.0, True), (30.0, "deadline", 0.0, True)],
)
def test_a_worker_whose_connection_ends_amid_a_long_query_was_there_until_then(took_s, reason, since_s, or_earlier):
    """As of one whose trace of the host hung it, until it was killed."""
    fleet = Analysis()
    fleet.add(workers("a"))
    fleet.add(failed_sample("a", reason, time_unix_s=NOW, took_s=took_s))
    verdict = fleet.status(NOW + 31).workers["a"].verdict
    assert (verdict.since_unix_s, verdict.since_or_earlier) == (NOW + since_s, or_earlier)


@pytest.mark.parametrize(
    ("heard_s", "down_s", "or_earlier"),
    [
        ([0], 0.5, False),  # it ended within a second of the first sample
        ([0], 4, False),
        ([0], 20, True),
        ([0, 1, 2], 20, True),  # `why` waits for its share of tracing
        ([0, 20, 40], 60, False),  # as often as it is sampled anyway
        ([0, 20, 40], 100, True),
    ],
)
def test_a_worker_may_have_gone_away_before_that_was_seen_if_it_was_not_asked_for_a_while(heard_s, down_s, or_earlier):
    """Its last sample tells when it was still there; so says its event, its exporter, and what is kept of it."""
    fleet, reader = Analysis(), Analysis()
    for one in (fleet, reader):
        one.add(workers("a"))
    for at_s in heard_s:
        fleet.add(sample("a", time_unix_s=NOW + at_s, took_s=0.1))
    for later_s in (0, 1):
        fleet.add(failed_sample("a", time_unix_s=NOW + down_s + later_s))
    status = fleet.status(NOW + down_s + 2)
    reader.add(fleet.snapshot(NOW + down_s + 2))
    read = reader.status(NOW + down_s + 2).workers["a"].verdict
    for verdict in (status.workers["a"].verdict, read):
        assert (verdict.since_unix_s, verdict.since_or_earlier) == (NOW + down_s, or_earlier)
    change = status.changes[-1]
    assert (change.status, change.before, change.since_or_earlier) == ("down", "ok", or_earlier)


def test_what_a_worker_was_before_it_was_down_is_still_as_old_as_it_was():
    """A late look at the outage says nothing about the trouble before it, which the first samples showed."""
    fleet = Analysis()
    fleet.add(workers("a"))
    for number in (0, 1, 2, 4, 5, 6):
        fleet.add(at("a", number))
    fleet.add(failed_sample("a", time_unix_s=NOW + 61))
    assert not fleet.status(NOW + 62).workers["a"].verdict.since_or_earlier
    for number in (7, 8):
        fleet.add(at("a", number))
    assert fleet.status(NOW + 81).workers["a"].verdict.since_or_earlier


def test_a_finding_that_takes_several_samples_began_with_the_first():
    one = judging("a", "b", "c")
    for number in range(3):
        for worker, idle in (("b", 0.4), ("c", 0.4), ("a", 0.05)):
            none = Spread(avg=0.0, min=0.0, max=0.0)
            _, last = one.update(at(worker, number, idle_ratio=idle, infeed_ratio=none))
    (finding,) = last
    assert (finding.finding, finding.since_unix_s, finding.since_or_earlier) == ("straggler", NOW, True)


def test_a_sample_that_was_judged_keeps_its_findings():
    """Those of the exporter that it comes from."""
    one = judging("a")
    told = at("a", 0, findings=(), judged=("hang",))
    assert [one.judged(told) for _ in range(5)] == [told] * 5
    assert one.judged(at("a", 1)).findings is None, "older than what the exporter judged last"


def test_a_bug_in_a_rule_costs_no_sample(monkeypatch, said):
    """It is said once, and the sample is one that nobody judged."""
    one = Judged(workers("a"))
    monkeypatch.setattr(InputBound, "severity_ratio", lambda *_: 1 / 0)
    assert [one.judged(at("a", number)).findings for number in range(2)] == [None, None]
    assert said == ["samples cannot be judged, a bug in tpumon: ZeroDivisionError: division by zero"]


def test_a_worker_that_fell_silent_is_compared_with_nobody():
    """Its last figures are those of another time."""
    one = judging("a", "b")
    for number in range(3):
        for name in ("a", "b"):
            one.judged(at(name, number))
    assert "straggler" in one.judged(at("a", 3)).judged
    late = [one.judged(at("a", number)) for number in range(90, 94)][-1]
    assert "straggler" not in late.judged


def test_the_first_samples_of_a_large_fleet_are_judged_one_by_one():
    """They are compared with the few workers that were queried before."""
    names = [f"w{number}" for number in range(64)]
    one = judging(*names)
    for number, name in enumerate(names):
        last = one.judged(at(name, number / 100, idle_ratio=0.1 + number / 1000))
    assert "idle" in last.judged


def test_json_lines_have_findings_and_what_was_judged(tmp_path):
    """Each line those of its own time."""
    path = tmp_path / "out.jsonl"
    output = wired("jsonl", str(path))
    output.add(workers("w0"))
    for number in range(3):
        output.add(at("w0", number))
    output.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [[one["finding"] for one in line["findings"]] for line in lines] == [[], [], ["input-bound"]]
    assert lines[2]["findings"][0]["since_unix_s"] == NOW
    assert "input-bound" in lines[2]["judged"]


@pytest.mark.parametrize("upstream", [False, True])
def test_the_metric_is_a_severity_0_or_absent(upstream):
    """Of what is shown; 0 what was judged and is not shown; no series where nothing can be judged, or is stale."""
    fleet = Analysis()
    fleet.add(found("a", "b", "c"))
    one = judging("a", "b", "c")
    for number in range(3):
        for name in ("a", "b"):
            given = at(name, number, infeed_ratio=HIGH if name == "a" else None)
            fleet.add(one.judged(given) if upstream else given)
    fleet.add(failed_sample("c", time_unix_s=NOW))
    families = collect(fleet.status(NOW + 20), pytest.fail, names={"tpumon_finding_severity"})
    series = dict(next(iter(families)).series)
    a, b = (dict(series[name]) for name in ("a", "b"))
    assert (a["input-bound",], a["idle",], a.get(("hbm-growing",))) == (3.0, 0.0, None)
    assert (b.get(("input-bound",)), b["idle",]) == (None, 0.0)
    assert "c" not in series
    families = collect(fleet.status(NOW + 999), pytest.fail, names={"tpumon_finding_severity"})
    assert next(iter(families)).series == []


def test_what_another_finding_explains_is_0():
    """Waiting for input explains idle time, so that it is not the host."""
    fleet = Analysis()
    fleet.add(workers("a"))
    for number in range(4):
        fleet.add(at("a", number, idle_ratio=0.9))
    findings = fleet.status(NOW + 30).workers["a"].findings
    assert findings["input-bound"] is not None
    assert findings["host-bound"] is None


def explained(*events, **options):
    stream = io.StringIO()
    text = TextOutput(stream, level=2, number_samples=False)
    settings_of_run = OutputSettings(thresholds=Thresholds(**options))
    output = Wired(lambda context: ExplainedText(text, context), settings=settings_of_run)
    output.add(*events)
    output.close()
    return [block.splitlines() for block in stream.getvalue().split("\n\n") if block.strip()]


def test_where_nobody_says_who_works_together_that_is_the_reason():
    alone = (Target(worker=name, address=f"{name}:1", independent=True) for name in ("a", "b"))
    blocks = explained(Workers(targets=tuple(alone)), *(at(name, number) for number in range(4) for name in ("a", "b")))
    lines = [line for block in blocks for line in block if "Not judged: straggler" in line]
    assert lines == [
        "Not judged: straggler (nothing says which workers work together; give each tpumon --job and --slice)"
    ]


def test_a_block_ends_with_its_findings_and_what_is_not_judged_comes_once():
    """Below the third sample of the first worker; blocks without a finding are as ever."""
    blocks = explained(workers("a"), *(at("a", number) for number in range(4)))
    findings = [[line for line in block if line.startswith("Finding")] for block in blocks]
    assert [len(lines) for lines in findings] == [0, 0, 1, 0, 1]
    assert findings[2][0].startswith(
        "Finding (critical): input-bound. On a, 30% of the step is spent waiting for infeed. To do: make input faster"
    )
    assert "Not judged: straggler (no other worker of its slice has figures of the same steps)" in blocks[3]
    assert blocks[0][-1].startswith("Infeed percentage: 30.0%")


def test_a_short_run_says_at_its_end_what_is_not_judged():
    """Silence is no all-clear."""
    blocks = explained(workers("a"), at("a", 0))
    assert "Not judged: input-bound (its samples show it so far, but 3 in a row must agree)" in blocks[1]


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
    (cause,) = [one.judged(at("a", number)) for number in range(3)][2].findings
    judged = at("a", 3, slice="s", findings=(cause,), judged=("input-bound",))
    snapshot = ExporterSnapshot(complete=True, findings=(finding,))
    (block, *_) = explained(workers("a", "b"), snapshot, judged)
    assert block[-1] == "Finding (critical): input-bound. On 2 of 2 workers, X. To do: do Y; then Z"


def test_what_the_first_samples_after_a_gap_show_is_no_all_clear_although_they_are_few():
    """Many samples before it did not show it; nobody looked since."""
    fleet = Analysis()
    fleet.add(workers("a"))
    low, high = (Spread(avg=ratio, min=ratio, max=ratio) for ratio in (0.0, 0.44))
    for number in range(20):
        fleet.add(at("a", number, infeed_ratio=low))
    for number in (30, 31):
        fleet.add(at("a", number, infeed_ratio=high))
        answer = verdict_on(fleet.status(NOW + 10 * number + 1))
        assert (answer.verdict, answer.sentence.startswith("May be input-bound")) == ("unknown", True)
    fleet.add(at("a", 32, infeed_ratio=high))
    assert verdict_on(fleet.status(NOW + 321)).verdict == "input-bound"
