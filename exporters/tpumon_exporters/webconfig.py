"""TLS and users of an HTTP endpoint, from a file in the format of Prometheus' exporter-toolkit.

    tls_server_config:
      cert_file: server.crt            # relative to this file
      key_file: server.key
      client_ca_file: ca.crt
      client_auth_type: RequireAndVerifyClientCert
      min_version: TLS12
    basic_auth_users:
      prometheus: $2y$10$...           # bcrypt: htpasswd -nBC 10 prometheus
    http_server_config:
      headers: {Strict-Transport-Security: max-age=31536000}

Unknown settings are errors and never ignored, because these settings protect something.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tpumon.errors import UsageError
from tpumon.untrusted_text import one_line, unexpected

_TLS_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,  # the certificate would not be used
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_HEADERS = {
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
}
_BCRYPT = re.compile(r"\$2[abxy]\$(?P<cost>0[4-9]|1[0-9]|2[0-9]|3[01])\$[./A-Za-z0-9]{53}")
_BCRYPT_BYTES = 72  # bcrypt ignores the rest
_CACHED = 100
_QUEUE_S = 1.0
_REST = 4  # times as long as its wrong password took, an address waits: at most a fifth of a core goes into guesses
_RESTING = 1000
_RETRY_S = 10.0  # a file may be complete before the files that it names are


class _InvalidError(Exception):
    """The file is invalid; the message does not name it."""


class _Telling(ssl.SSLObject):
    """TLS that lets a refused client read why: asyncio would close the connection before the alert is sent."""

    def do_handshake(self) -> None:
        """Asks for more after a failure, so that the alert is sent first; the client then ends it, or its deadline."""
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":  # no TLS, so it gets no alert
                raise
            raise ssl.SSLWantReadError from None


class _Context(ssl.SSLContext):
    sslobject_class = _Telling


class _Config(Struct, frozen=True, kw_only=True):
    """The contents of a file."""

    context: ssl.SSLContext | None = None
    users: Mapping[str, bytes] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    stamps: tuple[object, ...] = ()


class WebConfig:
    """Access and encryption as configured in a file; new connections use the changed file.

    While a changed file is invalid, the previous settings remain in use, and it is read again every 10 s.

    Args:
        path: the file; None: there is none, so that all have access, without encryption.
        say: takes one line when a changed file is invalid, and when the reason changes.
        clock_s: returns monotonic seconds.

    Raises:
        UsageError: the file is invalid.
    """

    def __init__(
        self, path: str | None, say: Callable[[str], None], *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock_s = clock_s
        self._path = Path(path or "")
        self._say = say
        try:
            self._config = _Config() if path is None else _read(self._path)
        except _InvalidError as error:
            raise UsageError(f"{path}: {error}") from None
        self._seen = self._config.stamps
        self._retry_s: float | None = None
        self._reported = ""
        self._checks = _Checks()
        self._key = secrets.token_bytes(32)
        self._admitted: dict[bytes, None] = {}
        self._remembering = threading.Lock()

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers sent with every answer."""
        return self._config.headers

    @property
    def wants_password(self) -> bool:
        """Whether there are users."""
        return bool(self._config.users)

    def context(self) -> ssl.SSLContext | None:
        """Settings for a new connection; None: no encryption. Only one thread may call this."""
        now_s = self._clock_s()
        stamps = _stamps(self._config.files)
        if stamps != self._seen or (self._retry_s is not None and now_s >= self._retry_s):
            self._reload(stamps, now_s)
        return self._config.context

    def _reload(self, stamps: tuple[object, ...], now_s: float) -> None:
        try:
            self._config = _read(self._path)
        except Exception as error:  # noqa: BLE001 - whatever is in it
            self._seen, self._retry_s = stamps, now_s + _RETRY_S
            why = str(error) if isinstance(error, _InvalidError) else unexpected(error)
            if why != self._reported:
                self._reported = why
                self._say(f"{self._path} has changed and is invalid: {why}; the previous settings remain in use")
        else:
            self._seen, self._retry_s, self._reported = self._config.stamps, None, ""

    def admits(self, authorization: str | None, address: str) -> bool | None:
        """Whether the Authorization header names a user; None: too many checks are waiting.

        Only one password is checked at a time: bcrypt is slow on purpose, and the host runs a job. Correct ones are
        remembered as digests.
        """
        users = self._config.users
        if not users:
            return True
        credentials = _credentials(authorization)
        if credentials is None:
            return False
        user, password = credentials
        hashed = users.get(user)
        digest = hmac.digest(self._key, b"\0".join((user.encode(), hashed or b"", password)), hashlib.sha256)
        if hashed is not None and digest in self._admitted:
            return True
        right = self._checks.check(password, hashed or _dummy_hash(users), address)
        if right and hashed is not None:
            with self._remembering:
                while len(self._admitted) >= _CACHED:
                    self._admitted.pop(next(iter(self._admitted)))
                self._admitted[digest] = None
        return right if hashed is not None or right is None else False


class _Checks:
    """Checks passwords one at a time, for each address at most one at a time and with rests after wrong ones."""

    def __init__(self) -> None:
        self._checking = threading.Lock()
        self._lock = threading.Lock()
        self._pending: set[str] = set()
        self._rest_until_s: dict[str, float] = {}

    def check(self, password: bytes, hashed: bytes, address: str) -> bool | None:
        """Whether this is the password; None: the address has a check pending, or others take too long."""
        with self._lock:
            if address in self._pending:
                return None
            self._pending.add(address)
            rest_s = self._rest_until_s.get(address, 0.0) - time.monotonic()
        try:
            if rest_s > _QUEUE_S:
                return None
            time.sleep(max(rest_s, 0.0))
            if not self._checking.acquire(timeout=_QUEUE_S):
                return None
            try:
                return self._checked(password, hashed, address)
            finally:
                self._checking.release()
        finally:
            with self._lock:
                self._pending.remove(address)

    def _checked(self, password: bytes, hashed: bytes, address: str) -> bool:
        start_s = time.monotonic()
        right = _is_password(password, hashed)
        now_s = time.monotonic()
        with self._lock:
            self._rest_until_s.pop(address, None)
            if not right:
                while len(self._rest_until_s) >= _RESTING:
                    self._rest_until_s.pop(next(iter(self._rest_until_s)))
                self._rest_until_s[address] = now_s + _REST * (now_s - start_s)
        return right


def _credentials(authorization: str | None) -> tuple[str, bytes] | None:
    """User and password; None if there are none, which takes no time to see and reveals nothing about users."""
    scheme, _, encoded = (authorization or "").partition(" ")
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if scheme.lower() == "basic" and colon else None
    except (binascii.Error, ValueError):
        return None


def _is_password(password: bytes, hashed: bytes) -> bool:
    import bcrypt

    try:
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed)
    except ValueError:
        return False


def _dummy_hash(users: Mapping[str, bytes]) -> bytes:
    """A hash as slow as the slowest user's, so that timing does not reveal which users exist."""
    cost = max(hashed[4:6] for hashed in users.values())
    return b"$2b$" + cost + b"$" + b"." * 53


def _stamps(files: tuple[Path, ...]) -> tuple[object, ...]:
    """A value that changes when one of the files does."""

    def stamp(path: Path) -> object:
        try:
            status = path.stat()
        except (OSError, ValueError) as error:
            return str(error)
        return status.st_mtime_ns, status.st_size, status.st_ino

    return tuple(map(stamp, files))


def _read(path: Path) -> _Config:
    import yaml  # here, as bcrypt below: most start without this file

    stamps = _stamps((path,))
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise _InvalidError(f"cannot be read: {_why(error)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an invalid date
        raise _InvalidError(f"is not valid YAML: {one_line(str(error))}") from None
    top = _mapping(content, "the file", {"tls_server_config", "basic_auth_users", "http_server_config"})
    tls = _part(
        top,
        "tls_server_config",
        {"cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version", "max_version"},
    )
    files: dict[str, Path] = {
        name: path.parent / _text(tls, name) for name in ("cert_file", "key_file", "client_ca_file") if name in tls
    }
    stamps += _stamps(tuple(files.values()))
    return _Config(
        context=_context(tls, files) if tls else None,
        users=_users(_part(top, "basic_auth_users")),
        headers=_headers(_part(top, "http_server_config", {"http2", "headers"})),
        files=(path, *files.values()),
        stamps=stamps,
    )


def _context(tls: Mapping[str, Any], files: Mapping[str, Path]) -> ssl.SSLContext:
    for name in ("cert_file", "key_file"):
        if name not in files:
            raise _InvalidError(f"tls_server_config lacks {name}")
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    oldest = _TLS_VERSIONS[_choice(tls, "min_version", _TLS_VERSIONS, "TLS12")]
    newest = _TLS_VERSIONS[_choice(tls, "max_version", _TLS_VERSIONS, "TLS13")]
    if oldest > newest:
        raise _InvalidError("min_version (TLS12 unless given) is newer than max_version, so no client could connect")
    context.minimum_version, context.maximum_version = oldest, newest
    if tls.get("client_auth_type") == "RequireAnyClientCert":
        raise _InvalidError(
            "client_auth_type RequireAnyClientCert is not supported, because an unverified certificate protects "
            "nothing; give RequireAndVerifyClientCert and a client_ca_file"
        )
    auth = _choice(tls, "client_auth_type", _CLIENT_AUTH, "NoClientCert")
    verifies = _CLIENT_AUTH[auth] != ssl.CERT_NONE
    if verifies != ("client_ca_file" in files):
        raise _InvalidError(f"client_auth_type {auth} {'needs a' if verifies else 'does not use a'} client_ca_file")
    context.verify_mode = _CLIENT_AUTH[auth]
    try:
        # Without a password argument, an encrypted key would prompt on the terminal.
        context.load_cert_chain(files["cert_file"], files["key_file"], password="")
    except (OSError, ValueError) as error:
        raise _InvalidError(f"cert_file and key_file cannot be used: {_why(error)}") from None
    if verifies:
        try:
            context.load_verify_locations(files["client_ca_file"])
        except (OSError, ValueError) as error:
            raise _InvalidError(f"client_ca_file cannot be used: {_why(error)}") from None
    return context


def _users(users: Mapping[str, Any]) -> dict[str, bytes]:
    for user, hashed in users.items():
        if not isinstance(hashed, str) or not _BCRYPT.fullmatch(hashed):
            raise _InvalidError(f"basic_auth_users: {user!r} has no bcrypt hash; htpasswd -nBC 10 {user} makes one")
    return {str(user): hashed.encode() for user, hashed in users.items()}


def _headers(server: Mapping[str, Any]) -> dict[str, str]:
    headers = _part(server, "headers", _HEADERS)  # http2 is accepted without effect
    for name in headers:
        if not re.fullmatch(r"[ -~]*", _text(headers, name)):
            raise _InvalidError(f"{name}: give one line of ASCII")
    return headers


def _part(values: Mapping[str, Any], name: str, known: set[str] | None = None) -> dict[str, Any]:
    return _mapping(values[name], name, known) if name in values else {}


def _mapping(value: object, where: str, known: set[str] | None = None) -> dict[str, Any]:
    """A mapping that is not empty: an emptied file, or a name without a value, is probably an accident."""
    if not isinstance(value, dict) or not value:
        raise _InvalidError(f"{where}: give names and values")
    for name, item in value.items():
        if known is not None and name not in known:
            raise _InvalidError(f"{where}: {name!r} is not supported; available: {', '.join(sorted(known))}")
        if item in (None, "", [], {}):
            raise _InvalidError(f"{where}: {name} is empty; give a value or remove it")
    return value


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values[name]
    if not isinstance(value, str):
        raise _InvalidError(f"{name}: give text")
    return value


def _choice(values: Mapping[str, Any], name: str, known: Mapping[str, object], default: str) -> str:
    value = values.get(name, default)
    if not isinstance(value, str) or value not in known:
        raise _InvalidError(f"{name}: {value!r} is not supported; available: {', '.join(known)}")
    return value


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"OpenSSL says {error.reason}"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return one_line(str(error))
