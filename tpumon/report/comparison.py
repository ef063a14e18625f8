"""Two captures compared: step time, parts, categories and ops that got slower or faster, new and gone ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from tpumon.report.blocks import Block, Facts, Lines, ReportColumn, SectionPage, Table
from tpumon.report.op_matching import match
from tpumon.report.op_totals import OpTotals, op_totals
from tpumon.report.profiles import Capture, Choice
from tpumon.report.quantities import change_text, part_label, percent_text, time_text
from tpumon.xspace.profile.op_times import Op
from tpumon.xspace.profile.step_times import StepTable

ChangedThing = Literal["op", "category", "part"]
ChangeStatus = Literal["slower", "faster", "new", "gone"]
ProgramStatus = Literal["same", "recompiled", "new", "gone"]

_SIGMAS = 3.0  # a change by less than so many standard errors is noise
_LEAST = 0.01  # of the time before: a smaller difference is none, however sure
_NEGLIGIBLE = 1e-4  # of a step: changes below it are left out
_ENOUGH = 2  # steps, to tell noise from change


class TimePerStep(Struct, frozen=True):
    """A time per step of an average core, in seconds, and its standard error; None where there are too few steps."""

    time_s: float
    error_s: float | None


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


class Comparison(Struct, frozen=True, kw_only=True):
    """Two captures compared.

    Attributes:
        per: the unit of times: per "step", or per "second" of a core's time where a capture has no steps.
        step_time_ratio: after divided by before; None where a capture has no steps.
        step_time_noise: whether chance alone may have done it; None where there are too few steps to tell.
        before_step_s, after_step_s: average step times.
        before_steps, after_steps: number of steps.
        changes: largest first; those below 0.01 % of a step are left out.
        programs: those that differ, and those that do not.
        reason: why there is no step time; None if there is.
        before_truncated, after_truncated: the losses of a capture, and the span of it that counts.
    """

    per: Literal["step", "second"]
    step_time_ratio: float | None
    step_time_noise: bool | None
    before_step_s: float | None
    after_step_s: float | None
    before_steps: int
    after_steps: int
    changes: tuple[StepTimeChange, ...]
    programs: tuple[ProgramChange, ...]
    reason: str | None
    before_truncated: str | None
    after_truncated: str | None
    schema: Literal[1] = 1

    def exceeds(self, limit_ratio: float) -> bool | None:
        """True if steps became longer by more than a limit, and not by chance; None where it cannot be told."""
        if self.step_time_ratio is None:
            return None
        return self.step_time_ratio > 1 + limit_ratio and not self.step_time_noise


class _Side(Struct, frozen=True, kw_only=True):
    """One of the two captures.

    Attributes:
        totals: its ops.
        steps: its steps.
        durations_s: of its steps.
        units: steps that all cores ran together, incomplete ones counted as far as they ran; seconds where times are
            per second.
    """

    totals: OpTotals
    steps: StepTable
    durations_s: Sequence[float]
    cores: int
    units: float


def compare(before: Capture, after: Capture, choice: Choice) -> Comparison:
    """Compares two captures."""
    per: Literal["step", "second"] = "step"
    if any(capture.step_table().period_s is None for capture in (before, after)):
        per = "second"
    old, new = _side(before, per), _side(after, per)
    old_step, new_step = _mean(old.durations_s), _mean(new.durations_s)
    step_s = new_step.time_s if new_step is not None and per == "step" else 1.0
    changes = [*_parts(old, new), *_categories(old, new, choice), *_ops(old, new, choice)]
    changes = [each for each in changes if abs(each.per_step_s) >= _NEGLIGIBLE * step_s]
    ratio = noise = reason = None
    if old_step and new_step and old_step.time_s:
        ratio, noise = new_step.time_s / old_step.time_s, _is_noise(old_step, new_step)
    else:
        absent = [capture.figures.figures.absent.get("step_time_s") for capture in (before, after)]
        reason = absent[0] or absent[1] or "a capture has no steps"
    return Comparison(
        per=per,
        step_time_ratio=ratio,
        step_time_noise=noise,
        before_step_s=old_step.time_s if old_step else None,
        after_step_s=new_step.time_s if new_step else None,
        before_steps=len(old.durations_s),
        after_steps=len(new.durations_s),
        changes=tuple(sorted(changes, key=lambda each: (-abs(each.per_step_s), each.what, each.name))),
        programs=_programs(old.totals, new.totals),
        reason=reason,
        before_truncated=before.figures.truncated,
        after_truncated=after.figures.truncated,
    )


def _side(capture: Capture, per: Literal["step", "second"]) -> _Side:
    totals, steps = op_totals(capture), capture.step_table()
    cores = sum(len(host.profile.trace.cores) for host in capture.hosts) or 1
    units = core_s = totals.total_s / cores
    if per == "step" and steps.period_s:
        # Whole steps are counted; of incomplete ones there are as many as fit into the rest of the time.
        units = steps.count + max(core_s - steps.covered_s, 0.0) / steps.period_s
    durations_s = capture.figures.figures.step_durations_s
    return _Side(totals=totals, steps=steps, durations_s=durations_s, cores=cores, units=units)


def _mean(values: Sequence[float]) -> TimePerStep | None:
    """The mean and its standard error; None of nothing."""
    count = len(values)
    if not count:
        return None
    mean = sum(values) / count
    if count < _ENOUGH:
        return TimePerStep(mean, None)
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    return TimePerStep(mean, math.sqrt(variance / count))


def _is_noise(before: TimePerStep, after: TimePerStep) -> bool | None:
    difference_s = abs(after.time_s - before.time_s)
    if difference_s < _LEAST * max(before.time_s, after.time_s):
        return True
    if before.error_s is None or after.error_s is None:
        return None
    return difference_s < _SIGMAS * math.hypot(before.error_s, after.error_s)


def _change(
    what: ChangedThing,
    name: str,
    before: TimePerStep | None,
    after: TimePerStep | None,
    program: str | None = None,
    category: str | None = None,
) -> StepTimeChange:
    """A change; of a new or gone thing, all of its time is one."""
    old_s, new_s = (0.0 if side is None else side.time_s for side in (before, after))
    status: ChangeStatus = (
        "new" if before is None else "gone" if after is None else "slower" if new_s > old_s else "faster"
    )
    return StepTimeChange(
        what=what,
        name=name,
        program=program,
        category=category,
        before_s=None if before is None else old_s,
        after_s=None if after is None else new_s,
        per_step_s=new_s - old_s,
        status=status,
        noise=False if before is None or after is None else _is_noise(before, after),
    )


def _time_of(ops: Sequence[Op] | None, side: _Side) -> TimePerStep | None:
    """Time per step of some ops together, with an error from their spread over occurrences; None without ops.

    Occurrences of one step depend on each other, so that no more than the steps are counted as samples.
    """
    if not ops:
        return None
    time_s = variance = 0.0
    steps = len(side.durations_s)
    known = steps >= _ENOUGH
    for op in ops:
        time_s += op.self_time_s
        count = min(op.occurrences, steps)
        if count < _ENOUGH:
            known = False
            continue
        mean_s = op.self_time_s / op.occurrences
        spread = max(op.self_time_s2 / op.occurrences - mean_s**2, 0.0)
        variance += op.occurrences**2 * spread / count
    units = side.units * side.cores
    if units <= 0:
        return TimePerStep(0.0, None)
    return TimePerStep(time_s / units, math.sqrt(variance) / units if known else None)


def _ops(old: _Side, new: _Side, choice: Choice) -> Iterable[StepTimeChange]:
    chosen = {id(op) for side in (old, new) for op in side.totals.chosen(choice)}
    for pair in match(old.totals, new.totals):
        if any(id(op) in chosen for op in (*pair.before, *pair.after)):
            before, after = _time_of(pair.before, old), _time_of(pair.after, new)
            yield _change("op", pair.name, before, after, pair.function, pair.category)


def _categories(old: _Side, new: _Side, choice: Choice) -> Iterable[StepTimeChange]:
    before, after = (_by_category(side.totals.chosen(choice)) for side in (old, new))
    for name in dict.fromkeys([*after, *before]):
        yield _change("category", name, _time_of(before.get(name), old), _time_of(after.get(name), new))


def _by_category(ops: Iterable[Op]) -> dict[str, list[Op]]:
    groups: dict[str, list[Op]] = {}
    for op in ops:
        groups.setdefault(op.category, []).append(op)
    return groups


def _parts(old: _Side, new: _Side) -> Iterable[StepTimeChange]:
    """Parts of a step, the mean over cores."""
    before, after = (_part_times(side.steps) for side in (old, new))
    for name in after if before else ():
        if before[name].time_s or after[name].time_s:
            yield _change("part", name, before[name], after[name])


def _part_times(steps: StepTable) -> Mapping[str, TimePerStep]:
    """Of matched steps each is a sample; otherwise those of the first core are."""
    times: dict[str, TimePerStep] = {}
    for name in steps.cores[0].parts_s if steps.cores else ():
        by_core = [core.parts_s[name] for core in steps.cores]
        if steps.matched:
            time = _mean([sum(column) / len(column) for column in zip(*by_core, strict=True)])
        else:
            means = [mean for own in by_core if (mean := _mean(own)) is not None]
            mean_s = sum(each.time_s for each in means) / len(means) if means else 0.0
            time = TimePerStep(mean_s, means[0].error_s) if means else None
        times[name] = time or TimePerStep(0.0, None)
    return times


def _programs(old: OpTotals, new: OpTotals) -> tuple[ProgramChange, ...]:
    before, after = _program_numbers(old), _program_numbers(new)

    def status(name: str) -> ProgramStatus:
        if name not in before:
            return "new"
        if name not in after:
            return "gone"
        return "same" if before[name] & after[name] else "recompiled"

    return tuple(ProgramChange(name=name, status=status(name)) for name in dict.fromkeys([*after, *before]))


def _program_numbers(totals: OpTotals) -> dict[str, set[int]]:
    numbers: dict[str, set[int]] = {}
    for op in totals.ops:
        numbers.setdefault(totals.function(op), set()).add(op.program_id)
    return numbers


_TABLES: tuple[tuple[str, Callable[[StepTimeChange], bool]], ...] = (
    ("Parts of a step, mean over cores", lambda each: each.what == "part"),
    ("Categories", lambda each: each.what == "category"),
    ("Operations", lambda each: each.what == "op" and each.status in {"slower", "faster"}),
    ("New and gone operations", lambda each: each.what == "op" and each.status in {"new", "gone"}),
)


def page(comparison: Comparison, top: int) -> SectionPage:
    """The comparison for people, `top` rows in each table; changes that may be chance are only counted."""
    sure = [each for each in comparison.changes if each.noise is not True]
    cut = (("earlier", comparison.before_truncated), ("later", comparison.after_truncated))
    lines = [f"the {which} trace is truncated: {words}" for which, words in cut if words]
    made: list[Block] = [Lines(title="Dropped events", lines=lines)] if lines else []
    made.append(Facts(title="Step time", rows=_step_time_facts(comparison)))
    for title, picked in _TABLES:
        if rows := [each for each in sure if picked(each)]:
            made.append(_table(title, rows, top, comparison.per))
    if not sure:
        made.append(Lines(title="Changes", lines=("nothing changed beyond noise",)))
    if hidden := len(comparison.changes) - len(sure):
        made.append(Lines(title="Noise", lines=(f"{hidden} differences may be chance and are not shown",)))
    if programs := [(each.name, each.status) for each in comparison.programs if each.status != "same"]:
        made.append(Facts(title="Programs", rows=programs))
    return SectionPage(name="comparison", title="Comparison", blocks=made)


_CERTAINTY = {True: "may be chance", False: "more than chance", None: "too few steps to tell it from chance"}


def _step_time_facts(comparison: Comparison) -> list[tuple[str, str]]:
    if comparison.step_time_ratio is None:
        return [("Step time", f"n/a ({comparison.reason})"), ("Times below", "per second of a core's time")]
    change = change_text(comparison.step_time_ratio - 1)
    return [
        ("Before", f"{time_text(comparison.before_step_s)}, {comparison.before_steps} steps"),
        ("After", f"{time_text(comparison.after_step_s)}, {comparison.after_steps} steps"),
        ("Change", f"{change} ({_CERTAINTY[comparison.step_time_noise]})"),
    ]


def _table(title: str, rows: Sequence[StepTimeChange], top: int, per: str) -> Table:
    shown, what = rows[:top], rows[0].what
    more = len(rows) - len(shown)
    category = ReportColumn("category", lambda change: change.category or "", wide=True, rank=1)
    return Table(
        title=title,
        columns=(
            ReportColumn(what, lambda change: part_label(change.name) if what == "part" else change.name, wide=True),
            *((category,) if what == "op" else ()),
            ReportColumn("before", lambda change: change.before_s, time_text),
            ReportColumn("after", lambda change: change.after_s, time_text),
            ReportColumn(f"per {per}", lambda change: change.per_step_s, _signed),
            ReportColumn("change", _ratio, lambda ratio: "" if ratio is None else change_text(ratio)),
            ReportColumn("status", _status),
        ),
        items=shown,
        note=f"{more} more; --top shows more of them" if more else "",
    )


def _signed(time_s: float | None) -> str:
    return ("+" if time_s and time_s > 0 else "") + time_text(time_s)


def _ratio(change: StepTimeChange) -> float | None:
    return change.after_s / change.before_s - 1 if change.before_s and change.after_s is not None else None


def _status(change: StepTimeChange) -> str:
    return change.status + ("" if change.noise is not None else " (too few steps to tell)")


def verdict(comparison: Comparison, limit_ratio: float) -> str:
    """One line for a log: whether the limit holds."""
    limit, ratio = percent_text(limit_ratio), comparison.step_time_ratio
    if ratio is None:
        return f"step times cannot be compared: {comparison.reason}"
    change = f"step time changed by {change_text(ratio - 1)}"
    if comparison.exceeds(limit_ratio):
        return f"{change}, which is above {limit}"
    if ratio > 1 + limit_ratio:
        return f"{change}, above {limit}, but no more than chance may do"
    return f"{change}, which is not above {limit}"
