"""Grounds of verdicts, kept in a small file, so that they go on after tpumon was restarted."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from tpumon.analysis.findings import Judge
from tpumon.analysis.history import Moment, WorkerHistory
from tpumon.errors import UsageError
from tpumon.model import KeptState, KeptWorker, StatusSnapshot, Target
from tpumon.model.documents import decoded, encoded

WRITE_S = 10
"""Seconds between two versions of the file."""

_log = logging.getLogger(__name__)
_PREFIX = "tpumon-state"
_MOST_BYTES = 64 << 20
_FINDINGS_S = 600.0  # for so long a finding stays without being judged
_BASELINES_S = 3600.0
_OLDEST_S = 86_400.0


_Key = tuple[str | None, str | None, str]


class Kept:
    """The workers of a kept state, each taken once.

    Args:
        state: as it was read; None: nothing is known.
        now_unix_s: the time.

    Attributes:
        until_unix_s: until when findings that were present stay without being judged.
    """

    def __init__(self, state: KeptState | None = None, now_unix_s: float = 0.0) -> None:
        workers = () if state is None else state.workers
        self._workers = {(one.job, one.slice, one.worker): one for one in workers}
        self._handed_out: set[_Key] = set()
        self.until_unix_s = now_unix_s + _FINDINGS_S

    def hand_out(self, target: Target) -> KeptWorker | None:
        """The kept state of a worker; None: nothing, or it was handed out before."""
        key = target.job, target.slice, target.name or target.worker
        if key in self._handed_out:
            return None
        self._handed_out.add(key)
        return self._workers.get(key)

    def others(self, known: Iterable[KeptWorker], now_unix_s: float) -> tuple[KeptWorker, ...]:
        """Kept workers without a sample since the start, unless they are too old.

        Args:
            known: the workers that have had a sample.
            now_unix_s: the time.
        """
        keys = {(one.job, one.slice, one.worker) for one in known}
        others = (one for key, one in self._workers.items() if key not in keys)
        return tuple(one for one in others if now_unix_s - one.kept_unix_s < _OLDEST_S)


def kept_worker(history: WorkerHistory, snapshot: StatusSnapshot, judge: Judge, now_unix_s: float) -> KeptWorker:
    """The state of a worker that is to be kept."""
    target, now_s = history.target, history.monotonic_s()
    process, uptime_s = history.job_signs

    def unix_s(moment: Moment) -> float:
        return moment.unix_s(now_unix_s, now_s)

    kept = KeptWorker(
        worker=target.name or target.worker,
        kept_unix_s=now_unix_s,
        job=target.job,
        slice=target.slice,
        process=process,
        uptime_s=uptime_s,
        job_kind=None if history.last is None else history.last.job_kind,
        snapshot=replace(snapshot, findings=None),
    )
    return judge.kept(target.worker, kept, unix_s)


class StateFile:
    """The file of kept state in a directory: of each host its own, as they may share a home directory.

    Args:
        directory: it is made if it is not there.
        host: True if the workers are of this host; otherwise others sample them.

    Raises:
        UsageError: the directory cannot be written.
    """

    def __init__(self, directory: str, *, host: bool) -> None:
        self._host = _this_host() if host else None
        of_host = "" if self._host is None else f"-{hashlib.sha256(self._host.encode()).hexdigest()[:12]}"
        where = os.path.expanduser(directory)  # noqa: PTH111 - Path's own raises where a user has no home
        self._path = Path(where) / f"{_PREFIX}{of_host}.json"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--state {directory}: {error.strerror}; give a directory") from None
        if not os.access(self._path.parent, os.W_OK | os.X_OK):
            raise UsageError(f"--state {directory}: permission denied; give a directory that you may write to")
        self._remove_old()

    def read(self) -> KeptState | None:
        """The kept state, without what is too old; None: there is none of this host, or it cannot be read."""
        try:
            if not self._path.is_file():  # opening a FIFO would wait
                return None
            with self._path.open("rb") as file:
                state = decoded(KeptState, file.read(_MOST_BYTES))
        except (OSError, ValueError) as error:
            _log.warning("--state: %s is left out, this version cannot read it: %s", self._path, error)
            return None
        now_unix_s = time.time()
        if state.host != self._host or not 0 <= now_unix_s - state.time_unix_s < _OLDEST_S:
            return None
        workers = (one for one in state.workers if 0 <= now_unix_s - one.kept_unix_s < _OLDEST_S)
        return replace(state, workers=tuple(_without_old(one, now_unix_s) for one in workers))

    def write(self, state: KeptState) -> None:
        """Replaces the file at once.

        Raises:
            OSError: it cannot be written; the one before stays.
        """
        text = encoded(replace(state, host=self._host))
        # Another tpumon may write at the same time: each has a file of its own until it is whole.
        descriptor, name = tempfile.mkstemp(prefix=f".{_PREFIX}.", dir=self._path.parent)
        new = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            new.replace(self._path)
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise

    def _remove_old(self) -> None:
        """Removes files of hosts that are gone, and of killed tpumons: no tpumon reads them."""
        for pattern in (f"{_PREFIX}-*.json", f".{_PREFIX}.*"):
            for path in self._path.parent.glob(pattern):
                with suppress(OSError):
                    if path != self._path and time.time() - path.lstat().st_mtime > _OLDEST_S:
                        path.unlink()


def _without_old(worker: KeptWorker, now_unix_s: float) -> KeptWorker:
    """The part of a worker's state that still counts."""
    findings = tuple(one for one in worker.findings if one.until_unix_s is None or now_unix_s < one.until_unix_s)
    is_old = now_unix_s - worker.kept_unix_s >= _BASELINES_S
    return replace(worker, findings=findings, programs=() if is_old else worker.programs)


def _this_host() -> str:
    with suppress(OSError):
        return Path("/etc/machine-id").read_text(encoding="ascii").strip()[:64] or socket.gethostname()
    return socket.gethostname()
