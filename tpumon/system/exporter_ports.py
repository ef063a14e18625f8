"""Ports of exporters: how one is given, and those of this host, in files that all tpumons here read."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from tpumon.errors import UsageError
from tpumon.system.host_files import HostFiles, boot, network
from tpumon.system.threads import in_thread

LOOPBACK = "127.0.0.1"
EXPORTER_PORT = 10466
"""Port of an exporter that is given without one."""

AllowedReaders = Literal["all", "own"]
"""Who gets an answer: anybody, or processes of the exporter's user and of root on its host."""

_FILES = HostFiles("tpumon-serve-", most_of_one_user=8, most_bytes=100)
_LAST_PORT = 65_535
_LABEL = r"[A-Za-z0-9_-]{1,63}"
_LISTEN = re.compile(
    rf"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>\*|(?:{_LABEL}(?:\.{_LABEL})*\.?)?))(?::(?P<port>[0-9]{{1,5}}))?"
)
_ANSWER_S = 1.0
_OWN = " own"  # a file ends so if its user alone gets an answer
_OLD_S = 7 * 86_400.0
_own: set[int] = set()  # those of this process


def parse_listen(where: str) -> tuple[str, int]:
    """Splits `HOST:PORT`, `PORT` of loopback, or `:PORT` of all interfaces; their host is empty, IPv6 has no brackets.

    Raises:
        UsageError: it has none of the forms.
    """
    text = where.strip()
    if re.fullmatch(r"[0-9]+", text):
        text = f"{LOOPBACK}:{text}"
    form = _LISTEN.fullmatch(text)
    if form is None or int(form["port"] or 0) > _LAST_PORT:
        raise UsageError(
            f"cannot listen on {where!r}; give HOST:PORT, for example {LOOPBACK}:{EXPORTER_PORT}, "
            f"[::1]:{EXPORTER_PORT}, or :{EXPORTER_PORT} for all interfaces"
        )
    host = form["v6"] or form["host"]
    port = EXPORTER_PORT if form["port"] is None else int(form["port"])
    return (host or ("" if form["port"] else LOOPBACK)), port


def host_key() -> str | None:
    """A name of this host's network until it is started again, which no other network has; None: not known.

    Addresses of jobs and exporters mean something else in another network namespace.
    """
    if boot() == "-" or not network():
        return None
    return hashlib.sha256(f"{boot()} {network()}".encode()).hexdigest()[:16]


def announce(port: int, readers: AllowedReaders = "all") -> Callable[[], None]:
    """Tells all tpumons of this host where one listens, and who gets an answer; returns what takes that back.

    Never raises.
    """
    path = _FILES.new_path()
    _own.add(port)
    with suppress(OSError):  # then it is found at the usual port only
        for older in _FILES.own():
            said = _port_in(older)  # None: perhaps of another network that shares /tmp
            if said == port or (said is None and time.time() - older.lstat().st_mtime > _OLD_S):
                older.unlink(missing_ok=True)
        _FILES.write(path, f"{host_key()} {port}{_OWN if readers == 'own' else ''}\n")
    return partial(_remove, path, port)


def announced() -> set[tuple[int, int]]:
    """Users and the ports at which each says that a tpumon of theirs answers this user. A file may say anything."""
    with suppress(OSError):
        return {
            (file.uid, port)
            for file in _FILES.listed()
            if (port := _port_in(file.path, is_ours=os.getuid() in {0, file.uid})) is not None
        }
    return set()


def command_to_read() -> str:
    """`; tpumon --from ...`, the command that shows another tpumon of this host; empty: none listens, as far as known.

    One that is a view only cannot be read.
    """
    others = {port for _, port in announced()} - _own
    return f"; tpumon --from 127.0.0.1:{min(others)} shows what a running one samples" if others else ""


async def how_to_read() -> str:
    """`command_to_read` in a thread, as any user may fill /tmp; empty: it took too long."""
    with suppress(TimeoutError):
        return await in_thread(command_to_read, timeout_s=_ANSWER_S)
    return ""


def _remove(path: Path, port: int) -> None:
    _own.discard(port)
    with suppress(OSError):
        path.unlink()


def _port_in(path: Path, *, is_ours: bool = True) -> int | None:
    """The port that a file says; None: none of this host, no longer, or for its user alone, who is another."""
    said = re.fullmatch(rf"([0-9a-f]{{16}}) ([0-9]{{1,5}})({_OWN})?\n", (_FILES.read(path) or ("", 0))[0])
    known = said is not None and said[1] == host_key() and 0 < int(said[2]) <= _LAST_PORT and (is_ours or not said[3])
    return int(said[2]) if said is not None and known else None
