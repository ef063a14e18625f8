"""hang: nothing runs any more, although the job lives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low

from msgspec import Struct
from msgspec.structs import replace

from tpumon.analysis.findings.recent import SAMPLES, Recent, alike_s
from tpumon.analysis.findings.rule import PAUSING, SERVERS, Member, Observation, Rule, Sibling, graded
from tpumon.analysis.history import Moment, seconds_between
from tpumon.analysis.history.slice_changes import TOGETHER_S
from tpumon.model import Evidence, FindingDetail, FindingSeverity, KeptActivity, KeptWorker
from tpumon.untrusted_text import listed

_WARNING_S, _CRITICAL_S = 300.0, 600.0
_GOES_ON_S = 150.0  # whoever has run steps for so long without this worker does not wait for it
_PAUSES = 2.0  # a pause that is this much longer than all before it is none of them
_LIMIT_S = 7200.0  # to which long pauses raise the limits at most
_RATIO_PER_SUSTAINED, _RATIO_LESS = 2.0, 0.5
_UNSEEN_S = 5.0  # between the last activity and the silence that was watched: the sentence tells it
_SURE_S = 60.0  # of silence that was watched, or that libtpu tells: no further samples need agree
_FEW = 5
_SAME_S = 2.0
_SINCE_UNKNOWN = (
    "it has run nothing yet, or is silent since before tpumon first looked: since when is unknown (older than tpumon); "
    "--state DIR remembers it between runs"
)  # scripts look for "older than tpumon"


@dataclass(slots=True)
class Activity:
    """Last activity of a worker, the silence since, its longest pause so far, its steps.

    Attributes:
        restarted: when its job was first seen again after a restart; None: it was not restarted.
        active: its last activity.
        fresh_for_s: for how long after it its figures were current.
        is_watched: whether each query since, until silence was seen, told whether anything ran.
        silent: number of samples since that showed silence.
        silent_since: since when the silence counts: the time before it was seen does so only if that was watched.
        silent_s: how long it has lasted.
        longest_s: the longest silence that ended by itself.
        step_s: step times.
        stepped: time and step time of the last sample with a step.
    """

    restarted: Moment | None = None
    active: Moment | None = None
    fresh_for_s: float = math.inf
    is_watched: bool = True
    silent: int = 0
    silent_since: Moment | None = None
    silent_s: float = 0.0
    longest_s: float = 0.0
    step_s: Recent = field(default_factory=Recent)
    stepped: tuple[Moment, float] | None = None

    def begin_of_silence(self, seen: Observation, last: Moment | None) -> Moment | None:
        """The begin of a silence that is seen for the first time; `last` is what `_last_activity` says."""
        if self.active is None or (self.is_watched and seconds_between(self.active, seen.at) <= self.fresh_for_s):
            return self.active
        began = last or seen.at
        return began if seconds_between(self.active, began) else self.active


class SliceActivity(Struct, frozen=True):
    """Workers of a slice that have stopped or do not answer, each with its step time, if that is known.

    Attributes:
        empty: workers that do nothing and have no work in their queue.
        waiting: workers that do nothing and have work in their queue.
        away: workers that do not answer; if all answer, workers without current figures.
        away_is_down: whether the workers in `away` do not answer.
        restarted: workers whose job was restarted, and when.
        going: time and step time of the last step seen of each worker.
        varies_ratio: how much step times of the slice vary from sample to sample.
    """

    empty: Mapping[str, float | None]
    waiting: Mapping[str, float | None]
    away: Mapping[str, float | None]
    away_is_down: bool
    restarted: Mapping[str, tuple[Moment, float | None]]
    going: Sequence[tuple[Moment, float]]
    varies_ratio: float

    def alike(self, workers: Mapping[str, float | None], own_s: float | None) -> tuple[str, ...]:
        """Workers possibly in the same job as one of this step time: similar or unknown step time."""
        return tuple(
            name for name, step_s in workers.items() if not step_s or not own_s or self._is_alike(step_s, own_s)
        )

    def goes_on(self, memory: Activity) -> bool:
        """True if a worker has run the steps of this one long after this one ran any."""
        active, own_s = memory.active, memory.step_s.median
        if active is None or not own_s:
            return False
        return any(
            seconds_between(active, stepped) > _GOES_ON_S and self._is_alike(step_s, own_s)
            for stepped, step_s in self.going
        )

    def _is_alike(self, step_s: float, own_s: float) -> bool:
        least_s, greatest_s = alike_s(own_s, self.varies_ratio)
        return least_s <= step_s <= greatest_s

    def restarted_since(self, memory: Activity) -> tuple[str, ...]:
        """Workers, possibly of the same job, that were restarted since this one ran anything: they went first."""
        active, own = memory.active, memory.restarted
        since = {
            name: step_s
            for name, (at, step_s) in self.restarted.items()
            if active is not None
            and seconds_between(active, at)
            and (own is None or max(seconds_between(own, at), seconds_between(at, own)) > TOGETHER_S)
        }
        return self.alike(since, memory.step_s.median)

    def stopped_first(self, memory: Activity) -> tuple[str, ...]:
        """Workers, possibly of the same job, that have no queued work while others have some."""
        own_s = memory.step_s.median
        if not self.alike(self.waiting, own_s) or self.restarted_since(memory):
            return ()
        return self.alike(self.empty, own_s)


class Hang(Rule[Activity, SliceActivity]):
    """No step and no op for several samples in a row, after the job had run steps.

    A checkpoint, an evaluation on the host and a compilation look the same for a while. So the finding is `info` at
    first, also where others have queued work: they may wait for the worker that writes the checkpoint.
    """

    finding = "hang"
    not_for = SERVERS
    info_for = PAUSING
    memory_type = Activity
    remedy = (
        "look at the log of the worker that stopped first or does not answer, or else of all; print every thread's "
        "stack (py-spy dump, faulthandler) before you restart the job; if the same worker stops first again, replace "
        "its host"
    )
    severities = ("info", "warning", "critical")
    compares = True
    states = frozenset({"no-activity"})
    samples = 1
    hidden_by = frozenset()

    def remember(self, memory: Activity, seen: Observation) -> None:
        """Counts samples without activity in a row."""
        memory.restarted = seen.at if seen.restarted else memory.restarted
        if seen.state == "no-activity" and seen.sample.why_not_seen is None:
            last = _last_activity(seen)
            if last is not None and (memory.active is None or seconds_between(memory.active, last) > _SAME_S):
                memory.active, memory.silent_since = last, None  # it ran after it was seen to
            memory.silent_since = memory.silent_since or memory.begin_of_silence(seen, last)
            memory.silent += 1
            if memory.silent_since is not None:
                memory.silent_s = seconds_between(memory.silent_since, seen.at)
        elif seen.state == "live" and not seen.sample.companions_only:
            if memory.silent:
                memory.longest_s = max(memory.longest_s, memory.silent_s)
            memory.active, memory.is_watched = seen.at, True
            memory.fresh_for_s = seen.sample.fresh_for_s if seen.sample.interval_s else math.inf
            if seen.sample.is_activity_checked:  # until the looks between samples show silence, it runs
                memory.fresh_for_s = min(memory.fresh_for_s, _WARNING_S)
            memory.silent, memory.silent_since, memory.silent_s = 0, None, 0.0
            if seen.step_s:
                memory.step_s.add(seen.step_s)
                memory.stepped = seen.at, seen.step_s
        elif not memory.silent:
            memory.is_watched = False

    def resume(self, memory: Activity, kept: KeptWorker) -> None:
        """Restores the last activity of a worker, the begin of its silence, its longest pause and its step time."""
        activity = kept.activity
        if activity.active_unix_s is not None:
            memory.active, memory.is_watched = Moment(activity.active_unix_s), False
            memory.silent, memory.longest_s = activity.silent, activity.longest_s
            if activity.silent:
                memory.silent_since = Moment(activity.silent_unix_s or activity.active_unix_s)
            if activity.step_s:
                for _ in range(SAMPLES):
                    memory.step_s.add(activity.step_s)

    def kept(self, memory: Activity, kept: KeptWorker, unix_s: Callable[[Moment], float]) -> KeptWorker:
        """Adds what `resume` takes."""
        activity = KeptActivity(
            active_unix_s=None if memory.active is None else unix_s(memory.active),
            silent_unix_s=None if memory.silent_since is None else unix_s(memory.silent_since),
            silent=memory.silent,
            longest_s=memory.longest_s,
            step_s=memory.step_s.median,
        )
        return replace(kept, activity=activity)

    def slice_stats(self, siblings: Sequence[Sibling[Activity]]) -> SliceActivity:
        """Compares the queues of programs that wait for the devices."""
        stopped = [sibling for sibling in siblings if sibling.seen.state == "no-activity" and sibling.memory.silent]
        sizes = [
            (sibling, size) for sibling in stopped if (size := sibling.seen.figures.runtime_hlo_queue_size) is not None
        ]
        down = [sibling for sibling in siblings if sibling.seen.state == "down"]
        away = down or [sibling for sibling in siblings if sibling.seen.state == "stale"]
        steps = [sibling.memory.step_s for sibling in siblings] if stopped or away else []
        varies = [step_s.spread / step_s.median for step_s in steps if step_s.median]
        return SliceActivity(
            empty=_steps(sibling for sibling, size in sizes if not size),
            waiting=_steps(sibling for sibling, size in sizes if size),
            away=_steps(away),
            away_is_down=bool(down),
            restarted={
                sibling.seen.target.worker: (sibling.memory.restarted, sibling.memory.step_s.median)
                for sibling in siblings
                if sibling.memory.restarted is not None
            }
            if stopped
            else {},
            going=[sibling.memory.stepped for sibling in siblings if sibling.memory.stepped] if stopped else (),
            varies_ratio=median_low(varies) if varies else 0.0,
        )

    def severity_ratio(self, member: Member[Activity, SliceActivity]) -> float | str:
        """Samples without activity in a row, relative to how many must agree; more for a worker that stopped first."""
        if (why_not_seen := member.seen.sample.why_not_seen) is not None:
            return why_not_seen
        if member.memory.active is None:
            return _SINCE_UNKNOWN
        if not member.memory.silent:
            return 0.0
        # Above 1 from three quarters of `sustained` on.
        agree = self.limits.sustained if member.memory.silent_s > _SURE_S else 0
        silent = max(member.memory.silent, agree)
        severity_ratio = _RATIO_PER_SUSTAINED * silent / max(self.limits.sustained, 1) - _RATIO_LESS
        is_first = member.seen.target.worker in member.slice_stats.stopped_first(member.memory)
        return severity_ratio + 1 if severity_ratio > 1 and is_first else severity_ratio

    def judged_in_part(self, seen: Observation) -> str | None:
        """Says so where samples come more rarely than its limits, and nothing looks between them."""
        interval_s = seen.sample.interval_s or 0.0
        if seen.sample.is_activity_checked is not False or interval_s <= _WARNING_S or _is_told(seen):
            return None
        return f"not within {_WARNING_S / 60:.0f} min, samples come every {math.ceil(interval_s / 60)} min"

    def began(self, member: Member[Activity, SliceActivity]) -> Moment | None:
        """Moment of the last activity seen."""
        return member.memory.active

    def was_there(self, member: Member[Activity, SliceActivity]) -> bool | None:
        """False: a sample showed activity where it began."""
        return None if member.memory.active is None else False

    def detail(self, member: Member[Activity, SliceActivity]) -> FindingDetail:
        """Names the workers that stopped first or do not answer, if known."""
        memory, goes_on = member.memory, member.slice_stats.goes_on(member.memory)
        usual_s = min(_PAUSES * memory.longest_s, _LIMIT_S)
        limit_s, critical_s = max(_WARNING_S if goes_on else _CRITICAL_S, usual_s), max(_CRITICAL_S, usual_s)
        limits: dict[FindingSeverity, float] = {"info": 0.0, "warning": limit_s}
        if memory.silent > 1 or _is_told(member.seen):  # a pause as well may lie between two samples that are far apart
            limits["critical"] = critical_s
        grade, passed_s = graded(memory.silent_s, limits)
        evidence = {
            "no_activity_s": Evidence(
                value=memory.silent_s, threshold=passed_s or None, reference=memory.longest_s or None
            )
        }
        sentence = f"{{who}}, no step and no op was seen for {memory.silent_s:.0f} s."
        idle_s = 0.0 if memory.active is None else seconds_between(memory.active, member.seen.at)
        if idle_s - memory.silent_s > _UNSEEN_S:
            sentence += f" It was last seen running {idle_s:.0f} s ago; what it did in between is not known."
        words = f"no activity seen for {memory.silent_s:.0f} s"
        size = member.seen.figures.runtime_hlo_queue_size
        if size is not None:
            evidence["queue_size"] = Evidence(value=size)
        step_s = memory.step_s.median
        if missing := member.slice_stats.alike(member.slice_stats.away, step_s):
            known = "These do not answer" if member.slice_stats.away_is_down else "Of these nothing is known now"
            sentence += f" {known}, and the others may wait for them: {listed(missing, _FEW)}."
        elif restarted := member.slice_stats.restarted_since(memory):
            sentence += f" These were restarted since, and the others may wait for them: {listed(restarted, _FEW)}."
        elif first := member.slice_stats.stopped_first(memory):
            who = listed(first, _FEW)
            sentence += f" Stopped first: {who}, with no work in its queue; those that have some wait."
            waits = member.seen.target.worker in member.slice_stats.waiting
            words = f"waits for {who}, {words}" if waits else f"{who} stopped first, {words}"
        elif goes_on:
            sentence += " Others of its slice go on with the same steps."
        elif grade == "info":
            sentence += " A checkpoint or a compilation looks the same."
        return FindingDetail(
            words=words,
            sentence=sentence,
            evidence=evidence,
            severity=grade,
            confidence="low" if grade == "info" else "high",
        )


def _steps(siblings: Iterable[Sibling[Activity]]) -> Mapping[str, float | None]:
    return {sibling.seen.target.worker: sibling.memory.step_s.median for sibling in siblings}


def _is_told(seen: Observation) -> bool:
    """True if the runtime says for how long its devices have been idle."""
    return any(device.runtime_tensorcore_idle_s is not None for device in seen.figures.devices)


def _last_activity(seen: Observation) -> Moment | None:
    """Last activity of its devices, as the runtime says; None: none since it started, or it does not say."""
    idle_s = [device.runtime_tensorcore_idle_s for device in seen.figures.devices]
    known = [each for each in idle_s if each is not None]
    uptime_s = seen.figures.runtime.uptime_s
    if not known or uptime_s is None or min(known) >= uptime_s - _SAME_S:
        return None
    return seen.at.earlier(min(known))
