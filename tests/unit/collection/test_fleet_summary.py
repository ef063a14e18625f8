"""JSON lines about a fleet: its figures, and the workers that are not ok."""

from __future__ import annotations

import json
import time

import pytest

from support.samples import failed_sample, sample
from support.wired import Wired, wired
from tpumon.analysis.findings import Thresholds
from tpumon.model import Spread, StepTimes, Target, Workers
from tpumon.outputs import OutputSettings
from tpumon_exporters.appending import Appended
from tpumon_exporters.fleet_summary import FleetSummary, FleetSummaryOptions

START = 1_000_000.0


class Log:
    """An output with a clock that is set, and the lines it has written; one sample suffices unless it is said."""

    def __init__(self, directory, *workers, sustained=1, **options):
        self.path = directory / "fleet.jsonl"
        self.now = START
        self.output = Wired(
            lambda context: FleetSummary(
                Appended(str(self.path)), context, FleetSummaryOptions(**options), pace=lambda: self.now
            ),
            settings=OutputSettings(thresholds=Thresholds(sustained=sustained)),
            clock=lambda: self.now,
        )
        self.output.add(Workers(targets=tuple(Target(worker=w, address=f"{w}:1") for w in workers)))

    def add(self, worker, at, *, infeed=0.01, reason=None):
        self.now = START + at
        if reason is not None:
            self.output.add(failed_sample(worker, reason, time_unix_s=self.now))
            return
        spread = Spread(avg=infeed, min=infeed, max=infeed)
        self.output.add(sample(worker, time_unix_s=self.now, source="monitor", infeed_ratio=spread))

    def tick(self, at):
        self.now = START + at
        self.output.tick(self.now)

    @property
    def lines(self):
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path, "a", "b", "c")


def test_the_first_line_comes_when_everyone_was_heard(log):
    """Not three lines for three workers, and no line that calls two of them unheard of."""
    for worker in "abc":
        assert log.lines == []
        log.add(worker, 0.1)
    (line,) = log.lines
    assert line["fleet"]["counts"] == {"ok": 3}
    assert line["workers"] == []


def test_a_worker_that_is_not_heard_of_holds_up_nobody_for_long(log):
    """After 2 s the first line comes without it, and says so."""
    log.add("a", 0)
    log.add("b", 2.5)
    (line,) = log.lines
    assert [(row["worker"], row["state"], row["sample"]) for row in line["workers"]] == [("c", "waiting", None)]


def test_one_line_an_interval(log):
    """However many samples come, a line is written once an interval; the end writes what is left."""
    for at in range(0, 35, 5):
        for worker in "abc":
            log.add(worker, at)
    assert [line["time_unix_s"] - START for line in log.lines] == [0, 10, 20, 30]
    log.add("a", 33)
    log.output.close()
    assert log.lines[-1]["time_unix_s"] == START + 33


def test_lines_go_on_when_no_sample_comes(log):
    """A tick writes the line that is due; workers that fell silent are stale in it."""
    for worker in "abc":
        log.add(worker, 0)
    for at in range(1, 40):
        log.tick(at)
    assert [line["time_unix_s"] - START for line in log.lines] == [0, 10, 20, 30]
    assert log.lines[0]["fleet"]["counts"] == {"ok": 3}
    assert {row["state"] for row in log.lines[-1]["workers"]} == {"stale"}


def test_a_tick_before_the_first_sample_writes_nothing(log):
    """Nothing is known yet."""
    log.tick(100)
    assert log.lines == []


def test_the_interval_can_be_set(tmp_path):
    """Whatever the workers' intervals are."""
    log = Log(tmp_path, "a", interval_s=3)
    for at in range(10):
        log.add("a", at)
    assert [line["time_unix_s"] - START for line in log.lines] == [0, 3, 6, 9]


def test_thresholds_come_from_the_run(tmp_path):
    """What stands out is the user's to say, as in the view."""
    path = tmp_path / "fleet.jsonl"
    limits = Thresholds(infeed_warn_ratio=0.001, infeed_critical_ratio=0.005, sustained=1)
    settings_of_run = OutputSettings(thresholds=limits)
    output = wired("fleet-summary", str(path), settings=settings_of_run)
    output.add(Workers(targets=(Target(worker="a", address="a:1"),)))
    infeed = Spread(avg=0.01, min=0.01, max=0.01)
    output.add(sample("a", time_unix_s=time.time(), source="monitor", infeed_ratio=infeed))
    output.close()
    (row,) = json.loads(path.read_text())["workers"]
    assert row["severity"] == "critical"


def test_workers_that_are_not_ok_are_told_worst_first_with_their_figures(log):
    """A dead one has its reason and no figures; a slow one its sample; those that are ok only count."""
    log.add("a", 0, infeed=0.1)
    log.add("b", 0, reason="unavailable")
    log.add("c", 0)
    (line,) = log.lines
    assert line["fleet"]["figures"]["infeed"]["count"] == 2
    dead, slow = line["workers"]
    assert (dead["worker"], dead["state"], dead["causes"], dead["sample"]) == ("b", "down", ["unavailable"], None)
    assert (slow["worker"], slow["severity"], slow["causes"]) == ("a", "warning", ["infeed 10%"])
    assert slow["sample"]["infeed_ratio"]["avg"] == 0.1


def test_workers_with_too_few_samples_are_not_called_ok(tmp_path):
    """One sample of each: nobody can be named a straggler yet, and nobody is ok."""
    log = Log(tmp_path, "a", "b", "c", sustained=3)
    for worker, step_s in (("a", 0.2), ("b", 0.1), ("c", 0.1)):
        times = StepTimes(avg=step_s, min=step_s, max=step_s, count=5)
        log.output.add(sample(worker, time_unix_s=START, step_time_s=times))
    (line,) = log.lines
    assert line["too_few_samples"] is True
    assert line["fleet"]["counts"] == {"unknown": 3}
