"""slow-down: steps take longer than this worker's own steps of the same program took before."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from msgspec.structs import replace

from tpumon.analysis.findings.recent import alike_s
from tpumon.analysis.findings.rule import PAUSING, SERVERS, Member, Observation, Rule, Sibling, graded
from tpumon.analysis.findings.step_blocks import LIMIT_RATIO, Slow, StepBlocks
from tpumon.analysis.history import Moment
from tpumon.model import Evidence, Figures, FindingDetail, KeptProgram, KeptSlowDown, KeptWorker
from tpumon.model.figure_table import MXU, STEP
from tpumon.model.kept_state import MOST_KEPT_PROGRAMS

_CRITICAL_RATIO = 0.5
_OTHERS = 10  # samples of other programs after which a slow one has ended
_SAME_WORK_RATIO = 0.2
_HEAVY_RATIO = 0.1  # of the time in programs: lighter functions do not change steps

_MIXES = "each trace shows steps of several programs of one function, which may be of unlike lengths"

_Key = tuple[str | None, str | None, str | None, str | None]


@dataclass(slots=True)
class _Program:
    """One program and its step times.

    Attributes:
        key: what the trace says of it.
        flops: MXU utilization times step time, where nothing else tells programs apart: the same for all steps of a
            program, however fast they are. None: not needed, or not known.
        others: number of samples of other programs since the last sample of this one.
    """

    key: _Key
    flops: float | None
    steps: StepBlocks = field(default_factory=StepBlocks)
    others: int = 0


@dataclass(slots=True)
class StepBaselines:
    """The programs that ran, the latest last.

    Attributes:
        mixes: the last window shows steps of several programs.
        was_slow: the last sample was judged to be slow.
    """

    programs: list[_Program] = field(default_factory=list)
    mixes: bool = False
    was_slow: bool = False

    @property
    def current(self) -> _Program | None:
        """The program to judge: a slow one among programs that run in turn, otherwise the latest."""
        slow = [one for one in self.programs if one.steps.slow is not None and one.others < _OTHERS]
        return next(iter((slow or self.programs)[-1:]), None)


@dataclass(slots=True)
class SliceSteps:
    """Workers of a slice by their present step times, shortest first.

    Attributes:
        now_s: the step times.
        slow: the slow-down of each.
    """

    now_s: list[float]
    slow: list[Slow | None]
    _common: dict[tuple[int, int], Slow | None] = field(default_factory=dict)

    def common(self, steps: StepBlocks) -> Slow | None:
        """Slow-down of most workers with steps of this length; None: most have no slow-down."""
        now_s = steps.now_s
        if now_s is None or (steps.slow is None and not any(self.slow)):
            return None
        least_s, greatest_s = alike_s(now_s, 0.0)
        alike = bisect_left(self.now_s, least_s), bisect_right(self.now_s, greatest_s)
        if alike[0] == alike[1]:
            return steps.slow
        if alike not in self._common:
            slow = sorted(self.slow[slice(*alike)], key=lambda one: 0.0 if one is None else one.severity_ratio)
            self._common[alike] = slow[(len(slow) - 1) // 2]
        return self._common[alike]


class SlowDown(Rule[StepBaselines, SliceSteps]):
    """Steps 6 % longer than this program's on this worker before, and longer than by chance.

    Workers of a slice step together: what most of those with equal steps show holds for each.
    """

    finding = "slow-down"
    not_for = SERVERS
    info_for = PAUSING
    memory_type = StepBaselines
    remedy = (
        "look at what changed when it began: `tpumon events`, the job's own log (longer sequences, checkpoints, "
        "evaluation), the hosts (other processes, throttling), storage; `tpumon report --against` compares two captures"
    )
    severities = ("warning", "critical")
    samples = 1  # it looks at three blocks of samples
    compares = True
    hidden_by = frozenset({"hang"})
    hidden_by_new = frozenset(
        {
            *("straggler", "input-bound", "host-bound", "idle", "recompiling", "collective-bound", "outfeed-bound"),
            *("host-transfer-bound", "async-wait", "data-shuffle", "sparsecore-bound", "barrier-wait", "debug-print"),
        }
    )

    def remember(self, memory: StepBaselines, seen: Observation) -> None:
        """Adds the sample's step time to its program."""
        step_s, steps = seen.step_s, seen.figures.step_time_s
        if seen.state != "live" or not step_s or seen.sample.companions_only:
            return
        figures, mxu = seen.figures, seen.values[MXU.key]
        key = (seen.sample.source, figures.step_source, figures.step_name, next(iter(figures.programs), None))
        flops = mxu * step_s if mxu and key[2:] == (None, None) else None
        memory.mixes = _mixes(figures)
        matches = (one for one in memory.programs if one.key == key and _is_alike(one.flops, flops))
        program = None if memory.mixes else next(matches, None)
        others = [one for one in memory.programs if one is not program]
        for one in others:
            one.others += 1
        if memory.mixes:
            return
        program = program or _Program(key, flops)
        program.others = 0
        memory.programs = [*others[-MOST_KEPT_PROGRAMS + 1 :], program]
        program.steps.add(step_s, (steps.count if steps is not None else None) or 1, seen.at)

    def resume(self, memory: StepBaselines, kept: KeptWorker) -> None:
        """Restores the step times of the worker's programs."""
        memory.programs = [
            _Program(
                (one.source, one.step_source, one.step_name, one.program),
                one.flops,
                StepBlocks(one.steps_s, None if one.slow is None else _resumed(one.slow)),
            )
            for one in kept.programs
            if one.flops != 0
        ]

    def kept(self, memory: StepBaselines, kept: KeptWorker, unix_s: Callable[[Moment], float]) -> KeptWorker:
        """Adds the step times of its programs."""
        programs = tuple(
            KeptProgram(
                steps_s=one.steps.kept,
                slow=None if one.steps.slow is None else _kept(one.steps.slow, unix_s),
                source=one.key[0],
                step_source=one.key[1],
                step_name=one.key[2],
                program=one.key[3],
                flops=one.flops,
            )
            for one in memory.programs
        )
        return replace(kept, programs=programs)

    def slice_stats(self, siblings: Sequence[Sibling[StepBaselines]]) -> SliceSteps:
        """Step times of the workers that run."""
        programs = [
            one for sibling in siblings if sibling.seen.state == "live" and (one := sibling.memory.current) is not None
        ]
        steps = sorted(((one.steps.now_s or 0.0, one.steps.slow) for one in programs), key=itemgetter(0))
        return SliceSteps([now_s for now_s, _ in steps], [slow for _, slow in steps])

    def severity_ratio(self, member: Member[StepBaselines, SliceSteps]) -> float | str:
        """Excess of step time relative to the limit, of most workers that step together with this one."""
        program = member.memory.current
        if not member.seen.step_s or program is None:
            return _MIXES if member.memory.mixes and program is None else "step time is not known"
        if member.memory.mixes and program.others >= _OTHERS:  # what was judged of it is old
            return _MIXES
        slow = member.slice_stats.common(program.steps)
        was_slow, member.memory.was_slow = member.memory.was_slow, slow is not None
        if slow is not None:
            return slow.severity_ratio
        if was_slow:  # that it is over is known
            return 0.0
        limit_ratio = program.steps.limit_ratio
        if limit_ratio is None:
            return "too few samples of this program"
        if limit_ratio > LIMIT_RATIO:
            percent = math.ceil(100 * limit_ratio)
            return f"its steps vary too much by themselves: none but {percent}% longer ones would tell"
        return 0.0

    def began(self, member: Member[StepBaselines, SliceSteps]) -> Moment | None:
        """Begin of the first block of slow steps."""
        program = member.memory.current
        slow = None if program is None else program.steps.slow
        return None if slow is None else slow.since

    def detail(self, member: Member[StepBaselines, SliceSteps]) -> FindingDetail:
        """Compares with the steps before."""
        program = member.memory.current
        assert program is not None
        slow = member.slice_stats.common(program.steps)
        assert slow is not None
        ratio = slow.now_s / slow.before_s
        severity, limit = graded(ratio, {"warning": 1 + slow.limit_ratio, "critical": 1 + _CRITICAL_RATIO})
        limit_s = slow.before_s * max(limit, 1 + slow.limit_ratio)
        return FindingDetail(
            words=f"step {ratio:.2f}x its own before",
            sentence=f"{{who}}, steps take {1000 * slow.now_s:.3g} ms; the same program took "
            f"{1000 * slow.before_s:.3g} ms before.",
            evidence={
                "step_time_s": Evidence(value=slow.now_s, threshold=limit_s, reference=slow.before_s),
            },
            severity=severity,
            confidence="high" if program.flops is not None or program.key[3] is not None else "medium",
            figure=STEP.key,
        )


def _kept(slow: Slow, unix_s: Callable[[Moment], float]) -> KeptSlowDown:
    return KeptSlowDown(
        level=slow.level,
        since_unix_s=unix_s(slow.since),
        before_s=slow.before_s,
        limit_ratio=slow.limit_ratio,
        now_s=slow.now_s,
    )


def _resumed(kept: KeptSlowDown) -> Slow:
    return Slow(kept.level, Moment(kept.since_unix_s), kept.before_s, kept.limit_ratio, kept.now_s)


def _mixes(figures: Figures) -> bool:
    """True if one function ran as several programs, such as one for each length of sequence.

    The window then shows steps of unlike lengths, and parts of others at its ends.
    """
    return any(
        (each.programs or 1) > 1 and (each.device_time_ratio or 0.0) > _HEAVY_RATIO for each in figures.functions
    )


def _is_alike(known: float | None, flops: float | None) -> bool:
    if known is None or flops is None:
        return known is flops
    return abs(flops / known - 1) < _SAME_WORK_RATIO
