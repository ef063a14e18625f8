"""`--from` and exporters that never come to an end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
import time
from pathlib import Path

import bcrypt
import pytest

from fakes.run import Tpumon
from support import wait_until
from support.exporter import certificates, sample, serving
from tpumon.collection import http_get, remote
from tpumon.collection.remote.exporter import RemoteExporter, SamplesPage
from tpumon.model.documents import decoded
from tpumon.model.page import Page

WHOLE_S = 1.0
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

# state: what comes first, and what then comes again and again
ENDLESS = {
    "nothing": (b"", b""),
    "status line": (b"HTTP/1.1 2", b"0"),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "header": (OK + b"X: ", b"x"),
    "chunk size": (CHUNKED, b"0"),
    "chunk extension": (CHUNKED + b"1;", b"x"),
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "trailers": (CHUNKED + b"0\r\n", b"x: y\r\n"),
    "body": (OK + b"Content-Length: 1000000\r\n\r\n", b" "),
    "body without length": (OK + b"\r\n", b" "),
}


class Endless:
    """A server that answers every connection with this, then with that until its client is gone."""

    def __init__(self, first, again, context=None):
        self._first, self._again, self._context = first, again, context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self):
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                client, _ = self._listener.accept()
                with client if self._context is None else self._context.wrap_socket(client, server_side=True) as client:
                    client.sendall(self._first)
                    client.settimeout(20)
                    while not self._over.wait(0.02):
                        if self._again:
                            client.sendall(self._again)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(20)
        self._listener.close()


def asking():
    return [thread for thread in threading.enumerate() if thread.name == "tpumon-blocking"]


def gives_up(url, then=lambda: None):
    """Asks once: it ends by itself, although the other side goes on, and leaves no thread behind."""
    with pytest.raises(remote.ExchangeError, match="no answer in time") as error:
        asyncio.run(SamplesPage(url).fetch(None))
    assert error.value.reason == "deadline"
    then()
    wait_until(lambda: not asking(), 60, "no thread waits for it")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(http_get, "WHOLE_S", WHOLE_S)


@pytest.mark.parametrize("state", ENDLESS)
def test_an_exchange_without_end_is_given_up(state):
    """However little comes, however often."""
    with Endless(*ENDLESS[state]) as server:
        gives_up(f"http://127.0.0.1:{server.port}")


@pytest.mark.parametrize("state", ["nothing", "header", "trailers"])
def test_an_encrypted_exchange_without_end_is_given_up(state, tmp_path, monkeypatch):
    """Below TLS."""
    files = certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(files / "ca.crt"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "server.crt", files / "server.key")
    with Endless(*ENDLESS[state], context) as server:
        gives_up(f"https://127.0.0.1:{server.port}")


@pytest.mark.parametrize("cancelled", [False, True], ids=["without an answer", "as its handshake ends"])
def test_an_encrypted_connection_that_is_given_up_is_closed_at_once(tmp_path, monkeypatch, cancelled):
    """A server that does not answer does not answer the end of TLS either; descriptors are for others."""
    files = certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(files / "ca.crt"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "server.crt", files / "server.key")
    connected = []

    async def main(port):
        asking = asyncio.create_task(SamplesPage(f"https://127.0.0.1:{port}").fetch(None))
        made = http_get._Protocol.connection_made
        if cancelled:
            monkeypatch.setattr(
                http_get._Protocol, "connection_made", lambda *arguments: made(*arguments) or asking.cancel()
            )
        with pytest.raises(asyncio.CancelledError if cancelled else remote.ExchangeError):
            await asking
        async with asyncio.timeout(10):
            await asyncio.to_thread(closed)

    def closed():
        with contextlib.suppress(ConnectionError):
            while connected[0].recv(65536):  # below TLS
                pass

    def serve(listener):
        client, _ = listener.accept()
        client.settimeout(20)
        connected.append(client.dup())
        with contextlib.suppress(OSError):  # it may be given up before this side has seen the end of the handshake
            connected.append(context.wrap_socket(client, server_side=True))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        asyncio.run(main(listener.getsockname()[1]))
        thread.join(20)
    for each in connected:
        each.close()


def test_a_handshake_without_end_is_given_up(monkeypatch):
    """The first record of TLS, byte by byte."""
    monkeypatch.setattr(http_get, "STEP_S", 2.0)
    with Endless(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc", b"\0") as server:
        gives_up(f"https://127.0.0.1:{server.port}")


def test_a_name_that_is_not_resolved_is_given_up(monkeypatch):
    """A resolver has its own idea of time."""
    go = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: go.wait(60) and [])
    gives_up("http://exporter.example:10466", then=go.set)


def test_only_names_that_are_followed_are_kept():
    """100 workers, replaced 50 times."""
    exporter = RemoteExporter(SamplesPage("http://127.0.0.1:1"))
    for round_ in range(50):
        names = [f"w{round_}-{number}" for number in range(100)]
        page = {
            "schema": 1,
            "tpumon": "0",
            "run": "one",
            "sequence": round_,
            "targets": [{"worker": name, "address": f"{name}:9999"} for name in names],
            "samples": [sample(name, time_unix_s=1000.0).to_json() for name in names],
        }
        asyncio.run(exporter._answered(decoded(Page, json.dumps(page)), time.time(), lambda _event: None))
    assert sorted(exporter._sent) == sorted(names)


def test_a_password_need_not_be_on_the_command_line(tmp_path):
    """Where `ps` shows it to every user of the host."""
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{me: '{bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}'}}\n")
    with serving("w", web_config=web) as output:
        output.add(sample("w"))
        variables = {"TPUMON_FROM": f"http://me:secret@{output.address}"}
        with Tpumon("--output", "jsonl", env=variables) as command:
            command.wait_for(lambda: '"worker":"w"' in command.out)
            assert b"secret" not in Path(f"/proc/{command._process.pid}/cmdline").read_bytes()
