"""The one judge: what is wrong, from the samples of all workers, and since when.

A finding appears when several samples in a row agree and leaves when several in a row do not, so that a worker at a
limit does not come and go. Time without figures changes nothing, but then one sample ends it; a restart of the job
begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from tpumon.analysis.findings.comparability import (
    count_current,
    ends_being_early,
    has_enough,
    lacks_some,
    note_followed,
    why_not_alone,
    why_not_compared,
    why_not_itself,
)
from tpumon.analysis.findings.finding_state import FindingState, JobState, SliceKey, SliceState, WorkerState
from tpumon.analysis.findings.rule import AnyRule, Member, Observation
from tpumon.analysis.findings.rule_table import BLAMING, NEED_WHOLE_JOB, RULE_INDEXES, RULES
from tpumon.analysis.findings.thresholds import Thresholds
from tpumon.analysis.history import Moment
from tpumon.model import (
    SEVERITY_LEVELS,
    Cause,
    Finding,
    FindingDetail,
    FindingId,
    JobKindName,
    KeptWorker,
    State,
    StatusSnapshot,
    Target,
)
from tpumon.model.figure_spec import is_on_cpu
from tpumon.model.figure_table import NO_TPU

URL = "docs/findings.md#"

_NO_ALARM: Mapping[JobKindName | None, str] = {
    "interactive": "It is a notebook, which pauses and changes as its user likes.",
    "serving": "It serves models.",
    "unknown": "What kind of job it is, is not known; --job-kind training would make it an alarm.",
}
_NOT_JUDGED: Mapping[JobKindName | None, str] = {
    "serving": "a server waits for requests",
    "unknown": "it is not known to serve models (--job-kind serving)",
}
_NO_SERVER = "it serves no models"
_HIDDEN = frozenset(rule.finding for rule in RULES if BLAMING & (rule.hidden_by | rule.hidden_by_new))
_SILENT: frozenset[State] = frozenset({"waiting", "stale", "down"})
_KEPT_AWAY: frozenset[State] = frozenset({"busy", "continuous", "paused"})


class _Shown(NamedTuple):
    """A finding of a worker that is shown."""

    worker: WorkerState
    state: FindingState
    detail: FindingDetail


class Judge:
    """Judges workers by the table of rules.

    Args:
        limits: limits that users can set.
    """

    def __init__(self, limits: Thresholds) -> None:
        self._limits = limits
        self._rules: tuple[AnyRule, ...] = tuple(rule(limits) for rule in RULES)
        self._stats_of_nobody = tuple(rule.slice_stats(()) for rule in self._rules)
        self._workers: dict[str, WorkerState] = {}
        self._slices: dict[SliceKey, SliceState] = {}

    def follow(self, targets: Iterable[Target]) -> None:
        """Replaces the workers; the state of workers that stay is kept."""
        known, self._workers, self._slices = self._workers, {}, {}
        jobs: dict[tuple[str, str], JobState] = {}
        for target in targets:
            worker = known.get(target.worker) or WorkerState(target)
            worker.target, worker.slice_key = target, slice_key_of(target)
            self._workers[target.worker] = worker
            job, _, alone = worker.slice_key
            job_state = jobs.setdefault((job, alone), JobState())
            slice_state = self._slices.get(worker.slice_key)
            if slice_state is None:
                slice_state = self._slices[worker.slice_key] = SliceState(job=job_state)
                job_state.slices.append(slice_state)
            slice_state.workers.append(worker)
            job_state.workers.append(worker)
            for each in worker.finding_states:
                self._note(slice_state, each.rule.finding, worker, each.since)
        for job_state in jobs.values():
            note_followed(job_state)
        for slice_state in self._slices.values():
            slice_state.hidden = self._hidden(slice_state)

    def resume(self, worker: str, kept: KeptWorker, until_unix_s: float) -> None:
        """Goes on from what was known of a worker before tpumon was restarted.

        Args:
            worker: its name; it is followed, and was not queried yet.
            kept: what was known.
            until_unix_s: until when findings that were present stay without being judged.
        """
        known = self._workers[worker]
        self.note_earlier(kept.snapshot)
        slice_state = self._slices[known.slice_key]
        self._begin(known, slice_state)
        present = {one.finding: one for one in kept.findings}
        for each in known.finding_states:
            each.rule.resume(each.memory, kept)
            finding = present.get(each.rule.finding)
            if finding is not None:
                each.resume(finding, until_unix_s)
                self._note(slice_state, finding.finding, known, each.since)
        slice_state.hidden = self._hidden(slice_state)

    def note_earlier(self, snapshot: StatusSnapshot) -> None:
        """Notes by an earlier status of a worker, kept or of its exporter, that it has answered."""
        known = self._workers.get(snapshot.worker)
        if known is None:
            return
        is_first = snapshot.since_or_earlier and snapshot.ok_since_unix_s is None  # nothing was known before it
        if snapshot.state not in _SILENT or (snapshot.state != "waiting" and not is_first):
            known.has_answered = True

    def kept(self, worker: str, kept: KeptWorker, unix_s: Callable[[Moment], float]) -> KeptWorker:
        """Adds what `resume` needs of a worker.

        Args:
            worker: its name.
            kept: what is kept of it.
            unix_s: a moment by the wall clock as it is set now.
        """
        states = self._workers[worker].finding_states
        for each in states:
            kept = each.rule.kept(each.memory, kept, unix_s)
        return replace(kept, findings=tuple(known for each in states if (known := each.kept(unix_s)) is not None))

    def _begin(self, worker: WorkerState, slice_state: SliceState) -> None:
        """Begins to judge a worker, or a new job of it."""
        for each in worker.finding_states:
            if each.since is not None:
                self._note(slice_state, each.rule.finding, worker, None)
        worker.finding_states = [
            FindingState(rule, rule.samples or self._limits.sustained, rule.memory_type()) for rule in self._rules
        ]
        worker.step_name = None

    def _note(self, slice_state: SliceState, finding: FindingId, worker: WorkerState, since: Moment | None) -> None:
        for compared in (slice_state, slice_state.job) if finding in NEED_WHOLE_JOB else (slice_state,):
            compared.note(finding, worker.target.worker, since)

    def judge(self, observations: Sequence[Observation], stale: Collection[str] = frozenset()) -> list[str]:
        """Judges observations, at most one of each worker. Those of workers that are not followed are ignored.

        Args:
            observations: what was seen.
            stale: names of workers whose figures are no longer current; no worker is compared with them.

        Returns:
            Names of other workers whose findings changed, because a finding of their slice now explains them, or no
            longer does.
        """
        queried: dict[SliceState, list[WorkerState]] = {}
        for seen in observations:
            worker = self._workers.get(seen.target.worker)
            if worker is None:
                continue
            slice_state = self._slices[worker.slice_key]
            if seen.restarted or not worker.finding_states:
                self._begin(worker, slice_state)
            for each in worker.finding_states:
                if each.since is not None and (since := each.since.as_of(seen.at)) is not each.since:
                    each.since = since
                    self._note(slice_state, each.rule.finding, worker, since)
                if each.memory is not None:
                    each.rule.remember(each.memory, seen)
            slice_state.note_sampled(seen.target.worker, seen.at)
            worker.seen, worker.step_name = seen, seen.figures.step_name or worker.step_name
            worker.has_answered = worker.has_answered or seen.state not in _SILENT
            slice_state.interval_s = seen.sample.interval_s or slice_state.interval_s
            slice_state.job.queries += 1
            queried.setdefault(slice_state, []).append(worker)
        names = {seen.target.worker for seen in observations}
        # A finding of one slice may explain what another one of its job has: then all slices are looked at.
        concerned: dict[SliceState, Sequence[WorkerState]] = dict(queried)
        for slice_state, workers in queried.items():
            notes = slice_state.job.notes
            count_current(slice_state.job, stale)
            for worker in workers:
                self._apply(worker, slice_state, stale, names)
            if ends_being_early(slice_state):
                concerned[slice_state] = slice_state.workers
                for worker in slice_state.workers:
                    self._settle(worker, slice_state, stale, names)
            if notes != slice_state.job.notes:
                concerned = {**dict.fromkeys(slice_state.job.slices, ()), **concerned}
        others = []
        for slice_state, those in concerned.items():
            hidden = self._hidden(slice_state)
            is_new, slice_state.hidden = hidden != slice_state.hidden, hidden
            for worker in slice_state.workers if is_new else those:
                before, worker.causes = worker.causes, tuple(_causes(worker, hidden))
                if worker.causes != before and worker.target.worker not in names:
                    others.append(worker.target.worker)
        return others

    def worker(self, name: str) -> WorkerState:
        """A worker that is followed: its findings, and what can be judged of it, as of its last query."""
        return self._workers[name]

    def last_activity(self, worker: str) -> Moment | None:
        """Last activity of the present job of a worker, from which a hang counts; None: none is known."""
        states = self._workers[worker].finding_states
        active: Moment | None = states[RULE_INDEXES["hang"]].memory.active if states else None
        return active

    def findings(self, workers: Iterable[str]) -> tuple[Finding, ...]:
        """The findings, by slice, the worst first.

        Args:
            workers: those that are neither stale nor down; others take no part.
        """
        findings = []
        current: set[str] | None = None
        for slice_state in self._slices.values():
            having = {finding for finding, since in slice_state.since.items() if since} - slice_state.hidden
            if having:
                current = set(workers) if current is None else current
                there = [worker for worker in slice_state.workers if worker.target.worker in current]
                findings += [one for finding in having if (one := self._finding(finding, there)) is not None]
        findings.sort(key=lambda one: (-SEVERITY_LEVELS[one.severity], RULE_INDEXES[one.finding], -len(one.workers)))
        return tuple(findings)

    def _apply(
        self, worker: WorkerState, slice_state: SliceState, stale: Collection[str], queried: Container[str]
    ) -> None:
        """Applies the rules to a worker that was queried, with these others."""
        seen = worker.seen
        assert seen is not None
        why_not = why_not_compared(slice_state) or why_not_itself(worker)
        for rule_index, each in enumerate(worker.finding_states):
            rule, before = each.rule, each.since
            unfit = _NOT_JUDGED.get(seen.job_kind, _NO_SERVER) if seen.job_kind in rule.not_for else None
            if unfit is None and rule.of_device and seen.state == "live" and is_on_cpu(seen.sample):
                unfit = NO_TPU
            if not rule.judges(seen.state) and (unfit is None or seen.state != "no-activity"):
                continue
            member = self._member(rule_index, worker, slice_state, stale)
            each.judge(member, unfit or (why_not if rule.compares_slices else None))
            self._note_judged(member, each, before, queried)

    def _settle(
        self, worker: WorkerState, slice_state: SliceState, stale: Collection[str], queried: Container[str]
    ) -> None:
        """Shows the findings of a worker that too few samples of others kept back."""
        for rule_index, each in enumerate(worker.finding_states):
            if each.is_kept_back:
                before, member = each.since, self._member(rule_index, worker, slice_state, stale)
                each.settle(member)
                self._note_judged(member, each, before, queried)

    def _member(
        self, rule_index: int, worker: WorkerState, slice_state: SliceState, stale: Collection[str]
    ) -> Member[Any, Any]:
        """A worker as a rule judges it."""
        seen, each = worker.seen, worker.finding_states[rule_index]
        assert seen is not None
        stats = self._stats_of_nobody[rule_index]
        if each.rule.compares:
            stats = self._slice_stats(rule_index, worker, slice_state, stale)
        return Member(seen, each.memory, stats, why_not_alone(slice_state), each.is_after_gap(seen))

    def _note_judged(
        self, member: Member[Any, Any], each: FindingState, before: Moment | None, queried: Container[str]
    ) -> None:
        """Notes what was judged of a worker, and how much of it alarms; `before`: since when it was present before."""
        rule, seen = each.rule, member.seen
        worker = self._workers[seen.target.worker]
        slice_state = self._slices[worker.slice_key]
        if rule.waits and each.detail is not None and lacks_some(slice_state.job):
            each.detail = replace(each.detail, severity="info")
        if seen.job_kind in rule.info_for and each.detail is not None:
            each.detail = _as_info(each.detail, _NO_ALARM[seen.job_kind])
        if each.since is before:
            return
        if rule.finding in _HIDDEN and not each.was_there and not slice_state.has_begun(rule.finding):
            # The worker that the others may wait for is awaited, too: its next sample tells whether they do.
            known = () if rule.rests_on_several(member) else queried
            slice_state.wait_for_others(rule.finding, known, seen.at)
        self._note(slice_state, rule.finding, worker, each.since)
        if rule.names_cause and not slice_state.since.get(rule.finding):  # what it explained leaves, too
            for finding in _HIDDEN & slice_state.since.keys():
                slice_state.wait_for_others(finding, queried, seen.at)

    def _slice_stats(
        self, rule_index: int, worker: WorkerState, slice_state: SliceState, stale: Collection[str]
    ) -> Any:
        """A rule's statistics of the workers that may step together with this one, as of the last look."""
        rule, step_name = self._rules[rule_index], worker.step_name
        compared = slice_state.job if rule.compares_slices else slice_state
        key = compared, rule_index, step_name
        if key not in slice_state.job.slice_stats:
            alike = (
                one
                for one in compared.workers
                if (rule.waits or one.may_step_with(step_name))
                and (compared is slice_state or has_enough(self._slices[one.slice_key]))
            )
            siblings = [sibling for one in alike if (sibling := one.sibling(rule_index, stale)) is not None]
            slice_state.job.slice_stats[key] = rule.slice_stats(siblings)
        return slice_state.job.slice_stats[key]

    def _finding(self, finding: FindingId, workers: Sequence[WorkerState]) -> Finding | None:
        """A finding of some of a slice's workers; None: none of them has it."""
        rule_index = RULE_INDEXES[finding]
        having = [
            _Shown(worker, each, detail)
            for worker in workers
            if worker.finding_states
            and (detail := (each := worker.finding_states[rule_index]).detail) is not None
            and _is_shown(worker, each)
        ]
        having.sort(key=lambda one: (-SEVERITY_LEVELS[one.detail.severity], -one.state.severity_ratio))
        return _finding(self._rules[rule_index], having, len(workers)) if having else None

    def _hidden(self, slice_state: SliceState) -> set[FindingId]:
        """The findings of a slice that others of it explain, or of another slice of its job; or soon may."""
        every = slice_state.since | slice_state.job.since
        since = {finding: min(times.values()) for finding, times in every.items() if times}
        hidden = hidden_findings(
            since, slice_state.interval_s * (self._limits.sustained + 1), partial(self._is_marked, every)
        )
        return hidden | slice_state.awaited.keys()

    def _is_marked(self, since: Mapping[FindingId, Mapping[str, float]], finding: FindingId) -> bool:
        """True if a finding is more than info for any of the workers that have it."""
        states = (self._workers[name].finding_states[RULE_INDEXES[finding]] for name in since[finding])
        return any(each.detail is not None and each.detail.severity != "info" for each in states)


def hidden_findings(
    since_unix_s: Mapping[FindingId, float], slack_s: float, is_marked: Callable[[FindingId], bool]
) -> set[FindingId]:
    """The findings of a slice that are not shown beside others of it, which explain them.

    What is no more than info hides nothing that began with it: no worker becomes `ok` by being hidden.

    Args:
        since_unix_s: since when the slice has each of its findings.
        slack_s: by how much a cause may have begun before its consequence; an older one hides nothing.
        is_marked: whether one of these findings is more than info for any worker.
    """
    return {
        rule.finding
        for rule in RULES
        if rule.finding in since_unix_s
        and (
            not rule.hidden_by.isdisjoint(since_unix_s)
            or any(
                since_unix_s.get(other, -1.0) >= since_unix_s[rule.finding] - slack_s and is_marked(other)
                for other in rule.hidden_by_new
            )
        )
    }


def slice_key_of(target: Target) -> SliceKey:
    """Key of the slice in which a worker is compared: with its job. Workers without both form one slice."""
    return target.job or "", target.slice or "", target.worker if target.independent else ""


def _as_info(detail: FindingDetail, why: str) -> FindingDetail:
    """A finding that does not alarm, with the reason."""
    if detail.severity == "info":
        return detail
    return replace(detail, severity="info", sentence=f"{detail.sentence} {why}")


def _is_shown(worker: WorkerState, state: FindingState) -> bool:
    """True if a worker has a finding that its state does not end; a state that only hides figures ends none."""
    seen = worker.seen
    if state.since is None or state.detail is None or seen is None:
        return False
    return seen.state in _KEPT_AWAY or state.rule.judges(seen.state)


def _causes(worker: WorkerState, hidden: Container[FindingId]) -> Iterator[Cause]:
    """The findings of a worker, the worst first."""
    causes = []
    for each in worker.finding_states:
        detail, since = each.detail, each.since
        if detail is None or since is None or each.rule.finding in hidden or not _is_shown(worker, each):
            continue
        causes.append(
            Cause(
                words=detail.words,
                finding=each.rule.finding,
                severity=detail.severity,
                since_unix_s=since.time_unix_s,
                since_or_earlier=each.was_there,
                figure=detail.figure,
                excess=max(each.severity_ratio - 1, 0.0),
            )
        )
    # Among findings of equal severity, the first in the table: distances from limits are not comparable.
    yield from sorted(causes, key=lambda cause: -SEVERITY_LEVELS[cause.severity])


def _since_unix_s(state: FindingState) -> float:
    return math.inf if state.since is None else state.since.time_unix_s


def _finding(rule: AnyRule, shown: Sequence[_Shown], members: int) -> Finding:
    """Merges one finding of several workers, the worst first."""
    worst = shown[0].detail
    names = tuple(one.worker.target.worker for one in shown)
    first = min((one.state for one in shown), key=_since_unix_s)
    if len(names) == 1:
        who = f"On {names[0]}"
    elif len(names) == members:
        who = f"On all {members} workers"
    else:
        who = f"On {len(names)} of {members} workers"
    if any(one.detail.sentence != worst.sentence for one in shown):
        who += f" (figures of {names[0]})"
    return Finding(
        finding=rule.finding,
        severity=worst.severity,
        confidence=worst.confidence,
        workers=names,
        job=shown[0].worker.target.job,
        slice=shown[0].worker.target.slice,
        since_unix_s=_since_unix_s(first),
        since_or_earlier=first.was_there,
        evidence=worst.evidence,
        sentence=worst.sentence.replace("{who}", who),
        remedy=worst.remedy or rule.remedy,
        url=f"{URL}{rule.finding}",
    )
