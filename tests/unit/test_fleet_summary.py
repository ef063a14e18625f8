"""JSON lines about a fleet: its figures, and the workers that are not ok."""

from __future__ import annotations

import json

import pytest

from support.samples import failed_sample, sample
from tpumon.fleet import Thresholds
from tpumon.model import Spread, Target, Workers
from tpumon_exporters.appending import Appended
from tpumon_exporters.fleet_summary import FleetSummary

START = 1_000_000.0


class Log:
    """An output with a clock that is set, and the lines it has written."""

    def __init__(self, directory, *workers):
        self.path = directory / "fleet.jsonl"
        self.now = START
        self.output = FleetSummary(
            Appended(str(self.path)), Thresholds(), clock=lambda: self.now, pace=lambda: self.now
        )
        self.output.follow(Workers(targets=tuple(Target(worker=w, address=f"{w}:1") for w in workers)))

    def add(self, worker, at, *, infeed=0.01, reason=None):
        self.now = START + at
        if reason is not None:
            self.output.write(failed_sample(worker, reason, time_unix_s=self.now))
            return
        spread = Spread(avg=infeed, min=infeed, max=infeed)
        self.output.write(sample(worker, time_unix_s=self.now, source="monitor", infeed_ratio=spread))

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
    assert [(told["worker"], told["state"], told["sample"]) for told in line["workers"]] == [("c", "waiting", None)]


def test_one_line_an_interval(log):
    """However many samples come, a line is written once an interval; the end writes what is left."""
    for at in range(0, 35, 5):
        for worker in "abc":
            log.add(worker, at)
    assert [line["time_unix_s"] - START for line in log.lines] == [0, 10, 20, 30]
    log.add("a", 33)
    log.output.close()
    assert log.lines[-1]["time_unix_s"] == START + 33


def test_workers_that_are_not_ok_are_told_worst_first_with_their_figures(log):
    """A dead one has its reason and no figures; a slow one its sample; those that are ok only count."""
    log.add("a", 0, infeed=0.1)
    log.add("b", 0, reason="unavailable")
    log.add("c", 0)
    (line,) = log.lines
    assert line["fleet"]["figures"]["infeed"]["count"] == 2
    dead, slow = line["workers"]
    assert (dead["worker"], dead["state"], dead["causes"], dead["sample"]) == ("b", "down", ["unavailable"], None)
    assert (slow["worker"], slow["severity"], slow["causes"]) == ("a", "warn", ["infeed 10%"])
    assert slow["sample"]["infeed_ratio"]["avg"] == 0.1
