"""Rows of the host (XProf: framework op stats): the time of its threads by the name of their events."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict

from tpumon.report.blocks import Block, Lines, ReportColumn, Table
from tpumon.report.formats import count_text, percent_text, share_text, time_text
from tpumon.report.profiles import Capture, Choice
from tpumon.xspace.profile.host_ops import HostOp, merged_host_ops


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


_COLUMNS = (
    ReportColumn("event", lambda op: op.name, wide=True),
    ReportColumn("share", lambda op: op.time_ratio, percent_text),
    ReportColumn("self time", lambda op: op.self_time_s, time_text),
    ReportColumn("time", lambda op: op.time_s, time_text),
    ReportColumn("times", lambda op: op.occurrences, count_text),
)
