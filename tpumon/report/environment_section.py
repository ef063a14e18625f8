"""The section environment: hosts, devices, versions, the profiler's options, and losses of the traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tpumon.model import SIMULATED_MARK
from tpumon.report.blocks import Block, Facts, Lines, ReportColumn, Table
from tpumon.report.formats import NOT_KNOWN, byte_rate_text, count_text, flop_rate_text, time_text, utc_text
from tpumon.report.profiles import Capture, Choice, HostProfile


class HostRow(Struct, frozen=True, kw_only=True):
    """One host.

    Attributes:
        worker: its name.
        device_type: as its trace says.
        cores: TensorCores, or GPUs.
        window_s: from the first to the last event of steps, programs and ops.
        start_unix_s: when the window began.
        duration_s: of the window, as the profiler says.
        versions: of software.
        options: of the profiler.
        truncated: the losses of its trace; None for a whole trace.
    """

    worker: str
    device_type: str | None
    cores: int
    window_s: float | None
    start_unix_s: float | None
    duration_s: float | None
    versions: Mapping[str, str]
    options: Mapping[str, str]
    truncated: str | None


class Environment(Struct, frozen=True, kw_only=True):
    """The machines and programs of a capture.

    Attributes:
        device_type: as the traces say.
        cores: of all hosts.
        simulated: whether tpumon's simulator made it.
        peak_flops_rate, peak_hbm_rate: of one core.
        hosts: one row each.
        warnings: for readers of the figures.
    """

    device_type: str | None
    cores: int
    simulated: bool
    peak_flops_rate: float | None
    peak_hbm_rate: float | None
    hosts: tuple[HostRow, ...]
    warnings: tuple[str, ...]


def build(capture: Capture, _choice: Choice) -> Environment:
    """The machines and programs of a capture."""
    figures = capture.figures
    peak = capture.hosts[-1].profile.trace.peak
    return Environment(
        device_type=figures.device_type,
        cores=figures.core_count,
        simulated=figures.simulated,
        peak_flops_rate=peak.flops_per_s,
        peak_hbm_rate=peak.hbm_bytes_per_s,
        hosts=tuple(map(_host_row, capture.hosts)),
        warnings=tuple(dict.fromkeys(warning.message for warning in figures.warnings)),
    )


def _host_row(host: HostProfile) -> HostRow:
    trace, around = host.profile.trace, host.profile.environment
    return HostRow(
        worker=host.name,
        device_type=trace.device_type,
        cores=trace.core_count,
        window_s=(trace.window_ps[1] - trace.window_ps[0]) / 1e12 if trace.window_ps else None,
        start_unix_s=around.start_unix_s,
        duration_s=around.duration_s,
        versions=dict(around.versions),
        options=dict(around.options),
        truncated=None if trace.truncation is None else trace.truncation.words,
    )


_COLUMNS = (
    ReportColumn("worker", lambda host: host.worker, wide=True),
    ReportColumn("device", lambda host: host.device_type or NOT_KNOWN),
    ReportColumn("cores", lambda host: host.cores, count_text),
    ReportColumn("window", lambda host: host.window_s, time_text),
    ReportColumn("profiler ran", lambda host: host.duration_s, time_text),
    ReportColumn("from (UTC)", lambda host: utc_text(host.start_unix_s)),
    ReportColumn("dropped events", lambda host: host.truncated or "none seen", wide=True),
)


def blocks(environment: Environment) -> list[Block]:
    hosts = environment.hosts
    made: list[Block] = [
        Facts(title="Devices", rows=device_facts(environment)),
        Table(title="Hosts", columns=_COLUMNS, items=hosts),
    ]
    for title, by_host in (
        ("Versions", [host.versions for host in hosts]),
        ("Options of the profiler", [host.options for host in hosts]),
    ):
        if rows := _common(by_host):
            made.append(Facts(title=title, rows=rows))
    if environment.warnings:
        made.append(Lines(title="Warnings", lines=environment.warnings))
    return made


def _common(by_host: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Each name with the values that hosts have of it: as a rule the same."""
    values: dict[str, dict[str, None]] = {}
    for host in by_host:
        for name, value in host.items():
            values.setdefault(name, {})[value] = None
    return [(name, ", ".join(different)) for name, different in values.items()]


def device_facts(environment: Environment) -> list[tuple[str, str]]:
    """Devices and peaks in words; without a device there are neither cores nor peaks."""
    rows = [("Device", environment.device_type or NOT_KNOWN)]
    if environment.cores:
        peak = f"{flop_rate_text(environment.peak_flops_rate)}, HBM {byte_rate_text(environment.peak_hbm_rate)}"
        rows += [("Hosts, cores", f"{len(environment.hosts)}, {environment.cores}"), ("Peak of one core", peak)]
    else:
        rows.append(("Hosts", f"{len(environment.hosts)}"))
    rows.append(("Longest window", time_text(max((host.window_s or 0.0 for host in environment.hosts), default=None))))
    return [*rows, ("Data", SIMULATED_MARK)] if environment.simulated else rows
