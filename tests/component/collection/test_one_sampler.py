"""One sampler is enough: which tpumon of this host is read, whose it must be, and what happens once it is gone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from fakes.run import Tpumon, environment, tpumon
from support import wait_until
from support.exporter import found
from support.samples import sample
from support.terminal import Terminal
from support.wired import Wired
from tpumon.collection import event_sources
from tpumon.collection.remote import nearby
from tpumon.collection.remote.exporter_client import ExchangeError, ExporterClient
from tpumon.collection.remote.nearby import Nearby, find_nearby
from tpumon.discovery.host.listening import Listener, Owner, read_listeners, user_at
from tpumon.errors import SourceError, UsageError
from tpumon.model import Address
from tpumon.outputs import OutputSettings, shared_samples
from tpumon.outputs.shared_samples import SharedSamples
from tpumon.system.exporter_ports import announce, announced, host_key
from tpumon_exporters.prometheus import open_prometheus


@contextmanager
def exporter(host="this", level=2, port=0, workers=("w",)):
    """One that says that it samples this host's jobs, and has announced where it listens."""
    options = OutputSettings(host=host_key() if host == "this" else host, level=level)
    output = Wired(lambda given: open_prometheus(f"127.0.0.1:{port}", given), settings=options)
    output.add(found(*workers))
    forget = announce(output.open_port)
    try:
        yield output
    finally:
        forget()
        output.close()


def nearby_url(least_level=2, addresses=()):
    page = asyncio.run(find_nearby(least_level, addresses))
    return None if page is None else page.name


def test_one_that_announced_its_port_is_found_and_then_no_more():
    with exporter() as output:
        assert nearby_url() == f"http://{output.address}"
    assert nearby_url() is None


def test_the_usual_port_needs_no_announcement():
    with exporter(port=10466) as output:
        for uid, port in announced():
            assert (uid, port) == (os.getuid(), 10466)
        for file in Path(os.environ["TPUMON_PAUSE_DIR"]).iterdir():
            file.unlink()
        assert nearby_url() == f"http://{output.address}"


@pytest.mark.parametrize(
    "wrong", [{"host": None}, {"host": "0123456789abcdef"}, {"level": 1}, {"workers": ()}], ids=str
)
def test_one_that_does_not_answer_the_question_is_not_read(wrong):
    """It follows other workers, is on another host (behind a tunnel), says too little, or has no worker."""
    with exporter(**wrong):
        assert nearby_url() is None


def test_a_lower_level_is_read_unless_a_level_is_asked_for():
    with exporter(level=1):
        assert nearby_url(0) is not None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", socket.gethostname()])
def test_workers_that_are_named_are_read_where_they_are_sampled_with_others(host):
    """However their addresses are written; the others are left out."""
    with exporter(host=None, workers=("localhost", "10.0.0.7")) as output:
        page = asyncio.run(find_nearby(2, [f"{host}:9999"]))
        assert page.name == f"http://{output.address}"
        assert [target.worker for target in asyncio.run(page.fetch(None)).targets] == ["localhost"]
        assert nearby_url(2, ["10.0.0.7:9999", "localhost:9999"]) is not None
        assert nearby_url(2, ["localhost:9999", "localhost:9998"]) is None
        assert nearby_url() is None  # those of another host are no jobs of this one


def test_a_worker_that_is_named_is_read_where_all_of_this_host_are_sampled():
    with exporter(workers=("localhost",)):
        assert nearby_url(2, ["127.0.0.1:9999"]) is not None


def test_without_names_one_of_named_workers_is_read_if_it_misses_no_job():
    with exporter(host=None, workers=("localhost",)):
        assert nearby_url() is not None


def test_what_another_network_calls_localhost_is_not_read():
    """A container's exporter behind a port of this host: its user has not said that it is here."""
    with exporter(host="0123456789abcdef", workers=("localhost",)):
        assert nearby_url(2, ["localhost:9999"]) is None
    with exporter(host=None, workers=("localhost",), port=10466):
        for file in Path(os.environ["TPUMON_PAUSE_DIR"]).iterdir():
            file.unlink()
        assert nearby_url(2, ["localhost:9999"]) is None


def test_who_is_believed_of_named_workers():
    """The owner of those jobs, whoever has others here; of another host's nobody but oneself and the system."""
    listeners = [listening(9999, 1000), listening(8466, 1001)]
    wanted = frozenset({"localhost:9999"})
    assert nearby._Jobs(listeners, wanted).may_believe(1000)
    assert not nearby._Jobs(listeners, wanted).may_believe(1001)
    elsewhere = nearby._Jobs(listeners, wanted | {"10.0.0.7:9999"})
    assert [elsewhere.may_believe(uid) for uid in (1000, 0, os.getuid())] == [False, True, True]


def test_one_that_has_no_sample_is_given_up(monkeypatch):
    """It may be there, list workers, and hang."""
    monkeypatch.setattr(event_sources, "_FIRST_SAMPLES_S", 0.0)
    taken = []

    class Sampling(event_sources.EventSource):
        async def send_to(self, send, _own_run):
            send("sampled here")

    with exporter(workers=("localhost",)) as output:
        asyncio.run(event_sources.NearbySource(page_of(output), Sampling()).send_to(taken.append, "run"))
    assert taken[-1] == "sampled here"


def page_of(output):
    (listener,) = (one for one in read_listeners() if one.port == output.open_port)
    return Nearby(listener, 2)


def listening(port, uid=0):
    return Listener(port=port, address=f"127.0.0.1:{port}", inodes=frozenset(), uid=uid)


def test_another_users_socket_is_not_read(monkeypatch):
    """Not even connected to; any user may listen at the usual port."""
    with exporter(port=10466):
        (listener,) = (one for one in read_listeners() if one.port == 10466)
        stranger = replace(listener, uid=4321)
        monkeypatch.setattr(nearby, "read_listeners", lambda: [stranger])
        monkeypatch.setattr(nearby.Nearby, "ports", lambda _self: pytest.fail("it was asked"))
        assert nearby_url() is None


@pytest.mark.parametrize(
    ("uid", "jobs_of", "believed"),
    [
        (0, set(), True), (999, set(), True), (1000, set(), False), (1000, {1000}, True), (1000, {1000, 1001}, False),
        (-1, {-1}, False), (65534, {65534}, False), (4321, set(), True),
    ],
)  # fmt: skip
def test_who_is_believed(monkeypatch, uid, jobs_of, believed):
    """Root, a system account, oneself (4321 here), the owner of all jobs; nobody who stands for several."""
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    jobs = nearby._Jobs([])
    jobs.users = jobs_of
    assert jobs.may_believe(uid) is believed


def test_a_connection_that_another_user_accepted_is_refused():
    """Who listened when it was looked up may be gone by now."""
    with exporter() as output:
        (listener,) = (one for one in read_listeners() if one.port == output.open_port)
        assert asyncio.run(Nearby(listener, 2).ports()) == {9999}
        assert asyncio.run(Nearby(replace(listener, uid=4321), 2).ports()) == ()


def test_a_connection_that_was_closed_at_once_is_refused():
    """By then it has no ends any more."""
    closed = SimpleNamespace(get_extra_info=lambda _end: None)
    with exporter() as output, pytest.raises(OSError, match="closed at once"):
        asyncio.run(page_of(output).check(closed))


def test_one_that_hangs_later_is_given_up_within_its_time(monkeypatch):
    monkeypatch.setattr(Nearby, "read_s", 0.1)
    monkeypatch.setattr(Nearby, "check", ExporterClient.check)
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = Nearby(listening(server.getsockname()[1]), 2)
        began_s = time.monotonic()
        with pytest.raises(ExchangeError, match="no answer in time"):
            asyncio.run(silent.fetch(None))
        assert time.monotonic() - began_s < 3


def test_a_job_at_the_port_of_a_tpumon_that_was_killed_is_not_disturbed(monkeypatch):
    """Its file may still be there; NCCL must not be asked anything."""
    with exporter() as output:
        job = Owner(pid=1, program="python", runs_nccl=True)
        monkeypatch.setattr(nearby, "owners_of", lambda *_: {output.open_port: job})
        monkeypatch.setattr(nearby.Nearby, "ports", lambda _self: pytest.fail("it was asked"))
        assert nearby_url() is None


def test_it_is_believed_no_more_once_others_have_jobs(monkeypatch):
    """Whoever had the only job, or none that is left, could answer for the next user's."""
    mine, foreign = listening(9999, 4321), listening(8466, 5555)
    with exporter() as output:
        page = page_of(output)
        monkeypatch.setattr(page, "check", ExporterClient("http://127.0.0.1").check)
        monkeypatch.setattr(page, "uid", 4321)
        monkeypatch.setattr(nearby, "_AGAIN_S", 0)
        for listeners in ([mine], []):
            monkeypatch.setattr(nearby, "read_listeners", lambda listeners=listeners: listeners)
            assert asyncio.run(page.fetch(0)).targets
        monkeypatch.setattr(nearby, "read_listeners", lambda: [mine, foreign])
        with pytest.raises(ExchangeError, match="jobs of other users"):
            asyncio.run(page.fetch(0))


async def is_profiler(_address, **_):
    return None


async def is_none(_address, **_):
    return SourceError("not-a-profiler", "it is none")


def a_job_beside(monkeypatch, answer):
    """A process that could have a profiler server, which the exporter does not sample."""
    monkeypatch.setattr(nearby, "owners_of", lambda *_: {7777: Owner(pid=1, program="python", runs_xla=True)})
    monkeypatch.setattr(nearby, "knock", answer)


def test_one_that_misses_a_job_is_not_read(monkeypatch):
    with exporter() as output:
        seen = [*read_listeners(), listening(7777)]
        monkeypatch.setattr(nearby, "read_listeners", lambda: seen)
        a_job_beside(monkeypatch, is_profiler)
        assert nearby_url() is None
        a_job_beside(monkeypatch, is_none)  # a notebook, which listens at ports of its own
        assert nearby_url() == f"http://{output.address}"


def test_it_is_read_no_more_once_it_has_missed_a_job_for_a_while(monkeypatch):
    with exporter() as output:
        page = page_of(output)
        monkeypatch.setattr(nearby, "_AGAIN_S", 0)
        monkeypatch.setattr(nearby, "read_listeners", lambda: [listening(7777)])
        a_job_beside(monkeypatch, is_profiler)
        assert asyncio.run(page.fetch(0)).targets  # it may find the job yet
        with pytest.raises(ExchangeError, match="all jobs"):
            asyncio.run(page.fetch(0))
        a_job_beside(monkeypatch, is_none)
        assert asyncio.run(page.fetch(0)).targets
        a_job_beside(monkeypatch, lambda *_, **__: pytest.fail("it was called again"))
        assert asyncio.run(page.fetch(0)).targets


def test_a_connection_counts_once_it_is_accepted():
    """Before that some kernels call it root's."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        ends = Address(*server.getsockname()), Address(*client.getsockname())
        assert user_at(*ends) is None
        accepted, _ = server.accept()
        with accepted:
            assert user_at(*ends) == os.getuid()


@pytest.mark.parametrize("accepts", [True, False])
def test_one_that_hangs_is_given_up_soon(accepts):
    with socket.create_server(("127.0.0.1", 10466)) as server:
        taken = []
        taking = threading.Thread(target=lambda: taken.append(server.accept()[0]), daemon=True)
        if accepts:
            taking.start()
        began_s = time.monotonic()
        assert nearby_url() is None
        assert time.monotonic() - began_s < 5
        if accepts:
            taking.join(10)
            taken[0].close()


def test_files_without_end_delay_nothing(monkeypatch):
    """Then the usual port counts."""
    monkeypatch.setattr(nearby, "announced", lambda: time.sleep(8))
    with exporter(port=10466) as output:
        began_s = time.monotonic()
        assert nearby_url() == f"http://{output.address}"
        assert time.monotonic() - began_s < 4


def test_a_file_says_nothing_about_sockets_of_others():
    """A file counts for its owner's sockets alone, and only of this host."""
    folder = Path(os.environ["TPUMON_PAUSE_DIR"])
    for number, text in enumerate(["", "x", f"{host_key()} 0\n", f"{host_key()} 99999\n", "0123456789abcdef 7\n"]):
        (folder / f"tpumon-serve-0-{number}").write_text(text)
    assert announced() == set()
    forget = announce(4444)
    assert announced() == {(os.getuid(), 4444)}
    forget()
    assert announced() == set()


def test_who_listens_in_another_network_that_shares_the_directory_stays_announced(monkeypatch, tmp_path):
    monkeypatch.setenv("TPUMON_PAUSE_DIR", str(tmp_path))
    there, old = (tmp_path / f"tpumon-serve-{os.getuid()}-{number:016x}" for number in (1, 2))
    for file in (there, old):
        file.write_text("0123456789abcdef 4444\n")
    week_ago_s = time.time() - 8 * 86_400
    os.utime(old, (week_ago_s, week_ago_s))
    announce(4444)()
    assert (there.exists(), old.exists()) == (True, False)


SIMULATED = ("simulate", "v5e-8", "--port", "9999")
SERVE = ("serve", "--listen", "127.0.0.1:0", "--max-duty", "100%", "--interval", "1")


@pytest.fixture
def served(tmp_path, request):
    """A job on this host and a tpumon that samples it; the environment that all share."""
    named = getattr(request, "param", ())
    shared = {"TPUMON_PAUSE_DIR": str(tmp_path)}
    with Tpumon(*SIMULATED, env=shared), Tpumon(*SERVE, *named, env=shared) as serve:
        serve.wait_for(lambda: "listening on" in serve.err)
        url = re.search(r"listening on (http://\S+)/metrics", serve.err)[1]

        def has_sample():
            with urllib.request.urlopen(f"{url}/samples?after=0", timeout=10) as answer:
                return bool(json.load(answer)["samples"])

        wait_until(has_sample, 60, "a sample")
        yield shared, serve, url


@pytest.mark.parametrize("served", [(), ("--service-addr", "127.0.0.1:9999")], indirect=True, ids=["all", "named"])
def test_once_reads_it_and_says_so_unless_sampling_is_asked_for(served):
    shared, _, url = served
    for named in ((), ("--service-addr", "localhost:9999")):
        read = tpumon("once", "--output", "json", *named, env=shared)
        assert f"showing what {url}" in read.err
        assert json.loads(read.out)["workers"]
    own = tpumon("once", "--output", "json", "--max-duty", "100%", "--num-queries", "1", env=shared)
    assert "showing what" not in own.err
    text = tpumon("--output", "jsonl", "--num-queries", "1", env=shared)
    assert "showing what" not in text.err


def test_the_view_says_so_on_the_screen(served, tmp_path):
    """What is written before is behind the view, warnings too."""
    shared, _, url = served
    variables = environment(tmp_path) | shared | {"TPUMON_INTERVALL": "1"}
    with Terminal([sys.executable, "-m", "tpumon"], environment=variables, cwd=tmp_path, lines=60) as view:
        view.wait_for(lambda: "(+1, see h) TPUMON_INTERVALL is no variable of tpumon" in view.text and view.alternate)
        view.send("h").wait_for(lambda: f"showing what {url}" in view.text)


def test_the_view_says_so_no_longer_once_it_is_gone(served, tmp_path):
    """No key is pressed: this process samples from then on."""
    shared, serve, url = served
    variables = environment(tmp_path) | shared
    with Terminal([sys.executable, "-m", "tpumon"], environment=variables, cwd=tmp_path, lines=30) as view:
        view.wait_for(lambda: f"showing what {url}" in view.text and view.alternate)
        serve.signal(signal.SIGTERM).end(20)
        view.wait_for(lambda: "showing what" not in view.text)


def test_events_go_on_by_themselves_once_it_is_gone(served):
    shared, serve, _ = served
    with Tpumon("events", "--follow", env=shared) as events:
        events.wait_for(lambda: "showing what" in events.err)
        serve.signal(signal.SIGTERM).end(20)
        events.wait_for(lambda: "this process samples the jobs from now on" in events.err)
        events.wait_for(lambda: "now following" in events.err)


def test_a_view_is_read_from_its_first_sample_on_until_it_ends():
    """And only while it takes the samples itself."""
    is_sampling = [False]
    settings = OutputSettings(host=host_key())
    view = Wired(lambda given: SharedSamples(given, lambda: is_sampling[0]), settings=settings)
    view.add(found("w"), sample("w"))
    assert announced() == set()
    is_sampling[0] = True
    view.add(found("w"))
    assert announced() == set()
    view.add(sample("w"))
    ((_, port),) = announced()
    assert nearby_url() == f"http://127.0.0.1:{port}"
    view.close()
    assert announced() == set()
    assert port not in {one.port for one in read_listeners()}


def test_a_view_whose_samples_cannot_be_read_goes_on(monkeypatch):
    def fail(*_):
        raise UsageError("cannot listen on 127.0.0.1:0")

    monkeypatch.setattr(shared_samples, "open_output", fail)
    view = Wired(lambda given: SharedSamples(given, lambda: True))
    view.add(found("w"), sample("w"), sample("w"))
    view.close()
    assert announced() == set()


def test_who_answers_its_user_alone_is_announced_to_nobody_else(monkeypatch):
    """Root gets an answer, too."""
    forget = announce(4444, readers="own")
    own = os.getuid()
    for uid, listed in ((own, True), (0, True), (4321, False)):
        monkeypatch.setattr(os, "getuid", lambda uid=uid: uid)
        assert ((own, 4444) in announced()) is listed
    monkeypatch.undo()
    forget()


def test_commands_beside_a_view_read_it_and_sample_themselves_once_it_is_closed(tmp_path):
    shared = {"TPUMON_PAUSE_DIR": str(tmp_path)}
    fast = ("--max-duty", "100%", "--interval", "1")
    variables = environment(tmp_path) | shared
    with Tpumon(*SIMULATED, env=shared) as job:
        job.wait_for(lambda: "watch it:" in job.out)
        with Terminal([sys.executable, "-m", "tpumon", *fast], environment=variables, lines=40, cwd=tmp_path) as view:
            view.wait_for(lambda: "LIVE" in view.text)
            wait_until(lambda: list(tmp_path.glob("tpumon-serve-*")), 20, "the view's samples can be read")
            beside = tpumon("once", env=shared)
            assert "showing what http://127.0.0.1:" in beside.err
            assert view.send("q").end() == 0
        alone = tpumon("once", "--num-queries", "1", env=shared)
        assert "showing what" not in alone.err
