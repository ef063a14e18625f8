"""recompiling: the host compiles again and again while steps run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tpumon.analysis.findings.rule import (
    PAUSING,
    SERVERS,
    Member,
    NeedsFewMoreSamples,
    NeedsMoreSamples,
    Observation,
    Rule,
    Suspected,
)
from tpumon.analysis.history import Moment, seconds_between
from tpumon.model import COMPILE_LIMIT_RATIO, Evidence, Figures, FindingDetail, KeptFinding, KeptWorker

_OFTEN = 2  # samples
_OFTEN_NEW = 3  # programs: a pause before one of them may have had another cause
_OFTEN_PAUSES = 4  # in which the host compiles: a job that begins makes some, for evaluation and checkpoints
_FEWEST = 2 * _OFTEN_NEW + 1  # samples that can show so many: a program, then a pause and another one each time
_FURTHEST = 24  # samples from one that shows compiling to the next
_LEAST_QUIET = 6  # samples without compiling after which it is over: where half show it, chance once in 64 times
_STARTED = 2  # samples in a row with steps alone
_UNLIKE = 24  # changes, none of them back to a program that ran before: of 64 sizes that is chance once in 100 times
_LEAST_UNLIKE = 2  # changes from which on it takes as many
_MOST_PROGRAMS = 256  # or functions that are remembered

_ALWAYS_NEW = "it takes {takes} samples where nearly each shows another program: they may have been compiled ahead"
_MAYBE = "compiling in {compiling} of {samples} samples: the job begins, or it compiles again and again"
_NOT_KNOWN = "nothing tells what is compiled: traces show neither the host nor programs"


@dataclass(slots=True)
class Compiling:
    """Samples that showed compiling amid steps.

    Attributes:
        often: number of such samples that make a finding.
        samples: number of samples that tell whether the host compiles.
        count: number of such samples, none of them far from the one before.
        gap: the furthest that two of them are apart, in samples.
        quiet: samples since the last one.
        ratio: share of the time for which the host compiled in the last one.
        began: when the first of them was.
    """

    often: int = _OFTEN
    samples: int = 0
    count: int = 0
    gap: int = 1
    quiet: int = 0
    ratio: float = 0.0
    began: Moment | None = None

    @property
    def is_over(self) -> bool:
        """True if it has not compiled for twice as long as it did between compiling."""
        far = max(_LEAST_QUIET, 2 * self.gap) if self.is_found else _FURTHEST
        return self.quiet >= far

    @property
    def is_found(self) -> bool:
        """True if there are so many that they make a finding."""
        return self.count >= self.often

    @property
    def count_ratio(self) -> float:
        """Number of such samples, relative to how many it takes."""
        return self.count / (self.often - 0.5)

    @property
    def severity_ratio(self) -> float | str:
        """`count_ratio`, or as text the reason why it is not known."""
        if not self.samples:
            return _NOT_KNOWN
        return self.count_ratio if self.samples >= _OFTEN else NeedsFewMoreSamples(takes=_OFTEN)

    def evidence(self) -> Mapping[str, Evidence]:
        """The figures that it rests on; the limit is that of the share of time in one sample."""
        return {
            "compiling_samples": Evidence(value=self.count, threshold=self.often),
            "compile_ratio": Evidence(value=self.ratio, threshold=COMPILE_LIMIT_RATIO),
        }

    def note(self, ratio: float | None, at: Moment) -> None:
        """Notes a sample: the share of the time for which it shows compiling, since when; None: it shows none."""
        self.samples += 1
        if ratio is None:
            self.quiet += 1
            self.count = 0 if self.is_over else self.count
            return
        self.gap = max(self.gap, self.quiet + 1) if self.count else 1
        self.began = self.began if self.count else at
        self.count, self.quiet, self.ratio = self.count + 1, 0, ratio

    def hold(self) -> None:
        """Notes that another sign of compiling was seen: what is found is not over."""
        if self.is_found:
            self.quiet = 0


@dataclass(slots=True)
class Programs:
    """Programs that a function became, each after a pause in which nothing ran: it was compiled then.

    Attributes:
        seen: ids of programs that ran, the last one last.
        functions: the program that each function ran as last.
        samples: number of samples that show what ran, or that nothing did.
        paused: whether nothing has run since the last step.
        function: the function that became another program last.
        new: counts samples with such a program.
        others: counts samples with another program that no compiling explains: no pause, or it ran before.
        unlike: number of changes since a program came back.
        same: the first sample with the program that its function ran before, too.
    """

    seen: dict[str, None] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    samples: int = 0
    paused: bool = False
    function: str = ""
    new: Compiling = field(default_factory=lambda: Compiling(often=_OFTEN_NEW))
    others: Compiling = field(default_factory=lambda: Compiling(often=_OFTEN_NEW))
    unlike: int = 0
    same: Moment | None = None

    @property
    def is_alone(self) -> bool:
        """True if so many programs ran, none of them again, that they were not compiled ahead."""
        return self.unlike >= _UNLIKE

    @property
    def severity_ratio(self) -> float | str:
        """Number of samples with a program made anew, relative to how many it takes; a text: why that is not known.

        Where programs change as often without a pause, or come back, there are many that were compiled ahead: a pause
        before one that only tpumon has not seen is chance.
        """
        if self.samples >= _FEWEST and (self.new.count > self.others.count or self.is_alone):
            return self.new.count_ratio
        if min(self.unlike, self.new.count + self.others.count) >= _LEAST_UNLIKE:  # each was another one so far
            return NeedsMoreSamples(_ALWAYS_NEW, takes=1 + _UNLIKE)
        return 0.0 if self.samples >= _FEWEST else NeedsMoreSamples(takes=_FEWEST)

    def note(self, figures: Figures, at: Moment) -> None:
        """Notes a sample with steps."""
        if not (figures.programs and figures.functions):
            return
        self.samples += 1
        program, function = figures.programs[0], figures.functions[0].name
        known = self.functions.get(function)
        changed = known is not None and known != program
        if known == program:
            self.same = self.same or at
        is_unlike = changed and program not in self.seen
        is_new = is_unlike and self.paused
        self.paused = False
        self.function = function if is_new else self.function
        self.new.note(1.0 if is_new else None, at)
        self.others.note(1.0 if changed and not is_new else None, at)
        if changed:
            self.unlike = self.unlike + 1 if is_unlike else 0
        if is_unlike and self.is_alone:
            self.new.hold()
        self.functions.pop(function, None)
        self.functions[function] = program
        for each in figures.programs:
            self.seen.pop(each, None)
            self.seen[each] = None
        for those in (self.seen, self.functions):
            while len(those) > _MOST_PROGRAMS:
                del those[next(iter(those))]


@dataclass(slots=True)
class Start:
    """The first samples of a job with steps or compiling, until steps alone are seen.

    Attributes:
        samples: their number.
        compiling: number of those in which the host compiles.
        alone: number of the last ones that show steps alone.
    """

    samples: int = 0
    compiling: int = 0
    alone: int = 0

    def note(self, *, compiles: bool) -> None:
        """Notes a sample with steps or compiling, unless the start is over."""
        if self.alone < _STARTED:
            self.samples, self.compiling = self.samples + 1, self.compiling + compiles
            self.alone = 0 if compiles else self.alone + 1

    @property
    def suspected(self) -> Suspected | None:
        """The reason for which `recompiling` is not judged though samples speak for it; None: they do not."""
        if self.alone >= _STARTED or self.compiling < max(_OFTEN, self.samples / 2):
            return None
        return Suspected(_MAYBE.format(compiling=self.compiling, samples=self.samples))


@dataclass(slots=True)
class Recompiled:
    """The signs: what the host does amid steps and in pauses between them, and what ran before and after pauses.

    Attributes:
        compiling: counts samples with steps in which the host compiles.
        pauses: counts samples with steps before which the host compiled while no step ran.
        pause: share of the time for which it did, of the sample of the present pause that shows most; since when.
        programs: what ran.
        ran: the first sample with steps in which the host does not compile.
        start: the first samples.
    """

    compiling: Compiling = field(default_factory=Compiling)
    pauses: Compiling = field(default_factory=lambda: Compiling(often=_OFTEN_PAUSES))
    pause: tuple[float, Moment] | None = None
    programs: Programs = field(default_factory=Programs)
    ran: Moment | None = None
    start: Start = field(default_factory=Start)

    def note(self, ratio: float | None, at: Moment, *, compiles: bool, has_steps: bool) -> None:
        """Notes for what share of the time the host compiles in a sample; a pause counts once steps follow."""
        if has_steps:
            self.pauses.note(*(self.pause or (None, at)))
            self.pause = None
        elif compiles and self.pauses.samples:  # before the first step, every job does
            most, began = self.pause or (0.0, at)
            self.pause = max(ratio or 0.0, most), began
        if ratio is not None:
            self.compiling.note(ratio if has_steps and compiles else None, at)
            if compiles or has_steps:
                self.start.note(compiles=compiles)
        if compiles:
            self.compiling.hold()
            self.pauses.hold()
        elif has_steps:
            self.ran = self.ran or at

    def resume(self, kept: KeptFinding) -> None:
        """Goes on with what was found before tpumon was restarted."""
        series, evidence = self.programs.new, kept.detail.evidence
        if (samples := evidence.get("compiling_samples")) is not None:
            series = self.compiling if samples.threshold == self.compiling.often else self.pauses
        series.count, series.began, series.gap = series.often, Moment(kept.since_unix_s), _FURTHEST // 2  # is not kept
        series.ratio = evidence["compile_ratio"].value if "compile_ratio" in evidence else 0.0

    @property
    def found(self) -> tuple[Compiling, Moment | None]:
        """Of the three signs the one that is found, and the first sample that showed its absence."""
        by_host = next((one for one in (self.compiling, self.pauses) if one.is_found), None)
        return (self.programs.new, self.programs.same) if by_host is None else (by_host, self.ran)

    @property
    def by_host(self) -> float | str:
        """Number of samples that show it by the host, relative to how many it takes; a text: why that is not known."""
        ratio = self.compiling.severity_ratio
        return ratio if isinstance(ratio, str) else max(ratio, self.pauses.count_ratio)


class Recompiling(Rule[Recompiled, None]):
    """Several samples, not far from each other, in which the host compiles amid steps, or after which it has compiled.

    A program that was not seen before says nothing by itself: it may have been compiled before tpumon looked. If
    nothing ran just before it, and that again and again, it was compiled then.
    """

    finding = "recompiling"
    not_for = SERVERS
    info_for = PAUSING
    states = frozenset({"no-activity"})
    memory_type = Recompiled
    remedy = (
        "keep shapes and static arguments the same from step to step: drop_remainder=True, batches and sequences "
        "padded to a few sizes, no changing static_argnums, no functions made anew; JAX_LOG_COMPILES=1 and "
        "JAX_EXPLAIN_CACHE_MISSES=1 say what is new"
    )
    samples = 1  # it takes several of the last ones
    leaves_below = 0.5
    hidden_by = frozenset({"hang"})

    def remember(self, memory: Recompiled, seen: Observation) -> None:
        """Counts samples that show it; compiling without steps is how every job begins."""
        figures = seen.figures
        ratio = figures.compile_ratio
        has_steps = figures.step_time_s is not None
        compiles = ratio is not None and ratio > COMPILE_LIMIT_RATIO
        if seen.state == "no-activity" or (seen.state == "live" and not has_steps and compiles):
            memory.programs.samples += 1
            memory.programs.paused = memory.programs.paused or ratio is None or compiles
        elif seen.state == "live" and has_steps:
            memory.programs.note(figures, seen.at)
        if seen.state == "live" or compiles:
            memory.note(ratio, seen.at, compiles=compiles, has_steps=has_steps and seen.state == "live")

    def resume(self, memory: Recompiled, kept: KeptWorker) -> None:
        """Goes on with what was found before: samples without it end it."""
        for one in kept.findings:
            if one.finding == self.finding:
                memory.resume(one)

    def severity_ratio(self, member: Member[Recompiled, None]) -> float | str:
        """Number of the last samples that showed it, relative to how many it takes."""
        by_host, programs = member.memory.by_host, member.memory.programs
        ratio = by_host
        if programs.new.samples:
            by_programs = programs.severity_ratio
            known = [one for one in (by_host, by_programs) if not isinstance(one, str)]
            ratio = max(known) if known else by_programs
        if not isinstance(ratio, str) and ratio > 1:
            return ratio
        return (member.seen.job_kind != "interactive" and member.memory.start.suspected) or ratio

    def began(self, member: Member[Recompiled, None]) -> Moment | None:
        """The first of the samples that it rests on."""
        return member.memory.found[0].began

    def was_there(self, member: Member[Recompiled, None]) -> bool:
        """True unless it was seen before that to run without compiling."""
        series, ran = member.memory.found
        return ran is None or series.began is None or seconds_between(ran, series.began) <= 0

    def detail(self, member: Member[Recompiled, None]) -> FindingDetail:
        """Says how much of the time the host compiled when it did last, or how many programs it made."""
        compiling, pauses, programs = member.memory.compiling, member.memory.pauses, member.memory.programs
        if compiling.is_found:
            return FindingDetail(
                words=f"compiles {compiling.ratio:.0%}",
                sentence=f"{{who}}, the job compiles again and again while it trains; the host compiles "
                f"{compiling.ratio:.0%} of the time.",
                evidence=compiling.evidence(),
            )
        if pauses.is_found:
            return FindingDetail(
                words="stops to compile",
                sentence=f"{{who}}, the job stops to compile again and again: in {pauses.count} of the pauses between "
                f"steps that were seen lately; in the last one the host compiled {pauses.ratio:.0%} of the time.",
                evidence=pauses.evidence(),
            )
        count, function = programs.new.count, programs.function or "a function"  # not kept over a restart
        return FindingDetail(
            words=f"{count} new programs",
            sentence=f"{{who}}, the job stops to compile again and again: after a pause {function} runs as a program "
            f"that never ran before, {count} times lately.",
            evidence={"new_programs": Evidence(value=count, threshold=programs.new.often)},
        )
