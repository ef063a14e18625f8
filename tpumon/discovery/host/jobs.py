"""Jobs of this host that may have no profiler server: found by the libraries that their processes have loaded."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from tpumon.discovery.host.listening import Owner, owner_at
from tpumon.discovery.host.processes import PROC, open_files
from tpumon.model import Framework
from tpumon.untrusted_text import one_line

_MOST_READ = 2000  # processes; each takes up to a few milliseconds
_LONGEST_NAME = 40


class HostJob(Struct, frozen=True, kw_only=True):
    """A process that runs a framework with a profiler server, whether it has started that or not.

    Attributes:
        pid: its number.
        name: of its program or script, safe to print.
        framework: None if only its TPU is known.
    """

    pid: int
    name: str
    framework: Framework | None

    @property
    def runs(self) -> str:
        """Its framework or its TPU, as the middle of a sentence."""
        return f"runs {self.framework}" if self.framework is not None else "has a TPU open"


def find_job(proc: Path = PROC) -> HostJob | None:
    """The job of this network namespace that a user most likely means: one with a TPU, then the parent of others.

    Source: /proc/PID/fd, exe, cmdline, maps, ns/net, of processes whose files may be read.
    """
    here = _namespace(proc / "self")
    jobs: list[tuple[Owner, str]] = []
    for count, (pid, files) in enumerate(open_files(proc)):
        if count >= _MOST_READ:
            break
        if files is None or pid == os.getpid() or _namespace(proc / str(pid)) != here:
            continue
        owner, script = owner_at(pid, files, proc)
        if owner.runs_xla and not owner.is_tpumon and script != "tpumon":
            jobs.append((owner, script))
    pids = {owner.pid for owner, _ in jobs}
    parents = [one for one in jobs if pids.isdisjoint(one[0].ancestors)]
    best = min(parents or jobs, key=lambda one: (not one[0].signs.holds_tpu, one[0].pid), default=None)
    if best is None:
        return None
    owner, script = best
    name = one_line(script, limit=_LONGEST_NAME) or owner.program
    return HostJob(pid=owner.pid, name=name, framework=owner.signs.framework)


def _namespace(process: Path) -> Path | None:
    try:
        return (process / "ns" / "net").readlink()
    except OSError:
        return None
