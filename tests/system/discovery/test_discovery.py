"""Real jobs of this machine are found with nothing said about them, and nobody else is harmed."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes.google import Google, node
from fakes.run import Result, tpumon
from fakes.tpu_node import LEVEL_2, Answer, Figures, TpuNode, WrongServer, free
from support import free_port, wait_until
from support.jobs import Job, start_jax
from support.watching import watching
from tpumon.discovery.host.port_survey import USUAL_PORTS, survey
from tpumon.discovery.host.servers import LocalDiscovery

HERE = socket.gethostname()


@dataclass(frozen=True)
class Neighbourhood:
    """What else listens on a machine, at ports that profilers use as well."""

    others: dict[str, WrongServer]
    grpc: TpuNode
    web_port: int
    web_log: Path

    def unharmed(self) -> None:
        """Fails the test unless each was approached at most once, and still serves."""
        assert {kind: server.connections for kind, server in self.others.items() if server.connections > 1} == {}
        assert len(self.grpc.calls) <= 1
        assert len([line for line in self.web_log.read_text().splitlines() if "PRI * HTTP/2.0" in line]) <= 1
        with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}/", timeout=10) as answer:
            assert answer.status == 200


@pytest.fixture
def neighbourhood(tmp_path: Path) -> Iterator[Neighbourhood]:
    """A real web server, an SSH banner, a silent port, one that hangs up, a gRPC server; at usual ports, if free."""
    ports = iter([port for port in USUAL_PORTS if free(port)] + [free_port(), free_port()])
    with ExitStack() as stack:
        web_port = next(ports)
        log = tmp_path / "web.log"
        with log.open("wb") as file:
            command = [sys.executable, "-m", "http.server", str(web_port), "--bind", "127.0.0.1"]
            web = stack.enter_context(subprocess.Popen(command, cwd=tmp_path, stdout=file, stderr=file))
        stack.callback(web.kill)
        wait_until(lambda: not free(web_port), 60, "the web server listens")
        others = {kind: stack.enter_context(WrongServer(kind, next(ports))) for kind in ("SSH", "silent", "close")}
        grpc = stack.enter_context(TpuNode(profiler=False, port=next(ports)))
        yield Neighbourhood(others, grpc, web_port, log)


@pytest.mark.real
def test_a_job_is_found_among_strangers(jax_job: Job, neighbourhood: Neighbourhood):
    """`tpumon --level 2` shows the job, at whatever port it has; nobody else had more than one bad request."""
    result = tpumon("--level", "2", "--num-queries", "2", "--interval", "1", "--output", "jsonl").ended(0)
    samples = [sample for sample in result.samples if sample["address"] == jax_job.address]
    assert len(samples) == 2
    assert all(sample["worker"].startswith(HERE) and sample["step_time_s"] for sample in samples), result
    strangers = {server.address for server in neighbourhood.others.values()} | {neighbourhood.grpc.address}
    assert not strangers & {sample["address"] for sample in result.samples}
    neighbourhood.unharmed()
    jax_job.wait_for_more_steps(10)


@pytest.mark.real
def test_everybody_is_seen_and_it_is_said_what_became_of_them(jax_job: Job, neighbourhood: Neighbourhood):
    """For people: whose each port is, what was answered there, or why nobody asked."""
    seen = {one.port: one for one in asyncio.run(survey())}
    job = seen[jax_job.port]
    assert job.is_profiler
    assert job.owner is not None
    assert (job.owner.pid, job.owner.runs_xla) == (jax_job.process.pid, True)
    web = seen[neighbourhood.web_port]
    assert not web.is_profiler
    assert web.answer is not None or web.not_approached
    assert seen[neighbourhood.grpc.port].owner.is_tpumon  # this process, which plays it
    neighbourhood.unharmed()


@pytest.mark.nightly
@pytest.mark.real
async def test_a_job_that_starts_again_elsewhere_is_followed(tmp_path: Path):
    """It is found while tpumon waits; it ends, and starts at another port: one worker, named after that."""
    ours = set()
    finder = LocalDiscovery(only=lambda listener: listener.port in ours)
    async with watching(finder) as watch:
        await watch.until(lambda: watch.found and watch.found[0].waiting)
        first = None
        for number in range(2):
            (tmp_path / str(number)).mkdir()
            job = await asyncio.to_thread(start_jax, tmp_path / str(number), "0.10.2")
            try:
                ours.add(job.port)
                first = first or job.port
                await watch.shows({HERE if job.port == first else f"{HERE}:{job.port}": job.address})
            finally:
                job.stop()


FIGURES = Answer(figures=Figures(), text=LEVEL_2)
ONCE = ("--level", "2", "--num-queries", "1", "--duration-ms", "40", "--output", "jsonl")


def shown(result: Result) -> dict[str, tuple[str, str]]:
    """Addresses and slices of the workers that answered."""
    return {sample["worker"]: (sample["address"], sample["slice"]) for sample in result.samples if sample["source"]}


def test_a_named_tpu_is_shown_with_all_its_workers(tmp_path: Path):
    """One GET with the metadata server's token; the port that answers; nothing of the token in anything printed."""
    port = free_port()  # at the usual ones somebody's job may listen on all addresses of this host
    with (
        Google() as google,
        TpuNode(FIGURES, host="127.0.0.2", port=port) as first,
        TpuNode(FIGURES, host="127.0.0.3", port=port) as second,
    ):
        google.nodes["my-tpu"] = node("my-tpu", ["127.0.0.3", "127.0.0.2"])
        env = google.environment(tmp_path)
        result = tpumon("--tpu", "my-tpu", "--port", str(port), *ONCE, env=env).ended(0)
        assert shown(result) == {
            "my-tpu-w-0": (second.address, "my-tpu"), "my-tpu-w-1": (first.address, "my-tpu"),
        }  # fmt: skip
        assert google.lookups == ["my-tpu"]
        gone = tpumon("--tpu", "your-tpu", *ONCE, env=env).ended(3)
        google.nodes["my-tpu"]["state"] = "PREEMPTED"
        preempted = tpumon("--tpu", "my-tpu", *ONCE, env=env).ended(3)
    assert "no TPU your-tpu in zone us-central2-b of project my-project" in gone.err
    assert "TPU my-tpu was preempted" in preempted.err
    for ended in (result, gone, preempted):
        assert "secret" not in ended.said
        assert len(ended.messages) <= 1
