"""The one analysis: turns each event into an update. The only owner of histories, judge and changes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from tpumon.analysis.exporter_snapshot import histories_of
from tpumon.analysis.findings import Judge, Observation, Thresholds
from tpumon.analysis.findings.rule_table import NEED_WHOLE_JOB
from tpumon.analysis.history import NO_FIGURES, Changes, Histories, Moment, RollupSeries, WorkerHistory
from tpumon.analysis.history.fleet_average import FleetAverage
from tpumon.analysis.job_kind import KindOfWorker
from tpumon.analysis.judgement import (
    Judgement,
    add_failure,
    began_of,
    conclude,
    note_added_here,
    note_status,
    snapshot_of,
    verdict_of,
)
from tpumon.analysis.recorded_clock import OVERLAP_S, RecordedClock
from tpumon.analysis.state_file import Kept, kept_worker
from tpumon.analysis.status import NOT_THERE, FleetStatus, Update, WorkerStatus
from tpumon.analysis.upstream import Upstream, merged_findings, no_later, sign_of
from tpumon.model import (
    Cause,
    Change,
    ExporterSnapshot,
    Finding,
    KeptState,
    KeptWorker,
    Sample,
    Severity,
    SourceEvent,
    State,
    StatusSnapshot,
    Target,
    Workers,
)
from tpumon.untrusted_text import one_line, unexpected

_log = logging.getLogger(__name__)

MOST_HISTORY_BYTES = 12_000_000
"""Most history of all workers together that is handed on."""

_UNJUDGED = 10  # samples in a row
_STALE_S = 1.0  # how often to look for stale workers: that visits all of them


class Analysis:
    """Judges each sample once, and says what follows. Any thread may ask for the status; one gives events.

    Args:
        thresholds: limits beyond which a worker is marked.
        monotonic_s: reads the monotonic clock of `Sample.taken_monotonic_s`.
        recorded: the clock of a recording that the samples come from, moved as they come; None: they are taken now.
    """

    def __init__(
        self,
        thresholds: Thresholds | None = None,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        recorded: RecordedClock | None = None,
    ) -> None:
        self.thresholds = thresholds or Thresholds()
        self._lock = threading.RLock()
        self._recorded = recorded
        monotonic_s = recorded or monotonic_s
        self._histories = Histories(monotonic_s=monotonic_s)
        self._changes = Changes()
        self._average = FleetAverage(monotonic_s)
        self._has_logged = False
        self._judge = Judge(self.thresholds)
        self._judgements: dict[str, Judgement] = {}
        self._upstream = Upstream()
        self._stale: frozenset[str] = frozenset()
        self._stale_at_unix_s = -inf
        self._past = 0
        self._kept = Kept()

    def resume(self, state: KeptState, now_unix_s: float) -> None:
        """Goes on from what was known before tpumon was restarted; call it before the first event."""
        self._kept = Kept(state, now_unix_s)

    def kept(self, now_unix_s: float) -> KeptState:
        """The state of all workers, as `resume` takes it."""
        with self._lock:
            workers = tuple(
                kept_worker(
                    history,
                    snapshot_of(history, self._judgements[history.target.worker], now_unix_s),
                    self._judge,
                    now_unix_s,
                )
                for history in self._histories.all()
                if history.queries
            )
            return KeptState(time_unix_s=now_unix_s, workers=(*workers, *self._kept.others(workers, now_unix_s)))

    def remember(self) -> None:
        """Keeps the figures of a week, from the first sample on; call it before that."""
        self._histories.remember()
        self._average.remember()

    # ---- events

    def add(self, event: SourceEvent) -> Update:
        """Adds an event; returns the update that it makes."""
        # Decoding histories takes time, so not under the lock.
        remembered = dict(histories_of(event)) if isinstance(event, ExporterSnapshot) else {}
        with self._lock:
            if isinstance(event, Workers):
                return self._follow(event)
            if isinstance(event, Sample):
                return self._add(event if self._recorded is None else self._recorded.dated(event))
            if isinstance(event, Change):
                self._changes.add(event)
                return Update(time_unix_s=event.time_unix_s, changes=self._changes.pop_new())
            return self._take_over(event, remembered)

    def tick(self, now_unix_s: float) -> Update | None:
        """Notes which workers have become stale; returns None if nothing changed. Call it about every second."""
        with self._lock:
            self._note_stale(now_unix_s)
            self._average.add(self._histories.all(), now_unix_s)
            changes = self._changes.pop_new()
            return Update(time_unix_s=now_unix_s, changes=changes) if changes else None

    def _follow(self, workers: Workers) -> Update:
        self._histories.follow(workers)
        self._judge.follow(workers.targets)
        self._upstream.follow(workers.targets)
        known = self._judgements
        self._judgements = {target.worker: known.get(target.worker) or Judgement() for target in workers.targets}
        for worker in self._upstream.moved:
            self._judgements[worker].judged_upstream, self._judgements[worker].from_upstream = False, None
        for target in workers.targets:
            if not self._upstream.compares(target):  # any more: no sample would end what comparing it has found
                judgement = self._judgements[target.worker]
                judgement.added_here, judgement.compared, judgement.not_compared = (), (), ()
            if target.worker not in known and (kept := self._kept.hand_out(target)) is not None:
                self._resume(target, kept)
        return Update(time_unix_s=max(self._stale_at_unix_s, 0.0), workers=workers)

    def add_together(self, samples: Sequence[Sample]) -> None:
        """Adds samples of one moment, at most one of each worker: each is compared with all others."""
        with self._lock:
            added = [(sample, history) for sample in samples if (history := self._histories.add(sample)) is not None]
            for sample, _ in added:
                self._judgements[sample.worker].judged_upstream |= sample.findings is not None
            self._judge_queries(added)
            for sample, history in added:
                self._concluded(sample, history)

    def _resume(self, target: Target, kept: KeptWorker) -> None:
        history = self._histories.get(target.worker)
        assert history is not None
        self._histories.put(history.resumed(kept))
        self._judgements[target.worker].resume(kept.snapshot)
        self._judgements[target.worker].kind = KindOfWorker(kept.job_kind)
        self._judge.resume(target.worker, kept, self._kept.until_unix_s)

    def _add(self, sample: Sample) -> Update:
        at_unix_s = sample.time_unix_s + min(sample.took_s, OVERLAP_S)
        if (history := self._histories.add(sample)) is None:
            return Update(time_unix_s=at_unix_s, sample=sample)
        judgement = self._judgements[sample.worker]
        is_late = judgement.timeline.state == "stale" and history.state(self._stale_at_unix_s) == "stale"
        passed_s = at_unix_s - self._stale_at_unix_s
        if passed_s >= _STALE_S or passed_s < -OVERLAP_S:  # samples of exporters come late, and in any order
            self._note_stale(at_unix_s)
        self._stale -= {sample.worker}
        judgement.judged_upstream |= sample.findings is not None
        others = self._judge_queries([(sample, history)])
        sample, history = self._concluded(sample, history, is_late=is_late)
        for worker in others:
            self._judge_again(worker, Moment.of(sample))
        status = self._status_of(history, at_unix_s)
        findings = self._findings([sample.worker]) if status.verdict.causes else ()
        return Update(
            time_unix_s=at_unix_s, sample=sample, status=status, findings=findings, changes=self._changes.pop_new()
        )

    def _judge_queries(self, queries: Sequence[tuple[Sample, WorkerHistory]]) -> Sequence[str]:
        """Judges the last queries of some workers, but for those judged upstream and compared with no others here.

        Returns:
            Names of other workers whose findings changed.
        """
        observations = [
            Observation(
                target=history.target,
                sample=sample,
                at=Moment.of(sample),
                state=history.last_state,
                values=history.figures,
                restarted=history.restarted is sample,
                job_kind=self._judgements[sample.worker].kind_of(sample, history),
            )
            for sample, history in queries
            if self._judges(sample.worker)
        ]
        if not observations:
            return ()
        try:
            others = self._judge.judge(observations, self._stale)
        except Exception as error:  # noqa: BLE001 - a rule's bug must not cost the sample
            for seen in observations:
                judgement = self._judgements[seen.target.worker]
                judgement.causes, judgement.judged, judgement.added_here = (), (), ()
                judgement.is_faulty = True
            if not self._has_logged:
                self._has_logged = True
                _log.warning("samples cannot be judged, a bug in tpumon: %s", unexpected(error))
            return ()
        for seen in observations:
            self._update_judgement(seen.target.worker, self._judgements[seen.target.worker])
        return others

    def _judges(self, worker: str) -> bool:
        """True if a worker is judged here: no exporter does, or it is compared with workers of others."""
        if not self._judgements[worker].judged_upstream:
            return True
        history = self._histories.get(worker)
        return history is not None and self._upstream.compares(history.target)

    def _concluded(
        self, sample: Sample, history: WorkerHistory, *, is_late: bool = False
    ) -> tuple[Sample, WorkerHistory]:
        """A judged query with the findings of its worker, and the worker's history with it.

        Args:
            sample: of the query.
            history: of its worker.
            is_late: True if its worker is stale and stays so.
        """
        judgement, restarted = self._judgements[sample.worker], history.restarted is sample
        if judgement.judged_upstream:
            judgement.samples_unjudged += sample.is_conclusive
            if sample.findings is not None:
                judgement.from_upstream, judgement.judged = sample.findings, sample.judged or ()
                judgement.samples_unjudged = 0
            elif judgement.samples_unjudged > _UNJUDGED:  # its exporter judges no more
                judgement.judged_upstream, judgement.from_upstream = False, None
            judgement.causes = () if sample.of_exporter else judgement.from_upstream or ()
            judgement.not_judged = self._upstream.not_judged(history.target, judgement.judged)
            sample = judgement.with_findings(sample) if sample.findings is not None else sample
        elif not judgement.is_faulty:
            sample = replace(sample, findings=judgement.causes, judged=judgement.judged)
        if not judgement.judged_upstream and sample.job_kind is None:
            sample = replace(sample, job_kind=judgement.kind.known)
        history = history.with_last(sample)
        self._histories.put(history)
        severity = conclude(judgement, sample, history.last_state)
        if history.last_state in {"live", "no-activity"}:
            judgement.severity_by_figures = severity
        if restarted or not is_late:
            at = Moment.shown_by(sample)
            self._note_status(history, at, at.time_unix_s, history.last_state, severity, restarted=restarted)
        return sample, history

    def _update_judgement(self, worker: str, judgement: Judgement) -> None:
        """Updates the judgement of a worker by what the judge says now."""
        state = self._judge.worker(worker)
        judged, not_judged, needs_more = state.judged()
        judgement.is_faulty = False
        if judgement.judged_upstream:
            before, judgement.added_here = judgement.added_here, self._upstream.added(state.causes)
            judgement.compared = tuple(one for one in judged if one in NEED_WHOLE_JOB)
            judgement.not_compared = tuple(one for one in not_judged if one.finding in NEED_WHOLE_JOB)
            if [cause.finding for cause in before] != [cause.finding for cause in judgement.added_here]:
                judgement.number = self._changes.next_number()
        else:
            judgement.causes = state.causes
            judgement.judged, judgement.not_judged, judgement.needs_more = judged, not_judged, needs_more

    def _judge_again(self, worker: str, at: Moment) -> None:
        """Notes that a sample of another worker explains what this one has, or no longer does."""
        history, judgement = self._histories.get(worker), self._judgements.get(worker)
        if history is None or judgement is None or history.last is None or judgement.timeline.state == "stale":
            return
        self._update_judgement(worker, judgement)
        if history.last.findings is not None:
            self._histories.put(history.with_last(judgement.with_findings(history.last)))
        if judgement.judged_upstream:
            self._note_added_here(history, at.time_unix_s)
        else:
            judgement.number = self._changes.next_number()
            severity = conclude(judgement, history.last, history.last_state)
            self._note_status(history, at, at.time_unix_s, judgement.timeline.state or history.last_state, severity)

    def _note_stale(self, now_unix_s: float) -> None:
        """Notes which workers are stale; no worker is compared with a stale one."""
        if self._recorded is not None:
            self._recorded.move(now_unix_s)
        self._stale_at_unix_s = now_unix_s
        stale = set()
        for history in self._histories.all():
            if history.state(now_unix_s) != "stale":
                continue
            stale.add(history.target.worker)
            judgement, last = self._judgements[history.target.worker], history.last
            if judgement.timeline.state != "stale" and last is not None:
                judgement.causes = (Cause(words="no figures in time"),)
                self._note_status(history, Moment.of(last), now_unix_s, "stale", "unknown")
            if (late := judgement.lasting_gap(history, now_unix_s)) is not None:
                self._add_changes(judgement, late)
        self._stale = frozenset(stale)

    def _note_status(
        self,
        history: WorkerHistory,
        at: Moment,
        time_unix_s: float,
        state: State,
        severity: Severity,
        *,
        restarted: bool = False,
    ) -> None:
        """Notes what a worker counts as, and remembers the change."""
        judgement = self._judgements[history.target.worker]
        began = began_of(judgement.causes, at) if state == "live" else at
        if state == "no-activity":
            began = self._judge.last_activity(history.target.worker) or at
        changes = note_status(judgement, history, at, time_unix_s, state, severity, began, restarted=restarted)
        if judgement.judged_upstream:  # what an exporter judges, it also remembers, but for a restart while it was away
            self._add_changes(judgement, *filter(self._is_unsaid, changes or ()))
            self._note_added_here(history, time_unix_s)
        elif changes is not None:
            judgement.number = self._changes.next_number()
            self._add_changes(judgement, *changes)

    def _add_changes(self, judgement: Judgement, *changes: Change) -> None:
        for change in changes:
            self._changes.add(change)
            judgement.number = self._changes.number

    def _is_unsaid(self, restart: Change) -> bool:
        """True if no exporter has said that a job was restarted."""
        since_unix_s = restart.time_unix_s - OVERLAP_S
        known = (one.time_unix_s for one in self._changes.all() if sign_of(one)[:2] == sign_of(restart)[:2])
        return all(time_unix_s < since_unix_s for time_unix_s in known)

    def _note_added_here(self, history: WorkerHistory, time_unix_s: float) -> None:
        """Remembers a change of status that came from comparing a worker with workers of other exporters."""
        judgement = self._judgements[history.target.worker]
        if (changed := note_added_here(judgement)) is None:
            return
        severity, before = changed
        change = Change(
            number=0,
            time_unix_s=time_unix_s,
            worker=history.target.worker,
            what="severity",
            state="live",
            severity=severity,
            before=before,
            words=one_line("".join(cause.words for cause in judgement.added_here[:1])),
        )
        self._add_changes(judgement, change)

    # ---- status

    def status(self, now_unix_s: float) -> FleetStatus:
        """Status of all workers. Notes which workers have become stale, as `tick` does."""
        with self._lock:
            self._note_stale(now_unix_s)
            workers = {history.target.worker: self._status_of(history, now_unix_s) for history in self._histories.all()}
            there = [name for name, worker in workers.items() if worker.verdict.state not in NOT_THERE]
            return FleetStatus(
                time_unix_s=now_unix_s,
                workers=workers,
                waiting=self._histories.waiting,
                finders=self._histories.finders,
                findings=no_later(self._findings(there), now_unix_s),
                changes=self._changes.all(),
                last_past_change=self._past,
                average=self._average.series,
                exporters_missing=self._upstream.missing(),
                exporters_unheard=self._histories.unheard,
            )

    def _findings(self, workers: Sequence[str]) -> tuple[Finding, ...]:
        """Findings of some workers, by slice, the worst first."""
        own = self._judge.findings(list(filter(self._judges, workers)))
        return merged_findings(own, self._upstream.findings(workers))

    def _status_of(self, history: WorkerHistory, now_unix_s: float) -> WorkerStatus:
        judgement = self._judgements[history.target.worker]
        sample = history.current(now_unix_s)
        return WorkerStatus(
            history=history,
            verdict=verdict_of(history, judgement, now_unix_s),
            sample=sample,
            figures=NO_FIGURES if sample is None else history.figures,
            judged=judgement.all_judged,
            not_judged=judgement.all_not_judged,
            needs_more=judgement.needs_more,
            judged_upstream=judgement.judged_upstream,
        )

    # ---- exporters

    def snapshot(
        self, now_unix_s: float, *, after: int | None = None, most_bytes: int = MOST_HISTORY_BYTES
    ) -> ExporterSnapshot:
        """Snapshot of this analysis for a reader: full, or what has changed since the reader's last one.

        Args:
            now_unix_s: the time.
            after: number of the last change that the reader knows; None: it knows nothing.
            most_bytes: the most that the history of all workers may take as JSON, about.
        """
        with self._lock:
            if after is not None and after > self._changes.number:
                after = None
            status = self.status(now_unix_s)
            histories = self._histories.all()
            series = {"": self._average.series, **{history.target.worker: history.series for history in histories}}
            snapshot = ExporterSnapshot(
                complete=after is None,
                number=self._changes.number,
                statuses=tuple(
                    snapshot_of(history, self._judgements[history.target.worker], now_unix_s)
                    for history in histories
                    if after is None or self._judgements[history.target.worker].number > after
                ),
                changes=tuple(self._changes.after(after or 0)),
                findings=status.findings,
                not_judged=status.not_judged(),
            )
        if not snapshot.complete:
            return snapshot
        known = {worker: each for worker, each in series.items() if each is not None and each.newest_unix_s is not None}
        most_each = most_bytes // max(len(known), 1)
        return replace(snapshot, history={worker: each.to_plain(most_each) for worker, each in known.items()})

    def _take_over(self, snapshot: ExporterSnapshot, remembered: Mapping[str, RollupSeries]) -> Update:
        """Takes over the snapshot of an exporter; changes of its workers come from the snapshot alone."""
        is_first = self._upstream.take_over(snapshot)
        known = {sign_of(change) for change in self._changes.all()} if snapshot.complete else set()
        for change in snapshot.changes:
            if known.isdisjoint(sign_of(change, later_s) for later_s in (-1, 0, 1)):
                self._changes.add(change)
        if is_first:
            self._past = self._changes.last
        for worker, series in remembered.items():
            self._adopt_series(worker, series)
        for worker in self._upstream.workers_of(snapshot.exporter) if snapshot.complete else ():
            history = self._histories.get(worker)
            if history is not None and history.last is not None and history.last.of_exporter:  # it answers again
                self._histories.put(replace(history, last=None, last_state="waiting", figures=NO_FIGURES))
                self._judgements[worker].causes = ()
        for status in snapshot.statuses:
            judgement = self._judgements.get(status.worker)
            if judgement is not None:
                judgement.resume(status)
                self._judge.note_earlier(status)
                judgement.number = self._changes.next_number()
                self._adopt_findings(status, judgement)
        for worker in self._upstream.workers_of(snapshot.exporter) if snapshot.findings is not None else ():
            judgement, history = self._judgements[worker], self._histories.get(worker)
            judgement.judged_upstream = True
            if history is not None:
                judgement.not_judged = self._upstream.not_judged(history.target, judgement.judged)
        return Update(time_unix_s=self._stale_at_unix_s, changes=self._changes.pop_new(), is_past=is_first)

    def _adopt_findings(self, snapshot: StatusSnapshot, judgement: Judgement) -> None:
        """Adopts the present findings of a worker: later samples of other workers may have explained some."""
        history = self._histories.get(snapshot.worker)
        last = None if history is None else history.last
        if history is None or last is None or last.of_exporter or snapshot.findings is None:
            return
        judgement.from_upstream = judgement.causes = snapshot.findings
        self._histories.put(history.with_last(judgement.with_findings(last)))
        add_failure(judgement, last)

    def _adopt_series(self, worker: str, series: RollupSeries) -> None:
        """Adopts a history that goes further back than the one known here."""
        history = self._histories.get(worker)
        if worker == "" and series.goes_back_beyond(self._average.series):
            self._average.series = series
        elif history is not None and series.goes_back_beyond(history.series):
            self._histories.put(replace(history, series=series))
