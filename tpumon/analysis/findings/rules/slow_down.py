"""slow-down: steps take longer than this worker's own steps of the same program took before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from tpumon.analysis.findings.recent import median_of_ascending, spread
from tpumon.analysis.findings.rule import Member, Observation, Rule
from tpumon.analysis.history import Moment
from tpumon.model import Evidence, FindingDetail, KeptProgram, KeptWorker
from tpumon.model.figure_table import MXU, STEP

_LIMIT_RATIO = 0.06
_LEAST_RATIO = 0.03  # by which steps are longer if the worker's own work is
_CRITICAL_RATIO = 0.5
_SIGMAS = 2.5  # three samples in a row
_FEWEST = 5  # samples before a program can be judged
_BLOCK = 10
_MOST_PROGRAMS = 6
_SAME_WORK_RATIO = 0.2

_Key = tuple[str | None, str | None, str | None, str | None]


@dataclass(slots=True)
class _Best:
    """The best block of some times, and the block that is being filled.

    The best block stands for the program as it can run: so a slow drift is found as well as a jump.
    """

    block: deque[float] = field(default_factory=lambda: deque(maxlen=_BLOCK))
    new: int = 0
    best_s: float | None = None
    spread_ratio: float = 0.0

    def add(self, time_s: float) -> None:
        self.block.append(time_s)
        self.new += 1
        if len(self.block) < _FEWEST or (self.best_s is not None and self.new < _BLOCK // 2):
            return
        middle = median_of_ascending(sorted(self.block))
        self.new = 0
        if self.best_s is None or middle < self.best_s:
            self.best_s, self.spread_ratio = middle, spread(self.block) / middle

    @property
    def limit_ratio(self) -> float:
        return max(_LIMIT_RATIO, _SIGMAS * self.spread_ratio)

    def more_ratio(self, time_s: float | None) -> float | None:
        """Excess of a time over the best block, as a fraction; None if that is not known."""
        return None if time_s is None or self.best_s is None else time_s / self.best_s - 1


@dataclass(slots=True)
class _Program:
    """One program: its step times, and its own work in a step, without waiting.

    Attributes:
        key: what the trace says of it.
        flops: MXU utilization times step time, where nothing else tells programs apart: the same for all steps of a
            program, however fast they are. None: not needed, or not known.
    """

    key: _Key
    flops: float | None
    step: _Best = field(default_factory=_Best)
    work: _Best = field(default_factory=_Best)


@dataclass(slots=True)
class StepBaselines:
    """The programs that ran, the latest last."""

    programs: list[_Program] = field(default_factory=list)


class SlowDown(Rule[StepBaselines, None]):
    """Steps 6 % longer than the best ten in a row that this program had on this worker, and beyond what varies."""

    finding = "slow-down"
    of_training = True
    memory_type = StepBaselines
    remedy = (
        "look at what changed when it began: `tpumon events`, the job's own log (longer sequences, checkpoints, "
        "evaluation), the hosts (other processes, throttling), storage; `tpumon report --against` compares two captures"
    )
    severities = ("warning", "critical")
    hidden_by = frozenset({"hang"})
    explained_if_new = frozenset(
        {
            *("straggler", "input-bound", "host-bound", "idle", "recompiling", "collective-bound", "outfeed-bound"),
            *("host-transfer-bound", "async-wait", "data-shuffle", "sparsecore-bound", "barrier-wait", "debug-print"),
        }
    )

    def remember(self, memory: StepBaselines, seen: Observation) -> None:
        """Adds the sample's step time to its program."""
        step_s = seen.step_s
        if seen.state != "live" or not step_s:
            return
        figures, mxu = seen.figures, seen.values[MXU.key]
        key = (seen.sample.source, figures.step_source, figures.step_name, next(iter(figures.programs), None))
        flops = mxu * step_s if mxu and key[2:] == (None, None) else None
        program = next((one for one in memory.programs if one.key == key and _is_alike(one.flops, flops)), None)
        if program is None or program is not memory.programs[-1]:
            others = [one for one in memory.programs if one is not program]
            program = program or _Program(key, flops)
            memory.programs = [*others[-_MOST_PROGRAMS + 1 :], program]
        program.step.add(step_s)
        if seen.own_work_s:
            program.work.add(seen.own_work_s)

    def resume(self, memory: StepBaselines, kept: KeptWorker) -> None:
        """Takes the best times of its programs."""
        memory.programs = [
            _Program(
                (one.source, one.step_source, one.step_name, one.program),
                one.flops,
                _Best(best_s=one.step_s, spread_ratio=one.step_spread),
                _Best(best_s=one.work_s, spread_ratio=one.work_spread),
            )
            for one in kept.programs
            if one.step_s > 0 and one.work_s != 0 and one.flops != 0
        ]

    def kept(self, memory: StepBaselines, kept: KeptWorker, _unix_s: Callable[[Moment], float]) -> KeptWorker:
        """Adds the best times of its programs."""
        programs = tuple(
            KeptProgram(
                step_s=one.step.best_s,
                step_spread=one.step.spread_ratio,
                work_s=one.work.best_s,
                work_spread=one.work.spread_ratio,
                source=one.key[0],
                step_source=one.key[1],
                step_name=one.key[2],
                program=one.key[3],
                flops=one.flops,
            )
            for one in memory.programs
            if one.step.best_s is not None
        )
        return replace(kept, programs=programs)

    def severity_ratio(self, member: Member[StepBaselines, None]) -> float | str:
        """Excess of step time relative to the limit; or of the worker's own work, which varies less."""
        step_s = member.seen.step_s
        if not step_s or not member.memory.programs:
            return "step time is not known"
        program = member.memory.programs[-1]
        more = program.step.more_ratio(step_s)
        if more is None:
            return "too few samples of this program"
        work = program.work.more_ratio(member.seen.own_work_s) or 0.0
        of_work = work / program.work.limit_ratio if more > _LEAST_RATIO else 0.0
        return max(more / program.step.limit_ratio, of_work)

    def detail(self, member: Member[StepBaselines, None]) -> FindingDetail:
        """Compares with the best that is known."""
        program = member.memory.programs[-1]
        step_s, best_s = member.seen.step_s or 0.0, program.step.best_s or 0.0
        ratio = step_s / best_s if best_s else 1.0
        return FindingDetail(
            words=f"step {ratio:.2f}x its own before",
            sentence=f"{{who}}, steps take {1000 * step_s:.3g} ms; the same program took {1000 * best_s:.3g} ms "
            "before.",
            evidence={
                "step_time_s": Evidence(
                    value=step_s, threshold=best_s * (1 + program.step.limit_ratio), reference=best_s
                ),
            },
            severity="critical" if ratio > 1 + _CRITICAL_RATIO else "warning",
            confidence="high" if program.flops is not None or program.key[3] is not None else "medium",
            figure=STEP.key,
        )


def _is_alike(known: float | None, flops: float | None) -> bool:
    if known is None or flops is None:
        return known is flops
    return abs(flops / known - 1) < _SAME_WORK_RATIO
