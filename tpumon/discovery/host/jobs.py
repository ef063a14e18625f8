"""Jobs of this host that may have no profiler server: found by the libraries that their processes have loaded."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct

from tpumon.discovery.host.listening import Owner, owner_at, read_listeners
from tpumon.discovery.host.own_processes import ports_here
from tpumon.discovery.host.processes import (
    PROC,
    STOPPED,
    command_of,
    environment_of,
    going_on,
    is_stopped,
    open_files,
    threads_of,
    user_named,
)
from tpumon.model import Framework
from tpumon.untrusted_text import LONGEST_PATH, one_line

_MOST_READ = 2000  # processes; each takes up to a few milliseconds
_LONGEST_NAME = 40
_LEAST_THREADS = 4  # JAX, TensorFlow and PyTorch have tens
_STARTING_S = 60.0  # in which a job may not have come to the line that starts its profiler server


class HostJob(Struct, frozen=True, kw_only=True):
    """A process that runs a framework with a profiler server, whether it has started that or not.

    Attributes:
        pid: its number.
        name: of its program or script, safe to print.
        framework: None if only its TPU is known.
        started_unix_s: when it began; None if that is not known.
        attached: whether its environment attaches it, as `tpumon run` does.
        stopped: whether a signal has stopped it.
        user: its owner, where its files may not be read: it may be the job, by what everybody may see of it.
    """

    pid: int
    name: str
    framework: Framework | None
    started_unix_s: float | None = None
    attached: bool = False
    stopped: bool = False
    user: str = ""

    @property
    def runs(self) -> str:
        """Words for what the job runs, for the middle of a sentence."""
        return f"runs {self.framework}" if self.framework is not None else "has a TPU open"

    @property
    def lack(self) -> str:
        """The words that it has no profiler server."""
        return f"pid {self.pid} `{self.name}` {self.runs} but has no profiler server"

    def not_yet(self, now_unix_s: float) -> tuple[str, str] | None:
        """Words for why the job's profiler server cannot answer yet, and what to do; None: the job needs a server.

        The words hold no number that changes: a line is logged each time that it differs from the last one.
        """
        who = f"pid {self.pid} `{self.name}`"
        if self.stopped:
            whose, may_be = (f" of {self.user}", ", and may be the job") if self.user else ("", "")
            return f"{who}{whose} {STOPPED}{may_be}", going_on(self.pid)
        if self.attached and self.framework is not None:
            remedy = f"it gets one when {self.framework} has started its devices; if steps run, look in its stderr"
            return f"{who} was started by `tpumon run` and has no profiler server yet", f"{remedy} for `tpumon:`"
        if self.started_unix_s is not None and 0 <= now_unix_s - self.started_unix_s < _STARTING_S:
            what = f"{who} began less than a minute ago and has no profiler server yet"
            return what, "it may still be starting: give it a minute"
        return None


def find_job(proc: Path = PROC, *, but_for: Collection[Owner] = ()) -> HostJob | None:
    """The job of this network namespace that a user most likely means: one with a TPU, then the parent of others.

    Args:
        proc: the files of processes.
        but_for: processes of other jobs, whose parents and children are left out, too.

    Source: /proc/PID/fd, exe, cmdline, maps, stat, ns/net, of processes whose files may be read.
    """
    here = _namespace(proc / "self")
    hidden: list[int] = []
    jobs: list[tuple[Owner, str]] = []
    for count, (pid, files) in enumerate(open_files(proc)):
        if count >= _MOST_READ:
            break
        if files is None:
            hidden.append(pid)
            continue
        if pid == os.getpid() or _namespace(proc / str(pid)) != here:
            continue
        owner, script = owner_at(pid, files, proc)
        if any(map(owner.is_kin_of, but_for)):
            continue
        if owner.runs_xla and not owner.is_tpumon and script != "tpumon":
            jobs.append((owner, script))
    pids = {owner.pid for owner, _ in jobs}
    parents = [one for one in jobs if pids.isdisjoint(one[0].ancestors)]
    best = min(parents or jobs, key=lambda one: (not one[0].signs.holds_tpu, one[0].pid), default=None)
    if best is None:
        return None if but_for else _stopped_one(hidden, _users_who_listen(proc), proc)
    owner, script = best
    name = one_line(script, limit=_LONGEST_NAME) or owner.program
    return HostJob(
        pid=owner.pid,
        name=name,
        framework=owner.signs.framework,
        started_unix_s=None if owner.process is None else owner.process.started_unix_s,
        attached=_is_attached(owner.pid, proc),
        stopped=is_stopped(owner.pid, proc),
    )


def stopped_at(address: str, proc: Path = PROC) -> HostJob | None:
    """The process that may be the one at an address of this host, of a user whose files may not be read, if stopped."""
    port = ports_here({address}, proc).get(address)
    if port is None or not (users := _users_who_listen(proc, port)):
        return None
    return _stopped_one([pid for pid, files in islice(open_files(proc), _MOST_READ) if files is None], users, proc)


def _users_who_listen(proc: Path, port: int | None = None) -> set[int]:
    """Numbers of the users who listen at this port; at any, if it is None."""
    try:
        return {one.uid for one in read_listeners(proc) if port in {None, one.port}}
    except OSError:
        return set()


def _stopped_one(pids: Iterable[int], users: Collection[int], proc: Path) -> HostJob | None:
    """The first of these processes that is one of these users', has threads as a job has, and is stopped by a signal.

    Source: /proc/PID, stat, cmdline, which everybody may read.
    """
    for pid in pids:
        with suppress(OSError):
            uid = (proc / str(pid)).stat().st_uid
            if uid in users and is_stopped(pid, proc) and threads_of(pid, proc) >= _LEAST_THREADS:
                name = (command_of(pid, proc) or "?").split()[-1]
                return HostJob(pid=pid, name=name, framework=None, stopped=True, user=user_named(uid))
    return None


def _is_attached(pid: int, proc: Path) -> bool:
    """Tells if a Python with the environment of this process attaches itself.

    Source: /proc/PID/environ, root.
    """
    environment = environment_of(pid, ("PYTHONPATH", "TPUMON_ATTACH"), proc, longest=LONGEST_PATH)
    paths = environment.get("PYTHONPATH", "").split(":")
    root = proc / str(pid) / "root"  # it may be in a container
    try:
        return environment.get("TPUMON_ATTACH") != "0" and any(
            (root / path[1:] / "tpumon_attach").is_dir() for path in paths if path.startswith("/")
        )
    except OSError:
        return False


def _namespace(process: Path) -> Path | None:
    try:
        return (process / "ns" / "net").readlink()
    except OSError:
        return None
