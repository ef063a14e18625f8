"""Rules, and the observations that they judge.

A rule is one class: a finding's limits, its words and its remedy. It is pure: samples in, a number out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, ClassVar, Generic, Self, TypeVar

from msgspec import Struct

from tpumon.analysis.findings.thresholds import Thresholds
from tpumon.analysis.history import Moment, seconds_between
from tpumon.model import (
    Figures,
    FindingDetail,
    FindingId,
    FindingSeverity,
    JobKindName,
    KeptWorker,
    Sample,
    State,
    Target,
)
from tpumon.model.figure_table import STEP

SERVERS: frozenset[JobKindName] = frozenset({"serving"})
"""Kinds of job that wait for requests; where training goes on in turn, a pause is none."""
NO_SERVERS: frozenset[JobKindName] = frozenset({"training", "batch", "interactive", "unknown"})
PAUSING: frozenset[JobKindName] = frozenset({"interactive", "unknown"})
"""Kinds of job that pause and change as they like, or may."""

_GAP_S = 10.0  # for less, a worker that is stale has not changed

MemoryT = TypeVar("MemoryT")
StatsT = TypeVar("StatsT")


class Observation(Struct, frozen=True, kw_only=True):
    """One query of one worker.

    Attributes:
        target: the worker.
        sample: the query's sample, answered or not.
        at: when the query began.
        state: the state that it puts the worker in.
        values: the compared figures, by key of `tpumon.model.figure_table`.
        restarted: whether the job was restarted before it.
        job_kind: the kind of the job; None: not known to anybody.
    """

    target: Target
    sample: Sample
    at: Moment
    state: State
    values: Mapping[str, float | None]
    restarted: bool = False
    job_kind: JobKindName | None = None

    def is_long_after(self, moment: Moment | None) -> bool:
        """True if a sample of that moment was no longer current for a while before this one."""
        sample = self.sample
        if moment is None or not sample.interval_s:
            return False
        return seconds_between(moment, self.at) > max(sample.fresh_for_s, _GAP_S)

    @property
    def figures(self) -> Figures:
        """The figures of the sample."""
        return self.sample.figures

    @property
    def step_s(self) -> float | None:
        """Step time."""
        return self.values[STEP.key]

    @property
    def waited_ratio(self) -> float | None:
        """Share of the time that is not the worker's own work: it waits for others, for input or for its host.

        Of whole steps where there is a trace; otherwise idle time, time in collectives and infeed.
        """
        figures, step_s = self.figures, self.step_s
        if figures.step_work_s is not None and step_s:
            return max(1 - figures.step_work_s / step_s, 0.0)
        if figures.idle_ratio is None:
            return None
        ops, infeed = figures.op_time_ratios, figures.infeed_ratio
        waited = (ops.get("collective", 0.0) + ops.get("infeed", 0.0)) if ops else infeed.avg if infeed else 0.0
        return min(figures.idle_ratio + waited, 1.0)

    @property
    def own_work_s(self) -> float | None:
        """Time of a step in which the worker does not wait."""
        waited, step_s = self.waited_ratio, self.step_s
        return None if waited is None or not step_s else (1 - waited) * step_s


def graded(value: float, limits: Mapping[FindingSeverity, float]) -> tuple[FindingSeverity, float]:
    """The severity of a figure, and the limit that it has passed for that.

    Args:
        value: the figure; where it is below all limits, as while a finding leaves, the first one counts.
        limits: the value from which each severity holds, the least severe first.
    """
    passed = [(severity, limit) for severity, limit in limits.items() if value > limit]
    return passed[-1] if passed else next(iter(limits.items()))


class Sibling(Struct, Generic[MemoryT], frozen=True):
    """A worker of a slice as a rule sees it: what was seen last, and what the rule remembers of it."""

    seen: Observation
    memory: MemoryT


class Member(Struct, Generic[MemoryT, StatsT], frozen=True):
    """A worker that is judged: beside what a `Sibling` has, what the workers of its slice have in common.

    Attributes:
        unseen: why it may wait for a worker that is not known, in words that follow `tpumon`; None: it cannot.
        is_after_gap: whether the finding was present and nobody could look for a while: what was seen before is old.
    """

    seen: Observation
    memory: MemoryT
    slice_stats: StatsT
    unseen: str | None = None
    is_after_gap: bool = False


class Rule(Generic[MemoryT, StatsT]):
    """Judges one finding. The judge adds the hysteresis.

    Attributes:
        finding: the finding.
        memory_type: type of what the rule remembers of a worker; made anew when a job begins.
        remedy: what to do about it; a page and a runbook take it from here.
        severities: the severities that the finding can have.
        samples: how many in a row must agree; None: as many as the user wants.
        shown_by: how many samples have shown it when the strength is above 1 for the first time.
        leaves_below: the strength below which it counts as gone.
        compares: whether the rule compares workers: `slice_stats` gets those of a slice that may run the same program.
        compares_slices: whether `slice_stats` gets the workers of all slices of the job; the finding is then judged
            only if all of them are followed, as far as their number is known, and nearly all have figures.
        waits: whether one worker, also one with another program, may cause the finding by making the others wait.
            While any worker has no figures, the finding is info.
        names_cause: whether the finding names the worker that others wait for, and so explains their findings.
        not_for: kinds of job for which the finding has no meaning, and is not judged.
        info_for: kinds of job for which the finding is info at most.
        of_device: whether the rule needs device figures, so that a trace without a device tells nothing.
        states: states, besides `live`, in which the finding is judged.
        hidden_by: findings of the same slice that explain this one, so that it is not shown beside them.
        hidden_by_new: further findings that hide this one, but only if they began at most some samples before it.
    """

    finding: ClassVar[FindingId]
    memory_type: ClassVar[type[Any]] = NoneType
    remedy: ClassVar[str]
    severities: ClassVar[tuple[FindingSeverity, ...]] = ("warning",)
    samples: ClassVar[int | None] = None
    shown_by: ClassVar[int] = 1
    leaves_below: ClassVar[float] = 0.8
    compares: ClassVar[bool] = False
    compares_slices: ClassVar[bool] = False
    waits: ClassVar[bool] = False
    names_cause: ClassVar[bool] = False
    not_for: ClassVar[frozenset[JobKindName]] = frozenset()
    info_for: ClassVar[frozenset[JobKindName]] = frozenset()
    of_device: ClassVar[bool] = False
    states: ClassVar[frozenset[State]] = frozenset()
    hidden_by: ClassVar[frozenset[FindingId]] = frozenset({"hang"})
    hidden_by_new: ClassVar[frozenset[FindingId]] = frozenset()

    def __init__(self, limits: Thresholds) -> None:
        self.limits = limits

    def judges(self, state: State) -> bool:
        """True if a query that puts a worker in this state says anything about the finding."""
        return state == "live" or state in self.states

    def remember(self, memory: MemoryT, seen: Observation) -> None:
        """Remembers what a query showed."""

    def resume(self, memory: MemoryT, kept: KeptWorker) -> None:
        """Goes on from what was known of the worker before tpumon was restarted."""

    def kept(self, _memory: MemoryT, kept: KeptWorker, _unix_s: Callable[[Moment], float]) -> KeptWorker:
        """Adds what `resume` needs to what is kept of the worker; `_unix_s` tells a moment by the wall clock now."""
        return kept

    def slice_stats(self, _peers: Sequence[Sibling[MemoryT]]) -> StatsT:
        """Statistics of these workers, to compare each with. Needs `compares`."""
        return None  # type: ignore[return-value]  # a rule that compares no workers

    def severity_ratio(self, member: Member[MemoryT, StatsT]) -> float | str:
        """The worker's figure relative to its limit: above 1 it counts. A text: why it cannot be judged."""
        raise NotImplementedError

    def judged_in_part(self, _seen: Observation) -> str | None:
        """Reason for which a finding that is judged may be late, or missed in part; None: there is none."""
        return None

    def rests_on_several(self, _member: Member[MemoryT, StatsT]) -> bool:
        """True if what is above the limit comes from several samples already, so that it is there at once."""
        return False

    def why_later(self, _member: Member[MemoryT, StatsT]) -> Suspected | None:
        """Reason for which what is above the limit is not shown yet, however many samples agree; None: none."""
        return None

    def began(self, _member: Member[MemoryT, StatsT]) -> Moment | None:
        """Begin of a finding that is present, if that was before the first sample above the limit."""
        return None

    def was_there(self, _member: Member[MemoryT, StatsT]) -> bool | None:
        """True if a finding that is present may have begun before the first sample; None: see `FindingState`."""
        return None

    def detail(self, member: Member[MemoryT, StatsT]) -> FindingDetail:
        """Describes the finding, which is present."""
        raise NotImplementedError


class NeedsMoreSamples(str):
    """Reason for which a finding cannot be judged yet: more samples are needed.

    Attributes:
        takes: number of samples needed in all; None: that depends on what they show.
    """

    __slots__ = ("takes",)
    takes: int | None

    def __new__(cls, words: str = "it takes {takes} samples", *, takes: int | None = None) -> Self:
        reason = super().__new__(cls, words.format(takes=takes))
        reason.takes = takes
        return reason


class NeedsFewMoreSamples(NeedsMoreSamples):
    """Reason for which a finding cannot be judged yet: one or two more samples are needed."""

    __slots__ = ()


class Suspected(NeedsFewMoreSamples):
    """Reason for which a finding is not judged although samples speak for it: they may have another cause."""

    __slots__ = ()


class MayBeOther(str):
    """Reason for which a finding cannot be judged: what speaks for it may have a cause that is not seen."""

    __slots__ = ()


AnyRule = Rule[Any, Any]
