"""Foreign data that cannot be read: a refresh that fails, with a line about it, never the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import urllib.error
import urllib.request

import pytest

from fakes.proc import JAX, FakeProc
from fakes.run import Tpumon, tpumon
from fakes.tpu_node import LEVEL_2, Answer, Figures, TpuNode
from support.exporter import sample, serving
from support.watching import watching
from tpumon.collection import recording
from tpumon.collection.recording import Recording
from tpumon.collection.remote import RemoteFleet, exporter
from tpumon.collection.sampler import Pace, Sampler
from tpumon.collection.sampler import sampler as sampler_module
from tpumon.discovery import target_file, tpu_api
from tpumon.discovery.dns import DnsNames
from tpumon.discovery.finder import Fixed
from tpumon.discovery.google_api import ApiNode
from tpumon.discovery.host import servers as local
from tpumon.discovery.host.servers import LocalDiscovery
from tpumon.discovery.pods import WithPods
from tpumon.discovery.target_file import TargetFile
from tpumon.discovery.tpu_api import NamedTpus
from tpumon.model import Query, Sample, Target, Workers
from tpumon_exporters import webconfig

BAD_AT_START = {"missing": None, "half-written": '[{"targets": ["127.0.0.1:', "empty": ""}


def get(url):
    """The page at this address; empty where it is refused."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError:
        return ""


@pytest.mark.parametrize("what", BAD_AT_START)
def test_a_service_waits_for_a_file_that_is_missing_or_half_written_at_the_start(what, tmp_path):
    """One line names it and what is wrong; the figures come once it is whole. Status 2 would end it for good."""
    path = tmp_path / "targets.json"
    if BAD_AT_START[what] is not None:
        path.write_text(BAD_AT_START[what])
    with TpuNode(Answer(text=LEVEL_2, figures=Figures())) as node, Tpumon(
        "serve", "--targets", str(path), "--listen", "127.0.0.1:0", "--duration-ms", "50", "--interval", "0.1"
    ) as serve:  # fmt: skip
        serve.wait_for(lambda: "listening on" in serve.err)
        base = serve.err.split("listening on ")[1].split("/metrics")[0]
        serve.wait_for(lambda: get(f"{base}/-/ready"))
        up = 'tpumon_discovery_up{finder="targets-file"}'
        assert f"{up} {float(what == 'empty')}" in get(f"{base}/metrics")
        path.write_text(json.dumps([{"targets": [node.address]}]))
        serve.wait_for(lambda: "tpu_mxu_utilization_ratio{" in get(f"{base}/metrics"))
        assert f"{up} 1.0" in get(f"{base}/metrics")
        result = serve.signal(signal.SIGTERM).end(20).ended(0)
    (line,) = [line for line in result.messages if "targets.json" in line]
    assert {"missing": "No such file", "half-written": "no JSON", "empty": "names no workers"}[what] in line


@pytest.mark.parametrize("command", [["once"], ["--level", "2", "--output", "jsonl"]])
def test_whoever_types_a_command_is_told_of_a_wrong_file_at_once(command, tmp_path):
    """As a usage error."""
    result = tpumon(*command, "--targets", str(tmp_path / "targets.json")).ended(2)
    assert "No such file" in result.err


ERRORS = pytest.mark.parametrize("error", [ValueError, OverflowError, RecursionError])
WORDS = "nobody foresaw this"
LONG_S = 30.0


class Broken:
    """A function that raises while it is `broken`, and otherwise does what another one does."""

    def __init__(self, error, works):
        self.error, self.works, self.broken, self.calls = error, works, True, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        if self.broken:
            raise self.error(WORDS)
        return self.works(*args, **kwargs)


async def until(condition):
    async with asyncio.timeout(LONG_S):
        while not condition():  # noqa: ASYNC110 - what it asks for is anywhere
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(coroutine):
    """What it raises fails the test."""
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        ended = task.done()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert not ended


def lines_of(events):
    """What a reader of others' samples says by its events."""
    waiting = [event.waiting for event in events if isinstance(event, Workers) and event.waiting]
    return waiting + [one.message for event in events if isinstance(event, Sample) for one in event.errors]


@ERRORS
@pytest.mark.parametrize("known", [False, True])
def test_samples_of_an_exporter(error, known, monkeypatch):
    """At the start and when its workers are known."""
    broken, events = Broken(error, exporter.read_snapshot), []
    broken.broken = not known
    monkeypatch.setattr(exporter, "read_snapshot", broken)

    def figures():
        return sum(isinstance(event, Sample) and event.has_figures for event in events)

    async def main(output):
        output.add(sample("w"))
        async with running(RemoteFleet(f"http://{output.address}", poll_s=0.01).feed(events.append)):
            if known:
                await until(figures)
                broken.broken = True
            await until(lambda: any(WORDS in line for line in lines_of(events)))
            calls = broken.calls
            await until(lambda: broken.calls > calls + 3)
            assert sum(WORDS in line for line in lines_of(events)) == 1
            broken.broken, before = False, figures()
            output.add(sample("w"))
            await until(lambda: figures() > before)

    with serving("w") as output:
        asyncio.run(main(output))


@ERRORS
def test_one_sample_that_cannot_be_read_costs_no_other(error, monkeypatch):
    """Of those of an exporter."""
    read, events = Sample.from_json, []

    def odd(document):
        if b'"worker":"odd"' in bytes(document):
            raise error(WORDS)
        return read(document)

    monkeypatch.setattr(Sample, "from_json", odd)

    async def main(output):
        for worker in ("odd", "w"):
            output.add(sample(worker))
        async with running(RemoteFleet(f"http://{output.address}", poll_s=0.01).feed(events.append)):
            await until(lambda: any(isinstance(event, Sample) and event.worker == "w" for event in events))

    with serving("odd", "w") as output:
        asyncio.run(main(output))


@ERRORS
def test_a_recording(error, tmp_path, monkeypatch, said):
    """A line that cannot be read is left out, and a file that cannot be."""
    lines = [json.dumps(sample(worker).to_json()) for worker in ("odd", "w")]
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(lines) + "\n")
    read = Sample.from_json
    monkeypatch.setattr(Sample, "from_json", lambda line: Broken(error, read)(line) if b'"odd"' in line else read(line))
    events = [moment.event for moment in Recording(str(tmp_path)).moments()]
    assert [event.worker for event in events if isinstance(event, Sample)] == ["w"]
    (line,) = said
    assert "a.jsonl" in line
    (tmp_path / "b.jsonl.gz").write_bytes(b"x")
    monkeypatch.setattr(recording, "_unpacked", Broken(error, None))
    list(Recording(str(tmp_path)).moments())
    assert any("b.jsonl.gz" in line and WORDS in line for line in said)


@ERRORS
@pytest.mark.parametrize("known", [False, True])
async def test_a_targets_file(error, known, tmp_path, monkeypatch, said):
    """At the start of a service and later."""
    path = tmp_path / "targets.json"
    path.write_text('[{"targets": ["a:1"]}]')
    broken = Broken(error, target_file._parse)
    broken.broken = not known
    monkeypatch.setattr(target_file, "_parse", broken)
    monkeypatch.setattr(target_file, "_SETTLES_S", -1.0)
    finder = TargetFile(str(path), waits=True, poll_s=0.01)
    async with watching(finder) as watch:
        if known:
            await watch.shows({"a": "a:1"})
            broken.broken = True
            path.write_text('[{"targets": ["a:1", "c:1"]}]')
            await watch.until(lambda: said)
            assert watch.now == {"a": "a:1"}
        else:
            await watch.until(lambda: watch.found and WORDS in (watch.found[-1].waiting or ""))
        broken.broken = False
        path.write_text('[{"targets": ["b:1"]}]')
        await watch.shows({"b": "b:1"})
    assert [WORDS in line for line in said] == [True] * known


@ERRORS
async def test_names(error, said):
    """One name that cannot be looked up costs no other its addresses."""
    asked = []

    async def resolve(host):
        asked.append(host)
        if host == "odd":
            raise error(WORDS)
        return ["10.0.0.1", "10.0.0.2"]

    finder = DnsNames(["odd:1", "job:1"], resolve=resolve, resolve_every_s=0.01, soon_s=0.01)
    async with watching(finder) as watch:
        await watch.until(lambda: "10.0.0.2:1" in watch.now.values())
        await watch.until(lambda: asked.count("odd") > 3)
    assert watch.now["odd"] == "odd:1"
    assert watch.finders[-1] == {"dns": False}
    (line,) = said
    assert "odd" in line
    assert WORDS in line


@ERRORS
async def test_the_tpu_api(error, monkeypatch):
    """It is asked again, and says why it waits."""
    monkeypatch.setattr(tpu_api, "_SHORTEST_PAUSE_S", 0.02)
    node = ApiNode(state="READY", health=None, health_words="", is_tpu_node=True, ips=("10.0.0.1",))
    broken = Broken(error, lambda _name: node)
    pytest.importorskip("google.auth")
    finder = NamedTpus(["t"], zone="z", project="p", poll_s=0.01)
    monkeypatch.setattr(finder._api, "node", broken)
    async with watching(finder) as watch:
        await watch.until(lambda: watch.found and WORDS in (watch.found[-1].waiting or ""))
        broken.broken = False
        await watch.shows({"t-w-0": "10.0.0.1:8466"})


@ERRORS
async def test_announcements_of_jobs(error, tmp_path, monkeypatch, said):
    """Jobs are found as if there were none."""
    proc = FakeProc(tmp_path / "proc")
    proc.process(42, JAX)
    proc.listen(9999, 42)
    broken = Broken(error, None)
    monkeypatch.setattr(local, "attached_processes", broken)

    async def call(_address):
        return None

    async with watching(LocalDiscovery(proc=proc.root, call=call, poll_s=0.01)) as watch:
        await watch.until(lambda: "127.0.0.1:9999" in watch.now.values() and broken.calls > 3)
    (line,) = said
    assert WORDS in line


@ERRORS
async def test_the_kubelet(error, tmp_path, said):
    """Workers go without the names of their pods."""
    socket = tmp_path / "kubelet.sock"
    socket.touch()
    finder = WithPods(
        Fixed([Target(worker="w", address="h:1")]),
        socket=socket,
        ask=Broken(error, None),
        every_s=0.01,
    )
    async with watching(finder) as watch:
        await watch.shows({"w": "h:1"})
    (line,) = said
    assert WORDS in line


@ERRORS
def test_a_web_config(error, tmp_path, monkeypatch, said):
    """The settings before it stay in use."""
    path = tmp_path / "web.yml"
    path.write_text("http_server_config: {headers: {X-Frame-Options: deny}}")
    config = webconfig.WebConfig(str(path))
    monkeypatch.setattr(webconfig, "convert", Broken(error, None))
    path.write_text("{}")
    for _ in range(3):
        assert config.context() is None
    assert config.headers == {"X-Frame-Options": "deny"}
    (line,) = said
    assert WORDS in line


class Odd:
    """A discovery that fails twice before it finds anybody."""

    def __init__(self, error):
        self.error, self.tries = error, 0

    async def watch(self, _all_gone):
        self.tries += 1
        if self.tries < 3:
            raise self.error(WORDS)
        yield Workers(targets=(Target(worker="w", address="h:1"),))


@ERRORS
async def test_any_discovery(error, monkeypatch):
    """It is started again, though there never was a worker; the reason is what is waited for, and no line twice."""
    monkeypatch.setattr(sampler_module, "_FIND_AGAIN_S", 0.01)
    found = []
    monkeypatch.setattr(Sampler, "_follow", lambda *_args, **_options: asyncio.Event().wait())
    sampler = Sampler(
        Odd(error), Query(level=2), Pace(), on_sample=lambda _sample: None, on_workers=found.append, profilers=()
    )
    async with running(sampler.run()):
        await until(lambda: found and found[-1].targets)
    assert [WORDS in (workers.waiting or "") for workers in found] == [True, True, False]
