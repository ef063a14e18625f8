"""State of a judge: of each worker and finding whether it is present and since when, and of each slice."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from tpumon.analysis.findings.rule import (
    AnyRule,
    MayBeOther,
    Member,
    NeedsFewMoreSamples,
    NeedsMoreSamples,
    Observation,
    Sibling,
    Suspected,
)
from tpumon.analysis.history import Moment
from tpumon.model import Cause, FindingDetail, FindingId, KeptFinding, NotJudged, Target

SliceKey = tuple[str, str, str]
"""Job, slice, and the worker if it is compared with none; empty where that is not known."""

_UNKNOWN_AFTER = 3  # samples in a row that cannot be judged
_LEAVES_AFTER = 2  # samples in a row below the limit


@dataclass(slots=True)
class FindingState:
    """One rule's view of one worker.

    The finding is in one of four states:

        unknown   `reason` says why the last sample could not be judged, `unknown` how often in a row
        counting  `above`: samples in a row above the limit, `needed` of which make it present
        present   `since`
        leaving   `below`, while `since` is set: samples in a row below the limit to leave, which make it absent

    Attributes:
        rule: the rule.
        needed: samples in a row that must agree.
        memory: what the rule remembers of the worker.
        known: how many samples could be judged.
        above, below: of them, how many in a row were above the limit last, and how many below the one to leave.
        began: when the present row above the limit began; before there is one, when the first sample came.
        unknown: how many samples in a row could not be judged.
        reason: why the last one could not; None if it could.
        since: since when the finding is present; None: it is not.
        was_there: whether the first samples showed it already.
        detail: how it concerns the worker, while it is present.
        severity_ratio: of the last sample that could be judged.
        last: times of the last samples that could be judged, or that left it to one or two more, where it takes
            several to show it.
        first: time of the first sample.
        known_at: time of the last sample that could be judged.
        is_first_look: whether all samples since a time in which nobody looked are above the limit.
        kept_until_unix_s: until when the finding, which was present before tpumon was restarted, stays without being
            judged; None: it was judged since.
    """

    rule: AnyRule
    needed: int
    memory: Any
    known: int = 0
    above: int = 0
    below: int = 0
    began: Moment | None = None
    unknown: int = 0
    reason: str | None = None
    since: Moment | None = None
    was_there: bool = False
    detail: FindingDetail | None = None
    severity_ratio: float = 0.0
    last: tuple[Moment, ...] = ()
    first: Moment | None = None
    known_at: Moment | None = None
    is_first_look: bool = False
    kept_until_unix_s: float | None = None

    def resume(self, kept: KeptFinding, until_unix_s: float) -> None:
        """Goes on with a finding that was present before tpumon was restarted."""
        self.known = self.above = self.needed
        self.since, self.was_there = Moment(kept.since_unix_s), kept.since_or_earlier
        self.severity_ratio, self.kept_until_unix_s = 1.0, min(kept.until_unix_s or until_unix_s, until_unix_s)
        self.detail = kept.detail

    def kept(self, unix_s: Callable[[Moment], float]) -> KeptFinding | None:
        """The value that `resume` takes; None: the finding is not present.

        Args:
            unix_s: a moment by the wall clock as it is set now.
        """
        detail = self.detail
        if self.since is None or detail is None:
            return None
        return KeptFinding(
            finding=self.rule.finding,
            since_unix_s=unix_s(self.since),
            since_or_earlier=self.was_there,
            until_unix_s=self.kept_until_unix_s,
            detail=detail,
        )

    @property
    def is_judged(self) -> bool:
        """True if it is known that the finding is present, or that it is not, also between samples without figures."""
        if self.since is None and (isinstance(self.reason, Suspected) or self.is_first_look):
            return False
        return self.since is not None or self.known >= self.needed or self.known > self.above

    @property
    def needs_more(self) -> bool:
        """True if one or two more samples would tell, where it cannot be judged."""
        return self.known > 0 or isinstance(self.reason, NeedsFewMoreSamples)

    @property
    def not_judged(self) -> NotJudged | None:
        """Finding and reason, if the finding cannot be judged; None: it was judged, or no sample came."""
        if (why := self.reason) is None and self.known:
            is_shown = (self.is_first_look or self.above == self.known) and any(
                severity != "info" for severity in self.rule.severities
            )
            why = (
                Suspected("its samples show it so far, but {takes} in a row must agree", takes=self.needed)
                if is_shown
                else NeedsMoreSamples("{takes} samples in a row must agree", takes=self.needed)
            )
        takes = why.takes if isinstance(why, NeedsMoreSamples) else None
        if why is None:
            return None
        is_suspected = isinstance(why, Suspected)
        return NotJudged(finding=self.rule.finding, reason=str(why), takes=takes, workers=1, is_suspected=is_suspected)

    def is_after_gap(self, seen: Observation) -> bool:
        """True if the finding is present as of before a time in which it was not judged: now one sample ends it."""
        if self.since is None or self.kept_until_unix_s is not None:
            return self.since is not None
        return seen.is_long_after(self.known_at)

    def judge(self, member: Member[Any, Any], why_not: str | None = None) -> None:
        """Adds what a sample says.

        Args:
            member: the worker.
            why_not: why it cannot be judged; None: that is for the rule to say.
        """
        rule, at = self.rule, member.seen.at
        self.first = self.first or at
        severity_ratio = rule.severity_ratio(member) if why_not is None else why_not
        if isinstance(severity_ratio, str):
            self._note_unknown(severity_ratio, at)
            return
        self.unknown, self.reason, self.severity_ratio, self.kept_until_unix_s = 0, None, severity_ratio, None
        self.is_first_look = severity_ratio > 1 and (self.is_first_look or member.seen.is_long_after(self.known_at))
        self.known_at = at
        self.known += 1
        self._note_last(at)
        if severity_ratio <= 1 and self.since is None:  # as of nearly all samples
            self.above = 0
            return
        is_new = self.since is None
        if member.is_after_gap and severity_ratio < rule.leaves_below:
            self.above, self.since, self.detail = 0, None, None
            return
        self._note_known(severity_ratio, member)
        # While it is about to leave, what supported it last stands.
        if self.since is not None and severity_ratio >= rule.leaves_below:
            self.detail = rule.detail(member)
            self.since = self.since.as_of(at)
            began = rule.began(member)
            if began is not None and is_new:
                was_there = rule.was_there(member)
                self.since, self.was_there = began.as_of(at), self.was_there if was_there is None else was_there

    @property
    def may_begin(self) -> bool:
        """True if one or two more samples would tell that the finding is present."""
        return self.since is None and (self.above > 0 or isinstance(self.reason, NeedsFewMoreSamples))

    @property
    def is_kept_back(self) -> bool:
        """True if the finding would be present, if others had enough samples."""
        return self.since is None and self.above >= self.needed and isinstance(self.reason, Suspected)

    def settle(self, member: Member[Any, Any]) -> None:
        """Makes the finding, for which enough samples speak, present as of the last one, if nothing keeps it back."""
        self.reason = self.rule.why_later(member)
        if self.reason is None and self.began is not None:
            self.was_there = self.above == self.known or self.began is self.first or self._lacks_last
            self.since, self.below = self.began.as_of(member.seen.at), 0
            self.detail = self.rule.detail(member)

    @property
    def _lacks_last(self) -> bool:
        """True if, of the samples that show it, the first are not known: they could not be judged."""
        return self.rule.shown_by > 1 and len(self.last) < self.rule.shown_by

    def _note_last(self, at: Moment) -> None:
        if self.rule.shown_by > 1:
            self.last = (*self.last, at)[-self.rule.shown_by :]

    def _note_unknown(self, reason: str, at: Moment) -> None:
        self.unknown += 1
        self.reason = reason
        if isinstance(reason, NeedsFewMoreSamples):
            self._note_last(at)  # it may be one of those that show it
        else:
            self.last = ()
        is_kept = self.kept_until_unix_s is not None and at.time_unix_s < self.kept_until_unix_s
        if self.unknown >= _UNKNOWN_AFTER and self.known and not is_kept:
            self.began = None  # what is found later did not begin with the first sample
        if self.unknown >= _UNKNOWN_AFTER and not is_kept:
            self.since = self.detail = None
            self.known = self.above = self.below = 0
        if isinstance(reason, NeedsFewMoreSamples) and self.began is None:
            self.began = at

    def _note_known(self, severity_ratio: float, member: Member[Any, Any]) -> None:
        at = member.seen.at
        self.above = self.above + 1 if severity_ratio > 1 else 0
        if self.above == 1 and (self.known > 1 or self.began is None):
            self.began = self.last[0] if self.last else at
        if self.since is None:
            if self.above >= (1 if self.rule.rests_on_several(member) else self.needed):
                self.settle(member)
            return
        self.below = self.below + 1 if severity_ratio < self.rule.leaves_below else 0
        if self.below >= min(self.needed, _LEAVES_AFTER):
            self.since = self.detail = None


@dataclass(slots=True)
class WorkerState:
    """State of a judge about one worker.

    Attributes:
        seen: what was observed last.
        finding_states: what the judge knows of each finding, in the order of the rules; none before its first query.
        causes: what is shown of them.
        step_name: what its job steps by, as its samples said last.
        has_answered: whether it had figures at any time, also before a restart of tpumon.
    """

    target: Target
    finding_states: list[FindingState] = field(default_factory=list)
    slice_key: SliceKey = ("", "", "")
    seen: Observation | None = None
    causes: tuple[Cause, ...] = ()
    step_name: str | None = None
    has_answered: bool = False

    def judged(self) -> tuple[tuple[FindingId, ...], tuple[NotJudged, ...], bool]:
        """The findings that can be judged of it, present or not; the others with the reason; if more samples help."""
        missing = [each for each in self.finding_states if not each.is_judged]
        return (
            tuple([each.rule.finding for each in self.finding_states if each.is_judged]),
            (*[one for each in missing if (one := self._not_judged(each)) is not None], *self._in_part()),
            any(each.needs_more for each in missing),
        )

    def _not_judged(self, state: FindingState) -> NotJudged | None:
        """As `FindingState.not_judged`; what may have another cause is explained by a finding that is present."""
        one = state.not_judged
        if one is None or not isinstance(state.reason, MayBeOther):
            return one
        causes = (each.rule.finding for each in self.finding_states if each.since is not None)
        cause = next((finding for finding in causes if finding in state.rule.hidden_by), None)
        return one if cause is None else replace(one, reason=f"explained by {cause}")

    def _in_part(self) -> Iterator[NotJudged]:
        """The findings that are judged, but not in full."""
        for each in self.finding_states:
            if self.seen is not None and each.is_judged and (why := each.rule.judged_in_part(self.seen)) is not None:
                yield NotJudged(finding=each.rule.finding, reason=why, workers=1)

    def may_step_with(self, step_name: str | None) -> bool:
        """False if the worker is known to step by another program than `step_name`."""
        return self.step_name is None or step_name is None or self.step_name == step_name

    def sibling(self, rule_index: int, stale: Collection[str]) -> Sibling[Any] | None:
        """The worker as the rule of this index sees it; None if it was not queried yet, or is ambiguous."""
        seen = None if self.target.ambiguous else self.seen
        if stale and seen is not None and self.target.worker in stale and seen.state in {"live", "no-activity"}:
            seen = replace(seen, state="stale")
        return None if seen is None else Sibling(seen, self.finding_states[rule_index].memory)


@dataclass(slots=True, eq=False)
class ComparedWorkers:
    """Workers that are compared, and which of them have which finding since when.

    Attributes:
        notes: number of times that a worker got or lost a finding.
    """

    workers: list[WorkerState] = field(default_factory=list)
    since: dict[FindingId, dict[str, float]] = field(default_factory=dict)
    notes: int = 0

    def note(self, finding: FindingId, worker: str, since: Moment | None) -> None:
        """Notes since when a worker has a finding; None: it has not."""
        self.notes += 1
        if since is not None:
            self.since.setdefault(finding, {})[worker] = since.time_unix_s
        elif finding in self.since:
            self.since[finding].pop(worker, None)


@dataclass(slots=True, eq=False)
class JobState(ComparedWorkers):
    """The workers of all slices of a job, with the findings for which slices are compared.

    Attributes:
        queries: how many there were since all workers were looked at; infinite: they never were.
        slice_stats: statistics of the workers as of that look, by rule index and by name of the step.
    """

    slices: list[SliceState] = field(default_factory=list)
    queries: float = math.inf
    slice_stats: dict[tuple[ComparedWorkers, int, str | None], Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class SliceState(ComparedWorkers):
    """The workers of one slice.

    Attributes:
        job: what it is a slice of.
        hidden: findings that others explain.
        interval_s: from one query of a worker to its next one, as of the last query.
        current: number of its workers that had figures at the last look.
        counted: number of those that were known then to be of it.
        not_followed: words for what is not followed of the slice or job, so that it is not compared; None: nothing.
        is_early: whether, at that look, some worker had too few samples to tell if the others wait for it.
        unseen: words for what is not followed of the slice, or for a single worker of a slice of unknown size.
        awaited: findings that began and that a straggler may explain: which workers were not sampled since, and until
            when they are awaited.
    """

    job: JobState = field(default_factory=JobState)
    hidden: set[FindingId] = field(default_factory=set)
    interval_s: float = 0.0
    current: int = 0
    counted: int = 0
    not_followed: str | None = None
    is_early: bool = False
    unseen: str | None = None
    awaited: dict[FindingId, tuple[set[str], float]] = field(default_factory=dict)

    def has_begun(self, finding: FindingId) -> bool:
        """True if any worker has a finding, or would have it if others had enough samples."""
        if self.since.get(finding):
            return True
        states = (each for worker in self.workers for each in worker.finding_states if each.rule.finding == finding)
        return self.is_early and any(each.is_kept_back for each in states)

    def wait_for_others(self, finding: FindingId, sampled: Container[str], at: Moment) -> None:
        """Waits for the next sample of each other worker that has figures, for two intervals at most.

        Args:
            finding: what began, on the first of its workers.
            sampled: workers that were sampled with it.
            at: the present moment.
        """
        live = (one.target.worker for one in self.workers if one.seen is not None and one.seen.state == "live")
        others = {name for name in live if name not in sampled}
        if others:
            self.awaited[finding] = others, at.time_unix_s + 2 * self.interval_s

    def note_sampled(self, worker: str, at: Moment) -> None:
        """Notes that a worker of the slice was sampled; findings that await no other worker are shown from now on."""
        for finding, (others, until_unix_s) in list(self.awaited.items()):
            others.discard(worker)
            if not others or at.time_unix_s >= until_unix_s:
                del self.awaited[finding]
