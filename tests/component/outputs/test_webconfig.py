"""TLS and users of the exporter, from a web-config file, with real connections and certificates."""

from __future__ import annotations

import base64
import shutil
import ssl
import subprocess
import threading
from pathlib import Path

import bcrypt
import pytest

from support.exporter import certificates, get, serving
from support.prometheus import promtool
from tpumon.errors import UsageError
from tpumon_exporters.webconfig import WebConfig

TLS = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n"
MUTUAL = (
    "tls_server_config: {cert_file: server.crt, key_file: server.key, client_ca_file: ca.crt, client_auth_type: %s}\n"
)
PASSWORD = "correct horse"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
USERS = f"basic_auth_users: {{prometheus: '{HASH}'}}\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def files(made, tmp_path):
    for file in made.iterdir():
        shutil.copy(file, tmp_path)
    return tmp_path


def config(files: Path, text: str) -> Path:
    path = files / "web.yml"
    path.write_text(text)
    return path


def client(files: Path, *, certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files / "ca.crt")
    if certificate:
        context.load_cert_chain(files / f"{certificate}.crt", files / f"{certificate}.key")
    return context


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_encrypted(files):
    """With the certificate beside the file; in clear text nothing is to be had."""
    with serving(web_config=config(files, TLS)) as output:
        assert output.listening.startswith("listening on https://127.0.0.1:")
        assert get(output, "/-/healthy", tls=client(files)).status == 200
        with pytest.raises(OSError):
            get(output, "/-/healthy")
        assert get(output, "/-/healthy", tls=client(files)).status == 200


@pytest.mark.parametrize(
    ("auth", "certificate", "served"),
    [
        ("RequireAndVerifyClientCert", "client", True),
        ("RequireAndVerifyClientCert", None, False),
        ("RequireAndVerifyClientCert", "stranger", False),
        ("VerifyClientCertIfGiven", None, True),
        ("VerifyClientCertIfGiven", "stranger", False),
    ],
)
def test_client_certificates(files, tmp_path_factory, auth, certificate, served):
    """Of the CA named, and of no other; who is refused learns why."""
    stranger = certificates(tmp_path_factory.mktemp("strangers"))
    for end in ("crt", "key"):
        shutil.copy(stranger / f"client.{end}", files / f"stranger.{end}")
    with serving(web_config=config(files, MUTUAL % auth)) as output:
        asks = client(files, certificate=certificate)
        if served:
            assert get(output, "/-/healthy", tls=asks).status == 200
        else:
            with pytest.raises(OSError, match="alert"):
                get(output, "/-/healthy", tls=asks)


def test_only_so_old_a_tls(files, quiet):
    """TLS 1.2 where nothing is said; what is said counts."""
    for line, version in ((TLS, "TLSv1_2"), (TLS.replace("}", ", min_version: TLS13}"), "TLSv1_3")):
        assert WebConfig(str(config(files, line))).context().minimum_version == ssl.TLSVersion[version]
    with serving(web_config=config(files, TLS.replace("}", ", min_version: TLS13}"))) as output:
        old = client(files)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError):
            get(output, "/-/healthy", tls=old)


@pytest.mark.parametrize("path", ["/metrics", "/", "/samples", "/-/healthy", "/nowhere"])
def test_users_and_passwords(files, path):
    """Whoever is not one of them gets no page, the landing page and the health included."""
    with serving("w", web_config=config(files, USERS)) as output:
        wrong = [None, basic("prometheus", "wrong"), basic("nobody", PASSWORD), basic("prometheus", ""), "Basic ???",
                 "Bearer x", basic("", ""), "Basic " + base64.b64encode(b"\xff\x00:\x00").decode()]  # fmt: skip
        for value in wrong:
            headers = {} if value is None else {"Authorization": value}
            answer = get(output, path, **headers)
            assert answer.status == 401, value
            assert "worker" not in answer.text
        assert get(output, path, Authorization=basic("prometheus", PASSWORD)).status in {200, 404}


def test_a_password_that_was_right_is_not_computed_again(files, monkeypatch, quiet):
    """A scrape does not pay for bcrypt each time; a wrong one always does, and so does a user who is none."""
    checks = []
    real = bcrypt.checkpw
    monkeypatch.setattr(bcrypt, "checkpw", lambda password, hashed: checks.append(hashed[:7]) or real(password, hashed))
    web = WebConfig(str(config(files, USERS)))
    for _ in range(3):
        assert web.admits(basic("prometheus", PASSWORD), "a") is True
    assert len(checks) == 1
    for authorization in (basic("prometheus", "wrong"), basic("nobody", PASSWORD)):
        checks.clear()
        assert web.admits(authorization, "a") is False
        assert checks == [b"$2b$04$"], "as slow as for a user"


def test_a_long_password_counts_as_far_as_bcrypt_looks(files, quiet):
    """72 bytes, as everywhere else; what cannot be a password is wrong, not an error."""
    hashed = bcrypt.hashpw(b"a" * 72, bcrypt.gensalt(4)).decode()
    web = WebConfig(str(config(files, f"basic_auth_users: {{u: '{hashed}'}}")))
    assert web.admits(basic("u", "a" * 100), "a") is True
    assert web.admits(basic("u", "a" * 71 + "\0"), "a") is False


def test_one_password_at_a_time(files, monkeypatch, quiet):
    """Who waits too long for the others' is told to come again: guessing must not take the machine."""
    monkeypatch.setattr("tpumon_exporters.webconfig._QUEUE_S", 0.05)
    checking, go = threading.Event(), threading.Event()
    monkeypatch.setattr(bcrypt, "checkpw", lambda *_: checking.set() or go.wait())
    web = WebConfig(str(config(files, USERS)))
    first = threading.Thread(target=web.admits, args=(basic("prometheus", "a"), "one"))
    first.start()
    assert checking.wait(60)
    assert web.admits(basic("prometheus", "b"), "other") is None
    go.set()
    first.join()


def test_changes_count_from_the_next_connection(files, said):
    """Users, and a certificate that was renewed; a file that will not do changes nothing, and is reported once."""
    path = config(files, TLS + USERS)
    with serving(web_config=path) as output:
        said.clear()  # where it listens
        password = basic("prometheus", PASSWORD)
        assert get(output, "/-/healthy", tls=client(files), Authorization=password).status == 200
        path.write_text("tls_server_config: {cert_file: gone.crt, key_file: server.key}\n")
        for _ in range(2):
            assert get(output, "/-/healthy", tls=client(files), Authorization=password).status == 200
        assert len(said) == 1
        assert "cert_file and key_file cannot be used: No such file or directory" in said[0]

        path.write_text(TLS)
        assert get(output, "/-/healthy", tls=client(files)).status == 200
        certificates(files)  # another CA, too
        assert get(output, "/-/healthy", tls=client(files)).status == 200
        assert len(said) == 1


def test_an_emptied_file_takes_no_protection_away(files, said):
    """As a redirection that went wrong leaves it: users are still asked for, and it is reported."""
    path = config(files, USERS)
    with serving(web_config=path) as output:
        said.clear()  # where it listens
        path.write_text("")
        for _ in range(2):
            assert get(output, "/-/healthy").status == 401
    assert len(said) == 1
    assert "remain in use" in said[0]


def test_headers_of_the_file_are_sent(files):
    """As exporter-toolkit does."""
    text = "http_server_config: {http2: true, headers: {X-Frame-Options: deny}}\n"
    with serving(web_config=config(files, text)) as output:
        assert get(output, "/").headers["X-Frame-Options"] == "deny"


@pytest.mark.parametrize("text", [TLS, TLS + USERS, MUTUAL % "RequireAndVerifyClientCert"])
def test_prometheus_own_checker_takes_the_same_files(files, text, quiet):
    """What is good here is good there."""
    path = config(files, text)
    promtool("check", "web-config", str(path))
    WebConfig(str(path))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "is not valid YAML"),
        ("a: 2020-13-45", "is not valid YAML"),
        (
            TLS.replace("}", ", min_version: [TLS12]}"),
            "Expected `str`, got `array` - at `$.tls_server_config.min_version`",
        ),
        (TLS.replace("server.crt", '"a\\0b"'), "cannot be used"),
        (TLS.replace("server.crt", "[a]"), "Expected `str`, got `array` - at `$.tls_server_config.cert_file`"),
        ("- a", "Expected `object`, got `array`"),
        ("tls_config: {}", "unknown field `tls_config`"),
        ("tls_server_config: {cert_file: server.crt}", "missing required field `key_file` - at `$.tls_server_config`"),
        ("tls_server_config: {cert_file: server.crt, key_file: client.key}", "cannot be used: OpenSSL says"),
        ("tls_server_config: {cert_file: server.crt, key_file: locked.key}", "cannot be used"),
        ("tls_server_config: {cert_file: gone.crt, key_file: server.key}", "No such file"),
        (TLS.replace("}", ", cipher_suites: []}"), "unknown field `cipher_suites` - at `$.tls_server_config`"),
        (TLS.replace("}", ", min_version: SSL3}"), "Invalid enum value 'SSL3' - at `$.tls_server_config.min_version`"),
        (TLS.replace("}", ", min_version: TLS13, max_version: TLS12}"), "no client could connect"),
        (TLS.replace("}", ", max_version: TLS11}"), "no client could connect"),
        (TLS.replace("}", ", client_ca_file: ca.crt}"), "does not use a client_ca_file"),
        (TLS.replace("}", ", client_auth_type: RequireAndVerifyClientCert}"), "needs a client_ca_file"),
        (MUTUAL % "RequireAnyClientCert", "give RequireAndVerifyClientCert"),
        (MUTUAL.replace("ca.crt", "server.key") % "VerifyClientCertIfGiven", "client_ca_file cannot be used"),
        ("basic_auth_users: {a: secret}", "'a' has no bcrypt hash"),
        ("basic_auth_users: [a]", "Expected `object`, got `array` - at `$.basic_auth_users`"),
        ("", "Expected `object`, got `null`"),
        ("false", "Expected `object`, got `bool`"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "sets nothing"),
        ("basic_auth_users:", "Expected `object`, got `null` - at `$.basic_auth_users`"),
        ("basic_auth_users: {}", "Expected `object` of length >= 1 - at `$.basic_auth_users`"),
        ("tls_server_config: {}", "missing required field `cert_file`"),
        ("tls_server_config: false", "Expected `object`, got `bool`"),
        (
            TLS.replace("}", ", client_ca_file: , client_auth_type: }"),
            "Expected `str`, got `null` - at `$.tls_server_config.client_ca_file`",
        ),
        (
            "http_server_config: {headers: {Set-Cookie: a}}",
            "Invalid enum value 'Set-Cookie' - at `key` in `$.http_server_config.headers`",
        ),
        ('http_server_config: {headers: {X-Frame-Options: "a\\r\\nb: c"}}', "matching regex"),
        ("\xff", "cannot be read"),
    ],
)
def test_what_is_not_understood_is_refused(files, text, why, quiet):
    """In one line with the file's name; never ignored, for it is there to protect something."""
    subprocess.run(["openssl", "ec", "-in", "server.key", "-aes128", "-passout", "pass:x", "-out", "locked.key"],
                   cwd=files, check=True, capture_output=True, timeout=30)  # fmt: skip
    path = files / "web.yml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError) as error:
        WebConfig(str(path))
    assert str(error.value).startswith(f"--web-config {path}: ")
    assert why in str(error.value)
    assert "\n" not in str(error.value)
