"""Who is called on this host, how often, and what is made of it. /proc is a fake, and so is the call."""

from __future__ import annotations

import asyncio
import getpass
import platform
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import tpumon
from fakes.proc import JAX, NCCL, TENSORFLOW, FakeProc
from fakes.tpu_node import BUSY_STEP, TpuNode
from support import wait_until
from support.samples import sample
from support.watching import watching
from tpumon.analysis.history import WorkerHistory
from tpumon.discovery.addresses import name_targets
from tpumon.discovery.host import jobs, processes
from tpumon.discovery.host.jobs import find_job
from tpumon.discovery.host.listening import Owner
from tpumon.discovery.host.port_survey import Elsewhere, line_for
from tpumon.discovery.host.probe import knock
from tpumon.discovery.host.servers import LocalDiscovery
from tpumon.discovery.identity import Identified, names
from tpumon.errors import SourceError

HERE = socket.gethostname()
JOB, WEB = 42, 77
ATTACHES = Path(tpumon.__file__).parent / "attach" / "pythonpath"


class World:
    """A host: its /proc, and what answers at its ports.

    Attributes:
        answers: by port, None for a profiler server or a reason; an Event is waited for first.
        calls: how often each port was called.
        lines: what the finder has said.
    """

    def __init__(self, directory):
        self.proc = FakeProc(directory / "proc")
        self.proc.process(JOB, JAX)
        self.proc.process(WEB, program="nginx")
        self.answers = {}
        self.calls = Counter()
        self.looks = 0

    async def call(self, address):
        port = int(address.rpartition(":")[2])
        self.calls[port] += 1
        answer = self.answers.get(port, "unavailable")
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            answer = None
        if isinstance(answer, Exception):
            raise answer
        return None if answer is None else SourceError(answer, f"{address}: {answer}")

    def job(self, port, *pids):
        """A job with a profiler server."""
        for pid in pids:
            self.proc.process(pid, JAX)
        self.answers[port] = None
        self.proc.listen(port, *(pids or (JOB,)), ip="::")

    def end(self, port):
        self.answers.pop(port, None)
        self.proc.close(port)

    def finder(self, port=None, **options):
        return LocalDiscovery(port, proc=self.proc.root, call=self.call, only=self._looked, poll_s=0.005, **options)

    def _looked(self, _listener):
        self.looks += 1
        return True

    async def looked_again(self, watch, times=3):
        """Returns when the finder has looked so often; something must listen."""
        seen = self.looks
        per_look = self.proc.count
        await watch.until(lambda: self.looks > seen + times * per_look, "it looks again")


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def test_a_job_is_found_at_a_port_of_its_choice(world):
    """It listens, and it can have a profiler server: it is called, once, and is this host's worker."""
    world.job(23456)
    async with watching(world.finder()) as watch:
        await watch.shows({HERE: "127.0.0.1:23456"})
        await world.looked_again(watch)
    assert len(watch.found) == 1
    assert world.calls == {23456: 1}


@pytest.mark.parametrize(
    ("port", "pid", "libraries"),
    [
        (23456, WEB, ()),  # no job
        (23456, None, ()),  # whose it is may not be read
        (22, JOB, (JAX,)),  # privileged
        (8476, JOB, (JAX,)),  # JAX's coordinator, TPU mesh controller
        (8431, JOB, (JAX,)),  # runtime metrics
        (23456, JOB, (JAX, NCCL)),  # NCCL's own listeners
    ],
)
async def test_who_is_never_called(world, port, pid, libraries):
    """Ports of strangers, and those of a job that are known to be something else."""
    if libraries:
        world.proc.process(pid, *libraries)
    if NCCL in libraries:
        world.proc.opens(pid, "/dev/nvidia0")
    world.answers[port] = None
    world.proc.listen(port, *(() if pid is None else (pid,)))
    world.job(9999, 43)
    async with watching(world.finder()) as watch:
        await watch.shows({HERE: "127.0.0.1:9999"})
        await world.looked_again(watch)
    assert world.calls == {9999: 1}


async def test_a_tpumon_is_not_called_even_at_a_usual_port(world):
    """An exporter at port 9999 is no job; `tpumon simulate` there is, but its other workers are left to who asks."""
    world.proc.process(50, cmdline="python3 -m tpumon serve")
    world.proc.process(51, cmdline="python3 -m tpumon simulate v5e-8")
    for port, pid in ((9999, 50), (9012, 51), (23456, 51)):
        world.answers[port] = None
        world.proc.listen(port, pid)
    async with watching(world.finder()) as watch:
        await watch.shows({HERE: "127.0.0.1:9012"})
    assert world.calls == {9012: 1}


async def test_ports_that_may_not_be_looked_at_are_mentioned(world):
    """A job of another user may be there: no line says that there is none."""
    world.proc.listen(23456)
    async with watching(world.finder()) as watch:
        await watch.until(lambda: watch.found)
    not_asked = "; not asked: port 23456 of another user (run tpumon as the job's user, or give --port 23456)"
    assert not_asked in watch.found[0].waiting


@pytest.mark.parametrize("reason", ["not-a-profiler", "unavailable", "deadline", "malformed", RuntimeError("a bug")])
async def test_a_stranger_at_a_usual_port_is_called_once_in_its_life(world, reason):
    """Whatever it answers; and the waiting goes on with the line that a job needs."""
    world.answers[9999] = reason
    world.proc.listen(9999, WEB)
    async with watching(world.finder()) as watch:
        await watch.until(lambda: watch.found)
        await world.looked_again(watch, 20)
    (found,) = watch.found
    assert line_for(None) in found.waiting
    assert "9012" in found.waiting
    assert world.calls == {9999: 1}


async def test_a_stranger_that_starts_over_and_over_is_not_called_each_time(world):
    """A usual port gets one more call when another listens there, then it is left alone."""
    world.answers[9999] = "not-a-profiler"
    world.proc.listen(9999, WEB)
    async with watching(world.finder()) as watch:
        for _ in range(6):
            await watch.until(lambda: watch.found)
            await world.looked_again(watch)
            world.proc.close(9999)
            world.proc.listen(9999, WEB)
            await world.looked_again(watch)
    assert world.calls == {9999: 2}


async def test_a_job_that_is_too_busy_to_answer_gets_another_call_but_only_later(world, monkeypatch):
    """Its own process cannot be mistaken for a stranger's; three calls are the end of it."""
    monkeypatch.setattr("tpumon.discovery.host.servers._SILENT_S", 0.02)
    world.job(9999)
    world.answers[9999] = "deadline"
    async with watching(world.finder()) as watch:
        await watch.until(lambda: world.calls[9999] == 3)
        await world.looked_again(watch, 20)
        assert world.calls == {9999: 3}


def pid_of(target):
    return None if target.process is None else target.process.pid


async def test_a_job_that_starts_later_is_found_and_one_that_ends_is_down_for_a_while(world):
    """Its worker stays, to be shown as down, without its process; after a time there is nobody again."""
    async with watching(world.finder(keep_gone_s=0.3)) as watch:
        await watch.until(lambda: watch.found and watch.found[-1].waiting)
        world.job(9999)
        await watch.shows({HERE: "127.0.0.1:9999"})
        world.end(9999)
        await watch.until(lambda: watch.found[-1].waiting)
    assert [[pid_of(one) for one in found.targets] for found in watch.found] == [[], [JOB], [None], []]


@pytest.mark.parametrize("port", [9999, 34567])
async def test_a_port_that_a_stranger_has_now_is_no_worker_any_more(world, port):
    """At a usual port he is called once, at any other not at all; a worker would be called by its sampler on and on."""
    world.job(port)
    async with watching(world.finder()) as watch:
        await watch.shows({HERE: f"127.0.0.1:{port}"})
        world.end(port)
        world.answers[port] = "not-a-profiler"
        world.proc.listen(port, WEB)
        await watch.until(lambda: watch.found[-1].waiting)
        await world.looked_again(watch)
        assert world.calls[port] == (2 if port == 9999 else 1)
        world.end(port)
        world.job(port, 43)
        await watch.shows({HERE: f"127.0.0.1:{port}"})


async def test_a_job_that_is_too_busy_to_answer_after_its_restart_stays_a_worker(world, monkeypatch):
    """It is no stranger: its process has XLA."""
    monkeypatch.setattr("tpumon.discovery.host.servers._SILENT_S", 0.02)
    world.job(9999)
    async with watching(world.finder()) as watch:
        await watch.shows({HERE: "127.0.0.1:9999"})
        world.end(9999)
        world.job(9999, 43)
        world.answers[9999] = "deadline"
        await watch.until(lambda: world.calls[9999] >= 2)
        world.answers[9999] = None
        await watch.until(lambda: world.calls[9999] >= 3)
        await world.looked_again(watch)
    assert {(one.worker, one.address) for found in watch.found for one in found.targets} == {(HERE, "127.0.0.1:9999")}
    assert [pid_of(one) for found in watch.found for one in found.targets] == [JOB, None, 43]


def test_a_profiler_server_that_is_profiling_for_somebody_else_is_found():
    """Nobody else says that it is busy so."""
    with TpuNode(BUSY_STEP) as node:
        assert asyncio.run(knock(node.address)) is None


async def test_a_job_that_restarts_at_its_port_is_the_same_worker(world):
    """Its process is another one. Its new server was called once."""
    world.job(9999)
    async with watching(world.finder(keep_gone_s=0.2)) as watch:
        await watch.shows({HERE: "127.0.0.1:9999"})
        world.end(9999)
        world.job(9012, 43)  # to see that the end was seen
        await watch.shows({f"{HERE}:9012": "127.0.0.1:9012"})
        world.end(9012)
        world.job(9012, 44)
        await watch.until(lambda: world.calls[9012] == 2)
        await asyncio.sleep(0.3)  # longer than a worker that is gone would stay
    assert watch.now == {f"{HERE}:9012": "127.0.0.1:9012"}
    assert [pid_of(one) for found in watch.found for one in found.targets] == [JOB, None, 43, None, 44]


async def test_a_job_that_restarts_at_another_port_takes_its_own_place(world):
    """One worker. Its name is the port's: the host's alone where the first one was."""
    world.job(9999)
    async with watching(world.finder()) as watch:
        await watch.shows({HERE: "127.0.0.1:9999"})
        before = 9999
        for port, name in ((9012, f"{HERE}:9012"), (34567, f"{HERE}:34567"), (9999, HERE)):
            world.end(before)
            world.job(port)
            await watch.shows({name: f"127.0.0.1:{port}"})
            before = port


async def test_its_place_is_its_own_beside_another_worker_too(world):
    """Two that end and start elsewhere stay two, each named after its port."""
    world.job(9999)
    async with watching(world.finder()) as watch:
        await watch.shows({HERE: "127.0.0.1:9999"})
        world.job(9012, 43)
        await watch.shows({HERE: "127.0.0.1:9999", f"{HERE}:9012": "127.0.0.1:9012"})
        world.end(9999)
        world.job(9013, 44)
        await watch.shows({f"{HERE}:{port}": f"127.0.0.1:{port}" for port in (9012, 9013)})
        world.end(9012)
        world.job(9014, 45)
        await watch.shows({f"{HERE}:{port}": f"127.0.0.1:{port}" for port in (9013, 9014)})


async def test_several_processes_are_several_workers_named_by_port(world):
    """Each with the runtime metrics of its own process."""
    for number in range(4):
        world.job(9000 + number, 100 + number)
        world.proc.listen(8431 + number, 100 + number)
    async with watching(world.finder()) as watch:
        await watch.until(lambda: watch.found)
    (found,) = watch.found
    assert [(t.worker, t.address, t.runtime_addresses) for t in found.targets] == [
        (f"{HERE}:{9000 + n}" if n else HERE, f"127.0.0.1:{9000 + n}", (f"localhost:{8431 + n}",)) for n in range(4)
    ]


async def test_a_new_job_takes_the_place_of_all_of_an_old_one(world):
    """Its processes are all gone: none of them is down beside the new one."""
    for number in range(4):
        world.job(9001 + number, 101 + number)
    async with watching(world.finder()) as watch:
        await watch.until(lambda: len(watch.now) == 4)
        for number in range(4):
            world.end(9001 + number)
        world.job(34567)
        await watch.shows({f"{HERE}:34567": "127.0.0.1:34567"})


async def test_of_several_the_one_that_restarts_comes_back_to_its_own_place(world):
    """Where it listens as before, it takes nobody else's."""
    world.job(9001, 101)
    world.job(9002, 102)
    async with watching(world.finder()) as watch:
        await watch.until(lambda: len(watch.now) == 2)
        world.end(9001)
        world.job(9003, 103)  # to see that the end was seen
        await watch.shows({f"{HERE}:{port}": f"127.0.0.1:{port}" for port in (9002, 9003)})
        world.end(9002)
        await world.looked_again(watch)
        world.end(9003)
        world.proc.listen(22)
        await world.looked_again(watch)
        world.job(9003, 104)
        await watch.until(lambda: world.calls[9003] == 2)
        await world.looked_again(watch)
    assert set(watch.now) == {f"{HERE}:9002", f"{HERE}:9003"}


async def test_a_second_worker_leaves_the_first_ones_name_alone(world):
    """Nor has it another name for a tpumon that starts later, and finds both, or the second alone."""
    world.job(9999)
    async with watching(world.finder()) as watch:
        await watch.shows({HERE: "127.0.0.1:9999"})
        world.job(9012, 43)
        await watch.shows({HERE: "127.0.0.1:9999", f"{HERE}:9012": "127.0.0.1:9012"})
    async with watching(world.finder()) as watch:
        await watch.shows({HERE: "127.0.0.1:9999", f"{HERE}:9012": "127.0.0.1:9012"})
    assert {one.address: one.worker for one in name_targets(["localhost:9012", "localhost:9999"])} == {
        "localhost:9012": f"{HERE}:9012", "localhost:9999": HERE,
    }  # fmt: skip
    world.end(9999)
    async with watching(world.finder()) as watch:
        await watch.shows({f"{HERE}:9012": "127.0.0.1:9012"})


async def test_the_first_answer_does_not_wait_for_a_silent_port(world):
    """What answers is shown at once, and the others when they do."""
    late = asyncio.Event()
    world.job(9999)
    world.job(9012, 43)
    world.answers[9012] = late
    async with watching(world.finder()) as watch:
        await watch.shows({HERE: "127.0.0.1:9999"})
        late.set()
        await watch.until(lambda: len(watch.now) == 2)


async def test_a_given_port_is_called_whoever_listens_there_and_no_other(world):
    """The user knows better."""
    world.job(9999)
    world.answers[80] = None
    world.proc.listen(80, WEB)
    async with watching(world.finder(80)) as watch:
        await watch.shows({HERE: "127.0.0.1:80"})
        await world.looked_again(watch)
    assert world.calls == {80: 1}


async def test_nobody_at_a_given_port(world):
    """The line names it, and nothing else is looked at."""
    world.job(9999)
    async with watching(world.finder(1234)) as watch:
        await watch.until(lambda: watch.found)
    assert "port 1234" in watch.found[0].waiting
    assert world.calls == {}


def runtime_of(watch):
    targets = watch.found[-1].targets if watch.found else ()
    return [(target.worker, target.address, target.runtime_addresses) for target in targets]


@pytest.mark.parametrize(("asked", "port"), [(None, 9999), (9998, 9998)])
async def test_a_job_with_runtime_metrics_only_is_a_worker_and_it_is_said_once(world, said, asked, port):
    """Its profiler is awaited at the port that the line for a job names; when it comes there nothing changes."""
    world.proc.listen(8431, JOB)
    async with watching(world.finder(asked)) as watch:
        await watch.until(lambda: runtime_of(watch) == [(HERE, f"127.0.0.1:{port}", ("localhost:8431",))])
        (line,) = said
        assert f"start_server({port})" in line
        world.job(port)
        await watch.until(lambda: world.calls[port])
        await world.looked_again(watch)
    assert len(watch.found) == 1
    assert said == [line]


PAGE = "http://127.0.0.1:8001/metrics"


@pytest.mark.parametrize(
    ("server", "worker", "command", "ip", "page"),
    [
        (70, 71, "vllm serve m --port 8001", "0.0.0.0", PAGE),  # above the worker
        (71, 71, "vllm serve m --port 8001", "127.0.0.1", PAGE),  # itself
        (72, 71, "vllm serve m --port 8001", "127.0.0.1", PAGE),  # below it, as of a trainer with its rollouts
        (90, 71, "vllm serve m --port 8001", "127.0.0.1", None),  # of another job
        (70, 71, "vllm serve m --port 8002", "127.0.0.1", None),  # not where it says
        (70, 71, "vllm serve m", "127.0.0.1", None),
        (70, 71, "vllm serve m --port 8001", "10.0.0.7", None),  # not on loopback
        (70, 71, "python3 train.py --port 8001", "127.0.0.1", None),  # no known server
    ],
)
async def test_the_page_of_the_jobs_own_server_is_found(world, server, worker, command, ip, page):
    """In the process tree of the worker, and nowhere else."""
    for pid, parent in ((70, 1), (71, 70), (72, 71), (90, 1)):
        world.proc.process(pid, JAX, parent=parent, cmdline=command if pid == server else "python3 x.py")
    world.answers[9999] = None
    world.proc.listen(9999, worker)
    world.proc.listen(8001, server, ip=ip)
    async with watching(world.finder()) as watch:
        await watch.until(lambda: watch.found and watch.found[-1].targets, "a worker")
    assert [target.server_metrics for target in watch.found[-1].targets] == [page]


async def test_a_page_of_several_workers_is_none_of_one(world, said):
    """Each would claim all requests; one line says how to give it to one of them."""
    world.proc.process(70, cmdline="vllm serve m --port 8001")
    world.proc.listen(8001, 70)
    for pid, port in ((71, 9999), (72, 9012)):
        world.proc.process(pid, JAX, parent=70)
        world.answers[port] = None
        world.proc.listen(port, pid)
    async with watching(world.finder()) as watch:
        await watch.until(lambda: watch.found and len(watch.found[-1].targets) == 2, "two workers")
        await world.looked_again(watch)
    assert [target.server_metrics for target in watch.found[-1].targets] == [None, None]
    (line,) = [line for line in said if "requests of several workers" in line]
    assert line.endswith(f"(to read it for one of them: --server-metrics WORKER={PAGE})")


async def test_where_a_stranger_listens_no_profiler_is_awaited(world):
    """It would be called again and again; another usual port stands in."""
    world.proc.listen(8431, JOB)
    world.answers[9999] = "not-a-profiler"
    world.proc.listen(9999, WEB)
    async with watching(world.finder()) as watch:
        await watch.until(lambda: runtime_of(watch) == [(HERE, "127.0.0.1:8466", ("localhost:8431",))])
    assert world.calls == {9999: 1}


async def test_a_strangers_port_is_no_runtime_metric_service(world):
    """Neither as a worker of its own, nor beside a profiler."""
    world.proc.listen(8431, WEB)
    async with watching(world.finder()) as watch:
        await watch.until(lambda: watch.found)
        assert watch.found[0].waiting
        world.job(9999)
        await watch.until(lambda: runtime_of(watch) == [(HERE, "127.0.0.1:9999", ())])


async def test_without_proc_the_usual_ports_are_called_and_the_reason_is_told(world, monkeypatch):
    """Closed ones again and again, since nothing else tells; one where a stranger answered, no more."""
    monkeypatch.setattr("tpumon.discovery.host.servers._CLOSED_S", 0.0)
    world.proc.forbid()
    world.answers[6000] = "not-a-profiler"
    async with watching(world.finder()) as watch:
        await watch.until(lambda: watch.found)
        assert "cannot be read" in watch.found[0].waiting
        world.answers[9012] = None
        await watch.shows({HERE: "127.0.0.1:9012"})
        watch.gone = True
        world.answers |= {9012: "unavailable", 9999: None}
        await watch.shows({f"{HERE}:9999": "127.0.0.1:9999"})
    assert set(world.calls) == {8466, 9999, 9012, 6000, 6009}
    assert world.calls[6000] == 1


def waiting_line(world, port=None, **options):
    """What is said while there is no worker; None: there is one."""

    async def main():
        async with watching(world.finder(port, **options)) as watch:
            await watch.until(lambda: watch.found, "the first look")
            return watch.found[0].waiting

    return asyncio.run(main())


def test_a_job_without_a_profiler_server_is_named(world):
    """With its script and the line of its framework; of several, the one that holds a TPU, or the parent."""
    world.proc.process(JOB, JAX, cmdline="/usr/bin/python3 -u /home/me/train.py --key secret")
    said = waiting_line(world)
    assert said.startswith(f"pid 42 `train.py` runs JAX but has no profiler server: add `{line_for(None)}`, or ")
    assert "9012" in said
    assert "secret" not in said
    world.proc.process(50, TENSORFLOW, cmdline="python3 fit.py")
    world.proc.opens(50, "/dev/accel0")
    assert waiting_line(world).startswith(
        "pid 50 `fit.py` runs TensorFlow but has no profiler server: add `tf.profiler"
    )


def test_a_job_beside_others(world):
    """Those that are known are left out, with their parents and children."""
    for pid, parent in ((40, 1), (41, 40), (42, 41), (50, 1)):
        world.proc.process(pid, JAX, cmdline="python3 train.py", parent=parent)
    assert find_job(world.proc.root).pid == 40
    assert find_job(world.proc.root, but_for=[Owner(pid=41, program="python3", ancestors=(40, 1))]).pid == 50


def test_a_job_that_began_just_now_may_still_be_starting(world):
    """For a minute no remedy is named, and no number that would make another line of each look."""
    world.proc.began(time.time() - 30)
    said = waiting_line(world)
    assert said == (
        "pid 42 `train.py` began less than a minute ago and has no profiler server yet; "
        "it may still be starting: give it a minute"
    )
    world.proc.began(time.time() - 70)
    assert line_for(None) in waiting_line(world)
    world.proc.began(time.time() + 3600)  # the clock was set back
    assert line_for(None) in waiting_line(world)


def test_the_start_of_a_process_is_exact_and_stays_when_the_clock_is_set(world, monkeypatch):
    """Each look at it shows the same process, or its worker would be asked anew; another start is another one's."""
    began_unix_s = time.time() - 30.25
    world.proc.began(began_unix_s)
    first = processes.process_of(JOB, world.proc.root)
    assert first.started_unix_s == pytest.approx(began_unix_s, abs=0.02)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    assert processes.process_of(JOB, world.proc.root) == first
    world.proc.began(began_unix_s + 3600.5)
    assert processes.process_of(JOB, world.proc.root).started_unix_s == pytest.approx(began_unix_s + 3600.5, abs=0.02)


def test_a_job_that_a_signal_has_stopped_is_told_as_that(world):
    """It may well have a profiler server, which answers nobody: also where it listens."""
    world.proc.listen(9999, JOB)
    stat = world.proc.root / str(JOB) / "stat"
    for state, words in (("T", "is stopped by a signal (SIGSTOP); `kill -CONT 42` lets it go on"), ("S", "")):
        stat.write_text(stat.read_text().replace(") S ", f") {state} ").replace(") T ", f") {state} "))
        assert find_job(world.proc.root).stopped == bool(words)
        assert waiting_line(world) == f"pid 42 `train.py` {words}" or not words


@pytest.mark.parametrize(
    ("state", "flags", "read"),
    [
        ("S", 0x400000, "runs"),
        ("T", 0x400000, "stopped"),
        ("t", 0, "debugged"),
        ("Z", 0, "ended"),
        ("R", 0x400004, "ended"),
    ],
)
def test_a_process_runs_is_stopped_or_has_ended(world, state, flags, read):
    """Also one that the kernel is still taking down, which takes seconds where it has much memory."""
    stat = world.proc.root / str(JOB) / "stat"
    before, _, after = stat.read_text().partition(" S 1 ")
    stat.write_text(f"{before} {state} 1 0 0 0 0 {flags} {after.split(maxsplit=5)[5]}")
    assert processes.state_of(JOB, world.proc.root) == read
    assert processes.state_of(JOB + 1, world.proc.root) == "ended"


def test_a_process_whose_first_thread_has_ended_runs_while_another_one_does():
    """As where a server's main thread leaves the others to serve."""
    program = """if True:
        import ctypes, sys, threading
        threading.Thread(target=sys.stdin.read).start()
        ctypes.CDLL(None).syscall({exit}, 0)"""
    number = {"x86_64": 60, "aarch64": 93}[platform.machine()]
    with subprocess.Popen([sys.executable, "-c", program.format(exit=number)], stdin=subprocess.PIPE) as process:
        try:
            stat = processes.PROC / str(process.pid) / "stat"
            wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", 10, "its first thread ends")
            assert processes.state_of(process.pid) == "runs"
        finally:
            process.kill()
            wait_until(lambda: processes.state_of(process.pid) == "ended", 10, "it ends")


def test_a_process_that_runs_between_two_looks_is_seen_to_have_run():
    """Though it uses no time of a processor, and is stopped at each look."""
    with subprocess.Popen(["sleep", "60"]) as process:

        def becomes(state):
            wait_until(lambda: processes.state_of(process.pid) == state, 10, state)

        try:
            process.send_signal(signal.SIGSTOP)
            becomes("stopped")
            before = processes.context_switches_of(process.pid)
            assert processes.context_switches_of(process.pid) == before
            process.send_signal(signal.SIGCONT)
            becomes("runs")
            process.send_signal(signal.SIGSTOP)
            becomes("stopped")
            assert processes.context_switches_of(process.pid) > before
        finally:
            process.kill()
    assert processes.context_switches_of(process.pid) is None


@pytest.mark.parametrize(
    ("state", "threads", "listens", "is_told"),
    [("T", 40, True, True), ("S", 40, True, False), ("T", 1, True, False), ("T", 40, False, False)],
)
def test_a_stopped_job_of_another_user_is_told_by_what_everybody_may_see(
    world, monkeypatch, state, threads, listens, is_told
):
    """One whose user has a listener here, and which has more threads than an editor."""
    monkeypatch.setattr(jobs, "open_files", lambda _proc: [(JOB, None)])
    stat = world.proc.root / str(JOB) / "stat"
    before, _, after = stat.read_text().partition(" S 1 ")
    fields = after.split()
    stat.write_text(f"{before} {state} 1 {' '.join([*fields[:15], str(threads), *fields[16:]])}\n")
    if listens:
        world.proc.listen(9999)
    words = f"pid 42 `train.py` of {getpass.getuser()} is stopped by a signal (SIGSTOP), and may be the job"
    assert (waiting_line(world) == f"{words}; `kill -CONT 42` lets it go on") == is_told
    for address, is_there in (("127.0.0.1:9999", is_told), ("127.0.0.1:9998", False), ("10.0.0.1:9999", False)):
        assert (jobs.stopped_at(address, world.proc.root) is not None) == is_there


def test_while_tpumon_waits_a_starting_job_becomes_one_that_needs_a_server(world, monkeypatch):
    """At the end of its first minute, without another look at all processes."""
    world.proc.listen(22)
    world.proc.began(time.time() - 30)

    async def main():
        async with watching(world.finder()) as watch:
            await watch.until(lambda: watch.found)
            monkeypatch.setattr("tpumon.discovery.host.jobs._STARTING_S", 10.0)
            await watch.until(lambda: len(watch.found) == 2)
            return [found.waiting for found in watch.found]

    before, after = asyncio.run(main())
    assert "still be starting" in before
    assert line_for(None) in after


@pytest.mark.parametrize(
    ("environ", "coming"),
    [
        (f"PYTHONPATH={ATTACHES}", True),
        (f"A=b PYTHONPATH=/{'long/' * 100}:{ATTACHES}:/more", True),
        (f"PYTHONPATH={ATTACHES} TPUMON_ATTACH=0", False),
        (f"PYTHONPATH={ATTACHES.parent}", False),
        ("PYTHONPATH=", False),
    ],
    ids=["attached", "behind others", "switched off", "another directory", "none"],
)
def test_a_job_that_tpumon_run_started_is_never_told_to_add_a_server(world, environ, coming):
    """It has been running for long; its server comes with its devices."""
    world.proc.began(time.time() - 3600)
    world.proc.process(JOB, JAX, environ=environ)
    said = waiting_line(world)
    assert said.startswith("pid 42 `train.py` was started by `tpumon run` and has no profiler server yet; ") == coming
    assert (line_for(None) in said) != coming


def test_a_job_in_a_container_that_attaches_it(world, tmp_path):
    """The directory is one of its own file system, under any name."""
    world.proc.process(JOB, JAX, environ="PYTHONPATH=/attach")
    assert line_for(None) in waiting_line(world)
    (tmp_path / "image" / "attach" / "tpumon_attach").mkdir(parents=True)
    (world.proc.root / str(JOB) / "root").unlink()
    (world.proc.root / str(JOB) / "root").symlink_to(tmp_path / "image")
    assert "was started by `tpumon run`" in waiting_line(world)


async def test_a_starting_job_with_runtime_metrics_only_gets_no_remedy_yet(world, said, monkeypatch):
    """It is a worker all the same; the remedy is named later, once."""
    world.proc.began(time.time() - 30)
    world.proc.listen(8431, JOB)
    async with watching(world.finder()) as watch:
        await watch.until(lambda: said)
        monkeypatch.setattr("tpumon.discovery.host.jobs._STARTING_S", 10.0)
        await watch.until(lambda: len(said) == 2)
        await world.looked_again(watch)
    assert "only memory and duty cycle are available; it may still be starting" in said[0]
    assert line_for(None) not in said[0]
    assert line_for(None) in said[1]
    assert len(said) == 2
    assert len(watch.found) == 1


def test_a_job_that_may_have_a_profiler_server_is_not_said_to_have_none(world):
    """It listens on a port that is not called, or that took the call and did not answer."""
    world.proc.process(JOB, JAX, NCCL)
    world.proc.opens(JOB, "/dev/nvidia0")
    world.proc.listen(23456, JOB)
    assert waiting_line(world).startswith("no profiler server on this host's usual ports")
    world.proc.close(23456)
    world.proc.listen(8476, JOB)
    assert waiting_line(world).startswith("pid 42 `train.py` runs JAX")


def test_a_server_at_another_port_than_the_one_asked_for_is_named(world, said):
    """Also where there are runtime metrics; a job that has one needs no other."""

    class At9999(Elsewhere):
        async def remedy(self, address, asked=()):
            return f"a profiler server answers at 127.0.0.1:9999, not at {address}"

    world.job(9999, JOB)
    line = waiting_line(world, 9998, elsewhere=At9999())
    assert line == (
        "no profiler server on this host's port 9998; a profiler server answers at 127.0.0.1:9999, "
        "not at 127.0.0.1:9998"
    )
    assert line_for(None, 9998) in waiting_line(world, 9998)
    world.proc.listen(8431, JOB)
    assert waiting_line(world, 9998, elsewhere=At9999()) is None
    assert "a profiler server answers at 127.0.0.1:9999" in said[0]
    assert line_for(None) not in said[0]


def test_jobs_of_other_containers_and_tpumon_itself_are_not_meant(world):
    """Another network namespace cannot be reached from here; tpumon has no line to add."""
    (world.proc.root / "self" / "ns").mkdir(parents=True)
    (world.proc.root / "self" / "ns" / "net").symlink_to("net:[1]")
    (world.proc.root / str(JOB) / "ns").mkdir()
    (world.proc.root / str(JOB) / "ns" / "net").symlink_to("net:[2]")
    assert waiting_line(world).startswith("no profiler server on this host's usual ports")
    (world.proc.root / str(JOB) / "ns" / "net").unlink()
    (world.proc.root / str(JOB) / "ns" / "net").symlink_to("net:[1]")
    assert waiting_line(world).startswith("pid 42")
    world.proc.process(JOB, JAX, cmdline="/usr/bin/python3 /usr/bin/tpumon simulate v5e-8")
    assert waiting_line(world).startswith("no profiler server")


_LISTENS = """
import socket, sys, time
place = socket.socket()
place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
place.bind(("127.0.0.1", int(sys.argv[1])))
place.listen()
print(place.getsockname()[1], flush=True)
time.sleep(600)
"""


def started(script, port, **environment):
    """A real process that listens, and its port."""
    process = subprocess.Popen(
        [sys.executable, script, str(port), "--token=secret"], stdout=subprocess.PIPE, text=True, env=environment
    )
    return process, int(process.stdout.readline())


def ended(process):
    process.kill()
    process.communicate()


async def test_a_real_process_is_shown_without_its_arguments_and_its_restart_is_seen(tmp_path):
    """Also where no query fell between the end of the one and the start of the other."""
    script = tmp_path / "train.py"
    script.write_text(_LISTENS)

    async def call(_address):
        return None

    def after(history, target):
        return history.with_sample(sample(target.worker, process=target.process))

    process, port = started(script, 0, TPUMON_JOB="gemma", TPU_NAME="my-tpu", SECRET="s")
    try:
        discovery = LocalDiscovery(port, only=lambda one: one.port == port, call=call, poll_s=0.01)
        async with watching(Identified(discovery, names(), environment={})) as watch:
            await watch.until(lambda: watch.found and watch.found[-1].targets)
            (first,) = watch.found[-1].targets
            assert (first.process.pid, first.process.command) == (
                process.pid,
                f"{Path(sys.executable).name} train.py",
            )
            assert first.process.user == getpass.getuser()
            assert abs(first.process.started_unix_s - time.time()) < 60
            assert (first.job, first.slice, first.independent) == ("gemma", "my-tpu", False)
            history = WorkerHistory(first)
            history = after(after(history, first), first)
            assert history.restarted is None

            ended(process)
            process, _ = started(script, port)
            await watch.until(lambda: pid_of(watch.found[-1].targets[0]) == process.pid)
            (second,) = watch.found[-1].targets
            assert (second.worker, second.job, second.slice) == (first.worker, None, None)
            history = after(history, second)
            assert history.restarted is history.last
    finally:
        ended(process)
