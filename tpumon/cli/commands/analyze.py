"""`tpumon analyze`: the figures of saved profiles."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from tpumon.model import Failure, FigureWarning, Sample, Target, Workers, bounded
from tpumon.model.documents import encoded
from tpumon.outputs.text_blocks import render_block
from tpumon.system.console import show
from tpumon.untrusted_text import one_line
from tpumon.xspace.files import bug, file_title, modified, opened, trace_files, why_unread
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts

if TYPE_CHECKING:
    from tpumon.analysis import FleetStatus
    from tpumon.analysis.findings import Thresholds
    from tpumon.xspace.host_totals import HostTotals
    from tpumon.xspace.trace_figures import TraceFigures

_log = logging.getLogger(__name__)


class AnalyzedHost(Struct, frozen=True, kw_only=True):
    """One file.

    Attributes:
        name: the host's name, from the trace if it has one, otherwise from the file's name.
        trace: None if the file cannot be read.
        sample: its figures, or why there are none.
    """

    name: str
    trace: HostTotals | None
    sample: Sample


def run(*, paths: Sequence[str], output: Literal["text", "json"] = "text") -> int:
    """Prints the figures of every host, and of several hosts combined.

    Args:
        paths: files, session directories, or log directories, of which the newest session is read.
        output: the blocks that levels 1 and 2 print, or one JSON object.

    Returns:
        0; 1 if any file could not be read (the figures of the others are printed).

    Raises:
        UsageError: a path leads to no profile.
    """
    typed = trace_files(paths)
    read = {file: read_host(file) for file in typed}
    hosts = _told_apart(list(read.values()))
    traces = {file: host.trace for file, host in read.items() if host.trace is not None}
    combined = _combined(traces, typed)
    if output == "json":
        _print_json(hosts, combined)
    else:
        _print_text(hosts, combined)
    for name, warnings in _warnings(hosts, combined):
        for warning in warnings:
            _log.warning("%s: %s", name, warning.message)
    return 0 if len(traces) == len(hosts) else 1


def _told_apart(hosts: Sequence[AnalyzedHost]) -> list[AnalyzedHost]:
    """The hosts; those of one name have their file's path beside it."""
    counts = Counter(host.name for host in hosts)
    return [
        replace(host, name=f"{host.name} ({one_line(host.sample.address)})") if counts[host.name] > 1 else host
        for host in hosts
    ]


def _combined(traces: Mapping[Path, HostTotals], typed: Mapping[Path, str]) -> TraceFigures | None:
    """The figures of several hosts together; None if there are no such, or they cannot be computed."""
    if len(traces) < 2:
        return None
    from tpumon.report.profiles import why_apart  # one host's figures need none of a report

    if words := why_apart(traces.items(), typed):
        _log.warning("all hosts: %s", words)
        return None
    try:
        return figures_of_hosts(list(traces.values()))
    except Exception as error:  # noqa: BLE001 - each host's own figures are printed all the same
        _log.warning("all hosts: %s", bug(error))
        return None


def read_host(file: Path) -> AnalyzedHost:
    """Reads a file. Whatever is wrong with it concerns this file alone."""
    name = file_title(file)
    try:
        return _host(file, name)
    except Exception as error:  # noqa: BLE001 - files come from anywhere, and the others are still to be read
        reason, message = why_unread(error)
        _log.warning("%s: %s", file, message)
        failed = Sample(
            worker=name,
            address=str(file),
            time_unix_s=0.0,
            window_s=None,
            took_s=0.0,
            errors=(Failure(source="file", reason=reason, message=message),),
        )
        return AnalyzedHost(name=name, trace=None, sample=failed)


def _host(file: Path, name: str) -> AnalyzedHost:
    with opened(file) as trace_file:
        trace = read_host_totals(trace_file)
    host = figures_of_hosts([trace])
    name = next(iter(host.hostnames), "") or name
    time_unix_s = trace.start_unix_s if trace.start_unix_s is not None else modified(file)
    sample = file_sample(name, str(file), time_unix_s, host)
    return AnalyzedHost(name=name, trace=trace, sample=sample)


def file_sample(name: str, address: str, time_unix_s: float, trace: TraceFigures) -> Sample:
    """The figures of a file as a sample.

    Args:
        name: of the worker.
        address: path of the file; "" for several.
        time_unix_s: when its window began.
        trace: its figures.
    """
    sample = Sample(
        worker=name,
        address=address,
        time_unix_s=time_unix_s,
        window_s=trace.window_s,
        took_s=0.0,
        source="file",
        simulated=trace.simulated,
        device_type=trace.device_type,
        cores=trace.core_count,
        figures=trace.figures,
        truncated=trace.truncated,
        warnings=trace.warnings,
    )
    return bounded(sample)


def judge_capture(samples: Sequence[Sample], thresholds: Thresholds) -> FleetStatus:
    """The status of the hosts of one profile when it began, from one sample of each."""
    from tpumon.analysis import Analysis  # figures alone need none

    begin_unix_s = max(sample.time_unix_s for sample in samples)
    names: dict[str, None] = {}
    for number, sample in enumerate(samples):
        names[f"{sample.worker}#{number}" if sample.worker in names else sample.worker] = None
    named = [
        replace(sample, worker=name, time_unix_s=begin_unix_s) for name, sample in zip(names, samples, strict=True)
    ]
    fleet = Analysis(replace(thresholds, sustained=1))
    fleet.add(Workers(targets=tuple(Target(worker=sample.worker, address=sample.address) for sample in named)))
    fleet.add_together(named)
    return fleet.status(begin_unix_s)


def _combined_sample(hosts: Sequence[AnalyzedHost], combined: TraceFigures) -> Sample:
    read = [host for host in hosts if host.trace is not None]
    return file_sample(f"all {len(read)} hosts", "", min(host.sample.time_unix_s for host in read), combined)


def _warnings(
    hosts: Sequence[AnalyzedHost], combined: TraceFigures | None
) -> Iterable[tuple[str, Sequence[FigureWarning]]]:
    seen: set[FigureWarning] = set()
    for host in hosts:
        seen.update(host.sample.warnings)
        yield host.name, host.sample.warnings
    if combined is not None:
        yield "all hosts", [warning for warning in combined.warnings if warning not in seen]


def _print_text(hosts: Sequence[AnalyzedHost], combined: TraceFigures | None) -> None:
    blocks = [(host.name, host.sample) for host in hosts if host.trace is not None]
    if combined is not None:
        sample = _combined_sample(hosts, combined)
        blocks.append((sample.worker, sample))
    for name, sample in blocks:
        title = f"Worker: {name}\n" if len(hosts) > 1 else ""
        show(f"{title}{render_block(sample, level=2)}\n")


def _print_json(hosts: Sequence[AnalyzedHost], combined: TraceFigures | None) -> None:
    """Prints one object: "hosts", each a Sample; "combined", the same fields for all readable hosts, or null."""
    together: Sample | None = None
    if combined is not None:
        together = _combined_sample(hosts, combined)
    elif len(readable := [host for host in hosts if host.trace is not None]) == 1:
        together = readable[0].sample
    documents = [host.sample.document() for host in hosts]
    show(encoded({"hosts": documents, "combined": None if together is None else together.document()}))
