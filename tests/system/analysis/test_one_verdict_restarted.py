"""A restart of tpumon in the middle of a fault changes no verdict: what they rest on is kept in a file."""

from __future__ import annotations

import json
import types
from copy import copy
from functools import partial

import pytest
from msgspec.structs import replace

from support.every_output import Clock, Exporter, Reader, marks_of, said_of
from support.job_runs import COMPUTED, INTERVAL_S, by_hand, running, simulated
from tpumon.analysis import Analysis
from tpumon.analysis import state_file as kept_module
from tpumon.analysis.state_file import StateFile
from tpumon.model import Process

FAULTS = {
    "hang": ("hang@120:worker=1", 24, 60.0),
    "straggler": ("straggler@80:worker=1,by=0.1", 20, INTERVAL_S),
    "slow-down": ("slow-down@120:by=0.5", 22, INTERVAL_S),
    "input-bound": ("input-bound@80", 20, INTERVAL_S),
    "down": ("down", 12, INTERVAL_S),
}


def course_of(fault):
    scenario, rounds, interval_s = FAULTS[fault]
    if fault == "down":
        return next(job_run for job_run in by_hand() if job_run.name == "down")
    return simulated(scenario, rounds, interval_s=interval_s, computed=True)


class Restarted:
    """An analysis that is given all of a run, and one that is restarted after some rounds."""

    def __init__(self, job_run, directory, monkeypatch):
        self.job_run, self.directory, self.clock = job_run, directory, Clock()
        monkeypatch.setattr(kept_module, "time", types.SimpleNamespace(time=self.clock))
        self.always, self.now = self._analysis(), self._analysis()

    def _analysis(self):
        fleet = Analysis(monotonic_s=self.clock.monotonic_s)
        fleet.add(self.job_run.workers)
        return fleet

    def give(self, rounds, *fleets):
        """The samples of these rounds, each seen by both; yields the worker of each."""
        for number in rounds:
            for sample in self.job_run.rounds[number]:
                self.clock.now = sample.time_unix_s + sample.took_s
                for fleet in fleets or (self.always, self.now):
                    fleet.add(sample)
                yield sample.worker
            self.clock.now = self.job_run.ends[number]
            for fleet in fleets or (self.always, self.now):
                fleet.tick(self.clock())

    def write(self, *, host=True):
        file = StateFile(str(self.directory), host=host)
        file.write(self.now.kept(self.clock()))
        return next(self.directory.iterdir())

    def restart(self, *, host=True):
        """What it knew is gone but for the file."""
        state = StateFile(str(self.directory), host=host).read()
        self.now = Analysis(monotonic_s=self.clock.monotonic_s)
        if state is not None:
            self.now.resume(state, self.clock())
        self.now.add(self.job_run.workers)
        return state

    def verdicts(self, fleet):
        status = fleet.status(self.clock())
        return {name: (mark, said_of(status)[name]) for name, mark in marks_of(status).items()}


def changes_since(fleet, time_unix_s):
    return [
        (change.worker, change.what, change.status, change.before, change.time_unix_s)
        for change in fleet.status(time_unix_s).changes
        if change.time_unix_s > time_unix_s
    ]


def consume(steps):
    for _ in steps:
        pass


@pytest.mark.parametrize("away", [0, 2], ids=["at once", "two intervals later"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_verdict_goes_on(fault, away, tmp_path, monkeypatch):
    """From each worker's first sample on: findings, severities, since when, and marks; nothing comes or goes."""
    run = Restarted(course_of(fault), tmp_path, monkeypatch)
    rounds = len(run.job_run.rounds)
    middle = rounds - 5
    consume(run.give(range(middle)))
    before = run.verdicts(run.always)
    assert fault in {finding for _, found in before.values() for finding, *_ in found} | {
        mark for (mark, _), _ in before.values()
    }
    run.write()
    consume(run.give(range(middle, middle + away), run.always))
    restarted_unix_s = run.clock()
    assert run.restart() is not None
    for worker in run.give(range(middle + away, rounds)):
        assert run.verdicts(run.now)[worker] == run.verdicts(run.always)[worker], run.clock() - restarted_unix_s
    assert run.verdicts(run.now) == run.verdicts(run.always)
    assert changes_since(run.now, restarted_unix_s) == changes_since(run.always, restarted_unix_s)


_MADE_UP = 8  # rounds: three that show it, three more, and two until a jump among few samples is no noise

_JOB_RUNS = {
    **{scenario: partial(simulated, scenario, 20, computed=True) for scenario, _ in COMPUTED},
    # Of a worker that is not sampled any more nothing is known after a restart, not even that it is stale.
    **{job_run.name: partial(copy, job_run) for job_run in by_hand() if "stale" not in job_run.name},
}


@pytest.mark.parametrize("name", _JOB_RUNS)
def test_a_restart_at_any_time_is_made_up_for_within_three_samples(name, tmp_path, monkeypatch):
    """What was present stays as it was. What is about to appear or to leave does so later by three samples at most.

    By design: samples in a row that agree are not kept; they are taken again.
    """
    job_run = _JOB_RUNS[name]()
    for middle in range(2, len(job_run.rounds) - _MADE_UP, 2):
        run = Restarted(job_run, tmp_path, monkeypatch)
        consume(run.give(range(middle)))
        before = run.verdicts(run.always)
        run.write()
        assert run.restart() is not None
        consume(run.give(range(middle, middle + _MADE_UP)))
        always = run.verdicts(run.always)
        for worker, (mark, found) in always.items():
            mark_now, found_now = run.verdicts(run.now)[worker]
            since = {finding: at for finding, _, at in found_now}
            assert {one[:2] for one in found_now} == {one[:2] for one in found}, (middle, worker)
            assert mark_now[0] == mark[0], (middle, worker)
            if always == before:  # what appears later explains others' findings later
                assert (mark_now, found_now) == (mark, found), (middle, worker)
            for finding, _, at in found:
                samples = 5 if finding == "straggler" else 3  # it began with the first of the three that show it
                assert since[finding] == pytest.approx(at, abs=samples * INTERVAL_S), (middle, worker, finding)


@pytest.mark.parametrize("fault", ["hang", "straggler", "slow-down"])
def test_without_the_file_it_does_not(fault, tmp_path, monkeypatch):
    """So the tests above compare something."""
    run = Restarted(course_of(fault), tmp_path, monkeypatch)
    rounds = len(run.job_run.rounds)
    consume(run.give(range(rounds - 2)))
    assert run.restart() is None
    consume(run.give(range(rounds - 2, rounds)))
    assert run.verdicts(run.now) != run.verdicts(run.always)


def _of_another_host(path):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"host": "another"}))


def _too_old(path):
    raw = json.loads(path.read_text())
    path.write_text(json.dumps(raw | {"time_unix_s": raw["time_unix_s"] - 90_000}))


def _from_the_future(path):
    raw = json.loads(path.read_text())
    path.write_text(json.dumps(raw | {"time_unix_s": raw["time_unix_s"] + 3600}))


def _cut(path):
    text = path.read_text()
    path.write_text(text[: len(text) // 2])


def _no_json(path):
    path.write_bytes(b"\xff\x00" * 1000)


def _another_kind(path):
    path.write_text("[1, 2]")


def _huge(path):
    with path.open("ab") as file:
        file.truncate(70 << 20)


def _deep(path):
    path.write_text("[" * 100_000)


def _a_directory(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [_of_another_host, _too_old, _from_the_future, _cut, _no_json, _another_kind, _huge, _deep, _a_directory],
    ids=lambda damage: damage.__name__.strip("_").replace("_", " "),
)
def test_a_file_that_is_not_of_this_host_and_time_is_ignored(damage, tmp_path, monkeypatch):
    """Nothing is known then, as after a first start."""
    run = Restarted(course_of("straggler"), tmp_path, monkeypatch)
    consume(run.give(range(15)))
    damage(run.write())
    assert run.restart() is None


def test_each_damaged_field_costs_no_more_than_itself(tmp_path, monkeypatch):
    """Whatever is in the file, samples are judged."""
    run = Restarted(course_of("straggler"), tmp_path, monkeypatch)
    consume(run.give(range(15)))
    path = run.write()
    whole = json.loads(path.read_text())
    for field in whole["workers"][0]:
        for damage in (None, -1e300, 10**400, "x", [], {}, [None] * 100, {"a": [1]}):
            broken = [one | {field: damage} for one in whole["workers"]]
            path.write_text(json.dumps(whole | {"workers": broken}))
            run.restart()
            consume(run.give(range(15, 16), run.now))
            run.now.kept(run.clock())
            assert len(run.verdicts(run.now)) == 4


@pytest.mark.parametrize("sign", ["uptime", "process"])
@pytest.mark.parametrize("fault", ["hang", "straggler", "slow-down", "input-bound"])
def test_a_job_that_was_restarted_meanwhile_begins_again(fault, sign, tmp_path, monkeypatch):
    """Its runtime's uptime went back, or its process is another one: nothing is kept of the job before it."""
    run = Restarted(course_of(fault), tmp_path, monkeypatch)
    rounds = run.job_run.rounds
    run.job_run.rounds = [[_signed(one, sign, number) for one in taken] for number, taken in enumerate(rounds)]
    middle = len(rounds) - 5
    consume(run.give(range(middle)))
    run.write()
    assert run.restart() is not None
    for number in range(middle, middle + 2):
        for sample in rounds[number]:
            run.clock.now = sample.time_unix_s + sample.took_s
            again = running(sample.worker, time_unix_s=sample.time_unix_s, interval_s=sample.interval_s, window_s=0.35)
            again = replace(again, address=sample.address, job="j", slice="s")
            run.now.add(_signed(again, sign, number - 1000))
            mark, found = run.verdicts(run.now)[sample.worker]
            assert (mark[0], found) == ("ok", frozenset())
    changes = run.now.status(run.clock()).changes
    assert {change.worker for change in changes if change.what == "restart"} == {one.worker for one in rounds[0]}


def _signed(sample, sign, number):
    """With the sign of its job: of one that began before round 0, or of another one for negative numbers."""
    if sign == "uptime":
        uptime_s = 5000.0 + 100 * number if number >= 0 else 5.0 + 100 * (number + 1000)
        uptime_s = uptime_s if number >= 0 else 5.0
        return replace(
            sample, figures=replace(sample.figures, runtime=replace(sample.figures.runtime, uptime_s=uptime_s))
        )
    process = Process(pid=7 if number >= 0 else 8, started_unix_s=None)
    runtime = replace(sample.figures.runtime, uptime_s=None)
    return replace(sample, process=process, figures=replace(sample.figures, runtime=runtime))


class _Ahead(Clock):
    """Two hours ahead of another clock."""

    def __init__(self, other):
        self._other = other

    def __call__(self):
        return self._other() + 7200.0

    def monotonic_s(self):
        return self._other.monotonic_s()


@pytest.mark.parametrize("fault", FAULTS)
def test_readers_of_an_exporter_that_is_restarted_go_on_with_it(fault, tmp_path, monkeypatch):
    """Also one whose clock is set otherwise: findings, severities, since when, marks; no change is said twice."""
    run = Restarted(course_of(fault), tmp_path, monkeypatch)
    exporter = Exporter(run.clock, "first")
    exporter.add(run.job_run.workers)
    readers = [Reader([exporter], "reader"), Reader([exporter], "ahead", _Ahead(run.clock))]
    rounds, middle = len(run.job_run.rounds), len(run.job_run.rounds) - 5
    for number in range(rounds):
        if number == middle:
            state = exporter.fleet.kept(run.clock())
            exporter = Exporter(run.clock, "second")
            exporter.fleet.resume(state, run.clock())
            exporter.add(run.job_run.workers)
            for reader in readers:
                reader.replace_exporter(0, exporter)
                reader.poll()
        for sample in run.job_run.rounds[number]:
            run.clock.now = sample.time_unix_s + sample.took_s
            run.always.add(sample)
            exporter.add(sample)
            for reader in readers:
                reader.poll()
                if number >= middle:
                    mine, always = run.verdicts(run.always)[sample.worker], readers[0]
                    assert run.verdicts(always.fleet)[sample.worker] == mine
    ahead = readers[1].status()
    for name, found in said_of(readers[0].status()).items():
        there = {(finding, grade): since for finding, grade, since in said_of(ahead)[name]}
        assert there == {(finding, grade): pytest.approx(since + 7200, abs=0.2) for finding, grade, since in found}
        assert marks_of(ahead)[name][0] == marks_of(readers[0].status())[name][0]
        assert marks_of(ahead)[name][1] == pytest.approx(marks_of(readers[0].status())[name][1] + 7200, abs=0.2)
