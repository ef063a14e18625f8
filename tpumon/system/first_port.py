"""Remembers which port of this host had a worker first, for all tpumons here: that worker has the host's bare name.

Each user has one file. A port is remembered until nothing was there for a day, so that a job that starts again there
keeps its name, whichever tpumon looks and whenever it was started.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, MsgspecError, Struct, json

from tpumon.system.host_files import HostFiles, boot, directory, network, since_boot_s

NOTE_EVERY_S = 600.0
"""How often it is noted that a worker is still there."""

_FORGOTTEN_S = 24 * 3600.0
_FILES = HostFiles("tpumon-first-", most_of_one_user=4, most_bytes=500)


class _Note(Struct, frozen=True, kw_only=True):
    """Content of a user's file: a port, since when and until when something was seen there, since the boot."""

    boot: str
    network: int
    port: Annotated[int, Meta(ge=1, le=65_535)]
    since_s: Annotated[float, Meta(ge=0)]
    seen_s: float


_NOTES = json.Decoder(_Note)  # made here: threads that read a type for the first time at once crash msgspec 0.22


class _Entry(NamedTuple):
    """A note that holds, and whose it is."""

    path: Path
    uid: int
    note: _Note


def first_port(ports: Collection[int]) -> int:
    """First port of this host, by the notes of all tpumons; without a note the least of `ports`. Notes it if in use.

    Of users other than this one and root only what orders these ports is believed. Reads and writes files.

    Args:
        ports: where workers are now; at least one.
    """
    entries = _entries()
    first = _first(entries, ports)
    now_s = since_boot_s()
    port, since_s = (min(ports), now_s) if first is None else (first.port, first.since_s)
    own = next((entry for entry in entries if entry.uid == os.getuid()), None)
    is_noted = own is not None and own.note.port == port and now_s - own.note.seen_s < NOTE_EVERY_S / 2
    if port in ports and not is_noted:
        note = _Note(boot=boot(), network=network(), port=port, since_s=since_s, seen_s=now_s)
        with suppress(OSError):  # then each tpumon goes by itself
            _FILES.write(_FILES.new_path() if own is None else own.path, json.encode(note).decode())
    return port


def noted_first_port(ports: Collection[int]) -> int:
    """First port among the ports that a user named; only reads notes, writes none.

    The answer stays the same in one process, where names that are in use do not change.
    """
    if directory() not in _answered:
        first = _first(_entries(), ports)
        _answered[directory()] = min(ports) if first is None else first.port
    return _answered[directory()]


_answered: dict[Path, int] = {}


def _first(entries: Collection[_Entry], ports: Collection[int]) -> _Note | None:
    trusted = {0, os.getuid()}
    counting = (entry.note for entry in entries if entry.uid in trusted or entry.note.port in ports)
    return min(counting, key=lambda note: (note.since_s, note.port), default=None)


def _entries() -> list[_Entry]:
    """The notes that hold now; files of this user that hold no longer are removed."""
    entries = []
    with suppress(OSError):
        for file in _FILES.listed():
            read = _FILES.read(file.path)
            if read is None:
                continue
            note = _note(read[0])
            if note is not None and note.network == network():
                entries.append(_Entry(file.path, read[1], note))
            elif note is None and file.uid == os.getuid():
                file.path.unlink(missing_ok=True)
    return entries


def _note(text: str) -> _Note | None:
    """A note that makes sense, and is no older than a day."""
    try:
        note = _NOTES.decode(text)
    except (MsgspecError, RecursionError):
        return None
    now_s = since_boot_s()
    holds = note.boot == boot() and note.since_s <= note.seen_s <= now_s and now_s - note.seen_s <= _FORGOTTEN_S
    return note if holds else None
