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
import logging
import os
import re
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, field

from tpumon.errors import UsageError
from tpumon.untrusted_text import one_line, unexpected

_log = logging.getLogger(__name__)

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
_Text = Annotated[str, Meta(min_length=1)]
_Version = Literal["TLS10", "TLS11", "TLS12", "TLS13"]
_Header = Literal[
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
]
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


class _Tls(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cert_file: _Text
    key_file: _Text
    client_ca_file: _Text | UnsetType = UNSET
    client_auth_type: Literal[
        "NoClientCert",
        "RequestClientCert",
        "RequireAnyClientCert",
        "VerifyClientCertIfGiven",
        "RequireAndVerifyClientCert",
    ] = "NoClientCert"
    min_version: _Version = "TLS12"
    max_version: _Version = "TLS13"


class _Server(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    http2: bool = True  # accepted without effect
    headers: Annotated[dict[_Header, Annotated[str, Meta(pattern=r"^[ -~]+\Z")]], Meta(min_length=1)] | UnsetType = (
        UNSET
    )


class _WebFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file. What is empty is refused: it is probably an accident, and would take a protection away."""

    tls_server_config: _Tls | UnsetType = UNSET
    basic_auth_users: Annotated[dict[str, str], Meta(min_length=1)] | UnsetType = UNSET
    http_server_config: _Server | UnsetType = UNSET


class _Config(Struct, frozen=True, kw_only=True):
    """The contents of a file, checked and loaded.

    Attributes:
        context: settings of TLS; None: no encryption.
        users: bcrypt hashes by user.
        headers: sent with every answer.
        files: the file and those that it names.
        stamps: of these files, as they were read.
    """

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
        clock_s: returns monotonic seconds.

    Raises:
        UsageError: the file is invalid.
    """

    def __init__(self, path: str | None, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._path = Path(path or "")
        try:
            self._config = _Config() if path is None else _read(self._path)
        except _InvalidError as error:
            raise UsageError(f"--web-config {path}: {error}") from None
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
        """True if there are users."""
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
                _log.warning(
                    "prometheus: %s has changed and is invalid: %s; the previous settings remain in use",
                    self._path,
                    why,
                )
        else:
            self._seen, self._retry_s, self._reported = self._config.stamps, None, ""

    def admits(self, authorization: str | None, address: str) -> bool | None:
        """Checks that an Authorization header names a user; None: too many checks are waiting.

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
        """Checks a password; None: the address has a check pending, or others take too long."""
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
    try:
        file = convert(content, _WebFile)
    except ValidationError as error:
        raise _InvalidError(one_line(str(error))) from None
    if file == _WebFile():
        raise _InvalidError("sets nothing")
    tls, server = file.tls_server_config, file.http_server_config
    context, files = (None, ()) if tls is UNSET else _context(tls, path.parent)
    return _Config(
        context=context,
        users={} if file.basic_auth_users is UNSET else _users(file.basic_auth_users),
        headers={} if server is UNSET or server.headers is UNSET else dict(server.headers.items()),
        files=(path, *files),
        stamps=stamps + _stamps(files),
    )


def _context(tls: _Tls, directory: Path) -> tuple[ssl.SSLContext, tuple[Path, ...]]:
    """Settings of TLS, and the files that they are from."""
    certificate, key = directory / tls.cert_file, directory / tls.key_file
    authority = None if tls.client_ca_file is UNSET else directory / tls.client_ca_file
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    oldest, newest = _TLS_VERSIONS[tls.min_version], _TLS_VERSIONS[tls.max_version]
    if oldest > newest:
        raise _InvalidError("min_version (TLS12 unless given) is newer than max_version, so no client could connect")
    context.minimum_version, context.maximum_version = oldest, newest
    auth = tls.client_auth_type
    if auth == "RequireAnyClientCert":
        raise _InvalidError(
            "client_auth_type RequireAnyClientCert is not supported, because an unverified certificate protects "
            "nothing; give RequireAndVerifyClientCert and a client_ca_file"
        )
    context.verify_mode = _CLIENT_AUTH[auth]
    verifies = context.verify_mode != ssl.CERT_NONE
    if verifies != (authority is not None):
        raise _InvalidError(f"client_auth_type {auth} {'needs a' if verifies else 'does not use a'} client_ca_file")
    try:
        # Without a password argument, an encrypted key would prompt on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        raise _InvalidError(f"cert_file and key_file cannot be used: {_why(error)}") from None
    if authority is None:
        return context, (certificate, key)
    try:
        context.load_verify_locations(authority)
    except (OSError, ValueError) as error:
        raise _InvalidError(f"client_ca_file cannot be used: {_why(error)}") from None
    return context, (certificate, key, authority)


def _users(users: Mapping[str, str]) -> dict[str, bytes]:
    for user, hashed in users.items():
        if not _BCRYPT.fullmatch(hashed):
            raise _InvalidError(f"basic_auth_users: {user!r} has no bcrypt hash; htpasswd -nBC 10 {user} makes one")
    return {user: hashed.encode() for user, hashed in users.items()}


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"OpenSSL says {error.reason}"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return one_line(str(error))
