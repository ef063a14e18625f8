"""Every output says the same of every worker: findings, severities, since when, and the exit status."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

from support.every_output import (
    EveryOutput,
    Reader,
    exit_of,
    grouped,
    grouped_causes,
    grouped_findings,
    judged_of,
    marks_of,
    said_of,
)
from support.given_feed import GivenFeed
from support.job_runs import JobRun, every
from support.scenes import BEGIN_UNIX_S
from support.shown import press
from tpumon.analysis import FleetStatus
from tpumon.analysis.findings import RULES
from tpumon.analysis.fleet_verdict import verdict_on
from tpumon.cli import enough_samples
from tpumon.cli.commands import mcp, once, why
from tpumon.cli.enough_samples import Needs
from tpumon.collection.event_sources import RecordingSource
from tpumon.model import Change
from tpumon.outputs.drawing.cells import clock
from tpumon.outputs.drawing.style import badge_of
from tpumon.pipeline import FeedSettings

_AWAY = {"down", "stale", "waiting"}


# Each night only: what they show, another run of each day shows outputs, too.
_AGAIN = {
    "steady", "straggler@80:worker=1,by=0.1+jitter", "input-bound@80", "input-bound@80:share=0.15+jitter",
    "preemption@80:worker=1,lasts=60", "jax+straggler@60:by=0.1", "jax+hang@60", "HBM nearly full",
}  # fmt: skip
_RUNS = [pytest.param(make, id=name, marks=[pytest.mark.nightly] * (name in _AGAIN)) for name, make in every()]


@pytest.mark.parametrize("make", _RUNS)
def test_all_outputs_say_the_same(make, tmp_path, monkeypatch, capsys):
    """Of one run of a job: text, JSON lines, screens, commands, metrics, readers of exporters, a recording of it."""
    job_run = make()
    run = EveryOutput(job_run, tmp_path)
    for number in run.run():
        reference = run.status()
        for reader in (run.reader, run.behind):
            assert said_of(reader.status()) == said_of(reference), f"{job_run.name}, round {number}"
            assert marks_of(reader.status()) == marks_of(reference), f"{job_run.name}, round {number}"
            assert judged_of(reader.status()) == judged_of(reference), f"{job_run.name}, round {number}"
        assert grouped_findings(reference.findings) == grouped_causes(reference), f"{job_run.name}, round {number}"
        both, behind = run.both.status(), run.behind_both.status()
        assert said_of(behind) == said_of(both), f"{job_run.name}, round {number}"
        assert marks_of(behind) == marks_of(both), f"{job_run.name}, round {number}"
        assert judged_of(behind) == judged_of(both), f"{job_run.name}, round {number}"
    _wanted(job_run, reference)
    _lines_and_text(run, reference)
    _screens(run, reference)
    _figures_of_sentences(run, reference)
    _metrics(run, reference)
    _commands(job_run, run, reference, monkeypatch, capsys)
    for reader in (run.reader, run.behind):
        there = reader.status()
        assert grouped_findings(there.findings) == grouped_findings(reference.findings)
        assert exit_of(there) == exit_of(reference)
        assert run.by_metrics(reader) == run.by_metrics()
        assert [replace(one, number=0) for one in there.changes] == [
            replace(one, number=0) for one in reference.changes
        ]
    both, behind = run.both.status(), run.behind_both.status()
    _fleet(job_run, reference, both)
    assert grouped_findings(both.findings) == grouped_findings(behind.findings) == grouped_causes(both)
    assert run.by_metrics(run.behind_both) == run.by_metrics(run.both)
    assert _unnumbered(both) == _unnumbered(behind)
    for exporter in (run.exporter, run.reader, run.both):
        late = Reader([exporter], "late")
        late.poll()
        assert said_of(late.status()) == said_of(exporter.status())
        assert marks_of(late.status()) == marks_of(exporter.status())
        assert grouped_findings(late.status().findings) == grouped_findings(exporter.status().findings)
        assert exit_of(late.status()) == exit_of(exporter.status())
    replayed = run.replayed()
    assert said_of(replayed) == said_of(reference)
    assert marks_of(replayed) == marks_of(reference)
    assert exit_of(replayed) == exit_of(reference)


def _wanted(job_run: JobRun, status: FleetStatus) -> None:
    """The job_run is the one that it is called: what it should show is found, so the test compares something."""
    assert job_run.wanted <= {one.finding for one in status.findings}, job_run.name
    began = re.search(r"@(\d+)", job_run.name)
    for one in status.findings if began is not None else ():
        early_s = 180.0 if one.finding == "hbm-growing" else job_run.interval_s  # the length of its blocks
        assert one.since_unix_s >= BEGIN_UNIX_S + float(began[1]) - early_s, (job_run.name, one.finding)


def _unnumbered(status: FleetStatus) -> list[Change]:
    return [replace(change, number=0) for change in status.changes]


_CONSEQUENCES = {
    rule.finding: {*rule.hidden_by, *rule.hidden_by_new} for rule in RULES if rule.hidden_by or rule.hidden_by_new
}


def _fleet(job_run: JobRun, status: FleetStatus, both: FleetStatus) -> None:
    """Two exporters of half of the workers each.

    By design they differ from one in three things: what is found by comparing may be found some intervals earlier or
    later, as others are compared; an exporter that follows none but the waiting workers says that they wait, because
    a reader hides nothing that an exporter says; and workers of no known job are compared with those of their exporter
    only.
    """
    if any(target.job is None for target in job_run.workers.targets):
        return
    found = {finding for each in said_of(status).values() for finding, *_ in each}
    for name, each in said_of(status).items():
        there = {finding: (grade, since) for finding, grade, since in said_of(both)[name]}
        for finding, grade, since in each:
            assert finding in there, f"{job_run.name}: {finding} of {name}"
            assert there[finding][0] == grade
            assert abs(there[finding][1] - since) <= 3 * job_run.interval_s
        for finding in there.keys() - {one[0] for one in each}:
            assert _CONSEQUENCES.get(finding, set()) & found, f"{job_run.name}: {finding} of {name}"
    assert exit_of(both) == exit_of(status)


def _lines_and_text(run: EveryOutput, status: FleetStatus) -> None:
    """Of workers that are there; of one that is not, the last line is of the time when it was."""
    wanted = {name: each for name, each in said_of(status).items() if status.workers[name].verdict.state not in _AWAY}
    by_lines = run.by_lines()
    assert {name: by_lines[name] for name in wanted} == wanted
    earlier = {name for name in wanted if any(one.since_or_earlier for one in status.workers[name].verdict.causes)}
    assert earlier == run.earlier_by_lines() & wanted.keys()
    by_text = run.by_text()
    for name, found in wanted.items():
        if status.workers[name].verdict.state in {"live", "no-activity"}:
            assert by_text.get(name, frozenset()) == {one[:2] for one in found}


def _screens(run: EveryOutput, status: FleetStatus) -> None:
    """Marks of the rows, titles of findings, and one line for each change."""
    now = run.clock()
    if len(status.workers) == 1:
        badge = badge_of(status.all()[0])
        assert any(line.strip().startswith(f"{badge.mark} {badge.word}".strip()) for line in run.screen())
    rows = [] if len(status.workers) == 1 else [line.split() for line in run.screen()[2 : 2 + len(status.workers)]]
    expected = [] if not rows else sorted((each.name, badge_of(each).mark.strip()) for each in status.all())
    assert sorted((row[1], row[0]) if row[0] not in status.workers else (row[0], "") for row in rows) == expected
    titles = [line for line in run.screen("w") if re.match(r" . .* confidence", line)]
    shown = re.findall(r" . ([\w-]+) · (\w+) · since (\S+(?: \S+)?)(?: or earlier)? · ", "\n".join(titles))
    assert [name for name, _, _ in shown] == [one.finding for one in verdict_on(status).findings]
    judged = [one for one in shown if one[0] not in {"down", "restarted"}]
    assert sorted((name, grade, since.removesuffix(" or earlier")) for name, grade, since in judged) == sorted(
        (one[0], one[1], clock(one[2], now)) for one in grouped_causes(status)
    )
    assert _or_earlier("\n".join(titles)) == _earlier_findings(status)
    assert _last_since(run.screen("w")) == _last_expected(status, now)
    changes = [line for line in run.screen("e")[2:] if re.match(r" +\d[\d:]+", line)]
    groups = status.by_slice(status.changes)[::-1]
    assert len(changes) == len(groups)
    for line, change in zip(changes, groups, strict=True):
        assert clock(change.time_unix_s, now) in line
        assert change.worker in line


def _or_earlier(text: str) -> list[str]:
    """Findings of which a text says that they may have begun earlier."""
    heads = re.findall(r"^(?: . |critical |warning |info )([\w-]+)(?: · |, since )(.*)", text, re.MULTILINE)
    return sorted(name for name, rest in heads if " or earlier" in rest)


def _earlier_findings(status: FleetStatus) -> list[str]:
    return sorted(one.finding for one in verdict_on(status).findings if one.since_or_earlier)


def _last_since(printed: list[str]) -> list[tuple[str, str]]:
    """Of findings of several workers: since when the last has it, where that shows, as a text says."""
    text = re.sub(r"\n {4,}(?!\S+:)", " ", "\n".join(printed))
    heads = re.split(r"^(?: . |critical |warning |info )([\w-]+)(?: · |, since )", text, flags=re.MULTILINE)[1:]
    said = (
        (name, re.search(r"workers: .*; the last since (?:\d{4}-\d\d-\d\d )?(\S+)", block))
        for name, block in zip(heads[::2], heads[1::2], strict=True)
    )
    return sorted((name, last[1]) for name, last in said if last and name not in {"down", "restarted"})


def _last_expected(status: FleetStatus, now: float) -> list[tuple[str, str]]:
    found = []
    for (finding, *_), (_, first, workers) in grouped(status).items():
        causes = (one for name in workers for one in status.workers[name].verdict.causes if one.finding == finding)
        last = clock(max(one.since_unix_s for one in causes), now)
        found += [(finding, last)] if last != clock(first, now) else []
    return sorted(found)


_SHARE = re.compile(r"(\d+(?:\.\d+)?)%")
_REFERENCE = re.compile(r"the median \S+|\S+ to (?=\S+%\))")
"""What a sentence compares with: of the slice, and of before."""


def _figures_of_sentences(run: EveryOutput, status: FleetStatus) -> None:
    """Each share of time in a sentence about one worker stands on that worker's screen, too."""
    for finding in (one for one in status.findings if len(one.workers) == 1 and not one.more_workers):
        keys = ["/", *finding.workers[0], "enter"] if len(status.workers) > 1 else []
        page = "\n".join(run.screen(*keys, "enter"))
        press(run.display, "esc", "esc")
        shown = [float(share) for share in _SHARE.findall(page)]
        for share in _SHARE.findall(_REFERENCE.sub("", finding.sentence)):
            near = 0.5 if "." not in share else 0.05
            assert any(abs(each - float(share)) <= near + 1e-9 for each in shown), (finding.sentence, page)


def _metrics(run: EveryOutput, status: FleetStatus) -> None:
    """Findings of workers that are there, and who answers."""
    found, up = run.by_metrics()
    expected = {name: each for name, each in said_of(status).items() if status.workers[name].verdict.state not in _AWAY}
    assert found == {name: each for name, each in expected.items() if each}
    for name, each in status.workers.items():
        state = each.verdict.state
        wanted = None if state in {"paused", "stale", "waiting"} else float(state not in _AWAY)
        assert up.get(name) == wanted, (name, state)


def _commands(job_run: JobRun, run: EveryOutput, status: FleetStatus, monkeypatch, capsys) -> None:
    """`once` and `why`, for people and as JSON, and what an agent is answered."""

    def events():
        yield job_run.workers
        yield from job_run.samples

    monkeypatch.setattr(
        enough_samples, "open_feed", lambda given, **more: GivenFeed(given, events, clock=run.clock, **more)
    )
    given = {"feed": FeedSettings(source=RecordingSource("recording")), "needs": Needs(samples=3)}

    def printed(command):
        exit_status = command.run(output="text", **given), command.run(output="json", **given)
        assert exit_status == (exit_of(status),) * 2
        text, _, plain = capsys.readouterr().out.rstrip("\n").rpartition("\n")
        return text, json.loads(plain)

    text, plain = printed(once)
    _once(text, plain, status)
    text, answer = printed(why)
    assert (plain["verdict"], plain["sentence"]) == (answer["verdict"], answer["sentence"])
    is_well = {each.verdict.status for each in status.all()} <= {"ok"}
    assert not is_well or answer["verdict"] in {"ok", "restarted"}, "rows and verdict say the same"
    _why(text, answer, status)
    questions = mcp.Questions(given["feed"], given["needs"], lambda: status)
    listed, asked = json.loads(questions.list_workers()), json.loads(questions.why())
    assert asked["findings"] == answer["findings"]
    assert {one["worker"]: (one["state"], one["severity"], sorted(one["findings"])) for one in listed["workers"]} == {
        each.name: (each.verdict.state, each.verdict.severity, sorted(one for one, *_ in said_of(status)[each.name]))
        for each in status.all()
    }


def _once(text: str, plain, status: FleetStatus) -> None:
    found = {
        one["worker"]: frozenset((c["finding"], c["severity"], round(c["since_unix_s"], 1)) for c in one["findings"])
        for one in plain["workers"]
    }
    assert found == said_of(status)
    marks = {
        one["worker"]: (one["severity"] if one["state"] == "live" else one["state"], round(one["since_unix_s"], 1))
        for one in plain["workers"]
    }
    assert marks == marks_of(status)
    for each in status.all():
        badge = badge_of(each)
        assert re.search(rf"^{re.escape(badge.mark)} +{re.escape(each.name)} +{badge.word} ", text, re.MULTILINE)


def _why(text: str, answer, status: FleetStatus) -> None:
    """States are findings of their own there."""
    findings = [one for one in answer["findings"] if one["finding"] not in {"down", "restarted"}]
    assert sorted(
        (one["finding"], one["severity"], one["since_unix_s"], len(one["workers"]) + one.get("more_workers", 0))
        for one in findings
    ) == grouped_causes(status)
    down = sum(len(one["workers"]) for one in answer["findings"] if one["finding"] == "down")
    assert down == sum(each.verdict.state == "down" for each in status.all())
    assert _last_since(text.splitlines()) == _last_expected(status, status.time_unix_s)
    assert [one.get("since_or_earlier", False) for one in answer["findings"]] == [
        one.since_or_earlier for one in verdict_on(status).findings
    ]
    assert _or_earlier(text) == _earlier_findings(status)
    heads = re.findall(r"^(critical|warning|info) ([\w-]+), since (\S+(?: \S+)*?) \(", text, re.MULTILINE)
    times = [(name, grade, since.split()[-1]) for grade, name, since in heads if name not in {"down", "restarted"}]
    assert sorted(times) == sorted(  # the date before it depends on which day it is
        (one[0], one[1], clock(one[2], status.time_unix_s)) for one in grouped_causes(status)
    )
