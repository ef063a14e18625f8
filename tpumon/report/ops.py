"""The section ops: op profile and HLO stats in one. Where the devices' time goes, by program, category, path and op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict, replace

from tpumon.report.blocks import Block, Cell, Column, Facts, Table
from tpumon.report.capture import Capture, Choice
from tpumon.report.words import (
    NOT_KNOWN,
    count_cell,
    flop_rate_cell,
    flop_rate_word,
    percent_cell,
    percent_word,
    rate_cell,
    rate_word,
    time_cell,
    time_word,
)
from tpumon.report.work import Ledger, bound_by, intensity, ledger, moved, work_of, work_of_one
from tpumon.untrusted_text import one_line
from tpumon.xspace.profile.op_work import OpWork

if TYPE_CHECKING:
    from tpumon.xspace.profile.op_times import Op

_UNKNOWN_PLACE = "(not in the trace)"
_WORTH_SHOWING = 0.001  # of all time; smaller nodes of paths are left out
_TEXT = 400  # characters of HLO text
_DEEPEST = 24  # parts of a path


class Group(OpWork, frozen=True, kw_only=True):
    """What some ops did together.

    Attributes:
        name: of the program, category, source line or set of duplicates.
        ops: how many different ones.
    """

    name: str
    ops: int


class Node(OpWork, frozen=True, kw_only=True):
    """What ops did below one part of a framework's path (`tf_op`), parents before what they hold.

    Attributes:
        path: from the first part on.
        depth: 0 for the first part.
    """

    path: str
    depth: int


class OpRow(OpWork, frozen=True, kw_only=True):
    """What one op did.

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
        bound_by: what it uses the largest share of.
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


class Ops(Struct, frozen=True, kw_only=True):
    """Where the devices' time goes.

    Attributes:
        total_time_s: of all cores, idle time included.
        idle_s: without any op.
        peak_flops_rate, peak_hbm_rate: of one core; None where they are not known.
        chosen: what the tables are limited to, in words; "" for nothing.
        count: ops that ran, as far as chosen.
        by_program, by_category, by_source, groups, ops: longest first; `groups` are duplicates with each other.
        by_provenance: as a tree.
    """

    total_time_s: float
    idle_s: float
    peak_flops_rate: float | None
    peak_hbm_rate: float | None
    chosen: str
    count: int
    by_program: tuple[Group, ...]
    by_category: tuple[Group, ...]
    by_provenance: tuple[Node, ...]
    by_source: tuple[Group, ...]
    groups: tuple[Group, ...]
    ops: tuple[OpRow, ...]


def build(capture: Capture, choice: Choice) -> Ops:
    """Adds up the ops of a capture."""
    return of_ledger(ledger(capture), choice)


def of_ledger(book: Ledger, choice: Choice) -> Ops:
    """The tables of ops that are added up already."""
    ops = book.chosen(choice)
    duplicated = _grouped(ops, book, lambda op: f"{book.program(op)}\n{op.category}\n{op.group}")
    return Ops(
        total_time_s=book.total_s,
        idle_s=max(book.total_s - book.op_time_s, 0.0),
        peak_flops_rate=book.rates.flops,
        peak_hbm_rate=book.rates.hbm,
        chosen=choice.title,
        count=len(ops),
        by_program=_grouped(ops, book, book.program)[: choice.top],
        by_category=_grouped(ops, book, lambda op: op.category)[: choice.top],
        by_provenance=_tree(ops, book, choice.top),
        by_source=_grouped(ops, book, lambda op: op.source or _UNKNOWN_PLACE)[: choice.top],
        groups=_named([group for group in duplicated if group.ops > 1][: choice.top], ops),
        ops=tuple(_row(op, book) for op in ops[: choice.top]),
    )


def _named(groups: Iterable[Group], ops: Sequence[Op]) -> tuple[Group, ...]:
    """Sets of duplicates by their longest members' names; XProf: CopySymbolDetailsToDeduplicatedNode."""
    longest = {op.group: op.name for op in reversed(ops)}
    owns = [(group, group.name.rpartition("\n")[2]) for group in groups]
    return tuple(replace(group, name=longest.get(own, own)) for group, own in owns)


def _grouped(ops: Sequence[Op], book: Ledger, name_of: Callable[[Op], str]) -> tuple[Group, ...]:
    groups: dict[str, list[Op]] = {}
    for op in ops:
        groups.setdefault(name_of(op), []).append(op)
    made = [Group(name=name, ops=len(members), **asdict(work_of(members, book))) for name, members in groups.items()]
    return tuple(sorted(made, key=lambda group: (-group.self_time_s, group.name)))


def _tree(ops: Sequence[Op], book: Ledger, top: int) -> tuple[Node, ...]:
    """The nodes of paths that take most time, at most `top` of them, parents before what they hold."""
    members: dict[tuple[str, ...], list[Op]] = {}
    for op in ops:
        parts = tuple(part for part in op.provenance.split("/") if part)[:_DEEPEST] or (_UNKNOWN_PLACE,)
        for depth in range(1, len(parts) + 1):
            members.setdefault(parts[:depth], []).append(op)
    time_s = {path: sum(op.self_time_s for op in held) for path, held in members.items()}
    # A node takes no more time than its parent, so a parent is kept where its child is.
    longest = sorted(members, key=lambda path: (-time_s[path], len(path), path))[:top]
    kept = {path for path in longest if time_s[path] >= _WORTH_SHOWING * book.total_s}

    def place(path: tuple[str, ...]) -> list[tuple[float, str]]:
        return [(-time_s[path[: depth + 1]], path[depth]) for depth in range(len(path))]

    return tuple(
        Node(path="/".join(path), depth=len(path) - 1, **asdict(work_of(members[path], book)))
        for path in sorted(kept, key=place)
    )


def _row(op: Op, book: Ledger) -> OpRow:
    return OpRow(
        name=op.name,
        program=book.program(op),
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
        bound_by=bound_by(op, book.rates),
        **asdict(work_of_one(op, book)),
    )


def blocks(ops: Ops) -> tuple[Block, ...]:
    """The section as tables."""
    facts = [
        ("Time of all cores", time_word(ops.total_time_s)),
        ("Idle", f"{time_word(ops.idle_s)} ({_share_of(ops.idle_s, ops.total_time_s)})"),
        ("Peak of one core", f"{flop_rate_word(ops.peak_flops_rate)}, HBM {rate_word(ops.peak_hbm_rate)}"),
        ("Different ops", str(ops.count)),
    ]
    if ops.chosen:
        facts.append(("Limited to", ops.chosen))
    made: list[Block] = [Facts(title="Devices", rows=tuple(facts))]
    if not ops.ops:
        return tuple(made)
    made.append(op_table("Operations", ops.ops, left_out=ops.count - len(ops.ops)))
    for title, first, groups in (
        ("By program", "program", ops.by_program),
        ("By category", "category", ops.by_category),
        ("By source line", "source", ops.by_source),
        ("Duplicates", "operation and its duplicates", ops.groups),
    ):
        if groups:
            made.append(_group_table(title, first, groups))
    if ops.by_provenance:
        made.append(_provenance_table(ops.by_provenance))
    return tuple(made)


_WORK_COLUMNS = (
    Column("share"),
    Column("self time"),
    Column("times", rank=2),
    Column("FLOP rate", rank=4),
    Column("of peak", rank=1),
    Column("HBM rate", rank=5),
    Column("HBM of peak", rank=1),
)


def _work_cells(work: OpWork) -> tuple[Cell, ...]:
    return (
        percent_cell(work.time_ratio),
        time_cell(work.self_time_s),
        count_cell(work.occurrences),
        flop_rate_cell(work.flops_rate, work.flops_utilization_ratio),
        percent_cell(work.flops_utilization_ratio),
        rate_cell(work.hbm_rate, work.hbm_utilization_ratio),
        percent_cell(work.hbm_utilization_ratio),
    )


def op_table(title: str, rows: Sequence[OpRow], *, left_out: int = 0) -> Table:
    """A table of single ops."""
    note = f"{left_out} more; --top shows more of them" if left_out > 0 else ""
    columns = (
        Column("operation", text=True, wide=True),
        Column("category", text=True, wide=True),
        *_WORK_COLUMNS,
        Column("FLOP/byte", rank=3),
        Column("bound by", text=True),
    )
    cells = tuple(
        (
            Cell(row.name),
            Cell(row.category),
            *_work_cells(row),
            count_cell(row.operational_intensity),
            Cell(row.bound_by or NOT_KNOWN),
        )
        for row in rows
    )
    return Table(title=title, columns=columns, rows=cells, note=note)


def _group_table(title: str, first: str, groups: Sequence[Group]) -> Table:
    return Table(
        title=title,
        columns=(Column(first, text=True, wide=True, tail=first == "source"), Column("ops", rank=3), *_WORK_COLUMNS),
        rows=tuple((Cell(group.name), count_cell(group.ops), *_work_cells(group)) for group in groups),
    )


def _provenance_table(nodes: Sequence[Node]) -> Table:
    """The tree; parts below each other are moved to the right."""
    rows = tuple(
        (Cell("\N{NO-BREAK SPACE}" * 2 * node.depth + node.path.rpartition("/")[2]), *_work_cells(node))
        for node in nodes
    )
    return Table(
        title="By path in the framework",
        columns=(Column("path", text=True, wide=True), *_WORK_COLUMNS),
        rows=rows,
        note=f"nodes below {percent_word(_WORTH_SHOWING)} of the time are left out",
    )


def _share_of(part: float, whole: float) -> str:
    return percent_word(part / whole if whole > 0 else None)
