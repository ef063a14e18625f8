"""The HTTP server: what clients may do to it."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from http import HTTPStatus

import pytest

from support import wait_until
from tpumon_exporters import web
from tpumon_exporters.web import Response, WebServer, listen
from tpumon_exporters.webconfig import WebConfig


class Open(WebConfig):
    """Access for everyone."""

    def __init__(self):
        super().__init__(None)


class Serving:
    """A server whose `/slow` waits until it is told to go on."""

    def __init__(self, answer=None, security=None, **given):
        self.go = threading.Event()
        self.asked = threading.Semaphore(0)
        listener = listen("127.0.0.1", 0)
        self.address = listener.getsockname()
        self.server = WebServer(listener, answer or self._answer, security or Open(), **given)

    def _answer(self, request):
        if request.path == "/slow":
            self.asked.release()
            self.go.wait()
        return Response(body="x" * 30_000_000 if request.path == "/big" else "fine\n")

    def connect(self):
        return socket.create_connection(self.address, timeout=20)

    def ask(self, request=b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        with self.connect() as client:
            client.sendall(request)
            return read(client)


def read(client):
    """All until the end; what was reset is over as well."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while data := client.recv(65536):
            parts.append(data)
    return b"".join(parts)


def answering():
    return [thread for thread in threading.enumerate() if thread.name == "tpumon-blocking"]


@pytest.fixture
def serving(said):
    started = Serving()
    yield started
    started.go.set()
    started.server.close()
    assert not said
    wait_until(lambda: not answering(), 60, "no thread is left")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\n\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 200 + b"\r\n", 400),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 100_000, 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n" + b"a" * 900_000, 405),
    ],
)
def test_a_request_that_is_none_is_refused(serving, request_, status):
    """One short answer, no matter how long the request is; and the next client gets its own."""
    answer = serving.ask(request_)
    assert len(answer) < 1000
    assert int(answer.split()[1]) == status
    assert serving.ask().endswith(b"\r\n\r\nfine\n")


@pytest.mark.parametrize(("uid", "status"), [(None, 403), (0, 200), (4321, 200), (4322, 403)])
def test_one_that_is_its_users_own_answers_that_user_and_root(monkeypatch, uid, status):
    """A connection whose user is not known may be anybody's."""
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    monkeypatch.setattr(web, "user_at", lambda *_: uid)
    serving = Serving(is_private=True)
    assert int(serving.ask().split()[1]) == status
    serving.server.close()


def test_one_that_is_its_users_own_knows_the_user_by_the_connection():
    serving = Serving(is_private=True)
    assert serving.ask().endswith(b"fine\n")
    serving.server.close()


def test_a_client_that_says_nothing_is_dropped(monkeypatch):
    """Nor may it take its time: the whole request counts, not each byte of it."""
    monkeypatch.setattr(web, "_HEAD_S", 0.3)
    serving = Serving()
    with serving.connect() as silent, serving.connect() as slow:
        slow.settimeout(0.05)
        for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\n" * 20:
            try:
                slow.sendall(bytes([byte]))
                if slow.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("it was never dropped")
        assert read(silent) == b""
    serving.server.close()


def test_a_client_that_does_not_read_is_dropped(monkeypatch):
    """Its place is not taken for ever."""
    monkeypatch.setattr(web, "_ANSWER_S", 0.3)
    serving = Serving()
    with serving.connect() as client:
        client.sendall(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: serving.server._connections, 60, "it is being answered")
        wait_until(lambda: not serving.server._connections, 60, "it is dropped")
    serving.server.close()


def test_many_idle_connections_keep_nobody_out(serving, monkeypatch):
    """When all places are taken, the oldest one makes room."""
    monkeypatch.setattr(web, "_CONNECTIONS", 4)
    monkeypatch.setattr(web, "_CROWDED_S", 0.0)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(serving.connect())
            assert len(serving.server._connections) <= 4
        assert serving.ask().endswith(b"fine\n")


def test_a_crowd_of_quick_clients_does_not_cut_each_other_off(serving, monkeypatch):
    """A young connection is not dropped for a newer one, which is refused instead."""
    monkeypatch.setattr(web, "_CONNECTIONS", 2)
    monkeypatch.setattr(web, "_CROWDED_S", 60.0)
    with serving.connect() as first, serving.connect() as second:
        for client in (first, second):
            client.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert serving.asked.acquire(timeout=20)
        assert serving.ask() == b""
        serving.go.set()
        assert all(read(client).endswith(b"fine\n") for client in (first, second))


def test_requests_that_follow_are_not_read(serving):
    """Each connection has one answer: megabytes of requests behind the first stay with the client."""
    serving.server._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    lines = b"".join(b"A%d: %s\r\n" % (number, b"a" * 8000) for number in range(90))
    following = (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n") * 20
    sent = 0
    with serving.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        client.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert serving.asked.acquire(timeout=20)
        client.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while sent < len(following):
                sent += client.send(following[sent : sent + 65536])
        assert sent < 2_000_000


def test_closing_lets_an_answer_get_through(serving):
    """A scrape in flight is finished; then nobody listens there any more."""
    with serving.connect() as client:
        client.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert serving.asked.acquire(timeout=20)
        closing = threading.Thread(target=serving.server.close)
        closing.start()
        wait_until(lambda: refused(serving), 60, "nobody listens")
        assert closing.is_alive()
        serving.go.set()
        assert read(client).endswith(b"fine\n")
        closing.join(20)


def test_closing_does_not_wait_for_ever(serving, monkeypatch):
    """Neither for a client that says nothing nor for an answer that does not come."""
    with serving.connect() as silent, serving.connect() as client:
        client.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert serving.asked.acquire(timeout=20)
        monkeypatch.setattr(web, "_CLOSE_S", 0.4)
        serving.server.close()  # the answer never comes
        assert read(silent) == read(client) == b""


def refused(serving):
    try:
        serving.connect().close()
    except OSError:
        return True
    return False


def test_a_bug_costs_one_answer(said):
    """It is said in a line, and the next request is answered."""
    broken = [True]

    def answer(_request):
        if broken:
            broken.pop()
            raise KeyError("boom")
        return Response(body="fine\n")

    serving = Serving(answer)
    assert serving.ask().startswith(b"HTTP/1.1 500 ")
    assert serving.ask().endswith(b"fine\n")
    serving.server.close()
    assert said == ["prometheus: a request could not be answered: KeyError: 'boom'"]


def test_a_bug_before_the_answer_costs_one_connection(said):
    """Others are taken after it."""

    class Broken(Open):
        broken = True

        def context(self):
            if self.broken:
                self.broken = False
                raise KeyError("boom")

    serving = Serving(security=Broken())
    assert serving.ask() == b""
    assert serving.ask().endswith(b"fine\n")
    serving.server.close()
    assert said == ["prometheus: a connection could not be accepted: KeyError: 'boom'"]


def test_no_threads_to_be_had_is_survived(serving, monkeypatch, said):
    """The client is told; the next one is served."""
    start = threading.Thread.start

    def fails(thread):
        if thread.name == "tpumon-blocking":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fails)
    assert serving.ask().startswith(b"HTTP/1.1 500 ")
    assert said.pop() == "prometheus: a request could not be answered: RuntimeError: can't start new thread"
    monkeypatch.undo()
    assert serving.ask().endswith(b"fine\n")


def test_a_client_that_is_gone_before_it_is_served_is_survived(serving):
    """Reset at once, half-closed, or in the middle of the answer."""
    for request in (b"", b"GET / HT", b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        client = serving.connect()
        client.sendall(request)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
    with serving.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        assert read(client).endswith(b"fine\n")
    assert serving.ask().endswith(b"fine\n")


def test_who_may_not_ask_learns_nothing():
    """401 for every path and method that is let through, and nothing is computed."""
    asked = []

    class Nobody(Open):
        def admits(self, _authorization, _address):
            return False

    serving = Serving(asked.append, Nobody())
    answer = serving.ask(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"WWW-Authenticate: Basic\r\n" in answer
    assert not asked
    serving.server.close()


def test_a_crowd_at_the_password_check_is_sent_away():
    """503: the scraper comes again."""

    class Busy(Open):
        def admits(self, _authorization, _address):
            return None

    serving = Serving(security=Busy())
    assert serving.ask().startswith(f"HTTP/1.1 {HTTPStatus.SERVICE_UNAVAILABLE.value} ".encode())
    serving.server.close()
