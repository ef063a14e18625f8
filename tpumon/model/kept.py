"""Kept state: what verdicts rest on, so that they go on after tpumon was restarted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tpumon.model.codec import limited
from tpumon.model.finding import Confidence, Evidence, FindingId, Grade
from tpumon.model.frozen import frozen
from tpumon.model.state import Standing
from tpumon.model.target import Process

_MOST_WORKERS = 10_000
_MOST_FINDINGS = 30
_MOST_PROGRAMS = 6
_LONGEST = 1000


@frozen
class KeptFinding:
    """A finding of a worker that was present.

    Attributes:
        finding: its ID.
        since_unix_s: since when the worker has it.
        since_or_earlier: True if the first samples showed it already.
        words, sentence, severity, confidence, figure, remedy, evidence: as in `tpumon.analysis.findings.Account`.
    """

    finding: FindingId
    since_unix_s: float
    since_or_earlier: bool = False
    words: str = field(default="", metadata=limited(_LONGEST))
    sentence: str = field(default="", metadata=limited(_LONGEST))
    severity: Grade = "warning"
    confidence: Confidence = "medium"
    figure: str | None = None
    remedy: str | None = None
    evidence: Mapping[str, Evidence] = field(default_factory=dict)


@frozen
class KeptActivity:
    """When a worker last did something.

    Attributes:
        active_unix_s: when; None: never.
        silent: number of samples since then without activity.
        longest_s: its longest pause that ended by itself, in seconds.
    """

    active_unix_s: float | None = None
    silent: int = 0
    longest_s: float = 0.0


@frozen
class KeptProgram:
    """Step times of a program as it can run, in seconds, and how much they vary, as a fraction.

    Attributes:
        source, step_source, step_name, program: what tells it from others.
        flops: MXU utilization times step time, where nothing else does.
        step_s, step_spread: of its steps.
        work_s, work_spread: of its own work in a step.
    """

    step_s: float
    step_spread: float = 0.0
    work_s: float | None = None
    work_spread: float = 0.0
    source: str | None = None
    step_source: str | None = None
    step_name: str | None = None
    program: str | None = None
    flops: float | None = None


@frozen
class KeptWorker:
    """A worker.

    Attributes:
        job, slice, worker: its key.
        process, uptime_s: of its job; another one is a restart.
        standing: its state and severity, and since when.
        findings: those that were present.
        activity: when it last did something.
        programs: its step times.
    """

    worker: str
    standing: Standing
    job: str | None = None
    slice: str | None = None
    process: Process | None = None
    uptime_s: float | None = None
    findings: tuple[KeptFinding, ...] = field(default=(), metadata=limited(_MOST_FINDINGS))
    activity: KeptActivity = field(default_factory=KeptActivity)
    programs: tuple[KeptProgram, ...] = field(default=(), metadata=limited(_MOST_PROGRAMS))


@frozen
class KeptState:
    """All workers.

    Attributes:
        time_unix_s: when it was kept.
        host: the host that samples them; None: others sample them.
        workers: the workers.
    """

    time_unix_s: float
    host: str | None = None
    workers: tuple[KeptWorker, ...] = field(default=(), metadata=limited(_MOST_WORKERS))
