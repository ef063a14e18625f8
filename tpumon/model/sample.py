"""One query of one worker, and the warnings that qualify its figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from msgspec import UNSET, Raw, Struct, UnsetType, defstruct, field
from msgspec.json import decode
from msgspec.structs import replace

from tpumon.errors import MEANING, NOT_SEEN, Detail, Reason, SourceError
from tpumon.model.documents import Count, UnixTime, at_most, decoded, encoded, fields_of
from tpumon.model.figures import Figures
from tpumon.model.finding import MOST_FINDINGS, Cause, FindingId
from tpumon.model.target import JobKind, JobKindName, Process

SIMULATED_MARK = "Simulated by tpumon"
"""Start of the line that marks every text, trace and metric of the simulator."""

WarningCode = Literal[
    "truncated",
    "lighter",
    "impossible-times",
    "impossible-values",
    "peaks-from-table",
    "custom-call-flops",
    "hbm-incomplete",
    "missing-cores",
    "pauses",
    "long-steps",
    "gpu",
    "unclear-device",
    "runtime-error",
    "profiler",
    "capped",
]
"""Kind of a warning. `profiler`: the message comes from the profiler itself; `capped`: there is too much of something,
and the rest is left out."""
SCHEMA_VERSION = 1
_RUNTIME = "runtime"
"""In JSON, the source of a sample that only the runtime metric service answered, whatever the sender's version."""
EXPORTER = "exporter"
"""The source of failures of the exporter behind --from, which say nothing about a worker."""
_STALE_INTERVALS = 2.5
_MOST_TROUBLES = 20
NOT_IN_JSON = frozenset(
    {
        *("figures", "warnings", "companions_only", "server_text", "taken_monotonic_s", "is_activity_checked"),
        *("step_durations_s", "runtime_latencies", "runtime_counts", "traced_programs"),
    }
)
"""Fields of a sample and of its figures that a Sample object has not, or has otherwise."""


class FigureWarning(Struct, frozen=True):
    """A warning about the figures of a sample; `message` is one line."""

    code: WarningCode
    message: str


class Failure(Struct, frozen=True, kw_only=True):
    """Failure of a source to answer.

    Attributes:
        source: what failed, such as the name of a profiler source, "file", "pause" or "exporter".
        reason: one of `tpumon.errors.REASONS`.
        message: one line for people, without the address.
        address: the `host:port` that was queried; None if there is none.
        detail: what more is known than the reason; None: nothing.
    """

    source: str
    reason: Reason
    message: str
    address: str | None = None
    detail: Detail | None = None

    @classmethod
    def of(cls, source: str, error: SourceError, address: str | None = None) -> Failure:
        """The failure of a source with this error; the address is that of a source whose error has none."""
        return cls(
            source=source,
            reason=error.reason,
            message=error.message,
            address=error.address or address,
            detail=error.detail,
        )

    @property
    def line(self) -> str:
        """The message, preceded by the address if there is one."""
        return self.message if self.address is None else f"{self.address}: {self.message}"

    @property
    def port_closed(self) -> bool:
        """True if the host is there, but nothing listens: the process that did has ended."""
        return self.detail in {"connection-refused", "server-gone"}

    @property
    def is_silence(self) -> bool:
        """True if the profiler answers, and its trace shows that nothing runs, or cannot show whether anything does."""
        return MEANING[self.reason].state == "no-activity"

    @property
    def shows_nothing(self) -> bool:
        """True if the profiler answers, and no trace of it could show whether anything runs."""
        return self.detail == "not-seen"


class Sample(Struct, frozen=True, kw_only=True):
    """One query of one worker, answered or not.

    Attributes:
        worker: unique name of the worker: its host's name, if known.
        address: `host:port` of its profiler server, or the path of a trace file.
        time_unix_s: start of the window, on this machine's wall clock.
        window_s: length of the window that the figures cover; None if none was chosen yet.
        took_s: time from sending the query to its answer.
        interval_s: effective interval, from the start of one query to the start of the next.
        traced_s: how long the job was traced for this query, including collection; 0 if it was not.
        source: where the figures come from: "monitor", "trace" or "file"; the first extra source if the
            profiler did not answer ("runtime": the runtime metric service); None if nothing did.
        companions_only: whether only extra sources answered; in JSON only where `source` does not say so already.
        simulated: True if the simulator made the figures up.
        device_type: for example "TPU v2", as the source reports it.
        cores: number of TPU cores of the worker.
        figures: what the query measured; in JSON its fields are merged into the sample.
        job: the job that the worker belongs to, if known; in Kubernetes NAMESPACE/NAME.
        slice: the slice that the worker belongs to, if known.
        job_kind: the kind of that job; None if nobody has looked yet.
        process: the worker's process, where it runs on this host.
        truncated: None for a whole trace; otherwise what is missing and which span the figures cover.
        findings: what is wrong with the worker, the worst first; None if nobody has judged it yet.
        judged: the findings that could be judged of it, present or not; None if nobody has judged it yet.
        errors: what failed; the profiler's failure, if any, comes last.
        warnings: about the figures, such as dropped events; in JSON `warnings` and `warning_codes`.
        server_text: the text that a Monitor RPC answered with, safe for a terminal; not part of the JSON.
        taken_monotonic_s: `time_unix_s` on this process's monotonic clock, which cannot be set; not part of the JSON.
            None for a sample that this process did not take.
        is_activity_checked: whether short traces between samples that are far apart tell if anything runs; None: not
            known; not part of the JSON.
    """

    worker: str
    address: str
    time_unix_s: UnixTime
    window_s: float | None = None
    took_s: float = 0.0
    interval_s: float | None = None
    traced_s: float = 0.0
    source: str | None = None
    simulated: bool = False
    device_type: str | None = None
    cores: Count | None = None
    figures: Figures = field(default_factory=Figures)
    job: str | None = None
    slice: str | None = None
    job_kind: JobKind | None = None
    process: Process | None = None
    truncated: str | None = None
    findings: Annotated[tuple[Cause, ...] | None, at_most(MOST_FINDINGS)] = None
    judged: Annotated[tuple[FindingId, ...] | None, at_most(MOST_FINDINGS)] = None
    errors: Annotated[tuple[Failure, ...], at_most(_MOST_TROUBLES)] = ()
    warnings: tuple[FigureWarning, ...] = ()
    server_text: str | None = None
    taken_monotonic_s: float | None = None
    companions_only: bool = False
    is_activity_checked: bool | None = None

    @property
    def kind(self) -> JobKindName | None:
        """The kind of its job; None: not known."""
        return None if self.job_kind is None else self.job_kind.kind

    @property
    def has_figures(self) -> bool:
        """True if any source answered this query."""
        return self.source is not None

    @property
    def is_conclusive(self) -> bool:
        """True if the worker answered this query, if only that nothing runs."""
        return self.source is not None or self._failure().is_silence

    @property
    def of_exporter(self) -> bool:
        """True if the exporter behind --from did not answer, so that nothing is known about the worker."""
        return not self.has_figures and bool(self.errors) and self.errors[-1].source == EXPORTER

    @property
    def fresh_for_s(self) -> float:
        """For how long from its start its figures are current: 2.5 effective intervals plus a window."""
        return _STALE_INTERVALS * (self.interval_s or 0.0) + (self.window_s or 0.0)

    def age_s(self, now_unix_s: float, now_monotonic_s: float | None = None) -> float:
        """Seconds since its start: by the monotonic clock where both times are known, otherwise by the wall clock."""
        if self.taken_monotonic_s is not None and now_monotonic_s is not None:
            return now_monotonic_s - self.taken_monotonic_s
        return now_unix_s - self.time_unix_s

    @property
    def failure(self) -> Failure | None:
        """Failure of the worker's profiler; None if it gave figures. Extra sources may have answered in either case."""
        if self.source is not None and not self.companions_only:
            return None
        return self._failure()

    @property
    def why_not_seen(self) -> str | None:
        """Reason for which it cannot show whether anything runs, though the profiler answers; None: it can."""
        failure = self.failure
        return NOT_SEEN if failure is not None and failure.shows_nothing else None

    def _failure(self) -> Failure:
        return self.errors[-1] if self.errors else Failure(source="", reason="internal", message="no answer")

    def is_stale(self, now_unix_s: float, now_monotonic_s: float | None = None) -> bool:
        """True if it may no longer be shown as current: its query failed, or it is older than `fresh_for_s`.

        An answer without activity did not fail. The one rule for all outputs.
        """
        return not self.is_conclusive or self.age_s(now_unix_s, now_monotonic_s) > self.fresh_for_s

    def with_ops(self, most: int) -> Sample:
        """The sample with so many top operations and categories at most; the sample itself, if it has no more."""
        figures = self.figures
        kept = figures.with_ops(most)
        return self if kept is figures else replace(self, figures=kept)

    def document(self) -> Struct:
        """The Sample object of `--output jsonl`: every field, absent figures as null."""
        figures = self.figures
        of_extra_sources = self.companions_only and self.source != _RUNTIME
        return SampleDocument(
            **{name: getattr(self, name) for name in _OWN},
            **{name: getattr(figures, name) for name in _FIGURES},
            companions_only=True if of_extra_sources else UNSET,
            warnings=tuple(warning.message for warning in self.warnings),
            warning_codes=tuple(warning.code for warning in self.warnings),
        )

    def to_json(self) -> dict[str, Any]:
        """The Sample object as dictionaries and lists."""
        plain: dict[str, Any] = decode(encoded(self.document()))
        return plain

    @classmethod
    def from_json(cls, document: bytes | str | Raw) -> Sample:
        """Reads a Sample object.

        Raises:
            ValueError: it is none; one line says why.
        """
        read: Any = decoded(SampleDocument, document)
        return cls(
            **{name: getattr(read, name) for name in _OWN},
            figures=Figures(**{name: getattr(read, name) for name in _FIGURES}),
            warnings=_warnings(read.warnings, read.warning_codes),
            companions_only=read.source == _RUNTIME or (read.source is not None and read.companions_only is True),
        )


_OWN, _FIGURES = (
    tuple(name for name in kind.__struct_fields__ if name not in NOT_IN_JSON) for kind in (Sample, Figures)
)


def _document_fields() -> Iterator[tuple[str, Any, Any]]:
    """Names, types and defaults: those of the sample, and among them those of its figures."""
    yield "schema", Literal[1], SCHEMA_VERSION
    for item in fields_of(Sample, NOT_IN_JSON - {"figures"}):
        if item[0] == "figures":
            yield from fields_of(Figures, NOT_IN_JSON)
        else:
            yield item
    yield "companions_only", bool | UnsetType, UNSET
    for name in ("warnings", "warning_codes"):
        yield name, Annotated[tuple[str, ...], at_most(_MOST_TROUBLES)], ()


SampleDocument = defstruct("Sample", list(_document_fields()), module=__name__, frozen=True, kw_only=True)
"""A Sample object: figures beside the sample's own fields, warnings as messages and codes."""


def _warnings(messages: Sequence[str], codes: Sequence[str]) -> tuple[FigureWarning, ...]:
    known: Mapping[str, WarningCode] = {code: code for code in get_args(WarningCode)}
    each_code = codes if len(codes) == len(messages) else [""] * len(messages)
    return tuple(
        FigureWarning(known.get(code, "profiler"), line) for code, line in zip(each_code, messages, strict=True)
    )
