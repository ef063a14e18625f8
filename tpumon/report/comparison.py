"""Two captures compared: step time, parts, categories and ops that got slower or faster, new and gone ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tpumon.report.formats import counted
from tpumon.report.op_matching import match
from tpumon.report.op_totals import OpTotals, grouped, op_totals
from tpumon.report.profiles import Capture, Choice
from tpumon.untrusted_text import listed
from tpumon.xspace.profile.op_times import Op
from tpumon.xspace.profile.op_work import per
from tpumon.xspace.profile.profile import Extra
from tpumon.xspace.profile.step_times import CORE_PARTS, StepTable

ChangedThing = Literal["op", "category", "part"]
ChangeStatus = Literal["slower", "faster", "new", "gone"]
ProgramStatus = Literal["same", "recompiled", "new", "gone"]

NEEDED: frozenset[Extra] = frozenset({"ops", "op_steps"})
"""The parts of a trace to read for a comparison."""

_SIGMAS = 4.4  # of a normal value; chance exceeds it once in 100,000 times, and a comparison has many rows
_SIGMAS_OF_STEPS = 3.7  # of the step time and the time from start to start: once in 5,000 times
_LEAST = 0.01  # of the time before: a smaller difference is none, however sure
_NEGLIGIBLE = 1e-4  # of a step: changes below it are left out
_DIGITS = 12  # of seconds; traces have picoseconds
_ENOUGH = 2  # steps, to tell noise from change
_BLOCKS = 8
_PAUSE = 2  # medians of the time from start to start
_FEW_PERIODS = 5  # of fewer, one that is longer may be as usual as the others
_HUGE = 600.0  # an exponent whose power is a finite number
_NAMED = 2  # hosts of a capture

_MARKED = "steps"  # the source of steps that the devices mark, which are shorter than the time from start to start
PERIOD = "the time from start to start"


class StepTimeChange(Struct, frozen=True, kw_only=True):
    """An op, category or part that takes another time per step than before.

    Attributes:
        what: the kind of thing.
        name: of the op, category or part.
        program: of an op, without its number; None for others.
        category: of an op; None for others.
        before_s, after_s: per step, on an average core; None where it was not there.
        per_step_s: after less before.
        status: the direction of the change.
        noise: whether chance alone may have done it; None where there are too few steps to tell.
    """

    what: ChangedThing
    name: str
    program: str | None = None
    category: str | None = None
    before_s: float | None
    after_s: float | None
    per_step_s: float
    status: ChangeStatus
    noise: bool | None


class ProgramChange(Struct, frozen=True, kw_only=True):
    """A program in both captures, or in one.

    Attributes:
        name: without its number.
        status: recompiled if its numbers differ.
    """

    name: str
    status: ProgramStatus


class PeriodChange(Struct, frozen=True, kw_only=True):
    """The time from the start of a step to that of the next, which holds what the step time leaves out.

    Attributes:
        before_s, after_s: medians: a pause for a checkpoint changes nothing.
        ratio: after divided by before.
        noise: whether chance alone may have done it; None where there are too few steps to tell.
        before_steps_per_s, after_steps_per_s: on average, pauses included.
    """

    before_s: float
    after_s: float
    ratio: float
    noise: bool | None
    before_steps_per_s: float
    after_steps_per_s: float


class Comparison(Struct, frozen=True, kw_only=True):
    """Two captures compared.

    Attributes:
        per: the unit of times: per "step", or per "second" of a core's time where a capture has no steps.
        step_time_ratio: after divided by before; None where a capture has no steps.
        step_time_noise: whether chance alone may have done it; None where there are too few steps to tell.
        before_step_s, after_step_s: average step times.
        before_steps, after_steps: number of steps.
        period: from start to start of steps; None where the step time is that already, or a capture shows no two steps.
        period_reason: why it cannot be compared; None if it can, or if the step time is that already.
        changes: largest first; those below 0.01 % of a step are left out.
        programs: those that differ, and those that do not; those that may be in one by chance are left out.
        reason: why there is no step time; None if there is.
        ops_reason: why neither capture has ops; None if one has.
        cautions: sentences on why a difference may be none of the program: other workers or hosts than before.
        before_truncated, after_truncated: the losses of a capture, and the span of it that counts.
    """

    per: Literal["step", "second"]
    step_time_ratio: float | None
    step_time_noise: bool | None
    before_step_s: float | None
    after_step_s: float | None
    before_steps: int
    after_steps: int
    period: PeriodChange | None
    period_reason: str | None
    changes: tuple[StepTimeChange, ...]
    programs: tuple[ProgramChange, ...]
    reason: str | None
    ops_reason: str | None
    cautions: tuple[str, ...]
    before_truncated: str | None
    after_truncated: str | None
    schema: Literal[1] = 1

    def exceeds(self, limit_ratio: float) -> bool | None:
        """True if steps, or the time from start to start, became longer by more than a limit, and not by chance.

        None where it cannot be told.
        """
        if self.step_time_ratio is None:
            return None
        if any(ratio > 1 + limit_ratio and not noise for _, ratio, noise in self.times_changed()):
            return True
        return None if self.period_reason else False

    def times_changed(self) -> Iterable[tuple[str, float, bool | None]]:
        """Name, ratio and noise of the step time, and of the time from start to start."""
        if self.step_time_ratio is not None:
            yield "step time", self.step_time_ratio, self.step_time_noise
        if self.period is not None:
            yield PERIOD, self.period.ratio, self.period.noise


class _Side(Struct, frozen=True, kw_only=True):
    """One of the two captures.

    Attributes:
        totals: its ops; per step, those that ran in whole steps.
        steps: its steps; None where times are per second.
        durations_s: of its steps.
        periods_s: from the start of each to that of the next.
    """

    totals: OpTotals
    steps: StepTable | None
    durations_s: Sequence[float]
    periods_s: Sequence[float]

    def times_s(self, ops: Iterable[Op]) -> Sequence[float]:
        """The time of some ops in each whole step; per second of a core's time it is a single one."""
        if self.steps is None:
            return (per(sum(op.self_time_s for op in ops), self.totals.total_s),)
        return self.steps.ops_s(op.key for op in ops)


def compare(before: Capture, after: Capture, choice: Choice) -> Comparison:
    tables = [capture.step_table() for capture in (before, after)]
    by_step = all(table.shared for table in tables)
    old, new = (_side(capture, table, by_step=by_step) for capture, table in zip((before, after), tables, strict=True))
    old_step_s, new_step_s = (fmean(side.durations_s) if side.durations_s else None for side in (old, new))
    changes = [*_parts(old, new), *_categories(old, new, choice), *_ops(old, new, choice)]
    least_s = _NEGLIGIBLE * (new_step_s if by_step and new_step_s else 1.0)
    changes = [each for each in changes if abs(each.per_step_s) >= least_s]
    ratio = noise = reason = None
    if old_step_s and new_step_s:
        ratio, noise = new_step_s / old_step_s, _is_noise(old.durations_s, new.durations_s, _SIGMAS_OF_STEPS)
    else:
        reason = _why_absent("step_time_s", before, after) or "a capture has no steps"
    is_marked = _MARKED in {capture.figures.figures.step_source for capture in (before, after)}
    period = _period(old.periods_s, new.periods_s) if is_marked else None
    ops_reason = None
    if not (old.totals.ops or new.totals.ops):
        ops_reason = _why_absent("op_time_ratios", before, after) or "none ran in the window"
    return Comparison(
        per="step" if by_step or (ratio is not None and ops_reason is not None) else "second",
        step_time_ratio=ratio,
        step_time_noise=noise,
        before_step_s=old_step_s,
        after_step_s=new_step_s,
        before_steps=len(old.durations_s),
        after_steps=len(new.durations_s),
        period=period,
        period_reason="a capture has a single step" if is_marked and ratio is not None and period is None else None,
        changes=tuple(sorted(changes, key=lambda each: (-round(abs(each.per_step_s), _DIGITS), each.what, each.name))),
        programs=tuple(_programs(old, new)),
        reason=reason,
        ops_reason=ops_reason,
        cautions=tuple(_cautions(before, after)),
        before_truncated=before.figures.truncated,
        after_truncated=after.figures.truncated,
    )


def _why_absent(figure: str, *captures: Capture) -> str | None:
    return next((why for each in captures if (why := each.figures.figures.absent.get(figure))), None)


def _cautions(before: Capture, after: Capture) -> Iterable[str]:
    if any(each.profile.trace.simulated for capture in (before, after) for each in capture.hosts):
        yield "tpumon simulated them, or one of them"
    workers = [len(capture.hosts) for capture in (before, after)]
    hosts = [
        {name for each in capture.hosts for name in each.profile.trace.hostnames if name} for capture in (before, after)
    ]
    if workers[0] != workers[1]:
        yield (
            f"the later profile is of {counted(workers[1], 'worker')}, the earlier of {workers[0]}: a step is as long "
            "as on the slowest of them, so the change may be that of other workers or another job"
        )
    elif all(hosts) and hosts[0] != hosts[1]:
        yield (
            f"the later profile is of {_other_hosts(hosts[1], hosts[0])}, the earlier of "
            f"{_other_hosts(hosts[0], hosts[1])}: the change may be that of the hosts or another job"
        )


def _other_hosts(names: set[str], others: set[str]) -> str:
    shown = sorted(names - others or names)
    return f"host{'' if len(shown) == 1 else 's'} {listed(shown, _NAMED)}"


def _side(capture: Capture, table: StepTable, *, by_step: bool) -> _Side:
    totals, figures = op_totals(capture), capture.figures.figures
    if by_step and table.ops is not None:
        ran = set(table.ops.picked(0, table.shared).key.tolist())
        totals = replace(totals, ops=tuple(op for op in totals.ops if op.key in ran))
    return _Side(
        totals=totals,
        steps=table if by_step else None,
        durations_s=figures.step_durations_s,
        periods_s=table.periods_s if figures.step_source == _MARKED else figures.step_durations_s,
    )


def _period(before_s: Sequence[float], after_s: Sequence[float]) -> PeriodChange | None:
    medians_s = [median(side) if side else 0.0 for side in (before_s, after_s)]
    if not all(medians_s):
        return None
    noise: bool | None = True
    if abs(medians_s[1] - medians_s[0]) >= _LEAST * max(medians_s):
        old_s, new_s = (_blocks(_without_pause(side), median) for side in (before_s, after_s))
        noise = _is_noise(old_s, new_s, _SIGMAS_OF_STEPS)
    return PeriodChange(
        before_s=medians_s[0],
        after_s=medians_s[1],
        ratio=medians_s[1] / medians_s[0],
        noise=noise,
        before_steps_per_s=1 / fmean(before_s),
        after_steps_per_s=1 / fmean(after_s),
    )


def _without_pause(periods_s: Sequence[float]) -> Sequence[float]:
    """All but the longest, if that is a pause: one among few would hide any change. More of them are the job's way."""
    longest = max(range(len(periods_s)), key=periods_s.__getitem__)
    if len(periods_s) < _FEW_PERIODS or periods_s[longest] <= _PAUSE * median(periods_s):
        return periods_s
    return [*periods_s[:longest], *periods_s[longest + 1 :]]


def _is_noise(before: Sequence[float], after: Sequence[float], sigmas: float = _SIGMAS) -> bool | None:
    """True if chance may have made the difference of two means: Welch's t-test; None where there are too few values."""
    means_s = fmean(before), fmean(after)
    difference_s = abs(means_s[1] - means_s[0])
    if difference_s < _LEAST * max(means_s):
        return True
    if min(len(before), len(after)) < _ENOUGH:
        return None
    blocks = [_blocks(side, fmean) for side in (before, after)]
    squares = [_variance(means) / len(means) for means in blocks]
    if not sum(squares):
        return False
    freedom = sum(squares) ** 2 / sum(
        square**2 / (len(means) - 1) for square, means in zip(squares, blocks, strict=True)
    )
    return difference_s < _student(freedom, sigmas) * math.sqrt(sum(squares))


def _blocks(values: Sequence[float], middle: Callable[[Sequence[float]], float]) -> list[float]:
    """The middle of each of a few blocks: steps near each other are alike, so that many of them tell no more."""
    count = min(len(values), _BLOCKS)
    edges = [len(values) * i // count for i in range(count + 1)]
    return [middle(values[begin:end]) for begin, end in pairwise(edges)]


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _student(freedom: float, sigmas: float) -> float:
    """Student's t that chance exceeds as rarely as a normal value so many sigmas, by Wallace's approximation."""
    normal = sigmas * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(min(normal**2 / freedom, _HUGE)))


def _change(
    what: ChangedThing,
    name: str,
    before_s: Sequence[float],
    after_s: Sequence[float],
    *,
    there: tuple[bool, bool] = (True, True),
    program: str | None = None,
    category: str | None = None,
) -> StepTimeChange:
    """A change of the times in each step; `there` tells whether the thing is in the earlier and the later capture."""
    old_s, new_s = fmean(before_s), fmean(after_s)
    was, is_ = there
    status: ChangeStatus = "new" if not was else "gone" if not is_ else "slower" if new_s > old_s else "faster"
    return StepTimeChange(
        what=what,
        name=name,
        program=program,
        category=category,
        before_s=old_s if was else None,
        after_s=new_s if is_ else None,
        per_step_s=new_s - old_s,
        status=status,
        noise=_is_noise(before_s, after_s),
    )


def _ops(old: _Side, new: _Side, choice: Choice) -> Iterable[StepTimeChange]:
    chosen = {id(op) for side in (old, new) for op in side.totals.chosen(choice)}
    for pair in match(old.totals, new.totals):
        if any(id(op) in chosen for op in (*pair.before, *pair.after)):
            yield _change(
                "op",
                pair.name,
                old.times_s(pair.before),
                new.times_s(pair.after),
                there=(bool(pair.before), bool(pair.after)),
                program=pair.function,
                category=pair.category,
            )


def _categories(old: _Side, new: _Side, choice: Choice) -> Iterable[StepTimeChange]:
    before, after = (grouped(side.totals.chosen(choice), lambda op: op.category) for side in (old, new))
    for name in dict.fromkeys([*after, *before]):
        times_s = [side.times_s(groups.get(name, ())) for side, groups in ((old, before), (new, after))]
        yield _change("category", name, *times_s, there=(name in before, name in after))


def _parts(old: _Side, new: _Side) -> Iterable[StepTimeChange]:
    """Parts of a step, the mean over cores."""
    if old.steps is None or new.steps is None:
        return
    for name in CORE_PARTS:
        before_s, after_s = old.steps.part_s(name), new.steps.part_s(name)
        yield _change("part", name, before_s, after_s)


def _programs(old: _Side, new: _Side) -> Iterable[ProgramChange]:
    """The programs of the steps; those that are in one capture, but may be so by chance, are left out."""
    before, after = (grouped(side.totals.ops, side.totals.function) for side in (old, new))
    for name in dict.fromkeys([*after, *before]):
        was, is_ = before.get(name, ()), after.get(name, ())
        if was and is_:
            same = {op.program_id for op in was} & {op.program_id for op in is_}
            yield ProgramChange(name=name, status="same" if same else "recompiled")
        elif not _is_noise(old.times_s(was), new.times_s(is_)):
            yield ProgramChange(name=name, status="gone" if was else "new")
