"""For how long each server of this host's tpumons was traced, in files that all of them read.

Each tpumon writes one file, of what it traced; nobody writes another one's. The file of a tpumon that was killed stays
until what it says has no effect any more, and is then removed by the next one of its user.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta, MsgspecError, Raw, Struct, field, json
from msgspec.structs import replace

from tpumon.system.host_files import HostFiles, boot, network, since_boot_s

USUAL_DUTY_RATIO = 0.01
"""Greatest share of its time for which a job is traced, unless an option says otherwise."""

UNANSWERED_COUNTS_S = 86_400.0
"""For how long it is told that a trace of the host had no answer."""

_TRACED_COUNTS_S = 600.0  # for the share of the last 10 minutes that views show
_MOST_BYTES = 512 * 1024
_MOST_BYTES_AT_ONCE = 8 * 1024 * 1024
_MOST_SERVERS = 4_000  # so that a file of ours is never cut
_SHARES = 3.0  # intervals for which an entry that was not renewed counts
_LONGEST_INTERVAL_S = 3600.0
_RENEWED_S = 10.0  # an entry is, while its tpumon waits for its share


_UNKNOWN: Mapping[str, int] = MappingProxyType({})

_Seconds = Annotated[float, Meta(ge=0, le=1e12)]
_Ticks = Annotated[int, Meta(ge=0, le=2**62)]


class Turn(Struct, frozen=True, array_like=True):
    """A tpumon's place among those that wait to trace a server: the lowest rank goes first, then who waits longest.

    Attributes:
        rank: 0: it has no figure yet, lacks some for an answer, or has let such a one go first; 1: otherwise.
        since_s: when it traced the server last, or came, if it never did.
        cost_s: for how long it is likely to trace the server.
    """

    rank: Annotated[int, Meta(ge=0, le=1)]
    since_s: _Seconds
    cost_s: _Seconds

    @property
    def order(self) -> tuple[int, float]:
        """The lowest goes first."""
        return self.rank, self.since_s


def said(turn: Turn | None) -> Raw:
    """A turn as an entry has it."""
    return Raw(json.encode(turn))


class Entry(Struct, frozen=True, kw_only=True, array_like=True):  # later versions may add fields
    """One tpumon's entry of one server. Times are since this machine was started.

    Attributes:
        since_s: when it first said something of it.
        time_s: when it said this.
        traced_s: how long it traced the server since then, at first and for a call under way by estimate.
        debt_s: how much of their common credit all tpumons had used by then, as far as it knew.
        duty_ratio: the share of time for which it may trace.
        interval_s: from one of its queries to the next; 0: it has stopped.
        calls: how many of its calls have traced the server.
        window_s: the length of trace that shows the server's steps, as it found; 0: not known.
        unanswered_s: when it began a trace of the host that may hang the job and has no answer; 0: there is none.
        answered_s: when the server answered it after another one had such a trace; 0: it did not, or none had.
        waits_since_s: when it began such a trace that it still waits for; 0: there is none.
        said_turn: its place among those that wait to trace the server, as a `Turn`; null: it does not wait.
        hung_s: when such a trace began that hung the process before this one; 0: none is known.
        lacks: how many calls a command still makes until it can answer; 0: none, or it is no command.
    """

    since_s: _Seconds
    time_s: _Seconds
    traced_s: _Seconds
    debt_s: _Seconds
    duty_ratio: Annotated[float, Meta(ge=0.0001, le=1)]
    interval_s: _Seconds
    calls: Annotated[int, Meta(ge=0, le=2**62)] = 0
    window_s: _Seconds = 0.0
    unanswered_s: _Seconds = 0.0
    answered_s: _Seconds = 0.0
    waits_since_s: _Seconds = 0.0
    said_turn: Raw = Raw(b"null")
    hung_s: _Seconds = 0.0
    lacks: Annotated[int, Meta(ge=0, le=2**62)] = 0

    @property
    def turn(self) -> Turn | None:
        """Its place; None: it does not wait, or a later version says it otherwise: what it traced counts anyway."""
        try:
            return _TURNS.decode(self.said_turn)
        except MsgspecError:
            return None

    def debt_at(self, now_s: float) -> float:
        """Debt that is left at a time, if the server was not traced since."""
        return max(0.0, self.debt_s - self.duty_ratio * (now_s - self.time_s))

    @property
    def shares_until_s(self) -> float:
        """Until when its tpumon is taken to follow the server."""
        if not self.interval_s:
            return -math.inf
        return self.time_s + _SHARES * min(max(self.interval_s, _RENEWED_S), _LONGEST_INTERVAL_S)

    @property
    def counts_until_s(self) -> float:
        """Until when it has any effect."""
        told_s = max(self.unanswered_s, self.answered_s, self.hung_s)
        counts_s = max(self.debt_s / self.duty_ratio, _TRACED_COUNTS_S if self.traced_s else 0.0)
        unanswered_until_s = told_s + UNANSWERED_COUNTS_S if told_s else -math.inf
        return max(self.shares_until_s, self.time_s + counts_s, unanswered_until_s)


class _Document(Struct, frozen=True):
    """Content of a tpumon's file: its entries by key, of the time since this machine was started.

    Attributes:
        boot: when that was.
        servers: the entries.
        processes: the starts of those servers' processes, in clock ticks since then, as far as they are known.
        pid: of the tpumon; 0: not known.
    """

    boot: str
    servers: dict[str, Entry]
    processes: dict[str, _Ticks] = field(default_factory=dict)
    pid: Annotated[int, Meta(ge=0, le=2**31)] = 0


# Made here: threads that read a type for the first time at once crash msgspec 0.22.
_TURNS: json.Decoder[Turn | None] = json.Decoder(Turn | None)
_DOCUMENTS = json.Decoder(_Document)


class PeerEntry(Struct, frozen=True):
    """Another tpumon's entry of a server.

    Attributes:
        file: the name of its file.
        trusted: whether its user may be believed: this user, or root.
        entry: what it says.
        process: the start of the process that it is about, in clock ticks since this machine was started; None: of all
            that the server had.
        uid: its user.
        pid: its number, as it says; 0: not known.
    """

    file: str
    trusted: bool
    entry: Entry
    process: int | None = None
    uid: int = -1
    pid: int = 0


class DutyLedger:
    """The file of this tpumon, and those of the others. Every call may block; one thread at a time uses it."""

    def __init__(self) -> None:
        self._files = HostFiles("tpumon-duty-", most_of_one_user=32, most_bytes=_MOST_BYTES)
        self._path: Path | None = None
        self._read: dict[Path, tuple[tuple[int, int], Mapping[str, PeerEntry]]] = {}  # its version

    def exchange(self, own: Mapping[str, Entry], processes: Mapping[str, int] = _UNKNOWN) -> dict[str, list[PeerEntry]]:
        """Writes this tpumon's entries, by address of the server, then reads those of the others for these servers.

        Args:
            own: the entries.
            processes: the starts of the processes that they are about, as far as they are known.

        Raises:
            OSError: the file cannot be written, or the directory not be listed.
        """
        if self._path is None:
            self._path = self._files.new_path()
        named = {_key(address): entry for address, entry in list(own.items())[:_MOST_SERVERS]}
        starts = {_key(address): start for address, start in processes.items()}
        self._files.write(self._path, json.encode(_Document(boot(), named, starts, os.getpid())).decode())
        return self.peers(own)

    def peers(self, servers: Iterable[str]) -> dict[str, list[PeerEntry]]:
        """Reads the entries of the others for these servers.

        Raises:
            OSError: the directory cannot be listed.
        """
        keys = {_key(address): address for address in servers}
        peers: dict[str, list[PeerEntry]] = {}
        for entries in self._others():
            for key in entries.keys() & keys.keys():
                peers.setdefault(keys[key], []).append(entries[key])
        return peers

    def leave(self, own: Mapping[str, Entry], processes: Mapping[str, int] = _UNKNOWN) -> None:
        """Writes the last entries; removes the file if they have no effect."""
        now_s = since_boot_s()
        if any(entry.counts_until_s > now_s for entry in own.values()):
            self.exchange(own, processes)
        elif self._path is not None:
            self._path.unlink(missing_ok=True)

    def add(self, traced_s: Mapping[str, float]) -> None:
        """Writes what a command has traced that then ends, by address of the server."""
        none, now_s = _nothing(), since_boot_s()
        peers = self.exchange(dict.fromkeys(traced_s, none))
        self.exchange(
            {
                server: replace(
                    none,
                    traced_s=cost_s,
                    debt_s=cost_s + max((peer.entry.debt_at(now_s) for peer in peers.get(server, ())), default=0.0),
                )
                for server, cost_s in traced_s.items()
            }
        )

    def note_host_trace(self, server: str, process: int, *, unanswered_s: float = 0.0, answered_s: float = 0.0) -> None:
        """Writes that a command, which then ends, began a trace of the host that has no answer, or that has one."""
        entry = replace(_nothing(), unanswered_s=unanswered_s, answered_s=answered_s)
        self.exchange({server: entry}, {server: process})

    def _others(self) -> Sequence[Mapping[str, PeerEntry]]:
        """The entries of other tpumons' files. Removes files of this user that have no effect."""
        read: dict[Path, tuple[tuple[int, int], Mapping[str, PeerEntry]]] = {}
        left_bytes = _MOST_BYTES_AT_ONCE
        now_s = since_boot_s()
        for file in self._files.listed():
            if file.path == self._path:
                continue
            version = file.changed_ns, file.inode
            known = self._read.get(file.path)
            if (known is None or known[0] != version) and left_bytes > 0:
                content = self._files.read(file.path)
                if content is not None:  # else it is gone, or will be read next time
                    text, uid = content
                    left_bytes -= len(text)
                    known = version, _entries(text, file.path.name, uid)
            if known is None:
                continue
            if file.uid == os.getuid() and all(peer.entry.counts_until_s < now_s for peer in known[1].values()):
                with suppress(OSError):
                    file.path.unlink()
                continue
            read[file.path] = known
        self._read = read
        return [entries for _, entries in read.values()]


def _nothing() -> Entry:
    """The entry of a command that has traced nothing."""
    now_s = since_boot_s()
    return Entry(since_s=now_s, time_s=now_s, traced_s=0.0, debt_s=0.0, duty_ratio=USUAL_DUTY_RATIO, interval_s=0.0)


def _entries(text: str, file: str, uid: int) -> dict[str, PeerEntry]:
    """The entries of a file by key; none if it is not of this boot, or no such document."""
    try:
        document = _DOCUMENTS.decode(text)
    except (MsgspecError, RecursionError):
        return {}
    now_s = since_boot_s()
    trusted = uid in {0, os.getuid()}
    entries = {key: replace(entry, said_turn=entry.said_turn.copy()) for key, entry in document.servers.items()}
    return {
        key: PeerEntry(file, trusted, entry, document.processes.get(key), uid, document.pid)
        for key, entry in entries.items()
        if document.boot == boot() and entry.since_s <= entry.time_s <= now_s
    }


def _key(address: str) -> str:
    """A server's name among all of this host: addresses mean something else in another network namespace."""
    return f"{network()} {address}"
