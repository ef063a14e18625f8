"""Profiles to report on, and the choice of their ops."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from tpumon.model import Finding
from tpumon.report.formats import utc_text
from tpumon.untrusted_text import one_line
from tpumon.xspace.host_totals import HostTotals
from tpumon.xspace.profile.profile import Profile
from tpumon.xspace.profile.step_times import StepTable, step_table
from tpumon.xspace.trace_figures import TraceFigures


class HostProfile(Struct, frozen=True, kw_only=True):
    """The profile of one host.

    Attributes:
        name: of the host, unique in the capture.
        profile: its trace.
    """

    name: str
    profile: Profile


class Capture(Struct, frozen=True, kw_only=True):
    """The traces of one or several hosts that were taken together.

    Attributes:
        hosts: at least one.
        figures: of all hosts together.
        verdict: the answer of `tpumon why`, in words; None where nobody asked.
        findings: the worst first, as `tpumon why` judges them.
    """

    hosts: tuple[HostProfile, ...]
    figures: TraceFigures
    verdict: str | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def start_unix_s(self) -> float | None:
        """The time when its window began; None where a trace does not say."""
        starts_unix_s = [host.profile.trace.start_unix_s for host in self.hosts]
        return max((each for each in starts_unix_s if each), default=None) if all(starts_unix_s) else None

    def step_table(self) -> StepTable:
        return step_table([host.profile.trace for host in self.hosts], self.figures.figures.step_durations_s)


def why_apart(read: Iterable[tuple[Path, HostTotals]], typed: Mapping[Path, str]) -> str | None:
    """The line to say where one host was traced again after a trace of it ended: these are two profiles.

    Args:
        read: the files and their traces; those that do not say their host and their time are left out.
        typed: the path on the command line that led to a file.
    """
    hosts: dict[str, list[tuple[float, float, Path]]] = {}
    for file, trace in read:
        if trace.hostnames and trace.start_unix_s is not None and trace.stop_unix_s is not None:
            hosts.setdefault(trace.hostnames[0], []).append((trace.start_unix_s, trace.stop_unix_s, file))
    for host, times in hosts.items():
        (began_unix_s, _, new), (before_unix_s, ended_unix_s, old) = max(times), min(times, key=lambda each: each[1])
        if began_unix_s < ended_unix_s:
            continue
        named = (new, old) if typed[new] == typed[old] else (typed[new], typed[old])
        paths = [one_line(str(path)) for path in named]
        command = f"tpumon report {' --against '.join(map(shlex.quote, paths))}"
        return (
            f"{' and '.join(paths)} are two profiles of {host}, taken at {utc_text(began_unix_s)} and "
            f"{utc_text(before_unix_s)} (UTC); compare them: {command}"
        )
    return None


class Choice(Struct, frozen=True, kw_only=True):
    """The ops to show.

    Attributes:
        top: the most rows of a table of ops.
        program: only programs whose name or number contains this.
        words: only ops whose name, category, provenance or source contains this, in any case.
    """

    top: int = 20
    program: str | None = None
    words: str | None = None

    def picks(self, program: str, *texts: str) -> bool:
        """True for what runs in this program and is described by these texts."""
        if self.program is not None and self.program not in program:
            return False
        return self.words is None or self.words.casefold() in "\n".join(texts).casefold()

    @property
    def title(self) -> str:
        """The choice in words; "" for everything."""
        parts = [f"program {one_line(self.program)}"] if self.program else []
        return ", ".join([*parts, *([f"ops with {one_line(self.words)!r}"] if self.words else [])])
