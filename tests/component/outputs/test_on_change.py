"""`--on-change`: when the command runs, what it gets, and what happens if it fails."""

from __future__ import annotations

import json
import time

import pytest

from support import wait_until
from support.processes import is_running
from support.samples import failed_sample, sample
from support.wired import Wired, wired
from tpumon.analysis.findings import Thresholds
from tpumon.errors import UsageError
from tpumon.model import Spread, Target, Workers
from tpumon.outputs import OutputSettings
from tpumon_exporters.on_change import OnChange


class Watching:
    """The output, with a clock that is set."""

    def __init__(self, command, *workers, limit_s=30.0):
        self.now = time.time()
        self.output = Wired(
            lambda context: OnChange(command, context, pace=lambda: self.now, limit_s=limit_s),
            settings=OutputSettings(thresholds=Thresholds(sustained=1)),
            clock=lambda: self.now,
        )
        self.output.add(Workers(targets=tuple(Target(worker=one, address=f"{one}:1") for one in workers)))

    def infeed(self, ratio, worker="a", after_s=1):
        self.now += after_s
        spread = Spread(avg=ratio, min=ratio, max=ratio)
        self.output.add(sample(worker, time_unix_s=self.now, infeed_ratio=spread))
        return self.tick()

    def lost(self, worker="a"):
        self.now += 1
        self.output.add(failed_sample(worker, time_unix_s=self.now))
        return self.tick()

    def tick(self):
        self.output.tick(self.now)
        return self


def changes(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_the_command_gets_each_change_as_one_object(tmp_path, said):
    """Not the first state of a worker that is well; that it answers again at once."""
    path = tmp_path / "out"
    watching = Watching(f"cat >> {path}", "a").infeed(0.01).tick()
    assert changes(path) == []
    watching.infeed(0.5).infeed(0.5).lost().infeed(0.01).infeed(0.01, after_s=15)
    found = changes(path)
    assert [(one["worker"], one["before"], one["state"], one["severity"]) for one in found] == [
        ("a", "ok", "live", "critical"),
        ("a", "critical", "down", found[1]["severity"]),
        ("a", "down", "live", "ok"),
    ]
    assert found[0]["words"] == "infeed 50%"
    assert {one["left_out"] for one in found} == {0}
    assert said == []


def test_what_the_last_samples_changed_is_told_at_the_end(tmp_path):
    path = tmp_path / "out"
    watching = Watching(f"cat >> {path}", "a").infeed(0.01)
    watching.output.add(failed_sample("a", time_unix_s=watching.now + 1))
    assert changes(path) == []
    watching.output.close()
    assert [one["state"] for one in changes(path)] == ["down"]


def test_many_changes_run_few_commands_and_are_counted(tmp_path):
    """Ten at once, then one in ten seconds."""
    path = tmp_path / "out"
    names = [f"w{number}" for number in range(30)]
    watching = Watching(f"cat >> {path}", *names)
    for name in names:
        watching.output.add(failed_sample(name, time_unix_s=watching.now))
    watching.tick()
    assert len(changes(path)) == 10
    watching.now += 10
    watching.infeed(0.01, "w0")
    assert [one["left_out"] for one in changes(path)[10:]] == [20]


def test_a_command_that_fails_is_said_once_until_it_works_again(tmp_path, said):
    """What it writes stays out of tpumon's own output."""
    flag = tmp_path / "flag"
    watching = Watching(f"echo noise; echo noise >&2; test -e {flag} || exit 7", "a")
    watching.infeed(0.01).infeed(0.5).infeed(0.01, after_s=20)
    assert said == ["--on-change: the command failed with exit status 7; run it by hand to see why"]
    flag.touch()
    watching.infeed(0.01, after_s=20)
    flag.unlink()
    watching.infeed(0.5)
    assert len(said) == 2


def test_a_command_that_hangs_is_stopped_with_its_children(tmp_path, said):
    """It holds up no more than its time."""
    pid = tmp_path / "pid"
    watching = Watching(f"sleep 1000 & echo $! > {pid}.new; mv {pid}.new {pid}; wait", "a", limit_s=0.5)
    watching.infeed(0.01).infeed(0.5)
    assert said == ["--on-change: the command was stopped after 0.5 s"]
    if pid.exists():  # on a busy machine it may not have come so far
        child = int(pid.read_text())
        wait_until(lambda: not is_running(child), 20, lambda: f"{child} still runs")


def test_a_command_that_does_not_read_is_fine(said):
    """It may not care about the details."""
    Watching("exec <&-; true", "a").infeed(0.01).infeed(0.5)
    assert said == []


def test_an_empty_command_is_refused():
    """As a variable that is set to nothing would be."""
    with pytest.raises(UsageError, match="--on-change is empty"):
        wired("on-change", " ")
