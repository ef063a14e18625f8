"""A fleet of 64 exporters, each with one worker, and what becomes of those that do not do well."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import deque

import pytest

from fakes.run import Tpumon, tpumon
from support import free_port, wait_until
from support.exporter import get, sample, serving
from support.wired import Wired
from tpumon.collection import http_get
from tpumon.collection.remote import RemoteFleet, fleet
from tpumon.collection.remote.exporter_list import ExporterList
from tpumon.model import ExporterSnapshot, Sample, Target, Workers
from tpumon.outputs import OutputSettings
from tpumon.system.background import Background
from tpumon_exporters.prometheus import open_prometheus

EXPORTERS = 64


class Following:
    """What a fleet sends, in a thread as the commands run it."""

    def __init__(self, where, **options):
        self.events = deque()
        self._fleet = RemoteFleet(where, **options)
        self._stack = contextlib.ExitStack()

    async def _main(self, _send):
        await self._fleet.feed(self.events.append)

    def __enter__(self):
        self._background = self._stack.enter_context(Background(self._main))
        return self

    def __exit__(self, *error):
        self._stack.close()

    @property
    def workers(self):
        """The workers by name, as sent last."""
        last = next((event for event in reversed(list(self.events)) if isinstance(event, Workers)), Workers())
        return {target.worker: target for target in last.targets}

    @property
    def waiting(self):
        return next(event.waiting for event in reversed(list(self.events)) if isinstance(event, Workers))

    def samples(self, worker=None):
        found = (event for event in list(self.events) if isinstance(event, Sample))
        return [one for one in found if worker in {None, one.worker}]

    def last(self, worker):
        return next(iter(self.samples(worker)[::-1]), None)

    def wait_for(self, condition, what):
        return wait_until(condition, 60, what)


class Raw:
    """A server that answers each connection with these bytes, then with one more byte at a time."""

    def __init__(self, first, again=b""):
        self._first, self._again = first, again
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def _accept(self):
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                client, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client):
        with client, contextlib.suppress(OSError):
            client.recv(65536)
            client.sendall(self._first)
            while self._again and not self._over.wait(0.05):
                client.sendall(self._again)

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *error):
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(20)
        self._listener.close()


def page(**more):
    return {"schema": 1, "tpumon": "1", "run": "r", "sequence": 1, "now_unix_s": time.time(), "samples": []} | more


def http(body):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@pytest.fixture
def hosts():
    """Exporters of one worker each, all at port 9999 of their own localhost."""
    with contextlib.ExitStack() as stack:
        outputs = []
        for number in range(EXPORTERS):
            output = stack.enter_context(serving())
            output.add(Workers(targets=(Target(worker=f"w{number}", address="localhost:9999", job="j"),)))
            output.add(sample(f"w{number}", address="localhost:9999", interval_s=2.0, idle_ratio=0.1))
            outputs.append(output)
        yield outputs


def where(outputs, *more):
    return ",".join([*(output.address for output in outputs), *more])


def test_all_are_one_source(hosts):
    """In the order in which they are named; each sample once, with what belongs to it."""
    began_s = time.monotonic()
    with Following(where(hosts)) as following:
        following.wait_for(lambda: len({one.worker for one in following.samples()}) == EXPORTERS, "a sample of each")
        assert time.monotonic() - began_s < 10
        assert list(following.workers) == [f"w{number}" for number in range(EXPORTERS)]
        assert {one.job for one in following.workers.values()} == {"j"}
        assert following.workers["w7"].exporter == f"http://{hosts[7].address}"
        handed = {event.exporter for event in following.events if isinstance(event, ExporterSnapshot)}
        assert len(handed) == EXPORTERS
        hosts[5].add(sample("w5", address="localhost:9999", idle_ratio=0.7))
        following.wait_for(lambda: following.last("w5").figures.idle_ratio == 0.7, "the next sample")
        assert len(following.samples("w5")) == 2
        assert sum(isinstance(event, Workers) for event in list(following.events)) < 20, "many answers at a time"


def test_who_does_not_do_well_concerns_its_own_workers(hosts, monkeypatch, said):
    """One is down, one drips, one sends garbage, one more than may be, one ten thousand workers, one restarts."""
    monkeypatch.setattr(http_get, "WHOLE_S", 2.0)
    port = free_port()
    huge = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b" " * (33 << 20)
    crowd = page(targets=[{"worker": f"x{number}", "address": "h:1"} for number in range(20_000)])
    with contextlib.ExitStack() as stack:
        drips = stack.enter_context(Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", b" "))
        garbage = stack.enter_context(Raw(b"\x00\x1b[2J" * 10_000))
        too_large = stack.enter_context(Raw(huge))
        crowds = stack.enter_context(Raw(http(json.dumps(crowd).encode())))
        first = stack.enter_context(contextlib.ExitStack())
        moving = first.enter_context(serving("moving", where=f"127.0.0.1:{port}"))
        moving.add(sample("moving", idle_ratio=0.3))
        bad = [f"127.0.0.1:{free_port()}", drips.address, garbage.address, too_large.address, crowds.address]
        with Following(where(hosts, *bad, f"127.0.0.1:{port}"), poll_s=0.2) as following:
            following.wait_for(
                lambda: (
                    len({one.worker for one in following.samples()} - {f"x{n}" for n in range(20_000)}) == EXPORTERS + 1
                ),
                "a sample of each",
            )
            first.close()
            following.wait_for(lambda: following.last("moving").of_exporter, "its exporter is down")
            restarted = stack.enter_context(serving("moving", where=f"127.0.0.1:{port}"))
            restarted.add(sample("moving", idle_ratio=0.4))
            following.wait_for(lambda: following.last("moving").figures.idle_ratio == 0.4, "it is back")
            for output in hosts[:8]:
                output.add(sample(f"w{hosts.index(output)}", address="localhost:9999", idle_ratio=0.6))
            following.wait_for(
                lambda: all(following.last(f"w{number}").figures.idle_ratio == 0.6 for number in range(8)), "they go on"
            )
            following.wait_for(lambda: any("exporters do not answer" in line for line in said), "a line")
            assert all(one.has_figures for number in range(EXPORTERS) for one in following.samples(f"w{number}"))
            assert sum(name.startswith("x") for name in following.workers) == 10_000 - EXPORTERS - 1
            assert all("\x1b" not in line for line in said)


def test_an_exporter_that_leaves_the_list(hosts, tmp_path):
    """Its worker stays without figures, and is given up after a while; one that joins is followed."""
    file = tmp_path / "hosts.json"

    def listed(outputs):
        file.write_text(json.dumps([{"targets": [one.address for one in outputs], "labels": {"slice": "s"}}]))

    listed(hosts[:3])
    exporters = ExporterList(str(file), look_s=0.05)
    with Following(str(file), exporters=exporters, poll_s=0.05, stay_s=3.0) as following:
        following.wait_for(lambda: len(following.samples()) >= 3, "a sample of each")
        assert {one.slice for one in following.workers.values()} == {"s"}
        listed(hosts[1:4])
        left = following.wait_for(lambda: following.last("w0").of_exporter and following.last("w0"), "it is stale")
        assert left.errors[0].message == (
            f"exporter http://{hosts[0].address}: it has left the list; its workers stay for 0 min"
        )
        following.wait_for(lambda: "w3" in following.workers, "a new one")
        assert "w0" in following.workers
        following.wait_for(lambda: "w0" not in following.workers, "it is given up")
        listed(hosts[:4])
        following.wait_for(lambda: "w0" in following.workers and following.last("w0").has_figures, "it is back")


def test_the_exporters_behind_a_name(hosts, monkeypatch):
    """Addresses come and go with the answers of a name server."""
    answers, name = ["127.0.0.1"], f"{socket.gethostname()}:{hosts[0].address.rpartition(':')[2]}"

    async def resolve(_host):
        return list(answers)

    exporters = ExporterList(f"dns:{name}", resolve=resolve, resolve_every_s=0.1)
    monkeypatch.setattr(fleet, "AddressCache", lambda: http_get.AddressCache(resolve))
    with contextlib.ExitStack() as stack:
        second = stack.enter_context(serving("second", where=f"127.0.0.2:{name.rpartition(':')[2]}"))
        second.add(sample("second"))
        following = stack.enter_context(Following(f"dns:{name}", exporters=exporters, poll_s=0.05, stay_s=0.5))
        following.wait_for(lambda: list(following.workers) == ["w0"], "one address")
        assert following.workers["w0"].exporter == f"http://{name}"
        answers.append("127.0.0.2")
        following.wait_for(lambda: list(following.workers) == ["w0", "second"], "two addresses")
        answers.remove("127.0.0.1")
        following.wait_for(lambda: list(following.workers) == ["second"], "one that is gone")


@contextlib.contextmanager
def chained(*sources, port=0, run=None):
    """A tpumon that follows exporters and is one itself."""
    options = OutputSettings() if run is None else OutputSettings(run_id=run)
    where = f"127.0.0.1:{port}"
    with contextlib.closing(Wired(lambda context: open_prometheus(where, context), settings=options)) as output:

        async def main(_send):
            fleet = RemoteFleet(",".join(sources), own_run=options.run_id, poll_s=0.05)
            await fleet.feed(output.add)

        with Background(main):
            yield output


def goes_round(output):
    said = json.loads(get(output, "/samples").body)
    return said["run"] in said["via"]


def test_a_loop_is_refused(hosts, said):
    """Of one, and of three: what is not in it goes on."""
    ports = [free_port() for _ in range(3)]
    addresses = [f"127.0.0.1:{port}" for port in ports]
    own = f"127.0.0.1:{free_port()}"
    with chained(own, hosts[9].address, port=int(own.rpartition(":")[2])):
        wait_until(lambda: any("leave it out of --from" in line for line in said), 30, lambda: said)
        assert said == [f"exporter http://{own}: its samples come through this tpumon itself; leave it out of --from"]
    said.clear()
    with contextlib.ExitStack() as stack:
        round_ = [
            stack.enter_context(chained(addresses[number - 1], hosts[number].address, port=ports[number]))
            for number in range(3)
        ]
        wait_until(
            lambda: any("leave it out of --from" in line for line in said),
            60,
            lambda: said,
        )
        following = stack.enter_context(Following(round_[0].address, poll_s=0.05))
        following.wait_for(lambda: "w0" in following.workers, "its own")
        wait_until(lambda: not any(goes_round(output) for output in round_), 30, "nothing goes round")
        refused = [line for line in said if "leave it out of --from" in line]
        assert all("Connection refused" in line for line in said if line not in refused), "one began before another"
        assert 1 <= len(refused) <= 3


def test_the_command_follows_several(hosts):
    """`--from A,B`, as JSON lines."""
    with Tpumon("--from", where(hosts[:2]), "--output", "jsonl") as command:
        command.wait_for(lambda: '"worker":"w0"' in command.out and '"worker":"w1"' in command.out)


def test_a_command_that_ends_says_who_is_missing(hosts):
    """`once`: a table without an exporter's workers, and a line about it."""
    missing = f"127.0.0.1:{free_port()}"
    done = tpumon("once", "--from", where(hosts[:2], missing)).ended(0)
    assert "w0" in done.out
    assert "w1" in done.out
    assert f"exporter http://{missing}: Connection refused" in done.err
