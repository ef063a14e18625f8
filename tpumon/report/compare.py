"""Two captures compared: step time, parts, categories and ops that got slower or faster, new and gone ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from tpumon.report.blocks import Block, Cell, Column, Facts, Lines, Page, Table
from tpumon.report.capture import Capture, Choice
from tpumon.report.matching import match
from tpumon.report.words import change_word, part_word, percent_word, time_cell, time_word
from tpumon.report.work import Ledger, ledger

if TYPE_CHECKING:
    from tpumon.xspace.profile.op_times import Op
    from tpumon.xspace.profile.step_times import StepTable

What = Literal["op", "category", "part"]
Status = Literal["slower", "faster", "new", "gone"]

_SIGMAS = 3.0  # a change by less than so many standard errors is noise
_LEAST = 0.01  # of the time before: what differs by less is the same, however sure
_NEGLIGIBLE = 1e-4  # of a step: changes below it are left out
_ENOUGH = 2  # steps, to tell noise from change


class Amount(Struct, frozen=True):
    """A time per step, and how far chance may have moved it.

    Attributes:
        time_s: per step, on an average core.
        error_s: standard error; None where there are too few steps to tell.
    """

    time_s: float
    error_s: float | None


class Change(Struct, frozen=True, kw_only=True):
    """Something that takes another time per step than before.

    Attributes:
        what: what kind of thing.
        name: of the op, category or part.
        program: of an op, without its number; None for others.
        category: of an op; None for others.
        before_s, after_s: per step, on an average core; None where it was not there.
        per_step_s: after less before.
        status: what happened.
        noise: whether chance alone may have done it; None where there are too few steps to tell.
    """

    what: What
    name: str
    program: str | None = None
    category: str | None = None
    before_s: float | None
    after_s: float | None
    per_step_s: float
    status: Status
    noise: bool | None


class ProgramChange(Struct, frozen=True, kw_only=True):
    """A program in both captures, or in one.

    Attributes:
        name: without its number.
        status: recompiled if its numbers differ.
    """

    name: str
    status: Literal["same", "recompiled", "new", "gone"]


class Comparison(Struct, frozen=True, kw_only=True):
    """Two captures compared.

    Attributes:
        per: what times are per: "step", or "second" of a core's time where a capture has no steps.
        step_time_ratio: after divided by before; None where a capture has no steps.
        step_time_noise: whether chance alone may have done it; None where there are too few steps to tell.
        before_step_s, after_step_s: average step times.
        before_steps, after_steps: how many.
        changes: largest first; those below 0.01 % of a step are left out.
        programs: those that differ, and those that do not.
        reason: why there is no step time; None if there is.
        before_truncated, after_truncated: what is missing from a capture, and which span of it counts.
    """

    per: Literal["step", "second"]
    step_time_ratio: float | None
    step_time_noise: bool | None
    before_step_s: float | None
    after_step_s: float | None
    before_steps: int
    after_steps: int
    changes: tuple[Change, ...]
    programs: tuple[ProgramChange, ...]
    reason: str | None
    before_truncated: str | None
    after_truncated: str | None
    schema: Literal[1] = 1

    def exceeds(self, limit_ratio: float) -> bool | None:
        """Whether steps became longer by more than a limit, and not by chance; None where it cannot be told."""
        if self.step_time_ratio is None:
            return None
        return self.step_time_ratio > 1 + limit_ratio and not self.step_time_noise


class _Side(Struct, frozen=True, kw_only=True):
    """One capture.

    Attributes:
        book: its ops.
        table: its steps.
        durations_s: of its steps.
        reason: why there are none.
        cores: how many.
        units: steps that all cores ran together, incomplete ones counted as far as they ran; seconds where there are
            no steps.
    """

    book: Ledger
    table: StepTable
    durations_s: Sequence[float]
    reason: str | None
    cores: int
    units: float

    @property
    def samples(self) -> int:
        """Steps that tell how much chance does."""
        return len(self.durations_s)


def compare(before: Capture, after: Capture, choice: Choice) -> Comparison:
    """Compares two captures."""
    per: Literal["step", "second"] = "step"
    sides = [_side(capture, by_step=True) for capture in (before, after)]
    if any(side is None for side in sides):
        per = "second"
        sides = [_side(capture, by_step=False) for capture in (before, after)]
    old, new = (side for side in sides if side is not None)
    old_step, new_step = _of_samples(old.durations_s), _of_samples(new.durations_s)
    has_steps = bool(old_step and new_step and old_step.time_s)
    step_s = new_step.time_s if new_step is not None and per == "step" else 1.0
    changes = [*_parts(old, new), *_categories(old, new, choice), *_ops(old, new, choice)]
    changes = [each for each in changes if abs(each.per_step_s) >= _NEGLIGIBLE * step_s]
    return Comparison(
        per=per,
        step_time_ratio=new_step.time_s / old_step.time_s if has_steps and old_step and new_step else None,
        step_time_noise=_is_noise(old_step, new_step) if has_steps and old_step and new_step else None,
        before_step_s=old_step.time_s if old_step else None,
        after_step_s=new_step.time_s if new_step else None,
        before_steps=old.samples,
        after_steps=new.samples,
        changes=tuple(sorted(changes, key=lambda each: (-abs(each.per_step_s), each.what, each.name))),
        programs=_programs(old.book, new.book),
        reason=None if has_steps else old.reason or new.reason or "a capture has no steps",
        before_truncated=before.figures.truncated,
        after_truncated=after.figures.truncated,
    )


def _side(capture: Capture, *, by_step: bool) -> _Side | None:
    """None if times per step are asked for, and there are no steps."""
    from tpumon.xspace.profile.step_times import step_table

    figures, book = capture.figures.figures, ledger(capture)
    table = step_table([host.profile.trace for host in capture.hosts], figures.step_durations_s)
    cores = sum(len(host.profile.trace.cores) for host in capture.hosts) or 1
    if by_step and table.period_s is None:
        return None
    core_s = book.total_s / cores
    # Whole steps are counted; of incomplete ones there are as many as fit into the rest of the time.
    rest_s = max(core_s - table.covered_s, 0.0)
    units = table.count + rest_s / table.period_s if by_step and table.period_s else core_s
    return _Side(
        book=book,
        table=table,
        durations_s=figures.step_durations_s,
        reason=figures.absent.get("step_time_s"),
        cores=cores,
        units=units,
    )


def _of_samples(values: Sequence[float]) -> Amount | None:
    """The mean and its standard error; None of nothing."""
    count = len(values)
    if not count:
        return None
    mean = sum(values) / count
    if count < _ENOUGH:
        return Amount(mean, None)
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    return Amount(mean, math.sqrt(variance / count))


def _is_noise(before: Amount, after: Amount) -> bool | None:
    difference_s = abs(after.time_s - before.time_s)
    if difference_s < _LEAST * max(before.time_s, after.time_s):
        return True
    if before.error_s is None or after.error_s is None:
        return None
    return difference_s < _SIGMAS * math.hypot(before.error_s, after.error_s)


def _change(what: What, name: str, before: Amount | None, after: Amount | None, **more: str) -> Change:
    """A change; of what is new or gone, all of its time is one."""
    old_s, new_s = (0.0 if side is None else side.time_s for side in (before, after))
    status: Status = "new" if before is None else "gone" if after is None else "slower" if new_s > old_s else "faster"
    return Change(
        what=what,
        name=name,
        program=more.get("program"),
        category=more.get("category"),
        before_s=None if before is None else old_s,
        after_s=None if after is None else new_s,
        per_step_s=new_s - old_s,
        status=status,
        noise=False if before is None or after is None else _is_noise(before, after),
    )


def _amount(ops: Iterable[Op], side: _Side) -> Amount:
    """Time per step of some ops together; their own spread from occurrence to occurrence tells how sure it is.

    Occurrences of one step depend on each other, so that no more than the steps are counted as samples.
    """
    time_s = variance = 0.0
    known = side.samples >= _ENOUGH
    for op in ops:
        time_s += op.self_time_s
        count = min(op.occurrences, side.samples)
        if count < _ENOUGH or not op.occurrences:
            known = False
            continue
        mean_s = op.self_time_s / op.occurrences
        spread = max(op.self_time_s2 / op.occurrences - mean_s**2, 0.0)
        variance += op.occurrences**2 * spread / count
    units = side.units * side.cores
    if units <= 0:
        return Amount(0.0, None)
    return Amount(time_s / units, math.sqrt(variance) / units if known else None)


def _ops(old: _Side, new: _Side, choice: Choice) -> Iterable[Change]:
    chosen = [{id(op) for op in side.book.chosen(choice)} for side in (old, new)]
    for pair in match(old.book, new.book):
        if not any(id(op) in chosen[0] for op in pair.before) and not any(id(op) in chosen[1] for op in pair.after):
            continue
        yield _change(
            "op",
            pair.name,
            _amount(pair.before, old) if pair.before else None,
            _amount(pair.after, new) if pair.after else None,
            program=pair.function,
            category=pair.category,
        )


def _categories(old: _Side, new: _Side, choice: Choice) -> Iterable[Change]:
    by_category: list[dict[str, list[Op]]] = []
    for side in (old, new):
        groups: dict[str, list[Op]] = {}
        for op in side.book.chosen(choice):
            groups.setdefault(op.category, []).append(op)
        by_category.append(groups)
    before, after = by_category
    for name in dict.fromkeys([*after, *before]):
        yield _change(
            "category",
            name,
            _amount(before[name], old) if name in before else None,
            _amount(after[name], new) if name in after else None,
        )


def _parts(old: _Side, new: _Side) -> Iterable[Change]:
    """Parts of a step, the mean over cores."""
    before, after = (_part_amounts(side.table) for side in (old, new))
    for name in after if before else ():
        if before[name].time_s or after[name].time_s:
            yield _change("part", name, before[name], after[name])


def _part_amounts(table: StepTable) -> Mapping[str, Amount]:
    """Of matched steps each is a sample; otherwise those of the first core are."""
    amounts: dict[str, Amount] = {}
    for name in table.cores[0].parts_s if table.cores else ():
        columns = [core.parts_s[name] for core in table.cores]
        if table.matched:
            found = _of_samples([sum(column) / len(column) for column in zip(*columns, strict=True)])
        else:
            means = [found for column in columns if (found := _of_samples(column)) is not None]
            mean_s = sum(each.time_s for each in means) / len(means) if means else 0.0
            found = Amount(mean_s, means[0].error_s) if means else None
        amounts[name] = found or Amount(0.0, None)
    return amounts


def _programs(old: Ledger, new: Ledger) -> tuple[ProgramChange, ...]:
    before, after = (_numbers(book) for book in (old, new))
    made = []
    for name in dict.fromkeys([*after, *before]):
        numbers = before.get(name), after.get(name)
        if numbers[0] is None:
            status: Literal["same", "recompiled", "new", "gone"] = "new"
        elif numbers[1] is None:
            status = "gone"
        else:
            status = "same" if numbers[0] & numbers[1] else "recompiled"
        made.append(ProgramChange(name=name, status=status))
    return tuple(made)


def _numbers(book: Ledger) -> dict[str, set[int]]:
    numbers: dict[str, set[int]] = {}
    for op in book.ops:
        numbers.setdefault(book.function(op), set()).add(op.program_id)
    return numbers


def page(comparison: Comparison, top: int) -> Page:
    """The comparison for people, `top` rows in each table; changes that may be chance are only counted."""
    sure = [each for each in comparison.changes if each.noise is not True]
    cut = (("earlier", comparison.before_truncated), ("later", comparison.after_truncated))
    lines = tuple(f"the {which} trace is truncated: {words}" for which, words in cut if words)
    made: list[Block] = [Lines(title="Dropped events", lines=lines)] if lines else []
    made.append(Facts(title="Step time", rows=tuple(_facts(comparison))))
    for title, picked in _TABLES:
        rows = [each for each in sure if picked(each)]
        if rows:
            made.append(_table(title, rows[:top], len(rows), comparison.per))
    hidden = len(comparison.changes) - len(sure)
    if not sure:
        made.append(Lines(title="Changes", lines=("nothing changed beyond noise",)))
    if hidden:
        made.append(Lines(title="Noise", lines=(f"{hidden} differences may be chance and are not shown",)))
    programs = [(each.name, each.status) for each in comparison.programs if each.status != "same"]
    if programs:
        made.append(Facts(title="Programs", rows=tuple(programs)))
    return Page(name="comparison", title="Comparison", blocks=tuple(made))


_TABLES: tuple[tuple[str, Callable[[Change], bool]], ...] = (
    ("Parts of a step, mean over cores", lambda each: each.what == "part"),
    ("Categories", lambda each: each.what == "category"),
    ("Operations", lambda each: each.what == "op" and each.status in {"slower", "faster"}),
    ("New and gone operations", lambda each: each.what == "op" and each.status in {"new", "gone"}),
)


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    if comparison.step_time_ratio is None:
        return [("Step time", f"n/a ({comparison.reason})"), ("Times below", "per second of a core's time")]
    change = change_word(comparison.step_time_ratio - 1)
    told = {True: "may be chance", False: "more than chance", None: "too few steps to tell it from chance"}
    return [
        ("Before", f"{time_word(comparison.before_step_s)}, {comparison.before_steps} steps"),
        ("After", f"{time_word(comparison.after_step_s)}, {comparison.after_steps} steps"),
        ("Change", f"{change} ({told[comparison.step_time_noise]})"),
    ]


def _table(title: str, shown: Sequence[Change], rows: int, per: str) -> Table:
    is_op = shown[0].what == "op"
    more = rows - len(shown)
    return Table(
        title=title,
        columns=(
            Column(shown[0].what, text=True, wide=True),
            *((Column("category", text=True, wide=True, rank=1),) if is_op else ()),
            Column("before"),
            Column("after"),
            Column(f"per {per}"),
            Column("change"),
            Column("status", text=True),
        ),
        rows=tuple(
            (
                Cell(part_word(each.name) if each.what == "part" else each.name),
                *((Cell(each.category or ""),) if is_op else ()),
                time_cell(each.before_s),
                time_cell(each.after_s),
                Cell(_signed(each.per_step_s), each.per_step_s),
                Cell(*_relative(each)),
                Cell(each.status + ("" if each.noise is not None else " (too few steps to tell)")),
            )
            for each in shown
        ),
        note=f"{more} more; --top shows more of them" if more else "",
    )


def _signed(time_s: float) -> str:
    return ("+" if time_s > 0 else "") + time_word(time_s)


def _relative(change: Change) -> tuple[str, float | None]:
    if not change.before_s or change.after_s is None:
        return "", None
    ratio = change.after_s / change.before_s - 1
    return change_word(ratio), ratio


def verdict(comparison: Comparison, limit_ratio: float) -> str:
    """One line for a log: whether the limit holds."""
    limit = percent_word(limit_ratio)
    exceeds = comparison.exceeds(limit_ratio)
    if exceeds is None or comparison.step_time_ratio is None:
        return f"step times cannot be compared: {comparison.reason}"
    change = change_word(comparison.step_time_ratio - 1)
    if exceeds:
        return f"step time changed by {change}, which is above {limit}"
    if comparison.step_time_ratio > 1 + limit_ratio:
        return f"step time changed by {change}, above {limit}, but no more than chance may do"
    return f"step time changed by {change}, which is not above {limit}"
