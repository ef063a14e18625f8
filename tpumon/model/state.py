"""The states of workers, what changed and when, and what a running exporter hands on of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Struct, field

from tpumon.errors import Detail
from tpumon.model.documents import Count, UnixTime, at_most
from tpumon.model.finding import MOST_FINDINGS, Cause, Finding, NotJudged
from tpumon.model.sample import Sample
from tpumon.model.target import Workers

State = Literal["waiting", "live", "no-activity", "stale", "busy", "continuous", "paused", "down"]
"""waiting: not queried yet. live: answered, even if only with runtime metrics. no-activity: answers, but nothing runs.
stale: answered, but too long ago, or the exporter that follows it does not answer. busy: another profiling session is
active. continuous: a continuous session of the job's owner is. paused: by `tpumon pause`. down: its last query failed
for another reason."""

Severity = Literal["ok", "info", "warning", "critical", "unknown"]
"""That of the worst finding; ok: there is none. unknown: there is no current sample to judge, or only one without
figures of the worker's profiler."""

Status = Literal[Severity, State]
"""Status of a worker: its severity while it is live, otherwise its state."""

ChangeKind = Literal["state", "severity", "restart", "capture-began", "capture-ended", "exporter"]
"""state: the worker entered another state. severity: its severity changed while it was live. restart: its job was
restarted. capture-began, capture-ended: another profiling session began or ended. exporter: that of workers does not
answer, or answers again."""


def mark_of(state: State, severity: Severity) -> Status:
    """Mark of a worker: its severity while it is live, otherwise its state, or the severity of its hang."""
    return severity if state == "live" or (state == "no-activity" and severity in _HUNG) else state


_HUNG: frozenset[Severity] = frozenset({"warning", "critical"})
SINCE_OR_EARLIER = "since then or earlier"


class Change(Struct, frozen=True, kw_only=True):
    """One change of a worker, or of the exporter that workers come from.

    Attributes:
        number: counts all changes of a run, from 1.
        time_unix_s: when it happened, by the wall clock at that time.
        worker: name of the worker; or `exporter HOST:PORT`.
        what: kind of the change.
        state, severity: those of the worker after the change.
        before: what the worker counted as before, as was told last; None: no sample showed it.
        words: the reason in a few words; empty if there is none.
        since_or_earlier: whether it may have begun before: it was so at the first look, or went down unheard.
        detail: that of the failure behind it; None: there is none.
    """

    number: Count
    time_unix_s: UnixTime
    worker: str
    what: ChangeKind
    state: State
    severity: Severity
    before: Status | None = None
    words: str = ""
    since_or_earlier: bool = False
    detail: Detail | None = None

    @property
    def status(self) -> Status:
        """Status of the worker after the change; where a hang has become worse, its severity."""
        return self.severity if self.state == "live" or self.what == "severity" else self.state

    @property
    def is_seen(self) -> bool:
        """False if no trace of the worker could show whether anything runs."""
        return self.detail != "not-seen"

    @property
    def title(self) -> str:
        """The change in a few words."""
        match self.what:
            case "restart":
                return "job restarted then or earlier" if self.since_or_earlier else "job restarted"
            case "capture-began":
                return "capture began"
            case "capture-ended":
                return f"capture ended, {self.status}"
            case "exporter":
                return "answers again" if self.state == "live" else "does not answer"
        status = self.status if self.is_seen else "not seen"
        return f"{status} {SINCE_OR_EARLIER}" if self.since_or_earlier else status

    @property
    def sentence(self) -> str:
        """The change and its reason: `critical: own work +40%`."""
        return self.title if self.what == "restart" or not self.words else f"{self.title}: {self.words}"


class Event(Change, frozen=True, kw_only=True):
    """A change as an object of its own."""

    schema: Literal[1] = 1


class StatusSnapshot(Struct, frozen=True, kw_only=True):
    """Status of a worker beyond its last sample, as its exporter hands it on.

    Attributes:
        worker: name of the worker.
        state, severity: as judged last.
        status_since_unix_s: since when it counts as that.
        ok: whether it was well when last judged by its figures; None: not known.
        ok_since_unix_s: since when it is well, or since when it is not.
        critical_since_unix_s: since when it is critical; None: it is not.
        since_or_earlier: whether it may have begun before: it was so at the first look, or went down unheard.
        findings: of its last sample, as they are by now; None: not known.
    """

    worker: str
    state: State
    severity: Severity
    status_since_unix_s: UnixTime | None = None
    ok: bool | None = None
    ok_since_unix_s: UnixTime | None = None
    critical_since_unix_s: UnixTime | None = None
    since_or_earlier: bool = False
    findings: Annotated[tuple[Cause, ...] | None, at_most(MOST_FINDINGS)] = None


class ExporterSnapshot(Struct, frozen=True, kw_only=True):
    """Snapshot of what a running exporter knows beyond samples, handed on to its readers.

    Attributes:
        complete: whether the snapshot is full; otherwise incremental: it has what is new since an earlier one.
        number: number of the last change; a reader that gives it back gets an incremental snapshot.
        statuses: of the workers; all of them, or those that changed.
        changes: oldest first; all that are remembered, or the new ones.
        shift_s: to be added to times in `history` to get those of this machine's clock; all other times are by that.
        history: by worker, JSON as `RollupSeries.to_plain` made it; "" is that of the whole fleet.
        findings: what is wrong now; None: the exporter does not judge.
        not_judged: what it cannot judge.
        exporter: name of the exporter.
    """

    complete: bool
    exporter: str = ""
    number: int = 0
    statuses: tuple[StatusSnapshot, ...] = ()
    changes: tuple[Change, ...] = ()
    shift_s: float = 0.0
    history: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] | None = None
    not_judged: tuple[NotJudged, ...] = ()


SourceEvent = Workers | Sample | ExporterSnapshot | Change
"""Events that sources give: a list of workers, the sample of one query, the snapshot of a running exporter, or the
change that an exporter does not answer."""
