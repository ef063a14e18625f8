"""Remembers which port of this host had a worker first, for all tpumons here: that worker has the host's bare name.

Each user has one file. A port is remembered until nothing was there for a day, so that a job that starts again there
keeps its name, whichever tpumon looks and whenever it was started.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from tpumon.system.host_files import HostFiles, boot, directory, since_boot_s

NOTE_EVERY_S = 600.0
"""How often it is noted that a worker is still there."""

_FORGOTTEN_S = 24 * 3600.0
_LAST_PORT = 65_535
_FILES = HostFiles("tpumon-first-", most_of_one_user=4, most_bytes=500)


class _Entry(Struct, frozen=True):
    """What a user's file says: a port, since when and until when something was seen there, since the boot."""

    path: Path
    uid: int
    port: int
    since_s: float
    seen_s: float


def first_port(ports: Collection[int]) -> int:
    """The port that was the first, and notes it if a worker is there now; the least if nobody remembers one.

    Of users other than this one and root only what orders these ports is believed. Reads and writes files.

    Args:
        ports: where workers are now; at least one.
    """
    entries = _entries()
    first = _first(entries, ports)
    now_s = since_boot_s()
    port, since_s = (min(ports), now_s) if first is None else (first.port, first.since_s)
    own = next((entry for entry in entries if entry.uid == os.getuid()), None)
    is_noted = own is not None and own.port == port and now_s - own.seen_s < NOTE_EVERY_S / 2
    if port in ports and not is_noted:
        text = {"boot": boot(), "network": _network(), "port": port, "since_s": since_s, "seen_s": now_s}
        with suppress(OSError):  # then each tpumon goes by itself
            _FILES.write(_FILES.new_path() if own is None else own.path, json.dumps(text))
    return port


def noted_first_port(ports: Collection[int]) -> int:
    """As `first_port`, for ports that a user named, of which nothing else is known: nothing is noted.

    The answer stays the same in one process, where names that are in use do not change.
    """
    if directory() not in _answered:
        first = _first(_entries(), ports)
        _answered[directory()] = min(ports) if first is None else first.port
    return _answered[directory()]


_answered: dict[Path, int] = {}


def _first(entries: Collection[_Entry], ports: Collection[int]) -> _Entry | None:
    trusted = {0, os.getuid()}
    counting = (entry for entry in entries if entry.uid in trusted or entry.port in ports)
    return min(counting, key=lambda entry: (entry.since_s, entry.port), default=None)


def _entries() -> list[_Entry]:
    """What the files say that holds now; those of this user that hold no longer are removed."""
    found = []
    with suppress(OSError):
        for file in _FILES.listed():
            read = _FILES.read(file.path)
            if read is None:
                continue
            said = _plain(read[0])
            entry = _entry(said, file.path, read[1])
            if entry is not None and said.get("network") == _network():
                found.append(entry)
            elif entry is None and file.uid == os.getuid():
                file.path.unlink(missing_ok=True)
    return found


def _plain(text: str) -> Mapping[str, object]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _entry(said: Mapping[str, object], path: Path, uid: int) -> _Entry | None:
    """An entry that makes sense, and is no older than a day."""
    port, (since_s, seen_s) = said.get("port"), _times(said)
    now_s = since_boot_s()
    if said.get("boot") != boot() or type(port) is not int or not 0 < port <= _LAST_PORT:
        return None
    if not 0 <= since_s <= seen_s <= now_s or now_s - seen_s > _FORGOTTEN_S:
        return None
    return _Entry(path, uid, port, since_s, seen_s)


def _times(said: Mapping[str, object]) -> Iterator[float]:
    for name in ("since_s", "seen_s"):
        value = said.get(name)
        yield float(value) if isinstance(value, int | float) and not isinstance(value, bool) else -1.0


@lru_cache(maxsize=1)
def _network() -> int:
    try:
        return Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return 0
