"""The section ops (XProf: op profile, HLO stats): time of devices by program, category, path and op; rows of hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict, replace

from tpumon.report.blocks import Block, Facts, Lines, ReportColumn, Table
from tpumon.report.formats import (
    NOT_KNOWN,
    byte_rate_text,
    count_text,
    flop_rate_text,
    percent_text,
    share_text,
    time_text,
)
from tpumon.report.kernels import (
    GpuOpRow,
    KernelRow,
    gpu_idle_s,
    gpu_op_rows,
    gpu_op_table,
    gpu_time_s,
    kernel_rows,
    kernel_table,
)
from tpumon.report.op_totals import OpTotals, grouped, intensity, moved, op_totals, roofline
from tpumon.report.profiles import Capture, Choice
from tpumon.untrusted_text import one_line
from tpumon.xspace.profile.host_ops import HostOp, merged_host_ops
from tpumon.xspace.profile.op_times import Op
from tpumon.xspace.profile.op_work import OpWork

_COLUMNS = (
    ReportColumn("event", lambda op: op.name, wide=True),
    ReportColumn("share", lambda op: op.time_ratio, percent_text),
    ReportColumn("self time", lambda op: op.self_time_s, time_text),
    ReportColumn("time", lambda op: op.time_s, time_text),
    ReportColumn("times", lambda op: op.occurrences, count_text),
)
_UNKNOWN_PLACE = "(not in the trace)"
_WORTH_SHOWING = 0.001  # of all time; smaller nodes of paths are left out
_TEXT = 400  # characters of HLO text
_DEEPEST = 24  # parts of a path
_WORK_COLUMNS = (
    ReportColumn("share", lambda row: row.time_ratio, percent_text),
    ReportColumn("self time", lambda row: row.self_time_s, time_text),
    ReportColumn("times", lambda row: row.occurrences, count_text, rank=2),
    ReportColumn(
        "FLOP rate",
        lambda row: row.flops_rate,
        flop_rate_text,
        rank=4,
        above_peak=lambda row: row.flops_utilization_ratio == 1,
    ),
    ReportColumn("of peak", lambda row: row.flops_utilization_ratio, percent_text, rank=1),
    ReportColumn(
        "HBM rate",
        lambda row: row.hbm_rate,
        byte_rate_text,
        rank=5,
        above_peak=lambda row: row.hbm_utilization_ratio == 1,
    ),
    ReportColumn("HBM of peak", lambda row: row.hbm_utilization_ratio, percent_text, rank=1),
)
_OP_COLUMNS = (
    ReportColumn("operation", lambda op: op.name, wide=True),
    ReportColumn("category", lambda op: op.category, wide=True),
    *_WORK_COLUMNS,
    ReportColumn("FLOP/byte", lambda op: op.operational_intensity, count_text, rank=3),
    ReportColumn("bound by", lambda op: op.bound_by or NOT_KNOWN),
    ReportColumn("optimal", lambda op: op.optimal_flops_rate, flop_rate_text, rank=4),
    ReportColumn(
        "efficiency",
        lambda op: op.efficiency_ratio,
        percent_text,
        rank=2,
        above_peak=lambda op: op.efficiency_ratio == 1,
    ),
)


class HostOpRow(HostOp, frozen=True, kw_only=True, eq=False):
    """The events of one name on the threads of all hosts.

    Attributes:
        time_ratio: self time as a share of the time of all threads, idle time included.
    """

    time_ratio: float | None


class HostWork(Struct, frozen=True, kw_only=True):
    """Work of the threads of all hosts.

    Attributes:
        reason: why there is none; None if there is.
        threads: those that have events.
        total_time_s: from the first to the last event of each thread, added up.
        busy_s: the part of that in which an event ran.
        count: different names, as far as chosen.
        ops: longest first.
    """

    reason: str | None
    threads: int
    total_time_s: float | None
    busy_s: float | None
    count: int
    ops: tuple[HostOpRow, ...]


def host_work(capture: Capture, choice: Choice) -> HostWork:
    """The rows of all hosts; events of the host tell no program, so that none is left where one is asked for."""
    hosts = [host.profile.host_threads for host in capture.hosts]
    ops = merged_host_ops(op for host in hosts for op in host.ops)
    total_s = sum(host.total_s for host in hosts)
    words = (choice.words or "").casefold()
    chosen = [op for op in ops if words in op.name.casefold()] if choice.program is None else []
    reason = None
    if not ops:
        reason = "the trace has no event of the host's threads; profiles with --host-tracer-level 1 or 2 have some"
    elif not chosen:
        reason = "the host's events tell no program" if choice.program is not None else "no event has such a name"
    return HostWork(
        reason=reason,
        threads=sum(host.threads for host in hosts),
        total_time_s=total_s if ops else None,
        busy_s=sum(host.busy_s for host in hosts) if ops else None,
        count=len(chosen),
        ops=tuple(
            HostOpRow(**asdict(op), time_ratio=op.self_time_s / total_s if total_s else None)
            for op in chosen[: choice.top]
        ),
    )


def host_block(work: HostWork) -> Block:
    """The rows as a table; the reason where there is none."""
    title = "Threads of the host"
    if work.reason is not None:
        return Lines(title=title, lines=(work.reason,))
    total_s, busy_s = work.total_time_s or 0.0, work.busy_s or 0.0
    note = f"{work.threads} threads, {time_text(total_s)} together, {share_text(busy_s, total_s)} in an event"
    left_out = work.count - len(work.ops)
    more = f"; {left_out} more; --top shows more of them" if left_out else ""
    return Table(title=title, columns=_COLUMNS, items=work.ops, note=note + more)


class OpGroup(OpWork, frozen=True, kw_only=True):
    """The work of some ops together.

    Attributes:
        name: of the program, category, source line or set of duplicates.
        ops: number of different ones.
    """

    name: str
    ops: int


class PathNode(OpWork, frozen=True, kw_only=True):
    """The work of ops below one part of a framework's path (`tf_op`), parents before what they hold.

    Attributes:
        path: from the first part on.
        depth: 0 for the first part.
    """

    path: str
    depth: int


class OpRow(OpWork, frozen=True, kw_only=True):
    """The work of one op.

    Attributes:
        name: in its program.
        program: with its number.
        category: of XLA.
        provenance: the framework's path of it.
        source: file and line.
        expression: its HLO text, shortened.
        group: the name that it shares with its duplicates.
        contents: names of the instructions of a fusion, where the trace says.
        time_s: its durations, ops within counted in.
        model_flops: as the model needs them.
        bytes_accessed: in all memories.
        chip_bytes: those moved in memories on the chip, by memory and direction.
        operational_intensity: FLOPs per byte.
        bound_by, optimal_flops_rate, efficiency_ratio: see Roofline.
    """

    name: str
    program: str
    category: str
    provenance: str
    source: str
    expression: str
    group: str
    contents: tuple[str, ...]
    time_s: float
    model_flops: float
    bytes_accessed: float | None
    chip_bytes: Mapping[str, float]
    operational_intensity: float | None
    bound_by: str | None
    optimal_flops_rate: float | None
    efficiency_ratio: float | None


class Ops(Struct, frozen=True, kw_only=True):
    """The devices' time.

    Attributes:
        total_time_s: of all cores, or GPUs, idle time included.
        idle_s: without any op.
        peak_flops_rate, peak_hbm_rate: of one core; None where they are not known.
        chosen: the limits of the tables, in words; "" for nothing.
        count: ops that ran, as far as chosen.
        by_program, by_category, by_source, groups, ops: longest first; `groups` are duplicates with each other.
        by_provenance: as a tree.
        gpu_ops, kernels: of GPUs, longest first.
        host: the time of the host's threads.
    """

    total_time_s: float
    idle_s: float
    peak_flops_rate: float | None
    peak_hbm_rate: float | None
    chosen: str
    count: int
    by_program: tuple[OpGroup, ...]
    by_category: tuple[OpGroup, ...]
    by_provenance: tuple[PathNode, ...]
    by_source: tuple[OpGroup, ...]
    groups: tuple[OpGroup, ...]
    ops: tuple[OpRow, ...]
    gpu_ops: tuple[GpuOpRow, ...]
    kernels: tuple[KernelRow, ...]
    host: HostWork


def build(capture: Capture, choice: Choice) -> Ops:
    totals = op_totals(capture)
    ops = totals.chosen(choice)
    duplicated = _grouped(ops, totals, lambda op: f"{totals.program(op)}\n{op.category}\n{op.group}")
    return Ops(
        total_time_s=totals.total_s + gpu_time_s(capture),
        idle_s=max(totals.total_s - totals.op_time_s, 0.0) + gpu_idle_s(capture),
        peak_flops_rate=totals.peak.flops_per_s,
        peak_hbm_rate=totals.peak.hbm_bytes_per_s,
        chosen=choice.title,
        count=len(ops),
        by_program=_grouped(ops, totals, totals.program)[: choice.top],
        by_category=_grouped(ops, totals, lambda op: op.category)[: choice.top],
        by_provenance=_tree(ops, totals, choice.top),
        by_source=_grouped(ops, totals, lambda op: op.source or _UNKNOWN_PLACE)[: choice.top],
        groups=_named([group for group in duplicated if group.ops > 1][: choice.top], ops),
        ops=tuple(_op_row(op, totals) for op in ops[: choice.top]),
        gpu_ops=gpu_op_rows(capture, choice),
        kernels=kernel_rows(capture, choice),
        host=host_work(capture, choice),
    )


def _named(groups: Iterable[OpGroup], ops: Sequence[Op]) -> tuple[OpGroup, ...]:
    """Sets of duplicates by their longest members' names; XProf: CopySymbolDetailsToDeduplicatedNode."""
    longest = {op.group: op.name for op in reversed(ops)}
    owns = [(group, group.name.rpartition("\n")[2]) for group in groups]
    return tuple(replace(group, name=longest.get(own, own)) for group, own in owns)


def _grouped(ops: Sequence[Op], totals: OpTotals, name_of: Callable[[Op], str]) -> tuple[OpGroup, ...]:
    groups = grouped(ops, name_of).items()
    made = [OpGroup(name=name, ops=len(members), **asdict(totals.work(members))) for name, members in groups]
    return tuple(sorted(made, key=lambda group: (-group.self_time_s, group.name)))


def _tree(ops: Sequence[Op], totals: OpTotals, top: int) -> tuple[PathNode, ...]:
    """The nodes of paths that take most time, at most `top` of them, parents before what they hold."""
    members: dict[tuple[str, ...], list[Op]] = {}
    for op in ops:
        parts = tuple(part for part in op.provenance.split("/") if part)[:_DEEPEST] or (_UNKNOWN_PLACE,)
        for depth in range(1, len(parts) + 1):
            members.setdefault(parts[:depth], []).append(op)
    time_s = {path: sum(op.self_time_s for op in below) for path, below in members.items()}
    # A node takes no more time than its parent, so a parent is kept where its child is.
    longest = sorted(members, key=lambda path: (-time_s[path], len(path), path))[:top]
    kept = {path for path in longest if time_s[path] >= _WORTH_SHOWING * totals.total_s}

    def place(path: tuple[str, ...]) -> list[tuple[float, str]]:
        return [(-time_s[path[: depth + 1]], path[depth]) for depth in range(len(path))]

    return tuple(
        PathNode(path="/".join(path), depth=len(path) - 1, **asdict(totals.work(members[path])))
        for path in sorted(kept, key=place)
    )


def _op_row(op: Op, totals: OpTotals) -> OpRow:
    return OpRow(
        name=op.name,
        program=totals.program(op),
        category=op.category,
        provenance=op.provenance,
        source=op.source,
        expression=one_line(op.expression, limit=_TEXT),
        group=op.group,
        contents=op.contents,
        time_s=op.time_s,
        model_flops=op.model_flops,
        bytes_accessed=op.bytes_accessed,
        chip_bytes=moved(op.traffic),
        operational_intensity=intensity(op),
        **asdict(roofline(op, totals)),
        **asdict(totals.work_of_one(op)),
    )


def blocks(ops: Ops) -> list[Block]:
    facts = [
        ("Time of all cores", time_text(ops.total_time_s)),
        ("Idle", f"{time_text(ops.idle_s)} ({share_text(ops.idle_s, ops.total_time_s)})"),
        ("Peak of one core", f"{flop_rate_text(ops.peak_flops_rate)}, HBM {byte_rate_text(ops.peak_hbm_rate)}"),
        ("Different ops", str(ops.count)),
    ]
    if not ops.total_time_s:
        facts = [("Devices", "none in the trace")]
    if ops.chosen:
        facts.append(("Limited to", ops.chosen))
    made: list[Block] = [Facts(title="Devices", rows=facts)]
    if ops.gpu_ops:
        made.append(gpu_op_table(ops.gpu_ops))
    if ops.kernels:
        made.append(kernel_table(ops.kernels))
    if ops.ops:
        made += _op_blocks(ops)
    return [*made, host_block(ops.host)]


def _op_blocks(ops: Ops) -> list[Block]:
    made: list[Block] = [op_table("Operations", ops.ops, left_out=ops.count - len(ops.ops))]
    for title, first, groups in (
        ("By program", "program", ops.by_program),
        ("By category", "category", ops.by_category),
        ("By source line", "source", ops.by_source),
        ("Duplicates", "operation and its duplicates", ops.groups),
    ):
        if groups:
            made.append(_group_table(title, first, groups))
    if ops.by_provenance:
        note = f"nodes below {percent_text(_WORTH_SHOWING)} of the time are left out"
        columns = (ReportColumn("path", _indented, wide=True), *_WORK_COLUMNS)
        made.append(Table(title="By path in the framework", columns=columns, items=ops.by_provenance, note=note))
    return made


def _group_table(title: str, first: str, groups: Sequence[OpGroup]) -> Table:
    name = ReportColumn(first, lambda group: group.name, wide=True, tail=first == "source")
    count = ReportColumn("ops", lambda group: group.ops, count_text, rank=3)
    return Table(title=title, columns=(name, count, *_WORK_COLUMNS), items=groups)


def _indented(node: PathNode) -> str:
    """The last part of a path; parts below each other are moved to the right."""
    return "\N{NO-BREAK SPACE}" * 2 * node.depth + node.path.rpartition("/")[2]


def op_table(title: str, rows: Sequence[OpRow], *, left_out: int = 0) -> Table:
    """A table of single ops."""
    note = f"{left_out} more; --top shows more of them" if left_out > 0 else ""
    return Table(title=title, columns=_OP_COLUMNS, items=rows, note=note)
