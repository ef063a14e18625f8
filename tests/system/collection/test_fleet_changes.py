"""Workers that go, come back, move and never come: the right lines, nothing stale, and figures again."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from fakes.google import Google, node
from fakes.run import Tpumon
from fakes.tpu_node import LEVEL_2, Answer, Figures, TpuNode
from support import exporter, free_port, virtual_time
from support.samples import sample
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sources import ProfilerSource
from tpumon.discovery.dns import DnsNames
from tpumon.model import Query, Sample

FIGURES = Answer(text=LEVEL_2, figures=Figures())
QUICK = ("--duration-ms", "50", "--interval", "0.2", "--no-runtime-metrics")
SERIES = re.compile(r'^tpu_mxu_utilization_ratio\{.*worker="([^"]+)".*\} (\S+)$', re.MULTILINE)
SIMULATE = (
    "import sys; from tpumon.cli.commands.simulate import run\n"
    "from tpumon.simulator.simulator_settings import SimulatorSettings\n"
    "sys.exit(run(SimulatorSettings(topology='v5e-256')))\n"
)


class Served:
    """`tpumon serve`, looked at through its page."""

    def __init__(self, command: Tpumon) -> None:
        self.command = command.wait_for(lambda: "listening on" in command.err)
        self._url = re.search(r"listening on (\S+)", command.err)[1]

    @property
    def figures(self) -> set[str]:
        """Workers with figures on the page."""
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            return {worker for worker, _ in SERIES.findall(answer.read().decode())}

    def shows(self, *workers: str) -> None:
        """Returns once these workers have figures, and no other."""
        self.command.wait_for(lambda: self.figures == set(workers), 60)

    def said(self, words: str) -> int:
        """In how many lines these words were said."""
        return sum(words in line for line in self.command.err.splitlines())

    def end(self) -> None:
        self.command.signal(signal.SIGTERM).end().ended(0)


@contextmanager
def serving(*args: str, **options) -> Iterator[Served]:
    with Tpumon("serve", *args, "--listen", "127.0.0.1:0", *QUICK, **options) as command:
        served = Served(command)
        yield served
        served.end()


@contextmanager
def nodes(port: int, *hosts: str) -> Iterator[None]:
    """Workers that answer, on these addresses of this machine."""
    with ExitStack() as stack:
        for host in hosts:
            stack.enter_context(TpuNode(FIGURES, host=host, port=port))
        yield


@pytest.mark.nightly
def test_a_slice_that_is_preempted_and_made_anew(tmp_path: Path):
    """Without figures while it is gone, and it is said why; with figures again at new addresses, under its names."""
    port = free_port()
    both = ("my-tpu-w-0", "my-tpu-w-1")
    with Google() as google:
        google.nodes["my-tpu"] = node("my-tpu", ["127.0.1.2", "127.0.1.3"])
        env = google.environment(tmp_path)
        with serving("--tpu", "my-tpu", "--port", str(port), env=env) as served:
            with nodes(port, "127.0.1.2", "127.0.1.3"):
                served.shows(*both)
                google.nodes["my-tpu"] = node("my-tpu", ["127.0.1.2", "127.0.1.3"], "PREEMPTED")
            served.shows()
            served.command.wait_for(lambda: served.said("TPU my-tpu was preempted; delete it and create it again"), 60)
            assert not served.figures
            google.nodes["my-tpu"] = node("my-tpu", ["127.0.1.4", "127.0.1.5"])
            with nodes(port, "127.0.1.4", "127.0.1.5"):
                served.shows(*both)
            assert served.said("was preempted") == 1


def test_a_worker_that_gets_another_name(tmp_path: Path):
    """Its figures go on under the new name; nothing is left of the old one."""
    file = tmp_path / "targets.json"
    with TpuNode(FIGURES) as first, TpuNode(FIGURES) as second:

        def name(worker: str) -> None:
            groups = [{"targets": [one.address], "labels": {"worker": name}}
                      for one, name in ((first, "stays"), (second, worker))]  # fmt: skip
            file.with_suffix(".new").write_text(json.dumps(groups))
            file.with_suffix(".new").replace(file)

        name("old")
        with serving("--targets", str(file)) as served:
            served.shows("stays", "old")
            name("new")
            served.shows("stays", "new")
            name("old")
            served.shows("stays", "old")
            assert not served.said("stays:")  # who has nothing to do with it goes on without a word


@pytest.fixture
def simulated() -> Iterator[list[str]]:
    """Where 64 workers of a TPU VM slice are."""
    with subprocess.Popen([sys.executable, "-c", SIMULATE], stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = [process.stdout.readline() for _ in range(65)]
            yield [re.search(r"profiler (\S+)", line)[1] for line in lines[:64]]
        finally:
            process.terminate()


def test_one_worker_of_64_is_dead_from_the_start(tmp_path: Path, simulated: list[str], dead_address: str):
    """The 63 others have figures and do not wait for it; it is said in one line, and nothing is shown of it."""
    file = tmp_path / "targets.json"
    addresses = [*simulated[:40], dead_address, *simulated[41:]]
    file.write_text(
        json.dumps([{"targets": [address], "labels": {"worker": f"w-{n}"}} for n, address in enumerate(addresses)])
    )
    with Tpumon("--targets", str(file), "--level", "2", "--output", "jsonl") as command:

        def with_figures() -> set[str]:
            samples = [json.loads(line) for line in command.out.splitlines(keepends=True) if line.endswith("\n")]
            return {sample["worker"] for sample in samples if sample["idle_ratio"] is not None}

        command.wait_for(lambda: len(with_figures()) == 63 and '"w-40"' in command.out, 60)
        result = command.signal(signal.SIGINT).end().ended(130)
    assert with_figures() == {f"w-{n}" for n in range(64)} - {"w-40"}
    (line,) = [line for line in result.messages if "w-40" in line or dead_address in line]
    assert "connection refused" in line
    dead = [sample for sample in result.samples if sample["worker"] == "w-40"]
    assert {sample["errors"][0]["reason"] for sample in dead} == {"unavailable"}
    assert all(sample["source"] is None and sample["simulated"] is False for sample in dead)


class _Steady(ProfilerSource):
    """A source that always answers."""

    name = "monitor"
    usual_interval_s = 10.0

    def __init__(self, _client: object, target, _options: object) -> None:
        self._target = target

    async def fetch(self, query: Query) -> Sample:
        return sample(
            self._target.worker, address=self._target.address, time_unix_s=time.time(), source="monitor",
            interval_s=query.interval_s, mxu_utilization_ratio=0.5,
        )  # fmt: skip


def test_a_name_server_that_flaps(said):
    """No answers and half ones change nothing on the page; a pod that is really gone leaves it, and may come back."""
    both = ["10.0.0.1", "10.0.0.2"]
    answer: list[str] | OSError = both

    async def resolve(host: str) -> list[str]:
        if host == "pod-0":
            return ["10.0.1.1" if answer is both else "10.0.1.9"]  # moves each time; its name says where it is
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def main() -> None:
        nonlocal answer
        with exporter.serving() as output:

            def figures() -> set[str]:
                return {worker for worker, _ in SERIES.findall(exporter.get(output, "/metrics").text)}

            sampler = Sampler(
                DnsNames(["svc:9999", "pod-0:9999"], resolve=resolve), Query(level=2), Pace(), on_sample=output.add,
                on_workers=output.add, open_client=nullcontext, profilers=[_Steady],
            )  # fmt: skip
            running = asyncio.create_task(sampler.run())
            await asyncio.sleep(20)
            pods = {"10.0.0.1:9999", "10.0.0.2:9999", "pod-0"}
            for one in (both, OSError(), both[:1], both, TimeoutError(), both[1:], [], both) * 2:
                answer = one
                await asyncio.sleep(30)
                assert figures() == pods
            answer = both[:1]
            await asyncio.sleep(120)
            assert figures() == pods - {"10.0.0.2:9999"}
            answer = both
            await asyncio.sleep(60)
            assert figures() == pods
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    virtual_time.run(main())
    assert said == []
