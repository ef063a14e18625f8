"""The section environment: hosts, devices, versions, the profiler's options, and what is missing from the trace."""

from __future__ import annotations

import time
from collections.abc import Mapping

from msgspec import Struct

from tpumon.model import SIMULATED_MARK
from tpumon.report.blocks import Block, Cell, Column, Facts, Lines, Table
from tpumon.report.capture import Capture, Choice
from tpumon.report.words import count_cell, flop_rate_word, rate_word, time_cell, time_word


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
        truncated: what is missing; None for a whole trace.
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
    """Where a capture was taken.

    Attributes:
        device_type: as the traces say.
        cores: of all hosts.
        simulated: whether tpumon's simulator made it.
        peak_flops_rate, peak_hbm_rate: of one core.
        hosts: one row each.
        warnings: what a reader of the figures should know.
    """

    device_type: str | None
    cores: int
    simulated: bool
    peak_flops_rate: float | None
    peak_hbm_rate: float | None
    hosts: tuple[HostRow, ...]
    warnings: tuple[str, ...]


def build(capture: Capture, _choice: Choice) -> Environment:
    """Where a capture was taken."""
    figures = capture.figures
    peak = capture.hosts[-1].profile.trace.peak
    return Environment(
        device_type=figures.device_type,
        cores=figures.cores,
        simulated=figures.simulated,
        peak_flops_rate=peak.flops_per_s,
        peak_hbm_rate=peak.hbm_bytes_per_s,
        hosts=tuple(_row(capture, i) for i in range(len(capture.hosts))),
        warnings=tuple(dict.fromkeys(caution.message for caution in figures.warnings)),
    )


def _row(capture: Capture, i: int) -> HostRow:
    host = capture.hosts[i]
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


def blocks(environment: Environment) -> tuple[Block, ...]:
    """The section as facts and a table."""
    made: list[Block] = [Facts(title="Devices", rows=tuple(facts(environment)))]
    made.append(
        Table(
            title="Hosts",
            columns=(
                Column("worker", text=True, wide=True),
                Column("device", text=True),
                Column("cores"),
                Column("window"),
                Column("profiler ran"),
                Column("from (UTC)", text=True),
                Column("dropped events", text=True, wide=True),
            ),
            rows=tuple(
                (
                    Cell(host.worker),
                    Cell(host.device_type or "n/a"),
                    count_cell(host.cores),
                    time_cell(host.window_s),
                    time_cell(host.duration_s),
                    Cell(_clock(host.start_unix_s)),
                    Cell(host.truncated or "none seen"),
                )
                for host in environment.hosts
            ),
        )
    )
    for title, said in (
        ("Versions", [host.versions for host in environment.hosts]),
        ("Options of the profiler", [host.options for host in environment.hosts]),
    ):
        # Hosts of one capture have the same, as a rule: one table of what each value is said by.
        values: dict[str, list[str]] = {}
        for each in said:
            for name, value in each.items():
                if value not in values.setdefault(name, []):
                    values[name].append(value)
        if values:
            made.append(Facts(title=title, rows=tuple((name, ", ".join(found)) for name, found in values.items())))
    if environment.warnings:
        made.append(Lines(title="Warnings", lines=environment.warnings))
    return tuple(made)


def facts(environment: Environment) -> list[tuple[str, str]]:
    """Devices and peaks in words."""
    rows = [
        ("Device", environment.device_type or "n/a"),
        ("Hosts, cores", f"{len(environment.hosts)}, {environment.cores}"),
        (
            "Peak of one core",
            f"{flop_rate_word(environment.peak_flops_rate)}, HBM {rate_word(environment.peak_hbm_rate)}",
        ),
        ("Longest window", time_word(max((host.window_s or 0.0 for host in environment.hosts), default=None))),
    ]
    if environment.simulated:
        rows.append(("Data", SIMULATED_MARK))
    return rows


def _clock(time_unix_s: float | None) -> str:
    if time_unix_s is None:
        return "n/a"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time_unix_s))
    except (OverflowError, ValueError, OSError):
        return "n/a"
