"""A web-config file that is renewed with its certificates, in every order, and users that are revoked."""

from __future__ import annotations

import base64
import itertools
import shutil
import ssl

import bcrypt
import pytest

from support.exporter import certificates
from tpumon_exporters import webconfig
from tpumon_exporters.webconfig import WebConfig

HASHES = {user: bcrypt.hashpw(user.encode(), bcrypt.gensalt(4)).decode() for user in ("stays", "revoked")}


def basic(user):
    return "Basic " + base64.b64encode(f"{user}:{user}".encode()).decode()


def users(*names):
    return "basic_auth_users: {" + ", ".join(f"{name}: '{HASHES[name]}'" for name in names) + "}\n"


def tls(name):
    return f"tls_server_config: {{cert_file: {name}.crt, key_file: {name}.key}}\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def running(made, tmp_path, said):
    """A configuration in use with both users, its clock, and what it said."""
    for end in ("crt", "key"):
        shutil.copy(made / f"server.{end}", tmp_path / f"server.{end}")
    path = tmp_path / "web.yml"
    path.write_text(tls("server") + users("stays", "revoked"))
    now = [1000.0]
    config = WebConfig(str(path), clock_s=lambda: now[0])

    def connects():
        """A connection, by both users: who is admitted."""
        context = config.context()
        assert isinstance(context, ssl.SSLContext)
        return {user for user in HASHES if config.admits(basic(user), "a")}

    connects.now, connects.said, connects.path = now, said, path
    assert connects() == {"stays", "revoked"}
    return connects


@pytest.mark.parametrize("look", [True, False], ids=["connections between", "none between"])
@pytest.mark.parametrize("name", ["server", "client"], ids=["same names", "new names"])
@pytest.mark.parametrize("order", list(itertools.permutations(("web.yml", "crt", "key"))), ids="-".join)
def test_a_revoked_user_is_refused_whatever_order_files_come_in(
    running, made, order, name, look, record_testsuite_property
):
    """At the latest 10 s after the last one, however long it was invalid before."""
    for file in order:
        if file == "web.yml":
            running.path.write_text(tls(name) + users("stays"))
        else:
            shutil.copy(made / f"client.{file}", running.path.parent / f"{name}.{file}")
        if look:
            for _ in range(3):
                running()
                running.now[0] += 60.0
    running.now[0] += 10.0
    assert running() == {"stays"}
    assert len(running.said) <= 2
    row = "test_edge_reload.py::test_a_revoked_user_is_refused_whatever_order_files_come_in"
    record_testsuite_property(row, "10 s")


def test_what_is_invalid_is_said_once_and_not_read_at_each_connection(running, monkeypatch):
    """Every 10 s it is read again; another reason is another line."""
    reads = []
    real = webconfig._read
    monkeypatch.setattr(webconfig, "_read", lambda path: reads.append(path) or real(path))
    running.path.write_text(tls("missing") + users("stays"))
    for _ in range(100):
        running()
        running.now[0] += 0.5
    assert 4 <= len(reads) <= 6
    assert len(running.said) == 1
    running.path.write_text("- a")
    running()
    assert len(running.said) == 2
    running.path.write_text(tls("server") + users("stays"))
    assert running() == {"stays"}
    running.now[0] += 1000.0
    reads.clear()
    running()
    assert not reads
