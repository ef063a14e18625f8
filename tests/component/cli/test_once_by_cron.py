"""`tpumon once --state`: a check that cron runs finds what hangs, though nobody watches between its runs."""

from __future__ import annotations

import asyncio
import json
import time
from typing import ClassVar

import pytest

from support.samples import failed_sample, sample
from tpumon.cli.commands import once
from tpumon.cli.session import Needs
from tpumon.collection.event_sources import EventSource
from tpumon.model import Process, StepTimes, Target, Workers
from tpumon.pipeline import FeedSettings

MINUTES = 6
STEP = StepTimes(avg=0.1, min=0.1, max=0.1, count=5)


class Job(EventSource):
    """A job of one process that this process samples back to back."""

    takes_samples: ClassVar[bool] = True

    def __init__(self):
        self.runs, self.process = True, Process(pid=7, started_unix_s=1000.0)

    async def send_to(self, send, own_run):
        send(Workers(targets=(Target(worker="w0", address="w0:1", process=self.process, job_kind="training"),)))
        while True:
            at = {"time_unix_s": time.time(), "process": self.process}
            send(sample("w0", step_time_s=STEP, **at) if self.runs else failed_sample("w0", "empty-trace", **at))
            await asyncio.sleep(0.01)


@pytest.fixture
def cron(monkeypatch, tmp_path, capsys):
    """Runs the command every six minutes; returns its status and what it printed."""
    now, began_s = [1_800_000_000.0], time.monotonic()
    monkeypatch.setattr(time, "time", lambda: now[0] + time.monotonic() - began_s)

    def run(job, state=tmp_path / "kept", output="text"):
        now[0] += 60 * MINUTES
        feed = FeedSettings(origin=job, state=None if state is None else str(state))
        status = once.run(feed=feed, needs=Needs(samples=3), output=output)
        return status, capsys.readouterr().out

    return run


def test_a_hang_is_known_by_the_run_before_and_fails_the_check_once_it_lasts(cron):
    """Since is the last activity that a run saw; the silence counts from the first run that saw it."""
    job = Job()
    _, printed = cron(job, output="json")
    (active,) = json.loads(printed)["workers"]
    job.runs = False
    found = [cron(job, output="json") for _ in range(4)]
    documents = [json.loads(printed) for _, printed in found]
    workers = [worker for document in documents for worker in document["workers"]]
    assert [status for status, _ in found] == [0, 0, 1, 1]
    assert [document["verdict"] for document in documents] == ["unknown", "hang", "hang", "hang"]
    assert [worker["severity"] for worker in workers] == ["ok", "info", "critical", "critical"]
    assert {round(worker["since_unix_s"]) for worker in workers} == {round(active["time_unix_s"])}


def test_one_look_alone_says_what_to_do_instead(cron):
    """It finds nothing, which is no all-clear."""
    job = Job()
    cron(job, state=None)
    job.runs = False
    for _ in range(4):
        status, printed = cron(job, state=None)
        assert (status, printed.partition(":")[0]) == (0, "unknown")
        assert "One look cannot tell a hang from a pause" in printed
        assert "tpumon once --state DIR" in printed


def test_a_pause_between_runs_and_another_process_are_no_hang(cron):
    """What ran between two silent runs ends the silence; a job that was restarted compiles."""
    job = Job()
    for runs in (True, False, True, False, True, False):
        job.runs = runs
        assert cron(job)[0] == 0
    job.process = Process(pid=8, started_unix_s=2000.0)
    status, printed = cron(job, output="json")
    assert (status, json.loads(printed)["workers"][0]["findings"]) == (0, [])
