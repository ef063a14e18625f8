"""A web page whose name is made to point at this machine (DNS rebinding) reads nothing: its requests have that name."""

from __future__ import annotations

import base64
import contextlib
import socket

import bcrypt
import pytest

from support.exporter import sample, serving
from tpumon.collection.remote import ExchangeError, ExporterClient
from tpumon_exporters import web

HERE = "tpu-0.c.project.internal"
MINE = [
    "localhost", "localhost:10466", "LOCALHOST:1", "localhost.", "localhost.:80",
    "127.0.0.1", "127.0.0.1:10466", "127.0.0.1.", "10.0.0.5:80", "[::1]", "[::1]:10466", "[fe80::1%25eth0]:1",
    HERE, f"{HERE}:10466", f"{HERE.upper()}.", "tpu-0", "TPU-0:10466",
]  # fmt: skip
OTHERS = [
    "evil.example", "evil.example:10466", "localhost.evil.example", "127.0.0.1.evil.example", "evil.localhost", "",
    ":80", "tpu-0.evil.example", "[::1].evil.example", "[evil]", "localhost@evil.example", "evil.example#localhost",
    "127.1.evil", "::1", "localhost:port", "a b",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _named(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: HERE)


@pytest.fixture(scope="module")
def output():
    with serving("w") as output:
        output.add(sample("w"))
        yield output


def ask(address, lines, target="/samples"):
    """Status and body of a request with these lines, of HTTP/1.1 if it has a Host."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=30) as client:
        version = "1.1" if lines else "1.0"
        client.sendall("\r\n".join([f"GET {target} HTTP/{version}", *lines, "", ""]).encode())
        answer = b""
        while data := client.recv(65536):
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


@pytest.mark.parametrize("host", MINE)
def test_this_host_s_names_and_addresses_are_answered(output, host):
    """However they are spelled."""
    assert ask(output.address, [f"Host: {host}"])[0] == 200


@pytest.mark.parametrize("host", OTHERS)
@pytest.mark.parametrize("page", ["/samples", "/metrics", "/", "/-/healthy"])
def test_other_names_are_refused_with_the_way_out(output, host, page):
    """On every page; nothing of the answer is theirs."""
    status, body = ask(output.address, [f"Host: {host}"], page)
    assert status == 421
    assert "localhost" in body
    assert "basic_auth_users" in body
    assert "evil" not in body


@pytest.mark.parametrize(
    ("target", "lines", "status"),
    [
        ("/samples", [], 200),
        ("http://evil.example/samples", ["Host: localhost"], 421),
        ("http://localhost@evil.example:10466/samples", ["Host: localhost"], 421),
        ("http://evil.example/samples", [], 421),
        ("http://localhost:10466/samples", ["Host: evil.example"], 200),  # RFC 9112, 3.2.2: the Host is then ignored
        ("http://[::1]/samples", ["Host: localhost"], 200),
        ("//evil.example/samples", ["Host: evil.example"], 421),
        ("/samples", ["Host: localhost", "Host: evil.example"], 400),
        ("/samples", ["host: evil.example"], 421),
    ],
)
def test_what_else_says_whose_page_is_wanted(output, target, lines, status):
    """No Host, an absolute target, several."""
    assert ask(output.address, lines, target)[0] == status


def test_names_that_this_host_s_file_gives_are_its_own(output, monkeypatch, tmp_path):
    """Debian gives a host's whole name to 127.0.1.1; no server of names can change what is there."""
    hosts = tmp_path / "hosts"
    hosts.write_bytes(b"127.0.1.1\tHERE.example.org here # evil.example\n\n\xff\n127.0.0.1 localhost alias\n")
    monkeypatch.setattr(web, "_HOSTS", hosts)
    answers = {
        host: ask(output.address, [f"Host: {host}:80"])[0] for host in ("here.example.org", "alias.", *OTHERS[:1])
    }
    assert answers == {"here.example.org": 200, "alias.": 200, "evil.example": 421}
    hosts.unlink()
    assert ask(output.address, ["Host: alias"])[0] == 421


@pytest.mark.parametrize("where", ["[::1]:0", "127.0.0.2:0", ":0"])
def test_every_loopback_address(where):
    """Of IPv6, of IPv4, of IPv4 at a socket of IPv6."""
    with contextlib.suppress(ImportError), serving("w", where=where) as output:
        assert ask(output.address, ["Host: evil.example"])[0] == 421
        assert ask(output.address, ["Host: localhost"])[0] == 200


@pytest.mark.parametrize("here", ["10.0.0.5", "2001:db8::5", "::ffff:10.0.0.5"])
def test_on_other_addresses_names_are_not_looked_at(here):
    """Services and NAT give names that cannot be known."""
    assert not web.is_misdirected(["evil.example"], here)
    assert web.is_misdirected(["evil.example"], "127.0.0.1")


def test_a_password_protects(tmp_path):
    """Who has it may use any name; a file without users protects nothing."""
    file = tmp_path / "web.yml"
    file.write_text(f"basic_auth_users: {{u: '{bcrypt.hashpw(b'p', bcrypt.gensalt(4)).decode()}'}}\n")
    known = f"Authorization: Basic {base64.b64encode(b'u:p').decode()}"
    with serving("w", web_config=file) as output:
        assert ask(output.address, ["Host: evil.example", known])[0] == 200
        assert ask(output.address, ["Host: evil.example"])[0] == 401
    file.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")
    with serving("w", web_config=file) as output:
        assert ask(output.address, ["Host: evil.example"])[0] == 421


def test_a_reader_is_told():
    """`--from` with a name that this machine's files give to a loopback address."""
    with pytest.raises(ExchangeError, match="localhost or an IP address") as error:
        ExporterClient("http://alias:10466").refused(421)
    assert error.value.reason == "refused"
