"""A comparison in words: tables for people, and the line of a check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tpumon.report.blocks import Block, Facts, Lines, ReportColumn, SectionPage, Table
from tpumon.report.comparison import PERIOD, Comparison, PeriodChange, StepTimeChange
from tpumon.report.formats import change_text, counted, part_label, time_text

_PAUSES = 1.1  # times as many steps in a median time from start to start in one capture as in the other
_TABLES: tuple[tuple[str, Callable[[StepTimeChange], bool]], ...] = (
    ("Parts of a step, mean over cores", lambda each: each.what == "part"),
    ("Categories", lambda each: each.what == "category"),
    ("Operations", lambda each: each.what == "op" and each.status in {"slower", "faster"}),
    ("New and gone operations", lambda each: each.what == "op" and each.status in {"new", "gone"}),
)


def page(comparison: Comparison, top: int, before: str, after: str) -> SectionPage:
    """The comparison for people; changes that may be chance are only counted.

    Args:
        comparison: to be shown.
        top: the most rows of a table.
        before: path and date of the earlier profile.
        after: those of the later one.
    """
    sure = [each for each in comparison.changes if each.noise is not True]
    cut = (("earlier", comparison.before_truncated), ("later", comparison.after_truncated))
    lines = [f"the {which} trace is truncated: {words}" for which, words in cut if words]
    made: list[Block] = [Facts(title="Profiles", rows=(("Before", before), ("After", after)))]
    if lines:
        made.append(Lines(title="Dropped events", lines=lines))
    if comparison.cautions:
        made.append(Lines(title="Caution", lines=comparison.cautions))
    made.append(Facts(title="Step time", rows=_step_time_facts(comparison, times_below=bool(sure))))
    if comparison.period or comparison.period_reason:
        made.append(Facts(title="Time from start to start", rows=_period_facts(comparison)))
    for title, picked in _TABLES:
        if rows := [each for each in sure if picked(each)]:
            made.append(_table(title, rows, top, comparison.per))
    if changes := [*_one_changed(comparison), *([] if sure else [_no_changes(comparison)])]:
        made.append(Lines(title="Changes", lines=changes))
    if hidden := len(comparison.changes) - len(sure):
        words = f"{counted(hidden, 'difference')} may be chance and {'is' if hidden == 1 else 'are'} not shown"
        made.append(Lines(title="Noise", lines=(words,)))
    if programs := [(each.name, each.status) for each in comparison.programs if each.status != "same"]:
        made.append(Facts(title="Programs", rows=programs))
    return SectionPage(name="comparison", title="Comparison", blocks=made)


_CERTAINTY = {True: "may be chance", False: "more than chance", None: "too few steps to tell it from chance"}


def _one_changed(comparison: Comparison) -> Iterable[str]:
    """A line where only one of step time and time from start to start changed, or pauses that the latter leaves out."""
    period = comparison.period
    if period is None:
        return
    of_steps = "step time", comparison.before_step_s, comparison.after_step_s
    of_periods = PERIOD, period.before_s, period.after_s
    same, changed = (of_steps, of_periods) if comparison.step_time_noise else (of_periods, of_steps)
    if {comparison.step_time_noise, period.noise} == {True, False}:
        times = f"{time_text(changed[1])} before, {time_text(changed[2])} after"
        yield f"{same[0]} did not change beyond noise, but {changed[0]} did: {times}"
    if words := _pauses(period):
        yield words


def _pauses(period: PeriodChange) -> str:
    """The rates, where the pauses of a capture make them differ and the medians do not; else ""."""
    rates = period.before_steps_per_s, period.after_steps_per_s
    in_medians = rates[0] * period.before_s, rates[1] * period.after_s
    if not period.noise or max(in_medians) < _PAUSES * min(in_medians):
        return ""
    return (
        f"with pauses between steps, such as for a checkpoint, {rates[0]:.3g} steps a second before, {rates[1]:.3g} "
        "after: a longer profile (--duration-ms) shows whether that is usual"
    )


def _no_changes(comparison: Comparison) -> str:
    if comparison.ops_reason is not None:
        return f"no operations in these profiles to compare: {comparison.ops_reason}"
    is_all = comparison.period_reason is None and all(noise for *_, noise in comparison.times_changed())
    return f"{'nothing' if is_all else 'no operation'} changed beyond noise"


def _period_facts(comparison: Comparison) -> list[tuple[str, str]]:
    period = comparison.period
    if period is None:
        return [("Median", f"n/a ({comparison.period_reason})")]
    sides = (
        ("Before", period.before_s, period.before_steps_per_s),
        ("After", period.after_s, period.after_steps_per_s),
    )
    return [
        *((side, f"{time_text(each_s)} (median); {rate:.3g} steps a second in all") for side, each_s, rate in sides),
        ("Change", f"{change_text(period.ratio - 1)} ({_CERTAINTY[period.noise]})"),
    ]


def _step_time_facts(comparison: Comparison, *, times_below: bool) -> list[tuple[str, str]]:
    per_second = [("Times below", "per second of a core's time")] if times_below and comparison.per == "second" else []
    if comparison.step_time_ratio is None:
        return [("Step time", f"n/a ({comparison.reason})"), *per_second]
    change = change_text(comparison.step_time_ratio - 1)
    return [
        ("Before", f"{time_text(comparison.before_step_s)}, {counted(comparison.before_steps, 'step')}"),
        ("After", f"{time_text(comparison.after_step_s)}, {counted(comparison.after_steps, 'step')}"),
        ("Change", f"{change} ({_CERTAINTY[comparison.step_time_noise]})"),
        *per_second,
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
    """One line for a log: whether the limit holds, and whether that proves anything."""
    pauses = _pauses(comparison.period) if comparison.period else ""
    said = "; ".join(filter(None, (_verdict(comparison, limit_ratio), pauses)))
    return "; this is no proof: ".join((said, *comparison.cautions))


def _verdict(comparison: Comparison, limit_ratio: float) -> str:
    changed = list(comparison.times_changed())
    if not changed:
        return f"step times cannot be compared: {comparison.reason}"
    limit = f"{100 * limit_ratio:g}%"
    change = ", ".join(f"{name} changed by {change_text(ratio - 1)}" for name, ratio, _ in changed)
    longer = "longer profiles (--duration-ms) tell more"
    if comparison.exceeds(limit_ratio):
        return f"{change}, which is above {limit}"
    if any(ratio > 1 + limit_ratio for _, ratio, _ in changed):
        return f"{change}, above {limit}, but no more than chance may do; {longer}"
    if comparison.period_reason:
        return f"{change}, but {PERIOD} cannot be compared: {comparison.period_reason}; {longer}"
    return f"{change}, which is not above {limit}"
