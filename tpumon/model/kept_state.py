"""Kept state: what verdicts rest on, so that they go on after tpumon was restarted."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from tpumon.model.documents import Amount, Count, UnixTime, at_most
from tpumon.model.finding import MOST_FINDINGS, MOST_WORKERS, FindingDetail, FindingId
from tpumon.model.state import StatusSnapshot
from tpumon.model.target import JobKind, Process

MOST_KEPT_PROGRAMS = 6
_MOST_LEVELS, _MOST_BLOCKS = 13, 16
_LONGEST_S = 1e9

_Blocks = Annotated[tuple[Annotated[float, Meta(gt=0, lt=_LONGEST_S)], ...], at_most(_MOST_BLOCKS)]


class KeptFinding(Struct, frozen=True, kw_only=True):
    """A finding of a worker that was present.

    Attributes:
        finding: its ID.
        since_unix_s: since when the worker has it.
        since_or_earlier: True if the first samples showed it already.
        until_unix_s: until when it stays without being judged; None: it was judged by the last samples.
        detail: how it concerned the worker.
    """

    finding: FindingId
    since_unix_s: UnixTime
    since_or_earlier: bool = False
    until_unix_s: UnixTime | None = None
    detail: FindingDetail = field(default_factory=FindingDetail)


class KeptActivity(Struct, frozen=True, kw_only=True):
    """Last activity of a worker.

    Attributes:
        active_unix_s: when; None: never.
        silent_unix_s: since when its silence counts; None: it is not silent.
        silent: number of samples since then without activity.
        longest_s: its longest pause that ended by itself, in seconds.
        step_s: its step time, in seconds; None: not known.
    """

    active_unix_s: UnixTime | None = None
    silent_unix_s: UnixTime | None = None
    silent: Count = 0
    longest_s: Amount = 0.0
    step_s: Amount | None = None


class KeptSlowDown(Struct, frozen=True, kw_only=True):
    """A slow-down of a program.

    Attributes:
        level: of the blocks that showed it.
        since_unix_s: begin of the first of them.
        before_s, now_s: step times, in seconds.
        limit_ratio: by which steps must be longer to count.
    """

    level: Annotated[int, Meta(ge=0, lt=_MOST_LEVELS)]
    since_unix_s: UnixTime
    before_s: Annotated[float, Meta(gt=0, lt=_LONGEST_S)]
    limit_ratio: Annotated[float, Meta(gt=0)]
    now_s: Annotated[float, Meta(gt=0, lt=_LONGEST_S)]


class KeptProgram(Struct, frozen=True, kw_only=True):
    """Step times of a program.

    Attributes:
        source, step_source, step_name, program: what tells it from others.
        flops: MXU utilization times step time, where nothing else does.
        steps_s: its last blocks of 1, 2, 4 ... samples, in seconds.
        slow: its slow-down; None: it has none.
    """

    steps_s: Annotated[tuple[_Blocks, ...], at_most(_MOST_LEVELS)]
    slow: KeptSlowDown | None = None
    source: str | None = None
    step_source: str | None = None
    step_name: str | None = None
    program: str | None = None
    flops: Amount | None = None


class KeptWorker(Struct, frozen=True, kw_only=True):
    """A worker.

    Attributes:
        job, slice, worker: its key.
        kept_unix_s: when it was kept by who followed it.
        process, uptime_s: of its job; another one is a restart.
        job_kind: the kind of its job.
        snapshot: its state and severity, and since when.
        findings: those that were present.
        activity: when it last did something.
        programs: its step times.
    """

    worker: str
    kept_unix_s: UnixTime
    snapshot: StatusSnapshot
    job: str | None = None
    slice: str | None = None
    process: Process | None = None
    uptime_s: Amount | None = None
    job_kind: JobKind | None = None
    findings: Annotated[tuple[KeptFinding, ...], at_most(MOST_FINDINGS)] = ()
    activity: KeptActivity = field(default_factory=KeptActivity)
    programs: Annotated[tuple[KeptProgram, ...], at_most(MOST_KEPT_PROGRAMS)] = ()


class KeptState(Struct, frozen=True, kw_only=True):
    """All workers.

    Attributes:
        time_unix_s: when it was kept.
        host: the host that samples them; None: others sample them.
        workers: the workers.
    """

    time_unix_s: UnixTime
    host: str | None = None
    workers: Annotated[tuple[KeptWorker, ...], at_most(MOST_WORKERS)] = ()
