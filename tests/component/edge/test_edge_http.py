"""The exporter's endpoint as a process of its own, attacked by clients on another address or on the scraper's own."""

from __future__ import annotations

import base64
import contextlib
import re
import socket
import threading
import time
from collections import deque

import bcrypt
import pytest

from fakes.run import Tpumon
from fakes.tpu_node import closed_port
from support import wait_until
from support.exporter import get, serving
from support.recovery import within
from tpumon_exporters import web, webconfig

pytestmark = pytest.mark.usefixtures("quiet")

SCRAPES = 10
SCRAPER, OTHER = "127.0.0.1", "127.0.0.2"

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    """A web-config file with a user whose password takes about 0.2 s to check, as htpasswd's with -C 12."""
    path = tmp_path_factory.mktemp("web") / "web.yml"
    path.write_text(hashed())
    return path


def hashed():
    """The text of such a file."""
    return f"basic_auth_users: {{prometheus: '{bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(12)).decode()}'}}\n"


@contextlib.contextmanager
def exporter(*options):
    """A running `tpumon serve`: the port where it listens, and its process."""
    with Tpumon(
        "serve", "--service-addr", f"127.0.0.1:{closed_port()}", "--listen", "127.0.0.1:0", *options
    ) as command:
        command.wait_for(lambda: "listening on" in command.err)
        port = int(re.search(r"listening on http://\S+:(\d+)/metrics", command.err)[1])
        yield port, command._process.pid


def ask(port, *, authorization=None, source=SCRAPER, path="/metrics"):
    """The status of an answer; None: the connection was closed without one."""
    header = "" if authorization is None else f"Authorization: {authorization}\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(source, 0)) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
            answer = b""
            while data := client.recv(65536):
                answer += data
    except OSError:
        return None
    return int(answer.split()[1]) if answer.endswith(b"\n") else None


def basic(password):
    return "Basic " + base64.b64encode(f"prometheus:{password}".encode()).decode()


@contextlib.contextmanager
def attackers(number, act):
    """So many threads that do it again and again."""
    over = threading.Event()

    def run():
        while not over.is_set():
            act(over)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(20)


@contextlib.contextmanager
def idle_connections(port, source):
    """200 new ones a second that send nothing and are kept open; yields how many there were so far."""
    kept, made = deque(), []

    def connect(over):
        with contextlib.suppress(OSError):
            kept.append(socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(source, 0)))
            made.append(None)
        if len(kept) > 400:
            kept.popleft().close()
        over.wait(0.005)

    try:
        with attackers(1, connect):
            yield lambda: len(made)
    finally:
        for client in kept:
            client.close()


def test_idle_connections_shut_no_scrape_out():
    """Of another address: every scrape is answered. Of the scraper's own, whose places it shares: many are."""
    with exporter() as (port, _):
        with idle_connections(port, OTHER) as made:
            wait_until(lambda: made() > 40, 60, "all places are taken")
            assert [ask(port) for _ in range(SCRAPES)] == [200] * SCRAPES
        with idle_connections(port, SCRAPER) as made:
            wait_until(lambda: made() > 40, 60, "all places are taken")
            for _ in range(SCRAPES):
                wait_until(lambda: ask(port) == 200, 60, "a scrape is answered")


def test_clients_without_credentials_cost_little(users, monkeypatch):
    """They get 401 without a check of any password, and the scraper is served."""
    with exporter("--web-config", str(users)) as (port, _):
        assert ask(port, authorization=basic(PASSWORD)) == 200
        statuses = []

        def intrude(over):
            statuses.append(ask(port, source=OTHER))
            over.wait(0.2)

        with attackers(30, intrude):
            wait_until(lambda: statuses.count(401) > 30, 60, "they are sent away")
            assert [ask(port, authorization=basic(PASSWORD)) for _ in range(SCRAPES)] == [200] * SCRAPES
        assert set(statuses) <= {401, None}
    monkeypatch.setattr(bcrypt, "checkpw", pytest.fail)
    config = webconfig.WebConfig(str(users))
    assert [config.admits(each, "a") for each in (None, "", "Basic", "Bearer x", "Basic !")] == [False] * 5


def test_wrong_passwords_do_not_take_the_scraper_s_turn(users):
    """30 who guess from one address: a scraper that was not admitted before is at once."""
    with exporter("--web-config", str(users)) as (port, _):
        guesses = []

        def guess(over):
            guesses.append(ask(port, source=OTHER, authorization=basic("guess")))
            over.wait(0.2)

        with attackers(30, guess):
            wait_until(lambda: len(guesses) > 30, 60, "they guess")
            wait_until(lambda: ask(port, authorization=basic(PASSWORD)) == 200, 60, "the scraper is admitted")
            assert [ask(port, authorization=basic(PASSWORD)) for _ in range(SCRAPES)] == [200] * SCRAPES
        assert 200 not in guesses


def test_wrong_passwords_take_a_fifth_of_a_core_at_most(users, monkeypatch):
    """However often they are tried: after each, its address rests four times as long as the check took."""
    now_s, checked_s = [1000.0], [0.0]

    class Clock:
        @staticmethod
        def monotonic():
            return now_s[0]

        @staticmethod
        def sleep(duration_s):
            now_s[0] += duration_s

    def check(*_):
        now_s[0] += 0.25
        checked_s[0] += 0.25
        return False

    monkeypatch.setattr(webconfig, "time", Clock)
    monkeypatch.setattr(bcrypt, "checkpw", check)
    config = webconfig.WebConfig(str(users))
    for _ in range(100):
        assert not config.admits(basic("guess"), "a")
        now_s[0] += 0.01
    assert 0.15 < checked_s[0] / (now_s[0] - 1000.0) < 0.21


def test_one_address_has_eight_connections_and_the_oldest_idle_one_goes(monkeypatch):
    """Those that wait for an answer stay; those of other addresses stay."""
    monkeypatch.setattr(web, "_HEAD_S", 60.0)
    with serving("w") as output, contextlib.ExitStack() as stack:
        host, port = output.address.split(":")

        def connect(source):
            client = socket.create_connection((host, int(port)), timeout=5, source_address=(source, 0))
            return stack.enter_context(client)

        elsewhere = connect(OTHER)
        idle = [connect(SCRAPER) for _ in range(10)]
        for client in idle[:2]:
            assert client.recv(1) == b""
        for client in (elsewhere, *idle[2:]):
            client.settimeout(0.1)
            with pytest.raises(TimeoutError):
                client.recv(1)
        assert get(output, "/-/healthy").status == 200


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_whom_an_address_counts_for(one, other, same):
    """An IPv6 host has 2^64 addresses to choose from."""
    assert (web._client_of(one) == web._client_of(other)) is same


def test_an_address_has_one_check_pending(users, monkeypatch):
    """A second one is sent away at once, others' wait their turn."""
    checking, go = threading.Event(), threading.Event()
    monkeypatch.setattr(bcrypt, "checkpw", lambda *_: checking.set() or go.wait(20))
    config = webconfig.WebConfig(str(users))
    admitted = {}

    def check(name, address):
        admitted[name] = config.admits(basic(name), address)

    first = threading.Thread(target=check, args=("first", "a"))
    first.start()
    assert checking.wait(60)
    check("second", "a")  # returns while the first one is under way
    assert admitted == {"second": None}
    other = threading.Thread(target=check, args=("other", "b"))
    other.start()
    go.set()
    for thread in (first, other):
        thread.join(20)
    assert admitted == {"first": True, "second": None, "other": True}


def test_health_tells_whether_sampling_runs(monkeypatch, record_testsuite_property):
    """503 while the sampling loop is stuck, 200 once it runs again."""
    from support import free_port
    from tpumon.collection.event_sources import SamplingSource
    from tpumon.discovery.selection import Selection
    from tpumon.model import Query
    from tpumon.outputs import Export
    from tpumon.pipeline import Feed, FeedSettings
    from tpumon.simulator.simulator_settings import SimulatorSettings
    from tpumon_exporters import pages

    monkeypatch.setattr(pages, "_STALLED_S", 2.5)
    stuck, go = threading.Event(), threading.Event()

    def wake():  # in the sampling loop
        if stuck.is_set():
            go.wait(60)

    port = free_port()
    settings = FeedSettings(
        source=SamplingSource(
            query=Query(level=2, window_s=0.02),
            selection=Selection(simulate=SimulatorSettings(topology="v3-8")),
        ),
        exports=[Export(name="prometheus", where=f"127.0.0.1:{port}")],
    )

    def healthy():
        feed.fetch()
        return ask(port, path="/-/healthy")

    with Feed(settings, consumer="the test", wake=wake) as feed:
        wait_until(lambda: healthy() == 200, 60, "it is healthy")
        stuck.set()
        try:
            wait_until(lambda: healthy() == 503, 60, "its loop is stuck")
        finally:
            stuck.clear()
            go.set()
        start_s = time.monotonic()
        wait_until(lambda: healthy() == 200, 60, "it is healthy again")
    record_testsuite_property(
        "test_edge_http.py::test_health_tells_whether_sampling_runs", within(time.monotonic() - start_s)
    )
