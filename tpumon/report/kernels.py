"""Tables of GPUs (XProf: kernel stats): the time by kernel and by op."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from tpumon.report.blocks import ReportColumn, Table
from tpumon.report.formats import NOT_KNOWN, count_text, percent_text, size_text, time_text
from tpumon.report.op_totals import grouped
from tpumon.report.profiles import Capture, Choice
from tpumon.xspace.profile.kernels import Kernel, KernelKind, merged_kernels
from tpumon.xspace.profile.op_work import per


class LaunchTimes(Struct, frozen=True, kw_only=True):
    """Launches on all GPUs; their streams run beside each other, so that times may add up to more than there is.

    Attributes:
        occurrences: how often.
        time_s: durations, added up.
        time_ratio: the same as a share of the time of all GPUs, idle time included.
        avg_s, min_s, max_s: of one launch.
    """

    occurrences: int
    time_s: float
    time_ratio: float
    avg_s: float
    min_s: float
    max_s: float


class KernelRow(LaunchTimes, frozen=True, kw_only=True):
    """One kernel, launched in one way for one op; fields as in KernelKind."""

    name: str
    provenance: str
    op: str
    program: str
    registers: int | None
    shared_bytes: int | None
    block: str | None
    grid: str | None
    occupancy_ratio: float | None


class GpuOpRow(LaunchTimes, frozen=True, kw_only=True):
    """The kernels of one op.

    Attributes:
        name: of XLA; or the framework's path where the trace does not say.
        program: of XLA.
        provenance: the framework's path.
        kernels: number of different ones.
    """

    name: str
    program: str
    provenance: str
    kernels: int


def kernel_rows(capture: Capture, choice: Choice) -> tuple[KernelRow, ...]:
    """The kernels of all hosts, the longest first, as far as chosen."""
    total_s = gpu_time_s(capture)
    return tuple(
        KernelRow(**asdict(one.kind), **asdict(_times(one, total_s))) for one in _chosen(capture, choice)[: choice.top]
    )


def gpu_op_rows(capture: Capture, choice: Choice) -> tuple[GpuOpRow, ...]:
    """The ops of all hosts, the longest first, as far as chosen."""
    kernels, total_s = _chosen(capture, choice), gpu_time_s(capture)
    of_ops = grouped(kernels, lambda one: _op_of(one.kind))
    return tuple(
        GpuOpRow(
            name=name,
            program=program,
            provenance=one.kind.provenance,
            kernels=len({each.kind.name for each in of_ops[program, name]}),
            **asdict(_times(one, total_s)),
        )
        for one in merged_kernels(kernels, _op_of)
        for program, name in [_op_of(one.kind)]
        if name
    )[: choice.top]


def _op_of(kind: KernelKind) -> tuple[str, str]:
    """The program and the op that a kernel is of; the framework's path where the trace does not name the op."""
    return kind.program, kind.op or kind.provenance


def gpu_time_s(capture: Capture) -> float:
    """The time of all GPUs, from the first to the last event on a stream of each."""
    return sum(host.profile.trace.gpus.total_ps for host in capture.hosts) / 1e12


def gpu_idle_s(capture: Capture) -> float:
    """The time of all GPUs in which no stream ran anything."""
    busy_s = sum(host.profile.trace.gpus.busy_ps for host in capture.hosts) / 1e12
    return max(gpu_time_s(capture) - busy_s, 0.0)


def _chosen(capture: Capture, choice: Choice) -> tuple[Kernel, ...]:
    kernels = (kernel for host in capture.hosts for kernel in host.profile.kernels)
    picked = [one for one in kernels if choice.picks(one.kind.program, one.kind.name, one.kind.op, one.kind.provenance)]
    return merged_kernels(picked, lambda kind: kind)


def _times(kernel: Kernel, total_s: float) -> LaunchTimes:
    return LaunchTimes(
        occurrences=kernel.occurrences,
        time_s=kernel.time_s,
        time_ratio=per(kernel.time_s, total_s),
        avg_s=per(kernel.time_s, kernel.occurrences),
        min_s=kernel.min_s,
        max_s=kernel.max_s,
    )


_TIMES = (
    ReportColumn("share", lambda row: row.time_ratio, percent_text),
    ReportColumn("time", lambda row: row.time_s, time_text),
    ReportColumn("times", lambda row: row.occurrences, count_text, rank=2),
    ReportColumn("mean", lambda row: row.avg_s, time_text, rank=1),
    ReportColumn("min", lambda row: row.min_s, time_text, rank=4),
    ReportColumn("max", lambda row: row.max_s, time_text, rank=3),
)


def kernel_table(rows: Sequence[KernelRow]) -> Table:
    columns = (
        ReportColumn("kernel", lambda row: row.name, wide=True),
        ReportColumn("operation", lambda row: row.op or row.provenance or NOT_KNOWN, wide=True),
        *_TIMES,
        ReportColumn("grid", lambda row: row.grid or NOT_KNOWN, rank=5),
        ReportColumn("block", lambda row: row.block or NOT_KNOWN, rank=5),
        ReportColumn("registers", lambda row: row.registers, count_text, rank=6),
        ReportColumn("shared", lambda row: row.shared_bytes, size_text, rank=6),
        ReportColumn("occupancy", lambda row: row.occupancy_ratio, percent_text, rank=2),
    )
    return Table(title="Kernels", columns=columns, items=rows)


def gpu_op_table(rows: Sequence[GpuOpRow]) -> Table:
    """A table of the ops that kernels are of."""
    columns = (
        ReportColumn("operation", lambda row: row.name, wide=True),
        ReportColumn("program", lambda row: row.program or NOT_KNOWN, wide=True),
        *_TIMES,
        ReportColumn("kernels", lambda row: row.kernels, count_text, rank=3),
        ReportColumn("path", lambda row: row.provenance or NOT_KNOWN, wide=True),
    )
    return Table(title="Operations of GPUs", columns=columns, items=rows)
