"""`tpumon once --state`: a check that cron runs finds what hangs, though nobody watches between its runs."""

from __future__ import annotations

import asyncio
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from support.samples import failed_sample, sample
from tpumon.analysis import state_file
from tpumon.cli.commands import once
from tpumon.cli.enough_samples import Needs
from tpumon.collection.event_sources import EventSource
from tpumon.model import KeptState, Process, StepTimes, Target, Workers
from tpumon.pipeline import FeedSettings

MINUTES = 6
STEP = StepTimes(avg=0.1, min=0.1, max=0.1, count=5)


class Job(EventSource):
    """A job of one process that this process samples back to back."""

    takes_samples: ClassVar[bool] = True

    def __init__(self, name="w0", **figures):
        self.runs, self.process = True, Process(pid=7, started_unix_s=1000.0)
        self.name, self.figures = name, figures

    async def send_to(self, send, own_run):
        target = Target(worker=self.name, address=f"{self.name}:1", process=self.process, job_kind="training")
        send(Workers(targets=(target,)))
        while True:
            at = {"time_unix_s": time.time(), "process": self.process}
            ran = sample(self.name, step_time_s=STEP, **self.figures, **at)
            send(ran if self.runs else failed_sample(self.name, "empty-trace", **at))
            await asyncio.sleep(0.01)


@pytest.fixture
def cron(monkeypatch, tmp_path, capsys):
    """Runs the command every six minutes; returns its status and what it printed."""
    now, began_s = [time.time()], time.monotonic()
    monkeypatch.setattr(time, "time", lambda: now[0] + time.monotonic() - began_s)

    def run(job, state=tmp_path / "kept", output="text", minutes=MINUTES):
        now[0] += 60 * minutes
        feed = FeedSettings(source=job, state_dir=None if state is None else str(state))
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
    printed = cron(job)[1]
    assert "of what was seen running, which no run with this --state has seen; tpumon serve watches" in printed
    job.runs = True
    cron(job)
    job.runs = False
    printed = cron(job)[1]
    assert "pause; the next run with this --state goes on from here" in printed
    assert "--state DIR" not in printed, "it is given"


def test_a_pause_between_runs_and_another_process_are_no_hang(cron):
    """What ran between two silent runs ends the silence; a job that was restarted compiles."""
    job = Job()
    for runs in (True, False, True, False, True, False):
        job.runs = runs
        assert cron(job)[0] == 0
    job.process = Process(pid=8, started_unix_s=2000.0)
    status, printed = cron(job, output="json")
    assert (status, json.loads(printed)["workers"][0]["findings"]) == (0, [])


def kept(directory):
    (path,) = directory.iterdir()
    return {one["worker"]: one for one in json.loads(path.read_text())["workers"]}


def test_a_job_that_is_gone_is_forgotten_after_a_day_however_often_it_runs(cron, tmp_path):
    """Its silence would otherwise count from long ago, and the file would grow with each job."""
    cron(Job("gone"))
    cron(Job(), minutes=30)
    assert kept(tmp_path / "kept")["gone"]["programs"]
    for hours in range(1, 25):
        cron(Job(), minutes=60)
        assert set(kept(tmp_path / "kept")) == ({"gone", "w0"} if hours < 24 else {"w0"})
        assert not kept(tmp_path / "kept").get("gone", {}).get("programs")


def test_what_was_found_and_cannot_be_judged_leaves_after_ten_minutes_however_often_it_runs(cron):
    full = {"devices": ({"device": "0", "hbm_used_bytes": 99, "hbm_total_bytes": 100},)}
    found = []
    for job in (Job(**full), *(Job() for _ in range(4))):
        (worker,) = json.loads(cron(job, output="json", minutes=4)[1])["workers"]
        found.append([one["finding"] for one in worker["findings"]])
    assert found == [["hbm-nearly-full"]] * 4 + [[]]


def test_hosts_that_share_a_home_do_not_take_each_others_state(cron, tmp_path, monkeypatch):
    jobs = {"one": Job(), "two": Job()}
    for runs in (True, False, False, False):
        for host, job in jobs.items():
            monkeypatch.setattr(state_file, "_this_host", lambda host=host: host)
            job.runs = runs
            status, _ = cron(job, minutes=6)
    assert status == 1
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_two_that_write_at_once_leave_a_whole_file_and_nothing_else(tmp_path):
    """`serve --state` and a check by cron may have the same directory."""
    states = [KeptState(time_unix_s=time.time(), workers=()) for _ in range(50)]

    def write(_number):
        file = state_file.StateFile(str(tmp_path), host=True)
        for state in states:
            file.write(state)
            assert file.read() is not None

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert len(list(tmp_path.iterdir())) == 1


def test_files_that_nobody_reads_any_more_are_removed(tmp_path):
    for name in (".tpumon-state.abc", "tpumon-state-0123456789ab.json", "notes.json"):
        (tmp_path / name).write_text("{}")
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ".tpumon-state.new").write_text("{")
    state_file.StateFile(str(tmp_path), host=True)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.json", ".tpumon-state.new"}


def test_a_home_directory_may_be_named_in_the_configuration_file(tmp_path, monkeypatch):
    """No shell reads it there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    state_file.StateFile("~/.cache/tpumon", host=True).write(KeptState(time_unix_s=time.time()))
    assert len(list((tmp_path / ".cache" / "tpumon").iterdir())) == 1
